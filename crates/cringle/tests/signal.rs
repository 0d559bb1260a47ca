//! Signals end a program in order, kill it when they must, and are told to who listens. Each test
//! is a process of its own that is sent real signals.

mod child;

use child::Footprint;
use cringle::signal::{self, Signal, Signals};
use cringle::{Builder, Cancelled, cancel, fiber, time};
use std::io::{self, ErrorKind, Read};
use std::os::fd::OwnedFd;
use std::os::unix::process::ExitStatusExt;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

const FOREVER: Duration = Duration::from_secs(3600);

/// Sends this process a signal, as `kill(1)` would: some thread of it gets it, soon.
fn kill(signal: Signal) {
    // SAFETY: no pointers; the process is our own.
    assert_eq!(unsafe { libc::kill(libc::getpid(), signal.number()) }, 0);
}

/// Sends this thread a signal: it is handled when this returns.
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
fn the_first_signal_cancels_every_fiber_and_run_returns_in_order() {
    child::must_succeed("the_first_signal_cancels_every_fiber_and_run_returns_in_order", || {
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
                // It is sticky, and what must be done is.
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
        // The next run is another program.
        cringle::run(|| time::sleep(Duration::from_millis(1))).unwrap();
        let error = Builder::new().workers(2).run(run).unwrap();
        assert!(is_cancel(&error));
    });
}

#[test]
fn a_second_signal_kills_by_its_default_action() {
    let name = "a_second_signal_kills_by_its_default_action";
    let Some(output) = child::run(name) else {
        let start = Instant::now();
        return cringle::run(|| {
            let _guard = signal::cancel_on(&[Signal::Interrupt, Signal::Terminate]).unwrap();
            kill(Signal::Terminate);
            assert!(is_cancel(&time::sleep(FOREVER).unwrap_err()));
            // It does not end, though it is cancelled.
            fiber::protect(|| {
                while start.elapsed() < Duration::from_secs(20) {
                    kill(Signal::Interrupt);
                }
            });
        });
    };
    assert_eq!(output.status.signal(), Some(libc::SIGINT), "{}", child::transcript(&output));
}

/// No fiber has a turn while it computes: what it asks by `check` is all there is.
#[test]
fn a_signal_reaches_the_only_fiber_of_the_only_worker_while_it_computes() {
    let name = "a_signal_reaches_the_only_fiber_of_the_only_worker_while_it_computes";
    child::must_succeed(name, || {
        let run = || {
            let _guard = signal::cancel_on(&[Signal::Interrupt]).unwrap();
            kill(Signal::Interrupt);
            let start = Instant::now();
            while cancel::check().is_ok() {
                assert!(start.elapsed() < Duration::from_secs(20), "the signal is not seen");
            }
        };
        Builder::new().workers(1).run(run).unwrap();
    });
}

#[test]
fn a_signal_that_the_process_ignores_stays_ignored() {
    child::must_succeed("a_signal_that_the_process_ignores_stays_ignored", || {
        // SAFETY: no handler is installed, but one that is none.
        unsafe { libc::signal(libc::SIGINT, libc::SIG_IGN) };
        cringle::run(|| {
            let guard = signal::cancel_on(&[Signal::Interrupt, Signal::User1]).unwrap();
            assert_eq!(action_of(Signal::Interrupt).sa_sigaction, libc::SIG_IGN);
            raise(Signal::Interrupt);
            raise(Signal::User1);
            assert!(is_cancel(&time::sleep(FOREVER).unwrap_err()));
            assert_eq!(guard.received(), Some(Signal::User1));
            // Who asks for it by name is told.
            let signals = Signals::new(&[Signal::Interrupt]).unwrap();
            raise(Signal::Interrupt);
            assert_eq!(fiber::protect(|| signals.wait()).unwrap(), Signal::Interrupt);
        });
        assert_eq!(action_of(Signal::Interrupt).sa_sigaction, libc::SIG_IGN);
    });
}

#[test]
fn cancel_on_outside_of_a_runtime_is_refused() {
    let error = signal::cancel_on(&[Signal::Interrupt]).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported);
    assert!(error.to_string().contains("cringle::run"), "{error}");
}

// ----- what is left behind -----

#[test]
fn a_guard_and_a_listener_leave_nothing_behind() {
    let name = "a_guard_and_a_listener_leave_nothing_behind";
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
            // A guard may outlive its run.
            assert!(kept.iter().all(|guard| guard.received() == Some(Signal::User2)));
        };
        round();
        let before = Footprint::now();
        (0..30).for_each(|_| round());
        let after = Footprint::now();
        assert_eq!((before.descriptors, before.threads), (after.descriptors, after.threads));
        assert_eq!(action_of(Signal::User1).sa_sigaction, libc::SIG_DFL);
        // So this ends it, as the test expects.
        return raise(Signal::User1);
    };
    assert_eq!(output.status.signal(), Some(libc::SIGUSR1), "{}", child::transcript(&output));
}

