//! What the environment chooses of a runtime, where the program does not.

use super::MAX_WORKERS;
use cringle_core::choices::{Balance, NoRing, Threads, no_ring};
use cringle_sys as sys;
use cringle_sys::word_choice::of_environment;
use cringle_tls::ThreadLocals;
use std::io;

pub(super) fn workers() -> io::Result<Option<usize>> {
    const VARIABLE: &str = "CRINGLE_WORKERS";
    let Some(value) = std::env::var_os(VARIABLE).filter(|value| !value.is_empty()) else {
        return Ok(None);
    };
    let number = value.to_str().and_then(|text| text.parse().ok());
    match number.filter(|workers| (1..=MAX_WORKERS).contains(workers)) {
        Some(workers) => Ok(Some(workers)),
        None => Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            format!("{VARIABLE} is {value:?}, must be 1 to {MAX_WORKERS}; or unset it"),
        )),
    }
}

pub(super) fn balance() -> io::Result<Option<Balance>> {
    let values =
        [("fixed", Balance::Fixed), ("moving", Balance::Moving), ("restless", Balance::Restless)];
    of_environment("CRINGLE_BALANCE", &values, "`fixed` or `moving`")
}

pub(super) fn thread_locals() -> io::Result<Option<ThreadLocals>> {
    let values = [("shared", ThreadLocals::Shared), ("private", ThreadLocals::Private)];
    of_environment("CRINGLE_THREAD_LOCALS", &values, "`shared` or `private`")
}

/// `None` also in a program that does not interpose libc's calls: its threads are the system's.
pub(super) fn threads() -> io::Result<Option<Threads>> {
    let values = [("system", Threads::System), ("fibers", Threads::Fibers)];
    let chosen = of_environment("CRINGLE_THREADS", &values, "`system` or `fibers`")?;
    Ok(chosen.filter(|_| sys::is_interposed()))
}

pub(super) fn restricts_rings() -> io::Result<bool> {
    let values = [("on", true), ("off", false)];
    Ok(of_environment("CRINGLE_RESTRICT", &values, "`on` or `off`")?.unwrap_or(false))
}

/// The drivers to try.
#[derive(Clone, Debug)]
pub(in crate::run) enum Plan {
    /// Rings. If they are refused, epoll, or an error.
    Rings {
        or_epoll: bool,
    },
    Epoll(NoRing),
    /// The simulated world of the run.
    Simulation,
}

impl Plan {
    /// Epoll, because this one chose it.
    pub(super) fn epoll_of(chooser: &str) -> Plan {
        Plan::Epoll(no_ring(format!("epoll was chosen by {chooser}"), true))
    }
}

pub(super) fn plan() -> io::Result<Plan> {
    const VARIABLE: &str = "CRINGLE_DRIVER";
    let Some(value) = std::env::var_os(VARIABLE) else { return Ok(Plan::Rings { or_epoll: true }) };
    match value.to_str() {
        Some("") => Ok(Plan::Rings { or_epoll: true }),
        Some("uring" | "ring") => Ok(Plan::Rings { or_epoll: false }),
        Some("epoll") => Ok(Plan::epoll_of("the environment (CRINGLE_DRIVER=epoll)")),
        _ => Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            format!(
                "{VARIABLE} is {value:?}, must be `uring` or `epoll`; unset it to use rings \
                 where they are available"
            ),
        )),
    }
}
