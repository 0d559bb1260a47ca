use super::*;

fn calls(setup: Outcome, enter: Outcome, register: Outcome) -> Vec<Call> {
    Syscall::ALL
        .into_iter()
        .zip([setup, enter, register])
        .map(|(name, outcome)| Call { name, outcome })
        .collect()
}

fn kernel(release: &str) -> Kernel {
    Kernel {
        release: release.into(),
        architecture: "x86_64".into(),
        processors: 2,
        container: None,
        virtual_machine: None,
        proc_is_readable: true,
    }
}

fn kinds(calls: &[Call], permissions: &Permissions) -> Vec<Kind> {
    of(calls, permissions, &kernel("6.8.0")).iter().map(|cause| cause.kind).collect()
}

const DENIED: Outcome = Outcome::Denied(libc::EPERM);
const ABSENT: Outcome = Outcome::Denied(libc::ENOSYS);

#[test]
fn a_sysctl_and_a_filter_are_distinguished() {
    let only_setup = calls(DENIED, Outcome::Allowed, Outcome::Allowed);
    let two =
        Permissions { io_uring_disabled: Some(2), seccomp_mode: Some(0), ..Permissions::default() };
    assert_eq!(kinds(&only_setup, &two), [Kind::SysctlDisabled]);
    let filter =
        Permissions { io_uring_disabled: Some(0), seccomp_mode: Some(2), ..Permissions::default() };
    assert_eq!(kinds(&only_setup, &filter), [Kind::SeccompDenies]);
    // With both, the sysctl explains `io_uring_setup` and the filter the other calls.
    let both =
        Permissions { io_uring_disabled: Some(2), seccomp_mode: Some(2), ..Permissions::default() };
    let all = calls(DENIED, DENIED, DENIED);
    assert_eq!(kinds(&all, &both), [Kind::SysctlDisabled, Kind::SeccompDenies]);
}

#[test]
fn a_sysctl_of_1_requires_a_capability_or_the_group() {
    let only_setup = calls(DENIED, Outcome::Allowed, Outcome::Allowed);
    let one = Permissions {
        io_uring_disabled: Some(1),
        io_uring_group: Some(7),
        capabilities: Some(0),
        seccomp_mode: Some(2),
        ..Permissions::default()
    };
    assert_eq!(kinds(&only_setup, &one), [Kind::SysctlUnprivileged]);
    let in_the_group = Permissions { groups: vec![7], ..one.clone() };
    assert_eq!(kinds(&only_setup, &in_the_group), [Kind::SeccompDenies]);
    let administrator = Permissions { capabilities: Some(1 << CAP_SYS_ADMIN), ..one };
    assert_eq!(kinds(&only_setup, &administrator), [Kind::SeccompDenies]);
}

#[test]
fn a_kernel_without_io_uring_and_a_filter_are_distinguished() {
    let permissions = |built| Permissions {
        built_with_io_uring: built,
        seccomp_mode: Some(2),
        ..Permissions::default()
    };
    let none = calls(ABSENT, ABSENT, ABSENT);
    assert_eq!(kinds(&none, &permissions(Some(false))), [Kind::NotBuilt]);
    assert_eq!(kinds(&none, &permissions(Some(true))), [Kind::SeccompDenies]);
    assert_eq!(kinds(&none, &permissions(None)), [Kind::Unknown]);
    // A kernel has all three calls or none.
    let some = calls(ABSENT, Outcome::Allowed, Outcome::Allowed);
    assert_eq!(kinds(&some, &permissions(None)), [Kind::SeccompDenies]);
    let old = of(&none, &permissions(Some(false)), &kernel("4.18.0"));
    assert_eq!(old[0].kind, Kind::KernelTooOld);
}

#[test]
fn a_refusal_without_evidence_is_unknown() {
    let only_setup = calls(DENIED, Outcome::Allowed, Outcome::Allowed);
    assert_eq!(kinds(&only_setup, &Permissions::default()), [Kind::Unknown]);
    let no_filter = Permissions { seccomp_mode: Some(0), ..Permissions::default() };
    assert_eq!(kinds(&only_setup, &no_filter), [Kind::Unknown]);
    assert_eq!(kinds(&calls(Outcome::Allowed, Outcome::Allowed, Outcome::Allowed), &no_filter), []);
}

#[test]
fn limits_and_security_modules_are_causes() {
    let with = |error| calls(Outcome::Denied(error), Outcome::Allowed, Outcome::Allowed);
    let permissions =
        Permissions { security_modules: Some("selinux".into()), ..Permissions::default() };
    assert_eq!(kinds(&with(libc::EMFILE), &permissions), [Kind::Descriptors]);
    let module = of(&with(libc::EACCES), &permissions, &kernel("6.16.0"));
    assert_eq!(module[0].kind, Kind::SecurityModule);
    assert!(module[0].what.contains("selinux"));
    // A security module has no part in the use of a ring.
    let filter = Permissions { seccomp_mode: Some(2), ..Permissions::default() };
    let refused = || Outcome::Denied(libc::EACCES);
    assert_eq!(kinds(&calls(refused(), refused(), refused()), &filter), [Kind::SeccompDenies]);
}

#[test]
fn the_remedy_suits_the_container_or_service() {
    let all = calls(DENIED, DENIED, DENIED);
    let filter = Permissions { seccomp_mode: Some(2), ..Permissions::default() };
    let remedy = |kernel: &Kernel, permissions: &Permissions| {
        of(&all, permissions, kernel)[0].remedies[0].clone()
    };
    let docker = Kernel { container: Some("docker".into()), ..kernel("6.8.0") };
    assert!(remedy(&docker, &filter).contains("docker run --security-opt seccomp="));
    let unit = Permissions { service: Some("db.service".into()), ..filter };
    assert!(remedy(&kernel("6.8.0"), &unit).starts_with("systemctl edit db.service"));
}

#[test]
fn short_memory_has_the_settings_of_its_place() {
    let rings = Rings {
        wanted: 16,
        made: 3,
        error: Some(libc::ENOMEM),
        ring_bytes: 1 << 50,
        counted: Some(true),
        counted_ring_bytes: None,
        others_bytes: Some(8192),
    };
    let cause = |kernel: &Kernel, service: Option<&str>| {
        let service = service.map(str::to_owned);
        let permissions = Permissions { service, ..Permissions::default() };
        locked_memory("only 3 of 16 rings", &rings, kernel, &permissions)
    };
    let docker = Kernel { container: Some("docker".into()), ..kernel("6.16.0") };
    let pod = Kernel { container: Some("kubernetes".into()), ..kernel("6.16.0") };
    let first = |cause: Cause| cause.remedies[0].clone();
    assert!(first(cause(&docker, None)).contains("docker run --ulimit memlock=-1:-1"));
    assert!(first(cause(&pod, None)).contains("LimitMEMLOCK=infinity in the unit of containerd"));
    assert!(first(cause(&kernel("6.16.0"), Some("db.service"))).contains("edit db.service"));
    let anywhere = cause(&kernel("6.16.0"), None);
    assert!(anywhere.what.contains("other rings of this user take 8 KiB"), "{}", anywhere.what);
    let remedies = anywhere.remedies.join(" ");
    for setting in ["LimitMEMLOCK=", "--ulimit memlock=", "a pod has no setting", "limits.conf"] {
        assert!(remedies.contains(setting), "{setting}: {remedies}");
    }
}
