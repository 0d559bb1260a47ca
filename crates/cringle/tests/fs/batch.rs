//! Batches: any number of operations, with results in order and an error for each, under any limits
//! and in any state of the submitting fiber.

use cringle::block::{Batch, FixedBufs, FixedFile};
use cringle::fiber;
use cringle::fs::{File, OpenOptions};
use cringle_testing::disk;
use cringle_testing::disk::{
    directory, essence, everywhere, in_company, make_cold, pattern, solitary,
};
use proptest::prelude::*;
use std::cell::Cell;
use std::io::{self, ErrorKind};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;

fn read_write(path: &Path) -> File {
    File::from(std::fs::OpenOptions::new().read(true).write(true).open(path).unwrap())
}

/// A runtime with the smallest possible ring.
fn tiny_ring<T>(f: impl FnOnce() -> T) -> T {
    cringle::Builder::new().workers(1).ring_entries(1).in_flight_limit(8).run(f).unwrap()
}

#[test]
fn empty_batch_has_no_results() {
    everywhere(|| {
        let results = Batch::new().submit();
        assert!(results.is_empty());
        assert_eq!((results.len(), results.iter().len()), (0, 0));
        assert!(results.recycle().is_empty());
        assert_eq!(Batch::with_capacity(9).submit().into_iter().count(), 0);
    });
}

#[test]
fn results_are_in_the_order_of_operations() {
    let directory = directory();
    let path = directory.path().join("file");
    let bytes = pattern(1 << 20);
    std::fs::write(&path, &bytes).unwrap();
    everywhere(|| {
        let file = File::open(&path).unwrap();
        make_cold(&file);
        // Each operation has its own length and offset.
        let mut bufs: Vec<Vec<u8>> = (0..1000).map(|n| vec![0; n]).collect();
        let mut batch = Batch::new();
        let ids: Vec<_> =
            (0u64..).zip(&mut bufs).map(|(n, buf)| batch.read(&file, buf, n * 1009)).collect();
        assert_eq!(batch.len(), 1000);
        let results = batch.submit();
        assert_eq!(results.len(), 1000);
        for (n, id) in ids.iter().enumerate() {
            assert_eq!(results.get(*id).unwrap(), n);
        }
        assert!(results.iter().map(Result::unwrap).eq(0..1000));
        let owned = results.into_iter();
        assert_eq!(owned.len(), 1000);
        assert!(owned.map(Result::unwrap).eq(0..1000));
        for (n, buf) in bufs.iter().enumerate() {
            assert!(bytes[n * 1009..].starts_with(buf));
        }
    });
}

