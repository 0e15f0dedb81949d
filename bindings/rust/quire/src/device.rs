// SPDX-License-Identifier: Apache-2.0

use std::ffi::c_void;
use std::fmt;
use std::marker::PhantomData;
use std::mem::ManuallyDrop;
use std::panic::RefUnwindSafe;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;

use quire_sys as sys;

use crate::call::{c_text, contained, count, desc, flags, invoke, made, Api};
use crate::instance::InstanceInner;
use crate::{Error, ErrorKind, Instance, Result};

/// Tasks that may run at the same time, each once: see [`DeviceOptions::run_tasks`].
pub struct Tasks<'a> {
    count: u32,
    task: unsafe extern "C" fn(*mut c_void, u32),
    context: *mut c_void,
    lifetime: PhantomData<&'a ()>,
}

// SAFETY: "in any order, on any threads, concurrently or not" (device.h).
unsafe impl Send for Tasks<'_> {}
unsafe impl Sync for Tasks<'_> {}

impl Tasks<'_> {
    /// Returns the number of tasks.
    pub fn count(&self) -> usize {
        self.count as usize
    }

    /// Runs one task. A task that is left out or runs twice stops the device's queues.
    ///
    /// # Panics
    /// If there is no such task.
    pub fn run(&self, index: usize) {
        assert!(index < self.count(), "no task {index}: there are {}", self.count);
        // SAFETY: the lifetime 'a ends when the library's call does.
        unsafe { (self.task)(self.context, index as u32) }
    }
}

type RunTasks = dyn Fn(&Tasks<'_>) + Send + Sync;

/// Which device to open, and how its kernels run. The default is the first device that is found.
#[derive(Default)]
pub struct DeviceOptions<'a> {
    /// The backend's name, such as "cpu"; `None`: the first backend that has a device.
    pub backend: Option<&'a str>,
    /// Which of that backend's devices.
    pub index: usize,
    /// Threads that run a kernel; 0: one per core. Like `pin_threads` and `run_tasks`, only for
    /// backends that compute on the host.
    pub threads: usize,
    /// Keeps each thread on one core; not together with `run_tasks`.
    pub pin_threads: bool,
    /// Lets attention over f16 and bf16 use instructions that multiply 16-bit elements, which
    /// changes the last bits of its results; [`DeviceInfo::is_fast_16bit`] says whether the device
    /// has them.
    pub fast_16bit: bool,
    /// Calls that enqueue work run it themselves, which spares small kernels two changes of thread;
    /// not together with `run_tasks`.
    pub inline: bool,
    /// Runs kernels on the engine's own threads: it is called from a thread of the library's, runs
    /// every task once, and returns. It must not wait for this device, nor drop anything that waits
    /// for it. If it panics, tasks are left out, which stops the device's queues: calls on them are
    /// [`crate::ErrorKind::DeviceLost`].
    pub run_tasks: Option<Box<RunTasks>>,
}

/// Describes a device.
#[derive(Debug, Clone)]
pub struct DeviceInfo {
    /// The device's name.
    pub name: String,
    /// The backend's name.
    pub backend: String,
    /// Size of all memory.
    pub memory_total_bytes: u64,
    /// Size of the memory that is free now.
    pub memory_free_bytes: u64,
    /// Best alignment of copies.
    pub copy_alignment: usize,
    /// Device addresses are host pointers.
    pub is_host_visible: bool,
    /// Attention multiplies 16-bit elements: it was allowed, and the device can.
    pub is_fast_16bit: bool,
}

/// An open device. Clones are the same device; it closes when the last clone, and the last object
/// made from it, is dropped.
#[derive(Clone)]
pub struct Device {
    pub(crate) inner: Arc<DeviceInner>,
}

pub(crate) struct DeviceInner {
    pub(crate) api: Api,
    pub(crate) pointer: NonNull<sys::quire_device>,
    run_tasks: ManuallyDrop<Option<Box<Box<RunTasks>>>>, // the library has its address
    pub(crate) is_abandoned: AtomicBool,
    _instance: Arc<InstanceInner>,
}

