// SPDX-License-Identifier: Apache-2.0

//! A store below a cache gives back what the cache forgot, and keeps an engine's own values.

mod common;

use std::collections::HashMap;
use std::path::PathBuf;
use std::time::Duration;

use common::{count, group, keep_books, refused, serve, Served, BLOCK_TOKENS};
use quire::{
    AttachOptions, CacheOptions, ErrorKind, Item, ItemResult, PoolSize, SequenceOptions, Shard,
    StepOptions, Tier, TierLabel, TierOptions, TierRecord, TierWrite, Wait,
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

const MINUTE: Option<Duration> = Some(Duration::from_secs(60));

fn label(number: u8) -> TierLabel {
    TierLabel { key: [number; 32], ..TierLabel::default() }
}

/// Where a test's store is, without what an earlier run left there.
fn place(name: &str) -> PathBuf {
    let place = std::env::temp_dir().join(format!("quire-{name}-{}", std::process::id()));
    let _ = std::fs::remove_dir_all(&place);
    place
}

fn sizes(tier: &Tier) -> HashMap<TierLabel, u64> {
    let of = |record: TierRecord| (record.label, record.value_bytes);
    tier.records().map(|record| of(record.unwrap())).collect()
}

#[test]
fn values_come_back_under_their_very_label() {
    let tier = open(&serve(), "memory", &[("capacity", "1MiB")]);
    assert!(tier.put(label(1), b"one", MINUTE).unwrap());
    assert!(tier.put_pieces(label(2), &[b"t", b"", b"wo"], None).unwrap());
    assert!(tier.put(label(1), b"two", MINUTE).unwrap()); // the first one stays
    assert_eq!(tier.get(label(1), 3, MINUTE).unwrap().as_deref(), Some(&b"one"[..]));
    assert_eq!(tier.get(label(2), 3, None).unwrap().as_deref(), Some(&b"two"[..]));
    assert_eq!(tier.get(label(3), 3, None).unwrap(), None);
    for other in [
        TierLabel { name_space: [9; 32], ..label(1) },
        TierLabel { fingerprint: [9; 32], ..label(1) },
    ] {
        assert_eq!(tier.get(other, 3, None).unwrap(), None);
        assert!(!tier.find(other, None).unwrap());
    }
    let error = refused(tier.get(label(1), 4, None), ErrorKind::Argument);
    assert!(error.message().contains("has 3 bytes, not 4"), "{error}");
    let (mut first, mut second) = ([0; 2], [0; 1]);
    assert!(tier.get_pieces(label(2), &mut [&mut first, &mut second], None).unwrap());
    assert_eq!((&first, &second), (b"tw", b"o"));
    assert!(!tier.get_pieces(label(2), &mut [&mut first], None).unwrap());
    assert!(tier.find(label(1), MINUTE).unwrap() && !tier.find(label(3), MINUTE).unwrap());
    assert_eq!(sizes(&tier), HashMap::from([(label(1), 3), (label(2), 3)]));
    tier.remove(label(1), MINUTE).unwrap();
    tier.remove(label(1), MINUTE).unwrap();
    assert_eq!(sizes(&tier), HashMap::from([(label(2), 3)]));
    tier.flush(MINUTE).unwrap();
    let stats = tier.stats().unwrap();
    assert_eq!((stats.records, stats.puts, stats.puts_known, stats.removed), (1, 2, 1, 1));
    refused(tier.get(label(2), usize::MAX, None), ErrorKind::HostMemory);
    assert_eq!(tier.get(label(5), 0, None).unwrap(), None);
}

#[test]
fn stores_say_what_they_are() {
    let served = serve();
    let memory = open(&served, "memory", &[("capacity", "1MiB")]).info().unwrap();
    assert_eq!(
        (memory.capacity_bytes, memory.is_persistent, memory.is_remote),
        (1 << 20, false, false)
    );
    assert!(memory.max_requests >= 1 && memory.max_value_bytes <= 1 << 20);
    let place = place("info");
    let settings = [("directory", place.to_str().unwrap()), ("capacity", "16MiB")];
    let disk = open(&served, "disk", &settings).info().unwrap();
    assert_eq!((disk.capacity_bytes, disk.is_persistent, disk.is_indexed), (16 << 20, true, true));
    assert!(disk.place.contains(place.to_str().unwrap()), "{disk:?}");
    std::fs::remove_dir_all(&place).unwrap();
}

#[test]
fn a_long_list_is_whole() {
    let served = serve();
    let place = place("list");
    let settings = [("directory", place.to_str().unwrap()), ("capacity", "16MiB")];
    let tier = open(&served, "disk", &settings);
    assert_eq!(tier.records().count(), 0);
    let labels = |count| (0..count).map(label).collect::<Vec<_>>();
    let mut put = 0;
    for count in [63, 64, 65, 200] {
        for (i, &label) in labels(count).iter().enumerate().skip(put) {
            assert!(tier.put(label, &vec![7; 1 + i], None).unwrap());
        }
        put = usize::from(count);
        let wanted: HashMap<_, _> = labels(count).into_iter().zip(1..).collect();
        assert_eq!(tier.records().count(), put, "each is listed once");
        assert_eq!(sizes(&tier), wanted);
    }
    let first: Vec<u64> = tier.records().take(2).map(|record| record.unwrap().sequence).collect();
    assert!(first.iter().all(|&sequence| sequence != 0));
    // The next owner of the store finds all of it, and may not change it.
    tier.flush(None).unwrap();
    drop(tier);
    let options =
        TierOptions { store: "disk", settings: &settings, existing: true, read_only: true };
    let tier = served.instance.open_tier(options).unwrap();
    assert_eq!(tier.records().count(), 200);
    assert_eq!(tier.get(label(6), 7, None).unwrap().unwrap(), [7; 7]);
    refused(tier.put(label(201), b"new", None), ErrorKind::Unsupported);
    refused(tier.remove(label(6), None), ErrorKind::Unsupported);
    refused(tier.compact(None), ErrorKind::Unsupported);
    drop(tier);
    std::fs::remove_dir_all(&place).unwrap();
}

#[test]
fn a_request_that_takes_too_long_is_given_up() {
    let served = serve();
    let place = place("late");
    let settings = [("directory", place.to_str().unwrap()), ("capacity", "256MiB")];
    let tier = open(&served, "disk", &settings);
    let value = vec![3; 4 << 20];
    // No disk writes 4 MiB before the call looks for its answer; it gets ten tries all the same.
    let late = (0..10).find_map(|i| tier.put(label(i), &value, Some(Duration::ZERO)).err());
    let error = late.expect("every put was in time");
    assert_eq!(error.kind(), ErrorKind::Timeout);
    assert!(error.message().contains("put in time"), "{error}");
    // The tier goes on, and is closed with the request under way.
    assert!(tier.put(label(100), &value, None).unwrap());
    assert_eq!(tier.get(label(100), value.len(), None).unwrap().unwrap(), value);
    assert!(tier.put(label(101), b"wait", Some(Duration::MAX)).unwrap());
    let _ = tier.put(label(102), &value, Some(Duration::ZERO));
    drop(tier);
    std::fs::remove_dir_all(&place).unwrap();
}

#[test]
fn requests_that_cannot_be_served_are_refused() {
    let served = serve();
    let tier = open(&served, "memory", &[("capacity", "1MiB")]);
    let large = vec![0; 2 << 20];
    for wrong in [&large[..], &[]] {
        let error = refused(tier.put(label(1), wrong, None), ErrorKind::Argument);
        assert!(error.message().contains("bytes"), "{error}");
    }
    refused(tier.get(label(1), large.len(), None), ErrorKind::Argument);
    refused(tier.compact(None), ErrorKind::Unsupported);
    served.cache.attach_tier(&tier, WRITES).unwrap();
    refused(tier.put(label(1), b"one", None), ErrorKind::Busy);
    refused(tier.find(label(1), None), ErrorKind::Busy);
    assert!(tier.records().next().is_none()); // a list is no request
    tier.info().unwrap();
    served.cache.detach_tier(None).unwrap();
    assert!(tier.put(label(1), b"one", None).unwrap());
}
