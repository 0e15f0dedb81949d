// SPDX-License-Identifier: Apache-2.0

use std::ffi::c_void;
use std::fmt;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, AtomicIsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use std::time::Duration;

use quire_sys as sys;

use crate::call::{
    bytes, count, desc, first, flags, in_time, invoke, made, mirror, nanoseconds, stride_of, Api,
};
use crate::device::DeviceInner;
use crate::instance::InstanceInner;
use crate::queue::QueueInner;
use crate::shape::layers_of;
use crate::tier::TierInner;
use crate::{Calibration, Error, ErrorKind, Group, Instance, Result, Shard, Token, TokenSpan};

/// How large each group's pool is; ignored if every group states its own blocks.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum PoolSize {
    /// Every group states its own blocks.
    OfGroups,
    /// This many blocks, the null block included.
    Blocks(u32),
    /// This many bytes on each shard.
    Bytes(u64),
    /// This share of each device's free memory, less a reserve in bytes.
    Fraction(f32, u64),
}

/// How a cache is created: `quire_cache_desc` of cache.h.
#[derive(Debug, Clone, Copy)]
pub struct CacheOptions<'a> {
    /// Layers, in groups that share geometry.
    pub groups: &'a [Group],
    /// The devices that hold it; empty: the cache is bookkeeping-only.
    pub shards: &'a [Shard],
    /// Group of each layer; `None`: in the order of the groups.
    pub layer_groups: Option<&'a [u32]>,
    /// Tokens of a block, a power of two; 0: 16.
    pub block_tokens: u32,
    /// Size of each group's pool.
    pub size: PoolSize,
    /// Bytes of the host tier on each shard, for a cache with memory.
    pub host_bytes: u64,
    /// Blocks of the host tier in each group, for a cache without memory.
    pub host_blocks: u32,
    /// Sequences alive at once; 0: 1,024.
    pub max_sequences: u32,
    /// Tokens of each sequence; 0: 2^31 - 1.
    pub max_sequence_tokens: u32,
    /// Blocks that the admission of new sequences leaves free.
    pub watermark_blocks: u32,
    /// Publishes nothing, looks nothing up.
    pub no_prefixes: bool,
    /// Its steps have logs for followers.
    pub is_leader: bool,
    /// Only applies a leader's log.
    pub is_follower: bool,
    /// Keeps the largest magnitudes of K and V: [`Cache::save_calibration`].
    pub calibrates: bool,
    /// Zeroes blocks that are given up.
    pub zero_on_free: bool,
    /// Remembers what unfinished steps touch, for [`Cache::check`].
    pub audits: bool,
    /// Notes which published blocks change: [`Cache::events`].
    pub events: bool,
    /// Events of the default namespace carry its tokens.
    pub event_tokens: bool,
    /// Evicted prefixes live on in the host tier.
    pub host_prefixes: bool,
    /// All groups take their blocks from one pool; only without memory.
    pub one_pool: bool,
    /// The cache has leases and no sequences, and inserts and finds blocks of few tokens in less
    /// time.
    pub leases_only: bool,
    /// A hit may end within a block, which is copied.
    pub partial_hits: bool,
    /// Preempts the lowest priority first, instead of the newest.
    pub victim_by_priority: bool,
    /// Key of the prefix hash, for tests; `None`: random.
    pub hash_seed: Option<u64>,
    /// With `prefill_tokens_per_second`: swap if that takes less time than computing again.
    pub swap_bytes_per_second: f32,
    /// See `swap_bytes_per_second`.
    pub prefill_tokens_per_second: f32,
    /// Where the scales of codes come from.
    pub calibration: Option<&'a Calibration>,
    /// Factor on the calibration's magnitudes; 0: 1.
    pub calibration_margin: f32,
}

