//! A stack overflow is reported with the fiber, the size of its stack and the remedy. Other faults
//! are unchanged.

use cringle::{Builder, fiber};
use cringle_testing::child;
use std::os::unix::process::ExitStatusExt;

/// Recurses until the stack overflows.
fn recurse(depth: u64) -> u64 {
    let frame = std::hint::black_box([depth; 32]);
    if depth == u64::MAX { 0 } else { recurse(depth + 1) + frame[depth as usize % 32] }
}

/// Runs the test in a child that must die by this signal, and returns its output.
#[track_caller]
fn dies_by(signal: i32, test: &str, body: impl FnOnce()) -> String {
    let Some(output) = child::run(test) else {
        body();
        unreachable!("the child must die");
    };
    let text = child::transcript(&output);
    assert_eq!(output.status.signal(), Some(signal), "{text}");
    text
}

fn fault() {
    // SAFETY: none, by intent: the fault is under test (no contract).
    unsafe { std::ptr::without_provenance_mut::<u8>(16).write_volatile(1) }
}

#[test]
fn overflow_reports_name_stack_and_remedy() {
    let text = dies_by(libc::SIGABRT, "overflow_reports_name_stack_and_remedy", || {
        cringle::run(|| {
            let deep = fiber::Builder::new().name("deep".into()).stack_size(256 << 10);
            deep.spawn(|| recurse(0)).unwrap().join().unwrap()
        });
    });
    assert!(text.contains("fiber 'deep' has overflowed its stack of 256 KiB"), "{text}");
    assert!(text.contains("fiber::Builder::stack_size"), "{text}");
    assert!(text.contains("RUST_MIN_STACK"), "{text}");
}

#[test]
fn overflow_of_unnamed_fiber_is_reported() {
    let text = dies_by(libc::SIGABRT, "overflow_of_unnamed_fiber_is_reported", || {
        cringle::run(|| fiber::spawn(|| recurse(0)).join().unwrap());
    });
    assert!(text.contains("fiber '<unnamed>' has overflowed its stack of 1024 KiB"), "{text}");
}

#[test]
fn overflow_of_run_closure_names_main() {
    let text = dies_by(libc::SIGABRT, "overflow_of_run_closure_names_main", || {
        cringle::run(|| recurse(0));
    });
    assert!(text.contains("fiber 'main' has overflowed its stack of 8192 KiB"), "{text}");
}

#[test]
fn overflow_report_of_long_name_keeps_remedy() {
    let text = dies_by(libc::SIGABRT, "overflow_report_of_long_name_keeps_remedy", || {
        cringle::run(|| {
            let long = fiber::Builder::new().name("long ".repeat(1000));
            long.spawn(|| recurse(0)).unwrap().join().unwrap()
        });
    });
    assert!(text.contains("long long") && text.contains("RUST_MIN_STACK"), "{text}");
}

#[test]
fn overflow_is_reported_on_every_worker() {
    let text = dies_by(libc::SIGABRT, "overflow_is_reported_on_every_worker", || {
        let run = Builder::new().workers(2).run(|| {
            let deep = fiber::Builder::new().name("on the other".into()).worker(1);
            deep.spawn(|| recurse(0)).unwrap().join().unwrap()
        });
        run.unwrap();
    });
    assert!(text.contains("fiber 'on the other' has overflowed"), "{text}");
}

#[test]
fn large_frame_does_not_jump_over_guard() {
    #[inline(never)]
    fn large(depth: u64) -> u64 {
        let frame = std::hint::black_box([depth; 7000]);
        if depth == u64::MAX { 0 } else { large(depth + 1) + frame[depth as usize % 7000] }
    }
    let text = dies_by(libc::SIGABRT, "large_frame_does_not_jump_over_guard", || {
        cringle::run(|| fiber::spawn(|| large(0)).join().unwrap());
    });
    assert!(text.contains("has overflowed its stack"), "{text}");
}

#[test]
fn other_fault_of_fiber_stays_segfault() {
    let text = dies_by(libc::SIGSEGV, "other_fault_of_fiber_stays_segfault", || {
        cringle::run(|| fiber::spawn(fault).join().unwrap());
    });
    assert!(!text.contains("overflowed"), "{text}");
}

#[test]
fn fault_of_other_thread_stays_segfault() {
    let text = dies_by(libc::SIGSEGV, "fault_of_other_thread_stays_segfault", || {
        cringle::run(|| fiber::unblock(fault));
    });
    assert!(!text.contains("overflowed"), "{text}");
}

/// The handler passes the fault on to std's, which was installed before.
#[test]
fn std_still_reports_overflow_of_threads() {
    let text = dies_by(libc::SIGABRT, "std_still_reports_overflow_of_threads", || {
        cringle::run(|| fiber::unblock(|| recurse(0)));
    });
    assert!(text.contains("thread 'cringle-unblock'"), "{text}");
    assert!(text.contains("has overflowed its stack"), "{text}");
    assert!(!text.contains("fiber '"), "{text}");
}

/// A handler that the program has installed before receives all other faults.
#[test]
fn earlier_handler_receives_other_faults() {
    extern "C" fn own(_: i32) {
        // SAFETY: by the contract of a signal handler, in which both calls are allowed.
        unsafe {
            libc::write(2, b"own handler\n".as_ptr().cast(), 12);
            libc::_exit(7);
        }
    }
    let name = "earlier_handler_receives_other_faults";
    let Some(output) = child::run(name) else {
        // SAFETY: by the contract of `signal`. The handler makes only calls that a handler may
        // make.
        unsafe { libc::signal(libc::SIGSEGV, own as extern "C" fn(i32) as usize) };
        return cringle::run(|| fiber::spawn(fault).join().unwrap());
    };
    let text = child::transcript(&output);
    assert_eq!(output.status.code(), Some(7), "{text}");
    assert!(text.contains("own handler"), "{text}");
}

#[test]
fn overflow_without_handler_is_bare_segfault() {
    let text = dies_by(libc::SIGSEGV, "overflow_without_handler_is_bare_segfault", || {
        let run = Builder::new().overflow_handler(false).run(|| {
            fiber::spawn(|| recurse(0)).join().unwrap();
        });
        run.unwrap();
    });
    assert!(!text.contains("cringle: fiber"), "{text}");
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

/// Calls `entry` on a thread that C code created, so that it has no signal stack of std's.
fn on_thread_of_c(entry: extern "C" fn(*mut libc::c_void) -> *mut libc::c_void) {
    // SAFETY: by the contract of `pthread_create`. The entry has the right type, and the thread is
    // joined.
    unsafe {
        let mut thread = std::mem::zeroed();
        let nothing = std::ptr::null_mut();
        assert_eq!(libc::pthread_create(&mut thread, std::ptr::null(), entry, nothing), 0);
        assert_eq!(libc::pthread_join(thread, std::ptr::null_mut()), 0);
    }
}

#[test]
fn run_works_on_thread_made_by_c() {
    on_thread_of_c(runs);
    on_thread_of_c(runs);
}

#[test]
fn overflow_on_thread_made_by_c_is_reported() {
    let text = dies_by(libc::SIGABRT, "overflow_on_thread_made_by_c_is_reported", || {
        on_thread_of_c(overflows);
    });
    assert!(text.contains("fiber 'main' has overflowed its stack"), "{text}");
}
