//! The threads that have not ended, and the end of a process whose first thread ends before them.
//!
//! libc ends a process, with status 0, when its last thread has ended. It does not know that fibers
//! are threads, and the workers are threads that never end. So the thread that was first, `main` or
//! the one that lives in a forked child, waits at its end for the others. Meanwhile it receives the
//! process's signals, as the workers block them.

use super::super::{next, serve, waits};
use super::create::Start;
use super::{is_fibers, own};
use cringle_sys::{syscall, thread_number};
use libc::{pthread_attr_t, pthread_t};
use std::cell::Cell;
use std::ffi::{c_int, c_void};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

/// The fibers, and in a served program the threads of the system that it has created.
static ALIVE: AtomicU32 = AtomicU32::new(0);
/// A thread waits until none is alive.
static IS_AWAITED: AtomicBool = AtomicBool::new(false);

/// Whether threads that are fibers have not ended. At the end of `main` a process ends them.
pub(crate) fn has_threads() -> bool {
    ALIVE.load(Ordering::SeqCst) > 0
}

/// In a child of `fork`: it has none of the parent's threads.
pub(crate) fn forget_all() {
    ALIVE.store(0, Ordering::SeqCst);
}

/// Counts a thread until it ends.
pub(super) struct Alive {
    forks: i32,
}

impl Alive {
    pub(super) fn new() -> Alive {
        ALIVE.fetch_add(1, Ordering::SeqCst);
        Alive { forks: waits::forks() }
    }
}

impl Drop for Alive {
    fn drop(&mut self) {
        // The thread that a forked child begins with is not counted.
        if self.forks == waits::forks()
            && ALIVE.fetch_sub(1, Ordering::SeqCst) == 1
            && IS_AWAITED.load(Ordering::SeqCst)
        {
            // SAFETY: the contract of `FUTEX_WAKE`: the kernel uses only the address.
            unsafe { syscall!(SYS_futex, ALIVE.as_ptr(), WAKE, 1) };
        }
    }
}

const WAKE: c_int = libc::FUTEX_WAKE | libc::FUTEX_PRIVATE_FLAG;
const WAIT: c_int = libc::FUTEX_WAIT | libc::FUTEX_PRIVATE_FLAG;

/// Waits until no thread is alive, and ends the process.
pub(super) fn end_with_last_thread() -> ! {
    IS_AWAITED.store(true, Ordering::SeqCst);
    loop {
        let alive = ALIVE.load(Ordering::SeqCst);
        if alive == 0 {
            // SAFETY: the caller is at the end of its thread.
            unsafe { libc::exit(0) };
        }
        let forever = std::ptr::null::<libc::timespec>();
        // SAFETY: the contract of `FUTEX_WAIT`: the word is a static.
        unsafe { syscall!(SYS_futex, ALIVE.as_ptr(), WAIT, alive, forever) };
    }
}

/// Called where a thread that is no fiber ends by `pthread_exit`: `main` waits for the threads of a
/// served program, after its cleanup handlers and the destructors of its values.
pub(super) fn outlive() {
    /// The last round of destructors in libc (`PTHREAD_DESTRUCTOR_ITERATIONS`).
    const LAST_ROUND: usize = 4;
    static KEY: AtomicU32 = AtomicU32::new(0);
    unsafe extern "C" fn wait(round: *mut c_void) {
        if round.addr() == LAST_ROUND {
            end_with_last_thread();
        }
        let next: *const c_void = std::ptr::without_provenance(round.addr() + 1);
        // SAFETY: the key exists.
        unsafe { libc::pthread_setspecific(KEY.load(Ordering::Relaxed), next) };
    }
    // SAFETY: the handle is the caller's own.
    let is_main = thread_number() as u32 == std::process::id() && !unsafe { is_fibers(own()) };
    if is_main && serve::is_serving() {
        let mut key = 0;
        // SAFETY: the contract of the calls: the key is made before it is used.
        unsafe {
            if libc::pthread_key_create(&mut key, Some(wait)) == 0 {
                KEY.store(key, Ordering::Relaxed);
                libc::pthread_setspecific(key, std::ptr::without_provenance(1));
            }
        }
    }
}

/// Creates a thread of the system that counts.
///
/// # Safety
///
/// As `pthread_create`'s.
pub(super) unsafe fn create_counted(
    thread: *mut pthread_t,
    attributes: *const pthread_attr_t,
    start: Start,
    argument: *mut c_void,
) -> c_int {
    type Counted = (Start, *mut c_void, Alive);
    thread_local! {
        static COUNTED: Cell<Option<Alive>> = const { Cell::new(None) };
    }
    extern "C-unwind" fn begin(counted: *mut c_void) -> *mut c_void {
        // SAFETY: I2. The creator has leaked it for this call.
        let (start, argument, alive) = *unsafe { Box::from_raw(counted.cast::<Counted>()) };
        COUNTED.set(Some(alive));
        start(argument)
    }
    let counted: *mut Counted = Box::into_raw(Box::new((start, argument, Alive::new())));
    // SAFETY: by the contract.
    let code = unsafe { next::pthread_create(thread, attributes, begin, counted.cast()) };
    if code != 0 {
        // SAFETY: I2. It was made above, and no thread has begun with it.
        drop(unsafe { Box::from_raw(counted) });
    }
    code
}
