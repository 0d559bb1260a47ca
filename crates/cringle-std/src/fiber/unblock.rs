//! Blocking calls on the threads of a pool, while only the calling fiber waits.

use crate::sync::oneshot;
use cringle_core as runtime;
use cringle_core::fiber::Wait;
use cringle_core::lent_frame::LentFrame;
use cringle_core::unwinding;
use cringle_core::wait_target::Target;
use cringle_core::waiting_runtime::WaitingRuntime;
use cringle_core::waker::{Waker, park_thread_until};
use cringle_core::worker::{Current, Worker, fairness};
use cringle_driver::pool::{Job, Pool};
use cringle_sys::{cannot_start, plainly};
use std::cell::UnsafeCell;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Runs `f` on another thread, where it may block, and returns its result. Only the calling fiber
/// waits. For work that the ring has no operation for: C libraries, DNS, long computations.
/// May suspend the calling fiber.
///
/// The pool grows as needed, so any number of closures may wait for each other. `f` may borrow: the
/// fiber always waits until `f` has returned. Outside of a fiber, `f` is called on the calling
/// thread.
///
/// ```
/// use cringle::fiber;
///
/// cringle::run(|| {
///     let text = String::from("borrowed");
///     let (length, on_worker) = fiber::unblock(|| (text.len(), cringle::runtime::worker()));
///     assert_eq!((length, on_worker), (8, None));
/// });
/// ```
///
/// # Panics
///
/// If `f` panics, with its payload; and if the pool has no thread and cannot start one.
///
/// # Cancellation
///
/// A cancel does not interrupt the wait for `f`.
#[track_caller]
pub fn unblock<F, T>(f: F) -> T
where
    F: FnOnce() -> T + Send,
    T: Send,
{
    fairness::spend();
    match Worker::here() {
        Some(worker) => call_on(&worker.shared().unblock_pool, f),
        None => f(),
    }
}

/// Runs `f` on a thread of `pool`, while the calling fiber waits. In a simulation `f` runs on this
/// thread.
#[track_caller]
pub(super) fn call_on<F, T>(pool: &Arc<Pool>, f: F) -> T
where
    F: FnOnce() -> T + Send,
    T: Send,
{
    call_on_or_else(pool, None, f, |e, _| {
        panic!("{}", cannot_start("a thread for a blocking call", &e))
    })
}

/// Like [`call_on`], but if the pool has no thread and cannot start one, `f` runs here and blocks
/// the worker. Dumps show `subject` as what the fiber waits for.
pub(super) fn call_on_or_here<F, T>(pool: &Arc<Pool>, subject: Option<Target<'_>>, f: F) -> T
where
    F: FnOnce() -> T + Send,
    T: Send,
{
    call_on_or_else(pool, subject, f, |_, job| job())
}

/// Like [`unblock`], but runs `f` here if no thread can be started. For work that a destructor must
/// do.
pub fn unblock_or_here<F, T>(f: F) -> T
where
    F: FnOnce() -> T + Send,
    T: Send,
{
    match Worker::here() {
        Some(worker) => call_on_or_here(&worker.shared().unblock_pool, None, f),
        None => f(),
    }
}

/// Runs `f`, which uses nothing of its caller, on a thread of the growing pool. A cancel ends the
/// wait, and not the call: then the value is dropped when the call has ended. `otherwise` gets the
/// job if the pool has no thread for it.
pub fn call_detached<T: Send + 'static>(
    current: Current,
    f: impl FnOnce() -> T + Send + 'static,
    otherwise: impl FnOnce(io::Error, Job) -> io::Result<()>,
) -> io::Result<T> {
    if !current.worker.may_bypass() {
        return Ok(plainly(f));
    }
    let (sender, receiver) = oneshot::channel();
    let job = Box::new(move || drop(sender.send(f())));
    if let Err((e, job)) = current.worker.shared().unblock_pool.run(job) {
        otherwise(e, job)?;
    }
    receiver.recv_cancellable()?.map_err(|_| io::Error::other("a call on a thread has panicked"))
}