impl Default for CacheOptions<'_> {
    fn default() -> Self {
        Self {
            groups: &[],
            shards: &[],
            layer_groups: None,
            block_tokens: 0,
            size: PoolSize::OfGroups,
            host_bytes: 0,
            host_blocks: 0,
            max_sequences: 0,
            max_sequence_tokens: 0,
            watermark_blocks: 0,
            no_prefixes: false,
            is_leader: false,
            is_follower: false,
            calibrates: false,
            zero_on_free: false,
            audits: false,
            events: false,
            event_tokens: false,
            host_prefixes: false,
            one_pool: false,
            leases_only: false,
            partial_hits: false,
            victim_by_priority: false,
            hash_seed: None,
            swap_bytes_per_second: 0.0,
            prefill_tokens_per_second: 0.0,
            calibration: None,
            calibration_margin: 0.0,
        }
    }
}

impl CacheOptions<'_> {
    fn flags(&self) -> u32 {
        flags([
            (self.no_prefixes, sys::QUIRE_CACHE_NO_PREFIX),
            (self.hash_seed.is_some(), sys::QUIRE_CACHE_FIXED_HASH),
            (self.is_leader, sys::QUIRE_CACHE_LOG),
            (self.is_follower, sys::QUIRE_CACHE_FOLLOWER),
            (self.calibrates, sys::QUIRE_CACHE_CALIBRATE),
            (self.zero_on_free, sys::QUIRE_CACHE_ZERO_ON_FREE),
            (self.audits, sys::QUIRE_CACHE_AUDIT),
            (self.events, sys::QUIRE_CACHE_EVENTS),
            (self.event_tokens, sys::QUIRE_CACHE_EVENT_TOKENS),
            (self.host_prefixes, sys::QUIRE_CACHE_HOST_PREFIXES),
            (self.one_pool, sys::QUIRE_CACHE_ONE_POOL),
            (self.leases_only, sys::QUIRE_CACHE_LEASES_ONLY),
            (self.partial_hits, sys::QUIRE_CACHE_PARTIAL_HITS),
        ])
    }
}

/// The sizes that a cache was given.
#[derive(Debug, Clone, Copy)]
pub struct CacheInfo {
    /// Tokens of a block.
    pub block_tokens: u32,
    /// Tokens that the smallest full-attention pool holds, or else the smallest pool.
    pub pool_tokens: u64,
    /// Sequences of the largest size that fit at once.
    pub max_sequences: u64,
    /// Bytes of the pools, over all shards.
    pub pool_bytes: u64,
    /// Bytes of the host tier.
    pub host_bytes: u64,
    /// Tokens of a span, in which prefixes are published and found: `block_tokens`, or a span of
    /// it where groups have `block_tokens` of their own.
    pub span_tokens: u32,
    /// Blocks of a span, of all groups.
    pub span_blocks: u32,
}

mirror! {
    /// Current counts: `quire_cache_stats` of cache.h, with the same field names.
    Stats of quire_cache_stats {
        prefix_cache_queries: u64, prefix_cache_hits: u64, num_preemptions: u64,
        preemptions_swap: u64, preemptions_recompute: u64, tokens_preempted: u64, evictions: u64,
        copies_on_write: u64, blocks_swapped_out: u64, blocks_swapped_in: u64, forks: u64,
        steps: u64, bytes_hashed: u64, bytes_compared: u64, sequences: u64, sequences_lost: u64,
        host_blocks_used: u64, blocks_total: u64, blocks_free: u64, blocks_cached: u64,
        blocks_held: u64, nodes: u64, kv_cache_usage_perc: f64, migrations: u64,
        bytes_migrated: u64, blocks_demoted: u64, blocks_promoted: u64, host_blocks_cached: u64,
        leases: u64, blocks_leased: u64,
    }
}

mirror! {
    /// Where a group's K and V are on a shard: `quire_pool_info` of cache.h, with the same field
    /// names.
    Pool of quire_pool_info {
        address: u64, size_bytes: u64, block_stride: i64, layer_stride: i64, v_offset: i64,
        k_head_stride: i64, k_token_stride: i64, v_head_stride: i64, v_token_stride: i64,
        blocks: u32, block_tokens: u32, host_blocks: u32, layer_begin: u32, layer_count: u32,
        head_begin: u32, head_count: u32, k_scale_offset: i64, v_scale_offset: i64,
        scale_head_stride: i64, scales: u64,
    }
}

