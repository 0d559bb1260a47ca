//! Reads of a file that fits the page cache: 4,096 random blocks of 4 KiB of 2 GiB, as one batch of
//! a `MappedFile`, as one of a `File`, and by copies from a mapping.

use crate::report::{Contest, Report};
use common::clock::{Meter, cpu_ns_per_op, wall_ns_per_op};
use common::file;
use common::plan::{head, offsets};
use cringle::block::{AlignedBuf, Batch, MappedFile, OpId, SigbusHandler};
use cringle::fs::File;
use std::cell::{Cell, RefCell};
use std::os::fd::AsRawFd;
use std::path::Path;

const BLOCK: usize = 4096;
const READS: usize = 4096;
/// The batches of one run, when the file is in memory.
const BATCHES: usize = 4;
const FILE_BYTES: u64 = 2 << 30;
/// The time of 0.9 of a mapping's rate.
const WARM_BAR: f64 = 1.0 / 0.9;
/// The time of 0.97 of a batch's rate.
const COLD_BAR: f64 = 1.0 / 0.97;

pub(crate) fn run(rounds: usize, directory: &Path) -> Vec<Report> {
    let scratch = file::Scratch::new(directory, FILE_BYTES).expect("a file can be created");
    let path = scratch.path();
    let title = "4,096 random reads of 4 KiB of 2 GiB on a disk, from opening the file";
    let cpu_title = "the same: processor time of all threads";
    vec![warm(rounds, path), cold(rounds, path, title, wall), cold(rounds, path, cpu_title, cpu)]
}

fn map(path: &Path) -> MappedFile {
    let handler = SigbusHandler::install().expect("SIGBUS can be caught");
    let file = File::open(path).expect("the file exists");
    let mapped = MappedFile::new(file, handler).expect("a regular file");
    assert_eq!(mapped.unmapped(), None);
    mapped
}

/// The offsets of each round, the same for all sides. A side that has its turn draws the next.
struct Plans {
    turn: Cell<u64>,
    sides: u64,
    area: RefCell<AlignedBuf>,
}

impl Plans {
    fn new(sides: u64) -> Plans {
        let mut area = AlignedBuf::new(READS * BLOCK);
        area.fill(1);
        Plans { turn: Cell::new(0), sides, area: RefCell::new(area) }
    }

    fn next(&self) -> Vec<u64> {
        let turn = self.turn.replace(self.turn.get() + 1);
        offsets(turn / self.sides, BATCHES * READS, FILE_BYTES, BLOCK as u64)
    }
}

fn warm(rounds: usize, path: &Path) -> Report {
    file::warm(path).expect("the file exists");
    let (batch, plain) = ("cringle: a Batch of a MappedFile", "cringle: a Batch of a File");
    let (by_hand, new) = ("a mapping by hand, populated", "a new mapping by hand");
    let (plans, mapped, file) = (Plans::new(4), map(path), File::open(path).expect("exists"));
    let populated = Mapping::new(path, libc::MAP_POPULATE);
    let timed = |read: &dyn Fn(&mut [u8], &[u64])| {
        let (offsets, mut area) = (plans.next(), plans.area.borrow_mut());
        cpu_ns_per_op((BATCHES * READS) as u64, || {
            offsets.chunks(READS).for_each(|offsets| read(&mut area, offsets));
        })
    };
    Contest::new("4,096 random reads of 4 KiB of 2 GiB in memory")
        .side(batch, || {
            crate::on_one_worker(|| {
                mapped.refresh();
                let spare = Cell::new(Batch::with_capacity(READS));
                timed(&|area, offsets| {
                    spare.set(read_mapped(&mapped, area, offsets, spare.take()));
                })
            })
        })
        .side(plain, || {
            crate::on_one_worker(|| {
                let spare = Cell::new(Batch::with_capacity(READS));
                timed(&|area, offsets| {
                    spare.set(read_file(&file, area, offsets, spare.take()));
                })
            })
        })
        .side(by_hand, || timed(&|area, offsets| populated.read(area, offsets)))
        .side(new, || {
            let mapping = Mapping::new(path, 0);
            timed(&|area, offsets| mapping.read(area, offsets))
        })
        .run(rounds)
        .ratio(batch, &[by_hand], Some(WARM_BAR))
        .ratio(batch, &[new], None)
        .ratio(plain, &[by_hand], None)
}

