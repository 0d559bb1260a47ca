//! A block: the descriptor and the thread-locals of what all code takes for a thread.
//!
//! Blocks are never freed. libc keeps state in a block that only the end of a thread could free,
//! and a block is in a list of glibc's. So a block is used again, by one family after another:
//! their own thread-locals begin anew, libc's stay as they are.

use super::destructor_list;
use super::glibc::Glibc;
use super::libc_state;
use super::modules::Modules;
use cringle_sys::fork;
use std::cell::{Cell, RefCell};
use std::ffi::c_void;
use std::io;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

/// The thread ids of blocks, which no thread of the kernel has: its ids are smaller than 2²².
const FIRST_ID: u32 = 1 << 22;
const LAST_ID: u32 = 1 << 30;
/// The bit of a thread's state in glibc that keeps cancels and changes of credentials away from the
/// thread.
const EXITING: u32 = 1 << 4;
/// The number of a thread that the kernel could not register for restartable sequences.
const NOT_REGISTERED: i32 = -2;
/// The rounds of destructors that POSIX asks for, where destructors leave values again.
const DESTRUCTOR_ROUNDS: usize = 4;

/// See the module. It belongs to a worker, or to the pool of the process.
pub struct Block {
    thread_pointer: NonNull<u8>,
    glibc: &'static Glibc,
    modules: RefCell<Arc<Modules>>,
    /// The process that has it in its list of threads.
    generation: Cell<u32>,
}

// SAFETY: I14. Nothing refers to the thread that made it.
unsafe impl Send for Block {}

impl Block {
    /// Makes a block in which no code has run.
    ///
    /// # Errors
    ///
    /// `OutOfMemory`, or the error of [`check`](super::check).
    pub fn new() -> io::Result<Block> {
        Block::with(super::glibc()?)
    }

    /// [`new`](Self::new) with a glibc that is not yet checked.
    pub(super) fn with(glibc: &'static Glibc) -> io::Result<Block> {
        let id = next_id()?;
        // SAFETY: I15. Without an argument it allocates the block, too.
        let block = unsafe { (glibc.allocate)(std::ptr::null_mut()) };
        let Some(thread_pointer) = NonNull::new(block.cast::<u8>()) else {
            let text = "no memory for the thread-locals of a fiber; run fewer fibers at once";
            return Err(io::Error::new(io::ErrorKind::OutOfMemory, text));
        };
        let modules = RefCell::new(Modules::now(glibc));
        let generation = Cell::new(fork::generation());
        let block = Block { thread_pointer, glibc, modules, generation };
        // SAFETY: I14. The block was just made.
        unsafe { block.fill(id) };
        Ok(block)
    }

    /// What the thread pointer is while code runs on the block.
    #[inline]
    pub fn thread_pointer(&self) -> usize {
        self.thread_pointer.addr().get()
    }

    /// What `pthread_self` returns on the block.
    pub fn handle(&self) -> usize {
        self.descriptor().addr().get()
    }

    /// Whether a `pthread_t` belongs to a block, as opposed to a thread of the system.
    ///
    /// # Safety
    ///
    /// I15: it is a thread that has not been joined, or a block.
    pub(super) unsafe fn has_handle(glibc: &Glibc, handle: usize) -> bool {
        let id = handle.wrapping_add(glibc.descriptor.thread_id) as *const u32;
        // SAFETY: I15, by the contract. The kernel writes 0 there when a thread ends.
        (FIRST_ID..=LAST_ID).contains(&unsafe { id.read_volatile() })
    }

    fn descriptor(&self) -> NonNull<u8> {
        // SAFETY: I15. The descriptor lies in the same allocation.
        unsafe { self.thread_pointer.offset(self.glibc.descriptor.from_thread_pointer) }
    }

