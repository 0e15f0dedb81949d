// SPDX-License-Identifier: Apache-2.0

//! A cache on the cpu, and its move to other devices while it is in use.

mod common;

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::Arc;
use std::time::Duration;

use common::{check_means, count, make_batch, open_device, refused, serve};
use quire::{
    CacheOptions, DType, DeviceOptions, ErrorKind, Group, Instance, InstanceOptions, MemoryKind,
    Merge, MigrateOptions, Operand, PoolSize, Scale, SequenceOptions, Shard,
};

#[test]
fn attention_is_the_mean() {
    let mut served = serve();
    let sequence = served.cache.sequence(SequenceOptions::default()).unwrap();
    check_means(&served.means(&sequence, &count(6), 0), 0);
    check_means(&served.means(&sequence, &[6, 7], 6), 6);
}

#[test]
fn a_live_cache_changes_its_device() {
    let mut served = serve();
    let sequence = served.cache.sequence(SequenceOptions::default()).unwrap();
    check_means(&served.means(&sequence, &count(6), 0), 0);
    // A device of another vendor if there is one, else a second cpu device.
    let device = open_device(&served.instance, "vulkan")
        .or_else(|_| open_device(&served.instance, "cpu"))
        .unwrap();
    let backend = device.info().unwrap().backend;
    println!("moved to {backend}");
    let moved = served
        .cache
        .migrate(MigrateOptions {
            shards: &[Shard::whole(&device)],
            size: PoolSize::Blocks(24),
            ..MigrateOptions::default()
        })
        .unwrap();
    assert_eq!((moved.is_moved, moved.blocks_moved), (true, 2));
    assert!(moved.bytes_moved >= moved.live_bytes && moved.live_bytes > 0);
    refused(served.batch.views(0, 0), ErrorKind::Stale);
    served.batch = make_batch(&served.cache);
    served.queue = device.queue().unwrap();
    served.device = device;
    check_means(&served.means(&sequence, &[6], 6), 6);
    let small = MigrateOptions {
        shards: &[Shard::whole(&served.device)],
        size: PoolSize::Blocks(2),
        ..MigrateOptions::default()
    };
    let small = served.cache.migrate(small).unwrap();
    assert_eq!((small.is_moved, small.blocks_short), (false, 1));
    refused(served.cache.migrate(MigrateOptions::default()), ErrorKind::Argument);
    check_means(&served.means(&sequence, &[7], 7), 7);
}

#[test]
fn memory_is_copied_and_waited_for() {
    let served = serve();
    let (source, target) = (served.memory(16), served.memory(16));
    let numbers: Vec<u8> = (0..64).collect();
    source.write(0, &numbers).unwrap();
    served.queue.copy(&target, 4, &source, 8, 16).unwrap();
    let mut got = [0u8; 64];
    target.read(0, &mut got).unwrap();
    assert_eq!((&got[4..20], got[20]), (&numbers[8..24], 0));
    refused(served.queue.copy(&target, 0, &source, 8, 64), ErrorKind::Argument);
    refused(target.read(61, &mut [0u32]), ErrorKind::Argument);
    refused(target.write(u64::MAX, &[0u8, 1]), ErrorKind::Argument);
}

#[test]
fn fences_are_waited_for() {
    let served = serve();
    let fence = served.device.fence(3).unwrap();
    let short = Some(Duration::from_millis(1));
    refused(fence.wait(5, short), ErrorKind::Timeout);
    refused(fence.signal(2), ErrorKind::Argument);
    served.queue.after(&fence, 4).unwrap();
    served.queue.signal(&fence, 5).unwrap();
    let waiting = fence.clone();
    let waiter = std::thread::spawn(move || waiting.wait(5, None));
    fence.signal(4).unwrap();
    waiter.join().unwrap().unwrap();
    assert_eq!(fence.read().unwrap(), 5);
}

#[test]
fn what_is_dropped_waits_for_its_work() {
    let mut served = serve();
    let sequence = served.cache.sequence(SequenceOptions::default()).unwrap();
    let fence = served.device.fence(0).unwrap();
    let (kv, queue) = (served.memory(6 * 8), served.queue.clone());
    queue.after(&fence, 1).unwrap();
    let step = served.step(&sequence, &count(6));
    let (k, v) = (Operand::new(&kv, 0), Operand::new(&kv, 0));
    let write = quire::KvWrite { layer: 0, k, v, dtype: DType::F32, q: None };
    step.kv_write(&queue, &write).unwrap();
    step.finish().unwrap();
    let is_signalled = Arc::new(AtomicBool::new(false));
    let signaller = std::thread::spawn({
        let is_signalled = is_signalled.clone();
        move || {
            std::thread::sleep(Duration::from_millis(20));
            is_signalled.store(true, Ordering::SeqCst);
            fence.signal(1).unwrap();
        }
    });
    drop(kv);
    assert!(is_signalled.load(Ordering::SeqCst), "the memory went while a kernel could read it");
    signaller.join().unwrap();
    drop((sequence, queue, served)); // in any order
}

