//! Ctrl-C: in order, and nothing half written under a final name.

use crate::common::*;
use crate::support::*;
use std::fs;
use std::process::Stdio;

#[test]
fn an_interruption_leaves_no_half_written_file() {
    let place = place("cp-interrupt");
    let file = fs::File::create(place.join("big")).unwrap();
    file.set_len(64 << 30).unwrap();
    let mut command = ours();
    command.args(["--sparse=never", "big", "copy"]).current_dir(&place).stderr(Stdio::piped());
    let child = command.spawn().unwrap();
    while !place.join("copy").exists() {
        std::thread::yield_now();
    }
    // SAFETY: a plain system call; the child is not waited for yet, so the number is its.
    assert_eq!(unsafe { libc::kill(child.id() as i32, libc::SIGINT) }, 0);
    let said = finish(child, "an interrupted cp");
    let told = texts(&said).1;
    assert_eq!(said.status.code(), Some(130));
    assert!(told.contains("interrupted"), "{told}");
    assert!(!place.join("copy").exists());
}
