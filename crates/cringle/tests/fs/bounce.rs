//! Direct I/O at any offset, with any length and buffer (`Direct::Bounce`).

use cringle::block::{Batch, BlockIo, Results};
use cringle::fiber;
use cringle::fs::{Direct, File, OpenOptions, copy_range};
use cringle_testing::disk::*;
use fastrand::Rng;
use std::io::{self, ErrorKind, IoSlice, IoSliceMut, Read, Seek, SeekFrom, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;

/// Opens the file for both directions, or returns `None` where there is no direct I/O.
pub(super) fn open(path: &Path) -> Option<File> {
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).truncate(false).direct(Direct::Bounce);
    match options.open(path) {
        Ok(file) => Some(file),
        Err(e) => {
            assert!(e.to_string().contains("refuses O_DIRECT"), "{e}");
            eprintln!("skipped: {e}");
            None
        }
    }
}

/// A position, and bytes at an odd or even address.
struct Request {
    offset: usize,
    len: usize,
    misaligned: usize,
}

impl Request {
    /// Draws one near block boundaries or anywhere, small or large.
    fn draw(rng: &mut Rng, most: usize) -> Request {
        let block = [512, 4096][rng.usize(..2)];
        let near =
            |rng: &mut Rng| (rng.usize(..most / block) * block + rng.usize(..3)).saturating_sub(1);
        let offset = if rng.usize(..3) == 0 { rng.usize(..most) } else { near(rng) };
        let len = match rng.usize(..6) {
            0 => rng.usize(..20),
            1 => rng.usize(..3 * block),
            2 => (1 + rng.usize(..4)) * block,
            3 => near(rng).saturating_sub(offset % block),
            4 => rng.usize(..100_000),
            // More than the largest buffer of the pool.
            _ => 256 * 1024 + rng.usize(..100_000),
        };
        Request {
            offset,
            len: len.min(most - offset),
            misaligned: rng.usize(..2) * rng.usize(..600),
        }
    }
}

const MOST: usize = 600_000;

/// A file, and what it contains if each call does what a plain one does.
struct Model<'a> {
    file: &'a File,
    io: &'a BlockIo,
    bytes: Vec<u8>,
    rng: Rng,
    step: usize,
}

