//! The workers: threads that share a tree as tasks.
//!
//! Each worker has a stack of tasks and takes the newest. An idle worker takes the *oldest* task of
//! another one, which is the highest in the tree: the most work, and in another directory (threads
//! that create files in one directory wait for its lock). Memory is bounded: a directory is listed
//! piece by piece, and the rest of the listing lies below the tasks of a piece, together with its
//! open handle (see [`listing`](crate::listing)). So is the number of open handles (see
//! [`descriptors`]).
//!
//! The workers are threads that make plain calls: through a ring, the kernel would pass `openat`
//! with `O_CREAT`, `mkdirat` and buffered writes on ext4 to threads of its own, which costs more
//! (`benches/RESULTS.md`). There are more workers than cores, because creating a file waits for the
//! disk when it needs a new block of inodes, and so does reading a cold directory or inode. Cold
//! files are read ahead (see [`read_ahead`](crate::read_ahead)), and the syncs of `--fsync` run on
//! fibers (see [`fsync`](crate::fsync)).

use crate::descriptors::{self, Budget};
use crate::file_locks::FileLocks;
use crate::fsync::Unsynced;
use crate::hard_links::Links;
use crate::listing::{Entry, Listings, Waiting, next_entries};
use crate::messages::{Reporter, quote};
use crate::options::Options;
use crate::read_ahead::Deferred;
use crate::resume::{Recorded, Resume};
use crate::stop::Stop;
use crate::summary::Counters;
use crate::sys;
use crate::temporary::Temporaries;
use crate::transfer::Method;
use crate::tree::{Dir, Item, OpenDirs, Side, finish_part};
use crate::uncached::{CacheShare, Uncached};
use crate::{attributes, compare};
use std::collections::{HashMap, HashSet, VecDeque};
use std::ffi::{CString, OsString};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// The files of one task: enough that the cost of taking it does not matter.
const FILES_PER_TASK: usize = 64;
/// The bytes of a directory that are read at once: about a thousand names.
const LISTING_BYTES: usize = 32 << 10;

/// A part of a directory.
pub(crate) enum Task {
    /// A listing to start or to continue.
    List {
        dir: Arc<Dir>,
        unfinished: Option<Waiting>,
    },
    Entries {
        dir: Arc<Dir>,
        entries: Vec<Entry>,
    },
}

/// What all workers of a copy share.
pub(crate) struct Shared {
    pub(crate) options: Options,
    pub(crate) budget: Budget,
    pub(crate) open: Arc<OpenDirs>,
    listings: Listings,
    pub(crate) links: Links,
    pub(crate) counters: Arc<Counters>,
    pub(crate) cache_share: CacheShare,
    /// After a stop no new file is started, and unfinished ones are removed.
    pub(crate) stop: Arc<Stop>,
    /// The sources of the command line that were copied, and the targets that were made.
    pub(crate) sources: Mutex<HashSet<(compare::Entry, (u64, u64))>>,
    pub(crate) targets: Mutex<HashSet<(OsString, (u64, u64))>>,
    /// Directories of the command line, and their targets.
    pub(crate) directories: Mutex<HashMap<(u64, u64), OsString>>,
    stacks: Vec<Mutex<VecDeque<Task>>>,
    sleepers: AtomicUsize,
    wakeup: (Mutex<()>, Condvar),
    /// Unfinished directories of the command line.
    roots: AtomicUsize,
    is_finished: AtomicBool,
    pub(crate) temporaries: Temporaries,
    pub(crate) resume: Option<Resume>,
    /// The files of `--json` and `--trace`, which are neither copied nor replaced.
    pub(crate) results: Vec<(&'static str, (u64, u64))>,
    pub(crate) file_locks: Arc<FileLocks>,
    /// The start of the copy, in seconds since 1970.
    pub(crate) started: i64,
}

impl Shared {
    #[cfg(test)]
    pub(crate) fn new(options: Options) -> Shared {
        Shared::resuming(options, None)
    }

