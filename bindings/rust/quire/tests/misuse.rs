// SPDX-License-Identifier: Apache-2.0

//! Misuse is an error, and leaves the cache as it was.

mod common;

use std::path::{Path, PathBuf};
use std::process::Command;

use common::{count, keep_books, make_batch, refused, run, serve};
use quire::{
    Attend, CacheOptions, DType, DeviceOptions, ErrorKind, Instance, InstanceOptions, Item,
    ItemResult, KvWrite, Operand, SequenceOptions, StepOptions,
};

#[test]
fn everything_may_be_sent_and_shared() {
    fn shared<T: Send + Sync>() {}
    shared::<quire::Instance>();
    shared::<quire::Device>();
    shared::<quire::Queue>();
    shared::<quire::Fence>();
    shared::<quire::Memory>();
    shared::<quire::Cache>();
    shared::<quire::Sequence>();
    shared::<quire::Namespace>();
    shared::<quire::OpenStep>();
    shared::<quire::Step>();
    shared::<quire::Batch>();
    shared::<quire::Tier>();
    shared::<quire::Lease>();
    shared::<quire::Sender>();
    shared::<quire::Receiver>();
    shared::<quire::Calibration>();
    shared::<quire::Event>();
    shared::<quire::Error>();
}

#[test]
fn bad_items_are_refused_and_change_nothing() {
    let cache = keep_books(CacheOptions::default());
    let other = keep_books(CacheOptions::default());
    let sequence = cache.sequence(SequenceOptions::default()).unwrap();
    run(&cache, &sequence, &count(6));
    // A live handle, but of the other cache.
    let (_first, foreign) = (
        other.sequence(SequenceOptions::default()).unwrap(),
        other.sequence(SequenceOptions::default()).unwrap(),
    );
    let before = cache.stats().unwrap();
    let tokens = count(4);
    let mut results = [ItemResult::default(); 2];
    let options = StepOptions::default();
    let mut begin = |items: &[Item]| cache.begin(options, items, &tokens, &mut results);
    refused(begin(&[Item::new(&foreign).tokens(0, 4)]), ErrorKind::Stale);
    refused(begin(&[Item::new(&sequence).tokens(1, 4)]), ErrorKind::Argument);
    refused(begin(&[Item::new(&sequence).tokens(u32::MAX, 4)]), ErrorKind::Argument);
    refused(begin(&[Item::new(&sequence).tokens(0, 2).drafts(3)]), ErrorKind::Argument);
    let twice = [Item::new(&sequence).tokens(0, 1), Item::new(&sequence).tokens(1, 1)];
    refused(begin(&twice), ErrorKind::Busy);
    let short = cache.begin(options, &twice, &tokens, &mut results[..1]);
    refused(short, ErrorKind::Argument);
    refused(sequence.fork(7), ErrorKind::Argument);
    refused(sequence.truncate(7), ErrorKind::Argument);
    refused(sequence.accept(1), ErrorKind::Argument);
    let after = cache.stats().unwrap();
    assert_eq!((before.blocks_held, before.sequences), (after.blocks_held, after.sequences));
    assert_eq!(sequence.info().unwrap().known_tokens, 6);
    cache.check().unwrap();
}

#[test]
fn a_step_that_is_open_keeps_others_out() {
    let cache = keep_books(CacheOptions::default());
    let sequence = cache.sequence(SequenceOptions::default()).unwrap();
    let mut results = [ItemResult::default()];
    let items = [Item::new(&sequence).tokens(0, 4)];
    let options = StepOptions::default();
    let step = cache.begin(options, &items, &count(4), &mut results).unwrap();
    refused(cache.begin(options, &[], &[], &mut []), ErrorKind::Busy);
    refused(sequence.truncate(0), ErrorKind::Busy);
    refused(cache.reset(), ErrorKind::Busy);
    drop(step); // aborts it
    assert_eq!(sequence.info().unwrap().known_tokens, 0);
    run(&cache, &sequence, &count(4));
}

#[test]
fn a_step_that_is_dropped_has_failed() {
    let cache = keep_books(CacheOptions::default());
    let sequence = cache.sequence(SequenceOptions::default()).unwrap();
    let (step, _) = common::take(&cache, &sequence, &count(4));
    step.fail();
    let info = sequence.info().unwrap();
    assert_eq!((info.known_tokens, info.computed_tokens, info.is_lost), (4, 0, true));
    let engine = std::panic::catch_unwind(|| {
        let (_step, _) = common::take(&cache, &sequence, &[]);
        panic!("the engine's kernels");
    });
    assert!(engine.is_err() && sequence.info().unwrap().computed_tokens == 0);
    run(&cache, &sequence, &[]);
    assert_eq!(sequence.info().unwrap().computed_tokens, 4);
}

