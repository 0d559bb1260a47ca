//! `block::Log` on the machine's files: groups, recovery of cut and damaged files, cancellation.
//! `tests/sim/log.rs` has the faults and losses of power.

mod damage;
mod old_version;

use cringle::block::Log;
use cringle::{Builder, cancel, fiber};
use cringle_testing::disk;
use std::cell::Cell;
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, ErrorKind};
use std::os::fd::{AsRawFd, BorrowedFd};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

const HEADER_BYTES: usize = 24;

type Records = Vec<(u64, Vec<u8>)>;

fn open(path: &Path) -> io::Result<(Log, Records)> {
    let mut records = Vec::new();
    let log = Log::open(path, |offset, record| {
        records.push((offset, record.to_owned()));
        Ok(())
    })?;
    Ok((log, records))
}

/// Returns the offset and the size of each group in a log's file.
fn groups(path: &Path) -> Vec<(usize, usize)> {
    let units = damage::units(&std::fs::read(path).unwrap());
    let firsts = units.iter().filter(|unit| unit.at == unit.group);
    firsts.map(|first| (first.at, first.group_end - first.at)).collect()
}

#[test]
fn records_are_found_again_with_their_offsets() {
    let directory = disk::directory();
    let path = directory.path().join("log");
    let mut expected = Vec::new();
    for round in 0..3 {
        cringle::run(|| {
            let (log, records) = open(&path).unwrap();
            assert_eq!(records, expected);
            for len in [0, 1, 7, 8, 9, 4080, 4081, 300_000] {
                let record = vec![round; len];
                let offset = log.append(&record).unwrap();
                assert_eq!(log.read(offset).unwrap(), record);
                expected.push((offset, record));
            }
            let error = log.read(expected[1].0 + 8).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidData);
            assert_eq!(log.read(log.end()).unwrap_err().kind(), ErrorKind::InvalidData);
            let (offset, _) = expected.last().unwrap();
            let file = File::options().write(true).open(&path).unwrap();
            for (byte, is_intact) in [(!round, false), (round, true)] {
                file.write_all_at(&[byte], offset + 200_000).unwrap();
                let read = log.read(*offset).map(drop).map_err(|e| e.kind());
                let wrong = Err(ErrorKind::InvalidData);
                assert_eq!(read, if is_intact { Ok(()) } else { wrong });
            }
        });
    }
    assert!(expected.is_sorted());
}

/// Each fiber appends again as soon as its group is durable, and is in the next group.
#[test]
fn fibers_that_append_together_are_in_one_group() {
    const FIBERS: usize = 64;
    const ROUNDS: usize = 10;
    let directory = disk::directory();
    let path = directory.path().join("log");
    let run = Builder::new().workers(1).run(|| {
        let (log, _) = open(&path).unwrap();
        fiber::scope(|s| {
            for n in 0..FIBERS {
                let log = &log;
                s.spawn_local(move || (0..ROUNDS).for_each(|_| drop(log.append(&[n as u8; 50]))));
            }
        });
    });
    run.unwrap();
    assert_eq!(open(&path).unwrap().1.len(), FIBERS * ROUNDS);
    let groups = groups(&path).len();
    assert!(groups <= ROUNDS + 1, "{groups} groups for {ROUNDS} rounds");
}

#[test]
fn fibers_of_several_workers_and_threads_append_together() {
    let directory = disk::directory();
    let path = directory.path().join("log");
    let log = Log::builder().group_bytes(4096).open(&path, |_, _| Ok(())).unwrap();
    let appended = Mutex::new(BTreeMap::new());
    let work = |writer: u8| {
        let mut last = 0;
        for number in 0..50u8 {
            // A full group takes three of the longest.
            let record = vec![writer; 1 + usize::from(number) * 25];
            let offset = log.append(&record).unwrap();
            assert!(offset > last, "the records of one writer are in order");
            last = offset;
            assert_eq!(appended.lock().unwrap().insert(offset, record), None);
        }
    };
    let work = &work;
    std::thread::scope(|threads| {
        for writer in 0..4 {
            threads.spawn(move || work(writer));
        }
        let run = Builder::new().workers(2).run(|| {
            fiber::scope(|s| (4..24).for_each(|writer| drop(s.spawn(move || work(writer)))));
        });
        run.unwrap();
    });
    drop(log);
    let found: BTreeMap<_, _> = open(&path).unwrap().1.into_iter().collect();
    assert!(found == appended.into_inner().unwrap());
    assert!(groups(&path).iter().all(|(_, size)| *size <= 4096 + 32));
}

