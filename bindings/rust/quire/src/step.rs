// SPDX-License-Identifier: Apache-2.0

use std::fmt;
use std::mem::ManuallyDrop;
use std::sync::Arc;

use quire_sys as sys;

use crate::batch::BatchInner;
use crate::cache::CacheInner;
use crate::call::{bytes, count, desc, first, first_mut, invoke, listed, stride_of};
use crate::queue::QueueInner;
use crate::{
    Batch, BlockCopy, Cache, CommitError, Error, ErrorKind, Item, ItemResult, Preemption, Queue,
    Result, Sequence, Token,
};

/// How a sequence gives up its blocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Preempt {
    /// Whichever takes less time.
    #[default]
    Auto,
    /// Its blocks move to the host tier.
    Swap,
    /// Its blocks are computed again.
    Recompute,
}

impl Preempt {
    fn raw(self) -> u32 {
        match self {
            Self::Auto => sys::QUIRE_PREEMPT_AUTO,
            Self::Swap => sys::QUIRE_PREEMPT_SWAP,
            Self::Recompute => sys::QUIRE_PREEMPT_RECOMPUTE,
        }
    }
}

/// Where a step runs.
#[derive(Debug, Clone, Copy, Default)]
pub struct StepOptions<'a> {
    /// One queue per shard.
    pub queues: &'a [&'a Queue],
    /// Names the engine's queue in a bookkeeping-only cache.
    pub queue_tag: u64,
    /// Preempts sequences without an item, for items that are short of blocks.
    pub may_preempt: bool,
    /// How sequences are preempted.
    pub preempt: Preempt,
}

impl StepOptions<'_> {
    fn raw(&self, queues: &[*mut sys::quire_queue]) -> Result<sys::quire_step_desc> {
        Ok(desc!(quire_step_desc {
            flags: if self.may_preempt { sys::QUIRE_STEP_MAY_PREEMPT } else { 0 },
            queues: first(queues),
            queue_count: count("queues", queues.len())?,
            preempt: self.preempt.raw(),
            queue_tag: self.queue_tag,
        }))
    }
}

/// An open step. Nothing of it is final: dropping it undoes everything.
#[must_use = "dropping it aborts the step"]
pub struct OpenStep {
    pub(crate) cache: Arc<CacheInner>,
    queues: Vec<Arc<QueueInner>>,
    pub(crate) handle: sys::quire_step,
}

/// A committed step: its copies and tables are enqueued. Enqueue its kernels, then call
/// [`Step::finish`]. Dropping it unfinished, as a panic does, fails the step.
///
/// ```compile_fail
/// # fn f(step: quire::Step) -> quire::Result<()> {
/// step.finish()?;
/// step.finish() // it is gone
/// # }
/// ```
#[must_use = "dropping it fails the step"]
pub struct Step {
    pub(crate) cache: Arc<CacheInner>,
    pub(crate) queues: Vec<Arc<QueueInner>>,
    pub(crate) batch: Option<Arc<BatchInner>>,
    pub(crate) handle: sys::quire_step,
}

fn check_room(items: &[Item], results: &[ItemResult]) -> Result<()> {
    if results.len() < items.len() {
        return Err(Error::argument(format!(
            "results has room for {} of {} items",
            results.len(),
            items.len()
        )));
    }
    Ok(())
}

fn check_batch(cache: &Arc<CacheInner>, batch: Option<&Batch>) -> Result<()> {
    cache.check_kept()?;
    match batch {
        Some(batch) if !Arc::ptr_eq(&batch.inner.cache, cache) => {
            Err(Error::argument("the batch belongs to another cache"))
        }
        _ => Ok(()),
    }
}

impl Cache {
    /// Opens a step and adds items: `results[i]` says what became of `items[i]`, whose tokens are a
    /// range of `tokens`. A cache has at most one open step.
    pub fn begin(
        &self,
        options: StepOptions<'_>,
        items: &[Item],
        tokens: &[Token],
        results: &mut [ItemResult],
    ) -> Result<OpenStep> {
        check_room(items, results)?;
        self.inner.end_what_is_dropped();
        let queues: Vec<_> = options.queues.iter().map(|queue| queue.pointer()).collect();
        let desc = options.raw(&queues)?;
        let (item_count, token_count) =
            (count("items", items.len())?, count("tokens", tokens.len())?);
        let mut handle = 0;
        invoke!(
            self.inner.api,
            step_begin(
                self.inner.pointer(),
                &desc,
                first(items).cast(),
                item_count,
                stride_of::<Item>(),
                first(tokens),
                token_count,
                first_mut(results).cast(),
                stride_of::<ItemResult>(),
                &mut handle,
            )
        )?;
        let queues = options.queues.iter().map(|queue| queue.inner.clone()).collect();
        Ok(OpenStep { cache: self.inner.clone(), queues, handle })
    }

