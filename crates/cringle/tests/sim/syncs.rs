//! Syncs that fail in the simulation, as on Linux: each open file reports the failure once, and the
//! bytes that could not be written are lost, though later syncs succeed.

use cringle::block::Batch;
use cringle::fiber;
use cringle::fs::{File, WriteFlags};
use cringle::sim::{Fault, Faults, Options, World};
use std::cell::Cell;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

const FAULTY: Duration = Duration::from_millis(1);

/// A world with one file. Faults occur for a while, in which some dozens of ops are done.
fn world_with(seed: u64, faults: Faults, content: &[u8]) -> World {
    let latency = Duration::from_micros(1)..=Duration::from_micros(10);
    let options = Options::new().latency(latency).faults(faults).faults_for(FAULTY);
    let mut world = World::new(seed, &options);
    world.write("/log", content).unwrap();
    world
}

fn failing() -> Faults {
    Faults::none().with(Fault::InputOutput)
}

fn open() -> io::Result<File> {
    File::options().read(true).write(true).open("/log")
}

fn open_synced() -> io::Result<File> {
    File::options().read(true).write(true).custom_flags(libc::O_DSYNC).open("/log")
}

/// Waits until no more faults occur.
fn wait_for_the_end_of_faults() {
    fiber::sleep(FAULTY);
}

/// Syncs through a new handle to the same open file, which knows of no failure before.
fn sync_anew(file: &File) -> io::Result<()> {
    File::from(OwnedFd::from(file.try_clone()?)).sync_data()
}

#[test]
fn failure_is_reported_once_by_each_open_file() {
    let mut failed = 0;
    for seed in 0..100 {
        let run = world_with(seed, failing(), b"").run(|| {
            let (Ok(one), Ok(other)) = (open(), open()) else { return };
            let fails = || one.write_all_at(&[1; 100], 0).is_ok() && one.sync_data().is_err();
            if !(0..20).any(|_| fails()) {
                return;
            }
            failed += 1;
            wait_for_the_end_of_faults();
            open().unwrap().sync_data().unwrap();
            sync_anew(&one).unwrap();
            assert_eq!(sync_anew(&other).unwrap_err().raw_os_error(), Some(libc::EIO));
            sync_anew(&other).unwrap();
            assert!(one.sync_data().is_err(), "the handle has forgotten its failure");
        });
        run.unwrap();
    }
    assert!(failed > 50, "a sync failed in {failed} of 100 runs");
}

/// Runs until the call fails on a handle, in most of 100 runs, and then has `check` look at the
/// handle. Syncs through its clone fail from then on.
fn failure_fails_later_syncs(call_fails: fn(&File) -> bool, check: fn(&File)) {
    let mut failed = 0;
    for seed in 0..100 {
        let run = world_with(seed, failing(), b"").run(|| {
            let Ok(one) = open() else { return };
            let clone = one.try_clone().unwrap();
            if !(0..20).any(|_| call_fails(&one)) {
                return;
            }
            failed += 1;
            wait_for_the_end_of_faults();
            check(&one);
            let error = clone.sync_data().unwrap_err();
            assert!(error.to_string().contains("an earlier sync"), "{error}");
        });
        run.unwrap();
    }
    assert!(failed > 50, "the call failed in {failed} of 100 runs");
}

/// The kernel reports the failure by the first call that waits, and not by a later sync.
#[test]
fn failure_that_another_call_has_reported_fails_later_syncs() {
    failure_fails_later_syncs(
        |file| file.write_all_at(&[1; 100], 0).is_ok() && file.sync_range(0, 0).is_err(),
        |file| sync_anew(file).unwrap(),
    );
}

/// The same by a write that syncs.
#[test]
fn failure_of_a_write_that_syncs_fails_later_syncs() {
    let call_fails = |file: &File| file.write_at_with(&[1; 100], 0, WriteFlags::DSYNC).is_err();
    failure_fails_later_syncs(call_fails, |_| {});
}

/// The same by a write of a file that is opened so.
#[test]
fn failure_of_a_write_to_a_synced_file_fails_later_syncs() {
    let mut failed = 0;
    for seed in 0..100 {
        let run = world_with(seed, failing(), b"").run(|| {
            let Ok(one) = open_synced() else { return };
            let fails = || one.write_at(&[1; 100], 0).is_err();
            if !(0..20).any(|_| fails()) {
                return;
            }
            failed += 1;
            wait_for_the_end_of_faults();
            for error in [one.write_at(&[1; 100], 0).unwrap_err(), one.sync_data().unwrap_err()] {
                assert!(error.to_string().contains("an earlier sync"), "{error}");
            }
        });
        run.unwrap();
    }
    assert!(failed > 50, "a write failed in {failed} of 100 runs");
}

