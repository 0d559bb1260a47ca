//! `std::process::Command`.

use cringle_ecosystem_interposed::{at_most, crowd};
use std::io::Write;
use std::process::{Command, Stdio};

#[test]
fn children_are_awaited_by_their_fiber() {
    crowd("std::process", at_most(300), |n, waits| {
        let mut command = Command::new("sh");
        command.args(["-c", "read line; sleep 0.2; echo \"got $line\"; exit 7"]);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        child.stdin.take().unwrap().write_all(format!("{n}\n").as_bytes()).unwrap();
        let output = waits.during(|| child.wait_with_output().unwrap());
        assert_eq!(output.stdout, format!("got {n}\n").as_bytes());
        assert_eq!(output.status.code(), Some(7));
        assert!(waits.during(|| Command::new("sleep").arg("0.2").status().unwrap()).success());
    });
}
