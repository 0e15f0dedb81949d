// SPDX-License-Identifier: Apache-2.0

//! step: the step of step.c, as an engine in Rust does it.

use std::io::BufRead;
use std::time::Instant;

use quire::{
    Batch, BatchOptions, Cache, CacheOptions, Group, Instance, Item, ItemResult, PoolSize, Result,
    Sequence, SequenceOptions, StepOptions, Views,
};

const SEQUENCES: usize = 256;
const ROW_BLOCKS: u32 = 256;

fn make() -> Result<(Cache, Batch)> {
    let groups = [Group { layers: 32, kv_heads: 8, head_dim: 128, ..Group::default() }];
    let cache = Instance::new()?.cache(CacheOptions {
        groups: &groups,
        size: PoolSize::Blocks(SEQUENCES as u32 * ROW_BLOCKS + 1),
        ..CacheOptions::default()
    })?;
    let batch = cache.batch(BatchOptions {
        max_rows: SEQUENCES as u32,
        max_blocks_per_row: ROW_BLOCKS,
        max_query_tokens: SEQUENCES as u32,
        views: Views::BLOCK_TABLE | Views::SLOTS,
        ..BatchOptions::default()
    })?;
    Ok((cache, batch))
}

fn main() -> Result<()> {
    let (cache, mut batch) = make()?;
    let chats: Vec<Sequence> = (0..SEQUENCES)
        .map(|_| cache.sequence(SequenceOptions::default()))
        .collect::<Result<_>>()?;
    let mut items = [Item::default(); SEQUENCES];
    let mut tokens = [0; SEQUENCES];
    let mut results = [ItemResult::default(); SEQUENCES];
    let mut number = 0;
    for line in std::io::stdin().lock().lines() {
        let count: u32 = line.unwrap().trim().parse().unwrap();
        let start = Instant::now();
        for _ in 0..count {
            for (row, chat) in chats.iter().enumerate() {
                tokens[row] = row as u32 * 4096 + number;
                items[row] = Item::new(chat).tokens(row as u32, 1);
            }
            let step = cache.begin(StepOptions::default(), &items, &tokens, &mut results)?;
            step.commit(Some(&mut batch))?.finish()?;
            number += 1;
        }
        println!("{:.1}", start.elapsed().as_nanos() as f64 / f64::from(count));
    }
    Ok(())
}
