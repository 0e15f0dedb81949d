// SPDX-License-Identifier: Apache-2.0

//! A live cache moves with all that it has, or not at all.

mod common;

use std::collections::HashMap;
use std::time::Duration;

use common::{check_means, count, group, keep_books, make_batch, open_device, refused, run, take};
use common::{serve, Served, BLOCK_TOKENS};
use quire::{
    BlockMove, CacheOptions, DType, Device, ErrorKind, Instance, Item, KvWrite, MigrateOptions,
    Migration, Operand, PoolSize, Preempt, Queue, Sequence, SequenceOptions, SessionIdentity,
    Shard, StepOptions,
};

const DEVICE_TIER: u32 = quire_sys::QUIRE_TIER_DEVICE;

/// Computes tokens whose K and V are pseudo-random bits of finite numbers.
fn compute(served: &mut Served, sequence: &Sequence, tokens: &[u32], seed: u32) {
    let numbers = tokens.len() * 8;
    let (k, v) = (served.memory(numbers), served.memory(numbers));
    let mut state = seed;
    let mut bits = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        state & 0xBFFF_FFFF // an exponent below the greatest, which is no number's
    };
    k.write(0, &(0..numbers).map(|_| bits()).collect::<Vec<_>>()).unwrap();
    v.write(0, &(0..numbers).map(|_| bits()).collect::<Vec<_>>()).unwrap();
    let step = served.step(sequence, tokens);
    let (k, v) = (Operand::new(&k, 0), Operand::new(&v, 0));
    let write = KvWrite { layer: 0, k, v, dtype: DType::F32, q: None };
    step.kv_write(&served.queue, &write).unwrap();
    step.finish().unwrap();
    served.queue.sync().unwrap();
}

/// The sequence's session, with its tokens, K and V.
fn content(sequence: &Sequence) -> Vec<u8> {
    let mut bytes = Vec::new();
    sequence.export(&mut bytes, &SessionIdentity::default(), None).unwrap();
    bytes
}

