# SPDX-License-Identifier: Apache-2.0
"""tiers: texts whose prefixes were evicted from the device and found below it equal a dense run's.

    tiers.py ENGINE WEIGHTS_FOLDER CASE
"""

import serving
from serving import expect, refused

# A request of the workload needs up to half of it, so prefixes leave it all the time.
SMALL = ["--pool-blocks", "32", "--host-prefixes"]


def through_host(engine, *options):
    table = engine.workload(*SMALL, *options)
    expect(table["passed"] and table["equal_texts"] == table["texts"], f"{options}: {table}")
    expect(table["blocks_demoted"] > 0, f"{options}: nothing went to the host tier: {table}")
    expect(table["blocks_promoted"] > 0, f"{options}: nothing came back: {table}")
    return table


def workload_through_host(engine):
    for options in ([], ["--preempt", "recompute"], ["--chunk", "5"], ["--tp", "2"],
                    ["--block-tokens", "32"],
                    ["--host-bytes", "64KiB"], ["--migrate-to", "cpu"],
                    *(["--seed", str(seed)] for seed in range(2, 5))):
        through_host(engine, *options)


def host_tier_finds_more(engine):
    """As much as a pool of both sizes would."""
    alone = engine.workload("--pool-blocks", "32", "--preempt", "recompute")
    both = through_host(engine, "--preempt", "recompute")
    large = engine.workload("--pool-blocks", "2000", "--preempt", "recompute")
    expect(alone["prefix_hit_rate"] < both["prefix_hit_rate"], f"{alone} {both}")
    expect(both["evictions"] == 0 and both["repeated_tokens"] <= alone["repeated_tokens"], both)
    expect(large["prefix_cache_hits"] > 0, large)


def story_through_host(engine):
    """The golden story, again and again through a pool that holds it one and a half times."""
    prompt = engine.story("--samples", "4", *serving.TIGHT_POOL, "--host-prefixes", "--check",
                          "--preempt", "recompute")
    expect(prompt.returncode == 0, prompt.stderr.decode())
    expect(prompt.stdout == 4 * engine.golden(), "it is another story")


def wrong_options_are_refused(engine):
    refused(engine, 1, "QUIRE_CACHE_HOST_PREFIXES", "--host-prefixes", "--host-bytes", "0")


def workload_through_host_on_vulkan(engine):
    through_host(engine, "--device", "vulkan")


def workload_through_host_on_cuda(engine):
    through_host(engine, "--device", "cuda")


def workload_through_host_on_hip(engine):
    through_host(engine, "--device", "hip")


CASES = [story_through_host, wrong_options_are_refused]
LONG_CASES = [workload_through_host, host_tier_finds_more]
VULKAN_CASES = [workload_through_host_on_vulkan]
CUDA_CASES = [workload_through_host_on_cuda]
HIP_CASES = [workload_through_host_on_hip]

if __name__ == "__main__":
    serving.main({"--list": CASES, "--list-long": LONG_CASES,
                  "--list-vulkan-extended": VULKAN_CASES,
                  "--list-cuda-extended": CUDA_CASES, "--list-hip-extended": HIP_CASES})
