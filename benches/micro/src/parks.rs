//! (c) What it takes to wake the other side and be woken by it: a round trip between two cores.
//!
//! Both sides sleep in between, so this is mostly the kernel's wake-up of an idle core, twice; and
//! it is timed by the wall. On a machine where something else runs it says little.

use crate::report::{Contest, Report};
use common::clock::wall_ns_per_op;
use cringle::fiber;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use tokio::sync::Notify;

const ROUND_TRIPS: u64 = 10_000;

pub(crate) fn run(rounds: usize) -> Report {
    let ours = "cringle: park/unpark, fibers of two workers";
    let threads = "std: park/unpark, two threads";
    let tokio = "tokio: Notify, two single-threaded runtimes";
    let multi = "tokio: Notify, one runtime with two workers (*)";
    Contest::new("park + unpark, there and back")
        .side(ours, fibers)
        .side(threads, os_threads)
        .side(tokio, two_runtimes)
        .side(multi, one_runtime)
        .side("cringle: park/unpark, fibers of one worker", fibers_of_one)
        .run(rounds)
        .ratio(ours, &[threads], None)
        .ratio(ours, &[tokio], None)
        .ratio("cringle: park/unpark, fibers of one worker", &[multi], None)
        .note("(*) tokio wakes a task on the worker that wakes it, so the two end up on one.")
}

/// What both sides count, so that a spurious return from `park` is no turn.
#[derive(Default)]
struct Turns(AtomicU64);

impl Turns {
    fn give(&self) {
        self.0.fetch_add(1, Ordering::Release);
    }

    fn given(&self) -> u64 {
        self.0.load(Ordering::Acquire)
    }
}

/// One side of the game in std's words, which are the fibers' too.
macro_rules! play {
    ($thread:path as $t:ident, $spawn:expr) => {{
        use $thread as $t;
        let (there, back) = (Arc::new(Turns::default()), Arc::new(Turns::default()));
        let (their_there, their_back) = (Arc::clone(&there), Arc::clone(&back));
        let caller = $t::current();
        let other = $spawn(move || {
            for turn in 1..=ROUND_TRIPS {
                while their_there.given() < turn {
                    $t::park();
                }
                their_back.give();
                caller.unpark();
            }
        });
        let nanoseconds = wall_ns_per_op(ROUND_TRIPS, || {
            for turn in 1..=ROUND_TRIPS {
                there.give();
                other.thread().unpark();
                while back.given() < turn {
                    $t::park();
                }
            }
        });
        other.join().expect("it does not panic");
        nanoseconds
    }};
}

fn os_threads() -> f64 {
    play!(std::thread as threads, threads::spawn)
}

fn fibers() -> f64 {
    fibers_on(2)
}

fn fibers_of_one() -> f64 {
    fibers_on(1)
}

/// The caller is on worker 0, the other one on the last.
fn fibers_on(workers: usize) -> f64 {
    let placed = fiber::Builder::new().worker(workers - 1);
    let body = || play!(cringle::fiber as fibers, |f| placed.spawn(f).expect("a worker"));
    cringle::Builder::new().workers(workers).run(body).expect("a runtime")
}

/// One side of the game in tokio's words.
async fn lead(there: &Notify, back: &Notify) {
    for _ in 0..ROUND_TRIPS {
        there.notify_one();
        back.notified().await;
    }
}

async fn follow(there: Arc<Notify>, back: Arc<Notify>) {
    for _ in 0..ROUND_TRIPS {
        there.notified().await;
        back.notify_one();
    }
}

fn two_runtimes() -> f64 {
    let runtime = || tokio::runtime::Builder::new_current_thread().build().expect("no drivers");
    let (there, back) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    let follower = follow(Arc::clone(&there), Arc::clone(&back));
    let other = thread::spawn(move || runtime().block_on(follower));
    let here = runtime();
    let nanoseconds = wall_ns_per_op(ROUND_TRIPS, || here.block_on(lead(&there, &back)));
    other.join().expect("it does not panic");
    nanoseconds
}

fn one_runtime() -> f64 {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).build();
    let runtime = runtime.expect("a runtime");
    let (there, back) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    runtime.block_on(async {
        let follower = tokio::spawn(follow(Arc::clone(&there), Arc::clone(&back)));
        let leader = tokio::spawn(async move {
            let start = std::time::Instant::now();
            lead(&there, &back).await;
            start.elapsed()
        });
        let elapsed = leader.await.expect("it does not panic");
        follower.await.expect("it does not panic");
        elapsed.as_secs_f64() * 1e9 / ROUND_TRIPS as f64
    })
}
