//! The signals stay those of the program: the library's threads block them.

use std::mem::MaybeUninit;
use std::ptr;

/// Signals that a thread raises by its own instructions. While one is blocked, the kernel ends the
/// process instead of calling the program's handler.
const OWN: [libc::c_int; 7] = [
    libc::SIGSEGV,
    libc::SIGBUS,
    libc::SIGFPE,
    libc::SIGILL,
    libc::SIGTRAP,
    libc::SIGSYS,
    libc::SIGABRT,
];

/// Calls `f`, while the calling thread blocks the signals. Threads that are started meanwhile block
/// them for ever.
pub(crate) fn while_blocked<T>(f: impl FnOnce() -> T) -> T {
    struct Restore(libc::sigset_t);
    impl Drop for Restore {
        fn drop(&mut self) {
            // SAFETY: the set was filled by the call below.
            unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &raw const self.0, ptr::null_mut()) };
        }
    }
    let (mut all, mut before) = (MaybeUninit::uninit(), MaybeUninit::uninit());
    // SAFETY: `sigfillset` fills the first set, and `pthread_sigmask` the second. Neither fails:
    // the arguments are valid.
    let _restore = unsafe {
        libc::sigfillset(all.as_mut_ptr());
        for signal in OWN {
            libc::sigdelset(all.as_mut_ptr(), signal);
        }
        libc::pthread_sigmask(libc::SIG_SETMASK, all.as_ptr(), before.as_mut_ptr());
        Restore(before.assume_init())
    };
    f()
}
