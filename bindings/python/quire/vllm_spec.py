# SPDX-License-Identifier: Apache-2.0
"""vllm_spec: what a KVCacheConfig of vLLM says about the blocks of its groups.

Kinds are told apart by the exact name of the spec's class: another class, also a derived one, has
rules for its blocks that are not known here, and is refused.
"""

from __future__ import annotations

import math
from typing import Any, List

from .errors import UnsupportedError
from .groups import Group, GroupKind

# A FullAttentionSpec may have a window: layers with windows that share its blocks with others
# without one, so that no block may be returned early.
_FULL = ("FullAttentionSpec", "MLAAttentionSpec")
_WINDOWED = ("SlidingWindowSpec", "SlidingWindowMLASpec")
_CHUNKED = ("ChunkedLocalAttentionSpec",)
_CROSS = ("CrossAttentionSpec",)
_STATE = ("MambaSpec",)
_RING = ("CircularBufferSpec",)
_LARGEST = 4096  # tokens of a block, see quire_cache_desc.block_tokens
_MOST_GROUPS = 16  # of a cache
_PLAIN = ("SimpleNamespace",)  # of quire.vllm.config: windowed if it has a window


class GroupSpec:
    """One group of a KVCacheConfig.

    spec         vLLM's
    block_size   in tokens: those of a block of all ranks, if context parallelism divides them
    window       tokens that a token sees, or of a chunk; 0 for all
    chunked      True if a token sees the tokens of its own chunk
    crosses      True if its blocks hold an encoder's tokens
    states       blocks that hold the state of a recurrence, of each request, and stay; 0: none
    ranks        that divide a block
    is_uncached_state  True if its blocks hold such states, each the one after its tokens, which are
                 not cached: a request needs the last one
    most_blocks  that a request may hold at a time
    is_scratch   True if the group is not cached beside others that are (vllm_scratch.py)
    is_zeroed    True if a model that asks for it has new blocks zeroed
    is_ring      True if a request has one block of it, whatever its length; such a group is scratch
    """

    def __init__(self, spec: Any, tokens_in_flight: int, longest: int, ranks: int, caches: bool):
        self.spec = spec
        if type(spec).__name__ == "UniformTypeKVCacheSpecs":
            spec = next(iter(spec.kv_cache_specs.values()))
        name = type(spec).__name__
        known = _FULL + _WINDOWED + _CHUNKED + _STATE + _RING + _CROSS
        if name not in known + _PLAIN:
            raise UnsupportedError(f"{name} is not supported by quire.vllm, only "
                                   f"{', '.join(known[:-1])} and {known[-1]}")
        self.block_size: int = spec.block_size
        self.ranks = 1
        if ranks > 1 and getattr(self.spec, "dcp_sharded", False):
            if name not in _FULL:
                raise UnsupportedError(f"{name} divided by decode context parallelism is not "
                                       "supported by quire.vllm, only full attention")
            self.block_size *= ranks
            self.ranks = ranks
        self.states = 0
        self.is_uncached_state = name in _STATE and self.block_size < longest
        if name in _STATE:
            mode = getattr(spec, "mamba_cache_mode", "")
            if mode != "none" or self.is_uncached_state and spec.num_speculative_blocks:
                raise UnsupportedError(f"MambaSpec with mamba_cache_mode {mode} is not supported "
                                       "by quire.vllm, only none without drafts or with a block "
                                       "for all of a request's tokens: use vLLM's own manager")
            if not self.is_uncached_state:
                self.states = 1 + spec.num_speculative_blocks
        if self.states == 0 and self.block_size > _LARGEST:
            raise UnsupportedError(f"blocks of {self.block_size} tokens are not supported by "
                                   f"quire.vllm: at most {_LARGEST}")
        self.crosses = name in _CROSS
        self.chunked = name in _CHUNKED
        self.window: int = spec.attention_chunk_size if self.chunked else 0
        if self.is_uncached_state:
            self.window = 2  # the block of the last token's state, until the next one has its own
        if name in _WINDOWED + _PLAIN:
            self.window = (getattr(spec, "sliding_window", None) or 0) + \
                (getattr(spec, "extra_retained_tokens", 0) or 0)
        self.most_blocks = 1 << 62
        if self.chunked:
            self.most_blocks = -(-(self.window + tokens_in_flight) // self.block_size)
        elif self.window:
            self.most_blocks = -(-(self.window - 1 + tokens_in_flight) // self.block_size) + 1
        self.is_ring = name in _RING
        self.is_zeroed = name not in _STATE + _RING
        self.is_scratch = self.is_ring or \
            caches and not getattr(self.spec, "prefix_cacheable", True)
        if self.is_scratch and not self.is_ring and (not self.window or name in _STATE):
            raise UnsupportedError(f"{name} whose blocks are not cached is not supported by "
                                   "quire.vllm, only windows and chunks")

    @property
    def passes(self) -> bool:
        """True if a request gives up blocks of the library's group while it runs."""
        return self.window != 0 and not self.is_scratch

    def scratch_blocks(self, tokens: int) -> int:
        """How many entries the table of a scratch group has for so many tokens."""
        return 1 if self.is_ring else -(-tokens // self.block_size)

    @property
    def is_fixed(self) -> bool:
        """True if a request has all blocks from its admission on."""
        return self.crosses or self.states != 0

    def group(self, unit: int, is_alone: bool) -> Group:
        """The library's group in a cache whose blocks have `unit` tokens unless a group says more.
        A cross-attention group alone holds its tokens like any other. States are blocks of another
        input: the library gives them out at once."""
        size = 0 if self.states or self.block_size == unit else self.block_size
        if self.is_fixed and not is_alone:
            return Group(layers=1, kv_heads=1, head_dim=1, kind=GroupKind.CROSS, block_tokens=size)
        kind = GroupKind.CHUNKED if self.chunked else \
            GroupKind.WINDOW if self.window else GroupKind.FULL
        return Group(layers=1, kv_heads=1, head_dim=1, window=self.window, kind=kind,
                     block_tokens=size)

    def passed(self, computed: int) -> int:
        """How many of the first blocks a token sees nothing of, if `computed` are before it."""
        if not self.window:
            return 0
        if self.chunked:
            return computed // self.window * self.window // self.block_size
        return max(0, computed - self.window + 1) // self.block_size


class Spec:
    """The groups of a KVCacheConfig.

    groups    one or several
    block_size  tokens per block of the groups that have one for their tokens
    sizes     that of each group; 0: a request has all its blocks from the beginning, or the group
              is scratch
    slots     tokens per block of the scratch groups by their numbers; 0: a block of a ring
    alignment  whole blocks of all groups, scratch too: a hit is a multiple of it
    windowed  True if a request gives up blocks while it runs
    crosses   True if the only group's blocks hold an encoder's tokens
    fixed     True if a group beside others has all blocks of a request from the beginning
    """

    def __init__(self, config: Any, tokens_in_flight: int, longest: int, ranks: int = 1,
                 caches: bool = True):
        self.groups: List[GroupSpec] = [
            GroupSpec(group.kv_cache_spec, tokens_in_flight, longest, ranks, caches)
            for group in config.kv_cache_groups]
        groups = self.groups
        if not groups or len(groups) > _MOST_GROUPS:
            raise UnsupportedError(f"{len(groups)} KV cache groups are not supported by "
                                   f"quire.vllm, only 1 to {_MOST_GROUPS}")
        self.crosses = len(groups) == 1 and groups[0].crosses
        self.sizes = [0 if group.is_scratch or group.is_fixed and not self.crosses
                      else group.block_size for group in groups]
        self.slots = {i: 0 if group.is_ring else group.block_size
                      for i, group in enumerate(groups) if group.is_scratch}
        self.fixed = any(group.is_fixed for group in groups) and not self.crosses
        different = sorted(set(filter(None, self.sizes)))
        if not different:
            raise UnsupportedError("Mamba, or groups that are not cached, without a group of "
                                   "attention that is are not supported by quire.vllm")
        if len(different) > 1:
            raise UnsupportedError(f"groups with blocks of {different} tokens are not supported by "
                                   "quire.vllm: use vLLM's own manager")
        if any(group.states for group in groups) and any(group.crosses for group in groups) or \
                len({group.states for group in groups if group.states}) > 1:
            raise UnsupportedError("groups of Mamba with different numbers of blocks, or beside "
                                   "cross-attention, are not supported by quire.vllm")
        self.block_size = different[0]
        self.alignment = math.lcm(self.block_size, *(
            group.block_size for group in groups if group.is_scratch))
        self.windowed = any(group.passes or group.is_scratch and group.window for group in groups)
        interval = getattr(config, "prefix_cache_retention_interval", None)
        if interval and not self.windowed:
            raise ValueError("prefix_cache_retention_interval is set, and the model has no "
                             "sliding-window or Mamba layers")

    @property
    def has_windows(self) -> bool:
        """True if a group of the library has a window or chunks."""
        return any(group.window and group.passes for group in self.groups)

    def left_of(self, tokens: int, given: int, computed: int) -> int:
        """How many more blocks a request with so many tokens holds at most at a time, than one with
        slots for the `given` first tokens that began after those that are `computed`."""
        left = 0
        for size, group in zip(self.sizes, self.groups):
            if group.is_scratch:
                passed = group.passed(computed)
                most = min(group.scratch_blocks(tokens) - passed, group.most_blocks)
                left += max(0, most - max(0, group.scratch_blocks(given) - passed))
            elif size:
                left += min(-(-tokens // size), group.most_blocks) - -(-given // size)
        return left
