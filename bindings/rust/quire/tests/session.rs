// SPDX-License-Identifier: Apache-2.0

//! A sequence as bytes or a file, and back.

mod common;

use std::io::{Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::panic::{catch_unwind, AssertUnwindSafe};

use common::{check_means, count, keep_books, refused, serve, Served};
use quire::{
    CacheOptions, ErrorKind, Key, KeyType, Sequence, SequenceOptions, SessionIdentity, SessionInfo,
};

const WHO: SessionIdentity = SessionIdentity { fingerprint: [7; 32], name_space: [1; 32] };

/// Six computed tokens, whose values are 0 and up.
fn grown(served: &mut Served) -> Sequence {
    let sequence = served.cache.sequence(SequenceOptions::default()).unwrap();
    check_means(&served.means(&sequence, &count(6), 0), 0);
    sequence
}

fn export(sequence: &Sequence) -> (Vec<u8>, SessionInfo) {
    let mut content = Vec::new();
    let info = sequence.export(&mut content, &WHO, None).unwrap();
    (content, info)
}

/// Runs one more token of an imported sequence: nothing is computed again.
fn goes_on(served: &mut Served, sequence: &Sequence) {
    let info = sequence.info().unwrap();
    assert!(info.is_swapped && info.computed_tokens == 6);
    check_means(&served.means(sequence, &[6], 6), 6);
}

#[test]
fn bytes_come_back() {
    let mut served = serve();
    let sequence = grown(&mut served);
    let (content, info) = export(&sequence);
    assert_eq!((info.known_tokens, info.computed_tokens, info.blocks), (6, 6, 2));
    assert_eq!(info.size_bytes, content.len() as u64);
    sequence.end_and_forget().unwrap();
    let back = served.cache.import(&content[..], &WHO, SequenceOptions::default());
    let back = back.unwrap().unwrap();
    assert_eq!(export(&back).0, content);
    goes_on(&mut served, &back);
}

#[test]
fn a_file_comes_back() {
    let mut served = serve();
    let sequence = grown(&mut served);
    let folder = std::env::temp_dir().join(format!("quire-session-{}", std::process::id()));
    std::fs::create_dir(&folder).unwrap();
    let path = folder.join("one.session");
    let info = sequence.save(&path, &WHO, None).unwrap();
    let file = std::fs::metadata(&path).unwrap();
    assert_eq!((file.len(), file.permissions().mode() & 0o777), (info.size_bytes, 0o600));
    let back = served.cache.restore(&path, &WHO, SequenceOptions::default()).unwrap().unwrap();
    goes_on(&mut served, &back);
    let missing = folder.join("missing");
    let error = refused(sequence.save(missing.join("two"), &WHO, None), ErrorKind::Os);
    assert_ne!(error.native_code(), 0);
    refused(served.cache.restore(&missing, &WHO, SequenceOptions::default()), ErrorKind::Os);
    refused(sequence.save("with\0zero", &WHO, None), ErrorKind::Argument);
    refused(served.cache.restore("\0", &WHO, SequenceOptions::default()), ErrorKind::Argument);
    std::fs::remove_dir_all(&folder).unwrap();
}

#[test]
fn damaged_and_foreign_ones_are_refused() {
    let mut served = serve();
    let sequence = grown(&mut served);
    let (content, _) = export(&sequence);
    let plain = SequenceOptions::default();
    let mut damaged = content.clone();
    damaged[300] ^= 1;
    refused(served.cache.import(&damaged[..], &WHO, plain), ErrorKind::Argument);
    let other = SessionIdentity { fingerprint: [8; 32], ..WHO };
    refused(served.cache.import(&content[..], &other, plain), ErrorKind::Argument);
    let salt = [Key { kind: KeyType::Salt, bytes: b"salt", span: None }];
    let keyed = SequenceOptions { keys: &salt, ..plain };
    refused(served.cache.import(&content[..], &WHO, keyed), ErrorKind::Argument);
    refused(served.cache.import(&content[..100], &WHO, plain), ErrorKind::Os);
    let books = keep_books(CacheOptions::default());
    refused(books.import(&content[..], &WHO, plain), ErrorKind::Unsupported);
    assert_eq!(served.cache.stats().unwrap().host_blocks_used, 0);
    served.cache.check().unwrap();
}

#[test]
fn a_short_host_tier_is_a_result() {
    let mut served = serve();
    let (content, _) = export(&grown(&mut served));
    let mut kept = Vec::new();
    while let Some(back) =
        served.cache.import(&content[..], &WHO, SequenceOptions::default()).unwrap()
    {
        kept.push(back);
    }
    assert_eq!(kept.len(), 8); // of 2 blocks each
}

/// Fails as it is told to.
struct Broken {
    panics: bool,
}

impl Broken {
    fn fail(&self) -> std::io::Result<usize> {
        assert!(!self.panics, "a planted panic");
        Err(std::io::Error::from_raw_os_error(28)) // ENOSPC
    }
}

impl Write for Broken {
    fn write(&mut self, _: &[u8]) -> std::io::Result<usize> {
        self.fail()
    }
    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

impl Read for Broken {
    fn read(&mut self, _: &mut [u8]) -> std::io::Result<usize> {
        self.fail()
    }
}

#[test]
fn errors_and_panics_of_a_stream_come_out() {
    let mut served = serve();
    let sequence = grown(&mut served);
    let plain = SequenceOptions::default();
    let error = refused(sequence.export(Broken { panics: false }, &WHO, None), ErrorKind::Os);
    assert_eq!(error.native_code(), 28);
    let import = served.cache.import(Broken { panics: false }, &WHO, plain);
    assert_eq!(refused(import, ErrorKind::Os).native_code(), 28);
    let thrown = [
        catch_unwind(AssertUnwindSafe(|| {
            let _ = sequence.export(Broken { panics: true }, &WHO, None);
        })),
        catch_unwind(AssertUnwindSafe(|| {
            let _ = served.cache.import(Broken { panics: true }, &WHO, plain);
        })),
    ];
    for result in thrown {
        let payload = result.expect_err("the panic was lost");
        assert_eq!(payload.downcast_ref::<&str>(), Some(&"a planted panic"));
    }
    served.cache.check().unwrap();
    check_means(&served.means(&sequence, &[6], 6), 6);
}
