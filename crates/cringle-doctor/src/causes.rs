//! Finds what denies the ring and the remedy, by pure functions of the calls' outcomes and this
//! process's permissions.
//!
//! The kernel checks in this order: the seccomp filter, at each of the three calls; then, when a
//! ring is created, `kernel.io_uring_disabled`, the security module, and limits. Therefore only
//! seccomp can refuse `io_uring_enter`. If only `io_uring_setup` is refused, a sysctl that refuses
//! it hides whether a filter would as well. The security module has no part in the other two calls.

use super::calls::{Call, Outcome, Syscall};
use super::container::{self, Place};
use super::kernel::Kernel;
use super::locked::Rings;
use super::permissions::{CAP_SYS_ADMIN, Permissions, is_before_io_uring};
use cringle_report::units::size;
use rlimit::Resource;
use serde::Serialize;

/// The kind of a [`Cause`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Kind {
    SeccompDenies,
    SeccompKills,
    /// `kernel.io_uring_disabled` is 2.
    SysctlDisabled,
    /// `kernel.io_uring_disabled` is 1, and this process is neither privileged nor in the group.
    SysctlUnprivileged,
    NotBuilt,
    KernelTooOld,
    SecurityModule,
    LockedMemory,
    /// `ENOMEM` that no limit of locked memory explains.
    NoMemory,
    Descriptors,
    /// An environment variable of the library chooses another driver, or is invalid.
    Environment,
    Unknown,
}

/// What denies the ring, with remedies.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Cause {
    pub kind: Kind,
    /// A clause that completes "because …".
    pub what: String,
    /// Commands or settings; the first is the shortest.
    pub remedies: Vec<String>,
}

impl Cause {
    pub(super) fn new(kind: Kind, what: impl Into<String>, remedies: Vec<String>) -> Cause {
        Cause { kind, what: what.into(), remedies }
    }
}

/// Returns the causes of every refused call; none if all are allowed.
pub(crate) fn of(calls: &[Call], permissions: &Permissions, kernel: &Kernel) -> Vec<Cause> {
    let names = |wanted: &dyn Fn(&Outcome) -> bool| -> Vec<Syscall> {
        calls.iter().filter(|call| wanted(&call.outcome)).map(|call| call.name).collect()
    };
    let mut causes = Vec::new();
    let killed = names(&|outcome| matches!(outcome, Outcome::Killed(_)));
    if !killed.is_empty() {
        causes.push(kills(calls, &killed, kernel, permissions));
    }
    let mut denied = names(&|outcome| matches!(outcome, Outcome::Denied(libc::EPERM)));
    let refused = names(&|outcome| matches!(outcome, Outcome::Denied(libc::EACCES)));
    if !is_by_security_module(&refused) {
        denied.extend(&refused);
    }
    if denied.contains(&Syscall::Setup)
        && let Some(sysctl) = by_sysctl(permissions)
    {
        denied.retain(|name| *name != Syscall::Setup);
        causes.push(sysctl);
    }
    if !denied.is_empty() {
        causes.push(denies(&denied, kernel, permissions));
    }
    let missing = names(&|outcome| matches!(outcome, Outcome::Denied(libc::ENOSYS)));
    if !missing.is_empty() {
        causes.push(lacks(&missing, calls.len(), kernel, permissions));
    }
    if is_by_security_module(&refused) {
        causes.push(security_module(permissions));
    }
    causes.extend(calls.iter().filter_map(|call| other(call, permissions)));
    causes
}

/// Returns whether `EACCES` from these calls can come from a security module, which checks only
/// `io_uring_setup`.
fn is_by_security_module(refused: &[Syscall]) -> bool {
    refused == [Syscall::Setup]
}

fn listed(names: &[Syscall]) -> String {
    let names: Vec<_> = names.iter().map(|name| name.text()).collect();
    match names.split_last() {
        Some((last, [])) => (*last).into(),
        Some((last, others)) => format!("{} and {last}", others.join(", ")),
        None => String::new(),
    }
}

/// Returns how to allow the three calls in the filter of the container or service around this
/// process, or of any where it is unknown.
fn allow(kernel: &Kernel, permissions: &Permissions) -> Vec<String> {
    let places = container::around(kernel, permissions);
    let mut all: Vec<_> = places.iter().map(Place::allow_calls).collect();
    let unfiltered = match kernel.container.as_deref() {
        Some(engine @ ("docker" | "podman")) => Some(format!(
            "{engine} run --security-opt seccomp=unconfined … (to try it: no filter at all)"
        )),
        _ => None,
    };
    all.extend(unfiltered);
    all
}

