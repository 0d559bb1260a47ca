//! The choice of a driver by the program, the environment and the kernel.

use std::fmt;
use std::io;
use std::sync::Arc;

const VARIABLE: &str = "CRINGLE_DRIVER";

/// How operations are to reach the kernel: see [`Builder::driver`](crate::Builder::driver).
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

    fn chosen_by(chooser: &str) -> NoRing {
        NoRing { text: format!("epoll was chosen by {chooser}").into(), chosen: true }
    }

    pub(super) fn refused(e: &io::Error) -> NoRing {
        NoRing { text: e.to_string().into(), chosen: false }
    }
}

impl fmt::Display for NoRing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// The drivers to try.
#[derive(Clone, Debug)]
pub(super) enum Plan {
    /// Rings. If they are refused, epoll, or an error.
    Rings {
        or_epoll: bool,
    },
    Epoll(NoRing),
    /// The simulated world of the run.
    Simulation,
}

impl DriverChoice {
    pub(super) fn plan(self) -> io::Result<Plan> {
        match self {
            DriverChoice::Uring => Ok(Plan::Rings { or_epoll: false }),
            DriverChoice::Epoll => {
                Ok(Plan::Epoll(NoRing::chosen_by("the program (Builder::driver)")))
            }
            DriverChoice::Auto => plan_of_environment(),
        }
    }
}

fn plan_of_environment() -> io::Result<Plan> {
    let Some(value) = std::env::var_os(VARIABLE) else { return Ok(Plan::Rings { or_epoll: true }) };
    match value.to_str() {
        Some("") => Ok(Plan::Rings { or_epoll: true }),
        Some("uring" | "ring") => Ok(Plan::Rings { or_epoll: false }),
        Some("epoll") => {
            Ok(Plan::Epoll(NoRing::chosen_by("the environment (CRINGLE_DRIVER=epoll)")))
        }
        _ => Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            format!(
                "{VARIABLE} is {value:?}, must be `uring` or `epoll`; unset it to use rings \
                 where they are available"
            ),
        )),
    }
}
