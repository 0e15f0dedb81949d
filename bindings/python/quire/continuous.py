# SPDX-License-Identifier: Apache-2.0
"""continuous: transformers' continuous batching with its K and V in a Quire cache.

    with quire.continuous.serve(model, device, blocks=1024):
        model.generate_batch(prompts)

Within the block generate_batch, continuous_batching_context_manager and init_continuous_batching of
this model, and generate(cache_implementation="paged"), make managers whose cache is Quire's:
blocks, prompts found again, forks and frees are the library's, and attention runs over the blocks.
transformers keeps its scheduler, its threads and its sampling. The blocks live as long as the
`with` block, so a later call finds the prompts of earlier ones.

A model that the blocks cannot serve is refused when it begins (continuous_probe), and options that
are not served when a manager is made.

Threads: one manager at a time.
"""

from __future__ import annotations

import functools
import types
from typing import Any, List

import torch  # type: ignore[import-not-found, unused-ignore]
from transformers.generation.continuous_batching.continuous_api import (  # type: ignore
    BackgroundThreadStatus, ContinuousBatchingManager)

from .continuous_cache import ContinuousCache
from .continuous_probe import check_model, probed, refused, unwrapped
from .device import Device
from .errors import ArgumentError, BusyError


class Served:
    """A model whose continuous batching is served. Made by serve().

    stats  the quire.CacheStats of the blocks
    """

    def __init__(self, model: Any, device: Device, blocks: int, block_tokens: int,
                 pool_bytes: int, max_batch_tokens: int):
        check_model(model)
        if "init_continuous_batching" in model.__dict__:
            raise ArgumentError("the model is served already")
        self._model = model.eval()
        self._cache, self.rows, self.forward = probed(model, device, blocks, block_tokens,
                                                      pool_bytes, max_batch_tokens)
        self.manager: Any = None  # that was started last
        own = type("QuireManager", (_Manager,), {"served": self})
        begin = _with_names(type(model).init_continuous_batching, ContinuousBatchingManager=own)
        model.init_continuous_batching = types.MethodType(torch.no_grad()(begin), model)

    @property
    def stats(self) -> Any:
        return self._cache.stats

    def close(self) -> None:
        """Stops a manager that still runs, and frees the blocks."""
        if self._model is None:
            return
        model, self._model = self._model, None
        model.__dict__.pop("init_continuous_batching", None)
        kept = model.__dict__.get("_cached_continuous_batching_manager")
        if isinstance(kept, _Manager) and kept.served is self:
            model.destroy_cached_continuous_batching_manager()
        if self.manager is not None:
            self.manager.end()
        self.rows.free_all()
        self._cache.close()

    def __enter__(self) -> "Served":
        return self

    def __exit__(self, *what: Any) -> None:
        self.close()


def serve(model: Any, device: Device, blocks: int = 0, *, block_tokens: int = 16,
          pool_bytes: int = 0, max_batch_tokens: int = 8192) -> Served:
    """Serves a model's continuous batching from blocks, until the `with` block ends or close().

    model             on the host; any attn_implementation: a manager sets "quire" while it runs
    blocks            of each pool, the null block included; they take the place of num_blocks and
                      page_size of a ContinuousBatchingConfig
    pool_bytes        of all pools, instead of blocks
    max_batch_tokens  the largest that a ContinuousBatchingConfig may ask for
    Errors  UnsupportedError, the model is not one whose attention the blocks have in all layers.
    """
    return Served(model, device, blocks, block_tokens, pool_bytes, max_batch_tokens)


def _with_names(function: Any, **names: Any) -> Any:
    """A copy of one of transformers' functions, for which these global names mean something else.
    """
    own = unwrapped(function)
    made = types.FunctionType(own.__code__, {**own.__globals__, **names}, own.__name__,
                              own.__defaults__, own.__closure__)
    made.__kwdefaults__ = own.__kwdefaults__
    return functools.wraps(own)(made)


