//! Reports a fiber's stack overflow, with the size of the stack and the remedy, and aborts.
//!
//! The handler runs on an alternate signal stack. std gives its threads one, and
//! [`SignalStack::ensure`] gives one to any other thread. The handler does only what a signal
//! handler may: it reads the current fiber's bounds, writes one line to standard error, and aborts.
//! It passes any other fault on to the handler before it.

use super::worker::Worker;
use crate::sys::lock::OnceLock;
use crate::sys::syscall;
use std::ffi::c_int;

const SIGNALS: [c_int; 2] = [libc::SIGSEGV, libc::SIGBUS];
/// The actions that were in force before ours, in the order of [`SIGNALS`].
static BEFORE: [OnceLock<libc::sigaction>; 2] = [OnceLock::new(), OnceLock::new()];

/// Installs the handler, once in a process.
pub(super) fn install_handler() {
    static INSTALLED: OnceLock<()> = OnceLock::new();
    INSTALLED.get_or_init(|| {
        for (signal, before) in SIGNALS.into_iter().zip(&BEFORE) {
            install(signal, before);
        }
    });
}

fn install(signal: c_int, before: &OnceLock<libc::sigaction>) {
    // SAFETY: by the contract of `sigaction`. All-zero is a valid value, the structures live for
    // the calls, and the handler does only what a handler may. The old action is stored before the
    // new one is in force.
    unsafe {
        let mut old: libc::sigaction = std::mem::zeroed();
        if libc::sigaction(signal, std::ptr::null(), &mut old) != 0 {
            return;
        }
        before.get_or_init(|| old);
        let mut new: libc::sigaction = std::mem::zeroed();
        new.sa_sigaction = on_fault as *const () as usize;
        new.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK | libc::SA_NODEFER;
        libc::sigemptyset(&mut new.sa_mask);
        libc::sigaction(signal, &new, std::ptr::null_mut());
    }
}

extern "C" fn on_fault(signal: c_int, info: *mut libc::siginfo_t, context: *mut libc::c_void) {
    // SAFETY: by the contract of a signal handler, the siginfo is valid. One with a positive code
    // comes from a fault, and has an address; one that `kill` sent has none.
    let address = unsafe { if (*info).si_code > 0 { (*info).si_addr() as usize } else { 0 } };
    if let Some((_, fiber)) = Worker::current() {
        let stack = fiber.stack();
        if stack.guard_contains(address) {
            report(fiber.meta().and_then(|meta| meta.name()), stack.bytes());
        }
    }
    pass_on(signal, info, context);
}

/// Writes the line without allocating, and aborts.
fn report(name: Option<&str>, stack_bytes: usize) -> ! {
    let mut line = Line { bytes: [0; 512], len: 0 };
    line.push(b"\ncringle: fiber '");
    line.push(name.unwrap_or("<unnamed>").as_bytes());
    line.push(b"' has overflowed its stack of ");
    line.push_number(stack_bytes / 1024);
    line.push(
        b" KiB; give it a larger one with fiber::Builder::stack_size, or raise RUST_MIN_STACK\n",
    );
    // SAFETY: by the contract of `write`. The bytes are initialised up to the length.
    unsafe {
        syscall!(SYS_write, libc::STDERR_FILENO, line.bytes.as_ptr(), line.len);
        libc::abort()
    }
}

struct Line {
    bytes: [u8; 512],
    len: usize,
}

impl Line {
    fn push(&mut self, text: &[u8]) {
        let room = &mut self.bytes[self.len..];
        // A long name is cut, so that the remedy after it fits.
        let count = text.len().min(room.len()).min(200);
        room[..count].copy_from_slice(&text[..count]);
        self.len += count;
    }

    fn push_number(&mut self, number: usize) {
        if number >= 10 {
            self.push_number(number / 10);
        }
        self.push(&[b'0' + (number % 10) as u8]);
    }
}

/// Does what would have happened without our handler.
fn pass_on(signal: c_int, info: *mut libc::siginfo_t, context: *mut libc::c_void) {
    let place = SIGNALS.iter().position(|&s| s == signal).expect("installed for these two");
    let before = BEFORE[place].get();
    let action = before.map_or(libc::SIG_DFL, |before| before.sa_sigaction);
    let flags = before.map_or(0, |before| before.sa_flags);
    // SAFETY: by the contract of `sigaction`. The address is that of a handler of the kind that its
    // flags name, as it was installed. The default action takes effect when the instruction faults
    // again.
    unsafe {
        match action {
            libc::SIG_DFL | libc::SIG_IGN => {
                libc::signal(signal, libc::SIG_DFL);
            }
            handler if flags & libc::SA_SIGINFO != 0 => {
                type Handler = extern "C" fn(c_int, *mut libc::siginfo_t, *mut libc::c_void);
                std::mem::transmute::<usize, Handler>(handler)(signal, info, context);
            }
            handler => std::mem::transmute::<usize, extern "C" fn(c_int)>(handler)(signal),
        }
    }
}

/// An alternate signal stack for a thread that had none, because C code made the thread. Removed
/// when dropped.
pub(super) struct SignalStack(Option<Box<[u8]>>);

impl SignalStack {
    pub(super) fn ensure() -> SignalStack {
        const BYTES: usize = 64 << 10;
        // SAFETY: by the contract of `sigaltstack`. The structures live for the calls, and the
        // memory until `drop` has disabled it.
        unsafe {
            let mut old: libc::stack_t = std::mem::zeroed();
            let result = libc::sigaltstack(std::ptr::null(), &mut old);
            if result != 0 || old.ss_flags & libc::SS_DISABLE == 0 {
                return SignalStack(None);
            }
            let mut memory = vec![0u8; BYTES].into_boxed_slice();
            let new =
                libc::stack_t { ss_sp: memory.as_mut_ptr().cast(), ss_flags: 0, ss_size: BYTES };
            libc::sigaltstack(&new, std::ptr::null_mut());
            SignalStack(Some(memory))
        }
    }
}

impl Drop for SignalStack {
    fn drop(&mut self) {
        if self.0.is_none() {
            return;
        }
        let none =
            libc::stack_t { ss_sp: std::ptr::null_mut(), ss_flags: libc::SS_DISABLE, ss_size: 0 };
        // SAFETY: by the contract of `sigaltstack`. Disabling only reads the structure; the memory
        // is freed after it.
        unsafe { libc::sigaltstack(&none, std::ptr::null_mut()) };
    }
}
