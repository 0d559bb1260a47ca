//! Whether tables have colours.

use std::io::{self, IsTerminal};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

/// When tables have colours.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Color {
    /// If standard output is a terminal and NO_COLOR is not set
    Auto,
    /// In any case
    Always,
    /// In no case
    Never,
}

static COLORED: AtomicBool = AtomicBool::new(false);

/// Decides for the whole process whether tables have colours.
pub fn set_color(color: Color) {
    let colored = match color {
        Color::Always => true,
        Color::Never => false,
        Color::Auto => {
            let refused = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
            !refused && io::stdout().is_terminal()
        }
    };
    COLORED.store(colored, Relaxed);
}

/// Whether tables have colours.
pub fn colored() -> bool {
    COLORED.load(Relaxed)
}
