//! `BlockIo`: batches for any thread, and for async programs.

use cringle::block::{AlignedBuf, Batch, BlockIo, OwnedBatch};
use cringle::fiber;
use cringle::fs::File;
use cringle_testing::disk::{directory, pattern, solitary, unwinding};
use proptest::prelude::*;
use std::future::Future;
use std::io::ErrorKind;
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Barrier, mpsc};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::Thread;

/// A minimal executor.
fn block_on<F: Future>(future: F) -> F::Output {
    struct Unpark(Thread);
    impl Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }
    let mut future = pin!(future);
    let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
    let mut context = Context::from_waker(&waker);
    loop {
        match future.as_mut().poll(&mut context) {
            Poll::Ready(output) => return output,
            Poll::Pending => std::thread::park(),
        }
    }
}

/// A file with known contents.
struct Known {
    bytes: Vec<u8>,
    file: Arc<File>,
    _directory: tempfile::TempDir,
}

fn known(len: usize) -> Known {
    let directory = directory();
    let path = directory.path().join("file");
    let bytes = pattern(len);
    std::fs::write(&path, &bytes).unwrap();
    let std = std::fs::File::options().read(true).write(true).open(path).unwrap();
    Known { bytes, file: Arc::new(std.into()), _directory: directory }
}

impl Known {
    /// Reads a number of words at scattered offsets in one batch, and checks them.
    fn read_words(&self, io: &BlockIo, count: usize, seed: usize) -> std::io::Result<()> {
        let mut words = vec![[0; 8]; count];
        let place = |n: usize| (n + seed) * 24_683 % (self.bytes.len() - 8);
        let mut batch = Batch::with_capacity(count);
        for (n, word) in words.iter_mut().enumerate() {
            // The lengths differ, so that a misplaced result is detected.
            batch.read(&self.file, &mut word[..n % 8 + 1], place(n) as u64);
        }
        let results = io.submit(batch)?;
        assert!(results.iter().map(Result::unwrap).eq((0..count).map(|n| n % 8 + 1)));
        for (n, word) in words.iter().enumerate() {
            let len = n % 8 + 1;
            assert_eq!(word[..len], self.bytes[place(n)..][..len]);
        }
        Ok(())
    }

    fn owned_read(&self, count: usize) -> OwnedBatch<Vec<u8>> {
        let mut batch = OwnedBatch::new();
        for n in 0..count {
            batch.read(&self.file, vec![0; 16], n as u64 * 16);
        }
        batch
    }
}

// ----- limits -----

fn is_valid(batch: u32, in_flight: u32) -> bool {
    0 < batch && batch < 1 << 15 && batch <= in_flight && in_flight < 1 << 16
}

fn check_limits(known: &Known, batch: u32, in_flight: u32) {
    let built = BlockIo::builder().batch_limit(batch).in_flight_limit(in_flight).build();
    match built {
        Ok(io) => {
            assert!(is_valid(batch, in_flight), "{batch}, {in_flight} were taken");
            known.read_words(&io, 100, 0).unwrap();
            io.close().unwrap();
        }
        Err(e) => {
            assert!(!is_valid(batch, in_flight), "{batch}, {in_flight} were refused: {e}");
            assert_eq!(e.kind(), ErrorKind::InvalidInput);
            let text = e.to_string();
            // The message names the limit, its value and the valid range.
            let batch_at_fault = batch == 0 || batch >= 1 << 15;
            let (name, value) = if batch_at_fault {
                ("batch_limit is", batch)
            } else {
                ("in_flight_limit is", in_flight)
            };
            assert!(text.contains(&format!("{name} {value}")), "{text}");
            let bound = if batch_at_fault { "less than 32768" } else { "less than 65536" };
            assert!(text.contains(bound), "{text}");
        }
    }
}

fn limit() -> impl Strategy<Value = u32> {
    prop_oneof![
        3 => (0..21u32).prop_map(|power| 1 << power),
        3 => 0..1u32 << 16,
        1 => 0..1u32 << 20,
        1 => any::<u32>(),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 100,
        failure_persistence: None,
        ..Default::default()
    })]

    #[test]
    fn invalid_limits_are_refused_with_an_explanation(batch in limit(), in_flight in limit()) {
        check_limits(&known(1000), batch, in_flight);
    }
}

