// SPDX-License-Identifier: Apache-2.0

//! Blocks that belong to no sequence.

mod common;

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::RwLock;

use common::{count, group, keep_books, refused, run};
use quire::{
    Cache, CacheOptions, Error, ErrorKind, Group, GroupKind, Instance, Key, KeyType, Lease,
    LeaseOptions, Match, MigrateOptions, OpenStep, PoolSize, SequenceOptions, Shortage,
    StepOptions, Wait, UNKNOWN_TOKEN,
};

fn books() -> Cache {
    keep_books(CacheOptions::default())
}

fn leased(cache: &Cache) -> Lease {
    cache.lease(LeaseOptions::default()).unwrap()
}

fn begin(cache: &Cache) -> OpenStep {
    cache.begin(StepOptions::default(), &[], &[], &mut []).unwrap()
}

/// Runs changes in a step of their own.
fn in_step<T>(cache: &Cache, change: impl FnOnce(&mut OpenStep) -> T) -> T {
    let mut step = begin(cache);
    let made = change(&mut step);
    step.commit(None).unwrap().finish().unwrap();
    made
}

/// Takes blocks for tokens, publishes them, and gives those back that were there already.
fn filled(cache: &Cache, lease: &Lease, tokens: &[u32]) -> Vec<i32> {
    let (mut ids, mut named) = (vec![0; tokens.len() / 4], vec![0; tokens.len() / 4]);
    in_step(cache, |step| {
        lease.take(step, 0, &mut ids).unwrap().unwrap();
        lease.publish(step, tokens, &ids, &mut named).unwrap().unwrap();
        let own = ids.iter().zip(&named).filter(|(own, there)| own != there);
        let own: Vec<_> = own.map(|(own, _)| *own).collect();
        lease.give(step, 0, &own).unwrap();
    });
    named
}

fn found(lease: &Lease, how: Match, tokens: &[u32]) -> Vec<i32> {
    let mut ids = vec![0; tokens.len() / 4];
    let places = lease.find(None, tokens, how, &mut ids).unwrap();
    ids.truncate(places);
    ids
}

#[test]
fn leased_blocks_are_found_and_pinned() {
    let cache = books();
    let lease = leased(&cache);
    let ids = filled(&cache, &lease, &count(12));
    let sequence = cache.sequence(SequenceOptions::default()).unwrap();
    assert_eq!(sequence.probe(&count(13)).unwrap(), 12);
    assert_eq!(found(&lease, Match::Look, &count(11)), ids[..2]);
    assert_eq!(found(&lease, Match::Look, &[5]), []);
    assert_eq!(found(&lease, Match::Look, &[]), []);
    let other = leased(&cache);
    in_step(&cache, |step| {
        let mut pinned = [0; 2];
        assert_eq!(other.find_and_pin(step, &count(8), &mut pinned).unwrap(), Ok(2));
        assert_eq!(pinned, ids[..2]);
        other.pin(step, 0, &ids[..1]).unwrap().unwrap();
        assert_eq!(other.find(Some(step), &count(8), Match::Look, &mut pinned).unwrap(), 2);
    });
    let info = other.info().unwrap();
    assert_eq!((info.ns, info.blocks_held, info.holds, info.blocks_lost), (0, 2, 3, 0));
    let blocks = other.blocks(0).unwrap();
    let read: Vec<_> = blocks.iter().map(|b| (b.block, b.holds, b.is_owned)).collect();
    assert_eq!(read, [(ids[0], 2, false), (ids[1], 1, false)]);
    assert!(lease.blocks(0).unwrap().iter().all(|b| b.is_published && b.is_owned));
    let stats = cache.stats().unwrap();
    assert_eq!((stats.leases, stats.blocks_leased), (2, 5));
    other.end().unwrap();
    drop(lease);
    let stats = cache.stats().unwrap();
    assert_eq!((stats.leases, stats.blocks_held, stats.blocks_cached), (0, 0, 3));
}

