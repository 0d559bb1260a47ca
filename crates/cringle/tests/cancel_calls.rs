//! Every call of the library that waits, and what a cancel does to it: while it waits, before it
//! begins, by a deadline, from another worker, and in a protected call.

mod disk;
mod tools;

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
use tools::*;

const HOUR: Duration = Duration::from_secs(3600);

/// What a cancelled fiber's call does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Manner {
    /// It returns an error.
    Fails,
    /// It unwinds.
    Unwinds,
    /// It waits to its end.
    Waits,
}
use Manner::{Fails, Unwinds, Waits};

/// What there is to wait for, and how to have it end.
struct Place {
    /// Nothing is in it until the release.
    empty: File,
    into_empty: File,
    /// Full until the release.
    full: File,
    out_of_full: File,
    /// The only operation that may be in flight is a read of this: an event counter, from which
    /// each read takes one. It is a registered file, whose reads have an offset. (One without waits
    /// for a peer, and takes no place.)
    blocker: File,
    /// Its cursor is held by somebody who waits for room.
    held: File,
    /// Opened by the library, which knows all who use its cursor.
    own: File,
    disk: tempfile::TempDir,
    sleep: Duration,
    released: AtomicBool,
    let_go: AtomicBool,
    parked: Mutex<Vec<fiber::Thread>>,
    block_io: BlockIo,
}

impl Place {
    fn new(sleep: Duration) -> Place {
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
        let (released, let_go) = (AtomicBool::new(false), AtomicBool::new(false));
        let parked = Mutex::default();
        Place {
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
            let_go,
            parked,
            block_io,
        }
    }

    fn file(&self) -> File {
        let path = self.disk.path().join("file");
        std::fs::File::options().read(true).write(true).open(path).unwrap().into()
    }

    /// Takes the one place among the operations in flight, until the release.
    fn take_room(&self) {
        let counter = FixedFile::register(&self.blocker).unwrap();
        let mut bufs = FixedBufs::new(1, 8).unwrap();
        let mut batch = Batch::new();
        let read = batch.read_fixed(&counter, &mut bufs[0], 0);
        assert_eq!(batch.submit().get(read).unwrap(), 8);
    }

    /// Ends whatever waits, from a thread or fiber that does not.
    fn release(&self) {
        self.released.store(true, Ordering::SeqCst);
        if self.let_go.swap(true, Ordering::SeqCst) {
            return;
        }
        // Plain calls: there is room for what they write, and something to read.
        plain(&self.into_empty).write_all(&[7; 8]).unwrap();
        plain(&self.blocker).write_all(&7u64.to_ne_bytes()).unwrap();
        assert!(plain(&self.out_of_full).read(&mut vec![0; 1 << 16]).unwrap() > 0);
        self.parked.lock().unwrap().iter().for_each(fiber::Thread::unpark);
    }

    /// Both ends of the FIFO for those who wait for the other, as long as the value lives.
    fn open_fifo(&self) -> std::fs::File {
        std::fs::File::options().read(true).write(true).open(self.fifo()).unwrap()
    }

    fn fifo(&self) -> std::path::PathBuf {
        self.disk.path().join("fifo")
    }

    fn is_released(&self) -> bool {
        self.released.load(Ordering::SeqCst)
    }

    /// For one who parks: has the release unpark it.
    fn will_park(&self) {
        self.parked.lock().unwrap().push(fiber::current());
    }
}

/// The same file with std's calls.
fn plain(file: &File) -> std::fs::File {
    file.as_fd().try_clone_to_owned().unwrap().into()
}

/// An event counter that gives one to each who reads it.
fn counter() -> File {
    // SAFETY: no pointers; the descriptor is new.
    unsafe {
        let fd = libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_SEMAPHORE);
        assert!(fd >= 0);
        OwnedFd::from_raw_fd(fd).into()
    }
}

fn fill(pipe: &File) {
    let fd = pipe.as_raw_fd();
    // SAFETY: no pointers but that of a buffer that lives for the call.
    unsafe {
        let flags = libc::fcntl(fd, libc::F_GETFL);
        libc::fcntl(fd, libc::F_SETFL, flags | libc::O_NONBLOCK);
        while libc::write(fd, [0u8; 4096].as_ptr().cast(), 4096) > 0 {}
        libc::fcntl(fd, libc::F_SETFL, flags);
    }
}

/// A call, and what there must be around it.
#[derive(Clone, Copy)]
struct Call {
    name: &'static str,
    manner: Manner,
    /// It is made where the only place among the operations in flight is taken.
    crowded: bool,
    wait: fn(&Place) -> io::Result<()>,
}

const fn call(name: &'static str, manner: Manner, wait: fn(&Place) -> io::Result<()>) -> Call {
    Call { name, manner, crowded: false, wait }
}

/// One that waits for room among the operations in flight.
const fn crowded(name: &'static str, wait: fn(&Place) -> io::Result<()>) -> Call {
    Call { name, manner: Fails, crowded: true, wait }
}

