//! A round trip of wake-ups between two cores.
//!
//! Both sides sleep in between, so most of the time is the kernel's: it wakes an idle core twice.
//! The wall clock measures it, so the figures mean little on a machine that is not idle.

use crate::report::{Contest, Report};
use common::clock::wall_ns_per_op;
use cringle::fiber;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use tokio::sync::Notify;

const ROUND_TRIPS: u64 = 10_000;

pub(crate) fn run(rounds: usize) -> Report {
    let on_fibers = "cringle: park/unpark, fibers of two workers";
    let threads = "std: park/unpark, two threads";
    let tokio = "tokio: Notify, two single-threaded runtimes";
    let multi = "tokio: Notify, one runtime with two workers (*)";
    Contest::new("park + unpark, round trip")
        .side(on_fibers, fibers)
        .side(threads, os_threads)
        .side(tokio, two_runtimes)
        .side(multi, one_runtime)
        .side("cringle: park/unpark, fibers of one worker", fibers_of_one)
        .run(rounds)
        .ratio(on_fibers, &[threads], None)
        .ratio(on_fibers, &[tokio], None)
        .ratio("cringle: park/unpark, fibers of one worker", &[multi], None)
        .note(
            "(*) tokio runs a woken task on the worker that wakes it, so both tasks end up on one.",
        )
}

/// The number of wake-ups in one direction, so that a spurious return from `park` does not count.
#[derive(Default)]
struct Turns(AtomicU64);

impl Turns {
    fn add(&self) {
        self.0.fetch_add(1, Ordering::Release);
    }

    fn count(&self) -> u64 {
        self.0.load(Ordering::Acquire)
    }
}

/// Measures round trips with std's API, which is also that of fibers.
macro_rules! round_trips {
    ($thread:path as $t:ident, $spawn:expr) => {{
        use $thread as $t;
        let turns = Arc::new([Turns::default(), Turns::default()]);
        let other_turns = Arc::clone(&turns);
        let caller = $t::current();
        let other = $spawn(move || {
            for turn in 1..=ROUND_TRIPS {
                while other_turns[0].count() < turn {
                    $t::park();
                }
                other_turns[1].add();
                caller.unpark();
            }
        });
        let nanoseconds = wall_ns_per_op(ROUND_TRIPS, || {
            for turn in 1..=ROUND_TRIPS {
                turns[0].add();
                other.thread().unpark();
                while turns[1].count() < turn {
                    $t::park();
                }
            }
        });
        other.join().expect("no panic");
        nanoseconds
    }};
}

fn os_threads() -> f64 {
    round_trips!(std::thread as threads, threads::spawn)
}

fn fibers() -> f64 {
    fibers_on(2)
}

fn fibers_of_one() -> f64 {
    fibers_on(1)
}

/// Measures round trips between a fiber on worker 0 and one on the last worker.
fn fibers_on(workers: usize) -> f64 {
    let placed = fiber::Builder::new().worker(workers - 1);
    let body = || round_trips!(cringle::fiber as fibers, |f| placed.spawn(f).expect("a worker"));
    cringle::Builder::new().workers(workers).run(body).expect("a runtime")
}

async fn lead(request: &Notify, reply: &Notify) {
    for _ in 0..ROUND_TRIPS {
        request.notify_one();
        reply.notified().await;
    }
}

async fn follow(request: Arc<Notify>, reply: Arc<Notify>) {
    for _ in 0..ROUND_TRIPS {
        request.notified().await;
        reply.notify_one();
    }
}

fn two_runtimes() -> f64 {
    let runtime = || tokio::runtime::Builder::new_current_thread().build().expect("no drivers");
    let (request, reply) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    let follower = follow(Arc::clone(&request), Arc::clone(&reply));
    let other = thread::spawn(move || runtime().block_on(follower));
    let here = runtime();
    let nanoseconds = wall_ns_per_op(ROUND_TRIPS, || here.block_on(lead(&request, &reply)));
    other.join().expect("no panic");
    nanoseconds
}

fn one_runtime() -> f64 {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).build();
    let runtime = runtime.expect("a runtime");
    let (request, reply) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    runtime.block_on(async {
        let follower = tokio::spawn(follow(Arc::clone(&request), Arc::clone(&reply)));
        let leader = tokio::spawn(async move {
            let start = std::time::Instant::now();
            lead(&request, &reply).await;
            start.elapsed()
        });
        let elapsed = leader.await.expect("no panic");
        follower.await.expect("no panic");
        elapsed.as_secs_f64() * 1e9 / ROUND_TRIPS as f64
    })
}
