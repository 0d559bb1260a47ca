//! Reports cancelled fibers whose waits do not end.
//!
//! Some ops cannot be cancelled (a write to a frozen file system), and a fiber may wait for others
//! that continue. The wait is not abandoned (**I1**), but after [`REPORT_AFTER`] one line on
//! standard error names the fiber and its wait, unless the runtime leaves standard error to its
//! program.

use super::Worker;
use crate::runtime::cancelled::Reason;
use crate::runtime::fiber::{FiberRef, RunState};
use crate::runtime::timers::{Alarm, TimerId};
use std::cell::Cell;
use std::time::{Duration, Instant};

const REPORT_AFTER: Duration = Duration::from_secs(5);
/// The least time between two reports of a worker. A report counts all fibers that are due by then.
const REPORT_EVERY: Duration = Duration::from_secs(1);

#[derive(Default)]
pub(super) struct StubbornWatch {
    /// The alarm for the next report, if any fiber may become due.
    alarm: Cell<Option<TimerId>>,
    is_off: Cell<bool>,
}

impl StubbornWatch {
    fn begins(&self) -> bool {
        self.alarm.get().is_none() && !self.is_off.get()
    }
}

impl Worker {
    /// Reports no fibers.
    pub(in crate::runtime) fn keep_quiet(&self) {
        self.stubborn.is_off.set(true);
    }

    /// Notes that this fiber was asked to end its wait now.
    pub(super) fn watch_for_end(&self, fiber: FiberRef) {
        let now = self.now();
        fiber.set_asked_to_end(Some(now));
        if self.stubborn.begins() {
            self.watch_stubborn(now + REPORT_AFTER);
        }
    }

    /// Watches a fiber that has moved here, and that was asked to end its wait elsewhere.
    pub(super) fn follow_watch(&self, fiber: FiberRef) {
        if fiber.was_asked_to_end() && self.stubborn.begins() {
            self.watch_stubborn(self.now() + REPORT_AFTER);
        }
    }

    fn watch_stubborn(&self, at: Instant) {
        self.stubborn.alarm.set(Some(self.set_alarm(at, Alarm::ReportStubborn)));
    }

    /// Takes back the alarm.
    pub(super) fn end_stubborn_watch(&self) {
        if let Some(alarm) = self.stubborn.alarm.take() {
            self.take_back_timer(alarm);
        }
    }

    /// Is called by the alarm: reports the fibers that are due, each once.
    #[cold]
    pub(super) fn report_stubborn(&self) {
        let now = self.now();
        let mut next: Option<Instant> = None;
        let mut due = Vec::new();
        for fiber in self.fibers() {
            let Some(asked) = fiber.asked_to_end() else { continue };
            match asked + REPORT_AFTER {
                at if at <= now => due.push((asked, fiber)),
                at => next = Some(next.map_or(at, |next| next.min(at))),
            }
        }
        due.iter().for_each(|(_, fiber)| fiber.set_asked_to_end(None));
        if let Some(&(_, first)) = due.iter().min_by_key(|(asked, _)| *asked) {
            report(first, due.len() - 1);
        }
        self.end_stubborn_watch();
        if let Some(next) = next {
            self.watch_stubborn(next.max(now + REPORT_EVERY));
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
    crate::sys::report(format_args!(
        "{who} was {cause} {} s ago, and still waits for: {target}{more}",
        REPORT_AFTER.as_secs()
    ));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Builder, fiber};
    use std::sync::mpsc;

    /// Whether a cancelled fiber that still waits is to be reported.
    fn is_watched(builder: Builder) -> bool {
        let ran = builder.workers(1).run(|| {
            let (release, released) = mpsc::channel::<()>();
            fiber::scope(|s| {
                s.spawn_local(|| fiber::unblock(move || released.recv().is_err()));
                fiber::yield_now();
                s.cancel();
                fiber::protect(fiber::yield_now);
                let is_watched = Worker::with(|worker| {
                    worker.expect("inside of run").stubborn.alarm.get().is_some()
                });
                drop(release);
                is_watched
            })
        });
        ran.unwrap()
    }

    #[test]
    fn quiet_runtime_reports_no_stubborn_fiber() {
        assert!(is_watched(Builder::new()));
        assert!(!is_watched(Builder::new().stubborn_reports(false)));
    }
}
