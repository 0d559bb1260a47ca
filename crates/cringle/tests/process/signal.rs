//! Signals cancel a program's fibers, reach every listener, and leave no handler behind. Each test
//! runs in its own process, which sends itself real signals.

use cringle::signal::{self, Signal, Signals};
use cringle::{Builder, Cancelled, cancel, fiber, time};
use cringle_testing::child;
use cringle_testing::child::Footprint;
use std::io::{self, ErrorKind, Read};
use std::os::fd::OwnedFd;
use std::os::unix::process::ExitStatusExt;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

const FOREVER: Duration = Duration::from_secs(3600);

/// Sends a signal to this process, as `kill(1)` does. One of its threads handles it soon.
fn kill(signal: Signal) {
    // SAFETY: no pointers, and the process is this one.
    assert_eq!(unsafe { libc::kill(libc::getpid(), signal.number()) }, 0);
}

/// Sends a signal to this thread, which has handled it when this returns.
fn raise(signal: Signal) {
    // SAFETY: no pointers.
    assert_eq!(unsafe { libc::raise(signal.number()) }, 0);
}

fn action_of(signal: Signal) -> libc::sigaction {
    // SAFETY: the call fills the structure; all-zero is a valid one.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        assert_eq!(libc::sigaction(signal.number(), std::ptr::null(), &mut action), 0);
        action
    }
}

fn is_cancel(error: &io::Error) -> bool {
    cancel::reason(error).is_some()
}

// ----- cancel_on -----

#[test]
fn first_signal_cancels_every_fiber() {
    child::must_succeed("first_signal_cancels_every_fiber", || {
        let run = || {
            let guard = signal::cancel_on(&[Signal::Interrupt, Signal::Terminate]).unwrap();
            assert_eq!(guard.received(), None);
            let (reader, _writer) = io::pipe().unwrap();
            let reader = cringle::fs::File::from(OwnedFd::from(reader));
            let unwound = fiber::Builder::new().worker(1).spawn(|| fiber::sleep(FOREVER)).unwrap();
            let error = fiber::scope(|s| {
                let reads = s.spawn(|| (&reader).read(&mut [0]).unwrap_err());
                kill(Signal::Terminate);
                let error = time::sleep(FOREVER).unwrap_err();
                // The cancel is sticky, and does not reach protected code.
                assert!(cancel::check().is_err());
                fiber::protect(|| {
                    assert!(is_cancel(&reads.join().unwrap()));
                    assert!(unwound.join().unwrap_err().is::<Cancelled>());
                    time::sleep(Duration::from_millis(1)).unwrap();
                });
                error
            });
            assert_eq!(guard.received(), Some(Signal::Terminate));
            error
        };
        let error = Builder::new().workers(2).run(run).unwrap();
        assert!(is_cancel(&error));
        // The cancel does not affect later runs.
        cringle::run(|| time::sleep(Duration::from_millis(1))).unwrap();
        let error = Builder::new().workers(2).run(run).unwrap();
        assert!(is_cancel(&error));
    });
}

#[test]
fn second_signal_has_its_default_action() {
    let name = "second_signal_has_its_default_action";
    let Some(output) = child::run(name) else {
        return cringle::run(|| {
            let _guard = signal::cancel_on(&[Signal::Interrupt, Signal::Terminate]).unwrap();
            kill(Signal::Terminate);
            assert!(is_cancel(&time::sleep(FOREVER).unwrap_err()));
            // The fiber ignores the cancel, so only the signal's default action ends the process.
            fiber::protect(|| {
                loop {
                    kill(Signal::Interrupt);
                }
            });
        });
    };
    assert_eq!(output.status.signal(), Some(libc::SIGINT), "{}", child::transcript(&output));
}

/// The only fiber of the only worker computes, so no other fiber or message runs. Only `check` can
/// report the signal.
#[test]
fn signal_reaches_a_computing_fiber_by_check() {
    let name = "signal_reaches_a_computing_fiber_by_check";
    child::must_succeed(name, || {
        let run = || {
            let _guard = signal::cancel_on(&[Signal::Interrupt]).unwrap();
            kill(Signal::Interrupt);
            while cancel::check().is_ok() {}
        };
        Builder::new().workers(1).run(run).unwrap();
    });
}

