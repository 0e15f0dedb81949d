// SPDX-License-Identifier: Apache-2.0

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;

use quire_sys as sys;

use crate::cache::CacheInner;
use crate::call::{count, desc, first, first_mut, invoke, listed, mirror, stride_of};
use crate::sequence::NamespaceInner;
use crate::{Cache, Error, ErrorKind, Key, Namespace, OpenStep, Result, Token, Wait};

/// How a lease is created.
#[derive(Debug, Clone, Copy, Default)]
pub struct LeaseOptions<'a> {
    /// The lease's namespace; `None`: the default one.
    pub namespace: Option<&'a Namespace>,
    /// Keys without a span: they decide the K and V of its blocks besides the tokens.
    pub keys: &'a [Key<'a>],
}

/// Blocks that belong to no sequence, for a radix tree or a store of the engine's own.
///
/// A lease takes blocks for the engine to fill, publishes what the engine filled, finds and pins
/// what is cached, and gives all of it back. It has the blocks of one namespace and set of keys,
/// and finds what sequences with the same ones publish, as they find what it publishes. Blocks that
/// it holds are never evicted, swapped or preempted.
///
/// Calls that take an open step change that step: aborting it undoes them, and work on a block that
/// was given back must come before the step on its queues. A block is named by its id, as
/// [`Sequence::blocks`](crate::Sequence::blocks) returns it. An id that the lease may not name,
/// because it is out of range, or another namespace's, or held by no one, is
/// [`ErrorKind::Argument`], and the call changes nothing. A lack of blocks is a [`Shortage`], and
/// the call changes nothing then either.
///
/// Dropping a lease ends it: its blocks go back, and its published blocks stay cached. If an open
/// step has changed it, this happens when the step is committed or aborted. All calls on a lease
/// that was ended are [`ErrorKind::Stale`].
///
/// ```
/// # use quire::{CacheOptions, Group, Instance, LeaseOptions, Match, PoolSize, StepOptions};
/// # fn main() -> quire::Result<()> {
/// # let groups = [Group { layers: 2, kv_heads: 2, head_dim: 64, ..Group::default() }];
/// # let size = PoolSize::Blocks(16);
/// # let options = CacheOptions { groups: &groups, size, ..CacheOptions::default() };
/// # let cache = Instance::new()?.cache(options)?;
/// let tokens: Vec<u32> = (0..32).collect(); // two blocks of 16
/// let lease = cache.lease(LeaseOptions::default())?;
/// let (mut ids, mut named) = ([0; 2], [0; 2]);
/// let mut step = cache.begin(StepOptions::default(), &[], &[], &mut [])?;
/// lease.take(&mut step, 0, &mut ids)?.expect("room for two blocks");
/// lease.publish(&mut step, &tokens, &ids, &mut named)?.expect("no quota");
/// step.commit(None)?.finish()?; // between the two the engine fills the blocks
/// assert_eq!(lease.find(None, &tokens, Match::Look, &mut ids)?, 2);
/// assert_eq!(ids, named);
/// # Ok(())
/// # }
/// ```
///
/// A committed step takes no changes, and nothing is pinned outside of a step:
///
/// ```compile_fail
/// # fn f(lease: quire::Lease, mut step: quire::Step) -> quire::Result<()> {
/// let _ = lease.take(&mut step, 0, &mut [0])?;
/// # Ok(()) }
/// ```
///
/// ```compile_fail
/// # fn f(lease: quire::Lease) -> quire::Result<()> {
/// let _ = lease.find_and_pin(None, &[1, 2, 3], &mut [0])?;
/// # Ok(()) }
/// ```
pub struct Lease {
    cache: Arc<CacheInner>,
    handle: sys::quire_lease,
    is_ended: AtomicBool,
    _namespace: Option<Arc<NamespaceInner>>, // outlives the lease
}

/// The blocks that a call of a lease lacked. Nothing changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shortage {
    /// Missing blocks, in the shortest pool.
    pub blocks: u32,
    /// [`Wait::Pool`] or [`Wait::Quota`].
    pub reason: Wait,
}

