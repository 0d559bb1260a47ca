//! A file system under the test's control: files in memory, served through FUSE, with faults on
//! demand.
//!
//! [`Rules`] define which calls fail, how short reads and writes are, which sizes `stat` returns,
//! and when a file changes during its copy. They apply to *victims*: files whose name contains
//! `victim`, and the temporary files of a copy. Every other file is served without faults. A victim
//! may be the disk under another file system: a write of data with the [`MARK`] fails at random.
//!
//! An open directory lists the names that it had when its listing began. Its positions are valid
//! only for that handle, as in POSIX: a position of another handle fails with `EINVAL`.

mod bytes;
mod endless;
mod replies;
mod serve;

pub use fuser::InitFlags;

use fuser::{BackgroundSession, Config, MountOption, Session, SessionACL, TimeOrNow};
use std::collections::{BTreeMap, HashMap};
use std::ffi::{CString, OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// The calls that can fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Op {
    Lookup,
    Getattr,
    /// `ftruncate`.
    Truncate,
    /// Mode, owner or times.
    Setattr,
    Open,
    Create,
    Read,
    Write,
    Flush,
    Fsync,
    Rename,
    Seek,
    CopyRange,
    Readdir,
    Mkdir,
    Unlink,
    Rmdir,
    Link,
    /// Reads and lists of extended attributes, of which there are none.
    Xattr,
}

pub const ALWAYS: usize = usize::MAX;

/// Bytes by which a disk recognises the data of a test, as opposed to what the file system on it
/// writes of its own.
pub const MARK: [u8; 16] = *b"data of the test";

/// A failure of one kind of call.
#[derive(Clone, Debug)]
pub struct Failure {
    pub op: Op,
    pub errno: i32,
    /// Reads and writes that reach this offset fail; with direct I/O, those before it end there.
    pub from: u64,
    pub times: usize,
    /// The number of calls that succeed first.
    pub after: usize,
}

/// A change of the file's length, when a read reaches an offset.
#[derive(Clone, Copy, Debug)]
pub struct Change {
    pub at: u64,
    pub length: usize,
    /// Later reads return the original content.
    pub for_one_read: bool,
}

#[derive(Clone, Debug, Default)]
pub struct Rules {
    pub failures: Vec<Failure>,
    /// `FOPEN_DIRECT_IO`: the server gets each read and write as the program makes it.
    pub direct: bool,
    /// The maximal length of a read or write; 0 for no limit. Needs `direct`.
    pub longest_read: usize,
    pub longest_write: usize,
    /// Writes that reach this offset store nothing and return 0.
    pub full_at: Option<u64>,
    /// The size that `stat` returns.
    pub claims: Option<u64>,
    /// `stat` returns no blocks, as for a file with holes.
    pub no_blocks: bool,
    pub change: Option<Change>,
    /// Of 100 writes of data with the [`MARK`], the number that fail with `EIO`.
    pub marked_failures: u32,
    /// One stored byte differs from the written one.
    pub spoils: bool,
    /// The maximal length of one `copy_file_range`.
    pub longest_range: Option<usize>,
    /// `SEEK_HOLE` returns its argument, or 0.
    pub seek_lies: Option<u64>,
    /// Reads at or beyond this offset wait for [`Faulty::release`].
    pub stalls_at: Option<u64>,
    /// Open directories cannot seek: `FOPEN_NONSEEKABLE`.
    pub unseekable: bool,
    /// The number of links, hard or symbolic, before which another client creates a file under the
    /// new name. No client knows a copy's temporary names.
    pub rivals: usize,
    /// Links, hard or symbolic, are made, and this error is returned.
    pub links_despite_errors: Option<i32>,
    /// The access ACL of every file. Attributes cannot be listed then.
    pub unlisted_acl: Option<Vec<u8>>,
}

impl Rules {
    pub fn failing(op: Op, errno: i32, from: u64, times: usize) -> Rules {
        Rules { failures: vec![Failure { op, errno, from, times, after: 0 }], ..Rules::default() }
    }

    pub fn direct(self) -> Rules {
        Rules { direct: true, ..self }
    }
}

struct Node {
    bytes: Vec<u8>,
    children: Option<BTreeMap<OsString, u64>>,
    /// The target of a symbolic link.
    leads_to: Option<OsString>,
    /// Changed since the last `fsync`: content or attributes of a file, names or attributes of a
    /// directory.
    unsynced: bool,
    victim: bool,
    perm: u16,
    owner: (u32, u32),
    links: u32,
    times: (SystemTime, SystemTime),
}

impl Node {
    fn new(children: Option<BTreeMap<OsString, u64>>, perm: u16, victim: bool) -> Node {
        let links = if children.is_some() { 2 } else { 1 };
        let time = UNIX_EPOCH + Duration::from_secs(1_500_000_000);
        Node {
            bytes: Vec::new(),
            children,
            leads_to: None,
            unsynced: true,
            victim,
            perm,
            owner: (0, 0),
            links,
            times: (time, time),
        }
    }
}

