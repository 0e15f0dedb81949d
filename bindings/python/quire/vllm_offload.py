# SPDX-License-Identifier: Apache-2.0
"""vllm_offload: a KV connector of vLLM that keeps evicted blocks in host memory.

    vllm serve MODEL --kv-transfer-config '{"kv_connector": "QuireOffloadConnector",
        "kv_connector_module_path": "quire.vllm_offload", "kv_role": "kv_both",
        "kv_connector_extra_config": {"cpu_bytes_to_use": 34359738368}}'

quire.vllm's manager decides everything: which blocks go to host memory, and which come back. To the
scheduler a block in host memory is a hit like any other. Here its scheduler half gives the
manager's copies to the workers, and the worker half runs them.

They are run by handle_preemptions, which vLLM calls for each step before anything writes to a
block: start_load_kv may come after the step's kernels.

Invariants:
  (1) the copies of each step reach every worker, in order, with that step
  (2) the scheduler and each worker have the same number of host blocks: a worker that gets another
      number refuses it
"""

from __future__ import annotations

import dataclasses
import importlib
from typing import Any, Dict, List, Optional, Set, Tuple

import numpy as np
import torch  # type: ignore[import-not-found, unused-ignore]

from . import vllm_release
from .errors import ArgumentError, UnsupportedError
from .vllm_host import HostBlocks, Move, Region, move_on_host

base: Any = importlib.import_module("vllm.distributed.kv_transfer.kv_connector.v1.base")

_DEFAULT_BYTES = 8 << 30  # as vLLM's SimpleCPUOffloadConnector


@dataclasses.dataclass
class OffloadCopies(base.KVConnectorMetadata):  # type: ignore[misc, unused-ignore]
    """What the workers do before a step.

    rows         (1: to the host, 0: from it; from block; to block), in order
    host_blocks  how many there are
    """

    rows: "np.ndarray[Any, Any]"
    host_blocks: int


def host_blocks(config: Any, vllm_config: Any) -> int:
    """How many blocks each worker keeps in host memory: num_cpu_blocks of the connector's extra
    configuration, or what its share of cpu_bytes_to_use has room for."""
    options = vllm_config.kv_transfer_config.kv_connector_extra_config or {}
    parallel = vllm_config.parallel_config
    count = options.get("num_cpu_blocks")
    if count is None:
        if parallel.pipeline_parallel_size > 1:
            raise UnsupportedError("with pipeline parallelism the stages' blocks differ in size: "
                                   "give num_cpu_blocks instead of cpu_bytes_to_use")
        share = int(options.get("cpu_bytes_to_use", _DEFAULT_BYTES)) // parallel.world_size
        count = share // (config.kv_cache_tensors[0].size // config.num_blocks)
    if type(count) is not int or count < 2:
        raise ArgumentError(f"there would be {count} blocks in host memory: at least 2, one of "
                            "which stays free for exchanges")
    return count


def regions_of(config: Any, caches: Dict[str, Any]) -> List[Region]:
    """Where the blocks of a KVCacheConfig are, given the tensors of its layers. All layers lie in
    one allocation, layer after layer, or block after block with all layers in each."""
    found: Dict[int, Region] = {}
    for tensor in config.kv_cache_tensors:
        name = next((layer for layer in tensor.layers if layer in caches), None)
        if name is None:
            continue
        start = caches[name].untyped_storage().data_ptr()
        span, count = tensor.block_stride * config.num_blocks, 1
        if tensor.layer_stride >= span:
            start += tensor.offset
            count = len(tensor.layers) * tensor.layer_stride // span
        for i in range(count):
            found[start + i * span] = Region(start + i * span, tensor.block_stride)
    return list(found.values())


def _move_of(device: Any) -> Move:
    """Copies between a device and host memory, on the device's current stream."""
    if device.type == "cpu":
        return move_on_host
    if device.type != "cuda":
        raise UnsupportedError(f"QuireOffloadConnector does not serve tensors on {device.type}")

    operations: Any = importlib.import_module("vllm._custom_ops")

    def move(sources: Any, targets: Any, sizes: Any) -> None:
        operations.swap_blocks_batch(*map(torch.from_numpy, (sources, targets, sizes)))
    return move


