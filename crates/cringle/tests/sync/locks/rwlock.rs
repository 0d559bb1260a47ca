//! `RwLock`.

use super::everywhere;
use cringle::fiber;
use cringle::sync::RwLock;
use cringle_testing::tools::{on_one_worker, yield_times};
use std::cell::RefCell;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::rc::Rc;

#[test]
fn readers_share_and_writers_exclude() {
    let lock = RwLock::new(5);
    let (first, second) = (lock.read().unwrap(), lock.read().unwrap());
    assert_eq!(*first + *second, 10);
    assert!(lock.try_write().is_err());
    drop((first, second));
    let mut writes = lock.try_write().unwrap();
    *writes = 6;
    assert!(lock.try_read().is_err());
    let reads = cringle::sync::RwLockWriteGuard::downgrade(writes);
    assert_eq!((*reads, *lock.try_read().unwrap()), (6, 6));
    assert!(lock.try_write().is_err());
    drop(reads);
    assert_eq!(format!("{lock:?}"), "RwLock { data: 6, poisoned: false, .. }");
    assert_eq!(lock.into_inner().unwrap(), 6);
}

#[test]
fn rwlock_serves_waiters_in_order() {
    on_one_worker(|| {
        let lock = Rc::new(RwLock::new(()));
        let order = Rc::new(RefCell::new(Vec::new()));
        let reads = lock.read().unwrap();
        for (n, writes) in [(0, true), (1, false), (2, false), (3, true), (4, false)] {
            let (lock, order) = (Rc::clone(&lock), Rc::clone(&order));
            fiber::spawn_local(move || {
                let (_write, _read);
                if writes {
                    _write = lock.write().unwrap();
                } else {
                    _read = lock.read().unwrap();
                }
                order.borrow_mut().push(n);
                fiber::yield_now();
            });
        }
        yield_times(2);
        // A new reader would queue behind the waiting writer.
        assert!(lock.try_read().is_err());
        assert!(order.borrow().is_empty());
        drop(reads);
        drop(lock.write().unwrap());
        assert_eq!(*order.borrow(), [0, 1, 2, 3, 4]);
    });
}

#[test]
fn panic_of_reader_poisons_nothing() {
    let lock = RwLock::new(1);
    let reads = || {
        let _guard = lock.read().unwrap();
        resume_unwind(Box::new(1));
    };
    assert!(catch_unwind(AssertUnwindSafe(reads)).is_err());
    assert!(!lock.is_poisoned());
}

#[test]
fn readers_never_see_a_half_written_value() {
    let lock = RwLock::new((0, 0));
    everywhere(|| {
        for n in 0..300 {
            if n % 3 == 0 {
                let mut both = lock.write().unwrap();
                both.0 += 1;
                fiber::yield_now();
                both.1 += 1;
            } else {
                let both = lock.read().unwrap();
                assert_eq!(both.0, both.1);
            }
        }
    });
    assert_eq!(lock.into_inner().unwrap(), (800, 800));
}
