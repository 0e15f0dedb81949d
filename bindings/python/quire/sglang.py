# SPDX-License-Identifier: Apache-2.0
"""sglang: a storage backend of SGLang's HiCache that keeps pages in a store of Quire.

    python -m sglang.launch_server --enable-hierarchical-cache --hicache-storage-backend dynamic
        --hicache-storage-backend-extra-config '{"backend_name": "quire",
        "module_path": "quire.sglang", "class_name": "QuireStorage", "interface_v1": 1,
        "store": "valkey", "options": {"nodes": "10.0.0.1:6379"}}'

SGLang names a page by a hash of its tokens and of all before it. A label covers that name and all
else that decides the content; docs/sglang.md lists it. A page that is not exactly as long, damaged,
missing or late is a miss, which SGLang computes.

Threads: any; SGLang calls from three.
"""

from __future__ import annotations

import logging
import os
from typing import Any, Dict, List, Optional, Sequence, Tuple, Union

import torch  # type: ignore[import-not-found, unused-ignore]
import sglang.version as _release  # type: ignore[import-not-found, unused-ignore]
from sglang.srt.mem_cache.hicache_storage import (  # type: ignore[import-not-found, unused-ignore]
    HiCacheStorage, HiCacheStorageConfig, HiCacheStorageExtraInfo, PoolHitPolicy, PoolName,
    PoolTransfer, PoolTransferResult)

from . import errors
from .page_store import PageStats, PageStore, fingerprint, page_label, release, share
from .sglang_pages import HostPages, tensor_piece
from .tier import Label, Piece

_logger = logging.getLogger("quire.sglang")
_KV = str(PoolName.KV)


