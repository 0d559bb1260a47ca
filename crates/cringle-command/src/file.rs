//! Writes files of results completely or not at all.
//!
//! A regular file is written under a temporary name in the same directory and renamed. It is
//! written in place if a rename would lose its owner, its other names or its ACL, or is impossible
//! (the directory is read-only or append-only, the file is a mount point). A pipe or a terminal is
//! opened and written to. A file that is a descriptor of this process (`/dev/stdout`, `/dev/fd/3`)
//! is written at the offset of that. [`outputs`] checks before the work starts that a file can and
//! may be written.

use super::{is_stdout, outputs, print, stdout};
use crate::failure::Failure;
use rustix::fs::{Access, AtFlags, CWD, StatxAttributes, StatxFlags, accessat, statx};
use std::fs::{self, File, Metadata, OpenOptions, Permissions};
use std::io::{self, Write};
use std::os::fd::{FromRawFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt, PermissionsExt, fchown};
use std::path::{Path, PathBuf};
use tempfile::NamedTempFile;

/// Fails if [`write()`] to this path would fail. `option` is the option that names the file.
pub(crate) fn check(option: &str, path: &Path) -> Result<(), Failure> {
    if is_stdout(Some(path)) {
        return print("");
    }
    let tried = match target(path) {
        // The standard output may have been closed at the start.
        Ok(_) if descriptor(path) == Some(libc::STDOUT_FILENO) => stdout::write(&[]),
        Ok(Target::Descriptor(fd)) => may_write_to(fd),
        Ok(Target::Existing(_, existing)) if existing.is_file() => {
            // Also finds a file that is immutable or append-only.
            let flags = libc::O_NONBLOCK | libc::O_NOCTTY;
            OpenOptions::new().write(true).custom_flags(flags).open(path).map(drop)
        }
        // Opening and closing a pipe would end the input of its reader.
        Ok(Target::Existing(..)) => may_write(path),
        Ok(Target::New(path)) if keeps_names(&path) => may_write(directory_of(&path)),
        Ok(Target::New(path)) => temporary_beside(&path, 0o666).map(drop),
        Err(error) => Err(error),
    };
    tried.map_err(|error| refused(option, path, &error))
}

/// Writes `text` to the file that `option` names; `-` is standard output.
///
/// # Errors
///
/// The failure names the option and the path. A file that appeared after
/// [`CommandFiles::check`](outputs::CommandFiles::check), for example as the target of a copy, is
/// not overwritten.
pub fn write(option: &str, path: &Path, text: &str) -> Result<(), Failure> {
    if is_stdout(Some(path)) {
        return print(text);
    }
    outputs::refuse_foreign(option, path).map_err(|failure| Failure::failed(failure.message))?;
    let written = match target(path) {
        Ok(Target::Descriptor(fd)) => duplicate(fd).and_then(|mut f| f.write_all(text.as_bytes())),
        Ok(Target::Existing(path, existing)) => overwrite(&path, &existing, text.as_bytes()),
        Ok(Target::New(path)) if keeps_names(&path) => {
            let file = OpenOptions::new().write(true).create_new(true).open(path);
            file.and_then(|mut file| file.write_all(text.as_bytes()))
        }
        Ok(Target::New(path)) => replace(&path, text.as_bytes()),
        Err(error) => Err(error),
    };
    written.map_err(|error| refused(option, path, &error))
}

/// Replaces a name, even one that is a symbolic link, by a new file.
pub fn replace(path: &Path, bytes: &[u8]) -> io::Result<()> {
    persist(temporary_beside(path, 0o666)?, path, bytes)
}

/// How a path is written to.
enum Target {
    /// An open descriptor of this process for a regular file or a socket.
    Descriptor(RawFd),
    /// A file, a pipe or a device.
    Existing(PathBuf, Metadata),
    /// No file has this name yet. Symbolic links are resolved.
    New(PathBuf),
}

