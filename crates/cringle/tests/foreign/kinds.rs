//! The places where the library calls foreign code.

use crate::act::{Act, BEGUN, CANCEL, CANCELLED, ENDED, MAY_BE_CUT, pipe};
use cringle::block::{BlockIo, OwnedBatch};
use cringle::sync::{LazyLock, OnceLock};
use cringle::{Builder, fiber, time};
use std::cell::{Cell, RefCell};
use std::fmt::{Display, Formatter};
use std::future::Future;
use std::io::{self, Read, Write};
use std::panic::{AssertUnwindSafe, catch_unwind, panic_any};
use std::pin::{Pin, pin};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

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

/// Runs the kind on a fiber that is cancelled when the act asks for it. Beside it another fiber has
/// an operation in the kernel, which must write into that fiber's buffer and nowhere else.
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
    hand_on(ended);
}

// ----- the caller's own code -----

fn fiber_itself(act: Act) {
    join_in_scope(|| act.run());
}

fn scope_body(act: Act) {
    let on_stack = Cell::new(0);
    let scope = AssertUnwindSafe(|| {
        fiber::scope(|s| {
            s.spawn_local(|| {
                fiber::protect(|| (0..20).for_each(|_| fiber::yield_now()));
                on_stack.set(1);
            });
            act.run();
        });
    });
    let ended = catch_unwind(scope);
    assert_eq!(on_stack.get(), 1);
    hand_on(ended);
}

fn hand_on(ended: std::thread::Result<()>) {
    if let Err(payload) = ended {
        fiber::resume_unwind(payload);
    }
}

fn timeout_body(act: Act) {
    let ended = time::timeout(Duration::from_secs(3600), || {
        act.run();
        Ok(())
    });
    drop(ended);
}

fn closure_destructor(act: Act) {
    let captured = Foreign(act);
    join_in_scope(move || drop(captured));
}

fn iterator(act: Act) {
    let items = (0..6).inspect(|&n| {
        if n == 2 {
            act.run();
        }
    });
    let results = fiber::par_map(items, 3, |n| {
        fiber::protect(fiber::yield_now);
        n
    });
    assert_eq!(results, [0, 1, 2, 3, 4, 5]);
}

fn once_initialiser(act: Act) {
    let once = OnceLock::new();
    fiber::scope(|s| {
        s.spawn_local(|| fiber::protect(|| once.get_or_init(|| 7)));
        assert_eq!(
            once.get_or_init(|| {
                act.run();
                7
            }),
            &7
        );
    });
}

fn lazy_initialiser(act: Act) {
    let lazy = LazyLock::new(|| act.run());
    LazyLock::force(&lazy);
}

thread_local! {
    /// The act, for initialisers without arguments.
    static ACT: Cell<Act> = const { Cell::new(Act::Returns) };
}

fn local_initialiser(act: Act) {
    cringle::fiber_local! {
        static LOCAL: u32 = {
            ACT.get().run();
            7
        };
    }
    ACT.set(act);
    LOCAL.with(|local| assert_eq!(*local, 7));
}

struct Polls(Act, u32);

impl Future for Polls {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        self.1 += 1;
        self.0.run();
        context.waker().wake_by_ref();
        if self.1 < 2 { Poll::Pending } else { Poll::Ready(()) }
    }
}

fn future_poll(act: Act) {
    fiber::block_on(Polls(act, 0));
}

fn future_destructor(act: Act) {
    let foreign = Foreign(act);
    fiber::block_on(async move {
        let _foreign = foreign;
        std::future::ready(()).await;
    });
}

fn unblocked(act: Act) {
    let on_stack = vec![7; 64];
    fiber::unblock(|| {
        act.run();
        assert_eq!(on_stack, [7; 64]);
    });
}

// ----- called by the library on a fiber -----

