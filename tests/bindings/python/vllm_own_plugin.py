# SPDX-License-Identifier: Apache-2.0
"""vllm_own_plugin: a pytest plugin that replaces vLLM's manager by quire.vllm's, before any of
vLLM's other modules imports it. vllm_own.py says how it is used."""

import os

import vllm.platforms
import vllm.v1.core.kv_cache_manager

# Metadata written by vllm_own.py makes vLLM identify as a CPU build without kernels; pytest will
# put the source's own metadata first, so query now.
assert vllm.platforms.current_platform.is_cpu()

if os.environ.get("QUIRE_VLLM_MANAGER") == "quire":
    import quire.vllm

    vllm.v1.core.kv_cache_manager.KVCacheManager = quire.vllm.KVCacheManager