class QuireOffloadConnector(base.KVConnectorBase_V1):  # type: ignore[misc, unused-ignore]
    """Keeps evicted blocks in host memory. Errors: UnsupportedError if the manager is not
    quire.vllm's."""

    def __init__(self, vllm_config: Any, role: Any, kv_cache_config: Any):
        super().__init__(vllm_config, role, kv_cache_config)
        vllm_release.check()
        if not vllm_config.cache_config.enable_prefix_caching:
            raise UnsupportedError("QuireOffloadConnector keeps cached blocks, and prefix caching "
                                   "is disabled")
        self._config = kv_cache_config
        self._count = host_blocks(kv_cache_config, vllm_config)
        self._manager: Any = None
        self._memory: Any = None
        self._blocks: Optional[HostBlocks] = None
        if role == base.KVConnectorRole.SCHEDULER:
            kv_cache_config.quire_host_blocks = self._count  # for the manager, which is made next

    @property
    def requires_kv_delivery(self) -> bool:
        """False: a cached block that is lost is computed again."""
        return False

    @classmethod
    def supports_sleep_mode(cls, kv_transfer_config: Any) -> bool:
        """False."""
        return False

    # The scheduler's half.

    def bind_kv_cache_manager(self, kv_cache_manager: Any) -> None:
        """The manager whose copies these are."""
        if getattr(kv_cache_manager, "host_blocks", 0) != self._count:
            raise UnsupportedError("QuireOffloadConnector needs quire.vllm's manager: set "
                                   "QUIRE_VLLM_MANAGER=quire")
        self._manager = kv_cache_manager

    def get_num_new_matched_tokens(self, request: Any,
                                   num_computed_tokens: int) -> Tuple[Optional[int], bool]:
        """None of a request's tokens: the manager finds those in host memory."""
        return 0, False

    def update_state_after_alloc(self, request: Any, blocks: Any,
                                 num_external_tokens: int) -> None:
        """Does nothing: there are no external tokens."""

    def build_connector_meta(self, scheduler_output: Any) -> OffloadCopies:
        """The copies that the manager has asked for since the last step."""
        return OffloadCopies(self._manager.take_host_copies(), self._count)

    # The worker's half.

    def register_kv_caches(self, kv_caches: Dict[str, Any]) -> None:
        """Takes the host memory."""
        regions = regions_of(self._config, kv_caches)
        if not regions:
            raise ArgumentError("none of the worker's KV caches is in its KVCacheConfig")
        device = next(iter(kv_caches.values())).device
        move = _move_of(device)
        self._memory = torch.zeros(HostBlocks.size_bytes(regions, self._count), dtype=torch.uint8)
        if device.type == "cuda":
            importlib.import_module("vllm.v1.simple_kv_offload.cuda_mem_ops").pin_tensor(
                self._memory)
        self._blocks = HostBlocks(regions, self._memory.data_ptr(), self._count, move)

    def handle_preemptions(self, kv_connector_metadata: Any) -> None:
        """Runs the step's copies."""
        if kv_connector_metadata.host_blocks != self._count:
            raise ArgumentError(f"the scheduler counts {kv_connector_metadata.host_blocks} blocks "
                                f"in host memory, and this worker has {self._count}")
        if self._blocks is None:
            raise ArgumentError("the worker's KV caches were not registered")
        self._blocks.run(kv_connector_metadata.rows)

    def start_load_kv(self, forward_context: Any, **kwargs: Any) -> None:
        """Does nothing: the copies are enqueued already."""

    def wait_for_layer_load(self, layer_name: str) -> None:
        """Does nothing."""

    def save_kv_layer(self, layer_name: str, kv_layer: Any, attn_metadata: Any,
                      **kwargs: Any) -> None:
        """Does nothing."""

    def wait_for_save(self) -> None:
        """Does nothing."""

    def get_finished(self, finished_req_ids: Set[str]) -> Tuple[None, None]:
        """Nothing: no request waits for a copy."""
        return None, None
