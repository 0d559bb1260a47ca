//! `fork`, while fibers start and end.
//!
//! A child has a copy of each lock, in the state of the moment. One that another thread held stays
//! locked for ever. glibc's `fork` takes or resets its own locks but one: that of
//! `dl_iterate_phdr`, which a worker holds while it lists the modules, and at the end of a family
//! after `dlopen`. So that lock and those of this module are used within a [`Section`], and a
//! `fork` waits until no thread is in one.
//!
//! glibc empties its list of threads in the child. If the caller of `fork` ran on a block, that is
//! the descriptor of the child's only thread from then on.

use super::{Block, set_id, thread_pointer};
use crate::sys::raw;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

/// A cache line, so that workers do not wait for each other's.
#[repr(align(128))]
struct Count(AtomicU32);

/// The threads in sections. Each counts itself in one of these.
static IN_SECTIONS: [Count; 16] = [const { Count(AtomicU32::new(0)) }; 16];
/// The calls of `fork` that wait, or are in the kernel.
static FORKS: AtomicU32 = AtomicU32::new(0);
/// The forks that lead from the first process to this one.
static GENERATION: AtomicU32 = AtomicU32::new(0);

/// While it exists, no `fork` copies the process. A thread is in one at a time, and neither calls
/// foreign code nor waits for it.
pub(crate) struct Section(&'static Count);

impl Section {
    // A thread that enters counts itself, then looks for a fork; a fork announces itself, then
    // looks at the counts. In the total order of these four, one sees the other.
    #[inline]
    pub(crate) fn enter() -> Section {
        // The blocks of two workers differ in these bits as good as always.
        let place = (thread_pointer::get() >> 6).wrapping_mul(0x9e37_79b9) >> 16;
        let count = &IN_SECTIONS[place % IN_SECTIONS.len()];
        loop {
            count.0.fetch_add(1, Ordering::SeqCst);
            if FORKS.load(Ordering::SeqCst) == 0 {
                return Section(count);
            }
            count.0.fetch_sub(1, Ordering::SeqCst);
            while FORKS.load(Ordering::SeqCst) != 0 {
                yield_to_others();
            }
        }
    }
}

impl Drop for Section {
    #[inline]
    fn drop(&mut self) {
        self.0.0.fetch_sub(1, Ordering::Release);
    }
}

#[cold]
fn yield_to_others() {
    // SAFETY: I14. The call has no arguments.
    unsafe { raw::syscall!(SYS_sched_yield) };
}

/// The generation of this process. A block of another one is in no list.
pub(super) fn generation() -> u32 {
    GENERATION.load(Ordering::Relaxed)
}

/// Has `fork` call the functions below. Takes no lock of ours, because a fork meanwhile could copy
/// that: two threads, or a child and its parent, may both install them. A fork may call each twice.
pub(super) fn install() -> Result<(), String> {
    static IS_INSTALLED: AtomicBool = AtomicBool::new(false);
    if IS_INSTALLED.load(Ordering::Acquire) {
        return Ok(());
    }
    // SAFETY: I15. The functions exist as long as the process, and call nothing of libc.
    match unsafe { libc::pthread_atfork(Some(before), Some(in_parent), Some(in_child)) } {
        0 => {
            IS_INSTALLED.store(true, Ordering::Release);
            Ok(())
        }
        e => Err(format!("fork cannot be watched: {}", std::io::Error::from_raw_os_error(e))),
    }
}

unsafe extern "C" fn before() {
    FORKS.fetch_add(1, Ordering::SeqCst);
    for count in &IN_SECTIONS {
        while count.0.load(Ordering::SeqCst) != 0 {
            yield_to_others();
        }
    }
}

unsafe extern "C" fn in_parent() {
    FORKS.fetch_sub(1, Ordering::SeqCst);
}

unsafe extern "C" fn in_child() {
    IN_SECTIONS.iter().for_each(|count| count.0.store(0, Ordering::Relaxed));
    FORKS.store(0, Ordering::SeqCst);
    GENERATION.fetch_add(1, Ordering::Relaxed);
    super::forget_unfinished_check();
    if let Some(own) = set_id::forget_thread()
        && let Some(glibc) = super::checked_glibc()
    {
        glibc.end_rseq(own);
        // SAFETY: I14. This code runs on a block, as the child's only thread.
        unsafe { Block::become_thread(glibc) };
    }
}
