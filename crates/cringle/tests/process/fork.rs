//! A child after `fork` without `exec` cannot touch its parent's rings, and the parent continues.
//!
//! The children call only functions that are safe after a `fork` in a program with threads, and
//! `_exit`.

use cringle::block::{Batch, BlockIo};
use cringle::fiber;
use cringle::fs::{Direct, File, OpenOptions};
use cringle::runtime::DriverChoice;
use cringle_testing::disk::in_company;
use cringle_testing::{child, disk};
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicBool, Ordering};

/// Forks, runs `f` in the child, and returns how the child ended.
fn forked(in_child: impl FnOnce() -> i32) -> libc::c_int {
    // SAFETY: by the contract of `fork`. The child calls only functions that are safe after it, and
    // ends without destructors.
    unsafe {
        match libc::fork() {
            -1 => panic!("no child: {}", std::io::Error::last_os_error()),
            0 => libc::_exit(in_child()),
            child => {
                let mut status = 0;
                assert_eq!(libc::waitpid(child, &mut status, 0), child);
                status
            }
        }
    }
}

/// Counts the process's mappings of rings, by plain calls and without allocating.
fn mapped_rings() -> i32 {
    const NAME: &[u8] = b"[io_uring]";
    let mut count = 0;
    let mut matched = 0;
    let mut buf = [0u8; 4096];
    // SAFETY: by the contract of the calls. The path is a C string, and the buffer has the given
    // length.
    unsafe {
        let maps = libc::open(c"/proc/self/maps".as_ptr(), libc::O_RDONLY);
        assert!(maps >= 0);
        loop {
            let n = libc::read(maps, buf.as_mut_ptr().cast(), buf.len());
            let Ok(n @ 1..) = usize::try_from(n) else { break };
            for &byte in &buf[..n] {
                matched =
                    if byte == NAME[matched] { matched + 1 } else { usize::from(byte == b'[') };
                if matched == NAME.len() {
                    (count, matched) = (count + 1, 0);
                }
            }
        }
        libc::close(maps);
    }
    count
}

fn reads(file: &File) -> std::io::Result<[u8; 4]> {
    let mut magic = [0; 4];
    file.read_exact_at(&mut magic, 0)?;
    Ok(magic)
}

#[test]
fn forked_child_does_not_map_rings() {
    child::must_succeed("forked_child_does_not_map_rings", || {
        // Also has a second ring, for polled completions.
        let io = BlockIo::builder().iopoll(true).build().unwrap();
        cringle::Builder::new()
            .driver(DriverChoice::Uring)
            .workers(2)
            .run(|| {
                assert!(mapped_rings() >= 4, "the parent has {} mappings", mapped_rings());
                let status = forked(mapped_rings);
                assert!(libc::WIFEXITED(status));
                assert_eq!(libc::WEXITSTATUS(status), 0, "mappings that the child has");
            })
            .unwrap();
        io.close().unwrap();
    });
}

/// Otherwise the child would submit for its parent, with buffers that are not the parent's.
#[test]
fn forked_child_using_ring_dies_alone() {
    child::must_succeed("forked_child_using_ring_dies_alone", || {
        let builder = cringle::Builder::new().workers(1).overflow_handler(false);
        builder
            .driver(DriverChoice::Uring)
            .run(|| {
                let file = File::open("/proc/self/exe").unwrap();
                fiber::scope(|s| {
                    // While other fibers are ready, a statx goes to the ring.
                    let other = s.spawn_local(|| (0..1000).for_each(|_| fiber::yield_now()));
                    fiber::yield_now();
                    let status = forked(|| {
                        fiber::yield_now();
                        i32::from(cringle::fs::metadata("/proc/self/exe").is_ok())
                    });
                    assert!(libc::WIFSIGNALED(status), "{status:#x}");
                    assert_eq!(libc::WTERMSIG(status), libc::SIGSEGV);
                    assert_eq!(&reads(&file).unwrap(), b"\x7fELF");
                    other.join().unwrap();
                });
            })
            .unwrap();
    });
}

/// The child's end closes its copies of the descriptors, which ends no op of the parent.
#[test]
fn operations_survive_forked_child() {
    child::must_succeed("operations_survive_forked_child", || {
        in_company(|| {
            let (mut reader, mut writer) = cringle::io::pipe().unwrap();
            fiber::scope(|s| {
                let read = s.spawn_local(move || {
                    let mut buf = [0; 4];
                    std::io::Read::read_exact(&mut reader, &mut buf).map(|()| buf)
                });
                fiber::yield_now();
                assert_eq!(forked(|| 0), 0);
                std::io::Write::write_all(&mut writer, b"more").unwrap();
                assert_eq!(&read.join().unwrap().unwrap(), b"more");
            });
        });
    });
}

