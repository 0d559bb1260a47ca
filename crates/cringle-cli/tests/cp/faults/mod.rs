//! Every fault of a file system combined with every way of moving bytes, judged by one law.
//!
//! - Status 0 only if the copy has, byte by byte, what `read` returns from the source.
//! - A fault that a retry did not overcome is reported with a path and the error's text.
//! - A file that differs from the source does not have the times of the source.
//! - A file that is replaced, and with `--fsync` every file, is the old or the new one, never a
//!   part.
//! - No temporary name remains.
//!
//! `CRINGLE_FAULTS=all` runs every cell of the matrix; the default is a seeded sample, one in 80.

mod table;

use crate::common::*;
use crate::faulty::{ALWAYS, Faulty, Op, Rules};
use crate::support::*;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::SystemTime;
use table::{Before, FAULTS, Fault, Side, WAYS, Way};

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

    fn mkdir(&self, name: &str) {
        match self {
            Place::Faulty(faulty) => faulty.mkdir(name),
            Place::Plain(path) => fs::create_dir(path.join(name)).unwrap(),
        }
    }

    fn put(&self, name: &str, bytes: &[u8]) {
        match self {
            Place::Faulty(faulty) => faulty.put(name, bytes),
            Place::Plain(path) => fs::write(path.join(name), bytes).unwrap(),
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

struct Cell<'a> {
    fault: &'a Fault,
    way: &'a Way,
    side: Side,
    size: usize,
    writeback: bool,
}

const OLD: &[u8] = b"what was there before";

/// Runs one cell; returns the violations of the law.
fn judge(number: usize, cell: &Cell<'_>, faulty: &Faulty, plain: &Path) -> String {
    let Cell { fault, way, side, size, .. } = *cell;
    let base = format!("{number}");
    let on = |faulty_side| {
        if side == faulty_side || side == Side::Both {
            Place::Faulty(faulty)
        } else {
            Place::Plain(plain.to_owned())
        }
    };
    let (from, to) = (on(Side::Source), on(Side::Target));
    let bytes = content(size);
    for place in [&from, &to] {
        if !place.names("").contains(&base) {
            place.mkdir(&base);
        }
    }
    let in_tree = if way.tree { "/victims" } else { "" };
    let (source, target) = (format!("{base}/s{in_tree}"), format!("{base}/t{in_tree}"));
    from.mkdir(&format!("{base}/s"));
    to.mkdir(&format!("{base}/t"));
    if way.tree {
        from.mkdir(&source);
        from.put(&format!("{source}/another"), b"another");
        if way.before != Before::Nothing {
            to.mkdir(&target);
        }
    }
    let (file, copy) = (format!("{source}/victim"), format!("{target}/victim"));
    from.put(&file, &bytes);
    match way.before {
        Before::Nothing => {}
        Before::File => to.put(&copy, OLD),
        Before::TwoNames => {
            to.put(&copy, OLD);
            to.link(&copy, &format!("{base}/t/second"));
        }
    }
    faulty.set((fault.rules)(size as u64));
    let path = |place: &Place<'_>, name: &str| place.root().join(name).display().to_string();
    let (s, t) = match (way.tree, way.flags[..].first().is_some_and(|flag| flag.contains('T'))) {
        (false, _) => (path(&from, &file), path(&to, &copy)),
        (true, true) => (path(&from, &source), path(&to, &target)),
        (true, false) => (path(&from, &source), path(&to, &format!("{base}/t"))),
    };
    let arguments = [way.flags, &[s.as_str(), t.as_str()]].concat();
    let (status, out, stderr) = run(plain, &arguments);
    let fired = faulty.fired();
    let rules = (fault.rules)(size as u64);
    faulty.set(Rules::default());

    let source_now = from.get(&file).unwrap();
    let there = to.get(&copy);
    let same = there.as_ref().is_some_and(|(there, _)| *there == bytes || *there == source_now.0);
    let mut wrong = String::new();
    let mut law = |holds: bool, text: &str| {
        if !holds {
            let there = there.as_ref().map(|(bytes, _)| bytes.len());
            let _ = writeln!(
                wrong,
                "{}, {:?} of {side:?}, {size} bytes, writeback {}: {text}\n  status {status:?}, \
                 {there:?} bytes there, answered {fired:?}, standard error {:.300}",
                fault.name, arguments, cell.writeback, stderr
            );
        }
    };
    law(matches!(status, Some(0 | 1)), "the status is 0 or 1");
    law(out.is_empty(), "nothing on standard output");
    let spoils = rules.spoils && !way.flags.contains(&"--verify");
    law(status != Some(0) || same || spoils, "status 0 and other bytes than the source");
    law(
        (status == Some(0)) == stderr.is_empty(),
        "a status that is not 0 is explained, 0 has no words",
    );
    for failure in rules.failures.iter().filter(|one| one.times == ALWAYS) {
        let must = match failure.op {
            Op::Read | Op::Write | Op::Truncate | Op::Fsync | Op::Readdir | Op::Mkdir => true,
            Op::Unlink => true,
            Op::Open => side == Side::Source && status != Some(0),
            // A read-only descriptor has no data to lose when it is closed.
            Op::Flush => side != Side::Source,
            _ => false,
        };
        // The kernel reads ahead: a fault beyond a change does not concern the copy.
        if must && fired.contains(&failure.op) {
            // The kernel reports a delayed write as EIO, unless it was ENOSPC.
            let words = [words(failure.errno), words(libc::EIO)];
            let words = if cell.writeback { &words[..] } else { &words[..1] };
            let path = stderr.contains("victim") || stderr.contains(".cringle-cp.");
            let named = path && words.iter().any(|words| stderr.contains(words));
            law(named, "path and errno are reported");
            law(status == Some(1), "a fault that was answered is a failure");
        }
    }
    if way.tree
        && side == Side::Source
        && !fired.contains(&Op::Readdir)
        && !fired.iter().any(|op| matches!(op, Op::Lookup | Op::Getattr))
    {
        let another = to.get(&format!("{target}/another"));
        law(another.is_some_and(|(bytes, _)| bytes == b"another"), "the file beside it is copied");
    }
    let no_room =
        rules.full_at.is_some() || rules.failures.iter().any(|one| one.errno == libc::ENOSPC);
    let preserves = way.flags.iter().any(|flag| flag.starts_with("-a") || *flag == "-p");
    if let Some((there, time)) = &there {
        let half = *there != bytes && *there != source_now.0 && there != OLD;
        law(
            !half || spoils || !preserves || *time != source_now.1,
            "a part has the source's times",
        );
        let replaced = way.before == Before::File && status == Some(1);
        let whole = way.flags.contains(&"--fsync") && way.before != Before::TwoNames || replaced;
        let backed_up =
            way.flags.iter().any(|flag| flag.starts_with("--backup") || flag.contains("remove"));
        let in_place = fired.iter().any(|op| matches!(op, Op::Rename | Op::Create | Op::Setattr))
            || way.flags.contains(&"-f")
            || backed_up && !way.flags.contains(&"--fsync")
            || no_room;
        law(!half || spoils || !whole || in_place, "a part under a name that was to be whole");
    }
    let left = to.names(&target);
    let is_old = |name: &String| to.get(&format!("{target}/{name}")).is_some_and(|it| it.0 == OLD);
    let kept = left.iter().any(is_old);
    let removes = way.flags.iter().any(|flag| *flag == "-f" || *flag == "--remove-destination");
    let falls_back =
        |op: &Op| matches!(op, Op::Rename | Op::Create | Op::Setattr | Op::Getattr | Op::Xattr);
    let replaceable = !no_room && !fired.iter().any(falls_back);
    let backs_up = way.flags.iter().any(|flag| flag.starts_with("--backup"));
    if way.before == Before::File && !removes && (replaceable || backs_up) {
        law(kept || !backs_up || fired.contains(&Op::Rename), "the backup is lost");
        law(kept || same || spoils || status == Some(0), "the old content is lost");
    }
    law(
        fired.contains(&Op::Unlink) || !left.iter().any(|name| name.starts_with(".cringle")),
        "a temporary name is left",
    );
    wrong
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
    let Some(faulty) = Faulty::mount(base.path(), "faulty", false) else { return };
    let Some(late) = Faulty::mount(base.path(), "late", true) else { return };
    let plain = base.path().join("plain");
    fs::create_dir(&plain).unwrap();
    let all = std::env::var("CRINGLE_FAULTS").is_ok_and(|value| value == "all");
    let mut random = 0x9E37_79B9_7F4A_7C15_u64;
    let mut wrong = String::new();
    let mut number = 0;
    for fault in FAULTS {
        for way in WAYS {
            for side in sides(fault) {
                for size in SIZES {
                    random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                    if !all && !(random >> 33).is_multiple_of(80) {
                        continue;
                    }
                    number += 1;
                    let writeback = (random >> 32) & 1 == 1 && *side != Side::Source;
                    let on = if writeback { &late } else { &faulty };
                    let cell = Cell { fault, way, side: *side, size, writeback };
                    wrong += &judge(number, &cell, on, &plain);
                    if number % 64 == 0 {
                        faulty.clear();
                        late.clear();
                    }
                }
            }
        }
    }
    assert!(wrong.is_empty(), "of {number} cells:\n{wrong}");
}
