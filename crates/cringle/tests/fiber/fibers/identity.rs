//! Names, ids and stack sizes, inside and outside of `run`.

use cringle::{fiber, runtime};
use cringle_testing::tools::on_one_worker;
use std::collections::HashSet;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

#[test]
fn fibers_have_names_and_ids() {
    cringle::run(|| {
        assert_eq!(fiber::current().name(), Some("main"));
        assert!(fiber::spawn(|| fiber::current().name().is_none()).join().unwrap());
        let named = fiber::Builder::new().name("indexer".into());
        let handle = named.spawn(fiber::current).unwrap();
        assert_eq!(handle.thread().name(), Some("indexer"));
        let id = handle.thread().id();
        assert_eq!(handle.join().unwrap().id(), id, "the handle and the fiber agree");

        let mut ids = HashSet::from([fiber::current().id(), id]);
        for _ in 0..100 {
            assert!(ids.insert(fiber::spawn_local(|| fiber::current().id()).join().unwrap()));
        }
        assert_eq!(fiber::current().id(), fiber::current().id());
    });
}

#[test]
fn spawn_panics_if_name_contains_nul() {
    let named = || fiber::Builder::new().name("ab\0c".into());
    let assert_panics = |spawn: &dyn Fn()| {
        let payload = catch_unwind(AssertUnwindSafe(spawn)).unwrap_err();
        assert!(payload.downcast::<String>().unwrap().contains("byte 2"));
    };
    cringle::run(|| {
        assert_panics(&|| drop(named().spawn(|| unreachable!())));
        assert_panics(&|| drop(named().spawn_local(|| unreachable!())));
        fiber::scope(|s| {
            assert_panics(&|| drop(named().spawn_scoped(s, || unreachable!())));
            assert_panics(&|| drop(named().spawn_scoped_local(s, || unreachable!())));
        });
    });
}

#[test]
fn functions_act_on_the_thread_outside_of_run() {
    let named = std::thread::Builder::new().name("outside".into());
    let thread = named.spawn(|| {
        assert_eq!(fiber::current().name(), Some("outside"));
        assert_eq!(fiber::current().id(), fiber::current().id());
        fiber::current().unpark();
        fiber::park();
        fiber::park_timeout(Duration::from_millis(1));
        fiber::yield_now();
        fiber::sleep(Duration::from_millis(1));
        assert!(!fiber::panicking());
        assert_eq!(runtime::worker(), None);
        fiber::unblock(|| std::thread::current().id()) == std::thread::current().id()
    });
    assert!(thread.unwrap().join().unwrap(), "`unblock` calls the closure on the same thread");
    let std = std::thread::available_parallelism().unwrap();
    assert_eq!(fiber::available_parallelism().unwrap(), std);
}

#[test]
fn spawn_outside_of_run_panics_with_the_remedy() {
    for spawn in [|| drop(fiber::spawn(|| ())), || drop(fiber::spawn_local(|| ()))] {
        let caught = catch_unwind(spawn);
        let message = *caught.unwrap_err().downcast::<&str>().unwrap();
        assert!(message.contains("cringle::run(|| …)"), "{message}");
    }
}

#[test]
fn stack_larger_than_address_space_is_refused() {
    on_one_worker(|| {
        for bytes in [usize::MAX, 1 << 60] {
            let refused = fiber::Builder::new().stack_size(bytes).spawn(|| ()).unwrap_err();
            assert_eq!(refused.kind(), std::io::ErrorKind::InvalidInput);
            let refused = fiber::Builder::new().stack_size(bytes).spawn_local(|| ()).unwrap_err();
            assert_eq!(refused.kind(), std::io::ErrorKind::InvalidInput);
        }
        let tiny = fiber::Builder::new().stack_size(0).spawn(|| 1).unwrap();
        assert_eq!(tiny.join().unwrap(), 1);
    });
}

#[test]
fn fiber_can_use_its_whole_stack() {
    /// Recurses; each level touches 1 KiB of stack.
    fn depth(levels: usize) -> usize {
        let frame = std::hint::black_box([levels as u8; 1024]);
        match levels {
            0 => 0,
            _ => depth(levels - 1) + usize::from(frame[levels % 1024] == levels as u8),
        }
    }
    on_one_worker(|| {
        let big = fiber::Builder::new().stack_size(64 << 20).spawn(|| depth(16 << 10)).unwrap();
        assert_eq!(big.join().unwrap(), 16 << 10);
        // The closure of `run` has a stack of 8 MiB.
        assert_eq!(depth(3 << 10), 3 << 10);
    });
}
