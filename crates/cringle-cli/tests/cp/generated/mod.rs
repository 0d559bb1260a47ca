//! Copies random trees onto occupied targets with random flags, by GNU's `cp` and by ours. Result,
//! messages and status must be the same.
//!
//! `CRINGLE_TREES=10000` draws that many cases (a few by default); `CRINGLE_TREES_START=N` starts
//! with that seed. A case that differs is made smaller before it is printed.
//!
//! If names of a tree depend on each other (two links to one file are both written to, a backup
//! gets the name of another source), the result depends on the order in which a directory is
//! listed, which is undefined. A result that differs is therefore compared with GNU's results for
//! other [orders](crate::order), and must be one of them.

mod bits;
mod case;
mod excused;

use crate::common::*;
use crate::order;
use crate::support::*;
use crate::trees::describe;
use crate::users::place_of_nobody;
use case::{Case, Made, What};
use fastrand::Rng;
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::os::unix::process::CommandExt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

const DEFAULT_CASES: u64 = 150;
/// More CPU time than any copy of such a tree needs; a copy that uses it does not end.
const GNUS_SECONDS: libc::rlim_t = 1;
/// The orders of GNU's in which a result is searched: enough for each of the 120 orders of five
/// names. (A search in 400 of them misses one in 28.)
const ORDERS: u64 = 4000;
/// The same for the smaller variants of a case that differs.
const ORDERS_OF_SMALLER: u64 = 24;

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|text| text.parse().expect(name))
}

/// The files, the messages and the status of a run.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Outcome {
    pub(crate) status: Option<i32>,
    pub(crate) out: Vec<String>,
    pub(crate) err: Vec<String>,
    pub(crate) tree: BTreeMap<OsString, String>,
}

/// The files. Times are compared only where they were set, to a value long ago.
fn tree_of(place: &Path) -> BTreeMap<OsString, String> {
    let mut all = describe(place, false);
    let at = place.to_str().unwrap();
    for (name, text) in &mut all {
        let stat = fs::symlink_metadata(place.join(name)).unwrap();
        if stat.mtime() < 1_100_000_000 && !name.is_empty() {
            text.push_str(&format!(" mtime {}.{}", stat.mtime(), stat.mtime_nsec()));
        }
        *text = text.replace(at, "PLACE");
    }
    all.remove(std::ffi::OsStr::new(""));
    all
}

/// Keeps FIFOs open, so that no open of the other end waits.
fn hold_fifos(place: &Path, made: &[Made]) -> Vec<fs::File> {
    let fifos = made.iter().filter(|made| matches!(made.what, What::Fifo));
    let open = |made: &Made| {
        let mut options = fs::OpenOptions::new();
        options.read(true).write(true).custom_flags(libc::O_NONBLOCK | libc::O_NOFOLLOW);
        let fifo = options.open(place.join(&made.path)).ok()?;
        // Room for everything that a case may write to it.
        // SAFETY: the call takes no pointers.
        unsafe { libc::fcntl(fifo.as_raw_fd(), libc::F_SETPIPE_SZ, 1 << 20) };
        Some(fifo)
    };
    fifos.filter_map(open).collect()
}

fn run_in(case: &Case, made: &[Made], place: &Path, mut command: Command) -> Outcome {
    case.make(place, made);
    let fifos = hold_fifos(place, made);
    let umask = case.umask;
    command.args(case.arguments(place)).env("LC_ALL", "C");
    if let Some(user) = case.user {
        command.uid(user).gid(user);
    }
    // SAFETY: the child makes one async-signal-safe call between fork and exec.
    unsafe {
        command.pre_exec(move || {
            libc::umask(umask);
            Ok(())
        });
    }
    let output = output_of(command, place, case.answers.as_bytes());
    drop(fifos);
    let at = place.to_str().unwrap();
    let words = |bytes: &[u8]| {
        // Questions do not end with a new line.
        let text = String::from_utf8_lossy(bytes).replace("? ", "?\n").replace(at, "PLACE");
        // Versions differ in `d/./a` and `d/a`.
        let text = text.replace("/./", "/").replace("/.'", "'");
        lines(text.as_bytes())
    };
    let outcome = Outcome {
        status: output.status.code(),
        out: words(&output.stdout),
        err: words(&output.stderr),
        // A run that was killed may have made a tree of any depth.
        tree: if output.status.code().is_some() { tree_of(place) } else { BTreeMap::new() },
    };
    if outcome.status.is_none() {
        // The tree may be deeper than a recursion, or a path, can be.
        let removed = Command::new("rm").arg("-rf").arg(place).status();
        assert!(removed.unwrap().success());
    } else {
        remove(place);
    }
    outcome
}

