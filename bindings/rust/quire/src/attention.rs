// SPDX-License-Identifier: Apache-2.0

use std::sync::{Arc, MutexGuard, PoisonError};

use quire_sys as sys;

use crate::batch::BatchInner;
use crate::call::{desc, invoke};
use crate::memory::{lock_all, MemoryInner, Users};
use crate::rows::{check_apart, Rows};
use crate::{DType, Error, ErrorKind, GroupKind, Memory, Queue, Result, Step};

/// An array that a call reads or writes: in [`Memory`], whose size is checked, or at an address,
/// which cannot be checked.
#[derive(Debug, Clone, Copy)]
pub struct Operand<'a> {
    place: Place<'a>,
    offset_bytes: u64,
    token_stride: u64, // elements; 0: dense
}

#[derive(Debug, Clone, Copy)]
enum Place<'a> {
    Memory(&'a Memory),
    Address,
}

impl<'a> Operand<'a> {
    /// An operand in `memory`, from byte `offset_bytes` on.
    pub fn new(memory: &'a Memory, offset_bytes: u64) -> Self {
        Self { place: Place::Memory(memory), offset_bytes, token_stride: 0 }
    }

    /// An operand at an address of the queue's device.
    ///
    /// # Safety
    /// The array that the call needs is at this address until the queue has run the call.
    pub unsafe fn address(address: u64) -> Self {
        Self { place: Place::Address, offset_bytes: address, token_stride: 0 }
    }

    /// Sets the number of elements from one token's row to the next; 0: the rows are dense.
    pub fn token_stride(mut self, elements: u32) -> Self {
        self.token_stride = u64::from(elements);
        self
    }

    fn memory(&self) -> Option<&'a Memory> {
        match self.place {
            Place::Memory(memory) => Some(memory),
            Place::Address => None,
        }
    }

    fn stride(&self) -> i64 {
        self.token_stride as i64
    }

    /// Returns where the operand lies, if `tokens` rows of `row` elements fit in its memory and
    /// that is on the queue's device.
    fn resolve(
        &self,
        what: &'static str,
        queue: &Queue,
        tokens: u64,
        row: u64,
        bits: u64,
    ) -> Result<Rows> {
        let stride = if self.token_stride == 0 { row } else { self.token_stride };
        let mut rows = Rows {
            what,
            address: self.offset_bytes,
            count: tokens,
            row: row.saturating_mul(bits) / 8,
            stride: stride.saturating_mul(bits) / 8,
            is_written: false,
        };
        let Place::Memory(memory) = self.place else { return Ok(rows) };
        if !Arc::ptr_eq(&memory.inner.device, &queue.inner.device) {
            return Err(Error::argument(format!("{what} is memory of another device")));
        }
        let wanted = extent(tokens, row, self.token_stride, bits);
        let end = wanted.and_then(|bytes| bytes.checked_add(self.offset_bytes));
        if end.is_none_or(|end| end > memory.inner.size_bytes) {
            return Err(Error::argument(format!(
                "{what}: {tokens} tokens of {row} elements of {bits} bits from byte {} on \
                 do not fit in memory of {} bytes",
                self.offset_bytes, memory.inner.size_bytes
            )));
        }
        rows.address = memory.inner.address + self.offset_bytes;
        Ok(rows)
    }
}

/// Bytes from the first element to the end of the last.
fn extent(tokens: u64, row: u64, stride: u64, bits: u64) -> Option<u64> {
    let Some(steps) = tokens.checked_sub(1) else { return Some(0) };
    let stride = if stride == 0 { row } else { stride };
    let elements = steps.checked_mul(stride)?.checked_add(row)?;
    Some(elements.checked_mul(bits)?.div_ceil(8))
}

/// One layer's K and V of the new tokens, `[tokens][kv_heads][head_dim]` each.
#[derive(Debug, Clone, Copy)]
pub struct KvWrite<'a> {
    /// The layer's number in the model.
    pub layer: u32,
    /// K; in a latent group the latent.
    pub k: Operand<'a>,
    /// V; in a latent group the rotated part of the key.
    pub v: Operand<'a>,
    /// Type of `k` and `v` as given; `Default` is f32.
    pub dtype: DType,
    /// The queries, rotated in place with K if the batch has a rope.
    pub q: Option<Operand<'a>>,
}

/// One layer's attention of the new tokens over their sequences.
#[derive(Debug, Clone, Copy)]
pub struct Attend<'a> {
    /// The layer's number in the model.
    pub layer: u32,
    /// `[tokens][q_heads][head_dim]`
    pub q: Operand<'a>,
    /// `[tokens][q_heads][v_head_dim]`; written, so it must not overlap the others.
    pub out: Operand<'a>,
    /// `[tokens][q_heads]` f32, natural log; written, too.
    pub lse: Option<Operand<'a>>,
    /// f32 `[q_heads]`, if the batch has sink logits.
    pub sinks: Option<Operand<'a>>,
}

