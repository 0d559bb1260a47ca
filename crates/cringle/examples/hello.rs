//! A first program: fibers read files at the same time, in code that looks like `std`.
//!
//!     cargo run --example hello -- Cargo.toml src/lib.rs
//!
//! prints the number of lines of each file, in the order of the arguments, and their sum.

use cringle::{fiber, fs::File};
use std::io::{self, BufRead, BufReader};

/// Prints the line counts of `paths`, and returns their sum.
fn run(paths: &[String]) -> io::Result<usize> {
    cringle::run(|| {
        let counts: Vec<io::Result<usize>> = fiber::scope(|s| {
            // A fiber is cheap (a microsecond and a page), so each file gets one. They borrow
            // `paths`.
            let fibers: Vec<_> = paths.iter().map(|path| s.spawn(|| count_lines(path))).collect();
            fibers.into_iter().map(|fiber| fiber.join().expect("no fiber panics")).collect()
        });
        let mut sum = 0;
        for (path, count) in paths.iter().zip(counts) {
            let count = count.map_err(|e| io::Error::new(e.kind(), format!("{path}: {e}")))?;
            println!("{count:8} {path}");
            sum += count;
        }
        println!("{sum:8} total");
        Ok(sum)
    })
}

/// Counts lines as a program without fibers would. While one fiber waits for the disk, others run.
fn count_lines(path: &str) -> io::Result<usize> {
    let mut lines = 0;
    for line in BufReader::new(File::open(path)?).lines() {
        line?;
        lines += 1;
    }
    Ok(lines)
}

fn main() -> io::Result<()> {
    let paths: Vec<String> = std::env::args().skip(1).collect();
    run(&paths).map(drop)
}
