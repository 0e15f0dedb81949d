// SPDX-License-Identifier: Apache-2.0

//! Safe code cannot let a call write what it reads or writes elsewhere.

mod common;

use common::{count, refused, serve};
use quire::{
    Attend, AttentionOptions, BatchOptions, DType, ErrorKind, Item, ItemResult, KvWrite, Merge,
    Operand, Result, Rope, SequenceOptions, StepOptions,
};

/// The call is refused for an overlap of these two arrays.
fn overlaps(result: Result<()>, a: &str, b: &str) {
    let error = refused(result, ErrorKind::Argument);
    let names = [format!("{a} and {b} overlap"), format!("{b} and {a} overlap")];
    assert!(names.iter().any(|name| error.message().contains(name)), "{error}");
}

#[test]
fn attend_writes_beside_what_it_reads() {
    let mut served = serve();
    let sequence = served.cache.sequence(SequenceOptions::default()).unwrap();
    let step = served.step(&sequence, &count(3));
    let memory = served.memory(1024);
    let at = |number: u64| Operand::new(&memory, 4 * number);
    // 3 tokens, 2 heads of 8: q and out have 48 numbers, lse 6.
    let good = Attend { layer: 0, q: at(0), out: at(48), lse: Some(at(96)), sinks: None };
    step.attend(&served.queue, &good).unwrap();
    let attend = |attend: Attend<'_>| step.attend(&served.queue, &attend);
    overlaps(attend(Attend { out: at(0), ..good }), "q", "out");
    overlaps(attend(Attend { out: at(47), ..good }), "q", "out");
    overlaps(attend(Attend { q: at(95), lse: Some(at(200)), ..good }), "q", "out");
    overlaps(attend(Attend { lse: Some(at(48)), ..good }), "out", "lse");
    overlaps(attend(Attend { lse: Some(at(42)), out: at(100), ..good }), "q", "lse");
    // Rows of q and out take turns.
    let (q, out) = (at(0).token_stride(32), at(16).token_stride(32));
    attend(Attend { q, out, ..good }).unwrap();
    overlaps(attend(Attend { q, out: at(15).token_stride(32), ..good }), "q", "out");
    let rows = attend(Attend { out: at(48).token_stride(15), lse: None, ..good });
    assert!(refused(rows, ErrorKind::Argument).message().contains("rows"));
    step.finish().unwrap();
}

#[test]
fn kv_write_rotates_queries_beside_k_and_v() {
    let served = serve();
    let attention = [AttentionOptions {
        q_heads: 2,
        rope: Some(Rope::default()),
        ..AttentionOptions::default()
    }];
    let mut batch = served
        .cache
        .batch(BatchOptions {
            max_rows: 4,
            max_blocks_per_row: 8,
            max_query_tokens: 32,
            attention: &attention,
            ..BatchOptions::default()
        })
        .unwrap();
    let sequence = served.cache.sequence(SequenceOptions::default()).unwrap();
    let queues = [&served.queue];
    let options = StepOptions { queues: &queues, ..StepOptions::default() };
    let items = [Item::new(&sequence).tokens(0, 3)];
    let mut results = [ItemResult::default()];
    let step = served.cache.begin(options, &items, &count(3), &mut results).unwrap();
    let step = step.commit(Some(&mut batch)).unwrap();
    let memory = served.memory(1024);
    // As a projection leaves them: q (16 numbers), k and v (8 each) of a token lie together.
    let at = |number: u64| Operand::new(&memory, 4 * number).token_stride(32);
    let (k, v, q) = (at(16), at(24), Some(at(0)));
    let good = KvWrite { layer: 0, k, v, dtype: DType::F32, q };
    step.kv_write(&served.queue, &good).unwrap();
    let write = |write: KvWrite<'_>| step.kv_write(&served.queue, &write);
    write(KvWrite { v: k, ..good }).unwrap(); // both are only read
    overlaps(write(KvWrite { q: Some(k), ..good }), "k", "q");
    overlaps(write(KvWrite { q: Some(at(9)), ..good }), "k", "q");
    step.finish().unwrap();
}

#[test]
fn merge_writes_into_a_part_or_beside_all() {
    let served = serve();
    let memory = served.memory(1024);
    let at = |number: u64| Operand::new(&memory, 4 * number);
    // 2 parts of 3 tokens, 1 head of 4: 24 numbers, 6 lses; out has 12, lse 3.
    let good = Merge {
        parts: at(0),
        lses: at(24),
        out: at(32),
        lse: Some(at(48)),
        part_count: 2,
        token_count: 3,
        heads: 1,
        head_dim: 4,
        dtype: DType::F32,
    };
    let merge = |merge: Merge<'_>| served.queue.merge(&merge);
    merge(good).unwrap();
    merge(Merge { out: at(0), ..good }).unwrap();
    merge(Merge { out: at(12), ..good }).unwrap();
    overlaps(merge(Merge { out: at(4), ..good }), "parts", "out");
    overlaps(merge(Merge { out: at(23), ..good }), "parts", "out");
    overlaps(merge(Merge { out: at(29), ..good }), "lses", "out");
    overlaps(merge(Merge { lse: Some(at(0)), ..good }), "parts", "lse");
    overlaps(merge(Merge { lse: Some(at(24)), ..good }), "lses", "lse");
    overlaps(merge(Merge { lse: Some(at(40)), ..good }), "out", "lse");
    served.queue.sync().unwrap();
}
