// SPDX-License-Identifier: Apache-2.0

#![doc = include_str!("../README.md")]

use std::ffi::{CStr, OsStr, OsString};
use std::fmt;
use std::mem::size_of;
use std::path::Path;
use std::sync::{Mutex, PoisonError};

use libloading::os::unix::{Library, RTLD_LOCAL, RTLD_NOW};

#[cfg(not(all(unix, target_pointer_width = "64")))]
compile_error!("libquire needs a 64-bit system with dlopen");

#[allow(non_camel_case_types, non_snake_case, non_upper_case_globals)]
#[allow(missing_docs, clippy::all)]
#[rustfmt::skip]
mod declarations {
    #[cfg(feature = "buildtime-bindgen")]
    include!(concat!(env!("OUT_DIR"), "/bindings.rs"));
    #[cfg(not(feature = "buildtime-bindgen"))]
    include!("bindings.rs");
}
pub use declarations::*;

/// A fence's value after work before it failed.
pub const QUIRE_FENCE_FAILED: u64 = u64::MAX;

/// Why libquire could not be opened: what was tried, and what to do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OpenError {
    /// `QUIRE_E_OS`: no such file; `QUIRE_E_INCOMPATIBLE`: not libquire, or of another version.
    pub status: quire_status,
    /// The reason, in words.
    pub message: String,
}

impl fmt::Display for OpenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for OpenError {}

fn refuse<T>(status: i32, message: String) -> Result<T, OpenError> {
    Err(OpenError { status, message })
}

#[cfg(target_os = "linux")]
fn is_privileged() -> bool {
    const AT_SECURE: core::ffi::c_ulong = 23;
    extern "C" {
        fn getauxval(kind: core::ffi::c_ulong) -> core::ffi::c_ulong;
    }
    // SAFETY: getauxval of glibc and musl takes any number.
    unsafe { getauxval(AT_SECURE) != 0 }
}

#[cfg(not(target_os = "linux"))]
fn is_privileged() -> bool {
    false
}

fn file_of(path: Option<&Path>) -> OsString {
    let named = match path {
        Some(path) => Some(path.as_os_str().to_owned()),
        None if is_privileged() => None,
        None => std::env::var_os("QUIRE_LIBRARY"),
    };
    named.filter(|name| !name.is_empty()).unwrap_or_else(|| "libquire.so.0".into())
}

/// Opens `path`; `None`: the file that the environment variable `QUIRE_LIBRARY` names (ignored in a
/// privileged process), else `libquire.so.0` where the dynamic linker looks. The library is never
/// closed: threads and tables may outlive any point at which it could be. A process has only one:
/// once a file is open, another is refused (`QUIRE_E_ARG`).
pub fn open(path: Option<&Path>) -> Result<&'static quire_api, OpenError> {
    static OPEN: Mutex<Option<(OsString, &'static quire_api)>> = Mutex::new(None);
    let mut open = OPEN.lock().unwrap_or_else(PoisonError::into_inner);
    let file = file_of(path);
    match &*open {
        Some((other, api)) if path.is_none() || *other == file => Ok(api),
        Some((other, _)) => refuse(
            QUIRE_E_ARG,
            format!(
                "{} is already open; a process can open only one libquire",
                other.to_string_lossy()
            ),
        ),
        None => {
            let api = open_file(&file)?;
            *open = Some((file, api));
            Ok(api)
        }
    }
}

fn open_file(file: &OsStr) -> Result<&'static quire_api, OpenError> {
    let shown = file.to_string_lossy();
    // SAFETY: this runs the initialisers of the file that the user names, as opening it implies.
    let library = match unsafe { Library::open(Some(file), RTLD_NOW | RTLD_LOCAL) } {
        Ok(library) => library,
        Err(error) => {
            let advice = "set QUIRE_LIBRARY to the file's path";
            return refuse(QUIRE_E_OS, format!("cannot open {shown}: {error}; {advice}"));
        }
    };
    // SAFETY: a symbol of this name has this type.
    let get_api = match unsafe { library.get::<quire_get_api_fn>(b"quire_get_api\0") } {
        Ok(symbol) => *symbol,
        Err(_) => {
            let message = format!("{shown} has no quire_get_api: it is not libquire");
            return refuse(QUIRE_E_INCOMPATIBLE, message);
        }
    };
    std::mem::forget(library);
    ask(get_api, &shown)
}

