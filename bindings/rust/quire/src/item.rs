// SPDX-License-Identifier: Apache-2.0

//! Elements of a step. They lie in memory as the library has them, so that a slice of them is given
//! without a copy.

use std::fmt;

use quire_sys as sys;

use crate::Sequence;

/// What a sequence wants of a step: its tokens, a range of those given beside the items, extend
/// what is known; then at most [`Item::max_compute`] of the known, not computed ones are computed.
#[repr(transparent)]
#[derive(Clone, Copy, Default)]
pub struct Item(pub(crate) sys::quire_step_item);

impl Item {
    /// Goes on with what is known.
    pub fn new(sequence: &Sequence) -> Self {
        Self(sys::quire_step_item { seq: sequence.handle(), ..Default::default() })
    }

    /// Adds `count` tokens, from `offset` on of those given beside the items.
    pub fn tokens(mut self, offset: u32, count: u32) -> Self {
        self.0.token_offset = offset;
        self.0.token_count = count;
        self
    }

    /// Computes no more than so many now; 0: all.
    pub fn max_compute(mut self, count: u32) -> Self {
        self.0.max_compute = count;
        self
    }

    /// The last `count` tokens are drafts: [`Sequence::accept`].
    pub fn drafts(mut self, count: u32) -> Self {
        self.0.draft_count = count;
        if self.0.mask_kind == sys::QUIRE_MASK_PARENTS {
            self.0.mask_rows = count;
        }
        self
    }

    /// Slots to reserve behind the last known token.
    pub fn lookahead(mut self, count: u32) -> Self {
        self.0.lookahead = count;
        self
    }

    /// The drafts are a tree: from `offset` on of the tokens each one's parent, an earlier draft's
    /// index or `QUIRE_MASK_ROOT`.
    pub fn draft_tree(mut self, offset: u32) -> Self {
        self.0.mask_kind = sys::QUIRE_MASK_PARENTS;
        self.0.mask_offset = offset;
        self.0.mask_rows = self.0.draft_count;
        self
    }

    /// What the last `rows` known tokens see, in bits from `offset` on of the tokens: step.h,
    /// `QUIRE_MASK_BITS`.
    pub fn mask_bits(mut self, offset: u32, rows: u32) -> Self {
        self.0.mask_kind = sys::QUIRE_MASK_BITS;
        self.0.mask_offset = offset;
        self.0.mask_rows = rows;
        self
    }

    /// Its sequence's handle.
    pub fn handle(&self) -> u64 {
        self.0.seq
    }
}

impl fmt::Debug for Item {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Why an item waits.
#[non_exhaustive]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wait {
    /// The pool is short.
    Pool,
    /// It would go below the watermark.
    Watermark,
    /// Its namespace's quota is used up.
    Quota,
    /// It gave up its blocks in this step.
    Preempted,
    /// For something that this crate does not know.
    Other,
}

/// What becomes of an item.
#[repr(transparent)]
#[derive(Clone, Copy, Default)]
pub struct ItemResult(pub(crate) sys::quire_step_result);

impl ItemResult {
    /// It is in the step; else see [`ItemResult::wait`].
    #[inline]
    pub fn runs(&self) -> bool {
        self.0.outcome == sys::QUIRE_ITEM_RUN
    }

    /// Why it is not; `None`: it is.
    pub fn wait(&self) -> Option<Wait> {
        (!self.runs()).then_some(match self.0.reason {
            sys::QUIRE_WAIT_POOL => Wait::Pool,
            sys::QUIRE_WAIT_WATERMARK => Wait::Watermark,
            sys::QUIRE_WAIT_QUOTA => Wait::Quota,
            sys::QUIRE_WAIT_PREEMPTED => Wait::Preempted,
            _ => Wait::Other,
        })
    }

    /// Tokens that were found.
    #[inline]
    pub fn hit_tokens(&self) -> u32 {
        self.0.hit_tokens
    }

    /// Position of the first token to compute.
    #[inline]
    pub fn first_position(&self) -> u32 {
        self.0.first_position
    }

    /// Tokens to compute.
    #[inline]
    pub fn compute_count(&self) -> u32 {
        self.0.compute_count
    }

    /// Blocks that are missing, of the group that is shortest of them.
    #[inline]
    pub fn blocks_short(&self) -> u32 {
        self.0.blocks_short
    }

    /// Its row in the batch.
    #[inline]
    pub fn row(&self) -> usize {
        self.0.row as usize
    }

    /// Rows to write into cross groups in this step.
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
    /// The `count` tokens from `offset` on of those given beside the spans are those from
    /// `position` on of the sequence.
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
    /// Whose.
    pub sequence: u64,
    /// Its blocks are in the host tier; else they are gone, to be computed again.
    pub is_swapped: bool,
    /// The library chose it, not the caller.
    pub is_chosen: bool,
    /// That it had.
    pub computed_tokens: u32,
    /// That it gave up.
    pub blocks: u32,
    /// Whose item needed the room; `None` where the caller chose.
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

/// What is to be done with a block.
#[non_exhaustive]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CopyKind {
    /// Copied within the device.
    OnWrite,
    /// Copied to the host tier.
    SwapOut,
    /// Copied from the host tier.
    SwapIn,
    /// One token of it is copied.
    Token,
    /// It gets zeros.
    Zero,
    /// Something that this crate does not know: do not go on.
    Other,
}

/// One block to copy, or to zero: the engine's part where a cache keeps books only.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BlockCopy {
    /// What is to be done.
    pub kind: CopyKind,
    /// The pool.
    pub group: u32,
    /// From which block.
    pub src: i32,
    /// To which.
    pub dst: i32,
    /// Of [`CopyKind::Token`]: its slot in `src`.
    pub src_place: u32,
    /// And in `dst`.
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
