//! The C library's functions that may wait: those that `cringle_interpose::install!` replaces, and
//! those that wait inside the C library, where hooks do not apply.
//!
//! Functions that wait only for a file system's metadata (`stat`, `rename`, `readdir`) are in
//! neither list.

use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::LazyLock;

macro_rules! names {
    ($(fn $name:ident($($argument:ident: $type:ty),*) -> $result:ty;)*) => {
        &[$(stringify!($name)),*]
    };
}

/// The functions with hooks that may wait. In a program with hooks, the functions that it defines
/// count instead.
pub(super) static HOOKED: LazyLock<Vec<&str>> = LazyLock::new(|| {
    let lists: [&[&str]; 3] = [
        cringle::__interposed_calls!(names),
        cringle::__interposed_for_all!(names),
        cringle::__interposed_aliases!(names),
    ];
    lists.concat().into_iter().filter(|name| waits(name)).collect()
});

/// The functions with hooks under the names that programs link with today. The linker does not
/// export the old names of the same functions, unless a library imports them.
pub(super) fn current() -> impl Iterator<Item = &'static str> {
    HOOKED.iter().copied().filter(|name| !name.starts_with("__pthread_"))
}

/// Imports that every program with hooks has: std waits by `pause` in a second call of `exit`, and
/// Cringle copies from pipes by `tee` without waiting.
pub(super) const OF_EVERY_PROGRAM: [&str; 2] = ["pause", "tee"];

/// Functions of locks have hooks for what they wake or leave, too, and those of threads for what a
/// thread is on a fiber.
fn waits(name: &str) -> bool {
    const PARTS: [&str; 15] = [
        "unlock",
        "try",
        "signal",
        "broadcast",
        "create",
        "exit",
        "detach",
        "cancel",
        "kill",
        "name_np",
        "getattr",
        "schedp",
        "affinity",
        "cpuclockid",
        "sigqueue",
    ];
    const NAMES: [&str; 2] = ["prctl", "sigaltstack"];
    name == "creat"
        || name == "creat64"
        || !NAMES.contains(&name) && !PARTS.iter().any(|part| name.contains(part))
}

/// The functions by which a program with hooks is recognised.
pub(super) const CORE: [&str; 7] =
    ["read", "write", "recv", "send", "connect", "poll", "nanosleep"];

/// A kind of function without a hook, and what it waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Group {
    MissingHooks,
    Locks,
    StdioReads,
    StdioWrites,
    FileLocks,
    Pipes,
    Queues,
    AsyncIo,
    Resolver,
    Users,
    Children,
    Signals,
    Events,
    Threads,
    Terminal,
    Logging,
    Disk,
    MutexKinds,
}

impl Group {
    const ALL: [Group; 18] = [
        Group::MissingHooks,
        Group::Locks,
        Group::StdioReads,
        Group::StdioWrites,
        Group::FileLocks,
        Group::Pipes,
        Group::Queues,
        Group::AsyncIo,
        Group::Resolver,
        Group::Users,
        Group::Children,
        Group::Signals,
        Group::Events,
        Group::Threads,
        Group::Terminal,
        Group::Logging,
        Group::Disk,
        Group::MutexKinds,
    ];

