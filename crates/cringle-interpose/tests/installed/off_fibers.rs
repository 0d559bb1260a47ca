//! Threads off any fiber, to which interposed calls are libc's own.

use libc::*;
use std::ffi::c_void;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicBool, Ordering};

unsafe extern "C-unwind" {
    fn pthread_cancel(thread: pthread_t) -> c_int;
    fn pthread_create(
        thread: *mut pthread_t,
        attributes: *const pthread_attr_t,
        start: extern "C-unwind" fn(*mut c_void) -> *mut c_void,
        argument: *mut c_void,
    ) -> c_int;
}

/// `PTHREAD_CANCELED`.
const CANCELED: usize = usize::MAX;

static IS_WAITING: AtomicBool = AtomicBool::new(false);

/// Reads from a pipe that stays empty.
extern "C-unwind" fn read_for_ever(end: *mut c_void) -> *mut c_void {
    let mut byte = 0u8;
    IS_WAITING.store(true, Ordering::SeqCst);
    // SAFETY: the byte is borrowed for the call.
    unsafe { read(end as usize as c_int, (&raw mut byte).cast(), 1) };
    null_mut()
}

/// Waits for a condition that nobody signals.
extern "C-unwind" fn wait_for_ever(_: *mut c_void) -> *mut c_void {
    static mut LOCK: pthread_mutex_t = PTHREAD_MUTEX_INITIALIZER;
    static mut CHANGED: pthread_cond_t = PTHREAD_COND_INITIALIZER;
    // SAFETY: both are initialised.
    unsafe {
        pthread_mutex_lock(&raw mut LOCK);
        IS_WAITING.store(true, Ordering::SeqCst);
        pthread_cond_wait(&raw mut CHANGED, &raw mut LOCK);
    }
    null_mut()
}

#[test]
fn waiting_thread_can_be_cancelled() {
    let (reader, _writer) = std::io::pipe().unwrap();
    let end = std::os::fd::AsRawFd::as_raw_fd(&reader) as usize as *mut c_void;
    for (start, argument) in
        [(read_for_ever as extern "C-unwind" fn(_) -> _, end), (wait_for_ever, null_mut())]
    {
        IS_WAITING.store(false, Ordering::SeqCst);
        // SAFETY: the thread's functions have no destructors to run.
        unsafe {
            let mut thread = 0;
            assert_eq!(pthread_create(&mut thread, std::ptr::null(), start, argument), 0);
            while !IS_WAITING.load(Ordering::SeqCst) {
                std::thread::yield_now();
            }
            assert_eq!(pthread_cancel(thread), 0);
            let mut result = null_mut();
            assert_eq!(pthread_join(thread, &mut result), 0);
            assert_eq!(result as usize, CANCELED);
        }
    }
}

#[test]
fn symbols_are_the_programs() {
    for name in [c"read", c"pread64", c"connect", c"pthread_mutex_unlock", c"syscall", c"vfork"] {
        // SAFETY: the names are C strings.
        let (first, next) =
            unsafe { (dlsym(RTLD_DEFAULT, name.as_ptr()), dlsym(RTLD_NEXT, name.as_ptr())) };
        assert!(!next.is_null() && first != next, "{name:?} is not interposed");
    }
}
