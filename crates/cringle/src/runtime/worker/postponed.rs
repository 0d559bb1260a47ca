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
use crate::runtime::shared::{Mail, Unstarted};
use crate::runtime::timers::{Alarm, TimerId};
use std::collections::VecDeque;
use std::io;
use std::time::{Duration, Instant};

const RETRY_AFTER: Duration = Duration::from_millis(10);
const PATIENCE: Duration = Duration::from_secs(1);

/// See the module.
#[derive(Default)]
pub(super) struct Postponed {
    waiting: VecDeque<Unstarted>,
    /// Fibers that fail as soon as the reserve is free.
    failing: VecDeque<(Unstarted, io::Error)>,
    /// When the first of the waiting ones was postponed, or one of them last started.
    since: Option<Instant>,
    alarm: Option<TimerId>,
    has_reported_wait: bool,
    has_reported_failure: bool,
}

impl Worker {
    #[inline]
    pub(super) fn has_postponed(&self) -> bool {
        let postponed = self.admission.postponed.borrow();
        !postponed.waiting.is_empty() || !postponed.failing.is_empty()
    }

    #[cold]
    pub(super) fn postpone(&self, unstarted: Unstarted, e: io::Error) {
        let now = self.now();
        let mut postponed = self.admission.postponed.borrow_mut();
        if !std::mem::replace(&mut postponed.has_reported_wait, true) {
            crate::sys::report(format_args!("fibers wait for the stacks of others: {e}"));
        }
        if postponed.waiting.is_empty() {
            postponed.since = Some(now);
            // Other workers may have idle stacks.
            let others = self.shared.peers.iter().map(|peer| &peer.mailbox);
            for other in others.filter(|other| !self.lives_at(other)) {
                self.mail(other, Mail::TrimStacks);
            }
        }
        postponed.waiting.push_back(unstarted);
        if postponed.alarm.is_none() {
            postponed.alarm = Some(self.set_alarm(now + RETRY_AFTER, Alarm::RetryStarts));
        }
    }

    /// Starts the postponed fibers for which a stack is free now.
    #[cold]
    pub(super) fn start_postponed(&self) {
        self.fail_next();
        while let Some(unstarted) = self.first_postponed() {
            let taken = self.take_place(&unstarted);
            let mut postponed = self.admission.postponed.borrow_mut();
            let Ok(place) = taken else { return postponed.waiting.push_front(unstarted) };
            postponed.since = Some(self.now());
            drop(postponed);
            self.start_unstarted(unstarted, place, None);
        }
    }

    fn first_postponed(&self) -> Option<Unstarted> {
        self.admission.postponed.borrow_mut().waiting.pop_front()
    }

    /// Is called by the alarm: retries, and lets the fibers fail that have waited too long.
    #[cold]
    pub(super) fn retry_starts(&self) {
        self.start_postponed();
        let now = self.now();
        let is_late = {
            let mut postponed = self.admission.postponed.borrow_mut();
            let fired = postponed.alarm.take().expect("an alarm that was set");
            self.take_back_timer(fired);
            let since = postponed.since.unwrap_or(now);
            let waits = !postponed.waiting.is_empty();
            let is_late = waits && now >= since + PATIENCE;
            if waits && !is_late {
                postponed.alarm = Some(self.set_alarm(now + RETRY_AFTER, Alarm::RetryStarts));
            }
            is_late
        };
        if is_late {
            self.fail_starts();
        }
    }

    /// Takes back the alarm when the worker ends. No fiber is postponed then.
    pub(super) fn end_retries(&self) {
        let mut postponed = self.admission.postponed.borrow_mut();
        debug_assert!(postponed.waiting.is_empty() && postponed.failing.is_empty(), "I2");
        if let Some(alarm) = postponed.alarm.take() {
            self.take_back_timer(alarm);
        }
    }

    /// Whether fibers wait for a stack and certainly none will become free.
    #[inline]
    pub(super) fn starts_are_hopeless(&self) -> bool {
        self.workers() == 1
            && self.admission.waiting_for_fibers() == self.table.occupied()
            && !self.admission.postponed.borrow().waiting.is_empty()
    }

    /// Lets all postponed fibers fail that cannot start even now.
    #[cold]
    pub(super) fn fail_starts(&self) {
        let waiting = std::mem::take(&mut self.admission.postponed.borrow_mut().waiting);
        for unstarted in waiting {
            let taken = self.take_place(&unstarted);
            match taken {
                Ok(place) => self.start_unstarted(unstarted, place, None),
                Err(e) => {
                    let mut postponed = self.admission.postponed.borrow_mut();
                    if !std::mem::replace(&mut postponed.has_reported_failure, true) {
                        crate::sys::report(format_args!("fibers could not be started: {e}"));
                    }
                    postponed.failing.push_back((unstarted, e));
                }
            }
        }
        self.fail_next();
    }

    /// Lets the next fiber fail, if the reserve is free.
    fn fail_next(&self) {
        let next = self.admission.postponed.borrow_mut().failing.pop_front();
        let Some((unstarted, e)) = next else { return };
        let stack = self.admission.stacks.borrow_mut().take_reserve();
        match stack {
            Some(stack) => {
                let place = self.place_for_failure(&unstarted, stack);
                self.start_unstarted(unstarted, place, Some(e));
            }
            None => self.admission.postponed.borrow_mut().failing.push_front((unstarted, e)),
        }
    }
}
