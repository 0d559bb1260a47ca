//! Values for keys of pthread's.

use super::with_private;
use cringle::fiber;
use cringle_testing::child;
use std::ffi::c_void;
use std::ptr;
use std::sync::atomic::{AtomicUsize, Ordering};

const KEYS: usize = 200;
const VALUE: *const c_void = ptr::without_provenance(1);

static DESTROYED: AtomicUsize = AtomicUsize::new(0);

fn make_key(destroy: unsafe extern "C" fn(*mut c_void)) -> libc::pthread_key_t {
    let mut key = 0;
    // SAFETY: the key is written to, and the destructor is a function.
    assert_eq!(unsafe { libc::pthread_key_create(&mut key, Some(destroy)) }, 0);
    key
}

fn set(key: libc::pthread_key_t) {
    // SAFETY: the key exists.
    assert_eq!(unsafe { libc::pthread_setspecific(key, VALUE) }, 0);
}

fn is_set(key: &libc::pthread_key_t) -> bool {
    // SAFETY: the key exists.
    !unsafe { libc::pthread_getspecific(*key) }.is_null()
}

/// libc keeps the values of the first 32 keys apart from the others.
#[test]
fn of_many_keys_are_destroyed() {
    unsafe extern "C" fn count(_: *mut c_void) {
        DESTROYED.fetch_add(1, Ordering::Relaxed);
    }
    child::must_succeed("of_many_keys_are_destroyed", || {
        let keys: Vec<_> = (0..KEYS).map(|_| make_key(count)).collect();
        with_private(|| {
            DESTROYED.store(0, Ordering::Relaxed);
            fiber::scope(|s| drop(s.spawn(|| keys.iter().copied().for_each(set))));
            assert_eq!(DESTROYED.load(Ordering::Relaxed), KEYS);
            fiber::scope(|s| drop(s.spawn(|| assert!(!keys.iter().any(is_set)))));
            DESTROYED.store(0, Ordering::Relaxed);
            fiber::scope(|s| drop(s.spawn(|| set(keys[KEYS - 1]))));
            assert_eq!(DESTROYED.load(Ordering::Relaxed), 1);
        });
    });
}

/// libc gives up after four rounds, and forgets the values.
#[test]
fn that_their_destructor_sets_again_are_forgotten() {
    static KEY: AtomicUsize = AtomicUsize::new(0);
    unsafe extern "C" fn set_again(_: *mut c_void) {
        set(KEY.load(Ordering::Relaxed) as libc::pthread_key_t);
    }
    child::must_succeed("that_their_destructor_sets_again_are_forgotten", || {
        let key = make_key(set_again);
        KEY.store(key as usize, Ordering::Relaxed);
        with_private(|| {
            fiber::scope(|s| drop(s.spawn(|| set(key))));
            for _ in 0..10 {
                fiber::scope(|s| drop(s.spawn(|| assert!(!is_set(&key)))));
            }
        });
    });
}
