//! The handler of the process's signals, and whom it tells.
//!
//! # What the handler may do
//!
//! It interrupts any thread anywhere, also one that allocates or holds a lock. So it reads and writes
//! atomics, and makes three calls that `signal-safety(7)` lists: `write` to an eventfd, and to kill
//! `sigaction` and `raise` (and `pthread_sigmask`). It keeps `errno`, and runs on the thread's
//! alternate stack, where there is one: a fiber's may be nearly used up.
//!
//! Listeners are nodes of a list that only grows. A node is never freed, but given to the next
//! listener; there are as many as were there at once.
//!
//! # No stale descriptor (I9)
//!
//! A listener that goes clears its `wanted`, waits until no handler is at work, and then closes its
//! eventfd. A handler counts itself in before it looks at `wanted`. Both are sequentially consistent, so
//! one of them sees the other: either the handler finds nothing wanted, or it is waited for.

use super::Signal;
use crate::sys;
use std::ffi::{c_int, c_void};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicI32, AtomicPtr, AtomicU8, AtomicU64, AtomicUsize, Ordering::SeqCst};
use std::sync::{Mutex, MutexGuard};

/// More than the number of any [`Signal`].
const SIGNALS: usize = 32;

/// What a signal does to a listener.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Purpose {
    /// Each is told.
    Tell,
    /// The first is told; when that has had its effect, the next one kills.
    Cancel,
}

// The phases of a node.
const TELL: u8 = 0;
/// It waits for the first.
const ARMED: u8 = 1;
/// The first has come; those that come now are the same request.
const TOLD: u8 = 2;
/// The first has had its effect.
const DONE: u8 = 3;

struct Node {
    /// Written once, before the node can be found.
    next: *const Node,
    /// The signals listened for, as bits; 0 while the node is nobody's.
    wanted: AtomicU64,
    /// Those that have come and were not taken.
    pending: AtomicU64,
    bell: AtomicI32,
    phase: AtomicU8,
}

// SAFETY: all that changes is atomic; what `next` points to is never freed.
unsafe impl Sync for Node {}

static NODES: AtomicPtr<Node> = AtomicPtr::new(std::ptr::null_mut());
/// Handlers at work.
static AT_WORK: AtomicUsize = AtomicUsize::new(0);
/// The handlers that were there before, for ours to call.
static BEFORE: [Before; SIGNALS] = [const { Before::new() }; SIGNALS];

/// Addresses of functions; 0 for none.
struct Before {
    plain: AtomicUsize,
    with_info: AtomicUsize,
}

impl Before {
    const fn new() -> Before {
        Before { plain: AtomicUsize::new(0), with_info: AtomicUsize::new(0) }
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
        // SAFETY: the addresses are of handlers that the program installed for these signatures, and
        // they are called as the kernel would, with what it gave.
        unsafe {
            if with_info != 0 {
                type Handler = extern "C" fn(c_int, *mut libc::siginfo_t, *mut c_void);
                std::mem::transmute::<usize, Handler>(with_info)(signal, info, context);
            } else if plain != 0 {
                std::mem::transmute::<usize, extern "C" fn(c_int)>(plain)(signal);
            }
        }
    }
}

extern "C" fn on_signal(signal: c_int, info: *mut libc::siginfo_t, context: *mut c_void) {
    let errno = sys::errno();
    AT_WORK.fetch_add(1, SeqCst);
    let mut kill = false;
    for node in nodes() {
        kill |= node.notice(signal);
    }
    AT_WORK.fetch_sub(1, SeqCst);
    if kill {
        die_of(signal);
    }
    BEFORE[signal as usize].call(signal, info, context);
    sys::set_errno(errno);
}

fn nodes() -> impl Iterator<Item = &'static Node> {
    let mut next = NODES.load(SeqCst).cast_const();
    std::iter::from_fn(move || {
        // SAFETY: nodes are never freed, and complete before they can be found.
        let node = unsafe { next.as_ref() }?;
        next = node.next;
        Some(node)
    })
}

