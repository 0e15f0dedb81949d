// SPDX-License-Identifier: Apache-2.0

//! A sequence that goes to another cache while it is computed.

mod common;

use std::io::{self, Read, Write};
use std::net::Shutdown;
use std::os::unix::net::{UnixListener, UnixStream};
use std::process::{Command, Stdio};
use std::time::Duration;

use common::{count, keep_books, refused, serve, serve_layers, take, Served};
use quire::{
    CacheOptions, DType, Error, ErrorKind, Item, Key, KeyType, KvWrite, Memory, MigrateOptions,
    Operand, PoolSize, Receiver, SendOptions, Sender, Sequence, SequenceOptions, SessionIdentity,
    Shard, Step, UNKNOWN_TOKEN,
};

const WHO: SessionIdentity = SessionIdentity { fingerprint: [7; 32], name_space: [1; 32] };
const LAYERS: u32 = 2;
const PROMPT: u32 = 10; // tokens: two whole blocks of 4, and a part of the third
const BLOCK_BYTES: u64 = 512;

fn model() -> Served {
    serve_layers(LAYERS, 16 * BLOCK_BYTES)
}

fn empty(served: &Served) -> Sequence {
    served.cache.sequence(SequenceOptions::default()).unwrap()
}

/// Numbers of any bits, the same for the same seed: Knuth's linear congruential generator (MMIX).
fn numbers(seed: &mut u64, memory: &Memory, length: usize) {
    let values: Vec<f32> = (0..length)
        .map(|_| {
            *seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (*seed >> 40) as f32 / 16777216.0
        })
        .collect();
    memory.write(0, &values).unwrap();
}

/// Runs a step over tokens of a sequence, and calls `enqueued` after each layer.
fn compute(
    served: &mut Served,
    sequence: &Sequence,
    tokens: &[u32],
    mut seed: u64,
    enqueued: impl Fn(&Step, u32),
) {
    let length = tokens.len() * 8;
    let items = [Item::new(sequence).tokens(0, tokens.len() as u32)];
    let step = served.step_of(&items, tokens);
    for layer in 0..LAYERS {
        let (k, v) = (served.memory(length), served.memory(length));
        numbers(&mut seed, &k, length);
        numbers(&mut seed, &v, length);
        let (k, v) = (Operand::new(&k, 0), Operand::new(&v, 0));
        let write = KvWrite { layer, k, v, dtype: DType::F32, q: None };
        step.kv_write(&served.queue, &write).unwrap();
        enqueued(&step, layer);
    }
    step.finish().unwrap();
    served.queue.sync().unwrap();
}

/// A sequence's tokens, K and V, the same bytes wherever it is.
fn session(sequence: &Sequence) -> Vec<u8> {
    let mut content = Vec::new();
    sequence.export(&mut content, &WHO, None).unwrap();
    content
}

fn sender(sequence: &Sequence, tokens: Option<&[u32]>) -> Sender {
    sequence.send(&WHO, SendOptions { tokens, staging_bytes: 0 }).unwrap()
}

fn receiver(served: &Served) -> Receiver {
    served.cache.receive(&WHO, None, SequenceOptions::default()).unwrap()
}

/// All bytes of the hand-over of a computed sequence.
fn handed_over(served: &mut Served) -> Vec<u8> {
    let sequence = empty(served);
    compute(served, &sequence, &count(PROMPT), 1, |_, _| {});
    let mut content = Vec::new();
    sender(&sequence, None).read_to_end(&mut content).unwrap();
    sequence.end_and_forget().unwrap();
    content
}

/// The cache has room for all that it had room for.
fn unharmed(served: &Served) {
    served.cache.check().unwrap();
    let stats = served.cache.stats().unwrap();
    assert_eq!((stats.sequences, stats.host_blocks_used), (0, 0));
}

