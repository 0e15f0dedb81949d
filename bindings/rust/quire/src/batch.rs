// SPDX-License-Identifier: Apache-2.0

use std::fmt;
use std::ops::BitOr;
use std::ptr::NonNull;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use quire_sys as sys;

use crate::cache::CacheInner;
use crate::call::{count, desc, first, flags, invoke, made, mirror, stride_of, Api};
use crate::{Cache, DType, Error, ErrorKind, Result};

/// Which tables a batch keeps; combine them with `|`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Views(u32);

impl Views {
    /// `[rows][max_blocks_per_row]`, as in vLLM and FlashAttention.
    pub const BLOCK_TABLE: Self = Self(sys::QUIRE_VIEW_BLOCK_TABLE);
    /// indptr, indices, last page's length, as in FlashInfer.
    pub const CSR: Self = Self(sys::QUIRE_VIEW_CSR);
    /// One slot per new token.
    pub const SLOTS: Self = Self(sys::QUIRE_VIEW_SLOTS);
    /// One slot per context token, as in SGLang and ggml.
    pub const CONTEXT_SLOTS: Self = Self(sys::QUIRE_VIEW_CONTEXT_SLOTS);
    /// Context length of each row, new tokens included.
    pub const LENGTHS: Self = Self(sys::QUIRE_VIEW_LENGTHS);
    /// One position per new token.
    pub const POSITIONS: Self = Self(sys::QUIRE_VIEW_POSITIONS);
    /// Where each row's new tokens begin.
    pub const CU_Q: Self = Self(sys::QUIRE_VIEW_CU_Q);
    /// The items' masks.
    pub const MASK: Self = Self(sys::QUIRE_VIEW_MASK);
    /// How many of each row's entries equal the previous row's.
    pub const SHARED_PREFIX: Self = Self(sys::QUIRE_VIEW_SHARED_PREFIX);
}

impl BitOr for Views {
    type Output = Self;
    fn bitor(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

/// How the base frequencies are scaled.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub enum RopeScaling<'a> {
    /// Not at all.
    #[default]
    Plain,
    /// Divided by a factor.
    Linear(f32),
    /// By wavelength, as in Llama 3.1.
    Llama3 {
        /// At least 1.
        factor: f32,
        /// 0 means 1.
        low_freq_factor: f32,
        /// 0 means 4.
        high_freq_factor: f32,
        /// Tokens that the model was first trained on.
        original_context: u32,
    },
    /// By the number of turns in the original context (YaRN, arXiv 2309.00071).
    Yarn {
        /// At least 1.
        factor: f32,
        /// 0 means 32.
        beta_fast: f32,
        /// 0 means 1.
        beta_slow: f32,
        /// Tokens that the model was first trained on.
        original_context: u32,
    },
    /// Radians per position for each pair, in place of base and scaling.
    Frequencies(&'a [f32]),
}

/// Rotary embedding, with which a KV write rotates K, and q if it is given.
#[derive(Debug, Clone, Copy, Default)]
pub struct Rope<'a> {
    /// Rotates elements 2 i and 2 i + 1 together; else i and i + half.
    pub adjacent_pairs: bool,
    /// Number of elements to rotate, even; 0: the whole head.
    pub rotated_dim: u32,
    /// Base of the frequencies; 0 means 10,000.
    pub base: f32,
    /// How the frequencies are scaled.
    pub scaling: RopeScaling<'a>,
    /// Factor of cosine and sine; 0: the default of the scaling.
    pub magnitude: f32,
}

impl Rope<'_> {
    fn raw(&self) -> Result<sys::quire_rope_desc> {
        let mut desc = desc!(quire_rope_desc {
            pairing: if self.adjacent_pairs {
                sys::QUIRE_ROPE_PAIRS
            } else {
                sys::QUIRE_ROPE_HALVES
            },
            rotated_dim: self.rotated_dim,
            base: self.base,
            magnitude: self.magnitude,
        });
        match self.scaling {
            RopeScaling::Plain => desc.scaling = sys::QUIRE_ROPE_PLAIN,
            RopeScaling::Linear(factor) => {
                desc.scaling = sys::QUIRE_ROPE_LINEAR;
                desc.factor = factor;
            }
            RopeScaling::Llama3 { factor, low_freq_factor, high_freq_factor, original_context } => {
                desc.scaling = sys::QUIRE_ROPE_LLAMA3;
                desc.factor = factor;
                desc.low_freq_factor = low_freq_factor;
                desc.high_freq_factor = high_freq_factor;
                desc.original_context = original_context;
            }
            RopeScaling::Yarn { factor, beta_fast, beta_slow, original_context } => {
                desc.scaling = sys::QUIRE_ROPE_YARN;
                desc.factor = factor;
                desc.beta_fast = beta_fast;
                desc.beta_slow = beta_slow;
                desc.original_context = original_context;
            }
            RopeScaling::Frequencies(frequencies) => {
                // The library reads rotated_dim / 2 of them.
                if self.rotated_dim == 0 || frequencies.len() != self.rotated_dim as usize / 2 {
                    return Err(Error::argument(format!(
                        "{} frequencies for a rotated_dim of {}: set rotated_dim, and give half \
                         as many frequencies",
                        frequencies.len(),
                        self.rotated_dim
                    )));
                }
                desc.frequencies = first(frequencies);
            }
        }
        Ok(desc)
    }
}

