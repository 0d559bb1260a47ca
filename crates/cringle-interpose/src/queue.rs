//! Waiting fibers in the process, by the address that they wait for: the futexes of fibers.
//!
//! A waiter lies in the frame of its fiber. The queue of its address is a list under a lock, which
//! waits by raw calls (**I14**) and is never held across a suspension (**I6**); neither waiting nor
//! waking allocates, because an allocator may be what waits.
//!
//! # No wake-up is lost
//!
//! A waiter counts itself, takes the queue's lock, checks that it still has to wait, and joins the
//! queue. The waker changes what the waiter checks, and then looks at the count. If it reads 0, the
//! waiter's check comes after the change. Otherwise it takes the lock, and finds the waiter in the
//! queue; or the waiter takes the lock later, and its check comes after the change.
//!
//! A waiter leaves the queue by the waker's hand, which moves its waker out and stores `woken`
//! last (**I10**), or by its own when its time is up. The lock decides which.

use super::call::Call;
use cringle_core::fiber::Wait;
use cringle_core::lent_frame::LentFrame;
use cringle_core::wait_target::Target;
use cringle_core::waiter_list::{Linked, Links, WaiterList};
use cringle_core::waker::Waker;
use cringle_sys::lock::Mutex;
use std::cell::{Cell, UnsafeCell};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering, compiler_fence, fence};
use std::time::Instant;

const QUEUES: usize = 256;
/// The mask of a wait that any wake-up ends, or of a wake-up of any waiter.
pub(super) const ANY: u32 = u32::MAX;

/// The waiters in all queues.
static WAITERS: AtomicUsize = AtomicUsize::new(0);
/// Those among them that starve.
static STARVING: AtomicUsize = AtomicUsize::new(0);
static QUEUE: [Mutex<AddressQueue>; QUEUES] = [const { Mutex::new(AddressQueue::new()) }; QUEUES];

/// How a wait ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Waited {
    Woken,
    /// By the owner of the lock, which is the waiter's now.
    Granted,
    TimedOut,
    /// There was no reason to wait.
    NotNeeded,
}

/// When a wait ends without a wake-up.
#[derive(Clone, Copy)]
pub(super) struct Until {
    /// The caller's time, if it gave one: a cancel ends the wait, too.
    pub(super) deadline: Option<Instant>,
    /// An earlier time, at which the wait continues in another way.
    pub(super) review: Option<Instant>,
    /// A cancel of the thread ends the wait.
    pub(super) is_point: bool,
    /// The waiter was woken for a lock again and again, and others had it.
    pub(super) starves: bool,
}

impl Until {
    pub(super) const NEVER: Until = Until::deadline(None);

    pub(super) const fn deadline(deadline: Option<Instant>) -> Until {
        Until { deadline, review: None, is_point: false, starves: false }
    }

    fn first(self) -> Option<Instant> {
        self.deadline.into_iter().chain(self.review).min()
    }

    fn is_over(self, call: Call) -> bool {
        call.is_over(self.deadline)
            || (self.is_point && call.current.is_point_cancelled())
            || self.review.is_some_and(|at| call.now() >= at)
    }
}

struct AddressWaiter {
    address: usize,
    /// A wake-up with none of these bits passes it over.
    mask: u32,
    woken: AtomicBool,
    starves: bool,
    is_granted: Cell<bool>,
    waker: UnsafeCell<Option<Waker>>,
    /// Its number among the waiters that have joined the queue.
    arrival: Cell<u64>,
    links: Links<AddressWaiter>,
}

impl Linked for AddressWaiter {
    fn links(&self) -> &Links<AddressWaiter> {
        &self.links
    }
}

/// The waiters of the addresses that share it, in the order of their arrival.
struct AddressQueue {
    waiters: WaiterList<AddressWaiter>,
    /// The number of waiters that have joined the queue.
    arrivals: u64,
}

// SAFETY: I10. Waiters lie in frames that stay while they are queued, and their fields are touched
// only under the queue's lock, except `woken`, which is atomic.
unsafe impl Send for AddressQueue {}

fn queue_of(address: usize) -> &'static Mutex<AddressQueue> {
    let mixed = (address >> 2).wrapping_mul(0x9e37_79b9_7f4a_7c15_u64 as usize);
    &QUEUE[mixed >> (usize::BITS - 8)]
}

/// Waits until a wake-up of this address, or until a time. `check` is called under the queue's
/// lock, and `begin` once the waiter has joined the queue; either may end the wait by `false`.
pub(super) fn wait(
    call: Call,
    address: usize,
    mask: u32,
    until: Until,
    check: impl FnOnce() -> bool,
    begin: impl FnOnce() -> bool,
) -> Waited {
    let waiter = AddressWaiter {
        address,
        mask,
        woken: AtomicBool::new(false),
        starves: until.starves,
        is_granted: Cell::new(false),
        waker: UnsafeCell::new(Some(call.current.waker())),
        arrival: Cell::new(0),
        links: Links::default(),
    };
    WAITERS.fetch_add(1, Ordering::SeqCst);
    STARVING.fetch_add(until.starves.into(), Ordering::Relaxed);
    fence(Ordering::SeqCst);
    let lent = LentFrame::begin();
    let mut queue = queue_of(address).lock();
    let joins = check();
    if joins {
        // SAFETY: I12. The waiter has left the queue when this function returns.
        unsafe { queue.push(&waiter) };
    }
    drop(queue);
    let waited = match joins {
        true if begin() => suspend(call, &waiter, until),
        true => withdraw(&waiter, Waited::NotNeeded),
        false => Waited::NotNeeded,
    };
    lent.end();
    WAITERS.fetch_sub(1, Ordering::SeqCst);
    STARVING.fetch_sub(until.starves.into(), Ordering::Relaxed);
    if waiter.is_granted.get() { Waited::Granted } else { waited }
}