    /// Sets what `pthread_create` sets in a descriptor.
    ///
    /// # Safety
    ///
    /// I14: the block is new.
    unsafe fn fill(&self, id: u32) {
        let Glibc { descriptor: at, stack_list, .. } = self.glibc;
        let descriptor = self.descriptor();
        // SAFETY: I14. The offsets are of this glibc, within a descriptor and thread-locals that no
        // code uses yet.
        unsafe {
            #[cfg(target_arch = "x86_64")]
            self.fill_header();
            descriptor.byte_add(at.thread_id).cast::<u32>().write(id);
            descriptor.byte_add(at.cancel_state).cast::<u32>().write(EXITING);
            // The values for the first keys lie in the descriptor itself.
            let own = (super::current() as isize + at.from_thread_pointer) as usize;
            let own_values = ((own + at.key_values) as *const usize).read();
            let values = descriptor.byte_add(own_values.wrapping_sub(own));
            descriptor.byte_add(at.key_values).cast::<*mut u8>().write(values.as_ptr());
            // An empty list of robust mutexes: the head refers to itself, and the word before it to
            // the head.
            let robust = descriptor.byte_add(at.robust_list).cast::<usize>();
            robust.write(robust.addr().get());
            robust.sub(1).write(robust.addr().get());
            let futex_offset = (own + at.robust_list) as *const isize;
            robust.cast::<isize>().add(1).write(futex_offset.add(1).read());
            if let Some(rseq) = self.glibc.rseq {
                let number = self.thread_pointer.byte_offset(rseq).cast::<i32>().add(1);
                number.write(NOT_REGISTERED);
            }
            if let Some(resolver) = &self.glibc.resolver {
                let state = descriptor.byte_add(resolver.state);
                self.thread_pointer
                    .byte_offset(resolver.pointer)
                    .cast::<*mut u8>()
                    .write(state.as_ptr());
            }
            stack_list.add(descriptor.byte_add(at.list).cast());
        }
    }

    /// The part of the descriptor whose layout the ABI fixes, because compiled code uses it.
    ///
    /// # Safety
    ///
    /// As for [`fill`](Self::fill).
    #[cfg(target_arch = "x86_64")]
    unsafe fn fill_header(&self) {
        const SELF: [usize; 2] = [0, 2];
        const HAS_THREADS: usize = 3;
        const CANARY: usize = 5;
        const POINTER_GUARD: usize = 6;
        let own = super::current() as *const usize;
        let words = self.thread_pointer.cast::<usize>();
        // SAFETY: I14, by the contract. The thread's own block has these words, too.
        unsafe {
            SELF.into_iter().for_each(|word| words.add(word).write(self.thread_pointer()));
            words.add(HAS_THREADS).cast::<u32>().write(1);
            for guard in [CANARY, POINTER_GUARD] {
                words.add(guard).write(own.add(guard).read());
            }
        }
    }

    /// Initialises what code must, before the first other code of a family runs on the block.
    ///
    /// # Safety
    ///
    /// I14: the caller runs on the block.
    pub unsafe fn begin(&self) {
        debug_assert_eq!(super::current(), self.thread_pointer(), "I14: the caller runs on it");
        // SAFETY: I14, by the contract.
        unsafe { libc_state::begin() };
    }

    /// Finds where libc keeps the list of destructors, once in a process.
    ///
    /// # Safety
    ///
    /// I14: the caller runs on the block, and no other code has.
    pub(super) unsafe fn find_destructor_list(&self) {
        // SAFETY: I14, by the contract.
        let found = unsafe { destructor_list::find(self.glibc, self.thread_pointer) };
        self.glibc.destructor_list.store(found.unwrap_or(0), Ordering::Relaxed);
    }

    /// Whether there is something for [`run_destructors`](Self::run_destructors) to do.
    ///
    /// # Safety
    ///
    /// I14: the caller runs on the block.
    pub unsafe fn has_destructors(&self) -> bool {
        let list = self.glibc.destructor_list.load(Ordering::Relaxed);
        // SAFETY: I14, I15. The caller runs on the block, and the head lies there.
        list == 0
            || unsafe { self.thread_pointer.byte_offset(list).cast::<usize>().read() } != 0
            || unsafe { self.has_key_values() }
    }

    /// Calls the destructors of the thread-locals, and of the values for keys.
    ///
    /// # Safety
    ///
    /// I14: the caller runs on the block.
    pub unsafe fn run_destructors(&self) {
        // SAFETY: I14. The caller runs on the block, as a thread does at its end.
        unsafe { self.destroy_values() };
    }

    /// Releases what libc keeps for the code that ran on the block. No destructor may be left.
    ///
    /// # Safety
    ///
    /// I14: the caller runs on the block.
    pub unsafe fn release(&self) {
        let resolver = self.glibc.resolver.as_ref();
        let resolver = resolver.map(|resolver| self.descriptor_at(resolver.state));
        let cancel_state = self.descriptor_at(self.glibc.descriptor.cancel_state).cast::<u32>();
        // SAFETY: I14. The caller runs on the block.
        unsafe {
            let was_changed = cancel_state.read_volatile() != EXITING;
            libc_state::end(resolver, self.glibc.close_resolver, was_changed);
        }
    }

