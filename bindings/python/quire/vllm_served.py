# SPDX-License-Identifier: Apache-2.0
"""vllm_served: which models quire.vllm's manager serves itself.

For the others vLLM's own manager runs on blocks of Quire (vllm_leased.py), if vLLM runs.
"""

from __future__ import annotations

from typing import Any, Optional

from .errors import UnsupportedError
from .vllm_spec import Spec


def refuse(**asked: Any) -> None:
    """Refuses what is true among the arguments, by their names."""
    for name, value in asked.items():
        if value:
            raise UnsupportedError(f"{name.replace('_', ' ')} is not supported by quire.vllm: use "
                                   "vLLM's own manager")


def _check_cached(spec: Spec) -> None:
    """Refuses groups whose prefixes cannot be cached."""
    replays = any(group.is_scratch and group.window for group in spec.groups)
    refuse(bounded_replay_beside_other_windows=replays and spec.has_windows,
           prefix_caching_with_uncached_Mamba_or_cross_attention=spec.fixed or any(
               group.is_uncached_state for group in spec.groups))


def served(kv_cache_config: Any, max_model_len: int, scheduler_block_size: Optional[int] = None,
           hash_block_size: Optional[int] = None, max_in_flight_tokens: Optional[int] = None,
           enable_caching: bool = True, use_eagle: bool = False,
           num_hash_lookahead_tokens: int = 0, num_prefill_lookahead: int = 0,
           log_stats: bool = False, enable_kv_cache_events: bool = False, dcp_world_size: int = 1,
           pcp_world_size: int = 1, *_: Any, **__: Any) -> Spec:
    """The groups of a model, from the arguments of the manager. Errors: UnsupportedError names what
    is not served."""
    spec = Spec(kv_cache_config, min(max_in_flight_tokens or max_model_len, max_model_len),
                max_model_len, dcp_world_size, enable_caching)
    refuse(prefill_context_parallelism=pcp_world_size > 1,
           hisparse=getattr(kv_cache_config, "hisparse_host_num_blocks", None) is not None,
           hash_lookahead_past_a_block=num_hash_lookahead_tokens > spec.block_size)
    if enable_caching and not spec.crosses:
        _check_cached(spec)
    host_blocks = getattr(kv_cache_config, "quire_host_blocks", 0)
    refuse(host_memory_without_prefix_caching=host_blocks and (not enable_caching or spec.crosses),
           host_memory_for_a_windowed_model=host_blocks and spec.windowed,
           host_memory_for_several_KV_cache_groups=host_blocks and len(spec.groups) > 1,
           host_memory_for_a_model_that_needs_zeroed_blocks=host_blocks and getattr(
               kv_cache_config, "needs_kv_cache_zeroing", False))
    return spec


def why_theirs(kv_cache_config: Any, *others: Any, **named: Any) -> Optional[str]:
    """Why vLLM's manager on Quire's blocks is made, from the arguments of the manager: ours does
    not serve the model; None: ours is made. Errors: UnsupportedError if neither keeps blocks in
    host memory for this model."""
    try:
        served(kv_cache_config, *others, **named)
    except UnsupportedError as reason:
        if getattr(kv_cache_config, "quire_host_blocks", 0):
            raise
        return str(reason)
    return None
