//! Copies from the mapping of a file, and the SIGBUS handler that ends a copy at an invalid page.
//!
//! A page of a mapping may be beyond the end of the file, because another process has truncated it,
//! and its disk may fail. An access to such a page raises SIGBUS. So mapped memory is accessed by
//! two functions in assembly alone, by address (**I16**): the copy, and the load of its last byte.
//! The memory that is copied to may be the mapping of a file, too. The handler recognises the
//! instruction and the address of the access, and continues behind it. The copy then returns the
//! number of bytes that it has not copied, and the load nothing. Any other SIGBUS goes to the
//! handler that was installed before. The copies of `Direct::Bounce` are made by the same
//! instructions.
//!
//! The handler touches only the interrupted registers and, to pass a signal on, the stored action.
//! It uses no thread-local, so it may run on a fiber with thread-locals of its own (**I14**).
//!
//! On other architectures than x86-64 and aarch64 there is no such copy, and files are not mapped.

use super::fork::ForkLock;
use super::signal_chain::{self, Fate, SignalChain, is_fault};
use std::ffi::{c_int, c_void};
use std::io;

/// Whether this architecture has the copy.
pub const IS_SUPPORTED: bool = cfg!(any(target_arch = "x86_64", target_arch = "aarch64"));

/// Copies `len` bytes and returns how many of them. It returns fewer if a page is invalid, of the
/// source or of the mapping of a file that is copied to, and if the handler is installed; otherwise
/// the process ends.
///
/// # Safety
///
/// The source is a readable mapping of a file, which stays mapped meanwhile (**I16**), or is valid
/// for a read of `len` bytes. `to` is valid for a write of `len` bytes, or is a writable mapping of
/// a file.
#[inline]
pub unsafe fn copy(from: usize, to: *mut u8, len: usize) -> usize {
    // SAFETY: by the contract.
    len - unsafe { arch::copy(to, from, from + len, len) }
}

/// Copies all bytes of a slice to another one, of which one is memory of the caller: it may be the
/// mapping of a file, too.
///
/// # Errors
///
/// `EFAULT` if a page is invalid, and if the handler is installed; otherwise the process ends.
pub fn copy_all(from: &[u8], to: &mut [u8]) -> io::Result<()> {
    assert_eq!(from.len(), to.len(), "I16: a copy of all bytes");
    if !IS_SUPPORTED {
        to.copy_from_slice(from);
        return Ok(());
    }
    // SAFETY: I16. Both slices are borrowed until the copy has returned, and have its length.
    match unsafe { copy(from.as_ptr().addr(), to.as_mut_ptr(), to.len()) } {
        count if count == to.len() => Ok(()),
        _ => Err(io::Error::from_raw_os_error(libc::EFAULT)),
    }
}

/// Returns the byte at an address; `None` if its page is invalid, and if the handler is installed.
///
/// # Safety
///
/// It is valid for a read, or in a readable mapping of a file (**I16**).
#[inline]
pub unsafe fn load(from: *const u8) -> Option<u8> {
    // SAFETY: by the contract.
    u8::try_from(unsafe { arch::load(from) }).ok()
}

