# SPDX-License-Identifier: Apache-2.0
"""Quire: a paged KV cache for language model inference, on any device.

    import quire

    instance = quire.Instance()
    cache = quire.Cache(instance, [quire.Group(layers=2, kv_heads=1, head_dim=64)], blocks=64)
    chat = cache.sequence()
    with cache.begin([quire.Item(chat, tokens=[1, 2, 3])]) as step:
        step.commit()
        step.finish()

Names follow the C headers, quire/*.h, which say what each call means.

Its modules, each of which imports only those before it:

    errors _ffi pointers libquire objects
    dtypes elements attention size calibration
    instance device queue memory groups tier page_store
    cache_base cache_tier open_step session sequence handover lease batch step events cache
    event_wire
    event_publisher
    layer_thread layer_shapes layer_calls layer_masks layer_prompts layer_formats layer_store
    layer_rows layer_forward layer_repeat layer_latent continuous_rows continuous_forward
    vllm_release vllm_spec vllm_served vllm_retention vllm_free vllm_blocks vllm_running
    vllm_request vllm_books vllm_window vllm_scratch vllm_index vllm_events vllm_table
    vllm_admission vllm_pins
    vllm_pool vllm_coordinator vllm vllm_leased vllm_plugin vllm_host vllm_offload
    vllm_store_names vllm_store_scheduler vllm_store_worker vllm_store
    sglang_pages sglang
    sglang_blocks sglang_slots sglang_tree sglang_events sglang_radix sglang_core
    transformers
    continuous_cache continuous_probe continuous
"""

from .attention import Attention, Rope, RopePairing, RopeScaling
from .batch import Batch, View, Views, merge
from .cache import (Cache, CacheFlags, CacheInfo, CacheStats, Migration, Pool, Victim)
from .cache_tier import CacheTierStats, TierProgress, TierWrite
from .calibration import Calibration
from .device import Device, DeviceInfo
from .dtypes import DType, numpy_dtype
from .elements import COPY, ITEM, MOVE, NO_HITS, PREEMPTION, RESULT, SPAN, UNKNOWN
from .errors import (ArgumentError, BackendError, BusyError, DeviceLostError, DeviceMemoryError,
                     ForkedError, HostMemoryError, IncompatibleError, InternalError,
                     LibraryNotFoundError, LimitError, QuireError, ReentrantError, StaleError,
                     StructError, SystemCallError, TimeoutError, UnsupportedError)
from .event_publisher import EventPublisher
from .events import EVENT, EventFlags, EventKind, Events
from .groups import Group, GroupKind, Scale, Shard
from .instance import Backend, Instance
from .lease import Lease, LeaseFlags, LeaseInfo, Match
from .memory import Memory
from .queue import FAILED, Fence, Native, Queue
from .sequence import (Key, KeyType, Namespace, NamespaceInfo, Sequence, SequenceFlags,
                       SequenceInfo)
from .session import SessionInfo
from .size import Size, estimate_size
from .step import LOADING, RUN, WAIT, CopyKind, Item, MaskKind, Preempt, Reason, Step
from .tier import Label, Record, StoreFlags, Tier, TierInfo, TierStats

__version__ = "0.1.0"

__all__ = [
    "ArgumentError", "Attention", "Backend", "BackendError", "Batch", "BusyError", "COPY", "Cache",
    "CacheFlags", "CacheInfo", "CacheStats", "CacheTierStats", "Calibration", "CopyKind", "DType",
    "Device", "DeviceInfo", "DeviceLostError", "DeviceMemoryError", "EVENT", "EventFlags",
    "EventKind", "EventPublisher", "Events", "FAILED", "Fence", "ForkedError", "Group",
    "GroupKind", "HostMemoryError", "ITEM", "IncompatibleError", "Instance", "InternalError",
    "Item", "Key", "KeyType", "LOADING", "Label", "Lease", "LeaseFlags", "LeaseInfo",
    "LibraryNotFoundError", "LimitError", "MOVE", "MaskKind", "Match", "Memory", "Migration",
    "NO_HITS", "Namespace", "NamespaceInfo", "Native", "PREEMPTION", "Pool", "Preempt", "Queue",
    "QuireError", "RESULT", "RUN", "Reason", "Record", "ReentrantError", "Rope", "RopePairing",
    "RopeScaling", "SPAN", "Scale", "Sequence", "SequenceFlags", "SequenceInfo", "SessionInfo",
    "Shard", "Size", "StaleError", "Step", "StoreFlags", "StructError", "SystemCallError", "Tier",
    "TierInfo", "TierProgress", "TierStats", "TierWrite", "TimeoutError", "UNKNOWN",
    "UnsupportedError", "Victim", "View", "Views", "WAIT", "estimate_size", "merge", "numpy_dtype",
]