#[test]
fn publishing_again_names_what_was_there() {
    let cache = books();
    let lease = leased(&cache);
    let first = filled(&cache, &lease, &count(8));
    assert_eq!(filled(&cache, &lease, &count(12))[..2], first);
    let info = lease.info().unwrap();
    assert_eq!((info.blocks_held, info.holds), (3, 3));
}

#[test]
fn touched_blocks_are_evicted_last() {
    let cache = books();
    let lease = leased(&cache);
    let older = filled(&cache, &lease, &count(8));
    let newer = filled(&cache, &lease, &[50, 51, 52, 53]);
    let mut evicted = [0; 16];
    assert_eq!(cache.evict(0, &mut evicted).unwrap(), 0, "a block that is held was evicted");
    in_step(&cache, |step| {
        lease.give(step, 0, &[older[1], older[0]]).unwrap();
        lease.give(step, 0, &newer).unwrap();
    });
    assert_eq!(found(&lease, Match::Touch, &count(8)), older);
    assert_eq!(cache.evict(0, &mut evicted[..1]).unwrap(), 1);
    assert_eq!(evicted[..1], newer);
    assert_eq!(cache.evict(0, &mut evicted).unwrap(), 2);
    assert_eq!(evicted[..2], [older[1], older[0]]);
    assert_eq!(cache.evict(0, &mut []).unwrap(), 0);
}

#[test]
fn forgotten_blocks_are_not_found() {
    let cache = books();
    let (lease, other) = (leased(&cache), leased(&cache));
    let ids = filled(&cache, &lease, &count(12));
    in_step(&cache, |step| other.pin(step, 0, &ids[1..2]).unwrap().unwrap());
    assert_eq!(lease.forget(0, &ids).unwrap(), 2); // all but the one that another holds
    assert_eq!(found(&lease, Match::Look, &count(12)), []);
    cache.check().unwrap();
}

#[test]
fn a_shortage_is_a_result_and_changes_nothing() {
    let cache = books();
    let tenant = cache.namespace(b"tenant", 3).unwrap();
    let options = LeaseOptions { namespace: Some(&tenant), ..LeaseOptions::default() };
    let (lease, plain) = (cache.lease(options).unwrap(), leased(&cache));
    let mut ids = [0; 20];
    in_step(&cache, |step| {
        let short = lease.take(step, 0, &mut ids[..5]).unwrap().unwrap_err();
        assert_eq!(short, Shortage { blocks: 2, reason: Wait::Quota });
        assert_eq!(short.to_string(), "the quota is short of 2 blocks");
        let short = plain.take(step, 0, &mut ids).unwrap();
        assert_eq!(short, Err(Shortage { blocks: 5, reason: Wait::Pool }));
    });
    let info = lease.info().unwrap();
    assert_eq!((info.ns, info.blocks_held, ids), (tenant.handle(), 0, [0; 20]));
    drop(tenant); // ends when its lease does
    assert_eq!(lease.info().unwrap().ns, info.ns);
    drop(lease);
    assert_eq!(cache.stats().unwrap().leases, 1);
    cache.check().unwrap();
}

