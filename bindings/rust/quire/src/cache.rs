// SPDX-License-Identifier: Apache-2.0

use std::ffi::c_void;
use std::fmt;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicIsize, Ordering};
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
use crate::{Calibration, Error, ErrorKind, Group, Instance, Result, Shard, Token, TokenSpan};

/// How large each group's pool is; not read where every group states its own blocks.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum PoolSize {
    /// As the groups say.
    OfGroups,
    /// So many blocks, the null block among them.
    Blocks(u32),
    /// So many bytes, of each shard.
    Bytes(u64),
    /// A share of each device's free memory, less a reserve in bytes.
    Fraction(f32, u64),
}

/// How a cache is made: `quire_cache_desc` of cache.h.
#[derive(Debug, Clone, Copy)]
pub struct CacheOptions<'a> {
    /// Layers, in groups that share geometry.
    pub groups: &'a [Group],
    /// Where it lies; empty: it keeps books only.
    pub shards: &'a [Shard],
    /// Group of each layer; `None`: one group's behind another's.
    pub layer_groups: Option<&'a [u32]>,
    /// Tokens of a block, a power of two; 0: 16.
    pub block_tokens: u32,
    /// Of each group's pool.
    pub size: PoolSize,
    /// The host tier's bytes, of each shard; of a cache with memory.
    pub host_bytes: u64,
    /// The host tier's blocks, of each group; of a cache without memory.
    pub host_blocks: u32,
    /// Live at once; 0: 1,024.
    pub max_sequences: u32,
    /// Of each; 0: 2^31 - 1.
    pub max_sequence_tokens: u32,
    /// Left free by the admission of new sequences.
    pub watermark_blocks: u32,
    /// Publishes nothing, looks nothing up.
    pub no_prefixes: bool,
    /// Its steps have logs for followers.
    pub is_leader: bool,
    /// It only applies a leader's log.
    pub is_follower: bool,
    /// Keeps the largest magnitudes of K and V: [`Cache::save_calibration`].
    pub calibrates: bool,
    /// Zeroes blocks that are given up.
    pub zero_on_free: bool,
    /// Remembers what unfinished steps touch, for [`Cache::check`].
    pub audits: bool,
    /// Preempts the lowest priority first, instead of the newest.
    pub victim_by_priority: bool,
    /// Keys the hash of prefixes, for tests; `None`: at random.
    pub hash_seed: Option<u64>,
    /// With the next: swap where that takes less time than to compute again.
    pub swap_bytes_per_second: f32,
    /// See there.
    pub prefill_tokens_per_second: f32,
    /// Scales of codes.
    pub calibration: Option<&'a Calibration>,
    /// What its magnitudes are multiplied by; 0: 1.
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
        ])
    }
}

/// What came of a cache's sizes.
#[derive(Debug, Clone, Copy)]
pub struct CacheInfo {
    /// Of a block.
    pub block_tokens: u32,
    /// Held by the smallest full-attention pool, or the smallest pool.
    pub pool_tokens: u64,
    /// Of the largest size that fit at once.
    pub max_sequences: u64,
    /// Over all shards.
    pub pool_bytes: u64,
    /// Of the host tier.
    pub host_bytes: u64,
}

mirror! {
    /// Counts, as of now: `quire_cache_stats` of cache.h, under its names.
    Stats of quire_cache_stats {
        prefix_cache_queries: u64, prefix_cache_hits: u64, num_preemptions: u64,
        preemptions_swap: u64, preemptions_recompute: u64, tokens_preempted: u64, evictions: u64,
        copies_on_write: u64, blocks_swapped_out: u64, blocks_swapped_in: u64, forks: u64,
        steps: u64, bytes_hashed: u64, bytes_compared: u64, sequences: u64, sequences_lost: u64,
        host_blocks_used: u64, blocks_total: u64, blocks_free: u64, blocks_cached: u64,
        blocks_held: u64, nodes: u64, kv_cache_usage_perc: f64, migrations: u64,
        bytes_migrated: u64,
    }
}

mirror! {
    /// Where a group's K and V lie on a shard: `quire_pool_info` of cache.h, under its names.
    Pool of quire_pool_info {
        address: u64, size_bytes: u64, block_stride: i64, layer_stride: i64, v_offset: i64,
        k_head_stride: i64, k_token_stride: i64, v_head_stride: i64, v_token_stride: i64,
        blocks: u32, block_tokens: u32, host_blocks: u32, layer_begin: u32, layer_count: u32,
        head_begin: u32, head_count: u32, k_scale_offset: i64, v_scale_offset: i64,
        scale_head_stride: i64, scales: u64,
    }
}

/// A paged KV cache. Clones are the same cache, which goes when the last of them, and of its
/// sequences, steps and batches, is dropped; that waits for the queues that its steps ran on.
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

/// Where a cache lies.
pub(crate) struct Placement {
    /// One a shard.
    pub(crate) devices: Vec<Arc<DeviceInner>>,
    /// [shard][group] KV heads.
    pub(crate) heads: Vec<Vec<u32>>,
    // Of before, on which its host tier may still lie.
    left: Vec<Arc<DeviceInner>>,
}

#[derive(Default)]
struct Ended {
    sequences: Vec<sys::quire_seq>,
    namespaces: Vec<sys::quire_namespace>,
    batches: Vec<SharedBatch>,
}

struct SharedBatch(NonNull<sys::quire_batch>);
// SAFETY: objects may be shared between threads (base.h).
unsafe impl Send for SharedBatch {}

