//! Mapped files: reads return what those of a `File` return, whatever is in memory or changes.

use cringle::block::{Batch, BlockIo, MappedFile, SigbusHandler, Unmapped};
use cringle::fs::{File, OpenOptions};
use cringle::{fiber, runtime, sim};
use cringle_testing::disk::{
    self, directory, essence, everywhere, in_company, make_cold, pattern, solitary,
};
use fastrand::Rng;
use std::cell::Cell;
use std::io::{self, ErrorKind};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::process::Command;

const PAGE: u64 = 4096;

fn map(path: &Path) -> MappedFile {
    let file = OpenOptions::new().read(true).write(true).open(path).unwrap();
    MappedFile::new(file, SigbusHandler::install().unwrap()).unwrap()
}

/// Creates a file, whose pages are in memory then.
fn file_of(bytes: &[u8]) -> (tempfile::TempDir, PathBuf) {
    let directory = directory();
    let path = directory.path().join("file");
    std::fs::write(&path, bytes).unwrap();
    (directory, path)
}

fn mapped_copies() -> u64 {
    runtime::stats().unwrap().total().mapped_copies
}

/// Repeats `f` until it was called directly after a look at pages that are in memory. On a busy
/// machine that may take many attempts: a look is used for a limited time.
fn with_resident_pages(file: &MappedFile, bytes: u64, mut f: impl FnMut() -> bool) {
    loop {
        file.refresh();
        if file.resident_bytes() >= bytes && f() {
            return;
        }
    }
}

#[test]
fn results_equal_those_of_a_file() {
    // Neither the end nor the zeros are at the edge of a page.
    let mut bytes = pattern(70 * PAGE as usize + 1234);
    bytes[20_000..50_000].fill(0);
    let end = bytes.len();
    bytes[end - 700..].fill(0);
    let (_directory, path) = file_of(&bytes);
    everywhere(|| {
        let (file, mapped) = (File::open(&path).unwrap(), map(&path));
        assert_eq!(mapped.unmapped(), None);
        let mut rng = Rng::with_seed(1);
        for round in 0..3 {
            mapped.refresh();
            for _ in 0..300 {
                let len = rng.usize(..[1, 200, 5000, 300_000][round.max(1)]);
                let offset = rng.u64(..end as u64 + 2 * PAGE);
                let (mut own, mut its) = (vec![1; len], vec![1; len]);
                let count = mapped.read_at(&mut own, offset).unwrap();
                assert_eq!(count, file.read_at(&mut its, offset).unwrap(), "{len} at {offset}");
                assert_eq!(own, its, "{len} at {offset}");
            }
        }
        for offset in [end as u64, u64::MAX / 2, i64::MAX as u64, i64::MAX as u64 + 1, u64::MAX] {
            let outcome = |result: io::Result<usize>| result.map_err(|e| essence(&e));
            let own = outcome(mapped.read_at(&mut [0; 9], offset));
            assert_eq!(own, outcome(file.read_at(&mut [0; 9], offset)), "{offset}");
            let (mut first, mut second) = ([0; 9], [0; 9]);
            let mut batch = Batch::new();
            batch.read_mapped(&mapped, &mut first, offset);
            batch.read(&file, &mut second, offset);
            let results: Vec<_> = batch.submit().into_iter().map(outcome).collect();
            assert_eq!(results[0], results[1], "{offset}");
        }
    });
}

#[test]
fn a_batch_mixes_copies_and_operations() {
    let bytes = pattern(64 * PAGE as usize + 100);
    let (_directory, path) = file_of(&bytes);
    std::fs::write(path.with_extension("other"), &bytes[1..]).unwrap();
    everywhere(|| {
        let (mapped, other) = (map(&path), File::open(path.with_extension("other")).unwrap());
        let offset = |n: u64| n * 997 % (bytes.len() as u64 + 1000);
        let mut spare = Batch::new();
        for round in 0..4 {
            mapped.refresh();
            let mut bufs: Vec<Vec<u8>> = (0..400).map(|n| vec![0; n * 7]).collect();
            let mut batch = spare;
            for (n, buf) in (0u64..).zip(&mut bufs) {
                match n % 3 {
                    0 => batch.read_mapped(&mapped, buf, offset(n)),
                    1 => batch.read(&other, buf, offset(n)),
                    _ => batch.read_exact_mapped(&mapped, buf, offset(n)),
                };
            }
            let results = batch.submit();
            for (n, buf) in bufs.iter().enumerate() {
                let shift = usize::from(n % 3 == 1);
                let rest = bytes.get(offset(n as u64) as usize + shift..).unwrap_or_default();
                let whole = &rest[..buf.len().min(rest.len())];
                match results.iter().nth(n).unwrap() {
                    Ok(count) => assert_eq!((count, &buf[..count]), (whole.len(), whole), "{n}"),
                    Err(e) => {
                        assert_eq!((n % 3, e.kind()), (2, ErrorKind::UnexpectedEof), "{n}: {e}");
                        assert!(whole.len() < buf.len(), "{n} in round {round}");
                    }
                }
            }
            spare = results.recycle();
        }
    });
}

