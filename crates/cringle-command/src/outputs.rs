//! Refuses a result file that would destroy another file.
//!
//! A slip of the command line (`cp --json disk.img notes usb`) must not cost data. So before a
//! command opens any file, [`CommandFiles::check`] refuses a FILE of `--json`, `--html`, `--svg` or
//! `--trace` that
//!
//! - the command itself reads or writes, or that another option names;
//! - is not empty and has not been written by the same option of `cringle`, so that a command can
//!   be repeated;
//! - cannot be written.
//!
//! Two paths are one file if they have the same [`Identity`] after symbolic links are followed.
//! Descriptors of this process (`-`, `/dev/fd/3`) are compared with the files of the command, too,
//! but may have any content: they are written at their offset.

use crate::failure::Failure;
use crate::file::{self, descriptor, resolved};
use crate::is_stdout;
use std::ffi::OsString;
use std::fs::{self, File, Metadata};
use std::io::Read;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

/// What two paths to the same file have in common.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Identity {
    /// The device and the inode of a file, a directory or a pipe.
    Inode(u64, u64),
    /// The number of a block device.
    Device(u64),
    /// The directory, as device and inode, of a name that does not exist yet.
    New(u64, u64, OsString),
}

impl Identity {
    /// Returns the identity of a file, through symbolic links. Character devices (`/dev/null`) have
    /// none: they may be named twice.
    pub fn of(path: &Path) -> Option<Identity> {
        match fs::metadata(path) {
            Ok(existing) => Identity::of_existing(&existing),
            Err(_) => {
                let path = resolved(path).ok()?;
                let directory = fs::metadata(path.parent()?).ok()?;
                Some(Identity::New(directory.dev(), directory.ino(), path.file_name()?.into()))
            }
        }
    }

    fn of_existing(existing: &Metadata) -> Option<Identity> {
        let kind = existing.file_type();
        match () {
            () if kind.is_block_device() => Some(Identity::Device(existing.rdev())),
            () if kind.is_char_device() => None,
            () => Some(Identity::Inode(existing.dev(), existing.ino())),
        }
    }
}

/// The files that a command line names.
#[derive(Clone, Debug, Default)]
pub struct CommandFiles {
    results: Vec<(&'static str, PathBuf)>,
    used: Vec<PathBuf>,
}

impl CommandFiles {
    /// Adds the file that an option names for results, if it is given.
    pub fn result(mut self, option: &'static str, path: Option<impl Into<PathBuf>>) -> Self {
        self.results.extend(path.map(|path| (option, path.into())));
        self
    }

    /// Adds a file that the command itself reads or writes.
    pub fn uses(mut self, path: impl Into<PathBuf>) -> Self {
        self.used.push(path.into());
        self
    }

    /// Returns each result that is not a descriptor of this process: its option, and its path
    /// without symbolic links. A path that cannot be resolved is left to [`check`](Self::check).
    pub fn named_results(&self) -> Vec<(&'static str, PathBuf)> {
        let named = self.results.iter().filter(|(_, path)| descriptor(place(path)).is_none());
        named.filter_map(|(option, path)| Some((*option, resolved(path).ok()?))).collect()
    }

    /// Fails if a result would destroy a file, or cannot be written. Changes nothing.
    pub fn check(&self) -> Result<(), Failure> {
        for (n, (option, path)) in self.results.iter().enumerate() {
            if *option == "--trace" && is_stdout(Some(path)) {
                let text = "--trace cannot write to standard output: name a file";
                return Err(Failure::usage(text));
            }
            // The directory of a command (`bench disk .`) is refused as a directory below.
            let identity = Identity::of(place(path)).filter(|_| !place(path).is_dir());
            let is_here = |other: &Path| identity.is_some() && Identity::of(other) == identity;
            if self.used.iter().any(|used| is_here(used)) {
                return refuse(option, path, "is a file that the command reads or writes");
            }
            for (other, same) in &self.results[..n] {
                if same == path || is_here(place(same)) {
                    let text =
                        format!("{other} and {option} name the same file: {}", path.display());
                    return Err(Failure::usage(text));
                }
            }
            if descriptor(place(path)).is_none()
                && STREAMS.iter().any(|stream| is_here(Path::new(stream)))
            {
                return refuse(option, path, "is the file of standard output or standard error");
            }
        }
        for (option, path) in &self.results {
            refuse_foreign(option, place(path))?;
            file::check(option, path)?;
        }
        Ok(())
    }
}

const STREAMS: [&str; 2] = ["/proc/self/fd/1", "/proc/self/fd/2"];

/// Returns the path by which a result is opened.
fn place(path: &Path) -> &Path {
    if is_stdout(Some(path)) { Path::new(STREAMS[0]) } else { path }
}

fn refuse(option: &str, path: &Path, why: &str) -> Result<(), Failure> {
    let path = path.display();
    Err(Failure::usage(format!("{option}: {path} {why}; name another file")))
}

/// Fails if the path is an existing file with a content that this option has not written.
pub(crate) fn refuse_foreign(option: &str, path: &Path) -> Result<(), Failure> {
    let Ok(existing) = fs::metadata(path) else { return Ok(()) };
    let has_content = existing.is_file() && existing.nlink() > 0 && existing.len() > 0;
    if !has_content || descriptor(path).is_some() {
        return Ok(());
    }
    const START: u64 = 1024;
    let mut start = Vec::new();
    let read = File::open(path).and_then(|file| file.take(START).read_to_end(&mut start));
    let (is_own, kind) = recognise(option, &start);
    if read.is_ok() && is_own {
        return Ok(());
    }
    refuse(option, path, &format!("is not empty and not {kind}"))
}

/// Returns whether a file that begins with these bytes has been written by this option, and what
/// the option writes.
fn recognise(option: &str, start: &[u8]) -> (bool, &'static str) {
    let has = |text: &str| start.windows(text.len()).any(|part| part == text.as_bytes());
    match option {
        "--json" => {
            let names = ["\n  \"command\": \"", "\n  \"benchmark\": \""];
            let is_own = start.starts_with(b"{\n  \"schema\": ") && names.into_iter().any(has);
            (is_own, "a JSON report of cringle")
        }
        "--html" => {
            let is_own = start.starts_with(b"<!DOCTYPE html>") && has("<title>cringle ");
            (is_own, "a page of cringle")
        }
        "--svg" => (start.starts_with(SVG_START.as_bytes()), "a picture of cringle"),
        _ => (cringle::trace::wire::is_trace(start), "a trace"),
    }
}

/// The beginning by which a picture of `cringle` is recognised.
pub const SVG_START: &str = "<svg class=\"cringle\" ";

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsRawFd;
    use std::os::unix::fs::symlink;

