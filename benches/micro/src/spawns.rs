//! Spawning and joining local fibers, compared with tasks of tokio's single-threaded runtimes.
//! These have no drivers, which would add system calls.

use crate::report::{Contest, Report};
use common::clock::{cpu_ns_per_op, thread_cpu};
use cringle::fiber;
use std::hint::black_box;
use std::num::Wrapping;

const SPAWNS: u64 = 200_000;
/// The number of fibers that are spawned before the first one is joined.
const FAN: u64 = 100;
const BAR: f64 = 1.0;

pub(crate) fn run(rounds: usize) -> Vec<Report> {
    vec![one_by_one(rounds), by_fans(rounds)]
}

fn one_by_one(rounds: usize) -> Report {
    let on_fibers = "cringle: spawn_local, join";
    let on_tokio = [
        "tokio: spawn, await (from block_on)",
        "tokio: spawn, await (from a task)",
        "tokio: LocalSet spawn_local, await",
    ];
    Contest::new("spawn + join, one by one")
        .side(on_fibers, || fibers(1))
        .side(on_tokio[0], || tasks(1, From::BlockOn))
        .side(on_tokio[1], || tasks(1, From::Task))
        .side(on_tokio[2], || tasks(1, From::LocalSet))
        .run(rounds)
        .ratio(on_fibers, &on_tokio, Some(BAR))
}

fn by_fans(rounds: usize) -> Report {
    let on_fibers = "cringle: 100 × spawn_local, 100 × join";
    let on_tokio = ["tokio: spawn, from block_on", "tokio: spawn, from a task", "tokio: LocalSet"];
    Contest::new("spawn + join, by hundreds")
        .side(on_fibers, || fibers(FAN))
        .side(on_tokio[0], || tasks(FAN, From::BlockOn))
        .side(on_tokio[1], || tasks(FAN, From::Task))
        .side(on_tokio[2], || tasks(FAN, From::LocalSet))
        .run(rounds)
        .ratio(on_fibers, &on_tokio, None)
}

/// Returns the nanoseconds per spawn and join, `fan` at a time.
fn fibers(fan: u64) -> f64 {
    let spawning = |spawns: u64| {
        let mut handles = Vec::with_capacity(fan as usize);
        let mut sum = Wrapping(0);
        for first in (0..spawns).step_by(fan as usize) {
            handles.extend((0..fan).map(|at| fiber::spawn_local(move || black_box(first + at))));
            for handle in handles.drain(..) {
                sum += handle.join().expect("no panic");
            }
        }
        black_box(sum)
    };
    crate::on_one_worker(|| {
        spawning(1000);
        cpu_ns_per_op(SPAWNS, || {
            spawning(SPAWNS);
        })
    })
}

/// The context that spawns the tasks.
#[derive(Clone, Copy)]
pub(crate) enum From {
    BlockOn,
    Task,
    LocalSet,
}

/// The body of [`fibers`], with tasks that `$spawn` spawns.
macro_rules! spawning {
    ($fan:expr, $spawn:path) => {
        move |spawns: u64| async move {
            let fan: u64 = $fan;
            let mut handles = Vec::with_capacity(fan as usize);
            let mut sum = Wrapping(0);
            for first in (0..spawns).step_by(fan as usize) {
                handles.extend((0..fan).map(|at| $spawn(async move { black_box(first + at) })));
                for handle in handles.drain(..) {
                    sum += handle.await.expect("no panic");
                }
            }
            black_box(sum)
        }
    };
}

/// Returns the nanoseconds per spawn and join, `fan` at a time.
pub(crate) fn tasks(fan: u64, from: From) -> f64 {
    let runtime = tokio::runtime::Builder::new_current_thread().build().expect("no drivers");
    let local = tokio::task::LocalSet::new();
    match from {
        From::BlockOn => runtime.block_on(measured(spawning!(fan, tokio::spawn))),
        From::Task => runtime.block_on(async {
            let task = tokio::spawn(measured(spawning!(fan, tokio::spawn)));
            task.await.expect("no panic")
        }),
        From::LocalSet => {
            local.block_on(&runtime, measured(spawning!(fan, tokio::task::spawn_local)))
        }
    }
}

async fn measured<F: Future<Output = Wrapping<u64>>>(spawning: impl Fn(u64) -> F) -> f64 {
    spawning(1000).await;
    let start = thread_cpu();
    spawning(SPAWNS).await;
    (thread_cpu() - start).as_secs_f64() * 1e9 / SPAWNS as f64
}
