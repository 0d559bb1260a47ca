//! The effect of a cancel on every call that waits: while it waits, before it starts, by a
//! deadline, from another worker, and in a protected call.

use crate::disk;
use crate::tools::*;
use cringle::block::{AlignedBuf, Batch, BlockIo, FixedBufs, FixedFile};
use cringle::fs::{File, OpenOptions};
use cringle::io::{self, Interest, ready};
use cringle::process::{Command, Stdio};
use cringle::runtime::{self, Driver, Feature};
use cringle::{Builder, fiber, time};
use std::io::{IoSlice, IoSliceMut, Read, Seek, Write};
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, OnceLock};
use std::task::Poll;
use std::time::{Duration, Instant};

const HOUR: Duration = Duration::from_secs(3600);

/// The effect of a cancel on a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Effect {
    /// The call returns an error.
    Fails,
    /// The call unwinds.
    Unwinds,
    /// The call waits to its end.
    Waits,
}
use Effect::{Fails, Unwinds, Waits};

/// Files and fibers to wait for, and how to end each wait.
struct Fixture {
    /// Empty until the release.
    empty: File,
    into_empty: File,
    /// Full until the release.
    full: File,
    out_of_full: File,
    /// An event counter, from which each read takes one. Its read is the one op that may be in
    /// flight. The file is registered, so that its reads have an offset: a read without an offset
    /// waits for a peer, and does not count as in flight.
    blocker: File,
    /// Its cursor is locked by a fiber that waits until another op may be in flight.
    held: File,
    /// Opened by the library, so that the library knows every user of its cursor.
    own: File,
    disk: tempfile::TempDir,
    sleep: Duration,
    released: AtomicBool,
    unblocked: AtomicBool,
    parked: Mutex<Vec<fiber::Thread>>,
    block_io: BlockIo,
}

impl Fixture {
    fn new(sleep: Duration) -> Fixture {
        let (empty, into_empty) = pipe();
        let (out_of_full, full) = pipe();
        fill(&full);
        let blocker = counter();
        let disk = disk::directory();
        std::fs::write(disk.path().join("held"), disk::pattern(1 << 16)).unwrap();
        std::fs::write(disk.path().join("file"), disk::pattern(1 << 16)).unwrap();
        disk::make_fifo(&disk.path().join("fifo"));
        let mut options = OpenOptions::new();
        options.read(true).custom_flags(libc::O_DIRECT);
        let held = options.open(disk.path().join("held")).unwrap();
        let mut options = OpenOptions::new();
        let own = options.read(true).write(true).open(disk.path().join("file")).unwrap();
        let block_io = BlockIo::builder().build().unwrap();
        let (released, unblocked) = (AtomicBool::new(false), AtomicBool::new(false));
        let parked = Mutex::default();
        Fixture {
            empty,
            into_empty,
            full,
            out_of_full,
            blocker,
            held,
            own,
            disk,
            sleep,
            released,
            unblocked,
            parked,
            block_io,
        }
    }

    fn file(&self) -> File {
        let path = self.disk.path().join("file");
        std::fs::File::options().read(true).write(true).open(path).unwrap().into()
    }

    /// Has the one op in flight that the limit allows, until the release.
    fn exhaust_limit(&self) {
        let counter = FixedFile::register(&self.blocker).unwrap();
        let mut bufs = FixedBufs::new(1, 8).unwrap();
        let mut batch = Batch::new();
        let read = batch.read_fixed(&counter, &mut bufs[0], 0);
        assert_eq!(batch.submit().get(read).unwrap(), 8);
    }

    /// Ends every wait. The caller does not wait.
    fn release(&self) {
        self.released.store(true, Ordering::SeqCst);
        if self.unblocked.swap(true, Ordering::SeqCst) {
            return;
        }
        // Plain calls suffice: none of them blocks.
        plain(&self.into_empty).write_all(&[7; 8]).unwrap();
        plain(&self.blocker).write_all(&7u64.to_ne_bytes()).unwrap();
        assert!(plain(&self.out_of_full).read(&mut vec![0; 1 << 16]).unwrap() > 0);
        self.parked.lock().unwrap().iter().for_each(fiber::Thread::unpark);
    }

