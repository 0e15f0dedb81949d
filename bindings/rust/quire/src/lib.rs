// SPDX-License-Identifier: Apache-2.0

#![doc = include_str!("../README.md")]

mod abandon;
mod attention;
mod batch;
mod cache;
mod cache_tier;
mod calibration;
mod call;
mod device;
mod error;
mod events;
mod handover;
mod instance;
mod item;
mod lease;
mod memory;
mod migrate;
mod queue;
mod rows;
mod sequence;
mod session;
mod shape;
mod size;
mod step;
mod tier;
mod tier_value;

pub use abandon::Abandoned;
pub use attention::{Attend, KvWrite, Merge, Operand};
pub use batch::{
    AttentionOptions, Batch, BatchOptions, BatchViews, HostTables, Rope, RopeScaling, Views,
};
pub use cache::{Cache, CacheInfo, CacheOptions, Pool, PoolSize, Stats};
pub use cache_tier::{AttachOptions, CacheTierStats, TierProgress, TierWrite};
pub use calibration::{Calibration, LayerMagnitudes};
pub use device::{Device, DeviceInfo, DeviceOptions, Tasks};
pub use error::{CommitError, Error, ErrorKind, Result};
pub use events::{Event, EventKind};
pub use handover::{HandoverProgress, Receiver, SendOptions, Sender};
pub use instance::{BackendInfo, Instance, InstanceOptions, LogLevel};
pub use item::{BlockCopy, CopyKind, Item, ItemResult, Preemption, TokenSpan, Wait};
pub use lease::{Lease, LeaseBlock, LeaseInfo, LeaseOptions, Match, Shortage};
pub use memory::{Element, Memory, MemoryKind};
pub use migrate::{BlockMove, MigrateOptions, Migration};
pub use queue::{Fence, Native, Queue, FENCE_FAILED};
pub use sequence::{
    Key, KeyType, Namespace, NamespaceInfo, Sequence, SequenceInfo, SequenceOptions,
};
pub use session::{SessionIdentity, SessionInfo};
pub use shape::{DType, Group, GroupKind, Scale, Shard};
pub use size::{Bound, SizeEstimate, SizeModel};
pub use step::{OpenStep, Preempt, Step, StepOptions};
pub use tier::{Tier, TierInfo, TierOptions, TierStats};
pub use tier_value::{TierLabel, TierRecord, TierRecords};

/// A token id; [`UNKNOWN_TOKEN`] stands for one that is still being sampled.
pub type Token = u32;

/// Stands for a token that is still being sampled, until [`Cache::set_tokens`] names it.
pub const UNKNOWN_TOKEN: Token = quire_sys::QUIRE_TOKEN_UNKNOWN;
