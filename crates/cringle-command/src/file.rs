//! Writes files of results completely or not at all.
//!
//! A regular file is written under a temporary name in the same directory and renamed. Anything
//! else with that name (a pipe, a terminal) is opened and written to, since a rename would replace
//! it. [`check`] finds a path that cannot be written before the work starts.

use super::{is_stdout, print};
use crate::failure::Failure;
use std::ffi::CString;
use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use tempfile::NamedTempFile;

/// Fails if [`write()`] to this path would fail. `option` is the option that names the file.
pub fn check(option: &str, path: Option<&Path>) -> Result<(), Failure> {
    let Some(path) = path.filter(|path| !is_stdout(Some(path))) else { return Ok(()) };
    let tried = match target(path) {
        Ok(Target::Replace { path }) => temporary_beside(&path).map(drop),
        // Opening and closing a pipe would end the input of its reader.
        Ok(Target::WriteInto) => may_write(path),
        Err(error) => Err(error),
    };
    tried.map_err(|error| refused(option, path, &error))
}

/// Writes `text` to the file that `option` names; `-` is standard output.
pub fn write(option: &str, path: &Path, text: &str) -> Result<(), Failure> {
    if is_stdout(Some(path)) {
        return print(text);
    }
    let written = match target(path) {
        Ok(Target::Replace { path }) => replace(&path, text),
        Ok(Target::WriteInto) => OpenOptions::new()
            .write(true)
            .truncate(true)
            .open(path)
            .and_then(|mut file| file.write_all(text.as_bytes())),
        Err(error) => Err(error),
    };
    written.map_err(|error| refused(option, path, &error))
}

/// How a path is written to.
enum Target {
    /// A regular file, existing or not, is replaced by a rename.
    Replace { path: PathBuf },
    /// A pipe, a device or a file without a name (`/proc/self/fd/3`) is opened and written to.
    WriteInto,
}

fn target(path: &Path) -> io::Result<Target> {
    match fs::metadata(path) {
        Ok(existing) if existing.is_dir() => Err(io::ErrorKind::IsADirectory.into()),
        // The canonical path replaces the file that a link points to, and keeps the link.
        Ok(existing) if existing.is_file() && existing.nlink() > 0 => {
            Ok(Target::Replace { path: fs::canonicalize(path)? })
        }
        Ok(_) => Ok(Target::WriteInto),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            Ok(Target::Replace { path: path.into() })
        }
        Err(error) => Err(error),
    }
}

/// Fails, with the reason, if this process may not write to the file.
fn may_write(path: &Path) -> io::Result<()> {
    let name = CString::new(path.as_os_str().as_bytes())?;
    let (how, flags) = (libc::W_OK, libc::AT_EACCESS);
    // SAFETY: `name` ends in a zero byte and outlives the call.
    match unsafe { libc::faccessat(libc::AT_FDCWD, name.as_ptr(), how, flags) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Creates a temporary file in the directory of `path`, with the permissions that the result will
/// have.
fn temporary_beside(path: &Path) -> io::Result<NamedTempFile> {
    let directory = match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    // A new file gets the mode that `open` would give it; the umask applies.
    let mode = fs::metadata(path).map_or(0o666, |existing| existing.permissions().mode());
    tempfile::Builder::new()
        .prefix(".cringle-")
        .permissions(Permissions::from_mode(mode))
        .tempfile_in(directory)
}

fn replace(path: &Path, text: &str) -> io::Result<()> {
    let mut file = temporary_beside(path)?;
    file.write_all(text.as_bytes())?;
    file.as_file().sync_all()?;
    let _: File = file.persist(path).map_err(|error| error.error)?;
    Ok(())
}

fn refused(option: &str, path: &Path, error: &io::Error) -> Failure {
    Failure::failed(format!(
        "cannot write {}: {error}; give {option} a file in a writable directory",
        path.display()
    ))
}

/// Returns whether both paths exist and are the same file.
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

    fn names(directory: &Path) -> Vec<String> {
        let names = fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().file_name());
        names.map(|name| name.into_string().unwrap()).collect()
    }

    #[test]
    fn check_creates_nothing_and_write_creates_one_file() {
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
    fn write_keeps_permissions_and_links() {
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
    fn a_device_is_not_replaced() {
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
    fn a_pipe_with_a_name_keeps_its_reader() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("pipe");
        let name = CString::new(path.as_os_str().as_bytes()).unwrap();
        // SAFETY: `name` ends in a zero byte and outlives the call.
        assert_eq!(unsafe { libc::mkfifo(name.as_ptr(), 0o600) }, 0);
        let (sender, text) = std::sync::mpsc::channel();
        let reader = path.clone();
        std::thread::spawn(move || sender.send(fs::read_to_string(reader)));
        check("--json", Some(&path)).unwrap();
        let writer = path.clone();
        std::thread::spawn(move || write("--json", &writer, "text"));
        let text = text.recv_timeout(std::time::Duration::from_secs(20)).unwrap();
        assert_eq!(text.unwrap(), "text");
    }

    #[test]
    fn a_file_without_a_name_is_written() {
        use std::os::fd::AsRawFd;
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(b"something longer").unwrap();
        let path = format!("/proc/self/fd/{}", file.as_raw_fd());
        check("--json", Some(Path::new(&path))).unwrap();
        write("--json", Path::new(&path), "text").unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "text");
    }

    #[test]
    fn an_unwritable_path_is_named_with_the_option() {
        for path in ["/proc/nothing.html", "/nowhere/page.html", "/dev/null/page.html"] {
            let file = Path::new(path);
            for failure in [check("--json", Some(file)), write("--json", file, "")] {
                let message = failure.unwrap_err().message;
                assert!(message.contains(path) && message.contains("--json"), "{message}");
            }
        }
    }
}
