//! A worker's own view of its fibers, for a dump.
//!
//! A worker looks at its fibers between two of them, or while one of them asks for the dump. Each
//! of its fibers is then suspended, so that everything it has lent stays unchanged (**I1**,
//! **I2**), or it is the one that asks. Other threads send a [`Question`] (**I3**).

use super::Worker;
use super::alarms::Alarms;
use crate::fiber::{FiberId, FiberRef, RunState, Wait};
use crate::label::Origins;
use crate::timers::Alarm;
use crate::wait_target::{FiberTag, ScopeOrigin, TargetInfo};
use cringle_driver::{Driver, OpDescription};
use std::backtrace::Backtrace;
use std::collections::HashMap;
use std::ffi::CString;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

/// A question that a worker answers about its fibers. If the worker ends first, it drops the
/// question.
pub trait Question: Send {
    fn answer(self: Box<Self>, worker: &Worker);
}

/// One fiber.
pub struct FiberSnapshot {
    pub tag: FiberTag,
    pub id: FiberId,
    pub worker: u32,
    pub origins: Origins,
    pub scope: Option<ScopeOrigin>,
    pub activity: Activity,
    /// A cancel reaches the place where it is.
    pub is_cancelled: bool,
    /// The time until a timer ends its wait.
    pub timer: Option<Duration>,
    /// The time until a deadline cancels it.
    pub deadline: Option<Duration>,
    pub backtrace: Option<Backtrace>,
}

/// What a fiber does.
pub enum Activity {
    Runs,
    Ready,
    Waits { wait: Wait, target: Option<TargetInfo>, ops: Option<OpsSnapshot>, age: Duration },
}

/// The ops that a fiber waits for.
pub struct OpsSnapshot {
    /// The first one that is in flight.
    pub first: OpDescription,
    /// The descriptor behind its registered file, if that is known.
    pub registered: Option<i32>,
    pub path: Option<CString>,
    pub peer: Option<SocketAddr>,
    pub in_flight: usize,
    pub count: usize,
}

/// The nearest timer and the nearest deadline of a fiber.
#[derive(Clone, Copy, Default)]
struct Times {
    timer: Option<Duration>,
    deadline: Option<Duration>,
}

impl Worker {
    /// Returns a snapshot of each fiber of this worker.
    pub fn snapshots(&self, backtraces: bool) -> Vec<FiberSnapshot> {
        if self.moves.has_offered() {
            self.take_back_all();
        }
        let times = times(&self.alarms, self.now());
        self.events.read_clock(&self.driver);
        let activity = |fiber: FiberRef| match fiber.state() {
            RunState::Waiting(wait) => Activity::Waits {
                wait,
                target: fiber.target().map(|target| target.info()),
                ops: ops_snapshot(&self.driver.borrow(), fiber),
                age: Duration::from_nanos(self.events.clock_ns().saturating_sub(fiber.since_ns())),
            },
            _ if self.foreground.get() == Some(fiber) => Activity::Runs,
            _ => Activity::Ready,
        };
        // The snapshots allocate, and the allocator may be the program's: nothing is borrowed
        // meanwhile (I13).
        let snapshot = |fiber: FiberRef| {
            let times = times.get(&fiber.tag()).copied().unwrap_or_default();
            FiberSnapshot {
                tag: fiber.tag(),
                id: fiber.id(),
                worker: self.index,
                origins: fiber.origins(),
                scope: fiber.scope(),
                activity: activity(fiber),
                is_cancelled: fiber.is_cancelled(),
                timer: times.timer,
                deadline: times.deadline,
                backtrace: if backtraces { self.foreground.backtrace_of(fiber) } else { None },
            }
        };
        self.table.fibers().into_iter().map(snapshot).collect()
    }
}

fn times(alarms: &Alarms, now: Instant) -> HashMap<FiberTag, Times> {
    let mut times: HashMap<FiberTag, Times> = HashMap::new();
    let shorten = |place: &mut Option<Duration>, time: Duration| {
        *place = Some(place.map_or(time, |other| other.min(time)));
    };
    alarms.for_each_pending(|(at, alarm)| {
        let left = at.saturating_duration_since(now);
        match alarm {
            Alarm::Wake(fiber) | Alarm::GiveUp(fiber) => {
                shorten(&mut times.entry(fiber.tag()).or_default().timer, left);
            }
            Alarm::Expire(fiber, _) => {
                shorten(&mut times.entry(fiber.tag()).or_default().deadline, left);
            }
            Alarm::Review(..) => {}
            Alarm::ReportStubborn | Alarm::RetryStarts => {}
        }
    });
    times
}

fn ops_snapshot(driver: &Driver, fiber: FiberRef) -> Option<OpsSnapshot> {
    let (ops, count) = fiber.ops_in_flight()?;
    let mut ops = ops.peekable();
    let first = ops.peek()?.describe(driver);
    // SAFETY: I1. The op is in flight: this worker has not taken its last cqe.
    let (path, peer) = unsafe { (first.path(), first.peer()) };
    let registered = first
        .fixed()
        .and_then(|slot| driver.registered_file(slot))
        .filter(|&fd| cringle_sys::file_kind(fd).regular);
    Some(OpsSnapshot { first, registered, path, peer, in_flight: ops.count(), count })
}
