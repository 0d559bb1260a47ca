//! Runs `cringle doctor` without measurements, and changes the environment of the child.

use crate::common::*;
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter,
    SeccompRule,
};
use serde_json::Value;
use std::collections::BTreeMap;
use std::ffi::CString;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Output};

pub(crate) fn doctor(place: &Path) -> Command {
    let mut command = cringle(place);
    command.args(["doctor", "--no-measure"]);
    // The container that the tests run in must not change the remedy.
    command.env_remove("KUBERNETES_SERVICE_HOST").env_remove("container");
    command
}

/// The report as text and as JSON, and the exit status, which is the same for both.
pub(crate) struct Report {
    pub(crate) text: String,
    pub(crate) json: Value,
    pub(crate) status: i32,
}

impl Report {
    pub(crate) fn verdict(&self) -> &str {
        self.json["verdict"]["sentence"].as_str().unwrap()
    }

    pub(crate) fn cause_kinds(&self) -> Vec<&str> {
        let causes = self.json["io_uring"]["causes"].as_array().unwrap();
        causes.iter().map(|cause| cause["kind"].as_str().unwrap()).collect()
    }

    /// The states of the three calls: setup, enter, register.
    pub(crate) fn calls(&self) -> Vec<&str> {
        let calls = self.json["io_uring"]["calls"].as_array().unwrap();
        calls.iter().map(|call| call["state"].as_str().unwrap()).collect()
    }

    pub(crate) fn features(&self) -> BTreeMap<&str, &str> {
        let features = self.json["io_uring"]["features"].as_array().unwrap().iter();
        features
            .map(|one| (one["name"].as_str().unwrap(), one["state"].as_str().unwrap()))
            .collect()
    }

    pub(crate) fn limit(&self, name: &str) -> &Value {
        let mut limits = self.json["limits"].as_array().unwrap().iter();
        limits.find(|limit| limit["name"] == name).unwrap()
    }

    /// The text with its lines joined, so that a sentence is found wherever it is wrapped.
    pub(crate) fn joined(&self) -> String {
        self.text.split_whitespace().collect::<Vec<_>>().join(" ")
    }
}

/// Runs the command twice, for the text and for the JSON. Returns `None`, and prints so, if this
/// user may not change the child's environment in this way.
pub(crate) fn try_report_of(what: &str, make: impl Fn() -> Command) -> Option<Report> {
    let run = |json: bool| -> io::Result<Output> {
        let mut command = make();
        if json {
            command.args(["--json", "-"]);
        }
        command.output()
    };
    let (text, json) = match (run(false), run(true)) {
        (Ok(text), Ok(json)) => (text, json),
        (Err(error), _) | (_, Err(error)) => {
            eprintln!("SKIPPED, NOTHING WAS TESTED: {what}: {error} (root can)");
            return None;
        }
    };
    let ((text_out, text_err), (json_out, json_err)) = (texts(&text), texts(&json));
    assert_eq!((text_err, json_err), (String::new(), String::new()));
    assert_eq!(text.status.code(), json.status.code());
    let status = text.status.code().unwrap_or_else(|| panic!("{}", text.status));
    let json =
        serde_json::from_str(&json_out).unwrap_or_else(|error| panic!("{error}: {json_out}"));
    Some(Report { text: text_out, json, status })
}

/// As [`try_report_of`], for a change that every user may make.
pub(crate) fn report_of(make: impl Fn() -> Command) -> Report {
    try_report_of("the command", make).expect("every user may make this change")
}

pub(crate) const SETUP: i64 = libc::SYS_io_uring_setup;
pub(crate) const ENTER: i64 = libc::SYS_io_uring_enter;
pub(crate) const REGISTER: i64 = libc::SYS_io_uring_register;

pub(crate) fn filter(calls: &[i64], action: SeccompAction) -> BpfProgram {
    program(calls.iter().map(|call| (*call, Vec::new())).collect(), action)
}

