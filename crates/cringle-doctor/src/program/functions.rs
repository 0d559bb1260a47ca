//! The C library's functions that may wait: those that `cringle_interpose::install!` replaces, and
//! those that wait inside the C library, where hooks do not apply.
//!
//! Functions that wait only for a file system's metadata (`stat`, `rename`, `readdir`) are in
//! neither list.

use serde::Serialize;
use std::collections::BTreeSet;
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
    lists.concat().into_iter().filter(|name| waits(name) && !OF_SERVED.contains(name)).collect()
});

/// Functions whose hooks wait elsewhere only under `cringle run`.
const OF_SERVED: [&str; 4] = ["pause", "popen", "sigsuspend", "system"];

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
    const PARTS: [&str; 17] = [
        "consistent",
        "prio",
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
    const NAMES: [&str; 11] = [
        "capset",
        "nice",
        "prctl",
        "ptrace",
        "sched_setparam",
        "sched_setscheduler",
        "setfsgid",
        "setfsuid",
        "setns",
        "sigaltstack",
        "unshare",
    ];
    name == "creat"
        || name == "creat64"
        || !NAMES.contains(&name) && !PARTS.iter().any(|part| name.contains(part))
}

/// The functions by which a program with hooks is recognised.
pub(super) const CORE: [&str; 7] =
    ["read", "write", "recv", "send", "connect", "poll", "nanosleep"];

/// A kind of function without a hook, and what it waits for.
#[derive(Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Group {
    #[serde(rename = "group")]
    pub name: &'static str,
    /// Whether these functions wait for a disk or for a reader that is usually ready, rather than
    /// for another process to act.
    pub usually_short: bool,
    /// The name in the text.
    #[serde(skip)]
    pub title: &'static str,
    /// When these functions block a worker.
    #[serde(skip)]
    pub meaning: &'static str,
    /// Separated by spaces.
    #[serde(skip)]
    functions: &'static str,
}

impl Group {
    fn functions(&self) -> Vec<&'static str> {
        match self.name {
            MISSING_HOOKS => HOOKED.clone(),
            _ => self.functions.split_whitespace().collect(),
        }
    }
}

const MISSING_HOOKS: &str = "missing-hooks";

/// All kinds, in the order of the report.
pub(super) static GROUPS: [Group; 16] = [
    Group {
        name: MISSING_HOOKS,
        usually_short: false,
        title: "missing hooks",
        meaning: "this version of cringle_interpose::install! has hooks for them, the program's \
            version does not: build it with the newer one",
        functions: "",
    },
    Group {
        name: "stdio-reads",
        usually_short: true,
        title: "stdio reads",
        meaning: "libc reads inside: a pipe, socket or terminal blocks the worker until data \
            arrives, a file while the disk reads",
        functions: "fread fread_unlocked __fread_chk __fread_unlocked_chk fgets fgets_unlocked \
            __fgets_chk __fgets_unlocked_chk fgetc fgetc_unlocked getc getc_unlocked _IO_getc \
            __uflow __underflow getchar getchar_unlocked getw gets __gets_chk getline getdelim \
            __getdelim fscanf scanf vfscanf vscanf __isoc99_fscanf __isoc99_scanf \
            __isoc99_vfscanf __isoc99_vscanf __isoc23_fscanf __isoc23_scanf __isoc23_vfscanf \
            __isoc23_vscanf fgetwc getwc getwchar fgetws __fgetws_chk fwscanf wscanf",
    },
    Group {
        name: "stdio-writes",
        usually_short: true,
        title: "stdio writes",
        meaning: "libc writes inside: a full pipe, socket or terminal blocks the worker until \
            its reader reads",
        functions: "fwrite fwrite_unlocked fputs fputs_unlocked fputc fputc_unlocked putc \
            putc_unlocked _IO_putc __overflow putchar putchar_unlocked puts putw fprintf printf \
            vfprintf vprintf dprintf vdprintf __fprintf_chk __printf_chk __vfprintf_chk \
            __vprintf_chk __dprintf_chk __vdprintf_chk fflush fflush_unlocked fputwc putwc \
            putwchar fputws fwprintf wprintf __fwprintf_chk perror",
    },
    Group {
        name: "file-locks",
        usually_short: false,
        title: "locks in libc",
        meaning: "the worker blocks until the holder releases the lock",
        functions: "lockf lockf64 flockfile _IO_flockfile",
    },
    Group {
        name: "pipes",
        usually_short: false,
        title: "pipes",
        meaning: "the worker blocks until the other end reads or writes",
        functions: "tee vmsplice",
    },
    Group {
        name: "queues",
        usually_short: false,
        title: "message queues",
        meaning: "the worker blocks until another process sends, receives or posts",
        functions: "mq_receive mq_timedreceive mq_send mq_timedsend msgrcv msgsnd semop semtimedop",
    },
    Group {
        name: "async-io",
        usually_short: false,
        title: "asynchronous I/O",
        meaning: "the worker blocks until a request completes",
        functions: "io_submit io_getevents io_pgetevents io_uring_enter \
            io_uring_submit_and_wait io_uring_submit_and_wait_timeout io_uring_wait_cqes \
            io_uring_wait_cqe_timeout __io_uring_get_cqe aio_suspend aio_suspend64 lio_listio \
            lio_listio64",
    },
    Group {
        name: "resolver",
        usually_short: false,
        title: "resolver",
        meaning: "the worker blocks until the DNS server answers",
        functions: "gethostbyname gethostbyname2 gethostbyaddr gethostent getnetbyname \
            getnetbyname_r gai_suspend res_query res_search res_querydomain res_send res_nquery \
            res_nsearch res_nquerydomain res_nsend __res_query __res_search __res_querydomain \
            __res_send __res_nquery __res_nsearch __res_nquerydomain __res_nsend",
    },
    Group {
        name: "users",
        usually_short: true,
        title: "user database",
        meaning: "the worker blocks if a service on the network (LDAP, NIS) answers for the users",
        functions: "getpwnam getpwnam_r getpwuid getpwuid_r getpwent getgrnam getgrnam_r \
            getgrgid getgrgid_r getgrent getgrouplist initgroups getspnam getspnam_r",
    },
    Group {
        name: "children",
        usually_short: false,
        title: "children",
        meaning: "the worker blocks until a child process exits",
        functions: "system popen pclose wordexp",
    },
    Group {
        name: "signals",
        usually_short: false,
        title: "signals",
        meaning: "the worker blocks until a signal arrives",
        functions: "pause sigsuspend sigpause __sigsuspend",
    },
    Group {
        name: "events",
        usually_short: false,
        title: "events",
        meaning: "the worker blocks until an event or the timeout",
        functions: "epoll_pwait2 __select64",
    },
    Group {
        name: "terminal",
        usually_short: false,
        title: "terminals",
        meaning: "the worker blocks until the terminal has answered",
        functions: "tcdrain getpass",
    },
    Group {
        name: "logging",
        usually_short: true,
        title: "syslog",
        meaning: "the worker blocks while the log's socket is full",
        functions: "syslog vsyslog __syslog_chk __vsyslog_chk",
    },
    Group {
        name: "disk",
        usually_short: true,
        title: "disk",
        meaning: "the worker blocks while the disk writes or copies",
        functions: "sync syncfs msync sync_file_range fallocate fallocate64 posix_fallocate \
            posix_fallocate64",
    },
    Group {
        name: "mutex-kinds",
        usually_short: true,
        title: "kinds of mutexes",
        meaning: "a fiber gets ENOTSUP for mutexes with priority inheritance and robust mutexes, \
            but under `cringle run` a thread of its own",
        functions: "pthread_mutexattr_setprotocol pthread_mutexattr_setrobust",
    },
];

