//! Reports on standard error: the dump at a signal, and the line of the watchdog. Each test runs in
//! its own process, which reads its own standard error.

use cringle::signal::{self, Signal};
use cringle::{Builder, fiber, sync};
use cringle_testing::child;
use std::io::{BufRead, BufReader};
use std::os::fd::AsRawFd;
use std::process::Output;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

fn named(name: &str) -> fiber::Builder {
    fiber::Builder::new().name(name.into())
}

/// Redirects standard error to a pipe, and returns its lines, which are copied to standard output.
fn lines_of_stderr() -> Receiver<String> {
    let (reader, writer) = std::io::pipe().unwrap();
    // SAFETY: by the contract of `dup2`. Both descriptors are open, and no value owns the old
    // standard error.
    assert!(unsafe { libc::dup2(writer.as_raw_fd(), 2) } == 2);
    let (sender, receiver) = channel();
    std::thread::spawn(move || {
        for line in BufReader::new(reader).lines().map_while(Result::ok) {
            println!("{line}");
            if sender.send(line).is_err() {
                break;
            }
        }
    });
    receiver
}

/// Returns the lines up to one that contains this text.
fn lines_until(lines: &mut Receiver<String>, text: &str) -> String {
    let mut read = String::new();
    for line in lines.iter() {
        read += &line;
        read.push('\n');
        if line.contains(text) {
            return read;
        }
    }
    panic!("no line with {text:?} in:\n{read}")
}

fn kill(signal: Signal) {
    // SAFETY: by the contract of `kill`, which takes no pointers. The process is this one.
    assert_eq!(unsafe { libc::kill(libc::getpid(), signal.number()) }, 0);
}

fn finish(output: Output) -> String {
    let printed = child::transcript(&output);
    assert!(output.status.success(), "{printed}");
    printed
}

/// Three faults at once, on two workers, one of which is stuck.
#[test]
fn signal_prints_dump() {
    let Some(output) = child::run("signal_prints_dump") else {
        return plant_faults();
    };
    finish(output);
}

fn plant_faults() {
    static SPINS: AtomicBool = AtomicBool::new(true);
    static BEGUN: AtomicBool = AtomicBool::new(false);
    let mut lines = lines_of_stderr();
    let guard = signal::dump_on(&[Signal::User1]).unwrap();
    kill(Signal::User1);
    lines_until(&mut lines, "no runtime is running");
    let builder = Builder::new().workers(2).watchdog(None);
    let run = move || {
        let (first, second) = (sync::Mutex::new(1), sync::Mutex::new(2));
        fiber::scope(|s| {
            let take = |a: &sync::Mutex<i32>, b: &sync::Mutex<i32>| {
                let _a = a.lock().unwrap();
                fiber::yield_now();
                let _b = b.lock().unwrap();
            };
            let (first, second) = (&first, &second);
            named("left").spawn_scoped_local(s, move || take(first, second)).unwrap();
            named("right").spawn_scoped_local(s, move || take(second, first)).unwrap();
            named("forgotten").spawn_scoped_local(s, fiber::park).unwrap();
            let spin = || {
                BEGUN.store(true, Ordering::Relaxed);
                while SPINS.load(Ordering::Relaxed) {
                    std::hint::spin_loop();
                }
            };
            named("spinner").worker(1).spawn_scoped(s, spin).unwrap();
            (0..8).for_each(|_| fiber::yield_now());
            while !BEGUN.load(Ordering::Relaxed) {
                fiber::yield_now();
            }
            kill(Signal::User1);
            // The dump waits a second for the spinner's worker. This worker is not stuck.
            let printed = fiber::unblock(|| {
                let printed = lines_until(&mut lines, "'forgotten'  worker 0");
                printed + &lines_until(&mut lines, "an unpark")
            });
            // End all fibers even if the report is wrong.
            SPINS.store(false, Ordering::Relaxed);
            s.cancel();
            printed
        })
    };
    let printed = builder.run(run).unwrap();
    for text in ["cringle: SIGUSR1", "STUCK: worker 1", "'spinner'", "DEADLOCK: 'left', 'right'"] {
        assert!(printed.contains(text), "no {text} in:\n{printed}");
    }
    drop(guard);
    // SAFETY: by the contract of the call, which fills the structure; all-zero is valid.
    let action = unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        assert_eq!(libc::sigaction(libc::SIGUSR1, std::ptr::null(), &mut action), 0);
        action.sa_sigaction
    };
    assert_eq!(action, libc::SIG_DFL, "the guard leaves nothing behind");
}