impl Model<'_> {
    /// Performs random requests, and compares each result with the model.
    fn check(&mut self, steps: usize) {
        self.file.set_len(0).unwrap();
        let mut memory = vec![0u8; MOST + 4096];
        // Half of the buffers begin at a page.
        let page = memory.as_ptr().addr().next_multiple_of(4096) - memory.as_ptr().addr();
        for step in 0..steps {
            self.step = step;
            let Request { offset, len, misaligned } = Request::draw(&mut self.rng, MOST);
            let what = format!("step {step}: {len} bytes at {offset}, address {misaligned}");
            let buf = &mut memory[page + misaligned..][..len];
            if self.rng.usize(..2) == 0 {
                let byte = 1 + (step % 250) as u8;
                buf.iter_mut().enumerate().for_each(|(n, b)| *b = byte.wrapping_add(n as u8));
                self.write(buf, offset, &what);
            } else {
                buf.fill(0xee);
                self.read(buf, offset, &what);
            }
        }
        let path = format!("/proc/self/fd/{}", self.file.as_raw_fd());
        assert!(std::fs::read(path).unwrap() == self.bytes, "the file as others read it");
    }

    fn submit(&self, batch: Batch<'_>) -> Results {
        if self.step.is_multiple_of(2) { batch.submit() } else { self.io.submit(batch).unwrap() }
    }

    fn write(&mut self, bytes: &[u8], offset: usize, what: &str) {
        let (mut file, at, len) = (self.file, offset as u64, bytes.len());
        match self.rng.usize(..4) {
            0 => file.write_all_at(bytes, at).unwrap(),
            1 => {
                file.seek(SeekFrom::Start(at)).unwrap();
                file.write_all(bytes).unwrap();
                assert_eq!(file.stream_position().unwrap(), at + len as u64, "{what}");
            }
            2 => {
                let (left, right) = bytes.split_at(self.rng.usize(..len + 1));
                let slices = [IoSlice::new(left), IoSlice::new(right)];
                let count = file.write_vectored_at(&slices, at).unwrap();
                assert!(count > 0 || len == 0, "{what}");
                file.write_all_at(&bytes[count..], at + count as u64).unwrap();
            }
            _ => {
                let mut batch = Batch::new();
                let id = batch.write_all(file, bytes, at);
                assert_eq!(self.submit(batch).get(id).unwrap(), len, "{what}");
            }
        }
        if len > 0 {
            self.bytes.resize(self.bytes.len().max(offset + len), 0);
            self.bytes[offset..][..len].copy_from_slice(bytes);
        }
        assert_eq!(file.metadata().unwrap().len(), self.bytes.len() as u64, "{what}");
    }

    fn read(&mut self, buf: &mut [u8], offset: usize, what: &str) {
        let (mut file, at, len) = (self.file, offset as u64, buf.len());
        let left = self.bytes.len().saturating_sub(offset).min(len);
        let count = match self.rng.usize(..4) {
            0 => file.read_at(buf, at).unwrap(),
            1 => {
                file.seek(SeekFrom::Start(at)).unwrap();
                let count = file.read(buf).unwrap();
                assert_eq!(file.stream_position().unwrap(), at + count as u64, "{what}");
                count
            }
            2 => {
                let (left, right) = buf.split_at_mut(self.rng.usize(..len + 1));
                let mut slices = [IoSliceMut::new(left), IoSliceMut::new(right)];
                let count = file.read_vectored_at(&mut slices, at).unwrap();
                count + file.read_at(&mut buf[count..], at + count as u64).unwrap()
            }
            _ => {
                let mut batch = Batch::new();
                let id = batch.read_exact(file, buf, at);
                match self.submit(batch).get(id) {
                    Ok(count) => count,
                    Err(e) => {
                        assert_eq!(e.kind(), ErrorKind::UnexpectedEof, "{what}: {e}");
                        return assert!(left < len, "{what}: {e}");
                    }
                }
            }
        };
        assert_eq!(count, left, "{what}");
        let expected = self.bytes.get(offset..).unwrap_or(&[]);
        assert!(buf[..count] == expected[..count], "{what}: other bytes");
        // In a direct read, the kernel fills the rest of the caller's memory with zeros.
        let rest = &buf[count..];
        assert!(rest.iter().all(|byte| [0, 0xee].contains(byte)), "{what}: bytes after the end");
    }
}

#[test]
fn any_request_returns_what_a_plain_one_returns() {
    let directory = directory();
    let Some(file) = open(&directory.path().join("file")) else { return };
    let io = BlockIo::builder().build().unwrap();
    let seed = std::cell::Cell::new(0);
    everywhere(|| {
        for _ in 0..3 {
            seed.set(seed.get() + 1);
            println!("seed {}", seed.get());
            let (bytes, rng) = (Vec::new(), Rng::with_seed(seed.get()));
            Model { file: &file, io: &io, bytes, rng, step: 0 }.check(120);
        }
    });
}

/// Bytes of one writer: of every block, and of each pair of blocks.
const WRITERS: usize = 24;
const STRIDE: usize = 1000;

