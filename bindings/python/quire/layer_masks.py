# SPDX-License-Identifier: Apache-2.0
"""layer_masks: what transformers' masks show to a token, and what the blocks' attention shows.

A mask is [row or 1][head or 1][new column][column], of bool (true: visible) or of numbers that are
added to the scores. The columns may begin after the cache's first one, if a window has passed it.
"""

from __future__ import annotations

from typing import Any

import torch  # type: ignore[import-not-found, unused-ignore]

from .groups import GroupKind
from .layer_shapes import LayerShape


def shown(shape: LayerShape, seen: Any, new: int) -> Any:
    """[row][new column][column], which keys the blocks' attention shows.

    seen  [row][column], which columns have a token; the last `new` ones are new
    """
    place = seen.long().cumsum(1) - 1
    mine, keys = place[:, -new:, None], place[:, None, :]
    # Padded columns repeat the place before them, so the column decides as well.
    columns = torch.arange(seen.shape[1])
    allowed = seen[:, None, :] & (columns[None, :] <= columns[-new:, None])[None]
    if shape.kind == GroupKind.WINDOW:
        allowed &= mine - keys < shape.window
    if shape.kind == GroupKind.CHUNKED:
        allowed &= torch.div(mine, shape.window, rounding_mode="floor") == torch.div(
            keys, shape.window, rounding_mode="floor")
    return allowed


def visible_in(mask: Any, biased: bool = False) -> Any:
    """[row][new column][column] of a mask over all heads. None: it is no such mask.

    biased  a finite number may be added to a score that is visible
    """
    if mask is None or mask.dim() != 4 or (mask.shape[1] != 1 and not biased):
        return None
    if mask.dtype == torch.bool:
        return mask.any(1)
    if not mask.dtype.is_floating_point:
        return None
    shown = (mask > torch.finfo(mask.dtype).min / 2).any(1)
    if not biased and not bool(((mask[:, 0] == 0) == shown).all()):
        return None
    return shown


def new_tokens(visible: Any, rows: int, columns: int) -> Any:
    """[row][new column], which new tokens see themselves: the others are padding."""
    if visible.shape[-2] != columns or visible.shape[-1] < columns:
        return None
    mine = visible.diagonal(visible.shape[-1] - columns, -2, -1)
    return mine.expand(rows, columns).clone()
