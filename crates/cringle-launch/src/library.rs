//! Where the library is.

use crate::{OWN_FAILURE, failure};
use cringle_report::failure::Failure;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

const FILE: &str = "libcringle_preload.so";
/// Names the library, where it is not beside the command.
const VARIABLE: &str = "CRINGLE_PRELOAD";
/// Where it is looked for, from the directory of the command.
const BESIDE: [&str; 3] = ["", "../lib", "../lib/cringle"];

/// Returns the absolute path of the library.
pub(crate) fn find() -> Result<PathBuf, Failure> {
    let named = std::env::var_os(VARIABLE).filter(|path| !path.is_empty()).map(PathBuf::from);
    let places = match named {
        Some(path) => vec![path],
        None => beside()?,
    };
    let found = places.iter().find_map(|path| path.canonicalize().ok());
    let path = found.ok_or_else(|| missing(&places))?;
    if path.as_os_str().as_bytes().iter().any(|byte| b" :".contains(byte)) {
        let text = format!(
            "{}: LD_PRELOAD cannot name a path with a space or a colon; copy the library to \
             another directory, and name it by {VARIABLE}",
            path.display()
        );
        return Err(failure(OWN_FAILURE, text));
    }
    Ok(path)
}

fn beside() -> Result<Vec<PathBuf>, Failure> {
    let command = std::env::current_exe().map_err(|e| {
        let text = format!(
            "the place of this command is unknown: {e}; mount /proc, or name {FILE} by {VARIABLE}"
        );
        failure(OWN_FAILURE, text)
    })?;
    let directory = command.parent().unwrap_or(Path::new("."));
    Ok(BESIDE.iter().map(|place| directory.join(place).join(FILE)).collect())
}

fn missing(places: &[PathBuf]) -> Failure {
    let places: Vec<_> = places.iter().map(|path| path.display().to_string()).collect();
    let text = format!(
        "the library {FILE} was not found as {}; build it by `cargo build --release -p \
         cringle-preload` in Cringle's sources, and copy it from target/release beside this \
         command, or name it by {VARIABLE} (`cargo install` installs the command alone)",
        places.join(" or ")
    );
    failure(OWN_FAILURE, text)
}
