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
_CHUNKED = ("ChunkedLocalAttentionSpec",)
_CROSS = ("CrossAttentionSpec",)
_LARGEST = 256  # tokens of a block, see quire_cache_desc.block_tokens
_PLAIN = ("SimpleNamespace",)  # of quire.vllm.config: windowed if it has a window


class Spec:
    """The only group of a KVCacheConfig.

    window       tokens that a token sees, or of a chunk; 0 for all
    chunked      True if a token sees the tokens of its own chunk
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
        known = _FULL + _WINDOWED + _CHUNKED + _CROSS
        if name not in known + _PLAIN:
            raise UnsupportedError(f"{name} is not supported by quire.vllm, only "
                                   f"{', '.join(known[:-1])} and {known[-1]}")
        self.block_size: int = spec.block_size
        if self.block_size > _LARGEST or self.block_size & (self.block_size - 1):
            raise UnsupportedError(f"blocks of {self.block_size} tokens are not supported by "
                                   f"quire.vllm: a power of two, at most {_LARGEST}")
        self.crosses = name in _CROSS
        self.chunked = name in _CHUNKED
        self.window = spec.attention_chunk_size if self.chunked else 0
        if name in _WINDOWED + _PLAIN:
            self.window = (getattr(spec, "sliding_window", None) or 0) + \
                (getattr(spec, "extra_retained_tokens", 0) or 0)
        if not self.window and (getattr(config, "prefix_cache_retention_interval", None) or 0) > 0:
            raise ValueError("prefix_cache_retention_interval is set, and the model has no "
                             "sliding-window or Mamba layers")
        self.most_blocks = 1 << 62
        if self.chunked:
            self.most_blocks = -(-(self.window + tokens_in_flight) // self.block_size)
        elif self.window:
            self.most_blocks = -(-(self.window - 1 + tokens_in_flight) // self.block_size) + 1
