//! If several threads crash, the first one reports its crash. The others wait until it has ended
//! the process, so that its text is whole.
//!
//! By the time of the report, earlier handlers have set the default action for the signals. So the
//! reporting thread installs another handler for that time, in which the others wait. (A thread
//! that crashes before it is installed, within some instructions, ends the process without a text.)

use cringle_sys::signal_chain::{self, set_default};
use cringle_sys::syscall;
use std::ffi::c_int;
use std::sync::atomic::{AtomicI32, Ordering};

/// The signals of crashes.
const SIGNALS: [c_int; 3] = [libc::SIGSEGV, libc::SIGBUS, libc::SIGABRT];

/// The number of the thread that reports, or has reported; 0 before.
static REPORTER: AtomicI32 = AtomicI32::new(0);

/// The permission to write a report. Other threads that crash wait while it exists.
pub(super) struct Turn {
    before: [Option<libc::sigaction>; SIGNALS.len()],
}

impl Turn {
    /// Returns the permission to the first caller in the process. Another thread first waits for
    /// the end of the process, and gets `None` if that does not come.
    pub(super) fn take() -> Option<Turn> {
        match REPORTER.compare_exchange(0, own_number(), Ordering::Relaxed, Ordering::Relaxed) {
            Ok(_) => Some(Turn { before: SIGNALS.map(hold_others) }),
            Err(_) => {
                Turn::wait();
                None
            }
        }
    }

    /// Waits for the end of the process, if another thread reports a crash. The time is bounded:
    /// another process may have stopped that thread.
    pub(super) fn wait() {
        let reporter = REPORTER.load(Ordering::Relaxed);
        if reporter == 0 || reporter == own_number() {
            return;
        }
        // More than a report takes whose reader is slow.
        let mut left = libc::timespec { tv_sec: 5, tv_nsec: 0 };
        // SAFETY: by the contract of the call: the structure lives for it, and receives what is
        // left of the time.
        while unsafe { syscall!(SYS_nanosleep, &raw mut left, &raw mut left) }
            == -(libc::EINTR as isize)
        {}
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        for (signal, before) in SIGNALS.into_iter().zip(&self.before) {
            if let Some(before) = before {
                let _ = signal_chain::set_action(signal, before);
            }
        }
    }
}

/// Installs the handler for other threads, and returns the action before.
fn hold_others(signal: c_int) -> Option<libc::sigaction> {
    let before = signal_chain::action(signal).ok()?;
    let flags = libc::SA_ONSTACK | libc::SA_NODEFER;
    signal_chain::set_handler(signal, on_signal as *const () as usize, flags).ok()?;
    Some(before)
}

extern "C" fn on_signal(signal: c_int) {
    Turn::wait();
    // A fault occurs again, and ends the process: at once if the report itself has caused it.
    set_default(signal);
}

fn own_number() -> c_int {
    // SAFETY: the call has no contract.
    unsafe { libc::gettid() }
}