fn target(path: &Path) -> io::Result<Target> {
    let existing = fs::metadata(path);
    // A pipe or terminal is opened again: a write to the descriptor might fail instead of waiting.
    if existing.as_ref().is_ok_and(|it| it.is_file() || it.file_type().is_socket())
        && let Some(fd) = descriptor(path)
    {
        return Ok(Target::Descriptor(fd));
    }
    match existing {
        Ok(existing) if existing.is_dir() => Err(io::ErrorKind::IsADirectory.into()),
        Ok(existing) if existing.file_type().is_block_device() => {
            Err(io::Error::other("it is a block device"))
        }
        Ok(existing) if existing.file_type().is_socket() => Err(io::Error::other("it is a socket")),
        // The canonical path replaces the file that a link points to, and keeps the link.
        Ok(existing) if existing.is_file() && existing.nlink() > 0 => {
            Ok(Target::Existing(fs::canonicalize(path)?, existing))
        }
        Ok(existing) => Ok(Target::Existing(path.into(), existing)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => resolved(path).map(Target::New),
        Err(error) => Err(error),
    }
}

/// Returns the number of the descriptor of this process that the path names, through symbolic
/// links: 1 for `/dev/stdout`.
pub(crate) fn descriptor(path: &Path) -> Option<RawFd> {
    let own = ["/proc/self/fd", "/proc/thread-self/fd"].map(|path| fs::canonicalize(path).ok());
    let mut path = path.to_path_buf();
    for _ in 0..MOST_LINKS {
        let directory = fs::canonicalize(directory_of(&path)).ok()?;
        if own.iter().flatten().any(|own| *own == directory) {
            return path.file_name()?.to_str()?.parse().ok();
        }
        path = directory.join(fs::read_link(&path).ok()?);
    }
    None
}

/// The most symbolic links that the kernel follows in a path.
const MOST_LINKS: usize = 40;

/// Returns the path without symbolic links. The last name need not exist.
pub(crate) fn resolved(path: &Path) -> io::Result<PathBuf> {
    let mut path = path.to_path_buf();
    for _ in 0..MOST_LINKS {
        let directory = directory_of(&path);
        let directory = fs::canonicalize(directory).map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => {
                let directory = directory.display();
                let text = format!("{error}: the directory {directory} does not exist");
                io::Error::new(error.kind(), text)
            }
            _ => error,
        })?;
        match fs::read_link(&path) {
            Ok(link) => path = directory.join(link),
            Err(_) => {
                let is_file = !path.as_os_str().as_bytes().ends_with(b"/");
                let name = path.file_name().filter(|_| is_file);
                let name = name.ok_or_else(|| io::Error::from_raw_os_error(libc::ENOENT))?;
                return Ok(directory.join(name));
            }
        }
    }
    Err(io::Error::from_raw_os_error(libc::ELOOP))
}

fn directory_of(path: &Path) -> &Path {
    match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    }
}

/// Fails, with the reason, if this process may not write to the file.
fn may_write(path: &Path) -> io::Result<()> {
    Ok(accessat(CWD, path, Access::WRITE_OK, AtFlags::EACCESS)?)
}

/// Fails if the descriptor is not open for writing.
pub(crate) fn may_write_to(fd: RawFd) -> io::Result<()> {
    if crate::startup::is_closed(fd) {
        return Err(io::Error::from_raw_os_error(libc::EBADF));
    }
    // SAFETY: a system call without pointers.
    match unsafe { libc::fcntl(fd, libc::F_GETFL) } {
        -1 => Err(io::Error::last_os_error()),
        flags if flags & libc::O_ACCMODE == libc::O_RDONLY => {
            Err(io::Error::from_raw_os_error(libc::EBADF))
        }
        _ => Ok(()),
    }
}