    /// Opens both ends of the FIFO, so that waiting opens of it succeed.
    fn open_fifo(&self) -> std::fs::File {
        std::fs::File::options().read(true).write(true).open(self.fifo()).unwrap()
    }

    fn fifo(&self) -> std::path::PathBuf {
        self.disk.path().join("fifo")
    }

    fn is_released(&self) -> bool {
        self.released.load(Ordering::SeqCst)
    }

    /// Makes the release unpark the calling fiber.
    fn unpark_on_release(&self) {
        self.parked.lock().unwrap().push(fiber::current());
    }
}

/// Returns the same file, with std's calls.
fn plain(file: &File) -> std::fs::File {
    file.as_fd().try_clone_to_owned().unwrap().into()
}

/// Creates an event counter, from which each read takes one.
fn counter() -> File {
    // SAFETY: no pointers are passed, and the new descriptor has no other owner.
    unsafe {
        let fd = libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_SEMAPHORE);
        assert!(fd >= 0);
        OwnedFd::from_raw_fd(fd).into()
    }
}

fn fill(pipe: &File) {
    let fd = pipe.as_raw_fd();
    // SAFETY: the only pointer is to a buffer that lives for the call.
    unsafe {
        let flags = libc::fcntl(fd, libc::F_GETFL);
        libc::fcntl(fd, libc::F_SETFL, flags | libc::O_NONBLOCK);
        while libc::write(fd, [0u8; 4096].as_ptr().cast(), 4096) > 0 {}
        libc::fcntl(fd, libc::F_SETFL, flags);
    }
}

/// A call, and the surroundings that make it wait.
#[derive(Clone, Copy)]
struct Call {
    name: &'static str,
    effect: Effect,
    /// No other op may be in flight: the call waits for the limit.
    crowded: bool,
    wait: fn(&Fixture) -> io::Result<()>,
}

const fn call(name: &'static str, effect: Effect, wait: fn(&Fixture) -> io::Result<()>) -> Call {
    Call { name, effect, crowded: false, wait }
}

/// A call that waits until another op may be in flight.
const fn crowded(name: &'static str, wait: fn(&Fixture) -> io::Result<()>) -> Call {
    Call { name, effect: Fails, crowded: true, wait }
}

