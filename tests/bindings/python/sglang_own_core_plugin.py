# SPDX-License-Identifier: Apache-2.0
"""sglang_own_core_plugin: a plugin of pytest that puts Quire's tree core in the place of SGLang's.

With QUIRE_SGLANG_CORE=theirs it leaves SGLang's. With both, SGLang's fixtures get an allocator of
whole pages, as an engine has, and run on the CPU.
"""

import importlib.util
import os
import sys
import types

if importlib.util.find_spec("datasets") is None:  # SGLang's benchmarks want it, its tests do not
    sys.modules["datasets"] = types.ModuleType("datasets")
    sys.modules["datasets"].load_dataset = None  # type: ignore[attr-defined]

from sglang.srt.mem_cache.allocator import (  # noqa: E402
    PagedTokenToKVPoolAllocator, TokenToKVPoolAllocator)
from sglang.srt.mem_cache.unified_cache import tree_core_registry  # noqa: E402
from sglang.test.kits.unified_radix_cache import (  # noqa: E402
    fixtures, unified_tree_core_inspection_interface as inspection)


def allocator(size, kvcache, **others):
    """An allocator of the pool's pages, where the fixtures make one of tokens."""
    if kvcache.page_size == 1:
        return TokenToKVPoolAllocator(size, kvcache=kvcache, **others)
    return PagedTokenToKVPoolAllocator(size, page_size=kvcache.page_size, kvcache=kvcache, **others)


fixtures.TokenToKVPoolAllocator = allocator
fixtures.get_device = lambda: "cpu"

if os.environ["QUIRE_SGLANG_CORE"] == "ours":
    from quire.sglang_core import QuireTreeCore

    def unknown(name):
        def method(self, *arguments, **named):
            raise NotImplementedError(f"a tree of Quire cannot say {name}")
        return method

    INTERFACE = inspection.UnifiedTreeCoreInspectionInterface
    UNKNOWN = {name: unknown(name) for name in INTERFACE.__abstractmethods__
               if not hasattr(QuireTreeCore, name)}

    class Inspector(QuireTreeCore, type("Unknown", (INTERFACE,), UNKNOWN)):
        """The core, with the answers to SGLang's tests that its own methods give."""

        component_protected_size = QuireTreeCore.component_protected_size

        def contains_node(self, node_id):
            try:
                return self.node_by_id(node_id) is not None
            except KeyError:
                return False

        def get_child_node_ids(self, node_id):
            if node_id == self.root_node.id and self.total_size() == (0, 0):
                return []
            raise NotImplementedError("a tree of Quire cannot say get_child_node_ids")

    tree_core_registry.register_tree_core_backend("quire", Inspector)
    fixtures.TREE_CORE_TEST_BACKEND = "quire"