    const JSON: &str = "{\n  \"schema\": 1,\n  \"command\": \"cp\"\n}\n";
    const HTML: &str = "<!DOCTYPE html><html><head><title>cringle disk: x</title>";

    fn json(path: &Path) -> CommandFiles {
        CommandFiles::default().result("--json", Some(path))
    }

    fn refused(files: &CommandFiles) -> String {
        let failure = files.check().unwrap_err();
        assert_eq!(failure.status, crate::failure::USAGE, "{failure}");
        failure.message
    }

    #[test]
    fn only_own_results_are_overwritten() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("file");
        for (content, option) in [(JSON, "--json"), (HTML, "--html"), ("", "--json")] {
            fs::write(&path, content).unwrap();
            CommandFiles::default().result(option, Some(&path)).check().unwrap();
        }
        for content in [HTML, "{}", "x", "{\n  \"schema\": 1,\n  \"name\": \"mine\"\n}"] {
            fs::write(&path, content).unwrap();
            assert!(refused(&json(&path)).contains("is not empty"));
            assert!(file::write("--json", &path, JSON).is_err());
            assert_eq!(fs::read_to_string(&path).unwrap(), content);
        }
    }

    #[test]
    fn names_of_one_file_are_recognised() {
        let place = tempfile::tempdir().unwrap();
        let at = |name: &str| place.path().join(name);
        fs::write(at("file"), JSON).unwrap();
        fs::hard_link(at("file"), at("hard")).unwrap();
        fs::create_dir(at("d")).unwrap();
        for (target, link) in [("file", "soft"), ("new", "dangling"), ("d", "e")] {
            symlink(target, at(link)).unwrap();
        }
        for (one, other) in [
            ("file", "file"),
            ("file", "hard"),
            ("soft", "hard"),
            ("new", "new"),
            ("dangling", "new"),
            ("d/new", "e/new"),
        ] {
            assert!(refused(&json(&at(one)).uses(at(other))).contains("reads or writes"), "{one}");
            let both = json(&at(one)).result("--html", Some(at(other)));
            assert!(refused(&both).contains("name the same file"), "{one}");
        }
        assert!(json(&at("d/new")).uses(at("new")).uses(at("d")).check().is_ok());
        assert_eq!(fs::read_to_string(at("hard")).unwrap(), JSON);
    }

    #[test]
    fn descriptors_of_used_files_are_refused() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("file");
        fs::write(&path, "text").unwrap();
        let options = fs::OpenOptions::new().read(true).append(true).open(&path).unwrap();
        let name = PathBuf::from(format!("/dev/fd/{}", options.as_raw_fd()));
        json(&name).check().unwrap();
        assert!(refused(&json(&name).uses(&path)).contains("reads or writes"));
        file::write("--json", &name, JSON).unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), format!("text{JSON}"));
        let readable = File::open(&path).unwrap();
        let name = PathBuf::from(format!("/dev/fd/{}", readable.as_raw_fd()));
        assert!(json(&name).check().unwrap_err().message.contains("Bad file descriptor"));
    }

    #[test]
    fn character_devices_are_written_by_several() {
        let null = Path::new("/dev/null");
        json(null).uses(null).check().unwrap();
    }
}