/// How attention is computed: `quire_attention_desc` of attention.h.
#[derive(Debug, Clone, Copy, Default)]
pub struct AttentionOptions<'a> {
    /// Query heads of a call on one shard; a multiple of the group's KV heads there.
    pub q_heads: u32,
    /// Type of q and out; `Default` is f32.
    pub q_dtype: DType,
    /// Scale of the scores; 0 means 1 / sqrt(head_dim).
    pub scale: f32,
    /// Soft cap of the scores; 0: none.
    pub soft_cap: f32,
    /// One slope per query head.
    pub alibi_slopes: Option<&'a [f32]>,
    /// `None`: a KV write rotates nothing.
    pub rope: Option<Rope<'a>>,
    /// Every new token sees the whole context.
    pub not_causal: bool,
    /// Results are bit-equal whatever else is in the batch.
    pub batch_invariant: bool,
    /// Steps may have masks.
    pub masks: bool,
    /// Calls are given sink logits.
    pub sink_logits: bool,
}

impl AttentionOptions<'_> {
    fn flags(&self) -> u32 {
        flags([
            (self.not_causal, sys::QUIRE_ATTENTION_NOT_CAUSAL),
            (self.batch_invariant, sys::QUIRE_ATTENTION_BATCH_INVARIANT),
            (self.masks, sys::QUIRE_ATTENTION_MASK),
            (self.sink_logits, sys::QUIRE_ATTENTION_SINK_LOGITS),
        ])
    }

    fn raw(&self, rope: Option<&sys::quire_rope_desc>) -> Result<sys::quire_attention_desc> {
        if let Some(slopes) = self.alibi_slopes {
            if slopes.len() != self.q_heads as usize {
                let (given, heads) = (slopes.len(), self.q_heads);
                return Err(Error::argument(format!("{given} ALiBi slopes for {heads} heads")));
            }
        }
        Ok(desc!(quire_attention_desc {
            flags: self.flags(),
            q_heads: self.q_heads,
            q_dtype: self.q_dtype.raw(),
            scale: self.scale,
            soft_cap: self.soft_cap,
            alibi_slopes: self.alibi_slopes.map_or(std::ptr::null(), first),
            rope: rope.map_or(std::ptr::null(), std::ptr::from_ref),
        }))
    }
}

/// How much a batch can hold.
#[derive(Debug, Clone, Copy, Default)]
pub struct BatchOptions<'a> {
    /// Items that run, one per row.
    pub max_rows: u32,
    /// Blocks of the longest row.
    pub max_blocks_per_row: u32,
    /// New tokens of all rows.
    pub max_query_tokens: u32,
    /// Context tokens of all rows, for [`Views::CSR`] and [`Views::CONTEXT_SLOTS`].
    pub max_context_tokens: u32,
    /// Words of masks; 0: steps with masks are refused.
    pub max_mask_words: u32,
    /// Cross tokens written in one step, over all rows.
    pub max_cross_tokens: u32,
    /// Tables to keep; attention adds what it needs.
    pub views: Views,
    /// Pads slots with 0 instead of -1.
    pub pad_with_null_slot: bool,
    /// Finds what each row shares with the row before it, so that attention reads that once.
    pub shared_prefix: bool,
    /// Empty: tables only. Else one entry for all groups and shards, one per group, or
    /// `[shard][group]`.
    pub attention: &'a [AttentionOptions<'a>],
}