#[test]
fn many_operations_pass_through_a_tiny_ring() {
    const COUNT: usize = 100_000;
    let directory = directory();
    let path = directory.path().join("file");
    let bytes = pattern(1 << 20);
    std::fs::write(&path, &bytes).unwrap();
    tiny_ring(|| {
        let file = File::open(&path).unwrap();
        let mut buf = vec![0; COUNT * 8];
        let place = |n: usize| n * 24_683 % (bytes.len() - 8);
        let mut batch = Batch::new();
        for (n, word) in buf.chunks_mut(8).enumerate() {
            // The lengths differ, so that a misplaced result is detected.
            batch.read(&file, &mut word[..n % 8 + 1], place(n) as u64);
        }
        let results = batch.submit();
        assert!(results.iter().map(Result::unwrap).eq((0..COUNT).map(|n| n % 8 + 1)));
        for (n, word) in buf.chunks(8).enumerate() {
            let len = n % 8 + 1;
            assert_eq!(word[..len], bytes[place(n)..][..len]);
        }
    });
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 48,
        failure_persistence: None,
        ..Default::default()
    })]

    /// Compares random operations of all four kinds with a model in memory, on any ring, on and off
    /// fibers.
    #[test]
    fn batch_equals_its_operations_one_by_one(
        ops in prop::collection::vec((0..4u8, 0..9000usize, 0..3000usize), 0..120),
        limit in 1..40u32,
        entries in 1..20u32,
        inside in any::<bool>(),
    ) {
        let directory = directory();
        let path = directory.path().join("file");
        // Each operation has its own range, because they run in no particular order.
        let stretch = 4096;
        let before = pattern(stretch * ops.len() + 500);
        std::fs::write(&path, &before).unwrap();
        let mut after = before.clone();
        let mut bufs: Vec<Vec<u8>> = ops.iter().map(|op| vec![1; op.2]).collect();
        let mut run = || {
            let file = read_write(&path);
            let mut batch = Batch::new();
            for (n, (&(kind, at, _), buf)) in ops.iter().zip(&mut bufs).enumerate() {
                // Reads are anywhere in or after the file; writes are in their own range.
                let read_at = (n * stretch + at) as u64;
                let write_at = (n * stretch + at % (stretch - 3000)) as u64;
                match kind {
                    0 => batch.read(&file, buf, read_at.min(before.len() as u64 + 9)),
                    1 => batch.read_exact(&file, buf, read_at),
                    2 => batch.write(&file, buf, write_at),
                    _ => batch.write_all(&file, buf, write_at),
                };
            }
            let results = batch.submit();
            results.iter().map(|result| result.map_err(|e| e.kind())).collect::<Vec<_>>()
        };
        let results = if inside {
            let builder = cringle::Builder::new().workers(1).ring_entries(entries);
            builder.in_flight_limit(limit).run(run).unwrap()
        } else {
            run()
        };
        for (n, (&(kind, at, len), result)) in ops.iter().zip(results).enumerate() {
            let read_at = n * stretch + at;
            let read_at = if kind == 0 { read_at.min(before.len() + 9) } else { read_at };
            let available = before.len().saturating_sub(read_at).min(len);
            let expected = match kind {
                0 => Ok(available),
                1 if available < len => Err(ErrorKind::UnexpectedEof),
                _ => Ok(len),
            };
            prop_assert_eq!(result, expected);
            if kind >= 2 {
                after[n * stretch + at % (stretch - 3000)..][..len].fill(1);
            }
        }
        prop_assert!(std::fs::read(&path).unwrap() == after);
    }
}

#[test]
fn end_of_file_fails_only_exact_reads() {
    let directory = directory();
    let path = directory.path().join("file");
    std::fs::write(&path, "0123456789").unwrap();
    everywhere(|| {
        let file = File::open(&path).unwrap();
        let mut bufs = [[7; 6]; 6];
        let [a, b, c, d, e, f] = &mut bufs;
        let mut batch = Batch::new();
        let full = batch.read(&file, a, 4);
        let short = batch.read(&file, b, 7);
        let nothing = batch.read(&file, c, 10);
        let exact = batch.read_exact(&file, d, 0);
        let eof = batch.read_exact(&file, e, 7);
        let beyond = batch.read_exact(&file, f, 1 << 40);
        let empty = batch.read_exact(&file, &mut [], 1 << 40);
        let results = batch.submit();
        assert_eq!(results.get(full).unwrap(), 6);
        assert_eq!(results.get(short).unwrap(), 3);
        assert_eq!(results.get(nothing).unwrap(), 0);
        assert_eq!(results.get(exact).unwrap(), 6);
        let theirs = std::fs::File::open(&path).unwrap().read_exact_at(&mut [0; 6], 7).unwrap_err();
        for id in [eof, beyond] {
            let ours = results.get(id).unwrap_err();
            assert_eq!((ours.kind(), ours.to_string()), (theirs.kind(), theirs.to_string()));
        }
        assert_eq!(results.get(empty).unwrap(), 0);
        let tail = *b"789\x07\x07\x07";
        assert_eq!(bufs, [*b"456789", tail, [7; 6], *b"012345", tail, [7; 6]]);
    });
}

