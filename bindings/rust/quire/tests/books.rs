// SPDX-License-Identifier: Apache-2.0

//! A bookkeeping-only cache.

mod common;

use common::{count, group, keep_books, refused, run, take};
use quire::{
    BatchOptions, CacheOptions, ErrorKind, EventKind, Instance, Item, ItemResult, Key, KeyType,
    MigrateOptions, PoolSize, Preempt, SequenceOptions, SizeModel, StepOptions, TokenSpan, Views,
    Wait, UNKNOWN_TOKEN,
};

#[test]
fn a_prefix_of_another_sequence_is_found() {
    let cache = keep_books(CacheOptions::default());
    let first = cache.sequence(SequenceOptions::default()).unwrap();
    assert_eq!(run(&cache, &first, &count(10)).compute_count(), 10);
    let second = cache.sequence(SequenceOptions::default()).unwrap();
    assert_eq!(second.probe(&count(10)).unwrap(), 8);
    let result = run(&cache, &second, &count(10));
    assert_eq!((result.hit_tokens(), result.first_position(), result.compute_count()), (8, 8, 2));
    cache.check().unwrap();
}

#[test]
fn a_dump_is_whole_and_has_tokens_only_when_asked() {
    let cache = keep_books(CacheOptions { audits: true, ..CacheOptions::default() });
    let sequence = cache.sequence(SequenceOptions::default()).unwrap();
    run(&cache, &sequence, &count(10));
    cache.check().unwrap();
    let dump = String::from_utf8(cache.dump(false).unwrap()).unwrap();
    assert!(dump.starts_with("{\"record\":\"quire dump\",\"version\":1,\"tokens\":false}\n"));
    assert!(dump.lines().last().unwrap().starts_with("{\"record\":\"end\","));
    assert_eq!(dump.into_bytes(), cache.dump(false).unwrap());
    let told = String::from_utf8(cache.dump(true).unwrap()).unwrap();
    assert!(told.contains("\"tokens\":[0,1,2,3]") || told.contains("\"tokens\":[1,2,3,4]"));
}

#[test]
fn keys_and_namespaces_keep_prefixes_apart() {
    let cache = keep_books(CacheOptions::default());
    let tenant = cache.namespace(b"tenant", 3).unwrap();
    let adapter = [Key { kind: KeyType::Adapter, bytes: b"lora", span: None }];
    let plain = cache.sequence(SequenceOptions::default()).unwrap();
    run(&cache, &plain, &count(8));
    let keyed = SequenceOptions { keys: &adapter, ..SequenceOptions::default() };
    let others =
        [SequenceOptions { namespace: Some(&tenant), ..SequenceOptions::default() }, keyed];
    for options in others {
        let sequence = cache.sequence(options).unwrap();
        assert_eq!(sequence.probe(&count(9)).unwrap(), 0);
    }
    let sequence = cache.sequence(keyed).unwrap();
    run(&cache, &sequence, &count(8));
    assert_eq!(cache.sequence(keyed).unwrap().probe(&count(9)).unwrap(), 8);

    let of_tenant = SequenceOptions { namespace: Some(&tenant), ..SequenceOptions::default() };
    let large = cache.sequence(of_tenant).unwrap();
    let (step, result) = take(&cache, &large, &count(20));
    step.finish().unwrap();
    assert_eq!(result.wait(), Some(Wait::Quota));
    assert_eq!(tenant.info().unwrap().sequences, 1);
}

#[test]
fn being_short_of_blocks_is_a_result() {
    let cache = keep_books(CacheOptions::default());
    let large = cache.sequence(SequenceOptions::default()).unwrap();
    let (step, result) = take(&cache, &large, &count(100));
    step.finish().unwrap();
    assert!(!result.runs());
    assert_eq!((result.wait(), result.blocks_short()), (Some(Wait::Pool), 10));
    assert_eq!(large.info().unwrap().known_tokens, 0);
}

#[test]
fn sequences_fork_shorten_and_end() {
    let cache = keep_books(CacheOptions::default());
    let parent = cache.sequence(SequenceOptions::default()).unwrap();
    run(&cache, &parent, &count(10));
    let child = parent.fork(10).unwrap();
    let (step, _) = take(&cache, &child, &[50]);
    assert_eq!(step.copies().unwrap().len(), 1, "it writes into a shared block");
    step.finish().unwrap();
    child.truncate(3).unwrap();
    assert_eq!(child.info().unwrap().known_tokens, 3);
    assert_eq!(cache.stats().unwrap().sequences, 2);
    drop((parent, child));
    let stats = cache.stats().unwrap();
    assert_eq!((stats.sequences, stats.blocks_held), (0, 0));
    cache.check().unwrap();
}

