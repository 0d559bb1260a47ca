//! Every fault of a file system combined with every way of moving bytes, judged by one law.
//!
//! - Status 0 only if the copy has, byte by byte, what `read` returns from the source.
//! - A fault that a retry did not overcome is reported with a path and the error's text.
//! - A file that differs from the source does not have the times of the source.
//! - A file that is replaced, and with `--fsync` every file, is the old or the new one, never a
//!   part.
//! - No temporary name remains.
//!
//! `CRINGLE_FAULTS=all` runs every cell of the matrix, `CRINGLE_FAULTS=NAME` every cell of one
//! fault; the default is a seeded sample, one in 80.

mod endless;
mod judge;
mod table;

use crate::common::*;
use cringle_testing::fuse::{Faulty, InitFlags};

use judge::{Cell, judge};
use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};
use table::{FAULTS, Fault, Side, WAYS};

/// 300,000 bytes are more than two blocks of 128 KiB; 131,072 bytes are exactly one.
const SIZES: [usize; 5] = [0, 1000, 65_536, 131_072, 300_000];

/// Returns noise with runs of zeros, one of them at the end.
fn content(size: usize) -> Vec<u8> {
    let mut bytes = noise(size + 8);
    bytes.truncate(size);
    for (page, chunk) in bytes.chunks_mut(4096).enumerate() {
        if page % 5 == 3 || page % 16 > 12 {
            chunk.fill(0);
        }
    }
    bytes
}

fn words(errno: i32) -> String {
    let text = std::io::Error::from_raw_os_error(errno).to_string();
    text[..text.find(" (os error").unwrap()].to_owned()
}

/// The files on one side, faulty or plain.
enum Place<'a> {
    Faulty(&'a Faulty),
    Plain(PathBuf),
}

impl Place<'_> {
    fn root(&self) -> &Path {
        match self {
            Place::Faulty(faulty) => &faulty.at,
            Place::Plain(path) => path,
        }
    }

    /// Whether a directory of this name lies at the root.
    fn has(&self, name: &str) -> bool {
        match self {
            Place::Faulty(_) => self.names("").iter().any(|one| one == name),
            Place::Plain(path) => path.join(name).exists(),
        }
    }

    fn mkdir(&self, name: &str) {
        match self {
            Place::Faulty(faulty) => faulty.mkdir(name),
            Place::Plain(path) => fs::create_dir(path.join(name)).unwrap(),
        }
    }

    fn put(&self, name: &str, bytes: &[u8]) {
        match self {
            Place::Faulty(faulty) => faulty.put(name, bytes),
            Place::Plain(path) => {
                // Within a tick of the clock, a partial copy would get the same time.
                let mut file = fs::File::create(path.join(name)).unwrap();
                file.write_all(bytes).unwrap();
                file.set_modified(SystemTime::now() - Duration::from_secs(3600)).unwrap();
            }
        }
    }

    fn link(&self, name: &str, other: &str) {
        match self {
            Place::Faulty(faulty) => faulty.link(name, other),
            Place::Plain(path) => fs::hard_link(path.join(name), path.join(other)).unwrap(),
        }
    }

    fn get(&self, name: &str) -> Option<(Vec<u8>, SystemTime)> {
        match self {
            Place::Faulty(faulty) => faulty.get(name),
            Place::Plain(path) => {
                let path = path.join(name);
                let bytes = fs::read(&path).ok()?;
                Some((bytes, fs::metadata(&path).unwrap().modified().unwrap()))
            }
        }
    }

    fn names(&self, name: &str) -> Vec<String> {
        match self {
            Place::Faulty(faulty) => {
                let names = faulty.names(name).into_iter();
                names.map(|name| name.into_string().unwrap()).collect()
            }
            Place::Plain(path) => {
                let entries = fs::read_dir(path.join(name)).into_iter().flatten();
                entries.map(|one| one.unwrap().file_name().into_string().unwrap()).collect()
            }
        }
    }
}

fn sides(fault: &Fault) -> &'static [Side] {
    match fault.of {
        Side::Source => &[Side::Source, Side::Both],
        Side::Target => &[Side::Target, Side::Both],
        Side::Both => &[Side::Both, Side::Source, Side::Target],
    }
}

#[test]
fn no_fault_ends_with_other_bytes_and_status_0() {
    let base = tempfile::tempdir_in(place("cp-faults")).unwrap();
    let Some(faulty) = Faulty::mount(base.path(), "faulty") else { return };
    let late = Faulty::mount_with(base.path(), "late", InitFlags::FUSE_WRITEBACK_CACHE);
    let Some(late) = late else { return };
    let plain = base.path().join("plain");
    fs::create_dir(&plain).unwrap();
    let wanted = std::env::var("CRINGLE_FAULTS").unwrap_or_default();
    let mut random = fastrand::Rng::with_seed(0);
    let mut wrong = String::new();
    let mut number = 0;
    for fault in FAULTS {
        for way in WAYS {
            for side in sides(fault) {
                for size in SIZES {
                    // Drawn also for the cells that are left out, so that a cell does not depend
                    // on the choice.
                    let (is_sampled, writeback) = (random.u8(..80) == 0, random.bool());
                    let is_chosen = match wanted.as_str() {
                        "" => is_sampled,
                        "all" => true,
                        name => name == fault.name,
                    };
                    if !is_chosen {
                        continue;
                    }
                    number += 1;
                    let writeback = writeback && *side != Side::Source;
                    let on = if writeback { &late } else { &faulty };
                    let cell = Cell { fault, way, side: *side, size, writeback };
                    wrong += &judge(number, &cell, on, &plain);
                    if number.is_multiple_of(1000) {
                        println!("{number} cells judged");
                    }
                    if number.is_multiple_of(64) {
                        faulty.clear();
                        late.clear();
                    }
                }
            }
        }
    }
    assert!(wrong.is_empty(), "of {number} cells:\n{wrong}");
}