/// Starts to load the first bytes at an address into the processor's cache: a copy that is made
/// soon needs not wait for the page table and the memory.
#[inline]
pub fn prefetch(from: usize) {
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
    /// The length of the load's first instructions, of which the first one accesses memory.
    const LOAD_BYTES: usize = 4;

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

    /// Returns a byte, or a larger number if it is invalid.
    #[unsafe(naked)]
    pub(super) unsafe extern "sysv64" fn load(from: *const u8) -> u32 {
        core::arch::naked_asm!("movzx eax, byte ptr [rdi]", "ret", "mov eax, 256", "ret")
    }

    #[inline(always)]
    pub(super) fn prefetch(address: usize) {
        use core::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        // SAFETY: no memory is accessed: a prefetch is a hint, which faults at no address.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(address as *const i8) };
    }

    /// Ends the copy or load that an access to `address` has interrupted. Returns whether it is
    /// one.
    pub(super) fn end_access(address: usize, context: &mut libc::ucontext_t) -> bool {
        let (copy, load) = (copy as *const () as usize, load as *const () as usize);
        let registers = &mut context.uc_mcontext.gregs;
        let register = |number: i32| registers[number as usize] as usize;
        let (instruction, to) = (register(libc::REG_RIP), register(libc::REG_RDI));
        let is_in = |range| super::is_in_pages_of(address, range);
        let next = if instruction == copy {
            let source = register(libc::REG_RSI)..register(libc::REG_RDX);
            let is_own = is_in(source) || is_in(to..to.wrapping_add(register(libc::REG_RCX)));
            is_own.then_some(copy + REP_MOVSB_BYTES)
        } else {
            (instruction == load && is_in(to..to.wrapping_add(1))).then_some(load + LOAD_BYTES)
        };
        if let Some(next) = next {
            registers[libc::REG_RIP as usize] = next as i64;
        }
        next.is_some()
    }

    #[cfg(test)]
    #[test]
    fn the_copy_begins_with_the_instruction_that_may_fault() {
        // SAFETY: by the contract of a function's address: its first bytes are its code.
        let code = unsafe { *(copy as *const () as *const [u8; 3]) };
        assert_eq!(code, [0xf3, 0xa4, 0x48], "rep movsb, and the first byte of the next one");
        // SAFETY: as above.
        let code = unsafe { *(load as *const () as *const [u8; 5]) };
        assert_eq!(code, [0x0f, 0xb6, 0x07, 0xc3, 0xb8], "movzx; ret; mov");
    }
}

#[cfg(target_arch = "aarch64")]
mod arch {
    /// The distance from the begin of the copy to its end, behind all accesses.
    const END: usize = 15 * 4;
    /// The length of the load's first instructions, of which the first one accesses memory.
    const LOAD_BYTES: usize = 2 * 4;

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

    /// Returns a byte, or a larger number if it is invalid.
    #[unsafe(naked)]
    pub(super) unsafe extern "C" fn load(from: *const u8) -> u32 {
        core::arch::naked_asm!("ldrb w0, [x0]", "ret", "mov w0, #256", "ret")
    }

    #[inline(always)]
    pub(super) fn prefetch(address: usize) {
        // SAFETY: no memory is accessed: a prefetch is a hint, which faults at no address.
        unsafe {
            core::arch::asm!("prfm pldl1keep, [{}]", in(reg) address, options(nostack, readonly));
        }
    }

    /// Ends the copy or load that an access to `address` has interrupted. Returns whether it is
    /// one.
    pub(super) fn end_access(address: usize, context: &mut libc::ucontext_t) -> bool {
        let (copy, load) = (copy as *const () as usize, load as *const () as usize);
        let machine = &mut context.uc_mcontext;
        let (instruction, registers) = (machine.pc as usize, machine.regs.map(|it| it as usize));
        let is_in = |range| super::is_in_pages_of(address, range);
        let to = registers[0];
        let next = if (copy..copy + END).contains(&instruction) {
            // The last byte of the source may have been loaded, and not stored.
            let to = to..to.wrapping_add(registers[3]);
            (is_in(registers[1]..registers[2]) || is_in(to)).then_some(copy + END)
        } else {
            (instruction == load && is_in(to..to.wrapping_add(1))).then_some(load + LOAD_BYTES)
        };
        if let Some(next) = next {
            machine.pc = next as _;
        }
        next.is_some()
    }

    #[cfg(test)]
    #[test]
    fn the_copy_ends_where_the_handler_continues() {
        // SAFETY: by the contract of a function's address: its first bytes are its code.
        let code = unsafe { *(copy as *const () as *const [u32; 17]) };
        assert_eq!(code[15..], [0xaa03_03e0, 0xd65f_03c0], "mov x0, x3; ret");
        // SAFETY: as above.
        let code = unsafe { *(load as *const () as *const [u32; 3]) };
        assert_eq!(code, [0x3940_0000, 0xd65f_03c0, 0x5280_2000], "ldrb; ret; mov");
    }
}

#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
mod arch {
    pub(super) unsafe fn copy(_: *mut u8, _: usize, _: usize, _: usize) -> usize {
        unreachable!("no file is mapped on this architecture")
    }

    pub(super) unsafe fn load(_: *const u8) -> u32 {
        unreachable!("no file is mapped on this architecture")
    }

    pub(super) fn prefetch(_: usize) {}