/// Makes a log of three groups, the last with several records. Returns its bytes and records.
fn three_groups(path: &Path) -> (Vec<u8>, Records) {
    let run = Builder::new().workers(1).run(|| {
        let (log, _) = open(path).unwrap();
        log.append(b"first").unwrap();
        log.append(b"the second group").unwrap();
        fiber::scope(|s| {
            for n in 0..4usize {
                let log = &log;
                s.spawn_local(move || log.append(&vec![n as u8; 10 + n]).unwrap());
            }
        });
    });
    run.unwrap();
    assert_eq!(groups(path).len(), 3);
    (std::fs::read(path).unwrap(), open(path).unwrap().1)
}

#[test]
fn cut_log_has_its_whole_records_and_can_be_continued() {
    let directory = disk::directory();
    let path = directory.path().join("log");
    let (bytes, records) = three_groups(&path);
    for cut in 0..=bytes.len() {
        std::fs::write(&path, &bytes[..cut]).unwrap();
        let (log, found) = open(&path).unwrap();
        let end =
            |record: &(u64, Vec<u8>)| record.0 as usize + (16 + record.1.len()).next_multiple_of(8);
        let whole = records.iter().take_while(|record| end(record) <= cut).count();
        assert_eq!(found, records[..whole], "cut at {cut}");
        assert_eq!(std::fs::metadata(&path).unwrap().len(), log.end(), "the rest is removed");
        let header = if cut < HEADER_BYTES { cut as u64 } else { log.end() };
        assert_eq!(log.cut_bytes(), cut as u64 - header, "cut at {cut}");
        let offset = log.append(b"next").unwrap();
        drop(log);
        let (_, found) = open(&path).unwrap();
        assert_eq!(found.last(), Some(&(offset, b"next".to_vec())));
        assert_eq!(found.len(), whole + 1);
    }
}

#[test]
fn damage_is_refused_unless_it_may_be_a_torn_group() {
    let directory = disk::directory();
    let path = directory.path().join("log");
    let (bytes, records) = three_groups(&path);
    let last_group = groups(&path).last().unwrap().0;
    for at in 0..bytes.len() {
        let mut damaged = bytes.clone();
        damaged[at] ^= 4;
        std::fs::write(&path, &damaged).unwrap();
        let hit = records.iter().rposition(|(offset, _)| *offset as usize <= at);
        let is_padding = hit.is_some_and(|hit| {
            let (offset, record) = &records[hit];
            at >= *offset as usize + 16 + record.len()
        });
        match open(&path) {
            Ok((_, found)) if is_padding => assert_eq!(found, records, "byte {at}"),
            Ok((_, found)) => {
                assert!(at >= last_group, "byte {at} was synced before the last group");
                assert_eq!(found, records[..hit.unwrap()], "byte {at}");
            }
            Err(e) => {
                assert!(at < last_group, "byte {at}: {e}");
                assert_eq!(e.kind(), ErrorKind::InvalidData);
                assert!(std::fs::read(&path).unwrap() == damaged, "it is left as it is");
                let is_named = |part: &str| e.to_string().contains(part);
                let text = match hit {
                    Some(hit) => format!("the record at byte {} is not intact", records[hit].0),
                    None if at == 7 => "is a log of version 6".into(),
                    None => "is not a log".into(),
                };
                assert!(is_named(&text) && is_named(path.to_str().unwrap()), "byte {at}: {e}");
            }
        }
    }
}

#[test]
fn file_that_is_no_log_is_left_alone() {
    let directory = disk::directory();
    let path = directory.path().join("text");
    let texts = [
        "short",
        "a text that is longer than the header of a log",
        "crnglog\x01 and a text",
        "crnglog\x01 and 16 bytes.",
        "\0\0\0\0a",
        "crnx",
    ];
    for text in texts {
        std::fs::write(&path, text).unwrap();
        assert_eq!(open(&path).unwrap_err().kind(), ErrorKind::InvalidData);
        assert_eq!(std::fs::read_to_string(&path).unwrap(), text);
    }
    for later in [&b"crnglog\x03"[..], b"crnglog\x03 and then more than a header has"] {
        std::fs::write(&path, later).unwrap();
        let error = open(&path).unwrap_err().to_string();
        assert!(error.contains("is a log of version 3"), "{error}");
    }
    assert_eq!(open(directory.path()).unwrap_err().kind(), ErrorKind::IsADirectory);
    assert_eq!(open(Path::new("/dev/null")).unwrap_err().kind(), ErrorKind::InvalidData);
}

