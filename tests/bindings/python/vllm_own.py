# SPDX-License-Identifier: Apache-2.0
"""vllm_own: vLLM's own tests of its scheduler and prefix cache, with its manager and with ours.

    vllm_own.py [--connectors] [--blocks] [--json] [--gtest_output=xml:FILE]
    vllm_own.py --offload

With --connectors those of its KV connectors that use a manager and run without a GPU. With
--offload not its own tests, but those in vllm_offload_cases.py, with our manager.

A test that passes with vLLM's manager must pass with quire.vllm's, unless vllm_own_known.txt, or
vllm_connectors_known.txt, lists it with a reason; and a listed test must fail. With --blocks each
must pass with vLLM's manager on Quire's blocks. This repository contains nothing of vLLM:

    QUIRE_VLLM         the unpacked source of vLLM VERSION, vllm-VERSION.tar.gz on PyPI, whose
                       SHA-256 is SOURCE. Only its tests are used; wheels do not have them
    QUIRE_VLLM_PYTHON  a Python with that release of vLLM (pip install vllm==VERSION), pytest,
                       cffi and numpy; no GPU is needed. Default: the Python that runs this

If they are missing there is one case, and it is skipped.
"""

import argparse
import json
import os
import pathlib
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

import own_tests  # noqa: E402
import report  # noqa: E402

VERSION = "0.33.0"
SOURCE = "f4c33c2503d52bb411146afa9618a4f48bed68912f617e6803ac8d76e4c74112"
FILES = ("core/test_scheduler.py", "core/test_prefix_caching.py", "core/test_async_scheduler.py",
         "core/test_kv_cache_metrics.py", "core/test_deferred_block_free.py",
         "core/test_swa_inflight_window_free.py", "core/test_prefix_replay.py",
         "core/test_mamba_align_chunk_split.py", "core/test_priority_scheduler_random.py",
         "core/prefix_cache/test_hybrid_prefix_cache_hit_rate.py",
         "core/prefix_cache/test_mamba_eagle_resume_checkpoint.py",
         "core/prefix_cache/test_partial_prefix_cache_hits.py",
         "core/prefix_cache/test_partial_prefix_cache_primitives.py")
UNIT = "kv_connector/unit/"
CONNECTOR_FILES = (
    *(f"{UNIT}test_{name}.py" for name in (
        "cache_pollution_prevention", "decode_bench_connector", "error_propagation",
        "hidden_states_connector", "invalid_blocks_correctness", "kv_connector_lifecycle",
        "kv_load_failure_recovery", "mooncake_store_connector", "mooncake_store_scheduler",
        "multi_connector", "nixl_simple_cpu_offload", "remote_decode_lifecycle",
        "remote_prefill_lifecycle", "scheduler_kv_connector_override",
        "simple_cpu_offload_connector")),
    f"{UNIT}offloading_connector/test_scheduler.py", "simple_kv_offload/test_scheduler.py",
    "simple_kv_offload/test_kv_events.py")
# The fixtures of those, without the ones of all of vLLM's tests.
CONNECTOR_FIXTURES = ("tests.v1.kv_connector.unit.conftest",
                      "tests.v1.kv_connector.unit.offloading_connector.conftest")
KNOWN = HERE / "vllm_own_known.txt"
CONNECTORS_KNOWN = HERE / "vllm_connectors_known.txt"

# The model that the tests' schedulers use, as files that vLLM finds instead of asking a hub.
MODEL = {
    "config.json": {
        "architectures": ["OPTForCausalLM"], "model_type": "opt", "hidden_size": 768,
        "num_hidden_layers": 12, "num_attention_heads": 12, "ffn_dim": 3072, "vocab_size": 50272,
        "max_position_embeddings": 2048, "word_embed_proj_dim": 768, "torch_dtype": "float16",
        "bos_token_id": 2, "eos_token_id": 2, "pad_token_id": 1},
    "tokenizer.json": {
        "version": "1.0", "added_tokens": [], "pre_tokenizer": {"type": "Whitespace"},
        "model": {"type": "WordLevel", "vocab": {"<unk>": 0, "a": 1, "</s>": 2},
                  "unk_token": "<unk>"}},
    "tokenizer_config.json": {
        "tokenizer_class": "PreTrainedTokenizerFast", "eos_token": "</s>", "unk_token": "<unk>"},
}


