//! Reading or writing a whole file in one call.

use super::File;
use std::io::{self, Read, Write};
use std::path::Path;

/// Reads the whole file into a `Vec`.
///
/// # Errors
///
/// As `std::fs::read`; and [`Cancelled`](cringle_core::cancelled::Cancelled).
pub fn read<P: AsRef<Path>>(path: P) -> io::Result<Vec<u8>> {
    let (mut file, size) = open(path.as_ref())?;
    let mut bytes = Vec::new();
    bytes.try_reserve_exact(size)?;
    file.read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Reads the whole file into a `String`.
///
/// # Errors
///
/// As `std::fs::read_to_string`: `InvalidData` if the file is not UTF-8; and
/// [`Cancelled`](cringle_core::cancelled::Cancelled).
pub fn read_to_string<P: AsRef<Path>>(path: P) -> io::Result<String> {
    let (mut file, size) = open(path.as_ref())?;
    let mut text = String::new();
    text.try_reserve_exact(size)?;
    file.read_to_string(&mut text)?;
    Ok(text)
}

/// Writes `contents` to a file: creates it if it does not exist, and replaces its contents if it
/// does.
///
/// # Errors
///
/// As `std::fs::write`; and [`Cancelled`](cringle_core::cancelled::Cancelled), which may leave a
/// part of the contents.
pub fn write<P: AsRef<Path>, C: AsRef<[u8]>>(path: P, contents: C) -> io::Result<()> {
    File::create(path)?.write_all(contents.as_ref())
}

/// Opens the file and returns its size, as an estimate of the bytes to read.
fn open(path: &Path) -> io::Result<(File, usize)> {
    let file = File::open(path)?;
    let size = file.metadata().map_or(0, |metadata| metadata.len());
    Ok((file, usize::try_from(size).unwrap_or(usize::MAX)))
}
