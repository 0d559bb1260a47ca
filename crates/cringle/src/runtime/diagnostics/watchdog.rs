//! Names fibers that run for long without being suspended.
//!
//! A thread of its own looks at each worker now and then, at the fiber that runs and at the number of the
//! turn. A fiber runs at most once in a turn: the same fiber in the same turn was not suspended in between.
//! The workers do nothing for it that they do not do anyway.
//!
//! What the machine is to blame for is not held against a fiber: neither the time that its thread waited for
//! a processor (what it ran counts, and what it slept in a call: the kernel tells both), nor a pause of the
//! whole process, which the watchdog feels itself.

use super::dump::Who;
use crate::runtime::counters::ThreadTimes;
use crate::runtime::label::Label;
use crate::runtime::shared::{Peer, Shared};
use std::io;
use std::sync::{Arc, Condvar, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

const VARIABLE: &str = "CRINGLE_WATCHDOG";
/// What a fiber may take at once before it is named, in debug builds.
const DEFAULT_LIMIT: Duration = Duration::from_millis(10);
/// Looks in the time that a fiber may run.
const LOOKS: u32 = 4;
/// From one look to the next while nothing runs, at most.
const LONGEST_PAUSE: Duration = Duration::from_millis(100);
const SHORTEST_PAUSE: Duration = Duration::from_micros(250);

/// The limit where the program names none; `None`: nobody is watched.
pub(in crate::runtime) fn limit_of_environment() -> io::Result<Option<Duration>> {
    let Some(value) = std::env::var_os(VARIABLE).filter(|value| !value.is_empty()) else {
        return Ok(cfg!(debug_assertions).then_some(DEFAULT_LIMIT));
    };
    match value.to_str().map(|text| (text, text.parse::<u64>())) {
        Some(("off", _)) => Ok(None),
        Some((_, Ok(milliseconds @ 1..))) => Ok(Some(Duration::from_millis(milliseconds))),
        _ => {
            let text = format!(
                "{VARIABLE} is {value:?}, must be `off` or how many milliseconds a fiber may run before it \
                 is named, as in {VARIABLE}=10"
            );
            Err(io::Error::new(io::ErrorKind::InvalidInput, text))
        }
    }
}

/// Watches until it is dropped.
pub(in crate::runtime) struct Watchdog {
    leave: Arc<Leave>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Default)]
struct Leave {
    now: Mutex<bool>,
    told: Condvar,
}

/// What one worker was seen at.
#[derive(Default)]
struct Seen {
    turns: u64,
    running: usize,
    /// The last look that found it there again.
    last: Option<(Instant, ThreadTimes)>,
    /// For how long it certainly ran there, or waited in a call.
    ran: Duration,
}

impl Watchdog {
    /// None where no thread is to be had: nothing else depends on it.
    pub(in crate::runtime) fn start(shared: &Arc<Shared>, limit: Duration) -> Option<Watchdog> {
        let leave = Arc::new(Leave::default());
        let (theirs, shared) = (Arc::clone(&leave), Arc::clone(shared));
        let thread = std::thread::Builder::new().name("cringle-watch".into());
        let thread = thread.spawn(move || watch(&shared, limit, &theirs)).ok()?;
        Some(Watchdog { leave, thread: Some(thread) })
    }
}

impl Drop for Watchdog {
    fn drop(&mut self) {
        *self.leave.now.lock().expect("no code panics under this lock") = true;
        self.leave.told.notify_one();
        if let Some(thread) = self.thread.take() {
            thread.join().expect("the watchdog does not panic");
        }
    }
}

impl Leave {
    /// Waits for so long; whether it is to end.
    fn pause(&self, pause: Duration) -> bool {
        let now = self.now.lock().expect("no code panics under this lock");
        let result = self.told.wait_timeout_while(now, pause, |leave| !*leave);
        *result.expect("no code panics under this lock").0
    }
}

fn watch(shared: &Shared, limit: Duration, leave: &Leave) {
    let shortest = (limit / LOOKS).max(SHORTEST_PAUSE);
    let mut seen: Vec<Seen> = shared.peers.iter().map(|_| Seen::default()).collect();
    let mut pause = shortest;
    loop {
        let before = Instant::now();
        if leave.pause(pause) {
            return;
        }
        if before.elapsed() > pause * LOOKS {
            // It had no time itself, and what it saw says nothing.
            seen.fill_with(Seen::default);
        }
        let mut any_runs = false;
        for (seen, peer) in seen.iter_mut().zip(&shared.peers) {
            any_runs |= seen.look(peer, limit);
        }
        pause = match any_runs {
            true => shortest,
            false => (pause * 2).clamp(shortest, LONGEST_PAUSE.max(shortest)),
        };
    }
}

impl Seen {
    /// Looks at a worker, and names its fiber if it is time to. Whether one runs.
    fn look(&mut self, peer: &Peer, limit: Duration) -> bool {
        let turns = peer.counters.turns.get();
        let running = peer.roster.running_number();
        if running == 0 || (turns, running) != (self.turns, self.running) {
            *self = Seen { turns, running, ..Seen::default() };
            return running != 0;
        }
        let now = Instant::now();
        let Some(times) = peer.counters.thread_times() else { return true };
        if let Some((before, then)) = self.last.replace((now, times)) {
            self.ran += times.spent_since(&then, now - before);
        }
        if self.ran >= limit {
            name(peer, running, self.ran);
        }
        true
    }
}

/// Once.
fn name(peer: &Peer, running: usize, ran: Duration) {
    let read = |label: &Label| {
        let same = std::ptr::from_ref(label) as usize == running;
        (same && label.report_once()).then(|| label.read())
    };
    let Some(Some(origins)) = peer.roster.look(read) else { return };
    let worker = peer.mailbox.worker;
    crate::sys::report(format_args!(
        "{} has run for {} ms without being suspended, and the others of worker {worker} wait: \
         `fiber::yield_now` lets them run, `fiber::unblock` takes what blocks elsewhere",
        Who::of(&origins).in_full(),
        ran.as_millis()
    ));
}
