//! Fibers that cannot start, because no stack can be mapped.
//!
//! The spawner has a handle, and may wait for the fiber. So the fiber starts later, or it *fails*:
//! its body runs on the worker's reserve, drops the closure uncalled, and leaves the error as the
//! fiber's result. Either way it is started, never dropped unrun (**I2**).
//!
//! The worker retries when one of its fibers ends, which frees a stack, and every [`RETRY_AFTER`],
//! because another thread may have unmapped memory. The fiber fails
//!
//! - at once, where no stack can become free: the runtime has one worker, and all its fibers wait
//!   for fibers to end;
//! - otherwise when none of the postponed fibers could start for [`PATIENCE`]. The worker cannot
//!   know whether the fibers that have stacks wait for the one that has none: they may wait for its
//!   lock or its message.
//!
//! Fibers that fail at the same time run one after the other, on the one reserve.

use super::Worker;
use crate::shared::{Mail, Unstarted};
use crate::timers::Alarm;
use std::cell::RefCell;
use std::collections::VecDeque;
use std::io;
use std::time::{Duration, Instant};

const RETRY_AFTER: Duration = Duration::from_millis(10);
const PATIENCE: Duration = Duration::from_secs(1);

/// See the module.
#[derive(Default)]
pub(super) struct Postponed(RefCell<State>);

#[derive(Default)]
struct State {
    waiting: VecDeque<Unstarted>,
    /// Fibers that fail as soon as the reserve is free.
    failing: VecDeque<(Unstarted, io::Error)>,
    /// When the first of the waiting ones was postponed, or one of them last started.
    since: Option<Instant>,
    has_alarm: bool,
    has_reported_wait: bool,
    has_reported_failure: bool,
}

impl Postponed {
    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        let state = self.0.borrow();
        state.waiting.is_empty() && state.failing.is_empty()
    }

    /// Whether fibers wait for a stack.
    #[inline]
    pub(super) fn any_wait(&self) -> bool {
        !self.0.borrow().waiting.is_empty()
    }

    /// Adds a fiber. Returns whether it is the only one that waits.
    fn add(&self, unstarted: Unstarted, e: &io::Error, now: Instant) -> bool {
        let state = &mut *self.0.borrow_mut();
        if !std::mem::replace(&mut state.has_reported_wait, true) {
            cringle_sys::report(format_args!("fibers wait for the stacks of others: {e}"));
        }
        let is_first = state.waiting.is_empty();
        if is_first {
            state.since = Some(now);
        }
        state.waiting.push_back(unstarted);
        is_first
    }

    fn fail(&self, unstarted: Unstarted, e: io::Error) {
        let state = &mut *self.0.borrow_mut();
        if !std::mem::replace(&mut state.has_reported_failure, true) {
            cringle_sys::report(format_args!("fibers could not be started: {e}"));
        }
        state.failing.push_back((unstarted, e));
    }

    /// Whether the fibers that wait have done so for too long.
    fn is_late(&self, now: Instant) -> bool {
        self.any_wait() && self.0.borrow().since.is_some_and(|since| now >= since + PATIENCE)
    }

    /// When to retry, if fibers wait and no alarm is set.
    fn next_retry(&self, now: Instant) -> Option<Instant> {
        let begins =
            self.any_wait() && !std::mem::replace(&mut self.0.borrow_mut().has_alarm, true);
        begins.then(|| now + RETRY_AFTER)
    }
}

impl Worker {
    /// Starts a fiber, or postpones it.
    pub(super) fn start_or_postpone(&self, unstarted: Unstarted) {
        let e = match self.admission.place(&self.families, &unstarted) {
            Ok(place) => return self.start_unstarted(unstarted, place, None),
            Err(e) => e,
        };
        let now = self.now();
        if self.postponed.add(unstarted, &e, now) {
            // Other workers may have idle stacks.
            for other in self.shared.peers.iter().filter(|peer| !std::ptr::eq(*peer, self.me())) {
                self.mail(&other.mailbox, Mail::TrimStacks);
            }
        }
        if let Some(at) = self.postponed.next_retry(now) {
            self.set_alarm(at, Alarm::RetryStarts);
        }
    }

    /// Is called by the alarm: retries, and lets the fibers fail that have waited too long.
    #[cold]
    pub(super) fn retry_starts(&self) {
        let now = self.now();
        self.postponed.0.borrow_mut().has_alarm = false;
        self.start_postponed(false);
        if self.postponed.is_late(now) {
            self.start_postponed(true);
        }
        if let Some(at) = self.postponed.next_retry(now) {
            self.set_alarm(at, Alarm::RetryStarts);
        }
    }

    /// Starts the postponed fibers for which a stack is free now. The others fail if the worker
    /// gives up, the next one at once if the reserve is free.
    #[cold]
    pub(super) fn start_postponed(&self, gives_up: bool) {
        let next = || self.postponed.0.borrow_mut().waiting.pop_front();
        while let Some(unstarted) = next() {
            match self.admission.place(&self.families, &unstarted) {
                Ok(place) => {
                    self.postponed.0.borrow_mut().since = Some(self.now());
                    self.start_unstarted(unstarted, place, None);
                }
                Err(e) if gives_up => self.postponed.fail(unstarted, e),
                Err(_) => {
                    self.postponed.0.borrow_mut().waiting.push_front(unstarted);
                    break;
                }
            }
        }
        let next = || self.postponed.0.borrow_mut().failing.pop_front();
        if let Some((unstarted, e)) = next() {
            match self.admission.place_for_failure(&self.families, &unstarted) {
                Some(place) => self.start_unstarted(unstarted, place, Some(e)),
                None => self.postponed.0.borrow_mut().failing.push_front((unstarted, e)),
            }
        }
    }
}
