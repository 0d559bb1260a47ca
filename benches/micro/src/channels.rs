//! What it costs to send a value there and have one back: between two fibers of one worker, and
//! between two workers; and to stream values from one worker to another.
//!
//! Within one worker nothing ever sleeps, and it is timed by the thread's CPU. Across workers it
//! goes by the wall. tokio wakes a task on the worker that wakes it, so that two tasks which answer
//! each other end up on one worker: the fair comparison for a round trip between two cores is the
//! one with two runtimes, and the one with one runtime is what tokio's user gets.

use crate::report::{Contest, Report};
use common::clock::{cpu_ns_per_op, thread_cpu, wall_ns_per_op};
use cringle::fiber;
use cringle::sync::mpsc;
use std::time::Instant;
use tokio::sync::mpsc as tokio_mpsc;

const ROUND_TRIPS: u64 = 200_000;
const ROUND_TRIPS_ACROSS: u64 = 10_000;
const STREAMED: u64 = 300_000;
/// Values that the channels of a stream hold.
const DEPTH: usize = 128;
const BAR: f64 = 1.0;

pub(crate) fn run(rounds: usize) -> Report {
    let ours = "cringle: mpsc, fibers of one worker";
    let theirs = "tokio: mpsc, tasks of a current-thread runtime";
    let unbounded = "tokio: unbounded mpsc, the same";
    Contest::new("channel, there and back")
        .side(ours, || crate::on_one_worker(|| fibers(0, ROUND_TRIPS, cpu_per_op)))
        .side(theirs, || tasks(Kind::Bounded))
        .side(unbounded, || tasks(Kind::Unbounded))
        .run(rounds)
        .ratio(ours, &[theirs, unbounded], Some(BAR))
}

pub(crate) fn run_across(rounds: usize) -> Vec<Report> {
    vec![there_and_back(rounds), stream(rounds)]
}

fn there_and_back(rounds: usize) -> Report {
    let ours = "cringle: mpsc, fibers of two workers";
    let threads = "std: mpsc, two threads";
    let one = "tokio: mpsc, one runtime with two workers";
    let two = "tokio: mpsc, two single-threaded runtimes";
    let on_two = || {
        let body = || fibers(1, ROUND_TRIPS_ACROSS, wall_per_op);
        cringle::Builder::new().workers(2).run(body).expect("a runtime")
    };
    Contest::new("channel across workers, there and back")
        .side(ours, on_two)
        .side(one, one_runtime)
        .side(two, two_runtimes)
        .side(threads, threads_there_and_back)
        .run(rounds)
        .ratio(ours, &[one], Some(BAR))
        .ratio(ours, &[two], None)
        .ratio(ours, &[threads], None)
}

fn stream(rounds: usize) -> Report {
    let ours = "cringle: sync_channel, fibers of two workers";
    let theirs = "tokio: mpsc, one runtime with two workers";
    Contest::new("channel across workers, a stream")
        .side(ours, fibers_streaming)
        .side(theirs, tasks_streaming)
        .run(rounds)
        .ratio(ours, &[theirs], Some(BAR))
}

/// Nanoseconds a round trip with a fiber on that worker; this one is on worker 0.
fn fibers(worker: usize, round_trips: u64, per_op: fn(u64, &mut dyn FnMut()) -> f64) -> f64 {
    let (there, their_there) = mpsc::sync_channel(1);
    let (their_back, back) = mpsc::sync_channel(1);
    let answers = move || their_there.iter().for_each(|n: u64| their_back.send(n).expect("asked"));
    let other = fiber::Builder::new().worker(worker).spawn(answers).expect("a worker");
    let playing = |round_trips: u64| {
        for n in 0..round_trips {
            there.send(n).expect("the other one waits");
            assert_eq!(back.recv(), Ok(n));
        }
    };
    playing(100);
    let nanoseconds = per_op(round_trips, &mut || playing(round_trips));
    drop(there);
    other.join().expect("it does not panic");
    nanoseconds
}

fn threads_there_and_back() -> f64 {
    let (there, their_there) = std::sync::mpsc::sync_channel(1);
    let (their_back, back) = std::sync::mpsc::sync_channel(1);
    let answers = move || their_there.iter().for_each(|n: u64| their_back.send(n).expect("asked"));
    let other = std::thread::spawn(answers);
    let nanoseconds = wall_ns_per_op(ROUND_TRIPS_ACROSS, || {
        for n in 0..ROUND_TRIPS_ACROSS {
            there.send(n).expect("the other one waits");
            assert_eq!(back.recv(), Ok(n));
        }
    });
    drop(there);
    other.join().expect("it does not panic");
    nanoseconds
}

#[derive(Clone, Copy)]
enum Kind {
    Bounded,
    Unbounded,
}

