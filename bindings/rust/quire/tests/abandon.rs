// SPDX-License-Identifier: Apache-2.0

//! A device that no longer responds is given up: all its handles are stale, and dropping them waits
//! for nothing. Here its queue waits for a fence that no one signals.

mod common;

use std::sync::{mpsc, Arc};
use std::time::Duration;

use common::{count, keep_books, make_batch, open_device, refused, run, serve, Served};
use quire::{
    AttachOptions, BatchOptions, Cache, CacheOptions, DType, Device, DeviceOptions, ErrorKind,
    Fence, Instance, InstanceOptions, Item, KvWrite, LeaseOptions, MemoryKind, MigrateOptions,
    Operand, PoolSize, Sequence, SequenceOptions, SessionIdentity, Shard, Step, StepOptions,
    TierOptions, TierWrite, Views,
};

fn new(cache: &Cache) -> Sequence {
    cache.sequence(SequenceOptions::default()).unwrap()
}

fn new_cache(instance: &Instance, device: &Device) -> quire::Result<Cache> {
    let groups = [common::group()];
    instance.cache(CacheOptions {
        groups: &groups,
        shards: &[Shard::whole(device)],
        size: PoolSize::Blocks(16),
        ..CacheOptions::default()
    })
}

/// Commits a step on a queue that never runs it.
fn stick(served: &mut Served, sequence: &Sequence) -> (Fence, Step) {
    let fence = served.device.fence(0).unwrap();
    served.queue.after(&fence, 1).unwrap();
    (fence, served.step(sequence, &count(6)))
}

/// Fails if `run` is not done within a minute.
fn soon(run: impl FnOnce() + Send + 'static) {
    let (done, waiting) = mpsc::channel();
    let runner = std::thread::spawn(move || {
        run();
        done.send(()).unwrap();
    });
    if let Err(mpsc::RecvTimeoutError::Timeout) = waiting.recv_timeout(Duration::from_secs(60)) {
        panic!("it waits for work that never ends");
    }
    runner.join().unwrap();
}

fn expect_stale_cache(cache: &Cache, sequence: &Sequence) {
    let stale = ErrorKind::Stale;
    let error = refused(cache.stats(), stale);
    assert!(error.message().contains("the cache was abandoned"), "{error}");
    refused(cache.abandon(), stale);
    refused(cache.info(), stale);
    refused(cache.check(), stale);
    refused(cache.reset(), stale);
    refused(cache.dump(false), stale);
    refused(cache.pool(0, 0), stale);
    refused(cache.events(false, 1), stale);
    refused(cache.sequence(SequenceOptions::default()), stale);
    refused(cache.lease(LeaseOptions::default()), stale);
    refused(cache.namespace(b"tenant", 0), stale);
    refused(cache.begin(StepOptions::default(), &[], &[], &mut []), stale);
    let options = BatchOptions {
        max_rows: 1,
        max_blocks_per_row: 1,
        max_query_tokens: 1,
        ..Default::default()
    };
    refused(cache.batch(options), stale);
    let smaller = MigrateOptions { size: PoolSize::Blocks(8), ..MigrateOptions::default() };
    refused(cache.migrate(smaller), stale);
    refused(cache.try_migrate(smaller), stale);
    refused(cache.save_calibration(None), stale);
    refused(cache.poll_tier(), stale);
    refused(cache.detach_tier(None), stale);
    refused(sequence.info(), stale);
    refused(sequence.fork(1), stale);
    refused(sequence.blocks(0), stale);
    refused(sequence.probe(&[1]), stale);
    refused(sequence.export(Vec::new(), &SessionIdentity::default(), None), stale);
    refused(sequence.end(), stale);
}

