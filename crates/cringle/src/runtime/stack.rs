//! Stacks of fibers: mapped in slabs, guarded, pooled.
//!
//! A slab is one mapping that holds several stacks, each with a guard below it. Pages are touched
//! lazily, so a stack costs what it uses. Guards are made by `MADV_GUARD_INSTALL` where the kernel
//! has it (Linux 6.13): it splits no mapping, so a million stacks fit under `vm.max_map_count`.
//! Else by `mprotect`, which takes two mappings a stack. Which one is decided for each call, since
//! the advice also fails in a process that locks its memory.
//!
//! Two things keep switching cheap. Stacks do not start at the same place within a page (else the
//! hot frames of all fibers would share a few sets of the level 1 cache), and the distance between
//! two stacks is an odd number of pages (else they would share a few sets of the TLB).

use corosensei::stack::{Stack as CoroutineStack, StackPointer};
use std::io;
use std::num::NonZeroUsize;

/// What a fiber gets unless its builder says otherwise.
pub(crate) const DEFAULT_STACK_BYTES: usize = 1 << 20;
/// What the closure of `run` gets: as much as a program's main thread.
pub(crate) const MAIN_STACK_BYTES: usize = 8 << 20;
/// Smaller requests are rounded up to this.
pub(crate) const MIN_STACK_BYTES: usize = 16 << 10;
/// C code without stack probes can jump over a page; it does not jump over this.
pub(super) const GUARD_BYTES: usize = 64 << 10;
const PAGE_BYTES: usize = 4096;
/// Stacks mapped at once.
const SLAB_STACKS: usize = 64;
/// Distance between the places within a page at which neighbouring stacks start.
const COLOUR_BYTES: usize = 192;
const COLOURS: usize = 8;
/// Free stacks of one size that keep their touched pages. Those beyond give them back.
const WARM_STACKS: usize = 128;

const MADV_GUARD_INSTALL: libc::c_int = 102;

/// One stack, lent by a pool. It does not free itself: the pool's slab does.
#[derive(Debug)]
pub(crate) struct Stack {
    /// The highest address.
    top: StackPointer,
    /// The lowest address of the guard.
    bottom: StackPointer,
    /// What was asked for, rounded up: the pool it goes back to.
    class_bytes: usize,
}

impl Stack {
    /// The lowest address of the guard, and the bytes a fiber may use.
    pub(super) fn bounds(&self) -> (usize, usize) {
        (self.bottom.get(), self.class_bytes)
    }
}

/// Whether an access to `address` is an overflow of the stack whose guard begins at `guard`.
pub(super) fn guard_holds(guard: usize, address: usize) -> bool {
    (guard..guard + GUARD_BYTES).contains(&address)
}

/// Whether `address` lies on the stack whose guard begins at `guard`, or in the guard.
pub(super) fn holds(guard: usize, usable: usize, address: usize) -> bool {
    (guard..guard + GUARD_BYTES + usable + PAGE_BYTES).contains(&address)
}

// SAFETY: the memory between `bottom` and `top` is mapped, used by one coroutine at a time, and has
// an inaccessible guard at its low end; usable bytes are at least MIN_STACK_BYTES.
unsafe impl CoroutineStack for Stack {
    fn base(&self) -> StackPointer {
        self.top
    }

    fn limit(&self) -> StackPointer {
        self.bottom
    }
}

/// One mapping with `count` stacks of a class.
#[derive(Debug)]
struct Slab {
    address: usize,
    bytes: usize,
}

impl Drop for Slab {
    fn drop(&mut self) {
        // SAFETY: the mapping is ours alone, and I2: no fiber with a stack in it is left.
        unsafe { libc::munmap(self.address as *mut _, self.bytes) };
    }
}

/// All stacks of one size.
#[derive(Debug)]
struct Class {
    bytes: usize,
    free: Vec<Stack>,
    slabs: Vec<Slab>,
    /// Stacks of the newest slab that have not been handed out yet, and where the next one lies.
    fresh: usize,
    next_address: usize,
    handed_out: usize,
}

/// A worker's stacks.
#[derive(Debug, Default)]
pub(crate) struct StackPool {
    classes: Vec<Class>,
}

impl StackPool {
    /// A stack of at least so many bytes.
    pub(crate) fn take(&mut self, bytes: usize) -> io::Result<Stack> {
        let bytes = class_of(bytes)?;
        let class = match self.classes.iter().position(|class| class.bytes == bytes) {
            Some(at) => &mut self.classes[at],
            None => {
                self.classes.push(Class::new(bytes));
                self.classes.last_mut().expect("just pushed")
            }
        };
        class.take()
    }