#[test]
fn resident_pages_are_copied_without_the_ring() {
    let bytes = pattern(256 * PAGE as usize);
    let (_directory, path) = file_of(&bytes);
    in_company(|| {
        let mapped = map(&path);
        with_resident_pages(&mapped, bytes.len() as u64, || {
            let (mut pages, before) = (vec![0; bytes.len()], mapped_copies());
            let mut batch = Batch::new();
            for (page, offset) in pages.chunks_mut(PAGE as usize).zip((0..).step_by(PAGE as usize))
            {
                batch.read_mapped(&mapped, page, offset);
            }
            assert!(batch.submit().iter().all(|count| matches!(count, Ok(4096))));
            let copied = mapped_copies() - before;
            assert!(pages == bytes);
            copied == 256
        });
        with_resident_pages(&mapped, bytes.len() as u64, || {
            // Among other fibers, a read of a `File` goes to the ring.
            let before = mapped_copies();
            mapped.read_exact_at(&mut [0; 100], 5000).unwrap();
            mapped_copies() == before + 1
        });
    });
}

#[test]
fn pages_read_by_the_ring_are_copied_later() {
    let bytes = pattern(64 * PAGE as usize);
    let (_directory, path) = file_of(&bytes);
    make_cold(&File::open(&path).unwrap());
    if disk::is_in_memory() {
        return eprintln!("skipped: the pages of a file are always in memory here");
    }
    in_company(|| {
        let mapped = map(&path);
        mapped.refresh();
        let (cold, before) = (mapped.resident_bytes() == 0, mapped_copies());
        mapped.read_exact_at(&mut [0; 100], 50 * PAGE).unwrap();
        assert!(cold && mapped_copies() == before);
        let mut half = vec![0; 32 * PAGE as usize];
        // Each read that is not copied makes a look due, sooner or later.
        loop {
            let before = mapped_copies();
            mapped.read_exact_at(&mut half, 7 * PAGE).unwrap();
            assert!(half == bytes[7 * PAGE as usize..39 * PAGE as usize]);
            if mapped_copies() > before {
                return;
            }
            fiber::sleep(std::time::Duration::from_millis(1));
        }
    });
}

/// Asks the kernel to evict the pages of a file from its mapping in this process, as it does if
/// memory runs short.
fn evict(path: &Path) {
    const MADV_PAGEOUT: i32 = 21;
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    let line = maps.lines().find(|line| line.ends_with(path.to_str().unwrap())).unwrap();
    let (from, to) = line.split_once(' ').unwrap().0.split_once('-').unwrap();
    let [from, to] = [from, to].map(|text| usize::from_str_radix(text, 16).unwrap());
    // SAFETY: the advice changes no memory: the pages of the mapping are read again when needed.
    assert_eq!(unsafe { libc::madvise(from as *mut _, to - from, MADV_PAGEOUT) }, 0);
}

#[test]
fn evicted_pages_are_read_again() {
    let bytes = pattern(256 * PAGE as usize);
    let (_directory, path) = file_of(&bytes);
    std::fs::File::open(&path).unwrap().sync_all().unwrap();
    if disk::is_in_memory() {
        return eprintln!("skipped: without swap, the pages of a file are always in memory here");
    }
    in_company(|| {
        let mapped = map(&path);
        with_resident_pages(&mapped, bytes.len() as u64, || {
            evict(&path);
            // What is known of the pages is not true any more.
            let mut all = vec![0; bytes.len()];
            mapped.read_exact_at(&mut all, 0).unwrap();
            assert!(all == bytes);
            evict(&path);
            mapped.refresh();
            // Reading ahead may have brought some back.
            mapped.resident_bytes() < bytes.len() as u64
        });
    });
}

