// SPDX-License-Identifier: Apache-2.0

//! engine: many chats at once, whose K and V are in Quire's blocks and nowhere else.

use candle_core::{Device as CandleDevice, Result, Tensor};
use quire::{
    Attend, AttentionOptions, Batch, BatchOptions, Cache, CacheOptions, DType, Device,
    DeviceOptions, Group, Instance, Item, ItemResult, KvWrite, Memory, MemoryKind, Operand,
    PoolSize, Preempt, Queue, Sequence, SequenceOptions, Shard, Step, StepOptions,
};

use crate::checkpoint::Shape;
use crate::model::{Attention, Model};

pub const MAX_ROWS: usize = 32;

/// A chat: its request, and its text so far.
pub struct Chat {
    pub tokens: Vec<u32>, // the prompt, then what was sampled
    prompt_count: usize,
    limit: usize,
    told: usize, // of those, how many Quire knows
    sequence: Option<Sequence>,
}

impl Chat {
    pub fn prompt(&self) -> &[u32] {
        &self.tokens[..self.prompt_count]
    }

    fn is_done(&self, ends: &[u32]) -> bool {
        let last = self.tokens.last().unwrap();
        let has_ended = self.tokens.len() > self.prompt_count && ends.contains(last);
        has_ended || self.tokens.len() >= self.limit
    }
}

/// Activations on Quire's device for the tokens of one step, in host memory, which every device
/// reaches.
struct Activations {
    q: Memory,
    k: Memory,
    v: Memory,
    out: Memory,
}

#[derive(Debug, Default)]
pub struct Counts {
    pub steps: u64,
    pub hit_tokens: u64,
    pub largest_step_tokens: usize,
    /// Tokens of the largest K or V tensor that candle had.
    pub largest_kv_tokens: usize,
}

pub struct Engine<'a> {
    model: &'a Model,
    ends: &'a [u32],
    pub cache: Cache,
    batch: Batch,
    queue: Queue,
    activations: Activations,
    pub chats: Vec<Chat>,
    pub counts: Counts,
}

fn memory(device: &Device, tokens: usize, row: usize) -> quire::Result<Memory> {
    device.memory((tokens * row * 4) as u64, MemoryKind::Host)
}

pub fn wrapped<T>(result: quire::Result<T>) -> Result<T> {
    result.map_err(candle_core::Error::wrap)
}

impl Activations {
    fn new(device: &Device, shape: &Shape, tokens: usize) -> quire::Result<Self> {
        let kv_row = shape.kv_heads * shape.head_dim();
        Ok(Self {
            q: memory(device, tokens, shape.dim)?,
            k: memory(device, tokens, kv_row)?,
            v: memory(device, tokens, kv_row)?,
            out: memory(device, tokens, shape.dim)?,
        })
    }
}

impl<'a> Engine<'a> {
    pub fn new(
        model: &'a Model,
        ends: &'a [u32],
        backend: &str,
        blocks: u32,
        block_tokens: u32,
    ) -> quire::Result<Self> {
        let shape = &model.shape;
        let instance = Instance::new()?;
        let options = DeviceOptions { backend: Some(backend), ..DeviceOptions::default() };
        let device = instance.open_device(options)?;
        let groups = [Group {
            layers: shape.layers as u32,
            kv_heads: shape.kv_heads as u32,
            head_dim: shape.head_dim() as u32,
            dtype: DType::F32,
            ..Group::default()
        }];
        let cache = instance.cache(CacheOptions {
            groups: &groups,
            shards: &[Shard::whole(&device)],
            size: PoolSize::Blocks(blocks),
            block_tokens,
            ..CacheOptions::default()
        })?;
        let max_tokens = MAX_ROWS * shape.seq_len;
        let attention =
            [AttentionOptions { q_heads: shape.heads as u32, ..AttentionOptions::default() }];
        let batch = cache.batch(BatchOptions {
            max_rows: MAX_ROWS as u32,
            max_blocks_per_row: (shape.seq_len as u32).div_ceil(block_tokens),
            max_query_tokens: max_tokens as u32,
            attention: &attention,
            ..BatchOptions::default()
        })?;
        let activations = Activations::new(&device, shape, max_tokens)?;
        let (queue, counts) = (device.queue()?, Counts::default());
        let chats = Vec::new();
        Ok(Self { model, ends, cache, batch, queue, activations, chats, counts })
    }

    pub fn add(&mut self, prompt: &[u32], limit: usize) -> quire::Result<()> {
        let sequence = Some(self.cache.sequence(SequenceOptions::default())?);
        let tokens = prompt.to_vec();
        self.chats.push(Chat { tokens, prompt_count: prompt.len(), limit, told: 0, sequence });
        Ok(())
    }