struct State {
    nodes: HashMap<u64, Node>,
    /// The names that each open directory lists.
    listings: HashMap<u64, Vec<(OsString, u64)>>,
    next_handle: u64,
    next: u64,
    rules: Rules,
    /// The failures that were returned.
    fired: Vec<Op>,
    /// Names that files got by a rename before they were synced.
    early: Vec<OsString>,
    stalled: usize,
    /// The threads that asked for attributes, of a file or of the file system.
    askers: Vec<u32>,
    random: fastrand::Rng,
}

const ROOT: u64 = 1;

fn is_victim(name: &OsStr) -> bool {
    let name = name.to_string_lossy();
    name.contains("victim") || name.starts_with(".cringle-cp.")
}

impl State {
    fn find(&self, path: &Path) -> Option<u64> {
        path.iter().try_fold(ROOT, |at, name| self.child(at, name))
    }

    fn child(&self, parent: u64, name: &OsStr) -> Option<u64> {
        self.nodes.get(&parent)?.children.as_ref()?.get(name).copied()
    }

    fn add(&mut self, parent: u64, name: &OsStr, node: Node) -> Option<u64> {
        let number = self.next;
        let parent = self.nodes.get_mut(&parent)?;
        parent.children.as_mut()?.insert(name.to_owned(), number);
        parent.unsynced = true;
        self.nodes.insert(number, node);
        self.next += 1;
        Some(number)
    }

    /// Returns the failure of this call, if any, and records it.
    fn fails(&mut self, op: Op, number: u64, reaches: u64) -> Option<i32> {
        if !self.nodes.get(&number)?.victim {
            return None;
        }
        let mut failures = self.rules.failures.iter_mut();
        let failure = failures
            .find(|one| one.op == op && one.times > 0 && (reaches > one.from || one.from == 0))?;
        if failure.after > 0 {
            failure.after -= 1;
            return None;
        }
        if failure.times != ALWAYS {
            failure.times -= 1;
        }
        self.fired.push(op);
        Some(failure.errno)
    }

    /// Returns the offset from which reads or writes may fail.
    fn barrier(&self, op: Op) -> u64 {
        let failures = self.rules.failures.iter().filter(|one| one.op == op && one.times > 0);
        failures.map(|one| one.from).min().unwrap_or(u64::MAX)
    }
}

struct Shared {
    state: Mutex<State>,
    released: Condvar,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns the names in a directory, which are about to change.
fn names(state: &mut State, directory: u64) -> Option<&mut BTreeMap<OsString, u64>> {
    let node = state.nodes.get_mut(&directory)?;
    node.unsynced = true;
    node.children.as_mut()
}

/// Lets another client take the name of a new link; returns whether the name is taken.
fn is_taken(state: &mut State, parent: u64, name: &OsStr) -> bool {
    if state.rules.rivals > 0 && name.to_string_lossy().contains("victim") {
        state.rules.rivals -= 1;
        if state.child(parent, name).is_none() {
            state.add(parent, name, Node::new(None, 0o644, true));
        }
    }
    state.child(parent, name).is_some()
}

fn unlink(state: &mut State, parent: u64, name: &OsStr) {
    let number = names(state, parent).and_then(|names| names.remove(name));
    let Some(number) = number else { return };
    // Open files stay: a real server keeps the file until its last release.
    if let Some(node) = state.nodes.get_mut(&number) {
        node.links = node.links.saturating_sub(1);
    }
}

fn time(of: TimeOrNow) -> SystemTime {
    match of {
        TimeOrNow::SpecificTime(time) => time,
        TimeOrNow::Now => SystemTime::now(),
    }
}

/// The mounted file system.
pub struct Faulty {
    pub at: PathBuf,
    shared: Arc<Shared>,
    session: Option<BackgroundSession>,
}

impl Faulty {
    /// Mounts the file system below `base`. Returns `None`, and prints why, where that is not
    /// possible.
    pub fn mount(base: &Path, name: &str) -> Option<Faulty> {
        Faulty::mount_with(base, name, InitFlags::empty())
    }

    /// [`mount`](Faulty::mount), with these capabilities of the kernel. A kernel that lacks one
    /// mounts the file system without it.
    pub fn mount_with(base: &Path, name: &str, capabilities: InitFlags) -> Option<Faulty> {
        let at = base.join(name);
        std::fs::create_dir(&at).unwrap();
        let mut root = Node::new(Some(BTreeMap::new()), 0o777, false);
        root.links = 2;
        let shared = Arc::new(Shared {
            state: Mutex::new(State {
                nodes: HashMap::from([(ROOT, root)]),
                listings: HashMap::new(),
                next_handle: 1,
                next: 2,
                rules: Rules::default(),
                fired: Vec::new(),
                early: Vec::new(),
                stalled: 0,
                askers: Vec::new(),
                random: fastrand::Rng::with_seed(0),
            }),
            released: Condvar::new(),
        });
        let mut config = Config::default();
        config.mount_options = vec![MountOption::FSName("cringle-faulty".into())];
        config.n_threads = Some(4);
        config.acl = SessionACL::Owner;
        let server = serve::Server { shared: Arc::clone(&shared), capabilities };
        match Session::new(server, &at, &config).and_then(Session::spawn) {
            Ok(session) => Some(Faulty { at, shared, session: Some(session) }),
            Err(why) => {
                eprintln!("skipped: no file system of our own (FUSE) can be mounted here: {why}");
                None
            }
        }
    }