impl fmt::Display for Shortage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let of = if self.reason == Wait::Quota { "quota" } else { "pool" };
        write!(f, "the {of} is short of {} blocks", self.blocks)
    }
}

mirror! {
    /// Counts of a lease: `quire_lease_info` of lease.h, with the same field names.
    LeaseInfo of quire_lease_info {
        ns: u64, blocks_held: u64, holds: u64, blocks_lost: u64,
    }
}

/// A block that a lease holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct LeaseBlock {
    /// Its id.
    pub block: i32,
    /// How often the lease holds it.
    pub holds: u32,
    /// It can be found.
    pub is_published: bool,
    /// The lease took it, so it may publish it.
    pub is_owned: bool,
}

impl From<sys::quire_lease_block> for LeaseBlock {
    fn from(raw: sys::quire_lease_block) -> Self {
        Self {
            block: raw.block,
            holds: raw.holds,
            is_published: raw.flags & sys::QUIRE_LEASE_PUBLISHED != 0,
            is_owned: raw.flags & sys::QUIRE_LEASE_OWNED != 0,
        }
    }
}

/// What [`Lease::find`] does with what it finds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Match {
    /// Nothing.
    #[default]
    Look,
    /// It is evicted as if it had been given back just now.
    Touch,
}

impl Cache {
    /// Creates a lease that holds nothing. [`ErrorKind::Argument`]: a key has a span, or the
    /// namespace belongs to another cache. [`ErrorKind::Limit`]: as many sequences and leases live
    /// as [`crate::CacheOptions::max_sequences`] allows.
    pub fn lease(&self, options: LeaseOptions<'_>) -> Result<Lease> {
        let (namespace, keys) = self.scope(options.namespace, options.keys)?;
        let desc = desc!(quire_lease_desc {
            ns: namespace.as_ref().map_or(0, |namespace| namespace.handle),
            keys: first(&keys),
            key_count: count("keys", keys.len())?,
            key_stride: stride_of::<sys::quire_key>(),
        });
        let mut handle = 0;
        invoke!(self.inner.api, lease_create(self.inner.pointer(), &desc, &mut handle))?;
        let (cache, is_ended) = (self.inner.clone(), AtomicBool::new(false));
        Ok(Lease { cache, handle, is_ended, _namespace: namespace })
    }

    /// Evicts up to `ids.len()` cached blocks of a group, of whichever namespace, the least
    /// recently used first, and with each the cached blocks of its span in the other groups.
    /// Writes the ids of the group's blocks that are free now, and returns how many. With
    /// [`crate::CacheOptions::one_pool`] any group stands for the pool. A block that is held, or
    /// that unfinished work may touch, stays. [`ErrorKind::Busy`]: a step is open.
    pub fn evict(&self, group: u32, ids: &mut [i32]) -> Result<usize> {
        let (inner, most) = (&self.inner, count("ids", ids.len())?);
        let mut evicted = 0;
        invoke!(
            inner.api,
            cache_evict(inner.pointer(), group, most, first_mut(ids), &mut evicted)
        )?;
        Ok(evicted as usize)
    }
}

impl Lease {
    /// Returns the lease's handle.
    pub fn handle(&self) -> u64 {
        self.handle
    }

    /// Returns the current counts, with the changes of the open step.
    pub fn info(&self) -> Result<LeaseInfo> {
        let mut info = desc!(quire_lease_info {});
        invoke!(self.cache.api, lease_get_info(self.cache.pointer(), self.handle, &mut info))?;
        Ok(info.into())
    }

    /// Lists what the lease holds in a group, with the changes of the open step. A migration
    /// changes the ids and keeps the order.
    pub fn blocks(&self, group: u32) -> Result<Vec<LeaseBlock>> {
        let (cache, stride) = (&self.cache, stride_of::<sys::quire_lease_block>());
        let list = listed(64, |to, capacity, found| {
            invoke!(
                cache.api,
                lease_blocks(cache.pointer(), self.handle, group, 0, to, capacity, stride, found)
            )
        })?;
        Ok(list.into_iter().map(LeaseBlock::from).collect())
    }

