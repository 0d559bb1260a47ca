//! Calling what blocks: on a thread of the pool, while only the fiber waits.

use crate::driver::pool::{Job, Pool};
use crate::runtime::fiber::Wait;
use crate::runtime::lent_frame::LentFrame;
use crate::runtime::unwinding;
use crate::runtime::wait_target::WaitTarget;
use crate::runtime::waiting_runtime::WaitingRuntime;
use crate::runtime::waker::Waker;
use crate::runtime::worker::{Worker, fairness};
use std::cell::UnsafeCell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Runs `f` on another thread, where it may block, and returns its value; only the calling fiber
/// waits. For calls that the ring has no operation for: C libraries, DNS, long computations.
/// May suspend the calling fiber.
///
/// The pool grows as needed, so any number of closures may wait for each other. `f` may borrow: the
/// fiber waits for its end, come what may. Outside of a fiber `f` is called at once.
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
/// With `f`'s panic, and where no thread can be started and none runs.
///
/// # Cancellation
///
/// A cancelled fiber waits for `f` all the same.
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

/// Runs `f` on a thread of this pool; the calling fiber waits. In a simulation it runs here and now.
#[track_caller]
pub(super) fn call_on<F, T>(pool: &Arc<Pool>, f: F) -> T
where
    F: FnOnce() -> T + Send,
    T: Send,
{
    call_on_or_else(pool, None, f, |e, _| panic!("cannot start a thread for a blocking call: {e}"))
}

/// As [`call_on`]; where no thread can be started and none runs, `f` runs here and keeps the worker.
/// A dump is told of what it is.
pub(super) fn call_on_or_here<F, T>(pool: &Arc<Pool>, subject: Option<&dyn WaitTarget>, f: F) -> T
where
    F: FnOnce() -> T + Send,
    T: Send,
{
    call_on_or_else(pool, subject, f, |_, job| job())
}

/// [`unblock`] for what must be done, in a destructor too: here, where no thread can be started.
pub(crate) fn unblock_or_here<F, T>(f: F) -> T
where
    F: FnOnce() -> T + Send,
    T: Send,
{
    match Worker::here() {
        Some(worker) => call_on_or_here(&worker.shared().unblock_pool, None, f),
        None => f(),
    }
}

/// `otherwise` is given the job that no thread is there for: it runs it, or panics.
#[track_caller]
fn call_on_or_else<F, T>(
    pool: &Arc<Pool>,
    subject: Option<&dyn WaitTarget>,
    f: F,
    otherwise: fn(std::io::Error, Job),
) -> T
where
    F: FnOnce() -> T + Send,
    T: Send,
{
    if Worker::here().is_some_and(|worker| worker.is_simulated()) {
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

/// Has `run` see to it that `f` runs on another thread, and waits: the calling fiber, or the thread
/// where there is none. `run` either sees to it that the job it is given runs, or panics.
#[track_caller]
pub(crate) fn call_by<F, T>(run: impl FnOnce(Job), subject: Option<&dyn WaitTarget>, f: F) -> T
where
    F: FnOnce() -> T + Send,
    T: Send,
{
    let current = Worker::current();
    let call = Call {
        f: UnsafeCell::new(Some(f)),
        result: UnsafeCell::new(None),
        done: AtomicBool::new(false),
        waker: match current {
            Some((worker, fiber)) => worker.waker(fiber),
            None => Waker::Thread(std::thread::current()),
        },
        served: WaitingRuntime::current(),
    };
    let pointer = Pointer(&raw const call);
    let job: Box<dyn FnOnce() + Send> = Box::new(move || {
        let pointer = pointer;
        // SAFETY: the fiber's frame stays until `done` is set, which is the call's last touch.
        unsafe { Call::perform(pointer.0) }
    });
    // SAFETY: I2, I12. The job is run before this frame goes: the loop below waits for it, and nothing
    // unwinds in between (a `run` that panics has dropped the job).
    let job: Job = unsafe { std::mem::transmute::<Box<dyn FnOnce() + Send + '_>, Job>(job) };
    run(job);
    let lent = LentFrame::begin();
    while !call.done.load(Ordering::Acquire) {
        match current {
            Some((worker, fiber)) => match subject {
                Some(subject) => worker.suspend_on(fiber, Wait::Unblock, subject),
                None => worker.suspend(fiber, Wait::Unblock),
            },
            None => std::thread::park(),
        }
    }
    lent.end();
    match call.result.into_inner().expect("a call leaves its result") {
        Ok(value) => value,
        Err(payload) => unwinding::resume(payload),
    }
}

/// A closure on its way to the pool and back; it lies in the frame of the fiber that waits.
struct Call<F, T> {
    f: UnsafeCell<Option<F>>,
    result: UnsafeCell<Option<std::thread::Result<T>>>,
    done: AtomicBool,
    waker: Waker,
    /// Whose fiber waits.
    served: Option<WaitingRuntime>,
}

impl<F: FnOnce() -> T, T> Call<F, T> {
    /// # Safety
    ///
    /// The call is alive, and only this thread uses it until `done` is set.
    unsafe fn perform(this: *const Self) {
        // SAFETY: by the contract. The waker is copied first: once `done` is set the frame may go
        // (I10).
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

// SAFETY: what it points to is `Send` (`F` and `T` are, by `unblock`'s bounds), and its owner does
// not touch it until the other thread is done.
unsafe impl<P> Send for Pointer<P> {}