#[test]
fn ignored_signal_stays_ignored() {
    child::must_succeed("ignored_signal_stays_ignored", || {
        // SAFETY: the call installs no handler, only the action "ignore".
        unsafe { libc::signal(libc::SIGINT, libc::SIG_IGN) };
        cringle::run(|| {
            let guard = signal::cancel_on(&[Signal::Interrupt, Signal::User1]).unwrap();
            assert_eq!(action_of(Signal::Interrupt).sa_sigaction, libc::SIG_IGN);
            raise(Signal::Interrupt);
            raise(Signal::User1);
            assert!(is_cancel(&time::sleep(FOREVER).unwrap_err()));
            assert_eq!(guard.received(), Some(Signal::User1));
            // A listener that names the signal receives it.
            let signals = Signals::new(&[Signal::Interrupt]).unwrap();
            raise(Signal::Interrupt);
            assert_eq!(fiber::protect(|| signals.wait()).unwrap(), Signal::Interrupt);
        });
        assert_eq!(action_of(Signal::Interrupt).sa_sigaction, libc::SIG_IGN);
    });
}

#[test]
fn cancel_on_fails_outside_of_a_runtime() {
    let error = signal::cancel_on(&[Signal::Interrupt]).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported);
    assert!(error.to_string().contains("cringle::run"), "{error}");
}

// ----- cleaning up -----

#[test]
fn guards_and_listeners_leave_nothing_behind() {
    let name = "guards_and_listeners_leave_nothing_behind";
    let Some(output) = child::run(name) else {
        let round = || {
            let kept = cringle::run(|| {
                let signals = [Signal::User1, Signal::User2];
                let _listeners = [(); 3].map(|()| Signals::new(&signals).unwrap());
                let guards = [(); 2].map(|()| signal::cancel_on(&signals).unwrap());
                raise(Signal::User2);
                assert!(is_cancel(&time::sleep(FOREVER).unwrap_err()));
                guards
            });
            // A guard can outlive its run.
            assert!(kept.iter().all(|guard| guard.received() == Some(Signal::User2)));
        };
        round();
        let before = Footprint::now();
        (0..30).for_each(|_| round());
        let after = Footprint::now();
        assert_eq!((before.descriptors, before.threads), (after.descriptors, after.threads));
        assert_eq!(action_of(Signal::User1).sa_sigaction, libc::SIG_DFL);
        // The default action is back, so this kills the process.
        return raise(Signal::User1);
    };
    assert_eq!(output.status.signal(), Some(libc::SIGUSR1), "{}", child::transcript(&output));
}

#[test]
fn previous_handler_is_called_and_restored() {
    static CALLS: AtomicUsize = AtomicUsize::new(0);
    extern "C" fn previous_handler(_: i32) {
        CALLS.fetch_add(1, Ordering::SeqCst);
    }
    child::must_succeed("previous_handler_is_called_and_restored", || {
        let address = previous_handler as extern "C" fn(i32) as usize;
        // SAFETY: the handler only counts.
        unsafe { libc::signal(libc::SIGUSR1, address) };
        for round in 1..=3 {
            let (first, second) = (
                Signals::new(&[Signal::User1]).unwrap(),
                Signals::new(&[Signal::User1, Signal::User2]).unwrap(),
            );
            assert_ne!(action_of(Signal::User1).sa_sigaction, address);
            raise(Signal::User1);
            assert_eq!(CALLS.load(Ordering::SeqCst), round * 2 - 1);
            assert_eq!(first.wait().unwrap(), Signal::User1);
            drop(first);
            assert_eq!(second.wait().unwrap(), Signal::User1);
            drop(second);
            assert_eq!(action_of(Signal::User1).sa_sigaction, address);
            raise(Signal::User1);
            assert_eq!(CALLS.load(Ordering::SeqCst), round * 2);
        }
    });
}

