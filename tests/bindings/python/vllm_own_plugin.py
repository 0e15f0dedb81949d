# SPDX-License-Identifier: Apache-2.0
"""vllm_own_plugin: a pytest plugin that puts quire.vllm's manager in the place of vLLM's own,
before any other of vLLM's modules imports it. vllm_own.py says how it is used."""

import os

import vllm.platforms
import vllm.v1.core.kv_cache_manager

# vLLM takes itself for a build without kernels for the CPU where vllm_own.py says so; pytest will
# put the source's own metadata before that, so ask now.
assert vllm.platforms.current_platform.is_cpu()

if os.environ.get("QUIRE_VLLM_MANAGER") == "quire":
    import quire.vllm

    vllm.v1.core.kv_cache_manager.KVCacheManager = quire.vllm.KVCacheManager
