# SPDX-License-Identifier: Apache-2.0
"""vllm_release: the releases of vLLM that quire.vllm was tested with, and the classes that it
takes from the vLLM that runs."""

from __future__ import annotations

import dataclasses
import logging
import sys
from typing import Any

from .errors import UnsupportedError

# Releases whose own tests were run with this manager: tests/bindings/python/vllm_own.py.
TESTED = ("0.33.0",)


def check() -> None:
    """Refuses a vLLM that this manager was not tested with; without vLLM there is nothing to
    refuse. Errors: UnsupportedError names both releases."""
    module = sys.modules.get("vllm")
    version = getattr(module, "__version__", None)
    if version is None:
        return
    release = str(version).partition("+")[0]
    if release not in TESTED:
        raise UnsupportedError(f"quire.vllm was tested with vLLM {', '.join(TESTED)}, and this is "
                               f"{version}: use a tested release, or vLLM's own manager")


@dataclasses.dataclass
class _PrefixCacheStats:
    """Counts since they were last taken: lookups, tokens looked up, and tokens found."""

    reset: bool = False
    requests: int = 0
    queries: int = 0
    hits: int = 0
    preempted_requests: int = 0
    preempted_queries: int = 0
    preempted_hits: int = 0

    def record(self, num_tokens: int, num_hits: int, preempted: bool) -> None:
        if preempted:
            self.preempted_requests += 1
            self.preempted_queries += num_tokens
            self.preempted_hits += num_hits
        else:
            self.requests += 1
            self.queries += num_tokens
            self.hits += num_hits


def block_copy(source: int, target: int) -> Any:
    """vLLM's object for a copy of a block, or without vLLM a pair."""
    utils: Any = sys.modules.get("vllm.v1.core.kv_cache_utils")
    if utils is None:
        return source, target
    return utils.KVCacheBlockCopy(src_block_id=source, dst_block_id=target)


def warn(message: str, *arguments: Any) -> None:
    """Writes a warning to the log of vLLM's manager, or without vLLM to one of this name."""
    manager: Any = sys.modules.get("vllm.v1.core.kv_cache_manager")
    logger = getattr(manager, "logger", None) or logging.getLogger(__name__)
    logger.warning(message, *arguments)


def prefix_cache_stats() -> Any:
    """New counts: vLLM's own class if vLLM runs, because its loggers read more fields."""
    stats = sys.modules.get("vllm.v1.metrics.stats")
    return getattr(stats, "PrefixCacheStats", _PrefixCacheStats)()