    /// Prepares a copy, with fewer workers than requested if descriptors are few: see
    /// [`descriptors`].
    pub(crate) fn resuming(mut options: Options, resume: Option<Resume>) -> Shared {
        let budget = Budget::of_this_process(options.jobs, options.fsync);
        options.jobs = budget.jobs;
        let open = Arc::new(OpenDirs::new(budget.directories));
        descriptors::may_close(Arc::downgrade(&open));
        let file_locks = Arc::new(FileLocks::new(options.jobs));
        Shared {
            stacks: (0..options.jobs).map(|_| Mutex::default()).collect(),
            options,
            budget,
            open,
            listings: Listings::new(budget.listings),
            links: Links::default(),
            counters: Arc::default(),
            cache_share: CacheShare::default(),
            stop: Arc::default(),
            sources: Mutex::default(),
            targets: Mutex::default(),
            directories: Mutex::default(),
            sleepers: AtomicUsize::new(0),
            wakeup: (Mutex::new(()), Condvar::new()),
            roots: AtomicUsize::new(0),
            is_finished: AtomicBool::new(false),
            temporaries: Temporaries::of(resume.as_ref().map(Resume::numbers)),
            resume,
            results: Vec::new(),
            file_locks,
            started: now(),
        }
    }

    pub(crate) fn stopped(&self) -> bool {
        self.stop.is_requested()
    }

    pub(crate) fn begin_root(&self) {
        self.roots.fetch_add(1, Ordering::AcqRel);
    }

    pub(crate) fn has_roots(&self) -> bool {
        self.roots.load(Ordering::Acquire) > 0
    }

    /// Returns whether new files get their names when they are complete.
    pub(crate) fn names_late(&self) -> bool {
        self.options.fsync || self.resume.is_some()
    }

    /// Ends the workers in [`help`](Worker::help).
    pub(crate) fn finish(&self) {
        self.is_finished.store(true, Ordering::Release);
        self.wakeup.1.notify_all();
    }
}

/// Locks a mutex, also after a panic of another worker, which ends the process.
pub(crate) fn lock<T: ?Sized>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Returns the time in seconds since 1970.
pub(crate) fn now() -> i64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    since.map_or(0, |since| since.as_secs() as i64)
}

/// The directory that was finished last, from which its parent is reopened, as far as it had to be
/// open.
#[derive(Default)]
struct FinishedChild {
    source: Option<Arc<OwnedFd>>,
    target: Option<Arc<OwnedFd>>,
}

/// One worker: a thread, or a fiber with `--fsync`.
pub(crate) struct Worker<'a> {
    pub(crate) shared: &'a Shared,
    pub(crate) index: usize,
    /// The buffer for reads, with one byte more than a block, to find the end of a file.
    pub(crate) buffer: Vec<u8>,
    listing: Vec<u8>,
    pub(crate) deferred: Vec<Deferred>,
    pub(crate) unsynced: Vec<Unsynced>,
    /// By device: the descriptor for `syncfs`, where that is enough.
    pub(crate) file_systems: Vec<(u64, Option<OwnedFd>)>,
    /// Devices that were synced for sources of `--link`.
    pub(crate) synced_sources: Vec<u64>,
    /// Pairs of devices between which files cannot be cloned, or copied within the kernel.
    pub(crate) no_clone: Vec<(u64, u64)>,
    pub(crate) no_range: Vec<(u64, u64)>,
    pub(crate) uncached: Uncached,
    /// The regular file that is being copied.
    pub(crate) source: Option<(u64, u64)>,
    /// The number of released write locks before the source's status was read.
    pub(crate) releases: u64,
    /// With `--resume`: a time before the source's status was read, in seconds since 1970.
    pub(crate) looked: i64,
    /// The file that was recorded last.
    pub(crate) recorded: Option<Recorded>,
    /// The target has the contents that an earlier run has given it.
    pub(crate) is_own_copy: bool,
    /// An earlier run has created the target, so a new file takes its place.
    pub(crate) is_own_file: bool,
    /// With `--fsync`: the backup of the file that is being copied.
    pub(crate) backup: Option<CString>,
    /// The last source of the command line was copied, not skipped.
    pub(crate) made_top: bool,
    /// By device: whether the sizes of its files are exact.
    pub(crate) exact_sizes: Vec<(u64, bool)>,
    /// By device of a source: whether its times show every change.
    pub(crate) change_times: Vec<(u64, bool)>,
    /// How the last file was copied.
    pub(crate) method: Method,
}

impl<'a> Worker<'a> {
    pub(crate) fn new(shared: &'a Shared, index: usize) -> Worker<'a> {
        Worker {
            shared,
            index,
            buffer: vec![0; shared.options.block_bytes + 1],
            listing: vec![0; LISTING_BYTES],
            deferred: Vec::new(),
            unsynced: Vec::new(),
            file_systems: Vec::new(),
            synced_sources: Vec::new(),
            no_clone: Vec::new(),
            no_range: Vec::new(),
            uncached: Uncached::default(),
            source: None,
            releases: 0,
            looked: 0,
            recorded: None,
            is_own_copy: false,
            is_own_file: false,
            backup: None,
            made_top: false,
            exact_sizes: Vec::new(),
            change_times: Vec::new(),
            method: Method::default(),
        }
    }

    pub(crate) fn reporter(&self) -> &'a Reporter {
        &self.shared.options.reporter
    }

