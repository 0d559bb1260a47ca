//! Ops that the kernel does not cancel: the fiber waits for them past its deadline, and a line on
//! standard error reports the fiber and its wait (**I1**).

use cringle::fs::{File, OpenOptions};
use cringle::{Builder, fiber, time};
use cringle_testing::child;
use cringle_testing::disk;
use cringle_testing::tools::*;
use std::cell::Cell;
use std::io::{BufRead, BufReader, Write};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc;
use std::time::Duration;

/// A wait that outlasts its cancel by this time is reported.
const REPORTED_AFTER: Duration = Duration::from_secs(5);
const LIMIT: Duration = Duration::from_millis(20);
const BLOCK: usize = 4096;

// ----- reports -----

/// The worker is never idle, but finds the time for the report.
#[test]
fn wait_that_outlasts_its_cancel_is_reported_once() {
    let name = "wait_that_outlasts_its_cancel_is_reported_once";
    let Some(output) = child::run(name) else {
        let (reported, report) = mpsc::channel();
        let stderr = StandardError::take();
        return std::thread::scope(|threads| {
            // Other lines say why fibers share thread-locals here, if they do.
            let note = move |lines: &[String]| {
                if !reports_in(&lines[lines.len() - 1]).is_empty() {
                    reported.send(lines.len()).unwrap();
                }
            };
            threads.spawn(|| stderr.forward(note));
            let _end = GiveBack(&stderr);
            on_one_worker(|| outlast_a_cancel(report));
        });
    };
    let text = child::transcript(&output);
    assert!(output.status.success(), "{text}");
    let reports = reports_in(&text);
    assert_eq!(reports.len(), 1, "{text}");
    for part in ["'stays' (spawned at ", "out of time 5 s ago", "on a thread of the pool"] {
        assert!(reports[0].contains(part), "{text}");
    }
}

/// A fiber stays in a cancelled wait for some time after its report.
fn outlast_a_cancel(report: mpsc::Receiver<usize>) {
    let over = Cell::new(false);
    fiber::scope(|s| {
        s.spawn_local(|| {
            while !over.get() {
                // The worker has the next turn at once, and few of them.
                std::thread::sleep(Duration::from_millis(1));
                fiber::yield_now();
            }
        });
        let stays = fiber::Builder::new().name("stays".into()).spawn_scoped_local(s, move || {
            let wait = || {
                fiber::unblock(move || {
                    report.recv().unwrap();
                    std::thread::sleep(REPORTED_AFTER / 2);
                });
                Ok(())
            };
            time::timeout(LIMIT, wait).unwrap();
        });
        stays.unwrap().join().unwrap();
        over.set(true);
    });
}

fn reports_in(text: &str) -> Vec<&str> {
    text.lines().filter(|line| line.contains("still waits for")).collect()
}

/// In virtual time, so that the fibers are soon out of the cancelled wait even on a busy machine.
#[cfg(feature = "sim")]
#[test]
fn fiber_that_leaves_its_cancelled_wait_is_not_reported() {
    let name = "fiber_that_leaves_its_cancelled_wait_is_not_reported";
    let Some(output) = child::run(name) else {
        let named = |name: &str| fiber::Builder::new().name(name.into());
        let fibers = || {
            fiber::scope(|s| {
                // Its wait ends later.
                let stays = named("stays").spawn_scoped_local(s, || {
                    time::timeout(LIMIT, || {
                        fiber::scope(|t| {
                            t.spawn_local(|| {
                                fiber::protect(|| time::sleep(REPORTED_AFTER * 3 / 2).unwrap());
                            });
                        });
                        Ok(())
                    })
                    .unwrap();
                });
                // Cancelled while it waits for a scope; then it leaves the cancelled wait.
                let leaves = named("leaves").spawn_scoped_local(s, || {
                    let scope = || {
                        fiber::scope(|t| drop(t.spawn_local(fiber::park)));
                        Ok(())
                    };
                    time::timeout(LIMIT, scope).unwrap_err();
                    time::sleep(REPORTED_AFTER * 5 / 4).unwrap();
                });
                // It leaves by a protected call, in which no wait is cancelled.
                let protects = named("protects").spawn_scoped_local(s, || {
                    let result = time::timeout(LIMIT, || {
                        let ended = time::sleep(Duration::MAX);
                        fiber::protect(|| time::sleep(REPORTED_AFTER * 5 / 4))?;
                        ended
                    });
                    assert_elapsed(&result.unwrap_err(), LIMIT);
                });
                for fiber in [stays, leaves, protects] {
                    fiber.unwrap().join().unwrap();
                }
            });
        };
        cringle::sim::run(1, &cringle::sim::Options::new(), fibers).unwrap();
        return;
    };
    let text = child::transcript(&output);
    assert!(output.status.success(), "{text}");
    let reports = reports_in(&text);
    assert!(reports.len() == 1 && reports[0].contains("'stays'"), "{text}");
}