/// The waiting functions, with or without a hook.
pub(super) fn known() -> BTreeSet<&'static str> {
    GROUPS.iter().flat_map(Group::functions).collect()
}

/// Functions without hooks that an object imports, by kind.
/// Functions for which a fiber gets a thread of its own under `cringle run`, or that concern the
/// thread of the kernel: what they are for, and their names, separated by spaces.
pub(super) const OF_SYSTEM_THREADS: [(&str, &str); 9] = [
    ("locks that lend priority", "pthread_mutexattr_setprotocol pthread_mutex_setprioceiling"),
    ("robust locks", "pthread_mutexattr_setrobust pthread_mutexattr_setrobust_np"),
    ("waits for signals", "sigwait sigwaitinfo sigtimedwait"),
    ("signals of a thread", "pthread_sigmask sigprocmask sigaltstack pthread_kill pthread_cancel"),
    ("cores", "pthread_setaffinity_np sched_setaffinity"),
    (
        "priorities",
        "pthread_setschedparam pthread_setschedprio sched_setscheduler sched_setparam setpriority \
            nice",
    ),
    ("credentials and namespaces of a thread", "setfsuid setfsgid capset unshare setns"),
    ("traces", "ptrace"),
    ("spins", "sched_yield pthread_yield thrd_yield pthread_spin_lock"),
];

pub(super) fn of_system_threads(imports: &BTreeSet<String>) -> Vec<&'static str> {
    let names = OF_SYSTEM_THREADS.iter().flat_map(|(_, names)| names.split(' '));
    names.filter(|name| imports.contains(*name)).collect()
}

#[derive(Debug, Serialize)]
pub(crate) struct Blocking {
    #[serde(flatten)]
    pub group: &'static Group,
    pub functions: Vec<&'static str>,
}

/// Divides imports into functions with hooks, and functions that wait without one.
pub(super) fn divided(
    imports: &BTreeSet<String>,
    hooked: &BTreeSet<String>,
) -> (Vec<String>, Vec<Blocking>) {
    let waits_here = |name: &str| hooked.contains(name) && !OF_SERVED.contains(&name);
    let with = imports.iter().filter(|name| waits_here(name)).cloned().collect();
    let is_without = |name: &&str| imports.contains(*name) && !waits_here(name);
    let without = GROUPS.iter().map(|group| Blocking {
        group,
        functions: group.functions().into_iter().filter(is_without).collect(),
    });
    (with, without.filter(|calls| !calls.functions.is_empty()).collect())
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
        for name in GROUPS.iter().flat_map(Group::functions) {
            assert!(seen.insert(name), "{name} is listed twice");
        }
        assert!(CORE.iter().all(|name| HOOKED.contains(name)));
    }

    #[test]
    fn a_function_that_the_program_defines_does_not_block() {
        let imports = names(&["read", "write", "fread", "syslog", "malloc"]);
        let (with, without) = divided(&imports, &names(&["read", "syslog"]));
        assert_eq!(with, ["read", "syslog"]);
        let found: Vec<_> = without.iter().map(|one| (one.group.name, one.functions[0])).collect();
        assert_eq!(found, [("missing-hooks", "write"), ("stdio-reads", "fread")]);
        assert!(without[1].group.usually_short && !without[0].group.usually_short);
    }
}
