//! Copies one regular file: creates or opens the target, copies the data in the cheapest way that
//! works (shared blocks, a copy within the kernel, blocks through user space; holes are kept), then
//! the attributes.
//!
//! An existing file is replaced by a temporary one that takes its name when it is complete, if only
//! the inode number differs afterwards (see [`replace`](crate::replace)). Else it is written in
//! place, as with GNU's. A new file is written under its name and removed if a signal stops the
//! copy.

use crate::attributes::{self, Applied, Copied};
use crate::choices::When;
use crate::destination::Destination;
use crate::file_locks::ReadLock;
use crate::fsync::rename_into_place;
use crate::resume::Recorded;
use crate::summary::Counters;
use crate::sys::{self, Stat};
use crate::transfer::Method;
use crate::tree::{Item, Side};
use crate::workers::Worker;
use std::ffi::CStr;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

/// What is known about the target.
pub(crate) enum Target {
    /// Not looked at.
    LikelyNew,
    New,
    Existing,
    /// It exists, and the disk has no room for a second file beside it.
    InPlace,
}

/// The result of copying one file.
#[derive(PartialEq, Eq)]
pub(crate) enum Outcome {
    Good,
    Failed,
    /// The target was expected not to exist, but does. Nothing was done or reported.
    Exists,
}

/// Why the data could not be copied.
pub(crate) enum CopyError {
    Read(io::Error),
    Write(io::Error),
    Clone(io::Error),
    Shrank,
    Grew,
    Differs,
    /// Reading the target for `--verify`.
    ReadBack(io::Error),
    Unverifiable,
    Stopped,
}

impl CopyError {
    /// Returns whether the partial copy stays, as with GNU's.
    fn keeps_partial_copy(&self) -> bool {
        !matches!(self, CopyError::Clone(_) | CopyError::Stopped)
    }

    /// Returns whether the copy still gets the attributes: it is what the source was when it was
    /// opened. Any other partial copy must not look like its source to a program that compares
    /// times.
    fn keeps_attributes(&self) -> bool {
        matches!(self, CopyError::Grew)
    }
}

/// The result of the last step of a copy.
#[derive(PartialEq)]
enum Completed {
    Good,
    Failed,
    /// The new file could not be given its name; the old one is unchanged.
    NotReplaced,
}

