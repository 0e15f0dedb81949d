# SPDX-License-Identifier: Apache-2.0
"""vllm_store: a KV connector of vLLM V1 that shares full blocks through a store of Quire.

    vllm serve MODEL --kv-transfer-config '{"kv_connector": "QuireStoreConnector",
        "kv_connector_module_path": "quire.vllm_store", "kv_role": "kv_both",
        "kv_load_failure_policy": "recompute",
        "kv_connector_extra_config": {"store": "valkey", "options": {"nodes": "10.0.0.1:6379"}}}'

It works with vLLM's KV cache manager and with quire.vllm's. Blocks are loaded between steps, so a
slow store holds up the request that waits for it, at most to its deadline, and no step.

Threads: vLLM calls each half from one.
"""

from __future__ import annotations

import dataclasses
from typing import Any, Dict, List, Optional, Set, Tuple

from vllm.distributed.kv_transfer.kv_connector.v1.base import (  # type: ignore[import-not-found]
    KVConnectorBase_V1, KVConnectorMetadata, KVConnectorRole, SupportsHMA)

from . import errors, vllm_release
from .page_store import PageStore, release, share
from .vllm_store_names import check_group, kinds, shape_of
from .vllm_store_scheduler import Blocks, StoreScheduler
from .vllm_store_worker import Layers, StoreWorker


@dataclasses.dataclass
class StoreMetadata(KVConnectorMetadata):  # type: ignore[misc]
    """What the scheduler tells the workers with a step."""

    loads: Dict[str, Blocks] = dataclasses.field(default_factory=dict)
    saves: Blocks = dataclasses.field(default_factory=list)


