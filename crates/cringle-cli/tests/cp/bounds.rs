//! Deep, wide and hostile trees: bounded, and never outside of what was named.

use crate::common::*;
use crate::support::*;
use std::fs;
use std::os::unix::fs::symlink;
use std::process::Command;

#[test]
fn a_swapped_directory_leads_nowhere() {
    let place = place("cp-swapped");
    fs::create_dir_all(place.join("tree/sub")).unwrap();
    fs::write(place.join("tree/sub/secret"), "x").unwrap();
    fs::create_dir_all(place.join("copy")).unwrap();
    fs::create_dir_all(place.join("elsewhere")).unwrap();
    symlink("../elsewhere", place.join("copy/sub")).unwrap();
    let mut command = ours();
    command.args(["-rT", "tree", "copy"]);
    let said = output_of(command, &place, b"");
    assert_eq!(said.status.code(), Some(1));
    assert!(is_empty(&place.join("elsewhere")));
}

#[test]
fn a_deep_tree_and_a_wide_directory_are_bounded() {
    let place = place("cp-bounds");
    let deep = place.join("deep");
    fs::create_dir(&deep).unwrap();
    let mut dir = cringle::fs::Dir::open(&deep).unwrap();
    for _ in 0..2000 {
        dir.create_dir("d").unwrap();
        dir = dir.open_dir("d").unwrap();
    }
    fs::create_dir(place.join("wide")).unwrap();
    for number in 0..5000 {
        fs::write(place.join(format!("wide/{number}")), "").unwrap();
    }
    let mut command = Command::new("sh");
    let program = env!("CARGO_BIN_EXE_cringle");
    command.args(["-c", &format!("ulimit -n 256; exec {program} cp -a deep wide out")]);
    fs::create_dir(place.join("out")).unwrap();
    let said = output_of(command, &place, b"");
    assert_eq!(texts(&said), (String::new(), String::new()));
    assert_eq!(fs::read_dir(place.join("out/wide")).unwrap().count(), 5000);
    let mut levels = 0;
    let mut dir = cringle::fs::Dir::open(place.join("out/deep")).unwrap();
    while let Ok(below) = dir.open_dir("d") {
        (dir, levels) = (below, levels + 1);
    }
    assert_eq!(levels, 2000);
}
