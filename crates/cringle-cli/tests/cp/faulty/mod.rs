//! A file system under the test's control: files in memory, served through FUSE, with faults on demand.
//!
//! [`Rules`] say which calls fail, how short reads and writes are, what `stat` claims, and when a file
//! changes while it is copied. They apply to *victims*: files whose name contains `victim`, and the
//! temporary files of a copy. Every other file is served without faults.
//!
//! An open directory lists the names that it had when its listing began. Its positions are valid for that
//! handle alone, as POSIX has it: a position of another handle fails with `EINVAL`.

mod bytes;
mod serve;

use fuser::{BackgroundSession, Config, MountOption, Session, SessionACL};
use std::collections::{BTreeMap, HashMap};
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// The calls that can fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Op {
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
    /// Reads and lists of extended attributes, of which there are none.
    Xattr,
}

pub(crate) const ALWAYS: usize = usize::MAX;

/// One call that fails.
#[derive(Clone, Debug)]
pub(crate) struct Failure {
    pub(crate) op: Op,
    pub(crate) errno: i32,
    /// Reads and writes that reach this offset fail; with direct I/O those before it end there.
    pub(crate) from: u64,
    pub(crate) times: usize,
    /// Calls that succeed before.
    pub(crate) after: usize,
}

/// The file gets another length when a read reaches an offset.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Change {
    pub(crate) at: u64,
    pub(crate) length: usize,
    /// Later reads find the first content again.
    pub(crate) for_one_read: bool,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Rules {
    pub(crate) failures: Vec<Failure>,
    /// `FOPEN_DIRECT_IO`: reads and writes reach the server as the program made them.
    pub(crate) direct: bool,
    /// The most bytes of one read or write; 0 for no limit. Needs `direct`.
    pub(crate) longest_read: usize,
    pub(crate) longest_write: usize,
    /// Writes that reach this offset store nothing and answer 0.
    pub(crate) full_at: Option<u64>,
    /// The size that `stat` claims.
    pub(crate) claims: Option<u64>,
    /// `stat` claims no blocks, as of a file with holes.
    pub(crate) no_blocks: bool,
    pub(crate) change: Option<Change>,
    /// Another byte is stored than was written.
    pub(crate) spoils: bool,
    /// The most bytes that one `copy_file_range` copies.
    pub(crate) longest_range: Option<usize>,
    /// Each `SEEK_HOLE` answers the offset it was given, or 0.
    pub(crate) seek_lies: Option<u64>,
    /// Reads at or beyond this offset wait until [`Faulty::release`].
    pub(crate) stalls_at: Option<u64>,
    /// No open directory can seek: `FOPEN_NONSEEKABLE`.
    pub(crate) unseekable: bool,
}

impl Rules {
    pub(crate) fn failing(op: Op, errno: i32, from: u64, times: usize) -> Rules {
        Rules { failures: vec![Failure { op, errno, from, times, after: 0 }], ..Rules::default() }
    }

    pub(crate) fn direct(self) -> Rules {
        Rules { direct: true, ..self }
    }
}

struct Node {
    bytes: Vec<u8>,
    children: Option<BTreeMap<OsString, u64>>,
    /// Of a symbolic link.
    leads_to: Option<OsString>,
    /// Changed since its last `fsync`: a file's content or attributes, a directory's names or attributes.
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
    /// What each open directory lists.
    listings: HashMap<u64, Vec<(OsString, u64)>>,
    next_handle: u64,
    next: u64,
    rules: Rules,
    /// Failures that were answered.
    fired: Vec<Op>,
    /// Names that a file got by a rename before it was synced.
    early: Vec<OsString>,
    stalled: usize,
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

    /// The failure that this call is to get; it counts as answered.
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

