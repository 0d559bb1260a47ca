//! A cursor that several handles share, in this process or in others, behaves as with std (promise
//! 1): no record is lost, torn, overwritten or read twice, for every way of sharing.

#![allow(
    clippy::useless_conversion,
    reason = "where the program is std's, it is std's type already"
)]

use cringle_testing::disk;
use cringle_testing::same;
use cringle_testing::same::Log;
use std::collections::HashMap;
use std::io::{Read, Seek, Write};
use std::os::fd::OwnedFd;

const RECORD: usize = 16;
const RECORDS: usize = 400;

/// Distinct records, each of one writer.
fn record(writer: usize, n: usize) -> [u8; RECORD] {
    let text = format!("{writer:03} {n:011}\n");
    text.as_bytes().try_into().unwrap()
}

/// Counts each record, as a summary for the assertion message.
fn summary(records: impl IntoIterator<Item = Vec<u8>>, expected: usize) -> String {
    let mut counts = HashMap::new();
    for record in records {
        *counts.entry(record).or_insert(0) += 1;
    }
    let torn = counts.keys().filter(|record| record.len() < RECORD || !record.ends_with(b"\n"));
    let repeated = counts.values().filter(|&&count| count > 1).count();
    let lost = expected as i64 - counts.len() as i64;
    format!("{lost} lost, {repeated} repeated, {} torn", torn.count())
}

fn records_of(bytes: &[u8]) -> impl Iterator<Item = Vec<u8>> {
    bytes.chunks(RECORD).map(<[u8]>::to_vec)
}

/// The plain calls of a thread, in place of another process or library.
fn plain_reader(fd: OwnedFd) -> Vec<Vec<u8>> {
    let mut file = std::fs::File::from(fd);
    let (mut found, mut buf) = (Vec::new(), [0; RECORD]);
    while let count @ 1.. = file.read(&mut buf).unwrap() {
        found.push(buf[..count].to_vec());
    }
    found
}

