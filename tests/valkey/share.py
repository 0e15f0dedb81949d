# SPDX-License-Identifier: Apache-2.0
"""share: engines in processes of their own share prompts through a cluster.

    share.py ENGINE WEIGHTS_FOLDER
"""

import json
import pathlib
import subprocess
import sys
import tempfile

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


def a_shared_prompt_is_not_computed_again(engine, cluster):
    """A second process is given the prompt; how much sooner its first token comes is printed."""
    words = engine.golden().decode()[:800]
    prompt = [*engine.trained(), "--prompt", words, "--steps", "400", "--temperature", "0",
              "--json"]
    first, texts = {}, {}
    for name, options in (("alone", []), ("first", tier(cluster)), ("second", tier(cluster))):
        run = engine.run(*prompt, *options)
        expect(run.returncode == 0, run.stderr.decode())
        first[name] = json.loads(run.stderr[run.stderr.index(b"{"):])
        texts[name] = run.stdout
    expect(texts["alone"] == texts["first"] == texts["second"], f"the texts differ: {texts}")
    expect(first["second"]["prefix_cache_hits"] > 200, first["second"])
    times = {name: report["first_token_p50_seconds"] for name, report in first.items()}
    print("seconds to the first token:", times)


def a_replay_finds_what_another_one_computed(engine, cluster):
    """`quire replay` over the cluster: alone it finds what a disk of that size would."""
    quire = pathlib.Path(engine.program).parents[2] / "bindings" / "cli" / "quire"
    with tempfile.TemporaryDirectory() as folder:
        trace = str(pathlib.Path(folder, "trace.jsonl"))

        def replay(*options):
            run = subprocess.run([quire, "replay", trace, "--blocks", "2500", "--json", *options],
                                 capture_output=True, check=True, timeout=120)
            return json.loads(run.stdout)

        subprocess.run([quire, "trace", "--requests", "40", "--output", trace], check=True)
        disk = replay("--disk-blocks", "100000")
        first, second = [replay(*tier(cluster)) for _ in range(2)]
    for level in ("hit_tokens", "read_blocks", "written_blocks", "cached_blocks"):
        expect(first[f"remote_{level}"] == disk[f"disk_{level}"], f"{level}: {first} {disk}")
    print(f"hit rate {first['hit_rate']:.3f}, of the second process {second['hit_rate']:.3f}")
    expect(second["hit_rate"] > 0.99 > first["hit_rate"], f"{first} {second}")


def a_missing_cluster_is_refused(engine, cluster):
    """A cluster that is not there is refused in words."""
    for server in cluster.servers:
        server.kill()
    dead = engine.run(*tier(cluster), "--json", "--pool-blocks", "700")
    expect(dead.returncode == 1 and b"cluster" in dead.stderr, dead.stderr.decode())


def main():
    clusters.skip_without_server()
    engine = serving.Engine(*sys.argv[1:])
    with Cluster(replicas=False) as cluster:
        a_workload_is_given_to_the_next_process(engine, cluster)
        a_shared_prompt_is_not_computed_again(engine, cluster)
        a_replay_finds_what_another_one_computed(engine, cluster)
        a_missing_cluster_is_refused(engine, cluster)


if __name__ == "__main__":
    main()
