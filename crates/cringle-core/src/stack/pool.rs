//! The stacks of one worker, in classes by size.
//!
//! A class keeps *warm* stacks, whose touched pages stay, and *cold* ones, whose pages were given
//! back to the kernel. A slab without a stack in use is *idle*. It stays mapped for the next fibers
//! while all idle slabs together have at most [`MOST_IDLE_BYTES`]. If the kernel refuses a mapping,
//! all idle slabs are unmapped first.

use super::slab::Slab;
use super::{
    CLASSES, DEFAULT_STACK_BYTES, GUARD_BYTES, MIN_STACK_BYTES, PAGE_BYTES, Stack, class_of,
    give_back,
};
use std::io;

/// Stacks that are mapped at once.
const SLAB_STACKS: usize = 64;
/// Stacks in the first slab of a size: many programs have few fibers.
const FIRST_SLAB_STACKS: usize = 8;
/// Free stacks of one size that keep their touched pages.
const WARM_STACKS: usize = 128;
/// The top of a free stack, whose pages the next fiber uses in any case.
const SHALLOW_BYTES: usize = 8 << 10;
/// Address space of idle slabs that stays mapped, enough for a thousand default stacks.
const MOST_IDLE_BYTES: usize = 3 << 29;

/// See the module.
#[derive(Debug)]
pub struct StackPool {
    classes: [Class; CLASSES],
    idle_bytes: usize,
    /// A stack of the default size for a fiber that cannot get its own and has to report that.
    reserve: Option<Stack>,
}

impl StackPool {
    /// Returns a pool that has a reserve; an error if not even that can be mapped.
    pub fn with_reserve() -> io::Result<StackPool> {
        let classes = std::array::from_fn(Class::new);
        let mut pool = StackPool { classes, idle_bytes: 0, reserve: None };
        // In a slab of its own: a worker without fibers maps no other.
        pool.classes[class_of(DEFAULT_STACK_BYTES)?].map_slab(1, &mut pool.idle_bytes)?;
        pool.reserve = Some(pool.take(DEFAULT_STACK_BYTES)?);
        Ok(pool)
    }

    /// Takes a stack of at least this many bytes.
    pub fn take(&mut self, bytes: usize) -> io::Result<Stack> {
        let class = class_of(bytes)?;
        let taken = self.classes[class].take(&mut self.idle_bytes);
        taken.or_else(|e| match self.trim(0) {
            0 => Err(e),
            _ => self.classes[class].take(&mut self.idle_bytes),
        })
    }

    /// Takes another stack of the reserve's size, or else the reserve; `None` while it is in use.
    pub(crate) fn take_reserve(&mut self) -> Option<Stack> {
        self.take(DEFAULT_STACK_BYTES).ok().or_else(|| self.reserve.take())
    }

    /// Takes back a stack on which nothing runs any more.
    pub fn give_back(&mut self, stack: Stack) {
        if self.reserve.is_none() && stack.bytes() == DEFAULT_STACK_BYTES {
            self.reserve = Some(stack);
            return;
        }
        self.classes[stack.class as usize].give_back(stack, &mut self.idle_bytes);
        if self.idle_bytes > MOST_IDLE_BYTES {
            self.trim(MOST_IDLE_BYTES);
        }
    }

    /// Gives the deep pages of the stacks back that were free since the last call.
    pub(crate) fn give_idle_pages_back(&mut self) {
        self.classes.iter_mut().for_each(Class::give_idle_pages_back);
    }

    /// Unmaps idle slabs, the slabs of the largest stacks first, until they have at most this many
    /// bytes. Returns the number of slabs that it unmapped.
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
        // A slab that lies between others may be unmapped only after them: see `Slab::unmap`.
        let left: Vec<&Slab> = slabs.filter(|slab| !slab.unmap()).collect();
        left.into_iter().for_each(|slab| _ = slab.unmap());
    }
}

