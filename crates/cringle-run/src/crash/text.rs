//! The text of a crash, written from a signal handler: line by line, without an allocation.

use super::backtrace::{Backtrace, Modules};
use super::{Cause, Received};
use cringle_core::fiber::FiberRef;
use cringle_core::worker::Worker;
use cringle_sys as sys;

/// Reports that a fiber has overflowed its stack.
pub(super) fn report_overflow(fiber: FiberRef) {
    let mut line = Line::new();
    line.push(b"\ncringle: fiber '");
    line.push_name(fiber);
    line.push(b"' has overflowed its stack of ");
    line.push_number(fiber.stack().bytes() / 1024);
    line.push(
        b" KiB; give it a larger one with fiber::Builder::stack_size, or raise RUST_MIN_STACK",
    );
    line.end();
}

/// Reports the fiber on which the process dies.
pub(super) fn report_crash(
    received: &Received,
    worker: impl std::ops::Deref<Target = Worker>,
    fiber: FiberRef,
) {
    let mut line = Line::new();
    line.push(b"\ncringle: ");
    push_cause(&mut line, received, fiber);
    line.push(b" on fiber '");
    line.push_name(fiber);
    line.push(b"' (number ");
    line.push_number(fiber.id().index as usize);
    line.push(b"), worker ");
    line.push_number(worker.index() as usize);
    line.end();
    if let Some(meta) = fiber.meta().filter(|meta| meta.thread().is_none()) {
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
    let pointer = received.registers.stack_pointer;
    if area.contains(&pointer) {
        line.push(b", of which ");
        line.push_number((pointer - area.start) / 1024);
        line.push(b" KiB are unused");
    } else {
        line.push(b"; the stack pointer ");
        line.push_address(pointer);
        line.push(b" is not in it");
    }
    line.end();
    push_frames(&mut line, &Backtrace::of(fiber.stack(), &received.registers));
}

fn push_cause(line: &mut Line, received: &Received, fiber: FiberRef) {
    line.push(match received.signal {
        libc::SIGSEGV => b"SIGSEGV",
        libc::SIGBUS => b"SIGBUS",
        _ => b"SIGABRT",
    });
    match received.cause {
        Cause::Access(address) => {
            line.push(b" (access to ");
            line.push_address(address);
            if fiber.stack().guard_contains(address) {
                line.push(b", in the guard of the stack");
            }
            line.push(b")");
        }
        Cause::Refused => line.push(b" (an address or instruction that the processor refuses)"),
        // SAFETY: the call has no contract.
        Cause::Sent(sender) if sender != unsafe { libc::getpid() } => {
            line.push(b" (sent by process ");
            line.push_number(sender as usize);
            line.push(b")");
        }
        Cause::Sent(_) | Cause::Other => {}
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
}

impl Line {
    fn new() -> Line {
        Line { bytes: [0; 512], len: 0 }
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
        sys::write_to_stderr(&self.bytes[..self.len]);
        self.len = 0;
    }
}
