# SPDX-License-Identifier: Apache-2.0
"""layer_masks: what transformers' masks show to a token, and what the blocks' attention shows.

A mask is [row or 1][head or 1][new column][column], of bool (true: visible) or of numbers that are
added to the scores. The columns may begin after the cache's first one, if a window has passed it.

A mask of n new columns has n * columns elements, of which nothing is needed if it is that of the
blocks' attention and all layers are known to attend over the blocks. Then a *stand-in* takes its
place: one NaN, seen as a tensor of the right shape, that remembers how to make the mask. It is
replaced by the mask before anything but the blocks' attention gets it, and NaN shows any use of it
that went unnoticed.
"""

from __future__ import annotations

import dataclasses
from typing import Any, Callable, Optional, Tuple

import torch  # type: ignore[import-not-found, unused-ignore]

from transformers import masking_utils  # type: ignore[import-not-found, unused-ignore]

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
    if stands_for(mask) is not None:
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


def version_of(tensor: Any) -> Optional[int]:
    """A number that changes with the tensor's content. None: one made under
    torch.inference_mode, whose changes are not counted."""
    return None if tensor.is_inference() else tensor._version


@dataclasses.dataclass(frozen=True)
class Made:
    """What a mask that our mask function returned remembers."""

    make: Callable[[], Any]
    version: Optional[int]
    stands_for: Optional[Tuple[GroupKind, int]] = None  # kind and window; None: it is the mask


def made(mask: Any, make: Callable[[], Any]) -> Any:
    """The mask, remembering that it was made here."""
    if mask is not None:
        mask._quire_made = Made(make, version_of(mask))
    return mask


def stand_in(kind: Tuple[GroupKind, int], make: Callable[[], Any], dtype: Any,
             *shape: int) -> Any:
    """What takes the place of the mask that `make` makes."""
    mask: Any = torch.full((1, 1, 1, 1), torch.nan, dtype=dtype).expand(*shape)
    mask._quire_made = Made(make, version_of(mask), kind)
    return mask


def made_of(mask: Any) -> Optional[Made]:
    """What the mask remembers. None: another one than the mask function returned, or changed."""
    found: Any = getattr(mask, "_quire_made", None)
    return None if found is None or found.version != version_of(mask) else found


def is_changed_stand_in(mask: Any) -> bool:
    """True if a hook has written into what stands for a mask, and so into all of it."""
    found: Any = getattr(mask, "_quire_made", None)
    if found is None or found.stands_for is None:
        return False
    version = version_of(mask)
    return found.version != version or version is None and not bool(mask[0, 0, 0, 0].isnan())


def stands_for(mask: Any) -> Optional[Tuple[GroupKind, int]]:
    """Kind and window of the attention whose mask this one stands for. None: it is a mask."""
    found = made_of(mask)
    return None if found is None else found.stands_for


_AND = masking_utils.and_masks().__code__
_WINDOW = masking_utils.sliding_window_overlay(1).__code__


def kind_of(function: Any) -> Optional[Tuple[GroupKind, int]]:
    """Kind and window of the attention that a mask function of transformers describes. None: it is
    not known here."""
    if function is masking_utils.causal_mask_function:
        return GroupKind.FULL, 0
    if getattr(function, "__code__", None) is not _AND:
        return None
    parts = function.__closure__[0].cell_contents
    if len(parts) != 2 or masking_utils.causal_mask_function not in parts:
        return None
    other = parts[0] if parts[1] is masking_utils.causal_mask_function else parts[1]
    if getattr(other, "__code__", None) is not _WINDOW:
        return None
    return GroupKind.WINDOW, other.__closure__[0].cell_contents