    /// Returns the bytes of one read; the buffer has room for one more.
    pub(crate) fn block_bytes(&self) -> usize {
        self.buffer.len() - 1
    }

    /// Performs tasks until the copy is finished, then syncs what this worker still has: no other
    /// worker would.
    pub(crate) fn help(&mut self) {
        while !self.shared.is_finished.load(Ordering::Acquire) {
            self.step();
        }
        self.settle();
    }

    /// Performs tasks until all directories of the command line so far are finished.
    pub(crate) fn finish_roots(&mut self) {
        while self.shared.has_roots() {
            self.step();
        }
    }

    /// Performs a task; without one, settles or sleeps.
    fn step(&mut self) {
        if let Some(task) = self.take_task() {
            self.perform(task);
        } else if !self.settle() {
            self.sleep();
        }
    }

    /// Completes deferred files and queued syncs; returns whether any existed.
    pub(crate) fn settle(&mut self) -> bool {
        let any = !self.deferred.is_empty() || !self.unsynced.is_empty();
        self.copy_deferred();
        self.sync_all();
        any
    }

    /// Takes the newest task of this worker, or the oldest of another one.
    fn take_task(&self) -> Option<Task> {
        let stacks = &self.shared.stacks;
        if let Some(task) = lock(&stacks[self.index]).pop_back() {
            return Some(task);
        }
        let at = |step| (self.index + step) % stacks.len();
        (1..stacks.len()).find_map(|step| lock(&stacks[at(step)]).pop_front())
    }

    /// Adds a part to the directory, for any worker.
    pub(crate) fn push(&self, task: Task) {
        let (Task::List { dir, .. } | Task::Entries { dir, .. }) = &task;
        dir.pending.fetch_add(1, Ordering::Relaxed);
        self.push_counted(task);
    }

    /// Adds a task whose part has been counted.
    pub(crate) fn push_counted(&self, task: Task) {
        lock(&self.shared.stacks[self.index]).push_back(task);
        if self.shared.sleepers.load(Ordering::Relaxed) > 0 {
            self.shared.wakeup.1.notify_one();
        }
    }

    /// Sleeps briefly: a wake-up between the look at the stacks and the sleep is missed.
    fn sleep(&self) {
        self.shared.sleepers.fetch_add(1, Ordering::Relaxed);
        let (mutex, wakeup) = &self.shared.wakeup;
        drop(wakeup.wait_timeout(lock(mutex), Duration::from_micros(500)));
        self.shared.sleepers.fetch_sub(1, Ordering::Relaxed);
    }

    fn perform(&mut self, task: Task) {
        match task {
            Task::List { dir, unfinished } => {
                self.list(&dir, unfinished);
                self.part_done(dir);
            }
            Task::Entries { dir, entries } => {
                self.entries(&dir, &entries);
                self.part_done(dir);
            }
        }
    }

    /// Lists one piece of the directory; the rest becomes a task below those of the piece. If too
    /// many listings are unfinished, lists all pieces: copies the files of each, and keeps the
    /// directories as tasks.
    fn list(&mut self, dir: &Arc<Dir>, unfinished: Option<Waiting>) {
        let handle = match unfinished {
            Some(unfinished) => Ok(unfinished.resume()),
            None => dir.fd(Side::Source, &self.shared.open),
        };
        let handle = match handle {
            Ok(handle) => handle,
            Err(e) => return self.cannot_list(dir, &e),
        };
        let mut more = true;
        while more && !self.shared.stopped() {
            let mut entries = Vec::new();
            more = next_entries(&handle, &mut self.listing, LISTING_BYTES / 2, &mut entries)
                .unwrap_or_else(|e| {
                    self.cannot_list(dir, &e);
                    false
                });
            if more && let Some(waiting) = self.shared.listings.wait_with(&handle) {
                drop(handle);
                self.push(Task::List { dir: Arc::clone(dir), unfinished: Some(waiting) });
                return self.share_out(dir, entries, FILES_PER_TASK);
            }
            self.share_out(dir, entries, if more { usize::MAX } else { FILES_PER_TASK });
        }
    }

