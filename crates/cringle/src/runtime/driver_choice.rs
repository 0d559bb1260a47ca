//! Which driver a run has: what the program, the environment and the kernel say to that.

use std::fmt;
use std::io;
use std::sync::Arc;

/// Chooses where the program does not.
const VARIABLE: &str = "CRINGLE_DRIVER";

/// How operations are to reach the kernel: see [`Builder::driver`](crate::Builder::driver).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum DriverChoice {
    /// What the environment variable `CRINGLE_DRIVER` names, `uring` or `epoll`; without it, rings where
    /// they can be had, else epoll.
    #[default]
    Auto,
    /// Rings, or an error that says why there can be none.
    Uring,
    /// Readiness and threads, though there may be rings.
    Epoll,
}

/// Why operations do not go through rings: its `Display` says what denied them, and what to do about it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NoRing {
    text: Arc<str>,
    chosen: bool,
}

impl NoRing {
    /// Whether the program or the environment wants it so; else rings were refused.
    pub fn was_chosen(&self) -> bool {
        self.chosen
    }

    fn chosen_by(who: &str) -> NoRing {
        NoRing { text: format!("epoll was chosen by {who}").into(), chosen: true }
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

/// What to try.
#[derive(Clone, Debug)]
pub(super) enum Plan {
    /// Rings; whether epoll is next.
    Rings {
        or_epoll: bool,
    },
    Epoll(NoRing),
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
        Some("uring") => Ok(Plan::Rings { or_epoll: false }),
        Some("epoll") => {
            Ok(Plan::Epoll(NoRing::chosen_by("the environment (CRINGLE_DRIVER=epoll)")))
        }
        _ => Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            format!(
                "{VARIABLE} is {value:?}, must be `uring` or `epoll`; without it, the better one that \
                 can be had is used"
            ),
        )),
    }
}