/// Another process sets the length of a file.
fn truncate(path: &Path, len: u64) {
    let status = Command::new("truncate").arg(format!("--size={len}")).arg(path).status().unwrap();
    assert!(status.success());
}

#[test]
fn truncation_by_another_process_is_an_end_of_file() {
    let bytes = pattern(64 * PAGE as usize);
    let check = || {
        let (_directory, path) = file_of(&bytes);
        let mapped = map(&path);
        mapped.refresh();
        // Within a page: the kernel sets the rest of it to 0.
        truncate(&path, 10 * PAGE + 100);
        let mut page = [1; PAGE as usize];
        assert_eq!(mapped.read_at(&mut page, 10 * PAGE).unwrap(), 100);
        assert_eq!(page[..100], bytes[10 * PAGE as usize..][..100]);
        assert_eq!(mapped.read_at(&mut page[..50], 10 * PAGE + 80).unwrap(), 20);
        // Beyond its last page: an access raises SIGBUS.
        assert_eq!(mapped.read_at(&mut page, 20 * PAGE).unwrap(), 0);
        let e = mapped.read_exact_at(&mut page, 20 * PAGE).unwrap_err();
        assert_eq!(e.kind(), ErrorKind::UnexpectedEof);
        let mut bufs = vec![vec![1; PAGE as usize]; 64];
        let mut batch = Batch::new();
        for (buf, offset) in bufs.iter_mut().zip((0..).step_by(PAGE as usize)) {
            batch.read_mapped(&mapped, buf, offset);
        }
        let counts: Vec<usize> = batch.submit().into_iter().map(Result::unwrap).collect();
        let expected = (0..64).map(|n| {
            if n < 10 {
                4096
            } else if n == 10 {
                100
            } else {
                0
            }
        });
        assert!(counts.iter().copied().eq(expected), "{counts:?}");
        assert!(bufs[..10].concat() == bytes[..10 * PAGE as usize]);
        // What the file has lost is 0 when it grows again.
        truncate(&path, 64 * PAGE);
        assert_eq!(mapped.read_at(&mut page, 10 * PAGE).unwrap(), 4096);
        assert!(page[..100] == bytes[10 * PAGE as usize..][..100]);
        assert!(page[100..].iter().all(|&byte| byte == 0));
    };
    for way in [solitary, in_company] {
        way(check);
    }
}

#[test]
fn truncation_during_reads_shortens_them() {
    let bytes: Vec<u8> = pattern(256 * PAGE as usize).iter().map(|byte| byte | 1).collect();
    let (_directory, path) = file_of(&bytes);
    let script = "while :; do truncate -s 9000 \"$0\"; truncate -s 1M \"$0\"; done";
    let _other = Killed(Command::new("sh").args(["-c", script]).arg(&path).spawn().unwrap());
    in_company(|| {
        let mapped = map(&path);
        let mut rng = Rng::with_seed(1);
        for round in 0..50 {
            // The pages come back into memory.
            mapped.file().write_all_at(&bytes, 0).unwrap();
            mapped.refresh();
            for _ in 0..200 {
                let offset = rng.u64(..bytes.len() as u64);
                let mut buf = vec![7; rng.usize(..20_000)];
                let count = mapped.read_at(&mut buf, offset).unwrap();
                let expected = &bytes[offset as usize..];
                let is_right = |(read, byte): (&u8, &u8)| read == byte || *read == 0;
                assert!(buf[..count].iter().zip(expected).all(is_right), "round {round}");
                assert!(count <= expected.len());
            }
        }
    });
}

/// A process that is killed at the end of its test.
struct Killed(std::process::Child);

impl Drop for Killed {
    fn drop(&mut self) {
        self.0.kill().and_then(|()| self.0.wait()).unwrap();
    }
}

