//! Copies files and trees of files on all cores, with the semantics of GNU's `cp`.
//!
//! [`copy`] is the library: it copies, collects the failures and returns a [`Summary`]. [`run`] is
//! the command line `cringle cp`, which prints GNU's messages and returns GNU's exit statuses.
//!
//! ```
//! use cringle_cp::{Options, copy};
//! # let place = tempfile::tempdir()?;
//! # let (photos, backup) = (place.path().join("photos"), place.path().join("backup"));
//! # std::fs::create_dir(&photos)?;
//! # std::fs::write(photos.join("cat.jpg"), "a cat")?;
//!
//! let summary = copy(&[&photos], &backup, &Options::new().archive())?;
//! assert_eq!((summary.files, summary.bytes), (1, 5));
//! assert_eq!(std::fs::read(backup.join("cat.jpg"))?, b"a cat");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Inside
//!
//! | module | content |
//! |---|---|
//! | [`command`], [`flags`], [`getopt`], [`request`] | the command line, read as GNU reads it |
//! | [`options`], [`choices`] | how files are copied |
//! | [`plan`], [`parents`], [`sources`] | the targets; the sources in order or in parallel |
//! | [`workers`], [`tree`] | the threads and their tasks; directories as handles |
//! | [`listing`], [`descriptors`] | directories read piece by piece; a budget of open files |
//! | [`entry`], [`directory`] | the copy of one directory entry, by file type |
//! | [`new_link`], [`hard_links`] | links, and which names are links to one copy |
//! | [`target`], [`decide`], [`compare`], [`backup`] | what happens to an existing target |
//! | [`regular`], [`read_ahead`], [`destination`], [`replace`] | the copy of one file |
//! | [`transfer`], [`verify`], [`attributes`], [`xattrs`] | its data and its attributes |
//! | [`fsync`] | `--fsync` |
//! | [`temporary`], [`file_locks`] | names of unfinished files; one writer for each file |
//! | [`results`] | `--json` and `--trace`: files that would destroy another one |
//! | [`resume`] | `--resume`: the manifest of an interrupted copy |
//! | [`stop`] | Ctrl-C |
//! | [`messages`], [`progress`], [`count_ahead`], [`summary`], [`dry_run`] | output |

// The table above is for developers.
#![allow(rustdoc::private_intra_doc_links)]

mod attributes;
mod backup;
mod choices;
mod command;
mod compare;
mod count_ahead;
mod decide;
mod descriptors;
mod destination;
mod directory;
mod dry_run;
mod entry;
mod file_locks;
mod flags;
mod fsync;
mod getopt;
mod hard_links;
mod listing;
mod messages;
mod new_link;
mod options;
mod parents;
mod plan;
mod progress;
mod read_ahead;
mod regular;
mod replace;
mod request;
mod results;
mod resume;
mod sources;
mod stop;
mod summary;
mod sys;
mod target;
mod temporary;
mod transfer;
mod tree;
mod uncached;
mod verify;
mod workers;
mod xattrs;

pub use choices::{Follow, Preserve, Update, When};
pub use command::run;
pub use flags::Arguments;
pub use options::Options;
pub use summary::Summary;

use messages::Reporter;
use plan::Usage;
use request::Request;
use std::ffi::OsString;
use std::fmt;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;
use workers::Shared;

/// A copy that did not copy everything.
///
/// ```
/// use cringle_cp::{Options, copy};
///
/// let error = copy(&["/nothing"], "/dev/null", &Options::new()).unwrap_err();
/// assert_eq!(error.to_string(), "cannot stat '/nothing': No such file or directory");
/// ```
#[derive(Clone, Debug)]
pub struct Error {
    summary: Summary,
    messages: Vec<String>,
}

impl Error {
    /// Returns how much was copied nevertheless.
    ///
    /// ```
    /// use cringle_cp::{Options, copy};
    /// # let place = tempfile::tempdir()?;
    /// # let at = |name: &str| place.path().join(name);
    /// # std::fs::write(at("letter"), "Dear reader")?;
    /// # std::fs::create_dir(at("copies"))?;
    ///
    /// let error = copy(&[at("nothing"), at("letter")], at("copies"), &Options::new()).unwrap_err();
    /// assert_eq!((error.summary().files, error.summary().failures), (1, 1));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn summary(&self) -> Summary {
        self.summary
    }

    /// Returns the failures in the order in which they happened, in GNU's words.
    ///
    /// ```
    /// use cringle_cp::{Options, copy};
    ///
    /// let error = copy(&["/nothing", "/none"], "/tmp", &Options::new()).unwrap_err();
    /// for message in error.messages() {
    ///     eprintln!("backup: {message}");
    /// }
    /// assert_eq!(error.messages().len(), 2);
    /// ```
    pub fn messages(&self) -> &[String] {
        &self.messages
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.messages[..] {
            [] => f.write_str("not everything was copied"),
            [only] => f.write_str(only),
            [first, rest @ ..] => write!(f, "{first} (and {} more failures)", rest.len()),
        }
    }
}

impl std::error::Error for Error {}

