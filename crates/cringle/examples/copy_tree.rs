//! Copies a directory tree, with a fiber for each file and at most 64 files at a time.
//!
//!     cargo run --release --example copy_tree -- FROM TO [BLOCK_BYTES]
//!     CRINGLE_TRACE=copy.pftrace cargo run --release --example copy_tree -- FROM TO 4096
//!
//! BLOCK_BYTES (default: 64 KiB) is the size of a read and a write.

use cringle::fiber;
use cringle::fs::{self, File};
use cringle::sync::Semaphore;
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

/// The number of files that are copied at the same time. Each needs two descriptors.
const FILES_AT_ONCE: usize = 64;

/// Copies the tree, and returns the number of bytes.
fn run(from: &Path, to: &Path, block_bytes: usize) -> io::Result<u64> {
    cringle::Builder::new().workers(1).run(|| {
        let permits = Semaphore::new(FILES_AT_ONCE);
        fiber::scope(|s| {
            let mut copies = Vec::new();
            let mut directories = vec![(from.to_owned(), to.to_owned())];
            while let Some((from, to)) = directories.pop() {
                fs::create_dir_all(&to)?;
                for entry in fs::read_dir(&from)? {
                    let entry = entry?;
                    let to = to.join(entry.file_name());
                    if entry.file_type()?.is_dir() {
                        directories.push((entry.path(), to));
                        continue;
                    }
                    let permit = permits.acquire();
                    let copy = fiber::Builder::new().name("copy".into());
                    copies.push(copy.spawn_scoped_local(s, move || {
                        let _permit = permit;
                        copy_file(entry.path(), to, block_bytes)
                    })?);
                }
            }
            let copied = copies.into_iter().map(|copy| copy.join().expect("no copy panics"));
            copied.sum()
        })
    })?
}

fn copy_file(from: PathBuf, to: PathBuf, block_bytes: usize) -> io::Result<u64> {
    let (mut from, mut to) = (File::open(from)?, File::create(to)?);
    let mut block = vec![0; block_bytes];
    let mut copied = 0;
    loop {
        let count = from.read(&mut block)?;
        if count == 0 {
            return Ok(copied);
        }
        to.write_all(&block[..count])?;
        copied += count as u64;
    }
}

fn main() -> io::Result<()> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let ([from, to] | [from, to, _]) = args.as_slice() else {
        let usage = "usage: copy_tree FROM TO [BLOCK_BYTES]";
        return Err(io::Error::new(io::ErrorKind::InvalidInput, usage));
    };
    let block = args.get(2).map_or(Ok(64 << 10), |text| text.parse()).map_err(io::Error::other)?;
    println!("{} bytes", run(from.as_ref(), to.as_ref(), block)?);
    Ok(())
}