impl Node {
    /// For the handler: a signal has come. Says whether it is to kill.
    fn notice(&self, signal: c_int) -> bool {
        let bit = 1 << signal;
        if self.wanted.load(SeqCst) & bit == 0 {
            return false;
        }
        match self.phase.compare_exchange(ARMED, TOLD, SeqCst, SeqCst) {
            Ok(_) | Err(TELL) => {
                // In this order: who hears the bell looks what has come.
                self.pending.fetch_or(bit, SeqCst);
                // SAFETY: I9. The node is wanted, so its owner keeps the eventfd open until this
                // handler is done.
                sys::eventfd_signal(unsafe { BorrowedFd::borrow_raw(self.bell.load(SeqCst)) });
                false
            }
            Err(phase) => phase == DONE,
        }
    }
}

/// Does what the signal does by default, which ends the process for most.
fn die_of(signal: c_int) {
    // SAFETY: all of these may be called in a handler; the structures live through the calls, and
    // all-zero is a valid action and set.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = libc::SIG_DFL;
        libc::sigaction(signal, &action, std::ptr::null_mut());
        let mut set: libc::sigset_t = std::mem::zeroed();
        libc::sigaddset(&mut set, signal);
        // In its handler a signal is blocked: it strikes when it no longer is.
        libc::raise(signal);
        libc::pthread_sigmask(libc::SIG_UNBLOCK, &set, std::ptr::null_mut());
    }
}

/// Which signals have our handler, and what was there before. No code panics under this lock, and the
/// handler does not take it.
static INSTALLED: Mutex<[Option<Installed>; SIGNALS]> = Mutex::new([None; SIGNALS]);

#[derive(Clone, Copy)]
struct Installed {
    listeners: usize,
    before: libc::sigaction,
}

fn installed() -> MutexGuard<'static, [Option<Installed>; SIGNALS]> {
    INSTALLED.lock().expect("no code panics under this lock")
}

fn address_of_handler() -> usize {
    on_signal as *const () as usize
}

fn action_of(signal: c_int) -> io::Result<libc::sigaction> {
    // SAFETY: the call fills the structure; all-zero is a valid one.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        match libc::sigaction(signal, std::ptr::null(), &mut action) {
            0 => Ok(action),
            _ => Err(io::Error::last_os_error()),
        }
    }
}

