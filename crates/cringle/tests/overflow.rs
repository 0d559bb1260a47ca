//! A stack overflow says which fiber, how large its stack is and what to do; other faults are what
//! they were.

mod child;

use cringle::{Builder, fiber};
use std::os::unix::process::ExitStatusExt;

/// Recurses until the stack is used up.
fn recurse(depth: u64) -> u64 {
    let frame = std::hint::black_box([depth; 32]);
    if depth == u64::MAX { 0 } else { recurse(depth + 1) + frame[depth as usize % 32] }
}

/// The test in a child, which dies by this signal; what it said.
#[track_caller]
fn dies_by(signal: i32, test: &str, body: impl FnOnce()) -> String {
    let Some(output) = child::run(test) else {
        body();
        unreachable!("it must have died");
    };
    let said = child::said(&output);
    assert_eq!(output.status.signal(), Some(signal), "{said}");
    said
}

fn fault() {
    // SAFETY: none: the fault is what is tested.
    unsafe { std::ptr::without_provenance_mut::<u8>(16).write_volatile(1) }
}

#[test]
fn the_fibers_name_its_stack_and_the_remedy_are_told() {
    let said = dies_by(libc::SIGABRT, "the_fibers_name_its_stack_and_the_remedy_are_told", || {
        cringle::run(|| {
            let deep = fiber::Builder::new().name("deep".into()).stack_size(256 << 10);
            deep.spawn(|| recurse(0)).unwrap().join().unwrap()
        });
    });
    assert!(said.contains("fiber 'deep' has overflowed its stack of 256 KiB"), "{said}");
    assert!(said.contains("fiber::Builder::stack_size"), "{said}");
    assert!(said.contains("RUST_MIN_STACK"), "{said}");
}

#[test]
fn a_fiber_without_a_name_is_told_of_too() {
    let said = dies_by(libc::SIGABRT, "a_fiber_without_a_name_is_told_of_too", || {
        cringle::run(|| fiber::spawn(|| recurse(0)).join().unwrap());
    });
    assert!(said.contains("fiber '<unnamed>' has overflowed its stack of 1024 KiB"), "{said}");
}

#[test]
fn the_closure_of_run_is_told_of_as_main() {
    let said = dies_by(libc::SIGABRT, "the_closure_of_run_is_told_of_as_main", || {
        cringle::run(|| recurse(0));
    });
    assert!(said.contains("fiber 'main' has overflowed its stack of 8192 KiB"), "{said}");
}

#[test]
fn a_long_name_does_not_push_the_remedy_out() {
    let said = dies_by(libc::SIGABRT, "a_long_name_does_not_push_the_remedy_out", || {
        cringle::run(|| {
            let long = fiber::Builder::new().name("long ".repeat(1000));
            long.spawn(|| recurse(0)).unwrap().join().unwrap()
        });
    });
    assert!(said.contains("long long") && said.contains("RUST_MIN_STACK"), "{said}");
}

#[test]
fn it_is_told_on_every_worker() {
    let said = dies_by(libc::SIGABRT, "it_is_told_on_every_worker", || {
        let run = Builder::new().workers(2).run(|| {
            let deep = fiber::Builder::new().name("on the other".into()).worker(1);
            deep.spawn(|| recurse(0)).unwrap().join().unwrap()
        });
        run.unwrap();
    });
    assert!(said.contains("fiber 'on the other' has overflowed"), "{said}");
}

#[test]
fn a_large_frame_does_not_jump_over_the_guard() {
    #[inline(never)]
    fn large(depth: u64) -> u64 {
        let frame = std::hint::black_box([depth; 7000]);
        if depth == u64::MAX { 0 } else { large(depth + 1) + frame[depth as usize % 7000] }
    }
    let said = dies_by(libc::SIGABRT, "a_large_frame_does_not_jump_over_the_guard", || {
        cringle::run(|| fiber::spawn(|| large(0)).join().unwrap());
    });
    assert!(said.contains("has overflowed its stack"), "{said}");
}

