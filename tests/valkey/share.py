# SPDX-License-Identifier: Apache-2.0
"""share: engines in processes of their own share prompts through a cluster.

    share.py ENGINE WEIGHTS_FOLDER
"""

import json
import pathlib
import sys

import cluster as clusters
from cluster import Cluster

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "engine"))
# pylint: disable=wrong-import-position
import serving
import stores
from serving import expect


def tier(cluster):
    words = ["--tier", "valkey"]
    for option in (f"nodes={cluster.nodes()}", "timeout=20000", "connect_timeout=20000"):
        words += ["--tier-option", option]
    return words


def a_workload_is_given_to_the_next_process(engine, cluster):
    """Every text equals a dense run, and almost all of the prompts come from the cluster."""
    how = [*tier(cluster), "--block-tokens", "1", "--json", "--check"]
    stores.given(engine.run(*how, "--pool-blocks", "20000"))
    second = engine.run(*how, "--pool-blocks", "700")
    tokens = stores.given(second)
    report = json.loads(second.stdout)
    rate = report["prefix_cache_hits"] / report["prefix_cache_queries"]
    print(f"hit rate {rate:.3f}, {tokens} tokens loaded")
    expect(tokens > 0 and rate >= 0.9, f"hit rate {rate:.3f}, {tokens} tokens loaded")


def a_missing_cluster_is_refused(engine, cluster):
    """A cluster that is not there is refused in words."""
    for server in cluster.servers:
        server.kill()
    dead = engine.run(*tier(cluster), "--json", "--pool-blocks", "700")
    expect(dead.returncode == 1 and b"cluster" in dead.stderr, dead.stderr.decode())


def main():
    clusters.skip_without("redis-server")
    engine = serving.Engine(*sys.argv[1:])
    with Cluster(replicas=False) as cluster:
        a_workload_is_given_to_the_next_process(engine, cluster)
        a_missing_cluster_is_refused(engine, cluster)


if __name__ == "__main__":
    main()
