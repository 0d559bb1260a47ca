//! What a person, or a program, is told about a measurement.
//!
//! Everything is put together first and written at once, so that a closed pipe (`| head`)
//! ends the command quietly.

mod batch;
mod disk;
pub(crate) mod file;
pub(crate) mod html;
pub(crate) mod json;
mod outputs;
pub(crate) mod page;
pub(crate) mod plot;
pub(crate) mod table;
pub(crate) mod words;

use crate::cli::Color;
use crate::failure::Failure;
use std::io::{self, IsTerminal, Write};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

pub(crate) use batch::batch;
pub(crate) use disk::disk;
pub(crate) use outputs::Outputs;

static COLORED: AtomicBool = AtomicBool::new(false);

/// Decides about colours once, for all that is printed.
pub(crate) fn set_color(wanted: Color) {
    let colored = match wanted {
        Color::Always => true,
        Color::Never => false,
        Color::Auto => {
            let refused = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
            !refused && io::stdout().is_terminal()
        }
    };
    COLORED.store(colored, Relaxed);
}

pub(crate) fn colored() -> bool {
    COLORED.load(Relaxed)
}

/// Standard output for data alone (`--json -`)?
pub(crate) fn is_stdout(file: Option<&Path>) -> bool {
    file == Some(Path::new("-"))
}

/// Writes what was asked for by `--json`.
pub(crate) fn save(path: &Path, value: &serde_json::Value) -> Result<(), Failure> {
    let mut text = serde_json::to_string_pretty(value).map_err(io::Error::from)?;
    text.push('\n');
    file::write("--json", path, &text)
}

/// A line on standard error; if nobody reads that, nobody is told.
pub(crate) fn complain(line: &str) {
    let _ = writeln!(io::stderr(), "{line}");
}

pub(crate) fn print(text: &str) -> Result<(), Failure> {
    print_bytes(text.as_bytes())
}

/// Writes to standard output; nobody who reads it any more is no error.
pub(crate) fn print_bytes(bytes: &[u8]) -> Result<(), Failure> {
    match crate::stdout::write(bytes) {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        Err(error) => Err(Failure::failed(format!("cannot write the results: {error}"))),
        Ok(()) => Ok(()),
    }
}
