//! Children of threads, with the library as without.

mod common;

use common::{compile, library, parts};
use std::process::Command;

#[test]
fn child_blocks_the_signals_of_its_thread() {
    let folder = tempfile::tempdir().unwrap();
    let Some(program) = compile("children", folder.path()) else { return };
    let expected = (Some(0), "right\n".into(), String::new());
    let plain = Command::new(&program).env_remove("LD_PRELOAD").output().unwrap();
    assert_eq!(parts(&plain), expected, "without the library");
    let served = Command::new(&program).env("LD_PRELOAD", library()).output().unwrap();
    assert_eq!(parts(&served), expected);
}
