//! How a command ends when it does not end well: a message and an exit status.

use std::fmt;
use std::io;

/// 0 is done.
pub const FAILED: u8 = 1;
pub const USAGE: u8 = 2;
/// `doctor`: there is no ring for a program on Cringle here.
pub const FALLBACK: u8 = 3;
/// Mostly [`crate::interrupt`] ends the process with it; a command with files to remove returns it.
pub const INTERRUPTED: u8 = 130;

#[derive(Debug)]
pub struct Failure {
    pub status: u8,
    pub message: String,
}

impl Failure {
    pub fn failed(message: impl Into<String>) -> Failure {
        Failure { status: FAILED, message: message.into() }
    }

    /// The command line asks for something that makes no sense, or is not safe.
    pub fn usage(message: impl Into<String>) -> Failure {
        Failure { status: USAGE, message: message.into() }
    }

    pub fn interrupted(message: impl Into<String>) -> Failure {
        Failure { status: INTERRUPTED, message: message.into() }
    }
}

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
