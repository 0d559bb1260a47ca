//! From the snapshots of the workers to the reports of a dump, with names in place of numbers.

use super::files::Files;
use cringle_core::fiber::{FiberId, Wait};
use cringle_core::label::{Origin, Origins};
use cringle_core::spawn_place::SpawnPlace;
use cringle_core::wait_target::{FiberTag, MOST_PERMITS, TargetInfo};
use cringle_core::worker::{Activity, FiberSnapshot, OpsSnapshot};
use std::backtrace::Backtrace;
use std::collections::{HashMap, HashSet};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// A fiber's name and the place that spawned it.
///
/// ```
/// let dump = cringle::run(cringle::runtime::dump).expect("there was a runtime");
/// let who = &dump.fibers[0].who;
/// assert_eq!(who.name.as_deref(), Some("main"));
/// assert_eq!(who.spawned.expect("it has begun").file(), file!());
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Who {
    /// Its name, if it has one. `run`'s closure is called `main`.
    pub name: Option<Arc<str>>,
    /// The place that spawned it; unknown before it first runs.
    pub spawned: Option<&'static std::panic::Location<'static>>,
    /// Of a thread that is a [fiber](cringle_core::choices::Threads::Fibers), the place in the
    /// program that started it, as `src/main.rs:7:9`; `spawned` is within the library. In release
    /// builds without the feature `detect`, and in code without line tables, it is
    /// `pthread_create`.
    pub thread: Option<&'static str>,
}

impl Who {
    pub(super) fn of(origins: &Origins) -> Who {
        let thread = origins.thread.map(SpawnPlace::text);
        Who { name: origins.name.clone(), spawned: origins.spawned, thread }
    }
}

/// One fiber in a [`Dump`](super::Dump).
///
/// ```
/// let dump = cringle::run(cringle::runtime::dump).expect("there was a runtime");
/// for fiber in dump.fibers {
///     println!("{:?} on worker {}: {:?}", fiber.who.name, fiber.worker, fiber.state);
/// }
/// ```
#[derive(Debug)]
#[non_exhaustive]
pub struct FiberReport {
    /// Its name and origin.
    pub who: Who,
    /// The number of its worker.
    pub worker: usize,
    /// The scope that it belongs to, if any.
    pub scope: Option<OpenedScope>,
    /// Whether it runs or waits.
    pub state: FiberState,
    /// Whether it is cancelled at the place where it is. Its wait ends soon, or cannot be ended.
    pub cancelled: bool,
    /// The time until a deadline cancels it.
    pub deadline: Option<Duration>,
    /// Its backtrace, in a dump [with backtraces](super::dump_with_backtraces).
    pub backtrace: Option<Backtrace>,
}

/// The scope of a fiber.
///
/// ```
/// use cringle::{fiber, runtime};
///
/// cringle::run(|| {
///     let dump = fiber::scope(|s| s.spawn(runtime::dump).join().unwrap()).unwrap();
///     let scope = dump.fibers.iter().find_map(|fiber| fiber.scope.as_ref()).expect("it is open");
///     assert_eq!(scope.opened.file(), file!());
/// });
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct OpenedScope {
    /// The place that opened it.
    pub opened: &'static std::panic::Location<'static>,
    /// The fiber that opened it; `None` if no fiber did, or if that fiber is not in the dump.
    pub owner: Option<Who>,
}

/// Whether a fiber runs or waits.
///
/// ```
/// use cringle::runtime::{self, FiberState};
///
/// let dump = cringle::run(runtime::dump).expect("there was a runtime");
/// assert!(matches!(dump.fibers[0].state, FiberState::Running)); // It made the dump.
/// ```
#[derive(Debug)]
#[non_exhaustive]
pub enum FiberState {
    /// It runs: it made the dump.
    Running,
    /// It is ready, and waits for its turn.
    Ready,
    /// It waits.
    #[non_exhaustive]
    Waiting {
        /// What it waits for.
        for_what: WaitsFor,
        /// For how long it has waited, at most. The clock advances with the kernel's ticks (1 to 10
        /// ms), and a worker reads it when it has been in the kernel, at least every 256 turns.
        age: Duration,
        /// The time until a timer ends the wait, if one is set.
        timer: Option<Duration>,
    },
}

/// What a fiber waits for. Its `Display` describes it in words.
///
/// ```
/// use cringle::fiber;
/// use cringle::runtime::{self, FiberState, WaitsFor};
///
/// cringle::run(|| {
///     let parked = fiber::spawn_local(fiber::park);
///     fiber::yield_now();
///     let dump = runtime::dump().expect("there is a runtime here");
///     let FiberState::Waiting { for_what, .. } = &dump.fibers[0].state else { unreachable!() };
///     assert!(matches!(for_what, WaitsFor::Unpark));
///     parked.thread().unpark();
/// });
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum WaitsFor {
    /// An operation in the kernel.
    #[non_exhaustive]
    Operation {
        /// The operation in words: "a read", "data from a peer".
        name: &'static str,
        /// Its descriptor, if it has one.
        fd: Option<i32>,
        /// A description of the descriptor: a path, a socket's addresses, a child.
        file: Option<String>,
        /// The offset in the file.
        offset: Option<u64>,
        /// The path that the operation names.
        path: Option<PathBuf>,
        /// The address that it connects to.
        peer: Option<std::net::SocketAddr>,
        /// The address of the futex whose wake-up it is: a lock of std or of another crate.
        address: Option<usize>,
        /// Whether a thread of the library's pool does it by a plain call, because the ring has no
        /// such operation.
        aside: bool,
        /// Of a batch: the number of operations in flight, and the total number.
        batch: Option<(usize, usize)>,
    },
    /// A lock of [`sync`](cringle_std::sync).
    #[non_exhaustive]
    Lock {
        /// Its address.
        address: usize,
        /// Its holder.
        holder: Holder,
    },
    /// Permits of a semaphore.
    #[non_exhaustive]
    Permits {
        /// The semaphore's address.
        address: usize,
        /// The free permits: too few, or other fibers are first in line.
        free: usize,
    },
    /// The end of another fiber.
    Join(Who),
    /// The fibers of a scope that it has opened, of which this number is left.
    Scope(usize),
    /// A timer.
    Timer,
    /// An `unpark`.
    Unpark,
    /// Another object: the other side of a channel, a notification.
    #[non_exhaustive]
    Other {
        /// The object in words.
        what: &'static str,
        /// Its address, if that is known.
        address: Option<usize>,
    },
}