#[test]
fn a_follower_that_is_dropped_waits_for_its_steps() {
    let served = serve();
    let fence = served.device.fence(0).unwrap();
    let groups = [common::group()];
    let options = CacheOptions {
        groups: &groups,
        shards: &[Shard::whole(&served.device)],
        size: PoolSize::Blocks(16),
        block_tokens: 4,
        ..CacheOptions::default()
    };
    let books = CacheOptions { shards: &[], ..options };
    let leader = served.instance.cache(CacheOptions { is_leader: true, ..books }).unwrap();
    let sequence = leader.sequence(SequenceOptions::default()).unwrap();
    let (step, _) = common::take(&leader, &sequence, &count(6));
    let log = step.log().unwrap();
    step.finish().unwrap();
    let follower = served.instance.cache(CacheOptions { is_follower: true, ..options }).unwrap();
    let mut batch = make_batch(&follower);
    served.queue.after(&fence, 1).unwrap();
    let queues = [&served.queue];
    let on = quire::StepOptions { queues: &queues, ..quire::StepOptions::default() };
    follower.apply_log(&log, on, Some(&mut batch)).unwrap().finish().unwrap();
    let is_signalled = Arc::new(AtomicBool::new(false));
    let signaller = std::thread::spawn({
        let is_signalled = is_signalled.clone();
        move || {
            std::thread::sleep(Duration::from_millis(20));
            is_signalled.store(true, Ordering::SeqCst);
            fence.signal(1).unwrap();
        }
    });
    drop((batch, follower));
    assert!(is_signalled.load(Ordering::SeqCst), "tables went while they were on their way");
    signaller.join().unwrap();
}

#[test]
fn devices_that_a_cache_left_are_closed() {
    let served = serve();
    let threads = || std::fs::read_dir("/proc/self/task").unwrap().count();
    let mut most = 0;
    for round in 0..12 {
        let device = open_device(&served.instance, "cpu").unwrap();
        let shards = [Shard::whole(&device)];
        let options = MigrateOptions { shards: &shards, ..MigrateOptions::default() };
        assert!(served.cache.migrate(options).unwrap().is_moved);
        if round == 1 {
            most = threads();
        }
    }
    // Tests that run beside this one have threads too, but a move must not add one each time.
    assert!(threads() < most + 10, "{} threads, {most} before", threads());
}

#[test]
fn states_are_merged() {
    let served = serve();
    let (parts, lses, out) = (served.memory(8), served.memory(2), served.memory(4));
    parts.write(0, &[1.0f32, 1.0, 1.0, 1.0, 3.0, 3.0, 3.0, 3.0]).unwrap();
    lses.write(0, &[0.5f32, 0.5]).unwrap();
    let merge = Merge {
        parts: Operand::new(&parts, 0),
        lses: Operand::new(&lses, 0),
        out: Operand::new(&out, 0),
        lse: None,
        part_count: 2,
        token_count: 1,
        heads: 1,
        head_dim: 4,
        dtype: DType::F32,
    };
    served.queue.merge(&merge).unwrap();
    let mut got = [0.0f32; 4];
    out.read(0, &mut got).unwrap();
    assert_eq!(got, [2.0; 4]);
    refused(served.queue.merge(&Merge { part_count: 3, ..merge }), ErrorKind::Argument);
}

#[test]
fn a_calibration_is_measured_and_used() {
    let served = serve();
    let groups = [common::group()];
    let options = CacheOptions {
        groups: &groups,
        shards: &[Shard::whole(&served.device)],
        size: PoolSize::Blocks(16),
        block_tokens: 4,
        calibrates: true,
        ..CacheOptions::default()
    };
    let measuring = served.instance.cache(options).unwrap();
    let batch = make_batch(&measuring);
    let mut run = common::Served { cache: measuring, batch, ..served };
    let sequence = run.cache.sequence(SequenceOptions::default()).unwrap();
    check_means(&run.means(&sequence, &count(6), 0), 0);
    let measured = run.cache.save_calibration(None).unwrap();
    let read = run.instance.calibration(measured.bytes()).unwrap();
    assert_eq!((read.layer_count().unwrap(), read.unwritten().unwrap()), (1, 0));
    assert_eq!(read.layer(0).unwrap().k, [5.0]);
    assert_eq!(read.merge(&measured).unwrap().bytes(), measured.bytes());
    refused(run.instance.calibration(&measured.bytes()[1..]), ErrorKind::Argument);
    let coded = [Group { dtype: DType::I8, scale: Scale::Head, ..common::group() }];
    let shards = [Shard::whole(&run.device)];
    let options = CacheOptions { groups: &coded, calibrates: false, shards: &shards, ..options };
    refused(run.instance.cache(options), ErrorKind::Argument);
    run.instance.cache(CacheOptions { calibration: Some(&read), ..options }).unwrap();
}

#[test]
fn kernels_run_in_the_engines_threads_and_panics_stay_there() {
    for panics in [false, true] {
        let tasks = Arc::new(AtomicUsize::new(0));
        let logged = Arc::new(AtomicUsize::new(0));
        let instance = Instance::with(InstanceOptions {
            log: Some(Box::new({
                let logged = logged.clone();
                move |_, _, _| {
                    logged.fetch_add(1, Ordering::SeqCst);
                    panic!("mine");
                }
            })),
            ..InstanceOptions::default()
        })
        .unwrap();
        let device = instance
            .open_device(DeviceOptions {
                backend: Some("cpu"),
                threads: 2,
                run_tasks: Some(Box::new({
                    let tasks = tasks.clone();
                    move |list| {
                        assert!(!panics, "mine");
                        for index in 0..list.count() {
                            list.run(index);
                            tasks.fetch_add(1, Ordering::SeqCst);
                        }
                    }
                })),
                ..DeviceOptions::default()
            })
            .unwrap();
        let queue = device.queue().unwrap();
        let source = device.memory(8 << 20, MemoryKind::Host).unwrap();
        let target = device.memory(8 << 20, MemoryKind::Host).unwrap();
        queue.copy(&target, 0, &source, 0, 8 << 20).unwrap();
        let waited = queue.sync();
        if panics {
            refused(waited, ErrorKind::DeviceLost);
        } else {
            waited.unwrap();
            assert!(tasks.load(Ordering::SeqCst) > 1);
        }
    }
}
