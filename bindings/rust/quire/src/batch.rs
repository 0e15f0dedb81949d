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
    /// `[rows][max_blocks_per_row]`, as vLLM and FlashAttention.
    pub const BLOCK_TABLE: Self = Self(sys::QUIRE_VIEW_BLOCK_TABLE);
    /// indptr, indices, last page's length, as FlashInfer.
    pub const CSR: Self = Self(sys::QUIRE_VIEW_CSR);
    /// One a new token.
    pub const SLOTS: Self = Self(sys::QUIRE_VIEW_SLOTS);
    /// One a context token, as SGLang and ggml.
    pub const CONTEXT_SLOTS: Self = Self(sys::QUIRE_VIEW_CONTEXT_SLOTS);
    /// Of each row, new tokens included.
    pub const LENGTHS: Self = Self(sys::QUIRE_VIEW_LENGTHS);
    /// One a new token.
    pub const POSITIONS: Self = Self(sys::QUIRE_VIEW_POSITIONS);
    /// Where each row's new tokens begin.
    pub const CU_Q: Self = Self(sys::QUIRE_VIEW_CU_Q);
    /// What items' masks say.
    pub const MASK: Self = Self(sys::QUIRE_VIEW_MASK);
    /// Entries that equal the row before's.
    pub const SHARED_PREFIX: Self = Self(sys::QUIRE_VIEW_SHARED_PREFIX);
}

impl BitOr for Views {
    type Output = Self;
    fn bitor(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

/// How base frequencies become those used.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub enum RopeScaling<'a> {
    /// As they are.
    #[default]
    Plain,
    /// Divided by a factor.
    Linear(f32),
    /// Llama 3.1's: by wavelength.
    Llama3 {
        /// At least 1.
        factor: f32,
        /// 0: 1.
        low_freq_factor: f32,
        /// 0: 4.
        high_freq_factor: f32,
        /// Tokens that the model was first trained on.
        original_context: u32,
    },
    /// By turns in the original context (arXiv 2309.00071).
    Yarn {
        /// At least 1.
        factor: f32,
        /// 0: 32.
        beta_fast: f32,
        /// 0: 1.
        beta_slow: f32,
        /// Tokens that the model was first trained on.
        original_context: u32,
    },
    /// Radians a position of each pair, in place of base and scaling.
    Frequencies(&'a [f32]),
}

/// Rotary embedding, by which a KV write turns K, and q where it is named.
#[derive(Debug, Clone, Copy, Default)]
pub struct Rope<'a> {
    /// Elements 2 i and 2 i + 1 are turned together; else i and i + half.
    pub adjacent_pairs: bool,
    /// Even; 0: the whole head.
    pub rotated_dim: u32,
    /// 0: 10,000.
    pub base: f32,
    /// How frequencies are scaled.
    pub scaling: RopeScaling<'a>,
    /// Of cosine and sine; 0: as the scaling says.
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
                        "{} frequencies for a rotated_dim of {}: say it, and give half as many",
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
    /// Of a call on one shard; a multiple of the group's KV heads there.
    pub q_heads: u32,
    /// Of q and out; `Default`: f32.
    pub q_dtype: DType,
    /// 0: 1 / sqrt(head_dim).
    pub scale: f32,
    /// 0: none.
    pub soft_cap: f32,
    /// One a query head.
    pub alibi_slopes: Option<&'a [f32]>,
    /// `None`: a KV write turns nothing.
    pub rope: Option<Rope<'a>>,
    /// Every new token sees the whole context.
    pub not_causal: bool,
    /// Bit-equal whatever else is in the batch.
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

/// How much a batch holds.
#[derive(Debug, Clone, Copy, Default)]
pub struct BatchOptions<'a> {
    /// Items that run.
    pub max_rows: u32,
    /// Of the longest row.
    pub max_blocks_per_row: u32,
    /// New tokens of all rows.
    pub max_query_tokens: u32,
    /// Of all rows, for [`Views::CSR`] and [`Views::CONTEXT_SLOTS`].
    pub max_context_tokens: u32,
    /// Of masks; 0: steps with masks are refused.
    pub max_mask_words: u32,
    /// Written in one step, over all rows.
    pub max_cross_tokens: u32,
    /// Tables to keep; attention adds what it needs.
    pub views: Views,
    /// Padding slots are 0 instead of -1.
    pub pad_with_null_slot: bool,
    /// Looks for what rows share with the row before, so that attention reads it once.
    pub shared_prefix: bool,
    /// None: tables only. One for all groups and shards, one a group, or `[shard][group]`.
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
    // (q_heads, q_dtype, has sink logits) of what was given.
    pub(crate) attention: Vec<(u32, DType, bool)>,
    pub(crate) cache: Arc<CacheInner>,
    // The step that was committed into it last. Held across commits and launches, which read what
    // commits write.
    pub(crate) committed: Mutex<sys::quire_step>,
}

// SAFETY: objects may be shared between threads (base.h).
unsafe impl Send for BatchInner {}
unsafe impl Sync for BatchInner {}

impl Drop for BatchInner {
    fn drop(&mut self) {
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

/// Tables in the host's memory, in the order of the rows; empty where the view is not kept.
/// Names and padding are those of `quire_batch_views` in step.h. While they are there the cache
/// does not move.
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

/// Keeps a cache where it is.
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
    /// step.h, under its names.
    BatchViews of quire_batch_views {
        block_table: u64, csr_indptr: u64, csr_indices: u64, csr_last_page_len: u64, slots: u64,
        context_slots: u64, lengths: u64, positions: u64, cu_q: u64, block_table_stride: u32,
        row_count: u32, query_tokens: u32, max_length: u32, mask: u64, mask_rows: u64,
        mask_first: u64, shared_prefix: u64, write_tokens: u32,
    }
}

impl Cache {
    /// Makes a batch.
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
/// `address` is 0, or of `length` elements that live and stay for 'a.
unsafe fn table<'a, T>(address: u64, length: usize) -> &'a [T] {
    if address == 0 {
        return &[];
    }
    // SAFETY: as above.
    unsafe { std::slice::from_raw_parts(address as *const T, length) }
}

impl Batch {
    /// Addresses of the tables, and what the last commit wrote. They are the device's in a cache
    /// with memory, the host's in one without.
    pub fn views(&self, group: u32, shard: u32) -> Result<BatchViews> {
        self.inner.views(group, shard).map(BatchViews::from)
    }

    /// The tables of a cache that keeps books only. They stay until the next commit into this
    /// batch, which the borrow keeps away.
    ///
    /// ```compile_fail
    /// # fn f(batch: &mut quire::Batch, step: quire::OpenStep) -> quire::Result<()> {
    /// let tables = batch.tables(0)?;
    /// step.commit(Some(batch))?; // would write them
    /// println!("{:?}", tables.slots);
    /// # Ok(()) }
    /// ```
    pub fn tables(&self, group: u32) -> Result<HostTables<'_>> {
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
            // Without lengths nobody knows how many there are.
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