const CALLS: &[Call] = &[
    // Waits in the kernel.
    call("read of a pipe", Fails, |p| (&p.empty).read(&mut [0]).map(drop)),
    call("read_vectored of a pipe", Fails, |p| {
        let (mut a, mut b) = ([0], [0]);
        (&p.empty).read_vectored(&mut [IoSliceMut::new(&mut a), IoSliceMut::new(&mut b)]).map(drop)
    }),
    call("read_exact of a pipe", Fails, |p| (&p.empty).read_exact(&mut [0; 8])),
    call("write into a pipe", Fails, |p| (&p.full).write(&[0]).map(drop)),
    call("write_vectored into a pipe", Fails, |p| {
        (&p.full).write_vectored(&[IoSlice::new(&[0]), IoSlice::new(&[0])]).map(drop)
    }),
    call("write_all into a pipe", Fails, |p| (&p.full).write_all(&[0; 4096])),
    call("ready", Fails, |p| ready(&p.empty, Interest::READABLE).map(drop)),
    call("open of a FIFO to read", Fails, |p| File::open(p.fifo()).map(drop)),
    call("open of a FIFO to write", Fails, |p| {
        OpenOptions::new().write(true).open(p.fifo()).map(drop)
    }),
    // Waits for the limit of ops in flight.
    crowded("read_at", |p| p.file().read_at(&mut [0], 0).map(drop)),
    crowded("read_exact_at", |p| p.file().read_exact_at(&mut [0; 100], 0)),
    crowded("write_at", |p| p.file().write_at(&[0], 0).map(drop)),
    crowded("write_all_at", |p| p.file().write_all_at(&[0; 100], 0)),
    crowded("read_vectored_at", |p| {
        p.file().read_vectored_at(&mut [IoSliceMut::new(&mut [0; 10])], 0).map(drop)
    }),
    crowded("write_vectored_at", |p| {
        p.file().write_vectored_at(&[IoSlice::new(&[0; 10])], 0).map(drop)
    }),
    crowded("read at the cursor", |p| (&p.own).read(&mut [0]).map(drop)),
    crowded("write at the cursor", |p| (&p.own).write(&[0]).map(drop)),
    crowded("sync_all", |p| p.file().sync_all()),
    crowded("sync_data", |p| p.file().sync_data()),
    crowded("set_len", |p| p.file().set_len(1 << 16)),
    crowded("metadata", |p| p.file().metadata().map(drop)),
    crowded("open", |p| File::open(p.disk.path().join("file")).map(drop)),
    crowded("a batch", |p| {
        let (file, mut bytes) = (p.file(), [0; 8]);
        let mut batch = Batch::new();
        for byte in bytes.chunks_mut(1) {
            batch.read(&file, byte, 3);
        }
        let results = batch.submit();
        assert!(results.iter().all(|result| result.is_ok()) || results.iter().all(|r| r.is_err()));
        results.into_iter().try_for_each(|result| result.map(drop))
    }),
    // Waits for the lock of a cursor, whose holder waits for the limit.
    crowded("a cursor's lock", |p| (&p.held).stream_position().map(drop)),
    crowded("a cursor's lock to read", |p| {
        (&p.held).read(&mut AlignedBuf::new(4096)[..]).map(drop)
    }),
    // Waits in the library.
    call("sleep", Unwinds, |p| {
        fiber::sleep(p.sleep);
        Ok(())
    }),
    call("sleep_cancellable", Fails, |p| fiber::sleep_cancellable(p.sleep)),
    call("time::sleep", Fails, |p| time::sleep(p.sleep)),
    call("time::sleep_until", Fails, |p| time::sleep_until(Instant::now() + p.sleep)),
    call("park", Unwinds, |p| {
        p.unpark_on_release();
        fiber::park();
        Ok(())
    }),
    call("park_cancellable", Fails, |p| {
        p.unpark_on_release();
        fiber::park_cancellable()
    }),
    call("park_timeout", Unwinds, |p| {
        p.unpark_on_release();
        fiber::park_timeout(HOUR);
        Ok(())
    }),
    call("park_timeout_cancellable", Fails, |p| {
        p.unpark_on_release();
        fiber::park_timeout_cancellable(HOUR)
    }),
    call("yield_now", Unwinds, |p| {
        while !p.is_released() {
            fiber::yield_now();
        }
        Ok(())
    }),
    call("yield_now_cancellable", Fails, |p| {
        while !p.is_released() {
            fiber::yield_now_cancellable()?;
        }
        Ok(())
    }),
    call("block_on", Unwinds, |p| {
        fiber::block_on(release_of(p));
        Ok(())
    }),
    call("block_on_cancellable", Fails, |p| fiber::block_on_cancellable(release_of(p))),
    call("a child's wait", Fails, |p| {
        let mut head = Command::new("head");
        let mut child =
            head.arg("-c1").stdin(p.empty.try_clone()?).stdout(Stdio::null()).spawn()?;
        let waited = child.wait();
        if waited.is_err() {
            child.kill()?;
            fiber::protect(|| child.wait())?;
        }
        waited.map(drop)
    }),
    call("a child's output", Fails, |p| {
        Command::new("head").arg("-c1").stdin(p.empty.try_clone()?).output().map(drop)
    }),
    call("io::copy from a pipe", Fails, |p| {
        io::copy(&mut (&p.empty).take(1), &mut io::sink()).map(drop)
    }),
    call("join", Unwinds, |p| {
        detached(p).join().unwrap();
        Ok(())
    }),
    call("join_cancellable", Fails, |p| detached(p).join_cancellable().map(Result::unwrap)),
    call("join of a scope further out", Unwinds, |p| {
        in_scope(p, |handle| {
            handle.join().unwrap();
            Ok(())
        })
    }),
    call("join_cancellable of a scope further out", Fails, |p| {
        in_scope(p, |handle| handle.join_cancellable().map(Result::unwrap))
    }),
    call("the end of a scope", Waits, |p| {
        fiber::scope(|s| drop(s.spawn(|| fiber::protect(|| until_released(p)))));
        Ok(())
    }),
    call("the end of a try_scope", Waits, |p| {
        fiber::try_scope(|s| {
            s.spawn(|| {
                fiber::protect(|| until_released(p));
                io::Result::Ok(())
            });
            Ok(())
        })
    }),
    call("unblock", Waits, |p| {
        fiber::unblock(|| {
            while !p.is_released() {
                std::thread::yield_now();
            }
        });
        Ok(())
    }),
    call("BlockIo::submit", Waits, |p| {
        let (file, mut byte) = (p.file(), [0]);
        let mut batch = Batch::new();
        batch.read(&file, &mut byte, 0);
        p.block_io.submit(batch)?.into_iter().try_for_each(|result| result.map(drop))?;
        // The read is short. This wait shows that the call was not cut short.
        fiber::protect(|| until_released(p));
        Ok(())
    }),
];

