//! Suspected deadlocks, which the watchdog of a debug build reports once.
//!
//! All fibers of the program wait for locks, channels or each other, with no timer and no deadline,
//! no operation is in flight, and the process has no thread but the library's (without this
//! condition, every program that waits for its own threads would be suspected). Nothing that is
//! known can wake a fiber then, but for another process, a signal handler or a debugger: so a
//! deadlock is suspected.
//!
//! The workers are asked only after the counters have shown for [`PATIENCE`] that all fibers wait
//! and no worker runs one. What cannot be known, is no suspicion.

use super::dump::{Dump, FiberReport, FiberState, Holder, WaitsFor, dump_of_only};
use cringle_core::fiber::Wait;
use cringle_core::shared::Shared;
use cringle_driver::OpName;
use cringle_sys::{self as sys, plainly};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How long all fibers must have waited.
const PATIENCE: Duration = Duration::from_secs(1);

/// The waits that only another fiber or thread ends.
const FOR_OTHERS: [Wait; 7] =
    [Wait::Lock, Wait::Channel, Wait::Condvar, Wait::Barrier, Wait::Once, Wait::Group, Wait::Watch];

/// The last observations of a runtime.
#[derive(Default)]
pub(super) struct Stall {
    turns: u64,
    /// Since when all fibers wait.
    since: Option<Instant>,
    /// The looks since the workers were asked.
    looks: Option<u32>,
    is_reported: bool,
}

impl Stall {
    /// Looks at all workers, and reports a suspected deadlock.
    pub(super) fn look(&mut self, shared: &Arc<Shared>) {
        if self.is_reported {
            return;
        }
        let now = sys::now();
        let turns = shared.peers.iter().map(|peer| peer.counters.turns.get()).sum();
        // The answers took turns, too.
        let has_run = turns != self.turns && self.looks != Some(0);
        if has_run || !all_wait(shared) {
            *self = Stall { turns, ..Stall::default() };
            return;
        }
        self.turns = turns;
        let since = *self.since.get_or_insert(now);
        if let Some(looks) = &mut self.looks {
            *looks = 1;
            return;
        }
        if now - since < PATIENCE {
            return;
        }
        self.looks = Some(0);
        if has_other_threads(shared) {
            return;
        }
        if let Some(dump) = dump_of_only(shared).filter(is_suspected) {
            self.is_reported = true;
            cringle_sys::report(format_args!(
                "suspected deadlock: all fibers wait for locks, channels or each other, and no \
                 timer, operation or other thread is known that could wake one:\n{}",
                dump.to_string().trim_end()
            ));
        }
    }
}

/// Whether there are fibers, and all of them wait, by the counters.
fn all_wait(shared: &Shared) -> bool {
    // A fiber that moves may end elsewhere.
    let (mut started, mut ended, mut waiting) = (0, 0, 0);
    for peer in &shared.peers {
        if peer.roster.running_number() != 0 || !peer.stealer.is_empty() {
            return false;
        }
        started += peer.counters.started.get();
        ended += peer.ended.read();
        waiting += peer.counters.waiting.get();
    }
    waiting > 0 && started == ended + waiting && !shared.is_open
}

/// Whether the process has threads that are neither workers nor known to wake no fiber; also if
/// that cannot be read.
fn has_other_threads(shared: &Shared) -> bool {
    let is_other = |entry: std::io::Result<std::fs::DirEntry>| {
        let thread = entry.ok()?.file_name().to_str()?.parse().ok()?;
        let is_worker = shared.peers.iter().any(|peer| peer.counters.is_thread(thread));
        Some(!is_worker && !is_harmless(thread)?)
    };
    plainly(|| match std::fs::read_dir("/proc/self/task") {
        Ok(mut entries) => entries.any(|entry| is_other(entry).unwrap_or(true)),
        Err(_) => true,
    })
}

/// Whether a thread wakes no fiber by itself. (A pool's acts for a fiber, which waits for it.)
fn is_harmless(thread: i32) -> Option<bool> {
    Some(sys::is_library_thread(thread) || is_of_a_ring(thread)?)
}

/// Whether the kernel has made the thread for a ring.
fn is_of_a_ring(thread: i32) -> Option<bool> {
    /// The kernel's `PF_IO_WORKER`. (Older kernels, where such threads belong to no process, have
    /// another flag.)
    const IO_WORKER: u32 = 0x10;
    let stat = std::fs::read_to_string(format!("/proc/self/task/{thread}/stat")).ok()?;
    let (name, state) = stat.rsplit_once(") ")?;
    let flags: u32 = state.split_whitespace().nth(6)?.parse().ok()?;
    Some(name.contains("(iou-") && flags & IO_WORKER != 0)
}