#[test]
fn limits_are_valid_up_to_their_bounds() {
    let known = known(1000);
    let edges = [0, 1, 2, 32_766, 32_767, 32_768, 65_534, 65_535, 65_536, u32::MAX];
    for batch in edges {
        for in_flight in edges {
            check_limits(&known, batch, in_flight);
        }
    }
    let e = BlockIo::builder().workers(0).build().unwrap_err();
    assert_eq!(e.kind(), ErrorKind::InvalidInput);
}

// ----- batches -----

#[test]
fn batches_of_every_size_complete() {
    let known = known(1 << 20);
    let io = BlockIo::builder().batch_limit(64).in_flight_limit(192).build().unwrap();
    for count in [0, 1, 32, 64, 65, 96, 192, 193, 200, 10_000] {
        known.read_words(&io, count, count).unwrap();
    }
    io.close().unwrap();
}

#[test]
fn every_kind_of_operation_completes() {
    let known = known(1000);
    let io = BlockIo::builder().build().unwrap();
    let mut bufs = [[0; 4]; 2];
    let [a, b] = &mut bufs;
    let mut batch = Batch::new();
    batch.write(&known.file, b"text", 0);
    batch.write_all(&known.file, b"more", 4);
    batch.read_exact(&known.file, a, 996);
    let eof = batch.read_exact(&known.file, b, 997);
    let results = io.submit(batch).unwrap();
    assert_eq!(results.get(eof).unwrap_err().kind(), ErrorKind::UnexpectedEof);
    assert_eq!(results.into_iter().filter(|result| matches!(result, Ok(4))).count(), 3);
    assert_eq!(a, &known.bytes[996..]);
    let mut read = [0; 8];
    let mut batch = Batch::new();
    batch.read(&known.file, &mut read, 0);
    drop(io.submit(batch).unwrap());
    assert_eq!(&read, b"textmore");
}

#[test]
fn many_threads_submit_at_once() {
    let known = known(1 << 20);
    for workers in [1, 2] {
        let io = BlockIo::builder().workers(workers).batch_limit(8).in_flight_limit(16);
        let io = io.build().unwrap();
        std::thread::scope(|threads| {
            for thread in 0..16 {
                let (io, known) = (&io, &known);
                threads.spawn(move || {
                    for round in 0..50 {
                        known.read_words(io, round * 7 % 40, thread * 1000 + round).unwrap();
                    }
                });
            }
        });
    }
}

#[test]
fn fibers_of_another_runtime_can_submit() {
    let known = known(1 << 20);
    let io = BlockIo::builder().workers(2).build().unwrap();
    let submit = || {
        fiber::scope(|s| {
            for n in 0..20 {
                let (io, known) = (&io, &known);
                s.spawn(move || known.read_words(io, 100 + n, n).unwrap());
            }
        });
    };
    cringle::Builder::new().workers(2).run(submit).unwrap();
    // Also in a destructor.
    unwinding(|| known.read_words(&io, 100, 0).unwrap());
}

#[test]
fn submitting_from_a_fiber_suspends_only_the_fiber() {
    let known = known(1 << 16);
    let io = BlockIo::builder().build().unwrap();
    // The only worker is blocked until another fiber has run.
    let (release, released) = mpsc::channel::<()>();
    io.submit_then(known.owned_read(1), move |_| released.recv().unwrap()).unwrap();
    solitary(|| {
        fiber::scope(|s| {
            s.spawn_local(move || release.send(()).unwrap());
            known.read_words(&io, 100, 0).unwrap();
        });
    });
}

#[test]
fn closing_from_a_fiber_suspends_only_the_fiber() {
    let known = known(1000);
    solitary(|| {
        let io = BlockIo::builder().build().unwrap();
        let (release, waits) = (Arc::new(AtomicBool::new(false)), AtomicBool::new(true));
        let gone = Arc::clone(&release);
        io.submit_then(known.owned_read(1), move |_| {
            while !gone.load(Ordering::Relaxed) {
                fiber::yield_now();
            }
        })
        .unwrap();
        fiber::scope(|s| {
            s.spawn_local(|| {
                // Runs while the other fiber waits, and ends the wait.
                assert!(waits.load(Ordering::Relaxed));
                release.store(true, Ordering::Relaxed);
            });
            io.close().unwrap();
            waits.store(false, Ordering::Relaxed);
        });
    });
}