#[test]
fn write_that_syncs_is_durable_when_it_returns() {
    is_durable_when_it_returns(|file, bytes, at| file.write_at_with(bytes, at, WriteFlags::DSYNC));
}

#[test]
fn write_of_a_synced_file_is_durable_when_it_returns() {
    is_durable_when_it_returns(|_, bytes, at| open_synced()?.write_at(bytes, at));
}

#[test]
fn batch_of_a_synced_file_is_durable_when_it_returns() {
    is_durable_when_it_returns(|_, bytes, at| {
        let file = open_synced()?;
        let mut batch = Batch::new();
        let write = batch.write(&file, bytes, at);
        batch.submit().get(write)
    });
}

/// The bytes of such a write survive a loss of power, and those of another one need not.
fn is_durable_when_it_returns(write: fn(&File, &[u8], u64) -> io::Result<usize>) {
    let (mut lost, mut kept) = (0, 0);
    for seed in 0..300 {
        let faults = Faults::none().with(Fault::Writeback);
        let mut world = world_with(seed, faults, &[0; 8192]);
        let written = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&written);
        let ended = world.run_until_power_loss(move || {
            let file = open()?;
            for n in 0..64usize {
                // The second half is not synced.
                file.write_at(&[1; 64], 4096 + 64 * n as u64)?;
                let done = write(&file, &[1; 64], 64 * n as u64)?;
                assert_eq!(done, 64);
                count.store(n + 1, Ordering::Relaxed);
            }
            io::Result::Ok(())
        });
        if ended.unwrap().is_some() {
            world.crash();
        }
        let content = world.read("/log").unwrap();
        let durable = 64 * written.load(Ordering::Relaxed);
        assert_eq!(
            content[..durable],
            vec![1; durable],
            "seed {seed}: an acknowledged byte is lost"
        );
        let other = &content[4096..][..durable];
        if other.iter().all(|&byte| byte == 1) { kept += 1 } else { lost += 1 }
    }
    assert!(lost > 50, "bytes without a sync were lost in {lost} runs, and kept in {kept}");
}

#[test]
fn failure_that_no_sync_has_reported_is_reported_to_a_later_open() {
    let mut failed = 0;
    for seed in 0..100 {
        let run = world_with(seed, failing().with(Fault::Writeback), b"").run(|| {
            let Ok(one) = open() else { return };
            for n in 0..20 {
                let _ = one.write_all_at(&[1; 100], n * 100);
            }
            wait_for_the_end_of_faults();
            let later = [open().unwrap(), open().unwrap()];
            if later[0].sync_data().is_ok() {
                return one.sync_data().unwrap();
            }
            failed += 1;
            assert!(later[1].sync_data().is_err() && one.sync_data().is_err());
            open().unwrap().sync_data().unwrap();
        });
        run.unwrap();
    }
    assert!(failed > 5 && failed < 100, "a write-back failed in {failed} of 100 runs");
}

/// Returns whether the bytes of a sync that failed are on the disk after a later one, if any sync
/// failed.
fn survives(seed: u64, writes_again: bool) -> Option<bool> {
    const LEN: usize = 20_000;
    let mut world = world_with(seed, failing(), &[0; LEN]);
    let run = world.run(|| {
        let one = open().ok()?;
        let number = (1..20).find(|&number| {
            one.write_all_at(&[number; LEN], 0).is_ok() && one.sync_data().is_err()
        })?;
        wait_for_the_end_of_faults();
        let again = open().unwrap();
        if writes_again {
            again.write_all_at(&[number; LEN], 0).unwrap();
        }
        again.sync_data().unwrap();
        let mut found = [0; LEN];
        again.read_exact_at(&mut found, 0).unwrap();
        assert_eq!(found, [number; LEN], "the cache has the bytes");
        Some(number)
    });
    let number = run.unwrap()?;
    world.crash();
    let found = world.read("/log").unwrap();
    Some(found == [number; LEN])
}

#[test]
fn bytes_of_a_failed_sync_are_lost_unless_they_are_written_again() {
    let of_seeds = |writes_again| {
        let outcomes = (0..100).filter_map(move |seed| survives(seed, writes_again));
        outcomes.collect::<Vec<bool>>()
    };
    let (synced_again, written_again) = (of_seeds(false), of_seeds(true));
    assert!(synced_again.len() > 50, "a sync failed in {} of 100 runs", synced_again.len());
    assert!(synced_again.iter().all(|survives| !survives));
    assert!(written_again.iter().all(|survives| *survives));
}