/// The error of this crate that a reader or writer returned.
fn inner(error: io::Error) -> Error {
    *error.into_inner().unwrap().downcast::<Error>().unwrap()
}

#[test]
fn handed_over_k_and_v_are_the_same_bytes() {
    let (mut from, mut to) = (model(), model());
    let (sequence, prompt) = (empty(&from), count(PROMPT));
    let (sender, receiver) = (sender(&sequence, Some(&prompt)), receiver(&to));
    std::thread::scope(|scope| {
        let copied = scope.spawn(|| io::copy(&mut &sender, &mut &receiver));
        let enqueued = |step: &Step, layer| sender.layers(step, layer, 1).unwrap();
        compute(&mut from, &sequence, &prompt[..6], 1, enqueued); // completes a block
        compute(&mut from, &sequence, &prompt[6..], 2, enqueued);
        copied.join().unwrap().unwrap();
    });
    let progress = sender.poll(&mut []).unwrap();
    assert!(progress.is_whole && progress.token_count == PROMPT && progress.bytes == 0);
    assert_eq!((progress.cells, progress.cells_done), (6, 6)); // layers of three blocks
    drop(sender);
    let (got, wanted) = (receiver.into_sequence().unwrap(), session(&sequence));
    assert!(wanted.iter().filter(|byte| **byte != 0).count() > wanted.len() / 2);
    assert_eq!(session(&got), wanted);
    let info = got.info().unwrap();
    assert!(info.is_swapped && info.computed_tokens == PROMPT);
    // Both go on, the received one from the device.
    compute(&mut from, &sequence, &[77], 3, |_, _| {});
    compute(&mut to, &got, &[77], 3, |_, _| {});
    assert!(!got.info().unwrap().is_swapped);
    assert_eq!(session(&got), session(&sequence));
    sequence.end_and_forget().unwrap();
    drop(got);
    unharmed(&from);
    unharmed(&to);
}

const VARIABLE: &str = "QUIRE_TEST_HANDOVER";

/// The other process receives what comes over a socket, and answers with the session.
fn receive_in_this_process(path: &str) {
    let served = model();
    let mut connection = UnixStream::connect(path).unwrap();
    let mut receiver = receiver(&served);
    io::copy(&mut connection, &mut receiver).unwrap();
    let sequence = receiver.into_sequence().expect("not all has come");
    connection.write_all(&session(&sequence)).unwrap();
}

#[test]
fn a_sequence_goes_to_another_process() {
    const NAME: &str = "a_sequence_goes_to_another_process";
    if let Ok(path) = std::env::var(VARIABLE) {
        return receive_in_this_process(&path);
    }
    let mut from = model();
    let path = std::env::temp_dir().join(format!("quire-handover-{}", std::process::id()));
    let door = UnixListener::bind(&path).unwrap();
    let other = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", NAME, "--nocapture"])
        .env(VARIABLE, &path)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let (mut connection, _) = door.accept().unwrap();
    std::fs::remove_file(&path).unwrap();
    connection.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    let (sequence, prompt) = (empty(&from), count(PROMPT));
    let options = SendOptions { tokens: Some(&prompt), staging_bytes: 1 };
    let sender = sequence.send(&WHO, options).unwrap();
    let mut answer = Vec::new();
    std::thread::scope(|scope| {
        let copied = scope.spawn(|| io::copy(&mut &sender, &mut &connection));
        let enqueued = |step: &Step, layer| sender.layers(step, layer, 1).unwrap();
        compute(&mut from, &sequence, &prompt, 5, enqueued);
        copied.join().unwrap().unwrap();
    });
    connection.shutdown(Shutdown::Write).unwrap();
    connection.read_to_end(&mut answer).unwrap();
    let out = other.wait_with_output().unwrap();
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    assert_eq!(answer, session(&sequence));
}

