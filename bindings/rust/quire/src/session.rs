// SPDX-License-Identifier: Apache-2.0

use std::any::Any;
use std::ffi::{c_void, CString};
use std::io::{Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::panic::{catch_unwind, resume_unwind, AssertUnwindSafe};
use std::path::Path;
use std::time::Duration;

use quire_sys as sys;

use crate::call::{desc, in_time, invoke, nanoseconds};
#[cfg(doc)]
use crate::ErrorKind;
use crate::{Cache, Error, Result, Sequence, SequenceOptions};

/// Whose a session is. An import must give what the export gave.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SessionIdentity {
    /// Names the weights, and all else that decides K and V.
    pub fingerprint: [u8; 32],
    /// Names the tenant; zeros: the default one.
    pub name_space: [u8; 32],
}

/// What a session holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct SessionInfo {
    /// Its tokens.
    pub known_tokens: u32,
    /// Those of them whose K and V it holds.
    pub computed_tokens: u32,
    /// Its blocks, over all groups.
    pub blocks: u64,
    /// Its size.
    pub size_bytes: u64,
}

/// A writer or reader that the library uses through a callback, and how it ended.
struct Stream<T> {
    inner: T,
    error: Option<std::io::Error>,
    panic: Option<Box<dyn Any + Send>>,
}

impl<T> Stream<T> {
    fn new(inner: T) -> Self {
        Self { inner, error: None, panic: None }
    }

    fn user(&mut self) -> *mut c_void {
        (self as *mut Self).cast()
    }

    /// Runs what uses the stream. No panic unwinds into C.
    fn run(&mut self, run: impl FnOnce(&mut T) -> std::io::Result<()>) -> sys::quire_status {
        let inner = &mut self.inner;
        match catch_unwind(AssertUnwindSafe(|| run(inner))) {
            Ok(Ok(())) => return sys::QUIRE_OK,
            Ok(Err(error)) => self.error = Some(error),
            Err(panic) => self.panic = Some(panic),
        }
        sys::QUIRE_E_OS
    }

    /// Goes on with the stream's panic, or returns its error instead of the call's result.
    fn judged<R>(self, result: Result<R>) -> Result<R> {
        if let Some(panic) = self.panic {
            resume_unwind(panic);
        }
        match self.error {
            Some(error) => Err(Error::of_io(&error)),
            None => result,
        }
    }
}

unsafe extern "C" fn write<W: Write>(
    user: *mut c_void,
    bytes: *const c_void,
    size_bytes: u64,
) -> sys::quire_status {
    // SAFETY: `user` is the Stream of a call that has not returned, which only this uses; the
    // bytes are readable during the call.
    let (stream, bytes) = unsafe {
        let bytes = std::slice::from_raw_parts(bytes.cast::<u8>(), size_bytes as usize);
        (&mut *user.cast::<Stream<W>>(), bytes)
    };
    stream.run(|writer| writer.write_all(bytes))
}

unsafe extern "C" fn read<R: Read>(
    user: *mut c_void,
    bytes: *mut c_void,
    size_bytes: u64,
) -> sys::quire_status {
    // SAFETY: as in `write`; the library made a buffer of this size, and initialises it here.
    let (stream, bytes) = unsafe {
        std::ptr::write_bytes(bytes.cast::<u8>(), 0, size_bytes as usize);
        let bytes = std::slice::from_raw_parts_mut(bytes.cast::<u8>(), size_bytes as usize);
        (&mut *user.cast::<Stream<R>>(), bytes)
    };
    stream.run(|reader| reader.read_exact(bytes))
}

fn c_path(path: &Path) -> Result<CString> {
    CString::new(path.as_os_str().as_bytes())
        .map_err(|_| Error::argument(format!("the path holds a NUL character: {path:?}")))
}

