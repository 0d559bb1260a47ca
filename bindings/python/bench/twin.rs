//! The other side of `bench.py`: performs the batches that it names on the standard input, from
//! Rust, and prints the seconds of each.
//!
//! A line of input is `cached|direct|one REPEATS PATH`, and then as many lines of offsets, one for
//! each batch. A line of output is the seconds of the batches, and the processor seconds of the
//! process.

use cringle::block::{AlignedBuf, Batch, BlockIo};
use cringle::fs::{Direct, File, OpenOptions};
use std::io::{BufRead, Write};
use std::os::unix::fs::FileExt;
use std::time::Instant;

const PAGE: usize = 4096;

fn main() -> std::io::Result<()> {
    let io = BlockIo::builder().in_flight_limit(128).build()?;
    let mut lines = std::io::stdin().lock().lines();
    while let Some(line) = lines.next() {
        let line = line?;
        let mut words = line.splitn(3, ' ');
        let mut word = || words.next().expect("what, how often, path");
        let (what, repeats, path) = (word(), word().parse().expect("a number"), word());
        let mut options = OpenOptions::new();
        options.read(true);
        if what == "direct" {
            options.direct(Direct::Aligned);
        }
        let file = options.open(path)?;
        let batches: Vec<Vec<u64>> = lines.by_ref().take(repeats).map(offsets).collect();
        let (begin, cpu) = (Instant::now(), cpu_seconds());
        match what {
            "one" => batches.iter().flatten().try_for_each(|&at| one(&file, at))?,
            _ => batches.iter().try_for_each(|offsets| many(&io, &file, offsets))?,
        }
        let (wall, cpu) = (begin.elapsed().as_secs_f64(), cpu_seconds() - cpu);
        println!("{wall} {cpu}");
        std::io::stdout().flush()?;
    }
    Ok(())
}

fn offsets(line: std::io::Result<String>) -> Vec<u64> {
    let line = line.expect("a line of offsets");
    line.split(' ').map(|offset| offset.parse().expect("an offset")).collect()
}

thread_local! {
    static PAGES: std::cell::RefCell<AlignedBuf> = std::cell::RefCell::new(AlignedBuf::new(0));
}

fn many(io: &BlockIo, file: &File, offsets: &[u64]) -> std::io::Result<()> {
    PAGES.with_borrow_mut(|pages| {
        if pages.len() != offsets.len() * PAGE {
            *pages = AlignedBuf::new(offsets.len() * PAGE);
        }
        let mut batch = Batch::with_capacity(offsets.len());
        for (page, &offset) in pages.chunks_mut(PAGE).zip(offsets) {
            batch.read(file, page, offset);
        }
        for count in io.submit(batch)? {
            assert_eq!(count?, PAGE);
        }
        Ok(())
    })
}

fn one(file: &File, offset: u64) -> std::io::Result<()> {
    PAGES.with_borrow_mut(|page| {
        if page.len() != PAGE {
            *page = AlignedBuf::new(PAGE);
        }
        file.read_exact_at(page, offset)
    })
}

fn cpu_seconds() -> f64 {
    // SAFETY: the contract of `getrusage`: the struct is valid, and zeros are a value of it.
    let usage = unsafe {
        let mut usage = std::mem::zeroed::<libc::rusage>();
        libc::getrusage(libc::RUSAGE_SELF, &raw mut usage);
        usage
    };
    let seconds = |time: libc::timeval| time.tv_sec as f64 + time.tv_usec as f64 * 1e-6;
    seconds(usage.ru_utime) + seconds(usage.ru_stime)
}
