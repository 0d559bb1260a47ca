//! The process's signal handler, and the listeners that it notifies.
//!
//! # What the handler may do
//!
//! It interrupts any thread at any point, including one that allocates or holds a lock. So it reads
//! and writes only atomics, and calls only functions that `signal-safety(7)` lists: `write` on an
//! eventfd, and to kill the process `sigaction`, `raise` and `pthread_sigmask`. It preserves
//! `errno`, and runs on the thread's alternate stack if there is one: a fiber's stack may be nearly
//! used up.
//!
//! Listeners are nodes of a list that only grows. A node is never freed, but reused by the next
//! listener, so there are as many nodes as there were listeners at the same time.
//!
//! # No stale descriptor (I9)
//!
//! A listener that is dropped clears its `wanted`, waits until no handler runs, and then closes its
//! eventfd. A handler increments the count of running handlers before it reads `wanted`. Both
//! accesses are sequentially consistent, so one of the two sees the other: either the handler finds
//! nothing wanted, or the listener waits for it.

use super::Signal;
use cringle_sys as sys;
use cringle_sys::fork::{ForkGuard, ForkLock};
use cringle_sys::signal_chain::{action, call_handler, set_action, set_default, set_handler};
use std::ffi::{c_int, c_void};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::sync::atomic::{AtomicI32, AtomicPtr, AtomicU8, AtomicU64, AtomicUsize, Ordering::SeqCst};

/// Larger than the number of any [`Signal`].
const SIGNALS: usize = 32;

/// What a listener does about signals.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// It receives each signal.
    Notify,
    /// It receives the first signal. When that one has taken effect, the next one kills the
    /// process.
    Cancel,
}

// The phases of a node.

/// It receives each signal.
const NOTIFY: u8 = 0;
/// It waits for the first signal.
const ARMED: u8 = 1;
/// The first signal has arrived. Signals that arrive now are the same request.
const NOTIFIED: u8 = 2;
/// The first signal has taken effect.
const DONE: u8 = 3;

struct Node {
    /// Written once, before the node is in the list.
    next: *const Node,
    /// The signals that its listener wants, as bits; 0 while the node has no listener.
    wanted: AtomicU64,
    /// The signals that have arrived and were not taken.
    pending: AtomicU64,
    /// The listener's eventfd; -1 while the node has no listener.
    bell: AtomicI32,
    phase: AtomicU8,
}

// SAFETY: I9. Every field that changes is atomic, and the node that `next` points to is never
// freed.
unsafe impl Sync for Node {}

static NODES: AtomicPtr<Node> = AtomicPtr::new(std::ptr::null_mut());
/// The number of handlers that run now.
static RUNNING: AtomicUsize = AtomicUsize::new(0);
/// The program's own handlers, which ours replaced and calls.
static PREVIOUS: [PreviousHandler; SIGNALS] = [const { PreviousHandler::new() }; SIGNALS];

/// The address of a handler, in the field of its signature; 0 for none.
struct PreviousHandler {
    plain: AtomicUsize,
    with_info: AtomicUsize,
}

impl PreviousHandler {
    const fn new() -> PreviousHandler {
        PreviousHandler { plain: AtomicUsize::new(0), with_info: AtomicUsize::new(0) }
    }

    fn set(&self, action: &libc::sigaction) {
        let address = match action.sa_sigaction {
            libc::SIG_DFL | libc::SIG_IGN => 0,
            address => address,
        };
        let with_info = action.sa_flags & libc::SA_SIGINFO != 0;
        self.plain.store(if with_info { 0 } else { address }, SeqCst);
        self.with_info.store(if with_info { address } else { 0 }, SeqCst);
    }

    fn call(&self, signal: c_int, info: *mut libc::siginfo_t, context: *mut c_void) {
        let (plain, with_info) = (self.plain.load(SeqCst), self.with_info.load(SeqCst));
        let address = if with_info != 0 { with_info } else { plain };
        if address != 0 {
            // SAFETY: the contract of `sigaction`: the program installed handlers of these
            // signatures at these addresses.
            unsafe { call_handler(address, with_info != 0, signal, info, context) };
        }
    }
}

