//! The example `hash` of the library on rayon, to compare the lines: see `benches/lines`.

use rayon::iter::{ParallelBridge, ParallelIterator};
use std::fs;
use std::io::{self, IsTerminal, Write};
use std::path::PathBuf;

fn run(root: PathBuf, out: &mut dyn Write) -> io::Result<bool> {
    let files = list(root).enumerate().inspect(|(n, _)| {
        if n % 1000 == 0 && io::stderr().is_terminal() {
            eprint!("{n} files\r");
        }
    });
    // The bridge to all cores does not keep the order.
    let hashes = files.par_bridge().map(|(n, file)| (n, hash(&file), file));
    let mut hashes: Vec<_> = hashes.collect();
    hashes.sort_by_key(|(n, ..)| *n);
    for (_, hash, file) in &hashes {
        match hash {
            Ok(hash) => writeln!(out, "{hash:08x}  {}", file.display())?,
            Err(e) => eprintln!("hash: {}: {e}", file.display()),
        }
    }
    Ok(hashes.iter().any(|(_, hash, _)| hash.is_err()))
}

fn list(path: PathBuf) -> Box<dyn Iterator<Item = PathBuf> + Send> {
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

fn main() -> io::Result<()> {
    let root = std::env::args_os().nth(1).map_or(".".into(), PathBuf::from);
    run(root, &mut io::stdout().lock()).map(|failed| std::process::exit(failed.into()))
}