    /// Calls the destructors, also of the values that these leave.
    ///
    /// # Safety
    ///
    /// I14: the caller runs on the block.
    unsafe fn destroy_values(&self) {
        for _ in 0..DESTRUCTOR_ROUNDS {
            // SAFETY: I14, by the contract.
            let had_values = unsafe {
                (self.glibc.call_destructors)();
                self.destroy_key_values()
            };
            if !had_values {
                return;
            }
        }
        // A destructor of a value may have made thread-locals. As in libc, values that are left are
        // forgotten: the next family must not see them.
        // SAFETY: as above.
        unsafe {
            (self.glibc.call_destructors)();
            self.forget_key_values();
        }
    }

    /// # Safety
    ///
    /// I14: the caller runs on the block.
    unsafe fn forget_key_values(&self) {
        let keys = &self.glibc.keys;
        for values in (0..keys.blocks).map(|block| self.key_values(block)) {
            if !values.is_null() {
                // SAFETY: I14. All zeros are values that were not set.
                unsafe { values.write_bytes(0, keys.values_in_block * keys.value_bytes) };
            }
        }
    }

    /// Whether there is a value for a key, with a destructor or without.
    ///
    /// # Safety
    ///
    /// I14: the caller runs on the block.
    unsafe fn has_key_values(&self) -> bool {
        let keys = &self.glibc.keys;
        (0..keys.blocks).any(|block| {
            let values = self.key_values(block);
            let data = |place: usize| {
                let at = place * keys.value_bytes + keys.value_data;
                // SAFETY: I14. The offsets are this glibc's.
                unsafe { values.byte_add(at).cast::<usize>().read() }
            };
            !values.is_null()
                && (0..keys.values_in_block).fold(0, |all, place| all | data(place)) != 0
        })
    }

    /// Calls the destructor of each value. Returns whether there was one with a destructor.
    ///
    /// # Safety
    ///
    /// I14: the caller runs on the block.
    unsafe fn destroy_key_values(&self) -> bool {
        let keys = &self.glibc.keys;
        let mut had_values = false;
        for block in 0..keys.blocks {
            let values = self.key_values(block);
            if values.is_null() {
                continue;
            }
            for place in 0..keys.values_in_block {
                // SAFETY: I14. The offsets are this glibc's.
                unsafe {
                    let value = values.byte_add(place * keys.value_bytes);
                    let data = value.byte_add(keys.value_data).cast::<*mut c_void>();
                    let argument = data.read_volatile();
                    if argument.is_null() {
                        continue;
                    }
                    data.write_volatile(std::ptr::null_mut());
                    let sequence = value.byte_add(keys.value_sequence).cast::<usize>().read();
                    if let Some(destroy) = self.destructor(block, place, sequence) {
                        had_values = true;
                        destroy(argument);
                    }
                }
            }
        }
        had_values
    }

    /// The destructor of a key, if it is still the key that the value was set for.
    unsafe fn destructor(
        &self,
        block: usize,
        place: usize,
        sequence: usize,
    ) -> Option<unsafe extern "C-unwind" fn(*mut c_void)> {
        let keys = &self.glibc.keys;
        // SAFETY: I14. glibc has as many keys as values; the offsets are this glibc's.
        unsafe {
            let key = keys.all.byte_add((block * keys.values_in_block + place) * keys.key_bytes);
            let current = key.byte_add(keys.key_sequence).cast::<usize>().read_volatile();
            let destructor = key.byte_add(keys.key_destructor);
            if current != sequence {
                return None;
            }
            destructor.cast::<Option<unsafe extern "C-unwind" fn(*mut c_void)>>().read_volatile()
        }
    }

    /// The values for 32 keys: null if none was ever set.
    fn key_values(&self, block: usize) -> *mut u8 {
        let at = self.glibc.descriptor.key_values + block * size_of::<usize>();
        // SAFETY: I14. The offset is this glibc's.
        unsafe { self.descriptor().byte_add(at).cast::<*mut u8>().read_volatile() }
    }

    /// Makes a block that the pool had usable in this process. That may be a child of the one that
    /// made the block.
    pub fn after_fork(&self) {
        let generation = fork::generation();
        if self.generation.replace(generation) == generation {
            return;
        }
        let link = self.descriptor_at(self.glibc.descriptor.list);
        // SAFETY: I14. The child's list was empty, and no code runs on the block. Modules that were
        // loaded while it was in no list are initialised by `reset`.
        unsafe {
            self.glibc.stack_list.add(link.cast());
            self.reset();
        }
    }