/// Several fibers write parts of the same blocks, and others the blocks beside them, whole. Each
/// byte belongs to one writer.
#[test]
fn writes_that_share_a_block_lose_no_byte() {
    let directory = directory();
    let path = directory.path().join("file");
    let Some(first) = open(&path) else { return };
    let others: Vec<File> = (1..4).map(|_| open(&path).unwrap()).collect();
    let handle = |n: usize| if n.is_multiple_of(4) { &first } else { &others[n % 4 - 1] };
    let rounds = 12;
    let write = |writer: usize| {
        for round in 0..rounds {
            let bytes = vec![1 + writer as u8; STRIDE];
            let at = ((round * WRITERS + writer) * STRIDE) as u64;
            handle(writer + round).write_all_at(&bytes, at).unwrap();
        }
    };
    let way = |run: &dyn Fn()| {
        first.set_len(0).unwrap();
        run();
        let content = std::fs::read(&path).unwrap();
        assert_eq!(content.len(), rounds * WRITERS * STRIDE);
        for (n, chunk) in content.chunks(STRIDE).enumerate() {
            let writer = 1 + (n % WRITERS) as u8;
            assert!(chunk.iter().all(|&byte| byte == writer), "bytes of write {n} are lost");
        }
    };
    way(&|| {
        cringle::Builder::new()
            .workers(2)
            .run(|| fiber::scope(|s| (0..WRITERS).for_each(|n| drop(s.spawn(move || write(n))))))
            .unwrap()
    });
    way(&|| {
        std::thread::scope(|s| (0..WRITERS).for_each(|n| drop(s.spawn(move || write(n)))));
    });
    // A batch, whose writes run at the same time.
    way(&|| {
        in_company(|| {
            for round in 0..rounds {
                let bytes: Vec<_> = (0..WRITERS).map(|n| vec![1 + n as u8; STRIDE]).collect();
                let mut batch = Batch::new();
                for (n, bytes) in bytes.iter().enumerate() {
                    let at = ((round * WRITERS + n) * STRIDE) as u64;
                    batch.write_all(handle(n), bytes, at);
                }
                batch.submit().into_iter().for_each(|count| assert_eq!(count.unwrap(), STRIDE));
            }
        });
    });
}

/// Whole blocks are written while a part of each is: the part's writer must not restore the rest.
#[test]
fn write_of_a_part_restores_no_old_bytes() {
    let directory = directory();
    let Some(file) = open(&directory.path().join("file")) else { return };
    let blocks = 64;
    for round in 0..4u8 {
        file.write_all_at(&vec![0xff; blocks * 4096], 0).unwrap();
        cringle::run(|| {
            fiber::scope(|s| {
                for block in 0..blocks as u64 {
                    let file = &file;
                    s.spawn(move || file.write_all_at(&[round; 4096], block * 4096).unwrap());
                    s.spawn(move || file.write_all_at(&[round; 10], block * 4096 + 100).unwrap());
                }
            });
        });
        let mut content = vec![0; blocks * 4096];
        file.read_exact_at(&mut content, 0).unwrap();
        let old = content.iter().position(|&byte| byte != round);
        assert_eq!(old, None, "an old byte came back");
    }
}

#[test]
fn length_is_exact_while_others_extend_the_file() {
    let directory = directory();
    let path = directory.path().join("file");
    let Some(file) = open(&path) else { return };
    let ends = [1, 511, 513, 4097, 10_000, 70_001, 70_002, 300_000];
    cringle::run(|| {
        fiber::scope(|s| {
            for end in ends {
                let (file, path) = (&file, &path);
                s.spawn(move || {
                    file.write_all_at(&[7], end - 1).unwrap();
                    let len = cringle::fs::metadata(path).unwrap().len();
                    assert!(len >= end && ends.contains(&len), "the length is {len}");
                });
            }
        });
        assert_eq!(file.metadata().unwrap().len(), 300_000);
        file.set_len(70_001).unwrap();
    });
    let content = std::fs::read(&path).unwrap();
    let written: Vec<u64> = (1..).zip(&content).filter(|p| *p.1 == 7).map(|p| p.0).collect();
    assert_eq!((content.len(), &written[..]), (70_001, &ends[..6]));
}