/// A paged KV cache. Clones are the same cache. It is destroyed when the last clone, and the last
/// of its sequences, steps and batches, is dropped, which waits for the queues that steps ran on.
///
/// ```
/// use quire::{CacheOptions, Group, Instance, PoolSize};
///
/// let groups = [Group { layers: 2, kv_heads: 2, head_dim: 64, ..Group::default() }];
/// let cache = Instance::new()?.cache(CacheOptions {
///     groups: &groups,
///     size: PoolSize::Blocks(8), // and no shards: books only
///     ..CacheOptions::default()
/// })?;
/// assert_eq!(cache.stats()?.blocks_free, 7); // one is the null block
/// # Ok::<(), quire::Error>(())
/// ```
#[derive(Clone)]
pub struct Cache {
    pub(crate) inner: Arc<CacheInner>,
}

/// Where a cache is.
pub(crate) struct Placement {
    /// One per shard.
    pub(crate) devices: Vec<Arc<DeviceInner>>,
    /// [shard][group] KV heads.
    pub(crate) heads: Vec<Vec<u32>>,
    // Devices from before a move, whose memory may still hold the host tier.
    left: Vec<Arc<DeviceInner>>,
}

#[derive(Default)]
struct Ended {
    sequences: Vec<sys::quire_seq>,
    leases: Vec<sys::quire_lease>,
    namespaces: Vec<sys::quire_namespace>,
    batches: Vec<SharedBatch>,
}

impl Ended {
    fn is_empty(&self) -> bool {
        self.sequences.is_empty()
            && self.leases.is_empty()
            && self.namespaces.is_empty()
            && self.batches.is_empty()
    }
}

struct SharedBatch(NonNull<sys::quire_batch>);
// SAFETY: objects may be shared between threads (base.h).
unsafe impl Send for SharedBatch {}

pub(crate) struct CacheInner {
    pub(crate) api: Api,
    pointer: NonNull<sys::quire_cache>,
    pub(crate) groups: Vec<Group>,
    pub(crate) layers: Vec<u32>, // group of each
    pub(crate) span_tokens: u32,
    pub(crate) span_blocks: u32,
    pub(crate) placement: RwLock<Placement>,
    // Queues that steps ran on since the cache is where it is.
    queues: Mutex<Vec<Arc<QueueInner>>>,
    // Objects that were dropped while they could not be destroyed.
    ended: Mutex<Ended>,
    // Number of readers of host tables, or -1 while the cache moves.
    readers: AtomicIsize,
    // Stays open while it is attached.
    pub(crate) tier: Mutex<Option<Arc<TierInner>>>,
    pub(crate) is_abandoned: AtomicBool,
    _instance: Arc<InstanceInner>,
}

// SAFETY: objects may be shared between threads (base.h).
unsafe impl Send for CacheInner {}
unsafe impl Sync for CacheInner {}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Drop for CacheInner {
    fn drop(&mut self) {
        if self.check_kept().is_err() {
            return; // the library keeps it until the process ends
        }
        let all_ran = self.sync();
        self.end_what_is_dropped();
        if lock(&self.tier).is_some() {
            let _ = invoke!(self.api, cache_detach_tier_wait(self.pointer(), u64::MAX));
        }
        let destroyed = invoke!(self.api, cache_destroy(self.pointer()));
        if destroyed.is_err() && !all_ran {
            // Else no one could abandon its devices any more.
            let mut info = desc!(quire_abandon_info {});
            let _ = invoke!(self.api, cache_abandon(self.pointer(), &mut info));
        }
    }
}

impl CacheInner {
    pub(crate) fn pointer(&self) -> *mut sys::quire_cache {
        self.pointer.as_ptr()
    }