// ----- closing -----

/// A thread that submits is parked, and may consume a token that it had before.
#[test]
fn submitting_thread_keeps_its_unpark_token() {
    let known = known(4096);
    let io = BlockIo::builder().build().unwrap();
    for round in 0..20 {
        std::thread::current().unpark();
        known.read_words(&io, 8, round).unwrap();
        // Without the token, this would not return.
        std::thread::park();
    }
}

#[test]
fn closing_twice_succeeds_and_closed_refuses_batches() {
    let known = known(1000);
    let io = BlockIo::builder().build().unwrap();
    for _ in 0..3 {
        io.close().unwrap();
        let errors = [
            io.submit(Batch::new()).map(drop),
            io.submit_async(known.owned_read(1)).map(drop),
            io.submit_then(known.owned_read(1), |_| panic!("called")),
        ];
        for result in errors {
            let e = result.unwrap_err();
            assert_eq!(e.kind(), ErrorKind::NotConnected);
            assert!(e.to_string().contains("closed"), "{e}");
        }
    }
    // Neither the files nor the buffers are borrowed any more.
    assert_eq!(Arc::strong_count(&known.file), 1);
}

#[test]
fn unused_block_io_closes_at_once() {
    for _ in 0..20 {
        BlockIo::builder().workers(2).build().unwrap().close().unwrap();
        drop(BlockIo::builder().build().unwrap());
    }
}

#[test]
fn concurrent_closers_all_wait() {
    let known = known(1000);
    let io = BlockIo::builder().build().unwrap();
    let (release, finished) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
    let (gone, finish) = (Arc::clone(&release), Arc::clone(&finished));
    io.submit_then(known.owned_read(1), move |_| {
        while !gone.load(Ordering::Relaxed) {
            fiber::yield_now();
        }
        finish.store(true, Ordering::Relaxed);
    })
    .unwrap();
    let barrier = Barrier::new(4);
    std::thread::scope(|threads| {
        for n in 0..4 {
            let (io, release, finished, barrier) = (&io, &release, &finished, &barrier);
            threads.spawn(move || {
                barrier.wait();
                if n == 0 {
                    release.store(true, Ordering::Relaxed);
                }
                io.close().unwrap();
                assert!(finished.load(Ordering::Relaxed), "closed before its batch was through");
            });
        }
    });
}

#[test]
fn racing_submitters_are_served_or_refused() {
    let known = known(1 << 16);
    for round in 0..20 {
        let io = BlockIo::builder().workers(1 + round % 2).batch_limit(4).in_flight_limit(8);
        let io = io.build().unwrap();
        let served = AtomicUsize::new(0);
        std::thread::scope(|threads| {
            for thread in 0..4 {
                let (io, known, served) = (&io, &known, &served);
                threads.spawn(move || {
                    // `read_words` checks that admitted batches are performed.
                    for n in 0.. {
                        match known.read_words(io, 10, thread + n) {
                            Ok(()) => drop(served.fetch_add(1, Ordering::Relaxed)),
                            Err(e) => {
                                assert_eq!(e.kind(), ErrorKind::NotConnected);
                                break;
                            }
                        }
                    }
                    let again = known.read_words(io, 10, thread).unwrap_err();
                    assert_eq!(again.kind(), ErrorKind::NotConnected);
                });
            }
            while served.load(Ordering::Relaxed) < round * 5 {
                std::thread::yield_now();
            }
            io.close().unwrap();
            let at_close = served.load(Ordering::Relaxed);
            assert!(at_close >= round * 5);
        });
    }
}

