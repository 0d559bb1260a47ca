//! A child process inherits the attributes of the thread that creates it. For a fiber, that is the
//! worker's thread, as it is the calling thread with std.

use cringle::fiber;
use cringle::process::{Command, Stdio};
use cringle::runtime::DriverChoice;
use std::io::{Read, Write};
use std::os::unix::process::ExitStatusExt;

const DRIVERS: [DriverChoice; 2] = [DriverChoice::Uring, DriverChoice::Epoll];

/// A shell script that prints the inherited attributes.
const SHOW_ATTRIBUTES: &str = "grep -E '^(NoNewPrivs|Seccomp|Cap|Cpus_allowed|Mems_allowed|SigBlk|SigIgn|Umask|Speculation)' \
    /proc/self/status; cat /proc/self/timerslack_ns; cut -d' ' -f18,19,41 /proc/self/stat; \
    nice; cat /proc/self/personality; readlink /proc/self/ns/uts /proc/self/ns/net";

/// Changes each attribute of the calling thread that this user is allowed to change.
fn change_attributes() {
    // SAFETY: each call gets valid arguments; the structures are locals, and all-zero is a valid
    // value of each. A call without the permission changes nothing.
    unsafe {
        libc::unshare(libc::CLONE_NEWUTS);
        libc::prctl(libc::PR_CAPBSET_DROP, 25, 0, 0, 0);
        assert_eq!(libc::prctl(libc::PR_SET_TIMERSLACK, 123_456, 0, 0, 0), 0);
        assert_eq!(libc::setpriority(libc::PRIO_PROCESS, 0, 7), 0);
        let batch = std::mem::zeroed::<libc::sched_param>();
        assert_eq!(libc::sched_setscheduler(0, libc::SCHED_BATCH, &batch), 0);
        assert!(libc::personality(libc::ADDR_NO_RANDOMIZE as u64) >= 0);
        let mut cores = std::mem::zeroed::<libc::cpu_set_t>();
        assert_eq!(libc::sched_getaffinity(0, size_of_val(&cores), &mut cores), 0);
        let last = (0..libc::CPU_SETSIZE as usize).rev().find(|&cpu| libc::CPU_ISSET(cpu, &cores));
        cores = std::mem::zeroed();
        libc::CPU_SET(last.unwrap(), &mut cores);
        assert_eq!(libc::sched_setaffinity(0, size_of_val(&cores), &cores), 0);
        assert_eq!(libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
    }
    let no_rules = Default::default();
    let filter = seccompiler::SeccompFilter::new(
        no_rules,
        seccompiler::SeccompAction::Allow,
        seccompiler::SeccompAction::Log,
        std::env::consts::ARCH.try_into().unwrap(),
    );
    let program: seccompiler::BpfProgram = filter.unwrap().try_into().unwrap();
    seccompiler::apply_filter(&program).unwrap();
}

/// Returns the attributes of a child that the library creates, and of one that std creates on this
/// thread.
fn attributes_of_children() -> (String, String) {
    let ours = Command::new("sh").args(["-c", SHOW_ATTRIBUTES]).output().unwrap();
    let from_std = std::process::Command::new("sh").args(["-c", SHOW_ATTRIBUTES]).output().unwrap();
    (String::from_utf8(ours.stdout).unwrap(), String::from_utf8(from_std.stdout).unwrap())
}

#[test]
fn child_inherits_attributes_of_the_fibers_thread() {
    for driver in DRIVERS {
        for has_company in [false, true] {
            let run = move || {
                cringle::Builder::new().driver(driver).workers(1).run(|| {
                    if has_company {
                        // Cancelled when `run` ends.
                        fiber::spawn_local(fiber::park);
                        fiber::yield_now();
                    }
                    // Start the threads of the pools before the attributes change.
                    let before = attributes_of_children();
                    fiber::unblock(|| {});
                    assert!(cringle::fs::read_dir("/").unwrap().count() > 0);
                    change_attributes();
                    (before, attributes_of_children())
                })
            };
            // The attributes belong to this thread, and end with it.
            let (before, after) = std::thread::spawn(move || run().unwrap()).join().unwrap();
            let way = format!("{driver:?}, with another fiber: {has_company}");
            assert_eq!(before.0, before.1, "{way}");
            assert_eq!(after.0, after.1, "{way}");
            assert_ne!(before.1, after.1);
            assert!(after.1.contains("NoNewPrivs:\t1"), "{}", after.1);
        }
    }
}

/// A worker that the library has pinned to a core gives its children the cores of `run`'s caller.
#[test]
fn child_of_pinned_worker_may_use_all_cores() {
    let show_cores = || Command::new("grep").args(["Cpus_allowed:", "/proc/self/status"]).output();
    let expected = show_cores().unwrap().stdout;
    let found = cringle::Builder::new().pin(true).run(|| {
        let first = show_cores().unwrap().stdout;
        let others = (0..4).map(|_| fiber::spawn(move || show_cores().unwrap().stdout));
        let others: Vec<_> = others.collect();
        let mut found: Vec<_> = others.into_iter().map(|other| other.join().unwrap()).collect();
        found.push(first);
        found
    });
    for found in found.unwrap() {
        assert_eq!(String::from_utf8_lossy(&found), String::from_utf8_lossy(&expected));
    }
}

/// The kernel sends the signal of `PR_SET_PDEATHSIG` when the thread that created the child ends.
/// That is the thread of `run`'s caller, not a thread of the library, which would end with `run`.
#[test]
fn child_with_pdeathsig_outlives_run() {
    if std::process::Command::new("setpriv").arg("--version").output().is_err() {
        eprintln!("skipped: no setpriv");
        return;
    }
    for driver in DRIVERS {
        let mut child = cringle::Builder::new()
            .driver(driver)
            .workers(1)
            .run(|| {
                let mut command = Command::new("setpriv");
                command.args(["--pdeathsig", "KILL", "cat"]);
                let mut child =
                    command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
                // When the child answers, it has set the signal.
                child.stdin.as_mut().unwrap().write_all(b"a").unwrap();
                child.stdout.as_mut().unwrap().read_exact(&mut [0]).unwrap();
                child
            })
            .unwrap();
        drop(child.stdin.take());
        let status = child.wait().unwrap();
        assert_eq!((status.signal(), status.code()), (None, Some(0)), "{driver:?}");
    }
}
