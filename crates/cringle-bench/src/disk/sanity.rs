//! Detects conditions under which the figures would mean something other than they seem to, before
//! and after each run, and explains them in a note or a failure.

use super::job::Profile;
use super::plan::{Direction, Plan};
use super::results::Setting;
use super::strategies::Strategy;
use crate::experiment::Notes;
use crate::target::{Kind, Target};
use cringle::block::Polling;
use cringle_report::failure::{Failure, fail};
use cringle_report::machine::cache::{self, NEGLIGIBLE};
use cringle_report::machine::storage::Storage;
use cringle_report::units;
use std::fs::{self, File};
use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt;

/// Notes how busy the machine is before the first run, and returns its load average.
pub(super) fn note_load(notes: &mut Notes) -> Option<f64> {
    /// The part of the processors from which other programs compete noticeably.
    const BUSY: f64 = 0.3;
    let text = fs::read_to_string("/proc/loadavg").ok()?;
    let load: f64 = text.split_whitespace().next()?.parse().ok()?;
    let processors = cringle_report::machine::cpus::allowed().len();
    let advice = match load > BUSY * processors as f64 {
        true => ": other programs compete with this one, so the figures are too low and spread",
        false => "",
    };
    let processors = units::counted(processors, "processor");
    notes.add(format!("the load average was {load:.2} on {processors} at the start{advice}"));
    Some(load)
}

/// Examines the storage and the file before anything runs.
pub(super) fn examine_target(
    target: &Target,
    storage: &Storage,
    notes: &mut Notes,
) -> Result<(), Failure> {
    let path = target.path.display();
    let means = "this measures memory and the kernel's overhead, not a disk";
    notes.if_in_memory(storage, &target.path, means);
    if target.missing_bytes > 0 {
        notes.add(format!(
            "{path} is {} smaller than --size: only {} are used, and a cache of the device may \
             hold a larger part of them",
            units::size(target.missing_bytes),
            units::size(target.file_bytes)
        ));
    }
    if target.kind == Kind::File {
        let metadata = target.file.0.metadata()?;
        if metadata.blocks() * 512 < target.file_bytes {
            notes.add(format!(
                "{path} has holes ({} of {} are allocated): reading a hole needs no disk access, \
                 and writing one allocates blocks",
                units::size(metadata.blocks() * 512),
                units::size(target.file_bytes)
            ));
        }
    }
    Ok(())
}

/// Examines the first words of the blocks: a file of zeroes may never have been written to the
/// disk.
pub(super) fn examine_content(target: &Target, words: &[u64], notes: &mut Notes) {
    let Some(first) = words.first() else { return };
    if words.len() > 1 && words.iter().all(|word| word == first) {
        notes.add(format!(
            "all blocks of {} begin with the same bytes: a device that compresses, deduplicates or \
             tracks unwritten blocks is faster here than with real data, and the checksum cannot \
             distinguish the blocks",
            target.path.display()
        ));
    }
}

/// Whether the device has polled queues. The note explains what to do if it has none.
pub(super) fn can_poll(target: &Target, notes: &mut Notes) -> Result<bool, Failure> {
    let polling = Polling::of(&target.file.open(true, false)?)?;
    notes.add(format!("--iopoll: {polling}"));
    Ok(matches!(polling, Polling::Polled(_)))
}

