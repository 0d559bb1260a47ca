//! From what workers see to what is told: names instead of numbers.

use super::files::Files;
use crate::runtime::fiber::{FiberId, Wait};
use crate::runtime::label::{Origin, Origins};
use crate::runtime::wait_target::{FiberTag, MOST_PERMITS, TargetInfo};
use crate::runtime::worker::{Activity, FiberSnapshot, OpsSnapshot};
use std::backtrace::Backtrace;
use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// Which fiber: its name, if it has one, and where it was spawned.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Who {
    /// Its name, if it was given one. That of `run`'s closure is `main`.
    pub name: Option<Arc<str>>,
    /// Where it was spawned; not known before it runs for the first time.
    pub spawned: Option<&'static std::panic::Location<'static>>,
}

impl Who {
    pub(in crate::runtime) fn of(origins: &Origins) -> Who {
        Who { name: origins.name.clone(), spawned: origins.spawned }
    }
}

/// A fiber, in a [`Dump`](super::Dump).
#[derive(Debug)]
#[non_exhaustive]
pub struct FiberReport {
    /// Which one.
    pub who: Who,
    /// The number of its worker.
    pub worker: usize,
    /// The scope that it belongs to, if it belongs to one.
    pub scope: Option<OpenedScope>,
    /// What it does.
    pub state: FiberState,
    /// It is cancelled where it is, and its wait is about to end, or cannot be ended.
    pub cancelled: bool,
    /// A deadline cancels what it is in after this.
    pub deadline: Option<Duration>,
    /// Where it is, if that was [asked for](super::dump_with_backtraces).
    pub backtrace: Option<Backtrace>,
}

/// A scope, as its fibers are asked about it.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct OpenedScope {
    /// Where it was opened.
    pub opened: &'static std::panic::Location<'static>,
    /// By which fiber: none where it was no fiber, or one that a silent worker knows.
    pub owner: Option<Who>,
}

/// What a fiber does.
#[derive(Debug)]
#[non_exhaustive]
pub enum FiberState {
    /// It asked for the dump.
    Running,
    /// It waits for its turn alone.
    Ready,
    /// It waits.
    #[non_exhaustive]
    Waiting {
        /// For what.
        for_what: WaitsFor,
        /// For how long, at most: it is told by a clock that a worker reads when it has been in the kernel,
        /// which goes by the kernel's ticks (1 to 10 ms). Where the fibers of a worker wait for nothing but
        /// each other, that is after 256 turns.
        age: Duration,
        /// A timer ends the wait after this, if nothing does before.
        timer: Option<Duration>,
    },
}

/// What a fiber waits for. Its `Display` says it in words.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum WaitsFor {
    /// The kernel.
    #[non_exhaustive]
    Operation {
        /// The operation, as a person calls it: "a read", "data from a peer".
        name: &'static str,
        /// Its descriptor, if it has one.
        fd: Option<i32>,
        /// What that is: a path, a socket's addresses, a child.
        file: Option<String>,
        /// Where in the file.
        offset: Option<u64>,
        /// The path that it is about.
        path: Option<PathBuf>,
        /// The address that is connected to.
        peer: Option<std::net::SocketAddr>,
        /// A thread of the library's pool does it by a plain call, since the ring has no such operation.
        aside: bool,
        /// Of a batch: how many of its operations are under way, and how many it has.
        batch: Option<(usize, usize)>,
    },
    /// A lock of [`sync`](crate::sync).
    #[non_exhaustive]
    Lock {
        /// Its address.
        address: usize,
        /// Who has it.
        holder: Holder,
    },
    /// Permits of a semaphore.
    #[non_exhaustive]
    Permits {
        /// The semaphore's address.
        address: usize,
        /// Permits that are free: fewer than are needed, or others are first.
        free: usize,
    },
    /// Another fiber's end.
    Join(Who),
    /// The fibers of a scope that it has opened: so many are left.
    Scope(usize),
    /// A timer.
    Timer,
    /// An `unpark`.
    Unpark,
    /// Something else, at an address if that is known: the other side of a channel, a notification.
    #[non_exhaustive]
    Other {
        /// As a person calls it.
        what: &'static str,
        /// Where it is.
        address: Option<usize>,
    },
}

/// Who has a lock.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Holder {
    /// This fiber, by its place in [`Dump::fibers`](super::Dump::fibers).
    Fiber(usize, Who),
    /// So many readers.
    Readers(usize),
    /// A thread outside of any fiber.
    Thread,
    /// A fiber that is not in the dump: that has ended and left it locked, or lives with a worker that is
    /// silent, or in another runtime.
    Unknown,
    /// Nobody: it was let go of, and is on its way to who is next.
    Nobody,
}

/// Sorted and named.
pub(super) fn reports(mut snapshots: Vec<FiberSnapshot>) -> Vec<FiberReport> {
    // Of equal age, as the workers have them.
    snapshots.sort_by_key(|snapshot| match &snapshot.activity {
        Activity::Waits { age, .. } => (0, std::cmp::Reverse(*age)),
        Activity::Ready => (1, std::cmp::Reverse(Duration::ZERO)),
        Activity::Runs => (2, std::cmp::Reverse(Duration::ZERO)),
    });
    let tags: HashMap<FiberTag, usize> =
        snapshots.iter().enumerate().map(|(at, s)| (s.tag, at)).collect();
    let ids: HashMap<(u32, FiberId), usize> =
        snapshots.iter().enumerate().map(|(at, s)| ((s.worker, s.id), at)).collect();
    let who: Vec<Who> = snapshots.iter().map(|snapshot| Who::of(&snapshot.origins)).collect();
    let mut names = Names { tags, ids, who, files: Files::default() };
    snapshots.into_iter().map(|snapshot| names.report(snapshot)).collect()
}