/// Nanoseconds of the thread's CPU a round trip between two tasks.
fn tasks(kind: Kind) -> f64 {
    let runtime = tokio::runtime::Builder::new_current_thread().build().expect("no drivers");
    runtime.block_on(async move {
        let asks = match kind {
            Kind::Bounded => tokio::spawn(bounded_tasks()),
            Kind::Unbounded => tokio::spawn(unbounded_tasks()),
        };
        asks.await.expect("it does not panic")
    })
}

async fn bounded_tasks() -> f64 {
    let (there, their_there) = tokio_mpsc::channel(1);
    let (their_back, back) = tokio_mpsc::channel(1);
    tokio::spawn(answer(their_there, their_back));
    let start = thread_cpu();
    ask(there, back, ROUND_TRIPS).await;
    (thread_cpu() - start).as_secs_f64() * 1e9 / ROUND_TRIPS as f64
}

async fn unbounded_tasks() -> f64 {
    let (there, mut their_there) = tokio_mpsc::unbounded_channel();
    let (their_back, mut back) = tokio_mpsc::unbounded_channel();
    tokio::spawn(async move {
        while let Some(n) = their_there.recv().await {
            their_back.send(n).expect("asked");
        }
    });
    let start = thread_cpu();
    for n in 0..ROUND_TRIPS {
        there.send(n).expect("the other one waits");
        assert_eq!(back.recv().await, Some(n));
    }
    (thread_cpu() - start).as_secs_f64() * 1e9 / ROUND_TRIPS as f64
}

async fn answer(mut there: tokio_mpsc::Receiver<u64>, back: tokio_mpsc::Sender<u64>) {
    while let Some(n) = there.recv().await {
        back.send(n).await.expect("asked");
    }
}

async fn ask(
    there: tokio_mpsc::Sender<u64>,
    mut back: tokio_mpsc::Receiver<u64>,
    round_trips: u64,
) {
    for n in 0..round_trips {
        there.send(n).await.expect("the other one waits");
        assert_eq!(back.recv().await, Some(n));
    }
}

fn two_workers() -> tokio::runtime::Runtime {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).build();
    runtime.expect("a runtime")
}

fn one_runtime() -> f64 {
    two_workers().block_on(async {
        let (there, their_there) = tokio_mpsc::channel(1);
        let (their_back, back) = tokio_mpsc::channel(1);
        tokio::spawn(answer(their_there, their_back));
        let asks = tokio::spawn(async {
            let start = Instant::now();
            ask(there, back, ROUND_TRIPS_ACROSS).await;
            start.elapsed()
        });
        let elapsed = asks.await.expect("it does not panic");
        elapsed.as_secs_f64() * 1e9 / ROUND_TRIPS_ACROSS as f64
    })
}

fn two_runtimes() -> f64 {
    let runtime = || tokio::runtime::Builder::new_current_thread().build().expect("no drivers");
    let (there, their_there) = tokio_mpsc::channel(1);
    let (their_back, back) = tokio_mpsc::channel(1);
    let answers = answer(their_there, their_back);
    let other = std::thread::spawn(move || runtime().block_on(answers));
    let here = runtime();
    let start = Instant::now();
    here.block_on(ask(there, back, ROUND_TRIPS_ACROSS));
    let elapsed = start.elapsed();
    other.join().expect("it does not panic");
    elapsed.as_secs_f64() * 1e9 / ROUND_TRIPS_ACROSS as f64
}

/// Nanoseconds a value, sent on worker 1 and received on worker 0.
fn fibers_streaming() -> f64 {
    let body = || {
        let (sender, receiver) = mpsc::sync_channel(DEPTH);
        let sends = move || (0..STREAMED).for_each(|n| sender.send(n).expect("received"));
        let other = fiber::Builder::new().worker(1).spawn(sends).expect("a worker");
        let nanoseconds =
            wall_ns_per_op(STREAMED, || assert_eq!(receiver.iter().count() as u64, STREAMED));
        other.join().expect("it does not panic");
        nanoseconds
    };
    cringle::Builder::new().workers(2).run(body).expect("a runtime")
}

fn tasks_streaming() -> f64 {
    two_workers().block_on(async {
        let (sender, mut receiver) = tokio_mpsc::channel(DEPTH);
        tokio::spawn(async move {
            for n in 0..STREAMED {
                sender.send(n).await.expect("received");
            }
        });
        let receives = tokio::spawn(async move {
            let start = Instant::now();
            let mut count = 0;
            while receiver.recv().await.is_some() {
                count += 1;
            }
            assert_eq!(count, STREAMED);
            start.elapsed()
        });
        let elapsed = receives.await.expect("it does not panic");
        elapsed.as_secs_f64() * 1e9 / STREAMED as f64
    })
}

fn cpu_per_op(operations: u64, work: &mut dyn FnMut()) -> f64 {
    cpu_ns_per_op(operations, work)
}

fn wall_per_op(operations: u64, work: &mut dyn FnMut()) -> f64 {
    wall_ns_per_op(operations, work)
}
