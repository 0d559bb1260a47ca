//! Runs both programs, and compares output and results.

use crate::common::*;
use crate::order;
use crate::trees::describe;
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::{CString, OsString};
use std::fs;
use std::io::{Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::OnceLock;

/// More processor time than any copy of a test takes: a program that uses it does not end.
const MOST_CPU_SECONDS: libc::rlim_t = 120;
/// The orders of GNU's in which a result is searched: see [`generated`](crate::generated).
const ORDERS: u64 = 4000;

pub(crate) fn c_path(path: &Path) -> CString {
    CString::new(path.as_os_str().as_bytes()).unwrap()
}

/// Returns GNU's `cp`: the machine's, or the version at `CRINGLE_GNU_CP`.
pub(crate) fn gnu() -> Command {
    Command::new(gnu_path())
}

fn gnu_path() -> OsString {
    std::env::var_os("CRINGLE_GNU_CP").unwrap_or_else(|| "cp".into())
}

pub(crate) fn ours() -> Command {
    heed_interrupts();
    let mut command = Command::new(env!("CARGO_BIN_EXE_cringle"));
    command.arg("cp");
    command
}

/// Returns ours under a limit of the shell's `ulimit`, soft and hard: of descriptors (`n`), of
/// written memory (`d`) or of the stack (`s`) in KiB.
pub(crate) fn limited(what: &str, limit: usize) -> Command {
    let mut command = Command::new("sh");
    let script = format!("ulimit -{what} {limit} && exec \"$0\" cp \"$@\"");
    command.args(["-c", &script, env!("CARGO_BIN_EXE_cringle")]);
    command
}

/// Runs our `cp` in this place and expects success without output.
pub(crate) fn copies(place: &Path, arguments: &[&str]) {
    assert_eq!(run(place, arguments), (Some(0), String::new(), String::new()), "{arguments:?}");
}

/// Runs our `cp` in this place; returns its status, standard output and standard error.
pub(crate) fn run(place: &Path, arguments: &[&str]) -> (Option<i32>, String, String) {
    let mut command = ours();
    command.args(arguments);
    let output = output_of(command, place, b"");
    let (out, err) = texts(&output);
    (output.status.code(), out, err)
}

pub(crate) fn is_gnu() -> bool {
    let version = gnu().arg("--version").output();
    let gnu = version.is_ok_and(|output| String::from_utf8_lossy(&output.stdout).contains("GNU"));
    if !gnu {
        eprintln!("skipped: no GNU cp on this machine");
    }
    gnu
}

/// Returns the version of GNU's `cp`, for example (9, 1).
pub(crate) fn gnu_version() -> (u32, u32) {
    static VERSION: OnceLock<(u32, u32)> = OnceLock::new();
    *VERSION.get_or_init(|| {
        let version = gnu().arg("--version").output().unwrap().stdout;
        let version = String::from_utf8_lossy(&version).into_owned();
        let line = version.lines().next().unwrap_or_default();
        let number = line.rsplit(' ').next().unwrap_or_default();
        let mut parts = number.split('.').map(|part| part.parse().unwrap_or(0));
        (parts.next().unwrap_or(0), parts.next().unwrap_or(0))
    })
}

/// Returns whether GNU's leaves the set-id and sticky bits that a target has and its source has
/// not. Versions before 9.2 set the ACL that belongs to a mode instead of the mode; ours does what
/// later versions do.
fn keeps_old_bits() -> bool {
    gnu_version() < (9, 2)
}

/// Returns a line in the wording that both share: since 9.5, GNU's names the source here, too; and
/// libattr names the attribute in the place of the target.
fn as_older_gnus(line: &str) -> String {
    if let (true, Some(at), Some(end)) =
        (line.contains("setting attribute '"), line.find(" for '"), line.rfind("': "))
    {
        return line[..at].to_owned() + &line[end + 1..];
    }
    match (line.contains("cannot overwrite directory "), line.find(" with non-directory ")) {
        (true, Some(at)) => line[..at + " with non-directory".len()].to_owned(),
        _ => line.to_owned(),
    }
}

/// Returns whether the lines are the same, except that ours has fewer set-id and sticky bits: see
/// [`keeps_old_bits`].
pub(crate) fn same_but_old_bits(mine: &str, theirs: &str) -> bool {
    let parts = |text: &str| {
        let (mode, rest) = text.split_once(' ')?;
        Some((u32::from_str_radix(mode, 8).ok()?, rest.to_owned()))
    };
    match (parts(mine), parts(theirs)) {
        (Some((mine, rest)), Some((theirs, same))) => {
            rest == same && theirs & !0o7000 == mine & !0o7000 && theirs & mine == mine
        }
        _ => false,
    }
}

/// Returns whether the program exists; prints a line if it does not.
pub(crate) fn has(program: &str) -> bool {
    let there = Command::new(program)
        .arg("--version")
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .is_ok();
    if !there {
        eprintln!("skipped: no {program} on this machine");
    }
    there
}

/// Limits the processor time of a child that has no limit yet. Returns whether it did. (The time
/// that a copy takes depends on what else the machine does; the processor time hardly does.)
fn limit_cpu(child: &Child) -> bool {
    let (id, mut before) = (child.id() as libc::pid_t, libc::rlimit { rlim_cur: 0, rlim_max: 0 });
    // SAFETY: the kernel writes to `before`; the child is not reaped yet, so the number is its own.
    let read = unsafe { libc::prlimit(id, libc::RLIMIT_CPU, std::ptr::null(), &mut before) };
    if read != 0 || before.rlim_cur != libc::RLIM_INFINITY {
        return false;
    }
    let limit = libc::rlimit { rlim_cur: MOST_CPU_SECONDS, ..before };
    // SAFETY: the kernel reads `limit`; the number is the child's, as above.
    unsafe { libc::prlimit(id, libc::RLIMIT_CPU, &limit, std::ptr::null_mut()) == 0 }
}

/// Returns the child's output and status. A child that computes without an end is killed, and fails
/// the test with its name.
pub(crate) fn finish(mut child: Child, what: &str) -> Output {
    fn read(from: Option<impl Read + Send + 'static>) -> std::thread::JoinHandle<Vec<u8>> {
        std::thread::spawn(move || {
            let mut bytes = Vec::new();
            if let Some(mut from) = from {
                let _ = from.read_to_end(&mut bytes);
            }
            bytes
        })
    }
    let (out, err) = (read(child.stdout.take()), read(child.stderr.take()));
    let is_limited = limit_cpu(&child);
    let status = child.wait().unwrap();
    let (stdout, stderr) = (out.join().unwrap(), err.join().unwrap());
    let ended = !is_limited || status.signal() != Some(libc::SIGXCPU);
    assert!(ended, "does not end: {what}; output: {:?}", lines(&stderr));
    Output { status, stdout, stderr }
}

pub(crate) fn output_of(mut command: Command, place: &Path, input: &[u8]) -> Output {
    run_once(&mut command, place, input)
}

fn run_once(command: &mut Command, place: &Path, input: &[u8]) -> Output {
    let mut child = command
        .current_dir(place)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let _ = child.stdin.take().unwrap().write_all(input);
    finish(child, &format!("{command:?}"))
}

/// Returns the lines sorted, because ours copies in another order.
pub(crate) fn lines(bytes: &[u8]) -> Vec<String> {
    let text = String::from_utf8_lossy(bytes).replace("cringle cp", "cp");
    let mut lines: Vec<_> = text.lines().map(as_older_gnus).collect();
    lines.sort();
    lines
}

/// The results that are compared.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Compared {
    /// Output and status: how far a copy came before a failure depends on the order.
    Words,
    /// Also the files.
    Trees,
    /// Also the files, with modes preserved onto existing ones: see [`keeps_old_bits`].
    TreesOnto,
}

