//! Stacks of fibers: guarded, mapped in slabs, pooled by their worker.
//!
//! A stack is a power of two of bytes with a guard below it. Pages are touched lazily, so a stack
//! costs what it uses. [`pool`] hands stacks out and takes them back; [`slab`] maps them.

mod pool;
mod slab;

pub use pool::StackPool;

use corosensei::stack::{Stack as CoroutineStack, StackPointer};
use cringle_sys::lock::OnceLock;
use std::io;
use std::ops::Range;

/// The default stack of a fiber.
const DEFAULT_STACK_BYTES: usize = 1 << 20;
/// The stack of `run`'s closure, as large as a main thread's.
const MAIN_STACK_BYTES: usize = 8 << 20;
/// The smallest stack. Larger requests are rounded up to the next power of two.
const MIN_STACK_BYTES: usize = 16 << 10;
/// The number of sizes. The largest stacks have half of the address space.
const CLASSES: usize = 46 - MIN_STACK_BYTES.ilog2() as usize;
/// C code without stack probes can jump over a page, but hardly over this.
pub const GUARD_BYTES: usize = 64 << 10;
pub const PAGE_BYTES: usize = 4096;
/// More than the frames of a system call and the red zone below them.
const CALL_BYTES: usize = 1024;

/// One stack of a pool. Its memory belongs to a slab of the pool, which unmaps it.
#[derive(Debug)]
pub struct Stack {
    /// The highest address.
    top: StackPointer,
    /// The lowest address of the guard.
    bottom: StackPointer,
    /// The size as a power of two, and the slab among the slabs of this size.
    class: u8,
    slab: u32,
}

impl Stack {
    pub(super) fn bounds(&self) -> StackBounds {
        StackBounds { guard: self.bottom.get(), bytes: self.bytes() }
    }

    fn bytes(&self) -> usize {
        MIN_STACK_BYTES << self.class
    }
}

// SAFETY: the contract of `corosensei`. The memory between `bottom` and `top` is mapped, used by
// one coroutine at a time, and has an inaccessible guard at its low end (`Slab::carve`). At least
// MIN_STACK_BYTES are usable.
unsafe impl CoroutineStack for Stack {
    fn base(&self) -> StackPointer {
        self.top
    }

    fn limit(&self) -> StackPointer {
        self.bottom
    }
}

/// The addresses of a stack.
#[derive(Clone, Copy, Debug, Default)]
pub struct StackBounds {
    /// The lowest address of the guard.
    guard: usize,
    /// The bytes that a fiber may use.
    bytes: usize,
}

impl StackBounds {
    /// The offsets of its parts, for debuggers.
    pub(super) const GUARD: usize = std::mem::offset_of!(StackBounds, guard);
    pub(super) const BYTES: usize = std::mem::offset_of!(StackBounds, bytes);

    pub fn bytes(self) -> usize {
        self.bytes
    }

    /// All addresses of the stack, its guard included.
    pub fn range(self) -> Range<usize> {
        // Stacks start somewhere within their last page.
        self.guard..self.guard + GUARD_BYTES + self.bytes + PAGE_BYTES
    }

    /// The lowest address that a fiber may use, and the bytes from there.
    pub(super) fn area(self) -> (usize, usize) {
        (self.guard + GUARD_BYTES, self.bytes + PAGE_BYTES)
    }

    /// The addresses that a fiber may use.
    pub fn usable(self) -> Range<usize> {
        self.guard + GUARD_BYTES..self.range().end
    }

    /// Whether an access to `address` overflows the stack.
    pub fn guard_contains(self, address: usize) -> bool {
        (self.guard..self.guard + GUARD_BYTES).contains(&address)
    }

    /// Whether code with this stack pointer has used the stack up, apart from less than
    /// `NEAR_BYTES`. A large frame may lie below the guard, as far as it is not touched yet.
    pub fn is_used_up_at(self, pointer: usize) -> bool {
        const NEAR_BYTES: usize = 64 << 10;
        const LARGEST_FRAME: usize = 1 << 20;
        let lowest = self.guard.saturating_sub(LARGEST_FRAME);
        (lowest..self.guard + GUARD_BYTES + NEAR_BYTES).contains(&pointer)
    }

