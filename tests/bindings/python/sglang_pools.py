# SPDX-License-Identifier: Apache-2.0
"""sglang_pools: SGLang's own host pools on a machine without a GPU, for tests."""

import torch
from sglang.srt.mem_cache.device_pool_info import (
    KVBufferLayout, KVBuffers, MHABufferInfo, MLABufferInfo)
from sglang.srt.mem_cache.hicache_storage import HiCacheStorageConfig
from sglang.srt.mem_cache.pool_host.base import host_memory_budget_scope
from sglang.srt.mem_cache.pool_host.mha import MHATokenToKVPoolHost
from sglang.srt.mem_cache.pool_host.mla import MLATokenToKVPoolHost

LAYERS, HEADS, HEAD_DIM, RANK, ROPE = 3, 2, 8, 16, 4
BUDGET = 1 << 30

MHA_LAYOUTS = ("layer_first", "page_first", "page_first_direct", "page_head")
MLA_LAYOUTS = ("layer_first", "page_first", "page_first_direct")


def mha_pool(layout, page=4, pages=16, dtype=torch.float16, layers=LAYERS, dims=(HEADS, HEAD_DIM)):
    device = [torch.zeros(page, *dims, dtype=dtype) for _ in range(layers)]
    addresses = torch.zeros(layers, dtype=torch.uint64)
    buffers = KVBuffers(k=tuple(device), v=tuple(device), k_data_ptrs=addresses,
                        v_data_ptrs=addresses, layout=KVBufferLayout.NHD)
    info = MHABufferInfo(buffers=buffers, page_size=page, head_num=dims[0], head_dim=dims[1],
                         v_head_dim=dims[1], dtype=dtype, device=torch.device("cpu"))
    with host_memory_budget_scope(BUDGET):
        return MHATokenToKVPoolHost(
            info, 2.0, 0, page, layout, pin_memory=False, device_capacity_tokens=page,
            start_layer=0, end_layer=layers, host_token_capacity=page * pages)


def mla_pool(layout, page=4, pages=16, dtype=torch.float16, layers=LAYERS):
    width = RANK + ROPE
    device = tuple(torch.zeros(page, 1, width, dtype=dtype) for _ in range(layers))
    info = MLABufferInfo(
        buffers=device, data_ptrs=torch.zeros(layers, dtype=torch.uint64),
        layer_indices=tuple(range(layers)), device_layer_num=layers, page_size=page,
        kv_lora_rank=RANK, qk_rope_head_dim=ROPE, kv_cache_dim=width, dtype=dtype,
        device=torch.device("cpu"))
    with host_memory_budget_scope(BUDGET):
        return MLATokenToKVPoolHost(
            info, 2.0, 0, page, layout, pin_memory=False, device_capacity_tokens=page,
            start_layer=0, end_layer=layers, target_layer_num=layers,
            host_token_capacity=page * pages)


def fill(pool, generator):
    """Random bytes in all of the pool."""
    whole = pool.kv_buffer.view(torch.uint8)
    whole.copy_(torch.randint(0, 256, whole.shape, dtype=torch.uint8, generator=generator))


def page_bytes(pool, page):
    """The page's content, as the pool itself gives it."""
    return pool.get_data_page(page * pool.page_size, flat=True).contiguous().view(torch.uint8)


def indices(pool, pages):
    """The host indices of these pages."""
    each = [torch.arange(page * pool.page_size, (page + 1) * pool.page_size) for page in pages]
    return torch.cat(each) if each else torch.zeros(0, dtype=torch.int64)


def config(extra=None, **fields):
    known = {"tp_rank": 0, "tp_size": 1, "pp_rank": 0, "pp_size": 1, "attn_cp_rank": 0,
             "attn_cp_size": 1, "is_mla_model": False, "enable_storage_metrics": False,
             "is_page_first_layout": True, "model_name": "org/model"}
    return HiCacheStorageConfig(**known | fields, extra_config=extra)