/// Runs both, each in a place that `make` prepared; returns the differences.
///
/// Where names depend on each other, GNU's result depends on the order in which it reads a
/// directory, which the file system chooses. A result of ours that differs is therefore compared
/// with GNU's results in other [orders](order), and must be one of them.
pub(crate) fn compare(
    test: &str,
    arguments: &[&str],
    input: &[u8],
    compared: Compared,
    make: impl Fn(&Path),
) -> String {
    let base = tempfile::tempdir_in(place(&format!("cp-{test}"))).unwrap();
    compare_in(base.path(), None, arguments, input, compared, make)
}

/// `who`: the user that runs them.
pub(crate) fn compare_in(
    base: &Path,
    who: Option<u32>,
    arguments: &[&str],
    input: &[u8],
    compared: Compared,
    make: impl Fn(&Path),
) -> String {
    let program = |mut command: Command| {
        if let Some(user) = who {
            command.uid(user).gid(user);
        }
        command
    };
    compare_programs(base, (program(gnu()), program(ours())), arguments, input, compared, make)
}

/// Returns the program with this mask for new files.
pub(crate) fn masked(mut program: Command, umask: libc::mode_t) -> Command {
    // SAFETY: `umask` may be called between `fork` and `exec`.
    unsafe {
        program.pre_exec(move || {
            libc::umask(umask);
            Ok(())
        })
    };
    program
}