/// Every id that the lease may not name is refused in every call that takes ids.
#[test]
fn foreign_blocks_are_refused() {
    let cache = books();
    let tenant = cache.namespace(b"tenant", 0).unwrap();
    let options = LeaseOptions { namespace: Some(&tenant), ..LeaseOptions::default() };
    let (lease, theirs) = (leased(&cache), cache.lease(options).unwrap());
    let own = filled(&cache, &lease, &count(4))[0];
    let foreign = filled(&cache, &theirs, &count(4))[0];
    let sequence = cache.sequence(SequenceOptions::default()).unwrap();
    run(&cache, &sequence, &[90, 91]);
    let unpublished = sequence.blocks(0).unwrap()[0];
    let free = (1..16).find(|id| ![own, foreign, unpublished].contains(id)).unwrap();
    let before = lease.info().unwrap();
    for id in [0, -1, 16, i32::MIN, i32::MAX, free, foreign, unpublished] {
        let with = [own, id];
        in_step(&cache, |step| {
            refused(lease.give(step, 0, &with), ErrorKind::Argument);
            refused(lease.pin(step, 0, &with), ErrorKind::Argument);
            refused(lease.publish(step, &count(8), &with, &mut [0; 2]), ErrorKind::Argument);
        });
        refused(lease.forget(0, &with), ErrorKind::Argument);
    }
    in_step(&cache, |step| {
        refused(lease.give(step, 0, &[own, own]), ErrorKind::Argument);
        refused(lease.give(step, 1, &[own]), ErrorKind::Argument);
        let elsewhere = lease.publish(step, &[7, 8, 9, 10], &[own], &mut [0]);
        refused(elsewhere, ErrorKind::Argument);
    });
    assert_eq!(lease.info().unwrap(), before);
    assert_eq!(found(&lease, Match::Look, &count(8)), [own]);
}

#[test]
fn leases_of_keys_are_apart() {
    let cache = books();
    let salt = [Key { kind: KeyType::Salt, bytes: b"salt", span: None }];
    let keyed = cache.lease(LeaseOptions { keys: &salt, namespace: None }).unwrap();
    filled(&cache, &leased(&cache), &count(8));
    assert_eq!(found(&keyed, Match::Look, &count(8)), []);
    let image = [Key { kind: KeyType::Media, bytes: b"an image", span: Some((0, 4)) }];
    let spanned = LeaseOptions { keys: &image, namespace: None };
    refused(cache.lease(spanned), ErrorKind::Argument);
    let many = LeaseOptions { keys: &[salt[0]; 65], namespace: None };
    refused(cache.lease(many), ErrorKind::Limit);
    let theirs = books().namespace(b"tenant", 0).unwrap();
    let foreign = LeaseOptions { namespace: Some(&theirs), keys: &[] };
    refused(cache.lease(foreign), ErrorKind::Argument);
}

#[test]
fn steps_that_fail_take_back_what_a_lease_got_in_them() {
    let cache = books();
    let lease = leased(&cache);
    let mut ids = [0];
    let mut take = || {
        let mut step = begin(&cache);
        lease.take(&mut step, 0, &mut ids).unwrap().unwrap();
        lease.publish(&mut step, &count(4), &ids, &mut [0]).unwrap().unwrap();
        step
    };
    let step = take();
    refused(lease.end(), ErrorKind::Busy);
    refused(lease.forget(0, &[1]), ErrorKind::Busy);
    refused(cache.evict(0, &mut [0]), ErrorKind::Busy);
    drop(step);
    assert_eq!(lease.info().unwrap(), quire::LeaseInfo::default());
    take().commit(None).unwrap().fail();
    let info = lease.info().unwrap();
    assert_eq!((info.blocks_held, info.blocks_lost), (1, 1));
    assert_eq!(found(&lease, Match::Look, &count(4)), []);
}

/// A lease that is dropped while the open step has changed it ends with that step.
#[test]
fn a_lease_is_dropped_in_the_step_that_changed_it() {
    for is_committed in [false, true] {
        let cache = books();
        let tenant = cache.namespace(b"tenant", 0).unwrap();
        let options = LeaseOptions { namespace: Some(&tenant), ..LeaseOptions::default() };
        let lease = cache.lease(options).unwrap();
        drop(tenant);
        let mut step = begin(&cache);
        lease.take(&mut step, 0, &mut [0; 2]).unwrap().unwrap();
        drop(lease);
        let stats = cache.stats().unwrap();
        assert_eq!((stats.leases, stats.blocks_leased), (1, 2));
        if is_committed {
            step.commit(None).unwrap().finish().unwrap();
        } else {
            drop(step);
        }
        let stats = cache.stats().unwrap();
        assert_eq!((stats.leases, stats.blocks_held, stats.blocks_free), (0, 0, 15));
        cache.check().unwrap();
    }
}

