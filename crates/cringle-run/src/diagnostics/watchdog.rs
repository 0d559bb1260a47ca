//! The watchdog, which reports fibers that run for long without suspending.
//!
//! Its thread looks at each worker now and then, at the running fiber and at the number of the
//! turn. A fiber runs at most once in a turn, so the same fiber in the same turn was not suspended
//! in between. The workers do nothing extra for this.
//!
//! Only time in which the worker's thread ran, or slept in a system call, counts against a fiber.
//! Time in which the thread waited for a processor does not, and the kernel reports both. Neither
//! does a pause of the whole process, which the watchdog notices by its own delay.
//!
//! Release builds have no limit for fibers that compute, but a lock of std that blocks a worker for
//! seconds may be a deadlock. There the watchdog looks once a second, only for that.

use super::stall::Stall;
use cringle_core::counters::ThreadTimes;
use cringle_core::label::Label;
use cringle_core::shared::{Peer, Shared};
use cringle_core::spawn_place;
use cringle_sys as sys;
use cringle_sys::lock::Signal;
use std::io;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

const VARIABLE: &str = "CRINGLE_WATCHDOG";
/// The limit in debug builds.
const DEFAULT_LIMIT: Duration = Duration::from_millis(10);
/// Looks within the limit.
const LOOKS: u32 = 4;
/// The longest pause between two looks, while no fiber runs.
const LONGEST_PAUSE: Duration = Duration::from_millis(100);
const SHORTEST_PAUSE: Duration = Duration::from_micros(250);
/// The pause between two looks for blocked workers, and how long a worker must have been blocked.
const LOCK_PAUSE: Duration = Duration::from_secs(1);
const LOCK_LIMIT: Duration = Duration::from_secs(2);
/// The age of a runtime from which the places of its threads are looked up.
const LOOKUP_AFTER: Duration = Duration::from_secs(1);
/// How long one of the library's own locks must have blocked it: threads release them sooner.
const OWN_LOCK_LIMIT: Duration = Duration::from_secs(1);

/// The fibers that a watchdog reports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Watched {
    /// Those that run longer than this without suspending.
    Running(Duration),
    /// Those that wait for a lock of std or libc for seconds.
    Locks,
}

/// Returns what the environment chooses; `None` for no watchdog.
pub(crate) fn of_environment() -> io::Result<Option<Watched>> {
    let Some(value) = std::env::var_os(VARIABLE).filter(|value| !value.is_empty()) else {
        let is_debug = cfg!(debug_assertions);
        return Ok(Some(if is_debug { Watched::Running(DEFAULT_LIMIT) } else { Watched::Locks }));
    };
    match value.to_str().map(|text| (text, text.parse::<u64>())) {
        Some(("off", _)) => Ok(None),
        Some(("locks", _)) => Ok(Some(Watched::Locks)),
        Some((_, Ok(milliseconds @ 1..))) => {
            Ok(Some(Watched::Running(Duration::from_millis(milliseconds))))
        }
        _ => {
            let text = format!(
                "{VARIABLE} is {value:?}, must be `off`, `locks`, or the milliseconds that a fiber may run before it \
                 is reported, as in {VARIABLE}=10"
            );
            Err(io::Error::new(io::ErrorKind::InvalidInput, text))
        }
    }
}

/// The watchdog's thread, which is ended and joined when this is dropped.
pub(crate) struct Watchdog {
    stop: Arc<Signal>,
    thread: Option<JoinHandle<()>>,
}

/// The last observations of one worker.
#[derive(Default)]
struct Observed {
    turns: u64,
    running: usize,
    /// The last look that found the same fiber in the same turn.
    last: Option<(Instant, ThreadTimes)>,
    /// The time for which that fiber certainly ran, or slept in a system call.
    ran: Duration,
}

