//! The kernel, and the container and virtual machine around this process.

use cringle_report::machine::{cpus, read};
use rustix::system::uname;
use serde::Serialize;
use std::ffi::CStr;
use std::fs;
use std::path::Path;

#[derive(Clone, Debug, Serialize)]
pub(crate) struct Kernel {
    pub release: String,
    pub architecture: String,
    /// The number of processors that this process may use.
    pub processors: usize,
    /// `docker`, `podman`, `kubernetes` or another; `null` if no sign of a container was found.
    pub container: Option<String>,
    /// The hypervisor, or `unknown` if only the processor's flag reports one.
    pub virtual_machine: Option<String>,
    /// Whether `/proc` is readable; without it much is unknown.
    pub proc_is_readable: bool,
}

pub(crate) fn examine() -> Kernel {
    let names = uname();
    let text = |name: &CStr| name.to_string_lossy().into_owned();
    Kernel {
        release: text(names.release()),
        architecture: text(names.machine()),
        processors: cpus::allowed().len(),
        container: container(),
        virtual_machine: virtual_machine(),
        proc_is_readable: fs::read("/proc/self/status").is_ok(),
    }
}

/// Parses a release: `6.1.0-13-amd64` is (6, 1).
pub(crate) fn version(release: &str) -> Option<(u32, u32)> {
    let mut parts = release.split(|c: char| !c.is_ascii_digit());
    Some((parts.next()?.parse().ok()?, parts.next()?.parse().ok()?))
}

fn container() -> Option<String> {
    let variable = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
    if variable("KUBERNETES_SERVICE_HOST").is_some() {
        return Some("kubernetes".into());
    }
    if Path::new("/run/.containerenv").exists() {
        return Some("podman".into());
    }
    if Path::new("/.dockerenv").exists() {
        return Some("docker".into());
    }
    variable("container").or_else(|| in_control_group(&read("/proc/self/cgroup")?))
}

/// Finds the container engine in the name of the control group, which version 1 shows, and version
/// 2 where the host's hierarchy is shared.
fn in_control_group(groups: &str) -> Option<String> {
    let names = [("kubepods", "kubernetes"), ("docker", "docker"), ("libpod", "podman")];
    let known = names.into_iter().chain([("lxc", "lxc"), ("containerd", "containerd")]);
    known.into_iter().find(|(trace, _)| groups.contains(trace)).map(|(_, name)| name.into())
}

fn virtual_machine() -> Option<String> {
    if let Some(kind) = read("/sys/hypervisor/type") {
        return Some(kind);
    }
    let info = read("/proc/cpuinfo").unwrap_or_default();
    let is_virtual = info
        .lines()
        .find(|line| line.starts_with("flags"))
        .is_some_and(|flags| flags.split_whitespace().any(|flag| flag == "hypervisor"));
    let maker = || {
        let part = |name: &str| read(format!("/sys/class/dmi/id/{name}"));
        let names: Vec<_> =
            [part("sys_vendor"), part("product_name")].into_iter().flatten().collect();
        (!names.is_empty()).then(|| names.join(" "))
    };
    is_virtual.then(|| maker().unwrap_or_else(|| "unknown".into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn releases_of_distributions_are_parsed() {
        assert_eq!(version("6.1.0-13-amd64"), Some((6, 1)));
        assert_eq!(version("5.14.0-362.el9.x86_64"), Some((5, 14)));
        assert_eq!(version("7.0"), Some((7, 0)));
        assert_eq!(version("unknown"), None);
    }

    #[test]
    fn a_control_group_names_its_container() {
        let found = |text| in_control_group(text);
        assert_eq!(found("0::/docker/4711"), Some("docker".into()));
        assert_eq!(found("3:cpu:/kubepods/besteffort/pod1/docker-2"), Some("kubernetes".into()));
        assert_eq!(found("0::/user.slice"), None);
    }
}