/// A block is beyond the end of the file when it is read, and within it a moment later.
#[test]
fn last_bytes_of_blocks_beyond_the_end_are_written_side_by_side() {
    let directory = directory();
    let Some(file) = open(&directory.path().join("file")) else { return };
    let blocks = 300;
    for round in 1..20 {
        file.set_len(0).unwrap();
        let run = cringle::Builder::new().workers(2).run(|| {
            fiber::scope(|s| {
                for block in 1..=blocks {
                    let file = &file;
                    s.spawn(move || file.write_all_at(&[round; 100], block * 4096 - 100).unwrap());
                }
            });
        });
        run.unwrap();
        let mut content = vec![9; blocks as usize * 4096];
        file.read_exact_at(&mut content, 0).unwrap();
        let expected = |at: usize| if at % 4096 < 3996 { 0 } else { round };
        assert!(content.iter().enumerate().all(|(at, &byte)| byte == expected(at)));
    }
}

/// Opening a file may empty it while a part of a block is written: the writer must not restore the
/// rest of the block, nor make the file longer than its own end.
#[test]
fn file_that_is_emptied_by_an_open_keeps_no_old_bytes() {
    let directory = directory();
    let path = directory.path().join("file");
    let Some(file) = open(&path) else { return };
    let mut options = OpenOptions::new();
    let options = options.write(true).direct(Direct::Bounce);
    let ways =
        [options.clone().truncate(true).clone(), options.custom_flags(libc::O_TRUNC).clone()];
    for round in 0..200 {
        file.write_all_at(&[7; 16_384], 0).unwrap();
        let run = cringle::Builder::new().workers(2).run(|| {
            fiber::scope(|s| {
                s.spawn(|| file.write_all_at(&[1; 100], 300).unwrap());
                s.spawn(|| drop(ways[round % 2].open(&path).unwrap()));
            });
        });
        run.unwrap();
        let content = std::fs::read(&path).unwrap();
        let is_old = content.contains(&7) || ![0, 400].contains(&content.len());
        assert!(!is_old, "round {round}: {} bytes, {:?}", content.len(), content.first());
    }
}

/// Whole blocks are not within the kernel's offsets, where the request is.
#[test]
fn requests_near_the_largest_offset_are_those_of_a_plain_file() {
    let directory = directory();
    let path = directory.path().join("file");
    let Some(file) = open(&path) else { return };
    let plain = std::fs::OpenOptions::new().read(true).write(true).open(&path).unwrap();
    let largest = i64::MAX as u64;
    let outcome = |result: io::Result<usize>| result.map_err(|e| e.raw_os_error());
    everywhere(|| {
        for back in [0, 1, 5, 511, 4095, 4096, 5000] {
            for len in [0, 1, 5, 511, 512, 4096] {
                let (mut bytes, offset) = (vec![0; len], largest - back);
                let expected = outcome(plain.read_at(&mut bytes, offset));
                let what = format!("{len} bytes at the largest offset - {back}");
                assert_eq!(outcome(file.read_at(&mut bytes, offset)), expected, "read {what}");
                if (len as u64) > back {
                    let expected = outcome(plain.write_at(&bytes, offset));
                    assert_eq!(outcome(file.write_at(&bytes, offset)), expected, "write {what}");
                }
            }
        }
    });
}

/// The kernel takes 1,024 slices by one call, and leaves the others to the next.
#[test]
fn vectored_call_takes_as_many_slices_as_the_kernel() {
    let directory = directory();
    let path = directory.path().join("file");
    let Some(file) = open(&path) else { return };
    let taken = 1024 * 3;
    everywhere(|| {
        file.set_len(0).unwrap();
        (&file).seek(SeekFrom::Start(0)).unwrap();
        let slices = vec![IoSlice::new(b"abc"); 1100];
        for end in [taken, 2 * taken] {
            assert_eq!((&file).write_vectored(&slices).unwrap(), taken);
            assert_eq!((&file).stream_position().unwrap(), end as u64);
        }
        assert_eq!(file.write_vectored_at(&slices, 0).unwrap(), taken);
        (&file).seek(SeekFrom::Start(0)).unwrap();
        let mut bytes = vec![0; 1100 * 3];
        let mut slices: Vec<_> = bytes.chunks_mut(3).map(IoSliceMut::new).collect();
        assert_eq!((&file).read_vectored(&mut slices).unwrap(), taken);
        assert_eq!((&file).stream_position().unwrap(), taken as u64);
        assert_eq!(file.read_vectored_at(&mut slices, 0).unwrap(), taken);
        assert_eq!(bytes, [b"abc".repeat(1024), vec![0; 76 * 3]].concat());
    });
}

