//! The workers: who copies what, in which order, and when it is over.
//!
//! Each worker has a stack of tasks: it takes the newest, and one that has none takes the *oldest* of
//! another, which is the highest in the tree and so the most work, in a directory of its own (two
//! threads that make files in one directory wait for its lock). Memory stays bounded: a directory is
//! listed piece by piece, and the rest of its listing lies beneath what the piece brought, with the handle
//! that it is read from (see [`listing`](crate::listing)). The number of open handles is bounded, too: see
//! [`descriptors`].
//!
//! The calls are plain ones, on threads, not the ring's: `openat` with `O_CREAT`, `mkdirat` and buffered
//! writes on ext4 are all handed to kernel threads there. Small files copied by chains of linked ops took
//! 1.13 of the time of plain calls, by fibers 1.43 (`micro -- copy` of benches/ measures it). There
//! are more threads than cores: making a file waits for the disk now and then, for the block of the new
//! inode, and a cold directory or inode is read by whoever needs it. Contents of cold files are read
//! ahead, some at a time (see [`regular`](crate::regular)), and `--fsync`'s syncs are fibers (see
//! [`durable`](crate::fsync)).

use crate::descriptors::{self, Budget};
use crate::file_locks::FileLocks;
use crate::fsync::Unsynced;
use crate::hard_links::Links;
use crate::listing::{Entry, Listings, Waiting, next_entries};
use crate::messages::{Reporter, quote};
use crate::options::Options;
use crate::read_ahead::Deferred;
use crate::stop::Stop;
use crate::summary::Counters;
use crate::sys;
use crate::temporary::Temporaries;
use crate::transfer::Method;
use crate::tree::{Dir, Item, OpenDirs, Side, finish_part};
use crate::{attributes, compare};
use std::collections::{HashMap, HashSet, VecDeque};
use std::ffi::{CString, OsString};
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

/// Files of one task: enough that taking it costs nothing beside them.
const FILES_PER_TASK: usize = 64;
/// Bytes of a directory that are read at once, about a thousand names.
const LISTING_BYTES: usize = 32 << 10;

pub(crate) enum Task {
    /// Its listing is to be begun, or to be continued.
    List {
        dir: Arc<Dir>,
        unfinished: Option<Waiting>,
    },
    Entries {
        dir: Arc<Dir>,
        entries: Vec<Entry>,
    },
}

pub(crate) struct Shared {
    pub(crate) options: Options,
    pub(crate) budget: Budget,
    pub(crate) open: Arc<OpenDirs>,
    listings: Listings,
    pub(crate) links: Links,
    pub(crate) counters: Arc<Counters>,
    /// Ctrl-C: nothing more is begun, and what is half done is given up.
    pub(crate) stop: Arc<Stop>,
    /// The names of the command line that were copied, and those that were made.
    pub(crate) sources: Mutex<HashSet<(compare::Entry, (u64, u64))>>,
    pub(crate) targets: Mutex<HashSet<(OsString, (u64, u64))>>,
    /// Directories of the command line, and where they went.
    pub(crate) directories: Mutex<HashMap<(u64, u64), OsString>>,
    stacks: Vec<Mutex<VecDeque<Task>>>,
    sleepers: AtomicUsize,
    wakeup: (Mutex<()>, Condvar),
    /// Directories of the command line that are not finished.
    roots: AtomicUsize,
    is_finished: AtomicBool,
    pub(crate) temporaries: Temporaries,
    pub(crate) file_locks: Arc<FileLocks>,
    /// When the copy began, in seconds since 1970.
    pub(crate) started: i64,
}

impl Shared {
    /// There may be fewer workers than were asked for: see [`descriptors`].
    pub(crate) fn new(mut options: Options) -> Shared {
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
            stop: Arc::default(),
            sources: Mutex::default(),
            targets: Mutex::default(),
            directories: Mutex::default(),
            sleepers: AtomicUsize::new(0),
            wakeup: (Mutex::new(()), Condvar::new()),
            roots: AtomicUsize::new(0),
            is_finished: AtomicBool::new(false),
            temporaries: Temporaries::default(),
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

    /// The workers may go home.
    pub(crate) fn finish(&self) {
        self.is_finished.store(true, Ordering::Release);
        self.wakeup.1.notify_all();
    }
}

fn now() -> i64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    since.map_or(0, |since| since.as_secs() as i64)
}

