//! Channels: round trips of a value between two fibers of one worker and of two workers, and a
//! stream of values from one worker to another.
//!
//! One worker never sleeps here, and is timed by the thread's CPU time. Two workers are timed by
//! the wall clock. tokio runs a woken task on the worker that wakes it, so two tasks that reply to
//! each other end up on one worker. The fair comparison of a round trip between two cores is
//! therefore the one with two runtimes; a user of tokio gets the one with one runtime. Fibers that
//! move do what those tasks do. They are not placed, because what is placed stays.

use crate::report::{Contest, Report};
use common::clock::{cpu_ns_per_op, thread_cpu, wall_ns_per_op};
use cringle::runtime::{Balance, ThreadLocals};
use cringle::sync::mpsc;
use cringle::{Builder, fiber};
use std::time::Instant;
use tokio::sync::mpsc as tokio_mpsc;

const ROUND_TRIPS: u64 = 200_000;
const ROUND_TRIPS_ACROSS: u64 = 10_000;
const STREAMED: u64 = 300_000;
/// The capacity of a stream's channels.
const DEPTH: usize = 128;
const BAR: f64 = 1.0;
const BAR_ACROSS: f64 = 1.2;
const MOVING: &str = "cringle: fibers that move";

pub(crate) fn run(rounds: usize) -> Report {
    let on_fibers = "cringle: mpsc, fibers of one worker";
    let on_tokio = "tokio: mpsc, tasks of a current-thread runtime";
    let unbounded = "tokio: unbounded mpsc, tasks of a current-thread runtime";
    Contest::new("channel, round trip")
        .side(on_fibers, || crate::on_one_worker(|| fibers(Some(0), ROUND_TRIPS, cpu_per_op)))
        .side(on_tokio, || tasks(Kind::Bounded))
        .side(unbounded, || tasks(Kind::Unbounded))
        .run(rounds)
        .ratio(on_fibers, &[on_tokio, unbounded], Some(BAR))
}

pub(crate) fn run_across(rounds: usize) -> Vec<Report> {
    vec![round_trip(rounds), stream(rounds)]
}

fn round_trip(rounds: usize) -> Report {
    let on_fibers = "cringle: mpsc, fibers of two workers";
    let threads = "std: mpsc, two threads";
    let one = "tokio: mpsc, one runtime with two workers";
    let two = "tokio: mpsc, two single-threaded runtimes";
    let on_two = || {
        let body = || fibers(Some(1), ROUND_TRIPS_ACROSS, wall_per_op);
        Builder::new().workers(2).run(body).expect("a runtime")
    };
    Contest::new("channel across workers, round trip")
        .side(on_fibers, on_two)
        .side(MOVING, || on_moving(|| fibers(None, ROUND_TRIPS_ACROSS, wall_per_op)))
        .side(one, one_runtime)
        .side(two, two_runtimes)
        .side(threads, threads_round_trip)
        .run(rounds)
        .ratio(on_fibers, &[one], None)
        .ratio(on_fibers, &[two], None)
        .ratio(on_fibers, &[threads], None)
        .ratio(MOVING, &[one], Some(BAR_ACROSS))
}

fn stream(rounds: usize) -> Report {
    let on_fibers = "cringle: sync_channel, fibers of two workers";
    let on_tokio = "tokio: mpsc, one runtime with two workers";
    let on_two = || Builder::new().workers(2).run(|| fibers_streaming(Some(1)));
    Contest::new("channel across workers, a stream")
        .side(on_fibers, || on_two().expect("a runtime"))
        .side(MOVING, || on_moving(|| fibers_streaming(None)))
        .side(on_tokio, tasks_streaming)
        .run(rounds)
        .ratio(on_fibers, &[on_tokio], None)
        .ratio(MOVING, &[on_tokio], Some(BAR_ACROSS))
}

/// Runs `body` on a fiber that may move, as those may that it spawns.
fn on_moving(body: fn() -> f64) -> f64 {
    let builder = Builder::new().workers(2).thread_locals(ThreadLocals::Private);
    let ran = builder.balance(Balance::Moving).run(|| fiber::spawn(body).join());
    ran.expect("fibers can have thread-locals of their own").expect("no panic")
}

/// A fiber of this worker, or one that may move.
fn placed(worker: Option<usize>) -> fiber::Builder {
    let builder = fiber::Builder::new();
    worker.into_iter().fold(builder, fiber::Builder::worker)
}

/// Returns the nanoseconds per round trip between this fiber and one that is placed so.
fn fibers(worker: Option<usize>, round_trips: u64, per_op: PerOp) -> f64 {
    let (request, requests) = mpsc::sync_channel(1);
    let (reply, replies) = mpsc::sync_channel(1);
    let server = move || requests.iter().for_each(|n: u64| reply.send(n).expect("a client"));
    let other = placed(worker).spawn(server).expect("a worker");
    let call = |round_trips: u64| {
        for n in 0..round_trips {
            request.send(n).expect("the server receives");
            assert_eq!(replies.recv(), Ok(n));
        }
    };
    call(100);
    let nanoseconds = per_op(round_trips, &mut || call(round_trips));
    drop(request);
    other.join().expect("no panic");
    nanoseconds
}