/// A layer's geometry on the queue's shard.
struct At {
    group: u32,
    shard: u32,
    kind: GroupKind,
    kv_heads: u64,
    k_dim: u64,
    v_dim: u64,
}

fn hold<'a>(operands: &[Option<Operand<'a>>]) -> Vec<Users<'a>> {
    let memories: Vec<&'a Memory> = operands.iter().flatten().filter_map(Operand::memory).collect();
    lock_all(&memories)
}

fn used(locks: &mut [Users<'_>], queue: &Queue) {
    locks.iter_mut().for_each(|users| MemoryInner::used(users, queue));
}

impl Step {
    fn batch(&self) -> Result<&BatchInner> {
        let batch = self.batch.as_deref();
        batch.ok_or_else(|| Error::argument("the step was committed without a batch"))
    }

    /// Locks the batch against commits, if this step is the last one committed into it.
    fn hold_batch(&self) -> Result<MutexGuard<'_, sys::quire_step>> {
        self.cache.check_kept()?;
        let committed = self.batch()?.committed();
        if *committed != self.handle {
            let message = "a later step was committed into the step's batch";
            return Err(Error::new(ErrorKind::Stale, message));
        }
        Ok(committed)
    }

    fn at(&self, layer: u32, queue: &Queue) -> Result<At> {
        let cache = &self.cache;
        let group = *cache.layers.get(layer as usize).ok_or_else(|| {
            Error::argument(format!("no layer {layer}: the cache has {}", cache.layers.len()))
        })?;
        let placement = cache.placement.read().unwrap_or_else(PoisonError::into_inner);
        // No one would wait for work on any other queue.
        if !self.queues.iter().any(|own| Arc::ptr_eq(own, &queue.inner)) {
            return Err(Error::argument("the queue is not one of the step's"));
        }
        let device = &queue.inner.device;
        let shard = placement
            .devices
            .iter()
            .position(|other| Arc::ptr_eq(other, device))
            .ok_or_else(|| Error::argument("the queue's device holds no shard of the cache"))?;
        let shape = &cache.groups[group as usize];
        Ok(At {
            group,
            shard: shard as u32,
            kind: shape.kind,
            kv_heads: u64::from(placement.heads[shard][group as usize]),
            k_dim: u64::from(shape.head_dim),
            v_dim: u64::from(shape.v_dim()),
        })
    }

    /// Returns the query heads, the type of q, and whether there are sink logits.
    fn attention(&self, at: &At) -> Result<(u64, DType, bool)> {
        let given = &self.batch()?.attention;
        let groups = self.cache.groups.len();
        let index = match given.len() {
            0 => return Err(Error::argument("the batch has no attention options")),
            1 => 0,
            count if count == groups => at.group as usize,
            _ => at.shard as usize * groups + at.group as usize,
        };
        let (heads, dtype, has_sinks) = given[index];
        Ok((u64::from(heads), dtype, has_sinks))
    }

    /// Enqueues the write of the new tokens' K and V into their slots. The queue must be one of the
    /// step's.
    pub fn kv_write(&self, queue: &Queue, write: &KvWrite<'_>) -> Result<()> {
        let batch = self.batch()?;
        let _held = self.hold_batch()?;
        let at = self.at(write.layer, queue)?;
        let views = batch.views(at.group, at.shard)?;
        let (tokens, bits) = (u64::from(views.write_tokens), write.dtype.operand_bits());
        let (k_row, v_row) = match at.kind {
            GroupKind::Latent => (at.v_dim, at.k_dim - at.v_dim.min(at.k_dim)),
            _ => (at.kv_heads * at.k_dim, at.kv_heads * at.v_dim),
        };
        let mut locks = hold(&[Some(write.k), Some(write.v), write.q]);
        let k = write.k.resolve("k", queue, tokens, k_row, bits)?;
        let v = write.v.resolve("v", queue, tokens, v_row, bits)?;
        let mut args = desc!(quire_kv_args {
            k: k.address,
            v: v.address,
            layer: write.layer,
            dtype: write.dtype.raw(),
            k_token_stride: write.k.stride(),
            v_token_stride: write.v.stride(),
        });
        if let Some(q) = &write.q {
            let (heads, dtype, _) = self.attention(&at)?;
            let rows = u64::from(views.query_tokens);
            let rotated = q.resolve("q", queue, rows, heads * at.k_dim, dtype.operand_bits())?;
            check_apart(&[k, v, rotated.written()])?;
            args.q = rotated.address;
            args.q_token_stride = q.stride();
        }
        invoke!(self.cache.api, kv_write(batch.pointer(), &args, queue.pointer()))?;
        used(&mut locks, queue);
        Ok(())
    }

    /// Enqueues attention of the new tokens. Enqueue the layer's KV write before.
    pub fn attend(&self, queue: &Queue, attend: &Attend<'_>) -> Result<()> {
        let batch = self.batch()?;
        let _held = self.hold_batch()?;
        let at = self.at(attend.layer, queue)?;
        let (heads, dtype, has_sinks) = self.attention(&at)?;
        let tokens = u64::from(batch.views(at.group, at.shard)?.query_tokens);
        let bits = dtype.operand_bits();
        if has_sinks && attend.sinks.is_none() {
            return Err(Error::argument("the batch has sink logits, but the call gives none"));
        }
        let mut locks = hold(&[Some(attend.q), Some(attend.out), attend.lse, attend.sinks]);
        let q = attend.q.resolve("q", queue, tokens, heads * at.k_dim, bits)?;
        let out = attend.out.resolve("out", queue, tokens, heads * at.v_dim, bits)?.written();
        let mut arrays = vec![q, out];
        let mut args = desc!(quire_attend_args {
            q: q.address,
            out: out.address,
            layer: attend.layer,
            q_token_stride: attend.q.stride(),
            out_token_stride: attend.out.stride(),
        });
        if let Some(lse) = &attend.lse {
            let lse = dense("lse", lse)?.resolve("lse", queue, tokens, heads, 32)?.written();
            args.lse = lse.address;
            arrays.push(lse);
        }
        if let Some(sinks) = &attend.sinks {
            let sinks = dense("sinks", sinks)?.resolve("sinks", queue, 1, heads, 32)?;
            args.sinks = sinks.address;
            arrays.push(sinks);
        }
        check_apart(&arrays)?;
        invoke!(self.cache.api, attend(batch.pointer(), &args, queue.pointer()))?;
        used(&mut locks, queue);
        Ok(())
    }
}