impl Watchdog {
    /// Starts the watchdog. `None` if no thread can be started, which is no error: nothing depends
    /// on it.
    pub(crate) fn start(shared: &Arc<Shared>, watched: Watched) -> Option<Watchdog> {
        let stop = Arc::new(Signal::new());
        let (theirs, shared) = (Arc::clone(&stop), Arc::clone(shared));
        let thread = sys::library_thread("cringle-watch".into());
        let watch = move || {
            let _thread = sys::LibraryThread::begin();
            match watched {
                Watched::Running(limit) => watch(&shared, limit, &theirs),
                Watched::Locks => watch_locks(&shared, &theirs),
            }
        };
        let thread = thread.spawn(watch).ok()?;
        Some(Watchdog { stop, thread: Some(thread) })
    }
}

impl Drop for Watchdog {
    fn drop(&mut self) {
        self.stop.set();
        if let Some(thread) = self.thread.take() {
            thread.join().expect("the watchdog does not panic");
        }
    }
}

fn watch(shared: &Arc<Shared>, limit: Duration, stop: &Signal) {
    let shortest = (limit / LOOKS).max(SHORTEST_PAUSE);
    let mut observed: Vec<Observed> = shared.peers.iter().map(|_| Observed::default()).collect();
    let (mut pause, mut stall, begun) = (shortest, Stall::default(), sys::now());
    loop {
        let before = sys::now();
        if stop.wait_timeout(pause) {
            return;
        }
        if before.elapsed() > pause * LOOKS {
            // The watchdog itself had no processor, so its observations prove nothing.
            observed.fill_with(Observed::default);
        }
        let mut any_runs = false;
        for (observed, peer) in observed.iter_mut().zip(&shared.peers) {
            any_runs |= observed.look(peer, limit);
        }
        if cfg!(debug_assertions) {
            stall.look(shared);
        }
        // It takes long, and a short program needs none.
        if !any_runs && begun.elapsed() >= LOOKUP_AFTER {
            spawn_place::look_up_all();
        }
        pause = if any_runs {
            shortest
        } else {
            (pause * 2).clamp(shortest, LONGEST_PAUSE.max(shortest))
        };
    }
}

impl Observed {
    /// Looks at a worker, and reports its fiber if that has reached the limit. Returns whether a
    /// fiber runs.
    fn look(&mut self, peer: &Peer, limit: Duration) -> bool {
        let turns = peer.counters.turns.get();
        let running = peer.roster.running_number();
        if running == 0 || (turns, running) != (self.turns, self.running) {
            *self = Observed { turns, running, ..Observed::default() };
            return running != 0;
        }
        let now = sys::now();
        let Some(times) = peer.counters.thread_times() else { return true };
        if let Some((before, then)) = self.last.replace((now, times)) {
            self.ran += times.spent_since(&then, now - before);
        }
        if self.ran >= limit {
            report(peer, running, self.ran);
        }
        true
    }
}

/// The last observations of a worker that may be blocked by a lock.
#[derive(Default)]
struct Blocked {
    turns: u64,
    running: usize,
    /// Since when the thread has hardly run, and the time for which it had run by then.
    since: Option<(Instant, Duration)>,
}

/// Looks once a second for workers that a lock blocks.
fn watch_locks(shared: &Shared, stop: &Signal) {
    let mut all: Vec<Blocked> = shared.peers.iter().map(|_| Blocked::default()).collect();
    loop {
        let before = sys::now();
        if stop.wait_timeout(LOCK_PAUSE) {
            return;
        }
        if before.elapsed() > 2 * LOCK_PAUSE {
            // The process was stopped, or has no processor.
            all.fill_with(Blocked::default);
        }
        for (blocked, peer) in all.iter_mut().zip(&shared.peers) {
            blocked.look(peer);
        }
    }
}

impl Blocked {
    /// Looks at a worker, and reports its fiber if it has been blocked for the limit. While no
    /// fiber runs, this is two loads.
    fn look(&mut self, peer: &Peer) {
        let turns = peer.counters.turns.get();
        let running = peer.roster.running_number();
        let times = if running == 0 { None } else { peer.counters.processor_times() };
        let Some((ran, _)) = times else {
            *self = Blocked { turns, ..Blocked::default() };
            return;
        };
        let blocked = self.observe((turns, running), ran, sys::now());
        if blocked >= LOCK_LIMIT && peer.counters.futex().is_some() {
            report(peer, running, blocked);
        }
    }

