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
/// Smaller requests are rounded up to this, larger ones to the next power of two.
pub(crate) const MIN_STACK_BYTES: usize = 16 << 10;
/// The largest stacks have half of the address space.
const CLASSES: usize = 46 - MIN_STACK_BYTES.ilog2() as usize;
/// C code without stack probes can jump over a page; it does not jump over this.
pub(super) const GUARD_BYTES: usize = 64 << 10;
const PAGE_BYTES: usize = 4096;
/// Stacks mapped at once.
const SLAB_STACKS: usize = 64;
/// Those of the first slab of a size: many programs have few fibers.
const FIRST_SLAB_STACKS: usize = 8;
/// Distance between the places within a page at which neighbouring stacks start.
const COLOUR_BYTES: usize = 192;
const COLOURS: usize = 8;
/// Free stacks of one size that keep their touched pages. Those beyond give them back.
const WARM_STACKS: usize = 128;
/// Address space of a worker's idle slabs that stays mapped: fans of a thousand fibers map nothing.
const MOST_IDLE_BYTES: usize = 3 << 29;

const MADV_GUARD_INSTALL: libc::c_int = 102;

/// How far the calling thread has come on the stack that it runs on. The address of a local variable does not say
/// so everywhere: AddressSanitizer keeps such variables on the heap.
#[inline(always)]
pub(super) fn pointer() -> usize {
    let pointer: usize;
    #[cfg(target_arch = "x86_64")]
    // SAFETY: I3. It reads the register and touches nothing else.
    unsafe {
        std::arch::asm!("mov {}, rsp", out(reg) pointer, options(nomem, nostack, preserves_flags));
    }
    #[cfg(target_arch = "aarch64")]
    // SAFETY: I3. It reads the register and touches nothing else.
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

/// One stack, lent by a pool. It does not free itself: the pool's slab does.
#[derive(Debug)]
pub(crate) struct Stack {
    /// The highest address.
    top: StackPointer,
    /// The lowest address of the guard.
    bottom: StackPointer,
    /// Where it goes back to: a power of two of bytes, and one of the slabs with such stacks.
    class: u8,
    slab: u32,
}

impl Stack {
    /// The lowest address of the guard, and the bytes a fiber may use.
    pub(super) fn bounds(&self) -> (usize, usize) {
        (self.bottom.get(), self.bytes())
    }

    fn bytes(&self) -> usize {
        MIN_STACK_BYTES << self.class
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

/// A worker's stacks, in classes by their size: the powers of two.
///
/// A *slab* is one mapping with several stacks. One that no fiber has a stack of is *idle*, and stays mapped for
/// the next fibers while all idle slabs together have at most [`MOST_IDLE_BYTES`]. Where the system refuses a
/// mapping, all idle slabs are unmapped first.
#[derive(Debug)]
pub(crate) struct StackPool {
    classes: [Class; CLASSES],
    idle_bytes: usize,
    /// A stack of the default size for a fiber that cannot have its own, and has to say so.
    reserve: Option<Stack>,
}

impl StackPool {
    /// An error where not even the reserve can be mapped.
    pub(super) fn with_reserve() -> io::Result<StackPool> {
        let classes = std::array::from_fn(Class::new);
        let mut pool = StackPool { classes, idle_bytes: 0, reserve: None };
        // A slab of its own: who starts no fibers maps no others.
        pool.classes[class_of(DEFAULT_STACK_BYTES)?].map_slab(1, &mut pool.idle_bytes)?;
        pool.reserve = Some(pool.take(DEFAULT_STACK_BYTES)?);
        Ok(pool)
    }

    /// A stack of at least this many bytes.
    pub(crate) fn take(&mut self, bytes: usize) -> io::Result<Stack> {
        let class = class_of(bytes)?;
        let taken = self.classes[class].take(&mut self.idle_bytes);
        taken.or_else(|e| match self.trim(0) {
            0 => Err(e),
            _ => self.classes[class].take(&mut self.idle_bytes),
        })
    }

    /// The reserve, or another stack of its size; `None` while both are in use.
    pub(crate) fn take_reserve(&mut self) -> Option<Stack> {
        self.take(DEFAULT_STACK_BYTES).ok().or_else(|| self.reserve.take())
    }

    /// Takes back a stack on which nothing runs any more.
    pub(crate) fn give_back(&mut self, stack: Stack) {
        if self.reserve.is_none() && stack.bytes() == DEFAULT_STACK_BYTES {
            self.reserve = Some(stack);
            return;
        }
        self.classes[stack.class as usize].give_back(stack, &mut self.idle_bytes);
        if self.idle_bytes > MOST_IDLE_BYTES {
            self.trim(MOST_IDLE_BYTES);
        }
    }

    /// Unmaps idle slabs, of the largest stacks first, until they have at most this many bytes; how many
    /// slabs it unmapped.
    pub(crate) fn trim(&mut self, most_idle_bytes: usize) -> usize {
        let mut unmapped = 0;
        for class in self.classes.iter_mut().rev() {
            while self.idle_bytes > most_idle_bytes && class.unmap_idle(&mut self.idle_bytes) {
                unmapped += 1;
            }
        }
        unmapped
    }
}

impl Drop for StackPool {
    fn drop(&mut self) {
        let slabs = self.classes.iter().flat_map(|class| class.slabs.iter().flatten());
        // Those that could not be unmapped between others can be when these are gone.
        let left: Vec<&Slab> = slabs.filter(|slab| !slab.unmap()).collect();
        left.into_iter().for_each(|slab| _ = slab.unmap());
    }
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

/// Refuses a size that no system could grant.
pub(super) fn check_size(bytes: usize) -> io::Result<()> {
    class_of(bytes).map(drop)
}

/// One mapping with stacks of a class.
#[derive(Debug)]
struct Slab {
    address: usize,
    stacks: usize,
    stack_bytes: usize,
    /// Stacks that fibers have.
    used: usize,
    /// Stacks from the beginning that have been used before; the others have no guard yet.
    carved: usize,
    /// Stacks that were used before, whose pages were given back.
    cold: Vec<Stack>,
    /// Where it is among the slabs of its class that have a cold or a new stack.
    open_at: Option<usize>,
    /// Where it is among the idle slabs of its class.
    idle_at: Option<usize>,
}

impl Slab {
    fn bytes(&self) -> usize {
        self.stacks * stride(self.stack_bytes)
    }

    /// False if the kernel refuses: it may need another mapping to split one that it has merged.
    fn unmap(&self) -> bool {
        // SAFETY: the mapping is ours alone, and I2: no fiber has a stack in it.
        unsafe { libc::munmap(self.address as *mut _, self.bytes()) == 0 }
    }

    fn is_open(&self) -> bool {
        !self.cold.is_empty() || self.carved < self.stacks
    }

    /// The next stack that was never used.
    fn carve(&mut self, class: u8, slab: u32) -> io::Result<Stack> {
        let bottom = self.address + self.carved * stride(self.stack_bytes);
        protect(bottom)?;
        let colour = self.carved % COLOURS * COLOUR_BYTES;
        self.carved += 1;
        let top = bottom + GUARD_BYTES + self.stack_bytes + PAGE_BYTES - colour;
        let pointer = |address| NonZeroUsize::new(address).expect("a mapped address");
        Ok(Stack { top: pointer(top & !63), bottom: pointer(bottom), class, slab })
    }
}

/// All stacks of one size.
#[derive(Debug)]
struct Class {
    index: u8,
    /// Free stacks that keep the pages they touched: the last ones that were given back.
    warm: Vec<Stack>,
    /// By the number that their stacks have; what was unmapped leaves a vacancy.
    slabs: Vec<Option<Slab>>,
    vacant: Vec<u32>,
    /// Slabs with a stack that is not warm and not in use.
    open: Vec<u32>,
    idle: Vec<u32>,
    /// A slab was mapped for a fiber.
    has_grown: bool,
}

impl Class {
    fn new(index: usize) -> Class {
        Class {
            index: index as u8,
            warm: Vec::new(),
            slabs: Vec::new(),
            vacant: Vec::new(),
            open: Vec::new(),
            idle: Vec::new(),
            has_grown: false,
        }
    }

    fn stack_bytes(&self) -> usize {
        MIN_STACK_BYTES << self.index
    }

    fn slab(&mut self, slab: u32) -> &mut Slab {
        self.slabs[slab as usize].as_mut().expect("a slab with a stack is mapped")
    }

    #[inline]
    fn take(&mut self, idle_bytes: &mut usize) -> io::Result<Stack> {
        let stack = match self.warm.pop() {
            Some(stack) => stack,
            None => self.take_cold(idle_bytes)?,
        };
        let slab = self.slab(stack.slab);
        slab.used += 1;
        if slab.used == 1 {
            *idle_bytes -= slab.bytes();
            self.note_idle(stack.slab, false);
        }
        Ok(stack)
    }

    #[cold]
    fn take_cold(&mut self, idle_bytes: &mut usize) -> io::Result<Stack> {
        let number = match self.open.last() {
            Some(&number) => number,
            None => self.map_more(idle_bytes)?,
        };
        let class = self.index;
        let slab = self.slab(number);
        let stack = match slab.cold.pop() {
            Some(stack) => stack,
            None => slab.carve(class, number)?,
        };
        if !slab.is_open() {
            self.note_open(number, false);
        }
        Ok(stack)
    }

    #[inline]
    fn give_back(&mut self, stack: Stack, idle_bytes: &mut usize) {
        let number = stack.slab;
        match self.warm.len() < WARM_STACKS {
            true => self.warm.push(stack),
            false => self.give_back_cold(stack),
        }
        let slab = self.slab(number);
        slab.used -= 1;
        if slab.used == 0 {
            *idle_bytes += slab.bytes();
            self.note_idle(number, true);
        }
    }

    #[cold]
    fn give_back_cold(&mut self, stack: Stack) {
        let number = stack.slab;
        let start = stack.bottom.get() + GUARD_BYTES;
        let bytes = self.stack_bytes() + PAGE_BYTES;
        // SAFETY: the range is this stack's own memory, and nothing lives on it any more.
        unsafe { libc::madvise(start as *mut _, bytes, libc::MADV_DONTNEED) };
        self.slab(number).cold.push(stack);
        self.note_open(number, true);
    }

    /// Lists a slab as open, or not any more.
    fn note_open(&mut self, number: u32, open: bool) {
        let Class { slabs, open: list, .. } = self;
        note(slabs, list, number, open, |slab| &mut slab.open_at);
    }

    /// Lists a slab as idle, or not any more.
    #[inline]
    fn note_idle(&mut self, number: u32, idle: bool) {
        let Class { slabs, idle: list, .. } = self;
        note(slabs, list, number, idle, |slab| &mut slab.idle_at);
    }

    /// Maps as many stacks as the system grants at once, down to one: the number of an idle slab.
    fn map_more(&mut self, idle_bytes: &mut usize) -> io::Result<u32> {
        // The closure of `run` needs one large stack; programs that ask for larger ones need few.
        let most = if self.stack_bytes() > DEFAULT_STACK_BYTES { 1 } else { SLAB_STACKS };
        let mut stacks = if self.has_grown { most } else { most.min(FIRST_SLAB_STACKS) };
        loop {
            match self.map_slab(stacks, idle_bytes) {
                Err(_) if stacks > 1 => stacks /= 2,
                mapped => {
                    self.has_grown = true;
                    return mapped;
                }
            }
        }
    }

    /// Maps a slab of this many stacks: its number. It is idle.
    fn map_slab(&mut self, stacks: usize, idle_bytes: &mut usize) -> io::Result<u32> {
        let stack_bytes = self.stack_bytes();
        let bytes = stacks.checked_mul(stride(stack_bytes)).ok_or(io::ErrorKind::OutOfMemory)?;
        let address = map(bytes).map_err(|e| explain(e, stack_bytes))?;
        let (cold, open_at, idle_at) = (Vec::new(), None, None);
        let slab =
            Slab { address, stacks, stack_bytes, used: 0, carved: 0, cold, open_at, idle_at };
        *idle_bytes += slab.bytes();
        let number = self.vacant.pop().unwrap_or(self.slabs.len() as u32);
        match self.slabs.get_mut(number as usize) {
            Some(place) => *place = Some(slab),
            None => self.slabs.push(Some(slab)),
        }
        self.note_open(number, true);
        self.note_idle(number, true);
        Ok(number)
    }

    /// Unmaps an idle slab; false if there is none, or the kernel refuses.
    fn unmap_idle(&mut self, idle_bytes: &mut usize) -> bool {
        let Some(&number) = self.idle.first() else { return false };
        if !self.slab(number).unmap() {
            return false;
        }
        self.note_idle(number, false);
        self.note_open(number, false);
        self.warm.retain(|stack| stack.slab != number);
        let slab = self.slabs[number as usize].take().expect("it was mapped");
        *idle_bytes -= slab.bytes();
        self.vacant.push(number);
        true
    }
}

/// Enters a slab in a list of its class, or strikes it out; nothing happens if that is done already.
#[inline]
fn note(
    slabs: &mut [Option<Slab>],
    list: &mut Vec<u32>,
    number: u32,
    listed: bool,
    place: fn(&mut Slab) -> &mut Option<usize>,
) {
    let Some(slab) = &mut slabs[number as usize] else { return };
    match (listed, *place(slab)) {
        (true, None) => {
            *place(slab) = Some(list.len());
            list.push(number);
        }
        (false, Some(at)) => {
            *place(slab) = None;
            list.swap_remove(at);
            if let Some(&moved) = list.get(at)
                && let Some(moved) = &mut slabs[moved as usize]
            {
                *place(moved) = Some(at);
            }
        }
        _ => {}
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
