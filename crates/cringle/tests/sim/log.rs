//! `block::Log` in the simulation: whatever fails, and whenever the power is lost, the log has what
//! it has acknowledged, and nothing else than what was appended.

use cringle::block::{Log, LogBuilder};
use cringle::sim::{self, Failure, Fault, Faults, Options, Rng, World};
use cringle::{cancel, fiber, time};
use cringle_testing::child;
use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, ErrorKind};
use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

/// The records of one world.
#[derive(Default)]
struct Ledger {
    appended: BTreeSet<Vec<u8>>,
    acknowledged: BTreeMap<u64, Vec<u8>>,
    /// Records that were found though no append had acknowledged them.
    surprises: u32,
    opened: u32,
    /// Logs that were open for reading only.
    refused: u32,
    failed: u32,
    cancelled: u32,
}

struct Machine {
    seed: u64,
    ledger: Mutex<Ledger>,
    trusts_cache: bool,
}

impl Machine {
    fn ledger(&self) -> MutexGuard<'_, Ledger> {
        self.ledger.lock().unwrap()
    }

    fn builder(&self) -> LogBuilder {
        let builder = Log::builder().group_bytes(4096);
        if self.trusts_cache {
            #[cfg(feature = "sabotage")]
            return builder.trust_cache();
        }
        builder
    }

    /// Opens the log, and compares its records with the ledger.
    fn open(&self) -> io::Result<Log> {
        let mut found = BTreeMap::new();
        let log = self.builder().open("/log", |offset, record| {
            let is_last = found.last_key_value().is_none_or(|(last, _)| *last < offset);
            assert!(is_last, "the offsets are in order");
            found.insert(offset, record.to_owned());
            Ok(())
        });
        let log = log.inspect_err(|e| assert!(e.kind() != ErrorKind::InvalidData, "{e}"))?;
        let mut ledger = self.ledger();
        ledger.opened += 1;
        for (offset, record) in &ledger.acknowledged {
            assert_eq!(found.get(offset), Some(record), "the record at {offset} was acknowledged");
        }
        for record in found.values() {
            assert!(ledger.appended.contains(record), "a record was never appended");
        }
        let distinct: BTreeSet<_> = found.values().collect();
        assert_eq!(distinct.len(), found.len(), "a record is there twice");
        if log.check().is_err() {
            ledger.refused += 1;
            return Ok(log);
        }
        ledger.surprises += (found.len() - ledger.acknowledged.len()) as u32;
        // From now on they are durable.
        ledger.acknowledged = found;
        Ok(log)
    }

    /// Appends records until the log fails.
    fn append(&self, log: &Log, writer: u64, life: u64) {
        let mut rng = Rng::new(self.seed ^ writer << 32 ^ life << 48);
        for number in 0..12u64 {
            let mut record = format!("{life} {writer} {number} ").into_bytes();
            record.resize(record.len() + rng.magnitude(1, 1500) as usize, writer as u8);
            self.ledger().appended.insert(record.clone());
            let in_two_steps = rng.one_in(2);
            let append = || {
                if !in_two_steps {
                    return log.append(&record);
                }
                let offset = log.enqueue(&record)?;
                fiber::yield_now_cancellable()?;
                log.wait_durable(offset).map(|()| offset)
            };
            let result = if rng.one_in(6) {
                time::timeout(Duration::from_micros(rng.magnitude(1, 3000)), append)
            } else {
                append()
            };
            match result {
                Ok(offset) => {
                    let before = self.ledger().acknowledged.insert(offset, record.clone());
                    assert_eq!(before, None, "two records at {offset}");
                    if rng.one_in(3)
                        && let Ok(read) = log.read(offset)
                    {
                        assert_eq!(read, record);
                    }
                }
                Err(e) if cancel::reason(&e).is_some() => self.ledger().cancelled += 1,
                Err(_) => return self.ledger().failed += 1,
            }
        }
    }

    /// Opens the log some times, each time after it has failed, and appends.
    fn live(&self, life: u64) {
        for attempt in 0..3 {
            let Ok(log) = self.open() else { continue };
            fiber::scope(|s| {
                for writer in 0..8 {
                    let log = &log;
                    s.spawn(move || self.append(log, writer, life * 3 + attempt));
                }
            });
        }
    }
}

