//! Random programs have the expected outcome in simulations with faults, on the ring and on epoll.

use cringle::runtime::{Balance, DriverChoice};
use cringle::sim::{self, Failure, Fault};
use cringle_fuzz::{Checked, Program, check, check_balanced, check_on};

/// A fixed set of seeds; `.ci/run` also runs fresh ones.
#[test]
fn programs_have_the_expected_outcome_under_faults() {
    sim::each(0..1500, |seed| check(seed).map(drop));
}

#[test]
fn programs_have_the_expected_outcome_on_the_ring() {
    run_programs_on(DriverChoice::Auto);
}

#[test]
fn programs_have_the_expected_outcome_on_epoll() {
    run_programs_on(DriverChoice::Epoll);
}

/// Runs the number of programs in `CRINGLE_PROGRAMS`, or a default.
fn run_programs_on(driver: DriverChoice) {
    let root = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let count = std::env::var("CRINGLE_PROGRAMS").map_or(300, |count| count.parse().unwrap());
    for seed in 0..count {
        let program = Program::new(seed);
        let directory = root.path().join(seed.to_string());
        std::fs::create_dir(&directory).unwrap();
        let workers = 1 + seed as usize % 2;
        let outcome = program.run_on(driver, workers, &directory).unwrap();
        assert!(outcome == program.expected(), "seed {seed} on {workers} workers");
        std::fs::remove_dir_all(&directory).unwrap();
    }
}

#[test]
fn a_seed_repeats_the_same_run() {
    repeats(0..200, |seed| check_on(seed, 1));
}

#[test]
fn a_seed_repeats_the_order_of_workers() {
    repeats(0..150, |seed| check_balanced(seed, 2, Balance::Fixed));
    repeats(0..150, |seed| check_balanced(seed, 3, Balance::Fixed));
}

#[test]
fn a_seed_repeats_the_moves_of_fibers() {
    if let Some(why) = cannot_move() {
        return eprintln!("skipped: {why}");
    }
    repeats(0..150, |seed| check_balanced(seed, 2, Balance::Moving));
    repeats(0..150, |seed| check_balanced(seed, 3, Balance::Moving));
}

fn repeats(seeds: std::ops::Range<u64>, check: impl Fn(u64) -> Result<Checked, Failure>) {
    for seed in seeds {
        let first = check(seed).unwrap();
        // Other descriptors and allocations must not change the run.
        let (_read, _write) = std::io::pipe().unwrap();
        let held = vec![0u8; 100_000 + seed as usize];
        assert_eq!(first.stats, check(seed).unwrap().stats, "seed {seed}");
        drop(held);
    }
}

/// Why fibers cannot move here, if they cannot.
fn cannot_move() -> Option<std::io::Error> {
    cringle::Builder::new().workers(1).balance(Balance::Moving).run(|| ()).err()
}

#[test]
fn programs_have_the_expected_outcome_where_fibers_move() {
    if let Some(why) = cannot_move() {
        return eprintln!("skipped: {why}");
    }
    sim::each(0..700, |seed| {
        check_balanced(seed, 2 + seed as usize % 2, Balance::Moving).map(drop)
    });
}

#[test]
fn every_fault_occurs() {
    let mut by_fault = [0; Fault::ALL.len()];
    for seed in 0..300 {
        let checked = check(seed).unwrap();
        by_fault.iter_mut().zip(checked.stats.by_fault).for_each(|(sum, count)| *sum += count);
    }
    for (fault, count) in Fault::ALL.iter().zip(by_fault) {
        // `Reorder` changes how latencies are drawn and has no events to count.
        assert!(count > 0 || *fault == Fault::Reorder, "{fault:?} never occurred");
    }
}