    pub(crate) fn runs_on(&self, queues: &[Arc<QueueInner>]) {
        let mut known = lock(&self.queues);
        for queue in queues {
            if !known.iter().any(|other| Arc::ptr_eq(other, queue)) {
                known.push(queue.clone());
            }
        }
    }

    /// [`ErrorKind::Stale`] after an abandon. Asked before a lock that may be held during a call,
    /// which may be stuck inside a driver.
    pub(crate) fn check_kept(&self) -> Result<()> {
        if self.is_abandoned.load(Ordering::Acquire) {
            return Err(Error::new(ErrorKind::Stale, "the cache was abandoned"));
        }
        Ok(())
    }

    /// Waits for all steps. A stopped queue runs none. Returns false if a queue was abandoned, so
    /// that its steps may never be done.
    pub(crate) fn sync(&self) -> bool {
        let queues = lock(&self.queues).clone();
        let is_stale = |error: Error| error.kind() == ErrorKind::Stale;
        let abandoned = queues.iter().filter(|queue| queue.sync().is_err_and(is_stale)).count();
        abandoned == 0
    }

    pub(crate) fn end_sequence_later(&self, handle: sys::quire_seq) {
        lock(&self.ended).sequences.push(handle);
        self.end_what_is_dropped(); // the step may have been committed meanwhile
    }

    pub(crate) fn end_lease_later(&self, handle: sys::quire_lease) {
        lock(&self.ended).leases.push(handle);
        self.end_what_is_dropped();
    }

    pub(crate) fn end_namespace_later(&self, handle: sys::quire_namespace) {
        lock(&self.ended).namespaces.push(handle);
        self.end_what_is_dropped();
    }

    pub(crate) fn end_batch_later(&self, batch: NonNull<sys::quire_batch>) {
        lock(&self.ended).batches.push(SharedBatch(batch));
    }

    /// Destroys dropped objects that were busy while a step was open or the cache moved.
    pub(crate) fn end_what_is_dropped(&self) {
        if self.check_kept().is_err() {
            return;
        }
        let mut ended = lock(&self.ended);
        if ended.is_empty() {
            return;
        }
        let is_busy =
            |result: Result<i32>| result.is_err_and(|error| error.kind() == ErrorKind::Busy);
        ended
            .sequences
            .retain(|&handle| is_busy(invoke!(self.api, seq_end(self.pointer(), handle, 0))));
        ended
            .leases
            .retain(|&handle| is_busy(invoke!(self.api, lease_end(self.pointer(), handle))));
        ended.namespaces.retain(|&handle| {
            is_busy(invoke!(self.api, namespace_destroy(self.pointer(), handle)))
        });
        ended.batches.retain(|batch| is_busy(invoke!(self.api, batch_destroy(batch.0.as_ptr()))));
    }

    /// Records where the cache is, after it was created or has moved. If a pool cannot be read, its
    /// head count becomes so large that no operand is large enough.
    pub(crate) fn place(&self, placement: &mut Placement, shards: &[Shard], keeps: bool) {
        let heads_of = |group: usize, shard: usize| {
            let pool = self.raw_pool(group as u32, shard as u32);
            pool.map_or(u32::MAX, |pool| pool.head_count)
        };
        placement.heads = (0..shards.len())
            .map(|shard| (0..self.groups.len()).map(|group| heads_of(group, shard)).collect())
            .collect();
        let devices = shards.iter().map(|shard| shard.device.inner.clone()).collect();
        let before = std::mem::replace(&mut placement.devices, devices);
        if keeps {
            placement.left.extend(before);
        } else {
            placement.left.clear();
        }
    }

    /// The queues that steps ran on so far.
    pub(crate) fn known_queues(&self) -> Vec<Arc<QueueInner>> {
        lock(&self.queues).clone()
    }