fn kills(calls: &[Call], names: &[Syscall], kernel: &Kernel, permissions: &Permissions) -> Cause {
    let by_filter = |call: &Call| call.outcome == Outcome::Killed(libc::SIGSYS);
    if calls.iter().any(by_filter) {
        let what = format!("a seccomp filter kills the caller of {}", listed(names));
        return Cause::new(Kind::SeccompKills, what, allow(kernel, permissions));
    }
    let what =
        format!("the caller of {} is killed, by a signal other than seccomp's", listed(names));
    Cause::new(Kind::Unknown, what, vec!["dmesg | tail (the kernel may say why)".into()])
}

fn by_sysctl(permissions: &Permissions) -> Option<Cause> {
    let allow = "sysctl kernel.io_uring_disabled=0 (as root, on the host)".to_owned();
    match permissions.io_uring_disabled? {
        0 => None,
        1 if permissions.can(CAP_SYS_ADMIN) == Some(true) || permissions.in_io_uring_group() => {
            None
        }
        1 => {
            let group = match permissions.io_uring_group {
                Some(group) if group >= 0 => format!("only group {group} may use it"),
                _ => "no group may use it".into(),
            };
            let what = format!(
                "kernel.io_uring_disabled is 1, and this process has no CAP_SYS_ADMIN ({group})"
            );
            let group = "sysctl kernel.io_uring_group=GID (a group of this user; as root, on the \
                         host)";
            Some(Cause::new(Kind::SysctlUnprivileged, what, vec![allow, group.into()]))
        }
        _ => {
            let what = "kernel.io_uring_disabled is 2: no process may create a ring";
            Some(Cause::new(Kind::SysctlDisabled, what, vec![allow]))
        }
    }
}

fn denies(names: &[Syscall], kernel: &Kernel, permissions: &Permissions) -> Cause {
    let names = listed(names);
    match permissions.is_filtered() {
        Some(true) => {
            let what = format!("seccomp denies {names}");
            Cause::new(Kind::SeccompDenies, what, allow(kernel, permissions))
        }
        Some(false) => {
            let modules = permissions.security_modules.as_deref().unwrap_or("unknown");
            let sysctl = match kernel.proc_is_readable {
                true => "no sysctl denies it; a",
                false => "kernel.io_uring_disabled cannot be read; it may deny it, or a",
            };
            let what = format!(
                "{names} is not permitted, though no seccomp filter is in force; {sysctl} \
                 security module may (here: {modules})"
            );
            Cause::new(Kind::Unknown, what, vec![audit()])
        }
        None => {
            let what = format!(
                "{names} is not permitted; why is unknown, since neither /proc nor prctl reports \
                 whether a seccomp filter is in force"
            );
            Cause::new(Kind::Unknown, what, allow(kernel, permissions))
        }
    }
}

fn lacks(names: &[Syscall], of: usize, kernel: &Kernel, permissions: &Permissions) -> Cause {
    let newer = || vec!["use Linux 6.1 or newer".to_owned()];
    if is_before_io_uring(&kernel.release) {
        let what = format!("Linux {} is older than io_uring (5.1)", kernel.release);
        return Cause::new(Kind::KernelTooOld, what, newer());
    }
    let listed = listed(names);
    let by_filter = || {
        let what = format!("seccomp hides {listed} (ENOSYS)");
        Cause::new(Kind::SeccompDenies, what, allow(kernel, permissions))
    };
    // A kernel has all three calls or none, so a filter hides some.
    if names.len() < of {
        return by_filter();
    }
    match (permissions.built_with_io_uring, permissions.is_filtered()) {
        (Some(true), _) => by_filter(),
        (Some(false), _) => {
            let what = format!("this kernel ({}) was built without io_uring", kernel.release);
            Cause::new(
                Kind::NotBuilt,
                what,
                vec!["use a kernel built with CONFIG_IO_URING=y".into()],
            )
        }
        (None, filtered) => {
            let filter = match filtered {
                Some(true) => "or the seccomp filter in force hides it",
                Some(false) => "since no seccomp filter is in force that could hide it",
                None => "or a seccomp filter hides it",
            };
            let what = format!("the kernel has no {listed}: it was built without, {filter}");
            Cause::new(
                Kind::Unknown,
                what,
                vec!["use a kernel built with CONFIG_IO_URING=y".into()],
            )
        }
    }
}