/// Memory with fixed addresses that a step's tables are written to. Dropping it waits for all
/// steps of the cache.
pub struct Batch {
    pub(crate) inner: Arc<BatchInner>,
    cache: Cache,
}

pub(crate) struct BatchInner {
    api: Api,
    pointer: NonNull<sys::quire_batch>,
    // (q_heads, q_dtype, has sink logits) of each entry of the options.
    pub(crate) attention: Vec<(u32, DType, bool)>,
    pub(crate) cache: Arc<CacheInner>,
    // The step that was last committed into it. The lock is held across commits and launches,
    // because launches read what commits write.
    pub(crate) committed: Mutex<sys::quire_step>,
}

// SAFETY: objects may be shared between threads (base.h).
unsafe impl Send for BatchInner {}
unsafe impl Sync for BatchInner {}

impl Drop for BatchInner {
    fn drop(&mut self) {
        if self.cache.check_kept().is_err() {
            return; // the library keeps it until the process ends
        }
        self.cache.sync();
        let gone = invoke!(self.api, batch_destroy(self.pointer.as_ptr()));
        if gone.is_err_and(|error| error.kind() == ErrorKind::Busy) {
            self.cache.end_batch_later(self.pointer);
        }
    }
}

impl BatchInner {
    pub(crate) fn pointer(&self) -> *mut sys::quire_batch {
        self.pointer.as_ptr()
    }

    pub(crate) fn committed(&self) -> MutexGuard<'_, sys::quire_step> {
        self.committed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn views(&self, group: u32, shard: u32) -> Result<sys::quire_batch_views> {
        let mut views = desc!(quire_batch_views {});
        invoke!(self.api, batch_get_views(self.pointer(), group, shard, &mut views))?;
        Ok(views)
    }
}

/// A batch's tables in host memory, in row order; empty if the batch does not keep the view. Names
/// and padding are those of `quire_batch_views` in batch.h. The cache cannot move meanwhile.
#[derive(Debug)]
pub struct HostTables<'a> {
    _hold: TableHold<'a>,
    /// `[rows][block_table_stride]`
    pub block_table: &'a [i32],
    /// Elements of a row.
    pub block_table_stride: usize,
    /// `[rows + 1]`
    pub csr_indptr: &'a [i32],
    /// `[csr_indptr[rows]]`
    pub csr_indices: &'a [i32],
    /// `[rows]`
    pub csr_last_page_len: &'a [i32],
    /// `[write_tokens]`
    pub slots: &'a [i64],
    /// `[sum of lengths]`
    pub context_slots: &'a [i32],
    /// `[rows]`
    pub lengths: &'a [i32],
    /// `[query_tokens]`
    pub positions: &'a [i32],
    /// `[rows + 1]`
    pub cu_q: &'a [i32],
    /// `[rows]`
    pub shared_prefix: &'a [i32],
    /// Rows of the last commit.
    pub row_count: usize,
    /// New tokens of the last commit.
    pub query_tokens: usize,
}

/// Keeps a cache from moving.
#[derive(Debug)]
struct TableHold<'a>(&'a Cache);

impl<'a> TableHold<'a> {
    fn new(cache: &'a Cache) -> Result<Self> {
        cache.inner.hold_tables()?;
        Ok(Self(cache))
    }
}

impl Drop for TableHold<'_> {
    fn drop(&mut self) {
        self.0.inner.release_tables();
    }
}

mirror! {
    /// Addresses of a batch's tables, and what the last commit wrote: `quire_batch_views` of
    /// step.h, with the same field names.
    BatchViews of quire_batch_views {
        block_table: u64, csr_indptr: u64, csr_indices: u64, csr_last_page_len: u64, slots: u64,
        context_slots: u64, lengths: u64, positions: u64, cu_q: u64, block_table_stride: u32,
        row_count: u32, query_tokens: u32, max_length: u32, mask: u64, mask_rows: u64,
        mask_first: u64, shared_prefix: u64, write_tokens: u32,
    }
}