#[test]
fn drop_waits_for_operations_in_flight() {
    let known = known(1 << 20);
    let (sender, receiver) = mpsc::channel();
    let io = BlockIo::builder().batch_limit(1).in_flight_limit(2).build().unwrap();
    for _ in 0..10 {
        let sender = sender.clone();
        io.submit_then(known.owned_read(1000), move |results| {
            assert!(results.iter().all(|(count, _)| matches!(count, Ok(16))));
            sender.send(()).unwrap();
        })
        .unwrap();
    }
    drop(io);
    assert_eq!(receiver.try_iter().count(), 10);
    assert_eq!(Arc::strong_count(&known.file), 1);
}

// ----- owned batches -----

#[test]
fn futures_complete_on_any_executor() {
    let known = known(1 << 16);
    let io = BlockIo::builder().build().unwrap();
    let submitted: Vec<_> =
        (0..100).map(|n| io.submit_async(known.owned_read(n)).unwrap()).collect();
    block_on(async {
        for (n, future) in submitted.into_iter().enumerate().rev() {
            let results = future.await;
            assert_eq!((results.len(), results.is_empty()), (n, n == 0));
            for (n, (count, buf)) in results.into_iter().enumerate() {
                assert_eq!(count.unwrap(), 16);
                assert_eq!(buf, known.bytes[n * 16..][..16]);
            }
        }
    });
}

#[test]
fn owned_batches_write_and_return_their_buffers() {
    let known = known(1000);
    let io = BlockIo::builder().build().unwrap();
    let mut batch = OwnedBatch::new();
    let written = batch.write(&known.file, AlignedBuf::new(100), 100);
    let read = batch.read(&known.file, AlignedBuf::new(300), 900);
    let results = block_on(io.submit_async(batch).unwrap());
    assert_eq!(results.get(written).0.as_ref().unwrap(), &100);
    let (count, buf) = results.get(read);
    assert_eq!((count.as_ref().unwrap(), buf.len()), (&100, 300));
    assert_eq!(buf[..100], known.bytes[900..]);
    let mut batch = OwnedBatch::new();
    batch.read(&known.file, Box::<[u8]>::from([7; 101]), 99);
    let results = block_on(io.submit_async(batch).unwrap());
    let (_, buf) = (&results).into_iter().next().unwrap();
    assert_eq!(buf[0], known.bytes[99]);
    assert!(buf[1..].iter().all(|&byte| byte == 0));
}

#[test]
fn owned_exact_operations_transfer_all_bytes() {
    let known = known(1000);
    let io = BlockIo::builder().build().unwrap();
    let mut batch = OwnedBatch::with_capacity(4);
    assert!(batch.is_empty());
    let filled = batch.read_exact(&known.file, vec![0; 300], 700);
    let too_long = batch.read_exact(Arc::clone(&known.file), vec![0; 300], 701);
    let short = batch.read(&known.file, vec![0; 300], 701);
    assert_eq!(batch.len(), 3);
    let results = block_on(io.submit_async(batch).unwrap());
    assert_eq!(results.get(filled).0.as_ref().unwrap(), &300);
    assert_eq!(results.get(filled).1, known.bytes[700..]);
    let error = results.get(too_long).0.as_ref().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::UnexpectedEof);
    assert_eq!(results.get(short).0.as_ref().unwrap(), &299);

    // A batch keeps a file that was moved into it open, and writes it whole.
    let directory = directory();
    let path = directory.path().join("whole");
    let mut batch = results.recycle();
    batch.write_all(File::create(&path).unwrap(), vec![7; 3 << 20], 0);
    let mut results = block_on(io.submit_async(batch).unwrap());
    let (count, buf) = results.drain().next().unwrap();
    assert_eq!((count.unwrap(), std::fs::read(&path).unwrap()), (3 << 20, buf));
    assert!(results.is_empty() && results.recycle().is_empty());
}

#[test]
fn dropped_future_loses_only_its_results() {
    let known = known(1 << 16);
    let io = BlockIo::builder().build().unwrap();
    for n in 0..100 {
        let future = io.submit_async(known.owned_read(10)).unwrap();
        match n % 3 {
            0 => drop(future),
            1 => {
                // Dropped after a poll, so its waker is still registered.
                let mut future = pin!(future);
                let _ = future.as_mut().poll(&mut Context::from_waker(Waker::noop()));
            }
            _ => assert_eq!(block_on(future).len(), 10),
        }
    }
    io.close().unwrap();
    assert_eq!(Arc::strong_count(&known.file), 1);
}