class QuireStoreConnector(KVConnectorBase_V1, SupportsHMA):  # type: ignore[misc]
    """Settings, in kv_connector_extra_config:

    store        the plugin's name, such as "valkey" or "disk"
    options      its options, as in docs/tiers.md
    lanes        how many requests are under way at once; default 8, on disk 1
    timeout      seconds for a lookup, and for each 64 blocks that are loaded; default 2
    identity     a text that names the weights, in place of the model's path and revision
    save_buffer  MiB of blocks that wait to be written; default 256
    plugin_path  where stores are looked for first
    """

    @classmethod
    def supports_sleep_mode(cls, kv_transfer_config: Any) -> bool:
        """False: a worker's tensors must stay where they are."""
        return False

    def __init__(self, vllm_config: Any, role: KVConnectorRole, kv_cache_config: Any = None):
        super().__init__(vllm_config, role, kv_cache_config)
        vllm_release.check()
        transfer = vllm_config.kv_transfer_config
        if transfer.is_kv_consumer and transfer.kv_load_failure_policy != "recompute":
            raise errors.ArgumentError(
                'a block that the store has lost must be computed: set "kv_load_failure_policy": '
                '"recompute" in the KV transfer config')
        self._settings = dict(transfer.kv_connector_extra_config)
        if "store" not in self._settings:
            raise errors.ArgumentError('kv_connector_extra_config names no store, such as '
                                       '"store": "valkey"')
        self._kinds = kinds(vllm_config, kv_cache_config, self._settings.get("identity"))
        self._store: Optional[PageStore] = None
        self._scheduler: Optional[StoreScheduler] = None
        self._worker: Optional[StoreWorker] = None
        self._failed: Set[int] = set()
        self._open()
        if role == KVConnectorRole.SCHEDULER:
            self._scheduler = StoreScheduler(
                self._opened, self._kinds, check_group(kv_cache_config).kv_cache_spec.block_size,
                loads=transfer.is_kv_consumer, saves=transfer.is_kv_producer)

    def _open(self) -> None:
        store = self._settings["store"]
        others = {name: self._settings[name] for name in ("lanes", "timeout", "plugin_path")
                  if name in self._settings}
        try:
            self._store = share(store, self._settings.get("options"), **others)
        except errors.BusyError as why:
            raise errors.BusyError(
                f"{why}: the store {store} has one owner, so the scheduler and all workers must be "
                "one process; share valkey among several", why.status) from None
        parallel = self._vllm_config.parallel_config
        if not self._opened.is_shared and parallel.world_size > 1:
            release(self._opened)
            raise errors.UnsupportedError(
                f"{parallel.world_size} workers cannot share the store {store}, which has one "
                "owner: use valkey")

    @property
    def _opened(self) -> PageStore:
        if self._store is None:
            raise errors.StaleError("the connector is shut down")
        return self._store

    @property
    def requires_kv_delivery(self) -> bool:
        """False: a block that is not saved is a miss later."""
        return False

    def shutdown(self) -> None:
        for half in (self._scheduler, self._worker):
            if half is not None:
                half.close()
        opened, self._store, self._scheduler, self._worker = self._store, None, None, None
        if opened is not None:
            release(opened)

    # The scheduler's half.

    @property
    def _planner(self) -> StoreScheduler:
        if self._scheduler is None:
            raise errors.StaleError("this is no open connector of a scheduler")
        return self._scheduler

    def bind_kv_cache_manager(self, kv_cache_manager: Any) -> None:
        self._kv_cache_manager = kv_cache_manager  # its block pool is not needed

    def get_num_new_matched_tokens(self, request: Any, num_computed_tokens: int
                                   ) -> Tuple[Optional[int], bool]:
        return self._planner.matched(request, num_computed_tokens)

    def update_state_after_alloc(self, request: Any, blocks: Any, num_external_tokens: int
                                 ) -> None:
        self._planner.allocated(request, blocks.get_block_ids()[0], num_external_tokens)

    def build_connector_meta(self, scheduler_output: Any) -> StoreMetadata:
        return StoreMetadata(*self._planner.step(scheduler_output))

    def on_new_request(self, request: Any) -> None:
        self._planner.seen(request)

    def update_connector_output(self, connector_output: Any) -> None:
        self._planner.loaded(set(connector_output.finished_recving or ()),
                             set(connector_output.invalid_block_ids or ()))

    def request_finished(self, request: Any, block_ids: List[int]
                         ) -> Tuple[bool, Optional[Dict[str, Any]]]:
        return self.request_finished_all_groups(request, (block_ids,))

    def request_finished_all_groups(self, request: Any, block_ids: Tuple[List[int], ...]
                                    ) -> Tuple[bool, Optional[Dict[str, Any]]]:
        """Its blocks may go: what is saved was copied."""
        self._planner.ended(request.request_id)
        return False, None

    def reset_cache(self) -> Optional[bool]:
        """For new weights: from now on this engine finds only what it saves itself."""
        if self._scheduler is not None:
            self._scheduler.reset()
            return True
        return None

    # A worker's half.

    @property
    def _mover(self) -> StoreWorker:
        if self._worker is None:
            raise errors.StaleError("no KV caches are registered with this connector")
        return self._worker

    def register_kv_caches(self, kv_caches: Dict[str, Any]) -> None:
        group = check_group(self._kv_cache_config)
        chosen = {name: kv_caches[name] for name in group.layer_names if name in kv_caches}
        if not chosen:
            raise errors.ArgumentError("none of the group's layers is registered")
        shape = shape_of(self._vllm_config, self._kv_cache_config)
        rank = self._vllm_config.parallel_config.rank
        saves = (self._kv_transfer_config.is_kv_producer and shape.is_writer(rank))
        self._worker = StoreWorker(
            self._opened, self._kinds[shape.shard_of(rank)],
            Layers(chosen, self._kv_cache_config.num_blocks), saves=saves,
            most_bytes=int(self._settings.get("save_buffer", 256)) << 20)

    def start_load_kv(self, forward_context: Any, **kwargs: Any) -> None:
        for request_id, blocks in self._get_connector_metadata().loads.items():
            self._mover.load(request_id, blocks)

    def wait_for_layer_load(self, layer_name: str) -> None:
        """Nothing to wait for: a request's blocks are there before a step has it."""

    def save_kv_layer(self, layer_name: str, kv_layer: Any, attn_metadata: Any, **kwargs: Any
                      ) -> None:
        """Nothing to do: blocks are saved with all their layers, after the step."""

    def wait_for_save(self) -> None:
        saves = self._get_connector_metadata().saves
        if saves:
            self._mover.save(saves)

    def get_finished(self, finished_req_ids: Set[str]
                     ) -> Tuple[Optional[Set[str]], Optional[Set[str]]]:
        if self._worker is None:
            return None, None
        finished, failed = self._worker.taken()
        self._failed |= failed
        return None, finished or None

    def get_block_ids_with_load_errors(self) -> Set[int]:
        failed, self._failed = self._failed, set()
        return failed


__all__ = ("QuireStoreConnector", "StoreMetadata")
