//! Whether tables have colours.

use std::io::{self, IsTerminal};
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
