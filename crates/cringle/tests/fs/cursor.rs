//! Invariant I11: reads and writes at a file's cursor are serialised, and move the cursor by the
//! bytes transferred: also through the ring, uncached, with `O_DIRECT`, and if clones of the file
//! are used on several workers.

use cringle::block::AlignedBuf;
use cringle::fiber;
use cringle::fs::{File, OpenOptions};
use cringle_testing::disk::{
    self, directory, everywhere, in_company, make_cold, pattern, solitary,
};
use std::cell::Cell;
use std::collections::HashSet;
use std::io::{self, IoSlice, IoSliceMut, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::sync::Mutex;

const BLOCK: usize = 4096;
const FIBERS: usize = 4;

/// Creates a file of numbered blocks.
fn numbered(path: &Path, blocks: usize) {
    let mut bytes = vec![0; blocks * BLOCK];
    for (n, block) in bytes.chunks_mut(BLOCK).enumerate() {
        block.fill(n as u8);
        block[..8].copy_from_slice(&n.to_le_bytes());
    }
    std::fs::write(path, bytes).unwrap();
    make_cold(&std::fs::File::open(path).unwrap());
}

fn number_of(block: &[u8]) -> usize {
    let n = usize::from_le_bytes(block[..8].try_into().unwrap());
    assert!(block[8..].iter().all(|&byte| byte == n as u8), "block {n} is torn");
    n
}

fn open(path: &Path, custom: i32) -> File {
    OpenOptions::new().read(true).write(true).custom_flags(custom).open(path).unwrap()
}

fn workers(count: usize, f: impl FnOnce()) {
    cringle::Builder::new().workers(count).run(f).unwrap();
}

/// An adapter that reads into aligned memory.
struct Aligned<R> {
    reader: R,
    buf: AlignedBuf,
    filled: usize,
    taken: usize,
}

impl<R: Read> Read for Aligned<R> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        if self.taken == self.filled {
            self.filled = self.reader.read(&mut self.buf)?;
            self.taken = 0;
        }
        let count = (&self.buf[self.taken..self.filled]).read(buf)?;
        self.taken += count;
        Ok(count)
    }
}

#[test]
fn direct_file_is_read_to_its_end() {
    let directory = directory();
    let path = directory.path().join("file");
    // The last block is incomplete.
    let bytes = pattern(100 * BLOCK + 1234);
    std::fs::write(&path, &bytes).unwrap();
    for buffer_blocks in [1, 3, 128] {
        everywhere(|| {
            let reader = open(&path, libc::O_DIRECT);
            let buf = AlignedBuf::new(buffer_blocks * BLOCK);
            let mut reader = Aligned { reader, buf, filled: 0, taken: 0 };
            let mut read = Vec::new();
            reader.read_to_end(&mut read).unwrap();
            assert!(read == bytes);
            assert_eq!(reader.reader.stream_position().unwrap(), bytes.len() as u64);
        });
    }
}

/// Lets fibers of these workers read the file block by block, and checks that each block is read
/// once.
fn read_by_all(worker_count: usize, file_of: &(dyn Fn() -> File + Sync), blocks: usize) {
    let seen = Mutex::new(HashSet::new());
    workers(worker_count, || {
        fiber::scope(|s| {
            for n in 0..FIBERS {
                let seen = &seen;
                let file = file_of();
                let builder = fiber::Builder::new().worker(n % worker_count);
                let read = move || {
                    let mut buf = AlignedBuf::new(BLOCK);
                    let mut numbers = Vec::new();
                    loop {
                        match (&file).read(&mut buf).unwrap() {
                            0 => break,
                            BLOCK => numbers.push(number_of(&buf)),
                            count => panic!("a read of {count} bytes"),
                        }
                    }
                    // Each fiber reads blocks in ascending order.
                    assert!(numbers.is_sorted());
                    for n in numbers {
                        assert!(seen.lock().unwrap().insert(n), "block {n} was read twice");
                    }
                };
                builder.spawn_scoped(s, read).unwrap();
            }
        });
    });
    assert_eq!(seen.into_inner().unwrap(), (0..blocks).collect());
}

