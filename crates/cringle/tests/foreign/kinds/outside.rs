//! Code that runs outside of any fiber.

use super::DONE;
use crate::act::Act;
use cringle::fiber;
use std::cell::RefCell;

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

pub(super) fn thread_local_at_exit(act: Act) {
    // This local is made first, so it is destroyed last. The other fiber has a reference to a local
    // that is destroyed before.
    AT_EXIT.with(|at_exit| *at_exit.borrow_mut() = Some(Says(act)));
    fiber::scope(|s| {
        s.spawn_daemon_local(|| {
            HELD.with(|held| {
                fiber::protect(|| (0..1000).for_each(|_| fiber::yield_now()));
                assert_eq!(*held.borrow(), [7; 64]);
                eprintln!("a fiber still runs");
                std::process::abort();
            });
        });
        fiber::protect(fiber::yield_now);
        cringle::process::exit(0);
    });
}