/// The only worker is stuck, so no fiber could make the dump.
#[test]
fn signal_prints_dump_of_stuck_worker() {
    let Some(output) = child::run("signal_prints_dump_of_stuck_worker") else {
        static SPINS: AtomicBool = AtomicBool::new(true);
        let mut lines = lines_of_stderr();
        let _guard = signal::dump_on(&[Signal::User1]).unwrap();
        std::thread::spawn(move || {
            lines_until(&mut lines, "'alone'");
            SPINS.store(false, Ordering::Relaxed);
        });
        let spin = || {
            kill(Signal::User1);
            while SPINS.load(Ordering::Relaxed) {
                std::hint::spin_loop();
            }
        };
        let builder = Builder::new().workers(1).watchdog(None);
        return builder.run(|| named("alone").spawn_local(spin).unwrap().join().unwrap()).unwrap();
    };
    let printed = finish(output);
    assert!(printed.contains("STUCK: worker 0"), "{printed}");
}

/// A fiber that lets no other run is reported once, while it runs. A fiber that yields is not
/// reported.
#[test]
fn watchdog_reports_long_running_fiber_once() {
    let limit = Duration::from_millis(10);
    let Some(output) = child::run("watchdog_reports_long_running_fiber_once") else {
        static SPINS: AtomicBool = AtomicBool::new(true);
        let mut lines = lines_of_stderr();
        std::thread::spawn(move || {
            lines_until(&mut lines, "'hog'");
            SPINS.store(false, Ordering::Relaxed);
            lines_until(&mut lines, "never");
        });
        let spend = |time: Duration, step: fn()| {
            let start = Instant::now();
            while start.elapsed() < time {
                step();
            }
        };
        let run = || {
            let polite = move || spend(limit * 8, fiber::yield_now);
            named("polite").spawn_local(polite).unwrap().join().unwrap();
            let hog = move || {
                while SPINS.load(Ordering::Relaxed) {
                    std::hint::spin_loop();
                }
                // After the report, run long again, in this turn and in another one.
                spend(limit * 5, std::hint::spin_loop);
                fiber::yield_now();
                spend(limit * 5, std::hint::spin_loop);
            };
            named("hog").spawn_local(hog).unwrap().join().unwrap();
        };
        return Builder::new().workers(1).watchdog(limit).run(run).unwrap();
    };
    let printed = finish(output);
    let lines = |name: &str| printed.lines().filter(|line| line.contains(name)).count();
    assert_eq!((lines("'hog'"), lines("'polite'")), (1, 0), "{printed}");
    let line = printed.lines().find(|line| line.contains("'hog'")).unwrap();
    assert!(
        line.contains("tests/reports/stderr_reports.rs:") && line.contains("without suspending")
    );
}

#[test]
fn environment_sets_watchdog_limit() {
    let name = "environment_sets_watchdog_limit";
    let body = || {
        static SPINS: AtomicBool = AtomicBool::new(true);
        let mut lines = lines_of_stderr();
        std::thread::spawn(move || {
            lines_until(&mut lines, "without suspending");
            SPINS.store(false, Ordering::Relaxed);
        });
        let spin = || {
            while SPINS.load(Ordering::Relaxed) {
                std::hint::spin_loop();
            }
        };
        Builder::new().workers(1).run(spin).unwrap();
    };
    child::must_succeed_with(name, |command| command.env("CRINGLE_WATCHDOG", "5"), body);
}

