//! The failure of a command: a message and an exit status.

use std::fmt;
use std::io;

/// The exit status of a command that failed; 0 is success.
pub const FAILED: u8 = 1;
/// The exit status of a wrong command line.
pub const USAGE: u8 = 2;
/// The exit status of `doctor` where a program on Cringle cannot use a ring.
pub const FALLBACK: u8 = 3;
/// The exit status after an interruption. [`crate::interrupt`] ends most commands with it; a
/// command that removes files first returns it.
pub const INTERRUPTED: u8 = 130;

/// An error that ends the command.
#[derive(Debug)]
pub struct Failure {
    pub status: u8,
    pub message: String,
}

impl Failure {
    /// A failure with status 1.
    pub fn failed(message: impl Into<String>) -> Failure {
        Failure { status: FAILED, message: message.into() }
    }

    /// Returns what explains an error by the operation that failed.
    pub fn because(what: impl fmt::Display) -> impl Fn(io::Error) -> Failure {
        move |error| Failure::failed(format!("{what}: {error}"))
    }

    /// A failure with status 2: the command line is contradictory or unsafe.
    pub fn usage(message: impl Into<String>) -> Failure {
        Failure { status: USAGE, message: message.into() }
    }

    /// A failure with status 130, after a signal.
    pub fn interrupted(message: impl Into<String>) -> Failure {
        Failure { status: INTERRUPTED, message: message.into() }
    }
}

/// Returns a failure with status 1.
pub fn fail<T>(message: impl Into<String>) -> Result<T, Failure> {
    Err(Failure::failed(message))
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Failure {
        Failure::failed(error.to_string())
    }
}
