//! Code that the library calls on a fiber.

use super::{Foreign, join_in_scope};
use crate::act::Act;
use cringle::block::{BlockIo, OwnedBatch};
use cringle::fiber;
use std::cell::{Cell, RefCell};
use std::future::Future;
use std::io::{self, Read, Write};
use std::panic::{AssertUnwindSafe, catch_unwind, panic_any};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake, Waker};

pub(super) fn exit_call(act: Act) {
    let on_stack = Cell::new(0);
    fiber::scope(|s| {
        s.on_exit_local(|| on_stack.set(on_stack.get() + 1));
        s.on_exit_local(|| {
            s.spawn_local(|| on_stack.set(on_stack.get() + 1));
            act.run();
        });
        s.on_exit(move || act.run());
    });
}

struct Failed(Option<Foreign>);

impl From<io::Error> for Failed {
    fn from(_: io::Error) -> Failed {
        Failed(None)
    }
}

/// The second failure of a scope, which returns the first one.
pub(super) fn losing_error(act: Act) {
    let result = fiber::try_scope(|s| -> Result<(), Failed> {
        s.spawn_local(|| -> Result<(), Failed> { Err(Failed(None)) });
        s.spawn_local(move || -> Result<(), Failed> { Err(Failed(Some(Foreign(act)))) });
        Ok(())
    });
    assert!(result.is_err_and(|failed| failed.0.is_none()));
}

pub(super) fn losing_payload(act: Act) {
    let on_stack = Cell::new(0);
    let scope = AssertUnwindSafe(|| {
        fiber::scope(|s| {
            s.on_exit_local(|| {
                s.spawn_local(|| {
                    fiber::protect(|| (0..20).for_each(|_| fiber::yield_now()));
                    on_stack.set(1);
                });
                panic_any(Foreign(act));
            });
            s.on_exit_local(|| panic!("the first"));
        });
    });
    let payload = catch_unwind(scope).unwrap_err();
    assert_eq!(payload.downcast_ref::<&str>(), Some(&"the first"));
    assert_eq!(on_stack.get(), 1);
}

pub(super) fn batch_callback(act: Act) {
    let io = BlockIo::builder().build().unwrap();
    io.submit_then(OwnedBatch::<Vec<u8>>::new(), move |_| act.run()).unwrap();
    fiber::protect(|| io.close().unwrap());
}

struct ActsOnce(Act, AtomicBool);

impl Wake for ActsOnce {
    fn wake(self: Arc<Self>) {
        if !self.1.swap(true, Ordering::Relaxed) {
            self.0.run();
        }
    }
}

pub(super) fn waker(act: Act) {
    let io = BlockIo::builder().build().unwrap();
    let (mut reader, mut writer) = io::pipe().unwrap();
    let mut batch = OwnedBatch::new();
    let path = std::env::current_exe().unwrap();
    batch.read(cringle::fs::File::open(path).unwrap(), vec![0; 4], 0);
    let acts = Arc::new(ActsOnce(act, AtomicBool::new(false)));
    let waker = Waker::from(Arc::clone(&acts));
    // Behind a callback that blocks the only worker, so it is polled before it has ended.
    io.submit_then(OwnedBatch::<Vec<u8>>::new(), move |_| {
        reader.read_exact(&mut [0]).unwrap();
    })
    .unwrap();
    {
        let mut submission = pin!(io.submit_async(batch).unwrap());
        let polled = submission.as_mut().poll(&mut Context::from_waker(&waker));
        assert!(polled.is_pending());
        writer.write_all(b"x").unwrap();
        fiber::protect(|| io.close().unwrap());
        let results = match submission.poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(results) => results,
            Poll::Pending => panic!("its worker has ended"),
        };
        assert_eq!(results.into_iter().next().unwrap().1, b"\x7fELF");
    }
    assert!(acts.1.load(Ordering::Relaxed));
}

pub(super) fn local_destructor(act: Act) {
    cringle::fiber_local! {
        static LOCAL: RefCell<Option<Foreign>> = RefCell::default();
    }
    join_in_scope(|| LOCAL.with(|local| *local.borrow_mut() = Some(Foreign(act))));
}

pub(super) fn result_destructor(act: Act) {
    fiber::scope(|s| {
        s.spawn_local(move || Foreign(act));
    });
}

/// Drops a handle after its fiber has ended.
pub(super) fn handle_of_ended(f: impl FnOnce() -> Foreign + 'static) {
    let handle = fiber::spawn_local(f);
    fiber::protect(|| {
        while !handle.is_finished() {
            fiber::yield_now();
        }
    });
    drop(handle);
}

pub(super) fn payload_destructor(act: Act) {
    fiber::scope(|s| {
        s.spawn_local(move || panic_any(Foreign(act)));
    });
}
