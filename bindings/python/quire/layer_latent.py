# SPDX-License-Identifier: Apache-2.0
"""layer_latent: latent attention (DeepSeek's MLA, arXiv 2405.04434) over the latents in the blocks.

transformers caches a token's latent and the rotated part of its key, and expands all of them into
keys and values of every head before each attention. With K = latent W_k and V = latent W_v

    q . K = (q W_k^T) . latent        sum p V = (sum p latent) W_v

so the queries can be multiplied instead, and the blocks' attention runs over the latents. The first
result of a layer is compared with the model's own attention over the expanded tensors.
"""

from __future__ import annotations

from typing import Any, Optional

import torch  # type: ignore[import-not-found, unused-ignore]

from .groups import GroupKind
from .layer_forward import LayerForward
from .layer_thread import waiting_forward


class Latent:
    """A call of attention by a layer whose latents a cache holds."""

    def __init__(self, module: Any, forward: LayerForward, query: Any):
        assert forward.pending is not None
        self.forward = forward
        self.layer, self.latents, self.rotated = forward.pending
        self.alone = forward.alone
        self._module = module
        plain = module.qk_nope_head_dim
        weight = module.kv_b_proj.weight.view(query.shape[1], -1, self.latents.shape[3])
        self._to_value = weight[:, plain:]
        moved = torch.matmul(query[..., :plain], weight[:, :plain])
        self.query = torch.cat([moved, query[..., plain:]], 3)
        self.scale = query.shape[3] ** -0.5

    def result(self, out: Any) -> Any:
        """[row][column][head][dim] of values, from that of latents."""
        moved = torch.matmul(out.transpose(1, 2), self._to_value.transpose(1, 2))
        return moved.transpose(1, 2).contiguous()

    def expand(self, latents: Any, rotated: Any) -> Any:
        """K and V of all heads."""
        return self._module.expand_kv(latents, rotated)


def latent_call(module: Any, query: Any, key: Any) -> Optional[Latent]:
    """The call, if the module expands the latents that a cache of this thread was last given."""
    forward = waiting_forward()
    if forward is None or forward.pending is None:
        return None
    layer, latents, rotated = forward.pending
    shape = forward.store.shapes[layer]
    projection: Any = getattr(module, "kv_b_proj", None)
    if (shape is None or shape.kind != GroupKind.LATENT or type(projection) is not torch.nn.Linear
            or projection.bias is not None or getattr(module, "layer_idx", None) != layer
            or not hasattr(module, "expand_kv") or query.shape[2] != latents.shape[2]):
        return None
    plain, heads = getattr(module, "qk_nope_head_dim", 0), query.shape[1]
    if (query.shape[3] != plain + rotated.shape[3] or projection.weight.shape[0] % heads
            or projection.weight.shape[1] != latents.shape[3]
            or key.shape[2] < latents.shape[2]
            or not torch.equal(key[:, 0, -latents.shape[2]:, plain:], rotated[:, 0])):
        return None
    return Latent(module, forward, query)
