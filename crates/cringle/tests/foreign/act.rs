//! The actions of foreign code.

use cringle::fs::File;
use cringle::sync::Mutex;
use cringle::{cancel, fiber};
use std::any::Any;
use std::cell::Cell;
use std::io::{self, Read, Write};
use std::os::fd::OwnedFd;
use std::panic::{catch_unwind, panic_any, resume_unwind};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

/// The numbers of acts that have begun and ended.
pub(crate) static BEGUN: AtomicUsize = AtomicUsize::new(0);
pub(crate) static ENDED: AtomicUsize = AtomicUsize::new(0);
/// A cancel of the fiber may end the act.
pub(crate) static MAY_BE_CUT: AtomicBool = AtomicBool::new(false);
/// Asks for a cancel of the fiber.
pub(crate) static CANCEL: AtomicBool = AtomicBool::new(false);

/// A payload raised by a cancelled wait.
pub(crate) static CANCELLED: std::sync::Mutex<Option<Box<dyn Any + Send>>> =
    std::sync::Mutex::new(None);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Act {
    Returns,
    Panics,
    Waits,
    /// Waits, and is cancelled meanwhile.
    Cancelled,
    /// Panics with a payload whose destructor panics.
    Bomb,
    Spawns,
    /// Catches a panic, and raises the payload again.
    Reraises,
    /// Raises the payload of a cancel.
    Cancels,
    OpensScope,
}

/// A payload whose destructor panics.
struct Bomb;

impl Drop for Bomb {
    fn drop(&mut self) {
        panic!("the destructor of a payload");
    }
}

impl Act {
    pub(crate) const ALL: [Act; 9] = [
        Act::Returns,
        Act::Panics,
        Act::Waits,
        Act::Cancelled,
        Act::Bomb,
        Act::Spawns,
        Act::Reraises,
        Act::Cancels,
        Act::OpensScope,
    ];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Act::Returns => "returns",
            Act::Panics => "panics",
            Act::Waits => "waits",
            Act::Cancelled => "cancelled",
            Act::Bomb => "bomb",
            Act::Spawns => "spawns",
            Act::Reraises => "reraises",
            Act::Cancels => "cancels",
            Act::OpensScope => "opens_scope",
        }
    }

    /// Whether a payload leaves the act.
    pub(crate) fn raises(self) -> bool {
        matches!(self, Act::Panics | Act::Bomb | Act::Reraises | Act::Cancels)
    }

    /// Whether the act panics outside of any fiber.
    pub(crate) fn needs_fiber(self) -> bool {
        matches!(self, Act::Spawns | Act::OpensScope)
    }

    pub(crate) fn run(self) {
        BEGUN.fetch_add(1, Ordering::Relaxed);
        match self {
            Act::Returns => {}
            Act::Panics => panic!("foreign code"),
            Act::Waits => wait(),
            Act::Cancelled => {
                CANCEL.store(true, Ordering::Relaxed);
                fiber::sleep(Duration::from_millis(5));
                // Only `panic = "abort"` prevents the unwinding.
                if !MAY_BE_CUT.load(Ordering::Relaxed) || cancel::check().is_ok() {
                    wait();
                }
            }
            Act::Bomb => panic_any(Bomb),
            Act::Spawns => {
                let there = fiber::spawn(|| 1).join().unwrap();
                let here = fiber::spawn_local(|| {
                    fiber::yield_now();
                    2
                });
                assert_eq!(there + here.join().unwrap(), 3);
            }
            Act::Reraises => {
                let payload = catch_unwind(|| panic!("foreign code, caught")).unwrap_err();
                fiber::yield_now();
                resume_unwind(payload);
            }
            Act::Cancels => {
                let payload = CANCELLED.lock().unwrap().take();
                resume_unwind(payload.expect("a cancel that was caught"));
            }
            Act::OpensScope => {
                let sum = Cell::new(0);
                fiber::scope(|s| {
                    s.on_exit_local(|| sum.set(sum.get() * 10));
                    for n in 1..=3 {
                        let sum = &sum;
                        s.spawn_local(move || {
                            fiber::yield_now();
                            sum.set(sum.get() + n);
                        });
                    }
                });
                assert_eq!(sum.get(), 60);
            }
        }
        ENDED.fetch_add(1, Ordering::Relaxed);
    }
}

pub(crate) fn pipe() -> (File, File) {
    let (reader, writer) = io::pipe().unwrap();
    (OwnedFd::from(reader).into(), OwnedFd::from(writer).into())
}

/// Waits in each way: for other fibers, the clock, a lock, a peer, a file, another thread.
fn wait() {
    fiber::yield_now();
    fiber::sleep(Duration::from_millis(1));
    *Mutex::new(1).lock().unwrap() += 1;
    let (reader, writer) = pipe();
    (&writer).write_all(b"seven b").unwrap();
    let mut buf = vec![0; 7];
    (&reader).read_exact(&mut buf).unwrap();
    assert_eq!(buf, b"seven b");
    let path = std::env::current_exe().unwrap();
    (&File::open(path).unwrap()).read_exact(&mut buf[..4]).unwrap();
    assert_eq!(&buf[..4], b"\x7fELF");
    fiber::unblock(|| std::thread::sleep(Duration::from_millis(1)));
    cancel::check().unwrap();
}
