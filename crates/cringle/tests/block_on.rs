//! Futures on fibers, and batches for futures.

mod disk;
mod tools;

use cringle::block::{BlockIo, OwnedBatch};
use cringle::fiber::{self, block_on, block_on_cancellable};
use cringle::fs::File;
use cringle::time;
use std::cell::{Cell, RefCell};
use std::future::{Future, pending, poll_fn, ready};
use std::pin::Pin;
use std::rc::Rc;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};
use std::time::Duration;
use tools::*;

/// A future whose waker, and end, somebody else has in hand.
#[derive(Clone, Default)]
struct ByHand(Arc<Mutex<(bool, Vec<Waker>)>>);

impl ByHand {
    fn end(&self) {
        let mut state = self.0.lock().unwrap();
        state.0 = true;
        let wakers = std::mem::take(&mut state.1);
        drop(state);
        wakers.into_iter().for_each(Waker::wake);
    }

    fn is_polled(&self) -> bool {
        !self.0.lock().unwrap().1.is_empty()
    }
}

impl Future for ByHand {
    type Output = ();

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let mut state = self.0.lock().unwrap();
        state.1.push(context.waker().clone());
        if state.0 { Poll::Ready(()) } else { Poll::Pending }
    }
}

struct SetOnDrop<'a>(&'a Cell<bool>);

impl Drop for SetOnDrop<'_> {
    fn drop(&mut self) {
        self.0.set(true);
    }
}

#[test]
fn only_the_fiber_waits_whoever_wakes_it() {
    on_two_workers(|| {
        let hands: Vec<ByHand> = (0..30).map(|_| ByHand::default()).collect();
        fiber::scope(|s| {
            let waits: Vec<_> = hands
                .iter()
                .enumerate()
                .map(|(n, hand)| spawn_on(n % 2, s, move || block_on(hand.clone())))
                .collect();
            while !hands.iter().all(ByHand::is_polled) {
                fiber::yield_now();
            }
            assert!(waits.iter().all(|wait| !wait.is_finished()));
            for (n, hand) in hands.iter().cloned().enumerate() {
                match n % 3 {
                    0 => hand.end(),
                    1 => drop(spawn_on(1, s, move || hand.end())),
                    _ => drop(std::thread::spawn(move || hand.end())),
                }
            }
            waits.into_iter().for_each(|wait| wait.join().unwrap());
        });
    });
}

#[test]
fn a_thread_waits_where_there_is_no_fiber() {
    let hand = ByHand::default();
    let other = hand.clone();
    std::thread::spawn(move || other.end());
    block_on(hand);
    // The token of the thread's own was not used up by that.
    std::thread::current().unpark();
    let hand = ByHand::default();
    let other = hand.clone();
    std::thread::spawn(move || other.end());
    block_on(hand);
    std::thread::park();
    assert_eq!(block_on_cancellable(ready(7)).unwrap(), 7);
}

#[test]
fn a_future_may_borrow_stay_on_its_worker_and_wait_within() {
    on_one_worker(|| {
        let shared = Rc::new(RefCell::new(Vec::new()));
        let borrowed = &shared;
        let value = block_on(async {
            borrowed.borrow_mut().push(1);
            // Another one, and a wait of the fiber's own, in a poll.
            let inner = block_on(async {
                fiber::sleep(Duration::from_micros(100));
                borrowed.borrow_mut().push(2);
                block_on(ready(40))
            });
            ready(inner + 2).await
        });
        assert_eq!((value, shared.take()), (42, vec![1, 2]));
    });
}

#[test]
fn a_future_that_wakes_itself_lets_the_others_run_and_can_be_cancelled() {
    on_one_worker(|| {
        let seen = Cell::new(0);
        fiber::scope(|s| {
            s.spawn_local(|| {
                for _ in 0..100 {
                    seen.set(seen.get() + 1);
                    fiber::yield_now();
                }
            });
            let spins = || {
                poll_fn(|context| {
                    context.waker().wake_by_ref();
                    if seen.get() == 100 { Poll::Ready(()) } else { Poll::Pending }
                })
            };
            block_on(spins());
            seen.set(101);
            let limit = Duration::from_millis(1);
            let error = time::timeout(limit, || block_on_cancellable(spins())).unwrap_err();
            assert_elapsed(&error, limit);
        });
    });
}