same::programs! {
    use it::fs::{File, OpenOptions};
    use it::io::{self, IoSlice, IoSliceMut, SeekFrom};
    use it::os::unix::process::CommandExt;
    use it::process::{Command, Stdio};
    use std::os::fd::{AsFd, AsRawFd, FromRawFd, IntoRawFd, OwnedFd};
    use std::path::Path;

    type Share = fn(&File) -> OwnedFd;

    /// The ways to create a handle that shares the cursor without the library's knowledge.
    const WAYS: [(&str, Share); 6] = [
        ("an owned descriptor", |file| OwnedFd::from(file.try_clone().unwrap())),
        ("std's file", |file| OwnedFd::from(std::fs::File::from(file.try_clone().unwrap()))),
        ("a borrowed descriptor", |file| file.as_fd().try_clone_to_owned().unwrap()),
        ("a number", |file| {
            // SAFETY: the call has just returned this descriptor.
            unsafe { OwnedFd::from_raw_fd(libc::dup(file.as_raw_fd())) }
        }),
        ("a released number", |file| {
            // SAFETY: `into_raw_fd` has released the clone's ownership of the descriptor.
            unsafe { OwnedFd::from_raw_fd(file.try_clone().unwrap().into_raw_fd()) }
        }),
        ("a clone's borrowed descriptor", |file| {
            file.try_clone().unwrap().as_fd().try_clone_to_owned().unwrap()
        }),
    ];

    fn open(path: &Path) -> File {
        OpenOptions::new().read(true).write(true).open(path).unwrap()
    }

    fn read_all(mut file: &File, vectored: bool) -> Vec<Vec<u8>> {
        let (mut found, mut buf) = (Vec::new(), [0; RECORD]);
        loop {
            let count = if vectored {
                let (left, right) = buf.split_at_mut(5);
                let mut bufs = [IoSliceMut::new(left), IoSliceMut::new(right)];
                file.read_vectored(&mut bufs).unwrap()
            } else {
                file.read(&mut buf).unwrap()
            };
            if count == 0 {
                return found;
            }
            found.push(buf[..count].to_vec());
            thread::yield_now();
        }
    }

    fn write_all(mut file: &File, writer: usize, count: usize) {
        for n in 0..count {
            let record = record(writer, n);
            let written = match n % 2 {
                0 => file.write(&record).unwrap(),
                _ => {
                    let (left, right) = record.split_at(5);
                    file.write_vectored(&[IoSlice::new(left), IoSlice::new(right)]).unwrap()
                }
            };
            assert_eq!(written, RECORD);
        }
    }

    /// A queue of records in a file: its readers read each record once.
    pub(super) fn readers_of_one_queue() -> Log {
        let mut log = Log::default();
        let directory = disk::directory();
        let path = directory.path().join("queue");
        let queue: Vec<u8> = (0..RECORDS).flat_map(|n| record(0, n)).collect();
        std::fs::write(&path, &queue).unwrap();
        for (way, share) in WAYS {
            let first = open(&path);
            let (second, third) = (File::from(share(&first)), share(&first));
            let plain = std::thread::spawn(move || plain_reader(third));
            let mut found = thread::scope(|s| {
                let readers = [(&first, false), (&second, true), (&first, true), (&second, false)];
                let readers = readers
                    .map(|(file, vectored)| s.spawn(move || read_all(file, vectored)));
                readers.into_iter().flat_map(|reader| reader.join().unwrap()).collect::<Vec<_>>()
            });
            found.extend(plain.join().unwrap());
            log.value(way, summary(found, RECORDS));
            log.result("where the cursor is", (&first).stream_position());
        }
        log
    }

    /// Writers of one log, including a thread with plain calls: each record is complete and not
    /// overwritten.
    pub(super) fn writers_of_one_log() -> Log {
        let mut log = Log::default();
        let directory = disk::directory();
        let path = directory.path().join("log");
        for (way, share) in WAYS {
            let _ = std::fs::remove_file(&path);
            let mut options = OpenOptions::new();
            let first = options.write(true).create(true).truncate(true).open(&path).unwrap();
            let (second, third) = (File::from(share(&first)), share(&first));
            let plain = std::thread::spawn(move || {
                let mut file = std::fs::File::from(third);
                (0..RECORDS).for_each(|n| file.write_all(&record(9, n)).unwrap());
            });
            thread::scope(|s| {
                for (writer, file) in [&first, &second, &first, &second].into_iter().enumerate() {
                    s.spawn(move || write_all(file, writer, RECORDS / 4));
                }
            });
            plain.join().unwrap();
            let bytes = std::fs::read(&path).unwrap();
            log.value(way, summary(records_of(&bytes), 2 * RECORDS));
            log.result("where the cursor is", (&first).stream_position());
        }
        log
    }

    /// The descriptor is lent while a call on it is under way.
    pub(super) fn shared_while_in_use() -> Log {
        let mut log = Log::default();
        let directory = disk::directory();
        let path = directory.path().join("log");
        for (way, share) in WAYS {
            let mut seen = Vec::new();
            for _ in 0..8 {
                let _ = std::fs::remove_file(&path);
                let mut options = OpenOptions::new();
            let first = options.write(true).create(true).truncate(true).open(&path).unwrap();
                thread::scope(|s| {
                    let writer = s.spawn(|| write_all(&first, 0, 40));
                    s.spawn(|| {
                        thread::yield_now();
                        let mut other = std::fs::File::from(share(&first));
                        (0..40).for_each(|n| other.write_all(&record(1, n)).unwrap());
                    });
                    writer.join().unwrap();
                });
                seen.push(summary(records_of(&std::fs::read(&path).unwrap()), 80));
            }
            log.value(way, seen);
        }
        log
    }

    /// A child that writes the records of a file to its standard output, one at a time.
    fn child_that_writes(source: &Path, stdout: impl Into<Stdio>) -> Command {
        let mut command = Command::new("dd");
        command.arg(format!("if={}", source.display())).args(["bs=16", "status=none"]).stdout(stdout);
        command
    }

    /// A log that a child process writes too, as its standard stream or through a `pre_exec` hook.
    pub(super) fn parent_and_child_write_one_log() -> Log {
        let mut log = Log::default();
        let directory = disk::directory();
        let (source, path) = (directory.path().join("source"), directory.path().join("log"));
        let records: Vec<_> = (0..RECORDS).flat_map(|n| record(1, n)).collect();
        std::fs::write(&source, records).unwrap();
        for hooked in [false, true] {
            let shared = File::create(&path).unwrap();
            let mut command = if hooked {
                child_that_writes(&source, Stdio::null())
            } else {
                child_that_writes(&source, shared.try_clone().unwrap())
            };
            if hooked {
                let clone = shared.try_clone().unwrap();
                // SAFETY: no pointers.
                let hook = move || match unsafe { libc::dup2(clone.as_raw_fd(), 1) } {
                    -1 => Err(std::io::Error::last_os_error()),
                    _ => Ok(()),
                };
                // SAFETY: the hook makes one system call.
                unsafe { command.pre_exec(hook) };
            }
            let mut child = command.spawn().unwrap();
            let mut written = 0;
            // Both write until the child ends.
            while written < RECORDS || child.try_wait().unwrap().is_none() {
                (&shared).write_all(&record(0, written)).unwrap();
                written += 1;
                thread::yield_now();
            }
            log.result("the child", child.wait());
            let bytes = std::fs::read(&path).unwrap();
            log.value(format!("hooked {hooked}"), summary(records_of(&bytes), written + RECORDS));
        }
        log
    }

    /// Files of `/proc`: only the kernel knows how a call moves the cursor.
    pub(super) fn cursors_of_proc() -> Log {
        let mut log = Log::default();
        let path = "/proc/self/oom_score_adj";
        let value = std::fs::read_to_string(path).unwrap();
        for vectored in [false, true] {
            let mut file = OpenOptions::new().read(true).write(true).open(path).unwrap();
            if vectored {
                log.result("write_vectored", file.write_vectored(&[IoSlice::new(value.as_bytes())]))
            } else {
                log.result("write", file.write(value.as_bytes()))
            }
            log.result("position", file.stream_position());
            let mut buf = [0; 2];
            log.result("read", file.read(&mut buf).map(|count| buf[..count].to_vec()));
            log.result("position", file.stream_position());
            log.result("seek", file.seek(SeekFrom::Start(1)));
            log.result("read_vectored", file.read_vectored(&mut [IoSliceMut::new(&mut buf)]));
        }
        let map = File::open("/proc/self/pagemap").unwrap();
        for offset in [0, 1, 8] {
            log.result(format!("read_at of nothing at {offset}"), it::os::unix::fs::FileExt::read_at(&map, &mut [], offset));
        }
        for path in ["/proc/self/status", "/proc/self/maps", "/proc/self/cmdline", "/sys/kernel/mm/transparent_hugepage/enabled"] {
            let Ok(mut file) = File::open(path) else { continue };
            let mut sizes = Vec::new();
            for len in [1, 7, 100] {
                let mut buf = vec![0; len];
                let count = file.read(&mut buf).unwrap();
                sizes.push((count, file.stream_position().unwrap()));
            }
            log.value(path, sizes);
            log.result("seek", file.seek(SeekFrom::Current(-3)));
        }
        log
    }
}

same::the_same!(
    readers_of_one_queue,
    writers_of_one_log,
    shared_while_in_use,
    parent_and_child_write_one_log,
    cursors_of_proc,
);
