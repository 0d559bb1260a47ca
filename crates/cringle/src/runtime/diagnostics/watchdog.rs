//! The watchdog, which reports fibers that run for long without suspending.
//!
//! Its thread looks at each worker now and then, at the running fiber and at the number of the
//! turn. A fiber runs at most once in a turn, so the same fiber in the same turn was not suspended
//! in between. The workers do nothing extra for this.
//!
//! Only time in which the worker's thread ran, or slept in a system call, counts against a fiber.
//! Time in which the thread waited for a processor does not, and the kernel reports both. Neither
//! does a pause of the whole process, which the watchdog notices by its own delay.

use super::dump::Who;
use crate::runtime::counters::ThreadTimes;
use crate::runtime::label::Label;
use crate::runtime::shared::{Peer, Shared};
use crate::sys::lock::Signal;
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

/// Returns the limit that the environment sets; `None` for no watchdog.
pub(in crate::runtime) fn limit_of_environment() -> io::Result<Option<Duration>> {
    let Some(value) = std::env::var_os(VARIABLE).filter(|value| !value.is_empty()) else {
        return Ok(cfg!(debug_assertions).then_some(DEFAULT_LIMIT));
    };
    match value.to_str().map(|text| (text, text.parse::<u64>())) {
        Some(("off", _)) => Ok(None),
        Some((_, Ok(milliseconds @ 1..))) => Ok(Some(Duration::from_millis(milliseconds))),
        _ => {
            let text = format!(
                "{VARIABLE} is {value:?}, must be `off` or the milliseconds that a fiber may run before it \
                 is reported, as in {VARIABLE}=10"
            );
            Err(io::Error::new(io::ErrorKind::InvalidInput, text))
        }
    }
}

/// The watchdog's thread, which is ended and joined when this is dropped.
pub(in crate::runtime) struct Watchdog {
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
    pub(in crate::runtime) fn start(shared: &Arc<Shared>, limit: Duration) -> Option<Watchdog> {
        let stop = Arc::new(Signal::new());
        let (theirs, shared) = (Arc::clone(&stop), Arc::clone(shared));
        let thread = std::thread::Builder::new().name("cringle-watch".into());
        let thread = thread.spawn(move || watch(&shared, limit, &theirs)).ok()?;
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

fn watch(shared: &Shared, limit: Duration, stop: &Signal) {
    let shortest = (limit / LOOKS).max(SHORTEST_PAUSE);
    let mut observed: Vec<Observed> = shared.peers.iter().map(|_| Observed::default()).collect();
    let mut pause = shortest;
    loop {
        let before = Instant::now();
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
        let now = Instant::now();
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

/// Reports the fiber, unless it was reported before.
fn report(peer: &Peer, running: usize, ran: Duration) {
    let read = |label: &Label| {
        let same = std::ptr::from_ref(label) as usize == running;
        (same && label.report_once()).then(|| label.read())
    };
    let Some(Some(origins)) = peer.roster.look(read) else { return };
    let worker = peer.mailbox.worker;
    crate::sys::report(format_args!(
        "{} has run for {} ms without suspending, while the other fibers of worker {worker} wait; call \
         `fiber::yield_now` to let them run, or `fiber::unblock` for code that blocks",
        Who::of(&origins).in_full(),
        ran.as_millis()
    ));
}
