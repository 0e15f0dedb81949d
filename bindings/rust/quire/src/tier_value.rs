// SPDX-License-Identifier: Apache-2.0

//! Values in a tier: requests for one, and the list of all.

use std::iter::FusedIterator;
use std::time::Duration;

use quire_sys as sys;

use crate::call::{count, first, first_mut, invoke, nanoseconds, stride_of};
use crate::{Error, ErrorKind, Result, Tier};

// Records that one call of the library lists.
const LISTED: usize = 64;

/// Names a value: `quire_store_label` of tier.h. A value is given out only under the very label
/// that it was put under.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct TierLabel {
    /// Digest of all that decides the content.
    pub key: [u8; 32],
    /// Digest of the model, and of the types and layout of its blocks.
    pub fingerprint: [u8; 32],
    /// Digest of the tenant; zeros: the default one.
    pub name_space: [u8; 32],
}

impl TierLabel {
    fn raw(self) -> sys::quire_store_label {
        let Self { key, fingerprint, name_space } = self;
        sys::quire_store_label { key, fingerprint, name_space }
    }
}

/// A value that a store has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct TierRecord {
    /// The value's name.
    pub label: TierLabel,
    /// The value's size.
    pub value_bytes: u64,
    /// Grows from put to put over the life of the store; 0: not known.
    pub sequence: u64,
}

impl From<sys::quire_store_record> for TierRecord {
    fn from(raw: sys::quire_store_record) -> Self {
        let sys::quire_store_label { key, fingerprint, name_space } = raw.label;
        let label = TierLabel { key, fingerprint, name_space };
        Self { label, value_bytes: raw.value_bytes, sequence: raw.sequence }
    }
}

/// Lists what a store has: [`Tier::records`]. It ends after an error.
#[must_use = "an iterator lists nothing until it is asked"]
#[derive(Debug)]
pub struct TierRecords<'a> {
    tier: &'a Tier,
    cursor: u64,
    listed: Vec<sys::quire_store_record>,
    next: usize,
    is_done: bool,
}

impl TierRecords<'_> {
    fn list(&mut self) -> Result<()> {
        self.listed.resize(LISTED, sys::quire_store_record::default());
        self.next = 0;
        let tier = &self.tier.inner;
        let mut found = 0;
        let done = invoke!(
            tier.api,
            tier_list(
                tier.pointer(),
                &mut self.cursor,
                first_mut(&mut self.listed),
                LISTED as u32,
                stride_of::<sys::quire_store_record>(),
                &mut found,
            )
        );
        self.listed.truncate(if done.is_ok() { found as usize } else { 0 });
        self.is_done = self.listed.is_empty();
        done.map(drop)
    }
}

impl Iterator for TierRecords<'_> {
    type Item = Result<TierRecord>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.next == self.listed.len() && !self.is_done {
            if let Err(error) = self.list() {
                return Some(Err(error));
            }
        }
        let record = *self.listed.get(self.next)?;
        self.next += 1;
        Some(Ok(record.into()))
    }
}

impl FusedIterator for TierRecords<'_> {}

/// How a store answered a request that neither failed nor ran out of time.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Outcome {
    Done,
    Full,
    Absent,
    OtherSize,
}

fn name_of(kind: u32) -> &'static str {
    match kind {
        sys::QUIRE_STORE_PUT => "put",
        sys::QUIRE_STORE_GET => "get",
        sys::QUIRE_STORE_FIND => "find",
        sys::QUIRE_STORE_REMOVE => "remove",
        sys::QUIRE_STORE_FLUSH => "flush",
        _ => "compact",
    }
}

