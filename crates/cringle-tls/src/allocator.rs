//! glibc's allocator, of whose state the blocks of a worker share one copy.
//!
//! glibc keeps two words of its allocator among its thread-locals: the cache of free chunks
//! (`tcache`), and the arena from which the thread allocates (`thread_arena`). A block of its own
//! would fill a cache of its own, of several KiB. So a block has the words of the thread on which
//! it runs. It gets them when it learns its worker, and loses them when its family ends: a block
//! that no family has refers to no thread, whose end frees its cache.
//!
//! This is right because the code of a worker's blocks runs on one thread, and glibc's allocator
//! neither calls code of the program nor waits in a call that can be interposed: no frame of it is
//! ever suspended (**I14**).
//!
//! # The arena
//!
//! An arena counts the threads that are attached to it. Blocks are not counted. glibc (2.34 to
//! 2.43) uses the count in three places:
//!
//! - At the end of a thread it must not be 0. Blocks do not end, and a thread is counted itself.
//! - A thread whose `main_arena` has no memory is detached from it (`arena_get_retry`), and glibc
//!   ends the process if the count is 0. Several blocks that name it would be detached. So they get
//!   another arena instead: one that was attached to a block of the check, and remains so.
//! - In a child of `fork` it becomes 1 for the arena of the caller's block, and 0 for all others,
//!   which are free for new threads then. The child's thread is the block from then on
//!   ([`Block::become_thread`]), and its end finds the 1.
//!
//! An arena without a count may be given to a new thread although blocks use it. It has a lock, as
//! for all arenas that threads share.
//!
//! # How the words are found
//!
//! The first `malloc` and `free` on a new block change these words of libc's and, but for `errno`,
//! no others. A chunk that was freed on one block is allocated on the next if this has the word of
//! the cache, and then that block uses no arena. If that is not so, such as with a cache of no
//! chunks or another `malloc`, each block keeps its own.

use super::block::Block;
use super::glibc::{Glibc, symbol};
use super::thread_pointer;
use std::hint::black_box;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};

static ARE_CACHES_OWN: AtomicBool = AtomicBool::new(false);

/// Makes each block keep a cache of its own, as a thread has: so a fiber may continue on another
/// thread in the middle of the allocator. Is called before the first block is made.
pub fn keep_own_caches() {
    ARE_CACHES_OWN.store(true, Ordering::Relaxed);
}

pub(super) fn are_caches_own() -> bool {
    ARE_CACHES_OWN.load(Ordering::Relaxed)
}

/// What is allocated to find the words: less than the largest chunk of any cache.
const BYTES: usize = 40;

/// A word among libc's thread-locals.
#[derive(Clone, Copy)]
struct Word {
    /// From the thread pointer.
    offset: isize,
    /// On a block that no code has used.
    initial: usize,
}

impl Word {
    /// # Safety
    ///
    /// I15: there is a block at this thread pointer.
    unsafe fn get(self, thread_pointer: usize) -> usize {
        let word = thread_pointer.wrapping_add_signed(self.offset) as *const usize;
        // SAFETY: I15. libc's thread-locals lie there in each block.
        unsafe { word.read_volatile() }
    }

    /// # Safety
    ///
    /// I14: only code of the calling thread runs on the block, or none.
    unsafe fn set(self, thread_pointer: usize, value: usize) {
        let word = thread_pointer.wrapping_add_signed(self.offset) as *mut usize;
        // SAFETY: I15. libc's thread-locals lie there in each block.
        unsafe { word.write_volatile(value) };
    }
}

/// See the module.
pub(super) struct Allocator {
    cache: Word,
    arena: Word,
    /// Where libc lies, and its `main_arena`.
    libc: Range<usize>,
    /// For the blocks of a thread whose arena is `main_arena`.
    spare_arena: usize,
}

/// The words of a thread.
#[derive(Clone, Copy)]
pub struct ThreadsCache {
    allocator: &'static Allocator,
    cache: usize,
    arena: usize,
}

impl ThreadsCache {
    /// The words of the calling thread, whose own block this is.
    pub fn of_thread(own: usize) -> Option<ThreadsCache> {
        let allocator = super::checked_glibc()?.allocator()?;
        // If the thread has allocated nothing yet.
        use_allocator();
        // SAFETY: I15. It is the calling thread's block.
        let [cache, mut arena] =
            [allocator.cache, allocator.arena].map(|word| unsafe { word.get(own) });
        if allocator.libc.contains(&arena) {
            arena = allocator.spare_arena;
        }
        (cache != allocator.cache.initial).then_some(ThreadsCache { allocator, cache, arena })
    }