extern "C" fn on_signal(signal: c_int, info: *mut libc::siginfo_t, context: *mut c_void) {
    let errno = sys::errno();
    RUNNING.fetch_add(1, SeqCst);
    let mut kill = false;
    for node in nodes() {
        kill |= node.record(signal);
    }
    RUNNING.fetch_sub(1, SeqCst);
    if kill {
        die_of(signal);
    }
    PREVIOUS[signal as usize].call(signal, info, context);
    sys::set_errno(errno);
}

fn nodes() -> impl Iterator<Item = &'static Node> {
    let mut next = NODES.load(SeqCst).cast_const();
    std::iter::from_fn(move || {
        // SAFETY: I9. Nodes are never freed, and are complete before they are in the list.
        let node = unsafe { next.as_ref() }?;
        next = node.next;
        Some(node)
    })
}

impl Node {
    /// Records a signal and notifies the listener, in the handler. Returns whether the signal
    /// kills.
    fn record(&self, signal: c_int) -> bool {
        let bit = 1 << signal;
        if self.wanted.load(SeqCst) & bit == 0 {
            return false;
        }
        match self.phase.compare_exchange(ARMED, NOTIFIED, SeqCst, SeqCst) {
            Ok(_) | Err(NOTIFY) => {
                // The bit first: the listener reads `pending` after it was notified.
                self.pending.fetch_or(bit, SeqCst);
                // SAFETY: I9. `wanted` is set, so the listener keeps the eventfd open until this
                // handler has ended.
                sys::eventfd_signal(unsafe { BorrowedFd::borrow_raw(self.bell.load(SeqCst)) });
                false
            }
            Err(phase) => phase == DONE,
        }
    }
}

/// Performs the signal's default action, which ends the process for most signals.
fn die_of(signal: c_int) {
    set_default(signal);
    // SAFETY: all of these functions may be called in a handler. The set is borrowed for the call,
    // and all-zero is a valid one.
    unsafe {
        let mut set: libc::sigset_t = std::mem::zeroed();
        libc::sigaddset(&mut set, signal);
        // The signal is blocked in its own handler, and is delivered when it is unblocked.
        libc::raise(signal);
        libc::pthread_sigmask(libc::SIG_UNBLOCK, &set, std::ptr::null_mut());
    }
}

/// The signals that have our handler, and their previous actions. No code panics under this lock,
/// and the handler does not take it.
static INSTALLED: ForkLock<[Option<Installed>; SIGNALS]> = ForkLock::new([None; SIGNALS]);

#[derive(Clone, Copy)]
struct Installed {
    listeners: usize,
    previous: libc::sigaction,
}

fn installed() -> ForkGuard<'static, [Option<Installed>; SIGNALS]> {
    INSTALLED.lock()
}

fn address_of_handler() -> usize {
    on_signal as *const () as usize
}

/// Counts a listener of the signal, and installs our handler for the first one.
fn install(slot: &mut Option<Installed>, signal: c_int) -> io::Result<()> {
    let current = action(signal)?;
    let has_handler = !matches!(current.sa_sigaction, libc::SIG_DFL | libc::SIG_IGN);
    if let Some(installed) = slot
        && has_handler
    {
        // It is ours, or one that the program installed over ours and that is assumed to call it.
        installed.listeners += 1;
        return Ok(());
    }
    PREVIOUS[signal as usize].set(&current);
    let flags = libc::SA_SIGINFO | libc::SA_ONSTACK | libc::SA_RESTART;
    set_handler(signal, address_of_handler(), flags)?;
    let listeners = slot.map_or(0, |installed| installed.listeners) + 1;
    *slot = Some(Installed { listeners, previous: current });
    Ok(())
}

/// Counts one listener less. The last one restores the previous action, unless the program has
/// since installed a handler over ours, which may call it.
fn uninstall(slot: &mut Option<Installed>, signal: c_int) {
    let Some(installed) = slot else { return };
    installed.listeners -= 1;
    let is_ours = || action(signal).is_ok_and(|action| action.sa_sigaction == address_of_handler());
    if installed.listeners == 0 && is_ours() && set_action(signal, &installed.previous).is_ok() {
        *slot = None;
    }
}