#[derive(Default)]
struct Tally {
    cut: u32,
    surprises: u32,
    reopened: u32,
    refused: u32,
    failed: u32,
    cancelled: u32,
}

/// Runs a machine with several losses of power. Returns the failure of a check.
fn run_machine(
    seed: u64,
    tally: &mut Tally,
    trusts_cache: bool,
    prepare: impl FnOnce(&mut World),
) -> Result<(), Failure> {
    let workers = 1 + seed as usize % 3;
    let options = Options::new().faults(Faults::all()).swarm(true).workers(workers);
    let mut world = World::new(seed, &options);
    prepare(&mut world);
    let machine = Machine { seed, ledger: Mutex::default(), trusts_cache };
    for life in 0..3 {
        let ended = world.run_until_power_loss(|| machine.live(life))?;
        tally.cut += u32::from(ended.is_none());
        world.crash();
    }
    world.stop_faults();
    world.run(|| {
        let log = machine.open().unwrap();
        log.append(b"the last record").unwrap();
    })?;
    let ledger = machine.ledger();
    tally.surprises += ledger.surprises;
    tally.reopened += ledger.opened;
    tally.refused += ledger.refused;
    tally.failed += ledger.failed;
    tally.cancelled += ledger.cancelled;
    Ok(())
}

#[test]
fn no_acknowledged_record_is_lost_and_no_other_is_found() {
    let mut tally = Tally::default();
    let seeds = child::scaled(100, 400) as u32;
    sim::each(0..seeds.into(), |seed| run_machine(seed, &mut tally, false, |_| {}));
    let Tally { cut, surprises, reopened, refused, failed, cancelled } = tally;
    let counts = format!("{cut} {surprises} {reopened} {refused} {failed} {cancelled}");
    let quarter = seeds / 4;
    assert!(cut > quarter && surprises > quarter && reopened > 10 * quarter, "{counts}");
    assert!(failed > quarter && cancelled > quarter && refused > quarter / 10, "{counts}");
}

/// The intact record of the torn group ends with a sector, so recovery writes a filler behind it.
#[test]
fn recovery_may_lose_the_power_at_any_time() {
    let mut repeated = 0;
    let seeds = child::scaled(150, 600) as u64;
    for seed in 0..seeds {
        // A frame that was written in part costs its group, of which no append has returned.
        let faults = Faults::hidden().without(Fault::ShortTransfer);
        let mut world = World::new(seed, &Options::new().faults(faults));
        let lens = [100, 340, 400, 30];
        let append = || -> io::Result<()> {
            let log = Log::open("/log", |_, _| Ok(()))?;
            log.append(&[7; 100])?;
            let offsets = lens[1..].iter().map(|len| log.enqueue(&vec![7; *len]));
            log.wait_durable(offsets.last().unwrap()?)
        };
        world.run(append).unwrap().unwrap();
        let whole = world.read("/log").unwrap();
        let torn_len = 504 + seed as usize * 8 % (whole.len() - 504);
        world.write("/log", &whole[..torn_len]).unwrap();
        let open = || {
            let mut found = Vec::new();
            let log = Log::open("/log", |_, record| {
                found.push(record.len());
                Ok(())
            });
            log.map(|log| (log, found)).inspect_err(|e| {
                assert_ne!(e.kind(), ErrorKind::InvalidData, "seed {seed}: {e}");
            })
        };
        for _ in 0..3 {
            let ended = world.run_until_power_loss(|| open().map(drop)).unwrap();
            repeated += u64::from(ended.is_none());
            world.crash();
        }
        let check = || {
            let (log, found) = open().unwrap();
            let whole = if torn_len < 504 + 16 + 400 { 2 } else { 3 };
            assert_eq!(found, lens[..whole], "seed {seed}");
            log.append(b"next").unwrap();
            drop(log);
            assert_eq!(open().unwrap().1.len(), whole + 1, "seed {seed}");
        };
        world.run(check).unwrap();
    }
    assert!(repeated > seeds / 2, "{repeated}");
}

