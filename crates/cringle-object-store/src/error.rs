//! Errors of the store, and their place among those of `object_store`.

use std::error::Error as StdError;
use std::io;
use std::path::{Path, PathBuf};

/// The name of the store in errors.
pub(crate) const STORE: &str = "LocalStore";

/// The source of an [`object_store::Error`].
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    #[error("no such object")]
    NotFound { path: PathBuf, source: io::Error },

    #[error("the object exists")]
    AlreadyExists { path: PathBuf, source: io::Error },

    #[error("{}: cannot {action}: {source}", path.display())]
    Io { action: &'static str, path: PathBuf, source: io::Error },

    #[error("{}: {source}", path.display())]
    Range { path: PathBuf, source: Box<dyn StdError + Send + Sync> },

    #[error("{}: the object ends after {actual} of {wanted} bytes", path.display())]
    Short { path: PathBuf, wanted: u64, actual: u64 },

    #[error("{}: there is no memory for {bytes} bytes; read fewer at a time", path.display())]
    Memory { path: PathBuf, bytes: u128 },

    #[error("the upload has ended: it was completed or aborted")]
    UploadEnded,

    #[error("cannot start the rings: {source}")]
    Start { source: io::Error },

    #[error("cannot use the rings: {source}")]
    Closed { source: io::Error },

    #[error("the operation panicked; the panic hook has reported where")]
    Panicked,

    #[error("the result was dropped")]
    Unwanted,
}

impl Error {
    /// Returns a function that adds the action and the path to an error of the system.
    pub(crate) fn io(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Error {
        move |source| Error::Io { action, path: path.into(), source }
    }

    /// Returns a function that explains that there is no memory for a read.
    pub(crate) fn memory(path: &Path, bytes: u64) -> impl FnOnce(io::Error) -> Error {
        move |_| Error::Memory { path: path.into(), bytes: bytes.into() }
    }

    /// Explains why an object cannot be opened.
    pub(crate) fn open(path: &Path) -> impl FnOnce(io::Error) -> Error {
        move |source| match source.kind() {
            io::ErrorKind::NotFound => Error::NotFound { path: path.into(), source },
            _ => Error::Io { action: "open it", path: path.into(), source },
        }
    }
}

impl From<Error> for object_store::Error {
    fn from(error: Error) -> Self {
        match error {
            Error::NotFound { path, source } => object_store::Error::NotFound {
                path: path.to_string_lossy().into_owned(),
                source: source.into(),
            },
            Error::AlreadyExists { path, source } => object_store::Error::AlreadyExists {
                path: path.to_string_lossy().into_owned(),
                source: source.into(),
            },
            other => object_store::Error::Generic { store: STORE, source: other.into() },
        }
    }
}
