//! Copies from the mapping of a file, and the SIGBUS handler that ends a copy at an invalid page.
//!
//! A page of a mapping may be beyond the end of the file, because another process has truncated it,
//! and its disk may fail. An access to such a page raises SIGBUS. So mapped memory is read by one
//! function in assembly alone, by address (**I16**). The handler recognises the instruction and the
//! address of the access, and continues behind the copy, which returns the number of bytes that it
//! has not copied. Any other SIGBUS goes to the handler that was installed before.
//!
//! The handler touches only the interrupted registers and, to pass a signal on, the stored action.
//! It uses no thread-local, so it may run on a fiber with thread-locals of its own (**I14**).
//!
//! On other architectures than x86-64 and aarch64 there is no such copy, and files are not mapped.

use super::lock::{Mutex, OnceLock};
use super::syscall;
use std::ffi::{c_int, c_void};
use std::io;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

/// Whether this architecture has the copy.
pub(crate) const IS_SUPPORTED: bool = cfg!(any(target_arch = "x86_64", target_arch = "aarch64"));

/// Copies `len` bytes and returns how many of them. It returns fewer if a page of the source is
/// invalid, and if the handler is installed; otherwise the process ends.
///
/// # Safety
///
/// The source is a readable mapping of a file, which stays mapped meanwhile (**I16**), and `to` is
/// valid for a write of `len` bytes.
#[inline]
pub(crate) unsafe fn copy(from: usize, to: *mut u8, len: usize) -> usize {
    // SAFETY: by the contract.
    len - unsafe { arch::copy(to, from, from + len, len) }
}

/// Starts to load the first bytes at an address into the processor's cache: a copy that is made
/// soon needs not wait for the page table and the memory.
#[inline]
pub(crate) fn prefetch(from: usize) {
    const LINE_BYTES: usize = 64;
    const LINES: usize = 8;
    for line in 0..LINES {
        arch::prefetch(from.wrapping_add(line * LINE_BYTES));
    }
}

#[cfg(target_arch = "x86_64")]
mod arch {
    /// The length of the copy's first instruction, the only one that accesses memory.
    const REP_MOVSB_BYTES: usize = 2;

    /// Copies `len` bytes up to the address `end`, and returns how many it has not copied.
    #[unsafe(naked)]
    pub(super) unsafe extern "sysv64" fn copy(
        to: *mut u8,
        from: usize,
        end: usize,
        len: usize,
    ) -> usize {
        // By the convention, the arguments are in `rdi`, `rsi`, `rdx` and `rcx`, and the direction
        // flag is clear. An interrupted `rep movsb` leaves the rest in `rsi`, `rdi` and `rcx`.
        core::arch::naked_asm!("rep movsb", "mov rax, rcx", "ret")
    }

    #[inline(always)]
    pub(super) fn prefetch(address: usize) {
        use core::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        // SAFETY: no memory is accessed: a prefetch is a hint, which faults at no address.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(address as *const i8) };
    }

    /// Ends the copy that an access to `address` has interrupted. Returns whether it is one.
    pub(super) fn end_copy(address: usize, context: &mut libc::ucontext_t) -> bool {
        let start = copy as *const () as usize;
        let registers = &mut context.uc_mcontext.gregs;
        let register = |number: i32| registers[number as usize] as usize;
        let source = register(libc::REG_RSI)..register(libc::REG_RDX);
        if register(libc::REG_RIP) != start || !super::is_in_pages_of(address, source) {
            return false;
        }
        registers[libc::REG_RIP as usize] = (start + REP_MOVSB_BYTES) as i64;
        true
    }

    #[cfg(test)]
    #[test]
    fn the_copy_begins_with_the_instruction_that_may_fault() {
        // SAFETY: by the contract of a function's address: its first bytes are its code.
        let code = unsafe { *(copy as *const () as *const [u8; 3]) };
        assert_eq!(code, [0xf3, 0xa4, 0x48], "rep movsb, and the first byte of the next one");
    }
}

#[cfg(target_arch = "aarch64")]
mod arch {
    /// The distance from the begin of the copy to its end, behind all accesses.
    const END: usize = 15 * 4;

