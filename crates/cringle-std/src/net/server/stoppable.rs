//! Calls that end when their server is stopped.
//!
//! Each call is a cancellable region of its fiber, and is entered in a list. `stop_all` takes the
//! list and marks it stopped in one critical section. So a call that enters later is refused, and a
//! call that entered before is cancelled, by message if its fiber lives on another worker. The list
//! names a region by its [`Members`], never by address (**I9**): cancelling a region that was left
//! meanwhile has no effect.

use crate::cancel;
use cringle_core::cancelled::{Cancelled, Reason};
use cringle_core::members::Members;
use cringle_core::region::Region;
use cringle_core::unwinding;
use cringle_core::worker::{Current, Within};
use cringle_sys::lock::{Mutex, MutexGuard};
use slab::Slab;
use std::io;
use std::sync::Arc;

/// The calls to be ended by a stop. See the [module](self).
#[derive(Default)]
pub(super) struct StoppableCalls(Mutex<CallList>);

#[derive(Default)]
struct CallList {
    stopped: bool,
    calls: Slab<Arc<Members>>,
}

impl StoppableCalls {
    /// Cancels the calls that are under way, and refuses later ones.
    pub(super) fn stop_all(&self) {
        let calls = {
            let mut list = self.list();
            list.stopped = true;
            std::mem::take(&mut list.calls)
        };
        for (_, call) in &calls {
            call.cancel(Reason::Cancelled);
        }
    }

    /// Calls `f`. Returns `None` if a stop cancelled it.
    pub(super) fn until_stopped<T>(
        &self,
        f: impl FnOnce() -> io::Result<T>,
    ) -> io::Result<Option<T>> {
        let Some(current) = Current::get() else { return f().map(Some) };
        let members = Members::new(Some(current.address()), None);
        let Some(_listed) = Listed::enter(self, &members) else {
            return cancel::check().map(|()| None);
        };
        let region = Region::of_scope(&members);
        let result = {
            // SAFETY: `region` outlives `_within`, which is dropped at the end of this block. No
            // unwind leaves the block earlier, because `catch_on` catches the panic of `f` (I12).
            let _within = unsafe { Within::enter(current, &region) };
            unwinding::catch_on(Some(current), f)
        };
        // True if the stop has cancelled the region, and no cancel of an outer region is pending.
        let ended = region.cause().is_some() && !current.is_interrupted();
        match result {
            Ok(Err(e)) if ended && cancel::reason(&e) == Some(Reason::Cancelled) => Ok(None),
            Ok(result) => result.map(Some),
            Err(payload) if ended && payload.is::<Cancelled>() => Ok(None),
            Err(payload) => unwinding::resume(payload),
        }
    }

    fn list(&self) -> MutexGuard<'_, CallList> {
        self.0.lock()
    }
}

/// A call's entry in the list, which is removed when this is dropped.
struct Listed<'a> {
    calls: &'a StoppableCalls,
    index: usize,
}

impl<'a> Listed<'a> {
    /// Enters the call. `None` if the server is stopped.
    fn enter(calls: &'a StoppableCalls, members: &Arc<Members>) -> Option<Listed<'a>> {
        let mut list = calls.list();
        if list.stopped {
            return None;
        }
        Some(Listed { calls, index: list.calls.insert(Arc::clone(members)) })
    }
}

impl Drop for Listed<'_> {
    fn drop(&mut self) {
        let mut list = self.calls.list();
        if !list.stopped {
            list.calls.remove(self.index);
        }
    }
}