#[test]
fn a_cancel_drops_the_future() {
    on_one_worker(|| {
        let dropped = [const { Cell::new(false) }; 3];
        let waits = |n: usize| {
            let dropped = &dropped;
            async move {
                let _set = SetOnDrop(&dropped[n]);
                pending::<()>().await;
            }
        };
        fiber::scope(|s| {
            let unwinds = s.spawn_local(|| block_on(waits(0)));
            let fails = s.spawn_local(|| block_on_cancellable(waits(1)));
            let_others_wait();
            s.cancel();
            // One that comes late is polled once.
            let late = s.spawn_local(|| block_on_cancellable(waits(2)));
            assert_unwound(unwinds.join());
            assert_cancelled(&fails.join().unwrap().unwrap_err());
            assert_cancelled(&late.join().unwrap().unwrap_err());
            assert!(dropped.iter().all(Cell::get));
            assert_eq!(block_on(ready(7)), 7);
            assert_eq!(block_on_cancellable(ready(7)).unwrap(), 7);
        });
    });
}

#[test]
fn what_is_ready_wins_over_a_cancel() {
    on_one_worker(|| {
        let hand = ByHand::default();
        fiber::scope(|s| {
            let waits = s.spawn_local(|| block_on_cancellable(hand.clone()));
            let_others_wait();
            hand.end();
            s.cancel();
            waits.join().unwrap().unwrap();
        });
    });
}

#[test]
fn the_tokens_of_park_are_left_alone() {
    on_one_worker(|| {
        fiber::current().unpark();
        let hand = ByHand::default();
        fiber::scope(|s| {
            s.spawn_local(|| hand.end());
            block_on(hand.clone());
        });
        // Taken by nobody.
        fiber::park();
    });
}

#[test]
fn a_waker_that_comes_late_is_harmless() {
    let kept = Mutex::new(Vec::new());
    let keeps = || {
        poll_fn(|context| {
            kept.lock().unwrap().push(context.waker().clone());
            Poll::Ready(())
        })
    };
    let wake_all = || kept.lock().unwrap().iter().for_each(Waker::wake_by_ref);
    on_two_workers(|| {
        fiber::spawn_local(|| ());
        fiber::scope(|s| {
            for worker in 0..2 {
                spawn_on(worker, s, || block_on(keeps()));
            }
        });
        // The fibers have gone; others have their places, and wait for something else.
        fiber::scope(|s| {
            let (receiver, mut writer) = pipe();
            let reads = s.spawn_local(move || {
                let mut byte = [0];
                std::io::Read::read_exact(&mut &receiver, &mut byte).map(|()| byte)
            });
            let_others_wait();
            block_on(keeps());
            wake_all();
            let_others_wait();
            assert!(!reads.is_finished());
            std::io::Write::write_all(&mut writer, &[7]).unwrap();
            assert_eq!(reads.join().unwrap().unwrap(), [7]);
        });
    });
    wake_all();
    std::thread::scope(|s| {
        s.spawn(wake_all);
    });
    on_one_worker(wake_all);
}

#[test]
fn a_panic_of_the_future_is_the_callers() {
    on_one_worker(|| {
        let caught = fiber::catch_unwind(|| block_on(async { panic!("(on purpose)") }));
        assert_eq!(message(caught.unwrap_err()), "(on purpose)");
    });
}

fn tokio() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap()
}