/// Returns whether a mistake is found.
#[cfg(feature = "sabotage")]
fn is_found(trusts_cache: bool, by: Option<cringle::sim::Sabotage>) -> bool {
    (0..400).any(|seed| {
        let sabotage = |world: &mut World| {
            if let Some(by) = by {
                world.sabotage(by);
            }
        };
        let run = || run_machine(seed, &mut Tally::default(), trusts_cache, sabotage);
        !matches!(std::panic::catch_unwind(run), Ok(Ok(())))
    })
}

/// Proves that the test above can fail.
#[cfg(feature = "sabotage")]
#[test]
fn log_that_acknowledges_without_a_sync_is_found() {
    assert!(is_found(false, Some(cringle::sim::Sabotage::SyncIgnored)));
}

/// The records of a sync that failed are in the cache, and no sync writes them any more.
#[cfg(feature = "sabotage")]
#[test]
fn log_that_trusts_the_cache_when_it_is_opened_is_found() {
    assert!(is_found(true, None));
}

/// Appends until an append fails, while a fault occurs.
fn fail(log: &Log) -> Option<io::Error> {
    (0..30).find_map(|_| log.append(&[7; 100]).err())
}

/// (A directory that is not synced is not missed in the simulation: a sync of the file makes its
/// name durable, too.)
#[test]
fn sync_of_the_directory_that_fails_is_that_of_the_open() {
    let faults = Faults::none().with(Fault::InputOutput);
    let failed = (0..1000).filter(|seed| {
        let run = World::new(*seed, &Options::new().faults(faults)).run(|| {
            let error = Log::open("/directory/log", |_, _| Ok(())).err()?;
            assert_eq!(error.kind(), io::Error::from_raw_os_error(libc::EIO).kind());
            Some(error.to_string())
        });
        run.unwrap().is_some_and(|error| error.contains("cannot sync /directory, the directory"))
    });
    let failed = failed.count();
    assert!(failed > 3, "{failed} of 1000 logs");
}

#[test]
fn failed_log_refuses_appends_until_it_is_opened_again() {
    for fault in [Fault::InputOutput, Fault::NoSpace, Fault::ZeroTransfer] {
        let mut failed = 0;
        for seed in 0..60 {
            let options = Options::new()
                .faults(Faults::none().with(fault))
                .latency(Duration::from_micros(1)..=Duration::from_micros(10))
                .faults_for(Duration::from_millis(1));
            let run = World::new(seed, &options).run(|| {
                let Ok(log) = Log::open("/log", |_, _| Ok(())) else { return };
                let Some(first) = fail(&log) else { return };
                failed += 1;
                fiber::sleep(Duration::from_millis(1));
                let end = log.end();
                for _ in 0..3 {
                    let again = log.append(b"refused").unwrap_err();
                    assert_eq!(again.kind(), first.kind());
                    assert_eq!(again.to_string(), first.to_string());
                    let enqueued = log.enqueue(b"refused").unwrap_err();
                    assert_eq!(enqueued.to_string(), first.to_string());
                    let waited = log.wait_durable(end).unwrap_err();
                    assert_eq!(waited.to_string(), first.to_string());
                    if let Some(last) = end.checked_sub(1).filter(|last| *last > 24) {
                        log.wait_durable(last).unwrap();
                    }
                    let source = again.get_ref().unwrap().source().unwrap();
                    assert!(again.to_string().contains(&source.to_string()), "{again}");
                }
                assert_eq!(log.end(), end);
                drop(log);
                let log = Log::open("/log", |_, record| {
                    assert_eq!(record, [7; 100]);
                    Ok(())
                });
                log.unwrap().append(b"accepted").unwrap();
            });
            run.unwrap();
        }
        assert!(failed > 10, "{fault:?} failed {failed} of 60 logs");
    }
}
