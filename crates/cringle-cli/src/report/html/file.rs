//! Where a page is written: whole or not at all, and a place that takes none is told at once.
//!
//! A plain file is written beside its place and renamed; whatever else has the name (a pipe, a terminal)
//! is written to, for a rename would take its place.

use crate::failure::Failure;
use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use tempfile::NamedTempFile;

/// Fails as [`write`] would.
pub(crate) fn check(path: &Path) -> Result<(), Failure> {
    let tried = match target(path) {
        Ok(Target::Beside { path }) => beside(&path).map(drop),
        Ok(Target::Into) => OpenOptions::new().write(true).open(path).map(drop),
        Err(error) => Err(error),
    };
    tried.map_err(|error| refused(path, &error))
}

pub(crate) fn write(path: &Path, text: &str) -> Result<(), Failure> {
    let written = match target(path) {
        Ok(Target::Beside { path }) => replace(&path, text),
        Ok(Target::Into) => OpenOptions::new()
            .write(true)
            .open(path)
            .and_then(|mut file| file.write_all(text.as_bytes())),
        Err(error) => Err(error),
    };
    written.map_err(|error| refused(path, &error))
}

enum Target {
    /// A plain file, or none yet, with this name.
    Beside { path: PathBuf },
    /// Something else that can be written to.
    Into,
}

fn target(path: &Path) -> io::Result<Target> {
    match fs::metadata(path) {
        Ok(there) if there.is_dir() => Err(io::ErrorKind::IsADirectory.into()),
        // Where a link leads to, and not the link.
        Ok(there) if there.is_file() => Ok(Target::Beside { path: fs::canonicalize(path)? }),
        Ok(_) => Ok(Target::Into),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            Ok(Target::Beside { path: path.into() })
        }
        Err(error) => Err(error),
    }
}

fn beside(path: &Path) -> io::Result<NamedTempFile> {
    let directory = match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    // As `open` would have made it; the umask takes its part.
    let mode = fs::metadata(path).map_or(0o666, |there| there.permissions().mode());
    tempfile::Builder::new()
        .prefix(".cringle-")
        .suffix(".html")
        .permissions(Permissions::from_mode(mode))
        .tempfile_in(directory)
}

fn replace(path: &Path, text: &str) -> io::Result<()> {
    let mut file = beside(path)?;
    file.write_all(text.as_bytes())?;
    file.as_file().sync_all()?;
    let _: File = file.persist(path).map_err(|error| error.error)?;
    Ok(())
}

fn refused(path: &Path, error: &io::Error) -> Failure {
    Failure::failed(format!(
        "cannot write the page {}: {error}; give --html a file in a directory that can be written to",
        path.display()
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    fn names(place: &Path) -> Vec<String> {
        let names = fs::read_dir(place).unwrap().map(|one| one.unwrap().file_name());
        names.map(|name| name.into_string().unwrap()).collect()
    }

    #[test]
    fn looking_leaves_nothing_and_writing_leaves_one_file() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("page.html");
        check(&path).unwrap();
        assert!(names(place.path()).is_empty());
        write(&path, "one").unwrap();
        write(&path, "two").unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "two");
        assert_eq!(names(place.path()), ["page.html"]);
    }

    #[test]
    fn a_file_keeps_its_permissions_and_a_link_its_place() {
        let place = tempfile::tempdir().unwrap();
        let (file, link) = (place.path().join("file"), place.path().join("link"));
        fs::write(&file, "old").unwrap();
        fs::set_permissions(&file, Permissions::from_mode(0o600)).unwrap();
        symlink(&file, &link).unwrap();
        write(&link, "new").unwrap();
        assert_eq!(fs::read_to_string(&file).unwrap(), "new");
        assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
        assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
    }

    #[test]
    fn what_is_no_file_is_not_replaced() {
        let place = tempfile::tempdir().unwrap();
        let link = place.path().join("null");
        symlink("/dev/null", &link).unwrap();
        check(&link).unwrap();
        write(&link, "text").unwrap();
        assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
        assert!(check(place.path()).unwrap_err().message.contains("directory"));
    }

    #[test]
    fn a_place_that_takes_none_is_named_with_what_to_do() {
        for path in ["/proc/nothing.html", "/nowhere/page.html", "/dev/null/page.html"] {
            for failure in [check(Path::new(path)), write(Path::new(path), "")] {
                let said = failure.unwrap_err().message;
                assert!(said.contains(path) && said.contains("--html"), "{said}");
            }
        }
    }
}
