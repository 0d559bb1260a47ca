//! Three faults that hang programs, and how a dump shows them: two locks that are acquired in
//! opposite orders, an `unpark` that is never sent, and a loop that lets no other fiber run.
//!
//!     cargo run --example faults

use cringle::runtime::{self, Dump};
use cringle::{Builder, fiber, sync::Mutex};
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};

fn named(name: &str) -> fiber::Builder {
    fiber::Builder::new().name(name.into())
}

fn transfer(from: &Mutex<u32>, to: &Mutex<u32>) {
    let mut from = from.lock().unwrap();
    fiber::yield_now();
    *to.lock().unwrap() += std::mem::take(&mut *from);
}

fn run() -> io::Result<Dump> {
    let (begun, spins) = (AtomicBool::new(false), AtomicBool::new(true));
    Builder::new().workers(2).watchdog(None).run(|| {
        let (left, right) = (Mutex::new(1), Mutex::new(2));
        fiber::scope(|s| {
            named("to the right").spawn_scoped_local(s, || transfer(&left, &right))?;
            named("to the left").spawn_scoped_local(s, || transfer(&right, &left))?;
            named("forgotten").spawn_scoped_local(s, fiber::park)?;
            let spin = || {
                begun.store(true, Ordering::Relaxed);
                while spins.load(Ordering::Relaxed) {
                    std::hint::spin_loop();
                }
            };
            named("spinner").worker(1).spawn_scoped(s, spin)?;
            while !begun.load(Ordering::Relaxed) {
                fiber::yield_now();
            }
            // Let the other fibers reach the calls in which they hang.
            (0..4).for_each(|_| fiber::yield_now());
            let dump = runtime::dump().expect("there is a runtime here");
            // End the program: the waiting fibers unwind.
            spins.store(false, Ordering::Relaxed);
            s.cancel();
            Ok(dump)
        })
    })?
}

fn main() -> io::Result<()> {
    print!("{}", run()?);
    Ok(())
}