#[test]
fn hand_overs_are_cancelled() {
    let (mut from, to) = (model(), model());
    let content = handed_over(&mut from);
    for size in [0, 1, 256, 400, 1500, content.len() - 1] {
        let receiver = receiver(&to);
        let shards = [Shard::whole(&to.device)];
        let size_of_pool = PoolSize::Blocks(16);
        let target =
            MigrateOptions { shards: &shards, size: size_of_pool, ..MigrateOptions::default() };
        refused(to.cache.migrate(target), ErrorKind::Busy);
        let progress = receiver.take(&content[..size]).unwrap();
        assert!(progress.bytes == size && !progress.is_whole);
        assert_eq!(progress.size_bytes, size as u64);
        if size % 2 == 0 {
            receiver.end().unwrap();
            refused(receiver.end(), ErrorKind::Stale);
            refused(receiver.take(&content[size..]), ErrorKind::Stale);
        }
        assert!(receiver.into_sequence().is_none());
        unharmed(&to);
    }
    let (sequence, prompt) = (empty(&from), count(PROMPT));
    let cancelled = sender(&sequence, Some(&prompt));
    std::thread::scope(|scope| {
        // It reads the head, and then waits for a step.
        let waiting = scope.spawn(|| io::copy(&mut &cancelled, &mut io::sink()));
        while cancelled.poll(&mut []).unwrap().size_bytes == 0 {
            std::thread::yield_now();
        }
        cancelled.end().unwrap();
        let error = inner(waiting.join().unwrap().unwrap_err());
        assert_eq!(error.kind(), ErrorKind::Stale);
    });
    compute(&mut from, &sequence, &prompt, 1, |_, _| {});
    let mut again = Vec::new();
    sender(&sequence, None).read_to_end(&mut again).unwrap();
    assert_eq!(again, content, "a cancelled hand-over changed the sequence");
}

#[test]
fn receivers_that_fail_stay_failed() {
    let (mut from, to) = (model(), model());
    let content = handed_over(&mut from);
    let mut damaged = content.clone();
    damaged[content.len() / 2] ^= 1;
    let mut failed = receiver(&to);
    let error = inner(failed.write_all(&damaged).unwrap_err());
    assert_eq!(error.kind(), ErrorKind::Argument, "{error}");
    refused(failed.take(&content), ErrorKind::Argument);
    assert!(failed.into_sequence().is_none());
    unharmed(&to);
    let salt = [Key { kind: KeyType::Salt, bytes: b"salt", span: None }];
    let keyed = SequenceOptions { keys: &salt, ..SequenceOptions::default() };
    let (model, tenant) = (
        SessionIdentity { fingerprint: [8; 32], ..WHO },
        SessionIdentity { name_space: [8; 32], ..WHO },
    );
    let plain = SequenceOptions::default();
    let others = [
        to.cache.receive(&model, None, plain),
        to.cache.receive(&tenant, None, plain),
        to.cache.receive(&WHO, None, keyed),
        to.cache.receive(&WHO, Some(&[7]), plain),
        serve().cache.receive(&WHO, None, plain), // of one layer
    ];
    for other in others {
        refused(other.unwrap().take(&content), ErrorKind::Argument);
    }
    unharmed(&to);
}

#[test]
fn a_receiver_waits_for_blocks_of_the_host_tier() {
    let (mut from, to) = (model(), serve_layers(LAYERS, 4 * BLOCK_BYTES));
    let content = handed_over(&mut from);
    let first = receiver(&to);
    (&first).write_all(&content).unwrap();
    let kept = first.into_sequence().unwrap();
    let second = receiver(&to);
    let progress = second.take(&content).unwrap();
    assert!(progress.is_short && !progress.is_whole && progress.bytes < content.len());
    let rest = &content[progress.bytes..];
    assert!(second.take(rest).unwrap().is_short);
    std::thread::scope(|scope| {
        let written = scope.spawn(|| (&second).write_all(rest));
        std::thread::sleep(Duration::from_millis(5));
        assert!(!written.is_finished());
        drop(kept);
        written.join().unwrap().unwrap();
    });
    let kept = second.into_sequence().unwrap();
    let third = receiver(&to);
    std::thread::scope(|scope| {
        let written = scope.spawn(|| (&third).write_all(&content));
        std::thread::sleep(Duration::from_millis(5));
        third.end().unwrap();
        let error = inner(written.join().unwrap().unwrap_err());
        assert_eq!(error.kind(), ErrorKind::Stale);
    });
    drop((third, kept));
    unharmed(&to);
}