def write_model(folder):
    """The model's files; metadata of a vLLM for CPUs, from which it chooses its platform; quire's
    entry point for vLLM's plugins; and the tests, without the package beside them."""
    model = folder / "facebook" / "opt-125m"
    model.mkdir(parents=True)
    for name, content in MODEL.items():
        (model / name).write_text(json.dumps(content))
    metadata = folder / f"vllm-{VERSION}+cpu.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text(
        f"Metadata-Version: 2.1\nName: vllm\nVersion: {VERSION}+cpu\n")
    plugin = folder / "quire_vllm-0.dist-info"
    plugin.mkdir()
    (plugin / "METADATA").write_text("Metadata-Version: 2.1\nName: quire-vllm\nVersion: 0\n")
    (plugin / "entry_points.txt").write_text(
        "[vllm.general_plugins]\nquire = quire.vllm_plugin:register\n")
    (folder / "tests").symlink_to(pathlib.Path(os.environ["QUIRE_VLLM"]).resolve() / "tests")


def why_not():
    """The reason why vLLM's tests cannot run here; None if they can."""
    folder = os.environ.get("QUIRE_VLLM", "")
    if not folder or not (pathlib.Path(folder) / "tests" / "v1" / "core").is_dir():
        return f"no source of vLLM {VERSION} with its tests in QUIRE_VLLM"
    has = subprocess.run(
        [python(), "-c", "import importlib.metadata as m, pytest, cffi, numpy; "
         f"assert m.version('vllm') == '{VERSION}'"], capture_output=True, check=False)
    if has.returncode != 0:
        return f"no vLLM {VERSION}, pytest, cffi and numpy in QUIRE_VLLM_PYTHON"
    return None


def python():
    return os.environ.get("QUIRE_VLLM_PYTHON") or sys.executable


def outcomes(manager, folder, work, options):
    """{test: outcome} of one run."""
    result = work / f"{manager}.xml"
    environment = {
        **os.environ, "QUIRE_VLLM_MANAGER": manager, "HF_HUB_OFFLINE": "1",
        "VLLM_LOGGING_LEVEL": "ERROR",
        "PYTHONPATH": os.pathsep.join([str(HERE), os.environ.get("PYTHONPATH", ""), str(folder)])}
    files = [str(folder / "tests" / "v1" / name)
             for name in (CONNECTOR_FILES if options.connectors else FILES)]
    for name in CONNECTOR_FIXTURES if options.connectors else ():
        files += ["-p", name]
    if options.offload:
        files = [str(HERE / "vllm_offload_cases.py")]
    found = own_tests.outcomes(python(), ["-p", "vllm_own_plugin", *files], result, folder,
                               environment)
    return {name.removeprefix("tests.v1.").removeprefix("core."): outcome
            for name, outcome in found.items()}


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="the outcomes of both, not compared")
    parser.add_argument("--connectors", action="store_true", help="the tests of connectors")
    parser.add_argument("--blocks", action="store_true", help="vLLM's manager on Quire's blocks")
    parser.add_argument("--offload", action="store_true", help="ours of the offload connector")
    report.add_option(parser)
    options = parser.parse_args()
    missing = why_not()
    if missing:
        return report.write([report.Case("VllmOwn", "tests", "skipped", 0, missing)],
                            options.gtest_output)
    with tempfile.TemporaryDirectory() as work:
        folder = pathlib.Path(work) / "here"
        write_model(folder)
        both = {manager: outcomes(manager, folder, pathlib.Path(work), options)
                for manager in (("quire",) if options.offload else
                                ("vllm", "quire-blocks" if options.blocks else "quire"))}
    if options.offload:
        return report.write([report.Case("VllmOffload", name.strip(":"), outcome)
                             for name, outcome in both["quire"].items()], options.gtest_output)
    known = CONNECTORS_KNOWN if options.connectors else KNOWN
    return own_tests.conclude(both, pathlib.Path(os.devnull) if options.blocks else known, options)


if __name__ == "__main__":
    sys.exit(main())
