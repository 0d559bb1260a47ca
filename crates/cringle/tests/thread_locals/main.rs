//! Fibers with thread-locals of their own ([`ThreadLocals::Private`]) are threads to all code of
//! the process.

#[path = "../tools/mod.rs"]
mod tools;

mod std_types;

use cringle::Builder;
use cringle::runtime::ThreadLocals;

/// Runs `f` with private thread-locals, on one worker and on two.
fn with_private(f: impl Fn() + Send + Sync) {
    for workers in [1, 2] {
        let builder = Builder::new().workers(workers).thread_locals(ThreadLocals::Private);
        builder.run(&f).unwrap();
    }
}