#[test]
fn each_operation_has_its_own_error() {
    let directory = directory();
    let path = directory.path().join("file");
    std::fs::write(&path, "text").unwrap();
    everywhere(|| {
        let reads = File::open(&path).unwrap();
        let writes = OpenOptions::new().write(true).open(&path).unwrap();
        let folder = File::open(directory.path()).unwrap();
        let full = OpenOptions::new().write(true).open("/dev/full").unwrap();
        let mut bufs = [[0; 4]; 6];
        let [a, b, c, d, e, f] = &mut bufs;
        let mut batch = Batch::new();
        let expected = [
            (batch.read(&reads, a, 0), Ok(4)),
            (batch.read(&writes, b, 0), Err(libc::EBADF)),
            (batch.write(&reads, b"lost", 0), Err(libc::EBADF)),
            (batch.write_all(&reads, b"lost", 0), Err(libc::EBADF)),
            (batch.read_exact(&folder, c, 0), Err(libc::EISDIR)),
            (batch.write(&writes, b"TE", 0), Ok(2)),
            (batch.write_all(&full, b"lost", 0), Err(libc::ENOSPC)),
            (batch.read(&reads, d, 1 << 63), Err(libc::EINVAL)),
            (batch.read_exact(&reads, e, u64::MAX), Err(libc::EINVAL)),
            (batch.write_all(&writes, b"", u64::MAX), Err(libc::EINVAL)),
            (batch.read(&reads, f, 2), Ok(2)),
        ];
        let results = batch.submit();
        for (n, (id, expected)) in expected.into_iter().enumerate() {
            let result = results.get(id).map_err(|e| e.raw_os_error().unwrap());
            assert_eq!(result, expected, "operation {n}");
        }
        drop(writes);
        std::fs::write(&path, "text").unwrap();
    });
}

/// As on a thread: the file is asked, which refuses it.
#[test]
fn empty_read_of_a_directory_fails() {
    let directory = directory();
    let path = directory.path().join("file");
    std::fs::write(&path, b"rope").unwrap();
    everywhere(|| {
        let (dir, file) = (File::open(directory.path()).unwrap(), File::open(&path).unwrap());
        let mut batch = Batch::new();
        batch.read(&dir, &mut [], 0);
        batch.read_exact(&dir, &mut [], 0);
        batch.read(&file, &mut [], 0);
        batch.read_exact(&file, &mut [], 9);
        let errnos: Vec<_> = batch
            .submit()
            .into_iter()
            .map(|read| read.map_err(|e| e.raw_os_error().unwrap()))
            .collect();
        assert_eq!(errnos, [Err(libc::EISDIR), Err(libc::EISDIR), Ok(0), Ok(0)]);
    });
}

#[test]
fn closed_descriptor_fails_only_its_operation() {
    let directory = directory();
    let path = directory.path().join("file");
    std::fs::write(&path, "text").unwrap();
    everywhere(|| {
        let file = File::open(&path).unwrap();
        // SAFETY: the number is not open, and is not closed, because the value is not dropped.
        let closed = unsafe { <File as std::os::fd::FromRawFd>::from_raw_fd(1 << 20) };
        let closed = std::mem::ManuallyDrop::new(closed);
        let mut bufs = [[0; 4]; 64];
        let mut batch = Batch::new();
        for (n, buf) in bufs.iter_mut().enumerate() {
            batch.read(if n % 2 == 0 { &file } else { &closed }, buf, 0);
        }
        for (n, result) in batch.submit().into_iter().enumerate() {
            match n % 2 {
                0 => assert_eq!(result.unwrap(), 4),
                _ => assert_eq!(result.unwrap_err().raw_os_error(), Some(libc::EBADF)),
            }
        }
    });
}