#[test]
fn clones_read_each_byte_of_a_file_once() {
    let directory = directory();
    let path = directory.path().join("file");
    let blocks = 500;
    for custom in [0, libc::O_DIRECT] {
        for worker_count in [1, 2] {
            numbered(&path, blocks);
            let file = open(&path, custom);
            read_by_all(worker_count, &|| file.try_clone().unwrap(), blocks);
            assert_eq!((&file).stream_position().unwrap(), (blocks * BLOCK) as u64);
        }
    }
}

#[test]
fn shared_reference_reads_each_byte_once() {
    let directory = directory();
    let path = directory.path().join("file");
    let blocks = 300;
    for custom in [0, libc::O_DIRECT] {
        numbered(&path, blocks);
        let mut numbers = Vec::new();
        workers(1, || {
            let file = &open(&path, custom);
            fiber::scope(|s| {
                let read = move || {
                    let mut numbers = Vec::new();
                    let mut bufs = [AlignedBuf::new(BLOCK), AlignedBuf::new(BLOCK)];
                    loop {
                        let [left, right] = &mut bufs;
                        let mut slices = [IoSliceMut::new(left), IoSliceMut::new(right)];
                        let mut file = file;
                        match file.read_vectored(&mut slices).unwrap() {
                            0 => return numbers,
                            count => assert_eq!(count, 2 * BLOCK),
                        }
                        numbers.extend(bufs.iter().map(|buf| number_of(buf)));
                    }
                };
                let readers: Vec<_> = (0..FIBERS).map(|_| s.spawn_local(read)).collect();
                numbers.extend(readers.into_iter().flat_map(|reader| reader.join().unwrap()));
            });
        });
        numbers.sort();
        assert!(numbers.into_iter().eq(0..blocks));
    }
}

#[test]
fn threads_and_fibers_read_each_byte_once() {
    let directory = directory();
    let path = directory.path().join("file");
    let blocks = 500;
    numbered(&path, blocks);
    let file = open(&path, 0);
    let seen = Mutex::new(Vec::new());
    let read = || {
        let mut block = [0; BLOCK];
        while (&file).read(&mut block).unwrap() > 0 {
            seen.lock().unwrap().push(number_of(&block));
        }
    };
    std::thread::scope(|threads| {
        threads.spawn(read);
        threads.spawn(read);
        workers(2, || {
            fiber::scope(|s| {
                (0..FIBERS).for_each(|_| drop(s.spawn(read)));
            });
        });
    });
    let mut seen = seen.into_inner().unwrap();
    seen.sort();
    assert!(seen.into_iter().eq(0..blocks));
}

#[test]
fn fibers_that_write_one_file_overwrite_nothing() {
    let directory = directory();
    let path = directory.path().join("file");
    const EACH: usize = 60;
    for custom in [0, libc::O_DIRECT] {
        for worker_count in [1, 2] {
            std::fs::write(&path, "").unwrap();
            let file = open(&path, custom);
            workers(worker_count, || {
                fiber::scope(|s| {
                    for writer in 0..FIBERS {
                        let file = file.try_clone().unwrap();
                        let builder = fiber::Builder::new().worker(writer % worker_count);
                        let write = move || {
                            let mut block = AlignedBuf::new(BLOCK);
                            for n in writer * EACH..(writer + 1) * EACH {
                                block.fill(n as u8);
                                block[..8].copy_from_slice(&n.to_le_bytes());
                                let count = match n % 2 {
                                    0 => (&file).write(&block),
                                    _ => (&file).write_vectored(&[IoSlice::new(&block)]),
                                };
                                assert_eq!(count.unwrap(), BLOCK);
                            }
                        };
                        builder.spawn_scoped(s, write).unwrap();
                    }
                });
            });
            let bytes = std::fs::read(&path).unwrap();
            let mut numbers: Vec<_> = bytes.chunks(BLOCK).map(number_of).collect();
            numbers.sort();
            assert!(numbers.into_iter().eq(0..FIBERS * EACH));
        }
    }
}

