//! Prints whole texts to standard output, and lines to standard error.
//!
//! A closed pipe (`| head`) is no error.

use crate::failure::Failure;
use crate::file;
use std::io;
use std::path::Path;

/// The width of help that is written to a pipe or a file.
pub const PIPE_WIDTH: usize = 80;

/// The largest width of help on a terminal. Longer lines are hard to read.
pub const MAX_HELP_WIDTH: usize = 100;

/// Returns whether an option names standard output (`--json -`), which then carries only that data.
pub fn is_stdout(file: Option<&Path>) -> bool {
    file == Some(Path::new("-"))
}

/// Writes the file of `--json`.
pub fn save(path: &Path, value: &serde_json::Value) -> Result<(), Failure> {
    let mut text = serde_json::to_string_pretty(value).map_err(io::Error::from)?;
    text.push('\n');
    file::write("--json", path, &text)
}

/// Writes a text to standard error.
pub fn write_error(text: &str) -> io::Result<()> {
    let _lock = io::stderr().lock();
    crate::stdout::write_whole(libc::STDERR_FILENO, text.as_bytes())
}

/// Prints a line to standard error, and ignores an error of that.
pub fn complain(line: &str) {
    let _ = write_error(&format!("{line}\n"));
}

/// Writes a text to standard output, as [`print_bytes`].
pub fn print(text: &str) -> Result<(), Failure> {
    print_bytes(text.as_bytes())
}

/// Writes to standard output. A reader that closed the pipe is no error.
pub fn print_bytes(bytes: &[u8]) -> Result<(), Failure> {
    match crate::stdout::write(bytes) {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        Err(error) => {
            let why = crate::stdout::describe(&error);
            Err(Failure::failed(format!("cannot write the results: {why}")))
        }
        Ok(()) => Ok(()),
    }
}