#[test]
fn files_without_positions_are_refused_without_loss() {
    everywhere(|| {
        let (reader, writer) = io::pipe().unwrap();
        let (reader, writer) = (File::from(OwnedFd::from(reader)), OwnedFd::from(writer).into());
        io::Write::write_all(&mut &writer, b"kept").unwrap();
        let mut bufs = [[0; 4]; 2];
        let [a, b] = &mut bufs;
        let mut batch = Batch::new();
        batch.read(&reader, a, 0);
        batch.read_exact(&reader, b, 0);
        batch.write(&writer, b"lost", 0);
        batch.write_all(&writer, b"lost", 0);
        for result in batch.submit() {
            assert_eq!(result.unwrap_err().raw_os_error(), Some(libc::ESPIPE));
        }
        drop(writer);
        assert_eq!(io::read_to_string(&reader).unwrap(), "kept");
    });
}

#[test]
fn eagain_of_a_file_goes_to_the_pool() {
    // On a file opened with `O_NONBLOCK`, on a file system without `RWF_NOWAIT`, a ring returns
    // `EAGAIN`.
    let expected = std::fs::read("/proc/version").unwrap();
    everywhere(|| {
        let mut options = OpenOptions::new();
        options.read(true).custom_flags(libc::O_NONBLOCK);
        let file = options.open("/proc/version").unwrap();
        let mut bufs = [vec![0; 4096], vec![0; expected.len()], vec![0; 4096]];
        let [a, b, c] = &mut bufs;
        let mut batch = Batch::new();
        let ids = [batch.read(&file, a, 0), batch.read_exact(&file, b, 0)];
        let eof = batch.read_exact(&file, c, 0);
        let results = batch.submit();
        assert!(ids.iter().all(|&id| results.get(id).unwrap() == expected.len()));
        assert_eq!(results.get(eof).unwrap_err().kind(), ErrorKind::UnexpectedEof);
        assert!(bufs.iter().all(|buf| buf.starts_with(&expected)));
    });
}

#[test]
fn unsubmitted_batches_and_unread_results_may_be_dropped() {
    let directory = directory();
    let path = directory.path().join("file");
    std::fs::write(&path, "text").unwrap();
    everywhere(|| {
        let file = read_write(&path);
        let mut buf = [0; 4];
        let mut batch = Batch::new();
        batch.write_all(&file, b"lost", 0);
        drop(batch);
        let mut batch = Batch::new();
        batch.read(&file, &mut buf, 0);
        drop(batch.submit());
        assert_eq!(&buf, b"text");
        let mut other = [0; 4];
        let mut batch = Batch::new();
        batch.read(&file, &mut buf, 0);
        batch.read(&file, &mut other, 0);
        let mut results = batch.submit().into_iter();
        assert_eq!(results.next().unwrap().unwrap(), 4);
        drop(results);
    });
}

#[test]
fn results_and_batches_may_move_to_another_thread() {
    let directory = directory();
    let path = directory.path().join("file");
    std::fs::write(&path, "text").unwrap();
    let file = read_write(&path);
    let mut buf = [0; 4];
    let mut batch = Batch::new();
    batch.read(&file, &mut buf, 0);
    let results = std::thread::scope(|threads| {
        threads.spawn(move || solitary(move || batch.submit())).join().unwrap()
    });
    let count = std::thread::spawn(move || results.into_iter().next().unwrap().unwrap());
    assert_eq!((count.join().unwrap(), &buf), (4, b"text"));
}

