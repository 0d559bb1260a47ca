//! Batches, registered files and buffers, rings, simulations, traces.

use crate::files::in_directory;
use crate::{check, check_once, own};
use cringle::block::{Batch, BlockIo, FixedBufs, FixedFile};
use cringle::fs::{File, OpenOptions};
use std::path::Path;

fn batches(directory: &Path) {
    let path = directory.join("file");
    let file = OpenOptions::new().read(true).write(true).create(true).open(&path).unwrap();
    let text = vec![7; 64 << 10];
    let mut batch = Batch::new();
    for n in 0..16 {
        batch.write_all(&file, &text[..4096], n * 4096);
    }
    batch.submit();
    let mut pages = text;
    let mut batch = Batch::new();
    for (n, page) in (0..).zip(pages.chunks_mut(4096)) {
        batch.read(&file, page, n * 4096);
    }
    batch.submit().iter().for_each(|count| assert_eq!(count.unwrap(), 4096));
    let fixed = FixedFile::register(&file).unwrap();
    let mut buffers = FixedBufs::new(1, 4096).unwrap();
    let mut batch = Batch::new();
    batch.read_fixed(&fixed, &mut buffers[0], 0);
    batch.submit().iter().for_each(|count| assert_eq!(count.unwrap(), 4096));
}

fn block_io() {
    let io = BlockIo::builder().build().unwrap();
    let file = File::open("/proc/self/exe").unwrap();
    let mut magic = [0; 4];
    let mut batch = Batch::new();
    batch.read(&file, &mut magic, 0);
    assert_eq!(io.submit(batch).unwrap().iter().count(), 1);
    io.close().unwrap();
}

fn traces(directory: &Path) {
    let trace = cringle::trace::Builder::new().events(64).start(directory.join("trace")).unwrap();
    for _ in 0..500 {
        cringle::fiber::yield_now();
    }
    assert!(trace.finish().unwrap().bytes > 0);
    drop(cringle::trace::start(directory.join("trace")).unwrap());
    assert!(cringle::trace::start(directory).is_err());
}

#[test]
fn batches_pass_no_interposed_function() {
    check(|| in_directory(batches));
    check(block_io);
}

/// A process has one trace at a time.
#[test]
fn traces_pass_no_interposed_function() {
    check_once(|| in_directory(traces));
}

#[test]
fn rings_pass_no_interposed_function() {
    check(|| {
        let Ok(mut ring) = cringle::ring::BareRing::new(8, 4) else { return };
        ring.submit();
        ring.wait(0, |_, _| {});
    });
}

#[test]
fn simulations_pass_no_interposed_function() {
    use std::io::{Read, Write};
    crate::hooks::begin();
    let _serial = crate::serial();
    let report = cringle::sim::run(7, &cringle::sim::Options::default(), || {
        let _ = File::create("/file").and_then(|mut file| file.write_all(b"text"));
        let _ = File::open("/file").and_then(|mut file| file.read(&mut [0; 4]));
        let _ = cringle::fs::rename("/file", "/other");
        let _ = cringle::fs::remove_file("/other");
    });
    assert!(report.is_ok());
    let calls = crate::hooks::take();
    assert!(calls.is_empty(), "{}", calls[0]);
    own(|| drop(report));
}
