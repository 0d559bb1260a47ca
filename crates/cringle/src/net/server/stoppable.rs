//! Calls that end when their server is told to.
//!
//! Each is a region of its fiber, entered in a list; who ends them takes the list and marks it ended in
//! one critical section. Whichever comes second sees the first: who enters later is refused, who was
//! there is told, by message where it lives on another worker. The list names a region by its
//! `Members`, never by address: one that has been left meanwhile is not found, and nothing happens.

use crate::cancel;
use crate::runtime::cancelled::{Cancelled, Reason};
use crate::runtime::members::Members;
use crate::runtime::region::Region;
use crate::runtime::unwinding;
use crate::runtime::worker::{Within, Worker};
use std::io;
use std::sync::{Arc, Mutex, MutexGuard};

/// See the module.
#[derive(Default)]
pub(super) struct StoppableCalls(Mutex<CallList>);

#[derive(Default)]
struct CallList {
    stopped: bool,
    calls: Vec<Option<Arc<Members>>>,
    vacant: Vec<usize>,
}

impl StoppableCalls {
    /// Gives up the calls that are under way, and those that come later.
    pub(super) fn stop_all(&self) {
        let calls = {
            let mut list = self.list();
            list.stopped = true;
            std::mem::take(&mut list.calls)
        };
        for call in calls.into_iter().flatten() {
            call.cancel(Reason::Cancelled);
        }
    }

    /// Calls `f`; `None` where it was given up.
    pub(super) fn until_stopped<T>(
        &self,
        f: impl FnOnce() -> io::Result<T>,
    ) -> io::Result<Option<T>> {
        let Some((worker, fiber)) = Worker::current() else { return f().map(Some) };
        let members = Members::new(Some(worker.address(fiber)), None);
        let Some(_listed) = Listed::enter(self, &members) else {
            return cancel::check().map(|()| None);
        };
        let region = Region::of_scope(&members);
        let result = {
            // SAFETY: it is dropped at the end of this block, which nothing unwinds before: `f`'s panic
            // is caught.
            let _within = unsafe { Within::enter(worker, fiber, &region) };
            unwinding::catch_on(Some((worker, fiber)), f)
        };
        // By the stop, and by nothing further out.
        let ended = region.cause().is_some() && !worker.is_interrupted(fiber);
        match result {
            Ok(Err(e)) if ended && cancel::reason(&e) == Some(Reason::Cancelled) => Ok(None),
            Ok(result) => result.map(Some),
            Err(payload) if ended && payload.is::<Cancelled>() => Ok(None),
            Err(payload) => unwinding::resume(payload),
        }
    }

    fn list(&self) -> MutexGuard<'_, CallList> {
        self.0.lock().expect("no code panics under this lock")
    }
}

/// A call's index in the list, until this is dropped.
struct Listed<'a> {
    calls: &'a StoppableCalls,
    index: usize,
}

impl<'a> Listed<'a> {
    /// `None` where all have been ended.
    fn enter(calls: &'a StoppableCalls, members: &Arc<Members>) -> Option<Listed<'a>> {
        let mut list = calls.list();
        if list.stopped {
            return None;
        }
        let call = Some(Arc::clone(members));
        let index = match list.vacant.pop() {
            Some(index) => {
                list.calls[index] = call;
                index
            }
            None => {
                list.calls.push(call);
                list.calls.len() - 1
            }
        };
        Some(Listed { calls, index })
    }
}

impl Drop for Listed<'_> {
    fn drop(&mut self) {
        let mut list = self.calls.list();
        if !list.stopped {
            list.calls[self.index] = None;
            list.vacant.push(self.index);
        }
    }
}