/// `gnu`, `ours`: how each is called.
pub(crate) fn compare_programs(
    base: &Path,
    (mut gnu, mut ours): (Command, Command),
    arguments: &[&str],
    input: &[u8],
    compared: Compared,
    make: impl Fn(&Path),
) -> String {
    gnu.args(arguments);
    ours.args(arguments);
    let result = |command: &mut Command, name: &str| {
        let place = base.join(name);
        fs::create_dir(&place).unwrap();
        make(&place);
        let output = run_once(command, &place, input);
        let is_compared = compared != Compared::Words;
        let tree = if is_compared { describe(&place, false) } else { BTreeMap::new() };
        Copied { output, tree, place }
    };
    let (theirs, mine) = (result(&mut gnu, "gnu"), result(&mut ours, "ours"));
    let first = differences(arguments, &mine, &theirs, compared);
    let Some(library) = order_library().filter(|_| !first.is_empty()) else { return first };
    for seed in 0..ORDERS {
        order::set(&mut gnu, library, seed);
        let theirs = result(&mut gnu, "gnu-in-another-order");
        if differences(arguments, &mine, &theirs, compared).is_empty() {
            return String::new();
        }
        fs::remove_dir_all(theirs.place).unwrap();
    }
    first
}

/// The library of [`order`], for all tests of the process and for other users.
fn order_library() -> Option<&'static Path> {
    static LIBRARY: OnceLock<Option<PathBuf>> = OnceLock::new();
    let make = || {
        let place = place("cp-order");
        fs::set_permissions(&place, fs::Permissions::from_mode(0o755)).unwrap();
        order::library(&place)
    };
    LIBRARY.get_or_init(make).as_deref()
}

/// What a copy has printed and made.
struct Copied {
    output: Output,
    tree: BTreeMap<OsString, String>,
    place: PathBuf,
}

fn differences(arguments: &[&str], mine: &Copied, theirs: &Copied, compared: Compared) -> String {
    let mut differences = String::new();
    let mut differ = |what: &str, mine: String, theirs: String| {
        if mine != theirs {
            differences.push_str(&format!(
                "cp {arguments:?}: {what}: {mine:.600} but GNU {theirs:.600}\n"
            ));
        }
    };
    let text = |bytes: &[u8]| format!("{:?}", lines(bytes));
    differ("standard error", text(&mine.output.stderr), text(&theirs.output.stderr));
    differ("standard output", text(&mine.output.stdout), text(&theirs.output.stdout));
    let code = |copied: &Copied| format!("{:?}", copied.output.status.code());
    differ("status", code(mine), code(theirs));
    let old = compared == Compared::TreesOnto && keeps_old_bits();
    let names: BTreeSet<_> = mine.tree.keys().chain(theirs.tree.keys()).collect();
    for name in names {
        if let (true, Some(mine), Some(theirs)) = (old, mine.tree.get(name), theirs.tree.get(name))
            && same_but_old_bits(mine, theirs)
        {
            continue;
        }
        let text = |copied: &Copied| format!("{:?}", copied.tree.get(name));
        differ(&format!("{name:?}"), text(mine), text(theirs));
    }
    differences
}

/// Fails with all differences.
pub(crate) fn assert_same(differences: String) {
    assert!(differences.is_empty(), "\n{differences}");
}