    /// The name in the text.
    pub(super) fn title(self) -> &'static str {
        match self {
            Group::MissingHooks => "missing hooks",
            Group::Locks => "locks of threads",
            Group::StdioReads => "stdio reads",
            Group::StdioWrites => "stdio writes",
            Group::FileLocks => "locks in libc",
            Group::Pipes => "pipes",
            Group::Queues => "message queues",
            Group::AsyncIo => "asynchronous I/O",
            Group::Resolver => "resolver",
            Group::Users => "user database",
            Group::Children => "children",
            Group::Signals => "signals",
            Group::Events => "events",
            Group::Threads => "threads",
            Group::Terminal => "terminals",
            Group::Logging => "syslog",
            Group::Disk => "disk",
            Group::MutexKinds => "kinds of mutexes",
        }
    }

    /// When these functions block a worker.
    pub(super) fn meaning(self) -> &'static str {
        match self {
            Group::MissingHooks => {
                "this version of cringle_interpose::install! has hooks for them, the program's \
                 version does not: build it with the newer one"
            }
            Group::Locks => "the worker blocks until another thread releases or notifies",
            Group::StdioReads => {
                "libc reads inside: a pipe, socket or terminal blocks the worker until data \
                 arrives, a file while the disk reads"
            }
            Group::StdioWrites => {
                "libc writes inside: a full pipe, socket or terminal blocks the worker until its \
                 reader reads"
            }
            Group::FileLocks => "the worker blocks until the holder releases the lock",
            Group::Pipes => "the worker blocks until the other end reads or writes",
            Group::Queues => "the worker blocks until another process sends, receives or posts",
            Group::AsyncIo => "the worker blocks until a request completes",
            Group::Resolver => "the worker blocks until the DNS server answers",
            Group::Users => {
                "the worker blocks if a service on the network (LDAP, NIS) answers for the users"
            }
            Group::Children => "the worker blocks until a child process exits",
            Group::Signals => "the worker blocks until a signal arrives",
            Group::Events => "the worker blocks until an event or the timeout",
            Group::Threads => "the worker blocks until the thread ends",
            Group::Terminal => "the worker blocks until the terminal has answered",
            Group::Logging => "the worker blocks while the log's socket is full",
            Group::Disk => "the worker blocks while the disk writes or copies",
            Group::MutexKinds => {
                "a fiber gets ENOTSUP for mutexes with priority inheritance and robust mutexes"
            }
        }
    }

    /// Whether these functions wait for a disk or for a reader that is usually ready, rather than
    /// for another process to act.
    fn is_usually_short(self) -> bool {
        use Group::*;
        matches!(self, StdioReads | StdioWrites | Users | Logging | Disk | MutexKinds)
    }

    #[rustfmt::skip]
    fn functions(self) -> &'static [&'static str] {
        match self {
            Group::MissingHooks => &HOOKED,
            Group::Locks => &[
                "syscall", "pthread_mutex_lock", "pthread_mutex_timedlock", "pthread_mutex_clocklock",
                "pthread_cond_wait", "pthread_cond_timedwait", "pthread_cond_clockwait", "pthread_rwlock_rdlock",
                "pthread_rwlock_wrlock", "pthread_rwlock_timedrdlock", "pthread_rwlock_timedwrlock",
                "pthread_rwlock_clockrdlock", "pthread_rwlock_clockwrlock", "pthread_barrier_wait", "pthread_once",
                "call_once", "sem_wait", "sem_timedwait", "sem_clockwait", "mtx_lock", "mtx_timedlock", "cnd_wait",
                "cnd_timedwait",
            ],
            Group::StdioReads => &[
                "fread", "fread_unlocked", "__fread_chk", "__fread_unlocked_chk", "fgets", "fgets_unlocked",
                "__fgets_chk", "__fgets_unlocked_chk", "fgetc", "fgetc_unlocked", "getc", "getc_unlocked", "_IO_getc",
                "__uflow", "__underflow", "getchar", "getchar_unlocked", "getw", "gets", "__gets_chk", "getline",
                "getdelim", "__getdelim", "fscanf", "scanf", "vfscanf", "vscanf", "__isoc99_fscanf", "__isoc99_scanf",
                "__isoc99_vfscanf", "__isoc99_vscanf", "__isoc23_fscanf", "__isoc23_scanf", "__isoc23_vfscanf",
                "__isoc23_vscanf", "fgetwc", "getwc", "getwchar", "fgetws", "__fgetws_chk", "fwscanf", "wscanf",
            ],
            Group::StdioWrites => &[
                "fwrite", "fwrite_unlocked", "fputs", "fputs_unlocked", "fputc", "fputc_unlocked", "putc",
                "putc_unlocked", "_IO_putc", "__overflow", "putchar", "putchar_unlocked", "puts", "putw", "fprintf",
                "printf", "vfprintf", "vprintf", "dprintf", "vdprintf", "__fprintf_chk", "__printf_chk",
                "__vfprintf_chk", "__vprintf_chk", "__dprintf_chk", "__vdprintf_chk", "fflush", "fflush_unlocked",
                "fputwc", "putwc", "putwchar", "fputws", "fwprintf", "wprintf", "__fwprintf_chk", "perror",
            ],
            Group::FileLocks => &["lockf", "lockf64", "flockfile", "_IO_flockfile"],
            Group::Pipes => &["tee", "vmsplice"],
            Group::Queues => &[
                "mq_receive", "mq_timedreceive", "mq_send", "mq_timedsend", "msgrcv", "msgsnd", "semop", "semtimedop",
            ],
            Group::AsyncIo => &[
                "io_submit", "io_getevents", "io_pgetevents", "io_uring_enter", "aio_suspend", "aio_suspend64",
                "lio_listio", "lio_listio64",
            ],
            Group::Resolver => &[
                "gethostbyname", "gethostbyname2", "gethostbyname2_r", "gethostbyaddr", "gethostbyaddr_r",
                "gethostent", "getnetbyname", "getnetbyname_r", "gai_suspend", "res_query", "res_search",
                "res_querydomain", "res_send", "res_nquery", "res_nsearch", "res_nquerydomain", "res_nsend",
                "__res_query", "__res_search", "__res_querydomain", "__res_send", "__res_nquery", "__res_nsearch",
                "__res_nquerydomain", "__res_nsend",
            ],
            Group::Users => &[
                "getpwnam", "getpwnam_r", "getpwuid", "getpwuid_r", "getpwent", "getgrnam", "getgrnam_r", "getgrgid",
                "getgrgid_r", "getgrent", "getgrouplist", "initgroups", "getspnam", "getspnam_r",
            ],
            Group::Children => &["wait", "wait3", "system", "popen", "pclose", "wordexp"],
            Group::Signals => &["pause", "sigsuspend", "sigwaitinfo", "sigpause", "__sigsuspend"],
            Group::Events => &["epoll_pwait2", "__select64"],
            Group::Threads => &["thrd_join", "pthread_timedjoin_np", "pthread_clockjoin_np"],
            Group::Terminal => &["tcdrain", "getpass"],
            Group::Logging => &["syslog", "vsyslog", "__syslog_chk", "__vsyslog_chk"],
            Group::Disk => &[
                "sync", "syncfs", "msync", "sync_file_range", "copy_file_range", "fallocate", "fallocate64",
                "posix_fallocate", "posix_fallocate64",
            ],
            Group::MutexKinds => &["pthread_mutexattr_setprotocol", "pthread_mutexattr_setrobust"],
        }
    }
}

