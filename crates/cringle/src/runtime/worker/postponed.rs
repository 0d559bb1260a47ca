//! Fibers that cannot be started now, because no stack can be mapped.
//!
//! Whoever spawned such a fiber has a handle, and may wait for it; so it is either started later or *failed*: its
//! body runs on the worker's reserve, drops the closure uncalled, and leaves the error as the fiber's result. So
//! each fiber is started, and none is dropped unrun (**I2**).
//!
//! It is tried again when a fiber of this worker ends, which frees a stack, and every [`RETRY_AFTER`], because
//! others may have unmapped something. It fails
//!
//! - at once, where no stack can become free: there is one worker, and all its fibers wait for fibers to end;
//! - else when for [`PATIENCE`] none of those that wait could be started. Whether the fibers that have stacks
//!   wait for the one that has none cannot be known: it may be a lock or a message that they wait for.
//!
//! Those that fail at the same time run one after the other: there is one reserve.

use super::Worker;
use crate::runtime::shared::{Mail, MailBox, Unstarted};
use crate::runtime::timers::{Alarm, TimerId};
use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

const RETRY_AFTER: Duration = Duration::from_millis(10);
const PATIENCE: Duration = Duration::from_secs(1);

/// See the module.
#[derive(Default)]
pub(super) struct Postponed {
    waiting: VecDeque<Unstarted>,
    /// Those that fail as soon as the reserve is free.
    failing: VecDeque<(Unstarted, io::Error)>,
    /// When the first of them came, or one of them was last started.
    since: Option<Instant>,
    alarm: Option<TimerId>,
    /// A line on standard error has said that fibers wait for stacks, or that they fail.
    has_reported: (bool, bool),
}

impl Worker {
    #[inline]
    pub(super) fn has_postponed(&self) -> bool {
        let postponed = self.postponed.borrow();
        !postponed.waiting.is_empty() || !postponed.failing.is_empty()
    }

    /// Starts a fiber that was stolen; its own worker has it back if it has to wait for a stack, which may be
    /// free there.
    pub(super) fn start_stolen(&self, unstarted: Unstarted, victim: &Arc<MailBox>) {
        let stack = self.stacks.borrow_mut().take(unstarted.stack_bytes);
        match stack {
            Ok(stack) => self.start_unstarted(unstarted, stack, None),
            Err(_) => self.mail(victim, Mail::Start(unstarted)),
        }
    }

    #[cold]
    pub(super) fn postpone(&self, unstarted: Unstarted, e: io::Error) {
        let now = self.now();
        let mut postponed = self.postponed.borrow_mut();
        if !std::mem::replace(&mut postponed.has_reported.0, true) {
            crate::sys::report(format_args!("fibers wait for others' stacks: {e}"));
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

    /// A stack may be free.
    #[cold]
    pub(super) fn start_postponed(&self) {
        self.fail_next();
        while let Some(unstarted) = self.first_postponed() {
            let taken = self.stacks.borrow_mut().take(unstarted.stack_bytes);
            let mut postponed = self.postponed.borrow_mut();
            let Ok(stack) = taken else { return postponed.waiting.push_front(unstarted) };
            postponed.since = Some(self.now());
            drop(postponed);
            self.start_unstarted(unstarted, stack, None);
        }
    }

    fn first_postponed(&self) -> Option<Unstarted> {
        self.postponed.borrow_mut().waiting.pop_front()
    }

    /// The alarm: tries again, and has those fail that have waited for too long.
    #[cold]
    pub(super) fn retry_starts(&self) {
        self.start_postponed();
        let now = self.now();
        let is_late = {
            let mut postponed = self.postponed.borrow_mut();
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

    /// The worker ends: no fiber waits any more, but the alarm may be set.
    pub(super) fn end_retries(&self) {
        if let Some(alarm) = self.postponed.borrow_mut().alarm.take() {
            self.take_back_timer(alarm);
        }
    }

    /// Whether some wait for a stack and none can become free, as far as that is certain.
    #[inline]
    pub(super) fn starts_are_hopeless(&self) -> bool {
        self.workers() == 1
            && self.waiting_for_fibers.get() == self.alive.get()
            && !self.postponed.borrow().waiting.is_empty()
    }

    /// Has all fail that cannot be started even now.
    #[cold]
    pub(super) fn fail_starts(&self) {
        let waiting = std::mem::take(&mut self.postponed.borrow_mut().waiting);
        for unstarted in waiting {
            let taken = self.stacks.borrow_mut().take(unstarted.stack_bytes);
            match taken {
                Ok(stack) => self.start_unstarted(unstarted, stack, None),
                Err(e) => {
                    let mut postponed = self.postponed.borrow_mut();
                    if !std::mem::replace(&mut postponed.has_reported.1, true) {
                        crate::sys::report(format_args!("fibers could not be started: {e}"));
                    }
                    postponed.failing.push_back((unstarted, e));
                }
            }
        }
        self.fail_next();
    }

    /// Has the next one fail, if there is a stack for that.
    fn fail_next(&self) {
        let next = self.postponed.borrow_mut().failing.pop_front();
        let Some((unstarted, e)) = next else { return };
        let stack = self.stacks.borrow_mut().take_reserve();
        match stack {
            Some(stack) => self.start_unstarted(unstarted, stack, Some(e)),
            None => self.postponed.borrow_mut().failing.push_front((unstarted, e)),
        }
    }
}