#[test]
fn recycled_batch_is_empty() {
    let directory = directory();
    let path = directory.path().join("file");
    std::fs::write(&path, "text").unwrap();
    everywhere(|| {
        let file = File::open(&path).unwrap();
        let mut batch = Batch::new();
        for round in 0..5 {
            // An error and a completed result, which must not reappear in the next round.
            let mut bufs = [[0; 4]; 3];
            let [a, b, c] = &mut bufs;
            let mut this = batch;
            let first = match round % 2 {
                0 => this.read(&file, a, 1 << 63),
                _ => this.read(&file, a, 0),
            };
            let second = match round % 2 {
                0 => this.read_exact(&file, b, 2),
                _ => this.read(&file, b, 2),
            };
            this.read(&file, c, 0);
            let results = this.submit();
            assert_eq!(results.len(), 3);
            match round % 2 {
                0 => {
                    let e = results.get(first).unwrap_err();
                    assert_eq!(essence(&e), (ErrorKind::InvalidInput, Some(libc::EINVAL)));
                    assert_eq!(results.get(second).unwrap_err().kind(), ErrorKind::UnexpectedEof);
                }
                _ => {
                    assert_eq!(results.get(first).unwrap(), 4);
                    assert_eq!(results.get(second).unwrap(), 2);
                }
            }
            batch = results.recycle();
            assert!(batch.is_empty());
        }
    });
}

#[test]
fn batch_of_a_cancelled_fiber_is_cancelled() {
    let directory = directory();
    let path = directory.path().join("file");
    std::fs::write(&path, pattern(1 << 20)).unwrap();
    let (sender, receiver) = std::sync::mpsc::channel();
    tiny_ring(|| {
        let path = path.clone();
        fiber::spawn_local(move || {
            let file = File::open(&path).unwrap();
            let mut bufs = vec![[0; 64]; 1000];
            // This call notices that `run` ends.
            while cringle::io::ready(&io::stderr(), cringle::io::Interest::WRITABLE).is_ok() {}
            let mut batch = Batch::new();
            for (n, buf) in (0..).zip(&mut bufs) {
                match n % 2 {
                    0 => batch.read(&file, buf, n),
                    _ => batch.read_exact(&file, buf, n),
                };
            }
            sender.send(batch.submit().into_iter().collect::<Vec<_>>()).unwrap();
        });
        fiber::yield_now();
    });
    let results = receiver.recv().unwrap();
    assert_eq!(results.len(), 1000);
    for result in results {
        assert!(result.unwrap_err().get_ref().unwrap().is::<cringle::Cancelled>());
    }
}

#[test]
fn huge_batch_does_not_starve_single_reads() {
    let directory = directory();
    let path = directory.path().join("file");
    std::fs::write(&path, pattern(1 << 20)).unwrap();
    tiny_ring(|| {
        let file = &File::open(&path).unwrap();
        let huge_done = Cell::new(false);
        let singles = Cell::new(0);
        fiber::scope(|s| {
            s.spawn_local(|| {
                let mut bufs = vec![[0; 64]; 20_000];
                let mut batch = Batch::new();
                for (n, buf) in (0..).zip(&mut bufs) {
                    batch.read(file, buf, n % 10_000 * 64);
                }
                assert!(batch.submit().into_iter().all(|count| count.unwrap() == 64));
                huge_done.set(true);
            });
            for _ in 0..3 {
                s.spawn_local(|| {
                    // These reads must not wait for the end of the huge batch.
                    for n in 0..100 {
                        assert_eq!(file.read_at(&mut [0; 64], n * 64).unwrap(), 64);
                        singles.set(singles.get() + u32::from(!huge_done.get()));
                    }
                });
            }
        });
        assert_eq!(singles.get(), 300, "reads before the end of the huge batch");
    });
}

#[test]
fn only_the_submitting_fiber_waits() {
    let directory = directory();
    let path = directory.path().join("file");
    std::fs::write(&path, pattern(1 << 20)).unwrap();
    solitary(|| {
        let file = OpenOptions::new().read(true).custom_flags(libc::O_DIRECT).open(&path).unwrap();
        let (turns, done) = (Cell::new(0), Cell::new(false));
        fiber::scope(|s| {
            s.spawn_local(|| {
                while !done.get() {
                    turns.set(turns.get() + 1);
                    fiber::yield_now();
                }
            });
            let mut pages = cringle::block::AlignedBuf::new(1 << 20);
            let mut batch = Batch::new();
            for (page, offset) in pages.chunks_mut(4096).zip((0..).step_by(4096)) {
                batch.read(&file, page, offset);
            }
            let results = batch.submit();
            done.set(true);
            assert!(results.iter().all(|count| count.unwrap() == 4096));
        });
        assert!(turns.get() > 0);
    });
}