#[test]
fn invalid_watchdog_limit_in_environment_is_refused() {
    let name = "invalid_watchdog_limit_in_environment_is_refused";
    child::must_succeed_with(
        name,
        |command| command.env("CRINGLE_WATCHDOG", "soon"),
        || {
            let refused = Builder::new().run(|| ()).unwrap_err();
            assert_eq!(refused.kind(), std::io::ErrorKind::InvalidInput);
            assert!(refused.to_string().contains("CRINGLE_WATCHDOG is \"soon\""), "{refused}");
            // The program's own limit has precedence over the environment.
            Builder::new().watchdog(None).run(|| ()).unwrap();
        },
    );
}

/// Takes a lock of std that another thread holds until `lines` has this text, on worker 0; worker 1
/// computes meanwhile. Returns what was printed.
fn wait_for_std_lock(builder: Builder, text: &'static str) -> String {
    static LOCK: std::sync::Mutex<()> = std::sync::Mutex::new(());
    static REPORTED: AtomicBool = AtomicBool::new(false);
    let mut lines = lines_of_stderr();
    let (sender, receiver) = channel();
    let holder = std::thread::spawn(move || {
        let guard = LOCK.lock().unwrap();
        sender.send(()).unwrap();
        let printed = lines_until(&mut lines, text);
        REPORTED.store(true, Ordering::Relaxed);
        drop(guard);
        printed
    });
    receiver.recv().unwrap();
    let run = || {
        let compute = || {
            while !REPORTED.load(Ordering::Relaxed) {
                std::hint::spin_loop();
            }
        };
        let computes = named("computes").worker(1).spawn(compute).unwrap();
        named("blocked").spawn_local(|| drop(LOCK.lock().unwrap())).unwrap().join().unwrap();
        computes.join().unwrap();
    };
    builder.workers(2).run(run).unwrap();
    holder.join().unwrap()
}

#[test]
fn watchdog_names_remedy_for_std_lock() {
    let Some(output) = child::run("watchdog_names_remedy_for_std_lock") else {
        let builder = Builder::new().watchdog(Duration::from_millis(10));
        wait_for_std_lock(builder, "'blocked'");
        return;
    };
    let printed = finish(output);
    let line = printed.lines().find(|line| line.contains("'blocked'")).unwrap();
    assert!(line.contains("which blocks worker 0") && line.contains("cringle::sync::Mutex"));
}

/// What release builds watch: a blocked worker, but no fiber that computes.
#[test]
fn lock_that_blocks_worker_is_reported_once() {
    let name = "lock_that_blocks_worker_is_reported_once";
    let body = || {
        let printed = wait_for_std_lock(Builder::new(), "'blocked'");
        assert!(printed.contains("cringle::sync::Mutex"), "{printed}");
        assert!(!printed.contains("'computes'"), "{printed}");
        assert_eq!(printed.matches("'blocked'").count(), 1, "{printed}");
    };
    child::must_succeed_with(name, |command| command.env("CRINGLE_WATCHDOG", "locks"), body);
}

/// Locks and pools of some crates wait so.
#[test]
fn loop_of_timed_waits_is_reported_as_a_lock() {
    let name = "loop_of_timed_waits_is_reported_as_a_lock";
    let body = || {
        let mut lines = lines_of_stderr();
        let reader = std::thread::spawn(move || lines_until(&mut lines, "'waits'"));
        let wait_again = || {
            let (lock, condvar) = (std::sync::Mutex::new(()), std::sync::Condvar::new());
            while !reader.is_finished() {
                let guard = lock.lock().unwrap();
                drop(condvar.wait_timeout(guard, Duration::from_millis(100)).unwrap());
            }
        };
        let run = || {
            fiber::scope(|s| {
                let waits = named("waits").spawn_scoped_local(s, wait_again).unwrap();
                waits.join().unwrap();
            });
        };
        Builder::new().workers(1).run(run).unwrap();
        assert!(reader.join().unwrap().contains("which blocks worker 0"));
    };
    child::must_succeed_with(name, |command| command.env("CRINGLE_WATCHDOG", "locks"), body);
}