    /// Takes back a stack on which nothing runs any more.
    pub(crate) fn give_back(&mut self, stack: Stack) {
        let class = self.classes.iter_mut().find(|class| class.bytes == stack.class_bytes);
        class.expect("a stack of this pool").give_back(stack);
    }
}

pub(super) fn class_of(bytes: usize) -> io::Result<usize> {
    let too_large = || {
        let text = format!("a stack of {bytes} bytes does not fit into the address space");
        io::Error::new(io::ErrorKind::InvalidInput, text)
    };
    let rounded = bytes.max(MIN_STACK_BYTES).checked_next_multiple_of(PAGE_BYTES);
    rounded.filter(|&bytes| bytes < 1 << 46).ok_or_else(too_large)
}

impl Class {
    fn new(bytes: usize) -> Class {
        let (free, slabs) = (Vec::new(), Vec::new());
        Class { bytes, free, slabs, fresh: 0, next_address: 0, handed_out: 0 }
    }

    fn take(&mut self) -> io::Result<Stack> {
        if let Some(stack) = self.free.pop() {
            return Ok(stack);
        }
        if self.fresh == 0 {
            self.map_slab()?;
        }
        let bottom = self.next_address;
        protect(bottom)?;
        self.next_address += stride(self.bytes);
        self.fresh -= 1;
        let colour = self.handed_out % COLOURS * COLOUR_BYTES;
        self.handed_out += 1;
        let top = bottom + GUARD_BYTES + self.bytes + PAGE_BYTES - colour;
        let pointer = |address| NonZeroUsize::new(address).expect("a mapped address");
        Ok(Stack { top: pointer(top & !63), bottom: pointer(bottom), class_bytes: self.bytes })
    }

    fn give_back(&mut self, stack: Stack) {
        if self.free.len() >= WARM_STACKS {
            let start = stack.bottom.get() + GUARD_BYTES;
            let bytes = self.bytes + PAGE_BYTES;
            // SAFETY: the range is this stack's own memory, and nothing lives on it any more.
            unsafe { libc::madvise(start as *mut _, bytes, libc::MADV_DONTNEED) };
        }
        self.free.push(stack);
    }

    /// Maps as many stacks as the system grants at once, down to one.
    fn map_slab(&mut self) -> io::Result<()> {
        // The closure of `run` needs one large stack; programs that ask for larger ones need few.
        let most = if self.bytes > DEFAULT_STACK_BYTES { 1 } else { SLAB_STACKS };
        let mut count = if self.slabs.is_empty() { most.min(8) } else { most };
        loop {
            let bytes = count.checked_mul(stride(self.bytes)).ok_or(io::ErrorKind::OutOfMemory)?;
            match map(bytes) {
                Ok(address) => {
                    self.slabs.push(Slab { address, bytes });
                    self.fresh = count;
                    self.next_address = address;
                    return Ok(());
                }
                Err(_) if count > 1 => count /= 2,
                Err(e) => return Err(explain(e, self.bytes)),
            }
        }
    }
}

/// From one stack to the next: the guard, the stack, and a page to shift its start in; an odd
/// number of pages.
fn stride(bytes: usize) -> usize {
    let pages = (GUARD_BYTES + bytes) / PAGE_BYTES + 1;
    (pages | 1) * PAGE_BYTES
}

fn map(bytes: usize) -> io::Result<usize> {
    let protection = libc::PROT_READ | libc::PROT_WRITE;
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE | libc::MAP_STACK;
    // SAFETY: a new mapping at an address of the kernel's choice.
    let address = unsafe { libc::mmap(std::ptr::null_mut(), bytes, protection, flags, -1, 0) };
    if address == libc::MAP_FAILED {
        return Err(io::Error::last_os_error());
    }
    // A huge page under a stack would make each fiber cost 2 MiB. Best effort: kernels without
    // huge pages answer EINVAL.
    // SAFETY: advice on the mapping just made.
    unsafe { libc::madvise(address, bytes, libc::MADV_NOHUGEPAGE) };
    Ok(address as usize)
}

/// Makes the guard at this address inaccessible.
fn protect(bottom: usize) -> io::Result<()> {
    let guard = bottom as *mut libc::c_void;
    // SAFETY: the range is the guard of a stack that was never used.
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
