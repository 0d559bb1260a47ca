//! Runs one cell of the matrix and judges the result by the law.

use super::table::{Before, Fault, RESUME, Side, Way};
use super::{Place, content, words};
use crate::support::*;
use cringle_testing::fuse::{ALWAYS, Faulty, Op, Rules};
use std::fmt::Write as _;
use std::path::Path;
use std::time::SystemTime;

pub(super) struct Cell<'a> {
    pub(super) fault: &'a Fault,
    pub(super) way: &'a Way,
    pub(super) side: Side,
    pub(super) size: usize,
    pub(super) writeback: bool,
}

const OLD: &[u8] = b"what was there before";

/// Runs one cell; returns the violations of the law.
pub(super) fn judge(number: usize, cell: &Cell<'_>, faulty: &Faulty, plain: &Path) -> String {
    let on = |faulty_side| {
        if cell.side == faulty_side || cell.side == Side::Both {
            Place::Faulty(faulty)
        } else {
            Place::Plain(plain.to_owned())
        }
    };
    let (from, to) = (on(Side::Source), on(Side::Target));
    let names = Names::new(number, cell.way);
    let bytes = content(cell.size);
    prepare(cell, &names, &bytes, (&from, &to));
    faulty.set((cell.fault.rules)(cell.size as u64));
    let arguments = names.arguments(cell.way, (&from, &to));
    let (status, out, err) = run(plain, &arguments.iter().map(String::as_str).collect::<Vec<_>>());
    let fired = faulty.fired();
    faulty.set(Rules::default());
    let source = from.get(&names.file).unwrap();
    let copy = to.get(&names.copy);
    let same = copy.as_ref().is_some_and(|(copy, _)| *copy == bytes || *copy == source.0);
    let rules = (cell.fault.rules)(cell.size as u64);
    let mut trial = Trial {
        cell,
        spoils: rules.spoils && !cell.way.flags.contains(&"--verify"),
        rules,
        names,
        to,
        arguments,
        status,
        out,
        err,
        fired,
        bytes,
        source,
        copy,
        same,
        violations: String::new(),
    };
    trial.check_status();
    trial.check_faults();
    trial.check_other_file();
    trial.check_part();
    trial.check_old_file();
    trial.check_second_run((&from, plain));
    trial.violations
}

/// The names of one cell, relative to the places.
struct Names {
    base: String,
    source: String,
    target: String,
    file: String,
    copy: String,
}

impl Names {
    fn new(number: usize, way: &Way) -> Names {
        let base = format!("{number}");
        let in_tree = if way.tree { "/victims" } else { "" };
        let (source, target) = (format!("{base}/s{in_tree}"), format!("{base}/t{in_tree}"));
        let (file, copy) = (format!("{source}/victim"), format!("{target}/victim"));
        Names { base, source, target, file, copy }
    }

    /// Returns the command line.
    fn arguments(&self, way: &Way, (from, to): (&Place<'_>, &Place<'_>)) -> Vec<String> {
        let path = |place: &Place<'_>, name: &str| place.root().join(name).display().to_string();
        let onto = way.flags.first().is_some_and(|flag| flag.contains('T'));
        let (source, target) = match (way.tree, onto) {
            (false, _) => (path(from, &self.file), path(to, &self.copy)),
            (true, true) => (path(from, &self.source), path(to, &self.target)),
            (true, false) => (path(from, &self.source), path(to, &format!("{}/t", self.base))),
        };
        let manifest = format!("manifest-{}", self.base);
        let flags = way.flags.iter().map(|flag| flag.replace("MANIFEST", &manifest));
        flags.chain([source, target]).collect()
    }
}

