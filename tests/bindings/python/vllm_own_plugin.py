# SPDX-License-Identifier: Apache-2.0
"""vllm_own_plugin: a pytest plugin that lets vLLM load its own plugins, among them quire's, which
replaces the manager if QUIRE_VLLM_MANAGER says so. vllm_own.py says how it is used."""

import os

import vllm.platforms
import vllm.plugins

# Metadata written by vllm_own.py makes vLLM identify as a CPU build without kernels; pytest will
# put other metadata first, so query now.
assert vllm.platforms.current_platform.is_cpu()

vllm.plugins.load_general_plugins()

import vllm.v1.core.kv_cache_manager as manager  # noqa: E402

assert manager.KVCacheManager.__module__ == {
    "quire": "quire.vllm", "quire-blocks": "quire.vllm_leased",
    "vllm": manager.__name__}[os.environ["QUIRE_VLLM_MANAGER"]]


def set_free_count(queue, count):
    """Tests set the number of free blocks by hand, so that a request is preempted: takes all blocks
    but `count`, and returns those that it took before."""
    pool = queue._pool
    pool.free_blocks(taken.pop(queue, []))
    if pool.get_num_free_blocks() > count:
        taken[queue] = pool.get_new_blocks(pool.get_num_free_blocks() - count)


taken = {}
if os.environ["QUIRE_VLLM_MANAGER"] == "quire":
    from quire import vllm_pool

    vllm_pool.FreeQueue.num_free_blocks = vllm_pool.FreeQueue.num_free_blocks.setter(set_free_count)