#[test]
fn a_device_is_given_up_after_its_caches() {
    soon(|| {
        let mut served = serve();
        let sequence = new(&served.cache);
        let memory = served.memory(6 * 8);
        let (fence, step) = stick(&mut served, &sequence);
        let all = Operand::new(&memory, 0);
        let write = KvWrite { layer: 0, k: all, v: all, dtype: DType::F32, q: None };
        step.kv_write(&served.queue, &write).unwrap();
        let idle = served.memory(4);
        refused(served.device.abandon(), ErrorKind::Busy);
        served.cache.stats().unwrap(); // nothing changed
        let pool_bytes = served.cache.info().unwrap().pool_bytes;
        let left = served.cache.abandon().unwrap();
        assert!(left.device_bytes >= pool_bytes && left.host_bytes >= 4096, "{left:?}");
        assert_eq!(left.engine_bytes, 0);

        expect_stale_cache(&served.cache, &sequence);
        refused(served.batch.views(0, 0), ErrorKind::Stale);
        refused(step.kv_write(&served.queue, &write), ErrorKind::Stale);
        refused(step.blocks(&sequence, 0), ErrorKind::Stale);
        refused(step.finish(), ErrorKind::Stale);
        served.device.info().unwrap(); // the device is another matter

        let all_left = served.device.abandon().unwrap();
        assert!(all_left.device_bytes >= left.device_bytes, "{all_left:?}");
        let stale = ErrorKind::Stale;
        let error = refused(served.device.info(), stale);
        assert!(error.message().contains("the device was abandoned"), "{error}");
        refused(served.device.abandon(), stale);
        refused(served.device.queue(), stale);
        refused(served.device.fence(0), stale);
        refused(served.device.memory(64, MemoryKind::Host), stale);
        refused(served.queue.sync(), stale);
        refused(served.queue.abandon(), stale);
        refused(served.queue.signal(&fence, 1), stale);
        refused(served.queue.copy(&memory, 0, &idle, 0, 4), stale);
        refused(fence.read(), stale);
        refused(fence.wait(1, None), stale);
        refused(fence.signal(1), stale);
        for gone in [&memory, &idle] {
            refused(gone.read(0, &mut [0.0f32]), stale);
            refused(gone.write(0, &[0.0f32]), stale);
        }
        refused(new_cache(&served.instance, &served.device), stale);

        // The process goes on with another device, of the same instance and of a new one.
        let second = open_device(&served.instance, "cpu").unwrap();
        second.queue().unwrap().sync().unwrap();
        drop((fence, memory, idle, sequence, served, second)); // in any order
        let mut other = serve();
        let sequence = new(&other.cache);
        common::check_means(&other.means(&sequence, &count(6), 0), 0);
    });
}

#[test]
fn stuck_objects_are_dropped_in_any_order() {
    for order in 0..4 {
        soon(move || {
            let mut served = serve();
            let sequence = new(&served.cache);
            let memory = served.memory(6 * 8);
            let (fence, step) = stick(&mut served, &sequence);
            let all = Operand::new(&memory, 0);
            let write = KvWrite { layer: 0, k: all, v: all, dtype: DType::F32, q: None };
            step.kv_write(&served.queue, &write).unwrap();
            let open = if order % 2 == 0 {
                step.finish().unwrap();
                None
            } else {
                Some(step) // dropped below
            };
            let lease = served.cache.lease(LeaseOptions::default()).unwrap();
            let tenant = served.cache.namespace(b"tenant", 0).unwrap();
            served.cache.abandon().unwrap();
            let Served { instance, device, queue, cache, batch } = served;
            if order < 2 {
                drop((cache, batch, lease, tenant, sequence, open)); // before the device
                device.abandon().unwrap();
                drop((instance, device, memory, queue, fence));
            } else {
                device.abandon().unwrap();
                drop((device, instance, queue, fence, memory));
                drop((open, sequence, tenant, lease, batch, cache));
            }
        });
    }
}

#[test]
fn a_move_that_waits_for_a_step_returns() {
    soon(|| {
        let mut served = serve();
        let sequence = new(&served.cache);
        let (_fence, step) = stick(&mut served, &sequence);
        step.finish().unwrap();
        let queue = served.queue.clone();
        std::thread::spawn(move || queue.sync()); // stays in the driver until the process ends
        let device = open_device(&served.instance, "cpu").unwrap();
        let cache = served.cache.clone();
        let mover = std::thread::spawn(move || {
            let shards = [Shard::whole(&device)];
            cache.migrate(MigrateOptions { shards: &shards, ..MigrateOptions::default() })
        });
        std::thread::sleep(Duration::from_millis(5));
        served.cache.abandon().unwrap();
        refused(mover.join().unwrap(), ErrorKind::Stale);
        served.device.abandon().unwrap();
        refused(served.queue.sync(), ErrorKind::Stale);
    });
}

#[test]
fn a_queue_is_given_up_and_its_step_fails() {
    soon(|| {
        let mut served = serve();
        let sequence = new(&served.cache);
        let (_fence, step) = stick(&mut served, &sequence);
        served.queue.abandon().unwrap();
        refused(served.queue.abandon(), ErrorKind::Stale);
        refused(served.queue.sync(), ErrorKind::Stale);
        step.fail();
        // The device and the cache go on, on another queue.
        served.queue = served.device.queue().unwrap();
        served.batch = make_batch(&served.cache);
        let other = new(&served.cache);
        let tokens: Vec<u32> = (50..56).collect();
        common::check_means(&served.means(&other, &tokens, 0), 0);
        served.cache.check().unwrap();
        let Served { device, queue, cache, batch, instance } = served;
        drop((batch, cache, queue, sequence, other));
        device.abandon().unwrap();
        drop((device, instance));
    });
}