/// Suspends the fiber until its waiter has left the queue.
fn suspend(call: Call, waiter: &AddressWaiter, until: Until) -> Waited {
    let current = call.current;
    let subject = Target::address(std::ptr::without_provenance(waiter.address));
    let to_the_end = || {
        loop {
            if waiter.woken.load(Ordering::Acquire) {
                return Waited::Woken;
            }
            if until.is_over(call) {
                return withdraw(waiter, Waited::TimedOut);
            }
            current.worker.watch_at_end(current.fiber);
            // The lock may be an allocator's, which the library called on this worker.
            current.fiber.family().while_pinned(|| {
                current.suspend_on_until(Wait::Lock, subject, until.first());
            });
        }
    };
    if until.deadline.is_some() || until.is_point {
        to_the_end()
    } else {
        call.shielded(to_the_end)
    }
}

/// Removes a waiter from its queue. If the waiter was woken meanwhile, the wait counts as woken.
fn withdraw(waiter: &AddressWaiter, otherwise: Waited) -> Waited {
    let was_queued = queue_of(waiter.address).lock().waiters.remove(waiter);
    if was_queued { otherwise } else { Waited::Woken }
}

/// Wakes at most this number of fibers that wait for an address, and returns their number.
#[inline]
pub(super) fn wake(address: usize, mask: u32, most: usize) -> usize {
    // Pairs with the fence of `wait`.
    fence(Ordering::SeqCst);
    if WAITERS.load(Ordering::Relaxed) == 0 {
        return 0;
    }
    wake_some(address, mask, most)
}

/// [`wake`] after libc has released a lock by an atomic exchange, which on x86-64 is a fence.
#[inline]
pub(super) fn wake_after_release(address: usize, most: usize) {
    if cfg!(target_arch = "x86_64") {
        compiler_fence(Ordering::SeqCst);
    } else {
        fence(Ordering::SeqCst);
    }
    if WAITERS.load(Ordering::Relaxed) > 0 {
        wake_some(address, ANY, most);
    }
}

#[cold]
fn wake_some(address: usize, mask: u32, most: usize) -> usize {
    // A fiber that waits again meanwhile is not woken a second time.
    let mut arrivals = None;
    for woken in 0..most {
        let waker = {
            let mut queue = queue_of(address).lock();
            let arrivals = *arrivals.get_or_insert(queue.arrivals);
            queue.pop(address, arrivals, |waiter| waiter.mask & mask != 0)
        };
        match waker {
            Some(waker) => waker.wake(),
            None => return woken,
        }
    }
    most
}

/// Gives the lock at this address, which the caller owns, to a waiter that starves, if there is
/// one. It wakes without a try.
#[inline]
pub(super) fn grant(address: usize) -> bool {
    STARVING.load(Ordering::Relaxed) > 0 && grant_to_starving(address)
}

#[cold]
fn grant_to_starving(address: usize) -> bool {
    let starves = |waiter: &AddressWaiter| waiter.starves && !waiter.is_granted.replace(true);
    let waker = queue_of(address).lock().pop(address, u64::MAX, starves);
    waker.map(|waker| waker.wake()).is_some()
}

/// Forgets all waiters, in a forked child: their fibers are the parent's.
pub(super) fn forget_all() {
    WAITERS.store(0, Ordering::Relaxed);
    STARVING.store(0, Ordering::Relaxed);
}

impl AddressQueue {
    const fn new() -> AddressQueue {
        AddressQueue { waiters: WaiterList::new(), arrivals: 0 }
    }

    /// # Safety
    ///
    /// I12: the waiter stays in place until it has left the queue.
    unsafe fn push(&mut self, waiter: &AddressWaiter) {
        self.arrivals += 1;
        waiter.arrival.set(self.arrivals);
        // SAFETY: by the contract.
        unsafe { self.waiters.push(waiter) };
    }

    /// Removes the first waiter of the address for which `suits` is true, if it was among the first
    /// `arrivals` to join.
    fn pop(
        &mut self,
        address: usize,
        arrivals: u64,
        suits: impl Fn(&AddressWaiter) -> bool,
    ) -> Option<Waker> {
        let matches = |waiter: &&AddressWaiter| waiter.address == address && suits(waiter);
        // SAFETY: I10. It is queued, so it stays until `woken` is stored, the last touch.
        let waiters = self.waiters.iter().map(|waiter| unsafe { waiter.as_ref() });
        let waiter = waiters.take_while(|waiter| waiter.arrival.get() <= arrivals).find(matches)?;
        self.waiters.remove(waiter);
        // SAFETY: I10. Only the one that dequeues the waiter takes its waker.
        let waker = unsafe { (*waiter.waker.get()).take() };
        waiter.woken.store(true, Ordering::Release);
        waker
    }
}