#[test]
fn waker_of_the_last_poll_is_woken() {
    #[derive(Default)]
    struct CountingWaker {
        wakes: AtomicUsize,
        sender: std::sync::Mutex<Option<mpsc::Sender<()>>>,
    }
    impl Wake for CountingWaker {
        fn wake(self: Arc<Self>) {
            self.wakes.fetch_add(1, Ordering::Relaxed);
            self.sender.lock().unwrap().as_ref().unwrap().send(()).unwrap();
        }
    }
    let known = known(1000);
    let io = BlockIo::builder().build().unwrap();
    let (release, released) = mpsc::channel::<()>();
    // Blocks the only worker until both wakers are registered.
    io.submit_then(known.owned_read(1), move |_| released.recv().unwrap()).unwrap();
    let mut future = io.submit_async(known.owned_read(1)).unwrap();
    let (sender, receiver) = mpsc::channel();
    let (first, last) = (Arc::new(CountingWaker::default()), Arc::new(CountingWaker::default()));
    for waker in [&first, &last] {
        *waker.sender.lock().unwrap() = Some(sender.clone());
        let waker = Waker::from(Arc::clone(waker));
        let polled = Pin::new(&mut future).poll(&mut Context::from_waker(&waker));
        assert!(polled.is_pending());
    }
    release.send(()).unwrap();
    receiver.recv().unwrap();
    io.close().unwrap();
    let wakes = [&first, &last].map(|waker| waker.wakes.load(Ordering::Relaxed));
    assert_eq!(wakes, [0, 1]);
    // The submission has dropped the first waker.
    assert_eq!(Arc::strong_count(&first), 1);
    let done = Pin::new(&mut future).poll(&mut Context::from_waker(Waker::noop()));
    assert!(done.is_ready());
}

/// A buffer whose `as_mut` panics.
struct Evil;

impl AsMut<[u8]> for Evil {
    fn as_mut(&mut self) -> &mut [u8] {
        panic!("a buffer that cannot be lent (on purpose)")
    }
}

#[test]
fn future_of_a_lost_batch_panics() {
    let known = known(1000);
    let io = BlockIo::builder().build().unwrap();
    let mut batch = OwnedBatch::new();
    batch.read(&known.file, Evil, 0);
    let future = io.submit_async(batch).unwrap();
    let lost = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| block_on(future)));
    let text = *lost.err().unwrap().downcast::<&str>().unwrap();
    assert!(text.contains("lost"), "{text}");
    known.read_words(&io, 10, 0).unwrap();
    io.close().unwrap();
}

// ----- callbacks -----

#[test]
fn callback_runs_on_a_fiber_and_may_submit() {
    let known = Arc::new(known(1 << 16));
    let io = Arc::new(BlockIo::builder().batch_limit(1).in_flight_limit(1).build().unwrap());
    let (sender, receiver) = mpsc::channel();
    let (again, theirs) = (Arc::clone(&io), Arc::clone(&known));
    io.submit_then(known.owned_read(3), move |results| {
        assert_eq!(results.len(), 3);
        assert_eq!(cringle::runtime::worker(), Some(0));
        // Submits both kinds of batches to its own `BlockIo`.
        theirs.read_words(&again, 10, 0).unwrap();
        again
            .submit_then(theirs.owned_read(2), move |results| sender.send(results.len()).unwrap())
            .unwrap();
    })
    .unwrap();
    assert_eq!(receiver.recv().unwrap(), 2);
    io.close().unwrap();
}

#[test]
fn panic_of_a_callback_affects_nothing_else() {
    let known = known(1000);
    let io = BlockIo::builder().build().unwrap();
    for _ in 0..3 {
        io.submit_then(known.owned_read(1), |_| panic!("a callback that panics (on purpose)"))
            .unwrap();
        known.read_words(&io, 10, 0).unwrap();
    }
    io.close().unwrap();
}

