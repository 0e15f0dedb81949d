# SPDX-License-Identifier: Apache-2.0
"""traffic: how many commands and bytes a block costs, beside the least that it could.

The nodes count them. What is asserted are the commands; the bytes are printed, and bounded by a
header's worth per block.
"""

import cluster as clusters
from client import DONE, FIND, GET, PUT, REMOVE, Store, outcomes
from cluster import Cluster
from faults import PATIENT, expect

COUNT, SIZE_BYTES = 200, 65_536
ROOM = 600  # bytes of a block beside its value: the header, the key's name, the protocol


def measured(cluster, store, what, kind, keys, size_bytes, wanted):
    for server in cluster.servers:
        server.ask("CONFIG", "RESETSTAT")
    done = outcomes(store.run(kind, keys, size_bytes))
    expect(done == {"DONE": COUNT}, f"{what}: {done}")
    calls = {name: count for name, count in cluster.calls().items()
             if "|" not in name and name not in ("info", "role", "ping")}
    took = cluster.total("stats", "total_net_input_bytes") / COUNT
    gave = cluster.total("stats", "total_net_output_bytes") / COUNT
    print(f"{what:28} commands {calls}; bytes per block to the nodes {took:8.0f}, "
          f"from them {gave:8.0f}; the value has {size_bytes if kind in (PUT, GET) else 0}")
    expect(calls == {name: COUNT for name in wanted}, f"{what}: {calls}, not {wanted}")
    return took, gave


def main():
    clusters.skip_without_server()
    keys = [f"block {i}" for i in range(COUNT)]
    with Cluster(replicas=False) as cluster, Store(nodes=cluster.nodes(), scan=0,
                                                   **PATIENT) as store:
        # Reading the counts has a price too, about 10 kB in all.
        spare = ROOM + 30_000 / COUNT
        took, _ = measured(cluster, store, "put of a new value", PUT, keys, SIZE_BYTES, ["set"])
        expect(took <= SIZE_BYTES + spare, f"a put sends {took} bytes")
        took, _ = measured(cluster, store, "put of a known value", PUT, keys, SIZE_BYTES,
                           ["getrange"])
        expect(took <= spare, f"a value that is known is sent again: {took}")
        with Store(nodes=cluster.nodes(), known=0, **PATIENT) as other:
            measured(cluster, other, "put of another's value", PUT, keys, SIZE_BYTES,
                     ["set", "getrange"])
        took, gave = measured(cluster, store, "get", GET, keys, SIZE_BYTES, ["get"])
        expect(took <= spare and gave <= SIZE_BYTES + spare, f"a get: {took} and {gave} bytes")
        took, gave = measured(cluster, store, "find by a request", FIND, keys, SIZE_BYTES,
                              ["getrange"])
        expect(took <= spare and gave <= spare, f"a find: {took} and {gave} bytes")
        measured(cluster, store, "removal", REMOVE, keys, SIZE_BYTES, ["getrange", "unlink"])
        expect(store.one(PUT, "last", 1).outcome == DONE, "it still serves")


if __name__ == "__main__":
    main()
