//! How a file of results is written: whole or not at all, and a place that takes none is told at once.
//!
//! A plain file is written beside its place and renamed; whatever else has the name (a pipe, a terminal)
//! is written to, for a rename would take its place.

use super::{is_stdout, print};
use crate::failure::Failure;
use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use tempfile::NamedTempFile;

/// Fails as [`write()`] would, for the option that names the file; standard output takes anything.
pub fn check(option: &str, path: Option<&Path>) -> Result<(), Failure> {
    let Some(path) = path.filter(|path| !is_stdout(Some(path))) else { return Ok(()) };
    let tried = match target(path) {
        Ok(Target::Beside { path }) => beside(&path).map(drop),
        Ok(Target::Into) => OpenOptions::new().write(true).open(path).map(drop),
        Err(error) => Err(error),
    };
    tried.map_err(|error| refused(option, path, &error))
}

pub fn write(option: &str, path: &Path, text: &str) -> Result<(), Failure> {
    if is_stdout(Some(path)) {
        return print(text);
    }
    let written = match target(path) {
        Ok(Target::Beside { path }) => replace(&path, text),
        Ok(Target::Into) => OpenOptions::new()
            .write(true)
            .truncate(true)
            .open(path)
            .and_then(|mut file| file.write_all(text.as_bytes())),
        Err(error) => Err(error),
    };
    written.map_err(|error| refused(option, path, &error))
}

enum Target {
    /// A plain file, or none yet, with this name.
    Beside { path: PathBuf },
    /// Something else that can be written to, or a file without a name (`/proc/self/fd/3`).
    Into,
}

fn target(path: &Path) -> io::Result<Target> {
    match fs::metadata(path) {
        Ok(there) if there.is_dir() => Err(io::ErrorKind::IsADirectory.into()),
        // Where a link leads to, and not the link.
        Ok(there) if there.is_file() && there.nlink() > 0 => {
            Ok(Target::Beside { path: fs::canonicalize(path)? })
        }
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

fn refused(option: &str, path: &Path, error: &io::Error) -> Failure {
    Failure::failed(format!(
        "cannot write {}: {error}; give {option} a file in a directory that can be written to",
        path.display()
    ))
}

/// Whether there are such files, and they are one.
pub fn is_same(one: &Path, other: &Path) -> bool {
    let number = |path: &Path| {
        let metadata = std::fs::metadata(path).ok()?;
        Some((metadata.dev(), metadata.ino()))
    };
    number(one).is_some_and(|one| number(other) == Some(one))
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
        check("--html", Some(&path)).unwrap();
        assert!(names(place.path()).is_empty());
        write("--html", &path, "one").unwrap();
        write("--html", &path, "two").unwrap();
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
        write("--html", &link, "new").unwrap();
        assert_eq!(fs::read_to_string(&file).unwrap(), "new");
        assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
        assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
    }

    #[test]
    fn what_is_no_file_is_not_replaced() {
        let place = tempfile::tempdir().unwrap();
        let link = place.path().join("null");
        symlink("/dev/null", &link).unwrap();
        check("--json", Some(&link)).unwrap();
        write("--json", &link, "text").unwrap();
        assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
        let directory = check("--json", Some(place.path())).unwrap_err();
        assert!(directory.message.contains("directory"));
    }

    #[test]
    fn a_file_without_a_name_is_written_to() {
        use std::os::fd::AsRawFd;
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(b"something longer").unwrap();
        let path = format!("/proc/self/fd/{}", file.as_raw_fd());
        check("--json", Some(Path::new(&path))).unwrap();
        write("--json", Path::new(&path), "text").unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "text");
    }

    #[test]
    fn a_place_that_takes_none_is_named_with_what_to_do() {
        for path in ["/proc/nothing.html", "/nowhere/page.html", "/dev/null/page.html"] {
            let place = Path::new(path);
            for failure in [check("--json", Some(place)), write("--json", place, "")] {
                let said = failure.unwrap_err().message;
                assert!(said.contains(path) && said.contains("--json"), "{said}");
            }
        }
    }
}
