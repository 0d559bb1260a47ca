//! What a service or a container needs so that programs in it get rings: the lines of its
//! configuration, and all that the library asks of a ring. `cringle doctor --container` prints
//! both.

use super::kernel::Kernel;
use super::locked;
use super::permissions::Permissions;
use super::raw::Params;
use super::text::Page;
use cringle::runtime::Features;
use cringle_report::failure::Failure;
use cringle_report::units::size;
use serde::Serialize;

const ALL_CALLS: &str = "io_uring_setup io_uring_enter io_uring_register";
const FOR_SYSTEMD: &str = "LimitMEMLOCK=infinity";
const FOR_ENGINES: &str = "--ulimit memlock=-1:-1";
const PROFILE_FOR_ENGINES: &str = "--security-opt seccomp=cringle.json";
const PROFILE_FOR_PODS: &str = "securityContext: {seccompProfile: {type: Localhost, \
                                localhostProfile: cringle.json}}";
const MEMORY_OF_PODS: &str = "a pod has no setting for it: on the node, LimitMEMLOCK=infinity in \
                              the unit of containerd, or default_ulimits = [\"memlock=-1:-1\"] in \
                              crio.conf; then restart it and the pod";
const PROFILE: &str = "(the engine's default profile with the three calls added: deploying.md, in \
                       the documentation of the package)";

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
                format!("{engine} run {PROFILE_FOR_ENGINES} … {PROFILE}")
            }
            Place::Kubernetes => format!("in the pod, {PROFILE_FOR_PODS} {PROFILE}"),
        }
    }

    /// Returns how to allow rings that count as locked memory.
    pub(crate) fn allow_memory(&self) -> String {
        match self {
            Place::Systemd(unit) => {
                format!("systemctl edit {unit}, and there under [Service]: {FOR_SYSTEMD}")
            }
            Place::Engine(engine) => format!("{engine} run {FOR_ENGINES} …"),
            Place::Kubernetes => MEMORY_OF_PODS.into(),
        }
    }
}

/// What rings need: the `container` of the JSON.
#[derive(Debug, Serialize)]
pub(crate) struct Settings {
    workers: usize,
    ring_bytes: u64,
    /// The memory of the rings of these workers.
    needed_bytes: u64,
    systemd: [String; 2],
    docker: [String; 2],
    kubernetes: [String; 2],
    ops: Vec<Named>,
    entry_flags: Vec<Named>,
    requests: Vec<Named>,
}

/// An op, a flag by its bits, or a request of `io_uring_register`.
#[derive(Debug, Serialize)]
struct Named {
    number: u8,
    name: &'static str,
}

fn named(rows: &[(u8, &'static str)]) -> Vec<Named> {
    rows.iter().map(|&(number, name)| Named { number, name }).collect()
}

impl Settings {
    pub(crate) fn new() -> Result<Settings, Failure> {
        let (workers, ring_bytes) = (locked::workers()?, Params::expected().ring_bytes());
        let requests = Features::REQUESTS.iter();
        Ok(Settings {
            workers,
            ring_bytes,
            needed_bytes: workers as u64 * ring_bytes,
            systemd: [FOR_SYSTEMD.into(), format!("SystemCallFilter={ALL_CALLS}")],
            docker: [FOR_ENGINES.into(), PROFILE_FOR_ENGINES.into()],
            kubernetes: [MEMORY_OF_PODS.into(), PROFILE_FOR_PODS.into()],
            ops: named(Features::OPS),
            entry_flags: named(Features::ENTRY_FLAGS),
            requests: requests.map(|it| Named { number: it.number, name: it.name }).collect(),
        })
    }

    pub(crate) fn text(&self) -> String {
        let mut page = Page::default();
        page.heading("Locked memory");
        let each = size(self.ring_bytes);
        let (workers, all) = (self.workers, size(self.needed_bytes));
        page.paragraph(&format!(
            "A ring has {each}, the rings of {workers} workers have {all}. On Linux 6.14 to 7.2 \
             they count against RLIMIT_MEMLOCK, for all processes of a user together."
        ));
        page.heading("systemd");
        page.row("in the unit", "[Service]");
        page.row("memory", &self.systemd[0]);
        page.row("filter", &format!("{} (only in a unit that has a filter)", self.systemd[1]));
        page.heading("Docker, Podman");
        page.row("memory", &self.docker[0]);
        page.row("filter", &format!("{} {PROFILE}", self.docker[1]));
        page.heading("Kubernetes");
        page.row("memory", &self.kubernetes[0]);
        page.row("filter", &format!("{} {PROFILE}", self.kubernetes[1]));
        let lists = [
            ("Ops of the ring", &self.ops),
            ("Flags of their entries", &self.entry_flags),
            ("Requests of io_uring_register", &self.requests),
        ];
        for (heading, rows) in lists {
            page.heading(heading);
            let rows = rows.iter().map(|row| format!("{}={}", row.name, row.number));
            page.paragraph(&rows.collect::<Vec<_>>().join(", "));
        }
        page.finished()
    }
}
