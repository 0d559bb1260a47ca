//! Direct reads and writes of ranges that are not aligned, through `Direct::Bounce`, beside aligned
//! requests of the blocks that contain them.

use crate::report::{Contest, Report};
use common::clock::wall_ns_per_op;
use common::file;
use common::plan::offsets;
use cringle::block::AlignedBuf;
use cringle::fiber;
use cringle::fs::{Direct, File, OpenOptions};
use std::cell::Cell;
use std::os::unix::fs::FileExt;
use std::path::Path;

const OPERATIONS: u64 = 20_000;
const FIBERS: usize = 64;
const FILE_BYTES: u64 = 1 << 30;
/// The distance of a range's start from the start of its block.
const SHIFT: u64 = 123;
const BAR: f64 = 1.0 / 0.9;

pub(crate) fn run(rounds: usize, directory: &Path) -> Vec<Report> {
    let scratch = file::Scratch::new(directory, FILE_BYTES).expect("a file can be created");
    let path = scratch.path();
    let contest = |title, range: usize, blocks: usize, writes: bool| {
        let plan = offsets(1, OPERATIONS as usize, FILE_BYTES - blocks as u64, blocks as u64);
        let aligned = Way { direct: Direct::Aligned, len: blocks, shift: 0, writes };
        let bounced = Way { direct: Direct::Bounce, len: range, shift: SHIFT, writes };
        Contest::new(title)
            .side("the blocks of each range, aligned", || aligned.perform(path, &plan))
            .side("the range, by Direct::Bounce", || bounced.perform(path, &plan))
            .run(rounds)
            .ratio(
                "the range, by Direct::Bounce",
                &["the blocks of each range, aligned"],
                Some(BAR),
            )
    };
    vec![
        contest("a direct read of 3,900 of 4,096 bytes, 64 at a time", 3_900, 4_096, false),
        contest("a direct read of 65,000 of 65,536 bytes, 64 at a time", 65_000, 65_536, false),
        contest("a direct write of 3,900 of 4,096 bytes, 64 at a time (*)", 3_900, 4_096, true)
            .note("(*) Two operations of the disk: the blocks are read first."),
    ]
}

/// One way to transfer the ranges.
struct Way {
    direct: Direct,
    len: usize,
    shift: u64,
    writes: bool,
}

impl Way {
    /// Returns the nanoseconds per range.
    fn perform(&self, path: &Path, plan: &[u64]) -> f64 {
        crate::on_one_worker(|| {
            let mut options = OpenOptions::new();
            let options = options.read(true).write(self.writes).direct(self.direct);
            let file = options.open(path).expect("the file system knows direct I/O");
            let next = Cell::new(0);
            let transfer_all = || {
                let mut buf = self.buffer();
                while let Some(&at) = plan.get(next.get()) {
                    next.set(next.get() + 1);
                    self.transfer(&file, &mut buf, at + self.shift);
                }
            };
            wall_ns_per_op(OPERATIONS, || {
                fiber::scope(|s| (0..FIBERS).for_each(|_| drop(s.spawn_local(transfer_all))));
            })
        })
    }

    /// An ordinary buffer, unless the file needs an aligned one.
    fn buffer(&self) -> Buffer {
        match self.direct {
            Direct::Aligned => Buffer::Aligned(AlignedBuf::new(self.len)),
            _ => Buffer::Ordinary(vec![0; self.len]),
        }
    }

    fn transfer(&self, file: &File, buf: &mut Buffer, at: u64) {
        let bytes: &mut [u8] = match buf {
            Buffer::Aligned(bytes) => bytes,
            Buffer::Ordinary(bytes) => bytes,
        };
        let done = if self.writes { file.write_at(bytes, at) } else { file.read_at(bytes, at) };
        assert_eq!(done.expect("the disk works"), self.len);
    }
}

enum Buffer {
    Aligned(AlignedBuf),
    Ordinary(Vec<u8>),
}