    /// Copies `len` bytes up to the address `end`, and returns how many it has not copied.
    #[unsafe(naked)]
    pub(super) unsafe extern "C" fn copy(
        to: *mut u8,
        from: usize,
        end: usize,
        len: usize,
    ) -> usize {
        // By the convention, the arguments are in `x0` to `x3`. `x1` and `x3` are the rest of the
        // source, before each access and in each step that an access may interrupt.
        core::arch::naked_asm!(
            "b 3f",
            "2:",
            "ldp q0, q1, [x1]",
            "ldp q2, q3, [x1, #32]",
            "stp q0, q1, [x0]",
            "stp q2, q3, [x0, #32]",
            "add x1, x1, #64",
            "add x0, x0, #64",
            "sub x3, x3, #64",
            "3:",
            "cmp x3, #64",
            "b.hs 2b",
            "4:",
            "cbz x3, 5f",
            "ldrb w4, [x1], #1",
            "strb w4, [x0], #1",
            "sub x3, x3, #1",
            "b 4b",
            "5:",
            "mov x0, x3",
            "ret",
        )
    }

    #[inline(always)]
    pub(super) fn prefetch(address: usize) {
        // SAFETY: no memory is accessed: a prefetch is a hint, which faults at no address.
        unsafe {
            core::arch::asm!("prfm pldl1keep, [{}]", in(reg) address, options(nostack, readonly));
        }
    }

    /// Ends the copy that an access to `address` has interrupted. Returns whether it is one.
    pub(super) fn end_copy(address: usize, context: &mut libc::ucontext_t) -> bool {
        let start = copy as *const () as usize;
        let machine = &mut context.uc_mcontext;
        let source = machine.regs[1] as usize..machine.regs[2] as usize;
        let is_copy = (start..start + END).contains(&(machine.pc as usize));
        if !is_copy || !super::is_in_pages_of(address, source) {
            return false;
        }
        machine.pc = (start + END) as _;
        true
    }

    #[cfg(test)]
    #[test]
    fn the_copy_ends_where_the_handler_continues() {
        // SAFETY: by the contract of a function's address: its first bytes are its code.
        let code = unsafe { *(copy as *const () as *const [u32; 17]) };
        assert_eq!(code[15..], [0xaa03_03e0, 0xd65f_03c0], "mov x0, x3; ret");
    }
}

#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
mod arch {
    pub(super) unsafe fn copy(_: *mut u8, _: usize, _: usize, _: usize) -> usize {
        unreachable!("no file is mapped on this architecture")
    }

    pub(super) fn prefetch(_: usize) {}

    pub(super) fn end_copy(_: usize, _: &mut libc::ucontext_t) -> bool {
        false
    }
}

/// Whether an address is in one of the pages of a range. The kernel may report the begin of a page
/// in place of the address within it.
#[cfg_attr(not(any(target_arch = "x86_64", target_arch = "aarch64")), expect(dead_code))]
fn is_in_pages_of(address: usize, range: std::ops::Range<usize>) -> bool {
    const PAGE: usize = 4096;
    (range.start & !(PAGE - 1)..range.end).contains(&address)
}

/// The action before ours.
static BEFORE: OnceLock<libc::sigaction> = OnceLock::new();
/// A handler before ours that is called once (`SA_RESETHAND`) was called.
static BEFORE_IS_RESET: AtomicBool = AtomicBool::new(false);

/// Installs the handler, once in a process.
pub(crate) fn install_handler() -> io::Result<()> {
    static IS_INSTALLED: Mutex<bool> = Mutex::new(false);
    let mut is_installed = IS_INSTALLED.lock();
    if *is_installed || !IS_SUPPORTED {
        return Ok(());
    }
    let before = current_action()?;
    BEFORE.get_or_init(|| before);
    // What the handler before ours expects of its own action holds for ours.
    let mut action = before;
    action.sa_sigaction = on_bus_error as *const () as usize;
    action.sa_flags &= libc::SA_RESTART | libc::SA_NODEFER;
    action.sa_flags |= libc::SA_SIGINFO | libc::SA_ONSTACK;
    // SAFETY: the contract of `sigaction`: the handler may interrupt any code, and the action
    // before it is stored. The structure is borrowed for the call.
    match unsafe { libc::sigaction(libc::SIGBUS, &action, std::ptr::null_mut()) } {
        0 => *is_installed = true,
        _ => return Err(io::Error::last_os_error()),
    }
    Ok(())
}

/// Whether SIGBUS has a handler: ours, or one that replaced it and is assumed to call it.
pub(crate) fn has_handler() -> bool {
    let is_handler = |action: usize| !matches!(action, libc::SIG_DFL | libc::SIG_IGN);
    !IS_SUPPORTED || current_action().is_ok_and(|action| is_handler(action.sa_sigaction))
}

