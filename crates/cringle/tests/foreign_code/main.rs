//! Code of the program that the library calls and that must neither unwind nor be cancelled:
//! destructors of results, payloads and fiber-locals, panic hooks, callbacks (**I12**, **I13**).
//! `tests/foreign` has the whole matrix; these cases need more than a cell of it. Also what a fiber
//! does while it unwinds, and the buffers that it leaves to the kernel.

mod callbacks;
mod cancelled;
mod payloads;
mod poison;
mod teardown;
mod unwinding;

use cringle::fiber;
use cringle_testing::tools::OnDrop;
use std::cell::Cell;

/// A payload whose destructor panics.
struct Bomb;

impl Drop for Bomb {
    fn drop(&mut self) {
        panic!("the payload's destructor");
    }
}

/// Runs `f` while another fiber is suspended in a destructor of its panic.
fn beside_waiting_destructor(f: impl FnOnce()) {
    let go = &Cell::new(false);
    fiber::scope(|s| {
        let waits = s.spawn_local(move || {
            let _waits = OnDrop(|| {
                while !go.get() {
                    fiber::yield_now();
                }
            });
            panic!("its destructor waits");
        });
        fiber::yield_now();
        assert!(std::thread::panicking());
        {
            let _ends = OnDrop(|| go.set(true));
            f();
        }
        waits.join().map(drop).unwrap_err();
    });
}
