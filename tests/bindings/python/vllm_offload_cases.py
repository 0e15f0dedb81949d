# SPDX-License-Identifier: Apache-2.0
"""vllm_offload_cases: quire.vllm_offload's connector in vLLM's own scheduler, with workers that
hold vLLM's tensors. vllm_own.py --offload runs these with pytest and an installed vLLM.

A worker here does what vLLM's does with a step: it follows the block tables that the scheduler
sends, runs the connector's copies, writes K and V of the step's tokens, and reads those of all
tokens before them.
"""

import collections
import os
import pickle
import random

import pytest
import torch
from tests.v1.kv_connector.unit import utils
from vllm.config.kv_events import KVEventsConfig
from vllm.distributed import kv_events
from vllm.distributed.kv_transfer.kv_connector.factory import KVConnectorFactory
from vllm.distributed.kv_transfer.kv_connector.v1.base import KVConnectorRole
from vllm.sampling_params import SamplingParams
from vllm.v1.core.kv_cache_planning import get_kv_cache_config_from_groups
from vllm.v1.core.kv_cache_utils import get_request_block_hasher, init_none_hash
from vllm.v1.kv_cache_interface import FullAttentionSpec, KVCacheGroupSpec
from vllm.v1.kv_cache_layout import KVCacheLayout
from vllm.v1.outputs import ModelRunnerOutput
from vllm.v1.request import Request
from vllm.v1.worker.utils import allocate_kv_cache

import quire
from quire import vllm_offload

SIZE, HEADS = 16, 2
LAYERS = ["layer.0", "layer.1", "layer.2"]
init_none_hash(utils.sha256)


def settings(host_blocks, is_async=False, layout="LBNHC", events=False, **extra):
    """A VllmConfig with the connector; without host blocks without it."""
    config = utils.create_vllm_config(
        max_num_batched_tokens=64, max_model_len=1024, kv_role="kv_both",
        kv_connector="QuireOffloadConnector", kv_connector_module_path="quire.vllm_offload",
        kv_connector_extra_config=extra or {"num_cpu_blocks": host_blocks})
    config.scheduler_config.async_scheduling = is_async
    config.cache_config.kv_cache_layout = layout
    if host_blocks == 0:
        config.kv_transfer_config = None
    if events:
        config.kv_events_config = KVEventsConfig(enable_kv_cache_events=True, publisher="null")
    return config


def pools(config, blocks):
    """A KVCacheConfig of one group, as vLLM plans it."""
    spec = FullAttentionSpec(block_size=SIZE, num_kv_heads=HEADS, head_size=1, dtype=torch.float32)
    memory = blocks * len(LAYERS) * spec.page_size_bytes
    found = get_kv_cache_config_from_groups(config, [KVCacheGroupSpec(LAYERS, spec)], memory)
    assert found.num_blocks == blocks
    return found


def rows(tokens, layer):
    """K and V of each token in each head: exact in f32, and of all tokens up to it."""
    before, found = layer, []
    for token in tokens:
        before = hash((before, token))
        found.append([float((before + head) % (1 << 24)) for head in range(HEADS)])
    return torch.tensor(found)


