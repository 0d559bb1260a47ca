//! Random programs reach their outcome in simulations with faults, on the ring and on epoll.

use cringle::runtime::DriverChoice;
use cringle::sim::{self, Fault};
use cringle_fuzz::{Program, check};

/// The fixed set of seeds; `.ci/run` tries fresh ones, too.
#[test]
fn random_programs_come_to_their_outcome_under_all_faults() {
    sim::each(0..1500, |seed| check(seed).map(drop));
}

#[test]
fn random_programs_come_to_the_same_on_the_ring() {
    come_to_the_same_on(DriverChoice::Auto);
}

#[test]
fn random_programs_come_to_the_same_on_epoll() {
    come_to_the_same_on(DriverChoice::Epoll);
}

/// `CRINGLE_PROGRAMS=10000` runs so many.
fn come_to_the_same_on(driver: DriverChoice) {
    let place = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let count = std::env::var("CRINGLE_PROGRAMS").map_or(300, |count| count.parse().unwrap());
    for seed in 0..count {
        let program = Program::new(seed);
        let place = place.path().join(seed.to_string());
        std::fs::create_dir(&place).unwrap();
        let workers = 1 + seed as usize % 2;
        let outcome = program.run_on(driver, workers, &place).unwrap();
        assert!(outcome == program.expected(), "seed {seed} on {workers} workers");
        std::fs::remove_dir_all(&place).unwrap();
    }
}

#[test]
fn a_seed_makes_the_same_run_each_time() {
    for seed in 0..200 {
        let first = check(seed).unwrap();
        // Also if something else opens descriptors and allocates in between.
        let (_read, _write) = std::io::pipe().unwrap();
        let held = vec![0u8; 100_000 + seed as usize];
        assert_eq!(first.stats, check(seed).unwrap().stats);
        drop(held);
    }
}

#[test]
fn every_fault_occurs() {
    let mut by_fault = [0; Fault::ALL.len()];
    for seed in 0..300 {
        let checked = check(seed).unwrap();
        by_fault.iter_mut().zip(checked.stats.by_fault).for_each(|(sum, count)| *sum += count);
    }
    for (fault, count) in Fault::ALL.iter().zip(by_fault) {
        // `Reorder` is no event but how latencies are drawn.
        assert!(count > 0 || *fault == Fault::Reorder, "{fault:?} never occurred");
    }
}
