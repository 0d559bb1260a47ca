//! The threads that are fibers and have neither been joined nor ended detached, by handle.
//!
//! A list of the registry is used within a [`Section`], so that a `fork` finds no list locked.
//! Nothing is allocated or freed under its lock.

use super::super::own_threads;
use super::super::queue::{self, ANY};
use super::exit::Place;
use cringle_core::interposition::Keeper;
use cringle_core::members::Address;
use cringle_core::worker::Current;
use cringle_sys::fork::Section;
use cringle_sys::lock::{Condvar, Mutex, MutexGuard};
use cringle_tls::Block;
use libc::pthread_t;
use std::cell::{Cell, UnsafeCell};
use std::ffi::c_int;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64};

const LISTS: usize = 64;

type List = Option<Arc<Thread>>;

static THREADS: [Mutex<List>; LISTS] = [const { Mutex::new(None) }; LISTS];

thread_local! {
    /// The record of the thread that runs on this block; null if it is not a fiber. Its keeper has
    /// the record until the block ends.
    static OWN: Cell<*const Thread> = const { Cell::new(std::ptr::null()) };
}

/// A thread that is a fiber.
pub(super) struct Thread {
    handle: pthread_t,
    state: Mutex<ThreadState>,
    /// The state of its cancellation: see [`cancel`](super::cancel).
    pub(super) cancellation: AtomicU32,
    /// The signals that other threads have sent it, as a set of the kernel's.
    pub(super) pending: AtomicU64,
    /// The signals that it blocks, as far as it is a fiber.
    pub(super) mask: AtomicU64,
    /// The threads of the system that wait for its start or its end.
    changed: Condvar,
    /// The next one of its list, under the lock of the list.
    next: UnsafeCell<List>,
}

// SAFETY: I14. `next` is used under the lock of its list.
unsafe impl Send for Thread {}
// SAFETY: I14. As above.
unsafe impl Sync for Thread {}

/// How far a thread has come.
pub(super) enum Progress {
    /// On its way to its worker.
    New,
    Running,
    /// Its closure was not called, because there was no memory for a stack.
    Failed,
    /// The block is free for others when this is given up.
    Ended(Block),
}

/// The thread of the system that runs it.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum On {
    Worker,
    /// One of its own, for a while. It blocks all signals, as the worker does.
    Guest,
    /// One of its own, until it ends.
    Own,
}

pub(super) struct ThreadState {
    pub(super) progress: Progress,
    pub(super) is_detached: bool,
    /// A caller waits for its end.
    pub(super) is_joined: bool,
    /// The value of its start routine, or of `pthread_exit`.
    pub(super) value: usize,
    /// The lowest address of its stack, and the size.
    pub(super) stack: (usize, usize),
    /// The kernel's number of the thread on which it began, or that it has for its own.
    pub(super) worker: libc::pid_t,
    pub(super) name: Option<[u8; 16]>,
    pub(super) on: On,
    /// Where a cancel reaches it, once it has begun.
    pub(super) address: Option<Address>,
    /// The threads of the system that wait for `changed`.
    waiting: u32,
}

fn list_of(handle: pthread_t) -> &'static Mutex<List> {
    let mixed = (handle as usize >> 6).wrapping_mul(0x9e37_79b9_7f4a_7c15_u64 as usize);
    &THREADS[mixed >> (usize::BITS - LISTS.ilog2())]
}

/// Adds a thread that is about to start, with its block's handle.
pub(super) fn add(handle: pthread_t, is_detached: bool, mask: u64) -> Arc<Thread> {
    let state = ThreadState {
        progress: Progress::New,
        is_detached,
        is_joined: false,
        value: 0,
        stack: (0, 0),
        worker: 0,
        name: None,
        on: On::Worker,
        address: None,
        waiting: 0,
    };
    let thread = Arc::new(Thread {
        handle,
        state: Mutex::new(state),
        cancellation: AtomicU32::new(0),
        pending: AtomicU64::new(0),
        mask: AtomicU64::new(mask),
        changed: Condvar::new(),
        next: UnsafeCell::new(None),
    });
    let added = Arc::clone(&thread);
    let _section = Section::enter();
    let mut list = list_of(handle).lock();
    // SAFETY: I14. The list's lock is held.
    unsafe { *added.next.get() = list.take() };
    *list = Some(added);
    thread
}