/// Returns a future that is ready after the release.
fn release_of(fixture: &Fixture) -> impl Future<Output = ()> {
    std::future::poll_fn(|context| {
        context.waker().wake_by_ref();
        if fixture.is_released() { Poll::Ready(()) } else { Poll::Pending }
    })
}

/// Spawns a detached fiber that ends at the release.
fn detached(fixture: &Fixture) -> fiber::JoinHandle<()> {
    let handle = fiber::spawn_local(|| fiber::protect(fiber::park));
    fixture.parked.lock().unwrap().push(handle.thread().clone());
    handle
}

/// Joins a fiber that only the release ends, and whose scope is not cancelled.
fn in_scope(
    fixture: &Fixture,
    join: impl FnOnce(fiber::ScopedJoinHandle<'_, ()>) -> io::Result<()>,
) -> io::Result<()> {
    fiber::scope(|s| {
        let handle = s.spawn_local(|| fiber::protect(|| until_released(fixture)));
        let joined = join_before_release(fixture, || join(handle));
        // The scope waits for the fiber, so it must end.
        fixture.released.store(true, Ordering::SeqCst);
        joined
    })
}

/// Runs `f`, and marks the release when `f` returns or unwinds.
fn join_before_release<T>(fixture: &Fixture, f: impl FnOnce() -> T) -> T {
    struct Release<'a>(&'a Fixture);
    impl Drop for Release<'_> {
        fn drop(&mut self) {
            self.0.released.store(true, Ordering::SeqCst);
        }
    }
    let _release = Release(fixture);
    f()
}

fn until_released(fixture: &Fixture) {
    while !fixture.is_released() {
        fiber::yield_now();
    }
}

/// The outcome of a call.
#[derive(Debug)]
enum End {
    Done,
    Failed(io::Error),
    Unwound,
}

fn end_of(joined: fiber::Result<io::Result<()>>) -> End {
    match joined {
        Ok(Ok(())) => End::Done,
        Ok(Err(error)) => End::Failed(error),
        Err(payload) if payload.is::<cringle::Cancelled>() => End::Unwound,
        Err(payload) => std::panic::resume_unwind(payload),
    }
}

