//! What restricts this process: seccomp, capabilities, sysctls and security modules.
//! [`super::causes`] explains a refusal by these.

use super::child::ask_child;
use super::kernel;
use cringle_report::machine::read;
use serde::Serialize;

pub(crate) const CAP_IPC_LOCK: u32 = 14;
pub(crate) const CAP_SYS_ADMIN: u32 = 21;
const FILTERED: u32 = 2;

/// The restrictions of this process. `None` means unknown.
#[derive(Clone, Debug, Default, Serialize)]
pub(crate) struct Permissions {
    /// 0 for none, 1 for strict mode, 2 for a filter.
    pub seccomp_mode: Option<u32>,
    pub seccomp_filters: Option<u32>,
    /// The effective capabilities, as a bit set.
    pub capabilities: Option<u64>,
    /// Whether this is the initial user namespace. For rings the kernel checks capabilities in the
    /// initial one, where those of another namespace (as in a rootless container) do not count.
    pub initial_user_namespace: Option<bool>,
    /// `kernel.io_uring_disabled`, which exists since Linux 6.6.
    pub io_uring_disabled: Option<u32>,
    /// `kernel.io_uring_group`; -1 is no group.
    pub io_uring_group: Option<i64>,
    pub groups: Vec<u32>,
    /// The kernel's security modules, from `/sys/kernel/security/lsm`.
    pub security_modules: Option<String>,
    /// The label that SELinux or AppArmor gives this process.
    pub security_label: Option<String>,
    /// Whether the kernel was built with io_uring; only examined if it seems to lack it.
    pub built_with_io_uring: Option<bool>,
    /// The systemd service that this process runs in.
    pub service: Option<String>,
}

impl Permissions {
    pub(crate) fn examine() -> Permissions {
        let status = read("/proc/self/status").unwrap_or_default();
        let number = |name: &str| line(&status, name)?.parse().ok();
        Permissions {
            seccomp_mode: number("Seccomp").or_else(mode_by_prctl),
            seccomp_filters: number("Seccomp_filters"),
            capabilities: line(&status, "CapEff")
                .and_then(|text| u64::from_str_radix(text, 16).ok()),
            initial_user_namespace: read("/proc/self/uid_map").map(|map| is_identity(&map)),
            io_uring_disabled: setting("io_uring_disabled"),
            io_uring_group: setting("io_uring_group"),
            groups: groups(&status),
            security_modules: read("/sys/kernel/security/lsm"),
            security_label: read("/proc/self/attr/current").map(|text| text.replace('\0', "")),
            built_with_io_uring: None,
            service: read("/proc/self/cgroup").and_then(|groups| service(&groups)),
        }
    }

    /// Finds out whether the kernel was built with io_uring; this reads a large file.
    pub(crate) fn examine_kernel_build(&mut self) {
        self.built_with_io_uring = match self.io_uring_disabled {
            Some(_) => Some(true),
            None => read("/proc/kallsyms").and_then(|symbols| built_with(&symbols)),
        };
    }

    pub(crate) fn is_filtered(&self) -> Option<bool> {
        self.seccomp_mode.map(|mode| mode >= FILTERED)
    }

    pub(crate) fn can(&self, capability: u32) -> Option<bool> {
        let set = match self.initial_user_namespace {
            Some(false) => 0,
            _ => self.capabilities?,
        };
        Some(set & 1 << capability != 0)
    }

    pub(crate) fn in_io_uring_group(&self) -> bool {
        if self.initial_user_namespace == Some(false) {
            // The group numbers of another namespace are not those that the sysctl means.
            return false;
        }
        let group = self.io_uring_group.and_then(|group| u32::try_from(group).ok());
        group.is_some_and(|group| self.groups.contains(&group))
    }
}

fn setting<T: std::str::FromStr>(name: &str) -> Option<T> {
    read(format!("/proc/sys/kernel/{name}"))?.parse().ok()
}

