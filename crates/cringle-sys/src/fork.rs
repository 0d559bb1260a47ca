//! `fork`, while other threads use what the whole process shares.
//!
//! A lock that another thread held at the fork stays locked in the child for ever, and the data
//! that it guards may be half changed. So a static, or a lock of glibc, that a child of `fork` may
//! use as well is used only within a [`Section`], and a `fork` waits until no thread is in a
//! section. A [`ForkLock`] is such a static.
//!
//! Such statics are the list of runtimes, the buffers and locks of `Direct::Bounce`, the queues of
//! file locks, a lock of the epoll drivers and the handlers of signals. (Refused: a handler of
//! `fork` that takes all the locks, which would need an order of them.)

use super::lock::{Mutex, MutexGuard};
use super::raw;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, Ordering};

/// A cache line, so that threads do not wait for each other's.
#[repr(align(128))]
struct Count(AtomicU32);

/// The threads in sections. Each counts itself in one of these.
static IN_SECTIONS: [Count; 16] = [const { Count(AtomicU32::new(0)) }; 16];
/// The calls of `fork` that wait, or are in the kernel.
static FORKS: AtomicU32 = AtomicU32::new(0);
/// The forks that lead from the first process to this one.
static GENERATION: AtomicU32 = AtomicU32::new(0);
/// Each is a `fn()` for the child, or null.
static IN_CHILD: [AtomicPtr<()>; 2] = [const { AtomicPtr::new(std::ptr::null_mut()) }; 2];

/// While a section exists, no `fork` copies the process. A thread is in one section at a time;
/// within it, the thread neither calls foreign code nor waits for such code.
pub struct Section(&'static Count);

impl Section {
    /// Enters a section. Waits while a `fork` is under way.
    // A thread that enters counts itself, then looks for a fork; a fork announces itself, then
    // looks at the counts. In the total order of these four, one sees the other.
    #[inline]
    pub fn enter() -> Section {
        // The addresses of two stacks almost always differ in these bits.
        let here = 0_u8;
        let place = ((&raw const here).addr() >> 12).wrapping_mul(0x9e37_79b9) >> 16;
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

/// A lock of what the whole process shares, which no `fork` copies while it is held. Its holder is
/// in a [`Section`].
pub struct ForkLock<T>(Mutex<T>);

/// Keeps the lock until it is dropped.
#[must_use]
pub struct ForkGuard<'a, T> {
    // Dropped before the section ends.
    guard: MutexGuard<'a, T>,
    _section: Section,
}

impl<T> ForkLock<T> {
    /// A lock that no thread holds.
    pub const fn new(value: T) -> ForkLock<T> {
        ForkLock(Mutex::new(value))
    }

    /// Waits for the lock, and for a `fork` that is under way.
    #[inline]
    pub fn lock(&self) -> ForkGuard<'_, T> {
        // Without a handler of `fork`, it is as any other lock.
        let _ = watch();
        let section = Section::enter();
        ForkGuard { guard: self.0.lock(), _section: section }
    }
}

derefs!([T] ForkGuard<'_, T> => T, |guard| &guard.guard, mut &mut guard.guard);

#[cold]
fn yield_to_others() {
    // SAFETY: I14. The call has no arguments.
    unsafe { raw::syscall!(SYS_sched_yield) };
}

/// The generation of this process. What another one has made belongs to an ancestor.
pub fn generation() -> u32 {
    GENERATION.load(Ordering::Relaxed)
}

/// The crates that have a function to be called in a child of `fork`.
#[derive(Clone, Copy)]
pub enum Caller {
    /// `cringle-tls`.
    ThreadLocals,
    /// `cringle-core`.
    Runtime,
}

/// Has `fork` call a function in the child, after the generation has changed. It may call nothing
/// of libc. Each caller has one such function. Installs the handlers of `fork`.
pub fn call_in_child(caller: Caller, f: fn()) -> Result<(), String> {
    IN_CHILD[caller as usize].store(f as *mut (), Ordering::Release);
    watch()
}

/// Has `fork` call the functions below. Takes no lock of ours, because a fork meanwhile could copy
/// that: two threads, or a child and its parent, may both install them. A fork may call each twice.
#[inline]
pub fn watch() -> Result<(), String> {
    static IS_WATCHED: AtomicBool = AtomicBool::new(false);
    if IS_WATCHED.load(Ordering::Acquire) {
        return Ok(());
    }
    // SAFETY: I14. The functions exist as long as the process, and call nothing of libc.
    match unsafe { libc::pthread_atfork(Some(before), Some(in_parent), Some(in_child)) } {
        0 => {
            IS_WATCHED.store(true, Ordering::Release);
            Ok(())
        }
        e => Err(format!("fork cannot be watched: {}", std::io::Error::from_raw_os_error(e))),
    }
}

/// Calls [`watch`] when the code is loaded, before `main`. `fork` calls the handlers that were
/// registered last first: so [`before`] waits for the threads in sections after the program's
/// handlers have taken their locks. Otherwise a thread could hold such a lock and wait for the end
/// of the fork, which waits for the lock.
#[cfg(not(any(loom, miri)))]
#[used]
#[unsafe(link_section = ".init_array")]
static AT_LOAD: extern "C" fn() = {
    extern "C" fn at_load() {
        // An allocator may register handlers that take its locks, at its first use. A thread in a
        // section may allocate, so these must be called later than ours: they are to be the older
        // ones.
        drop(std::hint::black_box(Box::new(0_u8)));
        let _ = watch();
    }
    at_load
};

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
    for f in &IN_CHILD {
        let f = f.load(Ordering::Acquire);
        if !f.is_null() {
            // SAFETY: I14. `call_in_child` has stored a function of this type.
            unsafe { std::mem::transmute::<*mut (), fn()>(f)() };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Barrier;

    /// Forks, and returns whether the child found that `f` holds.
    fn holds_in_child(f: impl FnOnce() -> bool) -> bool {
        let mut status = -1;
        // SAFETY: by the contract of `fork`: the child takes a lock, and ends without destructors.
        unsafe {
            match libc::fork() {
                -1 => panic!("no child: {}", std::io::Error::last_os_error()),
                0 => libc::_exit(i32::from(!f())),
                child => assert_eq!(libc::waitpid(child, &mut status, 0), child),
            }
        }
        libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == 0
    }

    #[test]
    fn a_fork_waits_for_a_holder_of_the_lock() {
        static NUMBERS: ForkLock<[u32; 2]> = ForkLock::new([0, 0]);
        let (before, is_held) = (generation(), Barrier::new(2));
        std::thread::scope(|s| {
            s.spawn(|| {
                let mut numbers = NUMBERS.lock();
                numbers[0] = 1;
                is_held.wait();
                // The other thread is within `fork`, which waits for this one.
                while FORKS.load(Ordering::SeqCst) == 0 {
                    std::thread::yield_now();
                }
                numbers[1] = 1;
            });
            is_held.wait();
            let is_whole = || match NUMBERS.0.try_lock() {
                Some(numbers) => *numbers == [1, 1] && generation() != before,
                None => false,
            };
            assert!(holds_in_child(is_whole));
        });
        assert_eq!((*NUMBERS.lock(), generation()), ([1, 1], before));
    }
}