#[test]
fn another_fault_of_a_fiber_stays_a_segfault() {
    let said = dies_by(libc::SIGSEGV, "another_fault_of_a_fiber_stays_a_segfault", || {
        cringle::run(|| fiber::spawn(fault).join().unwrap());
    });
    assert!(!said.contains("overflowed"), "{said}");
}

#[test]
fn a_fault_of_another_thread_stays_a_segfault() {
    let said = dies_by(libc::SIGSEGV, "a_fault_of_another_thread_stays_a_segfault", || {
        cringle::run(|| fiber::unblock(fault));
    });
    assert!(!said.contains("overflowed"), "{said}");
}

/// The handler hands on to std's, which was there before.
#[test]
fn std_still_tells_of_a_threads_overflow() {
    let said = dies_by(libc::SIGABRT, "std_still_tells_of_a_threads_overflow", || {
        cringle::run(|| fiber::unblock(|| recurse(0)));
    });
    assert!(said.contains("thread 'cringle-unblock'"), "{said}");
    assert!(said.contains("has overflowed its stack"), "{said}");
    assert!(!said.contains("fiber '"), "{said}");
}

/// A handler that the program installed before is called for what is not ours.
#[test]
fn a_handler_of_the_programs_own_is_handed_the_rest() {
    extern "C" fn own(_: i32) {
        // SAFETY: both calls may be made in a handler.
        unsafe {
            libc::write(2, b"own handler\n".as_ptr().cast(), 12);
            libc::_exit(7);
        }
    }
    let name = "a_handler_of_the_programs_own_is_handed_the_rest";
    let Some(output) = child::run(name) else {
        // SAFETY: the handler does what a handler may.
        unsafe { libc::signal(libc::SIGSEGV, own as extern "C" fn(i32) as usize) };
        return cringle::run(|| fiber::spawn(fault).join().unwrap());
    };
    let said = child::said(&output);
    assert_eq!(output.status.code(), Some(7), "{said}");
    assert!(said.contains("own handler"), "{said}");
}

#[test]
fn without_the_handler_it_is_a_bare_segfault() {
    let said = dies_by(libc::SIGSEGV, "without_the_handler_it_is_a_bare_segfault", || {
        let run = Builder::new().overflow_handler(false).run(|| {
            fiber::spawn(|| recurse(0)).join().unwrap();
        });
        run.unwrap();
    });
    assert!(!said.contains("cringle: fiber"), "{said}");
}

extern "C" fn runs(_: *mut libc::c_void) -> *mut libc::c_void {
    let sum = Builder::new().workers(2).run(|| fiber::spawn(|| 40).join().unwrap() + 2);
    assert_eq!(sum.unwrap(), 42);
    std::ptr::null_mut()
}

extern "C" fn overflows(_: *mut libc::c_void) -> *mut libc::c_void {
    Builder::new().workers(1).run(|| recurse(0)).unwrap();
    std::ptr::null_mut()
}

/// Calls it on a thread that C made: std has given it no signal stack.
fn on_a_thread_of_c(entry: extern "C" fn(*mut libc::c_void) -> *mut libc::c_void) {
    // SAFETY: the entry fits, and the thread is joined.
    unsafe {
        let mut thread = std::mem::zeroed();
        let nothing = std::ptr::null_mut();
        assert_eq!(libc::pthread_create(&mut thread, std::ptr::null(), entry, nothing), 0);
        assert_eq!(libc::pthread_join(thread, std::ptr::null_mut()), 0);
    }
}

#[test]
fn a_thread_that_c_made_can_run() {
    on_a_thread_of_c(runs);
    on_a_thread_of_c(runs);
}

#[test]
fn an_overflow_on_a_thread_that_c_made_is_told() {
    let said = dies_by(libc::SIGABRT, "an_overflow_on_a_thread_that_c_made_is_told", || {
        on_a_thread_of_c(overflows);
    });
    assert!(said.contains("fiber 'main' has overflowed its stack"), "{said}");
}