fn remove(place: &Path) {
    if fs::remove_dir_all(place).is_err() {
        for entry in fs::read_dir(place).into_iter().flatten().flatten() {
            if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                let _ = fs::set_permissions(entry.path(), fs::Permissions::from_mode(0o700));
            }
        }
        let _ = fs::remove_dir_all(place);
    }
}

/// The places of both programs. Their names have the same length, so that messages have, too.
struct Places<'a> {
    base: &'a Path,
    next: AtomicU64,
    /// The library that changes GNU's order.
    library: Option<PathBuf>,
}

impl Places<'_> {
    fn new_one(&self) -> PathBuf {
        self.base.join(format!("{:08}", self.next.fetch_add(1, Ordering::Relaxed)))
    }

    /// `order`: a seed for another order than that of the inodes.
    fn gnus(&self, case: &Case, made: &[Made], order: Option<u64>) -> Outcome {
        let mut command = gnu();
        if let (Some(library), Some(seed)) = (&self.library, order) {
            order::set(&mut command, library, seed);
        }
        // GNU's can copy a directory into itself without end.
        // SAFETY: the child makes one async-signal-safe call between fork and exec.
        unsafe {
            command.pre_exec(|| {
                let most = libc::rlimit { rlim_cur: GNUS_SECONDS, rlim_max: GNUS_SECONDS };
                libc::setrlimit(libc::RLIMIT_CPU, &most);
                Ok(())
            });
        }
        run_in(case, made, &self.new_one(), command)
    }

    /// The files before the copy.
    fn before(&self, case: &Case) -> BTreeMap<OsString, String> {
        let place = self.new_one();
        case.make(&place, &case.made);
        let tree = tree_of(&place);
        remove(&place);
        tree
    }

    fn ours(&self, case: &Case) -> Outcome {
        let mut command = ours();
        command.args(case.own_flags());
        run_in(case, &case.made, &self.new_one(), command)
    }
}

fn differences(mine: &Outcome, theirs: &Outcome) -> String {
    let mut differences = String::new();
    let mut differ = |what: &str, mine: String, theirs: String| {
        if mine != theirs {
            differences.push_str(&format!("  {what}:\n    ours {mine}\n    GNU  {theirs}\n"));
        }
    };
    differ("status", format!("{:?}", mine.status), format!("{:?}", theirs.status));
    differ("standard error", format!("{:?}", mine.err), format!("{:?}", theirs.err));
    differ("standard output", format!("{:?}", mine.out), format!("{:?}", theirs.out));
    let names: std::collections::BTreeSet<_> = mine.tree.keys().chain(theirs.tree.keys()).collect();
    for name in names {
        let text = |tree: &BTreeMap<OsString, String>| format!("{:?}", tree.get(name));
        differ(&format!("{name:?}"), text(&mine.tree), text(&theirs.tree));
    }
    differences
}

