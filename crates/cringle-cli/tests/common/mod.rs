//! What the tests of the command share: running it, and a place for its files.

#![allow(dead_code, reason = "each test file uses a part")]

pub(crate) mod mounts;

use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// The command, in a directory of this test's own below the target directory.
pub(crate) fn cringle(place: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_cringle"));
    command.current_dir(place);
    command
}

pub(crate) fn place(name: &str) -> PathBuf {
    let place = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    let _ = std::fs::remove_dir_all(&place);
    std::fs::create_dir_all(&place).unwrap();
    place
}

/// A directory in memory where there is one, else below the target directory: for tests that replace many
/// files, each of which ext4 begins to write to the disk. It is removed when it is dropped.
pub(crate) fn place_in_memory(name: &str) -> tempfile::TempDir {
    let memory = Path::new("/dev/shm");
    match tempfile::Builder::new().prefix(&format!("cringle-{name}-")).tempdir_in(memory) {
        Ok(place) => place,
        Err(_) => tempfile::tempdir_in(place(name)).unwrap(),
    }
}

/// Small and quick: 16 MiB, 512 operations, two rounds.
pub(crate) fn small_disk(place: &Path) -> Command {
    let mut command = cringle(place);
    command.args(["bench", "disk", "--size", "16m", "--ops", "512", "--repeat", "2"]);
    command.args(["--warmup", "0", "--qd", "1,8"]);
    command
}

/// The JSON on standard output, which must hold nothing else.
pub(crate) fn json(command: &mut Command) -> Value {
    let output = command.args(["--json", "-"]).output().unwrap();
    let (out, err) = texts(&output);
    assert!(output.status.success(), "{:?}: {err}", output.status);
    serde_json::from_str(&out).unwrap_or_else(|error| panic!("{error}: {out}"))
}

pub(crate) fn texts(output: &Output) -> (String, String) {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (text(&output.stdout), text(&output.stderr))
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
    // SAFETY: no arguments.
    unsafe { libc::geteuid() == 0 }
}

/// Bytes that all differ from block to block.
pub(crate) fn noise(bytes: usize) -> Vec<u8> {
    (0..bytes as u64 / 8)
        .flat_map(|i| (i + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15).to_le_bytes())
        .collect()
}