fn exit_call(act: Act) {
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
fn losing_error(act: Act) {
    let result = fiber::try_scope(|s| -> Result<(), Failed> {
        s.spawn_local(|| -> Result<(), Failed> { Err(Failed(None)) });
        s.spawn_local(move || -> Result<(), Failed> { Err(Failed(Some(Foreign(act)))) });
        Ok(())
    });
    assert!(result.is_err_and(|failed| failed.0.is_none()));
}

fn losing_payload(act: Act) {
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

fn batch_callback(act: Act) {
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

fn waker(act: Act) {
    let io = BlockIo::builder().build().unwrap();
    let (mut reader, mut writer) = io::pipe().unwrap();
    let mut batch = OwnedBatch::new();
    let path = std::env::current_exe().unwrap();
    batch.read(&Arc::new(cringle::fs::File::open(path).unwrap()), vec![0; 4], 0);
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

fn local_destructor(act: Act) {
    cringle::fiber_local! {
        static LOCAL: RefCell<Option<Foreign>> = RefCell::default();
    }
    join_in_scope(|| LOCAL.with(|local| *local.borrow_mut() = Some(Foreign(act))));
}

fn result_destructor(act: Act) {
    fiber::scope(|s| {
        s.spawn_local(move || Foreign(act));
    });
}

/// Drops a handle after its fiber has ended.
fn handle_of_ended(f: impl FnOnce() -> Foreign + 'static) {
    let handle = fiber::spawn_local(f);
    fiber::protect(|| {
        while !handle.is_finished() {
            fiber::yield_now();
        }
    });
    drop(handle);
}

fn payload_destructor(act: Act) {
    fiber::scope(|s| {
        s.spawn_local(move || panic_any(Foreign(act)));
    });
}

// ----- called during an unwinding -----

fn destructor_in_panic(act: Act) {
    let unwinds = AssertUnwindSafe(|| {
        let _foreign = Foreign(act);
        panic!("its destructors run");
    });
    catch_unwind(unwinds).unwrap_err();
    assert!(!fiber::panicking());
}

fn beside_another(act: Act) {
    beside_a_suspended_destructor(|| destructor_in_panic(act));
}

/// Runs `f` beside a fiber that has panicked and is suspended in a destructor until the end.
fn beside_a_suspended_destructor(f: impl FnOnce()) {
    let go = Cell::new(false);
    fiber::scope(|s| {
        s.spawn_local(|| {
            let unwinds = AssertUnwindSafe(|| {
                let _waits = OnDrop(|| {
                    while !go.get() {
                        fiber::yield_now();
                    }
                });
                panic!("its destructor waits");
            });
            catch_unwind(unwinds).unwrap_err();
        });
        fiber::protect(fiber::yield_now);
        let _go = OnDrop(|| go.set(true));
        f();
    });
}

fn destructor_in_cancel(act: Act) {
    fiber::scope(|s| {
        let unwinds = s.spawn_local(|| {
            let _foreign = Foreign(act);
            fiber::park();
        });
        fiber::protect(fiber::yield_now);
        s.cancel();
        fiber::protect(|| drop(unwinds.join()));
    });
}

fn panic_hook(act: Act) {
    std::panic::set_hook(Box::new(|info| eprintln!("{info}")));
    // A hook that is set within `run` is another kind: see docs/book/src/hazards.md.
    let hooked = std::thread::spawn(move || {
        std::panic::set_hook(Box::new(move |info| {
            // This hook also runs for the act's own panic.
            if BEGUN.load(Ordering::Relaxed) == 0 {
                act.run();
            }
            eprintln!("{info}");
        }));
        Builder::new().workers(1).run(|| {
            fiber::scope(|s| {
                let others = [1, 2].map(|_| s.spawn_local(|| panic!("with a hook")));
                for other in others {
                    other.join().map(drop).unwrap_err();
                }
            });
            assert!(!std::thread::panicking());
        })
    });
    fiber::unblock(|| hooked.join().unwrap().unwrap());
}

/// The code that formats the message of a panic is the fiber's own. std calls it during its hook.
struct Message(Act);

impl Display for Message {
    fn fmt(&self, f: &mut Formatter<'_>) -> std::fmt::Result {
        self.0.run();
        f.write_str("a message")
    }
}

/// Panics and catches the panic, without a message: thousands would be written.
fn panics_silently() {
    static HOOK: std::sync::Once = std::sync::Once::new();
    if !std::thread::panicking() {
        HOOK.call_once(|| {
            let before = std::panic::take_hook();
            std::panic::set_hook(Box::new(move |info| {
                if !info.payload().is::<Silent>() {
                    before(info);
                }
            }));
        });
    }
    catch_unwind(|| panic_any(Silent)).unwrap_err();
}

struct Silent;

/// Runs `f` beside fibers that panic whenever they run. If the act waits for fibers, it runs `f`
/// alone: the others would run too, and docs/book/src/hazards.md says how that ends.
fn beside_panics(act: Act, f: impl FnOnce()) {
    let over = Cell::new(act.needs_fiber());
    fiber::scope(|s| {
        for _ in 0..2 {
            s.spawn_local(|| {
                fiber::protect(|| {
                    while !over.get() {
                        panics_silently();
                        fiber::yield_now();
                    }
                });
            });
        }
        let _over = OnDrop(|| over.set(true));
        f();
    });
}

fn panic_message(act: Act) {
    beside_panics(act, || {
        fiber::scope(|s| {
            let panics = s.spawn_local(|| panic!("{}", Message(act)));
            let payload = fiber::protect(|| panics.join()).map(drop).unwrap_err();
            // A cancel that the act raises replaces the panic.
            let message = payload.downcast_ref::<String>().map(String::as_str);
            assert!(act == Act::Cancels || message == Some("a message"));
        });
    });
}

/// std's count of panics belongs to another fiber.
fn message_beside_another(act: Act) {
    beside_a_suspended_destructor(|| panic_message(act));
}

fn message_in_destructor(act: Act) {
    let unwinds = AssertUnwindSafe(|| {
        let _formats = OnDrop(|| panic_message(act));
        panic!("its destructors run");
    });
    catch_unwind(unwinds).unwrap_err();
}

/// The fiber has caught its first panic without the library.
fn second_panic_message(act: Act) {
    beside_panics(act, || {
        panics_silently();
        catch_unwind(|| panic!("{}", Message(act))).unwrap_err();
    });
}

/// The library's hook does not run first when a panic begins.
fn hook_set_within_run(act: Act) {
    std::panic::set_hook(Box::new(move |info| {
        if info.payload().is::<&str>() && BEGUN.load(Ordering::Relaxed) == 0 {
            act.run();
        }
        eprintln!("{info}");
    }));
    beside_panics(act, || {
        catch_unwind(|| panic!("with a hook")).unwrap_err();
    });
}

// ----- called outside of any fiber -----

thread_local! {
    static AT_EXIT: RefCell<Option<Says>> = const { RefCell::new(None) };
    static HELD: RefCell<Vec<u8>> = RefCell::new(vec![7; 64]);
}

/// Runs the act, and prints that the cell is done, when the thread's locals are destroyed.
struct Says(Act);

impl Drop for Says {
    fn drop(&mut self) {
        self.0.run();
        eprintln!("{DONE}");
    }
}

fn thread_local_at_exit(act: Act) {
    // Made first, so destroyed last. The other fiber has a reference to a local that is destroyed
    // before it.
    AT_EXIT.with(|at_exit| *at_exit.borrow_mut() = Some(Says(act)));
    fiber::scope(|s| {
        s.spawn_daemon_local(|| {
            HELD.with(|held| {
                fiber::protect(|| (0..1000).for_each(|_| fiber::yield_now()));
                assert_eq!(*held.borrow(), [7; 64]);
                eprintln!("a fiber runs on");
                std::process::abort();
            });
        });
        fiber::protect(fiber::yield_now);
        cringle::process::exit(0);
    });
}

#[cfg(feature = "tracing")]
mod subscriber {
    use super::*;
    use tracing::{Event, Id, Subscriber};
    use tracing_subscriber::layer::{Context, Layer, SubscriberExt};

    /// Runs the act on each event of the library, or whenever a span is entered or left.
    struct Acts {
        act: Act,
        spans: bool,
    }

    /// Set while the program itself uses spans, or the subscriber acts, whose events are ignored.
    static ACTS: AtomicBool = AtomicBool::new(false);

    impl Acts {
        fn act(&self) {
            if !ACTS.swap(true, Ordering::Relaxed) {
                let _over = OnDrop(|| ACTS.store(false, Ordering::Relaxed));
                self.act.run();
            }
        }
    }

    impl<S: Subscriber> Layer<S> for Acts {
        fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
            if !self.spans && event.metadata().target() == "cringle" {
                self.act();
            }
        }

        fn on_enter(&self, _: &Id, _: Context<'_, S>) {
            if self.spans {
                self.act();
            }
        }

        fn on_exit(&self, _: &Id, _: Context<'_, S>) {
            if self.spans {
                self.act();
            }
        }
    }

    /// Runs a fiber whose actions the subscriber sees: an operation, a scope with a daemon, a lock,
    /// a spawn.
    fn with(act: Act, spans: bool) {
        let acts = tracing_subscriber::registry().with(Acts { act, spans });
        tracing::subscriber::set_global_default(acts).unwrap();
        let (reader, writer) = pipe();
        let on_stack = Cell::new(0);
        fiber::scope(|s| {
            s.spawn_daemon_local(|| {
                fiber::protect(|| (0..20).for_each(|_| fiber::yield_now()));
                on_stack.set(on_stack.get() + 1);
            });
            s.spawn_local(|| {
                let mut buf = vec![0; 64];
                let span = tracing::info_span!("reads");
                let own = |f: &mut dyn FnMut()| {
                    ACTS.store(spans, Ordering::Relaxed);
                    f();
                    ACTS.store(false, Ordering::Relaxed);
                };
                let mut entered = None;
                own(&mut || entered = spans.then(|| span.enter()));
                assert_eq!(fiber::protect(|| (&reader).read(&mut buf)).unwrap(), 3);
                assert_eq!(&buf[..3], b"abc");
                own(&mut || entered = None);
                on_stack.set(on_stack.get() + 1);
            });
            fiber::protect(|| {
                fiber::yield_now();
                (&writer).write_all(b"abc").unwrap();
            });
        });
        assert_eq!(on_stack.get(), 2);
    }

    pub(super) fn event(act: Act) {
        with(act, false);
    }

    pub(super) fn span(act: Act) {
        with(act, true);
    }
}
