//! Models of the mutex, in every interleaving that the memory model allows. The kernel is replaced
//! by a queue of loom's.

use super::futex::Word;
use super::mutex::{acquire, release};
use loom::cell::UnsafeCell;
use loom::sync::atomic::AtomicU32;
use loom::sync::{Arc, Condvar, Mutex};
use loom::thread;
use std::sync::atomic::Ordering;

/// A futex: the kernel compares the word and queues the thread in one step.
struct Model {
    word: AtomicU32,
    waiting: Mutex<u32>,
    woken: Condvar,
}

impl Model {
    fn new() -> Model {
        Model { word: AtomicU32::new(0), waiting: Mutex::new(0), woken: Condvar::new() }
    }
}

impl Word for Model {
    const SPINS: u32 = 0;

    fn load(&self) -> u32 {
        self.word.load(Ordering::Relaxed)
    }

    fn change(&self, old: u32, new: u32) -> bool {
        self.word.compare_exchange(old, new, Ordering::Acquire, Ordering::Relaxed).is_ok()
    }

    fn swap(&self, new: u32, order: Ordering) -> u32 {
        self.word.swap(new, order)
    }

    fn wait(&self, value: u32) {
        let mut waiting = self.waiting.lock().unwrap();
        // The kernel reads the latest value, as a read-modify-write does.
        if self.word.fetch_add(0, Ordering::Relaxed) == value {
            *waiting += 1;
            drop(self.woken.wait(waiting).unwrap());
        }
    }

    fn wake_one(&self) {
        let mut waiting = self.waiting.lock().unwrap();
        if *waiting > 0 {
            *waiting -= 1;
            self.woken.notify_one();
        }
    }
}

/// Each of the threads increments a counter that only the lock guards. A lost wake-up is a
/// deadlock.
fn threads_exclude_each_other(threads: usize, preemptions: Option<usize>) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = preemptions;
    builder.check(move || {
        let shared = Arc::new((Model::new(), UnsafeCell::new(0)));
        let increment = |shared: &(Model, UnsafeCell<usize>)| {
            acquire(&shared.0);
            // SAFETY: I14. The lock is held, which is what loom checks.
            shared.1.with_mut(|value| unsafe { *value += 1 });
            release(&shared.0);
        };
        let others: Vec<_> = (1..threads)
            .map(|_| {
                let shared = Arc::clone(&shared);
                thread::spawn(move || increment(&shared))
            })
            .collect();
        increment(&shared);
        for other in others {
            other.join().unwrap();
        }
        // SAFETY: I14. The other threads have ended.
        shared.1.with(|value| assert_eq!(unsafe { *value }, threads));
    });
}

#[test]
fn loom_two_threads_exclude_each_other() {
    threads_exclude_each_other(2, None);
}

#[test]
fn loom_three_threads_exclude_each_other() {
    threads_exclude_each_other(3, Some(3));
}