#[test]
fn log_is_open_once() {
    let directory = disk::directory();
    let path = directory.path().join("log");
    let (log, _) = open(&path).unwrap();
    assert_eq!(open(&path).unwrap_err().kind(), ErrorKind::ResourceBusy);
    drop(log);
    open(&path).unwrap();
}

/// As a child process has one, from `fork` to `exec`.
#[test]
fn log_that_was_dropped_is_not_locked_by_a_copy_of_its_descriptor() {
    let directory = disk::directory();
    let path = directory.path().join("log");
    let (log, _) = open(&path).unwrap();
    let links = std::fs::read_dir("/proc/self/fd").unwrap().map(|entry| entry.unwrap().path());
    let is_log = |link: &PathBuf| std::fs::read_link(link).is_ok_and(|target| target == path);
    let number = links.filter(is_log).map(|link| link.file_name().unwrap().to_owned());
    let number = number.map(|name| name.to_str().unwrap().parse::<i32>().unwrap()).next().unwrap();
    // SAFETY: the log keeps the descriptor open.
    let copy = unsafe { BorrowedFd::borrow_raw(number) }.try_clone_to_owned().unwrap();
    drop(log);
    open(&path).unwrap();
    drop(copy);
}

/// Its directory is unknown, and that of the link cannot be synced.
#[test]
fn log_may_be_a_file_without_a_name() {
    let directory = disk::directory();
    let file = tempfile::tempfile_in(directory.path()).unwrap();
    let path = format!("/proc/self/fd/{}", file.as_raw_fd());
    let offset = open(Path::new(&path)).unwrap().0.append(b"a record").unwrap();
    assert_eq!(open(Path::new(&path)).unwrap().1, [(offset, b"a record".to_vec())]);
}

#[test]
fn error_of_the_replay_is_that_of_the_open() {
    let directory = disk::directory();
    let path = directory.path().join("log");
    three_groups(&path);
    let mut count = 0;
    let error = Log::open(&path, |_, _| {
        count += 1;
        if count == 2 { Err(io::Error::other("enough")) } else { Ok(()) }
    });
    assert_eq!((error.unwrap_err().to_string(), count), ("enough".into(), 2));
}

#[test]
fn record_larger_than_a_group_is_refused() {
    let directory = disk::directory();
    let path = directory.path().join("log");
    let log = Log::builder().group_bytes(5000).open(&path, |_, _| Ok(())).unwrap();
    let error = log.append(&[1; 4985]).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidInput);
    assert!(error.to_string().contains("at most 4984"), "{error}");
    log.append(&[1; 4984]).unwrap();
    drop(log);
    // The size of a group is no property of the file.
    let (log, records) = open(&path).unwrap();
    assert_eq!(records.len(), 1);
    log.append(&[1; 4985]).unwrap();
}

#[test]
fn large_record_has_its_turn_among_small_ones() {
    const FIBERS: usize = 8;
    let directory = disk::directory();
    let path = directory.path().join("log");
    let run = Builder::new().workers(1).run(|| {
        let log = Log::builder().group_bytes(4096).open(&path, |_, _| Ok(())).unwrap();
        let (small, is_done) = (Cell::new(0), Cell::new(false));
        fiber::scope(|s| {
            for _ in 0..FIBERS {
                s.spawn_local(|| {
                    for _ in 0..50 {
                        log.append(&[0; 1000]).unwrap();
                        small.set(small.get() + usize::from(!is_done.get()));
                    }
                });
            }
            s.spawn_local(|| {
                log.append(&[1; 4080]).unwrap();
                is_done.set(true);
            });
        });
        small.get()
    });
    let small = run.unwrap();
    assert!(small <= 2 * FIBERS, "{small} small records were appended before it");
}

#[test]
fn enqueued_record_is_durable_when_somebody_has_waited() {
    let directory = disk::directory();
    let path = directory.path().join("log");
    let (log, _) = open(&path).unwrap();
    let first = log.enqueue(b"first").unwrap();
    assert_eq!(log.end(), first);
    assert_eq!(log.read(first).unwrap_err().kind(), ErrorKind::InvalidData);
    let second = log.append(b"second").unwrap();
    assert_eq!(groups(&path).len(), 1);
    let end = log.end();
    log.wait_durable(first).unwrap();
    log.wait_durable(second).unwrap();
    let third = log.enqueue(b"third").unwrap();
    assert_eq!(third, end);
    log.wait_durable(first).unwrap();
    assert_eq!(log.end(), end, "those before it were durable already");
    log.wait_durable(third).unwrap();
    log.enqueue(b"nobody waits for it").unwrap();
    drop(log);
    let expected = [(first, "first"), (second, "second"), (third, "third")];
    let expected = expected.map(|(offset, text)| (offset, text.as_bytes().to_vec()));
    assert_eq!(open(&path).unwrap().1, expected);
}

