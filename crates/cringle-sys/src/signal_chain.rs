//! The action that a signal had before a handler of ours, and how our handler passes a signal on.

use super::lock::OnceLock;
use super::syscall;
use std::ffi::{c_int, c_void};
use std::io;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

/// The action of one signal before ours. It is stored once, before ours is in force.
pub struct SignalChain {
    before: OnceLock<libc::sigaction>,
    /// A handler before ours that is called once (`SA_RESETHAND`) was called.
    is_reset: AtomicBool,
}

/// What follows when the handler returns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// The signal was handled, or is ignored.
    Continues,
    /// The default action is in force, which ends the process: the fault occurs again, or the
    /// signal is to be [sent again](send_again).
    Dies,
}

default_by_new!(SignalChain);

impl SignalChain {
    /// A chain without a stored action.
    pub const fn new() -> SignalChain {
        SignalChain { before: OnceLock::new(), is_reset: AtomicBool::new(false) }
    }

    /// Stores the action before ours.
    pub fn keep(&self, before: libc::sigaction) {
        self.before.get_or_init(|| before);
    }

    /// Does what would have happened without our handler. If that is the default action, it is in
    /// force afterwards.
    ///
    /// # Safety
    ///
    /// The arguments are what our handler of this signal has received.
    pub unsafe fn pass_on(
        &self,
        signal: c_int,
        info: *mut libc::siginfo_t,
        context: *mut c_void,
    ) -> Fate {
        let Some(before) = self.before.get() else { return Fate::Continues };
        // Such a handler relies on the default action, which ends the process: it returns, and the
        // fault occurs again.
        let is_reset =
            before.sa_flags & libc::SA_RESETHAND != 0 && self.is_reset.swap(true, Relaxed);
        // SAFETY: by the contract. The address leads to a handler of the kind that its flags name,
        // as it was installed.
        unsafe {
            let _mask = BlockedSignals::during(signal, before);
            match if is_reset { libc::SIG_DFL } else { before.sa_sigaction } {
                libc::SIG_IGN if !is_fault(signal, info) => return Fate::Continues,
                // The kernel ends the process for a fault even if the signal is ignored.
                libc::SIG_DFL | libc::SIG_IGN => set_default(signal),
                handler => {
                    let has_info = before.sa_flags & libc::SA_SIGINFO != 0;
                    call_handler(handler, has_info, signal, info, context);
                }
            }
        }
        let is_default = action(signal).is_ok_and(|now| now.sa_sigaction == libc::SIG_DFL);
        if is_default { Fate::Dies } else { Fate::Continues }
    }
}

/// Calls a handler as the kernel would, with its arguments. Without `has_info`, it takes only the
/// number.
///
/// # Safety
///
/// A handler of this kind is at the address. The arguments are as our handler got them.
pub unsafe fn call_handler(
    address: usize,
    has_info: bool,
    signal: c_int,
    info: *mut libc::siginfo_t,
    context: *mut c_void,
) {
    type Handler = extern "C" fn(c_int, *mut libc::siginfo_t, *mut c_void);
    // SAFETY: by the contract.
    unsafe {
        if has_info {
            std::mem::transmute::<usize, Handler>(address)(signal, info, context);
        } else {
            std::mem::transmute::<usize, extern "C" fn(c_int)>(address)(signal);
        }
    }
}

/// The signals that the kernel would block during a handler. When this is dropped, those before are
/// blocked.
struct BlockedSignals(libc::sigset_t);

impl BlockedSignals {
    fn during(signal: c_int, action: &libc::sigaction) -> BlockedSignals {
        let mut blocked = action.sa_mask;
        // SAFETY: by the contracts of the calls: all-zero is a valid value, and the sets are
        // borrowed for them.
        unsafe {
            if action.sa_flags & libc::SA_NODEFER == 0 {
                libc::sigaddset(&mut blocked, signal);
            }
            let mut before = std::mem::zeroed();
            libc::pthread_sigmask(libc::SIG_BLOCK, &blocked, &mut before);
            BlockedSignals(before)
        }
    }
}

impl Drop for BlockedSignals {
    fn drop(&mut self) {
        // SAFETY: by the contract of the call. The set is borrowed for it.
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &self.0, std::ptr::null_mut()) };
    }
}

/// Whether the interrupted instruction has raised the signal, and does so again if it continues.
///
/// # Safety
///
/// The information is what a handler of the signal has received.
pub unsafe fn is_fault(signal: c_int, info: *const libc::siginfo_t) -> bool {
    // Memory that has failed elsewhere, which no instruction has accessed.
    const BUS_MCEERR_AO: c_int = 5;
    // SAFETY: by the contract. Positive codes are the kernel's.
    let code = unsafe { (*info).si_code };
    code > 0 && !(signal == libc::SIGBUS && code == BUS_MCEERR_AO)
}

/// Sends a signal to the calling thread. In a handler of the signal that blocks it, it is delivered
/// when the handler returns.
pub fn send_again(signal: c_int) {
    // SAFETY: no pointers are passed. The thread is one of this process.
    unsafe {
        let (process, thread) = (libc::getpid(), libc::gettid());
        syscall!(SYS_tgkill, process, thread, signal);
    }
}

/// Restores the default action.
pub fn set_default(signal: c_int) {
    let _ = set_handler(signal, libc::SIG_DFL, 0);
}

/// Installs a handler, by its address, that blocks no other signals.
pub fn set_handler(signal: c_int, address: usize, flags: c_int) -> io::Result<()> {
    // SAFETY: all-zero is a valid action, which blocks no signal but its own.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    (action.sa_sigaction, action.sa_flags) = (address, flags);
    set_action(signal, &action)
}

/// The action in force.
pub fn action(signal: c_int) -> io::Result<libc::sigaction> {
    // SAFETY: all-zero is a valid value, and the structure is borrowed for the call.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        match libc::sigaction(signal, std::ptr::null(), &mut action) {
            0 => Ok(action),
            _ => Err(io::Error::last_os_error()),
        }
    }
}

/// Installs an action: our handler, which may interrupt any code, or an action that was in force
/// before.
pub fn set_action(signal: c_int, action: &libc::sigaction) -> io::Result<()> {
    // SAFETY: the contract of `sigaction`, as this function is called. The structure is borrowed.
    match unsafe { libc::sigaction(signal, action, std::ptr::null_mut()) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}
