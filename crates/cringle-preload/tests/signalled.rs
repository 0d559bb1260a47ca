//! Signals between threads, with the library as without.

mod common;

use common::{compile, library, parts};
use std::process::Command;

#[test]
fn signal_reaches_its_thread_and_ends_the_wait() {
    let folder = tempfile::tempdir().unwrap();
    let Some(program) = compile("signalled", folder.path()) else { return };
    let expected = (Some(0), "raised\ninterrupted\nwoken\npiped\n".into(), String::new());
    let plain = Command::new(&program).env_remove("LD_PRELOAD").output().unwrap();
    assert_eq!(parts(&plain), expected, "without the library");
    let served = Command::new(&program).env("LD_PRELOAD", library()).output().unwrap();
    assert_eq!(parts(&served), expected);
}