#[test]
fn reads_writes_and_seeks_move_the_cursor_exactly() {
    let directory = directory();
    let path = directory.path().join("file");
    const EACH: usize = 100;
    for worker_count in [1, 2] {
        // No read reaches the end.
        numbered(&path, FIBERS * EACH);
        let file = open(&path, 0);
        workers(worker_count, || {
            fiber::scope(|s| {
                for n in 0..FIBERS {
                    let file = &file;
                    s.spawn(move || {
                        let (mut file, mut block) = (file, vec![0; BLOCK]);
                        for step in 0..EACH {
                            match (step + n) % 3 {
                                0 => assert_eq!(file.read(&mut block).unwrap(), BLOCK),
                                1 => assert_eq!(file.write(&block).unwrap(), BLOCK),
                                _ => drop(file.seek(SeekFrom::Current(BLOCK as i64)).unwrap()),
                            }
                        }
                    });
                }
            });
        });
        let end = (FIBERS * EACH * BLOCK) as u64;
        assert_eq!((&file).stream_position().unwrap(), end);
        assert_eq!(file.metadata().unwrap().len(), end);
    }
}

#[test]
fn partly_cached_read_is_completed() {
    let directory = directory();
    let path = directory.path().join("file");
    let blocks = 256;
    numbered(&path, blocks);
    let expected = std::fs::read(&path).unwrap();
    everywhere(|| {
        let file = open(&path, 0);
        make_cold(&file);
        // No read-ahead, so that only the requested bytes are cached.
        // SAFETY: no pointers.
        unsafe {
            let fd = std::os::fd::AsRawFd::as_raw_fd(&file);
            assert_eq!(libc::posix_fadvise(fd, 0, 0, libc::POSIX_FADV_RANDOM), 0);
        }
        for n in (0..blocks).step_by(8) {
            file.read_exact_at(&mut [0; BLOCK], (n * BLOCK) as u64).unwrap();
        }
        let mut read = vec![0; 5 * BLOCK + 100];
        let mut all = Vec::new();
        loop {
            let left = expected.len() - all.len();
            let count = (&file).read(&mut read).unwrap();
            assert_eq!(count, left.min(read.len()));
            if count == 0 {
                break;
            }
            all.extend_from_slice(&read[..count]);
        }
        assert!(all == expected);
        make_cold(&file);
        file.read_exact_at(&mut [0; BLOCK], 0).unwrap();
        let mut longer = vec![0; expected.len() + 1];
        assert_eq!(file.read_at(&mut longer, 0).unwrap(), expected.len());
        assert!(longer[..expected.len()] == expected);
    });
}

#[test]
fn positioned_calls_do_not_move_the_cursor() {
    let directory = directory();
    let path = directory.path().join("file");
    everywhere(|| {
        numbered(&path, 8);
        let file = open(&path, 0);
        (&file).seek(SeekFrom::Start(5)).unwrap();
        let mut buf = [0; 100];
        file.read_at(&mut buf, 4096).unwrap();
        file.read_vectored_at(&mut [IoSliceMut::new(&mut buf)], 4096).unwrap();
        file.write_at(&buf, 8192).unwrap();
        file.write_vectored_at(&[IoSlice::new(&buf)], 8192).unwrap();
        file.set_len(1).unwrap();
        assert_eq!((&file).stream_position().unwrap(), 5);
    });
}

#[test]
fn cancelled_read_restores_the_cursor() {
    let directory = directory();
    let path = directory.path().join("file");
    numbered(&path, 64);
    let file = std::sync::Arc::new(open(&path, libc::O_DIRECT));
    let readers = std::sync::Arc::clone(&file);
    // The readers are cancelled as soon as they have started, some while they wait for the cursor.
    let delivered = std::sync::Arc::new(Mutex::new(Vec::new()));
    let theirs = std::sync::Arc::clone(&delivered);
    solitary(move || {
        for _ in 0..FIBERS {
            let (file, delivered) = (std::sync::Arc::clone(&readers), theirs.clone());
            fiber::spawn_local(move || {
                let mut block = AlignedBuf::new(BLOCK);
                loop {
                    match (&*file).read(&mut block) {
                        Ok(0) => return,
                        Ok(_) => delivered.lock().unwrap().push(number_of(&block)),
                        Err(e) => return assert!(e.get_ref().unwrap().is::<cringle::Cancelled>()),
                    }
                }
            });
        }
        fiber::yield_now();
    });
    // The next read returns the bytes that they did not receive.
    let mut block = AlignedBuf::new(BLOCK);
    let mut numbers = delivered.lock().unwrap().clone();
    while (&*file).read(&mut block).unwrap() > 0 {
        numbers.push(number_of(&block));
    }
    numbers.sort();
    assert!(numbers.into_iter().eq(0..64));
}

