//! The report names what denies the ring, with the remedy.

use super::support::*;
use crate::common::*;
use seccompiler::SeccompAction;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;

const EPERM: SeccompAction = SeccompAction::Errno(libc::EPERM as u32);
const ENOSYS: SeccompAction = SeccompAction::Errno(libc::ENOSYS as u32);

fn under(name: &str, calls: &[i64], action: SeccompAction) -> Report {
    let place = place(name);
    report_of(|| {
        let mut command = doctor(&place);
        filtered(&mut command, filter(calls, action.clone()));
        command
    })
}

fn assert_remedy(report: &Report) {
    let remedies = report.json["io_uring"]["causes"][0]["remedies"].as_array().unwrap();
    let first = remedies[0].as_str().unwrap();
    let settings = ["seccomp=", "SystemCallFilter=", "seccompProfile"];
    assert!(settings.iter().any(|setting| first.contains(setting)), "{first}");
    assert!(report.verdict().ends_with(first), "{}", report.verdict());
}

/// The kernel allows the ring, but a variable chooses another driver or is invalid.
#[test]
fn an_environment_variable_is_named_as_cause() {
    let place = place("doctor-environment");
    let under = |name: &str, value: &str| {
        report_of(|| {
            let mut command = doctor(&place);
            command.env(name, value);
            command
        })
    };
    for (name, value) in [
        ("CRINGLE_DRIVER", "epoll"),
        ("CRINGLE_DRIVER", "nonsense"),
        ("CRINGLE_WATCHDOG", "long"),
        ("CRINGLE_DETECT", "yes"),
    ] {
        let report = under(name, value);
        assert_eq!(
            (report.status, report.cause_kinds()),
            (3, vec!["environment"]),
            "{}",
            report.text
        );
        assert!(
            report.verdict().contains(&format!("{name} is \"{value}\"")),
            "{}",
            report.verdict()
        );
        assert!(report.verdict().ends_with(&format!("unset {name}")), "{}", report.verdict());
    }
    assert_eq!(under("CRINGLE_DRIVER", "uring").status, 0);
}

#[test]
fn invalid_workers_are_blamed_on_their_variable() {
    let place = place("doctor-workers");
    for value in ["abc", "0", "99999999"] {
        let report = report_of(|| {
            let mut command = doctor(&place);
            command.env("CRINGLE_WORKERS", value);
            command
        });
        assert_eq!((report.status, report.cause_kinds()), (3, vec!["environment"]));
        assert!(report.verdict().ends_with("unset CRINGLE_WORKERS"), "{}", report.verdict());
        let mut command = cringle(&place);
        command.args(["doctor", "--container"]).env("CRINGLE_WORKERS", value);
        let output = command.output().unwrap();
        let error =
            format!("cringle: CRINGLE_WORKERS is {value:?}, must be 1 to 1024; or unset it\n");
        assert_eq!((output.status.code(), texts(&output)), (Some(1), (String::new(), error)));
    }
}

#[test]
fn enomem_beyond_the_limit_is_no_limit() {
    if !is_root() {
        eprintln!("SKIPPED, NOTHING WAS TESTED: only root is exempt from the limit");
        return;
    }
    let report = under("doctor-enomem", &[SETUP], SeccompAction::Errno(libc::ENOMEM as u32));
    if report.json["io_uring"]["facts"]["capabilities"].as_u64().unwrap() & 1 << 14 == 0 {
        eprintln!("SKIPPED, NOTHING WAS TESTED: this root has no CAP_IPC_LOCK");
        return;
    }
    assert_eq!((report.status, report.cause_kinds()), (3, vec!["no-memory"]), "{}", report.text);
    for why in ["RLIMIT_MEMLOCK does not bind this process", "or a seccomp filter returns ENOMEM"] {
        assert!(report.verdict().contains(why), "{}", report.verdict());
    }
    assert!(!report.joined().contains("ulimit -l"), "{}", report.text);
    assert_eq!(report.limit("locked memory")["enough"], serde_json::Value::Null);
}

