// SPDX-License-Identifier: Apache-2.0

use std::fmt;
use std::io::{self, Read, Write};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use quire_sys as sys;

use crate::cache::CacheInner;
use crate::call::{count, desc, first, first_mut, invoke};
use crate::sequence::{described, NamespaceInner};
#[cfg(doc)]
use crate::ErrorKind;
use crate::{Cache, Error, Result, Sequence, SequenceOptions, SessionIdentity, Step, Token};

/// The tokens to send, and memory for them: `quire_handover_send_desc` of handover.h.
#[derive(Debug, Clone, Copy, Default)]
pub struct SendOptions<'a> {
    /// The tokens to hand over: the prompt, of which the sequence need not have computed more than
    /// a part yet. `None`: the tokens that the sequence knows.
    pub tokens: Option<&'a [Token]>,
    /// Host memory, on each shard, for K and V that wait to be read; raised to one block's. 0: 32
    /// MiB.
    pub staging_bytes: u64,
}

/// How far a hand-over is: `quire_handover_progress` of handover.h.
#[must_use = "bytes says how many came or went"]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct HandoverProgress {
    /// Bytes that this call gave or took.
    pub bytes: usize,
    /// Tokens to be handed over; 0: not known yet.
    pub token_count: u32,
    /// The last byte was read, or was taken and all is right.
    pub is_whole: bool,
    /// A receiver's host tier is short of blocks now.
    pub is_short: bool,
    /// Layers of blocks to be handed over, over all groups.
    pub cells: u64,
    /// Those of them that were made into bytes, or taken.
    pub cells_done: u64,
    /// Bytes read or taken so far.
    pub size_bytes: u64,
}

impl HandoverProgress {
    fn new(bytes: u64, raw: &sys::quire_handover_progress, status: sys::quire_status) -> Self {
        Self {
            bytes: bytes as usize,
            token_count: raw.token_count,
            is_whole: raw.is_whole != 0,
            is_short: status == sys::QUIRE_S_NO_BLOCKS,
            cells: raw.cells,
            cells_done: raw.cells_done,
            size_bytes: raw.size_bytes,
        }
    }
}

/// One end of a hand-over, which ends when it is dropped.
struct End {
    cache: Arc<CacheInner>,
    handle: sys::quire_handover,
    is_ended: AtomicBool,
}

impl End {
    fn new(cache: &Arc<CacheInner>, handle: sys::quire_handover) -> Self {
        Self { cache: cache.clone(), handle, is_ended: AtomicBool::new(false) }
    }

    fn end(&self) -> Result<()> {
        invoke!(self.cache.api, handover_end(self.cache.pointer(), self.handle))?;
        self.is_ended.store(true, Ordering::Release);
        self.cache.end_what_is_dropped(); // the sequence was kept until now
        Ok(())
    }
}

impl Drop for End {
    fn drop(&mut self) {
        if !self.is_ended.load(Ordering::Acquire) {
            let _ = self.end();
        }
    }
}

/// Sleeps until the next try of a call that returns at once: shorter at first than a layer takes,
/// and never longer than a step.
#[derive(Default)]
struct Patience(Duration);

impl Patience {
    fn sleep(&mut self) {
        self.0 = (self.0 * 2).clamp(Duration::from_micros(20), Duration::from_millis(1));
        std::thread::sleep(self.0);
    }
}

/// The end of a hand-over that computes the sequence. Its bytes go to a [`Receiver`], over a
/// connection or however the engine likes, in whatever pieces.
///
/// [`Sender::poll`] never waits. As a [`Read`], also by reference, the sender waits until there are
/// bytes, so that a thread can copy it to a connection while another one runs the steps:
///
/// ```no_run
/// # fn f(sequence: quire::Sequence, prompt: &[u32], mut connection: std::net::TcpStream,
/// #      run_the_steps: impl Fn(&quire::Sender)) -> std::io::Result<()> {
/// # let identity = quire::SessionIdentity::default();
/// let options = quire::SendOptions { tokens: Some(prompt), ..Default::default() };
/// let sender = sequence.send(&identity, options).map_err(std::io::Error::other)?;
/// std::thread::scope(|scope| {
///     let copied = scope.spawn(|| std::io::copy(&mut &sender, &mut connection));
///     run_the_steps(&sender); // each calls Sender::layers
///     copied.join().unwrap()
/// })?;
/// # Ok(()) }
/// ```
///
/// Dropping it ends it, and leaves the sequence as it is. While it lives, its cache cannot be
/// migrated. Bytes that two threads read are torn apart.
pub struct Sender {
    end: End,
}