/// Runs `f` on a thread of `pool`. `otherwise` gets the job if the pool has no thread for it, and
/// either runs it or panics.
#[track_caller]
fn call_on_or_else<F, T>(
    pool: &Arc<Pool>,
    subject: Option<Target<'_>>,
    f: F,
    otherwise: fn(std::io::Error, Job),
) -> T
where
    F: FnOnce() -> T + Send,
    T: Send,
{
    if !runtime::may_bypass() {
        // Another thread would run at its own pace.
        return f();
    }
    let run = |job| {
        if let Err((e, job)) = pool.run(job) {
            otherwise(e, job);
        }
    };
    call_by(run, subject, f)
}

/// Passes `f` as a job to `run`, and waits until the job has ended: the calling fiber waits, or the
/// thread outside of any. `run` either makes sure that the job runs on another thread, or drops the
/// job and panics.
#[track_caller]
pub fn call_by<F, T>(run: impl FnOnce(Job), subject: Option<Target<'_>>, f: F) -> T
where
    F: FnOnce() -> T + Send,
    T: Send,
{
    let current = Current::get();
    let call = Call {
        f: UnsafeCell::new(Some(f)),
        result: UnsafeCell::new(None),
        done: AtomicBool::new(false),
        waker: match current {
            Some(current) => current.waker(),
            None => Waker::Thread(std::thread::current()),
        },
        served: WaitingRuntime::current(),
    };
    let pointer = Pointer(&raw const call);
    let job: Box<dyn FnOnce() + Send> = Box::new(move || {
        let pointer = pointer;
        // SAFETY: I10. The waiting frame stays until `done` is set, which is the job's last touch
        // of it.
        unsafe { Call::perform(pointer.0) }
    });
    // SAFETY: I2, I12. The job ends before this frame is left: the loop below waits for it, and
    // nothing unwinds in between. A `run` that panics has dropped the job before.
    let job: Job = unsafe { std::mem::transmute::<Box<dyn FnOnce() + Send + '_>, Job>(job) };
    run(job);
    let lent = LentFrame::begin();
    let is_done = || call.done.load(Ordering::Acquire);
    match current {
        Some(current) => {
            while !is_done() {
                match subject {
                    Some(subject) => current.suspend_on(Wait::Unblock, subject),
                    None => current.suspend(Wait::Unblock),
                }
            }
        }
        None => park_thread_until(is_done),
    }
    lent.end();
    match call.result.into_inner().expect("a call stores its result") {
        Ok(value) => value,
        Err(payload) => unwinding::resume(payload),
    }
}

/// A closure on its way to the pool, and its result. It lies in the frame of the waiting fiber.
struct Call<F, T> {
    f: UnsafeCell<Option<F>>,
    result: UnsafeCell<Option<std::thread::Result<T>>>,
    done: AtomicBool,
    waker: Waker,
    /// The runtime whose fiber waits.
    served: Option<WaitingRuntime>,
}

impl<F: FnOnce() -> T, T> Call<F, T> {
    /// Runs the closure, stores its result and wakes the caller.
    ///
    /// # Safety
    ///
    /// The call is alive, and only this thread uses it until `done` is set.
    unsafe fn perform(this: *const Self) {
        // SAFETY: I10, and this function's contract. The waker is cloned before `done` is set: from
        // then on the frame may be gone.
        unsafe {
            let f = (*(*this).f.get()).take().expect("a call is performed once");
            let f = || WaitingRuntime::call((*this).served, f);
            *(*this).result.get() = Some(catch_unwind(AssertUnwindSafe(f)));
            let waker = (*this).waker.clone();
            (*this).done.store(true, Ordering::Release);
            waker.wake();
        }
    }
}

/// The address of a call, sent to the pool's thread.
struct Pointer<P>(*const P);

// SAFETY: I10. The closure and the result are `Send`, by the bounds of `call_by`, and their owner
// does not touch them until `done` is set.
unsafe impl<P> Send for Pointer<P> {}
