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
        // Fibers of all workers hash up to 128 files at once.
        let files = list(root).into_iter().enumerate().inspect(|(n, _)| {
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

/// Lists the files of a tree in the order of their names, with up to 16 directories of each
/// directory at once, on all workers. A path that cannot be listed counts as a file, so that it is
/// reported when it is read.
fn list(path: PathBuf) -> Vec<PathBuf> {
    let entries = fs::read_dir(&path).and_then(|entries| entries.collect::<io::Result<Vec<_>>>());
    let Ok(mut entries) = entries else { return vec![path] };
    entries.sort_by_cached_key(fs::DirEntry::file_name);
    let kinds = entries.iter().map(|entry| (entry.path(), entry.file_type().ok()));
    let entries: Vec<(PathBuf, Option<fs::FileType>)> = kinds.collect();
    let is_directory = |kind: &Option<fs::FileType>| kind.is_some_and(|kind| kind.is_dir());
    let directories = entries.iter().filter(|(_, kind)| is_directory(kind));
    let directories: Vec<PathBuf> = directories.map(|(path, _)| path.clone()).collect();
    let mut listed = fiber::par_map_workers(directories, 16, list).into_iter();
    let files = |(path, kind): (PathBuf, Option<fs::FileType>)| match kind {
        Some(kind) if kind.is_dir() => listed.next().expect("each directory was listed"),
        Some(kind) if !kind.is_file() => Vec::new(),
        _ => vec![path],
    };
    entries.into_iter().flat_map(files).collect()
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