class Worker:
    """One worker: its pools, its connector, and the block tables that it was sent."""

    def __init__(self, config, kv_config, requests):
        layout = KVCacheLayout[config.cache_config.kv_cache_layout]
        self.caches = allocate_kv_cache(kv_config, torch.device("cpu"), layout)
        self.requests, self.tables, self.promoted = requests, {}, 0
        self.found = []  # tokens of each new request that need not be computed
        self.connector = None
        if config.kv_transfer_config is not None:
            self.connector = KVConnectorFactory.create_connector(config, KVConnectorRole.WORKER,
                                                                 kv_config)
            self.connector.register_kv_caches(self.caches)

    def follow(self, output):
        for name in output.finished_req_ids:
            self.tables.pop(name, None)
        for new in output.scheduled_new_reqs:
            self.tables[new.req_id] = (list(new.block_ids[0]), new.num_computed_tokens)
            self.found.append(new.num_computed_tokens)
        cached = output.scheduled_cached_reqs
        for name, ids, computed in zip(cached.req_ids, cached.new_block_ids,
                                       cached.num_computed_tokens):
            more = list(ids[0]) if ids is not None else []
            before = [] if name in cached.resumed_req_ids else self.tables[name][0]
            self.tables[name] = (before + more, computed)

    def execute(self, output):
        self.follow(output)
        if self.connector is not None:
            metadata = pickle.loads(pickle.dumps(output.kv_connector_metadata))
            self.promoted += int((metadata.rows[:, 0] == 0).sum())
            self.connector.handle_preemptions(metadata)
            self.connector.bind_connector_metadata(metadata)
        parts = [(name, *self.tables[name], count)
                 for name, count in output.num_scheduled_tokens.items()]
        for name, ids, begin, count in parts:
            for slots, values in self.slots(name, ids, begin, begin + count):
                slots[0][slots[1:]] = values
        for name, ids, begin, count in parts:
            for slots, values in self.slots(name, ids, 0, begin + count):
                assert (slots[0][slots[1:]] == values).all(), (name, begin, count)
        if self.connector is not None:
            self.connector.clear_connector_metadata()

    def slots(self, name, ids, begin, end):
        """((pool, blocks, heads, places in them), K and V) of a request's tokens, per layer. An
        asynchronous scheduler also schedules tokens after a request's last one."""
        tokens = list(self.requests[name].all_token_ids)
        places = torch.arange(begin, min(end, len(tokens)))
        blocks = torch.tensor(ids)[places // SIZE]
        for layer, pool in enumerate(LAYERS):
            values = rows(tokens, layer)[places]
            cache = self.caches[pool]
            yield ((cache, blocks[:, None], torch.arange(HEADS), places[:, None] % SIZE),
                   values[..., None].expand(*values.shape, cache.shape[-1]))


class Engine:
    """A scheduler and a worker; an asynchronous one plans a step while the one before it runs."""

    def __init__(self, config, blocks, seed=0):
        self.kv_config = pools(config, blocks)
        self.scheduler = utils.create_scheduler(config, blocks, self.kv_config)
        self.requests, self.running = {}, collections.deque()
        self.worker = Worker(config, pools(config, blocks), self.requests)
        self.rng = random.Random(seed)
        self.depth = 2 if config.scheduler_config.async_scheduling else 1
        self.events = []

    @property
    def manager(self):
        return self.scheduler.kv_cache_manager

    def add(self, tokens, most):
        sampling = SamplingParams(max_tokens=most, ignore_eos=True)
        sampling.update_from_generation_config({}, utils.EOS_TOKEN_ID)
        request = Request(f"r{len(self.requests)}", tokens, sampling, None,
                          block_hasher=get_request_block_hasher(SIZE, utils.sha256))
        self.requests[request.request_id] = request
        self.scheduler.add_request(request)
        return request

    def step(self):
        output = self.scheduler.schedule()
        self.running.append(output)
        if len(self.running) == self.depth:
            self.finish()

    def finish(self):
        output = self.running.popleft()
        self.worker.execute(output)
        names = list(output.num_scheduled_tokens)
        sampled = []
        for name in names:
            request, (_, begin) = self.requests[name], self.worker.tables[name]
            ends = begin + output.num_scheduled_tokens[name] >= request.num_tokens
            sampled.append([self.rng.randrange(2)] if ends else [])
        self.scheduler.update_from_output(output, ModelRunnerOutput(
            req_ids=names, req_id_to_index={name: i for i, name in enumerate(names)},
            sampled_token_ids=sampled, logprobs=None, prompt_logprobs_dict={}, pooler_output=None))

    def drain(self):
        for _ in range(2000):
            if not self.scheduler.has_unfinished_requests():
                break
            self.step()
        else:
            pytest.fail("the requests do not end")
        self.step()  # tells which requests have ended
        while self.running:
            self.finish()
        self.manager._cache.check()


def prompt(rng, number):
    family, own = rng.randrange(6), rng.randrange(1, 180)
    return [family * 1000 + i for i in range(own)] + \
        [10**6 + number * 100 + i for i in range(rng.randrange(1, 60))]


def run(config, blocks, seed, requests=60, together=6):
    engine = Engine(config, blocks, seed)
    for number in range(requests):
        engine.add(prompt(engine.rng, number), engine.rng.randrange(1, 40))
        while len(engine.scheduler.running) + len(engine.scheduler.waiting) >= together:
            engine.step()
    engine.drain()
    return engine


@pytest.mark.parametrize("is_async", (False, True))
@pytest.mark.parametrize("layout", [layout.name for layout in KVCacheLayout])
def test_every_step_reads_what_its_tokens_are(layout, is_async):
    preempted = 0
    for seed, host_blocks in enumerate((2, 20, 60)):
        engine = run(settings(host_blocks, is_async, layout), 30, seed)
        assert engine.manager.host_stats().demoted > 100
        assert engine.worker.promoted == engine.manager.host_stats().promoted
        if host_blocks > 2:
            assert engine.worker.promoted > 30
        preempted += sum(request.num_preemptions for request in engine.requests.values())
        utils.assert_scheduler_empty(engine.scheduler)
    assert preempted > 0


def test_copies_that_do_not_arrive_are_noticed():
    """The test above can fail."""
    config = settings(60)
    take = quire.vllm.KVCacheManager.take_host_copies
    try:
        quire.vllm.KVCacheManager.take_host_copies = lambda manager: take(manager)[:0]
        with pytest.raises(AssertionError):
            run(config, 30, 2)
    finally:
        quire.vllm.KVCacheManager.take_host_copies = take


def test_two_pools_find_what_one_of_both_sizes_finds():
    hits = []
    for host_blocks, blocks in ((40, 20), (0, 59)):
        engine = Engine(settings(host_blocks), blocks)
        for number in range(150):
            engine.add(prompt(engine.rng, number), 1)
            engine.drain()
        hits.append(engine.worker.found)
    assert hits[0] == hits[1] and len(hits[0]) == 150
    alone = Engine(settings(0), 20)
    for request in list(engine.requests.values()):
        alone.add(list(request.prompt_token_ids), 1)
        alone.drain()
    assert sum(hits[0]) > sum(alone.worker.found)


@pytest.mark.parametrize("is_async", (False, True))
def test_events_name_gpu_and_cpu(is_async, monkeypatch):
    engine = Engine(settings(30, is_async, events=True), 30)
    events = []
    monkeypatch.setattr(engine.scheduler.kv_event_publisher, "publish",
                        lambda batch: events.extend(batch.events))
    for number in range(60):
        engine.add(prompt(engine.rng, number), engine.rng.randrange(1, 20))
        engine.step()
    engine.drain()
    known = {kv_events.MEDIUM_GPU: set(), kv_events.MEDIUM_CPU: set()}
    for event in events:
        names = set(event.block_hashes)
        if isinstance(event, kv_events.BlockStored):
            assert not names & known[event.medium]
            assert len(event.token_ids) == SIZE * len(names)
            assert (event.kv_cache_spec_kind, event.block_size) == ("full_attention", SIZE)
            known[event.medium] |= names
        else:
            assert names <= known[event.medium]
            known[event.medium] -= names
    stats = engine.manager.host_stats()
    assert stats.demoted and stats.promoted
    assert 0 < len(known["CPU"]) <= stats.cached
    assert not known["GPU"] & known["CPU"]


def test_bytes_are_divided_among_the_workers():
    for workers, count in ((1, 10), (2, 5)):
        config = settings(1, cpu_bytes_to_use=10 * len(LAYERS) * SIZE * HEADS * 8)
        config.parallel_config.world_size = workers
        assert vllm_offload.host_blocks(pools(config, 5), config) == count


def test_pipeline_stages_need_a_number_of_blocks():
    config = settings(1, cpu_bytes_to_use=1 << 20)
    config.parallel_config.pipeline_parallel_size = 2
    with pytest.raises(quire.UnsupportedError, match="num_cpu_blocks"):
        vllm_offload.host_blocks(pools(config, 5), config)


def test_too_few_blocks_are_refused():
    with pytest.raises(quire.ArgumentError, match="at least 2"):
        Engine(settings(1, num_cpu_blocks=1), 5)


def test_another_number_of_blocks_is_refused_by_the_worker():
    engine = Engine(settings(7), 20)
    engine.worker.connector._count = 8
    engine.add([1, 2, 3], 1)
    with pytest.raises(quire.ArgumentError, match="counts 7 blocks"):
        engine.step()


def test_no_prefix_caching_is_refused():
    config = settings(7)
    config.cache_config.enable_prefix_caching = False
    with pytest.raises(quire.UnsupportedError, match="prefix caching"):
        Engine(config, 20)


def test_another_manager_is_refused():
    engine = Engine(settings(7), 20)
    with pytest.raises(quire.UnsupportedError, match="QUIRE_VLLM_MANAGER"):
        engine.scheduler.connector.bind_kv_cache_manager(object())


def test_a_device_gets_all_of_a_group_at_once(monkeypatch):
    """On CUDA vLLM's own operation runs the copies; what it is given, run here by hand."""
    calls = []

    def swap(sources, targets, sizes):
        assert {t.dtype for t in (sources, targets, sizes)} == {torch.int64}
        calls.append(len(sources))
        quire.vllm_host.move_on_host(sources.numpy(), targets.numpy(), sizes.numpy())
    monkeypatch.setattr("vllm._custom_ops.swap_blocks_batch", swap)
    move = vllm_offload._move_of(torch.device("cuda"))
    monkeypatch.setattr(vllm_offload, "_move_of", lambda device: move)
    engine = run(settings(20), 30, 1)
    assert engine.worker.promoted and max(calls) > len(LAYERS)


def test_another_device_is_refused():
    with pytest.raises(quire.UnsupportedError, match="meta"):
        vllm_offload._move_of(torch.device("meta"))


assert os.environ["QUIRE_VLLM_MANAGER"] == "quire"