impl Sequence {
    /// Writes the sequence's session: its tokens, K and V. Steps go on meanwhile, but none takes
    /// this sequence. The timeout is for its last step; [`ErrorKind::Timeout`] says that nothing
    /// was written. An error of the writer is [`ErrorKind::Os`]; a panic goes on here.
    pub fn export<W: Write>(
        &self,
        to: W,
        identity: &SessionIdentity,
        timeout: Option<Duration>,
    ) -> Result<SessionInfo> {
        let mut stream = Stream::new(to);
        let desc = desc!(quire_export_desc {
            fingerprint: identity.fingerprint,
            name_space: identity.name_space,
            write: Some(write::<W>),
            user: stream.user(),
        });
        let mut info = desc!(quire_session_info {});
        let (cache, limit) = (&self.cache, nanoseconds(timeout));
        let done = invoke!(
            cache.api,
            seq_export_wait(cache.pointer(), self.handle(), &desc, &mut info, limit)
        );
        stream.judged(done).and_then(in_time)?;
        Ok(SessionInfo::new(&info))
    }

    /// Exports into a file of its own, which takes the place of `path` only when it is whole and on
    /// the disk. Others may not read it.
    pub fn save(
        &self,
        path: impl AsRef<Path>,
        identity: &SessionIdentity,
        timeout: Option<Duration>,
    ) -> Result<SessionInfo> {
        let path = c_path(path.as_ref())?;
        let desc = desc!(quire_export_desc {
            fingerprint: identity.fingerprint,
            name_space: identity.name_space,
        });
        let mut info = desc!(quire_session_info {});
        let (cache, limit, to) = (&self.cache, nanoseconds(timeout), path.as_ptr());
        invoke!(
            cache.api,
            seq_save_wait(cache.pointer(), self.handle(), &desc, to, &mut info, limit)
        )
        .and_then(in_time)?;
        Ok(SessionInfo::new(&info))
    }
}

impl SessionInfo {
    fn new(raw: &sys::quire_session_info) -> Self {
        Self {
            known_tokens: raw.known_tokens,
            computed_tokens: raw.computed_tokens,
            blocks: raw.blocks,
            size_bytes: raw.size_bytes,
        }
    }
}

impl Cache {
    /// Creates a sequence from a session. It lies in the host tier, and the next step that runs it
    /// brings it to the device. The options' keys and `cross_tokens` must be those of the exported
    /// one. `None`: the host tier is short of blocks. A session that is damaged, or of another
    /// cache or identity, is refused. An error of the reader is [`ErrorKind::Os`]; a panic goes on
    /// here.
    pub fn import<R: Read>(
        &self,
        from: R,
        identity: &SessionIdentity,
        options: SequenceOptions<'_>,
    ) -> Result<Option<Sequence>> {
        let mut stream = Stream::new(from);
        let user = stream.user();
        let made = self.sequence_by(options, |seq, handle| {
            let desc = desc!(quire_import_desc {
                fingerprint: identity.fingerprint,
                name_space: identity.name_space,
                seq: seq,
                read: Some(read::<R>),
                user: user,
            });
            let (cache, info) = (&self.inner, std::ptr::null_mut());
            invoke!(cache.api, seq_import(cache.pointer(), &desc, handle, info))
        });
        stream.judged(made)
    }

    /// Imports a file that [`Sequence::save`] wrote.
    pub fn restore(
        &self,
        path: impl AsRef<Path>,
        identity: &SessionIdentity,
        options: SequenceOptions<'_>,
    ) -> Result<Option<Sequence>> {
        let path = c_path(path.as_ref())?;
        self.sequence_by(options, |seq, handle| {
            let desc = desc!(quire_import_desc {
                fingerprint: identity.fingerprint,
                name_space: identity.name_space,
                seq: seq,
            });
            let (cache, info) = (&self.inner, std::ptr::null_mut());
            invoke!(cache.api, seq_restore(cache.pointer(), &desc, path.as_ptr(), handle, info))
        })
    }
}
