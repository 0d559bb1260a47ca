//! A slab: one mapping with several stacks of a size, each with a guard below it.
//!
//! Guards are made by `MADV_GUARD_INSTALL` where the kernel has it (Linux 6.13). It splits no
//! mapping, so a million stacks fit under `vm.max_map_count`. Otherwise `mprotect` makes them,
//! which takes two mappings a stack. Each call tries the advice first, because it also fails in a
//! process that locks its memory.
//!
//! Two properties keep switches between stacks cheap. Stacks start at different places within a
//! page, or else the hot frames of all fibers would share a few sets of the level 1 cache. The
//! distance between two stacks is an odd number of pages, or else they would share a few sets of
//! the TLB.

use super::{GUARD_BYTES, PAGE_BYTES, Stack};
use std::io;
use std::num::NonZeroUsize;

/// Distance between the places within a page at which neighbouring stacks start.
const COLOUR_BYTES: usize = 192;
const COLOURS: usize = 8;

const MADV_GUARD_INSTALL: libc::c_int = 102;

/// See the module.
#[derive(Debug)]
pub(super) struct Slab {
    address: usize,
    stacks: usize,
    stack_bytes: usize,
    /// Stacks in use by fibers.
    pub(super) used: usize,
    /// Stacks that have been handed out, counted from the start. The others have no guard yet.
    carved: usize,
    /// Free stacks whose pages were given back.
    pub(super) cold: Vec<Stack>,
    /// The slab's position in its class's list of open slabs.
    pub(super) open_at: Option<usize>,
    /// The slab's position in its class's list of idle slabs.
    pub(super) idle_at: Option<usize>,
}

impl Slab {
    pub(super) fn map(stacks: usize, stack_bytes: usize) -> io::Result<Slab> {
        let bytes = stacks.checked_mul(stride(stack_bytes)).ok_or(io::ErrorKind::OutOfMemory)?;
        let address = map(bytes).map_err(|e| explain(e, stack_bytes))?;
        let (cold, open_at, idle_at) = (Vec::new(), None, None);
        Ok(Slab { address, stacks, stack_bytes, used: 0, carved: 0, cold, open_at, idle_at })
    }

    pub(super) fn bytes(&self) -> usize {
        self.stacks * stride(self.stack_bytes)
    }

    /// Unmaps the slab. False if the kernel refuses: it merges neighbouring mappings, and may have
    /// no number left to split them again.
    pub(super) fn unmap(&self) -> bool {
        // SAFETY: I2. The mapping belongs to this slab, and callers unmap it after its last fiber.
        unsafe { libc::munmap(self.address as *mut _, self.bytes()) == 0 }
    }

    /// Whether it has a stack that is neither warm nor in use.
    pub(super) fn is_open(&self) -> bool {
        !self.cold.is_empty() || self.carved < self.stacks
    }

    /// Hands out the next stack that was never used.
    pub(super) fn carve(&mut self, class: u8, slab: u32) -> io::Result<Stack> {
        debug_assert!(self.carved < self.stacks, "a slab with a stack left");
        let bottom = self.address + self.carved * stride(self.stack_bytes);
        protect(bottom)?;
        let colour = self.carved % COLOURS * COLOUR_BYTES;
        self.carved += 1;
        let top = bottom + GUARD_BYTES + self.stack_bytes + PAGE_BYTES - colour;
        let pointer = |address| NonZeroUsize::new(address).expect("a mapped address");
        Ok(Stack { top: pointer(top & !63), bottom: pointer(bottom), class, slab })
    }
}

/// The distance from one stack to the next: the guard, the stack, and a page to shift its start
/// in. An odd number of pages.
fn stride(bytes: usize) -> usize {
    let pages = (GUARD_BYTES + bytes) / PAGE_BYTES + 1;
    (pages | 1) * PAGE_BYTES
}

fn map(bytes: usize) -> io::Result<usize> {
    let protection = libc::PROT_READ | libc::PROT_WRITE;
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE | libc::MAP_STACK;
    // SAFETY: by the contract of `mmap`: a new mapping at an address of the kernel's choice
    // replaces none.
    let address = unsafe { libc::mmap(std::ptr::null_mut(), bytes, protection, flags, -1, 0) };
    if address == libc::MAP_FAILED {
        return Err(io::Error::last_os_error());
    }
    // With huge pages each stack would cost 2 MiB. Kernels without them return EINVAL, which is
    // as good.
    // SAFETY: by the contract of `madvise`: advice on the mapping just made.
    unsafe { libc::madvise(address, bytes, libc::MADV_NOHUGEPAGE) };
    Ok(address as usize)
}

/// Makes the guard at this address inaccessible.
fn protect(bottom: usize) -> io::Result<()> {
    let guard = bottom as *mut libc::c_void;
    // SAFETY: I2. The range is the guard of a stack that no fiber has had.
    unsafe {
        if libc::madvise(guard, GUARD_BYTES, MADV_GUARD_INSTALL) == 0
            || libc::mprotect(guard, GUARD_BYTES, libc::PROT_NONE) == 0
        {
            return Ok(());
        }
    }
    let e = io::Error::last_os_error();
    let text = format!(
        "cannot guard a fiber's stack: {e}; each stack needs two mappings on this kernel: raise \
         `sysctl vm.max_map_count`, or run fewer fibers at once"
    );
    Err(io::Error::new(e.kind(), text))
}

fn explain(e: io::Error, bytes: usize) -> io::Error {
    let text = format!(
        "cannot map a fiber's stack of {bytes} bytes: {e}; allow overcommit (`sysctl \
         vm.overcommit_memory=0`), raise RLIMIT_AS, or ask for smaller stacks \
         (fiber::Builder::stack_size)"
    );
    io::Error::new(io::ErrorKind::OutOfMemory, text)
}

const _: () = assert!(COLOURS * COLOUR_BYTES < PAGE_BYTES / 2, "hot frames stay in one page");
const _: () = assert!(GUARD_BYTES.is_multiple_of(PAGE_BYTES));
