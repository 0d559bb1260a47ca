//! The cost of the hazard detector: the same operations in two builds of this program, one with the
//! feature `detect`. `benches/detect/compare` builds both.
//!
//! Without an argument the program prints nanoseconds. With the path of the other build it has both
//! measure in turns, and prints the medians and the ratio.

use cringle::detect::{Mutex, RefCell};
use cringle::{Builder, fiber};
use std::hint::black_box;
use std::process::Command;
use std::time::Instant;

const ROUNDS: usize = 15;
const COUNT: u32 = 200_000;

/// The operations, each with the number of them in a call.
const OPERATIONS: [(&str, u32, fn()); 6] = [
    ("yield, two fibers", 2 * COUNT, yields),
    ("spawn_local and join", COUNT, spawns),
    ("cringle::sync::Mutex, lock and unlock", COUNT, sync_locks),
    ("detect::Mutex, lock and unlock", COUNT, locks),
    ("detect::RefCell, borrow_mut", COUNT, borrows),
    ("detect::Mutex, lock and unlock, then yield", COUNT, locks_and_yields),
];

fn main() {
    match std::env::args().nth(1) {
        None => print_times(),
        Some(other) => compare(&other),
    }
}

fn print_times() {
    for (_, count, operation) in OPERATIONS {
        let run = || {
            operation();
            let start = Instant::now();
            operation();
            start.elapsed()
        };
        let time = Builder::new().workers(1).watchdog(None).run(run).expect("a runtime starts");
        println!("{}", time.as_nanos() as f64 / f64::from(count));
    }
}

/// The times of the operations in one build.
fn times(program: &str) -> Vec<f64> {
    let output = Command::new(program).output().expect("the program starts");
    assert!(output.status.success(), "{program} failed: {}", output.status);
    let text = String::from_utf8(output.stdout).expect("numbers");
    text.lines().map(|line| line.parse().expect("a number")).collect()
}

fn compare(other: &str) {
    let own = std::env::current_exe().expect("a running program has a path");
    let own = own.to_str().expect("a path in UTF-8");
    let rounds: Vec<_> = (0..ROUNDS).map(|_| (times(other), times(own))).collect();
    println!("{:45} {:>8} {:>8} {:>8}", "ns, median", "without", "with", "ratio");
    for (at, (name, ..)) in OPERATIONS.iter().enumerate() {
        let without = median(rounds.iter().map(|(without, _)| without[at]));
        let with = median(rounds.iter().map(|(_, with)| with[at]));
        let ratio = median(rounds.iter().map(|(without, with)| with[at] / without[at]));
        println!("{name:45} {without:8.1} {with:8.1} {ratio:8.2}");
    }
}

fn median(samples: impl Iterator<Item = f64>) -> f64 {
    let mut samples: Vec<f64> = samples.collect();
    samples.sort_by(f64::total_cmp);
    samples[samples.len() / 2]
}

fn yields() {
    let other = fiber::spawn_local(|| (0..COUNT).for_each(|_| fiber::yield_now()));
    (0..COUNT).for_each(|_| fiber::yield_now());
    other.join().expect("it does not panic");
}

fn spawns() {
    for _ in 0..COUNT {
        fiber::spawn_local(|| ()).join().expect("it does not panic");
    }
}

fn sync_locks() {
    let lock = cringle::sync::Mutex::new(0);
    for _ in 0..COUNT {
        *black_box(&lock).lock().expect("not poisoned") += 1;
    }
}

fn locks() {
    let lock = Mutex::new(0);
    for _ in 0..COUNT {
        *black_box(&lock).lock().expect("not poisoned") += 1;
    }
}

fn borrows() {
    let cell = RefCell::new(0);
    for _ in 0..COUNT {
        *black_box(&cell).borrow_mut() += 1;
    }
}

fn locks_and_yields() {
    let lock = Mutex::new(0);
    for _ in 0..COUNT {
        *black_box(&lock).lock().expect("not poisoned") += 1;
        fiber::yield_now();
    }
}
