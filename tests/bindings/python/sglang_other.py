# SPDX-License-Identifier: Apache-2.0
"""sglang_other: another process of sglang_test, which writes random pages, or times a store.

    sglang_other.py write SEED SETTINGS
"""

import ast
import pathlib
import sys

import torch

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))

import sglang_pools as pools  # noqa: E402

import quire.sglang  # noqa: E402


def main():
    action, seed, settings = sys.argv[1:]
    pool = pools.mha_pool("page_first")
    pools.fill(pool, torch.Generator().manual_seed(int(seed)))
    backend = quire.sglang.QuireStorage(pools.config(ast.literal_eval(settings)))
    backend.register_mem_pool_host(pool)
    keys = [f"{number:064x}" for number in range(16)]
    assert action == "write"
    assert all(backend.batch_set_v1(keys, pools.indices(pool, range(16))))
    backend.close()


if __name__ == "__main__":
    main()
