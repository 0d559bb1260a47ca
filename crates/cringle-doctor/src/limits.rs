//! The limits that matter to a program on Cringle: whether each is enough, and how to raise it.

use super::locked::Rings;
use super::permissions::{CAP_IPC_LOCK, Permissions};
use cringle_report::machine::cache::page_bytes;
use cringle_report::machine::read;
use cringle_report::units::{count, size};
use rlimit::Resource;
use serde::Serialize;
use std::path::Path;

/// One limit.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Limit {
    pub name: &'static str,
    /// The current value as text.
    pub value: Option<String>,
    /// `null` if unknown.
    pub enough: Option<bool>,
    pub meaning: String,
    pub remedy: Option<String>,
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

/// The least that a server needs.
const FEW_FILES: u64 = 1024;

fn open_files() -> Limit {
    let name = "open files";
    let Ok((soft, hard)) = Resource::NOFILE.get() else { return unknown(name) };
    let enough = soft >= FEW_FILES;
    Limit {
        name,
        value: Some(format!("{} (hard {})", number_or_unlimited(soft), number_or_unlimited(hard))),
        enough: Some(enough),
        meaning: "each worker needs a few, each file and socket one".into(),
        remedy: (!enough || soft < hard).then(more_files),
    }
}

/// How to raise the limit of open files.
pub(crate) fn more_files() -> String {
    match Resource::NOFILE.get() {
        Ok((soft, hard)) if soft < hard => {
            format!("ulimit -n {}", if hard == u64::MAX { FEW_FILES << 6 } else { hard })
        }
        _ => format!("a higher hard limit: {}", settings_of("NOFILE")),
    }
}

/// Where a limit of this name is set.
fn settings_of(limit: &str) -> String {
    let word = limit.to_lowercase();
    format!(
        "Limit{limit}= in a systemd unit, limits.conf for logins, --ulimit {word}= for docker run"
    )
}

fn locked_memory(permissions: &Permissions, rings: Option<Rings>) -> Limit {
    let name = "locked memory";
    let Ok((soft, hard)) = Resource::MEMLOCK.get() else { return unknown(name) };
    let (enough, meaning) = match &rings {
        None => (None, "some kernels count rings and registered buffers".to_owned()),
        Some(rings) => {
            let enough = match rings.error {
                _ if rings.is_enough() => Some(true),
                Some(libc::ENOMEM) if rings.are_limited(permissions) => Some(false),
                _ => None,
            };
            (enough, meaning_of(rings, soft, permissions))
        }
    };
    Limit {
        name,
        value: Some(format!("{} (hard {})", size_or_unlimited(soft), size_or_unlimited(hard))),
        enough,
        meaning,
        remedy: (enough == Some(false))
            .then(|| format!("a higher limit: {}", settings_of("MEMLOCK"))),
    }
}

/// Describes what the rings take and how many fit.
fn meaning_of(rings: &Rings, limit: u64, permissions: &Permissions) -> String {
    let is_exempt = permissions.can(CAP_IPC_LOCK) == Some(true);
    let Rings { wanted, made, error, ring_bytes, counted, .. } = rings;
    let created = match error {
        Some(libc::ENOMEM) if rings.are_limited(permissions) => {
            format!("only {made} of {wanted} rings can be created")
        }
        Some(_) => "rings are refused for another reason".into(),
        None => format!("{made} of {wanted} rings can be created"),
    };
    let ring = size(*ring_bytes);
    let needed = size(rings.needed_bytes());
    let counts = match counted {
        None => "whether this kernel counts rings is unknown".to_owned(),
        Some(false) => "this kernel does not count rings".to_owned(),
        Some(true) if is_exempt => "CAP_IPC_LOCK exempts this process".to_owned(),
        Some(true) if limit == u64::MAX => "this kernel counts the rings of a user".to_owned(),
        Some(true) => {
            let others = match rings.others_bytes {
                None | Some(0) => String::new(),
                Some(bytes) => format!(", of which others have {}", size(bytes)),
            };
            let fit = rings.fitting(limit);
            format!("this kernel counts all rings of a user together{others}, so {fit} fit")
        }
    };
    format!("{created}, of {ring} each and {needed} in total; {counts}")
}

const SLAB_STACKS: u64 = 64;
const FEW_FIBERS: u64 = 100_000;

