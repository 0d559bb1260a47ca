//! Who denies the ring is named, with what to do.

use crate::common::*;
use crate::support::*;
use seccompiler::SeccompAction;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;

const EPERM: SeccompAction = SeccompAction::Errno(libc::EPERM as u32);
const ENOSYS: SeccompAction = SeccompAction::Errno(libc::ENOSYS as u32);

fn under(name: &str, calls: &[i64], action: SeccompAction) -> Said {
    let place = place(name);
    surely_said(|| {
        let mut command = doctor(&place);
        filtered(&mut command, filter(calls, action.clone()));
        command
    })
}

fn assert_remedy(said: &Said) {
    let remedies = said.json["io_uring"]["causes"][0]["remedies"].as_array().unwrap();
    let first = remedies[0].as_str().unwrap();
    let words = ["seccomp=", "SystemCallFilter=", "seccompProfile"];
    assert!(words.iter().any(|word| first.contains(word)), "{first}");
    assert!(said.verdict().ends_with(first), "{}", said.verdict());
}

/// The kernel allows it, and somebody has asked for another driver, or for nonsense.
#[test]
fn what_the_environment_says_is_named() {
    let place = place("doctor-environment");
    let under = |name: &str, value: &str| {
        surely_said(|| {
            let mut command = doctor(&place);
            command.env(name, value);
            command
        })
    };
    for (name, value) in
        [("CRINGLE_DRIVER", "epoll"), ("CRINGLE_DRIVER", "nonsense"), ("CRINGLE_WATCHDOG", "long")]
    {
        let said = under(name, value);
        assert_eq!((said.status, said.cause_kinds()), (3, vec!["environment"]), "{}", said.text);
        assert!(said.verdict().contains(&format!("{name} is \"{value}\"")), "{}", said.verdict());
        assert!(said.verdict().ends_with(&format!("unset {name}")), "{}", said.verdict());
    }
    assert_eq!(under("CRINGLE_DRIVER", "uring").status, 0);
}

#[test]
fn a_filter_that_denies_all_three_is_named() {
    let said = under("doctor-eperm", &[SETUP, ENTER, REGISTER], EPERM);
    assert_eq!(said.status, 3);
    assert_eq!(said.calls(), ["denied", "denied", "denied"]);
    assert_eq!(said.json["io_uring"]["calls"][1]["call"], "io_uring_enter");
    assert_eq!(said.cause_kinds(), ["seccomp-denies"]);
    assert_eq!(said.json["io_uring"]["facts"]["seccomp_mode"], 2);
    assert_eq!(said.json["verdict"]["driver"], "fallback");
    let why = "seccomp denies io_uring_setup, io_uring_enter and io_uring_register";
    assert!(said.verdict().contains(why), "{}", said.verdict());
    assert!(said.joined().contains(why), "{}", said.text);
    assert!(said.joined().contains("io_uring: not usable"), "{}", said.text);
    assert_remedy(&said);
}

#[test]
fn a_filter_that_refuses_access_is_no_security_module() {
    let refuse = SeccompAction::Errno(libc::EACCES as u32);
    let said = under("doctor-eacces", &[SETUP, ENTER, REGISTER], refuse.clone());
    assert_eq!((said.status, said.cause_kinds()), (3, vec!["seccomp-denies"]));
    // Of the one call that a module may refuse, too, both are named.
    let said = under("doctor-eacces-setup", &[SETUP], refuse);
    assert_eq!((said.status, said.cause_kinds()), (3, vec!["security-module"]));
    assert!(said.joined().contains("or the seccomp filter that is there"), "{}", said.text);
}

#[test]
fn a_filter_that_kills_is_met_by_a_child() {
    let said = under("doctor-kills", &[SETUP], SeccompAction::KillProcess);
    assert_eq!(said.status, 3);
    assert_eq!(said.calls(), ["kills", "allowed", "allowed"]);
    assert_eq!(said.cause_kinds(), ["seccomp-kills"]);
    assert!(said.joined().contains("a seccomp filter kills who calls io_uring_setup"));
    assert!(said.joined().contains("who calls it is killed (SIGSYS)"), "{}", said.text);
    assert_remedy(&said);
}

#[test]
fn a_filter_that_denies_only_the_use_of_a_ring_is_named() {
    let said = under("doctor-enter", &[ENTER], EPERM);
    assert_eq!(said.status, 3);
    assert_eq!(said.calls(), ["allowed", "denied", "allowed"]);
    assert_eq!(said.cause_kinds(), ["seccomp-denies"]);
    assert!(
        said.verdict().contains("because seccomp denies io_uring_enter;"),
        "{}",
        said.verdict()
    );
    // The ring can be made, and could not be used: that is found out before.
    assert_eq!(said.json["io_uring"]["runtime"], "fallback");
    // What needs no entering could still be asked, and what does is unknown and not missing.
    assert_eq!(said.features()["SingleIssuer"], "present");
    assert_eq!(said.features()["MULTISHOT_ACCEPT"], "unknown");
    assert_remedy(&said);
}

