# SPDX-License-Identifier: Apache-2.0
"""vllm_store_own: vLLM's own tests of its scheduler and of connectors' settings, as they are and
with QuireStoreConnector.

    vllm_store_own.py [--json] [--gtest_output=xml:FILE]

A test that passes as it is must pass with ours, unless vllm_store_own_known.txt lists it with a
reason; and a listed test must fail. vllm_store_plugin.py says how ours gets in. QUIRE_VLLM and
QUIRE_VLLM_PYTHON are those of vllm_own.py, and without them there is one case, which is skipped.
"""

import argparse
import os
import pathlib
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent)]

import own_tests  # noqa: E402
import report  # noqa: E402
import vllm_own  # noqa: E402

FILES = ("core/test_scheduler.py", "core/test_async_scheduler.py",
         "core/test_deferred_block_free.py", "core/test_prefix_replay.py",
         "core/test_priority_scheduler_random.py", "kv_connector/unit/test_hma_auto_config.py",
         "kv_connector/unit/test_config.py", "kv_connector/unit/test_multi_connector.py",
         "kv_connector/unit/test_cache_pollution_prevention.py")
KNOWN = HERE / "vllm_store_own_known.txt"


def outcomes(whose, folder, work):
    """{test: outcome} of one run."""
    environment = {
        **os.environ, "QUIRE_STORE": whose, "QUIRE_VLLM_MANAGER": "vllm", "HF_HUB_OFFLINE": "1",
        "VLLM_LOGGING_LEVEL": "ERROR",
        "PYTHONPATH": os.pathsep.join([str(HERE), os.environ.get("PYTHONPATH", ""), str(folder)])}
    tests = [str(folder / "tests" / "v1" / name) for name in FILES]
    tests = [name for name in tests if pathlib.Path(name).exists()]
    found = own_tests.outcomes(vllm_own.python(), ["-p", "vllm_store_plugin", *tests],
                               work / f"{whose}.xml", folder, environment)
    return {name.removeprefix("tests.v1."): outcome for name, outcome in found.items()}


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="the outcomes of both, not compared")
    report.add_option(parser)
    options = parser.parse_args()
    missing = vllm_own.why_not()
    if missing:
        return report.write([report.Case("VllmStoreOwn", "tests", "skipped", 0, missing)],
                            options.gtest_output)
    with tempfile.TemporaryDirectory() as work:
        folder = pathlib.Path(work) / "here"
        vllm_own.write_model(folder)
        both = {whose: outcomes(whose, folder, pathlib.Path(work)) for whose in ("theirs", "ours")}
    return own_tests.conclude(both, KNOWN, options)


if __name__ == "__main__":
    sys.exit(main())
