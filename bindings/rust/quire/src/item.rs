// SPDX-License-Identifier: Apache-2.0

//! Elements of a step. They have the library's memory layout, so that a slice of them is passed
//! without a copy.

use std::fmt;

use quire_sys as sys;

use crate::Sequence;

/// What a sequence wants from a step. Its tokens, a range of those passed with the items, extend
/// what is known; then at most [`Item::max_compute`] of the known tokens that are not computed yet
/// are computed.
#[repr(transparent)]
#[derive(Clone, Copy, Default)]
pub struct Item(pub(crate) sys::quire_step_item);

impl Item {
    /// For [`Item::max_hit_tokens`].
    pub const NO_HITS: u32 = sys::QUIRE_NO_HITS;

    /// Continues the sequence with what is known of it.
    pub fn new(sequence: &Sequence) -> Self {
        Self(sys::quire_step_item { seq: sequence.handle(), ..Default::default() })
    }

    /// Adds `count` tokens, from `offset` on in those passed with the items.
    pub fn tokens(mut self, offset: u32, count: u32) -> Self {
        self.0.token_offset = offset;
        self.0.token_count = count;
        self
    }

    /// Computes at most `count` tokens now; 0: all.
    pub fn max_compute(mut self, count: u32) -> Self {
        self.0.max_compute = count;
        self
    }

    /// Finds at most `count` tokens, in whole blocks, and computes the rest, even if it is cached;
    /// 0: no limit. [`Item::NO_HITS`]: finds none. For a sequence with nothing computed.
    pub fn max_hit_tokens(mut self, count: u32) -> Self {
        self.0.max_hit_tokens = count;
        self
    }

    /// Lets the item wait for its prefix to be loaded from the cache's tier.
    pub fn may_load(mut self) -> Self {
        self.0.flags |= sys::QUIRE_ITEM_MAY_LOAD;
        self
    }

    /// Makes the last `count` tokens drafts: [`Sequence::accept`].
    pub fn drafts(mut self, count: u32) -> Self {
        self.0.draft_count = count;
        if self.0.mask_kind == sys::QUIRE_MASK_PARENTS {
            self.0.mask_rows = count;
        }
        self
    }

    /// Reserves `count` slots after the last known token.
    pub fn lookahead(mut self, count: u32) -> Self {
        self.0.lookahead = count;
        self
    }

    /// Makes the drafts a tree. From `offset` on, the tokens hold each draft's parent: the index of
    /// an earlier draft, or `QUIRE_MASK_ROOT`.
    pub fn draft_tree(mut self, offset: u32) -> Self {
        self.0.mask_kind = sys::QUIRE_MASK_PARENTS;
        self.0.mask_offset = offset;
        self.0.mask_rows = self.0.draft_count;
        self
    }

    /// Sets what the last `rows` known tokens see, as words from `offset` on in the tokens: step.h,
    /// `QUIRE_MASK_BITS`.
    pub fn mask_bits(mut self, offset: u32, rows: u32) -> Self {
        self.0.mask_kind = sys::QUIRE_MASK_BITS;
        self.0.mask_offset = offset;
        self.0.mask_rows = rows;
        self
    }

    /// Returns the handle of the item's sequence.
    pub fn handle(&self) -> u64 {
        self.0.seq
    }
}

impl fmt::Debug for Item {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Why an item waits, or a lease gets no blocks.
#[non_exhaustive]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wait {
    /// The pool is short of blocks.
    Pool,
    /// The pool would go below the watermark.
    Watermark,
    /// Its namespace's quota is used up.
    Quota,
    /// It gave up its blocks in this step.
    Preempted,
    /// Its prefix is being loaded from the cache's tier.
    Loading,
    /// A reason that this crate does not know.
    Other,
}

impl Wait {
    pub(crate) fn of(reason: u32) -> Self {
        match reason {
            sys::QUIRE_WAIT_POOL => Self::Pool,
            sys::QUIRE_WAIT_WATERMARK => Self::Watermark,
            sys::QUIRE_WAIT_QUOTA => Self::Quota,
            sys::QUIRE_WAIT_PREEMPTED => Self::Preempted,
            _ => Self::Other,
        }
    }
}

/// What became of an item.
#[repr(transparent)]
#[derive(Clone, Copy, Default)]
pub struct ItemResult(pub(crate) sys::quire_step_result);

impl ItemResult {
    /// True if the item is in the step; else see [`ItemResult::wait`].
    #[inline]
    pub fn runs(&self) -> bool {
        self.0.outcome == sys::QUIRE_ITEM_RUN
    }