fn on<'a>(queues: &'a [&'a Queue]) -> StepOptions<'a> {
    StepOptions { queues, ..StepOptions::default() }
}

fn new(served: &Served) -> Sequence {
    served.cache.sequence(SequenceOptions::default()).unwrap()
}

/// Sequences in every state that a cache has between two steps.
struct Live {
    shared: Sequence,  // its prefix is another's too
    forked: Sequence,  // the other one
    open: Sequence,    // ends inside of a block
    swapped: Sequence, // in the host tier
}

const CACHED: u32 = 500; // first token of a prefix that no sequence holds

impl Live {
    fn new(served: &mut Served) -> Self {
        let gone = new(served);
        let prefix: Vec<u32> = (CACHED..CACHED + 9).collect();
        compute(served, &gone, &prefix, 1);
        let shared = new(served);
        compute(served, &shared, &count(8), 2);
        let forked = shared.fork(8).unwrap();
        compute(served, &forked, &[70, 71], 3);
        let open = new(served);
        compute(served, &open, &[100, 101, 102, 103, 104, 105], 4);
        let swapped = new(served);
        compute(served, &swapped, &[200, 201, 202, 203, 204], 5);
        drop(gone); // its blocks stay cached
        let mut step = served.cache.begin(on(&[&served.queue]), &[], &[], &mut []).unwrap();
        assert_eq!(step.preempt(&swapped, Preempt::Swap).unwrap(), Some(2));
        step.commit(Some(&mut served.batch)).unwrap().finish().unwrap();
        served.queue.sync().unwrap();
        assert!(swapped.info().unwrap().is_swapped);
        Self { shared, forked, open, swapped }
    }

    fn all(&self) -> [&Sequence; 4] {
        [&self.shared, &self.forked, &self.open, &self.swapped]
    }

    fn contents(&self) -> [Vec<u8>; 4] {
        self.all().map(content)
    }

    fn blocks(&self) -> [Vec<i32>; 3] {
        [&self.shared, &self.forked, &self.open].map(|sequence| sequence.blocks(0).unwrap())
    }
}

/// The new id of each block of the device.
fn ids(moves: &[BlockMove]) -> HashMap<i32, i32> {
    let on_device = moves.iter().filter(|one| one.tier == DEVICE_TIER);
    on_device.map(|one| (one.src, one.dst)).collect()
}

fn onto(served: &Served, device: &Device, size: PoolSize) -> Migration {
    let shards = [Shard::whole(device)];
    let options = MigrateOptions {
        shards: &shards,
        size,
        list_moves: true,
        timeout: Some(Duration::MAX),
        ..MigrateOptions::default()
    };
    served.cache.migrate(options).unwrap()
}

fn go_on(served: &mut Served, device: Device) {
    served.batch = make_batch(&served.cache);
    served.queue = device.queue().unwrap();
    served.device = device;
}

#[test]
fn sequences_move_with_their_bits() {
    let mut served = serve();
    let live = Live::new(&mut served);
    let (contents, mut blocks) = (live.contents(), live.blocks());
    assert_eq!(contents, live.contents(), "an export without a move");
    // Just the null block, two shared ones, one of the fork's own and two open ones; a larger pool;
    // and one of the old size.
    for blocks_now in [6, 40, 16] {
        let device = open_device(&served.instance, "cpu").unwrap();
        let cached = served.cache.stats().unwrap().blocks_cached;
        let moved = onto(&served, &device, PoolSize::Blocks(blocks_now));
        assert!(moved.is_moved && moved.live_bytes > 0 && moved.bytes_moved >= moved.live_bytes);
        assert_eq!((moved.blocks_short, moved.moves.is_empty()), (0, false));
        let stats = served.cache.stats().unwrap();
        assert_eq!(stats.blocks_cached + moved.blocks_dropped, cached);
        let ids = ids(&moved.moves);
        for list in &mut blocks {
            list.iter_mut().for_each(|block| *block = ids[block]);
        }
        assert_eq!(blocks, live.blocks(), "the list of moves says where blocks are");
        assert!(blocks.concat().iter().all(|&block| 0 < block && block < blocks_now as i32));
        assert_eq!(contents, live.contents());
        assert!(live.swapped.info().unwrap().is_swapped);
        served.cache.check().unwrap();
        go_on(&mut served, device);
    }
    assert_eq!(served.cache.stats().unwrap().migrations, 3);
    // The swapped one comes back, and the others go on.
    for sequence in live.all() {
        let known = sequence.info().unwrap().known_tokens;
        compute(&mut served, sequence, &[900], 6);
        let info = sequence.info().unwrap();
        assert_eq!((info.computed_tokens, info.is_swapped), (known + 1, false));
    }
    served.cache.check().unwrap();
}

#[test]
fn a_prefix_that_no_sequence_holds_moves_along() {
    let mut served = serve();
    let live = Live::new(&mut served);
    let device = open_device(&served.instance, "cpu").unwrap();
    let moved = onto(&served, &device, PoolSize::Blocks(40));
    assert_eq!((moved.is_moved, moved.blocks_dropped), (true, 0));
    go_on(&mut served, device);
    let probe: Vec<u32> = (CACHED..CACHED + 9).collect();
    assert_eq!(new(&served).probe(&probe).unwrap(), 8);
    drop(live);
    let fresh = new(&served);
    assert_eq!(fresh.probe(&count(9)).unwrap(), 8);
}

#[test]
fn attention_goes_on_where_it_was() {
    let mut served = serve();
    let sequence = new(&served);
    check_means(&served.means(&sequence, &count(6), 0), 0);
    for blocks in [8, 64] {
        let device = open_device(&served.instance, "cpu").unwrap();
        assert!(onto(&served, &device, PoolSize::Blocks(blocks)).is_moved);
        go_on(&mut served, device);
        let known = sequence.info().unwrap().known_tokens;
        check_means(&served.means(&sequence, &[known], known as usize), known as usize);
    }
}

#[test]
fn a_pool_that_is_too_small_changes_nothing() {
    let mut served = serve();
    let live = Live::new(&mut served);
    let (contents, blocks) = (live.contents(), live.blocks());
    let before = served.cache.stats().unwrap();
    let device = open_device(&served.instance, "cpu").unwrap();
    for wait in [true, false] {
        let shards = [Shard::whole(&device)];
        let options = MigrateOptions {
            shards: &shards,
            size: PoolSize::Blocks(4),
            list_moves: true,
            ..MigrateOptions::default()
        };
        let moved =
            if wait { served.cache.migrate(options) } else { served.cache.try_migrate(options) };
        let moved = moved.unwrap();
        // Two shared blocks, one of the fork's own and two open ones, for which there are three.
        assert_eq!((moved.is_moved, moved.blocks_short), (false, 2));
        assert!(moved.moves.is_empty());
    }
    let no_host = MigrateOptions {
        shards: &[Shard::whole(&device)],
        size: PoolSize::Blocks(16),
        host_blocks: 1, // of two that the swapped sequence has there
        ..MigrateOptions::default()
    };
    let moved = served.cache.migrate(no_host).unwrap();
    assert_eq!((moved.is_moved, moved.blocks_short), (false, 1));
    assert_eq!(served.cache.stats().unwrap(), before);
    assert_eq!((contents, blocks), (live.contents(), live.blocks()));
    served.batch.views(0, 0).unwrap(); // is still the cache's
    compute(&mut served, &live.swapped, &[1], 7);
    drop(device); // the cache did not keep it
    served.cache.check().unwrap();
}

#[test]
fn wrong_targets_are_refused_in_words() {
    let mut served = serve();
    let live = Live::new(&mut served);
    let contents = live.contents();
    let device = open_device(&served.instance, "cpu").unwrap();
    let whole = Shard::whole(&device);
    let twice = [whole.clone(), whole.clone()];
    let no_head = [Shard { head_begin: 1, ..whole.clone() }];
    let no_layer = [Shard { layer_begin: 1, layer_count: 1, ..whole.clone() }];
    let good = MigrateOptions {
        shards: std::slice::from_ref(&whole),
        size: PoolSize::Blocks(16),
        ..MigrateOptions::default()
    };
    let wrong = [
        (MigrateOptions { shards: &[], ..good }, "shard"),
        (MigrateOptions { shards: &twice, ..good }, "device"),
        (MigrateOptions { shards: &no_head, ..good }, "head"),
        (MigrateOptions { shards: &no_layer, ..good }, "layer"),
        (MigrateOptions { group_blocks: Some(&[16, 16]), ..good }, "there are 1 groups"),
        (MigrateOptions { group_blocks: Some(&[]), ..good }, "there are 1 groups"),
        (MigrateOptions { group_blocks: Some(&[1]), ..good }, "block"),
        (MigrateOptions { size: PoolSize::Blocks(1), ..good }, "block"),
        (MigrateOptions { size: PoolSize::Fraction(2.0, 0), ..good }, "pool_fraction"),
        (MigrateOptions { size: PoolSize::Fraction(f32::NAN, 0), ..good }, "pool_fraction"),
        (MigrateOptions { size: PoolSize::Bytes(1), ..good }, "a block takes 256 bytes"),
    ];
    for (options, says) in wrong {
        for error in [served.cache.migrate(options), served.cache.try_migrate(options)] {
            let error = refused(error, ErrorKind::Argument);
            assert!(error.message().contains(says), "{error}");
        }
    }
    let waits = MigrateOptions { timeout: Some(Duration::ZERO), ..good };
    let error = refused(served.cache.try_migrate(waits), ErrorKind::Argument);
    assert!(error.message().contains("does not wait"), "{error}");
    assert_eq!(contents, live.contents());
    assert_eq!(served.cache.stats().unwrap().migrations, 0);
    // A bookkeeping-only cache stays one.
    let books = keep_books(CacheOptions::default());
    refused(books.migrate(good), ErrorKind::Argument);
    assert!(served.cache.migrate(good).unwrap().is_moved);
}

#[test]
fn queues_and_batches_from_before_the_move_are_refused() {
    let mut served = serve();
    let sequence = new(&served);
    compute(&mut served, &sequence, &count(6), 1);
    let device = open_device(&served.instance, "cpu").unwrap();
    assert!(onto(&served, &device, PoolSize::Blocks(16)).is_moved);
    let items = [Item::new(&sequence).tokens(0, 1)];
    let mut results = [Default::default()];
    let (old, queue) = (served.queue.clone(), device.queue().unwrap());
    refused(served.cache.begin(on(&[&old]), &items, &[9], &mut results), ErrorKind::Argument);
    let step = served.cache.begin(on(&[&queue]), &items, &[9], &mut results).unwrap();
    let kept = step.commit(Some(&mut served.batch)).unwrap_err();
    assert_eq!(kept.error.kind(), ErrorKind::Stale);
    drop(kept); // aborts it
                // All of the old device's objects can go; the cache keeps the new one.
    let Served { cache, instance, device: first, queue: _, batch } = served;
    drop((old, batch, first, instance, device));
    let mut batch = make_batch(&cache);
    let step = cache.begin(on(&[&queue]), &items, &[9], &mut results).unwrap();
    step.commit(Some(&mut batch)).unwrap().finish().unwrap();
    queue.sync().unwrap();
    assert_eq!(sequence.info().unwrap().computed_tokens, 7);
}

#[test]
fn a_step_keeps_the_cache_where_it_is_until_it_is_done() {
    let mut served = serve();
    let sequence = new(&served);
    let device = open_device(&served.instance, "cpu").unwrap();
    let shards = [Shard::whole(&device)];
    let to = MigrateOptions { shards: &shards, ..MigrateOptions::default() };
    let soon = MigrateOptions { timeout: Some(Duration::from_millis(2)), ..to };
    let open = served.cache.begin(on(&[&served.queue]), &[], &[], &mut []).unwrap();
    refused(served.cache.migrate(to), ErrorKind::Busy);
    drop(open);
    let fence = served.device.fence(0).unwrap();
    served.queue.after(&fence, 1).unwrap();
    let step = served.step(&sequence, &count(6));
    refused(served.cache.migrate(to), ErrorKind::Busy); // it is not finished
    step.finish().unwrap();
    refused(served.cache.try_migrate(to), ErrorKind::Busy); // it has not run
    refused(served.cache.migrate(soon), ErrorKind::Timeout);
    std::thread::scope(|scope| {
        let waits = scope.spawn(|| served.cache.migrate(to).unwrap());
        std::thread::sleep(Duration::from_millis(5));
        fence.signal(1).unwrap();
        assert!(waits.join().unwrap().is_moved);
    });
    assert!(served.cache.try_migrate(to).unwrap().is_moved);
}

#[test]
fn books_say_which_blocks_moved() {
    let cache = keep_books(CacheOptions { host_blocks: 4, ..CacheOptions::default() });
    let gone = cache.sequence(SequenceOptions::default()).unwrap();
    run(&cache, &gone, &(100..130).collect::<Vec<_>>());
    let sequence = cache.sequence(SequenceOptions::default()).unwrap();
    run(&cache, &sequence, &count(10));
    gone.end_and_forget().unwrap();
    let before = sequence.blocks(0).unwrap();
    assert!(before.iter().any(|&block| block >= 5), "no id has to change: {before:?}");
    let (step, _) = take(&cache, &sequence, &[10]);
    let options =
        MigrateOptions { size: PoolSize::Blocks(5), list_moves: true, ..MigrateOptions::default() };
    refused(cache.try_migrate(options), ErrorKind::Busy);
    step.finish().unwrap();
    let moved = cache.try_migrate(options).unwrap();
    assert_eq!((moved.is_moved, moved.blocks_moved, moved.moves.len()), (true, 3, 3));
    let ids = ids(&moved.moves);
    let after: Vec<i32> = before.iter().map(|block| ids[block]).collect();
    assert_eq!(sequence.blocks(0).unwrap(), after);
    assert!(after.iter().all(|&block| 0 < block && block < 5) && after != before);
    cache.check().unwrap();
    let of_groups = MigrateOptions { group_blocks: Some(&[9]), ..MigrateOptions::default() };
    assert!(cache.migrate(of_groups).unwrap().is_moved);
    assert_eq!(cache.stats().unwrap().blocks_total, 8); // without the null block
}

#[test]
fn the_host_tier_is_copied_where_it_must_not_stay() {
    for copy_host_tier in [false, true] {
        let mut served = serve();
        let live = Live::new(&mut served);
        let contents = live.contents();
        let device = open_device(&served.instance, "cpu").unwrap();
        let shards = [Shard::whole(&device)];
        let to = MigrateOptions { shards: &shards, copy_host_tier, ..MigrateOptions::default() };
        let moved = served.cache.migrate(to).unwrap();
        let (kept, copied) = if copy_host_tier { (0, 2) } else { (2, 0) };
        assert_eq!((moved.host_blocks_kept, moved.host_blocks_copied), (kept, copied));
        go_on(&mut served, device); // drops the old device, which the cache keeps if it must
        assert_eq!(contents, live.contents());
        compute(&mut served, &live.swapped, &[1], 7);
        assert!(!live.swapped.info().unwrap().is_swapped);
        served.cache.check().unwrap();
    }
}

#[test]
fn a_cache_is_divided_and_joined() {
    let instance = Instance::new().unwrap();
    let open = || open_device(&instance, "cpu").unwrap();
    let devices = [open(), open(), open()];
    let groups = [quire::Group { layers: 2, ..group() }];
    let cache = instance
        .cache(CacheOptions {
            groups: &groups,
            shards: &[Shard::whole(&devices[0])],
            size: PoolSize::Blocks(16),
            block_tokens: BLOCK_TOKENS,
            host_blocks: 4,
            ..CacheOptions::default()
        })
        .unwrap();
    let batch = make_batch(&cache);
    let [first, second, third] = devices.clone();
    let queue = first.queue().unwrap();
    let mut served = Served { instance: instance.clone(), device: first, queue, cache, batch };
    let sequence = new(&served);
    let kv = served.memory(2 * 48);
    kv.write(0, &(0..96u8).map(f32::from).collect::<Vec<_>>()).unwrap();
    let step = served.step(&sequence, &count(6));
    for layer in 0..2 {
        let own = Operand::new(&kv, u64::from(layer) * 192);
        let write = KvWrite { layer, k: own, v: own, dtype: DType::F32, q: None };
        step.kv_write(&served.queue, &write).unwrap();
    }
    step.finish().unwrap();
    served.queue.sync().unwrap();
    let before = content(&sequence);
    let layer = |device: &Device, layer_begin| Shard {
        layer_begin,
        layer_count: 1,
        ..Shard::whole(device)
    };
    let divided = [layer(&second, 0), layer(&third, 1)];
    let to = MigrateOptions { shards: &divided, ..MigrateOptions::default() };
    assert!(served.cache.migrate(to).unwrap().is_moved);
    assert_eq!(before, content(&sequence));
    assert!(onto(&served, &devices[0], PoolSize::Blocks(16)).is_moved);
    assert_eq!(before, content(&sequence));
    served.cache.check().unwrap();
}