#[test]
fn a_lease_outlives_the_names_of_its_cache() {
    let lease = leased(&books());
    assert_eq!(lease.info().unwrap().blocks_held, 0);
    refused(lease.forget(0, &[1]), ErrorKind::Argument);
    lease.end().unwrap();
    drop(lease);
}

#[test]
fn a_place_has_blocks_of_every_size() {
    let groups = [4, 6].map(|tokens| Group { block_tokens: tokens, ..group() });
    let size = PoolSize::Blocks(16);
    let options =
        CacheOptions { groups: &groups, size, block_tokens: 2, events: true, ..Default::default() };
    let cache = Instance::new().unwrap().cache(options).unwrap();
    let info = cache.info().unwrap();
    assert_eq!((info.span_tokens, info.span_blocks), (12, 5));
    let lease = leased(&cache);
    let (mut ids, mut named) = ([0; 5], [0; 5]);
    in_step(&cache, |step| {
        lease.take(step, 0, &mut ids[..3]).unwrap().unwrap();
        lease.take(step, 1, &mut ids[3..]).unwrap().unwrap();
        assert_eq!(lease.publish(step, &count(12), &ids, &mut named).unwrap(), Ok(1));
    });
    assert_eq!(named, ids);
    let mut there = [0; 5];
    assert_eq!(lease.find(None, &count(23), Match::Look, &mut there).unwrap(), 1);
    assert_eq!(there, ids);
    refused(lease.find(None, &count(23), Match::Look, &mut there[..4]), ErrorKind::Argument);
    let (events, more) = cache.events(false, 1 << 20).unwrap();
    assert_eq!((events.len(), more), (3, false));
    cache.check().unwrap();
}

#[test]
fn groups_have_a_column_each() {
    let instance = Instance::new().unwrap();
    let groups = [group(), group()];
    for one_pool in [false, true] {
        let size = PoolSize::Blocks(16);
        let cache = instance
            .cache(CacheOptions {
                groups: &groups,
                size,
                block_tokens: 4,
                one_pool,
                ..CacheOptions::default()
            })
            .unwrap();
        let lease = leased(&cache);
        let (mut ids, mut named) = ([0; 4], [0; 4]);
        in_step(&cache, |step| {
            for group in 0..2 {
                let mut column = [0; 2];
                lease.take(step, group as u32, &mut column).unwrap().unwrap();
                (ids[group], ids[2 + group]) = (column[0], column[1]);
            }
            let fresh = lease.publish(step, &count(8), &ids, &mut named).unwrap();
            assert_eq!(fresh, Ok(2));
            refused(lease.take(step, 2, &mut [0]), ErrorKind::Argument);
        });
        assert_eq!(ids, named);
        let places = lease.find(None, &count(11), Match::Look, &mut named).unwrap();
        assert_eq!((places, named), (2, ids));
        let short = lease.find(None, &count(8), Match::Look, &mut named[..3]);
        refused(short, ErrorKind::Argument);
        cache.check().unwrap();
    }
    let windowed = [Group { kind: GroupKind::Window { tokens: 8, sinks: 0 }, ..group() }];
    let size = PoolSize::Blocks(16);
    let options = CacheOptions { groups: &windowed, size, ..CacheOptions::default() };
    let cache = instance.cache(options).unwrap();
    let unseen = leased(&cache).find(None, &count(16), Match::Look, &mut [0]);
    refused(unseen, ErrorKind::Unsupported);
}

#[test]
fn moved_leases_keep_their_order() {
    let cache = books();
    let tokens: Vec<_> = (70..78).collect();
    let (lease, before) = (leased(&cache), leased(&cache));
    filled(&cache, &before, &count(20)); // so that the other's ids are high
    let ids = filled(&cache, &lease, &tokens);
    drop(before);
    assert_eq!(cache.evict(0, &mut [0; 5]).unwrap(), 5);
    let options = MigrateOptions { size: PoolSize::Blocks(4), ..MigrateOptions::default() };
    assert!(cache.migrate(options).unwrap().is_moved);
    let moved: Vec<_> = lease.blocks(0).unwrap().iter().map(|b| b.block).collect();
    assert!(moved.len() == 2 && moved[0] != ids[0]);
    assert_eq!(found(&lease, Match::Look, &tokens), moved);
}