// ----- registered files and buffers -----

#[test]
fn registered_files_and_buffers_read_and_write() {
    let directory = directory();
    let path = directory.path().join("file");
    let bytes = pattern(1 << 16);
    for way in [solitary, in_company, disk::alone, disk::unwinding] {
        std::fs::write(&path, &bytes).unwrap();
        way(|| {
            let file = read_write(&path);
            let fixed = FixedFile::register(&file).unwrap();
            // The registration keeps the file open.
            drop(file);
            let mut bufs = FixedBufs::new(16, 4096).unwrap();
            let mut batch = Batch::new();
            for (buf, offset) in bufs.iter_mut().zip((0..).step_by(4096)) {
                batch.read_fixed(&fixed, buf, offset);
            }
            assert!(batch.submit().iter().all(|count| count.unwrap() == 4096));
            assert!(bufs.iter().flat_map(|buf| buf.iter()).eq(&bytes));
            bufs.reverse();
            let mut batch = Batch::new();
            for (buf, offset) in bufs.iter().zip((0..).step_by(4096)) {
                batch.write_fixed(&fixed, buf, offset);
            }
            assert!(batch.submit().iter().all(|count| count.unwrap() == 4096));
        });
        let reversed: Vec<u8> = bytes.chunks(4096).rev().flatten().copied().collect();
        assert!(std::fs::read(&path).unwrap() == reversed);
    }
}

#[test]
fn registered_buffers_have_the_requested_size() {
    solitary(|| {
        for (count, bytes) in [(3, 1), (5, 64), (4, 100), (2, 4096), (3, 5000), (1, 1 << 20)] {
            let mut bufs = FixedBufs::new(count, bytes).unwrap();
            assert_eq!(bufs.len(), count);
            for (n, buf) in bufs.iter_mut().enumerate() {
                assert!(buf.iter().all(|&byte| byte == 0) && buf.len() == bytes);
                assert!(bytes < 4096 || buf.as_ptr().addr().is_multiple_of(4096));
                buf.fill(n as u8 + 1);
            }
            for (n, buf) in bufs.iter().enumerate() {
                assert!(buf.iter().all(|&byte| byte == n as u8 + 1), "{count} of {bytes} overlap");
            }
        }
        assert!(FixedBufs::new(0, 4096).unwrap().is_empty());
        let mut empty = FixedBufs::new(2, 0).unwrap();
        let file = FixedFile::register(&File::open("/proc/self/exe").unwrap()).unwrap();
        let mut batch = Batch::new();
        batch.read_fixed(&file, &mut empty[1], 0);
        assert_eq!(batch.submit().into_iter().next().unwrap().unwrap(), 0);
    });
}

#[test]
fn registering_more_than_a_gibibyte_is_refused() {
    solitary(|| {
        let giants = [usize::MAX, usize::MAX - 4094, 1 << 63].map(|bytes| (1, bytes));
        let many = [(1, (1 << 30) + 1), (1 << 19, 4096), (usize::MAX, 4096), (2, 1 << 63)];
        for (count, bytes) in giants.into_iter().chain(many) {
            let e = FixedBufs::new(count, bytes).unwrap_err();
            assert_eq!(e.kind(), ErrorKind::InvalidInput);
            assert!(e.to_string().contains("1 GiB"), "{e}");
        }
    });
}

#[test]
fn registration_outside_of_run_is_refused() {
    let e = FixedBufs::new(1, 4096).unwrap_err();
    assert_eq!(e.kind(), ErrorKind::Unsupported);
    assert!(e.to_string().contains("cringle::run"), "{e}");
    let e = FixedFile::register(&File::open("/dev/null").unwrap()).unwrap_err();
    assert_eq!(e.kind(), ErrorKind::Unsupported);
}

