// SPDX-License-Identifier: Apache-2.0

//! What the tests share: a bookkeeping-only cache, and one on the cpu.
#![allow(dead_code)] // no test uses all of it

use quire::{
    Attend, AttentionOptions, Batch, BatchOptions, Cache, CacheOptions, DType, Device,
    DeviceOptions, Error, ErrorKind, Group, Instance, Item, ItemResult, KvWrite, Memory,
    MemoryKind, Operand, PoolSize, Queue, Sequence, Shard, Step, StepOptions,
};

pub const BLOCK_TOKENS: u32 = 4;

pub fn group() -> Group {
    Group { layers: 1, kv_heads: 1, head_dim: 8, dtype: DType::F32, ..Group::default() }
}

pub fn keep_books(options: CacheOptions<'_>) -> Cache {
    let groups = [group()];
    Instance::new()
        .unwrap()
        .cache(CacheOptions {
            groups: &groups,
            size: PoolSize::Blocks(16),
            block_tokens: BLOCK_TOKENS,
            ..options
        })
        .unwrap()
}

pub fn count(tokens: u32) -> Vec<u32> {
    (0..tokens).collect()
}

pub fn refused<T: std::fmt::Debug>(result: Result<T, impl Into<Error>>, kind: ErrorKind) -> Error {
    let error: Error = result.expect_err("it is wrong, and was taken").into();
    assert_eq!(error.kind(), kind, "{error}");
    assert!(!error.message().is_empty());
    error
}

/// Commits a step of one sequence.
pub fn take(cache: &Cache, sequence: &Sequence, tokens: &[u32]) -> (Step, ItemResult) {
    let mut results = [ItemResult::default()];
    let items = [Item::new(sequence).tokens(0, tokens.len() as u32)];
    let step = cache.begin(StepOptions::default(), &items, tokens, &mut results).unwrap();
    (step.commit(None).unwrap(), results[0])
}

/// As `take`, and finishes the step.
pub fn run(cache: &Cache, sequence: &Sequence, tokens: &[u32]) -> ItemResult {
    let (step, result) = take(cache, sequence, tokens);
    step.finish().unwrap();
    result
}

/// A cache on a device: 2 query heads on 1 KV head of 8 elements, f32.
pub struct Served {
    pub instance: Instance,
    pub device: Device,
    pub queue: Queue,
    pub cache: Cache,
    pub batch: Batch,
}

pub fn make_batch(cache: &Cache) -> Batch {
    let attention = [AttentionOptions { q_heads: 2, ..AttentionOptions::default() }];
    cache
        .batch(BatchOptions {
            max_rows: 4,
            max_blocks_per_row: 8,
            max_query_tokens: 32,
            attention: &attention,
            ..BatchOptions::default()
        })
        .unwrap()
}

pub fn open_device(instance: &Instance, backend: &str) -> quire::Result<Device> {
    instance.open_device(DeviceOptions {
        backend: Some(backend),
        threads: 1,
        ..DeviceOptions::default()
    })
}

pub fn serve() -> Served {
    serve_layers(1, 4096) // 16 blocks
}

pub fn serve_layers(layers: u32, host_bytes: u64) -> Served {
    let instance = Instance::new().unwrap();
    let device = open_device(&instance, "cpu").unwrap();
    let queue = device.queue().unwrap();
    let groups = [Group { layers, ..group() }];
    let cache = instance
        .cache(CacheOptions {
            groups: &groups,
            shards: &[Shard::whole(&device)],
            size: PoolSize::Blocks(16),
            block_tokens: BLOCK_TOKENS,
            host_bytes,
            ..CacheOptions::default()
        })
        .unwrap();
    let batch = make_batch(&cache);
    Served { instance, device, queue, cache, batch }
}

impl Served {
    pub fn memory(&self, numbers: usize) -> Memory {
        self.device.memory(numbers as u64 * 4, MemoryKind::Host).unwrap()
    }

    pub fn step(&mut self, sequence: &Sequence, tokens: &[u32]) -> Step {
        self.step_of(&[Item::new(sequence).tokens(0, tokens.len() as u32)], tokens)
    }

    pub fn step_of(&mut self, items: &[Item], tokens: &[u32]) -> Step {
        let queues = [&self.queue];
        let options = StepOptions { queues: &queues, ..StepOptions::default() };
        let mut results = [ItemResult::default()];
        let step = self.cache.begin(options, items, tokens, &mut results).unwrap();
        step.commit(Some(&mut self.batch)).unwrap()
    }

    /// Computes tokens whose values are `first` and up. The queries are zero, so the outputs are
    /// the means of all values so far.
    pub fn means(&mut self, sequence: &Sequence, tokens: &[u32], first: usize) -> Vec<f32> {
        let items = [Item::new(sequence).tokens(0, tokens.len() as u32)];
        self.means_of(&items, tokens, first, tokens.len())
    }

    /// `means` for an item of which `n` tokens are left to compute.
    pub fn means_of(&mut self, items: &[Item], tokens: &[u32], first: usize, n: usize) -> Vec<f32> {
        let (kv, q, out) = (self.memory(n * 8), self.memory(n * 16), self.memory(n * 16));
        let values: Vec<f32> = (0..n * 8).map(|i| (first + i / 8) as f32).collect();
        kv.write(0, &values).unwrap();
        let step = self.step_of(items, tokens);
        let (k, v) = (Operand::new(&kv, 0), Operand::new(&kv, 0));
        let write = KvWrite { layer: 0, k, v, dtype: DType::F32, q: None };
        step.kv_write(&self.queue, &write).unwrap();
        let (q, to) = (Operand::new(&q, 0), Operand::new(&out, 0));
        let attend = Attend { layer: 0, q, out: to, lse: None, sinks: None };
        step.attend(&self.queue, &attend).unwrap();
        step.finish().unwrap();
        let mut results = vec![0.0f32; n * 16];
        out.read(0, &mut results).unwrap(); // waits for the queue
        results.chunks(16).map(|row| row[0]).collect()
    }
}

pub fn check_means(got: &[f32], first: usize) {
    for (i, mean) in got.iter().enumerate() {
        assert!((mean - (first + i) as f32 / 2.0).abs() < 1e-5, "{got:?}");
    }
}