fn audit() -> String {
    "ausearch -m avc -ts recent (SELinux) or dmesg | grep -i apparmor (as root)".into()
}

/// The cause of `EACCES`, which a security module returns. A filter can return it too, so that the
/// text mentions a filter in force.
fn security_module(permissions: &Permissions) -> Cause {
    let modules = permissions.security_modules.as_deref().unwrap_or("which one is unknown");
    let label = match &permissions.security_label {
        Some(label) => format!("; this process is labelled {label}"),
        None => String::new(),
    };
    let filter = match permissions.is_filtered() {
        Some(true) => ", or the seccomp filter in force does",
        _ => "",
    };
    let what = format!("a security module denies io_uring_setup ({modules}{label}){filter}");
    Cause::new(Kind::SecurityModule, what, vec![audit()])
}

/// Returns the cause of errors that only creating a ring has, and of a test without a result.
fn other(call: &Call, permissions: &Permissions) -> Option<Cause> {
    let name = call.name.text();
    match &call.outcome {
        Outcome::Allowed | Outcome::Killed(_) => None,
        Outcome::Unknown(why) => {
            let supervisor = match permissions.is_filtered() {
                Some(true) => "; the seccomp filter in force may wait for a supervisor",
                _ => "",
            };
            let what = format!("it is unknown whether {name} is allowed ({why}{supervisor})");
            Some(Cause::new(Kind::Unknown, what, vec!["cringle doctor (once more)".into()]))
        }
        Outcome::Denied(libc::EPERM | libc::EACCES | libc::ENOSYS) => None,
        // `ring::too_small` has the cause.
        Outcome::Denied(libc::ENOMEM) => None,
        Outcome::Denied(libc::EMFILE | libc::ENFILE) => {
            Some(descriptors("no file descriptor is free for a ring"))
        }
        Outcome::Denied(error) => {
            let what = format!("{name} fails: {}", std::io::Error::from_raw_os_error(*error));
            Some(Cause::new(Kind::Unknown, what, vec!["dmesg | tail (as root)".into()]))
        }
    }
}

/// The cause of rings that the limit of locked memory refuses.
pub(crate) fn locked_memory(
    what: &str,
    rings: &Rings,
    kernel: &Kernel,
    permissions: &Permissions,
) -> Cause {
    let others = match rings.others_bytes {
        None | Some(0) => String::new(),
        Some(bytes) => format!(", and other rings of this user take {}", size(bytes)),
    };
    let what = format!(
        "{what}: RLIMIT_MEMLOCK is too small (they need {}{others})",
        size(rings.needed_bytes())
    );
    let enough = rings.needed_bytes() + rings.others_bytes.unwrap_or(0);
    let hard = Resource::MEMLOCK.get().map_or(0, |(_, hard)| hard);
    let shell = format!("ulimit -l {}", enough.div_ceil(1024));
    let mut remedies = Vec::from_iter((enough <= hard).then_some(shell));
    let places = container::around(kernel, permissions);
    remedies.extend(places.iter().map(Place::allow_memory));
    remedies.push("memlock in /etc/security/limits.conf, for a login".into());
    Cause::new(Kind::LockedMemory, what, remedies)
}

/// The cause of `ENOMEM` where the limit of locked memory cannot be the reason.
pub(crate) fn no_memory(what: &str, kernel: &Kernel, permissions: &Permissions) -> Cause {
    let is_filtered = permissions.is_filtered() != Some(false);
    let or_filter = if is_filtered { ", or a seccomp filter returns ENOMEM" } else { "" };
    let what = format!(
        "{what}: no memory, and RLIMIT_MEMLOCK does not bind this process; the machine or its \
         control group has too little{or_filter}"
    );
    let mut remedies = vec!["free -m, and a higher memory.max of the control group".to_owned()];
    if is_filtered {
        remedies.extend(allow(kernel, permissions));
    }
    Cause::new(Kind::NoMemory, what, remedies)
}

pub(crate) fn descriptors(what: &str) -> Cause {
    Cause::new(Kind::Descriptors, what, vec![super::limits::more_files()])
}

/// The cause of a ring without something that the driver requires.
pub(crate) fn too_old(lacking: &[&str], release: &str) -> Cause {
    let what = format!("the io_uring of Linux {release} has no {}", lacking.join(", "));
    Cause::new(Kind::KernelTooOld, what, vec!["use Linux 6.1 or newer".into()])
}

#[cfg(test)]
mod tests;