fn current_action() -> io::Result<libc::sigaction> {
    // SAFETY: all-zero is a valid value, and the structure is borrowed for the call.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        match libc::sigaction(libc::SIGBUS, std::ptr::null(), &mut action) {
            0 => Ok(action),
            _ => Err(io::Error::last_os_error()),
        }
    }
}

/// The codes of a signal that the current instruction has raised: an invalid address, an error of
/// the device, and memory that has failed.
const OF_AN_ACCESS: std::ops::RangeInclusive<c_int> = 2..=4;

extern "C" fn on_bus_error(signal: c_int, info: *mut libc::siginfo_t, context: *mut c_void) {
    // SAFETY: by the contract of a signal handler, both structures are valid, and changes of the
    // registers apply when it returns. I16: they are changed only for an access of `copy`.
    unsafe {
        if OF_AN_ACCESS.contains(&(*info).si_code)
            && arch::end_copy((*info).si_addr() as usize, &mut *context.cast())
        {
            return;
        }
        pass_on(signal, info, context);
    }
}

/// Does what would have happened without our handler.
///
/// # Safety
///
/// The arguments are those of the handler.
unsafe fn pass_on(signal: c_int, info: *mut libc::siginfo_t, context: *mut c_void) {
    let Some(before) = BEFORE.get() else { return };
    // Such a handler relies on the default action, which ends the process: it returns, and the
    // fault occurs again.
    let is_reset = before.sa_flags & libc::SA_RESETHAND != 0 && BEFORE_IS_RESET.swap(true, Relaxed);
    let action = if is_reset { libc::SIG_DFL } else { before.sa_sigaction };
    // SAFETY: by the contract. The address is that of a handler of the kind that its flags name, as
    // it was installed.
    unsafe {
        // The kernel ends the process for a fault even if the signal is ignored.
        let is_fault = OF_AN_ACCESS.contains(&(*info).si_code);
        match action {
            libc::SIG_IGN if !is_fault => {}
            libc::SIG_DFL | libc::SIG_IGN => {
                let mut default: libc::sigaction = std::mem::zeroed();
                default.sa_sigaction = libc::SIG_DFL;
                libc::sigaction(signal, &default, std::ptr::null_mut());
                // A fault occurs again when the handler returns. Another signal is sent again: it
                // is blocked until then.
                if !is_fault {
                    let (process, thread) = (libc::getpid(), libc::gettid());
                    syscall!(SYS_tgkill, process, thread, signal);
                }
            }
            handler if before.sa_flags & libc::SA_SIGINFO != 0 => {
                type Handler = extern "C" fn(c_int, *mut libc::siginfo_t, *mut c_void);
                std::mem::transmute::<usize, Handler>(handler)(signal, info, context);
            }
            handler => std::mem::transmute::<usize, extern "C" fn(c_int)>(handler)(signal),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::mapping::{Mapping, page_bytes};
    use super::*;
    use std::io::Write;
    use std::os::fd::AsRawFd;

    #[test]
    fn a_copy_ends_where_the_file_was_truncated() {
        install_handler().unwrap();
        let page = page_bytes();
        let mut file = tempfile::tempfile().unwrap();
        let bytes: Vec<u8> = (0..3 * page).map(|n| (n % 251) as u8).collect();
        file.write_all(&bytes).unwrap();
        let mapping = Mapping::new(file.as_raw_fd(), bytes.len(), 0).unwrap();
        let copy_of = |from: usize, len: usize| {
            let mut to = vec![0; len];
            // SAFETY: I16. The range is mapped, and the buffer has its length.
            let copied = unsafe { mapping.copy(from, to.as_mut_ptr(), len) };
            to.truncate(copied);
            to
        };
        for (from, len) in [(0, 1), (1, 63), (7, 64), (5, 65), (page - 3, 100), (3, 3 * page - 3)] {
            assert_eq!(copy_of(from, len), bytes[from..from + len], "{len} bytes at {from}");
        }
        file.set_len(page as u64).unwrap();
        assert_eq!(copy_of(0, page), bytes[..page]);
        assert_eq!(copy_of(page, 1), []);
        assert_eq!(copy_of(2 * page + 100, page - 100), []);
        // Whole steps of the copy are counted.
        for before in [1, 64, 100, page] {
            let copied = copy_of(page - before, before + 200);
            assert!(copied.len() <= before && before - copied.len() < 64, "{before}: {copied:?}");
            assert!(bytes[page - before..].starts_with(&copied));
        }
    }
}
