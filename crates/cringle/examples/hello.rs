//! A first program: fibers read files at the same time, in code that looks like `std`.
//!
//!     cargo run --example hello -- Cargo.toml src/lib.rs
//!
//! prints how many lines each file has, in the order of the arguments, and the sum.

use cringle::{fiber, fs::File};
use std::io::{self, BufRead, BufReader};

/// What `main` does with the command's arguments.
pub(crate) fn run(paths: &[String]) -> io::Result<usize> {
    cringle::run(|| {
        let counts: Vec<io::Result<usize>> = fiber::scope(|s| {
            // A fiber costs a microsecond and a page: one for each file. They borrow `paths`.
            let fibers: Vec<_> = paths.iter().map(|path| s.spawn(|| count_lines(path))).collect();
            fibers.into_iter().map(|fiber| fiber.join().expect("no fiber panics")).collect()
        });
        let mut sum = 0;
        for (path, count) in paths.iter().zip(counts) {
            let count = count.map_err(|e| io::Error::new(e.kind(), format!("{path}: {e}")))?;
            println!("{count:8} {path}");
            sum += count;
        }
        println!("{sum:8} in all");
        Ok(sum)
    })
}

/// As a program without fibers would. While one waits for the disk, the others go on.
fn count_lines(path: &str) -> io::Result<usize> {
    let mut lines = 0;
    for line in BufReader::new(File::open(path)?).lines() {
        line?;
        lines += 1;
    }
    Ok(lines)
}

#[allow(dead_code, reason = "the tests call `run`")]
fn main() -> io::Result<()> {
    let paths: Vec<String> = std::env::args().skip(1).collect();
    run(&paths).map(drop)
}