/// Returns whether this is a waiting function, with or without a hook.
pub(super) fn is_known(name: &str) -> bool {
    Group::ALL.iter().any(|group| group.functions().contains(&name))
}

/// Functions without hooks that an object imports, by kind.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Blocking {
    pub group: Group,
    /// Whether their waits are short as a rule: a file on a disk, a terminal.
    pub usually_short: bool,
    pub functions: Vec<String>,
}

/// Divides imports into functions with hooks, and functions that wait without one.
pub(super) fn divided(
    imports: &BTreeSet<String>,
    hooked: &BTreeSet<String>,
) -> (Vec<String>, Vec<Blocking>) {
    let with = imports.intersection(hooked).cloned().collect();
    let mut without: BTreeMap<Group, Vec<String>> = BTreeMap::new();
    for group in Group::ALL {
        for name in group.functions() {
            let has_hook = group != Group::MissingHooks && HOOKED.contains(name);
            if imports.contains(*name) && !hooked.contains(*name) && !has_hook {
                without.entry(group).or_default().push((*name).to_owned());
            }
        }
    }
    let blocking = |(group, functions)| {
        let group: Group = group;
        Blocking { group, usually_short: group.is_usually_short(), functions }
    };
    (with, without.into_iter().map(blocking).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(names: &[&str]) -> BTreeSet<String> {
        names.iter().map(|name| (*name).to_owned()).collect()
    }

    #[test]
    fn a_function_is_in_one_list() {
        let mut seen: BTreeSet<&str> = BTreeSet::new();
        let listed = Group::ALL[1..].iter().flat_map(|group| group.functions());
        // Some have hooks in other versions.
        let listed = listed.filter(|name| !HOOKED.contains(name)).chain(HOOKED.iter());
        for name in listed {
            assert!(seen.insert(name), "{name} is listed twice");
        }
        assert!(CORE.iter().all(|name| HOOKED.contains(name)));
    }

    #[test]
    fn a_function_that_the_program_defines_does_not_block() {
        let imports = names(&["read", "write", "fread", "syslog", "malloc"]);
        let (with, without) = divided(&imports, &names(&["read", "syslog"]));
        assert_eq!(with, ["read", "syslog"]);
        let found: Vec<_> = without.iter().map(|one| (one.group, &*one.functions[0])).collect();
        assert_eq!(found, [(Group::MissingHooks, "write"), (Group::StdioReads, "fread")]);
        assert!(without[1].usually_short && !without[0].usually_short);
    }
}