/// Copies `sources` to `target`, or into it if it is a directory.
///
/// The copy runs on threads of its own, [`Options::jobs`] at most, and returns when they have
/// ended. Where no thread can be started, the calling one copies. It raises the soft limit on open
/// files (`RLIMIT_NOFILE`) as far as the copy can use more. Two copies must not have the same
/// target at the same time.
///
/// The calling thread waits. On a fiber of Cringle, call it through `cringle::fiber::unblock`, so
/// that only the fiber waits. The cancel of a fiber does not stop the copy. A panic of one of the
/// copy's threads, which is a bug, ends the process.
///
/// # Errors
///
/// A file that cannot be copied does not stop the copy of the others. If there was one, or if the
/// arguments make no sense together, the error has a message for each.
///
/// ```
/// use cringle_cp::{Options, copy};
/// # let place = tempfile::tempdir()?;
/// # let at = |name: &str| place.path().join(name);
/// # std::fs::write(at("letter"), "Dear reader")?;
///
/// assert_eq!(copy(&[at("letter")], at("draft"), &Options::new())?.bytes, 11);
///
/// let error = copy(&[at("nothing")], at("copy"), &Options::new()).unwrap_err();
/// assert_eq!(error.summary().failures, 1);
/// assert!(error.messages()[0].ends_with("nothing': No such file or directory"));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn copy<S: AsRef<Path>>(
    sources: &[S],
    target: impl AsRef<Path>,
    options: &Options,
) -> Result<Summary, Error> {
    let reporter = Arc::new(Reporter::collecting());
    let nothing_copied = |text| Error { summary: Summary::default(), messages: vec![text] };
    let options =
        Options { umask: sys::umask(), reporter: Arc::clone(&reporter), ..options.clone() };
    options.check().map_err(nothing_copied)?;
    if sources.is_empty() {
        return Err(nothing_copied("missing source: nothing to copy".into()));
    }
    let mut names: Vec<_> = sources.iter().map(|name| name.as_ref().into()).collect();
    names.push(target.as_ref().into());
    if let Some(name) = names.iter().find(|name: &&OsString| name.as_bytes().contains(&0)) {
        let text = format!("no file can be named {}: it has a zero byte", messages::quote(name));
        return Err(nothing_copied(text));
    }
    let request = Request { options, names, ..Request::default() };
    let opened = resume::open(&request).map_err(|Usage { text, .. }| nothing_copied(text));
    let (resume, copies) = opened?;
    let shared = Shared::resuming(request.options, resume);
    sources::copy_all(&shared, &copies);
    let summary = shared.counters.summary();
    if reporter.has_failed() {
        return Err(Error { summary, messages: reporter.take_failures() });
    }
    Ok(summary)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn each_copy_reports_only_its_own_failures() {
        let place = tempfile::tempdir().unwrap();
        let at = |name: &str| place.path().join(name);
        fs::write(at("file"), "text").unwrap();
        let options = Options::new();
        let error = copy(&[at("missing"), at("file")], place.path(), &options).unwrap_err();
        assert_eq!(error.messages().len(), 2, "{error}");
        assert!(error.to_string().ends_with("(and 1 more failures)"), "{error}");
        assert_eq!(copy(&[at("file")], at("copy"), &options).unwrap().files, 1);
    }

    #[test]
    fn too_few_names_are_an_error() {
        let none: [&str; 0] = [];
        let error = copy(&none, "target", &Options::new()).unwrap_err();
        assert!(error.to_string().starts_with("missing source"), "{error}");
    }

    #[test]
    fn a_zero_byte_is_reported_with_the_name() {
        let place = tempfile::tempdir().unwrap();
        let (good, bad) = (place.path().join("file"), place.path().join("a\0b"));
        fs::write(&good, "text").unwrap();
        for (source, target) in [(&bad, &good), (&good, &bad)] {
            let error = copy(&[source], target, &Options::new()).unwrap_err().to_string();
            assert!(error.contains("a'$'\\000''b'") && error.contains("zero byte"), "{error}");
        }
        assert_eq!(fs::read_dir(place.path()).unwrap().count(), 1);
    }

    #[test]
    fn shared_blocks_and_holes_exclude_each_other() {
        let place = tempfile::tempdir().unwrap();
        fs::write(place.path().join("file"), "text").unwrap();
        for sparse in [When::Always, When::Never] {
            let options = Options::new().reflink(When::Always).sparse(sparse);
            let copied = copy(&[place.path().join("file")], place.path().join("copy"), &options);
            assert!(copied.unwrap_err().to_string().contains("--sparse=auto"));
        }
    }

    #[test]
    fn update_selects_the_files_to_replace() {
        let place = tempfile::tempdir().unwrap();
        let (from, to) = (place.path().join("from"), place.path().join("to"));
        fs::write(&from, "new").unwrap();
        fs::write(&to, "old").unwrap();
        let copy = |update| copy(&[&from], &to, &Options::new().update(update));
        assert_eq!(copy(Update::None).unwrap().files, 0);
        assert!(copy(Update::NoneFail).is_err());
        assert_eq!(fs::read(&to).unwrap(), b"old");
        assert_eq!(copy(Update::All).unwrap().files, 1);
        assert_eq!(fs::read(&to).unwrap(), b"new");
    }
}