/// Other fibers are ready, so that other calls go through the ring.
#[test]
fn cached_file_is_opened_and_read_inline() {
    if !disk::reads_without_waiting() {
        return eprintln!("skipped: the file system has no reads that do not wait");
    }
    let directory = directory();
    let path = directory.path().join("file");
    let bytes = pattern(5000);
    std::fs::write(&path, &bytes).unwrap();
    in_company(|| {
        let mut buf = [0; 8192];
        let mut read_all = || {
            let mut file = File::open(&path).unwrap();
            assert_eq!(file.read(&mut buf).unwrap(), 5000);
            assert_eq!(&buf[..5000], bytes);
            assert_eq!(file.read(&mut buf).unwrap(), 0);
            file
        };
        read_all();
        let counts = || {
            let worker = &cringle::runtime::stats().unwrap().workers[0];
            (worker.inline_hits, worker.inline_misses)
        };
        let before = counts();
        let mut file = read_all();
        let after = counts();
        assert_eq!((after.0 - before.0, after.1 - before.1), (3, 0), "an open and two reads");
        std::fs::write(&path, [&bytes[..], b"more"].concat()).unwrap();
        assert_eq!(file.read(&mut buf).unwrap(), 4);
        assert_eq!(&buf[..4], b"more");
    });
}

/// The page cache holds the first page, which a read at the cursor takes inline, and not the next.
#[test]
fn read_past_cached_pages_is_not_short() {
    let directory = directory();
    let path = directory.path().join("file");
    let bytes = pattern(64 * BLOCK);
    std::fs::write(&path, &bytes).unwrap();
    let plain = std::fs::File::open(&path).unwrap();
    in_company(|| {
        for start in [0, 100, BLOCK + 1] {
            for moves in [0, 1, 2] {
                make_cold(&plain);
                let mut file = File::open(&path).unwrap();
                // One page, without the pages that the kernel would read ahead.
                file.advise(cringle::fs::Advice::Random, 0, 0).unwrap();
                file.read_exact_at(&mut [0; 1], start as u64).unwrap();
                match moves {
                    0 => {
                        assert_eq!(file.seek(SeekFrom::Start(start as u64)).unwrap(), start as u64)
                    }
                    1 => file.try_clone().unwrap().seek_relative(start as i64).unwrap(),
                    _ => file.read_exact(&mut vec![0; start]).unwrap(),
                }
                let mut buf = vec![0; 3 * BLOCK];
                assert_eq!(file.read(&mut buf).unwrap(), buf.len(), "from {start}");
                assert_eq!(buf, bytes[start..][..3 * BLOCK]);
            }
        }
    });
}

/// Calls that never wait spend from the fiber's budget.
#[test]
fn cached_calls_let_other_fibers_run() {
    if !disk::reads_without_waiting() {
        return eprintln!("skipped: the file system has no reads that do not wait");
    }
    let directory = directory();
    let path = directory.path().join("file");
    std::fs::write(&path, pattern(1000)).unwrap();
    solitary(|| {
        let (turns, is_over) = (Cell::new(0), Cell::new(false));
        fiber::scope(|s| {
            s.spawn_local(|| {
                while !is_over.get() {
                    turns.set(turns.get() + 1);
                    fiber::yield_now();
                }
            });
            let mut file = File::open(&path).unwrap();
            let mut read = || assert_eq!(file.read(&mut [0]).unwrap(), 1);
            let calls: [&mut dyn FnMut(); 2] =
                [&mut || drop(File::open(&path).unwrap()), &mut read];
            let turns_during = |call: &mut dyn FnMut()| {
                let before = turns.get();
                (0..512).for_each(|_| call());
                turns.get() - before
            };
            let counts = calls.map(turns_during);
            is_over.set(true);
            assert!(counts.iter().all(|count| (4..=64).contains(count)), "{counts:?} turns");
        });
    });
}