#[test]
fn a_filter_that_denies_all_calls_is_named() {
    let report = under("doctor-eperm", &[SETUP, ENTER, REGISTER], EPERM);
    assert_eq!(report.status, 3);
    assert_eq!(report.calls(), ["denied", "denied", "denied"]);
    assert_eq!(report.json["io_uring"]["calls"][1]["call"], "io_uring_enter");
    assert_eq!(report.cause_kinds(), ["seccomp-denies"]);
    assert_eq!(report.json["io_uring"]["facts"]["seccomp_mode"], 2);
    assert_eq!(report.json["verdict"]["driver"], "fallback");
    let why = "seccomp denies io_uring_setup, io_uring_enter and io_uring_register";
    assert!(report.verdict().contains(why), "{}", report.verdict());
    assert!(report.joined().contains(why), "{}", report.text);
    assert!(report.joined().contains("io_uring: not usable"), "{}", report.text);
    assert_remedy(&report);
}

#[test]
fn eacces_from_all_calls_is_a_filter() {
    let refuse = SeccompAction::Errno(libc::EACCES as u32);
    let report = under("doctor-eacces", &[SETUP, ENTER, REGISTER], refuse.clone());
    assert_eq!((report.status, report.cause_kinds()), (3, vec!["seccomp-denies"]));
    // A security module may refuse `io_uring_setup` too, so both are named.
    let report = under("doctor-eacces-setup", &[SETUP], refuse);
    assert_eq!((report.status, report.cause_kinds()), (3, vec!["security-module"]));
    assert!(report.joined().contains("or the seccomp filter in force"), "{}", report.text);
}

#[test]
fn a_filter_that_kills_ends_only_the_child() {
    let report = under("doctor-kills", &[SETUP], SeccompAction::KillProcess);
    assert_eq!(report.status, 3);
    assert_eq!(report.calls(), ["kills", "allowed", "allowed"]);
    assert_eq!(report.cause_kinds(), ["seccomp-kills"]);
    assert!(report.joined().contains("a seccomp filter kills the caller of io_uring_setup"));
    assert!(report.joined().contains("the caller is killed (SIGSYS)"), "{}", report.text);
    assert_remedy(&report);
}

#[test]
fn a_filter_that_denies_only_enter_is_named() {
    let report = under("doctor-enter", &[ENTER], EPERM);
    assert_eq!(report.status, 3);
    assert_eq!(report.calls(), ["allowed", "denied", "allowed"]);
    assert_eq!(report.cause_kinds(), ["seccomp-denies"]);
    assert!(
        report.verdict().contains("because seccomp denies io_uring_enter;"),
        "{}",
        report.verdict()
    );
    // A ring can be created but not used, which the runtime finds out before it relies on it.
    assert_eq!(report.json["io_uring"]["runtime"], "fallback");
    // Features that need no `io_uring_enter` are tested; the others are unknown, not missing.
    assert_eq!(report.features()["SingleIssuer"], "present");
    assert_eq!(report.features()["MULTISHOT_ACCEPT"], "unknown");
    assert_remedy(&report);
}

#[test]
fn a_filter_that_denies_only_register_is_named() {
    let report = under("doctor-register", &[REGISTER], EPERM);
    assert_eq!((report.status, report.calls()), (3, vec!["allowed", "allowed", "denied"]));
    assert_eq!(report.cause_kinds(), ["seccomp-denies"]);
    assert!(report.joined().contains("seccomp denies io_uring_register"), "{}", report.text);
    assert!(report.features().values().all(|state| *state == "unknown"));
}

#[test]
fn a_filter_that_hides_the_calls_is_recognised() {
    let report = under("doctor-enosys", &[SETUP, ENTER, REGISTER], ENOSYS);
    assert_eq!((report.status, report.calls()), (3, vec!["missing", "missing", "missing"]));
    match report.json["io_uring"]["facts"]["built_with_io_uring"].as_bool() {
        Some(built) => {
            assert!(built, "this kernel has io_uring: the other tests use it");
            assert_eq!(report.cause_kinds(), ["seccomp-denies"]);
            assert!(report.joined().contains("seccomp hides io_uring_setup"), "{}", report.text);
        }
        None => {
            eprintln!("this kernel hides its symbols: only the unknown cause is tested");
            assert_eq!(report.cause_kinds(), ["unknown"]);
            assert!(report.joined().contains("or the seccomp filter in force hides it"));
        }
    }
}

