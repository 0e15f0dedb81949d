# SPDX-License-Identifier: Apache-2.0
"""vllm_store_plugin: a pytest plugin that puts QuireStoreConnector into vLLM's own tests.

With QUIRE_STORE=ours, each scheduler of a test that has no connector, or vLLM's ExampleConnector,
gets ours with an empty store, if its model is one that ours serves; and the registry gives ours
where a test of settings names SimpleCPUOffloadConnector. A lookup then ends within the call
that begins it, because these tests count steps. vllm_store_own.py says how it is used."""

import concurrent.futures
import os

import vllm_own_plugin  # noqa: F401  vLLM for CPUs, with vLLM's own manager
from vllm.config import KVTransferConfig
from vllm.distributed.kv_transfer.kv_connector.factory import KVConnectorFactory
from vllm.v1.core.sched.scheduler import Scheduler

from quire import UnsupportedError, vllm_store, vllm_store_names, vllm_store_scheduler

SETTINGS = {"store": "memory", "plugin_path": os.environ["QUIRE_TEST_BACKENDS"]}
_placed = []


class _AtOnce:
    """An executor that runs what it is given."""

    def submit(self, call, *arguments):
        future = concurrent.futures.Future()
        future.set_result(call(*arguments))
        return future

    def shutdown(self, **_):
        pass


def _transfer(role="kv_both"):
    return KVTransferConfig(
        kv_connector="QuireStoreConnector", kv_connector_module_path="quire.vllm_store",
        kv_role=role, kv_load_failure_policy="recompute",
        kv_connector_extra_config=SETTINGS | {"identity": f"test {len(_placed)}"})


def _is_served(config, kv_cache_config):
    transfer = config.kv_transfer_config
    if transfer is not None and transfer.kv_connector != "ExampleConnector":
        return False
    try:
        vllm_store_names.kinds(config, kv_cache_config, None)
    except UnsupportedError:
        return False
    return not config.model_config.is_encoder_decoder and config.parallel_config.world_size == 1


def _place():
    theirs, plan = Scheduler.__init__, vllm_store_scheduler.StoreScheduler.__init__

    def init(self, vllm_config, kv_cache_config, *arguments, **named):
        before = vllm_config.kv_transfer_config
        if _is_served(vllm_config, kv_cache_config):
            vllm_config.kv_transfer_config = _transfer()
            _placed.append(self)
        try:
            theirs(self, vllm_config, kv_cache_config, *arguments, **named)
        finally:
            vllm_config.kv_transfer_config = before

    def init_plan(self, *arguments, **named):
        plan(self, *arguments, **named)
        self._pool = _AtOnce()

    Scheduler.__init__ = init
    vllm_store_scheduler.StoreScheduler.__init__ = init_plan
    KVConnectorFactory._registry["SimpleCPUOffloadConnector"] = (
        lambda: vllm_store.QuireStoreConnector)


def pytest_sessionfinish():
    print(f"\n{len(_placed)} schedulers had QuireStoreConnector")


if os.environ["QUIRE_STORE"] == "ours":
    _place()