#[test]
fn registered_buffers_can_be_swapped() {
    let directory = directory();
    let path = directory.path().join("file");
    let bytes = pattern(1 << 16);
    std::fs::write(&path, &bytes).unwrap();
    solitary(|| {
        let file = FixedFile::register(&File::open(&path).unwrap()).unwrap();
        let (mut left, mut right) =
            (FixedBufs::new(2, 4096).unwrap(), FixedBufs::new(2, 64).unwrap());
        std::mem::swap(&mut left[0], &mut right[1]);
        left[1].fill(9);
        // The buffer that was swapped out keeps its memory and its registration.
        drop(left);
        let mut batch = Batch::new();
        for (buf, offset) in right.iter_mut().zip([100, 200]) {
            batch.read_fixed(&file, buf, offset);
        }
        let results = batch.submit();
        assert!(results.iter().map(Result::unwrap).eq([64, 4096]));
        assert_eq!(right[0][..], bytes[100..164]);
        assert_eq!(right[1][..], bytes[200..4296]);
    });
}

#[test]
fn slots_are_reused_and_their_limit_is_reported() {
    solitary(|| {
        let file = File::open("/proc/self/exe").unwrap();
        // Many times the number of slots.
        for _ in 0..3000 {
            let fixed = FixedFile::register(&file).unwrap();
            let mut bufs = FixedBufs::new(1, 64).unwrap();
            let mut batch = Batch::new();
            batch.read_fixed(&fixed, &mut bufs[0], 0);
            assert_eq!(batch.submit().iter().next().unwrap().unwrap(), 64);
            assert!(bufs[0].starts_with(b"\x7fELF"));
        }
        let mut files = Vec::new();
        let e = loop {
            match FixedFile::register(&file) {
                Ok(fixed) => files.push(fixed),
                Err(e) => break e,
            }
        };
        assert_eq!(files.len(), 1024);
        assert!(e.to_string().contains("1024 slots"), "{e}");
        files.pop();
        files.push(FixedFile::register(&file).unwrap());
        let mut bufs = Vec::new();
        let e = loop {
            match FixedBufs::new(1, 64) {
                Ok(buf) => bufs.push(buf),
                Err(e) => break e,
            }
        };
        assert!(e.to_string().contains("slots"), "{e}");
        let mut batch = Batch::new();
        for (fixed, buf) in files.iter().zip(bufs.iter_mut().flat_map(|bufs| bufs.iter_mut())) {
            batch.read_fixed(fixed, buf, 1);
        }
        assert!(batch.submit().iter().all(|count| count.unwrap() == 64));
        assert!(bufs[..1024].iter().all(|buf| buf[0].starts_with(b"ELF")));
    });
}

/// A batch refuses each operation that belongs to another ring, and performs plain ones.
fn assert_refused(results: impl IntoIterator<Item = io::Result<usize>>) {
    for (n, result) in results.into_iter().enumerate() {
        match n % 2 {
            0 => {
                let e = result.unwrap_err();
                assert_eq!(e.kind(), ErrorKind::InvalidInput);
                assert!(e.to_string().contains("another ring"), "{e}");
            }
            _ => assert_eq!(result.unwrap(), 4),
        }
    }
}