/// Checks that the file can be opened with `O_DIRECT`, and that the flag is in effect. Adds a note
/// if writes do not heed it.
pub(super) fn require_direct(
    target: &Target,
    block: usize,
    direction: Direction,
    storage: &Storage,
    notes: &mut Notes,
) -> Result<(), Failure> {
    let alignment = storage.direct_alignment();
    if !(block as u64).is_multiple_of(alignment) {
        return Err(Failure::usage(format!(
            "--block is {block}, but O_DIRECT transfers multiples of {alignment} bytes here"
        )));
    }
    let refused = |error| {
        Failure::failed(format!(
            "{}: cannot open with O_DIRECT on {}: {error}; use --profile cached",
            target.path.display(),
            storage.filesystem
        ))
    };
    let file = target.file.open(true, false).map_err(refused)?;
    if flags_of(&file).is_some_and(|flags| flags & libc::O_DIRECT == 0) {
        return fail(format!(
            "{}: the kernel dropped O_DIRECT at open; use --profile cached",
            target.path.display()
        ));
    }
    if direction.writes()
        && let Some(cached) = storage.direct_writes_are_cached(&file)
    {
        notes.add(format!("{}: {cached}", target.path.display()));
    }
    Ok(())
}

/// Returns the kernel's flags of an open file.
fn flags_of(file: &File) -> Option<i32> {
    let info = fs::read_to_string(format!("/proc/self/fdinfo/{}", file.as_raw_fd())).ok()?;
    let line = info.lines().find_map(|line| line.strip_prefix("flags:"))?;
    i32::from_str_radix(line.trim(), 8).ok()
}

/// Fills or empties the page cache, as the profile requires. Returns the part of the file that is
/// cached afterwards.
pub(super) fn prepare_cache(
    profile: Profile,
    target: &Target,
    notes: &mut Notes,
) -> Result<f64, Failure> {
    match profile {
        Profile::Cached => fill_cache(target, notes),
        Profile::Direct => empty_cache(target),
        Profile::Wal => Ok(0.0),
    }
}

fn fill_cache(target: &Target, notes: &mut Notes) -> Result<f64, Failure> {
    let before = resident(target)?;
    if before == 1.0 {
        return Ok(1.0);
    }
    if before < 1.0 - NEGLIGIBLE && target.kind != Kind::Temporary {
        notes.add(format!(
            "{} was not completely in the page cache ({:.0} % of it): it was read once before the \
             `cached` runs",
            target.path.display(),
            before * 100.0
        ));
    }
    cache::warm(&target.file.0, target.file_bytes)?;
    let after = resident(target)?;
    if after < 1.0 - NEGLIGIBLE / 10.0 {
        notes.add(format!(
            "the `cached` runs wait for the device in part: only {:.1} % of the file stays in \
             memory (choose a smaller --size)",
            after * 100.0
        ));
    }
    Ok(after)
}

fn empty_cache(target: &Target) -> Result<f64, Failure> {
    cache::evict(&target.file.0)?;
    resident(target)
}

/// Adds a note if a direct run left pages in the cache, as reads without `O_DIRECT` do.
pub(super) fn note_fallback_to_cache(
    (setting, direction): (&Setting, Direction),
    target: &Target,
    plan: &Plan,
    resident_before: f64,
    notes: &mut Notes,
) -> Result<(), Failure> {
    if setting.profile != Profile::Direct || setting.strategy == Strategy::Mmap {
        return Ok(());
    }
    let touched = plan.accesses.len() as f64 * plan.block as f64 / target.file_bytes as f64;
    let grown = resident(target)? - resident_before;
    if grown > touched.min(1.0) / 2.0 {
        notes.add(format!(
            "O_DIRECT fell back to the page cache in `{}`: its {} left {:.0} % of the file there, \
             so its figures are not those of the device",
            setting.label(),
            direction.noun(),
            grown * 100.0
        ));
    }
    Ok(())
}

/// Returns the part of the file that is in the page cache.
fn resident(target: &Target) -> Result<f64, Failure> {
    Ok(cache::resident(&target.file.0, target.file_bytes)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    #[test]
    fn flags_of_an_open_file_are_read() {
        let mut file = tempfile::tempfile_in(env!("CARGO_MANIFEST_DIR")).unwrap();
        file.write_all(&[0; 4096]).unwrap();
        let flags = flags_of(&file).unwrap();
        assert_eq!(flags & libc::O_ACCMODE, libc::O_RDWR);
        assert_eq!(flags & libc::O_DIRECT, 0);
    }
}
