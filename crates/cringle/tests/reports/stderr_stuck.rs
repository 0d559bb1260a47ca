//! Reports while standard error is full, or while a fiber holds std's lock of it: they neither hang
//! nor keep a program from its end. And the report of a program that is stuck itself. Each test
//! runs in its own process.

use cringle::signal::{self, Signal};
use cringle::{Builder, fiber, sync};
use cringle_testing::child;
use std::io::{BufRead, BufReader, PipeReader, PipeWriter, Write};
use std::os::fd::AsRawFd;
use std::time::Duration;

/// Redirects standard error to a pipe.
fn pipe_as_stderr() -> (PipeReader, PipeWriter) {
    let (reader, writer) = std::io::pipe().unwrap();
    // SAFETY: by the contract of `dup2`. Both descriptors are open, and no value owns the old
    // standard error.
    assert!(unsafe { libc::dup2(writer.as_raw_fd(), 2) } == 2);
    (reader, writer)
}

/// Redirects standard error to a pipe that is full. The reader never reads.
fn full_pipe_as_stderr() -> PipeReader {
    let (reader, writer) = pipe_as_stderr();
    let set = |flags: i32| {
        // SAFETY: no pointers are passed.
        assert_eq!(unsafe { libc::fcntl(writer.as_raw_fd(), libc::F_SETFL, flags) }, 0);
    };
    set(libc::O_NONBLOCK);
    while (&writer).write(&[b' '; 4096]).is_ok() {}
    set(0);
    reader
}

/// Whether the thread of this name waits until it can write to standard error, or is in that write.
fn writes_to_stderr(thread: &str) -> bool {
    let tasks = std::fs::read_dir("/proc/self/task").unwrap();
    tasks.map(|task| task.unwrap().path()).any(|task| {
        let read = |name| std::fs::read_to_string(task.join(name)).unwrap_or_default();
        let write = format!("{} 0x2 ", libc::SYS_write);
        let poll = format!("{} ", libc::SYS_ppoll);
        let call = read("syscall");
        read("comm").trim() == thread && (call.starts_with(&write) || call.starts_with(&poll))
    })
}

fn kill(signal: Signal) {
    // SAFETY: by the contract of `kill`, which takes no pointers. The process is this one.
    assert_eq!(unsafe { libc::kill(libc::getpid(), signal.number()) }, 0);
}

#[test]
fn dump_needs_no_lock_of_std() {
    child::must_succeed("dump_needs_no_lock_of_std", || {
        let (reader, _writer) = pipe_as_stderr();
        let run = move || {
            let guard = signal::dump_on(&[Signal::User1]).unwrap();
            let holder = fiber::Builder::new().name("holder".into());
            let holder = holder.spawn_local(|| {
                let _lock = std::io::stderr().lock();
                fiber::park();
            });
            let holder = holder.unwrap();
            fiber::yield_now();
            kill(Signal::User1);
            let has_holder = || {
                let mut lines = BufReader::new(reader).lines().map_while(Result::ok);
                lines.any(|line| line.contains("'holder'"))
            };
            assert!(fiber::unblock(has_holder));
            drop(guard);
            holder.thread().unpark();
            holder.join().unwrap();
        };
        Builder::new().workers(1).run(run).unwrap();
    });
}

#[test]
fn full_standard_error_does_not_keep_dump_guards() {
    child::must_succeed("full_standard_error_does_not_keep_dump_guards", || {
        let _reader = full_pipe_as_stderr();
        let guard = signal::dump_on(&[Signal::User1]).unwrap();
        kill(Signal::User1);
        while !writes_to_stderr("cringle-dump") {
            std::thread::yield_now();
        }
        drop(guard);
    });
}

#[test]
fn full_standard_error_does_not_keep_run() {
    child::must_succeed("full_standard_error_does_not_keep_run", || {
        let _reader = full_pipe_as_stderr();
        let spin = || {
            while !writes_to_stderr("cringle-watch") {
                std::hint::spin_loop();
            }
        };
        Builder::new().workers(1).watchdog(Duration::from_millis(1)).run(spin).unwrap();
    });
}

/// The rest of a text is not lost if the reader is merely slow.
#[test]
fn long_dump_arrives_in_full() {
    child::must_succeed("long_dump_arrives_in_full", || {
        let (reader, _writer) = pipe_as_stderr();
        let run = move || {
            let _guard = signal::dump_on(&[Signal::User1]).unwrap();
            fiber::scope(|s| {
                for n in 0..2000 {
                    // Of one name they would be one entry.
                    let parked = fiber::Builder::new().name(n.to_string());
                    drop(parked.spawn_scoped_local(s, fiber::park).unwrap());
                }
                fiber::yield_now();
                kill(Signal::User1);
                let read_all = || {
                    let lines = BufReader::new(reader).lines().map_while(Result::ok);
                    lines.filter(|line| line.contains("an unpark")).take(2000).count()
                };
                assert_eq!(fiber::unblock(read_all), 2000);
                s.cancel();
            });
        };
        Builder::new().workers(1).run(run).unwrap();
    });
}

/// A child of `fork` has the calling thread alone, so no thread of the test could wake a fiber.
#[test]
fn debug_build_reports_suspected_deadlock() {
    if !cfg!(debug_assertions) {
        return println!("skipped: only debug builds look for deadlocks");
    }
    let body = || {
        let (reader, _writer) = pipe_as_stderr();
        // SAFETY: by the contract of `fork`. No other thread holds a lock that the child needs.
        let child = unsafe { libc::fork() };
        if child == 0 {
            let deadlock = || {
                let mutex = sync::Mutex::new(());
                let _held = mutex.lock();
                fiber::scope(|s| {
                    for _ in 0..10 {
                        let wait = || drop(mutex.lock());
                        let waiter = fiber::Builder::new().name("waiter".into());
                        drop(waiter.spawn_scoped_local(s, wait).unwrap());
                    }
                });
            };
            let builder = Builder::new().workers(2).watchdog(Duration::from_secs(10));
            drop(builder.run(deadlock));
            std::process::exit(1);
        }
        let mut printed = String::new();
        for line in BufReader::new(reader).lines().map_while(Result::ok) {
            printed += &line;
            if line.contains("'waiter'") {
                break;
            }
        }
        // SAFETY: by the contracts of the calls; `waitpid` takes null. The process is the child.
        unsafe {
            assert_eq!(libc::kill(child, libc::SIGKILL), 0);
            assert_eq!(libc::waitpid(child, std::ptr::null_mut(), 0), child);
        }
        assert!(printed.contains("suspected deadlock: all fibers wait"), "{printed}");
        assert!(printed.contains("'waiter'  worker 0, 10 fibers, wait for"), "{printed}");
    };
    child::must_succeed("debug_build_reports_suspected_deadlock", body);
}