    /// Adds a chat that continues this one, sharing its blocks.
    pub fn fork(&mut self, chat: usize) -> quire::Result<()> {
        let parent = &self.chats[chat];
        let Some(sequence) = &parent.sequence else { return Ok(()) };
        let child = Chat {
            tokens: parent.tokens.clone(),
            sequence: Some(sequence.fork(parent.told as u32)?),
            ..*parent
        };
        self.chats.push(child);
        Ok(())
    }

    /// Samples one token for each chat that has room; false when all are done.
    pub fn step(&mut self) -> Result<bool> {
        // Oldest first: later ones are preempted when blocks are short.
        let running: Vec<usize> = (0..self.chats.len())
            .filter(|&i| self.chats[i].sequence.is_some())
            .take(MAX_ROWS)
            .collect();
        if running.is_empty() {
            return Ok(false);
        }
        let (mut items, mut given) = (Vec::new(), Vec::new());
        for &i in &running {
            let chat = &self.chats[i];
            let new = &chat.tokens[chat.told..];
            let sequence = chat.sequence.as_ref().unwrap();
            items.push(Item::new(sequence).tokens(given.len() as u32, new.len() as u32));
            given.extend_from_slice(new);
        }
        let mut results = vec![ItemResult::default(); items.len()];
        let queues = [&self.queue];
        let options = StepOptions {
            queues: &queues,
            may_preempt: true,
            preempt: Preempt::Recompute,
            ..StepOptions::default()
        };
        let step = wrapped(self.cache.begin(options, &items, &given, &mut results))?;
        if !results.iter().any(ItemResult::runs) {
            let longest = running.iter().map(|&i| self.chats[i].tokens.len()).max().unwrap();
            candle_core::bail!(
                "the pool is too small for one chat of {longest} tokens: give more blocks, or \
                 fewer steps"
            );
        }
        let step = step.commit(Some(&mut self.batch)).map_err(candle_core::Error::wrap)?;
        let rows: Vec<_> =
            running.iter().zip(&results).filter(|(_, result)| result.runs()).collect();
        let (mut tokens, mut positions, mut last) = (Vec::new(), Vec::new(), Vec::new());
        for (&i, result) in &rows {
            let (first, count) = (result.first_position(), result.compute_count());
            let range = first as usize..(first + count) as usize;
            tokens.extend_from_slice(&self.chats[i].tokens[range]);
            positions.extend(first..first + count);
            last.push(tokens.len() as u32 - 1);
            self.counts.hit_tokens += u64::from(result.hit_tokens());
        }
        let mut paged = Paged {
            step: &step,
            queue: &self.queue,
            activations: &self.activations,
            largest_kv_tokens: 0,
        };
        let next = self.model.next(&tokens, &positions, &last, &mut paged)?;
        self.counts.steps += 1;
        self.counts.largest_step_tokens = self.counts.largest_step_tokens.max(tokens.len());
        self.counts.largest_kv_tokens = self.counts.largest_kv_tokens.max(paged.largest_kv_tokens);
        wrapped(step.finish())?;
        for ((&i, _), token) in rows.iter().zip(next) {
            let chat = &mut self.chats[i];
            chat.told = chat.tokens.len();
            chat.tokens.push(token);
            if chat.is_done(self.ends) {
                chat.sequence = None; // ends it
            }
        }
        Ok(true)
    }
}

/// Attention of a committed step.
struct Paged<'a> {
    step: &'a Step,
    queue: &'a Queue,
    activations: &'a Activations,
    largest_kv_tokens: usize,
}

impl Paged<'_> {
    fn put(&self, memory: &Memory, tensor: &Tensor) -> Result<()> {
        wrapped(memory.write(0, &tensor.flatten_all()?.to_vec1::<f32>()?))
    }
}

impl Attention for Paged<'_> {
    fn attend(&mut self, layer: usize, q: &Tensor, k: &Tensor, v: &Tensor) -> Result<Tensor> {
        self.largest_kv_tokens = self.largest_kv_tokens.max(k.dim(0)?).max(v.dim(0)?);
        let (at, layer) = (self.activations, layer as u32);
        self.put(&at.q, q)?;
        self.put(&at.k, k)?;
        self.put(&at.v, v)?;
        let write = KvWrite {
            layer,
            k: Operand::new(&at.k, 0),
            v: Operand::new(&at.v, 0),
            dtype: DType::F32,
            q: None,
        };
        wrapped(self.step.kv_write(self.queue, &write))?;
        let attend = Attend {
            layer,
            q: Operand::new(&at.q, 0),
            out: Operand::new(&at.out, 0),
            lse: None,
            sinks: None,
        };
        wrapped(self.step.attend(self.queue, &attend))?;
        let mut out = vec![0.0f32; q.elem_count()];
        wrapped(at.out.read(0, &mut out))?; // waits for the queue
        Tensor::from_vec(out, (q.dim(0)?, q.dim(1)? * q.dim(2)?), &CandleDevice::Cpu)
    }
}
