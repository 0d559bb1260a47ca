//! The region and the deadline that the calling fiber is in, as guards in its frame.

use super::{Current, Here};
use crate::region::Region;
use crate::timers::Alarm;
use std::ptr::NonNull;
use std::time::Instant;

/// The calling fiber is in a region until this is dropped, by a return or an unwinding.
///
/// The region lies in the caller's frame, and the fiber leaves that frame only through this guard.
pub struct Within<'a> {
    current: Current,
    region: &'a Region,
    /// The fiber's refusals when it entered.
    refusals: u32,
}

impl<'a> Within<'a> {
    /// Lets the calling fiber enter a region. A region that is entered while the fiber unwinds is
    /// shielded, so that no cancel reaches destructors.
    ///
    /// # Safety
    ///
    /// I3: the guard is dropped, not forgotten, on this fiber, before all guards that were made
    /// earlier.
    #[inline]
    pub unsafe fn enter(current: Current, region: &'a Region) -> Within<'a> {
        debug_assert_eq!(
            current.worker.foreground.get(),
            Some(current.fiber),
            "I3: entered by its own fiber"
        );
        #[cfg(debug_assertions)]
        {
            let is_on_stack = |at: usize| current.fiber.stack().range().contains(&at);
            // Code may run on a stack of its own meanwhile, such as one of `stacker`.
            let runs_elsewhere = !is_on_stack(crate::stack::pointer());
            let is_in_frame = is_on_stack(std::ptr::from_ref(region).addr());
            assert!(is_in_frame || runs_elsewhere, "I12: a region lies in a frame of its fiber");
        }
        if current.is_unwinding() {
            region.shield();
        }
        // SAFETY: I3. The region is borrowed until this guard is dropped, which leaves it.
        unsafe { current.fiber.regions().enter(region) };
        let refusals = current.fiber.refusals();
        if region.is_shielded() {
            current.fiber.update_cancelled();
            // Refusals count anew within the shield, and continue from here after it. So even a
            // loop that ignores its refusals, and protects its reaction to them, comes to an end.
            current.fiber.set_refusals(0);
        }
        Within { current, region, refusals }
    }

    /// Cancels the region when its deadline passes: at once, if it has passed already.
    #[inline]
    pub fn expire_in_time(&self, now: Instant) -> Deadline<'_> {
        let deadline = self.region.deadline().expect("a region with a deadline").deadline();
        let region = NonNull::from(self.region);
        if deadline <= now {
            self.current.worker.expire(self.current.fiber, region);
        }
        let alarm = Alarm::Expire(self.current.fiber, region);
        self.region.set_alarm(self.current.worker.set_alarm(deadline, alarm));
        Deadline { worker: self.current.worker, region: self.region }
    }
}

impl Drop for Within<'_> {
    #[inline]
    fn drop(&mut self) {
        debug_assert_eq!(
            self.current.worker.foreground.get(),
            Some(self.current.fiber),
            "I3: left by its own fiber"
        );
        // In an unshielded region that no cancel reaches, nothing is to be updated.
        let may_change = self.current.fiber.is_cancelled() || self.region.is_shielded();
        self.current.fiber.regions().leave(self.region);
        if may_change {
            self.current.fiber.update_cancelled();
        }
        if self.region.is_shielded() {
            self.current.fiber.set_refusals(self.refusals);
        } else if may_change && !self.current.fiber.is_cancelled() {
            self.current.fiber.reset_refusals();
        }
    }
}

/// The alarm of a region, until this is dropped.
pub struct Deadline<'a> {
    worker: Here,
    region: &'a Region,
}

impl Drop for Deadline<'_> {
    #[inline]
    fn drop(&mut self) {
        if let Some(alarm) = self.region.take_alarm() {
            self.worker.alarms.take_back(alarm);
        }
    }
}
