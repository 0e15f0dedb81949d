// SPDX-License-Identifier: Apache-2.0

use std::fmt;
use std::ptr::NonNull;
use std::sync::Arc;
use std::time::Duration;

use quire_sys as sys;

use crate::call::{in_time, invoke, made, nanoseconds, Api};
use crate::device::DeviceInner;
use crate::{Device, Result};

/// A fence's value after work before it failed.
pub const FENCE_FAILED: u64 = sys::QUIRE_FENCE_FAILED;

/// A stream, event or semaphore of another interface, as a tagged integer: `quire_native`.
#[derive(Debug, Clone, Copy, Default)]
pub struct Native {
    /// `QUIRE_NATIVE_*` of [`quire_sys`].
    pub kind: u32,
    /// The object's handle or pointer.
    pub value: u64,
    /// Depends on the kind.
    pub aux0: u64,
    /// Depends on the kind.
    pub aux1: u64,
}

impl Native {
    pub(crate) fn raw(&self) -> sys::quire_native {
        sys::quire_native {
            kind: self.kind,
            value: self.value,
            aux0: self.aux0,
            aux1: self.aux1,
            ..Default::default()
        }
    }
}

/// Runs a device's work in order. Clones are the same queue.
#[derive(Clone)]
pub struct Queue {
    pub(crate) inner: Arc<QueueInner>,
}

pub(crate) struct QueueInner {
    pub(crate) api: Api,
    pub(crate) pointer: NonNull<sys::quire_queue>,
    pub(crate) device: Arc<DeviceInner>,
}

// SAFETY: objects may be shared between threads (base.h).
unsafe impl Send for QueueInner {}
unsafe impl Sync for QueueInner {}

impl Drop for QueueInner {
    fn drop(&mut self) {
        let _ = invoke!(self.api, queue_destroy(self.pointer.as_ptr()));
    }
}

impl QueueInner {
    pub(crate) fn sync(&self) -> Result<()> {
        invoke!(self.api, queue_sync(self.pointer.as_ptr())).map(drop)
    }
}

impl Device {
    /// Creates a queue.
    pub fn queue(&self) -> Result<Queue> {
        self.queue_on(std::ptr::null())
    }

    /// Binds the engine's own stream.
    ///
    /// # Safety
    /// `native` names a live stream of this device's driver, which stays alive until the device has
    /// closed.
    pub unsafe fn bind_queue(&self, native: &Native) -> Result<Queue> {
        self.queue_on(&native.raw())
    }

    fn queue_on(&self, native: *const sys::quire_native) -> Result<Queue> {
        let api = self.inner.api;
        let mut out = std::ptr::null_mut();
        invoke!(api, queue_create(self.pointer(), native, &mut out))?;
        let inner = QueueInner { api, pointer: made(out)?, device: self.inner.clone() };
        Ok(Queue { inner: Arc::new(inner) })
    }

    /// Creates a fence with the given value.
    pub fn fence(&self, value: u64) -> Result<Fence> {
        let api = self.inner.api;
        let mut out = std::ptr::null_mut();
        invoke!(api, fence_create(self.pointer(), value, &mut out))?;
        let inner = FenceInner { api, pointer: made(out)?, _device: self.inner.clone() };
        Ok(Fence { inner: Arc::new(inner) })
    }
}

impl Queue {
    /// Waits until all enqueued work has run.
    pub fn sync(&self) -> Result<()> {
        self.inner.sync()
    }

    /// Enqueues a signal: the fence gets `value` when all earlier work has run.
    pub fn signal(&self, fence: &Fence, value: u64) -> Result<()> {
        let api = self.inner.api;
        invoke!(api, queue_signal(self.pointer(), fence.pointer(), value)).map(drop)
    }

    /// Enqueues a wait: later work runs after the fence has reached `value`.
    pub fn after(&self, fence: &Fence, value: u64) -> Result<()> {
        invoke!(self.inner.api, queue_after(self.pointer(), fence.pointer(), value)).map(drop)
    }

    /// Enqueues a signal of the engine's own semaphore, after all earlier work has run.
    ///
    /// # Safety
    /// `native` names a semaphore of this device's driver that lives until that work has run.
    pub unsafe fn signal_native(&self, native: &Native) -> Result<()> {
        let native = native.raw();
        invoke!(self.inner.api, queue_signal_native(self.pointer(), &native)).map(drop)
    }

    /// Enqueues a wait: later work runs after the engine's own semaphore was signalled.
    ///
    /// # Safety
    /// As [`Queue::signal_native`].
    pub unsafe fn after_native(&self, native: &Native) -> Result<()> {
        let native = native.raw();
        invoke!(self.inner.api, queue_after_native(self.pointer(), &native)).map(drop)
    }

    pub(crate) fn pointer(&self) -> *mut sys::quire_queue {
        self.inner.pointer.as_ptr()
    }
}

impl fmt::Debug for Queue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Queue").finish_non_exhaustive()
    }
}

/// A number that only grows, raised by queues or by the host. Clones are the same fence.
#[derive(Clone)]
pub struct Fence {
    inner: Arc<FenceInner>,
}

struct FenceInner {
    api: Api,
    pointer: NonNull<sys::quire_fence>,
    _device: Arc<DeviceInner>,
}

// SAFETY: objects may be shared between threads (base.h).
unsafe impl Send for FenceInner {}
unsafe impl Sync for FenceInner {}

impl Drop for FenceInner {
    fn drop(&mut self) {
        let _ = invoke!(self.api, fence_destroy(self.pointer.as_ptr()));
    }
}

impl Fence {
    /// Returns the value; [`FENCE_FAILED`] after work before it failed.
    pub fn read(&self) -> Result<u64> {
        let mut value = 0;
        invoke!(self.inner.api, fence_read(self.pointer(), &mut value))?;
        Ok(value)
    }

    /// Sets the value from the host; it must grow.
    pub fn signal(&self, value: u64) -> Result<()> {
        invoke!(self.inner.api, fence_signal(self.pointer(), value)).map(drop)
    }

    /// Waits for `value`: at most `timeout`, then [`crate::ErrorKind::Timeout`]; `None`: for ever.
    pub fn wait(&self, value: u64, timeout: Option<Duration>) -> Result<()> {
        let api = self.inner.api;
        in_time(invoke!(api, fence_wait(self.pointer(), value, nanoseconds(timeout)))?).map(drop)
    }

    fn pointer(&self) -> *mut sys::quire_fence {
        self.inner.pointer.as_ptr()
    }
}

impl fmt::Debug for Fence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Fence").finish_non_exhaustive()
    }
}
