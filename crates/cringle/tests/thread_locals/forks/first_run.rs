//! A `fork` while another thread makes the check of the process's first `run`.
//!
//! The check starts a thread, by a function that this program defines: it lets the fork happen.

use super::{in_child, in_child_after, run_fibers};
use cringle_testing::child;
use std::ffi::c_void;
use std::sync::atomic::{AtomicU32, Ordering};

/// The next thread that is started waits for the fork.
const ARMED: u32 = 1;
const IS_WAITING: u32 = 2;
const HAS_FORKED: u32 = 3;

static STATE: AtomicU32 = AtomicU32::new(0);

fn wait_for(state: u32) {
    while STATE.load(Ordering::SeqCst) != state {
        std::thread::yield_now();
    }
}

/// # Safety
///
/// As libc's function.
#[unsafe(no_mangle)]
unsafe extern "C" fn pthread_create(
    thread: *mut libc::pthread_t,
    attributes: *const libc::pthread_attr_t,
    start: extern "C" fn(*mut c_void) -> *mut c_void,
    argument: *mut c_void,
) -> libc::c_int {
    type Create = unsafe extern "C" fn(
        *mut libc::pthread_t,
        *const libc::pthread_attr_t,
        extern "C" fn(*mut c_void) -> *mut c_void,
        *mut c_void,
    ) -> libc::c_int;
    let armed = STATE.compare_exchange(ARMED, IS_WAITING, Ordering::SeqCst, Ordering::SeqCst);
    if armed.is_ok() {
        wait_for(HAS_FORKED);
    }
    // SAFETY: the name is a C string, and libc's function has this type.
    unsafe {
        let next = libc::dlsym(libc::RTLD_NEXT, c"pthread_create".as_ptr());
        std::mem::transmute::<*mut c_void, Create>(next)(thread, attributes, start, argument)
    }
}

#[test]
fn fork_during_the_first_check_of_a_process() {
    child::must_succeed("fork_during_the_first_check_of_a_process", || {
        std::thread::scope(|threads| {
            let forker = threads.spawn(|| {
                wait_for(IS_WAITING);
                in_child_after(|| STATE.store(HAS_FORKED, Ordering::SeqCst), run_fibers)
            });
            STATE.store(ARMED, Ordering::SeqCst);
            assert!(run_fibers());
            assert_eq!(forker.join().unwrap(), 0);
        });
        assert_eq!(in_child(run_fibers), 0);
    });
}
