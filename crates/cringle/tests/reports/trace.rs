//! The start and end of a trace, and full buffers. (The contents of the file are tested with an
//! independent parser in `ecosystem/trace`, and by `cringle trace`.) Each test runs in its own
//! process, because a process has one trace, of all its runs.

use cringle::{Builder, fiber, trace};
use cringle_testing::child;
use std::io::ErrorKind;
use std::os::fd::AsRawFd;

fn yields(count: usize) {
    (0..count).for_each(|_| fiber::yield_now());
}

fn one_worker<T>(f: impl FnOnce() -> T) -> T {
    Builder::new().workers(1).run(f).unwrap()
}

#[test]
fn lost_events_are_counted_without_waiting() {
    child::must_succeed("lost_events_are_counted_without_waiting", || {
        const YIELDS: usize = 200_000;
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("small.pftrace");
        let trace = trace::Builder::new().events(64).start(&path).unwrap();
        one_worker(|| yields(YIELDS));
        let written = trace.finish().unwrap();
        // A suspension and a resumption for each yield.
        assert!(written.lost > 0, "a buffer of 64 events has room for all: {written:?}");
        assert!(written.events + written.lost >= 2 * YIELDS as u64, "{written:?}");
        assert_eq!(written.bytes, std::fs::metadata(&path).unwrap().len());
    });
}

#[test]
fn second_trace_is_refused_and_the_first_continues() {
    child::must_succeed("second_trace_is_refused_and_the_first_continues", || {
        let directory = tempfile::tempdir().unwrap();
        let first = trace::start(directory.path().join("first")).unwrap();
        let refused = trace::start(directory.path().join("second")).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::ResourceBusy);
        assert!(refused.to_string().contains("first"), "{refused}");
        assert!(!directory.path().join("second").exists());
        one_worker(|| yields(10));
        assert!(first.finish().unwrap().events >= 20);
        drop(trace::start(directory.path().join("second")).unwrap());
    });
}

#[test]
fn only_an_earlier_trace_is_overwritten() {
    child::must_succeed("only_an_earlier_trace_is_overwritten", || {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("file");
        for text in ["a letter", "\n\u{5}\u{50}\u{1}", "{}"] {
            std::fs::write(&path, text).unwrap();
            let refused = trace::start(&path).unwrap_err();
            assert_eq!(refused.kind(), ErrorKind::AlreadyExists);
            assert!(refused.to_string().contains("not empty and not a trace"), "{refused}");
            assert_eq!(std::fs::read_to_string(&path).unwrap(), text);
        }
        std::fs::write(&path, "").unwrap();
        for count in [1_000, 10, 10] {
            let trace = trace::start(&path).unwrap();
            one_worker(|| yields(count));
            let written = trace.finish().unwrap();
            assert_eq!(written.bytes, std::fs::metadata(&path).unwrap().len());
        }
    });
}

#[test]
fn uncreatable_file_is_named_in_the_error() {
    child::must_succeed("uncreatable_file_is_named_in_the_error", || {
        let refused = trace::start("/no/such/directory/x.pftrace").unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::NotFound);
        assert!(refused.to_string().contains("/no/such/directory/x.pftrace"), "{refused}");
        // A device may have several writers.
        let other = std::fs::File::open("/dev/full").unwrap();
        // SAFETY: no pointers.
        assert_eq!(unsafe { libc::flock(other.as_raw_fd(), libc::LOCK_SH) }, 0);
        let full = trace::start("/dev/full").unwrap();
        one_worker(|| yields(10));
        assert_eq!(full.finish().unwrap_err().kind(), ErrorKind::StorageFull);
    });
}

#[test]
fn trace_may_start_and_end_during_a_run() {
    child::must_succeed("trace_may_start_and_end_during_a_run", || {
        let directory = tempfile::tempdir().unwrap();
        let (first, second) = one_worker(|| {
            yields(10);
            let traced = |name: &str, count| {
                let trace = trace::start(directory.path().join(name)).unwrap();
                yields(count);
                trace.finish().unwrap()
            };
            let both = (traced("first", 100), traced("second", 1_000));
            yields(10);
            both
        });
        assert!((150..1_000).contains(&first.events), "{first:?}");
        assert!((1_900..10_000).contains(&second.events), "{second:?}");
    });
}

#[test]
fn panic_of_the_program_leaves_a_complete_file() {
    child::must_succeed("panic_of_the_program_leaves_a_complete_file", || {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("panic.pftrace");
        let trace = trace::start(&path).unwrap();
        let panicked = std::panic::catch_unwind(|| {
            one_worker(|| {
                yields(100);
                std::panic::resume_unwind(Box::new("on purpose"));
            })
        });
        assert!(panicked.is_err());
        // Before `finish`: the return of `run` flushes the events.
        let at_the_end_of_run = std::fs::metadata(&path).unwrap().len();
        assert!(at_the_end_of_run > 1_000, "{at_the_end_of_run} bytes");
        drop(trace);
    });
}

#[test]
fn spans_without_run_or_trace_do_nothing() {
    child::must_succeed("spans_without_run_or_trace_do_nothing", || {
        drop(trace::span("outside"));
        let directory = tempfile::tempdir().unwrap();
        let trace = trace::start(directory.path().join("none")).unwrap();
        drop(trace::span("outside"));
        let written = trace.finish().unwrap();
        assert_eq!((written.events, written.lost), (0, 0));
    });
}
