# SPDX-License-Identifier: Apache-2.0
"""transformers_own: transformers' own tests of generation, with its caches and with ours.

    transformers_own.py [--batching] [--models NAME,...] [--json] [--gtest_output=xml:FILE]

Each model's tests of generate(), where a QuireCache takes the place of every cache that generate()
makes; with --batching those of continuous batching, whose models are served by quire.continuous.

A test that passes with transformers' caches must pass with ours, unless transformers_own_known.txt
lists it with a reason; and a listed test must fail. This repository contains nothing of
transformers:

    QUIRE_TRANSFORMERS         a checkout of transformers at COMMIT, as neither its wheel nor its
                               source archive has all tests
    QUIRE_TRANSFORMERS_PYTHON  a Python with transformers VERSION, pytest, parameterized, cffi and
                               numpy; no GPU and no hub is needed. Default: the one that runs this

If they are missing there is one case, and it is skipped.
"""

import argparse
import os
import pathlib
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent)]

import own_tests  # noqa: E402
import report  # noqa: E402

VERSION = "5.24.0"
COMMIT = "b4b5244c9c7cdb80d0aaafdb8f35244612788532"
MODELS = ("bart", "bloom", "cohere2", "deepseek_v3", "falcon", "gemma", "gemma2", "gemma3", "gpt2",
          "gpt_neox", "gpt_oss", "jamba", "llama", "llama4", "mistral", "mixtral", "opt", "phi3",
          "qwen2", "qwen3_moe", "t5", "whisper")
BATCHING = ("generation/test_continuous_batching.py", "generation/test_paged_attention.py")
# They compile for minutes, or allocate as much as a GPU has.
BATCHING_WITHOUT = "not with_compile and not compile_configs and not allocation and not memory"
KNOWN = HERE / "transformers_own_known.txt"


def python():
    return os.environ.get("QUIRE_TRANSFORMERS_PYTHON") or sys.executable


def tests():
    return pathlib.Path(os.environ.get("QUIRE_TRANSFORMERS", "")).resolve() / "tests"


def why_not():
    """The reason why transformers' tests cannot run here; None if they can."""
    if not os.environ.get("QUIRE_TRANSFORMERS") or not (tests() / "generation").is_dir():
        return f"no checkout of transformers at {COMMIT[:9]} in QUIRE_TRANSFORMERS"
    has = subprocess.run(
        [python(), "-c", "import importlib.metadata as m, pytest, parameterized, cffi, numpy; "
         f"assert m.version('transformers') == '{VERSION}'"], capture_output=True, check=False)
    if has.returncode != 0:
        return (f"no transformers {VERSION}, pytest, parameterized, cffi and numpy in "
                "QUIRE_TRANSFORMERS_PYTHON")
    return None


def selected(options):
    """pytest's arguments that select the tests."""
    if options.batching:
        return [*(str(tests() / name) for name in BATCHING), "-k", BATCHING_WITHOUT]
    files = [tests() / "models" / name / f"test_modeling_{name}.py"
             for name in options.models.split(",")]
    return ["-m", "generate", *map(str, files)]


def outcomes(cache, folder, options):
    """{test: outcome} of one run."""
    environment = {
        **os.environ, "QUIRE_TRANSFORMERS_CACHE": cache, "HF_HUB_OFFLINE": "1",
        "TRANSFORMERS_TEST_DEVICE": "cpu", "TRANSFORMERS_VERBOSITY": "error",
        "RUN_SLOW": "1" if options.batching else "0", "OMP_NUM_THREADS": "1",
        "PYTHONPATH": os.pathsep.join([str(HERE), os.environ.get("PYTHONPATH", ""),
                                       str(tests().parent)])}
    found = own_tests.outcomes(
        python(), ["-p", "transformers_own_plugin", *selected(options)], folder / f"{cache}.xml",
        folder, environment)
    served = int((folder / "served").read_text())
    if (served > 0) != (cache == "quire"):
        sys.exit(f"with {cache}'s caches, Quire served {served} times")
    return {name.removeprefix("tests.").removeprefix("models."): outcome
            for name, outcome in found.items()}


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="the outcomes of both, not compared")
    parser.add_argument("--batching", action="store_true", help="the tests of continuous batching")
    parser.add_argument("--models", default=",".join(MODELS), help="default: %(default)s")
    report.add_option(parser)
    options = parser.parse_args()
    missing = why_not()
    if missing:
        return report.write([report.Case("TransformersOwn", "tests", "skipped", 0, missing)],
                            options.gtest_output)
    with tempfile.TemporaryDirectory() as work:
        both = {cache: outcomes(cache, pathlib.Path(work), options)
                for cache in ("transformers", "quire")}
    return own_tests.conclude(both, KNOWN, options)


if __name__ == "__main__":
    sys.exit(main())
