//! Many fibers one after another leave nothing behind.

use super::on_workers;
use cringle::fiber;
use cringle_testing::child;
use std::cell::RefCell;

thread_local! {
    static TEXTS: RefCell<Vec<String>> = const { RefCell::new(Vec::new()) };
}

/// Allocates in several sizes, keeps a value in a thread-local with a destructor, and sets one for
/// a key.
fn work(key: libc::pthread_key_t) {
    TEXTS.with_borrow_mut(|texts| texts.extend((1..8).map(|n| "x".repeat(n * 97))));
    drop(std::hint::black_box(vec![0u8; 3000]));
    fiber::yield_now();
    // SAFETY: the key exists, and its destructor frees what `malloc` returns.
    assert_eq!(unsafe { libc::pthread_setspecific(key, libc::malloc(40)) }, 0);
}

#[test]
fn fibers_with_allocations_and_thread_locals() {
    unsafe extern "C" fn free(value: *mut libc::c_void) {
        // SAFETY: the value is a block of `malloc`'s.
        unsafe { libc::free(value) };
    }
    child::must_succeed("fibers_with_allocations_and_thread_locals", || {
        let (warm_up, counted) = (10_000, child::scaled(20_000, 1_000_000));
        on_workers(1, || {
            let mut key = 0;
            // SAFETY: the key is written to, and the destructor is a function.
            assert_eq!(unsafe { libc::pthread_key_create(&mut key, Some(free)) }, 0);
            let run = |count: usize| {
                for _ in 0..count / 100 {
                    fiber::scope(|s| (0..100).for_each(|_| drop(s.spawn(|| work(key)))));
                }
            };
            run(warm_up);
            let before = child::status_kib("VmRSS:");
            run(counted);
            let after = child::status_kib("VmRSS:");
            println!("{before} KiB after {warm_up} fibers, {after} KiB after {counted} more");
            assert!(after < before + 1024, "{before} KiB became {after} KiB");
        });
    });
}