    /// Applies the leader's next log to a follower and returns its step, already committed.
    pub fn apply_log(
        &self,
        log: &[u8],
        options: StepOptions<'_>,
        batch: Option<&mut Batch>,
    ) -> Result<Step> {
        check_batch(&self.inner, batch.as_deref())?;
        self.inner.end_what_is_dropped();
        let queues: Vec<_> = options.queues.iter().map(|queue| queue.pointer()).collect();
        let desc = options.raw(&queues)?;
        let target = batch.as_ref().map_or(std::ptr::null_mut(), |batch| batch.pointer());
        let mut handle = 0;
        let mut committed = batch.as_ref().map(|batch| batch.inner.committed());
        invoke!(
            self.inner.api,
            log_apply(
                self.inner.pointer(),
                first(log).cast(),
                log.len() as u64,
                &desc,
                target,
                &mut handle,
            )
        )?;
        let queues: Vec<_> = options.queues.iter().map(|queue| queue.inner.clone()).collect();
        self.inner.runs_on(&queues);
        if let Some(committed) = &mut committed {
            **committed = handle;
        }
        drop(committed);
        let batch = batch.map(|batch| batch.inner.clone());
        Ok(Step { cache: self.inner.clone(), queues, batch, handle })
    }
}

impl OpenStep {
    /// Adds items; on an error none of them is added.
    pub fn add(
        &mut self,
        items: &[Item],
        tokens: &[Token],
        results: &mut [ItemResult],
    ) -> Result<()> {
        check_room(items, results)?;
        let (item_count, token_count) =
            (count("items", items.len())?, count("tokens", tokens.len())?);
        invoke!(
            self.cache.api,
            step_add(
                self.cache.pointer(),
                self.handle,
                first(items).cast(),
                item_count,
                stride_of::<Item>(),
                first(tokens),
                token_count,
                first_mut(results).cast(),
                stride_of::<ItemResult>(),
            )
        )
        .map(drop)
    }

    /// Takes an item back, with later items that need what it had. Returns the handles of all of
    /// them.
    pub fn drop_item(&mut self, sequence: &Sequence) -> Result<Vec<u64>> {
        let (cache, step, handle) = (&self.cache, self.handle, sequence.handle());
        listed(16, |to, capacity, found| {
            invoke!(cache.api, step_drop(cache.pointer(), step, handle, to, capacity, found))
        })
    }

    /// Gives up the blocks of a sequence without an item and returns how many of them the step can
    /// use. `None`: it was to be swapped, and the host tier is short; nothing changed.
    pub fn preempt(&mut self, sequence: &Sequence, how: Preempt) -> Result<Option<u32>> {
        let cache = &self.cache;
        let mut freed = 0;
        let status = invoke!(
            cache.api,
            step_preempt(cache.pointer(), self.handle, sequence.handle(), how.raw(), &mut freed)
        )?;
        Ok((status != sys::QUIRE_S_NO_BLOCKS).then_some(freed))
    }

    /// Lists the sequences that were preempted in the step.
    pub fn preempted(&self) -> Result<Vec<Preemption>> {
        preempted(&self.cache, self.handle)
    }

    /// Lists the step's copies in the order in which they must run. The engine runs those of a
    /// bookkeeping-only cache.
    pub fn copies(&self) -> Result<Vec<BlockCopy>> {
        copies(&self.cache, self.handle)
    }

    /// Returns a sequence's planned block table in a group; 0 is the null block.
    pub fn blocks(&self, sequence: &Sequence, group: u32) -> Result<Vec<i32>> {
        blocks(&self.cache, self.handle, sequence, group)
    }

    /// Makes the step real: its copies and tables are enqueued. After an error the step is still
    /// open, unless a lost device undid it.
    pub fn commit(self, batch: Option<&mut Batch>) -> std::result::Result<Step, CommitError> {
        let target = batch.as_ref().map_or(std::ptr::null_mut(), |batch| batch.pointer());
        let done = check_batch(&self.cache, batch.as_deref()).and_then(|()| {
            let mut committed = batch.as_ref().map(|batch| batch.inner.committed());
            invoke!(self.cache.api, step_commit(self.cache.pointer(), self.handle, target))?;
            if let Some(committed) = &mut committed {
                **committed = self.handle;
            }
            Ok(())
        });
        if let Err(error) = done {
            let is_undone = error.kind() == ErrorKind::DeviceLost;
            return Err(CommitError { step: (!is_undone).then_some(self), error });
        }
        // Neither field is dropped: both move into the committed step.
        let open = ManuallyDrop::new(self);
        // SAFETY: `open` is not used any more.
        let (cache, queues) =
            unsafe { (std::ptr::read(&open.cache), std::ptr::read(&open.queues)) };
        cache.runs_on(&queues);
        cache.end_what_is_dropped();
        Ok(Step {
            cache,
            queues,
            batch: batch.map(|batch| batch.inner.clone()),
            handle: open.handle,
        })
    }
}