    /// Why the item waits; `None`: it runs.
    pub fn wait(&self) -> Option<Wait> {
        if self.0.outcome == sys::QUIRE_ITEM_LOADING {
            return Some(Wait::Loading);
        }
        (!self.runs()).then_some(Wait::of(self.0.reason))
    }

    /// Number of tokens that were found in the cache.
    #[inline]
    pub fn hit_tokens(&self) -> u32 {
        self.0.hit_tokens
    }

    /// Position of the first token to compute.
    #[inline]
    pub fn first_position(&self) -> u32 {
        self.0.first_position
    }

    /// Number of tokens to compute.
    #[inline]
    pub fn compute_count(&self) -> u32 {
        self.0.compute_count
    }

    /// Number of missing blocks, in the group that is shortest of them.
    #[inline]
    pub fn blocks_short(&self) -> u32 {
        self.0.blocks_short
    }

    /// The item's row in the batch.
    #[inline]
    pub fn row(&self) -> usize {
        self.0.row as usize
    }

    /// Number of rows to write into cross groups in this step.
    #[inline]
    pub fn cross_tokens(&self) -> u32 {
        self.0.cross_tokens
    }
}

impl fmt::Debug for ItemResult {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Names unknown tokens of a sequence: [`crate::Cache::set_tokens`].
#[repr(transparent)]
#[derive(Debug, Clone, Copy, Default)]
pub struct TokenSpan(pub(crate) sys::quire_token_span);

impl TokenSpan {
    /// Names the sequence's tokens from `position` on: `count` tokens, from `offset` on in those
    /// passed with the spans.
    pub fn new(sequence: &Sequence, position: u32, offset: u32, count: u32) -> Self {
        Self(sys::quire_token_span {
            seq: sequence.handle(),
            position,
            token_offset: offset,
            token_count: count,
            ..Default::default()
        })
    }
}

/// A sequence that gave up its blocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Preemption {
    /// The sequence's handle.
    pub sequence: u64,
    /// Its blocks are in the host tier; else they must be computed again.
    pub is_swapped: bool,
    /// The library chose the sequence, not the caller.
    pub is_chosen: bool,
    /// Computed tokens that it had.
    pub computed_tokens: u32,
    /// Blocks that it gave up.
    pub blocks: u32,
    /// The sequence whose item needed the room; `None` if the caller chose.
    pub for_sequence: Option<u64>,
}

impl From<sys::quire_preemption> for Preemption {
    fn from(raw: sys::quire_preemption) -> Self {
        Self {
            sequence: raw.seq,
            is_swapped: raw.how == sys::QUIRE_PREEMPT_SWAP,
            is_chosen: raw.chosen_by == 1,
            computed_tokens: raw.computed_tokens,
            blocks: raw.blocks,
            for_sequence: (raw.for_seq != 0).then_some(raw.for_seq),
        }
    }
}

/// What to do with a block.
#[non_exhaustive]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CopyKind {
    /// Copy it within the device.
    OnWrite,
    /// Copy it to the host tier.
    SwapOut,
    /// Copy it from the host tier.
    SwapIn,
    /// Copy one of its tokens.
    Token,
    /// Fill it with zeros.
    Zero,
    /// Something that this crate does not know: do not go on.
    Other,
}

/// One block to copy, or to zero. The engine does this for a bookkeeping-only cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BlockCopy {
    /// What to do.
    pub kind: CopyKind,
    /// The group, which has its own pool.
    pub group: u32,
    /// The source block.
    pub src: i32,
    /// The target block.
    pub dst: i32,
    /// For [`CopyKind::Token`]: the token's slot in `src`.
    pub src_place: u32,
    /// And its slot in `dst`.
    pub dst_place: u32,
}

impl From<sys::quire_block_copy> for BlockCopy {
    fn from(raw: sys::quire_block_copy) -> Self {
        let kind = match raw.kind {
            sys::QUIRE_COPY_ON_WRITE => CopyKind::OnWrite,
            sys::QUIRE_COPY_SWAP_OUT => CopyKind::SwapOut,
            sys::QUIRE_COPY_SWAP_IN => CopyKind::SwapIn,
            sys::QUIRE_COPY_TOKEN => CopyKind::Token,
            sys::QUIRE_COPY_ZERO => CopyKind::Zero,
            _ => CopyKind::Other,
        };
        let sys::quire_block_copy { group, src, dst, src_place, dst_place, .. } = raw;
        Self { kind, group, src, dst, src_place, dst_place }
    }
}