/// A handler of the program that is installed over the library's calls it, and the library's calls
/// the one that was installed before. Neither order makes them call each other without end.
#[test]
fn chained_handlers_do_not_recurse() {
    static CHAINED: AtomicUsize = AtomicUsize::new(0);
    static CALLS: AtomicUsize = AtomicUsize::new(0);
    extern "C" fn previous_handler(
        signal: i32,
        info: *mut libc::siginfo_t,
        context: *mut libc::c_void,
    ) {
        CALLS.fetch_add(1, Ordering::SeqCst);
        type Handler = extern "C" fn(i32, *mut libc::siginfo_t, *mut libc::c_void);
        // SAFETY: `CHAINED` is the address of the handler that was installed before, which has this
        // signature.
        let chained: Handler = unsafe { std::mem::transmute(CHAINED.load(Ordering::SeqCst)) };
        chained(signal, info, context);
    }
    child::must_succeed("chained_handlers_do_not_recurse", || {
        let ours = Signals::new(&[Signal::User1]).unwrap();
        let mut action = action_of(Signal::User1);
        CHAINED.store(action.sa_sigaction, Ordering::SeqCst);
        action.sa_sigaction = previous_handler as *const () as usize;
        // SAFETY: the handler only counts and calls the previous one.
        unsafe { libc::sigaction(libc::SIGUSR1, &action, std::ptr::null_mut()) };
        raise(Signal::User1);
        assert_eq!(ours.wait().unwrap(), Signal::User1);
        // The library does not remove a handler that was installed after its own.
        drop(ours);
        raise(Signal::User1);
        let ours = Signals::new(&[Signal::User1]).unwrap();
        raise(Signal::User1);
        assert_eq!(ours.wait().unwrap(), Signal::User1);
        assert_eq!(CALLS.load(Ordering::SeqCst), 3);
    });
}

// ----- listening -----

#[test]
fn every_listener_receives_each_signal_once_in_order() {
    child::must_succeed("every_listener_receives_each_signal_once_in_order", || {
        Builder::new()
            .workers(2)
            .run(|| {
                let all = [Signal::User2, Signal::Hangup, Signal::User1];
                let (first, second) = (Signals::new(&all).unwrap(), Signals::new(&all).unwrap());
                let later = Signals::new(&all[..1]).unwrap();
                all.into_iter().cycle().take(9).for_each(raise);
                for signals in [&first, &second] {
                    let received = [(); 3].map(|()| signals.wait().unwrap());
                    assert_eq!(received, [Signal::Hangup, Signal::User1, Signal::User2]);
                }
                assert_eq!(later.wait().unwrap(), Signal::User2);
                // No signal is received twice, and a wait that times out consumes none.
                let limit = Duration::from_millis(2);
                let error = time::timeout(limit, || first.wait()).unwrap_err();
                assert_eq!(error.kind(), ErrorKind::TimedOut);
                raise(Signal::User1);
                assert_eq!(first.wait().unwrap(), Signal::User1);
            })
            .unwrap();
    });
}

#[test]
fn waiting_fiber_is_woken_on_any_worker() {
    child::must_succeed("waiting_fiber_is_woken_on_any_worker", || {
        Builder::new()
            .workers(2)
            .run(|| {
                let signals = Signals::new(&[Signal::Hangup]).unwrap();
                for round in 0..200 {
                    fiber::scope(|s| {
                        let wait = || assert_eq!(signals.wait().unwrap(), Signal::Hangup);
                        let waiter = fiber::Builder::new().worker(round % 2);
                        waiter.spawn_scoped(s, wait).unwrap();
                        (0..round % 5).for_each(|_| fiber::yield_now());
                        kill(Signal::Hangup);
                    });
                }
                // `signal::wait` listens only while it waits, so the signal is sent until it
                // returns.
                fiber::scope(|s| {
                    let listener = Signals::new(&[Signal::User1]).unwrap();
                    let waiter = s.spawn(|| signal::wait(Signal::User1).unwrap());
                    while !waiter.is_finished() {
                        raise(Signal::User1);
                        listener.wait().unwrap();
                        fiber::yield_now();
                    }
                });
            })
            .unwrap();
    });
}

#[test]
fn thread_without_a_runtime_can_wait() {
    child::must_succeed("thread_without_a_runtime_can_wait", || {
        let signals = Signals::new(&[Signal::Child, Signal::WindowChange]).unwrap();
        std::thread::scope(|s| {
            let waiter = s.spawn(|| [(); 2].map(|()| signals.wait().unwrap()));
            kill(Signal::WindowChange);
            while !waiter.is_finished() {
                kill(Signal::Child);
                std::thread::yield_now();
            }
            let received = waiter.join().unwrap();
            assert!(received.contains(&Signal::Child), "{received:?}");
        });
    });
}
