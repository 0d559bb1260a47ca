//! A log on a file system that is full, over its quota, or read-only: it can be opened, and has its
//! records.

use crate::disk::Disk;
use cringle::block::Log;
use std::fs::File;
use std::io::{self, ErrorKind, Write};
use std::path::Path;

/// Each is a group. It is too large for btrfs to keep it in its metadata.
const RECORD: usize = 3000;
const MOST_RECORDS: usize = 200_000;

fn open(path: &Path) -> (Log, Vec<u64>) {
    let mut offsets = Vec::new();
    let log = Log::open(path, |offset, record| {
        assert!(record.len() == RECORD && record.iter().all(|byte| *byte == 7));
        offsets.push(offset);
        Ok(())
    });
    (log.unwrap(), offsets)
}

fn is_refusal(kind: ErrorKind) -> bool {
    matches!(kind, ErrorKind::StorageFull | ErrorKind::QuotaExceeded)
}

/// Writes until the file system has no space.
fn fill(path: &Path) {
    let file = cringle::fs::File::create(path.join("large")).unwrap();
    let mut rest = File::create(path.join("rest")).unwrap();
    let (mut at, mut step) = (0, 16 << 20);
    while step >= 4096 {
        match file.allocate(at, step) {
            Ok(()) => at += step,
            Err(e) => {
                assert!(is_refusal(e.kind()), "{e}");
                step /= 2;
            }
        }
    }
    let write = |_| rest.write_all(&[1; 4096]).and_then(|()| rest.sync_all()).err();
    let error = (0..MOST_RECORDS).find_map(write).unwrap();
    assert!(is_refusal(error.kind()), "{error}");
}

fn free(path: &Path) {
    for name in ["large", "rest"] {
        std::fs::remove_file(path.join(name)).unwrap();
    }
    // btrfs frees space when it commits.
    let root = File::open(path).unwrap();
    // SAFETY: no pointers.
    assert_eq!(unsafe { libc::syncfs(std::os::fd::AsRawFd::as_raw_fd(&root)) }, 0);
}

fn append(log: &Log) -> io::Result<u64> {
    log.append(&[7; RECORD])
}

/// Opens a log for which there is no space. Returns whether it is open for reading only.
fn open_without_space(path: &Path, acknowledged: &[u64], kind: &str) -> bool {
    let (log, found) = open(path);
    assert!(found.starts_with(acknowledged), "{kind}: {} records", found.len());
    assert_eq!(log.read(*found.last().unwrap()).unwrap(), [7; RECORD], "{kind}");
    let Err(refusal) = log.check() else { return false };
    assert!(is_refusal(refusal.kind()), "{kind}: {refusal}");
    let error = append(&log).unwrap_err();
    assert_eq!(error.to_string(), refusal.to_string());
    assert_eq!(log.wait_durable(u64::MAX).unwrap_err().kind(), refusal.kind());
    let source = error.get_ref().unwrap().source().unwrap();
    assert!(source.downcast_ref::<io::Error>().unwrap().raw_os_error().is_some(), "{error}");
    assert!(log.end() <= *found.last().unwrap(), "the last group may not be durable");
    true
}

fn check(kind: &str, disk: &Disk) {
    let (root, path) = (disk.path(""), disk.path("log"));
    let log = open(&path).0;
    let mut acknowledged: Vec<_> = (0..20).map(|_| append(&log).unwrap()).collect();
    fill(&root);
    let mut is_failed = || append(&log).map(|offset| acknowledged.push(offset)).err();
    let error = (0..MOST_RECORDS).find_map(|_| is_failed()).unwrap();
    assert!(is_refusal(error.kind()), "{kind}: {error}");
    drop(log);
    let mut refused = 0;
    for torn_bytes in [0, 0, 5, RECORD as u64 / 2] {
        let file = File::options().write(true).open(&path).unwrap();
        let len = file.metadata().unwrap().len();
        match file.set_len(len - torn_bytes) {
            // The last group is torn now.
            Ok(()) => acknowledged.retain(|at| at + 16 + RECORD as u64 <= len - torn_bytes),
            Err(e) => assert!(is_refusal(e.kind()), "{kind}: {e}"),
        }
        drop(file);
        refused += usize::from(open_without_space(&path, &acknowledged, kind));
    }
    println!("{kind}: {refused} of 4 were open for reading only");
    free(&root);
    let log = open(&path).0;
    log.check().unwrap();
    acknowledged.push(append(&log).unwrap());
    drop(log);
    disk.remount();
    let (log, found) = open(&path);
    assert_eq!(found, acknowledged, "{kind}");
    drop(log);
    std::fs::remove_file(path).unwrap();
}

#[test]
fn log_on_a_full_disk_can_be_opened() {
    Disk::of_kinds(&["ext4", "xfs", "btrfs"], check);
}

#[test]
fn log_over_its_quota_can_be_opened() {
    Disk::of_kinds(&["btrfs"], |_, disk| match disk.set_quota("30M") {
        Ok(()) => check("btrfs with a quota", disk),
        Err(e) => println!("skipped: no quota on btrfs: {e}"),
    });
}

#[test]
fn log_on_a_read_only_disk_can_be_read() {
    Disk::of_kinds(&["ext4", "xfs", "btrfs"], |kind, disk| {
        let path = disk.path("log");
        let log = open(&path).0;
        let offsets: Vec<_> = (0..3).map(|_| append(&log).unwrap()).collect();
        drop(log);
        let bytes = std::fs::read(&path).unwrap();
        std::fs::write(&path, &bytes[..bytes.len() - 5]).unwrap();
        disk.make_read_only(true);
        for on_fiber in [false, true] {
            let check = || {
                let (log, found) = open(&path);
                assert_eq!(found, offsets[..2], "{kind}");
                let kinds = [log.check().unwrap_err(), append(&log).unwrap_err()].map(|e| e.kind());
                assert_eq!(kinds, [ErrorKind::ReadOnlyFilesystem; 2], "{kind}");
                assert_eq!(log.cut_bytes(), 0, "{kind}");
                assert_eq!(log.read(offsets[1]).unwrap(), [7; RECORD], "{kind}");
                let missing = Log::open(disk.path("missing"), |_, _| Ok(())).unwrap_err();
                assert_eq!(missing.kind(), ErrorKind::ReadOnlyFilesystem, "{kind}");
            };
            if on_fiber { cringle::run(check) } else { check() }
        }
        disk.make_read_only(false);
        let log = open(&path).0;
        assert_eq!((log.cut_bytes(), log.end()), (RECORD as u64 + 11, offsets[2]), "{kind}");
        append(&log).unwrap();
    });
}
