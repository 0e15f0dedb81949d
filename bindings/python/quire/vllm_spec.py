# SPDX-License-Identifier: Apache-2.0
"""vllm_spec: what a KVCacheConfig of vLLM says about the blocks of its only group.

Kinds are told apart by the exact name of the spec's class: another class, also a derived one, has
rules for its blocks that are not known here, and is refused.
"""

from __future__ import annotations

from typing import Any

from .errors import UnsupportedError

# A FullAttentionSpec may have a window: layers with windows that share its blocks with others
# without one, so that no block may be returned early.
_FULL = ("FullAttentionSpec", "MLAAttentionSpec")
_WINDOWED = ("SlidingWindowSpec", "SlidingWindowMLASpec")
_CROSS = ("CrossAttentionSpec",)
_PLAIN = ("SimpleNamespace",)  # of quire.vllm.config: windowed if it has a window


class Spec:
    """The only group of a KVCacheConfig.

    window       tokens that a token sees; 0 for all
    crosses      True if its blocks hold an encoder's tokens
    most_blocks  that a request may hold at a time
    """

    def __init__(self, config: Any, tokens_in_flight: int):
        groups = config.kv_cache_groups
        if len(groups) != 1:
            raise UnsupportedError("several KV cache groups are not supported by quire.vllm: vLLM "
                                   f"numbers the blocks of its {len(groups)} groups as one pool")
        self.spec = groups[0].kv_cache_spec
        spec = self.spec
        if type(spec).__name__ == "UniformTypeKVCacheSpecs":
            spec = next(iter(spec.kv_cache_specs.values()))
        name = type(spec).__name__
        if name not in _FULL + _WINDOWED + _CROSS + _PLAIN:
            raise UnsupportedError(f"{name} is not supported by quire.vllm, only {_FULL[0]}, "
                                   f"{_FULL[1]}, {_WINDOWED[0]}, {_WINDOWED[1]} and {_CROSS[0]}")
        self.block_size: int = spec.block_size
        self.crosses = name in _CROSS
        self.window = 0
        if name in _WINDOWED + _PLAIN:
            self.window = (getattr(spec, "sliding_window", None) or 0) + \
                (getattr(spec, "extra_retained_tokens", 0) or 0)
        if not self.window and (getattr(config, "prefix_cache_retention_interval", None) or 0) > 0:
            raise ValueError("prefix_cache_retention_interval is set, and the model has no "
                             "sliding-window or Mamba layers")
        self.most_blocks = 1 << 62
        if self.window:
            self.most_blocks = -(-(self.window - 1 + tokens_in_flight) // self.block_size) + 1
