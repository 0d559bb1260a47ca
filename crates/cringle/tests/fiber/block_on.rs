//! `fiber::block_on`, tokio beside fibers, and batches as futures.

use cringle::block::{BlockIo, OwnedBatch};
use cringle::fiber::{self, block_on, block_on_cancellable};
use cringle::fs::File;
use cringle::time;
use cringle_testing::disk;
use cringle_testing::tools::*;
use std::cell::{Cell, RefCell};
use std::future::{Future, pending, poll_fn, ready};
use std::pin::Pin;
use std::rc::Rc;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

/// A future that another fiber or thread completes.
#[derive(Clone, Default)]
struct Event(Arc<Mutex<(bool, Vec<Waker>)>>);

impl Event {
    fn complete(&self) {
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

impl Future for Event {
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
fn block_on_suspends_only_its_fiber() {
    on_two_workers(|| {
        let events: Vec<Event> = (0..30).map(|_| Event::default()).collect();
        fiber::scope(|s| {
            let waits: Vec<_> = events
                .iter()
                .enumerate()
                .map(|(n, event)| spawn_on(n % 2, s, move || block_on(event.clone())))
                .collect();
            while !events.iter().all(Event::is_polled) {
                fiber::yield_now();
            }
            assert!(waits.iter().all(|wait| !wait.is_finished()));
            for (n, event) in events.iter().cloned().enumerate() {
                match n % 3 {
                    0 => event.complete(),
                    1 => drop(spawn_on(1, s, move || event.complete())),
                    _ => drop(std::thread::spawn(move || event.complete())),
                }
            }
            waits.into_iter().for_each(|wait| wait.join().unwrap());
        });
    });
}

#[test]
fn block_on_blocks_a_thread_outside_of_run() {
    let event = Event::default();
    let other = event.clone();
    std::thread::spawn(move || other.complete());
    block_on(event);
    // `block_on` does not consume the thread's park token.
    std::thread::current().unpark();
    let event = Event::default();
    let other = event.clone();
    std::thread::spawn(move || other.complete());
    block_on(event);
    std::thread::park();
    assert_eq!(block_on_cancellable(ready(7)).unwrap(), 7);
}

#[test]
fn future_can_borrow_and_wait() {
    on_one_worker(|| {
        let shared = Rc::new(RefCell::new(Vec::new()));
        let borrowed = &shared;
        let value = block_on(async {
            borrowed.borrow_mut().push(1);
            // A poll can wait, and call `block_on`.
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
fn future_that_wakes_itself_lets_others_run() {
    on_one_worker(|| {
        let turns = Cell::new(0);
        fiber::scope(|s| {
            s.spawn_local(|| {
                for _ in 0..100 {
                    turns.set(turns.get() + 1);
                    fiber::yield_now();
                }
            });
            let spins = || {
                poll_fn(|context| {
                    context.waker().wake_by_ref();
                    if turns.get() == 100 { Poll::Ready(()) } else { Poll::Pending }
                })
            };
            block_on(spins());
            turns.set(101);
            let limit = Duration::from_millis(1);
            let error = time::timeout(limit, || block_on_cancellable(spins())).unwrap_err();
            assert_elapsed(&error, limit);
        });
    });
}

#[test]
fn cancel_drops_the_future() {
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
            // A future on a cancelled fiber is polled once.
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
fn completed_future_wins_over_a_cancel() {
    on_one_worker(|| {
        let event = Event::default();
        fiber::scope(|s| {
            let waits = s.spawn_local(|| block_on_cancellable(event.clone()));
            let_others_wait();
            event.complete();
            s.cancel();
            waits.join().unwrap().unwrap();
        });
    });
}

#[test]
fn block_on_keeps_the_park_token() {
    on_one_worker(|| {
        fiber::current().unpark();
        let event = Event::default();
        fiber::scope(|s| {
            s.spawn_local(|| event.complete());
            block_on(event.clone());
        });
        // The token is still available.
        fiber::park();
    });
}

#[test]
fn late_wake_does_nothing() {
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
        // The fibers have ended. Others reuse their slots, and wait for something else.
        fiber::scope(|s| {
            let (reader, mut writer) = pipe();
            let reads = s.spawn_local(move || {
                let mut byte = [0];
                std::io::Read::read_exact(&mut &reader, &mut byte).map(|()| byte)
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
fn panic_of_the_future_reaches_the_caller() {
    on_one_worker(|| {
        let caught = fiber::catch_unwind(|| block_on(async { panic!("(on purpose)") }));
        assert_eq!(message(caught.unwrap_err()), "(on purpose)");
    });
}

fn tokio() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap()
}

#[test]
fn fibers_and_tokio_tasks_wait_for_each_other() {
    let tokio = tokio();
    on_two_workers(|| {
        let (to_tasks, mut from_fibers) = tokio::sync::mpsc::channel(2);
        let summed = tokio.spawn(async move {
            let mut sum = 0;
            while let Some((n, reply)) = from_fibers.recv().await {
                sum += n;
                tokio::task::yield_now().await;
                let reply: tokio::sync::oneshot::Sender<u64> = reply;
                reply.send(n * n).unwrap();
            }
            sum
        });
        fiber::scope(|s| {
            for n in 0..100u64 {
                let to_tasks = to_tasks.clone();
                s.spawn(move || {
                    let (reply, replied) = tokio::sync::oneshot::channel();
                    block_on(to_tasks.send((n, reply))).unwrap();
                    assert_eq!(block_on(replied).unwrap(), n * n);
                });
            }
        });
        drop(to_tasks);
        assert_eq!(block_on(summed).unwrap(), (0..100).sum());
        // A future that needs tokio's timers runs on tokio.
        let slept = tokio.spawn(async { tokio::time::sleep(Duration::from_millis(2)).await });
        block_on(slept).unwrap();
    });
}

/// `run` blocks its thread, so it belongs on `spawn_blocking`. It works in a task, too, where it
/// holds up the executor.
#[test]
fn run_works_on_threads_of_tokio() {
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
fn tokio_task_can_drop_a_submitted_batch() {
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
                    if n % 2 == 0 {
                        return Some((n, submitted.await));
                    }
                    // Dropped at once, while the kernel may write to its buffers.
                    let results = tokio::time::timeout(Duration::ZERO, submitted).await;
                    results.ok().map(|results| (n, results))
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
fn fiber_can_await_a_submission() {
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

#[test]
fn tokio_needs_its_runtime_as_documented() {
    let tokio = tokio();
    let nap = Duration::from_millis(1);
    on_one_worker(|| {
        let payload = fiber::catch_unwind(|| block_on(async { tokio::time::sleep(nap).await }));
        let text = *payload.unwrap_err().downcast::<String>().unwrap();
        // The book quotes it.
        assert!(text.contains("there is no reactor running, must be called from"), "{text}");
        assert!(fiber::catch_unwind(|| tokio.spawn(tokio::time::sleep(nap))).is_err());
        block_on(tokio.spawn(async move { tokio::time::sleep(nap).await })).unwrap();
    });
}