#[test]
fn followers_get_the_leaders_leases() {
    let leader = keep_books(CacheOptions { is_leader: true, ..CacheOptions::default() });
    let follower = keep_books(CacheOptions { is_follower: true, ..CacheOptions::default() });
    let (lease, mut ids) = (leased(&leader), [0; 2]);
    let mut step = begin(&leader);
    lease.take(&mut step, 0, &mut ids).unwrap().unwrap();
    lease.publish(&mut step, &count(8), &ids, &mut [0; 2]).unwrap().unwrap();
    let step = step.commit(None).unwrap();
    let log = step.log().unwrap();
    follower.apply_log(&log, StepOptions::default(), None).unwrap().finish().unwrap();
    step.finish().unwrap();
    assert_eq!(follower.stats().unwrap().blocks_held, 2);
    refused(follower.lease(LeaseOptions::default()), ErrorKind::Unsupported);
    refused(follower.evict(0, &mut ids), ErrorKind::Unsupported);
}

/// Makes every call on a lease, and returns their errors.
fn calls_on(lease: &Lease, step: &mut OpenStep) -> Vec<Result<(), Error>> {
    vec![
        lease.end(),
        lease.info().map(drop),
        lease.blocks(0).map(drop),
        lease.take(step, 0, &mut [0]).map(drop),
        lease.give(step, 0, &[1]),
        lease.pin(step, 0, &[1]).map(drop),
        lease.find(None, &count(8), Match::Look, &mut [0; 2]).map(drop),
        lease.find_and_pin(step, &count(8), &mut [0; 2]).map(drop),
        lease.publish(step, &count(8), &[1, 2], &mut [0; 2]).map(drop),
        lease.forget(0, &[1]).map(drop),
    ]
}

#[test]
fn leases_that_were_ended_are_stale() {
    let (cache, other) = (books(), books());
    let (ended, live) = (leased(&cache), leased(&cache));
    ended.end().unwrap();
    let mut step = begin(&cache);
    for result in calls_on(&ended, &mut step) {
        refused(result, ErrorKind::Stale);
    }
    let mut foreign = begin(&other);
    refused(live.take(&mut foreign, 0, &mut [0]), ErrorKind::Argument);
    refused(live.give(&mut foreign, 0, &[]), ErrorKind::Argument);
    refused(live.find(Some(&foreign), &[], Match::Look, &mut []), ErrorKind::Argument);
}

#[test]
fn slices_that_do_not_fit_are_refused() {
    let cache = books();
    let lease = leased(&cache);
    refused(lease.find(None, &count(8), Match::Look, &mut [0]), ErrorKind::Argument);
    refused(lease.find(None, &count(8), Match::Look, &mut []), ErrorKind::Argument);
    let unknown = [1, 2, 3, UNKNOWN_TOKEN];
    refused(lease.find(None, &unknown, Match::Look, &mut [0]), ErrorKind::Argument);
    in_step(&cache, |step| {
        let (mut ids, mut named) = ([0; 2], [0; 2]);
        lease.take(step, 0, &mut ids).unwrap().unwrap();
        lease.take(step, 0, &mut []).unwrap().unwrap();
        lease.give(step, 0, &[]).unwrap();
        let mut publish = |tokens: &[u32], ids: &[i32], room: usize| {
            refused(lease.publish(step, tokens, ids, &mut named[..room]), ErrorKind::Argument)
        };
        publish(&count(8), &ids[..1], 2);
        publish(&count(8), &ids, 1);
        publish(&count(8), &ids, 0);
        publish(&count(8), &[], 0);
        publish(&count(4), &ids, 2);
        publish(&count(10), &ids, 2);
        publish(&unknown, &ids[..1], 1);
        assert_eq!(lease.publish(step, &[], &[], &mut []).unwrap(), Ok(0));
    });
    let none = keep_books(CacheOptions { no_prefixes: true, ..CacheOptions::default() });
    let unfound = leased(&none);
    in_step(&none, |step| {
        let mut ids = [0];
        unfound.take(step, 0, &mut ids).unwrap().unwrap();
        let published = unfound.publish(step, &count(4), &ids, &mut [0]);
        refused(published, ErrorKind::Unsupported);
    });
}

