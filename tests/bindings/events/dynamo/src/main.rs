// SPDX-License-Identifier: Apache-2.0

//! Gives messages to Dynamo's own decoder and tree, and asks them what a prompt would find. Each
//! line of the standard input is a message {content: [bytes]} or a question {tokens, name}; a
//! question is answered by the number of blocks. judges.py says how it is built.

use std::io::BufRead;

use dynamo_kv_router::protocols::{compute_block_hash_for_seq, BlockHashOptions, WorkerWithDpRank};
use dynamo_kv_router::zmq_wire::{decode_event_batch, ZmqEventNormalizer};
use dynamo_kv_router::RadixTree;
use serde_json::Value;

const WORKER: u64 = 7;

fn numbers<T: TryFrom<u64>>(list: &Value) -> Vec<T> {
    let number = |value: &Value| value.as_u64().and_then(|n| T::try_from(n).ok());
    list.as_array().and_then(|list| list.iter().map(number).collect()).expect("a list of numbers")
}

fn main() {
    let block_tokens: u32 = std::env::args().nth(1).unwrap().parse().unwrap();
    let mut tree = RadixTree::new();
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
                let event = normalizer.normalize(raw, applied, worker).expect("it is not filtered");
                tree.apply_event(event.into_router_event().unwrap()).expect("it applies");
            }
            continue;
        }
        let options = BlockHashOptions { lora_name: line["name"].as_str(), ..Default::default() };
        let hashes =
            compute_block_hash_for_seq(&numbers::<u32>(&line["tokens"]), block_tokens, options);
        let scores = tree.find_matches(hashes, false).scores;
        println!("{}", scores.values().max().unwrap_or(&0));
    }
}
