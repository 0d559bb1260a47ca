//! Decides whether the driver can use a ring: by the calls, their causes, the features, and by
//! starting a runtime.

use super::calls::{self, Call, Outcome, Syscall};
use super::causes::{self, Cause, Kind};
use super::features::{self, Features, Finding};
use super::kernel::Kernel;
use super::locked::Rings;
use super::permissions::Permissions;
use super::start::{self, Start};
use serde::Serialize;

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
    let (runtime, why) = start::try_start();
    if causes.is_empty() && runtime != Start::Ring {
        causes.push(unexplained(runtime, &why));
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
        Some(libc::ENOMEM) if rings.are_limited(permissions) => {
            Some(causes::locked_memory(&what, rings, kernel, permissions))
        }
        Some(libc::ENOMEM) => Some(causes::no_memory(&what, kernel, permissions)),
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

/// Returns the cause if the calls are allowed, and the runtime has this reason against the ring.
fn unexplained(start: Start, why: &str) -> Cause {
    // The reason names the variables that it comes from.
    let words = why.split(|c: char| !c.is_ascii_uppercase() && c != '_');
    let variable = words.filter(|word| word.starts_with("CRINGLE_"));
    let set = |name: &str| Some((name.to_owned(), std::env::var_os(name)?));
    if let Some((name, value)) = variable.filter_map(set).next() {
        let what = format!("{name} is {value:?} in the environment");
        return Cause::new(Kind::Environment, what, vec![format!("unset {name}")]);
    }
    let what = match start {
        Start::Fallback => "the runtime does not use the ring, though the kernel allows one",
        Start::Killed => "a runtime is killed when it starts, though the kernel allows a ring",
        _ => "no runtime starts, though the kernel allows a ring",
    };
    let reason = if why.is_empty() { String::new() } else { format!(" ({why})") };
    let what = format!("{what}{reason}");
    let no_descriptor = [libc::EMFILE, libc::ENFILE].map(std::io::Error::from_raw_os_error);
    if no_descriptor.iter().any(|error| why.contains(&error.to_string())) {
        return causes::descriptors(&what);
    }
    Cause::new(Kind::Unknown, what, vec!["dmesg | tail (the kernel may say why)".into()])
}