#[test]
fn access_is_what_was_asked_for() {
    let directory = directory();
    let path = directory.path().join("file");
    let Some(_) = open(&path) else { return };
    let mut options = OpenOptions::new();
    let file = options.write(true).direct(Direct::Bounce).open(&path).unwrap();
    let reader = OpenOptions::new().read(true).direct(Direct::Bounce).open(&path).unwrap();
    let aligned = OpenOptions::new().read(true).direct(Direct::Aligned).open(&path).unwrap();
    let clone = file.try_clone().unwrap();
    let refuses_misaligned = refuses_misaligned_reads();
    let bad_descriptor = |result: io::Result<usize>, what: &str| {
        assert_eq!(result.unwrap_err().raw_os_error(), Some(libc::EBADF), "{what}");
    };
    everywhere(|| {
        file.write_all_at(b"rope", 3).unwrap();
        clone.write_all_at(b"strands", 20_001).unwrap();
        bad_descriptor(file.read_at(&mut [0; 7], 1), "read_at");
        bad_descriptor((&file).read(&mut [0; 7]), "read");
        bad_descriptor(clone.read_vectored_at(&mut [IoSliceMut::new(&mut [0; 7])], 0), "vectored");
        let mut buf = [0; 7];
        let mut batch = Batch::new();
        let id = batch.read(&file, &mut buf, 1);
        bad_descriptor(batch.submit().get(id), "a batch's read");
        bad_descriptor(reader.write_at(b"rope", 3), "write_at");
        let mut strands = [0; 7];
        reader.read_exact_at(&mut strands, 20_001).unwrap();
        assert_eq!(&strands, b"strands");
        let misaligned = aligned.read_at(&mut [0; 7], 1).map_err(|e| e.kind());
        assert!(!refuses_misaligned || misaligned == Err(ErrorKind::InvalidInput));
        assert_eq!(reader.read_at(&mut buf, 1 << 63).unwrap_err().kind(), ErrorKind::InvalidInput);
        assert_eq!(file.write_at(&buf, 1 << 63).unwrap_err().kind(), ErrorKind::InvalidInput);
    });
}

#[test]
fn copy_range_copies_any_bytes() {
    const LEN: usize = 300_000;
    let directory = directory();
    let bytes = pattern(LEN);
    let path = |name: &str| directory.path().join(name);
    std::fs::write(path("from"), &bytes).unwrap();
    std::fs::write(path("to"), vec![7; LEN]).unwrap();
    let (Some(from), Some(to)) = (open(&path("from")), open(&path("to"))) else { return };
    everywhere(|| {
        let mut expected = std::fs::read(path("to")).unwrap();
        for (source, target, len) in [(0, 0, LEN), (5, 4096, 10_000), (8192, 3, 4096)] {
            let mut done = 0;
            while done < len {
                let (at, left) = (source + done as u64, len - done);
                let count = copy_range(&from, at, &to, target + done as u64, left).unwrap();
                assert!(count > 0);
                done += count;
            }
            expected[target as usize..][..len].copy_from_slice(&bytes[source as usize..][..len]);
            assert!(std::fs::read(path("to")).unwrap() == expected);
        }
        assert_eq!(copy_range(&from, LEN as u64, &to, 1, 10).unwrap(), 0);
        let overlap = copy_range(&from, 1, &from, 2, 10).unwrap_err();
        assert_eq!(overlap.raw_os_error(), Some(libc::EINVAL));
    });
}