fn judged(kind: u32, answer: &sys::quire_store_answer) -> Result<Outcome> {
    let name = name_of(kind);
    match answer.outcome {
        sys::QUIRE_STORE_DONE => Ok(Outcome::Done),
        sys::QUIRE_STORE_FULL if kind == sys::QUIRE_STORE_PUT => Ok(Outcome::Full),
        sys::QUIRE_STORE_SIZE if kind == sys::QUIRE_STORE_GET => Ok(Outcome::OtherSize),
        sys::QUIRE_STORE_MISS | sys::QUIRE_STORE_FOREIGN | sys::QUIRE_STORE_DAMAGED
            if [sys::QUIRE_STORE_GET, sys::QUIRE_STORE_FIND].contains(&kind) =>
        {
            Ok(Outcome::Absent)
        }
        sys::QUIRE_STORE_FAILED => {
            let code = i32::try_from(answer.native_code).unwrap_or(0);
            let why = std::io::Error::from_raw_os_error(code);
            Err(Error::of_system(format!("{name} failed: {why}"), answer.native_code))
        }
        other => {
            let message = format!("the store answered {name} with outcome {other}");
            Err(Error::new(ErrorKind::Backend, message))
        }
    }
}

/// Pieces for the library, which writes only those of a get.
fn raw_pieces(pieces: &[&[u8]]) -> Vec<sys::quire_store_piece> {
    let raw = |piece: &&[u8]| sys::quire_store_piece {
        address: first(piece).cast_mut().cast(),
        size_bytes: piece.len() as u64,
    };
    pieces.iter().map(raw).collect()
}

/// Requests to a store that serves no cache. Calls on one tier are serialised, also those that
/// wait: at most `timeout`, `None`: for ever.
///
/// [`ErrorKind::Timeout`]: the store did not answer in time; the request may still have its effect.
/// [`ErrorKind::Busy`]: the tier serves a cache, or all the requests that the store takes timed out
/// and are still under way. [`ErrorKind::Os`]: the disk or network failed.
/// [`ErrorKind::Unsupported`]: the store is read-only, or does not know the request.
impl Tier {
    /// Stores a value. One that is there already is kept. Returns false if there was no room.
    pub fn put(&self, label: TierLabel, value: &[u8], timeout: Option<Duration>) -> Result<bool> {
        self.put_pieces(label, &[value], timeout)
    }

    /// As [`Tier::put`]; the value is these pieces, one after another.
    pub fn put_pieces(
        &self,
        label: TierLabel,
        pieces: &[&[u8]],
        timeout: Option<Duration>,
    ) -> Result<bool> {
        let pieces = raw_pieces(pieces);
        let (outcome, _) = self.request(sys::QUIRE_STORE_PUT, label, &pieces, timeout)?;
        Ok(outcome == Outcome::Done)
    }

    /// Returns the value, which has `size_bytes`; `None`: it is not there, or failed its check.
    /// [`ErrorKind::Argument`]: it has another size; the message says which.
    pub fn get(
        &self,
        label: TierLabel,
        size_bytes: usize,
        timeout: Option<Duration>,
    ) -> Result<Option<Vec<u8>>> {
        let mut value = Vec::new();
        if value.try_reserve_exact(size_bytes).is_err() {
            let message = format!("no memory for a value of {size_bytes} bytes");
            return Err(Error::new(ErrorKind::HostMemory, message));
        }
        value.resize(size_bytes, 0);
        let (outcome, size) = self.fill(label, &mut [&mut value], timeout)?;
        match outcome {
            Outcome::Done => Ok(Some(value)),
            Outcome::OtherSize => {
                let message = format!("the value has {size} bytes, not {size_bytes}");
                Err(Error::argument(message))
            }
            _ => Ok(None),
        }
    }

    /// Fills these pieces with the value, one after another. Returns false if it is not there,
    /// failed its check, or is not exactly as long; the pieces may then hold anything.
    pub fn get_pieces(
        &self,
        label: TierLabel,
        pieces: &mut [&mut [u8]],
        timeout: Option<Duration>,
    ) -> Result<bool> {
        let (outcome, _) = self.fill(label, pieces, timeout)?;
        Ok(outcome == Outcome::Done)
    }

    /// True if there is a value.
    pub fn find(&self, label: TierLabel, timeout: Option<Duration>) -> Result<bool> {
        let (outcome, _) = self.request(sys::QUIRE_STORE_FIND, label, &[], timeout)?;
        Ok(outcome == Outcome::Done)
    }