#[test]
fn without_proc_the_filter_is_still_found() {
    let place = place("doctor-no-proc");
    let proc = std::path::Path::new("/proc");
    let changed = try_report_of("an empty /proc", || {
        let mut command = doctor(&place);
        with_tmpfs(&mut command, proc, 0);
        filtered(&mut command, filter(&[SETUP], EPERM));
        command
    });
    let Some(report) = changed else { return };
    assert_eq!(report.status, 3);
    assert_eq!(report.cause_kinds(), ["seccomp-denies"]);
    assert_eq!(report.json["kernel"]["proc_is_readable"], false);
    assert_eq!(report.json["io_uring"]["facts"]["seccomp_mode"], 2);
    assert_eq!(report.json["io_uring"]["facts"]["capabilities"], serde_json::Value::Null);
    assert_eq!(report.limit("vm.max_map_count")["enough"], serde_json::Value::Null);
    assert_eq!(report.json["paths"][0]["filesystem"], "unknown");
    assert!(report.joined().contains("/proc cannot be read"), "{}", report.text);
    assert!(report.joined().contains("vm.max_map_count unknown"), "{}", report.text);
}

#[test]
fn without_proc_a_ring_is_still_usable() {
    let place = place("doctor-no-proc-ring");
    let changed = try_report_of("an empty /proc", || {
        let mut command = doctor(&place);
        with_tmpfs(&mut command, std::path::Path::new("/proc"), 0);
        command
    });
    let Some(report) = changed else { return };
    assert_eq!((report.status, report.cause_kinds()), (0, vec![]));
    let why =
        "not examined, because /proc cannot be read: vm.max_map_count, vm.overcommit_memory, ";
    assert!(report.verdict().contains(why), "{}", report.verdict());
    assert!(!report.verdict().contains("nothing is missing"), "{}", report.verdict());
    assert_eq!(report.json["verdict"]["unknown"][0], "vm.max_map_count");
}

const SWITCH: &str = "/proc/sys/kernel/io_uring_disabled";

/// Restores the machine's sysctl when it is dropped.
struct Switch(String);

impl Switch {
    fn set(to: &str) -> Switch {
        let before = std::fs::read_to_string(SWITCH).unwrap();
        std::fs::write(SWITCH, to).expect("only root can run this test");
        Switch(before)
    }
}

impl Drop for Switch {
    fn drop(&mut self) {
        std::fs::write(SWITCH, &self.0).unwrap();
    }
}

/// Reports as root and as an unprivileged user.
fn with_the_switch_at(to: &str) -> [Report; 2] {
    let place = place("doctor-switch");
    std::fs::set_permissions(&place, std::fs::Permissions::from_mode(0o777)).unwrap();
    let _switched = Switch::set(to);
    let privileged = report_of(|| doctor(&place));
    let unprivileged = report_of(|| {
        let mut command = doctor(&place);
        command.uid(65_534).gid(65_534);
        command
    });
    [privileged, unprivileged]
}

fn assert_switched_off(report: &Report, kind: &str, value: &str) {
    assert_eq!((report.status, report.cause_kinds()), (3, vec![kind]), "{}", report.text);
    assert_eq!(report.calls(), ["denied", "allowed", "allowed"]);
    assert_eq!(report.json["io_uring"]["runtime"], "fallback");
    assert_eq!(report.json["verdict"]["driver"], "fallback");
    for phrase in [value, "what to do: sysctl kernel.io_uring_disabled=0"] {
        assert!(report.verdict().contains(phrase), "{}", report.verdict());
        assert!(report.joined().contains(phrase), "{}", report.text);
    }
}

#[test]
#[ignore = "switches io_uring off for the whole machine; needs root"]
fn the_kernels_sysctl_is_named_as_cause() {
    let [privileged, unprivileged] = with_the_switch_at("1");
    assert_eq!((privileged.status, privileged.cause_kinds()), (0, vec![]), "{}", privileged.text);
    assert_switched_off(
        &unprivileged,
        "sysctl-unprivileged",
        "kernel.io_uring_disabled is 1, and this process has no CAP_SYS_ADMIN",
    );
    for report in with_the_switch_at("2") {
        let value = "kernel.io_uring_disabled is 2: no process may create a ring";
        assert_switched_off(&report, "sysctl-disabled", value);
    }
}
