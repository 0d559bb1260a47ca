//! The library's own calls pass no interposed function (**I14**): this program defines libc's
//! blocking functions, uses the library on fibers, and fails if one of the functions is called
//! while a fiber runs. What the test itself calls is in [`own`].

#![cfg(target_env = "gnu")]
// The calls matter here, not what they transfer.
#![allow(clippy::unused_io_amount)]

mod block;
mod fibers;
mod files;
mod hooks;
mod processes;
mod sockets;

use cringle::runtime::{Balance, DriverChoice, ThreadLocals};
use cringle::{Builder, fiber};
pub(crate) use hooks::own;
use std::panic::Location;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Runs the closure on each driver, as the closure of `run` and on a fiber among others, and checks
/// that no interposed function was called on a fiber.
#[track_caller]
fn check(f: impl Fn() + Send + Sync + Copy) {
    check_run(Location::caller(), &|| {
        f();
        fiber::scope(|s| {
            s.spawn_daemon_local(|| {
                loop {
                    fiber::yield_now();
                }
            });
            s.spawn(f);
            s.spawn_local(f).join().unwrap();
        });
    });
}

/// [`check`] for a closure that fibers cannot run at the same time.
#[track_caller]
fn check_once(f: impl Fn()) {
    check_run(Location::caller(), &f);
}

fn check_run(place: &Location<'_>, f: &dyn Fn()) {
    let _serial = serial();
    hooks::begin();
    for driver in [DriverChoice::Auto, DriverChoice::Epoll] {
        for (workers, thread_locals) in [(1, ThreadLocals::Shared), (2, private_if_possible())] {
            let builder = Builder::new().driver(driver).thread_locals(thread_locals);
            let balance = match thread_locals {
                ThreadLocals::Shared => Balance::Fixed,
                ThreadLocals::Private => Balance::Restless,
            };
            builder.workers(workers).balance(balance).run(f).unwrap();
            let calls = hooks::take();
            let count = calls.len();
            assert!(
                calls.is_empty(),
                "{place}, {driver:?}, {workers} workers: {count} interposed calls, the first is {}",
                calls.join("\n")
            );
        }
    }
}

fn private_if_possible() -> ThreadLocals {
    let refused = Builder::new().thread_locals(ThreadLocals::Private).run(|| ()).is_err();
    if refused { ThreadLocals::Shared } else { ThreadLocals::Private }
}

/// Calls are noted for the whole process, so one test at a time runs.
fn serial() -> MutexGuard<'static, ()> {
    static SERIAL: Mutex<()> = Mutex::new(());
    SERIAL.lock().unwrap_or_else(PoisonError::into_inner)
}

#[test]
fn interposed_functions_are_noted() {
    let _serial = serial();
    hooks::begin();
    let before = hooks::count();
    std::fs::read("/proc/self/stat").unwrap();
    assert!(hooks::count() > before, "std's calls do not reach the functions of this program");
    let seen = cringle::run(|| {
        std::fs::read("/proc/self/stat").unwrap();
        hooks::take()
    });
    assert!(seen.iter().any(|call| call.starts_with("open64") || call.starts_with("open,")));
    cringle::run(|| own(|| std::fs::read("/proc/self/stat"))).unwrap();
    assert!(hooks::take().is_empty());
}