/// Makes the source, and the target that exists before the copy.
fn prepare(cell: &Cell<'_>, names: &Names, bytes: &[u8], (from, to): (&Place<'_>, &Place<'_>)) {
    let (way, base) = (cell.way, &names.base);
    for place in [from, to] {
        if !place.has(base) {
            place.mkdir(base);
        }
    }
    from.mkdir(&format!("{base}/s"));
    to.mkdir(&format!("{base}/t"));
    if way.tree {
        from.mkdir(&names.source);
        from.put(&format!("{}/another", names.source), b"another");
        if way.before != Before::Nothing {
            to.mkdir(&names.target);
        }
    }
    from.put(&names.file, bytes);
    match way.before {
        Before::Nothing => {}
        Before::File => to.put(&names.copy, OLD),
        Before::TwoNames => {
            to.put(&names.copy, OLD);
            to.link(&names.copy, &format!("{base}/t/second"));
        }
    }
}

/// One run, and its result.
struct Trial<'a> {
    cell: &'a Cell<'a>,
    rules: Rules,
    /// The copy differs from the source without an error that the program could have noticed.
    spoils: bool,
    names: Names,
    to: Place<'a>,
    arguments: Vec<String>,
    status: Option<i32>,
    out: String,
    err: String,
    /// The failures that the file system returned.
    fired: Vec<Op>,
    /// The source's content before the copy.
    bytes: Vec<u8>,
    /// The source after the copy.
    source: (Vec<u8>, SystemTime),
    copy: Option<(Vec<u8>, SystemTime)>,
    /// The copy is what the source was before or after it.
    same: bool,
    violations: String,
}

