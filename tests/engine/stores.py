# SPDX-License-Identifier: Apache-2.0
"""stores: the example engine with a store below its cache, which outlives the process.

    stores.py ENGINE WEIGHTS_FOLDER CASE
"""

import json
import os
import pathlib
import random
import re
import subprocess
import tempfile
import time

import serving
from serving import expect, refused


def disk(folder):
    return ["--tier", "disk", "--tier-option", f"directory={pathlib.Path(folder, 'store')}",
            "--tier-option", "capacity=256MiB"]


def given(result):
    """How many tokens the store gave."""
    expect(result.returncode == 0, result.stderr.decode())
    return int(re.search(rb"the store gave (\d+) tokens", result.stderr)[1])


def golden_story_through_the_disk(engine):
    """A story whose beginning a second process is given: it loads that, and goes on alike."""
    golden = engine.golden()
    beginning = golden[:400].decode()
    with tempfile.TemporaryDirectory() as folder:
        how = [*disk(folder), "--block-tokens", "4", "--pool-blocks", "66"]
        first = engine.story(*how)
        expect(first.stdout == golden and given(first) == 0, "the first run differs")
        second = engine.run(*engine.trained(), "--prompt", beginning, "--steps", "256", *how)
        expect(len(second.stdout) > 100 and golden.endswith(second.stdout),
               f"the second run tells another story: {second.stdout}")
        expect(given(second) >= 64, second.stderr.decode())


def golden_story_through_the_disks_of_ranks(engine):
    """The same by two processes, each with the heads that it holds and a store of its own."""
    golden = engine.golden()
    beginning = golden[:400].decode()
    with tempfile.TemporaryDirectory() as folder:
        how = ["--tp", "2", "--processes", "--block-tokens", "4", "--pool-blocks", "66", "--tier",
               "disk", "--tier-option", "capacity=256MiB", "--tier-option",
               f"directory={pathlib.Path(folder, 'store-{rank}')}"]
        first = engine.story(*how)
        expect(first.stdout == golden and given(first) == 0, "the first run differs")
        expect(sorted(path.name for path in pathlib.Path(folder).iterdir()) ==
               ["store-0", "store-1"], "each rank has a store")
        second = engine.run(*engine.trained(), "--prompt", beginning, "--steps", "256", *how)
        expect(len(second.stdout) > 100 and golden.endswith(second.stdout),
               f"the second run tells another story: {second.stdout}")
        expect(given(second) >= 64, second.stderr.decode())
        # A rank whose store is gone computes everything again, and so do the others.
        for file in pathlib.Path(folder, "store-1").iterdir():
            file.unlink()
        third = engine.run(*engine.trained(), "--prompt", beginning, "--steps", "256", *how)
        expect(third.stdout == second.stdout and given(third) == 0, third.stderr.decode())
        fourth = engine.run(*engine.trained(), "--prompt", beginning, "--steps", "256", *how)
        expect(fourth.stdout == second.stdout and given(fourth) >= 64, fourth.stderr.decode())


def workload_after_a_restart(engine):
    """Every text equals a dense run, and almost all of the prompts come from the disk."""
    with tempfile.TemporaryDirectory() as folder:
        how = [*disk(folder), "--block-tokens", "1", "--json", "--check"]
        # Nothing is evicted before it is written.
        given(engine.run(*how, "--pool-blocks", "20000"))
        second = engine.run(*how, "--pool-blocks", "700")
        tokens = given(second)
        report = json.loads(second.stdout)
        rate = report["prefix_cache_hits"] / report["prefix_cache_queries"]
        expect(tokens > 0 and rate >= 0.95, f"hit rate {rate:.3f}, {tokens} tokens loaded")


def workload_that_is_written_as_it_is_evicted(engine):
    """Every text equals a dense run, and a second process is given what the first one evicted."""
    with tempfile.TemporaryDirectory() as folder:
        how = [*disk(folder), "--tier-write", "back", "--block-tokens", "1", "--json", "--check",
               "--pool-blocks", "700"]
        runs = [engine.run(*how) for _ in range(2)]
        tokens = [given(run) for run in runs]
        hits = [json.loads(run.stdout)["prefix_cache_hits"] for run in runs]
        # How much is written before it is evicted depends on the disk.
        expect(tokens[1] > 0 and hits[1] > hits[0], f"hits {hits}, tokens loaded {tokens}")


KILLS = {"few": 1, "usual": 3, "all": 200}


def kills_cost_hits_and_no_text(engine):
    """An engine is killed at any moment while it writes; the next one on the same store loads what
    is whole, and every text equals a dense run."""
    seed = int(os.environ.get("QUIRE_TEST_SEED") or 1)
    chance = random.Random(seed)
    count = KILLS[os.environ.get("QUIRE_TEST_EFFORT") or "usual"]
    loaded = 0
    with tempfile.TemporaryDirectory() as folder:
        plain = ["--block-tokens", "4", "--pool-blocks", "200", "--json"]
        how = [*disk(folder), *plain]
        began = time.monotonic()
        without = engine.run(*plain)
        expect(without.returncode == 0, without.stderr.decode())
        seconds = time.monotonic() - began
        for i in range(count):
            write = ["--tier-write", chance.choice(["through", "selective", "back"])]
            with subprocess.Popen([engine.program, *how, *write], stdout=subprocess.DEVNULL,
                                  stderr=subprocess.DEVNULL) as killed:
                time.sleep(chance.uniform(0, seconds))
                killed.kill()
            loaded += given(engine.run(*how, *write, "--check"))
            if i % 3 == 2:  # from an empty store again
                for file in pathlib.Path(folder, "store").iterdir():
                    file.unlink()
    print(f"{count} kills, seed {seed}, {loaded} tokens loaded")
    expect(loaded > 0, "no run was given anything")


def mistakes_about_tiers_are_explained(engine):
    refused(engine, 2, "--tier", "--tier-option", "a=b")
    refused(engine, 2, "NAME=VALUE", "--tier", "memory", "--tier-option", "colour")
    refused(engine, 2, "--host-bytes", "--tier", "memory", "--host-bytes", "0")
    refused(engine, 2, "--tier-write", "--tier", "memory", "--tier-write", "never")
    refused(engine, 1, "abacus", "--tier", "abacus")


LISTS = {
    "--list": [golden_story_through_the_disk, golden_story_through_the_disks_of_ranks,
               mistakes_about_tiers_are_explained],
    "--list-long": [workload_after_a_restart, workload_that_is_written_as_it_is_evicted,
                    kills_cost_hits_and_no_text],
}


if __name__ == "__main__":
    serving.main(LISTS)