#[test]
fn a_handler_of_the_programs_is_called_too_and_is_put_back() {
    static CALLS: AtomicUsize = AtomicUsize::new(0);
    extern "C" fn theirs(_: i32) {
        CALLS.fetch_add(1, Ordering::SeqCst);
    }
    child::must_succeed("a_handler_of_the_programs_is_called_too_and_is_put_back", || {
        let address = theirs as extern "C" fn(i32) as usize;
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

/// Neither is called for ever, whoever was first, whoever goes first.
#[test]
fn handlers_that_call_each_other_do_not_turn_in_circles() {
    static BELOW: AtomicUsize = AtomicUsize::new(0);
    static CALLS: AtomicUsize = AtomicUsize::new(0);
    extern "C" fn theirs(signal: i32, info: *mut libc::siginfo_t, context: *mut libc::c_void) {
        CALLS.fetch_add(1, Ordering::SeqCst);
        type Handler = extern "C" fn(i32, *mut libc::siginfo_t, *mut libc::c_void);
        // SAFETY: it is the address of a handler with this signature, which was installed before.
        let below: Handler = unsafe { std::mem::transmute(BELOW.load(Ordering::SeqCst)) };
        below(signal, info, context);
    }
    child::must_succeed("handlers_that_call_each_other_do_not_turn_in_circles", || {
        let ours = Signals::new(&[Signal::User1]).unwrap();
        let mut action = action_of(Signal::User1);
        BELOW.store(action.sa_sigaction, Ordering::SeqCst);
        action.sa_sigaction = theirs as *const () as usize;
        // SAFETY: the handler counts, and calls the one before it.
        unsafe { libc::sigaction(libc::SIGUSR1, &action, std::ptr::null_mut()) };
        raise(Signal::User1);
        assert_eq!(ours.wait().unwrap(), Signal::User1);
        // Theirs lies over ours, and is left there.
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
fn every_listener_is_told_each_kind_once_and_the_lowest_first() {
    child::must_succeed("every_listener_is_told_each_kind_once_and_the_lowest_first", || {
        Builder::new()
            .workers(2)
            .run(|| {
                let all = [Signal::User2, Signal::Hangup, Signal::User1];
                let (first, second) = (Signals::new(&all).unwrap(), Signals::new(&all).unwrap());
                let later = Signals::new(&all[..1]).unwrap();
                all.into_iter().cycle().take(9).for_each(raise);
                for signals in [&first, &second] {
                    let told = [(); 3].map(|()| signals.wait().unwrap());
                    assert_eq!(told, [Signal::Hangup, Signal::User1, Signal::User2]);
                }
                assert_eq!(later.wait().unwrap(), Signal::User2);
                // Nothing is told twice; a wait can be given up, and takes no signal with it.
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
fn a_waiting_fiber_is_woken_wherever_it_is() {
    child::must_succeed("a_waiting_fiber_is_woken_wherever_it_is", || {
        Builder::new()
            .workers(2)
            .run(|| {
                let signals = Signals::new(&[Signal::Hangup]).unwrap();
                for round in 0..200 {
                    fiber::scope(|s| {
                        let waits = || assert_eq!(signals.wait().unwrap(), Signal::Hangup);
                        let worker = fiber::Builder::new().worker(round % 2);
                        worker.spawn_scoped(s, waits).unwrap();
                        (0..round % 5).for_each(|_| fiber::yield_now());
                        kill(Signal::Hangup);
                    });
                }
                // Between calls nobody listens: so it is sent until it is heard.
                fiber::scope(|s| {
                    let keeps = Signals::new(&[Signal::User1]).unwrap();
                    let waits = s.spawn(|| signal::wait(Signal::User1).unwrap());
                    while !waits.is_finished() {
                        raise(Signal::User1);
                        keeps.wait().unwrap();
                        fiber::yield_now();
                    }
                });
            })
            .unwrap();
    });
}

#[test]
fn a_thread_without_a_runtime_may_wait() {
    child::must_succeed("a_thread_without_a_runtime_may_wait", || {
        let signals = Signals::new(&[Signal::Child, Signal::WindowChange]).unwrap();
        std::thread::scope(|s| {
            let waits = s.spawn(|| [(); 2].map(|()| signals.wait().unwrap()));
            kill(Signal::WindowChange);
            while !waits.is_finished() {
                kill(Signal::Child);
                std::thread::yield_now();
            }
            let told = waits.join().unwrap();
            assert!(told.contains(&Signal::Child), "{told:?}");
        });
    });
}