impl Cache {
    /// Creates a batch.
    pub fn batch(&self, options: BatchOptions<'_>) -> Result<Batch> {
        let ropes: Vec<_> = options
            .attention
            .iter()
            .map(|attention| attention.rope.as_ref().map(Rope::raw).transpose())
            .collect::<Result<_>>()?;
        let attention: Vec<_> = options
            .attention
            .iter()
            .zip(&ropes)
            .map(|(attention, rope)| attention.raw(rope.as_ref()))
            .collect::<Result<_>>()?;
        let pad = if options.pad_with_null_slot { sys::QUIRE_BATCH_PAD_NULL_SLOT } else { 0 };
        let shared = if options.shared_prefix { sys::QUIRE_BATCH_SHARED_PREFIX } else { 0 };
        let desc = desc!(quire_batch_desc {
            flags: pad | shared,
            max_rows: options.max_rows,
            max_blocks_per_row: options.max_blocks_per_row,
            max_query_tokens: options.max_query_tokens,
            max_context_tokens: options.max_context_tokens,
            views: options.views.0,
            attention_count: count("attention options", attention.len())?,
            attention_stride: stride_of::<sys::quire_attention_desc>(),
            max_mask_words: options.max_mask_words,
            attention: first(&attention),
            max_cross_tokens: options.max_cross_tokens,
        });
        let api = self.inner.api;
        let mut out = std::ptr::null_mut();
        invoke!(api, batch_create(self.inner.pointer(), &desc, &mut out))?;
        let attention = options.attention.iter();
        let inner = BatchInner {
            api,
            pointer: made(out)?,
            attention: attention
                .map(|given| (given.q_heads, given.q_dtype, given.sink_logits))
                .collect(),
            cache: self.inner.clone(),
            committed: Mutex::new(0),
        };
        Ok(Batch { inner: Arc::new(inner), cache: self.clone() })
    }
}

/// # Safety
/// `address` is 0, or that of `length` elements that live and do not change for 'a.
unsafe fn table<'a, T>(address: u64, length: usize) -> &'a [T] {
    if address == 0 {
        return &[];
    }
    // SAFETY: as above.
    unsafe { std::slice::from_raw_parts(address as *const T, length) }
}

impl Batch {
    /// Returns the addresses of the tables, and what the last commit wrote. In a cache with memory
    /// they are device addresses, else host addresses.
    pub fn views(&self, group: u32, shard: u32) -> Result<BatchViews> {
        self.inner.views(group, shard).map(BatchViews::from)
    }

    /// Returns the tables of a bookkeeping-only cache. They stay as they are until the next commit
    /// into this batch, which the borrow prevents.
    ///
    /// ```compile_fail
    /// # fn f(batch: &mut quire::Batch, step: quire::OpenStep) -> quire::Result<()> {
    /// let tables = batch.tables(0)?;
    /// step.commit(Some(batch))?; // would write them
    /// println!("{:?}", tables.slots);
    /// # Ok(()) }
    /// ```
    pub fn tables(&self, group: u32) -> Result<HostTables<'_>> {
        self.inner.cache.check_kept()?;
        let is_here = self.inner.cache.placement.read().is_ok_and(|at| at.devices.is_empty());
        if !is_here {
            return Err(Error::new(
                ErrorKind::Unsupported,
                "the tables are on a device: Batch::views gives their addresses",
            ));
        }
        let hold = TableHold::new(&self.cache)?;
        let views = self.inner.views(group, 0)?;
        let rows = views.row_count as usize;
        // SAFETY: host memory of the batch, of these sizes (step.h), written by commits only.
        unsafe {
            let lengths: &[i32] = table(views.lengths, rows);
            let indptr: &[i32] = table(views.csr_indptr, rows + 1);
            let indices = indptr.last().map_or(0, |end| *end as usize);
            let context = lengths.iter().map(|length| *length as usize).sum();
            // Only the lengths say how many there are.
            let context_slots = if views.lengths == 0 { 0 } else { views.context_slots };
            Ok(HostTables {
                _hold: hold,
                block_table: table(views.block_table, rows * views.block_table_stride as usize),
                block_table_stride: views.block_table_stride as usize,
                csr_indptr: indptr,
                csr_indices: table(views.csr_indices, indices),
                csr_last_page_len: table(views.csr_last_page_len, rows),
                slots: table(views.slots, views.write_tokens as usize),
                context_slots: table(context_slots, context),
                lengths,
                positions: table(views.positions, views.query_tokens as usize),
                cu_q: table(views.cu_q, rows + 1),
                shared_prefix: table(views.shared_prefix, rows),
                row_count: rows,
                query_tokens: views.query_tokens as usize,
            })
        }
    }

    pub(crate) fn pointer(&self) -> *mut sys::quire_batch {
        self.inner.pointer()
    }
}

impl fmt::Debug for Batch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Batch").finish_non_exhaustive()
    }
}
