//! What a simulation is to the library: a driver that is made elsewhere, and the world of a run.
//!
//! The crate `cringle-sim` implements both traits. The library calls a simulation where it would
//! call a driver of its own, and where the order of workers and the moves of fibers are drawn.

use super::{Completion, Counts, DriverId, Full, Op, OpDescription, Token, Wait, Waiter};
use std::ffi::c_char;
use std::fmt::Debug;
use std::io;
use std::os::fd::RawFd;
use std::panic::{RefUnwindSafe, UnwindSafe};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicPtr, Ordering};
use std::time::Instant;

/// The driver of one worker in a simulated world. The methods of the first part are those of
/// [`Driver`](super::Driver).
pub trait Simulation {
    /// # Safety
    ///
    /// As for [`Driver::push`](super::Driver::push).
    unsafe fn push(
        &mut self,
        op: &Op,
        completion: &Completion,
        waiter: &Waiter,
    ) -> Result<(), Full>;
    fn attention(&mut self) -> (bool, bool);
    fn enter(&mut self, wait: Wait);
    fn reap(&mut self, sink: &mut dyn FnMut(Token));
    fn cancel(&mut self, completion: &Completion);
    fn room(&self) -> u32;
    fn describe(&self, completion: &Completion) -> OpDescription;
    fn counts(&self) -> &Arc<Counts>;
    fn is_idle(&self) -> bool;
    fn has_queued(&self) -> bool;
    fn queued(&self) -> u32;
    fn id(&self) -> DriverId;
    fn register_file(&mut self, fd: RawFd) -> io::Result<u32>;
    fn unregister_file(&mut self, slot: u32);
    fn registered_file(&self, slot: u32) -> Option<RawFd>;
    fn register_buffer(&mut self) -> io::Result<u16>;
    fn unregister_buffer(&mut self, slot: u16);
    fn now(&self) -> Instant;
    fn now_ns(&self) -> u64;

    /// Makes the simulation known to the calling thread, for [plain calls](PlainCalls).
    fn enter_thread(&self);
    /// Waits until this worker may run, for the first time.
    fn wait_for_turn(&self);
    /// Lets another worker run, if the seed says so. The caller holds no lock.
    fn hand_over(&self);
    /// Lets the others run, because this worker has ended.
    fn leave(&self);
    /// Draws a number below this one for the scheduler.
    fn draw_below(&self, limit: usize) -> usize;
    /// Draws whether a fiber moves now.
    fn draw_move(&self) -> bool;
    /// Why the simulation stops the run. Returns each reason once.
    fn take_halt(&self) -> Option<HaltReason>;
    /// Records why the run halts, and what the fibers of this worker wait for. Returns whether all
    /// workers have done so. Aborts the process if the run is already about to end.
    fn record_halt(&self, reason: HaltReason, is_stopping: bool, waits: String) -> bool;
}

/// The simulated world that a run is part of.
pub trait World: Debug + Send + Sync + UnwindSafe + RefUnwindSafe {
    /// Makes the driver of a worker, on the calling thread. `bell` is set when another thread wakes
    /// the worker.
    fn driver(&self, worker: usize, bell: &Arc<AtomicBool>) -> Box<dyn Simulation>;

    /// Lets the workers of a run end that could not start.
    fn abandon_run(&self);
}

/// Why a simulation stops a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HaltReason {
    /// No fiber is ready, no op is in flight, and no timer is set.
    Deadlock,
    /// The run took more turns than the options allow.
    Livelock,
    /// The power was lost: every op fails from now on.
    PowerLost,
}

impl HaltReason {
    /// Whether a checker has found that the run cannot continue.
    pub fn is_failure(self) -> bool {
        self != HaltReason::PowerLost
    }
}

/// What a simulation does with the plain calls of threads that are in a simulated run.
#[derive(Debug)]
pub struct PlainCalls {
    /// Notes an op that was a plain call of this thread. Returns the result of the op there.
    pub note: fn(&Op, i32) -> i32,
    /// Opens a file of the simulation; `None` if the thread is in no simulated run. In one, the
    /// path is a valid C string. Elsewhere it is left to the kernel: a program may pass any address
    /// to an interposed `open`.
    pub open: unsafe fn(*const c_char, i32, u32) -> Option<i32>,
}

/// Null until the first simulation.
static PLAIN_CALLS: AtomicPtr<PlainCalls> = AtomicPtr::new(std::ptr::null_mut());

impl PlainCalls {
    /// Has plain calls noted from now on.
    pub fn install(&'static self) {
        PLAIN_CALLS.store(std::ptr::from_ref(self).cast_mut(), Ordering::Release);
    }

    #[inline]
    pub(crate) fn installed() -> Option<&'static PlainCalls> {
        // SAFETY: the pointer is null, or `install` has stored what is borrowed for ever.
        unsafe { PLAIN_CALLS.load(Ordering::Acquire).as_ref() }
    }
}