    /// Sets the rules, and forgets the failures that were returned.
    pub fn set(&self, rules: Rules) {
        let mut state = self.shared.lock();
        state.rules = rules;
        state.fired.clear();
    }

    /// Changes how many marked writes fail. Forgets no failure.
    pub fn set_marked_failures(&self, percent: u32) {
        self.shared.lock().rules.marked_failures = percent;
    }

    pub fn fired(&self) -> Vec<Op> {
        self.shared.lock().fired.clone()
    }

    /// Returns the threads that have asked for attributes, of a file or of the file system, since
    /// the last call.
    pub fn take_askers(&self) -> Vec<u32> {
        std::mem::take(&mut self.shared.lock().askers)
    }

    pub fn mkdir(&self, path: &str) {
        let mut state = self.shared.lock();
        let path = Path::new(path);
        let parent = state.find(path.parent().unwrap()).unwrap();
        let name = path.file_name().unwrap();
        state.add(parent, name, Node::new(Some(BTreeMap::new()), 0o755, is_victim(name)));
    }

    pub fn put(&self, path: &str, bytes: &[u8]) {
        self.put_vec(path, bytes.to_owned());
    }

    /// Makes a file of zeros, which takes no memory until they are overwritten.
    pub fn put_zeros(&self, path: &str, length: usize) {
        self.put_vec(path, vec![0; length]);
    }

    fn put_vec(&self, path: &str, bytes: Vec<u8>) {
        let mut state = self.shared.lock();
        let path = Path::new(path);
        let parent = state.find(path.parent().unwrap()).unwrap();
        let name = path.file_name().unwrap();
        let mut node = Node::new(None, 0o644, is_victim(name));
        node.bytes = bytes;
        state.add(parent, name, node);
    }

    pub fn link(&self, path: &str, other: &str) {
        let mut state = self.shared.lock();
        let number = state.find(Path::new(path)).unwrap();
        let other = Path::new(other);
        let parent = state.find(other.parent().unwrap()).unwrap();
        let children = state.nodes.get_mut(&parent).unwrap().children.as_mut().unwrap();
        children.insert(other.file_name().unwrap().to_owned(), number);
        state.nodes.get_mut(&number).unwrap().links += 1;
    }

    /// Returns the content of a name and its modification time.
    pub fn get(&self, path: &str) -> Option<(Vec<u8>, SystemTime)> {
        let state = self.shared.lock();
        let node = &state.nodes[&state.find(Path::new(path))?];
        Some((node.bytes.clone(), node.times.1))
    }

    pub fn names(&self, path: &str) -> Vec<OsString> {
        let state = self.shared.lock();
        let node = state.find(Path::new(path)).and_then(|number| state.nodes.get(&number));
        let children = node.and_then(|node| node.children.as_ref());
        children.into_iter().flat_map(|names| names.keys().cloned()).collect()
    }

    /// Lets stalled reads, and later ones, continue.
    pub fn release(&self) {
        self.shared.lock().rules.stalls_at = None;
        self.shared.released.notify_all();
    }

    /// Returns the number of reads that wait for [`release`](Faulty::release).
    pub fn stalled(&self) -> usize {
        self.shared.lock().stalled
    }

    /// Treats all present files as synced.
    pub fn settle(&self) {
        let mut state = self.shared.lock();
        state.early.clear();
        state.nodes.values_mut().for_each(|node| node.unsynced = false);
    }

    /// Returns the paths that a power loss would damage now: those that are not synced, and those
    /// that files got before they were synced.
    pub fn unsynced(&self) -> Vec<String> {
        fn look(state: &State, number: u64, path: &Path, found: &mut Vec<String>) {
            let Some(node) = state.nodes.get(&number) else { return };
            // A symbolic link is created together with its content.
            if node.unsynced && node.leads_to.is_none() {
                found.push(format!("/{}", path.display()));
            }
            for (name, number) in node.children.iter().flatten() {
                look(state, *number, &path.join(name), found);
            }
        }
        let state = self.shared.lock();
        let early = state.early.iter().map(|name| format!("{} too early", name.display()));
        let mut found = early.collect();
        look(&state, ROOT, Path::new(""), &mut found);
        found
    }

    pub fn clear(&self) {
        let mut state = self.shared.lock();
        state.nodes.retain(|number, _| *number == ROOT);
        if let Some(children) = &mut state.nodes.get_mut(&ROOT).unwrap().children {
            children.clear();
        }
    }
}

impl Drop for Faulty {
    fn drop(&mut self) {
        self.release();
        drop(self.session.take());
        // A failed test, or a child process that has not closed its files yet, keeps it mounted.
        if let Ok(at) = CString::new(self.at.as_os_str().as_bytes()) {
            // SAFETY: the path is a C string, and outlives the call.
            unsafe { libc::umount2(at.as_ptr(), libc::MNT_DETACH) };
        }
    }
}
