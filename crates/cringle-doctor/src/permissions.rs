//! What this process may do, and who watches it: the permissions by which a refusal is explained.

use super::child::ask_child;
use super::kernel::{self, read};
use serde::Serialize;

pub(crate) const CAP_IPC_LOCK: u32 = 14;
pub(crate) const CAP_SYS_ADMIN: u32 = 21;
const FILTERED: u32 = 2;

/// `None` is unknown, everywhere.
#[derive(Clone, Debug, Default, Serialize)]
pub(crate) struct Permissions {
    /// 0 none, 1 strict, 2 a filter.
    pub seccomp_mode: Option<u32>,
    pub seccomp_filters: Option<u32>,
    /// The set of capabilities in force.
    pub capabilities: Option<u64>,
    /// Whether this is the machine's own user namespace. Capabilities of another one (a rootless
    /// container's) are none where the kernel asks for those of the machine, as it does for rings.
    pub initial_user_namespace: Option<bool>,
    /// `kernel.io_uring_disabled`; kernels before 6.6 have none.
    pub io_uring_disabled: Option<u32>,
    /// `kernel.io_uring_group`; -1 is nobody.
    pub io_uring_group: Option<i64>,
    pub groups: Vec<u32>,
    /// Of the kernel, as `/sys/kernel/security/lsm` names them.
    pub security_modules: Option<String>,
    /// What SELinux or AppArmor call this process.
    pub security_label: Option<String>,
    /// Whether the kernel was built with io_uring; only looked up where it seems to lack it.
    pub built_with_io_uring: Option<bool>,
    /// The unit of systemd that this runs in, if it is a service.
    pub service: Option<String>,
}

impl Permissions {
    pub(crate) fn examine() -> Permissions {
        let status = read("/proc/self/status").unwrap_or_default();
        let number = |name: &str| line(&status, name)?.parse().ok();
        Permissions {
            seccomp_mode: number("Seccomp").or_else(asked_mode),
            seccomp_filters: number("Seccomp_filters"),
            capabilities: line(&status, "CapEff")
                .and_then(|text| u64::from_str_radix(text, 16).ok()),
            initial_user_namespace: read("/proc/self/uid_map").map(|map| maps_everyone(&map)),
            io_uring_disabled: setting("io_uring_disabled"),
            io_uring_group: setting("io_uring_group"),
            groups: groups(&status),
            security_modules: read("/sys/kernel/security/lsm"),
            security_label: read("/proc/self/attr/current").map(|text| text.replace('\0', "")),
            built_with_io_uring: None,
            service: read("/proc/self/cgroup").and_then(|groups| service(&groups)),
        }
    }

    /// Looks whether the kernel has io_uring at all; it reads a large file.
    pub(crate) fn look_at_the_build(&mut self) {
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
            // What the numbers of its groups are outside is not told.
            return false;
        }
        let group = self.io_uring_group.and_then(|group| u32::try_from(group).ok());
        group.is_some_and(|group| self.groups.contains(&group))
    }
}

fn setting<T: std::str::FromStr>(name: &str) -> Option<T> {
    read(format!("/proc/sys/kernel/{name}"))?.parse().ok()
}

/// The value of a line of `/proc/self/status`.
fn line<'t>(status: &'t str, name: &str) -> Option<&'t str> {
    let mut lines = status.lines().filter_map(|line| line.split_once(':'));
    lines.find(|(key, _)| *key == name).map(|(_, value)| value.trim())
}

/// The map of the first user namespace: every number is itself.
fn maps_everyone(map: &str) -> bool {
    map.split_whitespace().eq(["0", "0", "4294967295"])
}

/// The effective group and the supplementary ones.
fn groups(status: &str) -> Vec<u32> {
    let effective = line(status, "Gid").and_then(|all| all.split_whitespace().nth(1));
    let others = line(status, "Groups").unwrap_or_default().split_whitespace();
    effective.into_iter().chain(others).filter_map(|group| group.parse().ok()).collect()
}

/// The mode as the kernel tells it without `/proc`; in a child, because a filter may kill who asks.
fn asked_mode() -> Option<u32> {
    let answer = ask_child(|reply| {
        // SAFETY: no pointers.
        reply.send(unsafe { libc::prctl(libc::PR_GET_SECCOMP, 0, 0, 0, 0) });
    });
    answer.numbers.first().and_then(|mode| u32::try_from(*mode).ok())
}

/// A weak symbol is the stub of a call that was left out.
fn built_with(symbols: &str) -> Option<bool> {
    let mut kinds = symbols.lines().filter_map(|line| {
        let mut words = line.split_whitespace().skip(1);
        let (kind, name) = (words.next()?, words.next()?);
        name.ends_with("_sys_io_uring_setup").then_some(kind)
    });
    match kinds.next() {
        Some(kind) => Some(kind.eq_ignore_ascii_case("t")),
        // A kernel that hides its symbols says nothing by it.
        None => symbols.contains("_sys_read").then_some(false),
    }
}

fn service(groups: &str) -> Option<String> {
    let paths = groups.lines().filter_map(|line| line.rsplit(':').next());
    let units = paths.filter_map(|path| path.rsplit('/').next());
    units.into_iter().find(|unit| unit.ends_with(".service")).map(str::to_owned)
}

/// Whether the kernel is one that never had io_uring.
pub(crate) fn is_before_io_uring(release: &str) -> bool {
    kernel::version(release).is_some_and(|version| version < (5, 1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn symbols_tell_how_a_kernel_was_built() {
        let with = "0 T __x64_sys_read\n0 T __x64_sys_io_uring_setup\n";
        let without = "0 T __x64_sys_read\n0 W __x64_sys_io_uring_setup\n";
        assert_eq!(built_with(with), Some(true));
        assert_eq!(built_with(without), Some(false));
        assert_eq!(built_with("0 T __x64_sys_read\n"), Some(false));
        assert_eq!(built_with("0 T something\n"), None);
    }

    #[test]
    fn the_status_is_read_by_name() {
        let status = "Gid:\t5\t7\t7\t7\nGroups:\t7 24 100 \nSeccomp:\t2\nSeccomp_filters:\t1\n";
        assert_eq!(line(status, "Seccomp"), Some("2"));
        assert_eq!(groups(status), [7, 7, 24, 100]);
    }

    #[test]
    fn capabilities_of_a_user_namespace_are_none_of_the_machine() {
        assert!(maps_everyone("         0          0 4294967295"));
        assert!(!maps_everyone("0 1000 1\n1 100000 65536"));
        let root = Permissions { capabilities: Some(u64::MAX), ..Permissions::default() };
        assert_eq!(root.can(CAP_SYS_ADMIN), Some(true));
        let rootless = Permissions { initial_user_namespace: Some(false), ..root };
        assert_eq!(rootless.can(CAP_SYS_ADMIN), Some(false));
    }

    #[test]
    fn a_service_is_known_by_its_control_group() {
        assert_eq!(service("0::/system.slice/db.service"), Some("db.service".into()));
        assert_eq!(service("0::/user.slice/session-1.scope"), None);
    }
}
