//! A thread's read of a cached page.

use std::fs::File;
use std::hint::black_box;
use std::io;
use std::os::unix::fs::FileExt;
use std::time::Instant;

const READS: u32 = 2_000_000;

/// Prints the nanoseconds of a read.
pub(crate) fn print() -> io::Result<()> {
    let file = File::open(std::env::current_exe()?)?;
    let mut page = [0; 4096];
    let begun = Instant::now();
    for i in 0..READS {
        file.read_exact_at(black_box(&mut page), u64::from(i % 60) * 4096)?;
    }
    println!("{:.2}", begun.elapsed().as_nanos() as f64 / f64::from(READS));
    Ok(())
}
