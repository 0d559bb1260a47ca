//! Reports on standard error: the dump at a signal, and the line of the watchdog. Each test runs in
//! its own process, which reads its own standard error.

mod child;

use cringle::signal::{self, Signal};
use cringle::{Builder, fiber, sync};
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
    assert!(line.contains("tests/stderr_reports.rs:") && line.contains("without suspending"));
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