fn set_action(signal: c_int, action: &libc::sigaction) -> io::Result<()> {
    // SAFETY: the action is our handler's, which may run anywhere, or one that was installed before.
    match unsafe { libc::sigaction(signal, action, std::ptr::null_mut()) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// One more listens for the signal.
fn install(place: &mut Option<Installed>, signal: c_int) -> io::Result<()> {
    let current = action_of(signal)?;
    let has_handler = !matches!(current.sa_sigaction, libc::SIG_DFL | libc::SIG_IGN);
    if let Some(installed) = place
        && has_handler
    {
        // Ours, or one that was installed over ours and is taken to call it.
        installed.listeners += 1;
        return Ok(());
    }
    BEFORE[signal as usize].set(&current);
    // SAFETY: all-zero is a valid action: no signals are blocked but this one.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    action.sa_sigaction = address_of_handler();
    action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK | libc::SA_RESTART;
    set_action(signal, &action)?;
    let listeners = place.map_or(0, |installed| installed.listeners) + 1;
    *place = Some(Installed { listeners, before: current });
    Ok(())
}

/// One less does. The last puts back what was there before, unless somebody has installed a handler
/// over ours since, which may call it.
fn uninstall(place: &mut Option<Installed>, signal: c_int) {
    let Some(installed) = place else { return };
    installed.listeners -= 1;
    let is_ours =
        || action_of(signal).is_ok_and(|action| action.sa_sigaction == address_of_handler());
    if installed.listeners == 0 && is_ours() && set_action(signal, &installed.before).is_ok() {
        *place = None;
    }
}

/// Is told of signals until it is dropped.
pub(super) struct Listener {
    node: &'static Node,
    bell: OwnedFd,
    /// As bits.
    signals: u64,
}

impl Listener {
    pub(super) fn new(signals: &[Signal], purpose: Purpose) -> io::Result<Listener> {
        let bell = sys::eventfd_nonblocking()?;
        let mut places = installed();
        let mut wanted = 0;
        for signal in signals.iter().map(|signal| signal.number()) {
            let before = match &places[signal as usize] {
                Some(installed) => installed.before.sa_sigaction,
                None => action_of(signal)?.sa_sigaction,
            };
            if purpose == Purpose::Tell || before != libc::SIG_IGN {
                wanted |= 1 << signal;
            }
        }
        let phase = match purpose {
            Purpose::Tell => TELL,
            Purpose::Cancel => ARMED,
        };
        // First the node: whatever is caught is told.
        let node = claim(wanted, bell.as_raw_fd(), phase);
        let mut listener = Listener { node, bell, signals: 0 };
        for signal in bits(wanted) {
            if let Err(e) = install(&mut places[signal as usize], signal) {
                drop(places);
                return Err(e);
            }
            listener.signals |= 1 << signal;
        }
        Ok(listener)
    }

    /// The lowest of the signals that have come.
    pub(super) fn first(&self) -> Option<c_int> {
        bits(self.node.pending.load(SeqCst)).next()
    }

    /// Takes it.
    pub(super) fn take(&self) -> Option<c_int> {
        loop {
            let signal = self.first()?;
            if self.node.pending.fetch_and(!(1 << signal), SeqCst) & (1 << signal) != 0 {
                return Some(signal);
            }
        }
    }

    /// Wakes who waits for the bell.
    pub(super) fn ring(&self) {
        sys::eventfd_signal(self.bell.as_fd());
    }

    /// The bell was heard. Comes before [`take`](Self::take): what rings later is heard again.
    pub(super) fn silence(&self) {
        sys::eventfd_clear(self.bell.as_fd());
    }

    /// The first signal has had its effect: the next one kills.
    pub(super) fn set_done(&self) {
        self.node.phase.store(DONE, SeqCst);
    }
}

impl AsFd for Listener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.bell.as_fd()
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        let mut places = installed();
        for signal in bits(self.signals) {
            uninstall(&mut places[signal as usize], signal);
        }
        self.node.wanted.store(0, SeqCst);
        while AT_WORK.load(SeqCst) > 0 {
            std::thread::yield_now();
        }
        // The node can be another's, under the lock; the bell is closed after this, by nobody used.
        self.node.bell.store(-1, SeqCst);
    }
}

impl std::fmt::Debug for Listener {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let signals = bits(self.signals).filter_map(Signal::of_number);
        f.debug_list().entries(signals).finish()
    }
}

/// A node that is nobody's, or a new one. Under the lock.
fn claim(wanted: u64, bell: c_int, phase: u8) -> &'static Node {
    let vacant = nodes().find(|node| node.bell.load(SeqCst) == -1);
    let node = vacant.unwrap_or_else(|| {
        let node: &'static Node = Box::leak(Box::new(Node {
            next: NODES.load(SeqCst),
            wanted: AtomicU64::new(0),
            pending: AtomicU64::new(0),
            bell: AtomicI32::new(-1),
            phase: AtomicU8::new(TELL),
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

/// The numbers of the bits that are set, from the lowest.
fn bits(mut set: u64) -> impl Iterator<Item = c_int> {
    std::iter::from_fn(move || {
        let lowest = set.trailing_zeros();
        set &= set.wrapping_sub(1);
        (lowest < u64::BITS).then_some(lowest as c_int)
    })
}