const CALLS: &[Call] = &[
    // The kernel's.
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
    // Room for an operation.
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
    // A lock: of a cursor, which somebody holds who waits for room.
    crowded("a cursor's lock", |p| (&p.held).stream_position().map(drop)),
    crowded("a cursor's lock to read", |p| {
        (&p.held).read(&mut AlignedBuf::new(4096)[..]).map(drop)
    }),
    // The library's own.
    call("sleep", Unwinds, |p| {
        fiber::sleep(p.sleep);
        Ok(())
    }),
    call("sleep_cancellable", Fails, |p| fiber::sleep_cancellable(p.sleep)),
    call("time::sleep", Fails, |p| time::sleep(p.sleep)),
    call("time::sleep_until", Fails, |p| time::sleep_until(Instant::now() + p.sleep)),
    call("park", Unwinds, |p| {
        p.will_park();
        fiber::park();
        Ok(())
    }),
    call("park_cancellable", Fails, |p| {
        p.will_park();
        fiber::park_cancellable()
    }),
    call("park_timeout", Unwinds, |p| {
        p.will_park();
        fiber::park_timeout(HOUR);
        Ok(())
    }),
    call("park_timeout_cancellable", Fails, |p| {
        p.will_park();
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
        // It does not last; so that it can be told from one that was given up.
        fiber::protect(|| until_released(p));
        Ok(())
    }),
];

/// A future that looks for the release.
fn release_of(place: &Place) -> impl Future<Output = ()> {
    std::future::poll_fn(|context| {
        context.waker().wake_by_ref();
        if place.is_released() { Poll::Ready(()) } else { Poll::Pending }
    })
}

/// A detached fiber that ends by the release.
fn detached(place: &Place) -> fiber::JoinHandle<()> {
    let handle = fiber::spawn_local(|| fiber::protect(fiber::park));
    place.parked.lock().unwrap().push(handle.thread().clone());
    handle
}

/// Has one wait for a fiber that ends by the release alone, in a scope that is not cancelled
/// itself.
fn in_scope(
    place: &Place,
    join: impl FnOnce(fiber::ScopedJoinHandle<'_, ()>) -> io::Result<()>,
) -> io::Result<()> {
    fiber::scope(|s| {
        let handle = s.spawn_local(|| fiber::protect(|| until_released(place)));
        let joined = join_before_release(place, || join(handle));
        // The scope waits for the fiber: nothing else is to be seen of it.
        place.released.store(true, Ordering::SeqCst);
        joined
    })
}

/// Runs `f`; what waits by [`until_released`] is let go also when it unwinds.
fn join_before_release<T>(place: &Place, f: impl FnOnce() -> T) -> T {
    struct Release<'a>(&'a Place);
    impl Drop for Release<'_> {
        fn drop(&mut self) {
            self.0.released.store(true, Ordering::SeqCst);
        }
    }
    let _release = Release(place);
    f()
}

fn until_released(place: &Place) {
    while !place.is_released() {
        fiber::yield_now();
    }
}

/// How a call ended.
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

fn assert_cancel_of(call: Call, end: &End) {
    match (call.manner, end) {
        (Fails, End::Failed(error)) => assert_cancelled(error),
        (Unwinds, End::Unwound) | (Waits, End::Done) => {}
        _ => panic!("{}: {end:?}", call.name),
    }
}

/// All of them. Before Linux 6.9 a ring cannot set a file's length: a thread does, which nothing
/// disturbs.
fn calls() -> impl Iterator<Item = Call> {
    static BY_THREAD: OnceLock<bool> = OnceLock::new();
    let by_thread = *BY_THREAD.get_or_init(|| {
        let driver = Builder::new().workers(1).run(runtime::driver).unwrap();
        matches!(driver, Driver::Uring(features) if !features.has(Feature::Ftruncate))
    });
    CALLS.iter().copied().filter(move |call| !by_thread || call.name != "set_len")
}

/// Those who keep a place as it should be are let go by a test that fails, too.
struct Release<'a>(&'a Place);

impl Drop for Release<'_> {
    fn drop(&mut self) {
        self.0.release();
    }
}

/// Runs `f` at the place, beside those who keep it as it should be, and ends them.
fn at(call: Call, place: &Place, workers: usize, f: impl FnOnce()) {
    println!("{}", call.name);
    let builder = Builder::new().workers(workers);
    let builder = if call.crowded { builder.in_flight_limit(1) } else { builder };
    let run = builder.run(|| {
        fiber::scope(|s| {
            if call.crowded {
                // On each worker, so that each is crowded; and somebody is always ready, so that
                // nothing is done inline.
                for worker in 0..workers {
                    spawn_on(worker, s, || place.take_room());
                    spawn_on(worker, s, || until_released(place));
                }
                let_others_wait();
                s.spawn_local(|| drop((&place.held).read(&mut AlignedBuf::new(4096)[..])));
                let_others_wait();
            }
            let _release = Release(place);
            f();
        });
    });
    run.unwrap();
}