/// The end of a hand-over that goes on with the sequence.
///
/// [`Receiver::take`] never waits. As a [`Write`], also by reference, the receiver waits while the
/// host tier is short of blocks, and takes 0 bytes after the end of the hand-over.
///
/// Dropping it ends it, and what came of the sequence is gone: [`Receiver::into_sequence`] returns
/// a sequence that is whole. While it lives, its cache cannot be migrated.
///
/// ```compile_fail
/// # fn f(receiver: quire::Receiver) -> quire::Result<()> {
/// let sequence = receiver.into_sequence();
/// receiver.take(&[1])?; // it is gone
/// # Ok(()) }
/// ```
pub struct Receiver {
    end: End, // ends before the sequence does
    received: Mutex<Received>,
    namespace: Option<Arc<NamespaceInner>>,
}

#[derive(Default)]
struct Received {
    is_whole: bool,
    sequence: Option<Sequence>,
}

impl Sequence {
    /// Begins to hand the sequence over, at any time between its creation and its end; the receiver
    /// must give the same identity. Several hand-overs may go on at a time, one per sequence.
    ///
    /// [`ErrorKind::Argument`]: no token is to be handed over, one is unknown, or they are not
    /// those that the sequence knows. [`ErrorKind::Busy`]: it is being handed over, exported or
    /// imported already. [`ErrorKind::Unsupported`]: the cache has no memory, or leads or follows
    /// others.
    pub fn send(&self, identity: &SessionIdentity, options: SendOptions<'_>) -> Result<Sender> {
        if options.tokens.is_some_and(<[Token]>::is_empty) {
            let message = "tokens is empty: None stands for those that the sequence knows";
            return Err(Error::argument(message));
        }
        let tokens = options.tokens.unwrap_or(&[]);
        let desc = desc!(quire_handover_send_desc {
            fingerprint: identity.fingerprint,
            name_space: identity.name_space,
            tokens: first(tokens),
            token_count: count("tokens", tokens.len())?,
            staging_bytes: options.staging_bytes,
        });
        let (cache, mut handle) = (&self.cache, 0);
        invoke!(cache.api, handover_send(cache.pointer(), self.handle(), &desc, &mut handle))?;
        Ok(Sender { end: End::new(cache, handle) })
    }
}

impl Sender {
    /// Says that K and V of layers [`first`, `first + count`) of the model, which the step computes
    /// of the sequence, are enqueued on the step's queues. They are then copied while the step goes
    /// on. Without such calls everything is copied after the sequence's last step.
    ///
    /// [`ErrorKind::Argument`]: the sequence is not in the step, or there are no such layers.
    /// [`ErrorKind::Busy`]: a later step has the sequence. [`ErrorKind::DeviceLost`]: the hand-over
    /// has failed; the step has not.
    ///
    /// ```compile_fail
    /// # fn f(sender: quire::Sender, step: quire::OpenStep) -> quire::Result<()> {
    /// sender.layers(&step, 0, 1) // it is not committed
    /// # }
    /// ```
    pub fn layers(&self, step: &Step, first: u32, count: u32) -> Result<()> {
        let End { cache, handle, .. } = &self.end;
        if !Arc::ptr_eq(&step.cache, cache) {
            return Err(Error::argument("the step belongs to another cache"));
        }
        invoke!(cache.api, handover_layers(cache.pointer(), *handle, step.handle, first, count))
            .map(drop)
    }

    /// Copies the next bytes into `buffer`, as many as there are now: 0 while the device still
    /// computes, and after the last byte, which the progress tells apart. Any part of the stream
    /// fits into any buffer.
    ///
    /// [`ErrorKind::Stale`]: the sequence was ended, or lost tokens that were sent.
    /// [`ErrorKind::Argument`]: it has other tokens than those to be handed over, or went so far
    /// that a window has passed them. [`ErrorKind::DeviceLost`]: a copy failed.
    /// [`ErrorKind::Unsupported`]: it was computed before [`Cache::reset`]. A hand-over that failed
    /// stays so.
    pub fn poll(&self, buffer: &mut [u8]) -> Result<HandoverProgress> {
        let End { cache, handle, .. } = &self.end;
        let (mut size, mut raw) = (0, desc!(quire_handover_progress {}));
        let (to, capacity) = (first_mut(buffer).cast(), buffer.len() as u64);
        let status = invoke!(
            cache.api,
            handover_read(cache.pointer(), *handle, to, capacity, &mut size, &mut raw)
        )?;
        Ok(HandoverProgress::new(size, &raw, status))
    }

