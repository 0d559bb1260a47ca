//! Fibers with thread-locals of their own ([`ThreadLocals::Private`]) are threads to all code of
//! the process.

mod changes;
mod choices;
mod credentials;
mod families;
mod forks;
mod keys;
mod libc_calls;
mod many;
mod modules;
mod state;
mod std_types;

use cringle::Builder;
use cringle::runtime::ThreadLocals;
use std::io::ErrorKind;

/// Runs `f` with private thread-locals on this many workers, where they can be had.
#[track_caller]
fn on_workers<T>(workers: usize, f: impl FnOnce() -> T) -> Option<T> {
    match Builder::new().workers(workers).thread_locals(ThreadLocals::Private).run(f) {
        Ok(value) => Some(value),
        Err(e) if e.kind() == ErrorKind::Unsupported && cfg!(not(target_env = "gnu")) => {
            println!("skipped: {e}");
            None
        }
        Err(e) => panic!("{e}"),
    }
}

/// Runs `f` with private thread-locals, on one worker and on two.
#[track_caller]
fn with_private(f: impl Fn() + Send + Sync) {
    on_workers(1, &f);
    on_workers(2, &f);
}
