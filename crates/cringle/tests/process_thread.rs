//! What a child inherits from the thread that makes it: on a fiber this is the worker's thread, as
//! std's is the calling one.

use cringle::fiber;
use cringle::process::{Command, Stdio};
use cringle::runtime::DriverChoice;
use std::io::{Read, Write};
use std::os::unix::process::ExitStatusExt;

const DRIVERS: [DriverChoice; 2] = [DriverChoice::Uring, DriverChoice::Epoll];

/// What a program sees of the attributes that it has inherited.
const SHOW: &str = "grep -E '^(NoNewPrivs|Seccomp|Cap|Cpus_allowed|Mems_allowed|SigBlk|SigIgn|Umask|Speculation)' \
    /proc/self/status; cat /proc/self/timerslack_ns; cut -d' ' -f18,19,41 /proc/self/stat; \
    nice; cat /proc/self/personality; readlink /proc/self/ns/uts /proc/self/ns/net";

/// Changes each attribute of the calling thread that this user may change.
fn change_attributes() {
    // SAFETY: each call gets what its manual page asks for; what it may not do it leaves.
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

/// The attributes of a child of the library's, and of one that std makes on this thread.
fn of_both() -> (String, String) {
    let ours = Command::new("sh").args(["-c", SHOW]).output().unwrap();
    let stds = std::process::Command::new("sh").args(["-c", SHOW]).output().unwrap();
    (String::from_utf8(ours.stdout).unwrap(), String::from_utf8(stds.stdout).unwrap())
}

#[test]
fn a_child_inherits_the_attributes_of_its_fibers_thread() {
    for driver in DRIVERS {
        for beside in [false, true] {
            let run = move || {
                cringle::Builder::new().driver(driver).workers(1).run(|| {
                    if beside {
                        // It is cancelled when `run` ends.
                        fiber::spawn_local(fiber::park);
                        fiber::yield_now();
                    }
                    // Whatever threads the library starts for calls that wait, it has now.
                    let before = of_both();
                    fiber::unblock(|| {});
                    assert!(cringle::fs::read_dir("/").unwrap().count() > 0);
                    change_attributes();
                    (before, of_both())
                })
            };
            // They are a thread's own, and end with it.
            let (before, after) = std::thread::spawn(move || run().unwrap()).join().unwrap();
            let way = format!("{driver:?}, beside others: {beside}");
            assert_eq!(before.0, before.1, "{way}");
            assert_eq!(after.0, after.1, "{way}");
            assert_ne!(before.1, after.1);
            assert!(after.1.contains("NoNewPrivs:\t1"), "{}", after.1);
        }
    }
}

/// A worker that the library has confined to a core hands down what its caller had.
#[test]
fn a_child_of_a_pinned_worker_has_its_callers_cores() {
    let show = || Command::new("grep").args(["Cpus_allowed:", "/proc/self/status"]).output();
    let wanted = show().unwrap().stdout;
    let found = cringle::Builder::new().pin(true).run(|| {
        let first = show().unwrap().stdout;
        let others: Vec<_> = (0..4).map(|_| fiber::spawn(move || show().unwrap().stdout)).collect();
        let mut found: Vec<_> = others.into_iter().map(|other| other.join().unwrap()).collect();
        found.push(first);
        found
    });
    for found in found.unwrap() {
        assert_eq!(String::from_utf8_lossy(&found), String::from_utf8_lossy(&wanted));
    }
}

/// `PR_SET_PDEATHSIG` means the thread: that of `run`'s caller, not one of the library's that ends
/// with it.
#[test]
fn a_child_that_dies_with_its_parent_outlives_run() {
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
                // It has set the signal when it answers.
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
