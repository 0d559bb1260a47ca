//! The places where the library calls foreign code.

mod caller;
mod library;
mod outside;
#[cfg(feature = "tracing")]
mod subscriber;
mod unwinding;

use crate::act::{Act, BEGUN, CANCEL, CANCELLED, ENDED, MAY_BE_CUT, pipe};
use caller::{
    closure_destructor, fiber_itself, future_destructor, future_poll, iterator,
    iterator_for_all_workers, lazy_initialiser, local_initialiser, once_initialiser, scope_body,
    timeout_body, unblocked,
};
use cringle::{Builder, fiber};
use library::{
    batch_callback, exit_call, handle_of_ended, local_destructor, losing_error, losing_payload,
    payload_destructor, result_destructor, waker,
};
use outside::thread_local_at_exit;
use std::cell::Cell;
use std::io::{Read, Write};
use std::panic::{AssertUnwindSafe, catch_unwind, panic_any};
use std::process::ExitCode;
use std::sync::atomic::Ordering;
use std::time::Duration;
use unwinding::{
    beside_another, destructor_in_cancel, destructor_in_panic, hook_set_within_run,
    message_beside_another, message_in_destructor, panic_hook, panic_message, second_panic_message,
};

/// The output of a cell that succeeds.
pub(crate) const DONE: &str = "the cell is done";

/// The end of a cell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    Succeeds,
    /// An abort with this message, which docs/book/src/hazards.md names.
    Aborts(&'static str),
}

pub(crate) struct Kind {
    pub(crate) name: &'static str,
    /// The end of the cell if a payload leaves the act.
    pub(crate) raised: End,
    /// The act runs outside of any fiber.
    pub(crate) is_beside: bool,
    /// A cancel of the fiber may end the act.
    is_cancellable: bool,
    /// The kind itself begins with a panic.
    pub(crate) panics: bool,
    /// The act runs before a panic unwinds anything. A cancel that it raises replaces the panic.
    pub(crate) precedes_unwinding: bool,
    /// Other fibers are held back while the act waits, up to a second for each wait. One such kind
    /// suffices.
    pub(crate) is_alone: bool,
    /// The kind needs a cancel that unwinds, which does not exist where panics abort.
    pub(crate) needs_unwinding: bool,
    run: fn(Act),
}

const OF_FIBER: Kind = Kind {
    name: "",
    raised: End::Succeeds,
    is_beside: false,
    is_cancellable: false,
    panics: false,
    precedes_unwinding: false,
    is_alone: false,
    needs_unwinding: false,
    run: |_| (),
};
const OF_CALLER: Kind = Kind { is_cancellable: true, ..OF_FIBER };
const BESIDE: Kind = Kind { is_beside: true, ..OF_FIBER };
const IN_CLEANUP: Kind =
    Kind { panics: true, raised: End::Aborts("thread caused non-unwinding panic"), ..OF_FIBER };

const IN_MESSAGE: Kind = Kind {
    panics: true,
    precedes_unwinding: true,
    is_alone: true,
    raised: End::Aborts("thread panicked while processing panic"),
    ..OF_FIBER
};

pub(crate) const KINDS: &[Kind] = &[
    Kind { name: "fiber", run: fiber_itself, ..OF_CALLER },
    Kind { name: "scope", run: scope_body, ..OF_CALLER },
    Kind { name: "timeout", run: timeout_body, ..OF_CALLER },
    Kind { name: "closure_destructor", run: closure_destructor, ..OF_CALLER },
    Kind { name: "iterator", run: iterator, ..OF_CALLER },
    Kind { name: "iterator_for_all_workers", run: iterator_for_all_workers, ..OF_CALLER },
    Kind { name: "once_initialiser", run: once_initialiser, ..OF_CALLER },
    Kind { name: "lazy_initialiser", run: lazy_initialiser, ..OF_CALLER },
    Kind { name: "local_initialiser", run: local_initialiser, ..OF_CALLER },
    Kind { name: "future_poll", run: future_poll, ..OF_CALLER },
    Kind { name: "future_destructor", run: future_destructor, ..OF_CALLER },
    Kind { name: "unblocked", run: unblocked, ..BESIDE },
    Kind { name: "exit_call", run: exit_call, ..OF_FIBER },
    Kind { name: "losing_error", run: losing_error, ..OF_FIBER },
    Kind { name: "losing_payload", run: losing_payload, panics: true, ..OF_FIBER },
    Kind { name: "batch_callback", run: batch_callback, ..OF_FIBER },
    Kind { name: "waker", run: waker, ..OF_FIBER },
    Kind {
        name: "local_destructor",
        raised: End::Aborts("the destructor of a fiber-local panicked; aborting"),
        run: local_destructor,
        ..OF_FIBER
    },
    Kind {
        name: "result_destructor",
        raised: End::Aborts("the destructor of a fiber's result panicked; aborting"),
        run: result_destructor,
        ..OF_FIBER
    },
    Kind {
        name: "result_that_its_handle_drops",
        raised: End::Aborts("the destructor of a fiber's result panicked; aborting"),
        run: |act| handle_of_ended(move || Foreign(act)),
        ..OF_FIBER
    },
    Kind {
        name: "payload_that_its_handle_drops",
        raised: End::Aborts("the destructor of a fiber's panic payload panicked; aborting"),
        run: |act| handle_of_ended(move || -> Foreign { panic_any(Foreign(act)) }),
        panics: true,
        ..OF_FIBER
    },
    Kind {
        name: "payload_destructor",
        raised: End::Aborts("the destructor of a fiber's panic payload panicked; aborting"),
        run: payload_destructor,
        panics: true,
        ..OF_FIBER
    },
    Kind { name: "destructor_in_panic", run: destructor_in_panic, ..IN_CLEANUP },
    Kind { name: "destructor_in_panic_beside_another", run: beside_another, ..IN_CLEANUP },
    Kind {
        name: "destructor_in_cancel",
        run: destructor_in_cancel,
        panics: false,
        needs_unwinding: true,
        ..IN_CLEANUP
    },
    Kind {
        name: "panic_hook",
        raised: End::Aborts("thread panicked while processing panic"),
        run: panic_hook,
        panics: true,
        precedes_unwinding: true,
        ..BESIDE
    },
    Kind { name: "panic_message", run: panic_message, is_alone: false, ..IN_MESSAGE },
    Kind { name: "panic_message_beside_another", run: message_beside_another, ..IN_MESSAGE },
    Kind { name: "panic_message_in_destructor", run: message_in_destructor, ..IN_MESSAGE },
    Kind { name: "second_panic_message", run: second_panic_message, ..IN_MESSAGE },
    Kind { name: "hook_set_within_run", run: hook_set_within_run, ..IN_MESSAGE },
    Kind {
        name: "thread_local_at_exit",
        raised: End::Aborts("thread local panicked on drop"),
        run: thread_local_at_exit,
        ..BESIDE
    },
    #[cfg(feature = "tracing")]
    Kind { name: "subscriber_event", run: subscriber::event, ..BESIDE },
    #[cfg(feature = "tracing")]
    Kind { name: "subscriber_span", run: subscriber::span, ..BESIDE },
];

