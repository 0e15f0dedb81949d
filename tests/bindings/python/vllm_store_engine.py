# SPDX-License-Identifier: Apache-2.0
"""vllm_store_engine: vLLM's scheduler and a worker without a model, for tests of connectors.

The worker writes, for each token that it computes, rows that follow from all tokens up to it, into
KV tensors of vLLM's logical shape [B, H, N, C]. At each step it checks the rows of all tokens that
attention would read. So a block that is loaded or saved wrongly shows with its first bit.
"""

import dataclasses
import hashlib
import os
import pathlib
import sys
import tempfile
import time

import numpy as np

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))

import vllm_own  # noqa: E402

# Before vLLM is imported: files that make it a vLLM for CPUs with a model that it knows.
_folder = tempfile.TemporaryDirectory()
os.environ.setdefault("QUIRE_VLLM", _folder.name)
vllm_own.write_model(pathlib.Path(_folder.name))
sys.path.insert(0, _folder.name)
os.environ.update(HF_HUB_OFFLINE="1", VLLM_LOGGING_LEVEL="ERROR")
MODEL = str(pathlib.Path(_folder.name, "facebook", "opt-125m"))

import vllm.platforms  # noqa: E402

assert vllm.platforms.current_platform.is_cpu()

if os.environ.get("QUIRE_VLLM_MANAGER") == "quire":
    import quire.vllm_plugin

    quire.vllm_plugin.install()

import torch  # noqa: E402
from vllm import SamplingParams  # noqa: E402
from vllm.config import (  # noqa: E402
    CacheConfig, DeviceConfig, KVTransferConfig, ModelConfig, SchedulerConfig, VllmConfig)
from vllm.distributed.kv_transfer.kv_connector.factory import KVConnectorFactory  # noqa: E402
from vllm.distributed.kv_transfer.kv_connector.v1.base import KVConnectorRole  # noqa: E402
from vllm.utils.hashing import sha256  # noqa: E402
from vllm.v1.core.kv_cache_utils import get_request_block_hasher, init_none_hash  # noqa: E402
from vllm.v1.core.sched.async_scheduler import AsyncScheduler  # noqa: E402
from vllm.v1.core.sched.scheduler import Scheduler  # noqa: E402
from vllm.v1.kv_cache_interface import (  # noqa: E402
    FullAttentionSpec, KVCacheConfig, KVCacheGroupSpec, MLAAttentionSpec)
from vllm.v1.outputs import KVConnectorOutput, ModelRunnerOutput  # noqa: E402
from vllm.v1.request import Request  # noqa: E402
from vllm.v1.structured_output import StructuredOutputManager  # noqa: E402

BLOCK = 16
init_none_hash(sha256)


@dataclasses.dataclass
class Form:
    """Of the KV tensors."""

    heads: int = 2
    head_dim: int = 4
    layers: int = 3
    dtype: torch.dtype = torch.float16
    is_mla: bool = False
    order: str = "NHD"  # in memory
    kernel_blocks: int = 1  # that a block is divided into

    def spec(self):
        kind = MLAAttentionSpec if self.is_mla else FullAttentionSpec
        return kind(block_size=BLOCK, num_kv_heads=1 if self.is_mla else self.heads,
                    head_size=self.head_dim, dtype=self.dtype)

    def tensor(self, blocks):
        spec, ratio = self.spec(), self.kernel_blocks
        width = spec.state_content_size_bytes // self.dtype.itemsize
        tokens = BLOCK // ratio
        if self.order == "HND":
            memory = torch.zeros(blocks * ratio, spec.num_heads, tokens, width, dtype=torch.uint8
                                 if self.dtype.itemsize == 1 else self.dtype)
            return memory.view(self.dtype)
        memory = torch.zeros(blocks * ratio, tokens, spec.num_heads, width,
                             dtype=torch.uint8 if self.dtype.itemsize == 1 else self.dtype)
        return memory.view(self.dtype).transpose(1, 2)


def config(extra, block=BLOCK, tokens=64, sequences=8, is_async=False, policy="recompute",
           connector="QuireStoreConnector", module="quire.vllm_store", role="kv_both"):
    cache = CacheConfig(block_size=block, gpu_memory_utilization=0.9, enable_prefix_caching=True)
    cache.kv_cache_layout = "LBNHC"
    return VllmConfig(
        model_config=ModelConfig(model=MODEL, dtype="float16", seed=42),
        scheduler_config=SchedulerConfig(
            max_num_seqs=sequences, max_num_batched_tokens=tokens, max_model_len=2048,
            enable_chunked_prefill=True, is_encoder_decoder=False, async_scheduling=is_async),
        cache_config=cache, device_config=DeviceConfig("cpu"),
        kv_transfer_config=KVTransferConfig(
            kv_connector=connector, kv_connector_module_path=module, kv_role=role,
            kv_connector_extra_config=extra, kv_load_failure_policy=policy))


