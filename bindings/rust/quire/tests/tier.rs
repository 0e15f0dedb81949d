// SPDX-License-Identifier: Apache-2.0

//! A store below a cache gives back what the cache forgot.

mod common;

use common::{count, group, keep_books, refused, serve, Served, BLOCK_TOKENS};
use quire::{
    AttachOptions, CacheOptions, ErrorKind, Item, ItemResult, PoolSize, SequenceOptions, Shard,
    StepOptions, Tier, TierOptions, TierWrite, Wait,
};

const WRITES: AttachOptions = AttachOptions {
    fingerprint: [7; 32],
    write: TierWrite::Through,
    min_load_tokens: 0,
    load_timeout: None,
    load_expiry: None,
    max_load_bytes: 0,
    max_write_bytes: 0,
    max_told_blocks: 0,
    followers: 0,
};

fn open(served: &Served, store: &str, settings: &[(&str, &str)]) -> Tier {
    let options = TierOptions { store, settings, ..TierOptions::default() };
    served.instance.open_tier(options).unwrap()
}

/// Waits until all that was computed is in the store.
fn settle(served: &Served) {
    while served.cache.poll_tier().unwrap().blocks_queued != 0 {}
}

/// Computes the last of nine tokens in a new sequence, after the others were found or loaded.
/// Returns how many were, how often the item waited for a load, and the mean of all values.
fn ninth(served: &mut Served) -> (u32, u32, f32) {
    let sequence = served.cache.sequence(SequenceOptions::default()).unwrap();
    let items = [Item::new(&sequence).tokens(0, 9).may_load()];
    let mut results = [ItemResult::default()];
    let mut waits = 0;
    loop {
        let queues = [&served.queue];
        let options = StepOptions { queues: &queues, ..StepOptions::default() };
        let step = served.cache.begin(options, &items, &count(9), &mut results).unwrap();
        drop(step); // undoes it
        if results[0].wait() != Some(Wait::Loading) {
            break;
        }
        served.cache.wait_load(None).unwrap();
        waits += 1;
    }
    let hits = results[0].hit_tokens();
    let means = served.means_of(&items, &count(9), hits as usize, 9 - hits as usize);
    (hits, waits, *means.last().unwrap())
}

/// Whatever the tier was, the cache has nothing any more when it is attached again.
fn forget_all(served: &Served, tier: &Tier, options: AttachOptions) {
    served.cache.detach_tier(None).unwrap();
    served.cache.reset().unwrap();
    served.cache.attach_tier(tier, options).unwrap();
}

fn comes_back_from(store: &str, settings: &[(&str, &str)]) {
    let mut served = serve();
    let tier = open(&served, store, settings);
    served.cache.attach_tier(&tier, WRITES).unwrap();
    assert_eq!(ninth(&mut served), (0, 0, 4.0));
    settle(&served);
    let stats = served.cache.tier_stats().unwrap();
    assert_eq!((stats.blocks_written, stats.loads_begun), (2, 0));
    forget_all(&served, &tier, WRITES);
    assert_eq!(ninth(&mut served), (8, 1, 4.0));
    let stats = served.cache.tier_stats().unwrap();
    assert_eq!((stats.loads_used, stats.tokens_loaded, stats.blocks_written), (1, 8, 0));
    let held = tier.stats().unwrap();
    assert_eq!((held.records, held.hits, held.puts), (2, 2, 2));
    // Another model finds nothing of this one.
    forget_all(&served, &tier, AttachOptions { fingerprint: [8; 32], ..WRITES });
    assert_eq!(ninth(&mut served).0, 0);
    served.cache.check().unwrap();
}

#[test]
fn memory_gives_back_what_the_cache_forgot() {
    comes_back_from("memory", &[]);
}