#[test]
fn a_cancel_ends_each_wait_in_its_manner() {
    for call in calls() {
        let place = Place::new(HOUR);
        at(call, &place, 1, || {
            fiber::scope(|s| {
                let waits = s.spawn_local(|| (call.wait)(&place));
                let_others_wait();
                assert!(!waits.is_finished(), "{} waits", call.name);
                s.cancel();
                if call.manner == Waits {
                    fiber::protect(let_others_wait);
                    assert!(!waits.is_finished(), "{} waits on", call.name);
                    place.release();
                }
                assert_cancel_of(call, &end_of(waits.join()));
            });
        });
    }
}

#[test]
fn a_cancelled_fiber_is_refused_each_wait_at_once() {
    for call in calls() {
        let place = Place::new(HOUR);
        at(call, &place, 1, || {
            fiber::scope(|s| {
                s.cancel();
                let waits = s.spawn_local(|| (call.wait)(&place));
                if call.manner == Waits {
                    place.release();
                }
                assert_cancel_of(call, &end_of(waits.join()));
            });
        });
    }
}

/// Whether it waits already, or has not begun: it ends in its manner.
#[test]
fn a_cancel_from_another_worker_ends_each_wait_in_its_manner() {
    for call in calls() {
        for turns in [0, 1, 20] {
            let place = Place::new(HOUR);
            at(call, &place, 2, || {
                fiber::scope(|s| {
                    let waits = spawn_on(1, s, || (call.wait)(&place));
                    (0..turns).for_each(|_| fiber::yield_now());
                    s.cancel();
                    if call.manner == Waits {
                        place.release();
                    }
                    assert_cancel_of(call, &end_of(waits.join()));
                });
            });
        }
    }
}

#[test]
fn a_deadline_ends_each_wait_and_names_itself() {
    const LIMIT: Duration = Duration::from_millis(2);
    for call in calls() {
        let place = Place::new(HOUR);
        at(call, &place, 1, || {
            fiber::scope(|s| {
                let begin = Instant::now();
                if call.manner == Waits {
                    s.spawn_local(|| {
                        time::sleep(2 * LIMIT).unwrap();
                        place.release();
                    });
                }
                match time::timeout(LIMIT, || (call.wait)(&place)) {
                    Ok(()) => assert_eq!(call.manner, Waits, "{}", call.name),
                    Err(error) => {
                        assert_ne!(call.manner, Waits, "{}", call.name);
                        assert_elapsed(&error, LIMIT);
                    }
                }
                assert!(begin.elapsed() >= LIMIT);
                // It is over with the call that it was for.
                cringle::cancel::check().unwrap();
            });
        });
    }
}

#[test]
fn nothing_ends_a_wait_in_a_protected_call_but_its_own_end() {
    for call in calls() {
        let place = Place::new(Duration::from_millis(3));
        at(call, &place, 1, || {
            fiber::scope(|s| {
                let waits = s.spawn_local(|| {
                    let waited = fiber::protect(|| (call.wait)(&place));
                    assert_cancelled(&cringle::cancel::check().unwrap_err());
                    waited
                });
                fiber::yield_now();
                s.cancel();
                fiber::protect(let_others_wait);
                let _other_end = call.name.contains("FIFO").then(|| place.open_fifo());
                if !waits.is_finished() {
                    place.release();
                }
                assert!(matches!(end_of(waits.join()), End::Done), "{}", call.name);
            });
        });
    }
}

/// Its place in the queue is given up before it unwinds: else the lock would be handed to nobody.
#[test]
fn a_fiber_that_is_unwound_in_line_for_a_cursor_leaves_no_ghost_there() {
    let &call = CALLS.iter().find(|call| call.name == "a cursor's lock").unwrap();
    let place = Place::new(HOUR);
    at(call, &place, 1, || {
        fiber::scope(|s| {
            s.cancel();
            let unwound = s.spawn_local(|| {
                // As many refusals as a fiber may ignore.
                (0..1000).for_each(|_| drop(cringle::cancel::check().unwrap_err()));
                (call.wait)(&place)
            });
            assert!(matches!(end_of(unwound.join()), End::Unwound));
        });
        fiber::scope(|s| {
            let next = s.spawn_local(|| (call.wait)(&place));
            let_others_wait();
            assert!(!next.is_finished());
            place.release();
            next.join().unwrap().unwrap();
        });
    });
}

/// The file gives a part at a time: whether the cancel comes in the first, between two, or after
/// the last.
#[test]
fn an_exact_operation_of_a_batch_may_be_cancelled_between_two_parts() {
    const LEN: usize = 100_000;
    let (mut done, mut in_between) = (0, 0);
    for turns in (0..60).map(|n| n * n) {
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
    println!("{done} were done, {in_between} cancelled between two parts");
    assert!(in_between > 0);
}
