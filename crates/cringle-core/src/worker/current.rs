//! The calling fiber and its worker, with which every call of the library starts.

use super::Worker;
use super::events::Events;
use crate::fiber::FiberRef;
use crate::members::Address;
use crate::waker::Waker;
use cringle_tls::ThreadLocals;
use std::cell::Cell;
use std::marker::PhantomData;
use std::ptr::NonNull;
use std::sync::Arc;

thread_local! {
    pub(super) static WORKER: Cell<Option<NonNull<Worker>>> = const { Cell::new(None) };
}

/// The worker of the calling thread, for code on one of its fibers. It may be kept over a
/// suspension, after which it is the worker that has resumed the fiber: it looks the worker up at
/// each use (**I14**). So what suspends its caller, a method of [`Current`], takes no borrow of a
/// worker along.
#[derive(Clone, Copy)]
pub struct Here(PhantomData<*const Worker>);

impl std::ops::Deref for Here {
    type Target = Worker;

    #[inline(always)]
    fn deref(&self) -> &Worker {
        let worker = WORKER.get();
        debug_assert!(worker.is_some(), "a thread that was a worker's leaves it for good");
        // SAFETY: I2, I3. `Worker::here` has found a worker on this thread, where this value stays;
        // its fibers find one whenever they run. The worker outlives its fibers.
        unsafe { worker.unwrap_unchecked().as_ref() }
    }
}

// The calling thread's worker.
impl Worker {
    /// The worker of this thread, if it is one.
    #[inline]
    pub fn here() -> Option<Here> {
        WORKER.get().map(|_| Here(PhantomData))
    }

    /// Makes the worker known on the block that the caller runs on: in the thread-locals of the
    /// library.
    pub(super) fn enter_block(&self) {
        // First: what follows may allocate.
        self.families.enter_block();
        WORKER.set(Some(NonNull::from(self)));
        self.events.enter_thread();
        if self.families.mode() == ThreadLocals::Private {
            self.simulation(|sim| sim.enter_thread());
        }
    }

    /// Undoes that on the caller's block. All calls become plain ones: no fiber runs on the block
    /// again, because the worker ends, or the process exits.
    pub fn leave_thread() {
        WORKER.set(None);
        Events::leave_thread();
    }
}

/// The calling fiber, and its worker. Looked up once and passed down: what suspends its caller, or
/// refuses a cancelled one, is a method of this type.
#[derive(Clone, Copy)]
pub struct Current {
    pub worker: Here,
    pub fiber: FiberRef,
}

impl Current {
    /// `None` outside of a fiber, where calls are the plain blocking ones.
    #[inline]
    pub fn get() -> Option<Current> {
        let worker = Worker::here()?;
        Some(Current { worker, fiber: worker.foreground.get()? })
    }

    /// The fiber whose name and locals the calling code has: the running one, or the one that
    /// foreign code is called [beside](crate::foreign::call_beside).
    #[inline]
    pub fn identity() -> Option<FiberRef> {
        Worker::here()?.foreground.identity()
    }

    /// The name of the fiber among all workers.
    pub fn address(self) -> Address {
        Address { home: Arc::clone(self.worker.table.home_of(self.fiber)), id: self.fiber.id() }
    }

    /// Returns a handle that ends a wait of this fiber from anywhere. It is fastest while the fiber
    /// is on this worker, as in the wait that begins next.
    pub fn waker(self) -> Waker {
        Waker::Fiber { home: Arc::clone(self.worker.mailbox()), id: self.fiber.id() }
    }

    /// Names the fiber, which has begun without a name.
    pub fn rename(self, name: Arc<str>) {
        self.fiber.rename(name);
        if let Some(meta) = self.fiber.meta() {
            self.worker.events.named(self.fiber, meta);
        }
    }
}