// ----- a frozen file system -----

/// A file system on a loop device, which is thawed and unmounted when this is dropped.
struct Mount {
    directory: tempfile::TempDir,
    device: Option<String>,
    mounted: bool,
}

impl Mount {
    /// Mounts a new file system. The error says why this machine cannot.
    fn new() -> Result<Mount, String> {
        let directory = disk::directory();
        let image = directory.path().join("image");
        let file = std::fs::File::create(&image).map_err(|e| e.to_string())?;
        file.set_len(64 << 20).map_err(|e| e.to_string())?;
        std::fs::create_dir(directory.path().join("mount")).map_err(|e| e.to_string())?;
        let mut mount = Mount { directory, device: None, mounted: false };
        let image = image.to_str().unwrap();
        run_command("mkfs.ext4", &["-q", "-F", image])?;
        let device = run_command("losetup", &["--find", "--show", image])?;
        mount.device = Some(device.trim().to_owned());
        run_command("mount", &[device.trim(), mount.path().to_str().unwrap()])?;
        mount.mounted = true;
        Ok(mount)
    }

    fn path(&self) -> PathBuf {
        self.directory.path().join("mount")
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        let path = self.path();
        if self.mounted {
            thaw(&path);
            run_command("umount", &[path.to_str().unwrap()]).unwrap();
        }
        if let Some(device) = &self.device {
            run_command("losetup", &["--detach", device]).unwrap();
        }
    }
}

/// Runs a command, and returns its output or why it failed.
fn run_command(command: &str, arguments: &[&str]) -> Result<String, String> {
    let output = Command::new(command).args(arguments).output();
    let output = output.map_err(|e| format!("{command}: {e}"))?;
    if output.status.success() {
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    } else {
        Err(format!("{command}: {}", String::from_utf8_lossy(&output.stderr)))
    }
}

const FIFREEZE: libc::Ioctl = 0xC004_5877_u32 as libc::Ioctl;
const FITHAW: libc::Ioctl = 0xC004_5878_u32 as libc::Ioctl;

fn freeze(path: &Path) -> std::io::Result<()> {
    let directory = std::fs::File::open(path)?;
    // SAFETY: no pointers are passed: the request takes no argument.
    match unsafe { libc::ioctl(directory.as_raw_fd(), FIFREEZE, 0) } {
        0 => Ok(()),
        _ => Err(std::io::Error::last_os_error()),
    }
}

/// Thaws the file system; does nothing if it is not frozen.
fn thaw(path: &Path) {
    if let Ok(directory) = std::fs::File::open(path) {
        // SAFETY: no pointers are passed: the request takes no argument.
        unsafe { libc::ioctl(directory.as_raw_fd(), FITHAW, 0) };
    }
}

/// When this has passed, the file system is thawed in any case. The test takes less, even on a busy
/// machine.
const FROZEN_AT_MOST: Duration = Duration::from_secs(500);

#[test]
fn write_to_frozen_file_system_outlasts_its_deadline() {
    const MOUNT_VARIABLE: &str = "CRINGLE_TEST_FROZEN";
    let name = "write_to_frozen_file_system_outlasts_its_deadline";
    if let Some(path) = std::env::var_os(MOUNT_VARIABLE) {
        return write_to_frozen(Path::new(&path));
    }
    let mount = match Mount::new() {
        Ok(mount) => mount,
        Err(error) => return println!("skipped: cannot make a file system to freeze: {error}"),
    };
    let path = mount.path();
    // If the child fails to, this thread thaws the file system.
    let (child_ended, end_of_child) = mpsc::channel::<()>();
    let output = std::thread::scope(|s| {
        let path = &path;
        s.spawn(move || {
            let _ = end_of_child.recv_timeout(FROZEN_AT_MOST);
            thaw(path);
        });
        let output = child::run_with(name, |command| command.env(MOUNT_VARIABLE, path));
        drop(child_ended);
        output.expect("the parent gets the output")
    });
    let text = child::transcript(&output);
    println!("{text}");
    assert!(output.status.success());
    if text.contains("skipped:") {
        return;
    }
    let reports = reports_in(&text);
    assert_eq!(reports.len(), 2);
    for worker in [0, 1] {
        let part = format!("'writer {worker}' (spawned at ");
        let is_its = |line: &&&str| line.contains(&part) && line.contains("out of time 5 s ago");
        assert!(reports.iter().find(is_its).is_some_and(|line| line.contains("write")), "{text}");
    }
}

