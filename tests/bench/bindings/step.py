# SPDX-License-Identifier: Apache-2.0
"""step: the step of step.c, as an engine in Python does it, from numpy arrays."""

import sys
import time

import numpy as np

import quire

SEQUENCES, ROW_BLOCKS = 256, 256


def main():
    instance = quire.Instance()
    cache = quire.Cache(instance, [quire.Group(layers=32, kv_heads=8, head_dim=128)],
                        blocks=SEQUENCES * ROW_BLOCKS + 1)
    batch = cache.batch(SEQUENCES, ROW_BLOCKS, SEQUENCES,
                        views=quire.View.BLOCK_TABLE | quire.View.SLOTS)
    handles = np.array([cache.sequence().handle for _ in range(SEQUENCES)], np.uint64)
    rows = np.arange(SEQUENCES, dtype=np.uint32)
    items = np.zeros(SEQUENCES, quire.ITEM)
    results = np.zeros(SEQUENCES, quire.RESULT)
    number = 0
    for line in sys.stdin:
        count = int(line)
        start = time.perf_counter_ns()
        for _ in range(count):
            items["seq"] = handles
            items["token_offset"] = rows
            items["token_count"] = 1
            tokens = rows * np.uint32(4096) + np.uint32(number)
            with cache.begin(items, tokens, results=results) as step:
                step.commit(batch)
                step.finish()
            number += 1
        print((time.perf_counter_ns() - start) / count, flush=True)


if __name__ == "__main__":
    main()
