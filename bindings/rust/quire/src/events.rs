// SPDX-License-Identifier: Apache-2.0

use quire_sys as sys;

use crate::call::{desc, invoke, stride_of};
use crate::{Cache, Error, ErrorKind, Result, Token};

/// What an [`Event`] says.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum EventKind {
    /// A sequence with the block's tokens after those of its parent finds it.
    Stored,
    /// The block is not found any more; the blocks after it were removed before.
    Removed,
    /// No block is found any more.
    Cleared,
}

/// A published block came, went, or all are gone: `quire_cache_event` of events.h.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Event {
    /// What happened.
    pub kind: EventKind,
    /// The block's number, never 0, and never used again in this cache.
    pub block: u64,
    /// The number of the block before a stored one; 0 if it is the first.
    pub parent: u64,
    /// The handle of the namespace whose sequences find it; 0: the default one.
    pub namespace: u64,
    /// A block is stored and removed once per group that holds it.
    pub group: u32,
    /// Where it lies: 0, device memory.
    pub level: u32,
    /// The place of a stored block's first token.
    pub position: u32,
    /// More than tokens decides what a stored block, or one before it, holds. A reader that looks
    /// blocks up by tokens alone must pass over it.
    pub is_keyed: bool,
    /// A stored block's tokens, if its namespace gives them away.
    pub tokens: Option<Vec<Token>>,
}

impl Event {
    fn new(raw: &sys::quire_cache_event, tokens: &[Token]) -> Result<Self> {
        let kind = match raw.kind {
            sys::QUIRE_EVENT_STORED => EventKind::Stored,
            sys::QUIRE_EVENT_REMOVED => EventKind::Removed,
            sys::QUIRE_EVENT_CLEARED => EventKind::Cleared,
            other => {
                let message = format!("the library reported an event of unknown kind {other}");
                return Err(Error::new(ErrorKind::Internal, message));
            }
        };
        let first = raw.token_offset as usize;
        let has_tokens = raw.flags & sys::QUIRE_EVENT_HAS_TOKENS != 0;
        Ok(Self {
            kind,
            block: raw.block,
            parent: raw.parent,
            namespace: raw.ns,
            group: raw.group,
            level: raw.level,
            position: raw.position,
            is_keyed: raw.flags & sys::QUIRE_EVENT_KEYED != 0,
            tokens: has_tokens.then(|| tokens[first..first + raw.token_count as usize].to_vec()),
        })
    }
}

impl Cache {
    /// Returns at most `limit` changes since the last call, and whether there are more. The cache
    /// needs [`crate::CacheOptions::events`]. With `restart` everything that is found is told
    /// again, after [`EventKind::Cleared`].
    pub fn events(&self, restart: bool, limit: u32) -> Result<(Vec<Event>, bool)> {
        const MOST: u32 = 1 << 20;
        if limit == 0 || limit > MOST {
            return Err(Error::argument(format!("limit is {limit}: 1 to {MOST}")));
        }
        const MOST_TOKENS: u32 = 1 << 24;
        let tokens = self.inner.span_tokens.max(1);
        let token_room = limit.min(1 + MOST_TOKENS / tokens) * tokens;
        let mut raw = vec![sys::quire_cache_event::default(); limit as usize];
        let mut tokens: Vec<Token> = vec![0; token_room as usize];
        let mut info = desc!(quire_events_info {});
        invoke!(
            self.inner.api,
            cache_events(
                self.inner.pointer(),
                if restart { sys::QUIRE_EVENTS_RESTART } else { 0 },
                raw.as_mut_ptr(),
                limit,
                stride_of::<sys::quire_cache_event>(),
                tokens.as_mut_ptr(),
                token_room,
                &mut info,
            )
        )?;
        let told = raw[..info.event_count as usize].iter();
        let events = told.map(|event| Event::new(event, &tokens)).collect::<Result<_>>()?;
        Ok((events, info.has_more != 0))
    }
}