#[test]
fn a_batch_that_is_too_small_leaves_the_step_open() {
    let served = serve();
    let mut batch = make_batch(&served.cache);
    let sequence = served.cache.sequence(SequenceOptions::default()).unwrap();
    let queues = [&served.queue];
    let options = StepOptions { queues: &queues, ..StepOptions::default() };
    let mut results = [ItemResult::default()];
    let items = [Item::new(&sequence).tokens(0, 40)];
    let tokens = count(40);
    let step = served.cache.begin(options, &items, &tokens, &mut results).unwrap();
    let kept = step.commit(Some(&mut batch)).unwrap_err();
    assert_eq!(kept.error.kind(), ErrorKind::Limit);
    kept.step.unwrap().commit(None).unwrap().finish().unwrap();
    let mut foreign = make_batch(&serve().cache);
    let step = served.cache.begin(options, &[], &[], &mut []).unwrap();
    refused(step.commit(Some(&mut foreign)), ErrorKind::Argument);
}

#[test]
fn operands_are_checked() {
    let mut served = serve();
    let sequence = served.cache.sequence(SequenceOptions::default()).unwrap();
    let step = served.step(&sequence, &count(3));
    let (small, fits) = (served.memory(3 * 16 - 1), served.memory(3 * 16));
    let at = |memory, offset| Operand::new(memory, offset);
    let other = served.memory(3 * 16);
    let good = Attend { layer: 0, q: at(&fits, 0), out: at(&other, 0), lse: None, sinks: None };
    let bad = [
        Attend { q: at(&small, 0), ..good },
        Attend { out: at(&other, 4), ..good },
        Attend { q: at(&fits, u64::MAX), ..good },
        Attend { q: at(&fits, 0).token_stride(17), ..good },
        Attend { layer: 1, ..good },
        Attend { layer: u32::MAX, ..good },
        Attend { lse: Some(at(&fits, 190)), ..good },
        Attend { lse: Some(at(&fits, 0).token_stride(4)), ..good },
    ];
    for attend in &bad {
        refused(step.attend(&served.queue, attend), ErrorKind::Argument);
    }
    let foreign = serve();
    refused(step.attend(&foreign.queue, &good), ErrorKind::Argument);
    let theirs = foreign.memory(3 * 16);
    let elsewhere = Attend { out: at(&theirs, 0), ..good };
    refused(step.attend(&served.queue, &elsewhere), ErrorKind::Argument);
    refused(served.queue.copy(&fits, 0, &theirs, 0, 4), ErrorKind::Argument);
    let write = KvWrite { layer: 0, k: at(&fits, 0), v: at(&fits, 0), dtype: DType::F32, q: None };
    let wide = KvWrite { k: at(&fits, 128), ..write };
    refused(step.kv_write(&served.queue, &wide), ErrorKind::Argument);
    refused(
        step.kv_write(&served.queue, &KvWrite { dtype: DType::I8, ..write }),
        ErrorKind::Unsupported,
    );
    step.kv_write(&served.queue, &write).unwrap();
    step.finish().unwrap();
    let queues = [&served.queue];
    let options = StepOptions { queues: &queues, ..StepOptions::default() };
    let without = served.cache.begin(options, &[], &[], &mut []).unwrap().commit(None).unwrap();
    refused(without.kv_write(&served.queue, &write), ErrorKind::Argument);
}

#[test]
fn launches_go_to_the_steps_queues_and_its_own_batch() {
    let mut served = serve();
    let (first, second) = (
        served.cache.sequence(SequenceOptions::default()).unwrap(),
        served.cache.sequence(SequenceOptions::default()).unwrap(),
    );
    let memory = served.memory(3 * 16);
    let all = Operand::new(&memory, 0);
    let write = KvWrite { layer: 0, k: all, v: all, dtype: DType::F32, q: None };
    let step = served.step(&first, &count(3));
    let other = served.device.queue().unwrap();
    let why = refused(step.kv_write(&other, &write), ErrorKind::Argument);
    assert!(why.message().contains("not one of the step's"), "{why}");
    step.kv_write(&served.queue, &write).unwrap();
    let later = served.step(&second, &count(2));
    refused(step.kv_write(&served.queue, &write), ErrorKind::Stale);
    later.kv_write(&served.queue, &write).unwrap();
    later.finish().unwrap();
    step.finish().unwrap();
}