/// Returns another descriptor of the same open file, with its offset.
fn duplicate(fd: RawFd) -> io::Result<File> {
    // SAFETY: a system call without pointers.
    match unsafe { libc::fcntl(fd, libc::F_DUPFD_CLOEXEC, 0) } {
        -1 => Err(io::Error::last_os_error()),
        // SAFETY: the call has returned a new descriptor, which has no other owner.
        fd => Ok(unsafe { File::from_raw_fd(fd) }),
    }
}

/// Creates a temporary file in the directory of `path`; the umask restricts `mode`.
fn temporary_beside(path: &Path, mode: u32) -> io::Result<NamedTempFile> {
    // An error of `make_in` does not name the temporary file.
    tempfile::Builder::new().prefix(".cringle-").make_in(directory_of(path), |path| {
        OpenOptions::new().write(true).create_new(true).mode(mode).open(path)
    })
}

fn persist(mut file: NamedTempFile, path: &Path, bytes: &[u8]) -> io::Result<()> {
    // An error of `NamedTempFile::write_all` would name the temporary file.
    file.as_file_mut().write_all(bytes)?;
    file.as_file().sync_all()?;
    let _: File = file.persist(path).map_err(|error| error.error)?;
    Ok(())
}

fn overwrite(path: &Path, existing: &Metadata, bytes: &[u8]) -> io::Result<()> {
    if existing.is_file() && existing.nlink() == 1 && !has_attributes(path) && !keeps_names(path) {
        let (mode, owner) = (existing.mode(), (existing.uid(), existing.gid()));
        let replacement = temporary_beside(path, 0o600).and_then(|file| {
            let made = file.as_file();
            if owner != made.metadata().map(|made| (made.uid(), made.gid()))? {
                fchown(made, Some(owner.0), Some(owner.1))?;
            }
            made.set_permissions(Permissions::from_mode(mode & 0o7777)).map(|()| file)
        });
        match replacement.map(|file| persist(file, path, bytes)) {
            // A mount point is busy.
            Ok(Err(error)) if error.kind() == io::ErrorKind::ResourceBusy => {}
            Ok(done) => return done,
            Err(_) => {}
        }
    }
    let mut file = OpenOptions::new().write(true).open(path)?;
    file.write_all(bytes)?;
    if existing.is_file() {
        file.set_len(bytes.len() as u64)?;
        file.sync_all()?;
    }
    Ok(())
}

/// Returns whether the file has an ACL or another extended attribute that a new file would not
/// have.
fn has_attributes(path: &Path) -> bool {
    let mut names = [0_u8; 1024];
    match rustix::fs::listxattr(path, &mut names[..]) {
        // A new file gets its label from the directory.
        Ok(length) => names[..length]
            .split(|&byte| byte == 0)
            .any(|name| !name.is_empty() && name != b"security.selinux"),
        Err(error) => error == rustix::io::Errno::RANGE,
    }
}

/// Returns whether the directory of the path keeps all its names (`chattr +a`), also those of
/// temporary files.
fn keeps_names(path: &Path) -> bool {
    let (flags, all) = (AtFlags::STATX_DONT_SYNC, StatxFlags::empty());
    statx(CWD, directory_of(path), flags, all)
        .is_ok_and(|found| found.stx_attributes.contains(StatxAttributes::APPEND))
}