#[test]
fn sequences_that_are_dropped_in_an_open_step_end_behind_it() {
    let cache = keep_books(CacheOptions::default());
    for commits in [true, false] {
        let tenant = cache.namespace(b"tenant", 0).unwrap();
        let options = SequenceOptions { namespace: Some(&tenant), ..SequenceOptions::default() };
        let sequence = cache.sequence(options).unwrap();
        let mut results = [ItemResult::default()];
        let items = [Item::new(&sequence).tokens(0, 6)];
        let step = cache.begin(StepOptions::default(), &items, &count(6), &mut results).unwrap();
        drop((sequence, tenant));
        assert_eq!(cache.stats().unwrap().sequences, 1);
        if commits {
            step.commit(None).unwrap().finish().unwrap();
        } else {
            drop(step); // aborts it
        }
        assert_eq!(cache.stats().unwrap().sequences, 0);
    }
    cache.check().unwrap();
}

#[test]
fn preempted_sequences_come_back() {
    let cache = keep_books(CacheOptions { host_blocks: 8, ..CacheOptions::default() });
    for (how, swapped) in [(Preempt::Swap, 1), (Preempt::Recompute, 0)] {
        let sequence = cache.sequence(SequenceOptions::default()).unwrap();
        let tokens: Vec<u32> = count(10).iter().map(|token| token + 100 * (1 + swapped)).collect();
        run(&cache, &sequence, &tokens);
        let mut step = cache.begin(StepOptions::default(), &[], &[], &mut []).unwrap();
        assert_eq!(step.preempt(&sequence, how).unwrap(), Some(3));
        let list = step.preempted().unwrap();
        assert_eq!((list.len(), list[0].is_swapped, list[0].is_chosen), (1, swapped == 1, false));
        step.commit(None).unwrap().finish().unwrap();
        assert!(sequence.info().unwrap().is_preempted);
        let result = run(&cache, &sequence, &[7]);
        assert!(result.runs());
        assert_eq!(sequence.info().unwrap().computed_tokens, 11);
    }
}

#[test]
fn drafts_and_unknown_tokens() {
    let cache = keep_books(CacheOptions::default());
    let sequence = cache.sequence(SequenceOptions::default()).unwrap();
    run(&cache, &sequence, &[1, 2, UNKNOWN_TOKEN]);
    cache.set_tokens(&[TokenSpan::new(&sequence, 2, 0, 1)], &[3]).unwrap();
    let items = [Item::new(&sequence).tokens(0, 4).drafts(3)];
    let mut results = [ItemResult::default()];
    let options = StepOptions::default();
    let step = cache.begin(options, &items, &[4, 5, 6, 7], &mut results).unwrap();
    step.commit(None).unwrap().finish().unwrap();
    assert_eq!(sequence.info().unwrap().draft_tokens, 3);
    sequence.accept(2).unwrap();
    assert_eq!(sequence.info().unwrap().known_tokens, 6);
}

#[test]
fn a_follower_applies_the_log() {
    let leader = keep_books(CacheOptions { is_leader: true, ..CacheOptions::default() });
    let follower = keep_books(CacheOptions { is_follower: true, ..CacheOptions::default() });
    let sequence = leader.sequence(SequenceOptions::default()).unwrap();
    let (step, _) = take(&leader, &sequence, &count(6));
    let log = step.log().unwrap();
    step.finish().unwrap();
    let applied = follower.apply_log(&log, StepOptions::default(), None).unwrap();
    assert_eq!(applied.blocks(&sequence, 0).unwrap().len(), 2);
    applied.finish().unwrap();
    common::refused(
        follower.apply_log(&log, StepOptions::default(), None),
        quire::ErrorKind::Argument,
    );
}

#[test]
fn tables_are_read_without_a_copy() {
    let cache = keep_books(CacheOptions::default());
    let mut batch = cache
        .batch(BatchOptions {
            max_rows: 4,
            max_blocks_per_row: 8,
            max_query_tokens: 32,
            max_context_tokens: 64,
            views: Views::BLOCK_TABLE
                | Views::CSR
                | Views::SLOTS
                | Views::LENGTHS
                | Views::POSITIONS
                | Views::CU_Q
                | Views::CONTEXT_SLOTS,
            ..BatchOptions::default()
        })
        .unwrap();
    let sequence = cache.sequence(SequenceOptions::default()).unwrap();
    let items = [Item::new(&sequence).tokens(0, 6)];
    let mut results = [ItemResult::default()];
    let step = cache.begin(StepOptions::default(), &items, &count(6), &mut results).unwrap();
    let planned = step.blocks(&sequence, 0).unwrap();
    step.commit(Some(&mut batch)).unwrap().finish().unwrap();
    let tables = batch.tables(0).unwrap();
    assert_eq!((tables.row_count, tables.query_tokens, tables.lengths), (1, 6, &[6][..]));
    assert_eq!(tables.block_table[..2], planned);
    assert_eq!((tables.csr_indptr, tables.csr_indices), (&[0, 2][..], &planned[..]));
    assert_eq!((tables.csr_last_page_len, tables.cu_q), (&[2][..], &[0, 6][..]));
    assert_eq!(tables.positions, &[0, 1, 2, 3, 4, 5]);
    assert_eq!(tables.slots[5], i64::from(planned[1]) * 4 + 1);
    assert_eq!(tables.context_slots[5], planned[1] * 4 + 1);
}