#[derive(PartialEq, Eq)]
enum Verdict {
    Same,
    /// Equal to GNU's for another order of the tree.
    AnotherOrder,
    Excused(&'static str),
    Differs(String),
    /// It did not end and was killed.
    Endless,
}

fn judge(places: &Places<'_>, case: &Case, orders: u64) -> Verdict {
    let (theirs, mine) = (places.gnus(case, &case.made, None), places.ours(case));
    if theirs.status.is_none() && mine.status.is_some() {
        return Verdict::Excused("GNU's without an end");
    }
    let first = differences(&mine, &theirs);
    if first.is_empty() {
        return Verdict::Same;
    }
    let before = places.before(case);
    if let Some(why) = excused::excused(case, &before, &mine, &theirs) {
        return Verdict::Excused(why);
    }
    if let Some(direct) = case.with_target_of_link()
        && excused::lost_its_way(case, &theirs)
    {
        let there = places.gnus(&direct, &direct.made, None);
        let mine = excused::by_the_direct_name(case, &direct, &mine);
        if mine == there || excused::excused(&direct, &before, &mine, &there).is_some() {
            return Verdict::Excused(
                "a target that is named through a link which the copy replaces",
            );
        }
    }
    let mut random = Rng::with_seed(0);
    for order in 0..orders {
        // Without the library, the order is that in which the tree was made.
        let mut made = case.made.clone();
        random.shuffle(&mut made);
        let theirs = places.gnus(case, &made, Some(order));
        if mine == theirs {
            return Verdict::AnotherOrder;
        }
        if let Some(why) = excused::excused(case, &before, &mine, &theirs) {
            return Verdict::Excused(why);
        }
    }
    if excused::may_be_written_twice(case, &before, &mine) {
        return Verdict::Excused("files that are written through a link of the target, too");
    }
    Verdict::Differs(first)
}

/// Removes names and flags while the case still differs.
fn shrink(places: &Places<'_>, mut case: Case, mut differences: String) -> (Case, String) {
    loop {
        let without_made = (0..case.made.len()).map(|at| {
            let mut smaller = case.clone();
            smaller.made.remove(at);
            smaller
        });
        let without_flag = (0..case.flags.len()).map(|at| {
            let mut smaller = case.clone();
            smaller.flags.remove(at);
            smaller
        });
        let smaller = without_made.chain(without_flag).find_map(|smaller| {
            match judge(places, &smaller, ORDERS_OF_SMALLER) {
                Verdict::Differs(differences) => Some((smaller, differences)),
                _ => None,
            }
        });
        match smaller {
            Some((smaller, less)) => (case, differences) = (smaller, less),
            None => return (case, differences),
        }
    }
}

#[test]
fn random_trees_end_as_with_gnus() {
    if !is_gnu() {
        return;
    }
    let nobodys = place_of_nobody("cp-generated");
    let own = nobodys.is_none().then(|| place_in_memory("cp-generated"));
    let base = nobodys.as_ref().or(own.as_ref()).unwrap().path();
    let places = Places { base, next: AtomicU64::new(0), library: order::library(base) };
    let cases = number("CRINGLE_TREES").unwrap_or(DEFAULT_CASES);
    let start = number("CRINGLE_TREES_START").unwrap_or(0);
    let (next, tally) = (AtomicU64::new(start), Mutex::new(BTreeMap::new()));
    let failed = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= start + cases || failed.lock().unwrap().len() >= most_failures() {
                        break;
                    }
                    let case = Case::new(seed, nobodys.is_some());
                    let judged = catch_unwind(AssertUnwindSafe(|| judge(&places, &case, ORDERS)));
                    let end = match judged.unwrap_or(Verdict::Endless) {
                        Verdict::Endless => {
                            failed.lock().unwrap().push(report(seed, &case, "does not end"));
                            "endless"
                        }
                        Verdict::Same => "same",
                        Verdict::AnotherOrder => "in another order",
                        Verdict::Excused(why) => why,
                        Verdict::Differs(stderr) => {
                            let (case, stderr) = shrink(&places, case, stderr);
                            failed.lock().unwrap().push(report(seed, &case, &stderr));
                            "differs"
                        }
                    };
                    *tally.lock().unwrap().entry(end).or_insert(0) += 1;
                }
            });
        }
    });
    eprintln!("{:?}", tally.into_inner().unwrap());
    let failed = failed.into_inner().unwrap();
    assert!(failed.is_empty(), "{} cases differ\n{}", failed.len(), failed.join("\n"));
}

fn most_failures() -> usize {
    number("CRINGLE_TREES_FAILURES").unwrap_or(3) as usize
}

fn report(seed: u64, case: &Case, stderr: &str) -> String {
    let mut text = format!(
        "seed {seed} (CRINGLE_TREES=1 CRINGLE_TREES_START={seed}): umask {:o}, user {:?}\n  cp {} {}\n",
        case.umask,
        case.user,
        case.own_flags().join(" "),
        case.arguments(Path::new("PLACE")).join(" ")
    );
    for made in &case.made {
        text.push_str(&format!("  {made:?}\n"));
    }
    text + stderr
}