#[test]
fn nobody_waits_for_a_record_that_was_not_enqueued() {
    let directory = disk::directory();
    let (log, _) = open(&directory.path().join("log")).unwrap();
    let wait = |offset| log.wait_durable(offset).map_err(|error| error.kind());
    assert_eq!(wait(log.end()), Err(ErrorKind::InvalidInput));
    let offset = log.enqueue(b"a record").unwrap();
    assert_eq!(wait(offset + 24), Err(ErrorKind::InvalidInput));
    assert_eq!(wait(u64::MAX), Err(ErrorKind::InvalidInput));
    assert_eq!(log.end(), offset, "nothing was written");
    assert_eq!(wait(offset), Ok(()));
}

/// A group takes 4 KiB, so most of these calls find no space, and write the group.
#[test]
fn enqueued_records_have_the_order_of_the_calls() {
    let directory = disk::directory();
    let path = directory.path().join("log");
    let log = Log::builder().group_bytes(4096).open(&path, |_, _| Ok(())).unwrap();
    let sums = cringle::sync::Mutex::new((0_u64, Vec::new()));
    Builder::new()
        .workers(2)
        .run(|| {
            fiber::par_for_each(0..400_u64, 40, |n| {
                let offset = {
                    let mut sums = sums.lock().unwrap();
                    sums.0 += n;
                    let mut record = sums.0.to_le_bytes().to_vec();
                    record.resize(1000, 0);
                    let offset = log.enqueue(&record).unwrap();
                    sums.1.push((offset, record));
                    offset
                };
                log.wait_durable(offset).unwrap();
                assert!(log.end() > offset);
            });
        })
        .unwrap();
    drop(log);
    assert_eq!(open(&path).unwrap().1, sums.into_inner().unwrap().1);
}

#[test]
fn append_of_a_cancelled_fiber_appends_nothing() {
    let directory = disk::directory();
    let path = directory.path().join("log");
    let run = Builder::new().workers(1).run(|| {
        let (log, _) = open(&path).unwrap();
        fiber::scope(|s| {
            let cancelled = s.spawn_local(|| {
                fiber::park_cancellable().unwrap_err();
                log.append(b"cancelled").unwrap_err()
            });
            fiber::yield_now();
            s.cancel();
            assert!(cancel::reason(&cancelled.join().unwrap()).is_some());
        });
        log.append(b"next").unwrap();
    });
    run.unwrap();
    let records: Vec<_> = open(&path).unwrap().1.into_iter().map(|(_, record)| record).collect();
    assert_eq!(records, [b"next"]);
}

/// Cancels fibers in each state of an append: before it, while they lead, and while they wait.
#[test]
fn cancelled_append_leaves_the_others_alone() {
    let directory = disk::directory();
    let path = directory.path().join("log");
    let mut cancelled = 0;
    for yields in 0..20 {
        let _ = std::fs::remove_file(&path);
        let run = Builder::new().workers(1).run(|| {
            let (log, _) = open(&path).unwrap();
            let append = |n: u8| log.append(&[n; 100]);
            fiber::scope(|outer| {
                let append = &append;
                let cancels = outer.spawn_local(move || {
                    fiber::scope(|inner| {
                        let leave: Vec<_> =
                            (0..4).map(|n| inner.spawn_local(move || append(n))).collect();
                        (0..yields).for_each(|_| fiber::yield_now());
                        inner.cancel();
                        leave.into_iter().map(|one| one.join().unwrap()).collect::<Vec<_>>()
                    })
                });
                let stay: Vec<_> =
                    (4..8).map(|n| outer.spawn_local(move || append(n).unwrap())).collect();
                for (n, stays) in (4..8).zip(stay) {
                    assert_eq!(log.read(stays.join().unwrap()).unwrap(), [n; 100]);
                }
                for (n, result) in (0..4).zip(cancels.join().unwrap()) {
                    match result {
                        Ok(offset) => assert_eq!(log.read(offset).unwrap(), [n; 100]),
                        Err(e) => {
                            assert!(cancel::reason(&e).is_some(), "{e}");
                            cancelled += 1;
                        }
                    }
                }
            });
            append(9).unwrap()
        });
        let last = run.unwrap();
        assert_eq!(open(&path).unwrap().1.last(), Some(&(last, vec![9; 100])));
    }
    assert!(cancelled > 0);
}
