//! A log that is opened again and again while its disk fails now and then.

use crate::disk::Disk;
use cringle::block::Log;
use cringle::{Builder, fiber};
use cringle_testing::fuse::MARK;
use std::collections::HashSet;
use std::io;
use std::ops::Range;
use std::path::Path;
use std::sync::Mutex;

const ROUNDS: u64 = 21;
const AT_ONCE: u64 = 16;

/// Opens the log, and returns the numbers of its records.
fn open(path: &Path, on_fiber: bool) -> io::Result<(Log, Vec<u64>)> {
    let mut numbers = Vec::new();
    let mut open = || {
        Log::builder().group_bytes(1 << 16).open(path, |_, record| {
            numbers.push(u64::from_le_bytes(record[16..24].try_into().unwrap()));
            Ok(())
        })
    };
    let log = if on_fiber { cringle::run(open) } else { open() }?;
    Ok((log, numbers))
}

/// Appends records at the same time. Returns those that were acknowledged.
fn append(log: &Log, numbers: Range<u64>, record_bytes: usize, on_fibers: bool) -> Vec<u64> {
    let acknowledged = Mutex::new(Vec::new());
    let append = |first: u64| {
        for number in (first..numbers.end).step_by(AT_ONCE as usize) {
            let mut record = vec![number as u8; record_bytes + number as usize % 97 * 8];
            record[..16].copy_from_slice(&MARK);
            record[16..24].copy_from_slice(&number.to_le_bytes());
            if log.append(&record).is_ok() {
                acknowledged.lock().unwrap().push(number);
            }
        }
    };
    let (append, firsts) = (&append, numbers.start..numbers.start + AT_ONCE);
    if on_fibers {
        let run = Builder::new().workers(2).run(|| {
            fiber::scope(|s| firsts.for_each(|first| drop(s.spawn(move || append(first)))));
        });
        run.unwrap();
    } else {
        std::thread::scope(|s| firsts.for_each(|first| drop(s.spawn(move || append(first)))));
    }
    acknowledged.into_inner().unwrap()
}

/// Opens, appends and fails in turns.
fn repeat(kind: &str, disk: &Disk, record_bytes: usize) {
    let path = disk.path(&format!("log {record_bytes}"));
    let (mut acknowledged, mut next) = (Vec::new(), 0);
    let before = disk.failures();
    for round in 0..ROUNDS {
        // The disk may fail while the log is opened, too.
        disk.fail([0, 40, 0, 100][round as usize % 4]);
        if round % 7 == 6 {
            disk.fail(0);
            disk.remount();
        }
        let opened = open(&path, round % 2 == 0);
        disk.fail(0);
        let (log, found) = match opened {
            Err(e) => {
                assert_ne!(e.kind(), io::ErrorKind::InvalidData, "{kind}, round {round}: {e}");
                continue;
            }
            Ok(opened) => opened,
        };
        let known: HashSet<_> = found.iter().copied().collect();
        assert_eq!(known.len(), found.len(), "{kind}, round {round}: a record is there twice");
        let lost: Vec<_> = acknowledged.iter().filter(|number| !known.contains(number)).collect();
        assert!(lost.is_empty(), "{kind}, round {round}: {lost:?} are lost");
        acknowledged = found;
        let mut append_some = |count: u64| {
            next += count;
            append(&log, next - count..next, record_bytes, round % 4 < 2)
        };
        acknowledged.extend(append_some(3 * AT_ONCE));
        let failures = disk.failures();
        disk.fail([15, 100][round as usize % 2]);
        acknowledged.extend(append_some(6 * AT_ONCE));
        disk.fail(0);
        if disk.failures() > failures {
            let none = append_some(AT_ONCE);
            assert!(none.is_empty(), "{kind}, round {round}: {none:?} after a failure");
        }
    }
    assert!(disk.failures() > before);
    disk.remount();
    let found: HashSet<_> = open(&path, false).unwrap().1.into_iter().collect();
    assert!(acknowledged.iter().all(|number| found.contains(number)), "{kind}: after all");
}

#[test]
fn log_loses_no_record_by_repeated_failures() {
    Disk::of_each_kind(|kind, disk| {
        repeat(kind, disk, 32);
        repeat(kind, disk, 5000);
    });
}
