//! The frames of a fiber that has crashed, and the files that their code is from: read in a signal
//! handler, without an allocation.
//!
//! The unwinder begins with the frames of the handler, on the signal stack, and continues with the
//! frames that the signal has interrupted. It finds tables without a lock where glibc has
//! `_dl_find_object` (2.35).

use super::Registers;
use cringle_core::frames::{
    _Unwind_Backtrace, _Unwind_GetCFA, _Unwind_GetIPInfo, CONTINUE, Context, STOP,
};
use cringle_core::stack::{PAGE_BYTES, StackBounds};
use cringle_sys::syscall;
use std::ffi::{c_int, c_void};
use std::ops::Range;

const MOST_FRAMES: usize = 48;

/// The addresses of code in the frames of one stack, the innermost first.
pub(super) struct Backtrace {
    stack: Range<usize>,
    addresses: [usize; MOST_FRAMES],
    len: usize,
}

impl Backtrace {
    /// The caller's frames on this stack. A signal has interrupted the caller with these registers.
    pub(super) fn of(stack: StackBounds, registers: &Registers) -> Backtrace {
        let mut backtrace = Backtrace { stack: stack.range(), addresses: [0; MOST_FRAMES], len: 0 };
        // The unwinder reads the interrupted instruction.
        if is_mapped(registers.instruction) {
            backtrace.walk();
        }
        // After a jump to an address without code, the caller's frame is unknown; but a call has
        // just stored the return address.
        if backtrace.len <= 1 {
            let caller = registers.link.or_else(|| word_at(stack, registers.stack_pointer));
            backtrace.addresses[0] = registers.instruction;
            backtrace.addresses[1] = caller.unwrap_or(0).wrapping_sub(1);
            backtrace.len = 1 + usize::from(caller.is_some_and(is_mapped));
        }
        backtrace
    }

    fn walk(&mut self) {
        // SAFETY: by the contract of the unwinder. The callback has the right type, and its
        // argument lives until the walk ends.
        unsafe { _Unwind_Backtrace(on_frame, std::ptr::from_mut(self).cast()) };
    }

    pub(super) fn addresses(&self) -> &[usize] {
        &self.addresses[..self.len]
    }
}

/// Whether the page of an address is mapped, as far as the kernel reports it.
fn is_mapped(address: usize) -> bool {
    let (page, mut residency) = (address & !(PAGE_BYTES - 1), 0_u8);
    // SAFETY: by the contract of `mincore`: it writes a byte for the page, and accesses no other
    // memory.
    let result = unsafe { syscall!(SYS_mincore, page, 1_usize, &raw mut residency) };
    result != -(libc::ENOMEM as isize)
}

/// The word at the stack pointer, if that points into the stack.
fn word_at(stack: StackBounds, pointer: usize) -> Option<usize> {
    let is_within = stack.usable().contains(&pointer)
        && stack.usable().contains(&(pointer + size_of::<usize>() - 1));
    // SAFETY: I2. The memory of the stack exists, because its fiber runs, and is readable above the
    // guard.
    is_within.then(|| unsafe { (pointer as *const usize).read_unaligned() })
}

extern "C" fn on_frame(context: *mut Context, backtrace: *mut c_void) -> c_int {
    // SAFETY: by the contract of the unwinder, this is the argument of `_Unwind_Backtrace` in
    // `Backtrace::walk`. Only this function uses it.
    let backtrace = unsafe { &mut *backtrace.cast::<Backtrace>() };
    let mut before = 0;
    // SAFETY: by the contract of the unwinder, this is the context of a frame.
    let (cfa, address) =
        unsafe { (_Unwind_GetCFA(context), _Unwind_GetIPInfo(context, &raw mut before)) };
    if !backtrace.stack.contains(&cfa) {
        // The handler's frames precede the fiber's, and the scheduler's follow them.
        return if backtrace.len == 0 { CONTINUE } else { STOP };
    }
    // A return address points behind the call, perhaps into the next function.
    backtrace.addresses[backtrace.len] =
        if before == 0 { address.wrapping_sub(1) } else { address };
    backtrace.len += 1;
    if backtrace.len < MOST_FRAMES { CONTINUE } else { STOP }
}

const MOST_MODULES: usize = 8;
const PATH_BYTES: usize = 240;

/// A file that is mapped for its code.
#[derive(Clone, Copy)]
pub(super) struct Module {
    /// The mapped addresses, from the first mapping of the file to the last that has a frame.
    range: (usize, usize),
    path: [u8; PATH_BYTES],
    path_len: usize,
}