    /// Ends the hand-over now, as dropping it does, and leaves the sequence as it is. A read that
    /// waits in another thread fails; so do later calls, with [`ErrorKind::Stale`].
    pub fn end(&self) -> Result<()> {
        self.end.end()
    }
}

impl Read for &Sender {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let mut patience = Patience::default();
        loop {
            let progress = self.poll(buffer).map_err(io::Error::other)?;
            if progress.bytes != 0 || progress.is_whole || buffer.is_empty() {
                return Ok(progress.bytes);
            }
            patience.sleep();
        }
    }
}

impl Read for Sender {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        (&*self).read(buffer)
    }
}

impl Cache {
    /// Begins to receive a sequence, which counts as one from now on. The identity, and the
    /// options' keys and `cross_tokens`, must be those of the sent one; so must the tokens, the
    /// prompt, unless they are `None`. [`ErrorKind::Limit`]: 4,096 hand-overs go on, or as for
    /// [`Cache::sequence`]. [`ErrorKind::Unsupported`]: the cache has no memory, or leads or
    /// follows others.
    pub fn receive(
        &self,
        identity: &SessionIdentity,
        tokens: Option<&[Token]>,
        options: SequenceOptions<'_>,
    ) -> Result<Receiver> {
        let (namespace, keys) = self.scope(options.namespace, options.keys)?;
        let seq = described(&options, namespace.as_ref(), &keys)?;
        let tokens = tokens.unwrap_or(&[]);
        let desc = desc!(quire_handover_receive_desc {
            fingerprint: identity.fingerprint,
            name_space: identity.name_space,
            seq: &seq,
            tokens: first(tokens),
            token_count: count("tokens", tokens.len())?,
        });
        let (cache, mut handle) = (&self.inner, 0);
        invoke!(cache.api, handover_receive(cache.pointer(), &desc, &mut handle))?;
        Ok(Receiver { end: End::new(cache, handle), received: Mutex::default(), namespace })
    }
}

impl Receiver {
    /// Takes the next bytes, cut anywhere. It takes fewer after the last byte of the hand-over,
    /// where the rest belongs to whatever comes next; and where the progress is short, because the
    /// host tier lacks blocks now: give the rest again later, or drop the receiver.
    ///
    /// [`ErrorKind::Argument`]: the bytes are damaged, cut, or of another model, tenant, prompt or
    /// cache.
    /// The hand-over gave back all that it held, and stays failed.
    pub fn take(&self, bytes: &[u8]) -> Result<HandoverProgress> {
        let End { cache, handle, .. } = &self.end;
        let (mut used, mut raw) = (0, desc!(quire_handover_progress {}));
        let (from, size) = (first(bytes).cast(), bytes.len() as u64);
        let status = invoke!(
            cache.api,
            handover_write(cache.pointer(), *handle, from, size, &mut used, &mut raw)
        )?;
        if raw.seq != 0 {
            let mut received = self.received.lock().unwrap_or_else(PoisonError::into_inner);
            if !received.is_whole {
                let sequence = Sequence::new(cache, raw.seq, self.namespace.clone());
                *received = Received { is_whole: true, sequence: Some(sequence) };
            }
        }
        Ok(HandoverProgress::new(used, &raw, status))
    }

    /// Ends the hand-over and returns the sequence; `None`: not all of it has come.
    ///
    /// It is in the host tier, as after [`Cache::import`]: the next step that runs it brings it to
    /// the device. An engine that wants the logits of the last token shortens it by one token and
    /// computes that one again.
    pub fn into_sequence(self) -> Option<Sequence> {
        self.received.into_inner().unwrap_or_else(PoisonError::into_inner).sequence
    }

    /// Ends the hand-over now. What came of the sequence is gone, unless all of it has come. A
    /// write that waits in another thread fails; so do later calls, with [`ErrorKind::Stale`].
    pub fn end(&self) -> Result<()> {
        self.end.end()
    }
}

impl Write for &Receiver {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let mut patience = Patience::default();
        loop {
            let progress = self.take(bytes).map_err(io::Error::other)?;
            if progress.bytes != 0 || progress.is_whole || bytes.is_empty() {
                return Ok(progress.bytes);
            }
            patience.sleep();
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Write for Receiver {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        (&*self).write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl fmt::Debug for Sender {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Sender({:#x})", self.end.handle)
    }
}

impl fmt::Debug for Receiver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Receiver({:#x})", self.end.handle)
    }
}