fn assert_effect(call: Call, end: &End) {
    match (call.effect, end) {
        (Fails, End::Failed(error)) => assert_cancelled(error),
        (Unwinds, End::Unwound) | (Waits, End::Done) => {}
        _ => panic!("{}: {end:?}", call.name),
    }
}

/// Returns all calls that a cancel can end here. Before Linux 6.9 a ring cannot set a file's
/// length: a thread does, and a cancel does not reach it.
fn calls() -> impl Iterator<Item = Call> {
    static BY_THREAD: OnceLock<bool> = OnceLock::new();
    let by_thread = *BY_THREAD.get_or_init(|| {
        let driver = Builder::new().workers(1).run(runtime::driver).unwrap();
        matches!(driver, Driver::Uring(features) if !features.has(Feature::Ftruncate))
    });
    CALLS.iter().copied().filter(move |call| !by_thread || call.name != "set_len")
}

/// Releases the fixture when the test ends, even if it fails.
struct Release<'a>(&'a Fixture);

impl Drop for Release<'_> {
    fn drop(&mut self) {
        self.0.release();
    }
}

/// Runs `f` beside fibers that make `call` wait, and ends them afterwards.
fn run_beside(call: Call, fixture: &Fixture, workers: usize, f: impl FnOnce()) {
    println!("{}", call.name);
    let builder = Builder::new().workers(workers);
    let builder = if call.crowded { builder.in_flight_limit(1) } else { builder };
    let run = builder.run(|| {
        fiber::scope(|s| {
            if call.crowded {
                // Each worker has its own limit, and another ready fiber, so that no op is
                // performed inline.
                for worker in 0..workers {
                    spawn_on(worker, s, || fixture.exhaust_limit());
                    spawn_on(worker, s, || until_released(fixture));
                }
                let_others_wait();
                s.spawn_local(|| drop((&fixture.held).read(&mut AlignedBuf::new(4096)[..])));
                let_others_wait();
            }
            let _release = Release(fixture);
            f();
        });
    });
    run.unwrap();
}

#[test]
fn cancel_has_the_listed_effect_on_each_wait() {
    for call in calls() {
        let fixture = Fixture::new(HOUR);
        run_beside(call, &fixture, 1, || {
            fiber::scope(|s| {
                let waits = s.spawn_local(|| (call.wait)(&fixture));
                let_others_wait();
                assert!(!waits.is_finished(), "{} waits", call.name);
                s.cancel();
                if call.effect == Waits {
                    fiber::protect(let_others_wait);
                    assert!(!waits.is_finished(), "{} still waits", call.name);
                    fixture.release();
                }
                assert_effect(call, &end_of(waits.join()));
            });
        });
    }
}

#[test]
fn cancelled_fiber_is_refused_every_wait() {
    for call in calls() {
        let fixture = Fixture::new(HOUR);
        run_beside(call, &fixture, 1, || {
            fiber::scope(|s| {
                s.cancel();
                let waits = s.spawn_local(|| (call.wait)(&fixture));
                if call.effect == Waits {
                    fixture.release();
                }
                assert_effect(call, &end_of(waits.join()));
            });
        });
    }
}

/// The call has not started, starts, or waits already, depending on `turns`.
#[test]
fn cancel_from_another_worker_has_the_same_effect() {
    for call in calls() {
        for turns in [0, 1, 20] {
            let fixture = Fixture::new(HOUR);
            run_beside(call, &fixture, 2, || {
                fiber::scope(|s| {
                    let waits = spawn_on(1, s, || (call.wait)(&fixture));
                    (0..turns).for_each(|_| fiber::yield_now());
                    s.cancel();
                    if call.effect == Waits {
                        fixture.release();
                    }
                    assert_effect(call, &end_of(waits.join()));
                });
            });
        }
    }
}