impl Drop for OpenStep {
    fn drop(&mut self) {
        let _ = invoke!(self.cache.api, step_abort(self.cache.pointer(), self.handle));
        self.cache.end_what_is_dropped();
    }
}

impl Step {
    /// Says that all of the step's work has been enqueued on its queues. On an error the step has
    /// failed.
    pub fn finish(self) -> Result<()> {
        self.end(std::ptr::null())
    }

    /// As [`Step::finish`], for an engine whose own work ends with a semaphore of its own: the
    /// step's queue waits for that.
    ///
    /// # Safety
    /// `signal` names a semaphore of this device's driver that lives until the queue has run, and
    /// that will be signalled.
    pub unsafe fn finish_after(self, signal: &crate::Native) -> Result<()> {
        self.end(&signal.raw())
    }

    fn end(self, signal: *const sys::quire_native) -> Result<()> {
        let outcome = sys::QUIRE_STEP_OK;
        let cache = &self.cache;
        invoke!(cache.api, step_finish(cache.pointer(), self.handle, signal, outcome))?;
        let mut ended = ManuallyDrop::new(self);
        // SAFETY: `ended` is no longer used; its fields are dropped once.
        unsafe {
            std::ptr::drop_in_place(&mut ended.batch);
            std::ptr::drop_in_place(&mut ended.queues);
            std::ptr::drop_in_place(&mut ended.cache);
        }
        Ok(())
    }

    /// Fails the step: what it computed is taken back, known tokens stay.
    pub fn fail(self) {
        drop(self);
    }

    /// Lists the sequences that were preempted in the step.
    pub fn preempted(&self) -> Result<Vec<Preemption>> {
        preempted(&self.cache, self.handle)
    }

    /// Lists the step's copies in the order in which they must run. The engine runs those of a
    /// bookkeeping-only cache.
    pub fn copies(&self) -> Result<Vec<BlockCopy>> {
        copies(&self.cache, self.handle)
    }

    /// Returns a sequence's block table in a group; 0 is the null block.
    pub fn blocks(&self, sequence: &Sequence, group: u32) -> Result<Vec<i32>> {
        blocks(&self.cache, self.handle, sequence, group)
    }

    /// Returns the bytes that followers must apply.
    pub fn log(&self) -> Result<Vec<u8>> {
        let cache = &self.cache;
        bytes(|to, capacity, size| {
            invoke!(cache.api, step_log(cache.pointer(), self.handle, to.cast(), capacity, size))
        })
    }
}

impl Drop for Step {
    fn drop(&mut self) {
        let (cache, failed) = (&self.cache, sys::QUIRE_STEP_FAILED);
        let _ =
            invoke!(cache.api, step_finish(cache.pointer(), self.handle, std::ptr::null(), failed));
    }
}

fn preempted(cache: &CacheInner, step: sys::quire_step) -> Result<Vec<Preemption>> {
    let stride = stride_of::<sys::quire_preemption>();
    let list = listed(16, |to, capacity, found| {
        invoke!(cache.api, step_preempted(cache.pointer(), step, to, capacity, stride, found))
    })?;
    Ok(list.into_iter().map(Preemption::from).collect())
}

fn copies(cache: &CacheInner, step: sys::quire_step) -> Result<Vec<BlockCopy>> {
    let stride = stride_of::<sys::quire_block_copy>();
    let list = listed(16, |to, capacity, found| {
        invoke!(cache.api, step_copies(cache.pointer(), step, to, capacity, stride, found))
    })?;
    Ok(list.into_iter().map(BlockCopy::from).collect())
}

pub(crate) fn blocks(
    cache: &CacheInner,
    step: sys::quire_step,
    sequence: &Sequence,
    group: u32,
) -> Result<Vec<i32>> {
    let handle = sequence.handle();
    listed(64, |to, capacity, found| {
        invoke!(
            cache.api,
            step_blocks(cache.pointer(), step, handle, group, 0, to, capacity, found)
        )
    })
}

impl fmt::Debug for OpenStep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "OpenStep({:#x})", self.handle)
    }
}

impl fmt::Debug for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Step({:#x})", self.handle)
    }
}
