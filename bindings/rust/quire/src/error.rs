// SPDX-License-Identifier: Apache-2.0

use std::fmt;

use quire_sys as sys;

use crate::OpenStep;

/// The result of a fallible call. A call that failed changed nothing.
pub type Result<T> = std::result::Result<T, Error>;

/// The kind of a failure.
#[non_exhaustive]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ErrorKind {
    /// An argument is wrong; the message says which and why.
    Argument,
    /// A handle is ended, of another cache, or forged; or a batch is from before a move.
    Stale,
    /// The object is in use; the message says by what.
    Busy,
    /// Not offered by this library, backend or cache.
    Unsupported,
    /// The host allocator returned no memory.
    HostMemory,
    /// The device is out of memory.
    DeviceMemory,
    /// The device failed; its caches keep their bookkeeping.
    DeviceLost,
    /// A backend is missing, damaged or broke its contract.
    Backend,
    /// The versions of the two sides are incompatible.
    Incompatible,
    /// A callback called back into the object that called it.
    Reentrant,
    /// The process forked after a device was opened.
    Forked,
    /// A stated limit would be exceeded.
    Limit,
    /// An operating system call failed; [`Error::native_code`] is its error number.
    Os,
    /// A wait ran out of time; nothing changed, except perhaps by a request to a store
    /// ([`crate::Tier::put`]).
    Timeout,
    /// A bug in the library, or a status that this crate does not know.
    Internal,
}

/// Why a call failed: what was wrong, where, and what to do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Error {
    kind: ErrorKind,
    message: String,
    backend: String,
    native_code: i64,
}

impl Error {
    pub(crate) fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        Self { kind, message: message.into(), backend: String::new(), native_code: 0 }
    }

    pub(crate) fn argument(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Argument, message)
    }

    pub(crate) fn timeout() -> Self {
        Self::new(ErrorKind::Timeout, "timed out; nothing changed")
    }

    /// An operating system call failed with this error number.
    pub(crate) fn of_system(message: impl Into<String>, native_code: i64) -> Self {
        Self { native_code, ..Self::new(ErrorKind::Os, message) }
    }

    /// The error of a writer or reader that a caller passed.
    pub(crate) fn of_io(error: &std::io::Error) -> Self {
        Self::of_system(error.to_string(), error.raw_os_error().map_or(0, i64::from))
    }

    #[cold]
    pub(crate) fn of(status: sys::quire_status, error: &sys::quire_error) -> Self {
        let kind = match status {
            sys::QUIRE_E_ARG | sys::QUIRE_E_STRUCT => ErrorKind::Argument,
            sys::QUIRE_E_STALE => ErrorKind::Stale,
            sys::QUIRE_E_BUSY => ErrorKind::Busy,
            sys::QUIRE_E_UNSUPPORTED => ErrorKind::Unsupported,
            sys::QUIRE_E_HOST_MEMORY => ErrorKind::HostMemory,
            sys::QUIRE_E_DEVICE_MEMORY => ErrorKind::DeviceMemory,
            sys::QUIRE_E_DEVICE_LOST => ErrorKind::DeviceLost,
            sys::QUIRE_E_BACKEND => ErrorKind::Backend,
            sys::QUIRE_E_INCOMPATIBLE => ErrorKind::Incompatible,
            sys::QUIRE_E_REENTRANT => ErrorKind::Reentrant,
            sys::QUIRE_E_FORKED => ErrorKind::Forked,
            sys::QUIRE_E_LIMIT => ErrorKind::Limit,
            sys::QUIRE_E_OS => ErrorKind::Os,
            _ => ErrorKind::Internal,
        };
        let said = sys::text(&error.message);
        let message = if said.is_empty() { sys::status_name(status).to_owned() } else { said };
        let backend = sys::text(&error.backend);
        Self { kind, message, backend, native_code: error.native_code }
    }

    /// Returns the kind, to match on.
    pub fn kind(&self) -> ErrorKind {
        self.kind
    }

    /// Says what was wrong, where, and what to do.
    pub fn message(&self) -> &str {
        &self.message
    }

    /// Returns the name of the backend that failed; empty if none was involved.
    pub fn backend(&self) -> &str {
        &self.backend
    }

    /// Returns the operating system's or the driver's own error number; 0 if there is none.
    pub fn native_code(&self) -> i64 {
        self.native_code
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Error {}

impl From<sys::OpenError> for Error {
    fn from(error: sys::OpenError) -> Self {
        let kind = match error.status {
            sys::QUIRE_E_OS => ErrorKind::Os,
            sys::QUIRE_E_ARG => ErrorKind::Argument,
            _ => ErrorKind::Incompatible,
        };
        Self::new(kind, error.message)
    }
}

/// Why a commit failed, and the step, which is still open. `?` drops the step, which aborts it.
#[derive(Debug)]
pub struct CommitError {
    /// `None` if a lost device undid it.
    pub step: Option<OpenStep>,
    /// Why the commit failed.
    pub error: Error,
}

impl fmt::Display for CommitError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.error.fmt(f)
    }
}

impl std::error::Error for CommitError {}

impl From<CommitError> for Error {
    fn from(error: CommitError) -> Self {
        error.error
    }
}
