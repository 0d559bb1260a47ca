//! Code that runs during an unwinding.

use super::{Foreign, OnDrop};
use crate::act::{Act, BEGUN};
use cringle::{Builder, fiber};
use std::cell::Cell;
use std::fmt::{Display, Formatter};
use std::panic::{AssertUnwindSafe, catch_unwind, panic_any};
use std::sync::atomic::Ordering;

pub(super) fn destructor_in_panic(act: Act) {
    let unwinds = AssertUnwindSafe(|| {
        let _foreign = Foreign(act);
        panic!("its destructors run");
    });
    catch_unwind(unwinds).unwrap_err();
    assert!(!fiber::panicking());
}

pub(super) fn beside_another(act: Act) {
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

pub(super) fn destructor_in_cancel(act: Act) {
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

pub(super) fn panic_hook(act: Act) {
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

pub(super) fn panic_message(act: Act) {
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
pub(super) fn message_beside_another(act: Act) {
    beside_a_suspended_destructor(|| panic_message(act));
}

pub(super) fn message_in_destructor(act: Act) {
    let unwinds = AssertUnwindSafe(|| {
        let _formats = OnDrop(|| panic_message(act));
        panic!("its destructors run");
    });
    catch_unwind(unwinds).unwrap_err();
}

/// The fiber has caught its first panic without the library.
pub(super) fn second_panic_message(act: Act) {
    beside_panics(act, || {
        panics_silently();
        catch_unwind(|| panic!("{}", Message(act))).unwrap_err();
    });
}

/// The library's hook does not run first when a panic begins.
pub(super) fn hook_set_within_run(act: Act) {
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
