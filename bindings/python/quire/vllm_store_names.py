# SPDX-License-Identifier: Apache-2.0
"""vllm_store_names: what a block of vLLM is called in a store, and which engines agree on it.

A block's name is the SHA-256 of the name before it, its tokens, and vLLM's extra keys (LoRA, media,
cache salt, prompt embeddings). vLLM's own block hashes are not used: by default they begin with a
random number of the process.
"""

from __future__ import annotations

import dataclasses
import hashlib
import struct
from typing import Any, Dict, List

from . import errors
from .page_store import fingerprint

ROOT = hashlib.sha256(b"quire vllm block 1").digest()


@dataclasses.dataclass
class Chain:
    """The names of a request's full blocks, as far as they were asked for.

    root  the name before the first
    """

    root: bytes
    names: List[bytes] = dataclasses.field(default_factory=list)
    media: int = 0  # index of the first media item that may reach into the next block


def block_names(chain: Chain, request: Any, block_size: int, count: int) -> List[bytes]:
    """The names of the request's first `count` blocks, or of those whose tokens are known."""
    from vllm.v1.core.kv_cache_utils import (  # type: ignore[import-not-found, unused-ignore]
        generate_block_hash_extra_keys)

    count = min(count, request.num_tokens // block_size)
    for index in range(len(chain.names), count):
        start, end = index * block_size, (index + 1) * block_size
        tokens = request.all_token_ids[start:end]
        if min(tokens) < 0:  # stands for media
            return chain.names[:index]
        extra, chain.media = generate_block_hash_extra_keys(request, start, end, chain.media)
        before = chain.names[-1] if chain.names else chain.root
        content = struct.pack(f"<{block_size}q", *tokens) + repr(extra).encode()
        chain.names.append(hashlib.sha256(before + content).digest())
    return chain.names[:count]


@dataclasses.dataclass(frozen=True)
class Shape:
    """How a model's blocks are divided among workers."""

    tp: int
    pp: int
    replicas: int  # consecutive ranks that hold the same

    @property
    def shards(self) -> int:
        return self.tp // self.replicas * self.pp

    def shard_of(self, rank: int) -> int:
        """Of the worker with this rank in its engine."""
        return rank // self.replicas % self.shards

    def is_writer(self, rank: int) -> bool:
        """True for the first of the ranks that hold the same."""
        return rank % self.tp % self.replicas == 0


def shape_of(config: Any, kv_cache_config: Any) -> Shape:
    """Errors: UnsupportedError names what is not served."""
    parallel = config.parallel_config
    for name in ("decode_context_parallel_size", "prefill_context_parallel_size"):
        if getattr(parallel, name, 1) != 1:
            raise errors.UnsupportedError(f"{name} is {getattr(parallel, name)}: a block would be "
                                          "divided among workers by tokens, which is not served")
    return Shape(parallel.tensor_parallel_size, parallel.pipeline_parallel_size,
                 getattr(kv_cache_config, "kv_tp_replicas", 1))


def check_group(kv_cache_config: Any) -> Any:
    """The one group of full attention. Errors: UnsupportedError."""
    from vllm.v1.kv_cache_interface import (  # type: ignore[import-not-found, unused-ignore]
        FullAttentionSpec, UniformTypeKVCacheSpecs)

    groups = kv_cache_config.kv_cache_groups
    if len(groups) != 1:
        raise errors.UnsupportedError(f"the model has {len(groups)} KV cache groups: "
                                      "QuireStoreConnector serves one group of full attention")
    spec = groups[0].kv_cache_spec
    each = (spec.kv_cache_specs.values() if isinstance(spec, UniformTypeKVCacheSpecs) else [spec])
    for one in each:
        if not isinstance(one, FullAttentionSpec):
            raise errors.UnsupportedError(f"QuireStoreConnector does not serve "
                                          f"{type(one).__name__}: only full attention and MLA")
    return groups[0]


def kinds(config: Any, kv_cache_config: Any, identity: Any) -> List[bytes]:
    """The fingerprint of each shard's blocks, in order."""
    import vllm  # type: ignore[import-not-found, unused-ignore]

    shape, model = shape_of(config, kv_cache_config), config.model_config
    spec = check_group(kv_cache_config).kv_cache_spec
    alike: Dict[str, Any] = {
        "engine": ("vllm", vllm.__version__),
        "weights": ("identity", identity) if identity else ("model", model.model, model.revision),
        "dtype": str(model.dtype),
        "quantization": str(getattr(model, "quantization", None)),
        "cache dtype": str(config.cache_config.cache_dtype), "block": spec.block_size,
        "backend": str(getattr(getattr(config, "attention_config", None), "backend", None)),
        "parallel": (shape.tp, shape.pp, shape.replicas)}
    return [fingerprint(alike | {"shard": shard}) for shard in range(shape.shards)]
