//! What a worker sees of its own fibers, for a dump.
//!
//! Fibers are seen by their own worker alone (**I3**), between two of them or while one asks; so each is
//! either suspended, and all that it has lent stays as it is meanwhile (**I1**, **I2**), or the one that
//! asks.

use super::Worker;
use crate::driver::{Driver, OpDescription};
use crate::runtime::fiber::{FiberId, FiberRef, State, Wait};
use crate::runtime::label::Origins;
use crate::runtime::timers::Alarm;
use crate::runtime::wait_target::{FiberTag, ScopeOrigin, TargetInfo};
use std::backtrace::Backtrace;
use std::collections::HashMap;
use std::ffi::CString;
use std::net::SocketAddr;
use std::time::Duration;

/// A fiber as its worker sees it.
pub(in crate::runtime) struct FiberSnapshot {
    pub(in crate::runtime) tag: FiberTag,
    pub(in crate::runtime) id: FiberId,
    pub(in crate::runtime) worker: u32,
    pub(in crate::runtime) origins: Origins,
    pub(in crate::runtime) scope: Option<ScopeOrigin>,
    pub(in crate::runtime) doing: Activity,
    /// It is cancelled where it is.
    pub(in crate::runtime) cancelled: bool,
    /// A timer ends its wait, or a deadline cancels it, in so long.
    pub(in crate::runtime) timer: Option<Duration>,
    pub(in crate::runtime) deadline: Option<Duration>,
    pub(in crate::runtime) backtrace: Option<Backtrace>,
}

pub(in crate::runtime) enum Activity {
    Runs,
    Ready,
    Waits { wait: Wait, told: Option<TargetInfo>, ops: Option<OpsSnapshot>, age: Duration },
}

/// The ops that a fiber waits for: the first of them that is under way, and how many there are.
pub(in crate::runtime) struct OpsSnapshot {
    pub(in crate::runtime) first: OpDescription,
    /// Its file, if that is a registered one whose descriptor is known.
    pub(in crate::runtime) registered: Option<i32>,
    pub(in crate::runtime) path: Option<CString>,
    pub(in crate::runtime) peer: Option<SocketAddr>,
    pub(in crate::runtime) under_way: usize,
    pub(in crate::runtime) count: usize,
}

/// A question that a worker answers about its fibers. One that a worker does not answer before it ends is dropped.
pub(crate) trait Question: Send {
    fn answer(self: Box<Self>, worker: &Worker);
}

/// The nearest timer and deadline of each fiber that has one.
type Times = HashMap<FiberTag, (Option<Duration>, Option<Duration>)>;

impl Worker {
    /// All of this worker's fibers.
    pub(in crate::runtime) fn snapshots(&self, backtraces: bool) -> Vec<FiberSnapshot> {
        let fibers: Vec<FiberRef> = self.table.borrow().occupied().collect();
        let times = self.times();
        self.events.read_clock(&self.driver);
        // A backtrace takes memory, and an allocator may be the program's: nothing is borrowed.
        let snapshot = |&fiber: &FiberRef| {
            let mut snapshot = self.snapshot(fiber, &times);
            snapshot.backtrace = if backtraces { self.backtrace_of(fiber) } else { None };
            snapshot
        };
        fibers.iter().map(snapshot).collect()
    }

    fn snapshot(&self, fiber: FiberRef, times: &Times) -> FiberSnapshot {
        let doing = match fiber.state() {
            State::Waiting(wait) => Activity::Waits {
                wait,
                told: fiber.target().map(|target| target.info()),
                ops: ops_snapshot(&self.driver.borrow(), fiber),
                age: Duration::from_nanos(self.events.clock_ns().saturating_sub(fiber.since_ns())),
            },
            _ if self.running.get() == Some(fiber) => Activity::Runs,
            _ => Activity::Ready,
        };
        let (timer, deadline) = times.get(&fiber.tag()).copied().unwrap_or_default();
        FiberSnapshot {
            tag: fiber.tag(),
            id: fiber.id(),
            worker: self.index,
            origins: fiber.meta().map(|meta| meta.origins()).unwrap_or_default(),
            scope: fiber.scope(),
            doing,
            cancelled: fiber.is_cancelled(),
            timer,
            deadline,
            backtrace: None,
        }
    }

    fn times(&self) -> Times {
        let now = self.now();
        let mut times = Times::new();
        let nearer = |place: &mut Option<Duration>, time: Duration| {
            *place = Some(place.map_or(time, |other| other.min(time)));
        };
        for (at, alarm) in self.timers.borrow().pending() {
            let left = at.saturating_duration_since(now);
            match alarm {
                Alarm::Wake(fiber) | Alarm::GiveUp(fiber) => {
                    nearer(&mut times.entry(fiber.tag()).or_default().0, left);
                }
                Alarm::Expire(fiber, _) => {
                    nearer(&mut times.entry(fiber.tag()).or_default().1, left);
                }
                Alarm::ReportStubborn | Alarm::RetryStarts => {}
            }
        }
        times
    }

    fn backtrace_of(&self, fiber: FiberRef) -> Option<Backtrace> {
        let running = self.running.get();
        if running == Some(fiber) {
            return Some(Backtrace::force_capture());
        }
        self.probe(fiber, |fiber| fiber.ask_backtrace())
    }

    /// Has a suspended fiber answer on its own stack; `None` where it cannot.
    pub(super) fn probe<R>(
        &self,
        fiber: FiberRef,
        ask: impl FnOnce(FiberRef) -> Option<R>,
    ) -> Option<R> {
        // An allocator that asks for this while it serves a backtrace: who runs beneath is not known then.
        if self.probes.replace(true) {
            return None;
        }
        // Whatever is called meanwhile is called by that fiber.
        let running = self.running.get();
        self.running.set(Some(fiber));
        let answer = ask(fiber);
        self.running.set(running);
        self.probes.set(false);
        answer
    }
}

fn ops_snapshot(driver: &Driver, fiber: FiberRef) -> Option<OpsSnapshot> {
    let (ops, count) = fiber.ops_under_way()?;
    let mut ops = ops.peekable();
    let first = ops.peek()?.describe(driver);
    // SAFETY: I1. The op is under way: its last cqe has not been taken, which this worker does.
    let (path, peer) = unsafe { (first.path(), first.peer()) };
    let registered = first.fixed().and_then(|slot| driver.regular_file(slot));
    Some(OpsSnapshot { first, registered, path, peer, under_way: ops.count(), count })
}