    /// Records an observation: the turn and its fiber, and the time for which the thread has run.
    /// Returns for how long the fiber has hardly run.
    fn observe(&mut self, turn: (u64, usize), ran: Duration, now: Instant) -> Duration {
        if let Some((since, before)) = self.since
            && turn == (self.turns, self.running)
        {
            let blocked = now - since;
            // A lock may be a loop of waits with a limit, so the thread runs from time to time.
            if ran.saturating_sub(before) <= blocked / 20 {
                return blocked;
            }
        }
        (self.turns, self.running) = turn;
        self.since = Some((now, ran));
        Duration::ZERO
    }
}

/// Reports the fiber, unless it was reported before.
fn report(peer: &Peer, running: usize, ran: Duration) {
    let read = |label: &Label| {
        let same = std::ptr::from_ref(label) as usize == running;
        (same && label.report_once()).then(|| label.read())
    };
    let futex = peer.counters.futex();
    if futex.is_some_and(|futex| futex.is_librarys) && ran < OWN_LOCK_LIMIT {
        // It is held for short, but its holder may get no processor.
        return;
    }
    let Some(Some(origins)) = peer.roster.look(read) else { return };
    let worker = peer.mailbox.worker;
    if let Some(futex) = futex {
        let (what, remedy) = of_lock(futex.is_librarys, cringle_sys::is_interposed());
        return cringle_sys::report(format_args!(
            "{} has waited for {} ms in {what} (a futex), which blocks worker {worker} with all \
             its fibers; {remedy}",
            origins.in_full(),
            ran.as_millis()
        ));
    }
    cringle_sys::report(format_args!(
        "{} has run for {} ms without suspending; no other fiber of worker {worker} can run meanwhile: call \
         `fiber::yield_now` to let others run, or `fiber::unblock` for code that blocks",
        origins.in_full(),
        ran.as_millis()
    ));
}

/// Describes a lock that blocks a worker, and the remedy.
fn of_lock(is_librarys: bool, is_interposed: bool) -> (&'static str, &'static str) {
    match (is_librarys, is_interposed) {
        (true, _) => (
            "a lock of cringle itself",
            "the thread that holds it gets no processor, or waits within the program's allocator",
        ),
        (false, false) => (
            "a lock of std or libc, or in `thread::park`",
            "use `cringle::sync::Mutex`, or another type of `cringle::sync`, which suspends only \
             the fiber, or `fiber::unblock`",
        ),
        (false, true) => (
            "a lock that no hook reaches: within libc (stdio, the loader), beside a fiber (an \
             allocator, a signal handler), or by code that calls the kernel without libc",
            "let no fiber wait while it holds such a lock, or call that code by `fiber::unblock`",
        ),
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn remedy_is_none_that_hooks_make_needless() {
        let remedy = |is_librarys, is_interposed| of_lock(is_librarys, is_interposed).1;
        assert!(remedy(false, false).contains("cringle::sync::Mutex"));
        let others = [remedy(false, true), remedy(true, true), remedy(true, false)];
        assert!(others.iter().all(|remedy| !remedy.contains("cringle::sync")), "{others:?}");
    }

    #[test]
    fn lock_is_reported_at_third_look() {
        let (mut blocked, start) = (Blocked::default(), Instant::now());
        let mut look = |seconds, turn, ran_ms| {
            blocked.observe((turn, 1), Duration::from_millis(ran_ms), start + SECOND * seconds)
        };
        assert_eq!(look(0, 7, 500), Duration::ZERO);
        assert_eq!(look(1, 7, 500), SECOND);
        assert_eq!(look(2, 7, 501), LOCK_LIMIT);
        // It computes, and then another turn begins.
        assert_eq!(look(3, 7, 1400), Duration::ZERO);
        assert_eq!(look(4, 7, 1400), SECOND);
        assert_eq!(look(5, 8, 1400), Duration::ZERO);
    }
}
