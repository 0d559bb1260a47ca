//! Thread-locals of a fiber's own.
//!
//! It is a part of the crate `cringle`, is published for it alone, and has no stable API.
//!
//! A compiled program finds its thread-locals by the *thread pointer*, a register (`fs` on x86-64,
//! `tpidr_el0` on aarch64). It points into a *block*: the descriptor that glibc keeps of a thread
//! (`struct pthread`), and the thread-locals of the program and of its libraries. So a fiber that
//! has a block, to which the worker points the register while the fiber runs, has thread-locals of
//! its own: to all code of the process it is a thread.
//!
//! `Fiber::switch_in` sets the register before it switches to the fiber's stack, by one
//! instruction. The worker's scheduler sets it back when no fiber follows, and before it does
//! anything but switch: the instruction takes longer than the rest of a switch.
//!
//! The fibers that share a block are a *family*. The closure of `run` keeps the
//! block of the calling thread, and the scheduler of a worker has a block of its own: no frame that
//! touches a thread-local ever runs on two blocks, so a compiler may keep the address of one as
//! long as it likes (**I14**).
//!
//! glibc makes a block (`_dl_allocate_tls`) and exports the offsets within its descriptor for
//! debuggers (`_thread_db_*`). [`mod@glibc`] finds them, [`self_test`] checks them once in a
//! process (**I15**), and a glibc that differs is refused with the reason.
//!
//! # The life of a block
//!
//! A block is in glibc's list of threads with stacks of the program's ([`stack_list`]), so
//! `dlopen`, `dlclose` and `fork` treat it as a thread. It has a thread id that the kernel never
//! gives out.
//!
//! The last fiber of a family runs the destructors of its thread-locals before its result can be
//! taken. The block is then used again: the worker restores the initial values of the modules'
//! thread-locals ([`modules`]), but not libc's. What a program sees of libc's (locale, `errno`, the
//! resolver's state, `dlerror`) is set back by libc's functions ([`libc_state`]). The allocator's
//! cache is the one of the worker's thread ([`allocator`]). Blocks are never freed, and a process
//! has as many as it had families at once.
//!
//! The handlers of `fork` are installed before the self-test ([`fork_guard`]). Blocks that no
//! worker keeps enter the child's list of threads when they are used again.
//!
//! # The modules
//!
//! | module | content |
//! |---|---|
//! | [`choice`], [`block`] | what the crates above use |
//! | [`thread_pointer`] | the register |
//! | [`mod@glibc`], [`self_test`], [`sanitizer`] | whether a fiber can have a block in this process |
//! | [`modules`], [`slots`], [`libc_state`], [`destructor_list`] | what a block holds, and how it is set back |
//! | [`stack_list`], [`fork_guard`], [`set_id`] | what libc does to all threads |
//! | [`allocator`] | the cache of the worker's thread |

// The readers of these pages are developers.
#![allow(rustdoc::private_intra_doc_links)]
#![deny(missing_docs)]

mod allocator;
mod block;
mod choice;
mod destructor_list;
mod fork_guard;
mod glibc;
mod libc_state;
mod modules;
mod sanitizer;
mod self_test;
mod set_id;
mod slots;
mod stack_list;
mod thread_pointer;

pub use allocator::{ThreadsCache, keep_own_caches};
pub use block::Block;
pub use choice::ThreadLocals;
pub use set_id::{note_other_list, note_thread, threads_own, with_kernels_number};
pub use thread_pointer::on_block;

use cringle_sys::fork::Caller;
use cringle_sys::lock::Mutex;
use glibc::Glibc;
use std::io;
use std::sync::atomic::{AtomicPtr, Ordering};

/// Null until the check has succeeded. Never freed.
static CHECKED: AtomicPtr<Glibc> = AtomicPtr::new(std::ptr::null_mut());
/// Is held during the check.
static CHECK: Mutex<()> = Mutex::new(());

/// Checks that a fiber can have a block here. Once it could, it always can.
///
/// # Errors
///
/// `Unsupported`, with the reason and the remedy.
pub fn check() -> io::Result<()> {
    glibc().map(|_| ())
}

