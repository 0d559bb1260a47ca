//! Reports a fiber's stack overflow, with the size of the stack and the remedy; and the fiber on
//! which the process dies by SIGSEGV, SIGBUS or SIGABRT, with its stack.
//!
//! The handler runs on an alternate signal stack ([`SignalStack`]). It does only what a signal
//! handler may: it reads the current fiber, writes to standard error, and walks the fiber's frames.
//! It first passes the signal on to the handler before it, and reports only if the default action
//! is in force after that: so a handler of the program wins, and std's finds the overflows of
//! threads. (std's restores the default action and returns, if the fault is none of those.) Then
//! the process dies as it would have without a report.
//!
//! The report comes after the decision to die, and a second fault within it ends the process at
//! once. So it may take a risk: the unwinder could read a damaged stack. What is certain is written
//! before.

mod backtrace;
mod text;

use super::diagnostics::note_crash;
use super::worker::Worker;
use crate::sys::lock::OnceLock;
use crate::sys::signal_chain::{self, Fate, SignalChain, is_fault};
use std::ffi::{c_int, c_void};
use std::sync::atomic::{AtomicBool, Ordering};

static SEGV: SignalChain = SignalChain::new();
static BUS: SignalChain = SignalChain::new();
static ABRT: SignalChain = SignalChain::new();

/// A run wants reports of crashes, not of stack overflows alone.
static REPORTS_CRASHES: AtomicBool = AtomicBool::new(false);
/// A report has begun. The first one counts.
static HAS_REPORTED: AtomicBool = AtomicBool::new(false);

/// Installs the handler of stack overflows, once in a process.
pub(super) fn install_overflow_handler() {
    static INSTALLED: OnceLock<()> = OnceLock::new();
    INSTALLED.get_or_init(|| {
        // A handler of the program that this one calls may leave it by a jump.
        install(libc::SIGSEGV, &SEGV, libc::SA_NODEFER);
        install(libc::SIGBUS, &BUS, libc::SA_NODEFER);
    });
}

/// Makes the handler report crashes, too. SIGABRT has a handler from then on, unless the program
/// has one.
pub(super) fn report_crashes() {
    static INSTALLED: OnceLock<()> = OnceLock::new();
    REPORTS_CRASHES.store(true, Ordering::Relaxed);
    INSTALLED.get_or_init(|| {
        let action = signal_chain::action(libc::SIGABRT);
        if action.is_ok_and(|action| action.sa_sigaction == libc::SIG_DFL) {
            install(libc::SIGABRT, &ABRT, 0);
        }
    });
}

fn install(signal: c_int, chain: &SignalChain, flags: c_int) {
    let Ok(before) = signal_chain::action(signal) else { return };
    chain.keep(before);
    // SAFETY: by the contract of `sigaction`. All-zero is a valid value, the structures live for
    // the calls, and the handler does only what a handler may. The old action is stored before the
    // new one is in force.
    unsafe {
        let mut new: libc::sigaction = std::mem::zeroed();
        new.sa_sigaction = on_signal as *const () as usize;
        new.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK | flags;
        libc::sigemptyset(&mut new.sa_mask);
        libc::sigaction(signal, &new, std::ptr::null_mut());
    }
}

/// A signal as its handler receives it.
struct Received {
    signal: c_int,
    /// The address of the access that the interrupted instruction made, if it has raised the
    /// signal.
    fault: Option<usize>,
    /// The process that has sent the signal; 0 for a fault.
    sender: c_int,
    stack_pointer: usize,
}

