// SPDX-License-Identifier: Apache-2.0

use std::ffi::c_void;
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;

use quire_sys as sys;

use crate::cache::CacheInner;
use crate::call::{count, desc, first, invoke, stride_of};
use crate::step::blocks;
use crate::{Cache, ErrorKind, Result, Token};

/// A tenant's sharing domain: sequences of two namespaces never share a block. Clones are the same
/// namespace.
#[derive(Clone)]
pub struct Namespace {
    pub(crate) inner: Arc<NamespaceInner>,
}

pub(crate) struct NamespaceInner {
    cache: Arc<CacheInner>,
    pub(crate) handle: sys::quire_namespace,
}

impl Drop for NamespaceInner {
    fn drop(&mut self) {
        let cache = &self.cache;
        let gone = invoke!(cache.api, namespace_destroy(cache.pointer(), self.handle));
        if gone.is_err_and(|error| error.kind() == ErrorKind::Busy) {
            cache.end_namespace_later(self.handle);
        }
    }
}

/// Counts of a namespace.
#[derive(Debug, Clone, Copy)]
pub struct NamespaceInfo {
    /// Live sequences.
    pub sequences: u64,
    /// Table entries of its sequences.
    pub blocks_held: u64,
    /// Table entries that its sequences may hold; 0: no limit.
    pub quota_blocks: u64,
    /// Tokens looked up.
    pub prefix_cache_queries: u64,
    /// Tokens found.
    pub prefix_cache_hits: u64,
}

impl Namespace {
    /// Returns the handle by which an [`crate::Event`] names the namespace.
    pub fn handle(&self) -> u64 {
        self.inner.handle
    }

    /// Returns the current counts.
    pub fn info(&self) -> Result<NamespaceInfo> {
        let cache = &self.inner.cache;
        let mut info = desc!(quire_namespace_info {});
        invoke!(cache.api, namespace_get_info(cache.pointer(), self.inner.handle, &mut info))?;
        Ok(NamespaceInfo {
            sequences: info.sequences,
            blocks_held: info.blocks_held,
            quota_blocks: info.quota_blocks,
            prefix_cache_queries: info.prefix_cache_queries,
            prefix_cache_hits: info.prefix_cache_hits,
        })
    }
}

/// The kind of a [`Key`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KeyType {
    /// An adapter's weights.
    Adapter,
    /// A salt that keeps requests apart.
    Salt,
    /// The content of an image or another medium.
    Media,
    /// Anything else.
    Other,
}

/// Something besides the tokens that decides K and V.
#[derive(Debug, Clone, Copy)]
pub struct Key<'a> {
    /// Its kind.
    pub kind: KeyType,
    /// Its content, at most 4,096 bytes.
    pub bytes: &'a [u8],
    /// The tokens that it covers, from begin to before end; `None`: the whole sequence.
    pub span: Option<(u32, u32)>,
}

impl Key<'_> {
    fn raw(&self) -> Result<sys::quire_key> {
        let (begin, end) = self.span.unwrap_or((0, 0));
        Ok(sys::quire_key {
            type_: match self.kind {
                KeyType::Adapter => sys::QUIRE_KEY_ADAPTER,
                KeyType::Salt => sys::QUIRE_KEY_SALT,
                KeyType::Media => sys::QUIRE_KEY_MEDIA,
                KeyType::Other => sys::QUIRE_KEY_OTHER,
            },
            size_bytes: count("bytes of a key", self.bytes.len())?,
            bytes: first(self.bytes).cast::<c_void>(),
            begin,
            end,
        })
    }
}

/// How a sequence is created.
#[derive(Debug, Clone, Copy, Default)]
pub struct SequenceOptions<'a> {
    /// The sequence's namespace; `None`: the default one.
    pub namespace: Option<&'a Namespace>,
    /// What decides its K and V besides its tokens.
    pub keys: &'a [Key<'a>],
    /// A sequence with a higher priority is served longer.
    pub priority: i32,
    /// Rows that it has in cross groups.
    pub cross_tokens: u32,
}

/// One token stream. Dropping it ends it: its blocks go back, and its published blocks stay cached.
/// During an open step this happens when the step is committed or aborted.
pub struct Sequence {
    pub(crate) cache: Arc<CacheInner>,
    handle: sys::quire_seq,
    is_ended: AtomicBool,
    namespace: Option<Arc<NamespaceInner>>, // outlives the sequence
}

impl Sequence {
    pub(crate) fn new(
        cache: &Arc<CacheInner>,
        handle: sys::quire_seq,
        namespace: Option<Arc<NamespaceInner>>,
    ) -> Self {
        Self { cache: cache.clone(), handle, is_ended: AtomicBool::new(false), namespace }
    }
}

