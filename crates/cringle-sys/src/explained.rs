//! Errors with words of the library's own, which keep the kernel's error as their source.

use std::error::Error;
use std::{fmt, io};

/// Replaces the message of an error. Its kind stays, and its source is the original, with the
/// `errno`.
#[cold]
pub fn explained(source: io::Error, text: String) -> io::Error {
    io::Error::new(source.kind(), Explained { text, source })
}

#[derive(Debug)]
struct Explained {
    text: String,
    source: io::Error,
}

impl fmt::Display for Explained {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl Error for Explained {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        Some(&self.source)
    }
}