/// A filter that makes the kernel seem to lack these requests of `io_uring_register`.
pub(crate) fn forget(opcodes: &[u32]) -> BpfProgram {
    let rule = |opcode: &u32| {
        let is = SeccompCmpOp::Eq;
        let one = SeccompCondition::new(1, SeccompCmpArgLen::Dword, is, u64::from(*opcode));
        SeccompRule::new(vec![one.unwrap()]).unwrap()
    };
    let rules = opcodes.iter().map(rule).collect();
    program(BTreeMap::from([(REGISTER, rules)]), SeccompAction::Errno(libc::EINVAL as u32))
}

fn program(rules: BTreeMap<i64, Vec<SeccompRule>>, action: SeccompAction) -> BpfProgram {
    let architecture = std::env::consts::ARCH.try_into().unwrap();
    let filter = SeccompFilter::new(rules, SeccompAction::Allow, action, architecture).unwrap();
    filter.try_into().unwrap()
}

/// Runs `change` in the child between fork and exec.
fn change(command: &mut Command, change: impl FnMut() -> io::Result<()> + Send + Sync + 'static) {
    // SAFETY: the closures of this file only make system calls; they neither allocate nor lock.
    unsafe { command.pre_exec(change) };
}

fn check(result: libc::c_int) -> io::Result<()> {
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

pub(crate) fn filtered(command: &mut Command, program: BpfProgram) {
    change(command, move || {
        seccompiler::apply_filter(&program).map_err(|_| io::Error::from_raw_os_error(libc::EPERM))
    });
}

/// Closes descriptors that the test process inherited, which would count against the child's limit.
pub(crate) fn without_inherited_files(command: &mut Command) {
    change(command, || {
        // SAFETY: a system call with no pointers. The flag closes the descriptors at `exec`, so
        // that none is closed while std uses it.
        let marked = unsafe {
            libc::syscall(libc::SYS_close_range, 3, libc::c_uint::MAX, libc::CLOSE_RANGE_CLOEXEC)
        };
        check(marked as libc::c_int)
    });
}

// The C libraries name the type differently.
#[cfg(target_env = "musl")]
type Resource = libc::c_int;
#[cfg(not(target_env = "musl"))]
type Resource = libc::__rlimit_resource_t;

pub(crate) fn limited(command: &mut Command, which: Resource, limit: u64) {
    let limit = libc::rlimit { rlim_cur: limit, rlim_max: limit };
    // SAFETY: the call only reads `limit`, which outlives it.
    change(command, move || check(unsafe { libc::setrlimit(which, &limit) }));
}

/// Lowers the soft limit of the child, which it may raise again.
pub(crate) fn soft_limited(command: &mut Command, which: Resource, limit: u64) {
    change(command, move || {
        let mut limits = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
        // SAFETY: the calls read and write only `limits`, which outlives them.
        unsafe {
            check(libc::getrlimit(which, &mut limits))?;
            limits.rlim_cur = limit;
            check(libc::setrlimit(which, &limits))
        }
    });
}

/// Removes a capability from the child, also if root runs the tests.
pub(crate) fn without_capability(command: &mut Command, number: libc::c_ulong) {
    change(command, move || {
        // An error means that the process lacks the capability already.
        // SAFETY: a system call with no pointers.
        unsafe { libc::prctl(libc::PR_CAPBSET_DROP, number, 0, 0, 0) };
        Ok(())
    });
}

/// Mounts an empty tmpfs at `at`, visible only to the child.
pub(crate) fn with_tmpfs(command: &mut Command, at: &Path, flags: libc::c_ulong) {
    let at = CString::new(at.as_os_str().as_bytes()).unwrap();
    change(command, move || {
        let nothing = std::ptr::null();
        let private = libc::MS_REC | libc::MS_PRIVATE;
        // SAFETY: the pointers are null or C strings that outlive the calls, which only read them.
        unsafe {
            check(libc::unshare(libc::CLONE_NEWNS))?;
            check(libc::mount(nothing, c"/".as_ptr(), nothing, private, nothing.cast()))?;
            let kind = c"tmpfs".as_ptr();
            check(libc::mount(kind, at.as_ptr(), kind, flags, nothing.cast()))
        }
    });
}