/// Both sides open the file, which is not in memory, and read its blocks. Each block has been read
/// shortly before, so that the cache of a virtual disk serves both sides alike.
fn cold(rounds: usize, path: &Path, title: &'static str, clock: Clock) -> Report {
    let (batch, plain) = ("cringle: a Batch of a MappedFile", "cringle: a Batch of a File");
    let plans = Plans::new(2);
    let timed = |read: &dyn Fn(&mut [u8], &[u64])| {
        let (offsets, mut area) = (plans.next(), plans.area.borrow_mut());
        let mut once = |nanoseconds: Clock| {
            evict(path);
            crate::on_one_worker(|| {
                nanoseconds(READS as u64, &mut || read(&mut area, &offsets[..READS]))
            })
        };
        once(clock);
        once(clock)
    };
    Contest::new(title)
        .side(batch, || {
            timed(&|area, offsets| drop(read_mapped(&map(path), area, offsets, Batch::new())))
        })
        .side(plain, || {
            timed(&|area, offsets| {
                let file = File::open(path).expect("the file exists");
                drop(read_file(&file, area, offsets, Batch::new()));
            })
        })
        .run(rounds)
        .ratio(batch, &[plain], Some(COLD_BAR))
}

/// Returns the nanoseconds per operation.
type Clock = fn(u64, &mut dyn FnMut()) -> f64;

fn wall(operations: u64, work: &mut dyn FnMut()) -> f64 {
    wall_ns_per_op(operations, work)
}

/// Counts all threads of the process.
fn cpu(operations: u64, work: &mut dyn FnMut()) -> f64 {
    let meter = Meter::start();
    work();
    let usage = meter.stop();
    (usage.user_seconds + usage.system_seconds) * 1e9 / operations as f64
}

fn evict(path: &Path) {
    let file = file::open(path, false).expect("the file exists");
    // SAFETY: no pointers.
    let result = unsafe { libc::posix_fadvise(file.as_raw_fd(), 0, 0, libc::POSIX_FADV_DONTNEED) };
    assert_eq!(result, 0);
}

/// Reads blocks in one batch, and returns its memory for the next one. `add` adds one read.
fn read_blocks<'b>(
    area: &'b mut [u8],
    offsets: &[u64],
    spare: Batch<'static>,
    add: impl Fn(&mut Batch<'b>, &'b mut [u8], u64) -> OpId,
) -> Batch<'static> {
    let mut batch = spare;
    for (block, &offset) in area.chunks_mut(BLOCK).zip(offsets) {
        add(&mut batch, block, offset);
    }
    let results = batch.submit();
    assert!(results.iter().all(|count| matches!(count, Ok(BLOCK))));
    results.recycle()
}

fn read_mapped(
    file: &MappedFile,
    area: &mut [u8],
    offsets: &[u64],
    spare: Batch<'static>,
) -> Batch<'static> {
    read_blocks(area, offsets, spare, |batch, block, at| batch.read_mapped(file, block, at))
}

fn read_file(
    file: &File,
    area: &mut [u8],
    offsets: &[u64],
    spare: Batch<'static>,
) -> Batch<'static> {
    read_blocks(area, offsets, spare, |batch, block, at| batch.read(file, block, at))
}

/// A mapping of the whole file, from which the caller copies.
struct Mapping(*const u8);

impl Mapping {
    fn new(path: &Path, flags: i32) -> Mapping {
        let file = file::open(path, false).expect("the file exists");
        let (fd, flags) = (file.as_raw_fd(), flags | libc::MAP_SHARED);
        // SAFETY: a new mapping at an address of the kernel's choice.
        let start = unsafe {
            libc::mmap(std::ptr::null_mut(), FILE_BYTES as usize, libc::PROT_READ, flags, fd, 0)
        };
        assert_ne!(start, libc::MAP_FAILED);
        Mapping(start.cast())
    }

    fn read(&self, area: &mut [u8], offsets: &[u64]) {
        for (block, &offset) in area.chunks_mut(BLOCK).zip(offsets) {
            // SAFETY: the block lies in the mapping, and no process writes to the file.
            unsafe { self.0.add(offset as usize).copy_to(block.as_mut_ptr(), BLOCK) };
            assert_ne!(head(block), 0);
        }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the mapping belongs to this value.
        unsafe { libc::munmap(self.0.cast_mut().cast(), FILE_BYTES as usize) };
    }
}