fn write_to_frozen(mount: &Path) {
    let paths = [0, 1].map(|n| mount.join(n.to_string()));
    for path in &paths {
        std::fs::write(path, [1; BLOCK]).unwrap();
        std::fs::File::open(path).unwrap().sync_all().unwrap();
    }
    let files = paths.each_ref().map(|path| OpenOptions::new().write(true).open(path).unwrap());
    if let Err(error) = freeze(mount) {
        return println!("skipped: cannot freeze the file system: {error}");
    }
    let (is_thawed, turns) = (AtomicBool::new(false), AtomicUsize::new(0));
    let reports = StandardError::take();
    let outcomes = std::thread::scope(|threads| {
        // The file system stays frozen until both writers are reported, and another fiber has run.
        threads.spawn(|| {
            reports.forward(|lines| {
                if lines.iter().filter(|line| line.contains("still waits for")).count() == 2 {
                    while turns.load(Ordering::SeqCst) <= 10 {
                        std::thread::sleep(LIMIT);
                    }
                    is_thawed.store(true, Ordering::SeqCst);
                    thaw(mount);
                }
            });
        });
        let _end = GiveBack(&reports);
        Builder::new().workers(2).run(|| write_on_both_workers(&files, &is_thawed, &turns)).unwrap()
    });
    for ((outcome, deadline), path) in outcomes.into_iter().zip(&paths) {
        let now = std::fs::read(path).unwrap();
        match outcome {
            Ok(()) => assert!(now == [2; BLOCK], "the write was done"),
            Err(error) => {
                assert_elapsed(&error, deadline);
                assert!(now == [1; BLOCK], "the write was cancelled");
            }
        }
    }
}

/// The standard error of this process, which passes through a pipe.
struct StandardError {
    own: OwnedFd,
    pipe: std::io::PipeReader,
}

impl StandardError {
    fn take() -> StandardError {
        let own = std::io::stderr().as_fd().try_clone_to_owned().unwrap();
        let (pipe, writer) = std::io::pipe().unwrap();
        replace_standard_error(&writer);
        StandardError { own, pipe }
    }

    /// Forwards each line until the end, and calls `f` with all lines so far.
    fn forward(&self, mut f: impl FnMut(&[String])) {
        let mut own = std::fs::File::from(self.own.try_clone().unwrap());
        let mut lines = Vec::new();
        for line in BufReader::new(&self.pipe).lines() {
            lines.push(line.unwrap());
            writeln!(own, "{}", lines.last().unwrap()).unwrap();
            f(&lines);
        }
    }
}

/// Ends the forwarding when it is dropped.
struct GiveBack<'a>(&'a StandardError);

impl Drop for GiveBack<'_> {
    fn drop(&mut self) {
        replace_standard_error(&self.0.own);
    }
}

fn replace_standard_error(by: &impl AsFd) {
    // SAFETY: no pointers are passed.
    assert_eq!(unsafe { libc::dup2(by.as_fd().as_raw_fd(), 2) }, 2);
}

/// One worker is idle and the other busy. On both only the writer waits, and it is reported.
/// Returns how each write ended after the file system was thawed, and its deadline.
fn write_on_both_workers(
    files: &[File; 2],
    is_thawed: &AtomicBool,
    turns: &AtomicUsize,
) -> Vec<(std::io::Result<()>, Duration)> {
    fiber::scope(|s| {
        let writers = [0, 1].map(|worker| {
            let writer = fiber::Builder::new().worker(worker).name(format!("writer {worker}"));
            let write = move || {
                let mut deadline = LIMIT;
                loop {
                    // Another fiber is ready, so the write goes through the ring.
                    let other = fiber::spawn_local(fiber::yield_now);
                    let write = || files[worker].write_all_at(&[2; BLOCK], 0);
                    let result = time::timeout(deadline, write);
                    other.join().unwrap();
                    if is_thawed.load(Ordering::SeqCst) {
                        return (result, deadline);
                    }
                    // The kernel had not begun the write yet, and so could cancel it.
                    assert_elapsed(&result.unwrap_err(), deadline);
                    deadline *= 2;
                }
            };
            writer.spawn_scoped(s, write).unwrap()
        });
        spawn_on(1, s, || {
            while !is_thawed.load(Ordering::SeqCst) {
                std::thread::sleep(Duration::from_millis(1));
                fiber::yield_now();
            }
        });
        while !writers.iter().all(|writer| writer.is_finished()) {
            time::sleep(LIMIT).unwrap();
            turns.fetch_add(1, Ordering::SeqCst);
        }
        writers.into_iter().map(|writer| writer.join().unwrap()).collect()
    })
}