extern "C" fn on_signal(signal: c_int, info: *mut libc::siginfo_t, context: *mut c_void) {
    // SAFETY: by the contract of a signal handler, the structures are those of this signal. Only a
    // fault has an address, and only another signal a sender.
    let received = unsafe {
        let is_fault = is_fault(signal, info);
        Received {
            signal,
            fault: is_fault.then(|| (*info).si_addr() as usize),
            sender: if is_fault { 0 } else { (*info).si_pid() },
            stack_pointer: stack_pointer(&*context.cast()),
        }
    };
    if let (Some(address), Some((_, fiber))) = (received.fault, Worker::current())
        && fiber.stack().guard_contains(address)
    {
        HAS_REPORTED.store(true, Ordering::Relaxed);
        text::report_overflow(fiber);
    }
    let chain = match signal {
        libc::SIGSEGV => &SEGV,
        libc::SIGBUS => &BUS,
        _ => &ABRT,
    };
    let paused = received.fault.is_some() && pause_abort_handler();
    // SAFETY: by the contract of `pass_on`: these are the arguments of the handler.
    let fate = unsafe { chain.pass_on(signal, info, context) };
    if fate == Fate::Continues {
        if paused {
            install(libc::SIGABRT, &ABRT, 0);
        }
        return;
    }
    note_crash();
    if REPORTS_CRASHES.load(Ordering::Relaxed)
        && let Some(worker) = Worker::here()
        && let Some(fiber) = Worker::identity()
        && !HAS_REPORTED.swap(true, Ordering::Relaxed)
    {
        text::report_crash(&received, worker, fiber);
    }
    if received.fault.is_none() {
        signal_chain::send_again(signal);
    }
}

/// Restores the default action of SIGABRT for the handler that is called next, if it runs on a
/// small signal stack. std's reports the overflow of a thread on 8 KiB and aborts there: a handler
/// of SIGABRT would need a second signal frame, for which there is no space.
fn pause_abort_handler() -> bool {
    let own = on_signal as *const () as usize;
    if signal_chain::action(libc::SIGABRT).is_ok_and(|action| action.sa_sigaction != own) {
        return false;
    }
    // SAFETY: by the contract of `sigaltstack`. All-zero is a valid value, and the structure is
    // borrowed for the call.
    let stack = unsafe {
        let mut stack: libc::stack_t = std::mem::zeroed();
        libc::sigaltstack(std::ptr::null(), &mut stack);
        stack
    };
    let is_small = stack.ss_flags & libc::SS_ONSTACK != 0 && stack.ss_size < SignalStack::BYTES;
    if is_small {
        signal_chain::set_default(libc::SIGABRT);
    }
    is_small
}

/// The stack pointer of the interrupted code.
fn stack_pointer(context: &libc::ucontext_t) -> usize {
    #[cfg(target_arch = "x86_64")]
    return context.uc_mcontext.gregs[libc::REG_RSP as usize] as usize;
    #[cfg(target_arch = "aarch64")]
    return context.uc_mcontext.sp as usize;
    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    return std::ptr::from_ref(context).addr();
}

/// An alternate signal stack for a worker's thread. std's has little more than 8 KiB, and a thread
/// that C code made has none. When this is dropped, the thread has the one before again.
pub(super) struct SignalStack {
    /// Touched only by a signal.
    memory: Option<Box<[u8]>>,
    before: libc::stack_t,
}

impl SignalStack {
    /// What the unwinder and the report need.
    const BYTES: usize = 64 << 10;

    pub(super) fn replace() -> SignalStack {
        let mut memory = vec![0u8; SignalStack::BYTES].into_boxed_slice();
        let ss_sp = memory.as_mut_ptr().cast();
        let new = libc::stack_t { ss_sp, ss_flags: 0, ss_size: SignalStack::BYTES };
        // SAFETY: by the contract of `sigaltstack`. The structures live for the calls, and the
        // memory until `drop` has restored the stack before.
        unsafe {
            let mut before: libc::stack_t = std::mem::zeroed();
            let result = libc::sigaltstack(&new, &mut before);
            SignalStack { memory: (result == 0).then_some(memory), before }
        }
    }
}

impl Drop for SignalStack {
    fn drop(&mut self) {
        if self.memory.is_some() {
            // SAFETY: by the contract of `sigaltstack`. The call only reads the structure; the
            // memory is freed after it.
            unsafe { libc::sigaltstack(&self.before, std::ptr::null_mut()) };
        }
    }
}