fn ask(get_api: quire_get_api_fn, file: &str) -> Result<&'static quire_api, OpenError> {
    let mut error =
        quire_error { struct_size: size_of::<quire_error>() as u32, ..Default::default() };
    let mut api: *const quire_api = std::ptr::null();
    let Some(get_api) = get_api else {
        return refuse(QUIRE_E_INCOMPATIBLE, format!("{file}: quire_get_api is null"));
    };
    // SAFETY: both outlive the call.
    let status = unsafe { get_api(QUIRE_VERSION_MAJOR, QUIRE_VERSION_MINOR, &mut api, &mut error) };
    if status < 0 {
        return refuse(status, format!("{file}: {}", text(&error.message)));
    }
    // SAFETY: constant memory of the library, which is never closed. Only the head is read, which a
    // shorter table has too.
    let size = unsafe { (*api).struct_size } as usize;
    if size < size_of::<quire_api>() {
        let wanted = size_of::<quire_api>();
        let message =
            format!("{file} is older than this crate: its table has {size} bytes, not {wanted}");
        return refuse(QUIRE_E_INCOMPATIBLE, message);
    }
    // SAFETY: as above, and it is long enough.
    Ok(unsafe { &*api })
}

/// Returns the text in a C array of characters, up to its NUL, or all of it if there is none.
pub fn text(characters: &[core::ffi::c_char]) -> String {
    // SAFETY: characters are bytes.
    let bytes =
        unsafe { std::slice::from_raw_parts(characters.as_ptr().cast::<u8>(), characters.len()) };
    CStr::from_bytes_until_nul(bytes).map_or_else(
        |_| String::from_utf8_lossy(bytes).into_owned(),
        |text| text.to_string_lossy().into_owned(),
    )
}

/// Returns the name of a status, such as `QUIRE_E_STALE`.
pub fn status_name(status: quire_status) -> &'static str {
    match status {
        QUIRE_OK => "QUIRE_OK",
        QUIRE_S_INCOMPLETE => "QUIRE_S_INCOMPLETE",
        QUIRE_S_NO_BLOCKS => "QUIRE_S_NO_BLOCKS",
        QUIRE_S_TIMEOUT => "QUIRE_S_TIMEOUT",
        QUIRE_E_ARG => "QUIRE_E_ARG",
        QUIRE_E_STALE => "QUIRE_E_STALE",
        QUIRE_E_BUSY => "QUIRE_E_BUSY",
        QUIRE_E_UNSUPPORTED => "QUIRE_E_UNSUPPORTED",
        QUIRE_E_STRUCT => "QUIRE_E_STRUCT",
        QUIRE_E_HOST_MEMORY => "QUIRE_E_HOST_MEMORY",
        QUIRE_E_DEVICE_MEMORY => "QUIRE_E_DEVICE_MEMORY",
        QUIRE_E_DEVICE_LOST => "QUIRE_E_DEVICE_LOST",
        QUIRE_E_BACKEND => "QUIRE_E_BACKEND",
        QUIRE_E_INCOMPATIBLE => "QUIRE_E_INCOMPATIBLE",
        QUIRE_E_REENTRANT => "QUIRE_E_REENTRANT",
        QUIRE_E_FORKED => "QUIRE_E_FORKED",
        QUIRE_E_LIMIT => "QUIRE_E_LIMIT",
        QUIRE_E_OS => "QUIRE_E_OS",
        QUIRE_E_INTERNAL => "QUIRE_E_INTERNAL",
        _ => "unknown status",
    }
}
