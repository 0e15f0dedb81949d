// SPDX-License-Identifier: Apache-2.0

use std::sync::PoisonError;
use std::time::Duration;

use quire_sys as sys;

use crate::call::{bytes, desc, first, invoke, mirror, nanoseconds};
use crate::{Cache, Error, ErrorKind, Result, Sequence, Tier};

/// Which cached blocks are written to a store.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum TierWrite {
    /// None.
    #[default]
    None,
    /// Each, once the step that computes it has run.
    Through,
    /// Each that an item found on the device once.
    Selective,
    /// Each that is soon to be evicted, and at the detach each that is cached.
    Back,
}

/// How a tier serves a cache: `quire_cache_tier_desc` of cache_tier.h. 0 and `None` are a field's
/// default.
#[derive(Debug, Clone, Copy, Default)]
pub struct AttachOptions {
    /// Names the weights, and all else that decides K and V.
    pub fingerprint: [u8; 32],
    /// What is written.
    pub write: TierWrite,
    /// A load must bring so many more tokens than the device has.
    pub min_load_tokens: u32,
    /// A load that takes longer is a miss.
    pub load_timeout: Option<Duration>,
    /// A load that no item uses for so long is dropped.
    pub load_expiry: Option<Duration>,
    /// Asked for at once.
    pub max_load_bytes: u64,
    /// Given to the store at once.
    pub max_write_bytes: u64,
    /// Blocks of the store of which a reader of events is told.
    pub max_told_blocks: u64,
    /// How many followers a leader has; 0 for all other caches.
    pub followers: u32,
}

mirror! {
    /// How far a cache's tier is: `quire_cache_tier_progress` of cache_tier.h, with the same field
    /// names. The descriptor is for poll(), and -1 if the store has none.
    TierProgress of quire_cache_tier_progress {
        loads_running: u32, loads_ready: u32, loads_ended: u64, blocks_queued: u64,
        descriptor: i32,
    }
}

mirror! {
    /// Counts since the tier was attached: `quire_cache_tier_stats` of cache_tier.h, with the same
    /// field names.
    CacheTierStats of quire_cache_tier_stats {
        loads_begun: u64, loads_ready: u64, loads_used: u64, loads_missed: u64, loads_failed: u64,
        loads_late: u64, loads_expired: u64, loads_cancelled: u64, loads_short: u64,
        tokens_loaded: u64, bytes_loaded: u64, values_damaged: u64, values_foreign: u64,
        blocks_written: u64, bytes_written: u64, blocks_known: u64, blocks_refused: u64,
        blocks_dropped: u64, blocks_evicted: u64,
    }
}

/// A time that may be added to the clock; `None`: the library's default.
fn limit(time: Option<Duration>) -> u64 {
    time.map_or(0, |time| nanoseconds(Some(time)).clamp(1, i64::MAX as u64))
}

impl Cache {
    /// Puts a store below the cache. An item with [`crate::Item::may_load`] then waits for what the
    /// store has of its prompt ([`crate::Wait::Loading`]), until it is sent again after the load.
    /// The tier serves this cache alone until [`Cache::detach_tier`]; a cache that is dropped
    /// detaches its tier first, and waits for the store.
    pub fn attach_tier(&self, tier: &Tier, options: AttachOptions) -> Result<()> {
        let desc = desc!(quire_cache_tier_desc {
            fingerprint: options.fingerprint,
            write: match options.write {
                TierWrite::None => sys::QUIRE_TIER_WRITE_NONE,
                TierWrite::Through => sys::QUIRE_TIER_WRITE_THROUGH,
                TierWrite::Selective => sys::QUIRE_TIER_WRITE_SELECTIVE,
                TierWrite::Back => sys::QUIRE_TIER_WRITE_BACK,
            },
            min_load_tokens: options.min_load_tokens,
            load_timeout_ns: limit(options.load_timeout),
            load_expiry_ns: limit(options.load_expiry),
            max_load_bytes: options.max_load_bytes,
            max_write_bytes: options.max_write_bytes,
            max_told_blocks: options.max_told_blocks,
            followers: options.followers,
        });
        let inner = &self.inner;
        inner.check_kept()?;
        let mut attached = inner.tier.lock().unwrap_or_else(PoisonError::into_inner);
        let store = tier.inner.pointer();
        invoke!(inner.api, cache_attach_tier(inner.pointer(), store, &desc))?;
        *attached = Some(tier.inner.clone());
        Ok(())
    }

    /// Takes the tier away: loads are cancelled, and what waits to be written is written.
    /// [`ErrorKind::Timeout`]: not in time; the tier is still attached and loads nothing. Call this
    /// again.
    pub fn detach_tier(&self, timeout: Option<Duration>) -> Result<()> {
        let inner = &self.inner;
        inner.check_kept()?;
        let mut attached = inner.tier.lock().unwrap_or_else(PoisonError::into_inner);
        let limit = nanoseconds(timeout);
        let status = invoke!(inner.api, cache_detach_tier_wait(inner.pointer(), limit))?;
        if status == sys::QUIRE_S_TIMEOUT {
            let message = "the store did not end in time: the tier is still attached";
            return Err(Error::new(ErrorKind::Timeout, message));
        }
        *attached = None;
        Ok(())
    }

    /// Makes progress with loads and writes, and says how far they are.
    pub fn poll_tier(&self) -> Result<TierProgress> {
        let mut progress = desc!(quire_cache_tier_progress {});
        invoke!(self.inner.api, cache_poll_tier(self.inner.pointer(), &mut progress))?;
        Ok(progress.into())
    }

    /// Waits until a load ends; returns at once if none is running. [`ErrorKind::Timeout`]: none
    /// ended in time.
    pub fn wait_load(&self, timeout: Option<Duration>) -> Result<TierProgress> {
        let mut progress = desc!(quire_cache_tier_progress {});
        let (cache, limit) = (self.inner.pointer(), nanoseconds(timeout));
        let status = invoke!(self.inner.api, cache_load_wait(cache, limit, &mut progress))?;
        if status == sys::QUIRE_S_TIMEOUT {
            return Err(Error::new(ErrorKind::Timeout, "no load ended in time"));
        }
        Ok(progress.into())
    }

    /// Returns a follower's next report for its leader, which says how loads went; empty: there is
    /// nothing to report. Send it: each load is in one report.
    pub fn report_loads(&self) -> Result<Vec<u8>> {
        let inner = &self.inner;
        bytes(|to, capacity, size| {
            invoke!(inner.api, cache_report_loads(inner.pointer(), to.cast(), capacity, size))
        })
    }

    /// Takes a report of a follower of this leader.
    pub fn take_report(&self, report: &[u8]) -> Result<()> {
        let inner = &self.inner;
        let (at, size) = (first(report).cast(), report.len() as u64);
        invoke!(inner.api, cache_take_report(inner.pointer(), at, size))?;
        Ok(())
    }

    /// Returns what was loaded and written since the tier was attached.
    pub fn tier_stats(&self) -> Result<CacheTierStats> {
        let mut stats = desc!(quire_cache_tier_stats {});
        invoke!(self.inner.api, cache_get_tier_stats(self.inner.pointer(), &mut stats))?;
        Ok(stats.into())
    }
}

impl Sequence {
    /// Drops the sequence's load, if it has one.
    pub fn cancel_load(&self) -> Result<()> {
        let cache = &self.cache;
        invoke!(cache.api, cache_cancel_load(cache.pointer(), self.handle())).map(drop)
    }
}
