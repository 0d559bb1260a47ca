//! Files of a FUSE file system. Where its server opens them with `FOPEN_DIRECT_IO`, a read or a
//! write may move fewer bytes than requested; a ring then continues at the first offset, and
//! repeats or overwrites bytes. Each call is compared with std's on a file with the same content.
//!
//! `CRINGLE_FUSE_CALLS=100000` makes that many calls for each kind of file.

mod endless;
mod mounted;

use cringle::block::{Batch, BlockIo, FixedBufs, FixedFile, OwnedBatch};
use cringle::fs::{File, OpenOptions};
use cringle::runtime::DriverChoice;
use cringle::{Builder, fiber};
use cringle_testing::disk;
use cringle_testing::disk::pattern;
use fastrand::Rng;
use mounted::{Manner, Mounted};
use std::ffi::CString;
use std::io::{self, IoSlice, IoSliceMut, Read, Seek, SeekFrom, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::path::Path;

const DRIVERS: [DriverChoice; 2] = [DriverChoice::Auto, DriverChoice::Epoll];

fn calls() -> usize {
    std::env::var("CRINGLE_FUSE_CALLS").map_or(300, |count| count.parse().expect("a number"))
}

#[test]
fn calls_on_direct_files_match_std() {
    compare_on_both_drivers(Manner::Short);
}

#[test]
fn calls_on_asynchronous_direct_files_match_std() {
    compare_on_both_drivers(Manner::ShortAsync);
}

#[test]
fn calls_on_cached_files_match_std() {
    compare_on_both_drivers(Manner::Cached);
}

fn compare_on_both_drivers(manner: Manner) {
    for driver in DRIVERS {
        let Some(mounted) = Mounted::new(manner) else { return };
        Builder::new().workers(1).driver(driver).run(|| compare_calls(&mounted, manner)).unwrap();
    }
}

/// Runs four fibers, each on its own file, so that none is alone on the worker.
fn compare_calls(mounted: &Mounted, manner: Manner) {
    let text = pattern(20_000);
    (0..8).for_each(|file| mounted.fill(file, &text));
    fiber::scope(|s| {
        for seed in 0..4 {
            s.spawn_local(move || {
                let mut options = OpenOptions::new();
                let ours = options.read(true).write(true).open(mounted.path(seed)).unwrap();
                let mut options = std::fs::OpenOptions::new();
                let theirs = options.read(true).write(true).open(mounted.path(seed + 4)).unwrap();
                let mut pair = Pair { rng: Rng::with_seed(seed as u64), ours, theirs };
                for call in 0..calls() / 4 {
                    let (what, ours, theirs) = pair.call();
                    assert_eq!(
                        ours.ok(),
                        theirs.ok(),
                        "{manner:?} seed {seed} call {call}: {what}"
                    );
                    let same = mounted.bytes(seed) == mounted.bytes(seed + 4);
                    assert!(same, "{manner:?} seed {seed} call {call}: {what} wrote other bytes");
                }
            });
        }
    });
}

/// Two files with the same contents, to compare a call on both.
struct Pair {
    rng: Rng,
    ours: File,
    theirs: std::fs::File,
}

/// The number of bytes transferred, and the bytes read.
type Moved = io::Result<(usize, Vec<u8>)>;

fn moved(buf: &[u8], count: io::Result<usize>) -> Moved {
    count.map(|count| (count, buf[..count].to_vec()))
}

/// Splits a buffer into three.
fn parts(buf: &mut [u8]) -> [IoSliceMut<'_>; 3] {
    let (first, rest) = buf.split_at_mut(buf.len() / 3);
    let (second, third) = rest.split_at_mut(rest.len() / 2);
    [first, second, third].map(IoSliceMut::new)
}

impl Pair {
    fn call(&mut self) -> (&'static str, Moved, Moved) {
        let (offset, len) = (self.rng.u64(..22_000), self.rng.usize(..9_000));
        let (mut data, mut a, mut b) = (vec![0; len], vec![0; len], vec![0; len]);
        self.rng.fill(&mut data);
        let (ours, theirs) = (&mut self.ours, &mut self.theirs);
        match self.rng.u8(..14) {
            0 => (
                "read_at",
                moved2(&mut a, |buf| ours.read_at(buf, offset)),
                moved2(&mut b, |buf| theirs.read_at(buf, offset)),
            ),
            1 => (
                "write_at",
                moved(&data, ours.write_at(&data, offset)),
                moved(&data, theirs.write_at(&data, offset)),
            ),
            2 => (
                "read",
                moved2(&mut a, |buf| ours.read(buf)),
                moved2(&mut b, |buf| theirs.read(buf)),
            ),
            3 => ("write", moved(&data, ours.write(&data)), moved(&data, theirs.write(&data))),
            4 => {
                let at = SeekFrom::Start(offset);
                let ours = ours.seek(at).map(|at| (at as usize, Vec::new()));
                ("seek", ours, theirs.seek(at).map(|at| (at as usize, Vec::new())))
            }
            5 => (
                "read_vectored",
                moved2(&mut a, |buf| ours.read_vectored(&mut parts(buf))),
                moved2(&mut b, |buf| theirs.read_vectored(&mut parts(buf))),
            ),
            6 => {
                let slices = parts(&mut data);
                let slices: Vec<_> = slices.iter().map(|slice| IoSlice::new(slice)).collect();
                let ours = ours.write_vectored(&slices).map(|count| (count, Vec::new()));
                (
                    "write_vectored",
                    ours,
                    theirs.write_vectored(&slices).map(|count| (count, Vec::new())),
                )
            }
            7 => (
                "read_vectored_at",
                moved2(&mut a, |buf| ours.read_vectored_at(&mut parts(buf), offset)),
                moved2(&mut b, |buf| theirs.read_at(buf, offset)),
            ),
            8 => {
                let slices = parts(&mut data);
                let slices: Vec<_> = slices.iter().map(|slice| IoSlice::new(slice)).collect();
                let ours = ours.write_vectored_at(&slices, offset).map(|count| (count, Vec::new()));
                let count = theirs
                    .write_at(&slices.iter().flat_map(|s| s.to_vec()).collect::<Vec<_>>(), offset);
                ("write_vectored_at", ours, count.map(|count| (count, Vec::new())))
            }
            9 => (
                "Batch::read",
                moved2(&mut a, |buf| {
                    let mut batch = Batch::new();
                    let id = batch.read(ours, buf, offset);
                    batch.submit().get(id)
                }),
                moved2(&mut b, |buf| theirs.read_at(buf, offset)),
            ),
            10 => (
                "Batch::write",
                {
                    let mut batch = Batch::new();
                    let id = batch.write(ours, &data, offset);
                    moved(&data, batch.submit().get(id))
                },
                moved(&data, theirs.write_at(&data, offset)),
            ),
            11 => (
                "Batch::read_exact",
                moved2(&mut a, |buf| {
                    let mut batch = Batch::new();
                    let id = batch.read_exact(ours, buf, offset);
                    batch.submit().get(id)
                }),
                moved2(&mut b, |buf| theirs.read_exact_at(buf, offset).map(|()| len)),
            ),
            12 => (
                "Batch::write_all",
                {
                    let mut batch = Batch::new();
                    let id = batch.write_all(ours, &data, offset);
                    moved(&data, batch.submit().get(id))
                },
                moved(&data, theirs.write_all_at(&data, offset).map(|()| len)),
            ),
            _ => {
                let ours = ours.set_len(offset).map(|()| (0, Vec::new()));
                ("set_len", ours, theirs.set_len(offset).map(|()| (0, Vec::new())))
            }
        }
    }
}

fn moved2(buf: &mut [u8], read: impl FnOnce(&mut [u8]) -> io::Result<usize>) -> Moved {
    let count = read(buf);
    moved(buf, count)
}

/// Reads a FUSE file whose server returns 1,000 bytes at a time, and a file on the disk.
fn with_both(f: impl FnOnce(&Mounted, &[u8], File, File)) {
    let Some(mounted) = Mounted::new(Manner::Short) else { return };
    let (text, directory) = (pattern(50_000), disk::directory());
    mounted.fill(0, &text);
    let path = directory.path().join("ordinary");
    std::fs::write(&path, &text).unwrap();
    let open = |path| OpenOptions::new().read(true).write(true).open(path).unwrap();
    f(&mounted, &text, open(mounted.path(0)), open(path));
}

#[test]
fn batch_of_both_kinds_of_files_is_complete() {
    with_both(|mounted, text, on_fuse, ordinary| {
        disk::in_company(|| {
            let mut bufs = vec![[0; 1250]; 80];
            let mut batch = Batch::new();
            for (at, buf) in bufs.iter_mut().enumerate() {
                let file = if at % 2 == 0 { &on_fuse } else { &ordinary };
                batch.read_exact(file, buf, at as u64 / 2 * 1250);
            }
            assert!(batch.submit().iter().all(|count| count.unwrap() == 1250));
            let halves = [0, 1].map(|kind| bufs.iter().skip(kind).step_by(2).flatten().copied());
            halves.into_iter().for_each(|half| assert!(half.eq(text.iter().copied())));

            let reversed: Vec<u8> = text.iter().rev().copied().collect();
            let mut batch = Batch::new();
            for (at, part) in (0..).zip(reversed.chunks(1250)) {
                batch.write_all(&on_fuse, part, at * 1250);
                batch.write_all(&ordinary, part, at * 1250);
            }
            assert!(batch.submit().iter().all(|count| count.unwrap() == 1250));
            assert!(mounted.bytes(0) == reversed);
            assert!(cringle::fs::read(mounted.path(0)).unwrap() == reversed);
        });
    });
}

#[test]
fn registered_file_is_accessed_at_the_right_offsets() {
    with_both(|mounted, text, on_fuse, ordinary| {
        disk::in_company(|| {
            let [on_fuse, ordinary] =
                [on_fuse, ordinary].map(|file| FixedFile::register(&file).unwrap());
            let mut bufs = FixedBufs::new(2, 4096).unwrap();
            let [fuse, disk] = &mut bufs[..] else { unreachable!() };
            let mut batch = Batch::new();
            batch.read_fixed(&on_fuse, fuse, 100);
            batch.read_fixed(&ordinary, disk, 100);
            let counts: Vec<usize> = batch.submit().iter().map(Result::unwrap).collect();
            assert_eq!(counts, [1000, 4096]);
            assert!(bufs[0][..1000] == text[100..1100] && bufs[1][..] == text[100..4196]);
            assert!(bufs[0][1000..].iter().all(|byte| *byte == 0));

            let mut batch = Batch::new();
            let id = batch.write_fixed(&on_fuse, &bufs[1], 0);
            assert_eq!(batch.submit().get(id).unwrap(), 1000);
            assert!(mounted.bytes(0)[..1000] == text[100..1100]);
            assert!(mounted.bytes(0)[1000..] == text[1000..]);
        });
    });
}

#[test]
fn block_io_reads_the_right_offsets() {
    with_both(|_, text, on_fuse, _| {
        let io = BlockIo::builder().build().unwrap();
        let mut buf = [0; 4096];
        let mut batch = Batch::new();
        batch.read_exact(&on_fuse, &mut buf, 10);
        assert_eq!(io.submit(batch).unwrap().iter().next().unwrap().unwrap(), 4096);
        assert!(buf[..] == text[10..4106]);

        let mut batch = OwnedBatch::new();
        batch.read(on_fuse, vec![0; 4096], 20);
        let (tell, told) = std::sync::mpsc::channel();
        io.submit_then(batch, move |results| tell.send(results).unwrap()).unwrap();
        let (count, buf) = told.recv().unwrap().into_iter().next().unwrap();
        assert_eq!(count.unwrap(), 1000);
        assert!(buf[..1000] == text[20..1020]);
        io.close().unwrap();
    });
}

/// A server may take long to answer.
#[test]
fn close_on_a_worker_asks_no_server() {
    let Some(mounted) = Mounted::new(Manner::Cached) else { return };
    for driver in DRIVERS {
        let worker = || {
            // A fiber alone on its worker might be treated otherwise.
            fiber::scope(|s| {
                s.spawn_daemon_local(fiber::park);
                fiber::yield_now();
                for _ in 0..2 {
                    let file = File::open(mounted.path(0)).unwrap();
                    mounted.faulty.take_askers();
                    file.close().unwrap();
                    // SAFETY: the call takes no pointer.
                    let worker = unsafe { libc::gettid() } as u32;
                    let askers = mounted.faulty.take_askers();
                    assert!(!askers.contains(&worker), "{worker} in {askers:?}");
                }
            });
        };
        Builder::new().workers(1).driver(driver).run(worker).unwrap();
    }
}

#[test]
fn overlay_on_fuse_reads_at_right_offsets() {
    with_both(|mounted, text, _, _| {
        let Some(overlay) = Overlay::of(mounted) else { return };
        let file = File::open(overlay.0.path().join("merged/victim0")).unwrap();
        let read = disk::in_company(|| {
            let mut buf = [0; 4096];
            let count = file.read_at(&mut buf, 50).unwrap();
            buf[..count].to_vec()
        });
        assert!(read == text[50..50 + read.len()], "{} bytes", read.len());
        drop(file);
    });
}

/// A read-only overlay, unmounted when dropped.
struct Overlay(tempfile::TempDir);

impl Overlay {
    fn of(mounted: &Mounted) -> Option<Overlay> {
        let directory = disk::directory();
        let [lower, merged] = ["lower", "merged"].map(|name| directory.path().join(name));
        [&lower, &merged].into_iter().for_each(|path| std::fs::create_dir(path).unwrap());
        let on_fuse = mounted.path(0).parent().unwrap().display().to_string();
        let options = format!("lowerdir={}:{on_fuse}", lower.display());
        let [at, options] = [path_of(&merged), CString::new(options).unwrap()];
        let (kind, data) = (c"overlay".as_ptr(), options.as_ptr().cast());
        // SAFETY: C strings, which are borrowed for the call.
        if unsafe { libc::mount(kind, at.as_ptr(), kind, libc::MS_RDONLY, data) } != 0 {
            let why = io::Error::last_os_error();
            println!("skipped: no overlay can be mounted (root): {why}");
            return None;
        }
        Some(Overlay(directory))
    }
}

fn path_of(path: &Path) -> CString {
    CString::new(path.as_os_str().as_bytes()).unwrap()
}

impl Drop for Overlay {
    fn drop(&mut self) {
        let merged = path_of(&self.0.path().join("merged"));
        // SAFETY: a C string, which is borrowed for the call.
        let result = unsafe { libc::umount2(merged.as_ptr(), 0) };
        assert_eq!(result, 0, "{}", io::Error::last_os_error());
    }
}
