//! Reports a fiber's stack overflow, with the size of the stack and the remedy; and the fiber on
//! which the process dies by SIGSEGV, SIGBUS or SIGABRT, with its stack.
//!
//! The handler runs on an alternate signal stack (`SignalStack`). It does only what a signal
//! handler may: it reads the current fiber, writes to standard error, and walks the fiber's frames.
//! It first passes the signal on to the handler before it, and reports only if the default action
//! is in force after that: so a handler of the program wins, and std's finds the overflows of
//! threads. (std's restores the default action and returns, if the fault is none of those.) Then
//! the process dies as it would have without a report.
//!
//! The report comes after the decision to die, and a second fault within it ends the process at
//! once. So it may take a risk: the unwinder could read a damaged stack. What is certain is written
//! before. Another thread that crashes meanwhile waits for the end (`Turn`).

mod backtrace;
mod signal_stack;
mod text;
mod turn;

pub(super) use signal_stack::SignalStack;

use super::diagnostics::note_crash;
use cringle_core::worker::{Current, Worker};
use cringle_sys::lock::OnceLock;
use cringle_sys::signal_chain::{self, Fate, SignalChain, is_fault};
use std::ffi::{c_int, c_void};
use std::sync::atomic::{AtomicBool, Ordering};
use turn::Turn;

static SEGV: SignalChain = SignalChain::new();
static BUS: SignalChain = SignalChain::new();
static ABRT: SignalChain = SignalChain::new();

/// A run wants reports of crashes, not of stack overflows alone.
static REPORTS_CRASHES: AtomicBool = AtomicBool::new(false);
/// The handler of SIGABRT is paused: see [`pause_abort_handler`].
static IS_PAUSED: AtomicBool = AtomicBool::new(false);

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
    resume_abort_handler();
}

fn install(signal: c_int, chain: &SignalChain, flags: c_int) {
    let Ok(before) = signal_chain::action(signal) else { return };
    chain.keep(before);
    // The old action is stored before the new one is in force.
    let flags = libc::SA_SIGINFO | libc::SA_ONSTACK | flags;
    let _ = signal_chain::set_handler(signal, on_signal as *const () as usize, flags);
}

/// A signal as its handler receives it.
struct Received {
    signal: c_int,
    cause: Cause,
    registers: Registers,
}

/// Why a signal was raised.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Cause {
    /// The interrupted instruction has accessed this address.
    Access(usize),
    /// The processor has refused the interrupted instruction, for an address that no memory can
    /// have or because it is privileged. The kernel reports no address.
    Refused,
    /// A process has sent it.
    Sent(c_int),
    /// Another reason, such as a timer.
    Other,
}

impl Cause {
    /// # Safety
    ///
    /// The information is what a handler of the signal has received.
    unsafe fn of(signal: c_int, info: *const libc::siginfo_t) -> Cause {
        // SAFETY: by the contract. Only a fault has an address, and only these codes a sender.
        unsafe {
            match (*info).si_code {
                _ if is_fault(signal, info) => match (*info).si_addr().addr() {
                    0 if (*info).si_code == libc::SI_KERNEL => Cause::Refused,
                    address => Cause::Access(address),
                },
                libc::SI_USER | libc::SI_QUEUE | libc::SI_TKILL | libc::SI_MESGQ => {
                    Cause::Sent((*info).si_pid())
                }
                _ => Cause::Other,
            }
        }
    }

    fn is_fault(self) -> bool {
        matches!(self, Cause::Access(_) | Cause::Refused)
    }
}

/// Registers of the interrupted code.
#[derive(Clone, Copy)]
struct Registers {
    stack_pointer: usize,
    instruction: usize,
    /// The return address of a call, where a register has it.
    link: Option<usize>,
}

impl Registers {
    #[cfg(target_arch = "x86_64")]
    fn of(context: &libc::ucontext_t) -> Registers {
        let register = |number: c_int| context.uc_mcontext.gregs[number as usize] as usize;
        let (stack_pointer, instruction) = (register(libc::REG_RSP), register(libc::REG_RIP));
        Registers { stack_pointer, instruction, link: None }
    }

    #[cfg(target_arch = "aarch64")]
    fn of(context: &libc::ucontext_t) -> Registers {
        let context = &context.uc_mcontext;
        let (stack_pointer, instruction) = (context.sp as usize, context.pc as usize);
        Registers { stack_pointer, instruction, link: Some(context.regs[30] as usize) }
    }

    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    fn of(context: &libc::ucontext_t) -> Registers {
        let stack_pointer = std::ptr::from_ref(context).addr();
        Registers { stack_pointer, instruction: 0, link: None }
    }
}

extern "C" fn on_signal(signal: c_int, info: *mut libc::siginfo_t, context: *mut c_void) {
    // SAFETY: by the contract of a signal handler, the structures belong to this signal.
    let received = unsafe {
        let (cause, registers) = (Cause::of(signal, info), Registers::of(&*context.cast()));
        Received { signal, cause, registers }
    };
    if let (Cause::Access(address), Some(Current { fiber, .. })) = (received.cause, Current::get())
        && fiber.stack().guard_contains(address)
        && fiber.stack().is_used_up_at(received.registers.stack_pointer)
    {
        if let Some(_turn) = Turn::take() {
            text::report_overflow(fiber);
        }
        // SAFETY: the call has no contract.
        unsafe { libc::abort() }
    }
    let chain = match signal {
        libc::SIGSEGV => &SEGV,
        libc::SIGBUS => &BUS,
        _ => &ABRT,
    };
    let paused = received.cause.is_fault() && pause_abort_handler();
    // SAFETY: by the contract of `pass_on`: these are the arguments of the handler.
    let fate = unsafe { chain.pass_on(signal, info, context) };
    if fate == Fate::Continues {
        if paused {
            resume_abort_handler();
        }
        return;
    }
    note_crash();
    if REPORTS_CRASHES.load(Ordering::Relaxed)
        && let Some(worker) = Worker::here()
        && let Some(fiber) = Current::identity()
        && let Some(_turn) = Turn::take()
    {
        text::report_crash(&received, worker, fiber);
    } else {
        Turn::wait();
    }
    if !received.cause.is_fault() {
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
    let stack = signal_stack::current();
    let is_small = stack.ss_flags & libc::SS_ONSTACK != 0 && stack.ss_size < SignalStack::BYTES;
    if is_small {
        signal_chain::set_default(libc::SIGABRT);
        IS_PAUSED.store(true, Ordering::Relaxed);
    }
    is_small
}

/// Ends the pause, unless the program has installed a handler meanwhile. A handler of the program
/// that is left by a jump does not end it; the next run does.
fn resume_abort_handler() {
    let is_default = |action: libc::sigaction| action.sa_sigaction == libc::SIG_DFL;
    if IS_PAUSED.swap(false, Ordering::Relaxed)
        && signal_chain::action(libc::SIGABRT).is_ok_and(is_default)
    {
        install(libc::SIGABRT, &ABRT, 0);
    }
}
