// SPDX-License-Identifier: Apache-2.0

use std::ffi::{c_char, c_void, CStr};
use std::fmt;
use std::mem::ManuallyDrop;
use std::panic::RefUnwindSafe;
use std::path::{Path, PathBuf};
use std::ptr::NonNull;
use std::sync::Arc;

use quire_sys as sys;

use crate::call::{c_text, contained, desc, invoke, made, Api};
use crate::{Error, Result};

/// Severity of a log message.
#[non_exhaustive]
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum LogLevel {
    /// Something failed.
    Error,
    /// Something is not as it should be.
    Warning,
    /// Something worth knowing.
    Info,
}

type Log = dyn Fn(LogLevel, &str, &str) + Send + Sync;

/// How an instance is created.
#[derive(Default)]
pub struct InstanceOptions<'a> {
    /// Path of libquire; `None`: as [`quire_sys::open`] finds it. A process opens only one file.
    pub libquire: Option<&'a Path>,
    /// Colon-separated directories, searched for backends before all others.
    pub plugin_path: Option<&'a str>,
    /// Receives level, component and message, from any thread. If it panics, the message is lost.
    pub log: Option<Box<Log>>,
}

/// A backend that was found, even if it did not load.
#[derive(Debug, Clone)]
pub struct BackendInfo {
    /// Its name, such as "cpu".
    pub name: String,
    /// Its version.
    pub version: String,
    /// Path of its file.
    pub path: PathBuf,
    /// How many devices it has.
    pub device_count: usize,
    /// Why it did not load; `None`: it loaded.
    pub error: Option<String>,
}

/// Holds the backends that were found. Everything else is created from it. Clones are the same
/// instance.
///
/// ```
/// let instance = quire::Instance::new()?;
/// assert!(instance.backends()?.iter().any(|backend| backend.name == "cpu"));
/// # Ok::<(), quire::Error>(())
/// ```
#[derive(Clone)]
pub struct Instance {
    pub(crate) inner: Arc<InstanceInner>,
}

pub(crate) struct InstanceInner {
    pub(crate) api: Api,
    pub(crate) pointer: NonNull<sys::quire_instance>,
    log: ManuallyDrop<Option<Box<Box<Log>>>>, // the library has its address
}

// SAFETY: "Objects. Each may be shared between threads and destroyed from any of them." (base.h).
unsafe impl Send for InstanceInner {}
unsafe impl Sync for InstanceInner {}
// A panic in the engine's callback is caught before it gets here.
impl RefUnwindSafe for InstanceInner {}

impl Drop for InstanceInner {
    fn drop(&mut self) {
        // No children are left, because they hold it. If it stays all the same, so does the hook.
        if invoke!(self.api, instance_destroy(self.pointer.as_ptr())).is_ok() {
            // SAFETY: this runs once, and the hook is no longer called.
            unsafe { ManuallyDrop::drop(&mut self.log) };
        }
    }
}

unsafe extern "C" fn log(
    user: *mut c_void,
    level: i32,
    component: *const c_char,
    message: *const c_char,
) {
    // A panic must not unwind into C.
    contained(|| {
        // SAFETY: `user` is what instance() passed, which lives as long as the instance; both texts
        // end in NUL and live until the call returns.
        let (log, component, message) = unsafe {
            (&*user.cast::<Box<Log>>(), CStr::from_ptr(component), CStr::from_ptr(message))
        };
        let level = match level as u32 {
            sys::QUIRE_LOG_ERROR => LogLevel::Error,
            sys::QUIRE_LOG_WARNING => LogLevel::Warning,
            _ => LogLevel::Info,
        };
        log(level, &component.to_string_lossy(), &message.to_string_lossy());
    });
}

impl Instance {
    /// Opens libquire where [`quire_sys::open`] finds it, and looks for backends.
    pub fn new() -> Result<Self> {
        Self::with(InstanceOptions::default())
    }

    /// As [`Instance::new`], with options.
    pub fn with(options: InstanceOptions<'_>) -> Result<Self> {
        let api = sys::open(options.libquire)?;
        let plugin_path =
            options.plugin_path.map(|path| c_text("plugin_path", path)).transpose()?;
        let hook = options.log.map(Box::new);
        let mut desc = desc!(quire_instance_desc {});
        if let Some(path) = &plugin_path {
            desc.plugin_path = path.as_ptr();
        }
        if let Some(hook) = &hook {
            desc.log = Some(log);
            desc.log_user = std::ptr::from_ref::<Box<Log>>(hook).cast_mut().cast();
        }
        let mut out = std::ptr::null_mut();
        invoke!(api, instance_create(&desc, &mut out))?;
        let inner = InstanceInner { api, pointer: made(out)?, log: ManuallyDrop::new(hook) };
        Ok(Self { inner: Arc::new(inner) })
    }

    /// Lists the backends that were found, and why any of them did not load.
    pub fn backends(&self) -> Result<Vec<BackendInfo>> {
        let mut count = 0;
        invoke!(self.inner.api, backend_count(self.pointer(), &mut count))?;
        (0..count).map(|index| self.backend(index)).collect()
    }

    fn backend(&self, index: u32) -> Result<BackendInfo> {
        let mut info = desc!(quire_backend_info {});
        invoke!(self.inner.api, backend_get_info(self.pointer(), index, &mut info))?;
        let message = sys::text(&info.message);
        Ok(BackendInfo {
            name: sys::text(&info.name),
            version: sys::text(&info.version),
            path: PathBuf::from(sys::text(&info.path)),
            device_count: info.device_count as usize,
            error: (info.status < 0).then_some(message),
        })
    }

    /// Loads a backend by absolute path. It stays loaded until the process ends. Its file must be
    /// one that only this user or root can write or replace.
    pub fn load_backend(&self, path: &Path) -> Result<BackendInfo> {
        let text = path
            .to_str()
            .ok_or_else(|| Error::argument(format!("{} is not UTF-8", path.display())))?;
        let text = c_text("path", text)?;
        let mut index = 0;
        invoke!(self.inner.api, backend_load(self.pointer(), text.as_ptr(), &mut index))?;
        self.backend(index)
    }

    pub(crate) fn pointer(&self) -> *mut sys::quire_instance {
        self.inner.pointer.as_ptr()
    }
}

impl fmt::Debug for Instance {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Instance").finish_non_exhaustive()
    }
}