    /// Makes the block that the caller runs on the descriptor of its thread, in a child of `fork`.
    ///
    /// # Safety
    ///
    /// I14: the caller runs on a block, in a process without other threads.
    pub(super) unsafe fn become_thread(glibc: &Glibc) {
        let descriptor = super::current().wrapping_add_signed(glibc.descriptor.from_thread_pointer);
        let field = |offset: usize| (descriptor + offset) as *mut u8;
        // SAFETY: I14. glibc has put it into the list of the stacks that it frees itself.
        unsafe {
            glibc.stack_list.move_here(NonNull::new_unchecked(field(glibc.descriptor.list)).cast());
            // As of any thread, `setuid` changes its credentials.
            let state = field(glibc.descriptor.cancel_state).cast::<u32>();
            state.write_volatile(state.read_volatile() & !EXITING);
        }
    }

    fn descriptor_at(&self, offset: usize) -> NonNull<u8> {
        // SAFETY: I15. The offset is a field's.
        unsafe { self.descriptor().byte_add(offset) }
    }

    /// Takes back what it has of the state that an allocator keeps for the thread that it ran on.
    ///
    /// # Safety
    ///
    /// I14: no code runs on the block.
    pub unsafe fn withdraw_cache(&self) {
        if let Some(allocator) = self.glibc.allocator() {
            // SAFETY: I14, by the contract.
            unsafe { allocator.withdraw(self.thread_pointer()) };
        }
    }

    /// Prepares the block for the next family.
    ///
    /// # Safety
    ///
    /// I14: no code runs on the block, and no earlier code on it continues.
    pub unsafe fn reset(&self) {
        debug_assert_ne!(super::current(), self.thread_pointer(), "I14: the caller runs on it");
        // SAFETY: I15. The handle is this block's.
        let has_id = || unsafe { Block::has_handle(self.glibc, self.descriptor().addr().get()) };
        debug_assert!(has_id(), "I15: the id is where glibc has it");
        // SAFETY: I14, by the contract.
        unsafe { self.withdraw_cache() };
        let mut modules = self.modules.borrow_mut();
        // SAFETY: I14, by the contract.
        unsafe {
            if modules.lie_in_blocks() && modules.reset(self.glibc, self.thread_pointer()) {
                return;
            }
            self.free_loaded_later();
            while !modules.reset(self.glibc, self.thread_pointer()) {
                *modules = Modules::now(self.glibc);
            }
        }
    }

    /// Frees the thread-locals of modules that lie apart from the block, because the module was
    /// loaded later. They are made again when they are used.
    ///
    /// # Safety
    ///
    /// As for [`reset`](Self::reset).
    unsafe fn free_loaded_later(&self) {
        /// An entry of the table of modules. The one before the first has the number of entries.
        #[repr(C)]
        struct Entry {
            value: usize,
            allocation: *mut c_void,
        }
        const NOT_MADE: usize = usize::MAX;
        let table = self.glibc.descriptor.modules;
        // SAFETY: I14. glibc's table, which no code uses now. The allocations are `malloc`'s.
        unsafe {
            let table = self.descriptor().byte_add(table).cast::<*mut Entry>().read();
            let entries = (*table.sub(1)).value;
            for module in 1..=entries {
                let entry = &mut *table.add(module);
                if !entry.allocation.is_null() {
                    libc::free(entry.allocation);
                    *entry = Entry { value: NOT_MADE, allocation: std::ptr::null_mut() };
                }
            }
        }
    }
}

/// A process may have several copies of the library, in plugins. Locks of libc know their owners by
/// these ids, so each copy begins somewhere else, by the address at which it is loaded.
fn next_id() -> io::Result<u32> {
    static GIVEN: AtomicU32 = AtomicU32::new(0);
    const SPREAD: u64 = 0x9e37_79b9_7f4a_7c15;
    let count = GIVEN
        .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |count| {
            (count < LAST_ID - FIRST_ID).then_some(count + 1)
        })
        .map_err(|_| io::Error::other("a process has at most 2³⁰ blocks of thread-locals"))?;
    let first = ((&raw const GIVEN).addr() as u64).wrapping_mul(SPREAD) >> 32;
    Ok(FIRST_ID + ((first + u64::from(count)) % u64::from(LAST_ID - FIRST_ID + 1)) as u32)
}