fn threads_round_trip() -> f64 {
    let (request, requests) = std::sync::mpsc::sync_channel(1);
    let (reply, replies) = std::sync::mpsc::sync_channel(1);
    let server = move || requests.iter().for_each(|n: u64| reply.send(n).expect("a client"));
    let other = std::thread::spawn(server);
    let nanoseconds = wall_ns_per_op(ROUND_TRIPS_ACROSS, || {
        for n in 0..ROUND_TRIPS_ACROSS {
            request.send(n).expect("the server receives");
            assert_eq!(replies.recv(), Ok(n));
        }
    });
    drop(request);
    other.join().expect("no panic");
    nanoseconds
}

#[derive(Clone, Copy)]
enum Kind {
    Bounded,
    Unbounded,
}

/// Returns the nanoseconds of CPU time per round trip between two tasks.
fn tasks(kind: Kind) -> f64 {
    let runtime = tokio::runtime::Builder::new_current_thread().build().expect("no drivers");
    runtime.block_on(async move {
        let client = match kind {
            Kind::Bounded => tokio::spawn(bounded_tasks()),
            Kind::Unbounded => tokio::spawn(unbounded_tasks()),
        };
        client.await.expect("no panic")
    })
}

async fn bounded_tasks() -> f64 {
    let (request, requests) = tokio_mpsc::channel(1);
    let (reply, replies) = tokio_mpsc::channel(1);
    tokio::spawn(serve(requests, reply));
    let start = thread_cpu();
    call(request, replies, ROUND_TRIPS).await;
    (thread_cpu() - start).as_secs_f64() * 1e9 / ROUND_TRIPS as f64
}

async fn unbounded_tasks() -> f64 {
    let (request, mut requests) = tokio_mpsc::unbounded_channel();
    let (reply, mut replies) = tokio_mpsc::unbounded_channel();
    tokio::spawn(async move {
        while let Some(n) = requests.recv().await {
            reply.send(n).expect("the client receives");
        }
    });
    let start = thread_cpu();
    for n in 0..ROUND_TRIPS {
        request.send(n).expect("the server receives");
        assert_eq!(replies.recv().await, Some(n));
    }
    (thread_cpu() - start).as_secs_f64() * 1e9 / ROUND_TRIPS as f64
}

async fn serve(mut requests: tokio_mpsc::Receiver<u64>, reply: tokio_mpsc::Sender<u64>) {
    while let Some(n) = requests.recv().await {
        reply.send(n).await.expect("the client receives");
    }
}

async fn call(
    request: tokio_mpsc::Sender<u64>,
    mut replies: tokio_mpsc::Receiver<u64>,
    round_trips: u64,
) {
    for n in 0..round_trips {
        request.send(n).await.expect("the server receives");
        assert_eq!(replies.recv().await, Some(n));
    }
}

fn two_workers() -> tokio::runtime::Runtime {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).build();
    runtime.expect("a runtime")
}

fn one_runtime() -> f64 {
    two_workers().block_on(async {
        let (request, requests) = tokio_mpsc::channel(1);
        let (reply, replies) = tokio_mpsc::channel(1);
        tokio::spawn(serve(requests, reply));
        let client = tokio::spawn(async {
            let start = Instant::now();
            call(request, replies, ROUND_TRIPS_ACROSS).await;
            start.elapsed()
        });
        let elapsed = client.await.expect("no panic");
        elapsed.as_secs_f64() * 1e9 / ROUND_TRIPS_ACROSS as f64
    })
}

fn two_runtimes() -> f64 {
    let runtime = || tokio::runtime::Builder::new_current_thread().build().expect("no drivers");
    let (request, requests) = tokio_mpsc::channel(1);
    let (reply, replies) = tokio_mpsc::channel(1);
    let server = serve(requests, reply);
    let other = std::thread::spawn(move || runtime().block_on(server));
    let here = runtime();
    let start = Instant::now();
    here.block_on(call(request, replies, ROUND_TRIPS_ACROSS));
    let elapsed = start.elapsed();
    other.join().expect("no panic");
    elapsed.as_secs_f64() * 1e9 / ROUND_TRIPS_ACROSS as f64
}

/// Returns the nanoseconds per value, sent by a fiber that is placed so.
fn fibers_streaming(worker: Option<usize>) -> f64 {
    let (sender, receiver) = mpsc::sync_channel(DEPTH);
    let sends =
        move || (0..STREAMED).for_each(|n| sender.send(n).expect("the other side receives"));
    let other = placed(worker).spawn(sends).expect("a worker");
    let nanoseconds =
        wall_ns_per_op(STREAMED, || assert_eq!(receiver.iter().count() as u64, STREAMED));
    other.join().expect("no panic");
    nanoseconds
}

fn tasks_streaming() -> f64 {
    two_workers().block_on(async {
        let (sender, mut receiver) = tokio_mpsc::channel(DEPTH);
        tokio::spawn(async move {
            for n in 0..STREAMED {
                sender.send(n).await.expect("the other side receives");
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
        let elapsed = receives.await.expect("no panic");
        elapsed.as_secs_f64() * 1e9 / STREAMED as f64
    })
}

type PerOp = fn(u64, &mut dyn FnMut()) -> f64;

fn cpu_per_op(operations: u64, work: &mut dyn FnMut()) -> f64 {
    cpu_ns_per_op(operations, work)
}

fn wall_per_op(operations: u64, work: &mut dyn FnMut()) -> f64 {
    wall_ns_per_op(operations, work)
}