    /// Forgets queues on which nothing of the cache runs any more.
    pub(crate) fn forget_queues(&self, queues: &[Arc<QueueInner>]) {
        lock(&self.queues).retain(|queue| !queues.iter().any(|gone| Arc::ptr_eq(gone, queue)));
    }

    /// Keeps the cache from moving while someone reads tables on the host.
    pub(crate) fn hold_tables(&self) -> Result<()> {
        let one_more = |readers: isize| (readers >= 0).then_some(readers + 1);
        match self.readers.fetch_update(Ordering::AcqRel, Ordering::Acquire, one_more) {
            Ok(_) => Ok(()),
            Err(_) => Err(Error::new(ErrorKind::Busy, "the cache is being moved")),
        }
    }

    pub(crate) fn release_tables(&self) {
        self.readers.fetch_sub(1, Ordering::AcqRel);
    }

    /// Runs the move, during which no one may read tables.
    pub(crate) fn while_moving<T>(&self, run: impl FnOnce() -> Result<T>) -> Result<T> {
        let free = self.readers.compare_exchange(0, -1, Ordering::AcqRel, Ordering::Acquire);
        if free.is_err() {
            let message = "HostTables of a batch are in use, or the cache is already being moved";
            return Err(Error::new(ErrorKind::Busy, message));
        }
        let done = run();
        self.readers.store(0, Ordering::Release);
        done
    }

    fn raw_pool(&self, group: u32, shard: u32) -> Result<sys::quire_pool_info> {
        let mut info = desc!(quire_pool_info {});
        invoke!(self.api, cache_get_pool(self.pointer(), group, shard, &mut info))?;
        Ok(info)
    }
}

impl Instance {
    /// Creates a cache.
    pub fn cache(&self, options: CacheOptions<'_>) -> Result<Cache> {
        let layers = layers_of(options.groups, options.layer_groups)?;
        let groups: Vec<_> = options.groups.iter().map(Group::raw).collect();
        let shards: Vec<_> = options.shards.iter().map(Shard::raw).collect();
        let calibration = options.calibration.map_or(&[][..], Calibration::bytes);
        let mut desc = desc!(quire_cache_desc {
            flags: options.flags(),
            shards: first(&shards),
            groups: first(&groups),
            layer_groups: options.layer_groups.map_or(std::ptr::null(), first),
            shard_count: count("shards", shards.len())?,
            shard_stride: stride_of::<sys::quire_shard_desc>(),
            group_count: count("groups", groups.len())?,
            group_stride: stride_of::<sys::quire_group_desc>(),
            block_tokens: options.block_tokens,
            max_sequences: options.max_sequences,
            max_sequence_tokens: options.max_sequence_tokens,
            watermark_blocks: options.watermark_blocks,
            host_bytes: options.host_bytes,
            host_blocks: options.host_blocks,
            victim: u32::from(options.victim_by_priority),
            calibration_margin: options.calibration_margin,
            hash_seed: options.hash_seed.unwrap_or(0),
            swap_bytes_per_second: options.swap_bytes_per_second,
            prefill_tokens_per_second: options.prefill_tokens_per_second,
            calibration: first(calibration).cast::<c_void>(),
            calibration_bytes: calibration.len() as u64,
        });
        match options.size {
            PoolSize::OfGroups => {}
            PoolSize::Blocks(blocks) => desc.blocks = blocks,
            PoolSize::Bytes(bytes) => desc.pool_bytes = bytes,
            PoolSize::Fraction(share, reserve) => {
                desc.pool_fraction = share;
                desc.reserve_bytes = reserve;
            }
        }
        let mut out = std::ptr::null_mut();
        invoke!(self.inner.api, cache_create(self.pointer(), &desc, &mut out))?;
        let placement = Placement { devices: Vec::new(), heads: Vec::new(), left: Vec::new() };
        let mut inner = CacheInner {
            api: self.inner.api,
            pointer: made(out)?,
            groups: options.groups.to_vec(),
            layers,
            span_tokens: 0, // below, when the cache is dropped on an error
            span_blocks: 0,
            placement: RwLock::new(placement),
            queues: Mutex::default(),
            ended: Mutex::default(),
            readers: AtomicIsize::new(0),
            tier: Mutex::default(),
            is_abandoned: AtomicBool::new(false),
            _instance: self.inner.clone(),
        };
        let mut info = desc!(quire_cache_info {});
        invoke!(inner.api, cache_get_info(inner.pointer(), &mut info))?;
        inner.span_tokens = info.span_tokens;
        inner.span_blocks = info.span_blocks;
        {
            let mut placement = inner.placement.write().unwrap_or_else(PoisonError::into_inner);
            inner.place(&mut placement, options.shards, false);
        }
        Ok(Cache { inner: Arc::new(inner) })
    }
}