    /// Removes the value, if there is one.
    pub fn remove(&self, label: TierLabel, timeout: Option<Duration>) -> Result<()> {
        self.request(sys::QUIRE_STORE_REMOVE, label, &[], timeout).map(drop)
    }

    /// Waits until all earlier requests have ended. Their effects then survive a crash of the
    /// machine, if the store is persistent.
    pub fn flush(&self, timeout: Option<Duration>) -> Result<()> {
        self.request(sys::QUIRE_STORE_FLUSH, TierLabel::default(), &[], timeout).map(drop)
    }

    /// Gives back the room of removed values and returns how many bytes.
    pub fn compact(&self, timeout: Option<Duration>) -> Result<u64> {
        let done = self.request(sys::QUIRE_STORE_COMPACT, TierLabel::default(), &[], timeout);
        done.map(|(_, size)| size)
    }

    /// Lists what the store has. [`ErrorKind::Unsupported`]: it cannot tell.
    pub fn records(&self) -> TierRecords<'_> {
        TierRecords { tier: self, cursor: 0, listed: Vec::new(), next: 0, is_done: false }
    }

    fn fill(
        &self,
        label: TierLabel,
        pieces: &mut [&mut [u8]],
        timeout: Option<Duration>,
    ) -> Result<(Outcome, u64)> {
        let raw = |piece: &mut &mut [u8]| sys::quire_store_piece {
            address: first_mut(piece).cast(),
            size_bytes: piece.len() as u64,
        };
        let pieces: Vec<_> = pieces.iter_mut().map(raw).collect();
        self.request(sys::QUIRE_STORE_GET, label, &pieces, timeout)
    }

    /// Runs a request; returns its outcome, and the size that came with it.
    fn request(
        &self,
        kind: u32,
        label: TierLabel,
        pieces: &[sys::quire_store_piece],
        timeout: Option<Duration>,
    ) -> Result<(Outcome, u64)> {
        let request = sys::quire_store_request {
            kind,
            label: label.raw(),
            pieces: first(pieces),
            piece_count: count("pieces", pieces.len())?,
            ..Default::default()
        };
        let tier = &self.inner;
        let mut answer = sys::quire_store_answer::default();
        let status = invoke!(
            tier.api,
            tier_request_wait(tier.pointer(), &request, &mut answer, nanoseconds(timeout))
        )?;
        if status == sys::QUIRE_S_TIMEOUT {
            let name = name_of(kind);
            let message = format!(
                "the store did not answer {name} in time; the request may still have its effect"
            );
            return Err(Error::new(ErrorKind::Timeout, message));
        }
        Ok((judged(kind, &answer)?, answer.size_bytes))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(outcome: u32) -> sys::quire_store_answer {
        sys::quire_store_answer { outcome, native_code: 28, ..Default::default() }
    }

    #[test]
    fn a_failed_disk_is_an_error_of_the_system() {
        let error = judged(sys::QUIRE_STORE_PUT, &answer(sys::QUIRE_STORE_FAILED)).err().unwrap();
        assert_eq!((error.kind(), error.native_code()), (ErrorKind::Os, 28));
        assert!(error.message().starts_with("put failed: No space left"), "{error}");
    }

    #[test]
    fn an_outcome_that_the_request_cannot_have_is_the_stores_fault() {
        let wrong = [
            (sys::QUIRE_STORE_PUT, sys::QUIRE_STORE_MISS),
            (sys::QUIRE_STORE_GET, sys::QUIRE_STORE_FULL),
            (sys::QUIRE_STORE_FIND, sys::QUIRE_STORE_SIZE),
            (sys::QUIRE_STORE_REMOVE, sys::QUIRE_STORE_CANCELLED),
            (sys::QUIRE_STORE_FLUSH, 99),
        ];
        for (kind, outcome) in wrong {
            let error = judged(kind, &answer(outcome)).err().unwrap();
            assert_eq!(error.kind(), ErrorKind::Backend, "{error}");
        }
    }
}