impl Module {
    const NONE: Module = Module { range: (0, 0), path: [0; PATH_BYTES], path_len: 0 };

    pub(super) fn path(&self) -> &[u8] {
        &self.path[..self.path_len]
    }

    /// The address as the file's symbols have it.
    pub(super) fn offset(&self, address: usize) -> usize {
        const ET_EXEC: u16 = 2;
        // SAFETY: by the contract of `/proc/self/maps`, a readable mapping of the file begins here
        // (`Modules::add`). Its first page is the header of ELF, which has the type at 16.
        let kind = unsafe { ((self.range.0 + 16) as *const u16).read_volatile() };
        if kind == ET_EXEC { address } else { address - self.range.0 }
    }
}

/// The files of a backtrace, by `/proc/self/maps`. None if that cannot be read.
pub(super) struct Modules {
    found: [Module; MOST_MODULES],
    len: usize,
    /// The file of the last mappings.
    current: Module,
}

impl Modules {
    pub(super) fn of(backtrace: &Backtrace) -> Modules {
        let mut modules =
            Modules { found: [Module::NONE; MOST_MODULES], len: 0, current: Module::NONE };
        let path = c"/proc/self/maps".as_ptr();
        let flags = libc::O_RDONLY | libc::O_CLOEXEC;
        // SAFETY: by the contract of `openat`: the path is a C string.
        let fd = unsafe { syscall!(SYS_openat, libc::AT_FDCWD, path, flags, 0) };
        if fd >= 0 {
            modules.read(fd as c_int, backtrace);
            // SAFETY: by the contract of `close`. This function alone has the descriptor.
            unsafe { syscall!(SYS_close, fd) };
        }
        modules
    }

    pub(super) fn find(&self, address: usize) -> Option<&Module> {
        let found = self.found[..self.len].iter();
        found.clone().find(|module| (module.range.0..module.range.1).contains(&address))
    }

    fn read(&mut self, fd: c_int, backtrace: &Backtrace) {
        // The longest line that is read in full; of a longer one, the path is cut.
        let mut line = [0; 128 + PATH_BYTES];
        let mut len = 0;
        let mut buffer = [0u8; 1024];
        loop {
            // SAFETY: the buffer is borrowed for the call, which writes at most its length.
            let count = unsafe { syscall!(SYS_read, fd, buffer.as_mut_ptr(), buffer.len()) };
            if count <= 0 {
                return;
            }
            for &byte in &buffer[..count as usize] {
                if byte == b'\n' {
                    self.add(&line[..len], backtrace);
                    len = 0;
                } else if len < line.len() {
                    line[len] = byte;
                    len += 1;
                }
            }
        }
    }

    /// Considers one mapping: `start-end rwxp offset device inode path`.
    fn add(&mut self, line: &[u8], backtrace: &Backtrace) -> Option<()> {
        let (start, rest) = hex(line)?;
        let (end, rest) = hex(rest.strip_prefix(b"-")?)?;
        let path = rest.iter().position(|&byte| byte == b'/').map(|at| &rest[at..])?;
        let path = &path[..path.len().min(PATH_BYTES)];
        if self.current.path() != path {
            let is_readable = rest.get(1) == Some(&b'r');
            self.current = Module { range: (start, end), ..Module::NONE };
            self.current.path_len = if is_readable { path.len() } else { 0 };
            self.current.path[..path.len()].copy_from_slice(path);
        }
        let has_frame = backtrace.addresses().iter().any(|at| (start..end).contains(at));
        if has_frame && self.current.path_len > 0 {
            self.current.range.1 = end;
            let is_known = self.len > 0 && self.found[self.len - 1].range.0 == self.current.range.0;
            let at = if is_known { self.len - 1 } else { self.len };
            *self.found.get_mut(at)? = self.current;
            self.len = at + 1;
        }
        Some(())
    }
}

/// Reads a hexadecimal number. Returns it, and what follows.
fn hex(text: &[u8]) -> Option<(usize, &[u8])> {
    let len = text.iter().take_while(|byte| byte.is_ascii_hexdigit()).count();
    let digit = |&byte: &u8| (byte as char).to_digit(16).unwrap_or_default() as usize;
    let number = text[..len].iter().fold(0, |number, byte| number << 4 | digit(byte));
    (len > 0).then_some((number, &text[len..]))
}