#[test]
fn deadline_ends_each_wait_and_is_named() {
    const LIMIT: Duration = Duration::from_millis(2);
    for call in calls() {
        let fixture = Fixture::new(HOUR);
        run_beside(call, &fixture, 1, || {
            fiber::scope(|s| {
                let begin = Instant::now();
                if call.effect == Waits {
                    s.spawn_local(|| {
                        time::sleep(2 * LIMIT).unwrap();
                        fixture.release();
                    });
                }
                match time::timeout(LIMIT, || (call.wait)(&fixture)) {
                    Ok(()) => assert_eq!(call.effect, Waits, "{}", call.name),
                    Err(error) => {
                        assert_ne!(call.effect, Waits, "{}", call.name);
                        assert_elapsed(&error, LIMIT);
                    }
                }
                assert!(begin.elapsed() >= LIMIT);
                // After the call the fiber is not cancelled.
                cringle::cancel::check().unwrap();
            });
        });
    }
}

#[test]
fn protected_wait_is_not_cancelled() {
    for call in calls() {
        let fixture = Fixture::new(Duration::from_millis(3));
        run_beside(call, &fixture, 1, || {
            fiber::scope(|s| {
                let waits = s.spawn_local(|| {
                    let waited = fiber::protect(|| (call.wait)(&fixture));
                    assert_cancelled(&cringle::cancel::check().unwrap_err());
                    waited
                });
                fiber::yield_now();
                s.cancel();
                fiber::protect(let_others_wait);
                let _other_end = call.name.contains("FIFO").then(|| fixture.open_fifo());
                if !waits.is_finished() {
                    fixture.release();
                }
                assert!(matches!(end_of(waits.join()), End::Done), "{}", call.name);
            });
        });
    }
}

/// The fiber leaves the lock's queue before it unwinds; otherwise it would be handed the lock.
#[test]
fn unwound_fiber_leaves_the_queue_of_a_cursor() {
    let &call = CALLS.iter().find(|call| call.name == "a cursor's lock").unwrap();
    let fixture = Fixture::new(HOUR);
    run_beside(call, &fixture, 1, || {
        fiber::scope(|s| {
            s.cancel();
            let unwound = s.spawn_local(|| {
                // The number of refusals that a fiber may ignore.
                (0..1000).for_each(|_| drop(cringle::cancel::check().unwrap_err()));
                (call.wait)(&fixture)
            });
            assert!(matches!(end_of(unwound.join()), End::Unwound));
        });
        fiber::scope(|s| {
            let next = s.spawn_local(|| (call.wait)(&fixture));
            let_others_wait();
            assert!(!next.is_finished());
            fixture.release();
            next.join().unwrap().unwrap();
        });
    });
}

/// The file returns a part with each read. Depending on `turns`, the cancel arrives in the first
/// read, between two reads, or after the last.
#[test]
fn exact_read_of_batch_can_be_cancelled_midway() {
    const LEN: usize = 100_000;
    let (mut done, mut in_between) = (0, 0);
    for round in 0..6000usize {
        if round >= 60 && in_between > 0 {
            break;
        }
        let turns = (round % 60).pow(2);
        Builder::new()
            .workers(1)
            .run(|| {
                let file = File::open("/proc/kallsyms").unwrap();
                fiber::scope(|s| {
                    let reads = s.spawn_local(move || {
                        let mut text = vec![0; LEN];
                        let mut batch = Batch::new();
                        batch.read_exact(&file, &mut text, 0);
                        let result = batch.submit().into_iter().next().unwrap();
                        (result, text.iter().take_while(|&&byte| byte != 0).count())
                    });
                    (0..turns).for_each(|_| fiber::yield_now());
                    s.cancel();
                    match reads.join().unwrap() {
                        (Ok(count), filled) => {
                            assert_eq!((count, filled), (LEN, LEN));
                            done += 1;
                        }
                        (Err(error), filled) => {
                            assert_cancelled(&error);
                            assert!(filled < LEN);
                            in_between += u32::from(filled > 0);
                        }
                    }
                });
            })
            .unwrap();
    }
    println!("{done} reads completed, {in_between} were cancelled midway");
    assert!(in_between > 0);
}