impl Worker<'_> {
    /// Copies an open source. `read`: the whole file, of this length, is in the buffer.
    pub(crate) fn copy_regular(
        &mut self,
        item: &Item<'_>,
        source: OwnedFd,
        stat: &Stat,
        target: Target,
        read: Option<usize>,
    ) -> Outcome {
        let likely = matches!(target, Target::LikelyNew);
        if let Some(what) = self.own_file(stat) {
            let name = item.quoted(Side::Source);
            self.reporter().fail(&format!("{name} is {what}; it is not copied"));
            return Outcome::Failed;
        }
        // GNU's open of a FIFO waits for a writer; an existing target keeps its bytes until then.
        if sys::kind(stat) == libc::S_IFIFO
            && !self.shared.options.attributes_only
            && !self.shared.stop.wait_readable(source.as_fd())
        {
            return Outcome::Failed;
        }
        self.source = (sys::kind(stat) == libc::S_IFREG).then(|| sys::id(stat));
        let opened = match target {
            Target::LikelyNew => self.make_new(item, stat, true),
            Target::New => self.make_new(item, stat, false),
            // A source that can be read only once cannot be copied a second time.
            Target::Existing => self.open_existing(item, stat, sys::kind(stat) == libc::S_IFREG),
            Target::InPlace => self.open_existing(item, stat, false),
        };
        let destination = match opened {
            Ok(Some(destination)) => destination,
            Ok(None) => return Outcome::Exists,
            Err(()) => return Outcome::Failed,
        };
        if likely && self.shared.options.verbose {
            self.print_copied(item, None);
        }
        match self.copy_to(item, &source, stat, destination, read) {
            Completed::Good => Outcome::Good,
            Completed::Failed => Outcome::Failed,
            // The copy holds no lock any more, so that it may wait for another one.
            Completed::NotReplaced => self.copy_in_place(item, source, stat),
        }
    }

    /// Copies into an open destination and completes it.
    fn copy_to(
        &mut self,
        item: &Item<'_>,
        source: &OwnedFd,
        stat: &Stat,
        destination: Destination,
        read: Option<usize>,
    ) -> Completed {
        let (from, to) = (source.as_fd(), destination.file.as_fd());
        let (_read_lock, stale) = self.lock_source(from, stat);
        let now = stale.then(|| sys::stat_of(from)).transpose();
        let (stat, read) = match &now {
            Ok(None) => (stat, read),
            Ok(Some(now)) => (now, None),
            Err(e) => {
                self.reporter().fail_on("cannot fstat", item.quoted(Side::Source), e);
                self.discard(item, destination);
                return Completed::Failed;
            }
        };
        let (mut good, mut bytes) = (true, 0);
        match self.copy_data(item, (from, to), stat, read) {
            Ok(copied) => bytes = copied,
            Err(error) if self.may_fit_in_place(&error, &destination) => {
                self.discard(item, destination);
                return Completed::NotReplaced;
            }
            Err(error) => {
                self.report(item, &error);
                if !error.keeps_partial_copy() || destination.rename.is_some() {
                    self.discard(item, destination);
                    return Completed::Failed;
                }
                if !error.keeps_attributes() {
                    return Completed::Failed;
                }
                good = false;
            }
        }
        let (source, target, made, resumed) = (from, to, destination.made, false);
        let may_have_acl = !made || item.dir.is_none_or(|dir| dir.gives_default_acl);
        let copied = Copied { item, source, target, stat, made, may_have_acl, resumed };
        match attributes::apply(&self.shared.options, &copied) {
            Applied::Good => {}
            Applied::DataLost if destination.rename.is_some() => {
                self.discard(item, destination);
                return Completed::Failed;
            }
            Applied::DataLost => {
                self.forget_times(item.target_dir, item.target);
                good = false;
            }
            Applied::Failed => good = false,
        }
        let recorded = if good { self.describe_source(item, stat) } else { None };
        let completed = self.complete(item, destination, stat, recorded);
        if completed == Completed::NotReplaced {
            return completed;
        }
        Counters::add(&self.shared.counters.bytes, bytes);
        if !good || completed == Completed::Failed {
            return Completed::Failed;
        }
        Counters::add(&self.shared.counters.files, 1);
        Completed::Good
    }

    /// Copies the data, and verifies and describes the copy if requested. Returns the number of
    /// bytes.
    fn copy_data(
        &mut self,
        item: &Item<'_>,
        (from, to): (BorrowedFd<'_>, BorrowedFd<'_>),
        stat: &Stat,
        read: Option<usize>,
    ) -> Result<u64, CopyError> {
        let options = &self.shared.options;
        if options.attributes_only {
            return Ok(0);
        }
        let bytes = self.transfer(item, (from, to), stat, read)?;
        if options.verify {
            self.verify(from, to)?;
        }
        if options.debug {
            let Method { offload, reflink, sparse, uncached } = self.method;
            let uncached = uncached.map(|what| format!(", uncached: {what}")).unwrap_or_default();
            self.reporter().print(&format!(
                "copy offload: {offload}, reflink: {reflink}, sparse detection: {sparse}{uncached}"
            ));
        }
        Ok(bytes)
    }

    /// Waits while another worker writes to the source. Also returns whether `stat` may be out of
    /// date.
    fn lock_source(&self, from: BorrowedFd<'_>, stat: &Stat) -> (Option<ReadLock>, bool) {
        if sys::kind(stat) != libc::S_IFREG {
            return (None, false);
        }
        // A file that this copy creates has changed since the copy started; file systems' clocks
        // differ a little.
        let is_new = stat.st_ctime + 2 >= self.shared.started;
        let source = (from.as_raw_fd(), sys::id(stat));
        let (reading, stale) =
            self.shared.file_locks.read(self.index, source, self.releases, is_new);
        (Some(reading), stale)
    }

    /// Returns whether the disk lacked room for a second file, but may have room for one.
    fn may_fit_in_place(&self, error: &CopyError, destination: &Destination) -> bool {
        let CopyError::Write(e) = error else { return false };
        matches!(e.raw_os_error(), Some(libc::ENOSPC | libc::EDQUOT))
            && destination.rename.as_ref().is_some_and(|rename| !rename.keep_existing)
            && !self.shared.options.fsync
    }

    /// Starts again, and writes the existing file in place.
    fn copy_in_place(&mut self, item: &Item<'_>, source: OwnedFd, stat: &Stat) -> Outcome {
        if let Err(e) = sys::seek(source.as_fd(), 0) {
            self.report(item, &CopyError::Read(e));
            return Outcome::Failed;
        }
        self.copy_regular(item, source, stat, Target::InPlace, None)
    }

    fn report(&self, item: &Item<'_>, error: &CopyError) {
        let reporter = self.reporter();
        let (source, target) = (item.quoted(Side::Source), item.quoted(Side::Target));
        match error {
            CopyError::Read(e) => reporter.fail_on("error reading", source, e),
            CopyError::Write(e) => reporter.fail_on("error writing", target, e),
            CopyError::Clone(e) => {
                reporter.fail_with(&format!("failed to clone {target} from {source}"), e);
            }
            CopyError::Shrank => reporter.fail(&format!("{source} shrank while it was copied")),
            CopyError::Grew => reporter.fail(&format!(
                "{source} grew while it was copied: what was added is not in the copy"
            )),
            CopyError::Differs => reporter.fail(&format!("{target} differs from {source}")),
            CopyError::ReadBack(e) => reporter.fail_on("error reading", target, e),
            CopyError::Unverifiable => reporter.fail(&format!(
                "cannot verify {target}: only files and block devices can be read back"
            )),
            CopyError::Stopped => {}
        }
    }

    /// Completes a copy: queues the sync or closes the file, and gives it its name.
    fn complete(
        &mut self,
        item: &Item<'_>,
        destination: Destination,
        stat: &Stat,
        recorded: Option<Recorded>,
    ) -> Completed {
        let Destination { file, rename, exclusion: _right, .. } = destination;
        let done = |good| if good { Completed::Good } else { Completed::Failed };
        if self.shared.options.fsync {
            let others_link_to_it = self.keeps_links(item, stat);
            return done(self.sync_file_later(file, item, rename, (others_link_to_it, recorded)));
        }
        if let Err(e) = sys::close(file) {
            self.reporter().fail_on("failed to close", item.quoted(Side::Target), &e);
            match rename {
                Some(rename) => rename.remove(item.target_dir, self.reporter()),
                None => self.forget_times(item.target_dir, item.target),
            }
            return Completed::Failed;
        }
        let Some(rename) = rename else {
            self.record(item, recorded, true);
            return Completed::Good;
        };
        let recorded = self.before_rename((item.target_dir, &rename.temporary), recorded);
        if rename_into_place(item.target_dir, &rename, self.reporter()).is_ok() {
            self.record(item, recorded, false);
            return Completed::Good;
        }
        // A file that cannot be replaced may still be written: `EBUSY` if something is mounted on
        // it.
        Completed::NotReplaced
    }

    /// Takes the source's times from a copy that lacks bytes, so that it does not look complete. A
    /// delayed write may fail just after they were set. That the copy failed is reported already.
    pub(crate) fn forget_times(&self, dir: BorrowedFd<'_>, name: &CStr) {
        if self.shared.options.preserve.timestamps {
            let _ = sys::set_times_to_now(dir, name);
        }
    }

    /// Copies the data in the cheapest way that works.
    fn transfer(
        &mut self,
        item: &Item<'_>,
        (from, to): (BorrowedFd<'_>, BorrowedFd<'_>),
        stat: &Stat,
        read: Option<usize>,
    ) -> Result<u64, CopyError> {
        let options = &self.shared.options;
        let devices = devices(item, stat);
        self.method = Method::default();
        if options.reflink == When::Never {
            self.method.reflink = "no";
        } else if self.no_clone.contains(&devices) {
            self.method.reflink = "unsupported";
        }
        if let Some(length) = read {
            (self.method.offload, self.method.sparse) = ("avoided", "no");
            sys::write_all(to, &self.buffer[..length]).map_err(CopyError::Write)?;
            return Ok(length as u64);
        }
        let clones = options.reflink == When::Always
            || options.reflink == When::Auto
                && options.sparse != When::Always
                && stat.st_size > 0
                && !self.no_clone.contains(&devices);
        if clones {
            match sys::clone_file(from, to) {
                Ok(()) => {
                    Counters::add(&self.shared.counters.cloned, 1);
                    self.method.reflink = "yes";
                    return Ok(stat.st_size as u64);
                }
                Err(e) if options.reflink == When::Always => return Err(CopyError::Clone(e)),
                Err(_) => {
                    self.method.reflink = "unsupported";
                    if item.dir.is_some() {
                        self.no_clone.push(devices);
                    }
                }
            }
        }
        crate::transfer::Transfer { worker: self, from, to, stat, devices, shown: 0 }.run()
    }
}

/// Opens a source without waiting for another process.
pub(crate) fn open_source(item: &Item<'_>, follow: bool) -> io::Result<OwnedFd> {
    // `O_NONBLOCK`: the source may have become a FIFO, whose writer must not be waited for.
    let flags = libc::O_RDONLY | if follow { 0 } else { libc::O_NOFOLLOW };
    let open = |flags| sys::open_at(item.source_dir, item.source, flags, 0);
    match open(flags | libc::O_NONBLOCK) {
        // Another process holds a lease, which only a regular file can have: wait until it is
        // broken.
        Err(e) if e.raw_os_error() == Some(libc::EWOULDBLOCK) => open(flags),
        opened => opened,
    }
}

/// Returns whether the file has holes: fewer blocks than its size needs.
pub(crate) fn is_sparse(stat: &Stat) -> bool {
    sys::kind(stat) == libc::S_IFREG && stat.st_blocks < stat.st_size / 512
}

/// Returns the devices of source and target, by which unsupported ways are remembered.
pub(crate) fn devices(item: &Item<'_>, stat: &Stat) -> (u64, u64) {
    (stat.st_dev, item.dir.map_or(0, |dir| dir.target_device()))
}