#[test]
fn bytes_after_a_hand_over_are_not_taken() {
    let (mut from, to) = (model(), model());
    let content = handed_over(&mut from);
    let mut receiver = receiver(&to);
    let longer = [&content[..], b"next"].concat();
    assert_eq!(receiver.write(&longer).unwrap(), content.len());
    assert_eq!(receiver.write(b"next").unwrap(), 0);
    assert_eq!(receiver.write_all(b"next").unwrap_err().kind(), io::ErrorKind::WriteZero);
    let progress = receiver.take(b"next").unwrap();
    assert!(progress.is_whole && progress.bytes == 0);
    receiver.end().unwrap();
    let sequence = receiver.into_sequence().unwrap();
    assert_eq!(sequence.info().unwrap().computed_tokens, PROMPT);
}

/// A sequence that has come, and that no one asks for, is ended with its receiver.
#[test]
fn receivers_that_are_dropped_leave_nothing() {
    let (mut from, to) = (model(), model());
    let content = handed_over(&mut from);
    let mut whole = receiver(&to);
    whole.write_all(&content).unwrap();
    assert_eq!(to.cache.stats().unwrap().sequences, 1);
    drop(whole);
    unharmed(&to);
    // A hand-over that copies outlives the names of its caches, and of its sequence.
    let sequence = empty(&from);
    compute(&mut from, &sequence, &count(PROMPT), 1, |_, _| {});
    let (mut sender, mut receiver) = (sender(&sequence, None), receiver(&to));
    let mut begin = [0; 400]; // the head, and a little more if that has been copied by now
    let given = sender.poll(&mut begin).unwrap().bytes;
    assert!(given != 0 && receiver.take(&begin[..given]).unwrap().bytes == given);
    let kept = from.cache.clone();
    drop((from, to, sequence));
    assert_eq!(kept.stats().unwrap().sequences, 1);
    io::copy(&mut sender, &mut receiver).unwrap();
    drop(sender);
    assert_eq!(kept.stats().unwrap().sequences, 0);
    assert_eq!(receiver.into_sequence().unwrap().info().unwrap().computed_tokens, PROMPT);
}

#[test]
fn hand_overs_that_cannot_begin_are_refused() {
    let mut served = model();
    let sequence = empty(&served);
    let begin = |tokens: Option<&[u32]>| {
        sequence.send(&WHO, SendOptions { tokens, staging_bytes: 0 }).map(drop)
    };
    refused(begin(None), ErrorKind::Argument); // it knows no tokens
    refused(begin(Some(&[])), ErrorKind::Argument);
    refused(begin(Some(&[1, UNKNOWN_TOKEN])), ErrorKind::Argument);
    compute(&mut served, &sequence, &count(PROMPT), 1, |_, _| {});
    refused(begin(Some(&[9, 9])), ErrorKind::Argument);
    let mut sender = sender(&sequence, None);
    refused(begin(None), ErrorKind::Busy);
    let other = empty(&served);
    compute(&mut served, &other, &count(3), 1, |step, _| {
        refused(sender.layers(step, 0, 1), ErrorKind::Argument);
        refused(sender.layers(step, u32::MAX, 1), ErrorKind::Argument);
        refused(sender.layers(step, 1, u32::MAX), ErrorKind::Argument);
    });
    let books = keep_books(CacheOptions::default());
    let without = books.sequence(SequenceOptions::default()).unwrap();
    let (foreign, _) = take(&books, &without, &count(3));
    let error = refused(sender.layers(&foreign, 0, 1), ErrorKind::Argument);
    assert!(error.message().contains("another cache"), "{error}");
    foreign.finish().unwrap();
    let plain = SequenceOptions::default();
    refused(books.receive(&WHO, None, plain), ErrorKind::Unsupported);
    refused(without.send(&WHO, SendOptions::default()), ErrorKind::Unsupported);
    let theirs = books.namespace(b"tenant", 0).unwrap();
    let options = SequenceOptions { namespace: Some(&theirs), ..plain };
    refused(served.cache.receive(&WHO, None, options), ErrorKind::Argument);
    // A sequence that ends in the middle of its hand-over.
    let mut buffer = [0; 16];
    sender.read_exact(&mut buffer).unwrap();
    sequence.end().unwrap();
    for _ in 0..2 {
        assert_eq!(inner(sender.read(&mut buffer).unwrap_err()).kind(), ErrorKind::Stale);
    }
}