/// Sets it when it is dropped, as a panic does.
struct Done<'a>(&'a AtomicBool);

impl Drop for Done<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Threads that do everything to the same leases get errors of the named kinds, and leave the books
/// right.
#[test]
fn threads_share_leases() {
    let cache = books();
    let shared = RwLock::new(leased(&cache));
    let (is_done, mut published) = (AtomicBool::new(false), 0);
    fn expected<T>(result: Result<T, Error>) {
        if let Err(error) = result {
            use ErrorKind::{Argument, Busy, Limit, Stale};
            assert!([Argument, Busy, Limit, Stale].contains(&error.kind()), "{error}");
        }
    }
    let use_it = |thread: u32| {
        for i in 0.. {
            if is_done.load(Ordering::Relaxed) {
                return;
            }
            let lease = shared.read().unwrap();
            expected(lease.forget(0, &[1, 2]));
            expected(cache.evict(0, &mut [0; 2]));
            expected(lease.blocks(0));
            expected(lease.find(None, &count(8), Match::Touch, &mut [0; 2]));
            if (i + thread) % 7 == 0 {
                expected(lease.end());
                drop(lease);
                *shared.write().unwrap() = leased(&cache);
            }
        }
    };
    std::thread::scope(|scope| {
        for thread in 0..3 {
            let use_it = &use_it;
            scope.spawn(move || use_it(thread));
        }
        let _done = Done(&is_done);
        let mut steps = 0;
        while steps < 300 || published == 0 {
            steps += 1;
            let mut step = begin(&cache);
            let (lease, mut ids) = (shared.read().unwrap(), [0; 2]);
            if let Ok(Ok(())) = lease.take(&mut step, 0, &mut ids) {
                let named = lease.publish(&mut step, &count(8), &ids, &mut [0; 2]);
                published += u32::from(named.is_ok());
                expected(lease.give(&mut step, 0, &ids));
            }
            drop(lease);
            step.commit(None).unwrap().finish().unwrap();
        }
    });
    cache.check().unwrap();
}

#[test]
fn a_run_is_inserted_and_found_in_one_call_each() {
    let cache = books();
    let lease = leased(&cache);
    let mut own = [0; 2];
    in_step(&cache, |step| lease.take(step, 0, &mut own).unwrap().unwrap());
    let mut tokens: Vec<i64> = (50..58).collect();
    let slots: Vec<i64> = (0..8).map(|i| i64::from(own[i / 4]) * 4 + i as i64 % 4).collect();
    let mut named = [0; 2];
    assert_eq!(lease.insert(&tokens, &slots, &mut named).unwrap(), 2);
    assert_eq!(named, own);
    let mut ids = [0; 2];
    assert_eq!(lease.find_wide(&tokens, Match::Touch, &mut ids).unwrap(), 2);
    assert_eq!(ids, own);
    assert_eq!(lease.insert(&tokens, &slots, &mut named).unwrap(), 0);
    tokens[7] = -1;
    refused(lease.find_wide(&tokens, Match::Look, &mut ids), ErrorKind::Argument);
    refused(lease.insert(&tokens, &slots[..7], &mut named), ErrorKind::Argument);
    refused(lease.insert(&tokens, &slots, &mut named[..1]), ErrorKind::Argument);
}