/// Runs this cell.
pub(crate) fn run_cell(name: &str) -> ExitCode {
    let mut parts = name.split("::");
    let (kind, act) = (parts.next().unwrap(), parts.next().unwrap());
    let kind = KINDS.iter().find(|each| each.name == kind).expect("a kind");
    let act = Act::ALL.into_iter().find(|each| each.name() == act).expect("an act");
    MAY_BE_CUT.store(kind.is_cancellable, Ordering::Relaxed);
    Builder::new().workers(1).run(|| on_fiber(kind, act)).unwrap();
    let (begun, ended) = (BEGUN.load(Ordering::Relaxed), ENDED.load(Ordering::Relaxed));
    assert!(begun > 0, "the act has not run");
    let may_be_cut = act.raises()
        || kind.is_beside && act.needs_fiber()
        || kind.is_cancellable && act == Act::Cancelled;
    assert!(may_be_cut || begun == ended, "{ended} of {begun} acts have ended");
    eprintln!("{DONE}");
    ExitCode::SUCCESS
}

/// Stores a cancel's payload for [`Act::Cancels`].
fn catch_a_cancel() {
    if cfg!(panic = "unwind") {
        let cancelled = fiber::scope(|s| {
            s.cancel();
            let (sender, receiver) = std::sync::mpsc::channel();
            s.spawn_local(move || sender.send(catch_unwind(fiber::park).unwrap_err()).unwrap());
            fiber::protect(|| (0..3).for_each(|_| fiber::yield_now()));
            receiver.try_recv().unwrap()
        });
        *CANCELLED.lock().unwrap() = Some(cancelled);
    }
}

/// Runs the kind on a fiber that is cancelled when the act requests it. Meanwhile another fiber has
/// an op in the kernel, which must write into that fiber's buffer and nowhere else.
fn on_fiber(kind: &Kind, act: Act) {
    catch_a_cancel();
    let (reader, writer) = pipe();
    let over = Cell::new(false);
    fiber::scope(|s| {
        let reads = s.spawn_local(|| {
            let mut buf = vec![0; 64];
            let count = (&reader).read(&mut buf).unwrap();
            buf.truncate(count);
            buf
        });
        let subject = s.spawn_local(|| {
            let ended = catch_unwind(AssertUnwindSafe(|| {
                fiber::scope(|cancelled| {
                    cancelled.spawn_daemon_local(|| {
                        fiber::protect(|| {
                            while !CANCEL.load(Ordering::Relaxed) && !over.get() {
                                fiber::sleep(Duration::from_micros(300));
                            }
                        });
                        cancelled.cancel();
                    });
                    let _over = OnDrop(|| over.set(true));
                    (kind.run)(act);
                });
            }));
            // The payload has reached the right place. Its panicking destructor is not under test
            // here.
            std::mem::forget(ended);
        });
        subject.join().unwrap();
        (&writer).write_all(b"whole").unwrap();
        assert_eq!(reads.join().unwrap(), b"whole");
    });
    // The runtime still works.
    assert!(!fiber::panicking());
    let fibers: Vec<_> = (0..4).map(|n| fiber::spawn(move || n)).collect();
    let sum: i32 = fibers.into_iter().map(|fiber| fiber.join().unwrap()).sum();
    assert_eq!(sum, 6);
}

struct OnDrop<F: FnMut()>(F);

impl<F: FnMut()> Drop for OnDrop<F> {
    fn drop(&mut self) {
        (self.0)();
    }
}

/// Runs the act when it is dropped.
struct Foreign(Act);

impl Drop for Foreign {
    fn drop(&mut self) {
        self.0.run();
    }
}

/// Passes on the payload of a fiber that belongs to the scope under test.
fn join_in_scope(f: impl FnOnce()) {
    let ended = fiber::scope(|s| {
        let fiber = s.spawn_local(f);
        fiber::protect(|| fiber.join())
    });
    raise(ended);
}

/// Resumes the unwinding of a caught payload.
fn raise(ended: std::thread::Result<()>) {
    if let Err(payload) = ended {
        fiber::resume_unwind(payload);
    }
}
