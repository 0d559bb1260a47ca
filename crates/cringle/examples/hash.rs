//! Prints the CRC-32 of each file of a tree, by all cores, with many files in flight.
//!
//!     cargo run --release --example hash -- [DIRECTORY]
//!
//! prints `hash  path` lines in the order of the names, and its progress if standard error is a
//! terminal. Symbolic links are not followed. An error is reported with its path, the other files
//! are hashed nevertheless, and the exit status is 1.

use cringle::{fiber, fs};
use std::io::{self, IsTerminal, Write};
use std::path::PathBuf;

/// Writes the lines to `out`. Returns whether there were errors.
pub(crate) fn run(root: PathBuf, out: &mut dyn Write) -> io::Result<bool> {
    let hashes = cringle::run(|| {
        // This fiber lists the tree, while fibers of all workers hash up to 128 files at once.
        let files = list(root).enumerate().inspect(|(n, _)| {
            if n % 1000 == 0 && io::stderr().is_terminal() {
                eprint!("{n} files\r");
            }
        });
        fiber::par_map_workers(files, 128, |(_, file)| (hash(&file), file))
    });
    for (hash, file) in &hashes {
        match hash {
            Ok(hash) => writeln!(out, "{hash:08x}  {}", file.display())?,
            Err(e) => eprintln!("hash: {}: {e}", file.display()),
        }
    }
    Ok(hashes.iter().any(|(hash, _)| hash.is_err()))
}

/// Lists the files of a tree in the order of their names, one directory after the other. A path
/// that cannot be listed counts as a file, so that it is reported when it is read.
fn list(path: PathBuf) -> Box<dyn Iterator<Item = PathBuf>> {
    let entries = fs::read_dir(&path).and_then(|entries| entries.collect::<io::Result<Vec<_>>>());
    let Ok(mut entries) = entries else { return Box::new(Some(path).into_iter()) };
    entries.sort_by_cached_key(fs::DirEntry::file_name);
    let files = |entry: fs::DirEntry| match entry.file_type() {
        Ok(kind) if kind.is_dir() => list(entry.path()),
        Ok(kind) if !kind.is_file() => Box::new(None.into_iter()),
        _ => Box::new(Some(entry.path()).into_iter()),
    };
    Box::new(entries.into_iter().flat_map(files))
}

fn hash(path: &PathBuf) -> io::Result<u32> {
    let mut file = flate2::CrcReader::new(fs::File::open(path)?);
    io::copy(&mut file, &mut io::sink()).map(|_| file.crc().sum())
}

#[allow(dead_code, reason = "the benchmarks call `run`")]
fn main() -> io::Result<()> {
    let root = std::env::args_os().nth(1).map_or(".".into(), PathBuf::from);
    run(root, &mut io::stdout().lock()).map(|failed| std::process::exit(failed.into()))
}
