# SPDX-License-Identifier: Apache-2.0
"""layer_prompts: the token ids of a model's forwards, and whether they alone decide K and V.

Blocks are found again by token ids, so a forward's ids may be published only if K and V follow from
them and from the weights. Two hooks on the model see them:

    on the embedding        the ids that it was called with, and the tensor that it returned
    on the *inner* module   the smallest one that holds the embedding and all layers: everything
                            else that the layers are given

A forward's ids count if the inner module gets them, or the embedding's unchanged result, and
nothing else that could matter: no embeddings of another origin (images), no token types, no
positions other than the tokens' places. The masks are compared in attention(). Everything
unknown means that the ids do not count; then K and V are served as always, and not found again.

The *state* of the weights (addresses, versions, adapters) is read in every forward. The *key* that
blocks are published under also has a sample of their elements. A change of weights through
`.data` that leaves all of these alone is not seen: call QuireCache.forget() after it.

Threads: hooks run in the thread of the forward; what the embedding saw is kept per thread.
"""

from __future__ import annotations

import dataclasses
import hashlib
import threading
import weakref
from typing import Any, Dict, Iterator, List, Optional, Tuple

import torch  # type: ignore[import-not-found, unused-ignore]

from .layer_masks import version_of
from .layer_thread import eagerly

# Arguments of an inner module that say nothing about K and V, or that are looked at elsewhere.
_HARMLESS = {"input_ids", "inputs_embeds", "attention_mask", "position_ids", "cache_position",
             "cache", "past_key_values", "use_cache", "output_attentions", "output_hidden_states",
             "return_dict", "logits_to_keep", "output_router_logits", "num_items_in_batch"}
# K of a token then depends on how long the prompt is.
LENGTH_ROPES = {"dynamic", "longrope"}
_ADAPTERS = frozenset(
    ("_active_adapter", "_disable_adapters", "merged_adapters", "scaling"))
_SAMPLES = 8  # elements of each tensor that are part of the key


@dataclasses.dataclass
class Given:
    """What a forward was given."""

    ids: Optional[Any]        # [row][column]; None: they do not decide K and V
    positions: Optional[Any]
    key: bytes
    seen: Any                 # () -> the ids that the embedding saw, None: not once
    pads: Optional[int]       # the id that some models take for padding
    done: bool = False        # the inner module has returned


def _modules(module: Any) -> Iterator[Any]:
    yield module
    for child in module._modules.values():
        if child is not None:
            yield from _modules(child)


def _tensors(module: Any) -> Iterator[Any]:
    for table in (module._parameters, module._buffers):
        for tensor in table.values():
            if tensor is not None:
                yield tensor


def _sample(tensor: Any) -> bytes:
    flat = tensor.detach()
    if not flat.is_contiguous() or flat.numel() == 0 or flat.device.type == "meta":
        return b""
    flat = flat.view(-1)
    # In integers: a float does not tell the last places of a large tensor apart.
    places = torch.arange(_SAMPLES) * (flat.numel() - 1) // (_SAMPLES - 1)
    taken = flat[places.to(flat.device)].cpu().contiguous()
    return bytes(taken.view(torch.uint8).numpy().tobytes())


def ropes_of(config: Any) -> Iterator[str]:
    """The kinds of rotary embedding that a config names, wherever it does."""
    waiting: List[Any] = [getattr(config, name, None)
                          for name in ("rope_parameters", "rope_scaling")]
    while waiting:
        found = waiting.pop()
        if isinstance(found, dict):
            waiting += found.values()
            yield str(found.get("rope_type", found.get("type", "")))


