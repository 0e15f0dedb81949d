// SPDX-License-Identifier: Apache-2.0

use std::sync::atomic::Ordering;

use crate::call::{desc, invoke, mirror};
use crate::{Cache, Device, Queue, Result};

mirror! {
    /// Bytes that an abandoned object left: `quire_abandon_info` of abandon.h, with the same field
    /// names. The device may still access them, so they stay until the process ends.
    Abandoned of quire_abandon_info {
        device_bytes: u64, host_bytes: u64, engine_bytes: u64,
    }
}

/// The order in which a device that no longer responds is given up:
///
/// ```
/// # fn f(cache: quire::Cache, device: quire::Device) -> quire::Result<()> {
/// cache.abandon()?; // each cache on the device
/// let left = device.abandon()?; // with its queues, fences and memory
/// println!("{} bytes stay until the process ends", left.device_bytes + left.host_bytes);
/// # Ok(()) }
/// ```
impl Cache {
    /// Gives up the cache with its namespaces, sequences, steps and batches, whatever state it is
    /// in, because its device no longer responds. Waits for nothing. A call of another thread that
    /// is inside the driver, as [`Queue::sync`] and the drop of a [`crate::Memory`] are while they
    /// wait, or that waits in this crate for such a call, returns when the driver lets it.
    ///
    /// From then on all calls on the cache and on what belongs to it are
    /// [`crate::ErrorKind::Stale`], and dropping them waits for nothing. Its devices, and the
    /// queues of its unfinished steps, can then only be abandoned: keep a [`Device`] of each for
    /// [`Device::abandon`].
    pub fn abandon(&self) -> Result<Abandoned> {
        let mut info = desc!(quire_abandon_info {});
        invoke!(self.inner.api, cache_abandon(self.inner.pointer(), &mut info))?;
        self.inner.is_abandoned.store(true, Ordering::Release);
        Ok(info.into())
    }
}

impl Device {
    /// Gives up the device with its queues, fences and memory: calls on them are then
    /// [`crate::ErrorKind::Stale`], and dropping them waits for nothing. A call that is inside the
    /// driver is as for [`Cache::abandon`]. [`crate::ErrorKind::Busy`]: caches on it are neither
    /// dropped nor abandoned; nothing changed.
    ///
    /// The device may still use memory of the engine's own: see [`Device::import_memory`].
    pub fn abandon(&self) -> Result<Abandoned> {
        let mut info = desc!(quire_abandon_info {});
        invoke!(self.inner.api, device_abandon(self.pointer(), &mut info))?;
        self.inner.is_abandoned.store(true, Ordering::Release);
        Ok(info.into())
    }
}

impl Queue {
    /// Gives up a queue whose work never ends, and keeps its device: calls on the queue are then
    /// [`crate::ErrorKind::Stale`]. Memory that was given to it stays until the process ends. The
    /// device can then only be abandoned.
    ///
    /// Steps of a cache on the queue are never done: fail them ([`crate::Step::fail`]), or abandon
    /// the cache. A cache that is dropped with such steps is abandoned.
    pub fn abandon(&self) -> Result<()> {
        invoke!(self.inner.api, queue_abandon(self.pointer())).map(drop)
    }
}