    /// Takes `ids.len()` blocks of a group for the engine to fill, free ones before cached ones,
    /// and writes their ids. Takes all of them or none.
    pub fn take(
        &self,
        step: &mut OpenStep,
        group: u32,
        ids: &mut [i32],
    ) -> Result<std::result::Result<(), Shortage>> {
        let (cache, step, length) = (&self.cache, self.of(step)?, count("ids", ids.len())?);
        let (lease, to) = (self.handle, first_mut(ids));
        let asked = asked(|result| {
            invoke!(cache.api, lease_take(cache.pointer(), step, lease, group, length, to, result))
        });
        Ok(asked?.map(drop))
    }

    /// Gives blocks back, or unpins them: the lease holds each once less. An id may occur as often
    /// as the lease holds it. A block that no one holds any more stays cached if it is published,
    /// else it is free, and the step's own items may get it. [`ErrorKind::Argument`]: the lease
    /// does not hold a block, or not that often; nothing changed.
    pub fn give(&self, step: &mut OpenStep, group: u32, ids: &[i32]) -> Result<()> {
        let (cache, step, length) = (&self.cache, self.of(step)?, count("ids", ids.len())?);
        let (lease, ids) = (self.handle, first(ids));
        invoke!(cache.api, lease_give(cache.pointer(), step, lease, group, ids, length)).map(drop)
    }

    /// Makes the lease hold blocks once more: its own, or any published block of its namespace. No
    /// tokens are compared, and what was evicted since may hold other content of the namespace;
    /// [`Lease::find_and_pin`] compares. Only the quota may be short.
    pub fn pin(
        &self,
        step: &mut OpenStep,
        group: u32,
        ids: &[i32],
    ) -> Result<std::result::Result<(), Shortage>> {
        let (cache, step, length) = (&self.cache, self.of(step)?, count("ids", ids.len())?);
        let (lease, ids) = (self.handle, first(ids));
        let asked = asked(|result| {
            invoke!(cache.api, lease_pin(cache.pointer(), step, lease, group, ids, length, result))
        });
        Ok(asked?.map(drop))
    }

    /// Finds the longest cached run of whole spans at the front of `tokens`, all of it compared,
    /// and returns how many spans that is.
    ///
    /// `ids` is `[tokens.len() / span_tokens][span_blocks]` (see [`crate::CacheInfo`]); it
    /// receives the blocks, span by span, and 0 where a group holds none. A span has a block per
    /// group, or where groups have `block_tokens` of their own, those of the first group that fill
    /// it, then the next one's, and so on. Entries after the run are not written. With a step,
    /// content of unfinished steps counts only on its queues. [`ErrorKind::Unsupported`]: every
    /// group of the cache has a window.
    pub fn find(
        &self,
        step: Option<&OpenStep>,
        tokens: &[Token],
        how: Match,
        ids: &mut [i32],
    ) -> Result<usize> {
        let step = step.map_or(Ok(0), |step| self.of(step))?;
        let how = match how {
            Match::Look => sys::QUIRE_MATCH_LOOK,
            Match::Touch => sys::QUIRE_MATCH_TOUCH,
        };
        self.matched(step, tokens, how, ids)?
            .map_err(|short| Error::new(ErrorKind::Internal, short.to_string()))
    }

    /// As [`Lease::find`]; the lease then holds what was found once more. Blocks of the host tier
    /// are brought back to the device.
    pub fn find_and_pin(
        &self,
        step: &mut OpenStep,
        tokens: &[Token],
        ids: &mut [i32],
    ) -> Result<std::result::Result<usize, Shortage>> {
        self.matched(self.of(step)?, tokens, sys::QUIRE_MATCH_PIN, ids)
    }