    /// Copies some of the entries here and shares the others as tasks.
    fn share_out(&mut self, dir: &Arc<Dir>, entries: Vec<Entry>, files_a_task: usize) {
        self.announce_all(dir, &entries);
        let (directories, mut files): (Vec<_>, Vec<_>) =
            entries.into_iter().partition(|entry| entry.kind == libc::DT_DIR);
        for entry in directories {
            self.push(Task::Entries { dir: Arc::clone(dir), entries: vec![entry] });
        }
        while files.len() > files_a_task {
            let entries = files.split_off(files.len() - files_a_task);
            self.push(Task::Entries { dir: Arc::clone(dir), entries });
        }
        self.entries(dir, &files);
    }

    /// Copies entries of the directory.
    fn entries(&mut self, dir: &Arc<Dir>, entries: &[Entry]) {
        if entries.is_empty() || self.shared.stopped() {
            return;
        }
        let fd = |side| {
            dir.fd(side, &self.shared.open).inspect_err(|e| {
                self.reporter().fail_on("cannot access", quote(dir.path(side)), e);
            })
        };
        let (Ok(source), Ok(target)) = (fd(Side::Source), fd(Side::Target)) else { return };
        for entry in entries {
            if self.shared.stopped() {
                return;
            }
            let item = Item {
                dir: Some(dir),
                source_dir: source.as_fd(),
                source: &entry.name,
                target_dir: target.as_fd(),
                target: &entry.name,
            };
            self.copy(&item, entry.kind);
        }
    }

    /// Finishes one part of the directory; with the last part, the directory, and so on upwards.
    pub(crate) fn part_done(&mut self, dir: Arc<Dir>) {
        let mut child = FinishedChild::default();
        let mut dir = dir;
        while finish_part(&dir) {
            child = self.finish_dir(&dir, &child);
            dir.close();
            match &dir.parent {
                Some(parent) => dir = Arc::clone(parent),
                None => {
                    self.shared.roots.fetch_sub(1, Ordering::AcqRel);
                    return;
                }
            }
        }
    }

    /// Sets the attributes of a directory whose parts are all finished.
    fn finish_dir(&mut self, dir: &Arc<Dir>, child: &FinishedChild) -> FinishedChild {
        let options = &self.shared.options;
        let keeps = options.preserve;
        let attributes = keeps.mode
            || keeps.ownership
            || keeps.timestamps
            || keeps.xattr
            || options.no_preserve_mode;
        if !attributes && dir.final_mode.is_none() && !options.fsync {
            return FinishedChild::default();
        }
        let failed = |e: &_| {
            let path = quote(dir.path(Side::Target));
            self.reporter().fail_on("preserving permissions for", path, e);
        };
        let target = dir.fd_from(Side::Target, child.target.as_deref(), &self.shared.open);
        let Ok(target) = target.inspect_err(failed) else { return FinishedChild::default() };
        let source = if attributes { self.dir_attributes(dir, &target, child) } else { None };
        if !keeps.mode
            && let Some(mode) = dir.final_mode
        {
            let _ = sys::chmod_fd(target.as_fd(), mode).inspect_err(failed);
        }
        if self.shared.options.fsync {
            self.sync_dir_later(&target, dir);
        }
        FinishedChild { source, target: Some(target) }
    }

    /// Copies the attributes; returns the source if it had to be open.
    fn dir_attributes(
        &self,
        dir: &Arc<Dir>,
        target: &OwnedFd,
        child: &FinishedChild,
    ) -> Option<Arc<OwnedFd>> {
        let options = &self.shared.options;
        // Extended attributes and ACLs have to be read from the source.
        let source = dir.fd_from(Side::Source, child.source.as_deref(), &self.shared.open);
        let failed =
            |e: &_| self.reporter().fail_on("cannot access", quote(dir.path(Side::Source)), e);
        let source = source.inspect_err(failed).ok()?;
        // The item builds its path only for a message: it is as long as the tree is deep.
        let item = dir.as_item();
        let copied = attributes::Copied {
            item: &item,
            source: source.as_fd(),
            target: target.as_fd(),
            stat: &dir.stat,
            made: dir.made,
            may_have_acl: !dir.made
                || dir.resumed
                || dir.parent.as_ref().is_none_or(|parent| parent.gives_default_acl),
            resumed: dir.resumed,
        };
        if attributes::apply(options, &copied) != attributes::Applied::Good {
            self.reporter().fail_silently();
        }
        Some(source)
    }

    fn cannot_list(&self, dir: &Dir, error: &std::io::Error) {
        self.reporter().fail_on("error reading", quote(dir.path(Side::Source)), error);
    }
}
