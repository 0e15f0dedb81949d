# SPDX-License-Identifier: Apache-2.0
"""vllm_plugin: makes vLLM use quire.vllm's manager.

`register` is for vLLM's entry points of the group vllm.general_plugins, which vLLM calls in every
process before it makes an engine. It does nothing unless the environment asks for it, because an
installed package must not change an engine that did not.
"""

from __future__ import annotations

import importlib
import os
import sys
from typing import Any

from . import vllm, vllm_coordinator, vllm_release

VARIABLE = "QUIRE_VLLM_MANAGER"


def install(always_theirs: bool = False) -> None:
    """Replaces vLLM's manager in this process, for schedulers that are made from now on, and lets
    its coordinators and their managers per group pass for vLLM's. Errors: UnsupportedError if this
    release of vLLM was not tested."""
    module: Any = importlib.import_module("vllm.v1.core.kv_cache_manager")
    vllm_release.check()
    theirs: Any = importlib.import_module("vllm.v1.core.kv_cache_coordinator")
    theirs.HybridKVCacheCoordinator.register(vllm_coordinator.HybridKVCacheCoordinator)
    theirs.UnitaryKVCacheCoordinator.register(vllm_coordinator.UnitaryKVCacheCoordinator)
    managers: Any = importlib.import_module("vllm.v1.core.single_type_kv_cache_manager")
    for kind in vllm_coordinator.KINDS:
        getattr(managers, kind.__name__).register(kind)
    scheduler: Any = sys.modules.get("vllm.v1.core.sched.scheduler")
    leased: Any = importlib.import_module("quire.vllm_leased")
    leased.install()
    vllm.KVCacheManager.theirs = leased.KVCacheManager
    replacement = leased.KVCacheManager if always_theirs else vllm.KVCacheManager
    module.KVCacheManager = replacement
    if scheduler is not None:
        scheduler.KVCacheManager = replacement


def register() -> None:
    """Installs the manager if the environment has QUIRE_VLLM_MANAGER=quire; with quire-blocks,
    vLLM's on Quire's blocks for every model. Errors: ValueError, it has another value."""
    wanted = os.environ.get(VARIABLE, "")
    if wanted in ("quire", "quire-blocks"):
        install(wanted == "quire-blocks")
    elif wanted not in ("", "vllm"):
        raise ValueError(f"{VARIABLE} is {wanted!r}: it may be quire, quire-blocks or vllm")