#[test]
fn registrations_are_refused_on_another_ring() {
    let directory = directory();
    let path = directory.path().join("file");
    std::fs::write(&path, "text").unwrap();
    let plain = read_write(&path);
    let io = cringle::block::BlockIo::builder().build().unwrap();
    let (kept_file, mut kept_bufs) = solitary(|| {
        let file = FixedFile::register(&plain).unwrap();
        let mut bufs = FixedBufs::new(2, 4).unwrap();
        let mut plain_bufs = [[0; 4]; 2];
        // On the ring of a `BlockIo`, the same slots refer to other files.
        let mut batch = Batch::new();
        for (fixed, buf) in bufs.iter_mut().zip(&mut plain_bufs) {
            batch.read_fixed(&file, fixed, 0);
            batch.read(&plain, buf, 0);
        }
        assert_refused(io.submit(batch).unwrap());
        assert!(bufs.iter().all(|buf| **buf == [0; 4]));
        // On their own ring they work.
        let mut batch = Batch::new();
        batch.read_fixed(&file, &mut bufs[0], 0);
        assert_eq!(batch.submit().iter().next().unwrap().unwrap(), 4);
        assert_eq!(&bufs[0][..], b"text");
        (file, bufs)
    });
    // Their ring is closed.
    let check = |kept_bufs: &mut FixedBufs| {
        let mut plain_bufs = [[0; 4]; 2];
        let mut batch = Batch::new();
        for (fixed, buf) in kept_bufs.iter_mut().zip(&mut plain_bufs) {
            fixed.fill(1);
            batch.write_fixed(&kept_file, fixed, 0);
            batch.read(&plain, buf, 0);
        }
        assert_refused(batch.submit());
    };
    check(&mut kept_bufs);
    solitary(|| {
        // The other ring has the same slot numbers.
        let file = FixedFile::register(&plain).unwrap();
        let mut bufs = FixedBufs::new(2, 4).unwrap();
        check(&mut kept_bufs);
        // A file of this ring with a buffer of the other, and vice versa.
        let mut other = [0; 4];
        let mut batch = Batch::new();
        batch.read_fixed(&file, &mut kept_bufs[0], 0);
        batch.read(&plain, &mut other, 0);
        batch.write_fixed(&kept_file, &bufs[0], 0);
        assert_refused(batch.submit());
        let mut batch = Batch::new();
        batch.read_fixed(&file, &mut bufs[1], 0);
        assert_eq!(batch.submit().iter().next().unwrap().unwrap(), 4);
    });
    assert_eq!(std::fs::read(&path).unwrap(), b"text");
}

#[test]
fn registrations_may_outlive_run() {
    let file = File::open("/proc/self/exe").unwrap();
    for order in 0..3 {
        let (fixed, mut bufs) =
            solitary(|| (FixedFile::register(&file).unwrap(), FixedBufs::new(4, 4096).unwrap()));
        // The buffers still own their memory.
        bufs.iter_mut().for_each(|buf| buf.fill(7));
        assert!(bufs.iter().all(|buf| buf.iter().all(|&byte| byte == 7)));
        match order {
            0 => {
                drop(bufs);
                drop(fixed);
            }
            1 => {
                drop(fixed);
                drop(bufs);
            }
            _ => solitary(|| {
                // While another ring has registrations with the same slots.
                let here = FixedFile::register(&file).unwrap();
                let mut mine = FixedBufs::new(1, 64).unwrap();
                drop(fixed);
                drop(bufs);
                let mut batch = Batch::new();
                batch.read_fixed(&here, &mut mine[0], 0);
                assert_eq!(batch.submit().iter().next().unwrap().unwrap(), 64);
            }),
        }
    }
}

#[test]
fn dropping_a_registration_closes_the_file() {
    solitary(|| {
        let (reader, writer) = io::pipe().unwrap();
        let fixed = FixedFile::register(&File::from(OwnedFd::from(writer))).unwrap();
        assert!(fixed_is_open(&reader));
        drop(fixed);
        // A hang-up: the ring has closed the last writing end.
        let events = cringle::io::ready(&reader, cringle::io::Interest::READABLE).unwrap();
        assert_ne!(events.poll_events() & libc::POLLHUP as u16, 0);
    });
}

fn fixed_is_open(reader: &io::PipeReader) -> bool {
    let mut poll = libc::pollfd { fd: reader.as_raw_fd(), events: libc::POLLIN, revents: 0 };
    // SAFETY: one structure is passed.
    unsafe { libc::poll(&mut poll, 1, 0) == 0 }
}