/// Both ends have the same keys, and each its own namespace.
#[test]
fn tenants_and_keys_are_kept() {
    let (mut from, to) = (model(), model());
    let salt = [Key { kind: KeyType::Salt, bytes: b"salt", span: None }];
    let theirs = from.cache.namespace(b"here", 0).unwrap();
    let ours = to.cache.namespace(b"there", 0).unwrap();
    let plain = SequenceOptions { keys: &salt, ..SequenceOptions::default() };
    let options = SequenceOptions { namespace: Some(&theirs), ..plain };
    let sequence = from.cache.sequence(options).unwrap();
    compute(&mut from, &sequence, &count(PROMPT), 1, |_, _| {});
    let options = SequenceOptions { namespace: Some(&ours), ..plain };
    let mut receiver = to.cache.receive(&WHO, None, options).unwrap();
    assert_eq!(ours.info().unwrap().sequences, 1);
    let sender = sender(&sequence, None);
    drop((theirs, ours.clone())); // the other clone, and what holds it, go on
    io::copy(&mut &sender, &mut receiver).unwrap();
    let got = receiver.into_sequence().unwrap();
    assert_eq!(session(&got), session(&sequence));
    drop(got);
    assert_eq!(ours.info().unwrap().sequences, 0);
}

/// Blocks from before a reset may be of other weights.
#[test]
fn sequences_from_before_a_reset_are_not_handed_over() {
    let mut served = model();
    let sequence = empty(&served);
    compute(&mut served, &sequence, &count(PROMPT), 1, |_, _| {});
    served.cache.reset().unwrap();
    assert!(sequence.info().unwrap().is_unpublished);
    let mut sender = sender(&sequence, None);
    let error = inner(sender.read_to_end(&mut Vec::new()).unwrap_err());
    assert_eq!(error.kind(), ErrorKind::Unsupported);
}

/// Threads that read, write and end the same ends get errors, and no harm comes of it.
#[test]
fn threads_share_hand_overs() {
    let (mut from, to) = (model(), model());
    let sequence = empty(&from);
    compute(&mut from, &sequence, &count(PROMPT), 1, |_, _| {});
    for round in 0..30 {
        let (sender, receiver) = (sender(&sequence, None), receiver(&to));
        std::thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| {
                    let Err(error) = io::copy(&mut &sender, &mut &receiver) else { return };
                    if error.kind() == io::ErrorKind::WriteZero {
                        return;
                    }
                    let kind = inner(error).kind();
                    assert!([ErrorKind::Stale, ErrorKind::Argument].contains(&kind));
                });
            }
            std::thread::sleep(Duration::from_micros(20 * round));
            sender.end().unwrap();
            receiver.end().unwrap();
        });
    }
    drop(sequence);
    from.cache.reset().unwrap();
    unharmed(&from);
    unharmed(&to);
}