#[test]
fn closing_from_a_callback_is_an_error() {
    let known = known(1000);
    let io = Arc::new(BlockIo::builder().workers(2).build().unwrap());
    let (sender, receiver) = mpsc::channel();
    let own = Arc::clone(&io);
    io.submit_then(known.owned_read(1), move |_| {
        sender.send(own.close().unwrap_err()).unwrap();
        // The `BlockIo` is still open.
        own.submit(Batch::new()).unwrap();
        // Another fiber of the same `BlockIo` cannot close it either.
        let e = fiber::spawn_local(move || own.close().unwrap_err()).join().unwrap();
        sender.send(e).unwrap();
    })
    .unwrap();
    for e in receiver {
        assert_eq!(e.kind(), ErrorKind::Deadlock);
        assert!(e.to_string().contains("callback"), "{e}");
    }
    known.read_words(&io, 10, 0).unwrap();
    io.close().unwrap();
}

#[test]
fn dropping_in_a_callback_does_not_hang() {
    let known = known(1000);
    for _ in 0..10 {
        let io = Arc::new(BlockIo::builder().build().unwrap());
        let (release, released) = mpsc::channel::<()>();
        let (sender, receiver) = mpsc::channel();
        let own = Arc::clone(&io);
        io.submit_then(known.owned_read(1), move |_| {
            released.recv().unwrap();
            // The last handle.
            drop(own);
            sender.send(()).unwrap();
        })
        .unwrap();
        drop(io);
        release.send(()).unwrap();
        receiver.recv().unwrap();
    }
}

#[test]
fn threads_share_one_block_io() {
    fn shared<T: Send + Sync + 'static>() {}
    shared::<BlockIo>();
    fn sent<T: Send>() {}
    sent::<OwnedBatch<Vec<u8>>>();
    sent::<cringle::block::Submission<Vec<u8>>>();
    sent::<cringle::block::Results>();
}

/// Each callback runs on its own fiber, with an identity, and with fiber-locals that end with it.
#[test]
fn callback_has_its_own_identity_and_locals() {
    cringle::fiber_local! {
        static SEEN: std::cell::Cell<u32> = const { std::cell::Cell::new(0) };
    }
    let io = cringle::block::BlockIo::builder().build().unwrap();
    let (sender, receiver) = std::sync::mpsc::channel();
    for _ in 0..3 {
        let sender = sender.clone();
        let batch = cringle::block::OwnedBatch::<Vec<u8>>::new();
        io.submit_then(batch, move |_| {
            SEEN.with(|seen| seen.set(seen.get() + 1));
            let _ = cringle::fiber::current().id();
            cringle::fiber::park_timeout(std::time::Duration::from_millis(1));
            sender.send(SEEN.with(std::cell::Cell::get)).unwrap();
        })
        .unwrap();
        assert_eq!(receiver.recv().unwrap(), 1);
    }
    io.close().unwrap();
}

/// The same for calls, of which several wait at once: each is woken by its own handle.
#[test]
fn call_has_its_own_identity_and_locals() {
    cringle::fiber_local! {
        static SEEN: std::cell::Cell<u32> = const { std::cell::Cell::new(0) };
    }
    let io = cringle::block::BlockIo::builder().build().unwrap();
    let (sender, receiver) = std::sync::mpsc::channel();
    let call = |sender: std::sync::mpsc::Sender<_>| {
        io.call(|| {
            SEEN.with(|seen| seen.set(seen.get() + 1));
            sender.send(cringle::fiber::current()).unwrap();
            cringle::fiber::park();
            SEEN.with(std::cell::Cell::get)
        })
    };
    std::thread::scope(|s| {
        let calls: Vec<_> = (0..3)
            .map(|_| {
                let sender = sender.clone();
                s.spawn(move || call(sender))
            })
            .collect();
        let fibers: Vec<_> = receiver.iter().take(3).collect();
        let ids: std::collections::HashSet<_> = fibers.iter().map(|fiber| fiber.id()).collect();
        assert_eq!(ids.len(), 3);
        assert!(fibers.iter().all(|fiber| fiber.name() == Some("cringle-block-call")));
        fibers.iter().for_each(|fiber| fiber.unpark());
        assert!(calls.into_iter().all(|call| call.join().unwrap().unwrap() == 1));
    });
    io.close().unwrap();
}