/// True if `out` is one of the parts.
fn is_part(out: &Rows, parts: &Rows) -> bool {
    let size = out.count * out.row;
    let offset = out.address.wrapping_sub(parts.address);
    out.address >= parts.address
        && size != 0
        && offset % size == 0
        && offset / size < parts.count / out.count
}

fn dense<'a, 'b>(what: &str, operand: &'b Operand<'a>) -> Result<&'b Operand<'a>> {
    if operand.token_stride != 0 {
        return Err(Error::argument(format!("{what} must be dense: it takes no token stride")));
    }
    Ok(operand)
}

/// Attention states over parts of a context, to be merged into one.
#[derive(Debug, Clone, Copy)]
pub struct Merge<'a> {
    /// `[part_count][token_count][heads][head_dim]`
    pub parts: Operand<'a>,
    /// f32 `[part_count][token_count][heads]`
    pub lses: Operand<'a>,
    /// `[token_count][heads][head_dim]`; may be one of the parts, and must not overlap them
    /// otherwise.
    pub out: Operand<'a>,
    /// f32 `[token_count][heads]`
    pub lse: Option<Operand<'a>>,
    /// Number of parts.
    pub part_count: u32,
    /// Tokens of each part.
    pub token_count: u32,
    /// Heads of each token.
    pub heads: u32,
    /// Elements of a row.
    pub head_dim: u32,
    /// Type of `parts` and `out`; `Default` is f32.
    pub dtype: DType,
}

impl Queue {
    /// Enqueues a merge of states over parts of a context into attention over the whole.
    pub fn merge(&self, merge: &Merge<'_>) -> Result<()> {
        let size = |numbers: &[u32]| {
            let product = |all: u64, &one: &u32| all.checked_mul(u64::from(one));
            let all = numbers.iter().try_fold(1, product);
            all.ok_or_else(|| Error::argument("the merge is too large"))
        };
        let Merge { part_count, token_count, heads, head_dim, .. } = *merge;
        let (states, rows) =
            (size(&[part_count, token_count, heads])?, size(&[token_count, heads])?);
        let (dim, bits) = (u64::from(head_dim), merge.dtype.operand_bits());
        let mut locks = hold(&[Some(merge.parts), Some(merge.lses), Some(merge.out), merge.lse]);
        let parts = dense("parts", &merge.parts)?.resolve("parts", self, states, dim, bits)?;
        let lses = dense("lses", &merge.lses)?.resolve("lses", self, states, 1, 32)?;
        let out = dense("out", &merge.out)?.resolve("out", self, rows, dim, bits)?.written();
        let mut arrays = vec![lses, out];
        if !is_part(&out, &parts) {
            check_apart(&[parts, out])?;
        }
        let mut args = desc!(quire_merge_args {
            parts: parts.address,
            lses: lses.address,
            out: out.address,
            part_count: part_count,
            token_count: token_count,
            heads: heads,
            head_dim: head_dim,
            dtype: merge.dtype.raw(),
        });
        if let Some(lse) = &merge.lse {
            let lse = dense("lse", lse)?.resolve("lse", self, rows, 1, 32)?.written();
            args.lse = lse.address;
            check_apart(&[parts, lse])?;
            arrays.push(lse);
        }
        check_apart(&arrays)?;
        invoke!(self.inner.api, attention_merge(self.pointer(), &args))?;
        used(&mut locks, self);
        Ok(())
    }
}
