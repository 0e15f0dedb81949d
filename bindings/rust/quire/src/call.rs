// SPDX-License-Identifier: Apache-2.0

//! Calls into the library's table, and conversions of what they pass.

use std::mem::size_of;
use std::ptr::NonNull;
use std::time::Duration;

use quire_sys as sys;

use crate::{Error, Result};

pub(crate) type Api = &'static sys::quire_api;

/// A struct of the C interface with its size set and zero in every field that is not named.
macro_rules! desc {
    ($name:ident { $($field:ident : $value:expr),* $(,)? }) => {
        quire_sys::$name {
            struct_size: std::mem::size_of::<quire_sys::$name>() as u32,
            $($field: $value,)*
            ..Default::default()
        }
    };
}
pub(crate) use desc;

/// A Rust struct with the fields of a C struct, without those that only C needs.
macro_rules! mirror {
    ($(#[$doc:meta])* $name:ident of $raw:ident { $($field:ident : $type:ty),* $(,)? }) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Default)]
        #[non_exhaustive]
        #[allow(missing_docs)] // the headers document them under these names
        pub struct $name { $(pub $field: $type,)* }

        impl From<quire_sys::$raw> for $name {
            fn from(raw: quire_sys::$raw) -> Self {
                Self { $($field: raw.$field,)* }
            }
        }
    };
}
pub(crate) use mirror;

/// Calls a function of the table; returns its status, or an error if that is a failure.
///
/// An entry is NULL only in a table that is shorter than ours, which open() refuses.
macro_rules! invoke {
    ($api:expr, $name:ident ($($argument:expr),* $(,)?)) => {{
        let function = $api.$name.expect("the table has this function");
        // SAFETY: pointers are to live objects, or to memory that outlives the call; every count
        // is that of the array beside it.
        $crate::call::judged(|error| unsafe { function($($argument,)* error) })
    }};
}
pub(crate) use invoke;

#[inline]
pub(crate) fn judged(
    run: impl FnOnce(*mut sys::quire_error) -> sys::quire_status,
) -> Result<sys::quire_status> {
    let mut error = desc!(quire_error {});
    let status = run(&mut error);
    if status < 0 {
        return Err(Error::of(status, &error));
    }
    Ok(status)
}

/// Checks the object that a call created.
pub(crate) fn made<T>(pointer: *mut T) -> Result<NonNull<T>> {
    NonNull::new(pointer).ok_or_else(|| {
        let message = "the library reported success and returned no object";
        Error::new(crate::ErrorKind::Internal, message)
    })
}

/// Converts a length to the interface's type.
pub(crate) fn count(what: &str, length: usize) -> Result<u32> {
    u32::try_from(length).map_err(|_| Error::argument(format!("too many {what}: {length}")))
}

/// The first element of a slice; NULL if it is empty.
pub(crate) fn first<T>(slice: &[T]) -> *const T {
    if slice.is_empty() {
        std::ptr::null()
    } else {
        slice.as_ptr()
    }
}

pub(crate) fn first_mut<T>(slice: &mut [T]) -> *mut T {
    if slice.is_empty() {
        std::ptr::null_mut()
    } else {
        slice.as_mut_ptr()
    }
}

pub(crate) const fn stride_of<T>() -> u32 {
    size_of::<T>() as u32
}

/// `None` waits for ever.
pub(crate) fn nanoseconds(timeout: Option<Duration>) -> u64 {
    timeout.map_or(u64::MAX, |time| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX - 1))
}

pub(crate) fn in_time(status: sys::quire_status) -> Result<sys::quire_status> {
    if status == sys::QUIRE_S_TIMEOUT {
        return Err(Error::timeout());
    }
    Ok(status)
}

/// Returns a list whose length a call reports: asks with room for `guess`, and again if that was
/// too little.
pub(crate) fn listed<T: Copy + Default>(
    guess: usize,
    mut ask: impl FnMut(*mut T, u32, &mut u32) -> Result<sys::quire_status>,
) -> Result<Vec<T>> {
    let mut list = vec![T::default(); guess];
    loop {
        let mut found = 0;
        ask(first_mut(&mut list), count("elements", list.len())?, &mut found)?;
        let found = found as usize;
        if found <= list.len() {
            list.truncate(found);
            return Ok(list);
        }
        list.resize(found, T::default());
    }
}

/// Returns bytes whose size a call reports.
pub(crate) fn bytes(
    mut ask: impl FnMut(*mut u8, u64, &mut u64) -> Result<sys::quire_status>,
) -> Result<Vec<u8>> {
    let mut content = Vec::new();
    loop {
        let mut size = 0;
        let status = ask(first_mut(&mut content), content.len() as u64, &mut size)?;
        if status != sys::QUIRE_S_INCOMPLETE {
            content.truncate(size as usize);
            return Ok(content);
        }
        content.resize(size as usize, 0);
    }
}

/// A C string for the library; a text that holds a NUL is refused.
pub(crate) fn c_text(what: &str, text: &str) -> Result<std::ffi::CString> {
    std::ffi::CString::new(text)
        .map_err(|_| Error::argument(format!("{what} holds a NUL character: {text:?}")))
}

/// Runs a callback of the engine's. No panic unwinds into C, not even from dropping its payload.
pub(crate) fn contained(run: impl FnOnce()) {
    if let Err(payload) = std::panic::catch_unwind(std::panic::AssertUnwindSafe(run)) {
        std::mem::forget(payload);
    }
}

/// Combines the flags that are set.
pub(crate) fn flags<const COUNT: usize>(list: [(bool, u32); COUNT]) -> u32 {
    list.into_iter().fold(0, |all, (is_set, flag)| if is_set { all | flag } else { all })
}