    /// Where the first read or write that may not succeed begins.
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

/// The mounted file system.
pub(crate) struct Faulty {
    pub(crate) at: PathBuf,
    shared: Arc<Shared>,
    session: Option<BackgroundSession>,
}

impl Faulty {
    /// Mounts it below `base`; `None`, with a line that says why, where that cannot be.
    /// `writeback`: the kernel keeps what is written and writes it later.
    pub(crate) fn mount(base: &Path, name: &str, writeback: bool) -> Option<Faulty> {
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
            }),
            released: Condvar::new(),
        });
        let mut config = Config::default();
        config.mount_options = vec![MountOption::FSName("cringle-faulty".into())];
        config.n_threads = Some(4);
        config.acl = SessionACL::Owner;
        let server = serve::Server { shared: Arc::clone(&shared), writeback };
        match Session::new(server, &at, &config).and_then(Session::spawn) {
            Ok(session) => Some(Faulty { at, shared, session: Some(session) }),
            Err(why) => {
                eprintln!("skipped: no file system of our own (FUSE) can be mounted here: {why}");
                None
            }
        }
    }

    /// The rules from now on; forgets what was answered.
    pub(crate) fn set(&self, rules: Rules) {
        let mut state = self.shared.lock();
        state.rules = rules;
        state.fired.clear();
    }

    pub(crate) fn fired(&self) -> Vec<Op> {
        self.shared.lock().fired.clone()
    }

    pub(crate) fn mkdir(&self, path: &str) {
        let mut state = self.shared.lock();
        let path = Path::new(path);
        let parent = state.find(path.parent().unwrap()).unwrap();
        let name = path.file_name().unwrap();
        state.add(parent, name, Node::new(Some(BTreeMap::new()), 0o755, is_victim(name)));
    }

    pub(crate) fn put(&self, path: &str, bytes: &[u8]) {
        let mut state = self.shared.lock();
        let path = Path::new(path);
        let parent = state.find(path.parent().unwrap()).unwrap();
        let name = path.file_name().unwrap();
        let mut node = Node::new(None, 0o644, is_victim(name));
        node.bytes = bytes.to_owned();
        state.add(parent, name, node);
    }

    pub(crate) fn link(&self, path: &str, other: &str) {
        let mut state = self.shared.lock();
        let number = state.find(Path::new(path)).unwrap();
        let other = Path::new(other);
        let parent = state.find(other.parent().unwrap()).unwrap();
        let children = state.nodes.get_mut(&parent).unwrap().children.as_mut().unwrap();
        children.insert(other.file_name().unwrap().to_owned(), number);
        state.nodes.get_mut(&number).unwrap().links += 1;
    }

    /// What the server has under that name, and when it says that was written.
    pub(crate) fn get(&self, path: &str) -> Option<(Vec<u8>, SystemTime)> {
        let state = self.shared.lock();
        let node = &state.nodes[&state.find(Path::new(path))?];
        Some((node.bytes.clone(), node.times.1))
    }

    pub(crate) fn names(&self, path: &str) -> Vec<OsString> {
        let state = self.shared.lock();
        let node = state.find(Path::new(path)).and_then(|number| state.nodes.get(&number));
        let children = node.and_then(|node| node.children.as_ref());
        children.into_iter().flat_map(|names| names.keys().cloned()).collect()
    }

    /// Lets stalled reads, and later ones, continue.
    pub(crate) fn release(&self) {
        self.shared.lock().rules.stalls_at = None;
        self.shared.released.notify_all();
    }

    /// Reads that wait for [`release`](Faulty::release).
    pub(crate) fn stalled(&self) -> usize {
        self.shared.lock().stalled
    }

    /// From now on, all that is there is on the disk.
    pub(crate) fn settle(&self) {
        let mut state = self.shared.lock();
        state.early.clear();
        state.nodes.values_mut().for_each(|node| node.unsynced = false);
    }

    /// What a loss of power now would take: paths that are not synced, and names that files had before
    /// they were.
    pub(crate) fn unsynced(&self) -> Vec<String> {
        fn look(state: &State, number: u64, path: &Path, found: &mut Vec<String>) {
            let Some(node) = state.nodes.get(&number) else { return };
            // The target of a symbolic link is made together with its name.
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

    pub(crate) fn clear(&self) {
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
    }
}
