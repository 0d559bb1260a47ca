//! Refuses, in the library, what may reach a function of libc that a program has interposed
//! (**I14**): libc's blocking functions, std's locks, which wait by libc's `syscall`, and std's
//! clock, which may be ahead on a cancelled fiber.
//!
//! It reads names, and does not know types: a descriptor that std closes is found by
//! `crates/cringle-interpose/tests/interposed`.

use super::Finding;
use super::exceptions::Exceptions;
use super::sources::Source;
use crate::crates::{self, Crate};

/// The functions of libc that a program may interpose.
const CALLS: &str = "read write readv writev pread pwrite pread64 pwrite64 preadv pwritev preadv2 \
    pwritev2 recv recvfrom recvmsg recvmmsg send sendto sendmsg sendmmsg sendfile splice connect \
    accept accept4 poll ppoll select pselect epoll_wait epoll_pwait epoll_pwait2 nanosleep \
    clock_nanosleep usleep sleep sched_yield sigwait sigtimedwait sigwaitinfo open openat close \
    fsync fdatasync flock fcntl lockf wait waitpid wait4 waitid getaddrinfo getnameinfo syscall \
    pthread_create pthread_detach pthread_join pthread_mutex_lock pthread_cond_wait pthread_once sem_wait";

/// The types of `std::sync` that wait.
const LOCKS: [&str; 8] =
    ["Barrier", "Condvar", "LazyLock", "Mutex", "Once", "OnceLock", "ReentrantLock", "RwLock"];

/// What writes to standard error through the lock of std's handle.
const REPORTS: [&str; 3] = ["eprintln!", "eprint!", "io::stderr()"];

pub(super) fn check(source: &Source, exceptions: &Exceptions, findings: &mut Vec<Finding>) {
    let is_of_library = crates::of(&source.path).is_some_and(Crate::is_of_library);
    if !is_of_library || source.path.contains("tests") {
        return;
    }
    let tests =
        ["#[cfg(test)]\nmod ", "#[cfg(all(test"].iter().filter_map(|it| source.text.find(it));
    let tests = tests.min().unwrap_or(source.text.len());
    for (index, line) in source.text[..tests].lines().enumerate() {
        let code = line.split("//").next().unwrap_or_default();
        for (what, remedy) in found(code) {
            if !exceptions.allow(&format!("{}: {what}", source.path)) {
                let text = format!("`{what}` may reach an interposed function (I14); {remedy}");
                findings.push(Finding::new(source, index + 1, text));
            }
        }
    }
}

/// Returns the names that a line of code must not have, each with what to use.
fn found(code: &str) -> Vec<(String, &'static str)> {
    let calls = code.split("libc::").skip(1).filter_map(|rest| rest.split_once('('));
    let calls = calls.map(|(name, _)| name).filter(|name| CALLS.split(' ').any(|it| it == *name));
    let calls = calls.map(|name| (format!("libc::{name}"), "make the call by `sys::syscall!`"));
    let words = |text: &str, wanted: &str| {
        text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_').any(|word| word == wanted)
    };
    let from_std = code.split_once("std::sync::").map_or("", |(_, rest)| rest);
    let from_std = if from_std.starts_with("atomic") { "" } else { from_std };
    let locks = LOCKS.iter().filter(|lock| words(from_std, lock));
    let locks = locks.map(|name| (format!("std::sync::{name}"), "use `sys::lock`"));
    let reports = REPORTS.iter().filter(|report| code.contains(*report));
    let reports = reports.map(|report| ((*report).to_owned(), "use `sys::report`"));
    let clock =
        code.contains("Instant::now").then(|| ("Instant::now".to_owned(), "use `sys::now`"));
    calls.chain(locks).chain(reports).chain(clock).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(code: &str) -> Vec<String> {
        found(code).into_iter().map(|(name, _)| name).collect()
    }

    fn found_in(path: &str, text: &str) -> usize {
        let mut findings = Vec::new();
        check(&Source::new(path, text), &Exceptions::none(), &mut findings);
        findings.len()
    }

    #[test]
    fn calls_and_locks_that_wait_are_found() {
        assert_eq!(names("unsafe { libc::read(fd, buf, len) }"), ["libc::read"]);
        assert_eq!(names("libc::syscall(libc::SYS_futex, word)"), ["libc::syscall"]);
        assert_eq!(names("libc::readlinkat(dir, path)"), Vec::<String>::new());
        let locks = ["std::sync::Mutex", "std::sync::OnceLock"];
        assert_eq!(names("use std::sync::{Arc, Mutex, OnceLock};"), locks);
        assert_eq!(names("use crate::sync::Mutex;"), Vec::<String>::new());
        assert_eq!(names("eprintln!(\"lost\");"), ["eprintln!"]);
        assert_eq!(names("let begun = Instant::now();"), ["Instant::now"]);
    }

    #[test]
    fn comments_and_tests_are_passed_over() {
        let text = "// libc::read(0)\n#[cfg(test)]\nmod tests {\nuse std::sync::Mutex;\n}\n";
        assert_eq!(found_in("crates/cringle-std/src/a.rs", text), 0);
    }

    #[test]
    fn every_crate_of_the_library_is_checked() {
        let text = "fn f() { libc::close(0); }\n";
        for name in ["cringle", "cringle-core", "cringle-interpose", "cringle-sys"] {
            assert_eq!(found_in(&format!("crates/{name}/src/a.rs"), text), 1, "{name}");
        }
        assert_eq!(found_in("crates/cringle-cp/src/a.rs", text), 0);
        assert_eq!(found_in("crates/cringle-std/tests/a.rs", text), 0);
    }
}