/// The current state of a sequence.
#[derive(Debug, Clone, Copy)]
pub struct SequenceInfo {
    /// Known tokens.
    pub known_tokens: u32,
    /// Those of them whose K and V are in blocks, or will be once the committed steps have run.
    pub computed_tokens: u32,
    /// Provisional tokens at the end.
    pub draft_tokens: u32,
    /// Slots reserved after the last known token.
    pub lookahead_tokens: u32,
    /// Table entries, shared ones included.
    pub blocks_held: u32,
    /// How often it was preempted.
    pub preemptions: u32,
    /// A sequence with a higher priority is served longer.
    pub priority: i32,
    /// Its blocks are in the host tier.
    pub is_swapped: bool,
    /// A failed step took computed tokens back.
    pub is_lost: bool,
    /// It has an item in the open step.
    pub is_in_step: bool,
    /// It was preempted and is not back yet.
    pub is_preempted: bool,
    /// It publishes nothing any more, because the cache was reset since it was computed.
    pub is_unpublished: bool,
}

/// `keys` must outlive the result.
pub(crate) fn described(
    options: &SequenceOptions<'_>,
    namespace: Option<&Arc<NamespaceInner>>,
    keys: &[sys::quire_key],
) -> Result<sys::quire_seq_desc> {
    Ok(desc!(quire_seq_desc {
        ns: namespace.map_or(0, |namespace| namespace.handle),
        keys: first(keys),
        key_count: count("keys", keys.len())?,
        key_stride: stride_of::<sys::quire_key>(),
        priority: options.priority,
        cross_tokens: options.cross_tokens,
    }))
}

impl Cache {
    /// Creates a sequence without tokens.
    pub fn sequence(&self, options: SequenceOptions<'_>) -> Result<Sequence> {
        let made = self.sequence_by(options, |desc, handle| {
            invoke!(self.inner.api, seq_create(self.inner.pointer(), desc, handle))
        })?;
        made.ok_or_else(|| crate::Error::new(ErrorKind::Internal, "no sequence, and no reason"))
    }

    /// The namespace, to keep, and the keys of a sequence or a lease.
    pub(crate) fn scope(
        &self,
        namespace: Option<&Namespace>,
        keys: &[Key<'_>],
    ) -> Result<(Option<Arc<NamespaceInner>>, Vec<sys::quire_key>)> {
        let namespace = namespace.map(|namespace| namespace.inner.clone());
        if let Some(namespace) = &namespace {
            // To the library the other cache's handle would only be stale.
            if !Arc::ptr_eq(&namespace.cache, &self.inner) {
                return Err(crate::Error::argument("the namespace belongs to another cache"));
            }
        }
        Ok((namespace, keys.iter().map(Key::raw).collect::<Result<_>>()?))
    }

    /// Creates a sequence by `create`, which gets its description and where its handle belongs.
    /// `None`: short of blocks.
    pub(crate) fn sequence_by(
        &self,
        options: SequenceOptions<'_>,
        create: impl FnOnce(&sys::quire_seq_desc, &mut sys::quire_seq) -> Result<sys::quire_status>,
    ) -> Result<Option<Sequence>> {
        let (namespace, keys) = self.scope(options.namespace, options.keys)?;
        let desc = described(&options, namespace.as_ref(), &keys)?;
        let mut handle = 0;
        if create(&desc, &mut handle)? == sys::QUIRE_S_NO_BLOCKS {
            return Ok(None);
        }
        Ok(Some(Sequence::new(&self.inner, handle, namespace)))
    }

    /// Creates a tenant's sharing domain. The key comes from the server, never from a request.
    pub fn namespace(&self, key: &[u8], quota_blocks: u32) -> Result<Namespace> {
        self.new_namespace(key, quota_blocks, 0)
    }

    /// As [`Cache::namespace`]; events carry the tenant's tokens.
    pub fn namespace_with_event_tokens(&self, key: &[u8], quota_blocks: u32) -> Result<Namespace> {
        self.new_namespace(key, quota_blocks, sys::QUIRE_NAMESPACE_EVENT_TOKENS)
    }

    fn new_namespace(&self, key: &[u8], quota_blocks: u32, flags: u32) -> Result<Namespace> {
        let desc = desc!(quire_namespace_desc {
            flags: flags,
            key: first(key).cast::<c_void>(),
            key_size_bytes: count("bytes of a key", key.len())?,
            quota_blocks: quota_blocks,
        });
        let mut handle = 0;
        invoke!(self.inner.api, namespace_create(self.inner.pointer(), &desc, &mut handle))?;
        let inner = NamespaceInner { cache: self.inner.clone(), handle };
        Ok(Namespace { inner: Arc::new(inner) })
    }
}

impl Sequence {
    /// Returns the sequence's handle.
    #[inline]
    pub fn handle(&self) -> u64 {
        self.handle
    }