    fn matched(
        &self,
        step: sys::quire_step,
        tokens: &[Token],
        how: u32,
        ids: &mut [i32],
    ) -> Result<std::result::Result<usize, Shortage>> {
        let (cache, length) = (&self.cache, count("tokens", tokens.len())?);
        let entries = self.entries(tokens);
        if ids.len() < entries {
            return Err(wrong_size("ids", ids.len(), tokens, entries));
        }
        // Not NULL even if there are no entries, for that is refused.
        let (lease, tokens, to) = (self.handle, first(tokens), ids.as_mut_ptr());
        let found = asked(|result| {
            invoke!(
                cache.api,
                lease_match(cache.pointer(), step, lease, tokens, length, how, to, result)
            )
        });
        Ok(found?.map(|blocks| blocks as usize))
    }

    /// Makes blocks that the engine filled findable, and returns how many spans are new.
    ///
    /// `ids`, as [`Lease::find`] has them, names blocks of the lease that hold `tokens`, a number
    /// of whole spans. `named` has the same length, and receives the blocks that are found
    /// there from now on. Where one is another one, the tokens were there already: the lease now
    /// holds that block as well, and the caller's is for the caller to give back. The engine is
    /// trusted for the content of its blocks, and for nothing else. Only the quota may be short.
    ///
    /// [`ErrorKind::Argument`]: an id is not one that the lease may publish. [`ErrorKind::Busy`]: a
    /// block of the run is being computed on another queue. [`ErrorKind::Unsupported`]: the cache
    /// has [`crate::CacheOptions::no_prefixes`], or every group has a window.
    pub fn publish(
        &self,
        step: &mut OpenStep,
        tokens: &[Token],
        ids: &[i32],
        named: &mut [i32],
    ) -> Result<std::result::Result<usize, Shortage>> {
        let (cache, step, length) = (&self.cache, self.of(step)?, count("tokens", tokens.len())?);
        let entries = self.entries(tokens);
        for (name, found) in [("ids", ids.len()), ("named", named.len())] {
            if found != entries {
                return Err(wrong_size(name, found, tokens, entries));
            }
        }
        let (lease, tokens, ids, to) = (self.handle, first(tokens), first(ids), first_mut(named));
        let published = asked(|result| {
            invoke!(
                cache.api,
                lease_publish(cache.pointer(), step, lease, tokens, length, ids, to, result)
            )
        });
        Ok(published?.map(|places| places as usize))
    }

    /// [`Lease::find`] without a step, of tokens as engines keep them: each 0 to 2^32 - 2.
    pub fn find_wide(&self, tokens: &[i64], how: Match, ids: &mut [i32]) -> Result<usize> {
        let (cache, length) = (&self.cache, count("tokens", tokens.len())?);
        let entries = self.entries(tokens);
        if ids.len() < entries {
            return Err(wrong_size("ids", ids.len(), tokens, entries));
        }
        let how = match how {
            Match::Look => sys::QUIRE_MATCH_LOOK,
            Match::Touch => sys::QUIRE_MATCH_TOUCH,
        };
        // Not NULL even if there are no entries, for that is refused.
        let (lease, tokens, to) = (self.handle, first(tokens), ids.as_mut_ptr());
        let found = asked(|result| {
            invoke!(cache.api, lease_find(cache.pointer(), lease, tokens, length, how, to, result))
        });
        found?
            .map(|places| places as usize)
            .map_err(|short| Error::new(ErrorKind::Internal, short.to_string()))
    }

