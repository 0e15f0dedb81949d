// SPDX-License-Identifier: Apache-2.0

use std::ffi::c_void;
use std::fmt;
use std::mem::size_of;
use std::ptr::NonNull;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use quire_sys as sys;

use crate::call::{desc, invoke, made, Api};
use crate::device::DeviceInner;
use crate::queue::QueueInner;
use crate::{Device, Error, ErrorKind, Queue, Result};

/// Where memory is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum MemoryKind {
    /// On the device.
    #[default]
    Device,
    /// On the host, reachable by the device.
    Host,
}

mod sealed {
    pub trait Sealed {}
}

/// Number types that memory is written and read as: every bit pattern is valid.
pub trait Element: sealed::Sealed + Copy + 'static {}

macro_rules! elements {
    ($($type:ty),*) => { $(impl sealed::Sealed for $type {} impl Element for $type {})* };
}
elements!(u8, i8, u16, i16, u32, i32, u64, i64, f32, f64);

/// Memory for an engine's activations. Clones are the same memory. It is freed when the last of
/// them is dropped, which waits for the queues that work on it.
#[derive(Clone)]
pub struct Memory {
    pub(crate) inner: Arc<MemoryInner>,
}

pub(crate) struct MemoryInner {
    api: Api,
    pub(crate) pointer: NonNull<sys::quire_memory>,
    pub(crate) address: u64,
    host: *mut u8,
    pub(crate) size_bytes: u64,
    // Only the holder of this lock enqueues work on the memory, or reads and writes it here.
    users: Mutex<Use>,
    pub(crate) device: Arc<DeviceInner>,
}

// SAFETY: objects may be shared between threads (base.h); `host` is used under the lock.
unsafe impl Send for MemoryInner {}
unsafe impl Sync for MemoryInner {}

/// The queues that were given a memory and not waited for since.
#[derive(Default)]
pub(crate) struct Use {
    queues: Vec<Arc<QueueInner>>,
    uses: u64, // in total
}

pub(crate) type Users<'a> = MutexGuard<'a, Use>;

impl MemoryInner {
    pub(crate) fn users(&self) -> Users<'_> {
        self.users.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Records that the queue has work on the memory.
    pub(crate) fn used(users: &mut Users<'_>, queue: &Queue) {
        users.uses += 1;
        if !users.queues.iter().any(|user| Arc::ptr_eq(user, &queue.inner)) {
            users.queues.push(queue.inner.clone());
        }
    }

    /// Waits until no queue works on the memory, and locks it. Others may enqueue work meanwhile.
    fn quiet(&self) -> Result<Users<'_>> {
        let mut seen = None;
        loop {
            let mut users = self.users();
            if seen == Some(users.uses) {
                users.queues.clear(); // nothing was enqueued during the wait for all of them
            }
            if users.queues.is_empty() {
                return Ok(users);
            }
            let queues = users.queues.clone();
            seen = Some(users.uses);
            drop(users);
            queues.iter().try_for_each(|queue| queue.sync())?;
        }
    }
}

impl Drop for MemoryInner {
    fn drop(&mut self) {
        let users = self.users.get_mut().unwrap_or_else(PoisonError::into_inner);
        for queue in users.queues.drain(..) {
            let waited = queue.sync();
            // A stopped queue runs nothing more. After any other error it may still be running.
            let runs_on =
                |error: Error| !matches!(error.kind(), ErrorKind::DeviceLost | ErrorKind::Forked);
            if waited.is_err_and(runs_on) {
                return; // the memory stays
            }
        }
        let _ = invoke!(self.api, memory_destroy(self.pointer.as_ptr()));
    }
}

impl Device {
    /// Allocates zeroed memory.
    pub fn memory(&self, size_bytes: u64, kind: MemoryKind) -> Result<Memory> {
        self.memory_at(size_bytes, kind, std::ptr::null_mut())
    }

    /// Imports the engine's own host memory, which copies then read and write in place. A GPU needs
    /// the pointer and the size to be multiples of a page.
    ///
    /// # Safety
    /// `[pointer, pointer + size_bytes)` stays mapped, and no one else writes to it, until the
    /// memory is dropped; and until the process ends if the device, or a queue that was given the
    /// memory, is abandoned ([`Device::abandon`], [`Queue::abandon`]).
    pub unsafe fn import_memory(&self, pointer: *mut c_void, size_bytes: u64) -> Result<Memory> {
        if pointer.is_null() {
            return Err(Error::argument("the pointer to import is NULL"));
        }
        self.memory_at(size_bytes, MemoryKind::Host, pointer)
    }

