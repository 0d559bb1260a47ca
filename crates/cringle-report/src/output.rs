//! Standard output and standard error: colours, whole texts, and a closed pipe (`| head`) that ends a command quietly.

use crate::failure::Failure;
use crate::file;
use std::io::{self, IsTerminal, Write};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

/// When tables have colours.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Color {
    /// When standard output is a terminal and NO_COLOR is not set.
    Auto,
    Always,
    Never,
}

static COLORED: AtomicBool = AtomicBool::new(false);

/// Decides about colours once, for all that is printed.
pub fn set_color(wanted: Color) {
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

pub fn colored() -> bool {
    COLORED.load(Relaxed)
}

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
