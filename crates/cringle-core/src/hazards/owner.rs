//! The holder of a `detect::Mutex`, for a fiber that would block its worker.
//!
//! A lock is certain to hang its worker if its holder is of the same family, or of the same worker
//! where fibers stay and libc's calls are not interposed.
//!
//! The holder's fields are written while the lock is held. They are read by contenders, which act
//! only on values that code of their own worker or family has written, in the order of that code:
//! so relaxed accesses are enough.

use super::held::describe_wait;
use super::{Compiled, Site, is_active, is_first, report};
use crate::label::Origin;
use crate::wait_target::FiberTag;
use crate::worker::Current;
use cringle_sys as sys;
use std::panic::Location;
use std::sync::atomic::{AtomicPtr, AtomicU64, AtomicUsize, Ordering};

/// See the module. It has no size where the detector is not compiled.
pub struct Owner {
    fields: Compiled<Fields>,
}

/// All 0 while no fiber holds the lock.
struct Fields {
    fiber: AtomicU64,
    place: AtomicPtr<Location<'static>>,
    /// The addresses of the fiber's family and of its worker.
    family: AtomicUsize,
    worker: AtomicUsize,
}

impl Fields {
    const fn new() -> Fields {
        Fields {
            fiber: AtomicU64::new(0),
            place: AtomicPtr::new(std::ptr::null_mut()),
            family: AtomicUsize::new(0),
            worker: AtomicUsize::new(0),
        }
    }
}

default_by_new!(Owner);

/// The parts of [`Fields`].
struct Holder {
    fiber: FiberTag,
    taken: Option<Origin>,
    is_of_family: bool,
    is_of_worker: bool,
}

impl Owner {
    pub const fn new() -> Owner {
        Owner { fields: Compiled::new(Fields::new()) }
    }

    /// The caller, which has acquired the lock, is the holder.
    #[inline]
    pub fn set(&self, place: Origin) {
        if is_active()
            && let Some(fields) = self.fields.get()
            && let Some(current) = Current::get()
        {
            fields.fiber.store(current.fiber.tag().number(), Ordering::Relaxed);
            fields.place.store(std::ptr::from_ref(place).cast_mut(), Ordering::Relaxed);
            fields.family.store(address_of(&*current.fiber.family()), Ordering::Relaxed);
            fields.worker.store(address_of(&*current.worker), Ordering::Relaxed);
        }
    }

    /// The caller is about to release the lock.
    #[inline]
    pub fn clear(&self) {
        if let Some(fields) = self.fields.get()
            && fields.worker.load(Ordering::Relaxed) != 0
        {
            fields.family.store(0, Ordering::Relaxed);
            fields.worker.store(0, Ordering::Relaxed);
        }
    }

    fn holder(&self, current: Current) -> Option<Holder> {
        let fields = self.fields.get()?;
        // SAFETY: I2. The pointer is null, or comes from a `&'static`, which lives for ever.
        let taken = unsafe { fields.place.load(Ordering::Relaxed).as_ref() };
        Some(Holder {
            fiber: FiberTag::of_number(fields.fiber.load(Ordering::Relaxed)),
            taken,
            is_of_family: fields.family.load(Ordering::Relaxed)
                == address_of(&*current.fiber.family()),
            is_of_worker: fields.worker.load(Ordering::Relaxed) == address_of(&*current.worker),
        })
    }

    /// Reports that the calling fiber blocks its worker for ever, if that is certain: only a fiber
    /// that the worker cannot run meanwhile could release the lock. `place` is where it locks.
    #[cold]
    pub fn report_deadlock(&self, place: Origin) {
        let Some(current) = Current::get() else { return };
        let Some(holder) = self.holder(current) else { return };
        let runs_others = sys::is_interposed() || current.worker.moves.may_happen();
        if !(holder.is_of_family || holder.is_of_worker && !runs_others) {
            return;
        }
        let Some(taken) = holder.taken else { return };
        if is_first("deadlock", Site::of(taken)) {
            let who = current.fiber.origins().in_full();
            let holds = match current.worker.table.tagged(holder.fiber) {
                None => format!("a fiber that has ended took at {taken}"),
                Some(holder) if holder == current.fiber => format!("it holds itself since {taken}"),
                Some(holder) => {
                    let (who, wait) = (holder.origins().in_full(), describe_wait(holder));
                    format!("{who} took at {taken}; that fiber {wait}")
                }
            };
            // Interposed, std's lock suspends the fiber, and the worker continues.
            let hangs = if sys::is_interposed() {
                "waits for ever".to_owned()
            } else {
                format!("blocks worker {} for ever", current.worker.index())
            };
            report(format_args!(
                "{who} {hangs} at {place}: it waits for the lock of a \
                 `detect::Mutex` that {holds}; drop the guard before the wait, or use \
                 `cringle::sync::Mutex`",
            ));
        }
    }
}

fn address_of<T>(value: &T) -> usize {
    std::ptr::from_ref(value).addr()
}