class QuireStorage(HiCacheStorage):  # type: ignore[misc]
    """HiCache's pages in a store. Settings, in the backend's extra config:

    store        the plugin's name, such as "valkey" or "disk"
    options      its options, as in docs/tiers.md
    lanes        how many requests are under way at once; default 8, on disk 1
    timeout      seconds for a call, which has up to 128 pages; default 2
    identity     a text that names the weights, in place of the model's path
    plugin_path  where stores are looked for first
    """

    def __init__(self, storage_config: HiCacheStorageConfig,
                 kwargs: Optional[Dict[str, Any]] = None):
        del kwargs  # the factory's, empty
        self._config = storage_config
        self._settings = dict(storage_config.extra_config or {})
        if "store" not in self._settings:
            raise errors.ArgumentError("the extra config names no store, such as "
                                       '"store": "valkey"')
        self._pages: Dict[str, HostPages] = {}
        self._kinds: Dict[str, bytes] = {}
        store = self._settings["store"]
        others = {name: self._settings[name] for name in ("lanes", "timeout", "plugin_path")
                  if name in self._settings}
        self._store: Optional[PageStore] = share(store, self._options(store), **others)

    def close(self) -> None:
        """Gives up the store. Closing again does nothing."""
        opened, self._store = self._store, None
        if opened is not None:
            release(opened)

    @property
    def stats(self) -> PageStats:
        """The store's counts in this process."""
        return self._opened.stats

    @property
    def _opened(self) -> PageStore:
        if self._store is None:
            raise errors.StaleError("the storage backend is closed")
        return self._store

    def _options(self, store: str) -> Dict[str, Any]:
        """A disk store has one owner, so each rank has a folder of its own."""
        options, config = dict(self._settings.get("options") or {}), self._config
        ranks = {"tp": (config.tp_rank, config.tp_size), "pp": (config.pp_rank, config.pp_size),
                 "cp": (config.attn_cp_rank, config.attn_cp_size)}
        if store != "disk":
            return options
        if config.is_mla_model and config.tp_size > 1:
            raise errors.UnsupportedError(
                "the ranks of an MLA model share their pages, and a disk store has one owner: use "
                "a store that processes share, such as valkey")
        names = [f"{name}{rank}of{size}" for name, (rank, size) in ranks.items() if size > 1]
        if config.dp_rank:
            names.append(f"dp{config.dp_rank}")
        if names and "directory" in options:
            options["directory"] = os.path.join(options["directory"], "-".join(names))
        return options

    # Names.

    def _kind(self, pool: str) -> bytes:
        """The fingerprint of a pool's pages."""
        if pool not in self._kinds:
            config, pages = self._config, self._pages.get(pool)
            is_alike = config.is_mla_model and pool != str(PoolName.MAMBA)
            identity = self._settings.get("identity")
            self._kinds[pool] = fingerprint({
                "engine": ("sglang", _release.__version__), "pool": pool,
                "weights": ("identity", identity) if identity else ("model", config.model_name),
                "tp": None if is_alike else (config.tp_rank, config.tp_size),
                "pp": (config.pp_rank, config.pp_size),
                "cp": (config.attn_cp_rank, config.attn_cp_size),
                "dcp": (config.dcp_rank, config.dcp_size, config.logical_page_size),
                "pages": sorted(pages.identity().items()) if pages is not None else None})
        return self._kinds[pool]

    def _labels(self, keys: Sequence[str], pool: str = _KV) -> List[Label]:
        kind = self._kind(pool)
        return [page_label(kind, key.encode()) for key in keys]

    # Pools.

    def register_mem_pool_host(self, mem_pool_host: Any) -> None:
        super().register_mem_pool_host(mem_pool_host)
        self._register(_KV, mem_pool_host)

    def register_mem_host_pool_v2(self, host_pool: Any, host_pool_name: Any) -> None:
        super().register_mem_host_pool_v2(host_pool, host_pool_name)
        self._register(str(host_pool_name), host_pool)

    def _register(self, name: str, pool: Any) -> None:
        pages = HostPages(pool)
        self._opened.check_page_bytes(pages.page_bytes)
        self._pages[name] = pages
        self._kinds.pop(name, None)

    # Pages of host pools.

    def batch_get_v1(self, keys: List[str], host_indices: torch.Tensor,
                     extra_info: Optional[HiCacheStorageExtraInfo] = None) -> List[bool]:
        return self._get_pages(_KV, keys, host_indices)

    def batch_set_v1(self, keys: List[str], host_indices: torch.Tensor,
                     extra_info: Optional[HiCacheStorageExtraInfo] = None) -> List[bool]:
        return self._put_pages(_KV, keys, host_indices)

    def batch_get_v2(self, transfers: List[PoolTransfer],
                     extra_info: Optional[HiCacheStorageExtraInfo] = None
                     ) -> Dict[str, List[bool]]:
        return {one.name: self._get_pages(str(one.name), one.keys or [], one.host_indices)
                for one in transfers}

    def batch_set_v2(self, transfers: List[PoolTransfer],
                     extra_info: Optional[HiCacheStorageExtraInfo] = None
                     ) -> Dict[str, List[bool]]:
        return {one.name: self._put_pages(str(one.name), one.keys or [], one.host_indices)
                for one in transfers}

    def _starts(self, pool: str, keys: Sequence[str], host_indices: Optional[torch.Tensor]
                ) -> Optional[List[int]]:
        """The first host index of each page. None: there are not as many indices as pages."""
        tokens = getattr(self._pages[pool].pool, "logical_page_size", None) or getattr(
            self._pages[pool].pool, "page_size", 1) or 1
        if host_indices is None or host_indices.numel() != len(keys) * tokens:
            _logger.error("%d pages of %s have %d host indices, not %d each", len(keys), pool,
                          0 if host_indices is None else host_indices.numel(), tokens)
            return None
        starts: List[int] = host_indices[::tokens].tolist()
        return starts

    def _get_pages(self, pool: str, keys: Sequence[str], host_indices: Optional[torch.Tensor]
                   ) -> List[bool]:
        starts, pages = self._starts(pool, keys, host_indices), self._pages[pool]
        if starts is None:
            return [False] * len(keys)
        labels = self._labels(keys, pool)
        if not pages.is_copied:
            return self._opened.get(labels, [pages.pieces(start) for start in starts])
        copies = [pages.empty() for _ in keys]
        found = self._opened.get(labels, [[tensor_piece(copy)] for copy in copies])
        for start, copy, one in zip(starts, copies, found):
            if one:
                pages.write(start, copy)
        return found

    def _put_pages(self, pool: str, keys: Sequence[str], host_indices: Optional[torch.Tensor]
                   ) -> List[bool]:
        starts, pages = self._starts(pool, keys, host_indices), self._pages[pool]
        if starts is None:
            return [False] * len(keys)
        copies = [pages.read(start) for start in starts] if pages.is_copied else []
        places: List[List[Piece]] = ([[tensor_piece(copy)] for copy in copies] if copies else
                                     [pages.pieces(start) for start in starts])
        return self._opened.put(self._labels(keys, pool), places)

    # Pages as tensors.

    def get(self, key: str, target_location: Optional[torch.Tensor] = None,
            target_sizes: Optional[Any] = None) -> Optional[torch.Tensor]:
        return self.batch_get([key], [target_location])[0]

    def batch_get(self, keys: List[str],
                  target_locations: Optional[Sequence[Optional[torch.Tensor]]] = None,
                  target_sizes: Optional[Any] = None) -> List[Optional[torch.Tensor]]:
        targets = target_locations if target_locations is not None else [None] * len(keys)
        asked = [(key, target) for key, target in zip(keys, targets) if target is not None]
        rooms = [target if target.is_contiguous() else torch.empty_like(
            target, memory_format=torch.contiguous_format) for _, target in asked]
        done = iter(zip(self._opened.get(self._labels([key for key, _ in asked]),
                                         [[tensor_piece(room)] for room in rooms]), rooms))
        result: List[Optional[torch.Tensor]] = []
        for target in targets:
            if target is None:
                result.append(None)
                continue
            found, room = next(done)
            if found and room is not target:
                target.copy_(room)
            result.append(target if found else None)
        return result

    def set(self, key: str, value: Optional[torch.Tensor] = None,
            target_location: Optional[Any] = None, target_sizes: Optional[Any] = None) -> bool:
        return value is not None and self.batch_set([key], [value])

    def batch_set(self, keys: List[str], values: Optional[Sequence[torch.Tensor]] = None,
                  target_locations: Optional[Any] = None, target_sizes: Optional[Any] = None
                  ) -> bool:
        whole = [value.cpu().contiguous() for value in values or []]
        if len(whole) != len(keys):
            return False
        return all(self._opened.put(self._labels(keys), [[tensor_piece(one)] for one in whole]))

    # Lookups.

    def exists(self, key: str) -> bool:
        return self._opened.find(self._labels([key]))[0]

    def batch_exists(self, keys: List[str],
                     extra_info: Optional[HiCacheStorageExtraInfo] = None) -> int:
        return self._opened.leading(self._labels(keys))

    def batch_exists_v2(self, keys: List[str],
                        pool_transfers: Optional[List[PoolTransfer]] = None,
                        extra_info: Optional[HiCacheStorageExtraInfo] = None
                        ) -> PoolTransferResult:
        transfers = pool_transfers or []
        pools = [_KV, *(str(one.name) for one in transfers)]
        labels = [label for pool in pools for label in self._labels(keys, pool)]
        found, count = self._opened.find(labels), len(keys)
        each = [found[start:start + count] for start in range(0, len(found), count or 1)]
        kv_pages = (each[0] + [False]).index(False) if each else 0
        hits: Dict[Union[str, PoolName], int] = {PoolName.KV: kv_pages} if kv_pages else {}
        usable = set(range(1, kv_pages + 1))
        for transfer, there in zip(transfers, each[1:]):
            if not usable:
                break
            restored = _restorable(transfer, there[:kv_pages])
            if restored:
                hits[transfer.name] = max(restored)
            usable &= restored
        lengths = sorted(usable)
        return PoolTransferResult(lengths[-1] if lengths else 0, hits, lengths)

    def clear(self) -> bool:
        """Removes this rank's pages. False: the store cannot tell what it has."""
        pools = {_KV, *self._pages}
        try:
            self._opened.clear([self._kind(pool) for pool in pools])
            return True
        except errors.QuireError as why:
            _logger.warning("the pages were not removed: %s", why)
            return False


def _restorable(transfer: PoolTransfer, there: Sequence[bool]) -> "set[int]":
    """The lengths of prefix, in pages, at which a pool has the pages that its policy asks for."""
    if transfer.hit_policy == PoolHitPolicy.ALL_PAGES:
        return set(range(1, (list(there) + [False]).index(False) + 1))
    if transfer.hit_policy != PoolHitPolicy.TRAILING_PAGES:
        raise ValueError(f"hit policy {transfer.hit_policy} is not served")
    last = max(1, len(transfer.keys or ()))
    return {length for length in range(1, len(there) + 1)
            if all(there[max(0, length - last):length])}


__all__: Tuple[str, ...] = ("QuireStorage",)