// SAFETY: objects may be shared between threads (base.h).
unsafe impl Send for DeviceInner {}
unsafe impl Sync for DeviceInner {}
// A panic in the engine's callback is caught before it gets here.
impl RefUnwindSafe for DeviceInner {}

impl DeviceInner {
    /// [`ErrorKind::Stale`] after an abandon.
    pub(crate) fn check_kept(&self) -> Result<()> {
        if self.is_abandoned.load(Ordering::Acquire) {
            return Err(Error::new(ErrorKind::Stale, "the device was abandoned"));
        }
        Ok(())
    }
}

impl Drop for DeviceInner {
    fn drop(&mut self) {
        // If the device stays open, its threads may still call the hook.
        if invoke!(self.api, device_close(self.pointer.as_ptr())).is_ok() {
            // SAFETY: this runs once, and the hook is no longer called.
            unsafe { ManuallyDrop::drop(&mut self.run_tasks) };
        }
    }
}

unsafe extern "C" fn run_tasks(
    user: *mut c_void,
    count: u32,
    task: sys::quire_task,
    context: *mut c_void,
) {
    let Some(task) = task else { return };
    // A panic must not unwind into C. The library notices the tasks that it left out.
    contained(|| {
        // SAFETY: `user` is what open_device() passed, which lives as long as the device.
        let run = unsafe { &*user.cast::<Box<RunTasks>>() };
        run(&Tasks { count, task, context, lifetime: PhantomData });
    });
}

impl Instance {
    /// Opens a device. From then on calls in a forked child are [`crate::ErrorKind::Forked`].
    pub fn open_device(&self, options: DeviceOptions<'_>) -> Result<Device> {
        let backend = options.backend.map(|name| c_text("backend", name)).transpose()?;
        let hook = options.run_tasks.map(Box::new);
        let mut desc = desc!(quire_device_desc {
            flags: flags([
                (options.pin_threads, sys::QUIRE_DEVICE_PIN_THREADS),
                (options.fast_16bit, sys::QUIRE_DEVICE_FAST_16BIT),
                (options.inline, sys::QUIRE_DEVICE_INLINE),
            ]),
            index: count("devices", options.index)?,
            threads: count("threads", options.threads)?,
        });
        if let Some(name) = &backend {
            desc.backend = name.as_ptr();
        }
        if let Some(hook) = &hook {
            desc.run_tasks = Some(run_tasks);
            desc.run_tasks_user = std::ptr::from_ref::<Box<RunTasks>>(hook).cast_mut().cast();
        }
        let mut out = std::ptr::null_mut();
        invoke!(self.inner.api, device_open(self.pointer(), &desc, &mut out))?;
        let inner = DeviceInner {
            api: self.inner.api,
            pointer: made(out)?,
            run_tasks: ManuallyDrop::new(hook),
            is_abandoned: AtomicBool::new(false),
            _instance: self.inner.clone(),
        };
        Ok(Device { inner: Arc::new(inner) })
    }
}

impl Device {
    /// Describes the device, as of now.
    pub fn info(&self) -> Result<DeviceInfo> {
        let mut info = desc!(quire_device_info {});
        invoke!(self.inner.api, device_get_info(self.pointer(), &mut info))?;
        Ok(DeviceInfo {
            name: sys::text(&info.name),
            backend: sys::text(&info.backend),
            memory_total_bytes: info.memory_total_bytes,
            memory_free_bytes: info.memory_free_bytes,
            copy_alignment: info.copy_alignment as usize,
            is_host_visible: info.host_visible != 0,
            is_fast_16bit: info.flags & sys::QUIRE_DEVICE_FAST_16BIT != 0,
        })
    }

    pub(crate) fn pointer(&self) -> *mut sys::quire_device {
        self.inner.pointer.as_ptr()
    }
}

impl fmt::Debug for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Device").finish_non_exhaustive()
    }
}