fn refused(option: &str, path: &Path, error: &io::Error) -> Failure {
    Failure::failed(format!(
        "cannot write {}: {error}; give {option} a file in an existing, writable directory",
        path.display()
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ffi::CString;
    use std::os::unix::fs::symlink;

    fn names(directory: &Path) -> Vec<String> {
        let names = fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().file_name());
        names.map(|name| name.into_string().unwrap()).collect()
    }

    const PAGE: &str = "<!DOCTYPE html><html><head><title>cringle disk: reads</title>";
    const LONGER: &str = "<!DOCTYPE html><html><head><title>cringle disk: more reads</title>";

    #[test]
    fn check_creates_nothing_and_write_creates_one_file() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("page.html");
        check("--html", &path).unwrap();
        assert!(names(place.path()).is_empty());
        write("--html", &path, LONGER).unwrap();
        write("--html", &path, PAGE).unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), PAGE);
        assert_eq!(names(place.path()), ["page.html"]);
    }

    #[test]
    fn write_keeps_permissions_and_links() {
        let place = tempfile::tempdir().unwrap();
        let at = |name: &str| place.path().join(name);
        fs::write(at("file"), LONGER).unwrap();
        fs::set_permissions(at("file"), Permissions::from_mode(0o600)).unwrap();
        symlink("file", at("link")).unwrap();
        symlink("new", at("dangling")).unwrap();
        write("--html", &at("link"), PAGE).unwrap();
        fs::hard_link(at("file"), at("hard")).unwrap();
        write("--html", &at("dangling"), PAGE).unwrap();
        write("--html", &at("hard"), PAGE).unwrap();
        for name in ["file", "hard", "new"] {
            assert_eq!(fs::read_to_string(at(name)).unwrap(), PAGE);
        }
        assert_eq!(fs::metadata(at("file")).unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(fs::metadata(at("file")).unwrap().nlink(), 2);
        assert!(fs::symlink_metadata(at("link")).unwrap().is_symlink());
        assert!(fs::symlink_metadata(at("dangling")).unwrap().is_symlink());
    }

    #[test]
    fn a_file_that_appeared_is_not_overwritten() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("file");
        check("--html", &path).unwrap();
        fs::write(&path, "the target of a copy").unwrap();
        assert!(write("--html", &path, PAGE).is_err());
        assert_eq!(fs::read_to_string(&path).unwrap(), "the target of a copy");
    }

    #[test]
    fn a_device_is_not_replaced() {
        let place = tempfile::tempdir().unwrap();
        let link = place.path().join("null");
        symlink("/dev/null", &link).unwrap();
        check("--json", &link).unwrap();
        write("--json", &link, "text").unwrap();
        assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
        let directory = check("--json", place.path()).unwrap_err();
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
        check("--json", &path).unwrap();
        let writer = path.clone();
        std::thread::spawn(move || write("--json", &writer, "text"));
        let text = text.recv().unwrap();
        assert_eq!(text.unwrap(), "text");
    }

    #[test]
    fn a_pipe_that_does_not_wait_gets_everything() {
        use std::os::fd::AsRawFd;
        let (mut reader, writer) = io::pipe().unwrap();
        // SAFETY: a system call without pointers; the descriptor is open.
        let done = unsafe { libc::fcntl(writer.as_raw_fd(), libc::F_SETFL, libc::O_NONBLOCK) };
        assert_eq!(done, 0);
        let path = format!("/dev/fd/{}", writer.as_raw_fd());
        let text = "x".repeat(1 << 20);
        let expected = text.clone();
        check("--json", Path::new(&path)).unwrap();
        let thread = std::thread::spawn(move || {
            write("--json", Path::new(&path), &text).unwrap();
            drop(writer);
        });
        assert_eq!(io::read_to_string(&mut reader).unwrap(), expected);
        thread.join().unwrap();
    }

    #[test]
    fn a_file_without_a_name_is_written() {
        use std::os::fd::AsRawFd;
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(b"before, ").unwrap();
        let path = format!("/proc/self/fd/{}", file.as_raw_fd());
        check("--json", Path::new(&path)).unwrap();
        write("--json", Path::new(&path), "text").unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "before, text");
    }

    #[test]
    fn an_unwritable_path_is_named_with_the_option() {
        for path in ["/proc/nothing.html", "/nowhere/page.html", "/dev/null/page.html"] {
            let file = Path::new(path);
            for failure in [check("--json", file), write("--json", file, "")] {
                let message = failure.unwrap_err().message;
                assert!(message.contains(path) && message.contains("--json"), "{message}");
            }
        }
    }
}
