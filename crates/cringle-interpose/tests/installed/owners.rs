//! The hazard detector reports a pthread mutex that a second fiber of one `spawn_local` tree
//! enters, and no other.
//!
//! In a child process: the detector's variable and standard error are those of the process.

use cringle::{Builder, fiber};
use cringle_testing::child;
use libc::*;
use std::cell::UnsafeCell;
use std::io::{Read, Seek};
use std::mem::MaybeUninit;
use std::os::fd::AsRawFd;

/// A mutex of C that fibers share.
struct Mutex(UnsafeCell<pthread_mutex_t>);

// SAFETY: pthread's functions synchronise their callers.
unsafe impl Sync for Mutex {}

impl Mutex {
    fn of_type(kind: c_int) -> Mutex {
        // SAFETY: the structures are initialised by libc's functions.
        unsafe {
            let mut attributes = MaybeUninit::uninit();
            assert_eq!(pthread_mutexattr_init(attributes.as_mut_ptr()), 0);
            assert_eq!(pthread_mutexattr_settype(attributes.as_mut_ptr(), kind), 0);
            let mut mutex = MaybeUninit::uninit();
            assert_eq!(pthread_mutex_init(mutex.as_mut_ptr(), attributes.as_ptr()), 0);
            Mutex(UnsafeCell::new(mutex.assume_init()))
        }
    }

    fn lock(&self) -> c_int {
        // SAFETY: the mutex is initialised.
        unsafe { pthread_mutex_lock(self.0.get()) }
    }

    fn unlock(&self) {
        // SAFETY: as above.
        assert_eq!(unsafe { pthread_mutex_unlock(self.0.get()) }, 0);
    }
}

/// The reports on standard error while `f` runs.
fn reports(f: impl FnOnce()) -> Vec<String> {
    let mut file = tempfile::tempfile().unwrap();
    // SAFETY: by the contract of the calls; the descriptors are open, and the copy is closed once.
    let before = unsafe {
        let before = dup(2);
        assert!(before >= 0 && dup2(file.as_raw_fd(), 2) == 2);
        before
    };
    f();
    // SAFETY: as above.
    unsafe {
        assert!(dup2(before, 2) == 2);
        close(before);
    }
    let mut text = String::new();
    file.rewind().unwrap();
    file.read_to_string(&mut text).unwrap();
    print!("{text}");
    text.lines().filter(|line| line.contains("hazard: ")).map(str::to_owned).collect()
}

/// Two fibers that lock the mutex over a wait of the library; `spawn` starts each.
fn two_fibers(lock: &'static Mutex, spawn: fn(&str, Box<dyn FnOnce() + Send>)) {
    let twice = move || {
        assert_eq!(lock.lock(), 0);
        fiber::yield_now();
        lock.unlock();
    };
    Builder::new()
        .workers(1)
        .run(|| {
            spawn("first", Box::new(twice));
            spawn("second", Box::new(twice));
            (0..10).for_each(|_| fiber::yield_now());
        })
        .unwrap();
}

fn as_thread(name: &str, body: Box<dyn FnOnce() + Send>) {
    let _detached = fiber::Builder::new().name(name.into()).spawn(body).unwrap();
}

fn in_family(name: &str, body: Box<dyn FnOnce() + Send>) {
    let _detached = fiber::Builder::new().name(name.into()).spawn_local(body).unwrap();
}

#[test]
fn mutex_of_two_fibers_with_one_owner_is_reported() {
    let test = "mutex_of_two_fibers_with_one_owner_is_reported";
    child::must_succeed_with(test, |child| child.env("CRINGLE_DETECT", "report"), one_owner);
}

fn one_owner() {
    let leak = |kind| -> &'static Mutex { Box::leak(Box::new(Mutex::of_type(kind))) };

    // Fibers that are threads for libc wait for each other; those of a family do for a plain mutex.
    for kind in [PTHREAD_MUTEX_RECURSIVE, PTHREAD_MUTEX_ERRORCHECK] {
        assert_eq!(reports(|| two_fibers(leak(kind), as_thread)), [""; 0]);
    }
    // A fiber may lock twice, and one after the other.
    let recursive = leak(PTHREAD_MUTEX_RECURSIVE);
    let alone = || {
        for _ in 0..3 {
            assert_eq!((recursive.lock(), recursive.lock()), (0, 0));
            fiber::yield_now();
            recursive.unlock();
            recursive.unlock();
        }
        let after = || {
            assert_eq!(recursive.lock(), 0);
            recursive.unlock();
        };
        fiber::scope(|s| (0..3).for_each(|_| drop(s.spawn_local(after))));
    };
    assert_eq!(reports(|| Builder::new().workers(1).run(alone).unwrap()), [""; 0]);

    let found = reports(|| two_fibers(leak(PTHREAD_MUTEX_RECURSIVE), in_family));
    assert_eq!(found.len(), 1, "{found:#?}");
    // `Mutex::lock` calls libc, in the line after its comment.
    let line = include_str!("owners.rs").lines().position(|line| line.ends_with("is initialised."));
    let place = format!("tests/installed/owners.rs:{}:", line.unwrap() + 2);
    assert!(found[0].contains(&place), "{place}: {found:?}");
    let texts = [
        "fiber 'second'",
        "enters a recursive mutex",
        "tests/installed/owners.rs:",
        "'first'",
        "yields",
    ];
    for text in texts {
        assert!(found[0].contains(text), "{text}: {found:?}");
    }

    let checking = leak(PTHREAD_MUTEX_ERRORCHECK);
    let run = || {
        assert_eq!(checking.lock(), 0);
        assert_eq!(checking.lock(), EDEADLK, "of the same fiber: no report");
        let refused = || assert_eq!(checking.lock(), EDEADLK);
        fiber::spawn_local(refused).join().unwrap();
        checking.unlock();
    };
    let found = reports(|| Builder::new().workers(1).run(run).unwrap());
    assert_eq!(found.len(), 1, "{found:#?}");
    for text in ["is refused an error-checking mutex", "fiber 'main'", "waits for another fiber"] {
        assert!(found[0].contains(text), "{text}: {found:?}");
    }
}