    fn memory_at(&self, size_bytes: u64, kind: MemoryKind, host: *mut c_void) -> Result<Memory> {
        let api = self.inner.api;
        let desc = desc!(quire_memory_desc {
            size_bytes: size_bytes,
            kind: match kind {
                MemoryKind::Device => sys::QUIRE_MEMORY_DEVICE,
                MemoryKind::Host => sys::QUIRE_MEMORY_HOST,
            },
            host_pointer: host,
        });
        let mut out = std::ptr::null_mut();
        invoke!(api, memory_create(self.pointer(), &desc, &mut out))?;
        let mut inner = MemoryInner {
            api,
            pointer: made(out)?,
            address: 0,
            host: std::ptr::null_mut(),
            size_bytes: 0,
            users: Mutex::default(),
            device: self.inner.clone(),
        };
        let mut info = desc!(quire_memory_info {});
        invoke!(api, memory_get_info(out, &mut info))?;
        inner.address = info.address;
        inner.host = info.host_pointer.cast();
        inner.size_bytes = info.size_bytes;
        Ok(Memory { inner: Arc::new(inner) })
    }
}

impl Memory {
    /// Returns the size.
    pub fn size_bytes(&self) -> u64 {
        self.inner.size_bytes
    }

    /// Returns the address for the arguments of kernels.
    pub fn address(&self) -> u64 {
        self.inner.address
    }

    fn at<T: Element>(&self, offset_bytes: u64, count: usize) -> Result<*mut u8> {
        self.inner.device.check_kept()?;
        if self.inner.host.is_null() {
            return Err(Error::new(
                ErrorKind::Unsupported,
                "the host cannot reach this memory: copy it to memory of MemoryKind::Host",
            ));
        }
        let wanted = (count as u64).checked_mul(size_of::<T>() as u64);
        let end = wanted.and_then(|bytes| bytes.checked_add(offset_bytes));
        if end.is_none_or(|end| end > self.inner.size_bytes) {
            return Err(Error::argument(format!(
                "{count} elements from byte {offset_bytes} on do not fit in memory of {} bytes",
                self.inner.size_bytes
            )));
        }
        // SAFETY: inside the memory, as checked above.
        Ok(unsafe { self.inner.host.add(offset_bytes as usize) })
    }

    /// Writes from the host, once the queues that were given this memory have run.
    pub fn write<T: Element>(&self, offset_bytes: u64, elements: &[T]) -> Result<()> {
        let to = self.at::<T>(offset_bytes, elements.len())?;
        let _alone = self.inner.quiet()?;
        let bytes = std::mem::size_of_val(elements);
        // SAFETY: `to` has room, no one else uses it, and it never overlaps Rust's memory.
        unsafe { std::ptr::copy_nonoverlapping(elements.as_ptr().cast::<u8>(), to, bytes) };
        Ok(())
    }

    /// Reads on the host, once the queues that were given this memory have run.
    pub fn read<T: Element>(&self, offset_bytes: u64, elements: &mut [T]) -> Result<()> {
        let from = self.at::<T>(offset_bytes, elements.len())?;
        let _alone = self.inner.quiet()?;
        let bytes = std::mem::size_of_val(elements);
        // SAFETY: as in write(); any bit pattern is an Element.
        unsafe { std::ptr::copy_nonoverlapping(from, elements.as_mut_ptr().cast::<u8>(), bytes) };
        Ok(())
    }
}

impl Queue {
    /// Enqueues a copy between two memories of the queue's device. The ranges must not overlap.
    pub fn copy(
        &self,
        target: &Memory,
        target_offset: u64,
        source: &Memory,
        source_offset: u64,
        size_bytes: u64,
    ) -> Result<()> {
        let api = self.inner.api;
        let mut locks = lock_all(&[target, source]);
        invoke!(
            api,
            memory_copy(
                self.pointer(),
                target.inner.pointer.as_ptr(),
                target_offset,
                source.inner.pointer.as_ptr(),
                source_offset,
                size_bytes,
            )
        )?;
        locks.iter_mut().for_each(|users| MemoryInner::used(users, self));
        Ok(())
    }
}

/// Locks each memory once, in the order of their addresses.
pub(crate) fn lock_all<'a>(memories: &[&'a Memory]) -> Vec<Users<'a>> {
    let mut inner: Vec<&'a MemoryInner> = memories.iter().map(|memory| &*memory.inner).collect();
    inner.sort_by_key(|memory| std::ptr::from_ref(*memory));
    inner.dedup_by_key(|memory| std::ptr::from_ref(*memory));
    inner.into_iter().map(MemoryInner::users).collect()
}

impl fmt::Debug for Memory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Memory")
            .field("address", &self.inner.address)
            .field("size_bytes", &self.inner.size_bytes)
            .finish_non_exhaustive()
    }
}