#[test]
fn environment_enables_dump_at_signal() {
    let name = "environment_enables_dump_at_signal";
    let body = || {
        let mut lines = lines_of_stderr();
        let run = || {
            kill(Signal::User1);
            fiber::unblock(|| lines_until(&mut lines, "'main'"))
        };
        let printed = Builder::new().workers(1).run(run).unwrap();
        assert!(printed.contains("cringle: SIGUSR1: dump of the runtime"), "{printed}");
    };
    child::must_succeed_with(name, |command| command.env("CRINGLE_DUMP", "usr1"), body);
}

#[test]
fn environment_names_file_of_dumps() {
    let name = "environment_names_file_of_dumps";
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("dump-%p");
    let body = || {
        let value = std::env::var("CRINGLE_DUMP").unwrap();
        let path = value.replace("%p", &std::process::id().to_string());
        Builder::new().workers(1).run(|| ()).unwrap();
        // Two runs have one thread for the dumps.
        Builder::new()
            .workers(1)
            .run(|| {
                kill(Signal::User1);
                while !std::fs::read_to_string(&path).is_ok_and(|text| text.contains("'main'")) {
                    fiber::yield_now();
                }
            })
            .unwrap();
        let text = std::fs::read_to_string(&path).unwrap();
        assert_eq!(text.matches("SIGUSR1: dump of the runtime").count(), 1, "{text}");
    };
    child::must_succeed_with(name, |command| command.env("CRINGLE_DUMP", &path), body);
}

#[test]
fn signal_makes_one_dump_for_several_requests() {
    let name = "signal_makes_one_dump_for_several_requests";
    let body = || {
        let mut lines = lines_of_stderr();
        let run = || {
            let mut printed = String::new();
            for guards in [2, 1, 0] {
                let request = |_| signal::dump_on(&[Signal::User1]).unwrap();
                let guards: Vec<_> = (0..guards).map(request).collect();
                kill(Signal::User1);
                printed += &fiber::unblock(|| lines_until(&mut lines, "'main'"));
                drop(guards);
            }
            // The threads have printed what they were to print when their guards are dropped.
            eprintln!("the end");
            printed + &fiber::unblock(|| lines_until(&mut lines, "the end"))
        };
        let printed = Builder::new().workers(1).run(run).unwrap();
        assert_eq!(printed.matches("SIGUSR1: dump of the runtime").count(), 3, "{printed}");
    };
    child::must_succeed_with(name, |command| command.env("CRINGLE_DUMP", "usr1"), body);
}

#[test]
fn unwritable_file_of_dumps_is_refused() {
    let name = "unwritable_file_of_dumps_is_refused";
    let body = || {
        for path in ["/nonexistent/dump", "/tmp/"] {
            // SAFETY: the child has no other thread that reads the environment.
            unsafe { std::env::set_var("CRINGLE_DUMP", path) };
            let refused = Builder::new().run(|| ()).unwrap_err().to_string();
            let expected = format!("CRINGLE_DUMP: cannot write {path}: ");
            assert!(refused.starts_with(&expected), "{refused}");
        }
    };
    child::must_succeed(name, body);
}