class _Manager(ContinuousBatchingManager):  # type: ignore[misc, unused-ignore]
    """A manager whose cache is Quire's."""

    served: Served
    _begun: Any = None  # the thread that was started last

    def __init__(self, model: Any, generation_config: Any, continuous_batching_config: Any,
                 workload_hints: Any = None):
        _check_options(continuous_batching_config, self.served.rows.store.max_query_tokens)
        before = model.config._attn_implementation
        try:
            ContinuousBatchingManager.__init__(self, model, generation_config,
                                               continuous_batching_config, workload_hints)
            self._check_resolved()
        except BaseException:
            model.set_attn_implementation(before)
            raise

    def _check_resolved(self) -> None:
        # transformers knows the attention "quire" as one that needs a mask, and so compiles and
        # captures nothing unless it is asked to.
        resolved = self.continuous_batching_config
        if (resolved.varlen_compile_config is not None or resolved.use_async_batching
                or resolved.decode_compile_config is not None or any(resolved.cuda_graph_booleans)):
            raise refused("torch.compile, asynchronous batching or a CUDA graph")

    def switch_to_cb_friendly_attn(self, model: Any, auto_switch_to_flash: bool = True) -> None:
        before = model.config._attn_implementation
        if before != "quire":
            model.set_attn_implementation("quire")
            self._original_attn_impl = before

    def start(self) -> None:
        other = self.served.manager
        if other is not None and other is not self and other.is_running():
            raise BusyError("another manager of this model is running: stop it first")
        self.served.manager = self
        try:
            ContinuousBatchingManager.start(self)
        finally:
            self._begun = self._generation_thread

    def is_running(self) -> bool:
        """True until the thread has left its loop. A join() that Ctrl-C has interrupted makes
        Python's is_alive() say too early that a thread has ended (bpo-45274)."""
        return (self._begun is not None and self._begun.ident is not None
                and self.background_thread_status.local_status != BackgroundThreadStatus.STOPPED)

    def join(self, stop_trigger_time: float, timeout: Any = None) -> None:
        """Waits; after the timeout for the running forward only, which is the last one then."""
        ContinuousBatchingManager.join(self, stop_trigger_time, timeout)
        self.end()

    def end(self) -> None:
        """Returns once the thread has left its loop, with the running forward at the latest."""
        status = self.background_thread_status
        if self.is_running():
            status.request_stop(BackgroundThreadStatus.HARD_STOP,
                                self.distributed_helper.global_rank)
            with status._condition:
                status._condition.wait_for(lambda: not self.is_running())

    def _create_batch_processor(self) -> Any:
        served = self.served

        def cache(config: Any, continuous_batching_config: Any, dtype: Any,
                  **others: Any) -> ContinuousCache:
            return ContinuousCache(served.rows, served.forward, config,
                                   continuous_batching_config, dtype)

        create = _with_names(ContinuousBatchingManager._create_batch_processor,
                             PagedAttentionCache=cache)
        return create(self)


def _check_options(options: Any, max_batch_tokens: int) -> None:
    if (options.max_batch_tokens or 0) > max_batch_tokens:
        raise ArgumentError(f"max_batch_tokens is {options.max_batch_tokens}, and serve() was "
                            f"given {max_batch_tokens}")
    graphs: List[Any] = [options.use_cuda_graph]
    if isinstance(options.use_cuda_graph, tuple):
        graphs = list(options.use_cuda_graph)
    asked = {"use_cuda_graph": any(graphs),
             "varlen_compile_config": options.varlen_compile_config is not None,
             "decode_compile_config": options.decode_compile_config is not None,
             "default_compile_level": options.default_compile_level > 0,
             "use_async_batching": options.use_async_batching,
             "cpu_offload_space": options.cpu_offload_space != 0}
    for name, wanted in asked.items():
        if wanted:
            raise refused(f"the option {name}")