#[test]
fn child_forked_outside_run_can_run() {
    child::must_succeed("child_forked_outside_run_can_run", || {
        assert_eq!(cringle::run(|| 1), 1);
        let status = forked(|| {
            let run = || reads(&File::open("/proc/self/exe")?);
            i32::from(cringle::Builder::new().workers(2).run(run).unwrap().unwrap() != *b"\x7fELF")
        });
        assert_eq!(status, 0);
        assert_eq!(cringle::run(|| 2), 2);
    });
}

/// What the process shares, such as the list of its engines, may be in use by other threads.
#[test]
fn child_works_whatever_other_threads_do() {
    child::must_succeed("child_works_whatever_other_threads_do", || {
        let directory = disk::directory();
        let path = directory.path().join("file");
        std::fs::write(&path, vec![7; 1 << 16]).unwrap();
        let open = || OpenOptions::new().read(true).write(true).direct(Direct::Bounce).open(&path);
        // Other bytes of the first block: their writers exclude each other.
        let use_file = |at: u64| -> std::io::Result<()> {
            let file = open()?;
            for _ in 0..10 {
                file.write_all_at(&[7; 100], at)?;
                file.read_exact_at(&mut [0; 100], at)?;
            }
            Ok(())
        };
        let use_engine = || BlockIo::builder().build()?.close();
        // Threads that start or end meanwhile may keep std's lock in the child: these have started.
        let engine = BlockIo::builder().build().unwrap();
        let submit = || {
            let (file, mut block) = (open().unwrap(), [0; 100]);
            let mut batch = Batch::new();
            batch.read(&file, &mut block, 300);
            assert_eq!(engine.submit(batch).unwrap().into_iter().next().unwrap().unwrap(), 100);
        };
        submit();
        let is_over = AtomicBool::new(false);
        std::thread::scope(|s| {
            s.spawn(|| {
                while !is_over.load(Ordering::Relaxed) {
                    use_file(1).unwrap();
                }
            });
            s.spawn(|| {
                while !is_over.load(Ordering::Relaxed) {
                    submit();
                    assert!(!cringle::runtime::dump_all().is_empty());
                }
            });
            for _ in 0..child::scaled(30, 3000) {
                let status = forked(|| {
                    let done = use_file(200).and_then(|()| use_engine());
                    i32::from(done.is_err())
                });
                assert_eq!(status, 0);
            }
            is_over.store(true, Ordering::Relaxed);
        });
    });
}

/// The parent's trace and its guard that dumps last meanwhile. (They have threads. One that starts
/// or ends while the process forks may keep std's lock in the child.)
#[test]
fn child_runs_beside_traces_and_dumps() {
    child::must_succeed("child_runs_beside_traces_and_dumps", || {
        let directory = tempfile::tempdir().unwrap();
        let run = || cringle::Builder::new().workers(1).run(|| 1).unwrap();
        assert_eq!(run(), 1);
        for n in 0..child::scaled(10, 300) {
            let trace =
                cringle::trace::start(directory.path().join(format!("{n}.pftrace"))).unwrap();
            let guard = cringle::signal::dump_on(&[cringle::signal::Signal::User1]).unwrap();
            assert_eq!(forked(|| run() - 1), 0);
            drop(guard);
            trace.finish().unwrap();
            assert_eq!(forked(|| run() - 1), 0);
        }
    });
}

/// A thread may hold a lock that the program's handler of `fork` takes, while it uses the library.
#[test]
fn fork_does_not_deadlock_with_older_handlers() {
    static LOCK: AtomicBool = AtomicBool::new(false);
    unsafe extern "C" fn lock() {
        while LOCK.swap(true, Ordering::Acquire) {
            std::thread::yield_now();
        }
    }
    unsafe extern "C" fn unlock() {
        LOCK.store(false, Ordering::Release);
    }
    child::must_succeed("fork_does_not_deadlock_with_older_handlers", || {
        // SAFETY: by the contract of `pthread_atfork`: the functions exist as long as the process.
        let result = unsafe { libc::pthread_atfork(Some(lock), Some(unlock), Some(unlock)) };
        assert_eq!(result, 0);
        let is_over = AtomicBool::new(false);
        std::thread::scope(|s| {
            s.spawn(|| {
                while !is_over.load(Ordering::Relaxed) {
                    // SAFETY: the functions have no contract.
                    unsafe { lock() };
                    assert_eq!(cringle::runtime::dump_all().len(), 0);
                    // SAFETY: as above.
                    unsafe { unlock() };
                }
            });
            for _ in 0..child::scaled(100, 3000) {
                assert_eq!(forked(|| 0), 0);
            }
            is_over.store(true, Ordering::Relaxed);
        });
    });
}
