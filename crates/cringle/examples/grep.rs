//! A parallel grep: fibers search the files of a directory tree.
//!
//!     cargo run --release --example grep -- PATTERN [DIRECTORY]
//!
//! prints `path:line: text` for each line that contains PATTERN, in the order of the paths. The
//! files are read through the ring. The kernel cannot list directories that way, so
//! `fiber::unblock` lists them on another thread.

use cringle::{fiber, fs::File};
use std::io::{self, BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};

/// The number of files that are searched at the same time. Each needs a descriptor and a buffer.
const FILES_AT_ONCE: usize = 256;

/// Writes the matches in the tree under `directory` to `out`, and returns their number.
fn run(pattern: &str, directory: &Path, out: &mut dyn Write) -> io::Result<usize> {
    let mut files = Vec::new();
    let matches = cringle::run(|| {
        list(directory, &mut files)?;
        files.sort();
        let next = AtomicUsize::new(0);
        // A fixed number of fibers take one file after the other, which bounds the open files.
        let search_some = || {
            let mut found = Vec::new();
            while let Some(path) = files.get(next.fetch_add(1, Ordering::Relaxed)) {
                match search(path, pattern) {
                    Ok(lines) => found.extend(lines.into_iter().map(|(n, text)| (path, n, text))),
                    Err(e) => eprintln!("grep: {}: {e}", path.display()),
                }
            }
            found
        };
        let mut matches = fiber::scope(|s| {
            let count = FILES_AT_ONCE.min(files.len());
            let fibers: Vec<_> = (0..count).map(|_| s.spawn(search_some)).collect();
            let join = |fiber: fiber::ScopedJoinHandle<'_, Vec<_>>| fiber.join().expect("no panic");
            fibers.into_iter().flat_map(join).collect::<Vec<_>>()
        });
        matches.sort();
        for (path, line, text) in &matches {
            writeln!(out, "{}:{line}: {text}", path.display())?;
        }
        io::Result::Ok(matches.len())
    })?;
    out.flush()?;
    Ok(matches)
}

/// Adds the files under `directory` to `files`, without following links.
fn list(directory: &Path, files: &mut Vec<PathBuf>) -> io::Result<()> {
    let entries = fiber::unblock(|| {
        std::fs::read_dir(directory)?
            .map(|entry| entry.and_then(|entry| Ok((entry.path(), entry.file_type()?))))
            .collect::<io::Result<Vec<_>>>()
    })?;
    for (path, kind) in entries {
        if kind.is_dir() {
            list(&path, files)?;
        } else if kind.is_file() {
            files.push(path);
        }
    }
    Ok(())
}

/// Returns the lines of a file that contain the pattern, with their numbers. A file that is not
/// UTF-8 has none.
fn search(path: &Path, pattern: &str) -> io::Result<Vec<(usize, String)>> {
    let mut reader = BufReader::with_capacity(64 * 1024, File::open(path)?);
    let mut found = Vec::new();
    let mut line = String::new();
    for number in 1.. {
        line.clear();
        match reader.read_line(&mut line) {
            Ok(0) => break,
            Ok(_) if line.contains(pattern) => found.push((number, line.trim_end().to_string())),
            Ok(_) => {}
            Err(e) if e.kind() == io::ErrorKind::InvalidData => return Ok(Vec::new()),
            Err(e) => return Err(e),
        }
    }
    Ok(found)
}

fn main() -> io::Result<()> {
    let mut args = std::env::args().skip(1);
    let Some(pattern) = args.next() else {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "usage: grep PATTERN [DIRECTORY]"));
    };
    let directory = args.next().unwrap_or_else(|| ".".into());
    let matches = run(&pattern, directory.as_ref(), &mut io::stdout().lock())?;
    std::process::exit(i32::from(matches == 0));
}