struct Names {
    tags: HashMap<FiberTag, usize>,
    ids: HashMap<(u32, FiberId), usize>,
    who: Vec<Who>,
    files: Files,
}

impl Names {
    fn report(&mut self, snapshot: FiberSnapshot) -> FiberReport {
        let state = match snapshot.activity {
            Activity::Runs => FiberState::Running,
            Activity::Ready => FiberState::Ready,
            Activity::Waits { wait, target, ops, age } => FiberState::Waiting {
                for_what: self.for_what(wait, target, ops),
                age,
                timer: snapshot.timer,
            },
        };
        FiberReport {
            who: Who::of(&snapshot.origins),
            worker: snapshot.worker as usize,
            scope: snapshot.scope.map(|scope| OpenedScope {
                opened: scope.opened as Origin,
                owner: scope.owner.and_then(|owner| Some(self.who[*self.ids.get(&owner)?].clone())),
            }),
            state,
            cancelled: snapshot.is_cancelled,
            deadline: snapshot.deadline,
            backtrace: snapshot.backtrace,
        }
    }

    fn for_what(
        &mut self,
        wait: Wait,
        told: Option<TargetInfo>,
        ops: Option<OpsSnapshot>,
    ) -> WaitsFor {
        if let Some(ops) = ops {
            return self.operation(ops, false);
        }
        match (wait, told) {
            (Wait::Lock, Some(TargetInfo::Gate { address, holder, free })) => {
                WaitsFor::Lock { address, holder: self.holder(holder, free) }
            }
            (Wait::Permit, Some(TargetInfo::Gate { address, free, .. })) => {
                WaitsFor::Permits { address, free }
            }
            (_, Some(TargetInfo::FiberEnd(origins))) => WaitsFor::Join(Who::of(&origins)),
            (_, Some(TargetInfo::Members(left))) => WaitsFor::Scope(left),
            (_, Some(TargetInfo::Call { about, path })) => {
                let ops = OpsSnapshot {
                    first: about,
                    registered: None,
                    path,
                    peer: None,
                    in_flight: 1,
                    count: 1,
                };
                self.operation(ops, true)
            }
            (Wait::Sleep, _) => WaitsFor::Timer,
            (Wait::Park, _) => WaitsFor::Unpark,
            (_, Some(TargetInfo::Address(address) | TargetInfo::Gate { address, .. })) => {
                WaitsFor::Other { what: wait.describe(), address: Some(address) }
            }
            (_, None) => WaitsFor::Other { what: wait.describe(), address: None },
        }
    }

    fn holder(&self, tag: FiberTag, free: usize) -> Holder {
        match tag {
            // A lock for readers has more permits than there can be readers.
            FiberTag::NONE if free > MOST_PERMITS / 2 => Holder::Readers(MOST_PERMITS - free),
            FiberTag::NONE => Holder::Nobody,
            FiberTag::THREAD => Holder::Thread,
            tag => match self.tags.get(&tag) {
                Some(&at) => Holder::Fiber(at, self.who[at].clone()),
                None => Holder::Unknown,
            },
        }
    }

    fn operation(&mut self, ops: OpsSnapshot, aside: bool) -> WaitsFor {
        let OpsSnapshot { first, registered, path, peer, in_flight, count } = ops;
        let fd = registered.or(Some(first.file).filter(|&fd| fd >= 0));
        WaitsFor::Operation {
            name: first.name.as_str(),
            fd,
            file: fd.and_then(|fd| self.files.describe(fd)),
            offset: first.offset(),
            path: path.map(|path| {
                use std::os::unix::ffi::OsStringExt;
                std::ffi::OsString::from_vec(path.into_bytes()).into()
            }),
            peer,
            aside,
            batch: (count > 1).then_some((in_flight, count)),
        }
    }
}

impl FiberReport {
    /// The place of the fiber that has the lock which this one waits for.
    fn waits_for_fiber(&self) -> Option<usize> {
        let FiberState::Waiting { for_what, .. } = &self.state else { return None };
        match for_what {
            WaitsFor::Lock { holder: Holder::Fiber(at, _), .. } => Some(*at),
            _ => None,
        }
    }
}

/// Each waits for one other at most: whoever follows that comes to an end or to where it was.
pub(super) fn cycles(fibers: &[FiberReport]) -> Vec<Vec<usize>> {
    // The walk that came by first.
    let mut seen_by = vec![usize::MAX; fibers.len()];
    let mut cycles = Vec::new();
    for start in 0..fibers.len() {
        let mut at = start;
        while seen_by[at] == usize::MAX {
            seen_by[at] = start;
            match fibers[at].waits_for_fiber() {
                Some(next) if seen_by[next] == start => {
                    cycles.push(walk(fibers, next));
                    break;
                }
                Some(next) => at = next,
                None => break,
            }
        }
    }
    cycles
}

/// From a fiber that is in a cycle, around it.
fn walk(fibers: &[FiberReport], start: usize) -> Vec<usize> {
    let next = |&at: &usize| fibers[at].waits_for_fiber().filter(|&next| next != start);
    std::iter::successors(Some(start), next).collect()
}