/// Receives signals until it is dropped.
pub struct Listener {
    node: &'static Node,
    bell: sys::Owned,
    /// The signals whose handlers it counts for, as bits.
    signals: u64,
}

impl Listener {
    /// Installs the handler for these signals.
    pub fn new(signals: &[Signal], purpose: Purpose) -> io::Result<Listener> {
        let bell = sys::eventfd_nonblocking()?;
        let mut slots = installed();
        let mut wanted = 0;
        for signal in signals.iter().map(|signal| signal.number()) {
            let previous = match &slots[signal as usize] {
                Some(installed) => installed.previous.sa_sigaction,
                None => action(signal)?.sa_sigaction,
            };
            if purpose == Purpose::Notify || previous != libc::SIG_IGN {
                wanted |= 1 << signal;
            }
        }
        let phase = match purpose {
            Purpose::Notify => NOTIFY,
            Purpose::Cancel => ARMED,
        };
        // The node before the handler: no caught signal is lost.
        let node = claim(wanted, bell.as_raw_fd(), phase);
        let mut listener = Listener { node, bell, signals: 0 };
        for signal in bits(wanted) {
            if let Err(e) = install(&mut slots[signal as usize], signal) {
                drop(slots);
                return Err(e);
            }
            listener.signals |= 1 << signal;
        }
        Ok(listener)
    }

    /// Returns the lowest of the signals that have arrived.
    pub(super) fn first(&self) -> Option<c_int> {
        bits(self.node.pending.load(SeqCst)).next()
    }

    /// Takes the lowest of the signals that have arrived.
    pub fn take(&self) -> Option<c_int> {
        loop {
            let signal = self.first()?;
            if self.node.pending.fetch_and(!(1 << signal), SeqCst) & (1 << signal) != 0 {
                return Some(signal);
            }
        }
    }

    /// Wakes the caller that waits for the bell.
    pub(super) fn ring(&self) {
        sys::eventfd_signal(self.bell.as_fd());
    }

    /// Resets the bell. Call it before [`take`](Self::take), so that a later signal rings again.
    pub(super) fn silence(&self) {
        sys::eventfd_clear(self.bell.as_fd());
    }

    /// Records that the first signal has taken effect: the next one kills.
    pub(super) fn set_done(&self) {
        self.node.phase.store(DONE, SeqCst);
    }
}

#[doc(hidden)]
impl AsFd for Listener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.bell.as_fd()
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        let mut slots = installed();
        for signal in bits(self.signals) {
            uninstall(&mut slots[signal as usize], signal);
        }
        self.node.wanted.store(0, SeqCst);
        while RUNNING.load(SeqCst) > 0 {
            sys::yield_thread();
        }
        // From here on another listener can claim the node, under the lock. The bell is closed
        // after this, when no handler uses it any more.
        self.node.bell.store(-1, SeqCst);
    }
}

impl std::fmt::Debug for Listener {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let signals = bits(self.signals).filter_map(Signal::of_number);
        f.debug_list().entries(signals).finish()
    }
}

/// Claims a node without a listener, or adds one. The lock is held.
fn claim(wanted: u64, bell: c_int, phase: u8) -> &'static Node {
    let vacant = nodes().find(|node| node.bell.load(SeqCst) == -1);
    let node = vacant.unwrap_or_else(|| {
        let node: &'static Node = Box::leak(Box::new(Node {
            next: NODES.load(SeqCst),
            wanted: AtomicU64::new(0),
            pending: AtomicU64::new(0),
            bell: AtomicI32::new(-1),
            phase: AtomicU8::new(NOTIFY),
        }));
        NODES.store(std::ptr::from_ref(node).cast_mut(), SeqCst);
        node
    });
    node.pending.store(0, SeqCst);
    node.phase.store(phase, SeqCst);
    node.bell.store(bell, SeqCst);
    node.wanted.store(wanted, SeqCst);
    node
}

/// Returns the numbers of the bits that are set, lowest first.
fn bits(mut set: u64) -> impl Iterator<Item = c_int> {
    std::iter::from_fn(move || {
        let lowest = set.trailing_zeros();
        set &= set.wrapping_sub(1);
        (lowest < u64::BITS).then_some(lowest as c_int)
    })
}