/// Why a fiber cannot have a block here, if it cannot.
pub fn why_not() -> Option<String> {
    find_glibc().err().map(cannot)
}

fn cannot(why: String) -> String {
    format!("fibers cannot have thread-locals of their own: {why}")
}

/// Whether a `pthread_t` belongs to a block, as opposed to a thread of the system.
///
/// # Safety
///
/// I15: it is a thread that has not been joined, or a block.
pub unsafe fn is_block(handle: usize) -> bool {
    // SAFETY: I15, by the contract. Without a checked glibc no block was made.
    checked_glibc().is_some_and(|glibc| unsafe { Block::has_handle(glibc, handle) })
}

fn glibc() -> io::Result<&'static Glibc> {
    find_glibc().map_err(|why| {
        let remedy = if allocator::are_caches_own() {
            // The program's threads stay what they are.
            ""
        } else if cringle_sys::is_interposed() {
            "; do not call `cringle_interpose::install!`, which needs them"
        } else {
            "; without a choice (ThreadLocals::Private, Balance::Moving) fibers share those of \
             their worker here"
        };
        io::Error::new(io::ErrorKind::Unsupported, cannot(why) + remedy)
    })
}

fn checked_glibc() -> Option<&'static Glibc> {
    // SAFETY: I15. It is null, or was leaked.
    unsafe { CHECKED.load(Ordering::Acquire).as_ref() }
}

/// Runs the check, unless another thread has. A failure is not kept: a check that could not start a
/// thread may succeed later.
fn find_glibc() -> Result<&'static Glibc, String> {
    if let Some(glibc) = checked_glibc() {
        return Ok(glibc);
    }
    Glibc::check_platform()?;
    // First: a fork during the check must find the handlers, of which one ends the check in the
    // child.
    cringle_sys::fork::call_in_child(Caller::ThreadLocals, fork_guard::in_child)?;
    let _one_at_a_time = CHECK.lock();
    if let Some(glibc) = checked_glibc() {
        return Ok(glibc);
    }
    let glibc = self_test::run()?;
    CHECKED.store(std::ptr::from_ref(glibc).cast_mut(), Ordering::Release);
    Ok(glibc)
}

/// In a child of `fork`: forgets a check that a thread of the parent made meanwhile. The next `run`
/// makes another one.
fn forget_unfinished_check() {
    // SAFETY: I15. A fork is not called by the check, and its child has no other thread.
    unsafe { CHECK.unlock_in_child() };
}

/// Switches to the stacks and blocks of fibers, by code that has a block of its own. The thread
/// pointer goes back to that block when this is dropped.
///
/// Until then the code touches no thread-local, and its function contains none that a compiler
/// could move there. `cargo xtask switches` checks what the compiler makes of it (**I14**).
pub struct Switch {
    own: usize,
    block: usize,
}

impl Switch {
    /// Remembers the block of the calling code.
    #[inline(always)]
    pub fn begin() -> Switch {
        let own = current();
        Switch { own, block: own }
    }

    /// Points the thread pointer to a fiber's block, before the switch to its stack; 0 if it shares
    /// the caller's.
    ///
    /// # Safety
    ///
    /// I14: until the end of this value, the caller touches no thread-local but on the fiber's
    /// stack.
    #[inline(always)]
    pub unsafe fn point_to(&mut self, block: usize) {
        if block != self.block && block != 0 {
            self.block = block;
            // SAFETY: I14, by the contract.
            unsafe { thread_pointer::set_before_switch(block) };
        }
    }

    /// Checks that code on the fiber's stack has left the thread pointer as it was.
    #[inline(always)]
    pub fn check(&self) {
        debug_assert_eq!(current(), self.block, "I14: the fiber's block is in use");
    }
}

impl Drop for Switch {
    #[inline(always)]
    fn drop(&mut self) {
        thread_pointer::mark_end_of_switches();
        if self.block != self.own {
            // SAFETY: I14. The frame that has this value began on its own block.
            unsafe { thread_pointer::set(self.own) };
        }
    }
}

/// Returns the thread pointer of the calling code, which is never 0.
#[inline(always)]
pub fn current() -> usize {
    thread_pointer::get()
}
