# SPDX-License-Identifier: Apache-2.0
"""layer_thread: which forward the thread is in, for calls that transformers makes without a cache.

A cache is given K and V, and then attention() is called with tensors alone; it is asked for the
size of a mask, and then mask() is called with numbers alone. Each thread remembers the forward that
was given or asked something last, without keeping it alive.

Under torch.compile all of this runs as it is, and only the model's other parts are compiled.
"""

from __future__ import annotations

import functools
import threading
import weakref
from typing import Any, Callable, Optional, Tuple, TypeVar

import torch  # type: ignore[import-not-found, unused-ignore]

_thread = threading.local()
_Function = TypeVar("_Function", bound=Callable[..., Any])


def eagerly(function: _Function) -> _Function:
    """Keeps torch.compile out of a function."""
    kept: Any = torch.compiler.disable(
        function, reason="K and V are in Quire's blocks: their writes and attention are not "
        "compiled, so fullgraph=True cannot be had")

    @functools.wraps(function)
    def called(*arguments: Any, **options: Any) -> Any:
        # disable() costs each call some time outside of torch.compile too.
        if torch.compiler.is_compiling():
            return kept(*arguments, **options)
        return function(*arguments, **options)

    return called  # type: ignore[return-value, unused-ignore]


def begin_waiting(forward: Any) -> None:
    """The forward was given K and V of its pending layer."""
    _thread.waiting = weakref.ref(forward)


def waiting_forward() -> Optional[Any]:
    """The LayerForward whose K and V wait for attention, if any."""
    forward = getattr(_thread, "waiting", lambda: None)()
    return None if forward is None or forward.pending is None else forward


def waiting_layer() -> Optional[str]:
    """The layer whose new K and V were returned without the old ones, if any."""
    forward = waiting_forward()
    return f"layer {forward.pending[0]}" if forward is not None and forward.alone else None


def asked_for_mask(forward: Any, layer: int) -> None:
    """transformers asks for the size of a mask, which it is about to make."""
    _thread.asked = weakref.ref(forward), layer


def mask_wanted() -> Tuple[Optional[Any], int]:
    """The LayerForward and layer whose mask is made now, if a cache was asked for its size."""
    forward, layer = getattr(_thread, "asked", (lambda: None, 0))
    _thread.asked = (lambda: None), 0
    return forward(), layer