def row_bytes(tokens, layer, count):
    """What the worker keeps for the last of the tokens."""
    seed = hashlib.sha256(repr((layer, tokens)).encode()).digest()
    return np.frombuffer((seed * (count // 32 + 1))[:count], np.uint8)


class Engine:
    """A scheduler, and a worker on the host."""

    def __init__(self, vllm_config, form=None, blocks=64):
        self.form = form or Form()
        layers = [f"layer.{number}" for number in range(self.form.layers)]
        self.kv_config = KVCacheConfig(
            num_blocks=blocks, kv_cache_tensors=[],
            kv_cache_groups=[KVCacheGroupSpec(layers, self.form.spec())])
        vllm_config.cache_config.num_gpu_blocks = blocks
        kind = AsyncScheduler if vllm_config.scheduler_config.async_scheduling else Scheduler
        self.scheduler = kind(
            vllm_config=vllm_config, kv_cache_config=self.kv_config, log_stats=True,
            structured_output_manager=StructuredOutputManager(vllm_config), block_size=BLOCK)
        self.worker = KVConnectorFactory.create_connector(
            vllm_config, KVConnectorRole.WORKER, self.kv_config)
        self.tensors = {name: self.form.tensor(blocks) for name in layers}
        self.worker.register_kv_caches(self.tensors)
        self.outputs = {}  # request id: sampled tokens
        self.computed = 0  # tokens
        self.loaded = 0  # tokens that came from the store
        self.step_seconds = []

    def close(self):
        self.worker.shutdown()
        self.scheduler.connector.shutdown()

    def add(self, name, tokens, most=3, salt=None):
        sampling = SamplingParams(max_tokens=most, ignore_eos=True)
        sampling.update_from_generation_config({}, 2)
        self.scheduler.add_request(Request(
            request_id=name, prompt_token_ids=list(tokens), sampling_params=sampling,
            pooling_params=None, mm_features=None, cache_salt=salt,
            block_hasher=get_request_block_hasher(BLOCK, sha256)))
        self.outputs[name] = []

    def rows(self, block, offset, layer):
        """The bytes of a token's states in a layer, as the kernels see them: a view [H, C]."""
        ratio = self.form.kernel_blocks
        tokens = BLOCK // ratio
        view = self.tensors[f"layer.{layer}"].view(torch.uint8)
        return view[block * ratio + offset // tokens, :, offset % tokens]

    def compute(self, request, first, last):
        """The step's rows [first, last) of a request, with a check of all before them."""
        blocks = self.scheduler.kv_cache_manager.get_block_ids(request.request_id)[0]
        known = list(request.all_token_ids)
        for position in range(last):
            for layer in range(self.form.layers):
                view = self.rows(blocks[position // BLOCK], position % BLOCK, layer)
                want = torch.from_numpy(row_bytes(
                    (request.cache_salt, *known[:position + 1]), layer,
                    view.numel()).copy()).reshape(view.shape)
                if position >= first:
                    view.copy_(want)
                elif not torch.equal(view, want):
                    raise AssertionError(f"{request.request_id}: token {position}, layer {layer}")

    def step(self):
        """One step of the engine."""
        start = time.perf_counter()
        output = self.scheduler.schedule()
        self.step_seconds.append(time.perf_counter() - start)
        worker, sampled, names = self.worker, [], list(output.num_scheduled_tokens)
        worker.bind_connector_metadata(output.kv_connector_metadata)
        for name in names:
            request, count = self.scheduler.requests[name], output.num_scheduled_tokens[name]
            last = request.num_computed_tokens  # counts this step
            self.compute(request, last - count, last)
            self.computed += count
            is_done = last >= request.num_tokens
            digest = row_bytes(tuple(request.all_token_ids), -1, 32)
            sampled.append([int(digest[0]) + 3] if is_done else [])
            self.outputs[name] += sampled[-1]
        worker.start_load_kv(None)
        worker.wait_for_save()
        results = worker.get_transfer_results(output.finished_req_ids)
        transfer = KVConnectorOutput(
            finished_sending=results.finished_sending, finished_recving=results.finished_recving,
            invalid_block_ids=worker.get_block_ids_with_load_errors())
        worker.clear_connector_metadata()
        self.scheduler.update_from_output(output, ModelRunnerOutput(
            req_ids=names, req_id_to_index={name: index for index, name in enumerate(names)},
            sampled_token_ids=sampled, logprobs=None, prompt_logprobs_dict={}, pooler_output=None,
            kv_connector_output=transfer))
        return bool(names)

    def run(self, patience=60):
        """Steps until no request is left; returns the outputs."""
        end = time.monotonic() + patience
        while self.scheduler.has_unfinished_requests():
            if not self.step():
                time.sleep(0.001)
            assert time.monotonic() < end, "the engine hangs"
        self.step()
        return self.outputs

    def flush(self):
        self.worker._mover.flush()
