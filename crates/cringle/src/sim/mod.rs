//! A seeded simulation to test with: the same fibers and the same library over files in memory,
//! in virtual time, with faults. (Feature `sim`.)
//!
//! [`run`] is [`cringle::run`](crate::run) in such a world. Every choice (what ends when, what comes
//! back short, what fails) is drawn from one seed, so that a failure comes again with its seed. When
//! all fibers wait, the time jumps: an hour's timeout takes microseconds.
//!
//! ```
//! use cringle::{fiber, fs::File, sim, time};
//! use std::io::{Read, Write};
//! use std::time::Duration;
//!
//! let options = sim::Options::new().faults(sim::Faults::hidden());
//! let report = sim::run(7, &options, || {
//!     let start = time::now();
//!     File::create("/log")?.write_all(b"rope strands")?;
//!     fiber::sleep(Duration::from_secs(3600));
//!     let mut text = String::new();
//!     File::open("/log")?.read_to_string(&mut text)?;
//!     assert!(time::now() - start >= Duration::from_secs(3600));
//!     std::io::Result::Ok(text)
//! })?;
//! assert_eq!(report.value?, "rope strands");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # What is checked
//!
//! In every run, always: each operation ends once; memory that is lent to an operation is left alone
//! until its fiber goes on; something can always go on (else the [`Failure`] says who waits for
//! what); the run ends; no descriptor of a simulated file stays open. Each is a [`Checker`].
//!
//! # What is simulated
//!
//! - **Files**: [`fs::File`](crate::fs::File) and what is built on it. The files of a world are its
//!   own: it begins with none, and the machine's are not there. Directories are there by themselves.
//! - **Time**: [`fiber::sleep`](crate::fiber::sleep), timeouts, [`time::now`](crate::time::now). Not
//!   `std::time::Instant::now`, nor `SystemTime::now`.
//! - **Streams**: [`stream_pair`], `std::io::pipe` and `UnixStream::pair` made into a `File`, and
//!   [`io::ready`](crate::io::ready).
//! - **Servers**: Unix sockets with their listeners, best at abstract addresses, as paths are the machine's
//!   ([`os::unix::net`](crate::os::unix::net)). Connecting and accepting take their time, and connections
//!   are cut. TCP's are refused (`ENOSYS`): when they come is the machine's to say.
//! - **Loss of power**: [`World::crash`] and [`World::run_until_power_loss`].
//!
//! # What is not
//!
//! There is one worker. [`fiber::unblock`](crate::fiber::unblock) runs its closure at once, on the
//! fiber. OS threads that you start run at their own pace, so that a seed does not decide what they
//! do; a fiber that waits for one of them looks like a deadlock. `std::fs` is the machine's.
//! [`BlockIo`](crate::block::BlockIo) has rings and threads of its own and is refused; a raw ring
//! entry has no meaning here (`EOPNOTSUPP`). Multishot operations
//! and linked ones do not exist in the library yet, so their faults do not either.

mod run;
mod stream;
#[cfg(test)]
mod tests;
mod world;

#[cfg(any(test, feature = "sabotage"))]
#[doc(hidden)]
pub use crate::driver::sim::Sabotage;
pub use crate::driver::sim::{Checker, Failure, Fault, Faults, Options, Rng, Stats};
pub use run::{Report, each, run};
pub use stream::stream_pair;
pub use world::World;
