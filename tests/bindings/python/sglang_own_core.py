# SPDX-License-Identifier: Apache-2.0
"""sglang_own_core: SGLang's own unit tests of its unified radix cache, with its core and Quire's.

    sglang_own_core.py [--json] [--gtest_output=xml:FILE]

QUIRE_SGLANG names a checkout of SGLang that has the tests in one file, as those of August to
October 2026 have. They are older than the release in QUIRE_SGLANG_PYTHON, so the methods of the two
classes that run without a host tier are taken out of the file, its older calls are replaced, and
they run on the fixtures that this release has in sglang.test.kits, at each of its configurations of
full attention. A test that passes with SGLang's core must pass with ours, unless
sglang_own_core_known.txt lists it with a reason. All others do not count.
"""

import argparse
import ast
import os
import pathlib
import re
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent)]

import own_tests  # noqa: E402
import report  # noqa: E402

KNOWN = HERE / "sglang_own_core_known.txt"
NAME = "test_unified_radix_cache_unittest.py"
SUITE, EVENTS = "UnifiedRadixCacheSuite", "TestUnifiedRadixCacheKVEvents"

# The calls of older releases, and what they are in 0.5.23.
NEWER = (
    (r"len\((\w+)\.device_indices\)", r"\1.device_prefix_len"),
    (r"cache\.root_node\.id", "cache.root_node_handle()"),
    (r"len\(cache\.root_node\.children\)", "len(node_children(cache, cache.root_node_handle()))"),
    (r"DecLockRefParams\(\s*swa_uuid_for_lock=getattr\((\w+), \"swa_uuid_for_lock\", None\)\s*\)",
     r"\1.to_dec_params()"),
    (r"self\.assertIs\(\s*cache\.resolve_node_handle\(([\w.]+)\),\s*"
     r"cache\.resolve_node_handle\(([\w.]+)\),?\s*\)", r"self.assertEqual(\1, \2)"),
    (r"self\.assertIn\(\s*cache\.resolve_node_handle\(([\w.]+)\),\s*"
     r"cache\.tree_core\.evictable_device_leaves,\s*\)",
     r"self.assertTrue(cache.tree_core.is_device_evictable_leaf(\1))"),
    (r"\b_(node_children|node_key_length|node_token_ids|write_backup)\(", r"\1("),
)

HEAD = """
from array import array
from dataclasses import replace

from sglang.srt.disaggregation.kv_events import BlockRemoved, BlockStored, StorageMedium
from sglang.srt.mem_cache.base_prefix_cache import (
    EvictParams, InsertParams, MatchPrefixParams, zero_match_result)
from sglang.srt.mem_cache.common import available_and_evictable_str
from sglang.srt.mem_cache.radix_cache import RadixKey
from sglang.srt.mem_cache.unified_cache.component_type import ComponentType
from sglang.test.kits.unified_radix_cache import config, fixtures, kv_events, mixins
from sglang.test.kits.unified_radix_cache.fixtures import (
    build_fixture, node_children, node_key_length, node_token_ids, write_backup)
from sglang.test.test_utils import CustomTestCase


class Suite(mixins.UnifiedRadixCacheFixtures):
@SUITE@

class KVEvents(kv_events.UnifiedRadixCacheKVEventsFixtures, CustomTestCase):
    cfg = config.CacheConfig(page_size=2, kv_size=64, max_context_len=64)

@EVENTS@

for one in config.CONFIGS:
    if one.components == (ComponentType.FULL,):
        globals()[one.label] = type(one.label, (Suite, CustomTestCase),
                                    config.config_attrs(Suite, one))
"""


def methods(text, name):
    """The source of the tests of a class, with the calls of 0.5.23."""
    found = [node for node in ast.parse(text).body
             if isinstance(node, ast.ClassDef) and node.name == name]
    lines = text.splitlines()
    source = "\n\n".join(
        "\n".join(lines[node.lineno - 1:node.end_lineno]) for each in found for node in each.body
        if isinstance(node, ast.FunctionDef) and node.name.startswith("test_"))
    for older, newer in NEWER:
        source = re.sub(older, newer, source)
    return source or "    pass"


def outcomes(whose, file, work):
    """{test: outcome} of one run."""
    environment = {**os.environ, "QUIRE_SGLANG_CORE": whose, "PYTHONPATH": os.pathsep.join(
        [str(HERE), os.environ.get("PYTHONPATH", "")])}
    found = own_tests.outcomes(
        os.environ["QUIRE_SGLANG_PYTHON"],
        ["-p", "sglang_own_core_plugin", "-k",
         "without_hicache or not (hicache or swa or mamba)", str(file)],
        work / f"{whose}.xml", work, environment)
    return {name.rpartition("test_newer.")[2]: each for name, each in found.items()}


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="the outcomes of both, not compared")
    report.add_option(parser)
    options = parser.parse_args()
    checkout = os.environ.get("QUIRE_SGLANG")
    files = sorted(pathlib.Path(checkout, "test").rglob(NAME)) if checkout else []
    if not files or "QUIRE_SGLANG_PYTHON" not in os.environ:
        reason = f"no {NAME} in QUIRE_SGLANG, or no QUIRE_SGLANG_PYTHON"
        return report.write([report.Case("SGLangOwnCore", "tests", "skipped", 0, reason)],
                            options.gtest_output)
    text = files[0].read_text()
    with tempfile.TemporaryDirectory() as work:
        file = pathlib.Path(work, "test_newer.py")
        file.write_text(HEAD.replace("@SUITE@", methods(text, SUITE))
                        .replace("@EVENTS@", methods(text, EVENTS)))
        both = {whose: outcomes(whose, file, pathlib.Path(work)) for whose in ("theirs", "ours")}
    return own_tests.conclude(both, KNOWN, options)


if __name__ == "__main__":
    sys.exit(main())
