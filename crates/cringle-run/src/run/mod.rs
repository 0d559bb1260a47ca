//! `run`: from the caller's thread to workers and back, with nothing left behind.
//!
//! `builder` holds the options and decides which driver to try. `start` makes the workers, runs the
//! program on them, and returns when the last one has closed its ring (**I9**).

mod builder;
mod start;
#[cfg(all(test, not(loom)))]
mod tests;

pub use builder::{Builder, InternalOptions};

/// Runs `f` on a fiber and returns its value. Each core that the process may use gets a worker.
/// [`Builder::run`] does the same with other options.
///
/// ```
/// let answer = cringle::run(|| cringle::fiber::spawn(|| 6 * 7).join().unwrap());
/// assert_eq!(answer, 42);
/// ```
///
/// # Panics
///
/// With `f`'s own panic. Also within another `run`, and where the system refuses a resource that
/// the runtime needs; the message then names the remedy. ([`Builder::run`] returns an error
/// instead.)
#[track_caller]
pub fn run<F, T>(f: F) -> T
where
    F: FnOnce() -> T,
{
    match Builder::new().run(f) {
        Ok(value) => value,
        Err(e) => cannot_start(&e),
    }
}

#[cold]
#[track_caller]
fn cannot_start(e: &std::io::Error) -> ! {
    panic!("cringle::run cannot start: {e}")
}