/// The holder of a lock.
///
/// ```
/// use cringle::runtime::{self, FiberState, Holder, WaitsFor};
/// use cringle::{fiber, sync::Mutex};
///
/// cringle::run(|| {
///     let mutex = Mutex::new(());
///     fiber::scope(|s| {
///         let guard = mutex.lock();
///         s.spawn_local(|| drop(mutex.lock()));
///         fiber::yield_now();
///         let dump = runtime::dump().expect("there is a runtime here");
///         let FiberState::Waiting { for_what, .. } = &dump.fibers[0].state else { panic!() };
///         let WaitsFor::Lock { holder: Holder::Fiber(_, who), .. } = for_what else { panic!() };
///         assert_eq!(who.name.as_deref(), Some("main"));
///         drop(guard);
///     });
/// });
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Holder {
    /// This fiber, by its index in [`Dump::fibers`](super::Dump::fibers).
    Fiber(usize, Who),
    /// This number of readers.
    Readers(usize),
    /// A thread outside of any fiber.
    Thread,
    /// A fiber that is not in the dump: it has ended without unlocking, or belongs to a silent
    /// worker or to another runtime.
    Unknown,
    /// None: the lock was released, and is on its way to the next waiter.
    Nobody,
}

/// Returns the reports, sorted by how long the fibers have waited.
pub(super) fn reports(mut snapshots: Vec<FiberSnapshot>) -> Vec<FiberReport> {
    // A fiber that was on its way when the dump began may have been seen by two workers.
    let mut seen = HashSet::new();
    snapshots.retain(|snapshot| seen.insert(snapshot.id));
    // A stable sort: fibers of equal age stay in the order of their workers.
    snapshots.sort_by_key(|snapshot| match &snapshot.activity {
        Activity::Waits { age, .. } => (0, std::cmp::Reverse(*age)),
        Activity::Ready => (1, std::cmp::Reverse(Duration::ZERO)),
        Activity::Runs => (2, std::cmp::Reverse(Duration::ZERO)),
    });
    let tags: HashMap<FiberTag, usize> =
        snapshots.iter().enumerate().map(|(at, s)| (s.tag, at)).collect();
    let ids: HashMap<FiberId, usize> =
        snapshots.iter().enumerate().map(|(at, s)| (s.id, at)).collect();
    let who: Vec<Who> = snapshots.iter().map(|snapshot| Who::of(&snapshot.origins)).collect();
    let mut names = Names { tags, ids, who, files: Files::default() };
    snapshots.into_iter().map(|snapshot| names.report(snapshot)).collect()
}

/// Finds fibers by the numbers in snapshots.
struct Names {
    tags: HashMap<FiberTag, usize>,
    ids: HashMap<FiberId, usize>,
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
        target: Option<TargetInfo>,
        ops: Option<OpsSnapshot>,
    ) -> WaitsFor {
        if let Some(ops) = ops {
            return self.operation(ops, false);
        }
        match (wait, target) {
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
            // Without a holder, a lock that still has most of its permits is held by readers.
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
            address: first.address(),
            aside,
            batch: (count > 1).then_some((in_flight, count)),
        }
    }
}

impl FiberReport {
    /// The index of the fiber that holds the lock which this one waits for.
    fn waits_for_fiber(&self) -> Option<usize> {
        let FiberState::Waiting { for_what, .. } = &self.state else { return None };
        match for_what {
            WaitsFor::Lock { holder: Holder::Fiber(at, _), .. } => Some(*at),
            _ => None,
        }
    }
}

/// Finds the cycles of waits. Each fiber waits for at most one other, so a walk along the waits
/// ends, or returns to where it was.
pub(super) fn cycles(fibers: &[FiberReport]) -> Vec<Vec<usize>> {
    // For each fiber, the first walk that has visited it.
    let mut visited_by = vec![usize::MAX; fibers.len()];
    let mut cycles = Vec::new();
    for start in 0..fibers.len() {
        let mut at = start;
        while visited_by[at] == usize::MAX {
            visited_by[at] = start;
            match fibers[at].waits_for_fiber() {
                Some(next) if visited_by[next] == start => {
                    cycles.push(cycle_from(fibers, next));
                    break;
                }
                Some(next) => at = next,
                None => break,
            }
        }
    }
    cycles
}

/// Returns the cycle that this fiber is in.
fn cycle_from(fibers: &[FiberReport], start: usize) -> Vec<usize> {
    let next = |&at: &usize| fibers[at].waits_for_fiber().filter(|&next| next != start);
    std::iter::successors(Some(start), next).collect()
}
