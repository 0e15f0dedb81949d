# SPDX-License-Identifier: Apache-2.0
"""vllm_store_other: another process of vllm_store_test, whose engine computes three prompts.

    vllm_store_other.py EXTRA_CONFIG
"""

import ast
import os
import pathlib
import sys

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent)]

import vllm_store_engine as engine  # noqa: E402


def main():
    extra = {"plugin_path": os.environ["QUIRE_TEST_BACKENDS"], "identity": "weights"}
    first = engine.Engine(engine.config(extra | ast.literal_eval(sys.argv[1])))
    for number in range(3):
        first.add(f"{number}", range(1000 * number, 1000 * number + 150))
    first.run()
    first.close()


if __name__ == "__main__":
    main()