    /// Publishes blocks that the engine filled and gives them back, final at once: what becomes of
    /// a request's blocks when it is over, where a lease holds all that is not cached. Returns how
    /// many of them are new.
    ///
    /// `tokens` is a number of whole blocks, and `slots[i]` is where token `i` is: block times
    /// block size plus its place in the block. `named`, one per block, receives the block that is
    /// found at each span from now on. Where the tokens were there before, that is not the
    /// caller's, which is left alone.
    ///
    /// [`ErrorKind::Argument`]: a token is out of range, or the slots are not those of whole blocks
    /// that the lease has taken and holds alone. [`ErrorKind::Busy`]: a step is open or not done.
    /// [`ErrorKind::Unsupported`]: the cache has [`crate::CacheOptions::no_prefixes`], or is not
    /// one of one group with full attention. Nothing changed then.
    pub fn insert(&self, tokens: &[i64], slots: &[i64], named: &mut [i32]) -> Result<usize> {
        let (cache, length) = (&self.cache, count("tokens", tokens.len())?);
        let entries = self.entries(tokens);
        if slots.len() != tokens.len() {
            return Err(wrong_size("slots", slots.len(), tokens, tokens.len()));
        }
        if named.len() != entries {
            return Err(wrong_size("named", named.len(), tokens, entries));
        }
        let (lease, tokens, slots, to) =
            (self.handle, first(tokens), first(slots), first_mut(named));
        let inserted = asked(|result| {
            invoke!(
                cache.api,
                lease_insert(cache.pointer(), lease, tokens, slots, length, to, result)
            )
        });
        inserted?
            .map(|places| places as usize)
            .map_err(|short| Error::new(ErrorKind::Internal, short.to_string()))
    }

    /// Withdraws published blocks of the lease's namespace, of all groups at the same tokens, and
    /// returns how many: those that a sequence or another lease holds stay. None of them is found
    /// any more, nor anything after them. [`ErrorKind::Busy`]: a step is open.
    pub fn forget(&self, group: u32, ids: &[i32]) -> Result<usize> {
        let (cache, length) = (&self.cache, count("ids", ids.len())?);
        let (lease, ids) = (self.handle, first(ids));
        let mut forgotten = 0;
        invoke!(
            cache.api,
            lease_forget(cache.pointer(), lease, group, ids, length, &mut forgotten)
        )?;
        Ok(forgotten as usize)
    }

    /// Ends the lease now, as dropping it does. [`ErrorKind::Busy`]: the open step has changed it.
    pub fn end(&self) -> Result<()> {
        invoke!(self.cache.api, lease_end(self.cache.pointer(), self.handle))?;
        self.is_ended.store(true, Ordering::Release);
        Ok(())
    }

    /// Entries of the ids of the whole spans of `tokens`.
    fn entries<T>(&self, tokens: &[T]) -> usize {
        let spans = tokens.len() / self.cache.span_tokens.max(1) as usize;
        spans.saturating_mul(self.cache.span_blocks as usize)
    }

    fn of(&self, step: &OpenStep) -> Result<sys::quire_step> {
        if !Arc::ptr_eq(&step.cache, &self.cache) {
            return Err(Error::argument("the step belongs to another cache"));
        }
        Ok(step.handle)
    }
}

fn wrong_size<T>(name: &str, found: usize, tokens: &[T], entries: usize) -> Error {
    let tokens = tokens.len();
    Error::argument(format!("{name} has {found} entries: {tokens} tokens need {entries}"))
}

/// Runs a call that may lack blocks, and returns its number of blocks.
fn asked(
    call: impl FnOnce(*mut sys::quire_lease_result) -> Result<sys::quire_status>,
) -> Result<std::result::Result<u32, Shortage>> {
    let mut result = desc!(quire_lease_result {});
    if call(&mut result)? == sys::QUIRE_S_NO_BLOCKS {
        return Ok(Err(Shortage { blocks: result.blocks_short, reason: Wait::of(result.reason) }));
    }
    Ok(Ok(result.blocks))
}

impl Drop for Lease {
    fn drop(&mut self) {
        if self.is_ended.load(Ordering::Acquire) {
            return; // ended before: its handle is stale
        }
        if self.end().is_err_and(|error| error.kind() == ErrorKind::Busy) {
            self.cache.end_lease_later(self.handle);
        }
    }
}

impl fmt::Debug for Lease {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Lease({:#x})", self.handle)
    }
}
