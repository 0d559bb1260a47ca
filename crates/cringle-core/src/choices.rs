//! What a program chooses of its runtime.

use std::fmt;
use std::sync::Arc;

/// How operations are to reach the kernel: see [`Builder::driver`].
///
/// [`Builder::driver`]: https://docs.rs/cringle/latest/cringle/struct.Builder.html#method.driver
///
/// ```
/// use cringle::runtime::{self, Driver, DriverChoice};
///
/// let builder = cringle::Builder::new().driver(DriverChoice::Epoll);
/// assert!(matches!(builder.run(runtime::driver)?, Driver::Epoll(_)));
/// # std::io::Result::Ok(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum DriverChoice {
    /// The driver that the environment variable `CRINGLE_DRIVER` names, `uring` (also `ring`) or
    /// `epoll`. Without it, rings where the kernel grants them, otherwise epoll.
    #[default]
    Auto,
    /// Rings, or an error with the reason why the kernel refuses them.
    Uring,
    /// Readiness and threads, even where rings are available.
    Epoll,
}

/// The reason why a runtime does not use rings. Its `Display` names what refused them, and the
/// remedy.
///
/// ```
/// use cringle::runtime::{self, Driver};
///
/// cringle::run(|| {
///     if let Driver::Epoll(why) = runtime::driver() {
///         eprintln!("without a ring: {why}");
///     }
/// });
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NoRing {
    text: Arc<str>,
    chosen: bool,
}

impl NoRing {
    /// Whether the program or the environment chose this; otherwise rings were refused.
    ///
    /// ```
    /// use cringle::runtime::{self, Driver};
    ///
    /// cringle::run(|| {
    ///     if let Driver::Epoll(why) = runtime::driver() {
    ///         println!("{}", if why.was_chosen() { "chosen" } else { "refused" });
    ///     }
    /// });
    /// ```
    pub fn was_chosen(&self) -> bool {
        self.chosen
    }
}

impl fmt::Display for NoRing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// The reason why there is no ring.
pub fn no_ring(text: String, chosen: bool) -> NoRing {
    NoRing { text: text.into(), chosen }
}

/// Whether started fibers move between workers: see [`Builder::balance`].
///
/// [`Builder::balance`]: https://docs.rs/cringle/latest/cringle/struct.Builder.html#method.balance
///
/// ```
/// use cringle::runtime::Balance;
///
/// assert_eq!(cringle::Builder::new().balance(Balance::Fixed).run(|| 7)?, 7);
/// # std::io::Result::Ok(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Balance {
    /// A fiber stays on the worker that has started it.
    Fixed,
    /// A worker without work takes ready fibers from one that has too much. It takes a fiber that
    /// was started with `Send` bounds, together with its local fibers, and only where thread-locals
    /// are [private](cringle_tls::ThreadLocals::Private).
    #[default]
    Moving,
    /// Fibers move whenever they may, needed or not. For tests.
    #[doc(hidden)]
    Restless,
}

/// What libc's `pthread_create` starts on a fiber, and so `std::thread::spawn`: see
/// [`Builder::threads`].
///
/// [`Builder::threads`]: https://docs.rs/cringle/latest/cringle/struct.Builder.html#method.threads
///
/// ```
/// use cringle::runtime::{self, Threads};
///
/// let builder = cringle::Builder::new().threads(Threads::System);
/// assert_eq!(builder.run(runtime::threads)?, Some(Threads::System));
/// # std::io::Result::Ok(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Threads {
    /// A thread of the system, beside the fibers.
    #[default]
    System,
    /// A fiber with thread-locals of its own. Only in a program that interposes libc's calls, which
    /// `cringle_interpose::install!` does.
    Fibers,
}
