//! The text of a crash, written from a signal handler: line by line, without an allocation.

use super::Received;
use super::backtrace::{Backtrace, Modules};
use crate::runtime::fiber::FiberRef;
use crate::runtime::worker::Worker;
use crate::sys::{self, syscall};

/// Reports that a fiber has overflowed its stack, and aborts.
pub(super) fn report_overflow(fiber: FiberRef) -> ! {
    let mut line = Line::new();
    line.push(b"\ncringle: fiber '");
    line.push_name(fiber);
    line.push(b"' has overflowed its stack of ");
    line.push_number(fiber.stack().bytes() / 1024);
    line.push(
        b" KiB; give it a larger one with fiber::Builder::stack_size, or raise RUST_MIN_STACK",
    );
    line.end();
    // SAFETY: the call has no contract.
    unsafe { libc::abort() }
}

/// Reports the fiber on which the process dies.
pub(super) fn report_crash(
    received: &Received,
    worker: impl std::ops::Deref<Target = Worker>,
    fiber: FiberRef,
) {
    let mut line = Line::new();
    line.push(b"\ncringle: ");
    push_cause(&mut line, received);
    line.push(b" on fiber '");
    line.push_name(fiber);
    line.push(b"' (number ");
    line.push_number(fiber.id().index as usize);
    line.push(b"), worker ");
    line.push_number(worker.index() as usize);
    line.end();
    if let Some(meta) = fiber.meta() {
        let spawned = meta.spawned();
        line.push(b"    spawned at ");
        line.push(spawned.file().as_bytes());
        line.push(b":");
        line.push_number(spawned.line() as usize);
        line.push(b":");
        line.push_number(spawned.column() as usize);
        line.end();
    }
    let area = fiber.stack().usable();
    line.push(b"    stack ");
    line.push_address(area.start);
    line.push(b" to ");
    line.push_address(area.end);
    if area.contains(&received.stack_pointer) {
        line.push(b", of which ");
        line.push_number((received.stack_pointer - area.start) / 1024);
        line.push(b" KiB are unused");
    } else {
        line.push(b"; the stack pointer ");
        line.push_address(received.stack_pointer);
        line.push(b" is not in it");
    }
    line.end();
    push_frames(&mut line, &Backtrace::of(fiber.stack().range()));
}

fn push_cause(line: &mut Line, received: &Received) {
    line.push(match received.signal {
        libc::SIGSEGV => b"SIGSEGV",
        libc::SIGBUS => b"SIGBUS",
        _ => b"SIGABRT",
    });
    match received.fault {
        Some(address) => {
            line.push(b" (access to ");
            line.push_address(address);
            line.push(b")");
        }
        // SAFETY: the call has no contract.
        None if received.sender != unsafe { libc::getpid() } => {
            line.push(b" (sent by process ");
            line.push_number(received.sender as usize);
            line.push(b")");
        }
        None => {}
    }
}

fn push_frames(line: &mut Line, backtrace: &Backtrace) {
    let modules = Modules::of(backtrace);
    for &address in backtrace.addresses() {
        line.push(b"    ");
        match modules.find(address) {
            Some(module) => {
                line.push(module.path());
                line.push(b"+");
                line.push_address(module.offset(address));
            }
            None => line.push_address(address),
        }
        line.end();
    }
    // The outermost frame is the library's, and so of the program.
    let Some(program) = backtrace.addresses().last().and_then(|&at| modules.find(at)) else {
        return;
    };
    line.push(b"    names and lines: addr2line -Cfpie ");
    line.push(program.path());
    for &address in backtrace.addresses() {
        if modules.find(address).is_some_and(|module| std::ptr::eq(module, program)) {
            line.push(b" ");
            line.push_address(program.offset(address));
        }
    }
    line.end();
}

/// A line on the way to standard error.
struct Line {
    bytes: [u8; 512],
    len: usize,
    is_given_up: bool,
}

/// The time for which a line waits for a reader of standard error. After that, the rest of the text
/// is dropped: a pipe that is full must not keep the process, which dies next.
const PATIENCE: libc::timespec = libc::timespec { tv_sec: 1, tv_nsec: 0 };

impl Line {
    fn new() -> Line {
        Line { bytes: [0; 512], len: 0, is_given_up: false }
    }

    fn push(&mut self, text: &[u8]) {
        for &byte in text {
            if self.len == self.bytes.len() {
                self.flush();
            }
            self.bytes[self.len] = byte;
            self.len += 1;
        }
    }

    /// A long name is cut.
    fn push_name(&mut self, fiber: FiberRef) {
        let name = fiber.meta().and_then(|meta| meta.name()).unwrap_or("<unnamed>").as_bytes();
        self.push(&name[..name.len().min(200)]);
    }

    fn push_number(&mut self, number: usize) {
        if number >= 10 {
            self.push_number(number / 10);
        }
        self.push(&[b'0' + (number % 10) as u8]);
    }

    fn push_address(&mut self, address: usize) {
        self.push(b"0x");
        let digits = (usize::BITS - address.leading_zeros()).div_ceil(4).max(1);
        for digit in (0..digits).rev() {
            self.push(&[b"0123456789abcdef"[address >> (4 * digit) & 0xf]]);
        }
    }

    fn end(&mut self) {
        self.push(b"\n");
        self.flush();
    }

    fn flush(&mut self) {
        let (fd, events) = (libc::STDERR_FILENO, libc::POLLOUT);
        let mut poll = libc::pollfd { fd, events, revents: 0 };
        // A pipe that is ready takes a line: this many bytes without a wait.
        const { assert!(size_of::<Line>() < libc::PIPE_BUF) };
        if !self.is_given_up {
            // A profiler's timer interrupts the wait again and again.
            let mut waits = (0..100).map(|_| sys::poll_once(&mut poll, Some(&PATIENCE)));
            let end = waits.find(|&result| result != -libc::EINTR as isize);
            self.is_given_up = end.is_none_or(|ready| ready == 0);
        }
        if !self.is_given_up {
            // SAFETY: by the contract of `write`. The bytes are initialised up to the length.
            unsafe { syscall!(SYS_write, libc::STDERR_FILENO, self.bytes.as_ptr(), self.len) };
        }
        self.len = 0;
    }
}