impl Trial<'_> {
    fn law(&mut self, holds: bool, text: &str) {
        if holds {
            return;
        }
        let Cell { fault, side, size, writeback, .. } = *self.cell;
        let length = self.copy.as_ref().map(|(bytes, _)| bytes.len());
        let Trial { arguments, status, fired, err, .. } = &*self;
        let text = format!(
            "{}, {arguments:?} of {side:?}, {size} bytes, writeback {writeback}: {text}\n  \
             status {status:?}, {length:?} bytes in the copy, returned {fired:?}, \
             standard error {err:.300}",
            fault.name
        );
        let _ = writeln!(self.violations, "{text}");
    }

    fn has_fired(&self, any: &[Op]) -> bool {
        self.fired.iter().any(|op| any.contains(op))
    }

    fn has_flag(&self, wanted: &str) -> bool {
        self.cell.way.flags.contains(&wanted)
    }

    fn backs_up(&self) -> bool {
        self.cell.way.flags.iter().any(|flag| flag.starts_with("--backup"))
    }

    fn has_no_room(&self) -> bool {
        let failures = &self.rules.failures;
        self.rules.full_at.is_some() || failures.iter().any(|one| one.errno == libc::ENOSPC)
    }

    fn check_status(&mut self) {
        let success = self.status == Some(0);
        self.law(matches!(self.status, Some(0 | 1)), "the status is neither 0 nor 1");
        self.law(self.out.is_empty(), "standard output is not empty");
        self.law(!success || self.same || self.spoils, "status 0 with a different copy");
        self.law(success == self.err.is_empty(), "the status does not match the messages");
    }

    /// A fault that a retry cannot overcome is reported.
    fn check_faults(&mut self) {
        let lasting = self.rules.failures.iter().filter(|one| one.times == ALWAYS);
        for (op, errno) in lasting.map(|one| (one.op, one.errno)).collect::<Vec<_>>() {
            let must = match op {
                Op::Read | Op::Write | Op::Truncate | Op::Fsync | Op::Readdir | Op::Mkdir => true,
                Op::Unlink => true,
                Op::Open => self.cell.side == Side::Source && self.status != Some(0),
                // A read-only descriptor has no data to lose when it is closed.
                Op::Flush => self.cell.side != Side::Source,
                _ => false,
            };
            // The kernel reads ahead: a fault beyond a change does not concern the copy.
            if !must || !self.fired.contains(&op) {
                continue;
            }
            // The kernel reports a delayed write as EIO, unless it was ENOSPC.
            let words = [words(errno), words(libc::EIO)];
            let words = if self.cell.writeback { &words[..] } else { &words[..1] };
            let path = self.err.contains("victim") || self.err.contains(".cringle-cp.");
            let named = path && words.iter().any(|words| self.err.contains(words));
            self.law(named, "path and errno are not reported");
            self.law(self.status == Some(1), "a returned fault is no failure");
        }
    }

    fn check_other_file(&mut self) {
        let is_listed = !self.has_fired(&[Op::Readdir, Op::Lookup, Op::Getattr]);
        if self.cell.way.tree && self.cell.side == Side::Source && is_listed {
            let another = self.to.get(&format!("{}/another", self.names.target));
            let copied = another.is_some_and(|(bytes, _)| bytes == b"another");
            self.law(copied, "the file beside it is not copied");
        }
    }

    /// A partial copy does not look like its source, and has no name that was to be complete.
    fn check_part(&mut self) {
        let Some((copy, time)) = &self.copy else { return };
        let is_part = *copy != self.bytes && *copy != self.source.0 && copy != OLD && !self.spoils;
        let (time, flags) = (*time, self.cell.way.flags);
        let preserves = flags.iter().any(|flag| flag.starts_with("-a") || *flag == "-p");
        let is_alike = preserves && time == self.source.1;
        self.law(!is_part || !is_alike, "a part has the source's times");
        let before = self.cell.way.before;
        let is_replaced = before == Before::File && self.status == Some(1);
        let names_late = self.has_flag("--fsync") || self.has_flag(RESUME);
        let must_be_whole = names_late && before != Before::TwoNames || is_replaced;
        let is_removed =
            flags.iter().any(|flag| flag.starts_with("--backup") || flag.contains("remove"));
        let is_in_place = self.has_fired(&[Op::Rename, Op::Create, Op::Setattr])
            || self.has_flag("-f")
            || is_removed && !names_late
            || self.has_no_room();
        self.law(!is_part || !must_be_whole || is_in_place, "a part has a name that must be whole");
    }

    /// With a manifest, a second run without faults completes the copy. Behind a writeback cache,
    /// the kernel may keep a size that it was told of the source: then the copy may also be what
    /// the kernel reads.
    fn check_second_run(&mut self, (from, plain): (&Place<'_>, &Path)) {
        if !self.has_flag(RESUME) || self.spoils {
            return;
        }
        let arguments: Vec<_> = self.arguments.iter().map(String::as_str).collect();
        let (status, _, err) = run(plain, &arguments);
        self.law(status == Some(0), &format!("the second run fails: {err}"));
        let kernels = || std::fs::read(from.root().join(&self.names.file)).ok();
        let copy = self.to.get(&self.names.copy).map(|(bytes, _)| bytes);
        let own = from.get(&self.names.file).map(|(bytes, _)| bytes);
        let same = copy.is_some() && (copy == own || self.cell.writeback && copy == kernels());
        self.law(same, "the second run has left a different copy");
    }

    /// The old file, its backup, and temporary names.
    fn check_old_file(&mut self) {
        let left = self.to.names(&self.names.target);
        let content = |name: &String| self.to.get(&format!("{}/{name}", self.names.target));
        let kept = left.iter().any(|name| content(name).is_some_and(|file| file.0 == OLD));
        let removes = self.has_flag("-f") || self.has_flag("--remove-destination");
        let falls_back =
            self.has_fired(&[Op::Rename, Op::Create, Op::Setattr, Op::Getattr, Op::Xattr]);
        let is_replaced = !self.has_no_room() && !falls_back;
        let backs_up = self.backs_up();
        if self.cell.way.before == Before::File && !removes && (is_replaced || backs_up) {
            let has_backup = kept || !backs_up || self.fired.contains(&Op::Rename);
            self.law(has_backup, "the backup is lost");
            let is_safe = kept || self.same || self.spoils || self.status == Some(0);
            self.law(is_safe, "the old content is lost");
        }
        let is_clean = !left.iter().any(|name| name.starts_with(".cringle"));
        let cannot_remove = self.fired.contains(&Op::Unlink);
        self.law(cannot_remove || is_clean, "a temporary name is left");
    }
}
