//! Decides whether the driver can use a ring: by the calls, their causes, the features, and by
//! starting a runtime.

use super::calls::{self, Call, Outcome, Syscall};
use super::causes::{self, Cause, Kind};
use super::child::{Answer, ask_child};
use super::features::{self, Features, Finding};
use super::kernel::Kernel;
use super::locked::Rings;
use super::permissions::Permissions;
use cringle::runtime::{self, Driver};
use serde::Serialize;
use std::os::fd::AsRawFd;

/// What is known of the ring: the `io_uring` of the JSON.
#[derive(Serialize)]
pub(crate) struct Ring {
    pub usable: bool,
    pub calls: Vec<Call>,
    /// Why the ring is not usable; empty if it is.
    pub causes: Vec<Cause>,
    pub runtime: Start,
    /// The memory of rings; `null` if none can be created.
    pub locked_memory: Option<Rings>,
    pub features: Vec<Finding>,
    pub note: Option<String>,
    #[serde(rename = "facts")]
    pub permissions: Permissions,
}

/// What a program that calls `cringle::run` gets here.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Start {
    /// It runs on the ring.
    Ring,
    /// It runs on epoll.
    Fallback,
    /// `run` returns an error, or panics with it.
    Refuses,
    Killed,
    Unknown,
}

pub(crate) fn examine(kernel: &Kernel) -> Ring {
    let mut permissions = Permissions::examine();
    let calls = calls::all();
    if calls.iter().any(|call| call.outcome == Outcome::Denied(libc::ENOSYS)) {
        permissions.examine_kernel_build();
    }
    let mut causes = causes::of(&calls, &permissions, kernel);
    let makes_rings = allowed(&calls, Syscall::Setup);
    let features = if makes_rings && allowed(&calls, Syscall::Register) {
        features::all()
    } else {
        features::unknown("no ring can be created to test them")
    };
    // A limit may admit the smallest ring, or none.
    let is_short = calls.iter().any(|call| call.outcome == Outcome::Denied(libc::ENOMEM));
    let locked_memory = (makes_rings || is_short).then(Rings::examine);
    causes.extend(locked_memory.and_then(|rings| too_small(&rings, kernel, &permissions)));
    causes.extend(lacking(&features, causes.is_empty(), kernel));
    let runtime = start();
    if causes.is_empty() && runtime != Start::Ring {
        causes.push(unexplained(runtime));
    }
    let usable = causes.is_empty();
    let Features { found, note, .. } = features;
    Ring { usable, calls, causes, runtime, locked_memory, features: found, note, permissions }
}

fn allowed(calls: &[Call], name: Syscall) -> bool {
    calls.iter().any(|call| call.name == name && call.outcome == Outcome::Allowed)
}

/// Returns the cause if fewer rings of the driver's size can be created than a program has workers.
fn too_small(rings: &Rings, kernel: &Kernel, permissions: &Permissions) -> Option<Cause> {
    let what = format!(
        "{} of {} rings of the driver's size can be created",
        if rings.made == 0 { "none".into() } else { format!("only {}", rings.made) },
        rings.wanted
    );
    match rings.error {
        _ if rings.is_enough() => None,
        Some(libc::ENOMEM) => Some(causes::locked_memory(&what, rings, kernel, permissions)),
        Some(libc::EMFILE | libc::ENFILE) => Some(causes::descriptors(&what)),
        error => {
            let why = error.map(|error| std::io::Error::from_raw_os_error(error).to_string());
            let why = why.unwrap_or_else(|| "the reason is unknown".into());
            Some(Cause::new(Kind::Unknown, format!("{what}: {why}"), vec!["ulimit -a".into()]))
        }
    }
}

fn lacking(features: &Features, nothing_else: bool, kernel: &Kernel) -> Option<Cause> {
    match &features.too_old {
        Some(lacking) if lacking.is_empty() => None,
        Some(lacking) => Some(causes::too_old(lacking, &kernel.release)),
        None if nothing_else => {
            let why = features.note.as_deref().unwrap_or("a test had no result");
            let what = format!("the features of the ring could not be tested ({why})");
            Some(Cause::new(Kind::Unknown, what, vec!["cringle doctor (again)".into()]))
        }
        None => None,
    }
}

fn start() -> Start {
    let answer = ask_child(|reply| {
        silence();
        let driver = cringle::Builder::new().run(runtime::driver);
        reply.send(match driver {
            Ok(Driver::Uring(_)) => 0,
            Ok(_) => 1,
            Err(_) => 2,
        });
    });
    match answer {
        Answer { unanswered: Some(_), .. } => Start::Unknown,
        Answer { signal: Some(_), .. } => Start::Killed,
        Answer { numbers, .. } => match numbers.first() {
            Some(0) => Start::Ring,
            Some(1) => Start::Fallback,
            Some(_) => Start::Refuses,
            None => Start::Unknown,
        },
    }
}

/// Discards the child's standard error: the report already has what a failing runtime prints.
fn silence() {
    if let Ok(nowhere) = std::fs::File::options().write(true).open("/dev/null") {
        // SAFETY: a system call with no pointers. Both descriptors are open, and the second is this
        // child's own copy.
        unsafe { libc::dup2(nowhere.as_raw_fd(), libc::STDERR_FILENO) };
    }
}

/// Returns the library's environment variables that are set.
fn variables() -> Vec<(&'static str, String)> {
    let set = |name| Some((name, std::env::var_os(name)?.to_string_lossy().into_owned()));
    [
        "CRINGLE_DRIVER",
        "CRINGLE_WATCHDOG",
        "CRINGLE_DETECT",
        "CRINGLE_TRACE",
        "CRINGLE_WORKERS",
        "CRINGLE_RESTRICT",
    ]
    .into_iter()
    .filter_map(set)
    .collect()
}

fn unexplained(start: Start) -> Cause {
    let variables = variables();
    let explains = |(name, value): &(&str, String)| match start {
        Start::Fallback => *name == "CRINGLE_DRIVER" && value != "uring" && value != "ring",
        // The command itself turns the watchdog off.
        Start::Refuses => value != "off" || *name == "CRINGLE_DRIVER",
        _ => false,
    };
    let set: Vec<_> = variables.iter().filter(|variable| explains(variable)).collect();
    if !set.is_empty() {
        let values = set.iter().map(|(name, value)| format!("{name} is {value:?}"));
        let what = format!("{} in the environment", values.collect::<Vec<_>>().join(", and "));
        let remedies = set.iter().map(|(name, _)| format!("unset {name}")).collect();
        return Cause::new(Kind::Environment, what, remedies);
    }
    let what = match start {
        Start::Fallback => "the runtime does not use the ring, though the kernel allows one",
        Start::Killed => "a runtime is killed when it starts, though the kernel allows a ring",
        _ => "no runtime starts, though the kernel allows a ring",
    };
    let remedies =
        vec!["cringle bench disk --verbose --ops 1 (it prints the runtime's reason)".into()];
    Cause::new(Kind::Unknown, what, remedies)
}
