//! What a service or a container needs so that programs in it get rings: the lines of its
//! configuration.

use super::kernel::Kernel;
use super::permissions::Permissions;

const ALL_CALLS: &str = "io_uring_setup io_uring_enter io_uring_register";
const PROFILE: &str = "(docs/book/src/deploying.md has the profile)";

/// Where a filter of system calls and limits are set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// A unit of systemd.
    Systemd(String),
    /// Docker or Podman.
    Engine(String),
    Kubernetes,
}

/// Returns the place around this process, or every place if it is unknown.
pub(crate) fn around(kernel: &Kernel, permissions: &Permissions) -> Vec<Place> {
    match (kernel.container.as_deref(), &permissions.service) {
        (Some(engine @ ("docker" | "podman")), _) => vec![Place::Engine(engine.into())],
        (Some("kubernetes"), _) => vec![Place::Kubernetes],
        (_, Some(unit)) => vec![Place::Systemd(unit.clone())],
        _ => every(),
    }
}

pub(crate) fn every() -> Vec<Place> {
    vec![Place::Systemd("UNIT".into()), Place::Engine("docker".into()), Place::Kubernetes]
}

impl Place {
    /// Returns how to allow the three system calls.
    pub(crate) fn allow_calls(&self) -> String {
        match self {
            Place::Systemd(unit) => format!(
                "systemctl edit {unit}, and there under [Service], if the unit has a filter: \
                 SystemCallFilter={ALL_CALLS}"
            ),
            Place::Engine(engine) => {
                format!("{engine} run --security-opt seccomp=cringle.json … {PROFILE}")
            }
            Place::Kubernetes => format!(
                "in the pod, securityContext: {{seccompProfile: {{type: Localhost, \
                 localhostProfile: cringle.json}}}} {PROFILE}"
            ),
        }
    }

    /// Returns how to allow rings that count as locked memory.
    pub(crate) fn allow_memory(&self) -> String {
        match self {
            Place::Systemd(unit) => {
                format!("systemctl edit {unit}, and there under [Service]: LimitMEMLOCK=infinity")
            }
            Place::Engine(engine) => format!("{engine} run --ulimit memlock=-1:-1 …"),
            Place::Kubernetes => "a pod has no setting for it: on the node, LimitMEMLOCK=infinity \
                                  in the unit of containerd, or default_ulimits = \
                                  [\"memlock=-1:-1\"] in crio.conf; then restart it and the pod"
                .into(),
        }
    }
}
