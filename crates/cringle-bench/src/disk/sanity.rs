//! The benchmark refuses to be fooled: what would make its figures mean something else than
//! they seem to is looked for, before and after each run, and said in words.

use super::job::Profile;
use super::plan::Plan;
use super::results::Cell;
use super::strategies::Strategy;
use crate::notes::Notes;
use crate::target::{Kind, Target};
use cringle::block::Polling;
use cringle_report::failure::{Failure, fail};
use cringle_report::machine::{cache, storage::Storage};
use cringle_report::units;
use std::fs::{self, File};
use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt;

/// A rest of pages in the cache that no one can get rid of does not count.
const NEGLIGIBLE: f64 = 0.01;

/// What the place itself says, before anything runs.
pub(super) fn place(target: &Target, storage: &Storage, notes: &mut Notes) -> Result<(), Failure> {
    let path = target.path.display();
    if let Some(memory) = storage.in_memory() {
        notes.add(format!(
            "{path} is {memory}: this measures memory and the kernel's overhead, no disk"
        ));
    }
    if target.missing_bytes > 0 {
        notes.add(format!(
            "{path} is {} smaller than asked: {} are read, so that more of them may come from a \
             cache of the device",
            units::size(target.missing_bytes),
            units::size(target.file_bytes)
        ));
    }
    if target.kind == Kind::File {
        let metadata = target.files[0].0.metadata()?;
        if metadata.blocks() * 512 < target.file_bytes {
            notes.add(format!(
                "{path} has holes ({} of {} are allocated): reads of a hole ask no disk",
                units::size(metadata.blocks() * 512),
                units::size(target.file_bytes)
            ));
        }
    }
    Ok(())
}

/// What the content says: a file of zeroes may never have been written to its disk.
pub(super) fn content(target: &Target, words: &[u64], notes: &mut Notes) {
    let Some(first) = words.first() else { return };
    if words.len() > 1 && words.iter().all(|word| word == first) {
        notes.add(format!(
            "all blocks of {} begin alike: a device that compresses, deduplicates or knows \
             unwritten blocks answers these reads faster than real ones, and the checksum \
             cannot tell one block from another",
            target.path.display()
        ));
    }
}

/// Whether completions can be polled for; if not, why, and how to get there.
pub(super) fn polled(target: &Target, notes: &mut Notes) -> Result<bool, Failure> {
    let polling = Polling::of(&target.files[0].open(true, false)?)?;
    notes.add(format!("--iopoll: {polling}"));
    Ok(matches!(polling, Polling::Polled(_)))
}

/// Opens with `O_DIRECT` and looks whether the flag is there.
pub(super) fn direct(target: &Target, block: usize, storage: &Storage) -> Result<(), Failure> {
    let alignment = storage.direct_alignment();
    if !(block as u64).is_multiple_of(alignment) {
        return Err(Failure::usage(format!(
            "O_DIRECT here transfers multiples of {alignment} bytes, and --block is {block}"
        )));
    }
    let refused = |error| {
        Failure::failed(format!(
            "{} cannot be opened with O_DIRECT ({error}) on {}: use --profile cached there",
            target.path.display(),
            storage.filesystem
        ))
    };
    let file = target.files[0].open(true, false).map_err(refused)?;
    if flags_of(&file).is_some_and(|flags| flags & libc::O_DIRECT == 0) {
        return fail(format!(
            "O_DIRECT was dropped when {} was opened: use --profile cached there",
            target.path.display()
        ));
    }
    Ok(())
}

/// The open file's flags as the kernel has them.
fn flags_of(file: &File) -> Option<i32> {
    let info = fs::read_to_string(format!("/proc/self/fdinfo/{}", file.as_raw_fd())).ok()?;
    let line = info.lines().find_map(|line| line.strip_prefix("flags:"))?;
    i32::from_str_radix(line.trim(), 8).ok()
}

/// Brings the page cache into the state that the profile asks for. Returns which part of the
/// files is in it then.
pub(super) fn prepare_cache(
    profile: Profile,
    target: &Target,
    notes: &mut Notes,
) -> Result<f64, Failure> {
    match profile {
        Profile::Cached => warmed(target, notes),
        Profile::Direct | Profile::BufferedSeq => emptied(profile, target, notes),
        Profile::Wal => Ok(0.0),
    }
}

fn warmed(target: &Target, notes: &mut Notes) -> Result<f64, Failure> {
    let before = resident(target)?;
    if before == 1.0 {
        return Ok(1.0);
    }
    if before < 1.0 - NEGLIGIBLE && target.kind != Kind::Temporary {
        notes.add(format!(
            "{} was not in the page cache ({:.0} % of it): it was read once before the `cached` \
             runs",
            target.path.display(),
            before * 100.0
        ));
    }
    for file in &target.files {
        cache::warm(&file.0, target.file_bytes)?;
    }
    let after = resident(target)?;
    if after < 1.0 - NEGLIGIBLE / 10.0 {
        notes.add(format!(
            "the `cached` runs are not all cached: only {:.1} % of the file stays in memory \
             (a smaller --size may fit)",
            after * 100.0
        ));
    }
    Ok(after)
}

fn emptied(profile: Profile, target: &Target, notes: &mut Notes) -> Result<f64, Failure> {
    for file in &target.files {
        cache::evict(&file.0)?;
    }
    let left = resident(target)?;
    if left > NEGLIGIBLE && profile == Profile::BufferedSeq {
        notes.add(format!(
            "{:.0} % of the file could not be dropped from the page cache: `buffered-seq` is \
             partly a copy from memory",
            left * 100.0
        ));
    }
    Ok(left)
}

/// After a direct run: did its reads leave pages behind, as reads without `O_DIRECT` do?
pub(super) fn direct_stayed_direct(
    cell: &Cell,
    target: &Target,
    plan: &Plan,
    resident_before: f64,
    notes: &mut Notes,
) -> Result<(), Failure> {
    if cell.profile != Profile::Direct || cell.strategy == Strategy::Mmap {
        return Ok(());
    }
    let total = target.file_bytes * target.files.len() as u64;
    let touched = plan.accesses.len() as f64 * plan.block as f64 / total as f64;
    let grown = resident(target)? - resident_before;
    if grown > touched.min(1.0) / 2.0 {
        notes.add(format!(
            "O_DIRECT fell back to the page cache in `{}`: its reads left {:.0} % of the file \
             there, so these figures are not the device's",
            cell.label(),
            grown * 100.0
        ));
    }
    Ok(())
}

fn resident(target: &Target) -> Result<f64, Failure> {
    let mut sum = 0.0;
    for file in &target.files {
        sum += cache::resident(&file.0, target.file_bytes)?;
    }
    Ok(sum / target.files.len() as f64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    #[test]
    fn a_note_is_said_once() {
        let mut notes = Notes::default();
        notes.add("x");
        notes.add("x");
        assert_eq!(notes.all(), ["x"]);
    }

    #[test]
    fn the_kernel_tells_the_flags_of_an_open_file() {
        let mut file = tempfile::tempfile_in(env!("CARGO_MANIFEST_DIR")).unwrap();
        file.write_all(&[0; 4096]).unwrap();
        let flags = flags_of(&file).unwrap();
        assert_eq!(flags & libc::O_ACCMODE, libc::O_RDWR);
        assert_eq!(flags & libc::O_DIRECT, 0);
    }
}
