//! Prints whole texts to standard output and lines to standard error.
//!
//! A closed pipe (`| head`) ends a command quietly.

use crate::failure::Failure;
use crate::file;
use std::io::{self, Write};
use std::path::Path;

/// Standard output for data alone (`--json -`)?
pub fn is_stdout(file: Option<&Path>) -> bool {
    file == Some(Path::new("-"))
}

/// Writes what was asked for by `--json`.
pub fn save(path: &Path, value: &serde_json::Value) -> Result<(), Failure> {
    let mut text = serde_json::to_string_pretty(value).map_err(io::Error::from)?;
    text.push('\n');
    file::write("--json", path, &text)
}

/// A line on standard error; if nobody reads that, nobody is told.
pub fn complain(line: &str) {
    let _ = writeln!(io::stderr(), "{line}");
}

pub fn print(text: &str) -> Result<(), Failure> {
    print_bytes(text.as_bytes())
}

/// Writes to standard output; nobody who reads it any more is no error.
pub fn print_bytes(bytes: &[u8]) -> Result<(), Failure> {
    match crate::stdout::write(bytes) {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        Err(error) => Err(Failure::failed(format!("cannot write the results: {error}"))),
        Ok(()) => Ok(()),
    }
}