    /// Makes a block use the thread's cache.
    ///
    /// # Safety
    ///
    /// I14: the block is not the thread's own, and has run on no other thread since its last
    /// [`Allocator::withdraw`], or no longer runs there. The calling thread is the thread.
    pub unsafe fn lend(&self, thread_pointer: usize) {
        // SAFETY: I14, by the contract.
        unsafe {
            self.allocator.cache.set(thread_pointer, self.cache);
            self.allocator.arena.set(thread_pointer, self.arena);
        }
    }
}

impl Allocator {
    /// Makes a block as one that has not allocated.
    ///
    /// # Safety
    ///
    /// I14: no code runs on the block.
    pub(super) unsafe fn withdraw(&self, thread_pointer: usize) {
        for word in [self.cache, self.arena] {
            // SAFETY: I14, by the contract.
            unsafe { word.set(thread_pointer, word.initial) };
        }
    }

    /// Finds the words, by two blocks that no code has used.
    ///
    /// # Safety
    ///
    /// I14: the caller runs on neither, and has both to itself.
    pub(super) unsafe fn find(glibc: &Glibc, [first, second]: [&Block; 2]) -> Option<Allocator> {
        let libc = glibc.link_map.place_of_libc()?;
        if !libc.extent.contains(&symbol(c"malloc").ok()?.addr().get()) {
            return None;
        }
        let [first, second] = [first, second].map(Block::thread_pointer);
        // SAFETY: I14, by the contract.
        let use_on = |block| unsafe { thread_pointer::on_block(block, use_allocator) };
        // SAFETY: I15. It is a block that no code runs on.
        let before = unsafe { libc.words(first) };
        let before = before.into_iter().map(|(offset, initial)| Word { offset, initial });
        // SAFETY: I14, by the contract.
        let chunk = unsafe { thread_pointer::on_block(first, fill_cache) };
        // SAFETY: I14, by the contract. The call returns the address of the block's.
        let errno = unsafe { thread_pointer::on_block(first, || libc::__errno_location().addr()) };
        let has_changed = |word: &Word| {
            let address = first.wrapping_add_signed(word.offset);
            // A failed system call within `malloc` sets it.
            let is_errno = (address..address + size_of::<usize>()).contains(&errno);
            // SAFETY: I15, as above.
            !is_errno && unsafe { word.get(first) } != word.initial
        };
        let changed: Vec<Word> = before.filter(has_changed).collect();
        let &[a, b] = &changed[..] else { return None };
        // SAFETY: I14, by the contract. A block gets what libc has written into the same word of
        // the other, and the code on the other has returned.
        let is_cache = |&(cache, arena): &(Word, Word)| unsafe {
            cache.set(second, cache.get(first));
            let is_shared = use_on(second) == chunk && arena.get(second) == arena.initial;
            cache.set(second, cache.initial);
            arena.set(second, arena.initial);
            is_shared && use_on(first) == chunk
        };
        let (cache, arena) = [(a, b), (b, a)].into_iter().find(is_cache)?;
        // SAFETY: as above.
        let arena_of_first = unsafe { arena.get(first) };
        let is_main = libc.extent.contains(&arena_of_first);
        let spare_arena = if is_main { arena.initial } else { arena_of_first };
        let found = Allocator { cache, arena, libc: libc.extent, spare_arena };
        // SAFETY: I14, by the contract. The first block is not used again, but stays attached to
        // its arena.
        unsafe { found.withdraw(first) };
        Some(found)
    }
}

/// Returns the address of a chunk that the cache has, and gives out next. The first allocation may
/// fill the cache with chunks that others have freed, so that a free goes past it; after a second
/// one it has room again. What the first one has returned is lost, once in a process.
fn fill_cache() -> usize {
    // SAFETY: I15. A call of libc.
    black_box(unsafe { libc::malloc(BYTES) });
    use_allocator()
}

/// Allocates a chunk and frees it. Returns its address.
fn use_allocator() -> usize {
    // SAFETY: I15. A call of libc, and another one with its result.
    unsafe {
        let chunk = black_box(libc::malloc(BYTES));
        libc::free(chunk);
        chunk as usize
    }
}

#[cfg(test)]
mod tests {
    #[test]
    #[cfg(all(target_env = "gnu", not(cringle_sanitizer)))]
    fn words_of_the_allocator_are_found() {
        let glibc = super::super::glibc().unwrap();
        assert!(glibc.allocator().is_some());
    }
}
