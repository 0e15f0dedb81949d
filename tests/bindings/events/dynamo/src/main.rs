// SPDX-License-Identifier: Apache-2.0

//! Gives messages to Dynamo's own decoder, its tree of what devices have, and its indexes of lower
//! tiers, and asks them what a prompt would find on the device and after it in each tier. Each line
//! of the standard input is a message {content: [bytes]} or a question {tokens, name}; a question
//! is answered by the number of blocks. judges.py says how it is built.

use std::future::Future;
use std::io::BufRead;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake};
use std::thread::{current, park, Thread};

use dynamo_kv_router::indexer::{
    query_lower_tiers_with_options, LowerTierIndexers, LowerTierQueryOptions,
};
use dynamo_kv_router::protocols::{compute_block_hash_for_seq, BlockHashOptions, WorkerWithDpRank};
use dynamo_kv_router::zmq_wire::{decode_event_batch, RawKvEvent, ZmqEventNormalizer};
use dynamo_kv_router::RadixTree;
use serde_json::Value;

const WORKER: u64 = 7;

fn numbers<T: TryFrom<u64>>(list: &Value) -> Vec<T> {
    let number = |value: &Value| value.as_u64().and_then(|n| T::try_from(n).ok());
    list.as_array().and_then(|list| list.iter().map(number).collect()).expect("a list of numbers")
}

struct Waiter(Thread);

impl Wake for Waiter {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// Waits for a future, which is all that is needed of a runtime here.
fn wait<F: Future>(future: F) -> F::Output {
    let waker = Arc::new(Waiter(current())).into();
    let mut future = pin!(future);
    loop {
        match future.as_mut().poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(output) => return output,
            Poll::Pending => park(),
        }
    }
}

fn main() {
    let block_tokens: u32 = std::env::args().nth(1).unwrap().parse().unwrap();
    let mut tree = RadixTree::new();
    let tiers = LowerTierIndexers::new(1, block_tokens);
    let mut normalizer = ZmqEventNormalizer::new(block_tokens);
    let mut applied = 0;
    for line in std::io::stdin().lock().lines() {
        let line: Value = serde_json::from_str(&line.unwrap()).unwrap();
        if let Some(content) = line.get("content") {
            let batch = decode_event_batch(&numbers::<u8>(content)).expect("it decodes");
            let rank = batch.data_parallel_rank.unwrap_or(0) as u32;
            for raw in batch.events {
                applied += 1;
                let worker = WorkerWithDpRank::new(WORKER, rank);
                let clears = matches!(raw, RawKvEvent::AllBlocksCleared { .. });
                let event = normalizer.normalize(raw, applied, worker).expect("it is not filtered");
                let event = event.into_router_event().unwrap();
                for tier in tiers.all().into_iter().filter(|_| clears) {
                    wait(tier.apply_event_and_wait(event.clone())).expect("it applies to a tier");
                }
                if event.storage_tier.is_gpu() {
                    tree.apply_event(event).expect("it applies");
                } else {
                    let tier = tiers.get_or_create(event.storage_tier);
                    wait(tier.apply_event_and_wait(event)).expect("it applies to a tier");
                }
            }
            continue;
        }
        let options = BlockHashOptions { lora_name: line["name"].as_str(), ..Default::default() };
        let hashes =
            compute_block_hash_for_seq(&numbers::<u32>(&line["tokens"]), block_tokens, options);
        let device = tree.find_match_details(hashes.clone(), false);
        let options = LowerTierQueryOptions::default();
        let below = query_lower_tiers_with_options(&tiers, &hashes, &device, options);
        let near = device.overlap_scores.scores.values().max().map_or(0, |blocks| *blocks as usize);
        let far: usize = below.values().flat_map(|tier| tier.hits.values()).sum();
        println!("{}", near + far);
    }
}