    /// Creates a sequence from the first `tokens` known tokens, sharing their blocks.
    pub fn fork(&self, tokens: u32) -> Result<Sequence> {
        let cache = &self.cache;
        let mut handle = 0;
        invoke!(cache.api, seq_fork(cache.pointer(), self.handle, tokens, &mut handle))?;
        Ok(Sequence::new(cache, handle, self.namespace.clone()))
    }

    /// Shortens the sequence to its first `tokens` known tokens.
    pub fn truncate(&self, tokens: u32) -> Result<()> {
        let cache = &self.cache;
        invoke!(cache.api, seq_truncate(cache.pointer(), self.handle, tokens)).map(drop)
    }

    /// Keeps the first `count` drafts of the last item, and forgets the others.
    pub fn accept(&self, count: u32) -> Result<()> {
        let cache = &self.cache;
        invoke!(cache.api, seq_accept(cache.pointer(), self.handle, count)).map(drop)
    }

    /// Keeps the drafts that `path` names, a path through the tree of the last item's drafts.
    pub fn accept_path(&self, path: &[u32]) -> Result<()> {
        let cache = &self.cache;
        let length = count("drafts", path.len())?;
        invoke!(cache.api, seq_accept_path(cache.pointer(), self.handle, first(path), length))
            .map(drop)
    }

    /// Returns how many tokens would be found if the sequence were added with these tokens now.
    pub fn probe(&self, tokens: &[Token]) -> Result<u32> {
        let cache = &self.cache;
        let length = count("tokens", tokens.len())?;
        let mut hits = 0;
        invoke!(
            cache.api,
            prefix_probe(cache.pointer(), self.handle, first(tokens), length, &mut hits)
        )?;
        Ok(hits)
    }

    /// Returns the current state.
    pub fn info(&self) -> Result<SequenceInfo> {
        let cache = &self.cache;
        let mut info = desc!(quire_seq_info {});
        invoke!(cache.api, seq_get_info(cache.pointer(), self.handle, &mut info))?;
        Ok(SequenceInfo {
            known_tokens: info.known_tokens,
            computed_tokens: info.computed_tokens,
            draft_tokens: info.draft_tokens,
            lookahead_tokens: info.lookahead_tokens,
            blocks_held: info.blocks_held,
            preemptions: info.preemptions,
            priority: info.priority,
            is_swapped: info.flags & sys::QUIRE_SEQ_SWAPPED != 0,
            is_lost: info.flags & sys::QUIRE_SEQ_LOST != 0,
            is_in_step: info.flags & sys::QUIRE_SEQ_IN_STEP != 0,
            is_preempted: info.flags & sys::QUIRE_SEQ_PREEMPTED != 0,
            is_unpublished: info.flags & sys::QUIRE_SEQ_UNPUBLISHED != 0,
        })
    }

    /// Returns the block table in a group; 0 is the null block.
    pub fn blocks(&self, group: u32) -> Result<Vec<i32>> {
        blocks(&self.cache, 0, self, group)
    }

    /// Ends the sequence now, as dropping it does; other calls on it are then [`ErrorKind::Stale`].
    pub fn end(&self) -> Result<()> {
        self.end_with(0)
    }

    /// Ends the sequence, and forgets its published blocks, except those that others use.
    pub fn end_and_forget(&self) -> Result<()> {
        self.end_with(sys::QUIRE_END_DROP_PREFIX)
    }

    fn end_with(&self, flags: u32) -> Result<()> {
        let cache = &self.cache;
        invoke!(cache.api, seq_end(cache.pointer(), self.handle, flags))?;
        self.is_ended.store(true, Ordering::Release);
        Ok(())
    }
}

impl Drop for Sequence {
    fn drop(&mut self) {
        if self.is_ended.load(Ordering::Acquire) {
            return; // ended before: its handle is stale
        }
        if self.end().is_err_and(|error| error.kind() == ErrorKind::Busy) {
            self.cache.end_sequence_later(self.handle);
        }
    }
}

impl fmt::Debug for Sequence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Sequence({:#x})", self.handle)
    }
}

impl fmt::Debug for Namespace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Namespace({:#x})", self.inner.handle)
    }
}