#[test]
fn a_cache_that_is_dropped_on_an_abandoned_queue_is_abandoned() {
    for has_tier in [false, true] {
        soon(move || {
            let mut served = serve();
            if has_tier {
                let options = TierOptions { store: "memory", ..TierOptions::default() };
                let tier = served.instance.open_tier(options).unwrap();
                let writes = AttachOptions { write: TierWrite::Through, ..Default::default() };
                served.cache.attach_tier(&tier, writes).unwrap();
            }
            let before = new(&served.cache);
            let tokens: Vec<u32> = (50..58).collect();
            common::check_means(&served.means(&before, &tokens, 0), 0); // to be written
            let sequence = new(&served.cache);
            let (_fence, step) = stick(&mut served, &sequence);
            step.finish().unwrap(); // and is never done
            if has_tier {
                assert!(served.cache.poll_tier().unwrap().blocks_queued != 0);
            }
            served.queue.abandon().unwrap();
            let Served { device, queue, cache, batch, instance } = served;
            drop((batch, before, sequence));
            refused(device.abandon(), ErrorKind::Busy);
            drop(cache);
            device.abandon().unwrap();
            drop((queue, device, instance));
        });
    }
}

#[test]
fn a_tier_of_an_abandoned_cache_is_closed() {
    soon(|| {
        let mut served = serve();
        let options = TierOptions { store: "memory", ..TierOptions::default() };
        let tier = served.instance.open_tier(options).unwrap();
        let writes = AttachOptions { write: TierWrite::Through, ..Default::default() };
        served.cache.attach_tier(&tier, writes).unwrap();
        let sequence = new(&served.cache);
        let (_fence, step) = stick(&mut served, &sequence);
        step.finish().unwrap();
        served.cache.abandon().unwrap();
        refused(served.cache.wait_load(None), ErrorKind::Stale);
        refused(served.cache.attach_tier(&tier, writes), ErrorKind::Stale);
        let other = serve();
        let second = other.instance.open_tier(options).unwrap();
        other.cache.attach_tier(&second, writes).unwrap();
        drop((sequence, tier)); // closes it when its cache is dropped
        served.device.abandon().unwrap();
    });
}

#[test]
fn books_are_given_up_too() {
    let cache = keep_books(CacheOptions { events: true, ..CacheOptions::default() });
    let sequence = new(&cache);
    run(&cache, &sequence, &count(6));
    let mut batch = cache
        .batch(BatchOptions {
            max_rows: 1,
            max_blocks_per_row: 8,
            max_query_tokens: 8,
            views: Views::LENGTHS,
            ..BatchOptions::default()
        })
        .unwrap();
    let items = [Item::new(&sequence).tokens(0, 1)];
    let mut results = [Default::default()];
    let options = StepOptions::default();
    let step = cache.begin(options, &items, &[7], &mut results).unwrap();
    step.commit(Some(&mut batch)).unwrap().finish().unwrap();
    let open = cache.begin(options, &items, &[8], &mut results).unwrap();
    let tables = batch.tables(0).unwrap();
    let left = cache.abandon().unwrap();
    assert_eq!((left.device_bytes, left.host_bytes, left.engine_bytes), (0, 0, 0));
    assert_eq!(tables.lengths, [7], "they stay where they are");
    drop(tables);
    refused(batch.tables(0), ErrorKind::Stale);
    expect_stale_cache(&cache, &sequence);
    refused(open.blocks(&sequence, 0), ErrorKind::Stale);
    let kept = open.commit(Some(&mut batch)).unwrap_err();
    assert_eq!(kept.error.kind(), ErrorKind::Stale);
    drop((cache, kept, batch, sequence));
    let other = keep_books(CacheOptions::default());
    run(&other, &new(&other), &count(6));
}

#[test]
fn the_instance_ends_and_hooks_of_an_abandoned_device_stay() {
    for drops_cache in [false, true] {
        soon(move || {
            let (logs, kernels) = (Arc::new(()), Arc::new(()));
            let logged = logs.clone();
            let instance = Instance::with(InstanceOptions {
                log: Some(Box::new(move |_, _, _| drop(logged.clone()))),
                ..InstanceOptions::default()
            })
            .unwrap();
            let run = kernels.clone();
            let device = instance
                .open_device(DeviceOptions {
                    backend: Some("cpu"),
                    threads: 2,
                    run_tasks: Some(Box::new(move |tasks| {
                        let _alive = run.clone();
                        (0..tasks.count()).for_each(|index| tasks.run(index));
                    })),
                    ..DeviceOptions::default()
                })
                .unwrap();
            let cache = new_cache(&instance, &device).unwrap();
            let (batch, queue) = (make_batch(&cache), device.queue().unwrap());
            let mut served = Served { instance, device, queue, cache, batch };
            let sequence = new(&served.cache);
            let (fence, step) = stick(&mut served, &sequence);
            step.finish().unwrap();
            if drops_cache {
                served.queue.abandon().unwrap(); // the cache's drop abandons that
            } else {
                served.cache.abandon().unwrap();
            }
            let Served { instance, device, queue, cache, batch } = served;
            drop((batch, sequence, cache));
            device.abandon().unwrap();
            assert_eq!(Arc::strong_count(&logs), 2);
            drop((device, queue, fence, instance));
            assert_eq!(Arc::strong_count(&logs), 1, "the instance ended");
            assert!(Arc::strong_count(&kernels) > 1, "the device may still run kernels");
        });
    }
}
