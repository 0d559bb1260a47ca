//! A disk that returns EIO: a loop device on a file of a FUSE file system. No acknowledged byte is
//! lost, whichever call has acknowledged it. (A loop device on a full tmpfs does not do: its
//! `fsync` may return 0 for bytes that it has lost.)

mod disk;
mod full;
mod holes;
mod log;

use cringle::block::{AlignedBuf, Batch, BlockIo, FixedBufs, FixedFile};
use cringle::fs::{Direct, File, OpenOptions, WriteFlags, copy_range};
use cringle::{Builder, fiber};
use cringle_testing::fuse::MARK;
use disk::Disk;
use std::io::{self, IoSlice, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::sync::Mutex;

const PAGE: usize = 4096;
const PAGES: u64 = 32;
const ROUNDS: u64 = 8;

/// A write of one page, which is durable when it returns.
type Call<'c> = &'c (dyn Fn(&File, &[u8], u64) -> io::Result<()> + Sync);

/// Returns the content of a page, which the disk recognises.
fn page(number: u64, round: u64) -> AlignedBuf {
    let mut page = AlignedBuf::new(PAGE);
    page.fill((number * 31 + round) as u8);
    page[..16].copy_from_slice(&MARK);
    page[16..24].copy_from_slice(&number.to_le_bytes());
    page
}

/// Returns what the disk has of a file.
fn on_disk(path: &Path) -> Vec<u8> {
    let file = File::open(path).unwrap();
    // Pages that could not be written are clean. A failure of the last direct write is reported to
    // the next handle, too.
    drop(file.sync_all());
    file.advise(cringle::fs::Advice::DontNeed, 0, 0).unwrap();
    std::fs::read(path).unwrap()
}

/// Whether writes after a failure may succeed: the kernel has nothing in memory of a direct write.
fn may_recover(file: &File) -> bool {
    // SAFETY: no pointers.
    let flags = unsafe { libc::fcntl(file.as_raw_fd(), libc::F_GETFL) };
    flags & (libc::O_DIRECT | libc::O_DSYNC) == libc::O_DIRECT
}

/// Makes a file whose blocks exist, so that only data is written.
fn make_blocks(path: &Path) {
    std::fs::write(path, vec![0; PAGE * PAGES as usize]).unwrap();
    std::fs::File::open(path).unwrap().sync_all().unwrap();
}

/// Writes the pages of a file while the disk fails, and checks those that were acknowledged.
/// `write_all` returns their numbers.
fn check(
    disk: &Disk,
    name: &str,
    options: &OpenOptions,
    write_all: impl Fn(&File, u64) -> Vec<u64>,
) {
    let path = disk.path("file");
    make_blocks(&path);
    check_from(disk, name, options, |_| (), write_all);
}

/// [`check`] of a file that is made anew in each round.
fn check_from(
    disk: &Disk,
    name: &str,
    options: &OpenOptions,
    make: impl Fn(&Path),
    write_all: impl Fn(&File, u64) -> Vec<u64>,
) {
    let path = disk.path("file");
    let before = disk.failures();
    for round in 1..=ROUNDS {
        make(&path);
        let file = options.open(&path).unwrap();
        disk.fail(if round % 2 == 0 { 100 } else { 15 });
        let acknowledged = write_all(&file, round);
        disk.fail(0);
        if round % 2 == 0 && !may_recover(&file) {
            let later = write_all(&file, round);
            assert!(later.is_empty(), "{name}: {later:?} after a failure");
        }
        drop(file);
        let bytes = on_disk(&path);
        for number in acknowledged {
            let there = &bytes[number as usize * PAGE..][..PAGE];
            assert!(there == &*page(number, round), "{name}: page {number} is lost");
        }
    }
    assert!(disk.failures() > before, "{name}: the disk has not failed");
}

/// Makes a call for each page, at the same time, and returns the pages of those that succeeded.
fn at_once(file: &File, round: u64, call: Call<'_>) -> Vec<u64> {
    let acknowledged = Mutex::new(Vec::new());
    let write = |number: u64| {
        if call(file, &page(number, round), number * PAGE as u64).is_ok() {
            acknowledged.lock().unwrap().push(number);
        }
    };
    let write = &write;
    if round % 4 < 2 {
        std::thread::scope(|s| (0..PAGES).for_each(|n| drop(s.spawn(move || write(n)))));
    } else {
        let run = Builder::new().workers(2).run(|| {
            fiber::scope(|s| (0..PAGES).for_each(|n| drop(s.spawn(move || write(n)))));
        });
        run.unwrap();
    }
    acknowledged.into_inner().unwrap()
}

fn opened(flags: i32) -> OpenOptions {
    let mut options = OpenOptions::new();
    options.read(true).write(true).custom_flags(flags);
    options
}

#[test]
fn write_of_a_handle_with_dsync_is_durable() {
    let calls: [(&str, Call<'_>); 4] = [
        ("write_at", &|file, page, at| file.write_all_at(page, at)),
        ("write_vectored_at", &|file, page, at| {
            let (begin, end) = page.split_at(100);
            file.write_vectored_at(&[IoSlice::new(begin), IoSlice::new(end)], at).map(drop)
        }),
        ("write_at_with", &|file, page, at| {
            file.write_at_with(page, at, WriteFlags::DSYNC).map(drop)
        }),
        ("a batch", &|file, page, at| {
            let mut batch = Batch::new();
            let write = batch.write_all(file, page, at);
            batch.submit().get(write).map(drop)
        }),
    ];
    Disk::of_each_kind(|kind, disk| {
        for flags in [libc::O_DSYNC, libc::O_SYNC, libc::O_DSYNC | libc::O_DIRECT] {
            for (name, call) in calls {
                if flags & libc::O_DIRECT != 0 && name == "write_vectored_at" {
                    continue;
                }
                let write_all = |file: &File, round| at_once(file, round, call);
                check(disk, &format!("{kind}, {name}, {flags:o}"), &opened(flags), write_all);
            }
        }
    });
}

/// Writes all pages by one batch, and returns those that were acknowledged.
fn by_batch(file: &File, round: u64) -> Vec<u64> {
    let pages: Vec<_> = (0..PAGES).map(|number| page(number, round)).collect();
    cringle::run(|| {
        let mut batch = Batch::new();
        for (page, at) in pages.iter().zip((0..).step_by(PAGE)) {
            batch.write_all(file, page, at);
        }
        let results = batch.submit();
        (0..).zip(results.iter()).filter(|(_, result)| result.is_ok()).map(|(n, _)| n).collect()
    })
}

/// [`by_batch`] with a registered file and registered memory.
fn by_fixed(file: &File, round: u64) -> Vec<u64> {
    cringle::run(|| {
        let mut pages = FixedBufs::new(PAGES as usize, PAGE).unwrap();
        let fixed = FixedFile::register(file).unwrap();
        (0..).zip(pages.iter_mut()).for_each(|(n, buf)| buf.copy_from_slice(&page(n, round)));
        let mut batch = Batch::new();
        for (page, at) in pages.iter().zip((0..).step_by(PAGE)) {
            batch.write_fixed(&fixed, page, at);
        }
        let results = batch.submit();
        (0..).zip(results.iter()).filter(|(_, result)| result.is_ok()).map(|(n, _)| n).collect()
    })
}

#[test]
fn a_batch_with_dsync_is_durable() {
    Disk::of_each_kind(|kind, disk| {
        check(disk, &format!("{kind}, a batch"), &opened(libc::O_DSYNC), by_batch);
        check(disk, &format!("{kind}, a registered file"), &opened(libc::O_DSYNC), by_fixed);
    });
}

#[test]
fn write_at_the_cursor_with_dsync_is_durable() {
    // Each write begins with the number of its page, wherever the cursor is.
    let write = |file: &File, page: &[u8], _| {
        let count = (&mut &*file).write(page)?;
        assert_eq!(count, PAGE);
        Ok(())
    };
    Disk::of_each_kind(|kind, disk| {
        for (name, append, is_lent) in
            [("cursor", false, false), ("a lent cursor", false, true), ("append", true, false)]
        {
            let path = disk.path(name);
            for round in 1..=ROUNDS {
                std::fs::write(&path, "").unwrap();
                let mut options = opened(libc::O_DSYNC);
                let file = options.append(append).open(&path).unwrap();
                if is_lent {
                    let _ = std::os::fd::AsFd::as_fd(&file);
                }
                disk.fail(if round % 2 == 0 { 100 } else { 15 });
                let acknowledged = at_once(&file, round, &write);
                disk.fail(0);
                drop(file);
                let bytes = on_disk(&path);
                for number in acknowledged {
                    let page = page(number, round);
                    let is_there = bytes.chunks(PAGE).any(|there| there == &*page);
                    assert!(is_there, "{kind}, {name}: page {number} is lost");
                }
            }
        }
    });
}

#[test]
fn bytes_before_a_sync_are_durable() {
    let sync = |file: &File, page: &[u8], at| {
        file.write_all_at(page, at)?;
        file.sync_data()
    };
    // Callers on threads, on fibers, and on the workers of a `BlockIo` share the syncs.
    let engine = BlockIo::builder().workers(2).build().unwrap();
    let by_some_engine = |file: &File, page: &[u8], at| match at / PAGE as u64 % 2 {
        0 => sync(file, page, at),
        _ => engine.call(|| sync(file, page, at))?,
    };
    // Parts of blocks, which are read, changed and written back.
    let by_parts = |file: &File, page: &[u8], at: u64| {
        let (begin, end) = page.split_at(300);
        file.write_all_at(end, at + 300)?;
        file.write_all_at(begin, at)?;
        file.sync_all()
    };
    Disk::of_each_kind(|kind, disk| {
        let mut bounced = opened(0);
        bounced.direct(Direct::Bounce);
        let shared = |file: &File, round| at_once(file, round, &sync);
        check(disk, &format!("{kind}, sync_data"), &opened(0), shared);
        let mixed = |file: &File, round| at_once(file, round, &by_some_engine);
        check(disk, &format!("{kind}, sync_data, also on a BlockIo"), &opened(0), mixed);
        let bounced_parts = |file: &File, round| at_once(file, round, &by_parts);
        check(disk, &format!("{kind}, Direct::Bounce"), &bounced, bounced_parts);
    });
}

/// The end of a file that does not end with a block goes through the page cache, where a sync of
/// the same handle may receive the failure of the write.
#[test]
fn write_of_the_last_bytes_of_a_bounced_file_with_dsync_is_durable() {
    // Less than a block, so that no byte is written directly.
    const LEN: usize = 300;
    let by_syncs = |file: &File, write: &(dyn Fn() -> io::Result<()> + Sync)| {
        std::thread::scope(|s| {
            let writer = s.spawn(write);
            for _ in 0..3 {
                s.spawn(|| file.sync_data());
            }
            writer.join().unwrap()
        })
    };
    Disk::of_each_kind(|kind, disk| {
        let mut options = opened(libc::O_DSYNC);
        options.direct(Direct::Bounce);
        let mut acknowledged = 0;
        for round in 0..64 {
            let path = disk.path(&format!("end {round}"));
            std::fs::write(&path, [0; LEN]).unwrap();
            std::fs::File::open(&path).unwrap().sync_all().unwrap();
            let file = options.open(&path).unwrap();
            let bytes = &page(0, round)[..LEN];
            disk.fail(if round % 2 == 0 { 100 } else { 15 });
            let written = by_syncs(&file, &|| file.write_all_at(bytes, 0));
            disk.fail(0);
            if written.is_err() {
                let again = file.write_all_at(bytes, 0);
                assert!(again.is_err(), "{kind}, round {round}: a write after a failure");
            }
            drop(file);
            if written.is_ok() {
                acknowledged += 1;
                assert!(on_disk(&path) == bytes, "{kind}, round {round}: the end is lost");
            }
        }
        assert!(acknowledged > 0, "{kind}: no write succeeded");
    });
}

#[test]
fn copy_within_the_kernel_with_dsync_is_durable() {
    Disk::of_each_kind(|kind, disk| {
        let copy = |file: &File, page: &[u8], at: u64| {
            let source = disk.path(&format!("source {at}"));
            let source = File::options().read(true).write(true).create(true).open(source)?;
            source.write_all_at(page, 0)?;
            let count = copy_range(&source, 0, file, at, page.len())?;
            assert_eq!(count, PAGE);
            Ok(())
        };
        let write_all = |file: &File, round| at_once(file, round, &copy);
        // XFS shares the blocks instead, which does not write them.
        if kind == "ext4" {
            check(disk, &format!("{kind}, copy_range"), &opened(libc::O_DSYNC), write_all);
        }
    });
}