#[test]
fn books_move_and_say_where_blocks_went() {
    let cache = keep_books(CacheOptions::default());
    let sequence = cache.sequence(SequenceOptions::default()).unwrap();
    run(&cache, &sequence, &count(10));
    let small = MigrateOptions { size: PoolSize::Blocks(3), ..MigrateOptions::default() };
    let refused = cache.migrate(small).unwrap();
    assert_eq!((refused.is_moved, refused.blocks_short), (false, 1));
    let moved = cache
        .migrate(MigrateOptions {
            size: PoolSize::Blocks(8),
            list_moves: true,
            ..MigrateOptions::default()
        })
        .unwrap();
    assert_eq!((moved.is_moved, moved.blocks_moved, moved.moves.len()), (true, 3, 3));
    assert_eq!(sequence.info().unwrap().computed_tokens, 10);
    cache.check().unwrap();
}

#[test]
fn a_deployment_is_sized() {
    let instance = Instance::new().unwrap();
    let llama = SizeModel {
        layer_count: 32,
        kv_heads: 8,
        k_head_dim: 128,
        memory_bytes: 8 << 30,
        context_tokens: 4096,
        ..SizeModel::default()
    };
    let size = instance.size_estimate(&llama).unwrap();
    assert_eq!(size.kv_bytes_per_token, 131_072);
    assert_eq!(size.max_sequences, size.tokens / 4096);
    let nothing = SizeModel::default();
    common::refused(instance.size_estimate(&nothing), quire::ErrorKind::Argument);
}

#[test]
fn threads_share_a_cache() {
    let groups = [group()];
    let cache = Instance::new()
        .unwrap()
        .cache(CacheOptions {
            groups: &groups,
            size: PoolSize::Blocks(256),
            ..CacheOptions::default()
        })
        .unwrap();
    std::thread::scope(|scope| {
        for thread in 0..4u32 {
            let cache = cache.clone();
            scope.spawn(move || {
                for round in 0..50u32 {
                    let sequence = cache.sequence(SequenceOptions::default()).unwrap();
                    let tokens: Vec<u32> = (0..20).map(|i| i + 1000 * thread + round).collect();
                    let mut results = [ItemResult::default()];
                    let items = [Item::new(&sequence).tokens(0, 20)];
                    // Only one step is open at a time: other threads get Busy.
                    let step = loop {
                        let options = StepOptions::default();
                        match cache.begin(options, &items, &tokens, &mut results) {
                            Ok(step) => break step,
                            Err(error) => assert_eq!(error.kind(), quire::ErrorKind::Busy),
                        }
                    };
                    step.commit(None).unwrap().finish().unwrap();
                }
            });
        }
    });
    assert_eq!(cache.stats().unwrap().sequences, 0);
    cache.check().unwrap();
}

#[test]
fn events_tell_what_is_found() {
    let cache = keep_books(CacheOptions { events: true, event_tokens: true, ..Default::default() });
    let sequence = cache.sequence(SequenceOptions::default()).unwrap();
    run(&cache, &sequence, &count(9));
    let (first, more) = cache.events(false, 2).unwrap();
    let kinds: Vec<_> = first.iter().map(|event| event.kind).collect();
    assert_eq!((kinds, more), (vec![EventKind::Cleared, EventKind::Stored], true));
    let (second, more) = cache.events(false, 2).unwrap();
    assert_eq!((second.len(), more), (1, false));
    assert_eq!((first[1].parent, second[0].parent), (0, first[1].block));
    assert_eq!(first[1].tokens.as_deref(), Some(&[0, 1, 2, 3][..]));
    assert_eq!((second[0].position, second[0].is_keyed), (4, false));
    let tenant = cache.namespace(b"", 0).unwrap();
    let giving = cache.namespace_with_event_tokens(b"", 0).unwrap();
    for namespace in [&tenant, &giving] {
        let options = SequenceOptions { namespace: Some(namespace), ..Default::default() };
        run(&cache, &cache.sequence(options).unwrap(), &count(5));
    }
    let (theirs, _) = cache.events(false, 8).unwrap();
    let namespaces: Vec<_> = theirs.iter().map(|event| event.namespace).collect();
    assert_eq!(namespaces, [tenant.handle(), giving.handle()]);
    assert_eq!((&theirs[0].tokens, theirs[1].tokens.is_some()), (&None, true));
    sequence.end_and_forget().unwrap();
    let (gone, _) = cache.events(false, 8).unwrap();
    assert_eq!(gone[0].kind, EventKind::Removed);
    assert_eq!((gone[0].block, gone[1].block), (second[0].block, first[1].block));
    let (again, _) = cache.events(true, 8).unwrap();
    assert_eq!((again[0].kind, again.len()), (EventKind::Cleared, 3));
    refused(cache.events(false, 0), ErrorKind::Argument);
    let without = keep_books(CacheOptions::default());
    refused(without.events(false, 8), ErrorKind::Unsupported);
}