    pub(super) fn end_access(_: usize, _: &mut libc::ucontext_t) -> bool {
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
static BEFORE: SignalChain = SignalChain::new();

/// Installs the handler, once in a process.
pub fn install_handler() -> io::Result<()> {
    static IS_INSTALLED: ForkLock<bool> = ForkLock::new(false);
    let mut is_installed = IS_INSTALLED.lock();
    if *is_installed || !IS_SUPPORTED {
        return Ok(());
    }
    let before = signal_chain::action(libc::SIGBUS)?;
    BEFORE.keep(before);
    // What the handler before ours expects of its own action holds for ours.
    let mut action = before;
    action.sa_sigaction = on_bus_error as *const () as usize;
    action.sa_flags &= libc::SA_RESTART | libc::SA_NODEFER;
    action.sa_flags |= libc::SA_SIGINFO | libc::SA_ONSTACK;
    signal_chain::set_action(libc::SIGBUS, &action)?;
    *is_installed = true;
    Ok(())
}

/// Whether SIGBUS has a handler: ours, or one that replaced it and is assumed to call it.
pub fn has_handler() -> bool {
    let is_handler = |action: usize| !matches!(action, libc::SIG_DFL | libc::SIG_IGN);
    !IS_SUPPORTED
        || signal_chain::action(libc::SIGBUS).is_ok_and(|action| is_handler(action.sa_sigaction))
}

/// The codes of a signal that the current instruction has raised: an invalid address, an error of
/// the device, and memory that has failed.
const OF_AN_ACCESS: std::ops::RangeInclusive<c_int> = 2..=4;

extern "C" fn on_bus_error(signal: c_int, info: *mut libc::siginfo_t, context: *mut c_void) {
    // SAFETY: by the contract of a signal handler, both structures are valid, and changes of the
    // registers apply when it returns. I16: they are changed for an access of `copy` or `load`
    // only.
    unsafe {
        if OF_AN_ACCESS.contains(&(*info).si_code)
            && arch::end_access((*info).si_addr() as usize, &mut *context.cast())
        {
            return;
        }
        if BEFORE.pass_on(signal, info, context) == Fate::Dies && !is_fault(signal, info) {
            signal_chain::send_again(signal);
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
    fn a_copy_ends_where_the_memory_was_truncated() {
        install_handler().unwrap();
        let page = page_bytes();
        let mut source = tempfile::tempfile().unwrap();
        source.write_all(&vec![7; 3 * page]).unwrap();
        let mapping = Mapping::new(source.as_raw_fd(), 3 * page, 0).unwrap();
        let memory = tempfile::tempfile().unwrap();
        memory.set_len(3 * page as u64).unwrap();
        let (access, shared) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED);
        let fd = memory.as_raw_fd();
        // SAFETY: by the contract of `mmap`: the kernel chooses the address.
        let to = unsafe { libc::mmap(std::ptr::null_mut(), 3 * page, access, shared, fd, 0) };
        assert_ne!(to, libc::MAP_FAILED);
        let at = |byte: usize| to.cast::<u8>().wrapping_add(byte);
        // SAFETY: I16. Both ranges are mapped.
        let copy = |byte: usize, len| unsafe { mapping.copy(0, at(byte), len) };
        // SAFETY: I16. The address is mapped.
        let last = |byte: usize| unsafe { load(at(byte)) };
        assert_eq!((copy(0, 3 * page), last(3 * page - 1)), (3 * page, Some(7)));
        memory.set_len(page as u64).unwrap();
        for (byte, len) in [(0, page), (page - 1, 1), (page, 0)] {
            assert_eq!(copy(byte, len), len);
        }
        for (byte, len) in [(page, 1), (page, 64), (2 * page + 5, page - 5), (page, 2 * page)] {
            assert_eq!(copy(byte, len), 0, "{len} bytes at {byte}");
        }
        for before in [1, 64, 100, page] {
            let copied = copy(page - before, before + 200);
            assert!(copied <= before && before - copied < 64, "{before}: {copied}");
        }
        assert_eq!([0, page - 1, page, 3 * page - 1].map(last), [Some(7), Some(7), None, None]);
        // SAFETY: by the contract of `munmap`: nothing refers to the mapping.
        unsafe { libc::munmap(to, 3 * page) };
    }

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