#[test]
fn a_filter_that_denies_only_registering_is_named() {
    let said = under("doctor-register", &[REGISTER], EPERM);
    assert_eq!((said.status, said.calls()), (3, vec!["allowed", "allowed", "denied"]));
    assert_eq!(said.cause_kinds(), ["seccomp-denies"]);
    assert!(said.joined().contains("seccomp denies io_uring_register"), "{}", said.text);
    assert!(said.features().values().all(|state| *state == "unknown"));
}

#[test]
fn a_filter_that_hides_the_calls_is_told_from_a_kernel_that_has_none() {
    let said = under("doctor-enosys", &[SETUP, ENTER, REGISTER], ENOSYS);
    assert_eq!((said.status, said.calls()), (3, vec!["missing", "missing", "missing"]));
    match said.json["io_uring"]["facts"]["built_with_io_uring"].as_bool() {
        Some(built) => {
            assert!(built, "this kernel has it: the other tests use it");
            assert_eq!(said.cause_kinds(), ["seccomp-denies"]);
            assert!(said.joined().contains("seccomp hides io_uring_setup"), "{}", said.text);
        }
        None => {
            eprintln!("this kernel does not say how it was built: only that is tested");
            assert_eq!(said.cause_kinds(), ["unknown"]);
            assert!(said.joined().contains("or the seccomp filter that is there hides it"));
        }
    }
}

#[test]
fn without_proc_the_filter_is_still_found_and_the_rest_is_unknown() {
    let place = place("doctor-no-proc");
    let proc = std::path::Path::new("/proc");
    let changed = said("an empty /proc", || {
        let mut command = doctor(&place);
        with_tmpfs(&mut command, proc, 0);
        filtered(&mut command, filter(&[SETUP], EPERM));
        command
    });
    let Some(said) = changed else { return };
    assert_eq!(said.status, 3);
    assert_eq!(said.cause_kinds(), ["seccomp-denies"]);
    assert_eq!(said.json["kernel"]["proc_is_readable"], false);
    assert_eq!(said.json["io_uring"]["facts"]["seccomp_mode"], 2);
    assert_eq!(said.json["io_uring"]["facts"]["capabilities"], serde_json::Value::Null);
    assert_eq!(said.limit("vm.max_map_count")["enough"], serde_json::Value::Null);
    assert_eq!(said.json["paths"][0]["filesystem"], "unknown");
    assert!(said.joined().contains("/proc cannot be read"), "{}", said.text);
    assert!(said.joined().contains("vm.max_map_count unknown"), "{}", said.text);
}

#[test]
fn without_proc_a_ring_is_still_usable() {
    let place = place("doctor-no-proc-ring");
    let changed = said("an empty /proc", || {
        let mut command = doctor(&place);
        with_tmpfs(&mut command, std::path::Path::new("/proc"), 0);
        command
    });
    let Some(said) = changed else { return };
    assert_eq!((said.status, said.cause_kinds()), (0, vec![]));
}

const SWITCH: &str = "/proc/sys/kernel/io_uring_disabled";

/// Puts the machine's switch back.
struct Switch(String);

impl Switch {
    fn set(to: &str) -> Switch {
        let before = std::fs::read_to_string(SWITCH).unwrap();
        std::fs::write(SWITCH, to).expect("this test is for root");
        Switch(before)
    }
}

impl Drop for Switch {
    fn drop(&mut self) {
        std::fs::write(SWITCH, &self.0).unwrap();
    }
}

/// As root, and as somebody without its privileges.
fn with_the_switch_at(to: &str) -> [Said; 2] {
    let place = place("doctor-switch");
    std::fs::set_permissions(&place, std::fs::Permissions::from_mode(0o777)).unwrap();
    let _switched = Switch::set(to);
    let privileged = surely_said(|| doctor(&place));
    let unprivileged = surely_said(|| {
        let mut command = doctor(&place);
        command.uid(65_534).gid(65_534);
        command
    });
    [privileged, unprivileged]
}

fn assert_switched_off(said: &Said, kind: &str, value: &str) {
    assert_eq!((said.status, said.cause_kinds()), (3, vec![kind]), "{}", said.text);
    assert_eq!(said.calls(), ["denied", "allowed", "allowed"]);
    assert_eq!(said.json["io_uring"]["runtime"], "fallback");
    assert_eq!(said.json["verdict"]["driver"], "fallback");
    for words in [value, "what to do: sysctl kernel.io_uring_disabled=0"] {
        assert!(said.verdict().contains(words), "{}", said.verdict());
        assert!(said.joined().contains(words), "{}", said.text);
    }
}

#[test]
#[ignore = "switches io_uring off for the whole machine: as root, where nobody else needs it"]
fn the_kernels_switch_is_the_cause() {
    let [privileged, unprivileged] = with_the_switch_at("1");
    assert_eq!((privileged.status, privileged.cause_kinds()), (0, vec![]), "{}", privileged.text);
    assert_switched_off(
        &unprivileged,
        "sysctl-unprivileged",
        "kernel.io_uring_disabled is 1, and this process has no CAP_SYS_ADMIN",
    );
    for said in with_the_switch_at("2") {
        let value = "kernel.io_uring_disabled is 2: nobody may make a ring";
        assert_switched_off(&said, "sysctl-disabled", value);
    }
}