#[test]
fn bytes_stored_beyond_the_end_are_not_read() {
    let bytes: Vec<u8> = pattern(63 * PAGE as usize + 100).iter().map(|byte| byte | 1).collect();
    let (_directory, path) = file_of(&bytes);
    let file = std::fs::OpenOptions::new().read(true).write(true).open(&path).unwrap();
    let protection = libc::PROT_READ | libc::PROT_WRITE;
    // SAFETY: a new mapping of the last page, which is written within the page.
    unsafe {
        let (fd, offset) = (std::os::fd::AsRawFd::as_raw_fd(&file), 63 * PAGE as i64);
        let start = std::ptr::null_mut();
        let last = libc::mmap(start, PAGE as usize, protection, libc::MAP_SHARED, fd, offset);
        assert_ne!(last, libc::MAP_FAILED);
        last.cast::<u8>().add(100).write_bytes(7, PAGE as usize - 100);
    }
    in_company(|| {
        let mapped = map(&path);
        with_resident_pages(&mapped, 63 * PAGE, || {
            let (mut buf, before) = (vec![0; 2 * PAGE as usize], mapped_copies());
            assert_eq!(mapped.read_at(&mut buf, 62 * PAGE).unwrap(), PAGE as usize + 100);
            assert_eq!(mapped.read_at(&mut buf[..PAGE as usize], 63 * PAGE).unwrap(), 100);
            mapped.read_exact_at(&mut buf[..100], 62 * PAGE).unwrap();
            mapped_copies() == before + 1
        });
    });
}

#[test]
fn a_file_that_grows_is_read_to_its_end() {
    let bytes = pattern(100 * PAGE as usize);
    let (_directory, path) = file_of(&bytes[..10_000]);
    in_company(|| {
        let mapped = map(&path);
        mapped.refresh();
        mapped.write_all_at(&bytes[10_000..], 10_000).unwrap();
        mapped.refresh();
        assert!(mapped.resident_bytes() <= 3 * PAGE);
        let mut all = vec![0; bytes.len()];
        mapped.read_exact_at(&mut all, 0).unwrap();
        assert!(all == bytes);
        assert_eq!(mapped.read_at(&mut [0; 9], bytes.len() as u64).unwrap(), 0);
    });
}

#[test]
fn writes_are_seen_by_the_next_read() {
    let bytes = pattern(64 * PAGE as usize);
    let (_directory, path) = file_of(&bytes);
    in_company(|| {
        let (mapped, file) = (map(&path), OpenOptions::new().write(true).open(&path).unwrap());
        for n in 0..200u8 {
            if n % 50 == 0 {
                mapped.refresh();
            }
            let offset = u64::from(n) * 1000;
            file.write_all_at(&[n; 900], offset).unwrap();
            let mut buf = [0; 900];
            mapped.read_exact_at(&mut buf, offset).unwrap();
            assert_eq!(buf, [n; 900]);
        }
    });
}

#[test]
fn copies_let_other_fibers_run() {
    let (_directory, path) = file_of(&pattern(64 * PAGE as usize));
    solitary(|| {
        let mapped = map(&path);
        let (turns, mut copies) = (Cell::new(0), 0);
        fiber::scope(|s| {
            s.spawn_daemon_local(|| {
                loop {
                    turns.set(turns.get() + 1);
                    fiber::yield_now();
                }
            });
            with_resident_pages(&mapped, 64 * PAGE, || {
                let (begin, before) = (turns.get(), mapped_copies());
                let mut page = [0; PAGE as usize];
                for n in 0..1000 {
                    mapped.read_exact_at(&mut page, n % 64 * PAGE).unwrap();
                }
                copies = mapped_copies() - before;
                assert!(turns.get() - begin >= 5, "{} turns", turns.get() - begin);
                let (begin, mut pages) = (turns.get(), vec![0; 1000 * PAGE as usize]);
                let mut batch = Batch::new();
                for (n, page) in (0u64..).zip(pages.chunks_mut(PAGE as usize)) {
                    batch.read_mapped(&mapped, page, n % 64 * PAGE);
                }
                assert!(batch.submit().iter().all(|count| matches!(count, Ok(4096))));
                assert!(turns.get() - begin >= 5, "{} turns", turns.get() - begin);
                copies == 1000
            });
        });
    });
}

