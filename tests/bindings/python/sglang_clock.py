# SPDX-License-Identifier: Apache-2.0
"""sglang_clock: how many pages a second SGLang's file backend and stores of Quire move.

    sglang_clock.py [--page-bytes N ...] [--pages N] [--rounds N] [--folder PLACE]

Each backend gets and sets batches of 128 pages, as SGLang does, in a pool of the layout
page_first. Theirs and ours take turns in one process. Their files, and ours with direct=no, stay in
the system's cache, and a cluster of three redis-servers runs on the same machine, so the figures
compare the way to a store and not disks or networks. It runs in a Python with SGLang;
docs/sglang.md says how.
"""

import argparse
import os
import pathlib
import statistics
import sys
import tempfile
import time

import torch
from sglang.srt.mem_cache.hicache_storage import HiCacheFile

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parents[1] / "valkey")]

import cluster  # noqa: E402
import sglang_pools as pools  # noqa: E402

import quire.sglang  # noqa: E402

BATCH = 128
PAGE_TOKENS = 16
LAYERS = 4


class Theirs:
    """The file backend with its generic interface, as SGLang calls it."""

    def __init__(self, pool, folder):
        self.pool, self.backend = pool, HiCacheFile(pools.config(), str(folder))

    def set(self, keys, starts):
        return self.backend.batch_set(keys, [self.pool.get_data_page(start) for start in starts])

    def get(self, keys, starts):
        rooms = [self.pool.get_dummy_flat_data_page() for _ in keys]
        pages = self.backend.batch_get(keys, rooms)
        for start, page in zip(starts, pages):
            self.pool.set_from_flat_data_page(start, page)
        return all(page is not None for page in pages)

    def close(self):
        self.backend.clear()


class Ours:
    """A store of Quire with the interface without copies."""

    def __init__(self, pool, store, options, **others):
        plugins = os.environ.get("QUIRE_TEST_BACKENDS")
        self.pool = pool
        self.backend = quire.sglang.QuireStorage(pools.config(
            {"store": store, "options": options, "plugin_path": plugins, "timeout": 60, **others}))
        self.backend.register_mem_pool_host(pool)

    def set(self, keys, starts):
        pages = [start // PAGE_TOKENS for start in starts]
        return all(self.backend.batch_set_v1(keys, pools.indices(self.pool, pages)))

    def get(self, keys, starts):
        pages = [start // PAGE_TOKENS for start in starts]
        return all(self.backend.batch_get_v1(keys, pools.indices(self.pool, pages)))

    def close(self):
        self.backend.close()


def clock(call, keys):
    """Seconds for all keys, in batches."""
    start = time.perf_counter()
    for first in range(0, len(keys), BATCH):
        batch = keys[first:first + BATCH]
        assert call(batch, [index * PAGE_TOKENS for index in range(len(batch))])
    return time.perf_counter() - start


def measure(pool, backends, pages, rounds):
    """{backend: {what: pages a second}}, medians."""
    seconds = {}
    for number in range(rounds):
        keys = [f"{number * pages + index:064x}" for index in range(pages)]
        for name, backend in backends.items():
            known = [("set", backend.set), ("get", backend.get),
                     ("exists", lambda batch, _, one=backend: one.backend.batch_exists(batch))]
            for what, call in known:
                seconds.setdefault((name, what), []).append(clock(call, keys))
    table = {}
    for (name, what), each in seconds.items():
        table.setdefault(name, {})[what] = pages / statistics.median(each)
    return table


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--page-bytes", type=int, nargs="*", default=[32768, 262144, 2097152])
    parser.add_argument("--pages", type=int, default=256)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--folder")
    options = parser.parse_args()
    torch.set_num_threads(1)  # its threads wait for each other where the machine is busy
    print(f"{'page':>9} {'backend':28} {'set':>8} {'get':>8} {'exists':>9}  pages a second")
    for size in options.page_bytes:
        dim = size // (2 * LAYERS * PAGE_TOKENS * 2 * 2)
        pool = pools.mha_pool("page_first", page=PAGE_TOKENS, pages=BATCH, layers=LAYERS,
                              dims=(2, dim))
        pools.fill(pool, torch.Generator().manual_seed(1))
        with tempfile.TemporaryDirectory(dir=options.folder) as place, cluster.Cluster(
                replicas=False) as servers:
            disk = {"capacity": "8GiB", "durability": "none"}
            nodes = {"nodes": servers.nodes(), "timeout": "60000"}
            backends = {
                "SGLang's files": Theirs(pool, pathlib.Path(place, "files")),
                "disk": Ours(pool, "disk", disk | {"directory": pathlib.Path(place, "a")}),
                "disk, direct=no": Ours(pool, "disk", disk | {
                    "directory": pathlib.Path(place, "b"), "direct": "no"}),
                "memory": Ours(pool, "memory", {"capacity": "4GiB"}),
                "valkey, one request at a time": Ours(pool, "valkey", nodes | {"prefix": "a:"},
                                                      lanes=1),
                "valkey, 8 lanes": Ours(pool, "valkey", nodes | {"prefix": "b:"}, lanes=8)}
            table = measure(pool, backends, options.pages, options.rounds)
            for backend in backends.values():
                backend.close()
        for name, row in table.items():
            print(f"{size:>9} {name:28} {row['set']:8.0f} {row['get']:8.0f} {row['exists']:9.0f}",
                  flush=True)


if __name__ == "__main__":
    main()
