//! The calls that wait, and the effect of a cancel on each.

use super::HOUR;
use super::fixture::Fixture;
use cringle::block::{AlignedBuf, Batch};
use cringle::fs::{File, OpenOptions};
use cringle::io::{self, Interest, ready};
use cringle::process::{Command, Stdio};
use cringle::runtime::{self, Driver, Feature};
use cringle::{Builder, fiber, time};
use std::io::{IoSlice, IoSliceMut, Read, Seek, Write};
use std::os::unix::fs::FileExt;
use std::sync::OnceLock;
use std::sync::atomic::Ordering;
use std::task::Poll;
use std::time::Instant;

/// The effect of a cancel on a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Effect {
    /// The call returns an error.
    Fails,
    /// The call unwinds.
    Unwinds,
    /// The call waits to its end.
    Waits,
}
use Effect::{Fails, Unwinds, Waits};

/// A call, and the surroundings that make it wait.
#[derive(Clone, Copy)]
pub(crate) struct Call {
    pub(crate) name: &'static str,
    pub(crate) effect: Effect,
    /// No other op may be in flight: the call waits for the limit.
    pub(crate) crowded: bool,
    pub(crate) wait: fn(&Fixture) -> io::Result<()>,
}

const fn call(name: &'static str, effect: Effect, wait: fn(&Fixture) -> io::Result<()>) -> Call {
    Call { name, effect, crowded: false, wait }
}

/// A call that waits until another op may be in flight.
const fn crowded(name: &'static str, wait: fn(&Fixture) -> io::Result<()>) -> Call {
    Call { name, effect: Fails, crowded: true, wait }
}

pub(crate) const CALLS: &[Call] = &[
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
    // A read that the page cache answers is no op.
    crowded("read at the cursor", |p| (&p.direct).read(&mut AlignedBuf::new(4096)[..]).map(drop)),
    crowded("write at the cursor", |p| (&p.own).write(&[0]).map(drop)),
    crowded("sync_all", |p| p.file().sync_all()),
    crowded("sync_data", |p| p.file().sync_data()),
    crowded("set_len", |p| p.file().set_len(1 << 16)),
    crowded("metadata", |p| p.file().metadata().map(drop)),
    // An open that creates no file is no op, if the kernel has its path in memory.
    crowded("open", |p| {
        let mut options = OpenOptions::new();
        let options = options.write(true).create(true).truncate(false);
        options.open(p.disk.path().join("file")).map(drop)
    }),
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
pub(crate) fn release_of(fixture: &Fixture) -> impl Future<Output = ()> {
    std::future::poll_fn(|context| {
        context.waker().wake_by_ref();
        if fixture.is_released() { Poll::Ready(()) } else { Poll::Pending }
    })
}

/// Spawns a detached fiber that ends at the release.
pub(crate) fn detached(fixture: &Fixture) -> fiber::JoinHandle<()> {
    let handle = fiber::spawn_local(|| fiber::protect(fiber::park));
    fixture.parked.lock().unwrap().push(handle.thread().clone());
    handle
}

/// Joins a fiber that only the release ends, and whose scope is not cancelled.
pub(crate) fn in_scope(
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
pub(crate) fn join_before_release<T>(fixture: &Fixture, f: impl FnOnce() -> T) -> T {
    struct Release<'a>(&'a Fixture);
    impl Drop for Release<'_> {
        fn drop(&mut self) {
            self.0.released.store(true, Ordering::SeqCst);
        }
    }
    let _release = Release(fixture);
    f()
}

pub(crate) fn until_released(fixture: &Fixture) {
    while !fixture.is_released() {
        fiber::yield_now();
    }
}

/// Returns all calls that a cancel can end here. Before Linux 6.9 a ring cannot set a file's
/// length: a thread does, and a cancel does not reach it.
pub(crate) fn calls() -> impl Iterator<Item = Call> {
    static BY_THREAD: OnceLock<bool> = OnceLock::new();
    let by_thread = *BY_THREAD.get_or_init(|| {
        let driver = Builder::new().workers(1).run(runtime::driver).unwrap();
        matches!(driver, Driver::Uring(features) if !features.has(Feature::Ftruncate))
    });
    CALLS.iter().copied().filter(move |call| !by_thread || call.name != "set_len")
}