#[test]
fn a_cancelled_fiber_copies_nothing() {
    let (_directory, path) = file_of(&pattern(64 * PAGE as usize));
    in_company(|| {
        let (mapped, ended) = (map(&path), Cell::new(false));
        mapped.refresh();
        fiber::scope(|s| {
            let reader = s.spawn_local(|| {
                let mut page = [0; PAGE as usize];
                let e = mapped.read_at(&mut page, 0).unwrap_err();
                assert!(cringle::cancel::reason(&e).is_some(), "{e}");
                let mut batch = Batch::new();
                let read = batch.read_mapped(&mapped, &mut page, 0);
                let e = batch.submit().get(read).unwrap_err();
                assert!(cringle::cancel::reason(&e).is_some(), "{e}");
                assert_eq!(page, [0; PAGE as usize]);
                ended.set(true);
            });
            s.cancel();
            drop(reader);
        });
        assert!(ended.get());
    });
}

#[test]
fn a_batch_of_mapped_reads_goes_to_a_block_io() {
    let bytes = pattern(64 * PAGE as usize);
    let (_directory, path) = file_of(&bytes);
    let (io, mapped) = (BlockIo::builder().build().unwrap(), map(&path));
    mapped.refresh();
    let mut pages = vec![0; bytes.len()];
    let mut batch = Batch::new();
    for (page, offset) in pages.chunks_mut(PAGE as usize).zip((0..).step_by(PAGE as usize)) {
        batch.read_mapped(&mapped, page, offset);
    }
    assert!(io.submit(batch).unwrap().iter().all(|count| matches!(count, Ok(4096))));
    assert!(pages == bytes);
}

#[test]
fn a_run_leaves_no_mapping_of_a_dropped_file() {
    let (_directory, path) = file_of(&pattern(64 * PAGE as usize));
    let is_mapped = || {
        let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
        maps.contains(path.to_str().unwrap())
    };
    solitary(|| {
        let mapped = map(&path);
        assert!(is_mapped());
        mapped.read_exact_at(&mut [0; 9], 0).unwrap();
    });
    assert!(!is_mapped());
    drop(map(&path));
    assert!(!is_mapped());
}

#[test]
fn files_that_cannot_be_mapped_are_read_by_the_driver() {
    let (_directory, path) = file_of(&[]);
    let empty = map(&path);
    assert_eq!(empty.unmapped(), Some(Unmapped::Empty));
    assert_eq!(empty.read_at(&mut [0; 9], 0).unwrap(), 0);
    empty.write_all_at(&[7; 9000], 0).unwrap();
    let mut bytes = [0; 9000];
    empty.read_exact_at(&mut bytes, 0).unwrap();
    assert_eq!((bytes, empty.resident_bytes()), ([7; 9000], 0));

    let handler = SigbusHandler::install().unwrap();
    let proc = MappedFile::new(File::open("/proc/self/stat").unwrap(), handler).unwrap();
    assert_eq!(proc.unmapped(), Some(Unmapped::FileSystem));
    assert!(proc.read_at(&mut [0; 9], 0).unwrap() > 0);
    proc.refresh();
}

#[test]
fn a_simulation_performs_each_read() {
    let handler = SigbusHandler::install().unwrap();
    let run = sim::run(1, &sim::Options::new(), move || {
        let file = OpenOptions::new().read(true).write(true).create(true).open("/file").unwrap();
        file.write_all_at(&[7; 9000], 0).unwrap();
        let mapped = MappedFile::new(file, handler).unwrap();
        assert_eq!(mapped.unmapped(), Some(Unmapped::Simulation));
        mapped.refresh();
        let mut bytes = [0; 9000];
        mapped.read_exact_at(&mut bytes, 0).unwrap();
        assert_eq!(bytes, [7; 9000]);
    });
    run.unwrap();
}

#[test]
fn mapping_the_wrong_file_is_refused() {
    let (_directory, path) = file_of(&[7; 4096]);
    let handler = SigbusHandler::install().unwrap();
    let refused = |file: io::Result<File>, word: &str| {
        let e = MappedFile::new(file.unwrap(), handler).unwrap_err();
        assert!(e.kind() == ErrorKind::InvalidInput && e.to_string().contains(word), "{e}");
    };
    refused(File::open(path.parent().unwrap()), "regular");
    refused(File::open("/dev/null"), "regular");
    refused(OpenOptions::new().write(true).open(&path), "writing only");
    match OpenOptions::new().read(true).custom_flags(libc::O_DIRECT).open(&path) {
        Err(e) if e.kind() == ErrorKind::InvalidInput => {} // A file system without O_DIRECT.
        file => refused(file, "O_DIRECT"),
    }
}
