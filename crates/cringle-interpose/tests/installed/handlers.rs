//! Signal handlers that write.

use crate::common::on_both_drivers;
use libc::*;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU32, Ordering};

static WRITER: AtomicI32 = AtomicI32::new(-1);
static IN_HANDLER: AtomicBool = AtomicBool::new(false);
static WRITTEN: AtomicU32 = AtomicU32::new(0);

extern "C" fn write_a_byte(_: c_int) {
    IN_HANDLER.store(true, Ordering::SeqCst);
    // SAFETY: the contract of `write`.
    let count = unsafe { write(WRITER.load(Ordering::SeqCst), b"x".as_ptr().cast(), 1) };
    WRITTEN.fetch_add(count as u32, Ordering::SeqCst);
    IN_HANDLER.store(false, Ordering::SeqCst);
}

/// Whatever the handler has interrupted may hold a lock that another fiber needs.
#[test]
fn a_handler_that_writes_to_a_nonblocking_pipe_is_not_suspended() {
    const SIGNALS: u32 = 500;
    // SAFETY: the contracts of the calls: all memory is this function's, and the handler makes only
    // calls that are safe in one.
    unsafe {
        let mut action: sigaction = std::mem::zeroed();
        let handler: extern "C" fn(c_int) = write_a_byte;
        (action.sa_sigaction, action.sa_flags) = (handler as usize, SA_RESTART);
        assert_eq!(sigaction(SIGWINCH, &action, std::ptr::null_mut()), 0);
    }
    on_both_drivers(|| {
        let mut ends = [0; 2];
        // SAFETY: the contract of `pipe2`.
        assert_eq!(unsafe { pipe2(ends.as_mut_ptr(), O_NONBLOCK | O_CLOEXEC) }, 0);
        WRITER.store(ends[1], Ordering::SeqCst);
        WRITTEN.store(0, Ordering::SeqCst);
        cringle::fiber::scope(|s| {
            for _ in 0..3 {
                s.spawn(|| {
                    for _ in 0..SIGNALS {
                        assert!(!IN_HANDLER.load(Ordering::SeqCst), "a handler is suspended");
                        // SAFETY: no pointers. The worker's thread handles its signal at once.
                        unsafe { syscall(SYS_tgkill, getpid(), gettid(), SIGWINCH) };
                    }
                });
            }
        });
        assert_eq!(WRITTEN.load(Ordering::SeqCst), 3 * SIGNALS);
        // SAFETY: no pointers; the descriptors are this test's.
        assert_eq!(ends.map(|fd| unsafe { close(fd) }), [0, 0]);
    });
}
