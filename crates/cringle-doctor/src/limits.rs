//! Limits that a program on Cringle meets: whether each is enough, and how to raise it.

use super::child::ask_child;
use super::kernel::read;
use super::permissions::{CAP_IPC_LOCK, Permissions};
use super::raw::{self, Params};
use cringle_report::machine::cache::page_bytes;
use cringle_report::machine::cpus;
use cringle_report::units::{count, size};
use serde::Serialize;
use std::io;
use std::path::Path;

#[derive(Clone, Debug, Serialize)]
pub(crate) struct Limit {
    pub name: &'static str,
    /// As it is set: a number, or words.
    pub value: Option<String>,
    /// `null` is unknown.
    pub enough: Option<bool>,
    pub meaning: String,
    pub remedy: Option<String>,
}

/// So many rings of the driver's size were made at once, of so many.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Rings {
    pub wanted: usize,
    pub made: usize,
    /// What refused the next one.
    pub error: Option<i32>,
}

/// Makes a ring for each worker, of the size that the driver wants, in a child.
pub(crate) fn rings() -> Rings {
    let wanted = cpus::allowed().len();
    let answer = ask_child(|reply| {
        let mut rings = Vec::new();
        for _ in 0..wanted {
            match raw::setup_when_freed(raw::DRIVER_SQ_ENTRIES, &Params::of_the_driver()) {
                Ok(ring) => rings.push(ring),
                Err(error) => {
                    reply.send(error.raw_os_error().unwrap_or(libc::EIO));
                    return;
                }
            }
            reply.send(0);
        }
    });
    let made = answer.numbers.iter().filter(|error| **error == 0).count();
    Rings { wanted, made, error: answer.numbers.iter().copied().find(|error| *error != 0) }
}

pub(crate) fn all(permissions: &Permissions, rings: Option<Rings>) -> Vec<Limit> {
    vec![
        open_files(),
        locked_memory(permissions, rings),
        mappings(),
        overcommit(),
        threads(),
        accept_queue(),
    ]
}

/// Below it a server of any size runs out.
const FEW_FILES: u64 = 1024;

fn open_files() -> Limit {
    let name = "open files";
    let Ok((soft, hard)) = limit(libc::RLIMIT_NOFILE) else { return unknown(name) };
    let enough = soft >= FEW_FILES;
    let command = format!("ulimit -n {}", if hard == u64::MAX { FEW_FILES << 6 } else { hard });
    let remedy = match soft < hard {
        true => command,
        false => "a higher hard limit: LimitNOFILE= in a unit of systemd, limits.conf for a \
                  login, --ulimit nofile= for docker run"
            .into(),
    };
    Limit {
        name,
        value: Some(format!("{} (hard {})", words(soft), words(hard))),
        enough: Some(enough),
        meaning: "each worker has a few, each file and socket one".into(),
        remedy: (!enough || soft < hard).then_some(remedy),
    }
}

fn locked_memory(permissions: &Permissions, rings: Option<Rings>) -> Limit {
    let name = "locked memory";
    let Ok((soft, hard)) = limit(libc::RLIMIT_MEMLOCK) else { return unknown(name) };
    let exempt = match permissions.can(CAP_IPC_LOCK) {
        Some(true) => "; CAP_IPC_LOCK: it does not count here",
        _ => "",
    };
    let (enough, meaning) = match rings {
        None => (None, "rings and registered buffers count, on some kernels".to_owned()),
        Some(Rings { wanted, made, .. }) if made == wanted => {
            (Some(true), format!("{made} rings of the driver's size were made{exempt}"))
        }
        Some(Rings { wanted, made, error: Some(libc::ENOMEM) }) => {
            (Some(false), format!("only {made} of {wanted} rings of the driver's size were made"))
        }
        Some(_) => (None, "rings were refused for another reason".into()),
    };
    Limit {
        name,
        value: Some(format!("{} (hard {})", bytes(soft), bytes(hard))),
        enough,
        meaning,
        remedy: (enough == Some(false)).then(|| "ulimit -l unlimited (or LimitMEMLOCK=)".into()),
    }
}

const SLAB_STACKS: u64 = 64;
const FEW_FIBERS: u64 = 100_000;

/// Stacks lie in slabs of 64; a guard is a mapping more where the kernel cannot mark pages.
fn mappings() -> Limit {
    let name = "vm.max_map_count";
    let Some(most) = setting("/proc/sys/vm/max_map_count") else { return unknown(name) };
    let Some(cheap) = guards_need_no_mapping() else { return unknown(name) };
    let fibers = if cheap { most * SLAB_STACKS } else { most / 2 };
    let guards = match cheap {
        true => "guard pages need no mapping (Linux 6.13)",
        false => "two mappings a stack: guard pages without a mapping need Linux 6.13",
    };
    Limit {
        name,
        value: Some(count(most as f64)),
        enough: Some(fibers >= FEW_FIBERS),
        meaning: format!("about {} fibers at once; {guards}", count(fibers as f64)),
        remedy: (fibers < FEW_FIBERS).then(|| "sysctl vm.max_map_count=1048576 (as root)".into()),
    }
}