/// Returns the value of a line of `/proc/self/status`.
fn line<'t>(status: &'t str, name: &str) -> Option<&'t str> {
    let mut lines = status.lines().filter_map(|line| line.split_once(':'));
    lines.find(|(key, _)| *key == name).map(|(_, value)| value.trim())
}

/// Returns whether a `uid_map` maps every number to itself, as in the initial namespace.
fn is_identity(map: &str) -> bool {
    map.split_whitespace().eq(["0", "0", "4294967295"])
}

/// Returns the effective group and the supplementary groups.
fn groups(status: &str) -> Vec<u32> {
    let effective = line(status, "Gid").and_then(|all| all.split_whitespace().nth(1));
    let others = line(status, "Groups").unwrap_or_default().split_whitespace();
    effective.into_iter().chain(others).filter_map(|group| group.parse().ok()).collect()
}

/// Returns the seccomp mode without `/proc`; in a child, because a filter may kill the caller.
fn mode_by_prctl() -> Option<u32> {
    let answer = ask_child(|reply| {
        // SAFETY: a system call with no pointers.
        reply.send(unsafe { libc::prctl(libc::PR_GET_SECCOMP, 0, 0, 0, 0) });
    });
    answer.numbers.first().and_then(|mode| u32::try_from(*mode).ok())
}

/// Returns whether the kernel's symbols have an implementation of `io_uring_setup`. A weak symbol
/// is the stub of a system call that was left out of the build.
fn built_with(symbols: &str) -> Option<bool> {
    let mut kinds = symbols.lines().filter_map(|line| {
        let mut words = line.split_whitespace().skip(1);
        let (kind, name) = (words.next()?, words.next()?);
        name.ends_with("_sys_io_uring_setup").then_some(kind)
    });
    match kinds.next() {
        Some(kind) => Some(kind.eq_ignore_ascii_case("t")),
        // Without any system call the kernel hides its symbols, and the answer is unknown.
        None => symbols.contains("_sys_read").then_some(false),
    }
}

fn service(groups: &str) -> Option<String> {
    let paths = groups.lines().filter_map(|line| line.rsplit(':').next());
    let units = paths.filter_map(|path| path.rsplit('/').next());
    units.into_iter().find(|unit| unit.ends_with(".service")).map(str::to_owned)
}

/// Returns whether a kernel release is older than io_uring.
pub(crate) fn is_before_io_uring(release: &str) -> bool {
    kernel::version(release).is_some_and(|version| version < (5, 1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kernel_symbols_show_whether_io_uring_is_built() {
        let with = "0 T __x64_sys_read\n0 T __x64_sys_io_uring_setup\n";
        let without = "0 T __x64_sys_read\n0 W __x64_sys_io_uring_setup\n";
        assert_eq!(built_with(with), Some(true));
        assert_eq!(built_with(without), Some(false));
        assert_eq!(built_with("0 T __x64_sys_read\n"), Some(false));
        assert_eq!(built_with("0 T something\n"), None);
    }

    #[test]
    fn status_lines_are_found_by_name() {
        let status = "Gid:\t5\t7\t7\t7\nGroups:\t7 24 100 \nSeccomp:\t2\nSeccomp_filters:\t1\n";
        assert_eq!(line(status, "Seccomp"), Some("2"));
        assert_eq!(groups(status), [7, 7, 24, 100]);
    }

    #[test]
    fn capabilities_of_another_namespace_do_not_count() {
        assert!(is_identity("         0          0 4294967295"));
        assert!(!is_identity("0 1000 1\n1 100000 65536"));
        let root = Permissions { capabilities: Some(u64::MAX), ..Permissions::default() };
        assert_eq!(root.can(CAP_SYS_ADMIN), Some(true));
        let rootless = Permissions { initial_user_namespace: Some(false), ..root };
        assert_eq!(rootless.can(CAP_SYS_ADMIN), Some(false));
    }

    #[test]
    fn a_control_group_names_its_service() {
        assert_eq!(service("0::/system.slice/db.service"), Some("db.service".into()));
        assert_eq!(service("0::/user.slice/session-1.scope"), None);
    }
}