    /// Gives the pages below the caller's frame, which lies on this stack, back to the kernel. They
    /// read as zeroes when they are used again.
    #[inline(never)]
    pub(super) fn give_back_below_caller(self) {
        let (low, pointer) = (self.guard + GUARD_BYTES, pointer());
        // A fiber may be suspended on a stack that its own code has made; then these pages are in
        // use.
        if !self.range().contains(&pointer) {
            return;
        }
        let high = pointer.saturating_sub(CALL_BYTES) & !(PAGE_BYTES - 1);
        if high > low {
            // SAFETY: I2, I3. The pages belong to this stack. Its fiber runs here, so all of its
            // frames are above the stack pointer, and the calls that follow fit into CALL_BYTES.
            unsafe { give_back(low, high) };
        }
    }

    /// The bytes that the caller, which runs on this stack, may still use.
    pub(super) fn bytes_left(self) -> usize {
        let pointer = pointer();
        debug_assert!(self.range().contains(&pointer), "the caller runs on this stack");
        pointer.saturating_sub(self.guard + GUARD_BYTES)
    }
}

/// The stack pointer of the caller. (The address of a local variable is no substitute: under
/// AddressSanitizer such variables lie on the heap.)
#[inline(always)]
pub(super) fn pointer() -> usize {
    let pointer: usize;
    #[cfg(target_arch = "x86_64")]
    // SAFETY: by the contract of `asm!`. It reads the register and touches nothing else.
    unsafe {
        std::arch::asm!("mov {}, rsp", out(reg) pointer, options(nomem, nostack, preserves_flags));
    }
    #[cfg(target_arch = "aarch64")]
    // SAFETY: by the contract of `asm!`. It reads the register and touches nothing else.
    unsafe {
        std::arch::asm!("mov {}, sp", out(reg) pointer, options(nomem, nostack, preserves_flags));
    }
    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    {
        let here = 0u8;
        pointer = (&raw const here).addr();
    }
    pointer
}

/// Gives pages back to the kernel. In a process that locks its memory the kernel refuses, and they
/// stay.
///
/// # Safety
///
/// I2: they belong to a stack, and no frame on it lies there.
unsafe fn give_back(low: usize, high: usize) {
    // SAFETY: by the contract of this function.
    unsafe { libc::madvise(low as *mut _, high - low, libc::MADV_DONTNEED) };
}

/// The bytes of `RUST_MIN_STACK`, which raises the stacks of std's threads too.
#[inline]
fn min_stack_bytes() -> usize {
    static BYTES: OnceLock<usize> = OnceLock::new();
    *BYTES.get_or_init(|| {
        std::env::var("RUST_MIN_STACK").ok().and_then(|text| text.parse().ok()).unwrap_or(0)
    })
}

/// The stack of a fiber whose builder names no size.
#[inline]
pub fn default_stack_bytes() -> usize {
    DEFAULT_STACK_BYTES.max(min_stack_bytes())
}

/// The stack of `run`'s closure.
pub fn main_stack_bytes() -> usize {
    MAIN_STACK_BYTES.max(min_stack_bytes())
}

/// Refuses a size that does not fit into the address space.
pub fn check_stack_bytes(bytes: usize) -> io::Result<()> {
    class_of(bytes).map(drop)
}

/// The class of stacks with at least this many bytes.
fn class_of(bytes: usize) -> io::Result<usize> {
    let rounded = bytes.max(MIN_STACK_BYTES).checked_next_power_of_two();
    let class = rounded.map(|bytes| (bytes / MIN_STACK_BYTES).ilog2() as usize);
    class.filter(|&class| class < CLASSES).ok_or_else(|| {
        let text = format!("a stack of {bytes} bytes does not fit into the address space");
        io::Error::new(io::ErrorKind::InvalidInput, text)
    })
}
