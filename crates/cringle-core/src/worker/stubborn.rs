//! Reports cancelled fibers whose waits do not end.
//!
//! Some ops cannot be cancelled (a write to a frozen file system), and a fiber may wait for others
//! that continue. The wait is not abandoned (**I1**), but after [`REPORT_AFTER`] one line on
//! standard error names the fiber and its wait, unless the runtime leaves standard error to its
//! program.

use super::Worker;
use crate::cancelled::Reason;
use crate::fiber::{FiberRef, RunState};
use crate::timers::Alarm;
use std::cell::Cell;
use std::time::{Duration, Instant};

const REPORT_AFTER: Duration = Duration::from_secs(5);
/// The least time between two reports of a worker. A report counts all fibers that are due by then.
const REPORT_EVERY: Duration = Duration::from_secs(1);

#[derive(Default)]
pub struct StubbornWatch {
    /// An alarm is set for the next report.
    has_alarm: Cell<bool>,
    is_off: Cell<bool>,
}

impl StubbornWatch {
    /// Whether a cancelled fiber that still waits is to be reported.
    pub fn has_alarm(&self) -> bool {
        self.has_alarm.get()
    }

    /// Reports no fibers.
    pub fn keep_quiet(&self) {
        self.is_off.set(true);
    }

    /// A fiber was asked to end its wait. Returns when to [report](Self::report) it, if no alarm is
    /// set.
    pub(super) fn begin(&self, now: Instant) -> Option<Instant> {
        let begins = !self.is_off.get() && !self.has_alarm.replace(true);
        begins.then(|| now + REPORT_AFTER)
    }

    /// Is called by the alarm: reports those of the fibers that are due, each once. Returns when to
    /// do so again.
    #[cold]
    pub(super) fn report(&self, fibers: Vec<FiberRef>, now: Instant) -> Option<Instant> {
        let mut next: Option<Instant> = None;
        let mut due = Vec::new();
        for fiber in fibers {
            let waits = matches!(fiber.state(), RunState::Waiting(_));
            let Some(asked) = fiber.asked_to_end().filter(|_| waits) else { continue };
            match asked + REPORT_AFTER {
                at if at <= now => due.push((asked, fiber)),
                at => next = Some(next.map_or(at, |next| next.min(at))),
            }
        }
        due.iter().for_each(|(_, fiber)| fiber.set_asked_to_end(None));
        if let Some(&(_, first)) = due.iter().min_by_key(|(asked, _)| *asked) {
            report(first, due.len() - 1);
        }
        self.has_alarm.set(next.is_some());
        next.map(|next| next.max(now + REPORT_EVERY))
    }
}

impl Worker {
    /// Notes that this fiber was asked to end its wait now.
    pub(super) fn watch_for_end(&self, fiber: FiberRef) {
        let now = self.now();
        fiber.set_asked_to_end(Some(now));
        self.watch_stubborn(now);
    }

    /// Sets the alarm of the watch, if none is set.
    pub(super) fn watch_stubborn(&self, now: Instant) {
        if let Some(at) = self.stubborn.begin(now) {
            self.set_alarm(at, Alarm::ReportStubborn);
        }
    }
}

/// Names a cancelled fiber that still waits, and counts the others.
fn report(fiber: FiberRef, others: usize) {
    let RunState::Waiting(wait) = fiber.state() else { return };
    let who = fiber.origins().in_full();
    let target = fiber.op_name().unwrap_or(wait.describe());
    let cause = fiber.cause().map_or("cancelled", Reason::describe);
    let more = match others {
        0 => String::new(),
        1 => " (as does 1 other fiber of its worker)".to_owned(),
        _ => format!(" (as do {others} other fibers of its worker)"),
    };
    cringle_sys::report(format_args!(
        "{who} was {cause} {} s ago, and still waits for: {target}{more}",
        REPORT_AFTER.as_secs()
    ));
}
