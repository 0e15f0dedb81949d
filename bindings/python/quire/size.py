# SPDX-License-Identifier: Apache-2.0
"""size: how large a cache fits on a device, and what bounds a decode step."""

from __future__ import annotations

import dataclasses
from typing import Any

from . import libquire as _library
from .libquire import new


@dataclasses.dataclass(frozen=True)
class Size:
    """quire_size_info of quire/size.h. bound: 0 unknown, 1 bandwidth, 2 compute."""

    kv_bytes_per_token: int
    pool_bytes: int
    blocks: int
    tokens: int
    max_sequences: int
    batch: int
    bound: int
    step_seconds: float
    tokens_per_second: float


def estimate_size(**fields: Any) -> Size:
    """Sizes a deployment from the fields of quire_size_desc, named as in quire/size.h."""
    library = _library.load()
    info = new("quire_size_info")
    try:
        desc = new("quire_size_desc", **fields)
    except KeyError as why:
        raise TypeError(f"unknown field {why}") from None
    library.call(library.api.size_estimate, desc, info)
    return Size(**{f.name: getattr(info, f.name) for f in dataclasses.fields(Size)})