/// Whether each fiber waits for something that only another fiber could do.
fn is_suspected(dump: &Dump) -> bool {
    let is_complete = dump.silent.is_empty() && dump.unstarted == 0;
    is_complete && !dump.fibers.is_empty() && dump.fibers.iter().all(waits_for_others)
}

fn waits_for_others(fiber: &FiberReport) -> bool {
    let FiberState::Waiting { for_what, timer: None, .. } = &fiber.state else { return false };
    let needs_other = match for_what {
        WaitsFor::Lock { holder, .. } => !matches!(holder, Holder::Thread),
        WaitsFor::Permits { .. } | WaitsFor::Join(_) | WaitsFor::Scope(_) => true,
        WaitsFor::Other { what, .. } => FOR_OTHERS.iter().any(|wait| wait.describe() == *what),
        WaitsFor::Operation { name, .. } => *name == OpName::Futex.as_str(),
        WaitsFor::Timer | WaitsFor::Unpark => false,
    };
    needs_other && fiber.deadline.is_none() && !fiber.cancelled
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::diagnostics::Who;
    use cringle_driver::pool::Pool;

    fn fiber(for_what: WaitsFor) -> FiberReport {
        FiberReport {
            who: Who { name: None, spawned: None, thread: None },
            worker: 0,
            scope: None,
            state: FiberState::Waiting { for_what, age: PATIENCE, timer: None },
            cancelled: false,
            deadline: None,
            backtrace: None,
        }
    }

    fn lock(holder: Holder) -> WaitsFor {
        WaitsFor::Lock { address: 8, holder }
    }

    fn other(wait: Wait) -> WaitsFor {
        WaitsFor::Other { what: wait.describe(), address: None }
    }

    fn op(name: OpName) -> WaitsFor {
        WaitsFor::Operation {
            name: name.as_str(),
            fd: None,
            file: None,
            offset: None,
            path: None,
            peer: None,
            address: None,
            aside: false,
            batch: None,
        }
    }

    fn suspected(fibers: Vec<FiberReport>) -> bool {
        is_suspected(&Dump { fibers, silent: Vec::new(), unstarted: 0, workers: 1 })
    }

    #[test]
    fn fibers_that_wait_for_each_other_are_suspected() {
        let waits = [
            lock(Holder::Unknown),
            WaitsFor::Permits { address: 8, free: 0 },
            WaitsFor::Scope(2),
            other(Wait::Channel),
            op(OpName::Futex),
        ];
        assert!(suspected(waits.into_iter().map(fiber).collect()));
        assert!(!suspected(Vec::new()));
    }

    #[test]
    fn only_threads_of_the_library_are_harmless() {
        let is_harmless_here = || is_harmless(sys::thread_number());
        let harmless = move |name: Option<&str>| {
            let thread = std::thread::Builder::new();
            let thread = name.map_or(thread, |name| std::thread::Builder::new().name(name.into()));
            thread.spawn(is_harmless_here).unwrap().join().unwrap()
        };
        // A thread without a name has its creator's.
        let pool = Arc::new(Pool::new("cringle-unblock", 1, &sys::allowed_cpus()));
        let (sender, receiver) = std::sync::mpsc::channel();
        let job = move || sender.send((is_harmless_here(), harmless(None))).unwrap();
        assert!(pool.run(Box::new(job)).is_ok());
        assert_eq!(receiver.recv(), Ok((Some(true), Some(false))));
        pool.close();
        let others = [Some("cringle-callback"), Some("cringle-unblock"), Some("iou-wrk-1")];
        assert_eq!(others.map(harmless), [Some(false); 3]);
    }

    #[test]
    fn any_wait_that_may_end_by_itself_is_no_suspicion() {
        let beside = |second| suspected(vec![fiber(other(Wait::Channel)), second]);
        let waits = [
            lock(Holder::Thread),
            other(Wait::Future),
            other(Wait::Unblock),
            op(OpName::Read),
            WaitsFor::Timer,
            WaitsFor::Unpark,
        ];
        waits.into_iter().for_each(|wait| assert!(!beside(fiber(wait))));
        let of_a_lock = || fiber(lock(Holder::Unknown));
        let state = FiberState::Waiting {
            for_what: lock(Holder::Unknown),
            age: PATIENCE,
            timer: Some(PATIENCE),
        };
        assert!(beside(of_a_lock()));
        assert!(!beside(FiberReport { state, ..of_a_lock() }));
        assert!(!beside(FiberReport { state: FiberState::Ready, ..of_a_lock() }));
        assert!(!beside(FiberReport { deadline: Some(PATIENCE), ..of_a_lock() }));
        assert!(!beside(FiberReport { cancelled: true, ..of_a_lock() }));
    }
}