// ----- the threads of io-wq -----

/// The few threads of io-wq perform buffered writes and syncs, so most ops are queued and some run.
/// A cancelled write has no effect; every other write has.
#[test]
fn ops_in_io_wq_are_cancelled_or_done() {
    const FIBERS: usize = 300;
    const ROUNDS: usize = 6;
    let directory = disk::directory();
    let path = directory.path().join("file");
    std::fs::write(&path, vec![0; FIBERS * BLOCK]).unwrap();
    let (done, cancelled) = (Cell::new(0), Cell::new(0));
    on_one_worker(|| {
        let file = OpenOptions::new().read(true).write(true).open(&path).unwrap();
        for round in 1..=ROUNDS {
            let outcomes: Vec<_> = fiber::scope(|s| {
                let handles: Vec<_> = (0..FIBERS)
                    .map(|n| {
                        let file = &file;
                        s.spawn_local(move || {
                            let limit = Duration::from_micros((n * 37 % 3000) as u64);
                            let write = || file.write_at(&[round as u8; BLOCK], (n * BLOCK) as u64);
                            let written = time::timeout(limit, write);
                            // A sync has no visible effect, but must end.
                            drop(time::timeout(limit, || file.sync_all()));
                            written
                        })
                    })
                    .collect();
                handles.into_iter().map(|handle| handle.join().unwrap()).collect()
            });
            let bytes = std::fs::read(&path).unwrap();
            for (n, outcome) in outcomes.into_iter().enumerate() {
                let block = &bytes[n * BLOCK..(n + 1) * BLOCK];
                let is_new = block.iter().all(|&byte| byte == round as u8);
                match outcome {
                    Ok(count) => {
                        assert!(count == BLOCK && is_new, "block {n} was written");
                        done.set(done.get() + 1);
                    }
                    Err(error) => {
                        assert!(cringle::cancel::reason(&error).is_some(), "{error:?}");
                        assert!(!is_new, "block {n} was cancelled");
                        cancelled.set(cancelled.get() + 1);
                    }
                }
            }
        }
    });
    println!("{} writes completed, {} were cancelled", done.get(), cancelled.get());
    assert!(cancelled.get() > 0);
}

/// Fibers that are due for a report at the same time share one line.
#[cfg(feature = "sim")]
#[test]
fn many_stubborn_waits_are_one_report() {
    const CROWD: usize = 300;
    let Some(output) = child::run("many_stubborn_waits_are_one_report") else {
        let crowd = || {
            fiber::scope(|s| {
                let held: Vec<_> = (0..CROWD)
                    .map(|n| {
                        s.spawn_local(move || {
                            // The waits start within a second.
                            fiber::protect(|| {
                                time::sleep(Duration::from_millis(n as u64)).unwrap()
                            });
                            let wait = || {
                                fiber::scope(|t| {
                                    // The scope must wait for this fiber.
                                    t.spawn_local(|| {
                                        fiber::protect(|| time::sleep(2 * REPORTED_AFTER).unwrap());
                                    });
                                })
                            };
                            time::timeout(LIMIT, || {
                                wait();
                                Ok(())
                            })
                            .unwrap();
                        })
                    })
                    .collect();
                held.into_iter().for_each(|handle| drop(handle.join()));
            });
        };
        let options = cringle::sim::Options::new();
        cringle::sim::run(1, &options, crowd).unwrap();
        return;
    };
    let text = child::transcript(&output);
    assert!(output.status.success(), "{text}");
    let reports = reports_in(&text);
    // The first line, and one for the fibers that became due before the next line was allowed.
    assert!((1..=2).contains(&reports.len()), "{text}");
    let others = |line: &&str| {
        let (_, count) = line.split_once("(as do ").expect("a count of the others");
        count.split(' ').next().unwrap().parse::<usize>().unwrap() + 1
    };
    let lines: usize =
        reports.iter().map(|line| if line.contains("(as do ") { others(line) } else { 1 }).sum();
    assert_eq!(lines, CROWD, "{text}");
}