pub(crate) struct CacheInner {
    pub(crate) api: Api,
    pointer: NonNull<sys::quire_cache>,
    pub(crate) groups: Vec<Group>,
    pub(crate) layers: Vec<u32>, // group of each
    pub(crate) placement: RwLock<Placement>,
    // That steps ran on, since it lies where it does.
    queues: Mutex<Vec<Arc<QueueInner>>>,
    // Dropped while they could not go.
    ended: Mutex<Ended>,
    // Who reads tables on the host, or -1: it moves.
    readers: AtomicIsize,
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
        self.sync();
        self.end_what_is_dropped();
        let _ = invoke!(self.api, cache_destroy(self.pointer()));
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

    /// Waits for all steps. A queue that stopped runs none.
    pub(crate) fn sync(&self) {
        let queues = lock(&self.queues).clone();
        for queue in queues {
            let _ = queue.sync();
        }
    }

    pub(crate) fn end_sequence_later(&self, handle: sys::quire_seq) {
        lock(&self.ended).sequences.push(handle);
        self.end_what_is_dropped(); // the step may have been committed meanwhile
    }

    pub(crate) fn end_namespace_later(&self, handle: sys::quire_namespace) {
        lock(&self.ended).namespaces.push(handle);
        self.end_what_is_dropped();
    }

    pub(crate) fn end_batch_later(&self, batch: NonNull<sys::quire_batch>) {
        lock(&self.ended).batches.push(SharedBatch(batch));
    }

    /// What could not go while a step was open or the cache moved.
    pub(crate) fn end_what_is_dropped(&self) {
        let mut ended = lock(&self.ended);
        if ended.sequences.is_empty() && ended.namespaces.is_empty() && ended.batches.is_empty() {
            return;
        }
        let is_busy =
            |result: Result<i32>| result.is_err_and(|error| error.kind() == crate::ErrorKind::Busy);
        ended
            .sequences
            .retain(|&handle| is_busy(invoke!(self.api, seq_end(self.pointer(), handle, 0))));
        ended.namespaces.retain(|&handle| {
            is_busy(invoke!(self.api, namespace_destroy(self.pointer(), handle)))
        });
        ended.batches.retain(|batch| is_busy(invoke!(self.api, batch_destroy(batch.0.as_ptr()))));
    }

    /// Says where it lies now, after it was made or has moved. Where that cannot be read no operand
    /// is large enough any more.
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

    /// Queues that its steps ran on so far.
    pub(crate) fn known_queues(&self) -> Vec<Arc<QueueInner>> {
        lock(&self.queues).clone()
    }

    /// Nothing of the cache runs on them any more.
    pub(crate) fn forget_queues(&self, queues: &[Arc<QueueInner>]) {
        lock(&self.queues).retain(|queue| !queues.iter().any(|gone| Arc::ptr_eq(gone, queue)));
    }

    /// Somebody reads tables on the host: it does not move meanwhile.
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

    /// Runs the move, which nobody's tables are read in.
    pub(crate) fn while_moving<T>(&self, run: impl FnOnce() -> Result<T>) -> Result<T> {
        let free = self.readers.compare_exchange(0, -1, Ordering::AcqRel, Ordering::Acquire);
        if free.is_err() {
            let message = "tables of a batch are read, which end with a move; or it is being moved";
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
    /// Makes a cache.
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
        let inner = CacheInner {
            api: self.inner.api,
            pointer: made(out)?,
            groups: options.groups.to_vec(),
            layers,
            placement: RwLock::new(placement),
            queues: Mutex::default(),
            ended: Mutex::default(),
            readers: AtomicIsize::new(0),
            _instance: self.inner.clone(),
        };
        {
            let mut placement = inner.placement.write().unwrap_or_else(PoisonError::into_inner);
            inner.place(&mut placement, options.shards, false);
        }
        Ok(Cache { inner: Arc::new(inner) })
    }
}

impl Cache {
    /// What came of its sizes.
    pub fn info(&self) -> Result<CacheInfo> {
        let mut info = desc!(quire_cache_info {});
        invoke!(self.inner.api, cache_get_info(self.inner.pointer(), &mut info))?;
        Ok(CacheInfo {
            block_tokens: info.block_tokens,
            pool_tokens: info.pool_tokens,
            max_sequences: info.max_sequences,
            pool_bytes: info.pool_bytes,
            host_bytes: info.host_bytes,
        })
    }

    /// Counts, as of now.
    pub fn stats(&self) -> Result<Stats> {
        let mut stats = desc!(quire_cache_stats {});
        invoke!(self.inner.api, cache_get_stats(self.inner.pointer(), &mut stats))?;
        Ok(stats.into())
    }

    /// Where a group's K and V lie on a shard.
    pub fn pool(&self, group: u32, shard: u32) -> Result<Pool> {
        self.inner.raw_pool(group, shard).map(Pool::from)
    }

    /// Forgets every published prefix, after a change of weights.
    pub fn reset(&self) -> Result<()> {
        invoke!(self.inner.api, cache_reset(self.inner.pointer())).map(drop)
    }

    /// Proves that the books are true; O(everything).
    pub fn check(&self) -> Result<()> {
        invoke!(self.inner.api, cache_check(self.inner.pointer())).map(drop)
    }

    /// All that decides what the cache does next, as text (docs/dump.md), of a stopped cache too.
    /// `with_tokens`: with prompts and answers in it, not only their hashes.
    pub fn dump(&self, with_tokens: bool) -> Result<Vec<u8>> {
        let (cache, flags) = (&self.inner, if with_tokens { sys::QUIRE_DUMP_TOKENS } else { 0 });
        bytes(|to, capacity, size| {
            invoke!(cache.api, cache_dump(cache.pointer(), flags, to.cast(), capacity, size))
        })
    }

    /// Names unknown tokens of many sequences: each span's are a range of `tokens`.
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

    /// What a cache that calibrates has measured since it was made; waits for the steps that are
    /// finished.
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