#[test]
fn tables_that_are_read_keep_the_cache_where_it_is() {
    let cache = keep_books(CacheOptions::default());
    let batch = cache
        .batch(quire::BatchOptions {
            max_rows: 1,
            max_blocks_per_row: 8,
            max_query_tokens: 32,
            views: quire::Views::LENGTHS,
            ..quire::BatchOptions::default()
        })
        .unwrap();
    let size = quire::PoolSize::Blocks(20);
    let options = quire::MigrateOptions { size, ..quire::MigrateOptions::default() };
    let tables = batch.tables(0).unwrap();
    refused(cache.migrate(options), ErrorKind::Busy);
    drop(tables);
    assert!(cache.migrate(options).unwrap().is_moved);
    refused(batch.tables(0), ErrorKind::Stale);
}

#[test]
fn panics_stay_in_callbacks_with_all_that_they_carry() {
    struct Trap;
    impl Drop for Trap {
        fn drop(&mut self) {
            panic!("in the payload's drop");
        }
    }
    let device = Instance::new()
        .unwrap()
        .open_device(DeviceOptions {
            backend: Some("cpu"),
            threads: 2,
            run_tasks: Some(Box::new(|_| std::panic::panic_any(Trap))),
            ..DeviceOptions::default()
        })
        .unwrap();
    let queue = device.queue().unwrap();
    let kind = quire::MemoryKind::Host;
    let (source, target) =
        (device.memory(8 << 20, kind).unwrap(), device.memory(8 << 20, kind).unwrap());
    queue.copy(&target, 0, &source, 0, 8 << 20).unwrap();
    refused(queue.sync(), ErrorKind::DeviceLost);
}

#[test]
fn a_process_has_one_library() {
    Instance::new().unwrap();
    let libquire = Some(Path::new("/another/libquire.so.0"));
    let other = Instance::with(InstanceOptions { libquire, ..InstanceOptions::default() });
    refused(other, ErrorKind::Argument);
}

#[test]
fn objects_of_another_cache_are_refused() {
    let cache = keep_books(CacheOptions::default());
    let other = keep_books(CacheOptions::default());
    let tenant = other.namespace(b"tenant", 0).unwrap();
    let options = SequenceOptions { namespace: Some(&tenant), ..SequenceOptions::default() };
    refused(cache.sequence(options), ErrorKind::Argument);
}

#[test]
fn reasons_are_shown() {
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("broken backend");
    std::fs::create_dir_all(&folder).unwrap();
    let broken = folder.join("quire_backend_broken.so");
    std::fs::write(&broken, b"no backend").unwrap();
    let instance = Instance::with(InstanceOptions {
        plugin_path: folder.to_str(),
        ..InstanceOptions::default()
    })
    .unwrap();
    let backends = instance.backends().unwrap();
    let found = backends.iter().find(|backend| backend.path == broken).unwrap();
    assert!(found.error.as_ref().is_some_and(|why| !why.is_empty()), "{found:?}");
    refused(instance.load_backend(&broken), ErrorKind::Backend);
    refused(instance.load_backend(&folder.join("none.so")), ErrorKind::Backend);
    refused(instance.load_backend(Path::new("a\0b")), ErrorKind::Argument);
    let none = DeviceOptions { backend: Some("none"), ..DeviceOptions::default() };
    assert!(instance.open_device(none).unwrap_err().message().contains("cpu"));
    if let Some(path) = std::env::var_os("QUIRE_TEST_LOADED") {
        assert_eq!(instance.load_backend(Path::new(&path)).unwrap().name, "toy");
    }
}

// Each file is opened in its own process, because a process has only one library.
#[test]
fn libraries_that_are_none_are_refused() {
    if let Some(path) = std::env::var_os("QUIRE_TEST_OPEN") {
        let libquire = Some(Path::new(&path));
        let options = InstanceOptions { libquire, ..InstanceOptions::default() };
        println!("said: {}", Instance::with(options).unwrap_err());
        return;
    }
    let mut paths = vec![
        ("/no/libquire.so.0".to_owned(), "/no/libquire.so.0"),
        ("libm.so.6".to_owned(), "quire_get_api"),
    ];
    if let Ok(short) = std::env::var("QUIRE_TEST_SHORT_TABLE") {
        paths.push((short, "older"));
    }
    for (path, says) in paths {
        let out = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "libraries_that_are_none_are_refused", "--nocapture"])
            .env("QUIRE_TEST_OPEN", &path)
            .output()
            .unwrap();
        let text = String::from_utf8_lossy(&out.stdout).into_owned();
        let said = text.lines().find_map(|line| line.split_once("said: "));
        assert!(out.status.success() && said.is_some_and(|said| said.1.contains(says)), "{text}");
    }
}
