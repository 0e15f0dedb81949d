# SPDX-License-Identifier: Apache-2.0
"""partial: texts whose prefixes end within a block, which is copied, equal a dense run's.

    partial.py ENGINE WEIGHTS_FOLDER CASE
"""

import serving
from serving import expect

PARTIAL = "--partial-hits"


def in_part(engine, *options):
    table = engine.workload(PARTIAL, *options)
    expect(table["passed"] and table["equal_texts"] == table["texts"], f"{options}: {table}")
    return table


def finds_more_and_tells_the_same(engine):
    whole, part = engine.workload(), in_part(engine)
    expect(part["prefix_cache_hits"] > whole["prefix_cache_hits"], f"{whole} {part}")
    expect(part["copies_on_write"] > whole["copies_on_write"], f"{whole} {part}")


def whatever_the_options(engine):
    for options in (["--preempt", "recompute"], ["--chunk", "5"], ["--block-tokens", "32"],
                    ["--migrate-to", "cpu"],
                    ["--pool-blocks", "32", "--host-prefixes"], serving.IN_ONE_PROCESS,
                    serving.IN_PROCESSES, *(["--seed", str(seed)] for seed in range(2, 5))):
        in_part(engine, *options)


def workload_in_part_on_vulkan(engine):
    in_part(engine, "--device", "vulkan")


def workload_in_part_on_cuda(engine):
    in_part(engine, "--device", "cuda")


def workload_in_part_on_hip(engine):
    in_part(engine, "--device", "hip")


CASES = [finds_more_and_tells_the_same]
LONG_CASES = [whatever_the_options]
VULKAN_CASES = [workload_in_part_on_vulkan]
CUDA_CASES = [workload_in_part_on_cuda]
HIP_CASES = [workload_in_part_on_hip]

if __name__ == "__main__":
    serving.main({"--list": CASES, "--list-long": LONG_CASES,
                  "--list-vulkan-extended": VULKAN_CASES,
                  "--list-cuda-extended": CUDA_CASES, "--list-hip-extended": HIP_CASES})