pub(super) fn find(handle: pthread_t) -> Option<Arc<Thread>> {
    let _section = Section::enter();
    let list = list_of(handle).lock();
    let mut next = list.as_ref();
    while let Some(thread) = next {
        if thread.handle == handle {
            return Some(Arc::clone(thread));
        }
        // SAFETY: I14. The list's lock is held.
        next = unsafe { (*thread.next.get()).as_ref() };
    }
    None
}

/// Makes this the record of the calling fiber, which begins with it; in a child of `fork`, none.
pub(super) fn set_own(thread: Option<&Arc<Thread>>) {
    OWN.set(thread.map_or(std::ptr::null(), Arc::as_ptr));
}

/// Calls `f` with the record of the calling thread, if it is a fiber. Takes no lock.
pub(super) fn with_own<R>(f: impl FnOnce(&Thread) -> R) -> Option<R> {
    // SAFETY: I2. The keeper of the block, on which the caller runs, has the record.
    unsafe { OWN.get().as_ref() }.map(f)
}

/// Calls `f` with each thread, under the lock of its list.
pub(super) fn for_each(mut f: impl FnMut(&Thread)) {
    for list in &THREADS {
        let _section = Section::enter();
        let list = list.lock();
        let mut next = list.as_ref();
        while let Some(thread) = next {
            f(thread);
            // SAFETY: I14. The list's lock is held.
            next = unsafe { (*thread.next.get()).as_ref() };
        }
    }
}

fn remove(handle: pthread_t) {
    let _removed = {
        let _section = Section::enter();
        let mut list = list_of(handle).lock();
        let mut place: *mut List = &mut *list;
        loop {
            // SAFETY: I14. The list's lock is held; each place is in a thread that the list owns.
            unsafe {
                match &*place {
                    None => break None,
                    Some(thread) if thread.handle == handle => {
                        let removed = (*place).take();
                        *place = removed.as_ref().and_then(|it| (*it.next.get()).take());
                        break removed;
                    }
                    Some(thread) => place = thread.next.get(),
                }
            }
        }
    };
}

impl Thread {
    pub(super) fn lock(&self) -> MutexGuard<'_, ThreadState> {
        self.state.lock()
    }

    /// The address in the queue of waiting fibers.
    pub(super) fn address(&self) -> usize {
        std::ptr::from_ref(self).addr()
    }

    /// Waits on a thread of the system for the next change, or for some time.
    pub(super) fn wait<'a>(
        &'a self,
        mut state: MutexGuard<'a, ThreadState>,
        limit: Option<std::time::Duration>,
    ) -> MutexGuard<'a, ThreadState> {
        state.waiting += 1;
        state = match limit {
            None => self.changed.wait(state),
            Some(limit) => self.changed.wait_timeout(state, limit).0,
        };
        state.waiting -= 1;
        state
    }

    /// Waits on a thread of the system until the thread has a stack. Returns the error's number.
    pub(super) fn wait_for_start(&self) -> c_int {
        let mut state = self.lock();
        while matches!(state.progress, Progress::New) {
            state = self.wait(state, None);
        }
        if matches!(state.progress, Progress::Failed) { libc::EAGAIN } else { 0 }
    }

    /// Wakes the callers that wait, after a change of how far the thread has come.
    pub(super) fn announce(&self, state: MutexGuard<'_, ThreadState>) {
        let has_waiting = state.waiting > 0;
        drop(state);
        if has_waiting {
            self.changed.notify_all();
        }
        queue::wake(self.address(), ANY, usize::MAX);
    }

    /// Takes the thread out of the registry: another thread may have the same handle from now on.
    pub(super) fn forget(&self) {
        remove(self.handle);
    }
}

impl Keeper for Thread {
    fn run_destructors(&self, run: &mut dyn FnMut()) {
        let current = Current::get();
        let set_in_program = |is_in| _ = current.map(|it| it.fiber.set_in_program(is_in));
        let mut run = || {
            set_in_program(true);
            run();
        };
        // After a `pthread_exit` in a destructor, the others run.
        while !Place::new().call(&mut run) {}
        set_in_program(false);
        own_threads::end();
    }

    fn take_back(&self, block: Block) -> Option<Block> {
        let mut state = self.lock();
        if state.is_detached {
            drop(state);
            self.forget();
            return Some(block);
        }
        state.progress = Progress::Ended(block);
        self.announce(state);
        None
    }
}