/// The directory that was finished last, by which the one above is found: where it had to be open.
#[derive(Default)]
struct FinishedChild {
    source: Option<Arc<OwnedFd>>,
    target: Option<Arc<OwnedFd>>,
}

pub(crate) struct Worker<'a> {
    pub(crate) shared: &'a Shared,
    pub(crate) index: usize,
    /// What goes through user space; one byte more than a block, to see that a file ends.
    pub(crate) buffer: Vec<u8>,
    listing: Vec<u8>,
    pub(crate) deferred: Vec<Deferred>,
    pub(crate) unsynced: Vec<Unsynced>,
    /// By which a whole file system is synced, where that can be; by device.
    pub(crate) file_systems: Vec<(u64, Option<OwnedFd>)>,
    /// Devices that were synced for what `--link` finds on them.
    pub(crate) synced_sources: Vec<u64>,
    /// Pairs of devices between which nothing can be cloned, or copied within the kernel.
    pub(crate) no_clone: Vec<(u64, u64)>,
    pub(crate) no_range: Vec<(u64, u64)>,
    /// The regular file that is being copied.
    pub(crate) source: Option<(u64, u64)>,
    /// The turns that had ended before anything was known of the source.
    pub(crate) releases: u64,
    /// With `--fsync`: the backup of the file that is being copied.
    pub(crate) backup: Option<CString>,
    /// The last source of the command line was copied, not skipped.
    pub(crate) made_top: bool,
    /// Devices, and whether their files' sizes can be relied on.
    pub(crate) exact_sizes: Vec<(u64, bool)>,
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
            source: None,
            releases: 0,
            backup: None,
            made_top: false,
            exact_sizes: Vec::new(),
            method: Method::default(),
        }
    }

    pub(crate) fn reporter(&self) -> &'a Reporter {
        &self.shared.options.reporter
    }

    /// The bytes of one read. The buffer has one more, to see that a file of this size ends.
    pub(crate) fn block_bytes(&self) -> usize {
        self.buffer.len() - 1
    }

    /// Until all is over. Directories that this worker finished last wait for their sync still: nothing
    /// else waits for them.
    pub(crate) fn help(&mut self) {
        while !self.shared.is_finished.load(Ordering::Acquire) {
            self.step();
        }
        self.settle();
    }

    /// Until the directories of the command line so far are finished.
    pub(crate) fn finish_roots(&mut self) {
        while self.shared.has_roots() {
            self.step();
        }
    }

    fn step(&mut self) {
        if let Some(task) = self.take_task() {
            self.perform(task);
        } else if !self.settle() {
            self.sleep();
        }
    }

    /// Finishes what was put off; whether there was any.
    pub(crate) fn settle(&mut self) -> bool {
        let any = !self.deferred.is_empty() || !self.unsynced.is_empty();
        self.copy_deferred();
        self.sync_all();
        any
    }

    fn take_task(&self) -> Option<Task> {
        let stacks = &self.shared.stacks;
        let lock = |at: usize| stacks[at].lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(task) = lock(self.index).pop_back() {
            return Some(task);
        }
        (1..stacks.len()).find_map(|step| lock((self.index + step) % stacks.len()).pop_front())
    }

    /// Adds a part to the directory, for whoever takes it.
    pub(crate) fn push(&self, task: Task) {
        let (Task::List { dir, .. } | Task::Entries { dir, .. }) = &task;
        dir.pending.fetch_add(1, Ordering::Relaxed);
        self.push_counted(task);
    }

    pub(crate) fn push_counted(&self, task: Task) {
        let mut stack =
            self.shared.stacks[self.index].lock().unwrap_or_else(PoisonError::into_inner);
        stack.push_back(task);
        drop(stack);
        if self.shared.sleepers.load(Ordering::Relaxed) > 0 {
            self.shared.wakeup.1.notify_one();
        }
    }

    /// A wakeup that rings between the look at the stacks and the sleep is missed: so it is a short one.
    fn sleep(&self) {
        self.shared.sleepers.fetch_add(1, Ordering::Relaxed);
        let (lock, wakeup) = &self.shared.wakeup;
        let guard = lock.lock().unwrap_or_else(PoisonError::into_inner);
        drop(wakeup.wait_timeout(guard, Duration::from_micros(500)));
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

    /// One piece of the directory; the rest is a task beneath those that the piece brings. Where too many
    /// listings wait already, all pieces: the files of each are copied here, and the directories wait.
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

    /// Copies some of the entries, and has the others copied by whoever is free.
    fn share_out(&mut self, dir: &Arc<Dir>, entries: Vec<Entry>, files_a_task: usize) {
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

    fn entries(&mut self, dir: &Arc<Dir>, entries: &[Entry]) {
        if entries.is_empty() || self.shared.stopped() {
            return;
        }
        let fd = |side| {
            dir.fd(side, &self.shared.open).inspect_err(|e| {
                self.reporter().fail_with(&format!("cannot access {}", quote(dir.path(side))), e);
            })
        };
        let (Ok(source), Ok(target)) = (fd(Side::Source), fd(Side::Target)) else { return };
        for entry in entries {
            if self.shared.stopped() {
                return;
            }
            let item = Item {
                dir: Some(dir),
                source_dir: source.as_raw_fd(),
                source: &entry.name,
                target_dir: target.as_raw_fd(),
                target: &entry.name,
            };
            self.copy(&item, entry.kind);
        }
    }

    /// A part of the directory is done; with the last one the directory is, and so on upwards.
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
        let target = match dir.fd_from(Side::Target, child.target.as_deref(), &self.shared.open) {
            Ok(target) => target,
            Err(e) => {
                let path = quote(dir.path(Side::Target));
                self.reporter().fail_with(&format!("preserving permissions for {path}"), &e);
                return FinishedChild::default();
            }
        };
        let source = if attributes { self.dir_attributes(dir, &target, child) } else { None };
        if !keeps.mode
            && let Some(mode) = dir.final_mode
            && let Err(e) = sys::chmod_fd(target.as_raw_fd(), mode)
        {
            let path = quote(dir.path(Side::Target));
            self.reporter().fail_with(&format!("preserving permissions for {path}"), &e);
        }
        if self.shared.options.fsync {
            self.sync_dir_later(&target, dir);
        }
        FinishedChild { source, target: Some(target) }
    }

    /// Returns the source, which had to be open.
    fn dir_attributes(
        &self,
        dir: &Arc<Dir>,
        target: &OwnedFd,
        child: &FinishedChild,
    ) -> Option<Arc<OwnedFd>> {
        let options = &self.shared.options;
        // Only extended attributes and ACLs have to be read.
        let source = match dir.fd_from(Side::Source, child.source.as_deref(), &self.shared.open) {
            Ok(source) => source,
            Err(e) => {
                let path = quote(dir.path(Side::Source));
                self.reporter().fail_with(&format!("cannot access {path}"), &e);
                return None;
            }
        };
        // For messages: its path is as long as the tree is deep, and made when one is printed.
        let item = dir.as_item();
        let copied = attributes::Copied {
            item: &item,
            source: source.as_raw_fd(),
            target: target.as_raw_fd(),
            stat: &dir.stat,
            made: dir.made,
            may_have_acl: !dir.made
                || dir.parent.as_ref().is_none_or(|parent| parent.gives_default_acl),
        };
        if attributes::apply(options, &copied) != attributes::Applied::Good {
            self.reporter().fail_silently();
        }
        Some(source)
    }

    fn cannot_list(&self, dir: &Dir, error: &std::io::Error) {
        let path = quote(dir.path(Side::Source));
        self.reporter().fail_with(&format!("error reading {path}"), error);
    }
}