/// A FIFO without a reader has no effect but a line, and the next dump is made.
#[test]
fn fifo_of_dumps_does_not_block() {
    let name = "fifo_of_dumps_does_not_block";
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("fifo");
    let body = || {
        let path = std::env::var("CRINGLE_DUMP").unwrap();
        let mut lines = lines_of_stderr();
        let run = || {
            kill(Signal::User1);
            let failed = format!("no dump: cannot write {path}: ");
            fiber::unblock(|| lines_until(&mut lines, &failed));
            let reads = {
                use std::os::unix::fs::OpenOptionsExt;
                let mut options = std::fs::OpenOptions::new();
                options.read(true).custom_flags(libc::O_NONBLOCK).open(&path).unwrap()
            };
            kill(Signal::User1);
            fiber::unblock(|| lines_until_end_of(reads))
        };
        Builder::new().workers(1).run(run).unwrap();
    };
    let make = std::process::Command::new("mkfifo").arg(&path).status().unwrap();
    assert!(make.success());
    child::must_succeed_with(name, |command| command.env("CRINGLE_DUMP", &path), body);
}

/// Reads until the dump's last fiber arrives.
fn lines_until_end_of(mut file: std::fs::File) {
    let mut text = Vec::new();
    while !String::from_utf8_lossy(&text).contains("'main'") {
        let _not_yet = std::io::Read::read_to_end(&mut file, &mut text);
        std::thread::yield_now();
    }
}

#[test]
fn invalid_dump_in_environment_is_refused() {
    let name = "invalid_dump_in_environment_is_refused";
    let body = || {
        let refused = Builder::new().run(|| ()).unwrap_err();
        assert_eq!(refused.kind(), std::io::ErrorKind::InvalidInput);
        assert!(refused.to_string().contains("CRINGLE_DUMP is \"yes\""), "{refused}");
    };
    child::must_succeed_with(name, |command| command.env("CRINGLE_DUMP", "yes"), body);
}

/// In a simulation, the workers run one at a time: nobody could end the wait but a thread outside.
#[cfg(feature = "sim")]
#[test]
fn simulated_worker_that_waits_in_the_kernel_is_reported() {
    use cringle::sim::{self, Faults, Options};

    let Some(output) = child::run("simulated_worker_that_waits_in_the_kernel_is_reported") else {
        let mut lines = lines_of_stderr();
        let (sender, receiver) = channel();
        std::thread::spawn(move || {
            let line = lines_until(&mut lines, "waits for ever");
            sender.send(line).unwrap();
        });
        let options = Options::new().faults(Faults::none()).workers(2);
        let wait = move || receiver.recv().unwrap();
        let run = || fiber::Builder::new().worker(1).spawn(wait).unwrap().join().unwrap();
        let line = sim::run(7, &options, run).unwrap().value;
        assert!(line.contains("seed 7") && line.contains("a fiber of worker 1 "), "{line}");
        return;
    };
    finish(output);
}

#[test]
fn environment_enables_dump_in_forked_child() {
    let name = "environment_enables_dump_in_forked_child";
    let body = || {
        let has_dump_thread = || {
            let threads = std::fs::read_dir("/proc/self/task").unwrap();
            let mut names = threads.map(|thread| {
                std::fs::read_to_string(thread.unwrap().path().join("comm")).unwrap_or_default()
            });
            names.any(|name| name.trim() == "cringle-dump")
        };
        // A thread gives itself its name some time after its start.
        let wait_for_dump_thread = || {
            while !has_dump_thread() {
                std::thread::yield_now();
            }
        };
        Builder::new().workers(1).run(|| ()).unwrap();
        wait_for_dump_thread();
        // SAFETY: by the contract of `fork`. No other thread holds a lock that the child needs.
        let child = unsafe { libc::fork() };
        if child == 0 {
            let has_run = Builder::new().workers(1).run(wait_for_dump_thread).is_ok();
            std::process::exit(if has_run { 0 } else { 1 });
        }
        let mut status = -1;
        // SAFETY: by the contract of `waitpid`, with a valid pointer.
        assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
        assert_eq!(status, 0);
    };
    child::must_succeed_with(name, |command| command.env("CRINGLE_DUMP", "usr1"), body);
}