/// Stacks are allocated in slabs of 64, one mapping each. Where the kernel cannot mark guard pages,
/// each stack takes two mappings.
fn mappings() -> Limit {
    let name = "vm.max_map_count";
    let Some(most) = setting("/proc/sys/vm/max_map_count") else { return unknown(name) };
    let Some(cheap) = guards_need_no_mapping() else { return unknown(name) };
    let fibers = if cheap { most * SLAB_STACKS } else { most / 2 };
    let guards = if cheap {
        "guard pages need no mapping (Linux 6.13)"
    } else {
        "two mappings per stack: guard pages without a mapping need Linux 6.13"
    };
    let meaning = format!("about {} fibers at once; {guards}", count(fibers as f64));
    let remedy = "sysctl vm.max_map_count=1048576 (as root)";
    known(name, count(most as f64), fibers >= FEW_FIBERS, &meaning, remedy)
}

const MADV_GUARD_INSTALL: libc::c_int = 102;

fn guards_need_no_mapping() -> Option<bool> {
    let page = page_bytes() as usize;
    let pages = memmap2::MmapMut::map_anon(page).ok()?;
    let address = pages.as_ptr().cast_mut().cast();
    // SAFETY: the range is this function's own mapping, which is not accessed before it is
    // unmapped.
    Some(unsafe { libc::madvise(address, page, MADV_GUARD_INSTALL) } == 0)
}

fn overcommit() -> Limit {
    let name = "vm.overcommit_memory";
    let Some(mode) = setting("/proc/sys/vm/overcommit_memory") else { return unknown(name) };
    let strict = mode == 2;
    let meaning = if strict {
        "strict: the whole stack of each fiber (1 MiB) counts as used"
    } else {
        "only the touched pages of stacks count"
    };
    let remedy = "smaller stacks (fiber::Builder::stack_size), or sysctl vm.overcommit_memory=0";
    known(name, mode.to_string(), !strict, meaning, remedy)
}

/// Enough for the workers and the pools of threads.
const FEW_THREADS: u64 = 256;

fn threads() -> Limit {
    let name = "threads";
    let limits = [
        ("kernel.pid_max", setting("/proc/sys/kernel/pid_max")),
        ("kernel.threads-max", setting("/proc/sys/kernel/threads-max")),
        ("the control group's pids.max", group_pids()),
        ("ulimit -u", user_threads()),
    ];
    let all = limits.into_iter().filter_map(|(name, value)| Some((name, value?)));
    let Some((by, least)) = all.min_by_key(|(_, value)| *value) else { return unknown(name) };
    let value = format!("{} ({by})", number_or_unlimited(least));
    let meaning = "workers and pools of blocking calls; other processes count too";
    known(name, value, least >= FEW_THREADS, meaning, &format!("raise {by}"))
}

/// Returns the limit of the user's threads, from which root is exempt.
fn user_threads() -> Option<u64> {
    if rustix::process::geteuid().is_root() {
        return None;
    }
    Resource::NPROC.get().ok().map(|(soft, _)| soft).filter(|soft| *soft != u64::MAX)
}

/// Returns `pids.max` of this process's control group. Groups above it may have lower limits.
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
    let meaning = "connections waiting to be accepted; more are refused";
    let remedy = "sysctl net.core.somaxconn=4096 (as root)";
    known(name, count(most as f64), most >= FEW_WAITING, meaning, remedy)
}

/// Returns a limit with its remedy, which is needed unless it `is_enough`.
fn known(name: &'static str, value: String, is_enough: bool, meaning: &str, remedy: &str) -> Limit {
    Limit {
        name,
        value: Some(value),
        enough: Some(is_enough),
        meaning: meaning.into(),
        remedy: (!is_enough).then(|| remedy.into()),
    }
}

fn unknown(name: &'static str) -> Limit {
    let meaning = "the kernel does not report it here".into();
    Limit { name, value: None, enough: None, meaning, remedy: None }
}

fn setting(path: impl AsRef<Path>) -> Option<u64> {
    read(path)?.parse().ok()
}

fn number_or_unlimited(limit: u64) -> String {
    if limit == u64::MAX { "unlimited".into() } else { count(limit as f64) }
}

fn size_or_unlimited(limit: u64) -> String {
    if limit == u64::MAX { "unlimited".into() } else { size(limit) }
}