#[test]
fn fibers_and_tokios_tasks_wait_for_each_other() {
    let tokio = tokio();
    on_two_workers(|| {
        let (to_tasks, mut from_fibers) = tokio::sync::mpsc::channel(2);
        let summed = tokio.spawn(async move {
            let mut sum = 0;
            while let Some((n, back)) = from_fibers.recv().await {
                sum += n;
                tokio::task::yield_now().await;
                let back: tokio::sync::oneshot::Sender<u64> = back;
                back.send(n * n).unwrap();
            }
            sum
        });
        fiber::scope(|s| {
            for n in 0..100u64 {
                let to_tasks = to_tasks.clone();
                s.spawn(move || {
                    let (back, answer) = tokio::sync::oneshot::channel();
                    block_on(to_tasks.send((n, back))).unwrap();
                    assert_eq!(block_on(answer).unwrap(), n * n);
                });
            }
        });
        drop(to_tasks);
        assert_eq!(block_on(summed).unwrap(), (0..100).sum());
        // What needs tokio's timers runs there.
        let slept = tokio.spawn(async { tokio::time::sleep(Duration::from_millis(2)).await });
        block_on(slept).unwrap();
    });
}

/// To tokio it is a call that blocks: in its place on `spawn_blocking`, and a mistake in a task,
/// though a harmless one here.
#[test]
fn a_run_within_tokio_is_a_call_that_blocks() {
    fn work() -> usize {
        cringle::Builder::new()
            .workers(2)
            .run(|| {
                let handles: Vec<_> = (0..10).map(|n| fiber::spawn(move || n)).collect();
                handles.into_iter().map(|handle| handle.join().unwrap()).sum()
            })
            .unwrap()
    }
    tokio().block_on(async {
        assert_eq!(tokio::task::spawn_blocking(work).await.unwrap(), 45);
        assert_eq!(tokio::spawn(async { tokio::task::block_in_place(work) }).await.unwrap(), 45);
        assert_eq!(tokio::spawn(async { work() }).await.unwrap(), 45);
        assert_eq!(work(), 45);
    });
}

#[test]
fn a_tokio_task_submits_batches_and_may_lose_interest() {
    let directory = disk::directory();
    let path = directory.path().join("file");
    let bytes = disk::pattern(1 << 20);
    std::fs::write(&path, &bytes).unwrap();
    let file = Arc::new(File::open(&path).unwrap());
    let io = Arc::new(BlockIo::builder().batch_limit(8).in_flight_limit(16).build().unwrap());
    tokio().block_on(async {
        let tasks: Vec<_> = (0..50usize)
            .map(|n| {
                let (io, file) = (Arc::clone(&io), Arc::clone(&file));
                tokio::spawn(async move {
                    let mut batch = OwnedBatch::new();
                    for block in 0..20 {
                        batch.read(
                            &file,
                            vec![0; 4096],
                            ((n * 37 + block * 11) % 256 * 4096) as u64,
                        );
                    }
                    let submitted = io.submit_async(batch).unwrap();
                    match n % 2 {
                        0 => Some((n, submitted.await)),
                        // Given up at once; the kernel may be writing to its buffers.
                        _ => tokio::time::timeout(Duration::ZERO, submitted)
                            .await
                            .ok()
                            .map(|r| (n, r)),
                    }
                })
            })
            .collect();
        for (n, task) in tasks.into_iter().enumerate() {
            let Some((n, results)) = task.await.unwrap() else {
                assert_eq!(n % 2, 1);
                continue;
            };
            for (block, (count, buf)) in results.into_iter().enumerate() {
                assert_eq!(count.unwrap(), 4096);
                assert!(buf == bytes[(n * 37 + block * 11) % 256 * 4096..][..4096]);
            }
        }
    });
    io.close().unwrap();
    assert_eq!(Arc::strong_count(&file), 1);
}

#[test]
fn a_fiber_awaits_a_submission() {
    let directory = disk::directory();
    std::fs::write(directory.path().join("file"), b"a rope").unwrap();
    let io = BlockIo::builder().build().unwrap();
    on_one_worker(|| {
        let file = Arc::new(File::open(directory.path().join("file")).unwrap());
        let mut batch = OwnedBatch::new();
        let read = batch.read(&file, vec![0; 4], 2);
        let results = block_on(io.submit_async(batch).unwrap());
        assert_eq!(results.get(read).1, b"rope");
    });
}