/// All stacks of one size.
#[derive(Debug)]
struct Class {
    index: u8,
    /// Free stacks that keep the pages they touched, the last one that was given back on top.
    warm: Vec<Stack>,
    /// Of these, the lowest have not been taken since the last search for idle ones, and the lowest
    /// of those have given their deep pages back.
    untouched: usize,
    shallow: usize,
    /// By the number that their stacks have. An unmapped slab leaves a vacancy.
    slabs: Vec<Option<Slab>>,
    vacant: Vec<u32>,
    /// Slabs with a stack that is neither warm nor in use.
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
            untouched: 0,
            shallow: 0,
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
            Some(stack) => {
                self.untouched = self.untouched.min(self.warm.len());
                stack
            }
            None => self.take_cold(idle_bytes)?,
        };
        let slab = self.slab(stack.slab);
        slab.used += 1;
        if slab.used == 1 {
            *idle_bytes -= slab.bytes();
            self.list_idle(stack.slab, false);
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
            self.list_open(number, false);
        }
        Ok(stack)
    }

    #[inline]
    fn give_back(&mut self, stack: Stack, idle_bytes: &mut usize) {
        let number = stack.slab;
        if self.warm.len() < WARM_STACKS {
            self.warm.push(stack);
        } else {
            self.give_back_cold(stack);
        }
        let slab = self.slab(number);
        debug_assert!(slab.used > 0, "a stack is given back once");
        slab.used -= 1;
        if slab.used == 0 {
            *idle_bytes += slab.bytes();
            self.list_idle(number, true);
        }
    }

    fn give_idle_pages_back(&mut self) {
        self.shallow = self.shallow.min(self.untouched);
        for stack in &self.warm[self.shallow..self.untouched] {
            let (low, top) = (stack.bottom.get() + GUARD_BYTES, stack.top.get());
            let high = (top - SHALLOW_BYTES) & !(PAGE_BYTES - 1);
            // SAFETY: I2. The range is this stack's own memory, and its fiber has ended.
            unsafe { give_back(low, high.max(low)) };
        }
        self.shallow = self.untouched;
        self.untouched = self.warm.len();
    }

    #[cold]
    fn give_back_cold(&mut self, stack: Stack) {
        let number = stack.slab;
        let start = stack.bottom.get() + GUARD_BYTES;
        // SAFETY: I2. The range is this stack's own memory, and its fiber has ended.
        unsafe { give_back(start, start + self.stack_bytes() + PAGE_BYTES) };
        self.slab(number).cold.push(stack);
        self.list_open(number, true);
    }

    /// Enters a slab in the list of open ones, or strikes it out.
    fn list_open(&mut self, number: u32, open: bool) {
        let Class { slabs, open: list, .. } = self;
        set_listed(slabs, list, number, open, |slab| &mut slab.open_at);
    }

    /// Enters a slab in the list of idle ones, or strikes it out.
    #[inline]
    fn list_idle(&mut self, number: u32, idle: bool) {
        let Class { slabs, idle: list, .. } = self;
        set_listed(slabs, list, number, idle, |slab| &mut slab.idle_at);
    }

    /// Maps as many stacks as the kernel grants at once, down to one. Returns the number of the
    /// slab, which is idle.
    fn map_more(&mut self, idle_bytes: &mut usize) -> io::Result<u32> {
        // A run has one main stack, and programs that ask for larger ones need few.
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

    /// Maps a slab of this many stacks. Returns its number. It is idle.
    fn map_slab(&mut self, stacks: usize, idle_bytes: &mut usize) -> io::Result<u32> {
        let slab = Slab::map(stacks, self.stack_bytes())?;
        *idle_bytes += slab.bytes();
        let number = self.vacant.pop().unwrap_or(self.slabs.len() as u32);
        match self.slabs.get_mut(number as usize) {
            Some(place) => *place = Some(slab),
            None => self.slabs.push(Some(slab)),
        }
        self.list_open(number, true);
        self.list_idle(number, true);
        Ok(number)
    }

    /// Unmaps an idle slab. False if none is idle, or the kernel refuses.
    fn unmap_idle(&mut self, idle_bytes: &mut usize) -> bool {
        let Some(&number) = self.idle.first() else { return false };
        debug_assert_eq!(self.slab(number).used, 0, "I2: a fiber has a stack in an idle slab");
        if !self.slab(number).unmap() {
            return false;
        }
        self.list_idle(number, false);
        self.list_open(number, false);
        self.warm.retain(|stack| stack.slab != number);
        (self.untouched, self.shallow) = (0, 0);
        let slab = self.slabs[number as usize].take().expect("it was mapped");
        *idle_bytes -= slab.bytes();
        self.vacant.push(number);
        true
    }
}

/// Enters a slab in a list of its class, or strikes it out, in constant time: the slab knows its
/// position. Does nothing if the list is in that state already.
#[inline]
fn set_listed(
    slabs: &mut [Option<Slab>],
    list: &mut Vec<u32>,
    number: u32,
    listed: bool,
    position: fn(&mut Slab) -> &mut Option<usize>,
) {
    let Some(slab) = &mut slabs[number as usize] else { return };
    match (listed, *position(slab)) {
        (true, None) => {
            *position(slab) = Some(list.len());
            list.push(number);
        }
        (false, Some(at)) => {
            *position(slab) = None;
            list.swap_remove(at);
            if let Some(&moved) = list.get(at)
                && let Some(moved) = &mut slabs[moved as usize]
            {
                *position(moved) = Some(at);
            }
        }
        _ => {}
    }
}
