// SPDX-License-Identifier: Apache-2.0

use std::fmt;
use std::ptr::NonNull;
use std::sync::Arc;

use quire_sys as sys;

use crate::call::{c_text, count, desc, first, invoke, made, mirror, stride_of, Api};
use crate::instance::InstanceInner;
use crate::{Instance, Result};

/// Which store to open, and how.
#[derive(Debug, Clone, Copy, Default)]
pub struct TierOptions<'a> {
    /// The plugin's name, such as "disk".
    pub store: &'a str,
    /// Names and values, such as "directory"; the plugin's documentation lists them.
    pub settings: &'a [(&'a str, &'a str)],
    /// Makes no new store.
    pub existing: bool,
    /// Changes nothing that outlives the process.
    pub read_only: bool,
}

mirror! {
    /// Counts since a tier was opened, except for `records`, `value_bytes` and `used_bytes`, which
    /// are as of now: `quire_store_stats` of tier.h, with the same field names.
    TierStats of quire_store_stats {
        records: u64, value_bytes: u64, used_bytes: u64, puts: u64, puts_known: u64,
        puts_refused: u64, hits: u64, misses: u64, foreign: u64, damaged: u64, failed_reads: u64,
        removed: u64, evicted: u64, written_bytes: u64, read_bytes: u64, recovered: u64,
        skipped_bytes: u64,
    }
}

/// A store's properties: `quire_store_info` of tier.h.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct TierInfo {
    /// It always knows what it has.
    pub is_indexed: bool,
    /// What was flushed is there after the next open.
    pub is_persistent: bool,
    /// Other processes put and remove too.
    pub is_remote: bool,
    /// It knows [`Tier::compact`].
    pub compacts: bool,
    /// A larger value is refused.
    pub max_value_bytes: u64,
    /// Room for values, with all that the store keeps beside them; 0: not known.
    pub capacity_bytes: u64,
    /// Requests that it works on at a time.
    pub max_requests: u32,
    /// Where it keeps values, for people.
    pub place: String,
}

/// A store below the device, on disk for example, for [`crate::Cache::attach_tier`] or for values
/// of the engine's own ([`Tier::put`]). Clones are the same tier. It closes when the last clone is
/// dropped and no cache has it, and waits for the store then.
#[derive(Clone)]
pub struct Tier {
    pub(crate) inner: Arc<TierInner>,
}

pub(crate) struct TierInner {
    pub(crate) api: Api,
    pointer: NonNull<sys::quire_tier>,
    _instance: Arc<InstanceInner>,
}

// SAFETY: objects may be shared between threads (base.h).
unsafe impl Send for TierInner {}
unsafe impl Sync for TierInner {}

impl TierInner {
    pub(crate) fn pointer(&self) -> *mut sys::quire_tier {
        self.pointer.as_ptr()
    }
}

impl Drop for TierInner {
    fn drop(&mut self) {
        let _ = invoke!(self.api, tier_close_wait(self.pointer(), u64::MAX));
    }
}

impl Instance {
    /// Opens a store. [`crate::ErrorKind::Backend`]: there is no such plugin.
    /// [`crate::ErrorKind::Argument`]: a setting is unknown or wrong. [`crate::ErrorKind::Busy`]:
    /// another owner has it open.
    pub fn open_tier(&self, options: TierOptions<'_>) -> Result<Tier> {
        let store = c_text("store", options.store)?;
        let texts: Vec<_> = options
            .settings
            .iter()
            .map(|(name, value)| Ok((c_text("a setting", name)?, c_text("a setting", value)?)))
            .collect::<Result<_>>()?;
        let settings: Vec<_> = texts
            .iter()
            .map(|(name, value)| sys::quire_store_option {
                name: name.as_ptr(),
                value: value.as_ptr(),
            })
            .collect();
        let existing = if options.existing { sys::QUIRE_STORE_OPEN_EXISTING } else { 0 };
        let read_only = if options.read_only { sys::QUIRE_STORE_OPEN_READ_ONLY } else { 0 };
        let desc = desc!(quire_tier_desc {
            flags: existing | read_only,
            store: store.as_ptr(),
            options: first(&settings),
            option_count: count("settings", settings.len())?,
            option_stride: stride_of::<sys::quire_store_option>(),
        });
        let mut out = std::ptr::null_mut();
        invoke!(self.inner.api, tier_open(self.pointer(), &desc, &mut out))?;
        let inner =
            TierInner { api: self.inner.api, pointer: made(out)?, _instance: self.inner.clone() };
        Ok(Tier { inner: Arc::new(inner) })
    }
}

impl Tier {
    /// Returns the store's properties.
    pub fn info(&self) -> Result<TierInfo> {
        let mut info = desc!(quire_store_info {});
        invoke!(self.inner.api, tier_get_info(self.inner.pointer(), &mut info))?;
        let has = |flag: u32| info.flags & flag != 0;
        Ok(TierInfo {
            is_indexed: has(sys::QUIRE_STORE_INDEXED),
            is_persistent: has(sys::QUIRE_STORE_PERSISTENT),
            is_remote: has(sys::QUIRE_STORE_REMOTE),
            compacts: has(sys::QUIRE_STORE_COMPACTS),
            max_value_bytes: info.max_value_bytes,
            capacity_bytes: info.capacity_bytes,
            max_requests: info.max_requests,
            place: sys::text(&info.place),
        })
    }

    /// Returns the store's counts.
    pub fn stats(&self) -> Result<TierStats> {
        let mut stats = desc!(quire_store_stats {});
        invoke!(self.inner.api, tier_get_stats(self.inner.pointer(), &mut stats))?;
        Ok(stats.into())
    }
}

impl fmt::Debug for Tier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tier").finish_non_exhaustive()
    }
}
