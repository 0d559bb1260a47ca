//! A cancel reaches every scope, deadline and fiber below the cancelled one and no other, from any
//! thread; it is sticky, and stops at protected calls.

mod completion;
mod regions;
mod runtimes;
mod tree;

use cringle::{cancel, fiber, time};
use cringle_testing::tools::*;
use std::io::Read;
use std::panic::catch_unwind;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

const FOREVER: Duration = Duration::MAX;

const LEVELS: u32 = 3;
const LEAVES: usize = 2usize.pow(LEVELS);

/// Counts the leaves of a tree that wait and that were cancelled.
struct Leaves {
    owner: fiber::Thread,
    begun: AtomicUsize,
    cancelled: AtomicUsize,
}

impl Leaves {
    fn new() -> Leaves {
        let (begun, cancelled) = (AtomicUsize::new(0), AtomicUsize::new(0));
        Leaves { owner: fiber::current(), begun, cancelled }
    }

    fn wait_until_all_have_begun(&self) {
        while self.begun.load(Ordering::SeqCst) < LEAVES {
            fiber::park();
        }
    }

    /// Waits until it is cancelled; `number` selects the call.
    fn wait(&self, number: usize) {
        let (reader, _writer) = pipe();
        if self.begun.fetch_add(1, Ordering::SeqCst) + 1 == LEAVES {
            self.owner.unpark();
        }
        match number % 4 {
            0 => assert_cancelled(&time::sleep(FOREVER).unwrap_err()),
            1 => assert_cancelled(&(&reader).read(&mut [0]).unwrap_err()),
            2 => assert_unwound(catch_unwind(park_for_ever)),
            _ => assert_unwound(catch_unwind(|| drop(fiber::spawn(fiber::park).join()))),
        }
        assert_cancelled(&cancel::check().unwrap_err());
        self.cancelled.fetch_add(1, Ordering::SeqCst);
    }
}

/// Spawns two fibers, one on each worker; each opens a scope with two more, and so on. The last
/// level calls `leaf` with its number.
fn grow<'scope>(
    s: &'scope fiber::Scope<'scope, '_>,
    levels: u32,
    number: usize,
    leaf: &'scope (dyn Fn(usize) + Sync),
) {
    for worker in 0..2 {
        let number = 2 * number + worker;
        spawn_on(worker, s, move || match levels {
            1 => leaf(number),
            _ => fiber::scope(|s| grow(s, levels - 1, number, leaf)),
        });
    }
}

fn park_for_ever() {
    loop {
        fiber::park();
    }
}