#[test]
fn a_disk_gives_it_to_the_next_cache_too() {
    let folder = std::env::temp_dir().join(format!("quire-tier-{}", std::process::id()));
    let settings = [("directory", folder.to_str().unwrap()), ("capacity", "1MiB")];
    comes_back_from("disk", &settings);
    // The first cache and its tier were dropped while they were attached.
    let mut served = serve();
    let options =
        TierOptions { store: "disk", settings: &settings, existing: true, read_only: true };
    let tier = served.instance.open_tier(options).unwrap();
    refused(served.cache.attach_tier(&tier, WRITES), ErrorKind::Argument);
    let reads = AttachOptions { write: TierWrite::None, ..WRITES };
    served.cache.attach_tier(&tier, reads).unwrap();
    assert_eq!(ninth(&mut served), (8, 1, 4.0));
    drop(served);
    drop(tier);
    std::fs::remove_dir_all(&folder).unwrap();
}

#[test]
fn a_tier_stays_open_while_it_is_attached() {
    let mut served = serve();
    let tier = open(&served, "memory", &[]);
    served.cache.attach_tier(&tier, WRITES).unwrap();
    drop(tier);
    assert_eq!(ninth(&mut served), (0, 0, 4.0));
    settle(&served);
    assert_eq!(served.cache.tier_stats().unwrap().blocks_written, 2);
    served.cache.detach_tier(None).unwrap();
    refused(served.cache.tier_stats(), ErrorKind::Argument);
}

#[test]
fn a_load_is_cancelled() {
    let mut served = serve();
    let tier = open(&served, "memory", &[]);
    served.cache.attach_tier(&tier, WRITES).unwrap();
    ninth(&mut served);
    settle(&served);
    forget_all(&served, &tier, WRITES);
    let sequence = served.cache.sequence(SequenceOptions::default()).unwrap();
    let queues = [&served.queue];
    let options = StepOptions { queues: &queues, ..StepOptions::default() };
    let mut results = [ItemResult::default()];
    let items = [Item::new(&sequence).tokens(0, 9).may_load()];
    drop(served.cache.begin(options, &items, &count(9), &mut results).unwrap());
    assert_eq!(results[0].wait(), Some(Wait::Loading));
    sequence.cancel_load().unwrap();
    let progress = served.cache.wait_load(None).unwrap();
    assert_eq!((progress.loads_running, progress.loads_ready, progress.loads_ended), (0, 0, 1));
    assert_eq!(served.cache.tier_stats().unwrap().loads_cancelled, 1);
    served.cache.detach_tier(None).unwrap();
    refused(sequence.cancel_load(), ErrorKind::Argument);
}

#[test]
fn tiers_that_do_not_fit_are_refused() {
    let served = serve();
    let attempt = |store: &str, settings: &[(&str, &str)], existing| {
        served.instance.open_tier(TierOptions { store, settings, existing, read_only: false })
    };
    refused(attempt("disk", &[], false), ErrorKind::Argument);
    refused(attempt("memory", &[("colour", "blue")], false), ErrorKind::Argument);
    refused(attempt("memory", &[("capacity", "1MiB\0")], false), ErrorKind::Argument);
    refused(attempt("memory", &[], true), ErrorKind::Argument);
    refused(attempt("abacus", &[], false), ErrorKind::Backend);

    refused(served.cache.poll_tier(), ErrorKind::Argument);
    refused(served.cache.wait_load(None), ErrorKind::Argument);
    refused(served.cache.detach_tier(None), ErrorKind::Argument);

    let tier = open(&served, "memory", &[]);
    let groups = [group()];
    let shards = [Shard::whole(&served.device)];
    // Without memory, and without a host tier.
    for (shards, host_blocks) in [(&[][..], 16), (&shards[..], 0)] {
        let options = CacheOptions {
            groups: &groups,
            shards,
            host_blocks,
            size: PoolSize::Blocks(16),
            block_tokens: BLOCK_TOKENS,
            ..CacheOptions::default()
        };
        let cache = served.instance.cache(options).unwrap();
        refused(cache.attach_tier(&tier, WRITES), ErrorKind::Unsupported);
    }
    refused(keep_books(CacheOptions::default()).attach_tier(&tier, WRITES), ErrorKind::Argument);
    served.cache.attach_tier(&tier, WRITES).unwrap();
    refused(served.cache.attach_tier(&tier, WRITES), ErrorKind::Busy);
    refused(served.cache.attach_tier(&open(&served, "memory", &[]), WRITES), ErrorKind::Busy);
    assert!(format!("{tier:?}").starts_with("Tier"));
}