impl Cache {
    /// Returns the sizes that the cache was given.
    pub fn info(&self) -> Result<CacheInfo> {
        let mut info = desc!(quire_cache_info {});
        invoke!(self.inner.api, cache_get_info(self.inner.pointer(), &mut info))?;
        Ok(CacheInfo {
            block_tokens: info.block_tokens,
            pool_tokens: info.pool_tokens,
            max_sequences: info.max_sequences,
            pool_bytes: info.pool_bytes,
            host_bytes: info.host_bytes,
            span_tokens: info.span_tokens,
            span_blocks: info.span_blocks,
        })
    }

    /// Returns the current counts.
    pub fn stats(&self) -> Result<Stats> {
        let mut stats = desc!(quire_cache_stats {});
        invoke!(self.inner.api, cache_get_stats(self.inner.pointer(), &mut stats))?;
        Ok(stats.into())
    }

    /// Says where a group's K and V are on a shard.
    pub fn pool(&self, group: u32, shard: u32) -> Result<Pool> {
        self.inner.raw_pool(group, shard).map(Pool::from)
    }

    /// Forgets every published prefix, after a change of weights.
    pub fn reset(&self) -> Result<()> {
        invoke!(self.inner.api, cache_reset(self.inner.pointer())).map(drop)
    }

    /// Verifies every invariant of the cache; O(everything).
    pub fn check(&self) -> Result<()> {
        invoke!(self.inner.api, cache_check(self.inner.pointer())).map(drop)
    }

    /// Returns everything that decides what the cache does next, as text (docs/dump.md); works on a
    /// stopped cache too. `with_tokens` includes prompts and answers, not only their hashes.
    pub fn dump(&self, with_tokens: bool) -> Result<Vec<u8>> {
        let (cache, flags) = (&self.inner, if with_tokens { sys::QUIRE_DUMP_TOKENS } else { 0 });
        bytes(|to, capacity, size| {
            invoke!(cache.api, cache_dump(cache.pointer(), flags, to.cast(), capacity, size))
        })
    }

    /// Names unknown tokens of several sequences; each span names a range of `tokens`.
    pub fn set_tokens(&self, spans: &[TokenSpan], tokens: &[Token]) -> Result<()> {
        let (span_count, token_count) =
            (count("spans", spans.len())?, count("tokens", tokens.len())?);
        invoke!(
            self.inner.api,
            seq_set_tokens(
                self.inner.pointer(),
                first(spans).cast(),
                span_count,
                stride_of::<sys::quire_token_span>(),
                first(tokens),
                token_count,
            )
        )
        .map(drop)
    }

    /// Returns what a cache that calibrates has measured since it was created. Waits for the
    /// finished steps to run.
    pub fn save_calibration(&self, timeout: Option<Duration>) -> Result<Calibration> {
        let (api, cache) = (self.inner.api, self.inner.pointer());
        let content = bytes(|to, capacity, size| {
            in_time(invoke!(
                api,
                cache_save_calibration_wait(cache, to.cast(), capacity, size, nanoseconds(timeout))
            )?)
        })?;
        Ok(Calibration::saved(self.inner.api, content))
    }
}

impl fmt::Debug for Cache {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cache").finish_non_exhaustive()
    }
}