#[test]
fn truncation_ends_the_loss_of_a_page() {
    let mut failed = 0;
    for seed in 0..100 {
        let mut world = world_with(seed, failing(), &[1; 9000]);
        let run = world.run(|| {
            let one = open().ok()?;
            // The lost page has the bytes that truncation and growth leave, too.
            let write = |byte| one.write_all_at(&[byte; 9000], 0);
            let keeps = |byte| write(byte).and_then(|()| one.sync_data()).is_ok();
            let fails = || keeps(1) && write(0).is_ok() && one.sync_data().is_err();
            (0..20).any(|_| fails()).then_some(())?;
            wait_for_the_end_of_faults();
            let again = open().unwrap();
            again.set_len(100).unwrap();
            again.write_all_at(&[3; 100], 0).unwrap();
            again.set_len(9000).unwrap();
            again.sync_data().unwrap();
            Some(())
        });
        if run.unwrap().is_some() {
            failed += 1;
            world.crash();
            assert_eq!(world.read("/log").unwrap(), [[3; 100].as_slice(), &[0; 8900]].concat());
        }
    }
    assert!(failed > 20, "a sync failed in {failed} of 100 runs");
}

/// What a writer does after a sync that failed.
#[derive(Clone, Copy, PartialEq)]
enum After {
    Stop,
    /// It opens the file again, and syncs.
    Sync,
    /// It opens the file again, writes, and syncs.
    Write,
}

#[derive(Default)]
struct Tally {
    cut: u32,
    failed: u32,
    lost: u32,
}

const WRITERS: u64 = 16;

/// The place of a writer's record. Records of several writers are in one page.
fn place(writer: u64, record: u64) -> u64 {
    (record * WRITERS + writer) * 520
}

/// Writes records, and counts those that were acknowledged by a sync.
fn write_records(mut log: File, writer: u64, after: After, acknowledged: &Cell<u64>) {
    for record in 1..=20u64 {
        let mut is_written = false;
        for tries in 0.. {
            if !is_written {
                let written = log.write_all_at(&record.to_le_bytes(), place(writer, record));
                is_written = written.is_ok();
            }
            if is_written && log.sync_data().is_ok() {
                acknowledged.set(record);
                break;
            }
            let again = if tries < 50 && after != After::Stop { open().ok() } else { None };
            let Some(again) = again else { return };
            log = again;
            is_written &= after == After::Sync;
        }
    }
}

/// Runs writers that share a file through clones, while syncs fail, until the power is lost.
fn run_writers(seed: u64, after: After, tally: &mut Tally) {
    // The library answers `WouldBlock` by a plain call, which makes pages dirty, too.
    let faults = [Fault::Reorder, Fault::ShortTransfer, Fault::Writeback, Fault::WouldBlock];
    let faults = faults.into_iter().fold(failing(), Faults::with);
    let acknowledged = [const { Cell::new(0) }; WRITERS as usize];
    let mut world = World::new(seed, &Options::new().faults(faults));
    world.write("/log", "").unwrap();
    let ended = world.run_until_power_loss(|| {
        let Ok(log) = open() else { return };
        fiber::scope(|s| {
            for (writer, acknowledged) in (0..).zip(&acknowledged) {
                let log = log.try_clone().unwrap();
                s.spawn_local(move || write_records(log, writer, after, acknowledged));
            }
        });
    });
    tally.cut += u32::from(ended.unwrap().is_none());
    world.crash();
    let input_output = Fault::ALL.iter().position(|&fault| fault == Fault::InputOutput).unwrap();
    tally.failed += u32::from(world.stats().by_fault[input_output] > 0);
    let log = world.read("/log").unwrap();
    let is_lost = |writer: u64, record: u64| {
        let at = place(writer, record) as usize;
        log.get(at..at + 8) != Some(&record.to_le_bytes())
    };
    let mut acknowledged = (0..WRITERS).zip(&acknowledged);
    let lost = acknowledged
        .any(|(writer, records)| (1..=records.get()).any(|record| is_lost(writer, record)));
    tally.lost += u32::from(lost);
}

fn tally_of(after: After) -> Tally {
    let mut tally = Tally::default();
    (0..300).for_each(|seed| run_writers(seed, after, &mut tally));
    let Tally { cut, failed, .. } = tally;
    assert!(cut > 20 && failed > 100, "of 300 runs {cut} lost power and {failed} failed");
    tally
}

#[test]
fn clones_keep_what_they_acknowledge_though_syncs_fail() {
    assert_eq!(tally_of(After::Stop).lost, 0);
}

#[test]
fn writers_that_write_again_after_a_failed_sync_keep_what_they_acknowledge() {
    assert_eq!(tally_of(After::Write).lost, 0);
}

/// Proves that the tests above can fail.
#[test]
fn writers_that_only_sync_again_after_a_failed_sync_lose_what_they_acknowledge() {
    assert!(tally_of(After::Sync).lost > 20);
}
