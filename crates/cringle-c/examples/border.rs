//! The cost of the border: batches of 32 cached reads of 4 KiB by Rust's `BlockIo` and by C's
//! `cringle_submit`, with a plain descriptor and with a registered file, in alternating slices.
//!
//!     cargo run --release -p cringle-c --example border -- FILE
//!
//! Prints the medians of the slices' ratios: Rust's time divided by C's, by the clock and by the
//! CPU time of the process. It runs on one CPU: on several, the kernel leaves the worker of one
//! engine on the CPU of the submitter and that of the other engine on another one, which is a
//! difference of a third.

use cringle::block::{Batch, BlockIo};
use cringle::fs::File;
use cringle_c::*;
use std::os::fd::AsRawFd;
use std::time::Instant;
use std::{env, io, ptr};

const BATCH: usize = 32;
const BLOCK: usize = 4096;
const SLICES: usize = 400;
const BATCHES: usize = 100;

fn main() -> io::Result<()> {
    stay_on_this_cpu()?;
    let path = env::args_os().nth(1).expect("usage: border FILE");
    let file = File::from(std::fs::File::open(path)?);
    let mut pages = vec![1; BATCH * BLOCK];
    let rust = BlockIo::builder().build()?;
    let (mut engine, mut number) = (0, 0);
    let fd = file.as_raw_fd();
    // SAFETY: the contracts of the functions: the variables are this frame's.
    let opened = unsafe {
        [
            cringle_open(ptr::null(), &raw mut engine),
            cringle_register_files(engine, &raw const fd, 1, &raw mut number),
        ]
    };
    assert_eq!(opened, [0, 0]);
    let plain = ops(fd, 0, &mut pages);
    let registered = ops(number, CRINGLE_OP_REGISTERED_FILE, &mut pages);
    let mut spare = Batch::with_capacity(BATCH);
    let mut times: [Vec<[f64; 2]>; 3] = Default::default();
    for slice in 0..SLICES {
        for way in (0..3).map(|way| (way + slice) % 3) {
            let started = (Instant::now(), cpu_seconds());
            for _ in 0..BATCHES {
                match way {
                    0 => spare = by_rust(&rust, &file, &mut pages, spare)?,
                    1 => by_c(engine, &plain),
                    _ => by_c(engine, &registered),
                }
            }
            times[way].push([started.0.elapsed().as_secs_f64(), cpu_seconds() - started.1]);
        }
    }
    for (way, name) in [(1, "plain descriptor"), (2, "registered file")] {
        let ratio =
            |kind: usize| median(times[0].iter().zip(&times[way]).map(|(r, c)| r[kind] / c[kind]));
        println!("{name}: {:.3} by the clock, {:.3} by CPU time", ratio(0), ratio(1));
    }
    assert_eq!(cringle_close(engine), 0);
    rust.close()
}

fn by_rust<'n>(
    rust: &BlockIo,
    file: &File,
    pages: &mut [u8],
    spare: Batch<'static>,
) -> io::Result<Batch<'n>> {
    let mut batch: Batch<'_> = spare;
    for (page, offset) in pages.chunks_mut(BLOCK).zip((0..).step_by(7 * BLOCK)) {
        batch.read(file, page, offset);
    }
    let results = rust.submit(batch)?;
    assert!(results.iter().all(|count| matches!(count, Ok(BLOCK))));
    Ok(results.recycle())
}

fn by_c(engine: cringle_io, ops: &[cringle_op]) {
    let mut results = [0; BATCH];
    // SAFETY: the contract of `cringle_submit`: the arrays have `BATCH` elements, and no other code
    // uses the pages meanwhile.
    let failed = unsafe { cringle_submit(engine, ops.as_ptr(), BATCH, results.as_mut_ptr()) };
    assert!(failed == 0 && results == [BLOCK as i64; BATCH]);
}

fn ops(fd: i32, flags: u32, pages: &mut [u8]) -> Vec<cringle_op> {
    let offsets = (0..).step_by(7 * BLOCK);
    let op = |(page, offset): (&mut [u8], u64)| cringle_op {
        kind: CRINGLE_READ,
        fd,
        buf: page.as_mut_ptr().cast(),
        len: BLOCK as u64,
        offset,
        flags,
        buffer: 0,
        user_data: 0,
        reserved: [0; 2],
    };
    pages.chunks_mut(BLOCK).zip(offsets).map(op).collect()
}

fn median(values: impl Iterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// Keeps this thread, and those that it starts, on one CPU.
fn stay_on_this_cpu() -> io::Result<()> {
    // SAFETY: all-zero is an empty set, which is borrowed for the calls.
    unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        libc::CPU_SET(libc::sched_getcpu() as usize, &mut set);
        match libc::sched_setaffinity(0, size_of_val(&set), &set) {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    }
}

/// Returns the CPU time of all threads of the process.
fn cpu_seconds() -> f64 {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the structure is this frame's.
    unsafe { libc::clock_gettime(libc::CLOCK_PROCESS_CPUTIME_ID, &raw mut now) };
    now.tv_sec as f64 + now.tv_nsec as f64 / 1e9
}
