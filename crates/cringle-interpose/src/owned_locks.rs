//! pthread mutexes that know their owner, in programs that interpose libc's calls.
//!
//! For libc the fibers of a family are one thread. So a second fiber enters a recursive mutex that
//! the first one holds in a wait of the library, and an error-checking one refuses it with
//! `EDEADLK`. (In a wait of an interposed call the first one holds its family back.) Fibers of
//! other families are other owners, and wait.
//!
//! The list is a thread-local, and so the family's. A lock or an unlock that is made beside a fiber
//! or in libc escapes the list. So a mutex counts as entered twice only if libc says so.

use cringle_core::hazards::held::describe_wait;
use cringle_core::hazards::{Site, is_first, report};
use cringle_core::wait_target::FiberTag;
use cringle_core::worker::Current;
use cringle_sys as sys;
use std::cell::RefCell;

struct Held {
    mutex: usize,
    fiber: FiberTag,
    /// How often it was locked and not unlocked.
    depth: u32,
}

thread_local! {
    static HELD: RefCell<Vec<Held>> = const { RefCell::new(Vec::new()) };
}

/// Calls `f` with the mutexes of the calling family. `None` while its thread-locals end, and in the
/// program's allocator.
fn with_held<R>(f: impl FnOnce(&mut Vec<Held>) -> R) -> Option<R> {
    let result = HELD.try_with(|held| held.try_borrow_mut().ok().map(|mut held| f(&mut held)));
    result.ok().flatten()
}

/// The running fiber has locked a mutex, which its owner has now locked so often.
pub(super) fn entered(current: Current, mutex: usize, count: u32) {
    let errno = sys::errno();
    let other = with_held(|held| {
        let tag = current.fiber.tag();
        if let Some(known) = held.iter_mut().rev().find(|known| known.mutex == mutex) {
            if count == known.depth + 1 {
                known.depth = count;
                return Some(known.fiber).filter(|holder| *holder != tag);
            }
            // An unlock has escaped.
            *known = Held { mutex, fiber: tag, depth: count };
        } else {
            held.push(Held { mutex, fiber: tag, depth: count });
        }
        None
    });
    if let Some(holder) = other.flatten() {
        report_second(current, holder, mutex, "enters a recursive mutex");
    }
    sys::set_errno(errno);
}

/// libc refuses the running fiber a mutex, because the fiber is its owner.
pub(super) fn refused(current: Current, mutex: usize) {
    let holder =
        with_held(|held| held.iter().find(|known| known.mutex == mutex).map(|known| known.fiber));
    if let Some(holder) = holder.flatten().filter(|holder| *holder != current.fiber.tag()) {
        let errno = sys::errno();
        report_second(current, holder, mutex, "is refused an error-checking mutex (EDEADLK)");
        sys::set_errno(errno);
    }
}

/// The running fiber unlocks a mutex.
pub(super) fn left(mutex: usize) {
    with_held(|held| {
        if let Some(at) = held.iter().rposition(|known| known.mutex == mutex) {
            held[at].depth -= 1;
            if held[at].depth == 0 {
                held.remove(at);
            }
        }
    });
}

#[cold]
fn report_second(current: Current, holder: FiberTag, mutex: usize, does: &'static str) {
    // A fiber that has ended without an unlock suspends nothing.
    let Some(holder) = current.worker.table.tagged(holder) else { return };
    if is_first(does, Site::Number(mutex)) {
        let place = current.place_of_caller();
        report(format_args!(
            "{} {does} (at {mutex:#x}){}{} that {} holds, which {}: for libc the fibers of one \
             `spawn_local` tree are one thread; unlock before the wait, or start the fiber by \
             `fiber::spawn`",
            current.fiber.origins().in_full(),
            if place.is_some() { " at " } else { "" },
            place.unwrap_or_default(),
            holder.origins().in_full(),
            describe_wait(holder),
        ));
    }
}
