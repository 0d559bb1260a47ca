//! Sabotages the simulation in one way for each checker, and asserts that this checker reports it.

use super::check::check_sabotaged;
use cringle::sim::{Checker, Failure, Sabotage};

/// Returns the first failure of some seeds.
fn found(by: Sabotage) -> Failure {
    found_in(400, by)
}

fn found_in(seeds: u64, by: Sabotage) -> Failure {
    (0..seeds)
        .find_map(|seed| check_sabotaged(seed, 1, by).err())
        .unwrap_or_else(|| panic!("no seed found {by:?}"))
}

#[test]
fn a_second_completion_is_found() {
    assert_eq!(found(Sabotage::TwiceCompleted).checker, Checker::Completions);
}

#[test]
fn access_to_lent_memory_is_found() {
    for by in [Sabotage::TouchedBefore, Sabotage::TouchedAfter, Sabotage::WriteChanged] {
        assert_eq!(found(by).checker, Checker::Buffers, "{by:?}");
    }
}

#[test]
fn a_leaked_descriptor_is_found() {
    assert_eq!(found(Sabotage::LeakedDescriptor).checker, Checker::Descriptors);
}

#[test]
fn a_sync_that_does_nothing_is_found() {
    assert_eq!(found(Sabotage::SyncIgnored).checker, Checker::Durability);
}

#[test]
fn a_failed_sync_that_is_only_repeated_is_found() {
    // Rare: the power is lost after the second sync, and the page was not written to again.
    assert_eq!(found_in(4000, Sabotage::SyncRepeated).checker, Checker::Durability);
}

#[test]
fn a_scope_that_ends_before_its_fibers_is_found() {
    assert_eq!(found(Sabotage::ScopeNotJoined).checker, Checker::Scopes);
}

#[test]
fn a_read_of_wrong_bytes_is_found() {
    assert_eq!(found(Sabotage::WrongBytes).checker, Checker::Outcome);
}
