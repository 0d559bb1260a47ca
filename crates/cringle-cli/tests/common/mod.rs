//! What the tests of the command share: running it, directories for its files, and its output.

#![allow(dead_code, reason = "each test file uses a part")]

pub(crate) mod mounts;

use serde_json::Value;
use std::fs::File;
use std::os::fd::{FromRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// The command, to run in the directory `place`.
pub(crate) fn cringle(place: &Path) -> Command {
    heed_interrupts();
    let mut command = Command::new(env!("CARGO_BIN_EXE_cringle"));
    command.current_dir(place);
    command
}

/// The command as another user, who may have only this number of threads, in a directory that this
/// user can reach. Returns `None`, and prints why, unless this is root.
pub(crate) fn with_few_threads(place: &Path, count: libc::rlim_t) -> Option<Command> {
    use std::os::unix::fs::PermissionsExt;
    use std::os::unix::process::CommandExt;
    if !is_root() {
        eprintln!("skipped: only root is another user");
        return None;
    }
    std::fs::set_permissions(place, std::fs::Permissions::from_mode(0o777)).unwrap();
    let (built, program) = (env!("CARGO_BIN_EXE_cringle"), place.join("cringle"));
    if !program.exists() && std::fs::hard_link(built, &program).is_err() {
        std::fs::copy(built, &program).unwrap();
    }
    heed_interrupts();
    let mut command = Command::new(program);
    // The limit counts all processes of a user: hardly any test or service has this one.
    let user = 60_000 + std::process::id() % 4000;
    command.current_dir(place).uid(user).gid(user);
    // SAFETY: the closure only makes a system call.
    unsafe {
        command.pre_exec(move || {
            let limit = libc::rlimit { rlim_cur: count, rlim_max: count };
            match libc::setrlimit(libc::RLIMIT_NPROC, &limit) {
                0 => Ok(()),
                _ => Err(std::io::Error::last_os_error()),
            }
        })
    };
    Some(command)
}

/// Makes this program, and what it starts, heed an interrupt. A background job of a shell ignores
/// it, and its children inherit that.
pub(crate) fn heed_interrupts() {
    for signal in [libc::SIGINT, libc::SIGQUIT] {
        // SAFETY: the contract of `signal`: no handler of this program is replaced, and no pointer
        // is passed.
        unsafe { libc::signal(signal, libc::SIG_DFL) };
    }
}

/// Creates an empty directory for one test, below the target directory.
pub(crate) fn place(name: &str) -> PathBuf {
    let place = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    let _ = std::fs::remove_dir_all(&place);
    std::fs::create_dir_all(&place).unwrap();
    place
}

/// Creates a directory on a file system in memory, or else below the target directory. For tests
/// that replace many files, which ext4 would start to write to disk.
pub(crate) fn place_in_memory(name: &str) -> tempfile::TempDir {
    let memory = Path::new("/dev/shm");
    match tempfile::Builder::new().prefix(&format!("cringle-{name}-")).tempdir_in(memory) {
        Ok(place) => place,
        Err(_) => tempfile::tempdir_in(place(name)).unwrap(),
    }
}

/// A quick `bench disk`: 4 MiB, 512 operations, two rounds.
pub(crate) fn small_disk(place: &Path) -> Command {
    let mut command = cringle(place);
    command.args(["bench", "disk", "--size", "4m", "--ops", "512", "--repeat", "2"]);
    command.args(["--warmup", "0", "--qd", "1,8"]);
    command
}

/// Runs the command with `--json -` and parses its standard output.
pub(crate) fn json(command: &mut Command) -> Value {
    let output = command.args(["--json", "-"]).output().unwrap();
    let (out, err) = texts(&output);
    assert!(output.status.success(), "{:?}: {err}", output.status);
    serde_json::from_str(&out).unwrap_or_else(|error| panic!("{error}: {out}"))
}

/// Standard output and standard error as text.
pub(crate) fn texts(output: &Output) -> (String, String) {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (text(&output.stdout), text(&output.stderr))
}

/// Compiles a C program or library in `place`. Returns false, and prints so, without a compiler.
pub(crate) fn compiled(place: &Path, output: &str, source: &str, options: &[&str]) -> bool {
    let file = place.join(format!("{output}.c"));
    std::fs::write(&file, source).unwrap();
    let mut command = Command::new("cc");
    command.current_dir(place).args(["-O1", "-o", output]).arg(&file).args(options);
    match command.output() {
        Ok(result) => {
            assert!(result.status.success(), "{output}: {}", texts(&result).1);
            true
        }
        Err(error) => {
            eprintln!("SKIPPED, NOTHING WAS TESTED without cc: {error}");
            false
        }
    }
}

/// Creates a terminal of this width. Returns its two ends: the test's and the program's.
pub(crate) fn terminal(columns: u16) -> (File, OwnedFd) {
    let (mut ours, mut theirs) = (-1, -1);
    let null = std::ptr::null_mut::<libc::c_char>();
    let mut size = libc::winsize { ws_row: 24, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 };
    // SAFETY: the call writes the two descriptors and reads the size, which are locals of this
    // frame; null pointers request no name and the default settings.
    let opened = unsafe { libc::openpty(&mut ours, &mut theirs, null, null.cast(), &raw mut size) };
    assert_eq!(opened, 0);
    // SAFETY: `openpty` has returned two new descriptors, which have no other owner.
    unsafe { (File::from_raw_fd(ours), OwnedFd::from_raw_fd(theirs)) }
}

pub(crate) fn runs(report: &Value) -> &Vec<Value> {
    report["runs"].as_array().unwrap()
}

pub(crate) fn notes(report: &Value) -> String {
    let all = report["notes"].as_array().unwrap();
    all.iter().map(|note| note.as_str().unwrap()).collect::<Vec<_>>().join("\n")
}

pub(crate) fn is_empty(place: &Path) -> bool {
    std::fs::read_dir(place).unwrap().next().is_none()
}

pub(crate) fn is_root() -> bool {
    // SAFETY: a system call without arguments.
    unsafe { libc::geteuid() == 0 }
}

/// Bytes of which no two blocks are equal.
pub(crate) fn noise(bytes: usize) -> Vec<u8> {
    let mut noise = vec![0; bytes / 8 * 8];
    let mut word = 0u64;
    // Quick without optimisation, too.
    for part in noise.as_chunks_mut().0 {
        word = word.wrapping_add(0x9E37_79B9_7F4A_7C15);
        *part = word.to_le_bytes();
    }
    noise
}