class Prompts:
    """The hooks on a model. The caches of one store share them; close() removes them."""

    def __init__(self, model: Any, inner: Any, embedding: Any, forward_of: Any):
        """forward_of  (Prompts, arguments) -> the LayerForward of a cache among them, or None"""
        self._module = weakref.ref(inner)
        self._forward_of = forward_of
        self._local = threading.local()
        self._held: Dict[int, Any] = {}  # modules that the inner one holds, by their id
        self._state: Any = None
        self._key = b""
        text = model.config.get_text_config(decoder=True)
        self._pads = getattr(text, "pad_token_id", None)
        self._fixed = not any(rope in LENGTH_ROPES for rope in ropes_of(text))
        self._hooks = [inner.register_forward_pre_hook(self._before, with_kwargs=True),
                       inner.register_forward_hook(self._after, with_kwargs=True),
                       embedding.register_forward_hook(self._embedded)]

    def close(self) -> None:
        for hook in self._hooks:
            hook.remove()

    def holds(self, module: Any) -> bool:
        """True if the inner module holds this one."""
        if self._held.get(id(module), lambda: None)() is module:
            return True
        inner = self._module()
        if inner is None or not any(module is mine for mine in _modules(inner)):
            return False
        self._held[id(module)] = weakref.ref(module)
        return True

    # What decides K and V besides the tokens.

    def key(self) -> Optional[bytes]:
        """What blocks of the model as it is now are published under. None: there is no such key."""
        inner = self._module()
        if inner is None or not self._fixed:
            return None
        state = self._read_state(inner)
        if state is None:
            return None
        if state != self._state:
            digest = hashlib.blake2b(digest_size=16)
            digest.update(repr(state).encode())
            for module in _modules(inner):
                for tensor in _tensors(module):
                    digest.update(repr((tensor.dtype, tuple(tensor.shape))).encode())
                    digest.update(_sample(tensor))
            self._state, self._key = state, digest.digest()
        return self._key

    def fresh_key(self) -> Optional[bytes]:
        """The same, with the sample taken anew."""
        self._state = None
        return self.key()

    def _read_state(self, inner: Any) -> Optional[Tuple[Any, ...]]:
        """None: something may change what the layers compute that is not in the state."""
        state: List[Any] = []
        waiting = [inner]
        while waiting:
            module = waiting.pop()
            held = module.__dict__
            hooked = held["_forward_pre_hooks"] or held["_forward_hooks"]
            if held["training"] or "forward" in held or hooked and not _own_hooks(module):
                return None
            for table in held["_parameters"], held["_buffers"]:
                if table:
                    for tensor in table.values():
                        if tensor is not None:
                            if tensor.is_meta or tensor.is_inference():
                                return None
                            state += (tensor.data_ptr(), tensor._version)
            if not held.keys().isdisjoint(_ADAPTERS):  # in this order it looks for few names
                state += [repr(held[name]) for name in sorted(_ADAPTERS & held.keys())]
            children = held["_modules"]
            if children:
                state.append(len(children))
                waiting += [child for child in children.values() if child is not None]
        return tuple(state)

    # The hooks.

    @eagerly
    def _embedded(self, module: Any, arguments: Any, out: Any) -> None:
        ids = arguments[0] if len(arguments) == 1 else None
        seen = getattr(self._local, "seen", None)
        if isinstance(ids, torch.Tensor) and isinstance(out, torch.Tensor):
            self._local.seen = (ids, weakref.ref(out), version_of(out),
                                1 if seen is None else seen[3] + 1)

    @eagerly
    def _before(self, module: Any, arguments: Any, options: Any) -> None:
        if module is not self._module():
            return  # a copy of the model
        forward = self._forward_of(self, [*arguments, *options.values()])
        if forward is None:
            return
        names = _names_of(module, arguments, options)
        ids, embeds = names.get("input_ids"), names.get("inputs_embeds")
        seen = getattr(self._local, "seen", None)
        if ids is None and embeds is not None and seen is not None and seen[1]() is embeds and (
                seen[2] is not None and seen[2] == version_of(embeds)):
            ids = seen[0]
            self._local.seen = (*seen[:3], 1)
        else:
            self._local.seen = None
        key = self.key()
        if key is None or any(
                name not in _HARMLESS and value is not None and value is not False
                for name, value in names.items()) or not _are_ids(ids):
            ids = None
        forward.announce(Given(ids, names.get("position_ids"), key or b"", self._seen_ids,
                               self._pads))

    def _seen_ids(self) -> Any:
        seen = getattr(self._local, "seen", None)
        return seen[0] if seen is not None and seen[3] == 1 else None

    @eagerly
    def _after(self, module: Any, arguments: Any, options: Any, out: Any) -> None:
        if module is self._module():
            forward = self._forward_of(self, [*arguments, *options.values()])
            if forward is not None and forward.given is not None:
                forward.given.done = True
                forward.check_result(out)
            self._local.seen = None


def _own_hooks(module: Any) -> bool:
    """True if no hook of others may change what the module gets or returns."""
    for hooks in (module._forward_pre_hooks, module._forward_hooks):
        for hook in hooks.values():
            owner = getattr(hook, "__self__", None)
            if not isinstance(owner, Prompts) and getattr(
                    hook, "__module__", "") != "transformers.utils.output_capturing":
                return False
    return True


def _are_ids(ids: Any) -> bool:
    return (isinstance(ids, torch.Tensor) and ids.dim() == 2 and ids.device.type == "cpu"
            and ids.dtype in (torch.int64, torch.int32))


def _names_of(module: Any, arguments: Any, options: Any) -> Any:
    """{name: value} of a call; a value without a name has a number."""
    code = _unwrapped(type(module).forward).__code__
    names = code.co_varnames[1:code.co_argcount]
    return {**dict(enumerate(arguments)), **dict(zip(names, arguments)), **options} if len(
        arguments) > len(names) else {**dict(zip(names, arguments)), **options}


def _unwrapped(function: Any) -> Any:
    while hasattr(function, "__wrapped__"):
        function = function.__wrapped__
    return function


def prompts_of(model: Any, layers: List[int], forward_of: Any) -> Optional[Prompts]:
    """The hooks. None: no module holds the model's embedding and a list of so many layers.

    layers  numbers that may be that of the layers
    """
    embedding = model.get_input_embeddings()
    best = None
    for module in model.modules():
        held = list(module.modules())
        if any(part is embedding for part in held) and any(
                isinstance(part, torch.nn.ModuleList) and len(part) in layers for part in held):
            if best is None or len(held) < best[0]:
                best = len(held), module
    return None if best is None else Prompts(model, best[1], embedding, forward_of)