const MADV_GUARD_INSTALL: libc::c_int = 102;

fn guards_need_no_mapping() -> Option<bool> {
    let page = page_bytes() as usize;
    let pages = memmap2::MmapMut::map_anon(page).ok()?;
    let address = pages.as_ptr().cast_mut().cast();
    // SAFETY: the range is this mapping, which nobody reads or writes before it is given back.
    Some(unsafe { libc::madvise(address, page, MADV_GUARD_INSTALL) } == 0)
}

fn overcommit() -> Limit {
    let name = "vm.overcommit_memory";
    let Some(mode) = setting("/proc/sys/vm/overcommit_memory") else { return unknown(name) };
    let strict = mode == 2;
    let meaning = match strict {
        true => "strict: each fiber's whole stack (1 MiB) counts as used, touched or not",
        false => "stacks count as they are touched",
    };
    Limit {
        name,
        value: Some(mode.to_string()),
        enough: Some(!strict),
        meaning: meaning.into(),
        remedy: strict.then(|| {
            "smaller stacks (fiber::Builder::stack_size), or sysctl vm.overcommit_memory=0".into()
        }),
    }
}

/// Workers, and the pools for what the kernel cannot do asynchronously.
const FEW_THREADS: u64 = 256;

fn threads() -> Limit {
    let name = "threads";
    let limits = [
        ("kernel.pid_max", setting("/proc/sys/kernel/pid_max")),
        ("kernel.threads-max", setting("/proc/sys/kernel/threads-max")),
        ("the control group's pids.max", group_pids()),
        ("ulimit -u", user_threads()),
    ];
    let known = limits.into_iter().filter_map(|(name, value)| Some((name, value?)));
    let Some((by, least)) = known.min_by_key(|(_, value)| *value) else { return unknown(name) };
    let enough = least >= FEW_THREADS;
    Limit {
        name,
        value: Some(format!("{} ({by})", words(least))),
        enough: Some(enough),
        meaning: "workers and the pools of blocking calls; other processes count, too".into(),
        remedy: (!enough).then(|| format!("raise {by}")),
    }
}

/// Only where it limits: root is exempt.
fn user_threads() -> Option<u64> {
    // SAFETY: no arguments.
    if unsafe { libc::geteuid() } == 0 {
        return None;
    }
    limit(libc::RLIMIT_NPROC).ok().map(|(soft, _)| soft).filter(|soft| *soft != u64::MAX)
}

/// `pids.max` of this process's own control group; those further up may limit more.
fn group_pids() -> Option<u64> {
    let groups = read("/proc/self/cgroup")?;
    groups.lines().find_map(|line| {
        let mut parts = line.splitn(3, ':').skip(1);
        let (kinds, path) = (parts.next()?, parts.next()?);
        let root = match kinds {
            "" => "/sys/fs/cgroup",
            kinds if kinds.split(',').any(|kind| kind == "pids") => "/sys/fs/cgroup/pids",
            _ => return None,
        };
        setting(Path::new(root).join(path.trim_start_matches('/')).join("pids.max"))
    })
}

const FEW_WAITING: u64 = 1024;

fn accept_queue() -> Limit {
    let name = "net.core.somaxconn";
    let Some(most) = setting("/proc/sys/net/core/somaxconn") else { return unknown(name) };
    let enough = most >= FEW_WAITING;
    Limit {
        name,
        value: Some(count(most as f64)),
        enough: Some(enough),
        meaning: "connections that wait to be accepted; a burst of more is turned away".into(),
        remedy: (!enough).then(|| "sysctl net.core.somaxconn=4096 (as root)".into()),
    }
}

fn unknown(name: &'static str) -> Limit {
    let meaning = "the kernel does not say here".into();
    Limit { name, value: None, enough: None, meaning, remedy: None }
}

fn setting(path: impl AsRef<Path>) -> Option<u64> {
    read(path)?.parse().ok()
}

// The two C libraries name its type differently.
#[cfg(target_env = "musl")]
type Resource = libc::c_int;
#[cfg(not(target_env = "musl"))]
type Resource = libc::__rlimit_resource_t;

fn limit(which: Resource) -> io::Result<(u64, u64)> {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the call writes this one structure.
    match unsafe { libc::getrlimit(which, &mut limit) } {
        0 => Ok((limit.rlim_cur, limit.rlim_max)),
        _ => Err(io::Error::last_os_error()),
    }
}

fn words(limit: u64) -> String {
    if limit == u64::MAX { "unlimited".into() } else { count(limit as f64) }
}

fn bytes(limit: u64) -> String {
    if limit == u64::MAX { "unlimited".into() } else { size(limit) }
}
