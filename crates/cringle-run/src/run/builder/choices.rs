//! What a run uses, by its builder, by the environment, and by default.

use super::environment::{self, Plan};
use super::{Builder, MAX_IN_FLIGHT, MAX_RING_ENTRIES, MAX_WORKERS};
use crate::crash;
use crate::diagnostics::watchdog::{self, Watched};
pub(super) use cringle_core::choices::Balance;
use cringle_core::choices::DriverChoice;
pub(super) use cringle_core::choices::Threads;
use cringle_sys as sys;
use cringle_sys::word_choice;
use cringle_tls::{self as thread_locals, ThreadLocals};
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// How the fibers of a run relate to the threads of the system.
pub(super) struct Mode {
    pub(super) balance: Balance,
    /// Why fibers share the thread-locals of their worker, if they do.
    pub(super) why_shared: Option<Arc<str>>,
}

impl Builder {
    pub(super) fn validate(&self) -> io::Result<()> {
        let (entries, limit) = (self.ring.entries, self.ring.in_flight_limit);
        let text = if self.workers.is_some_and(|workers| !(1..=MAX_WORKERS).contains(&workers)) {
            format!("Builder::workers must be 1 to {MAX_WORKERS}")
        } else if !(1..=MAX_RING_ENTRIES).contains(&entries) {
            format!("Builder::ring_entries is {entries}, must be 1 to {MAX_RING_ENTRIES}")
        } else if !(1..=MAX_IN_FLIGHT).contains(&limit) {
            format!("Builder::in_flight_limit is {limit}, must be 1 to {MAX_IN_FLIGHT}")
        } else {
            return Ok(());
        };
        Err(io::Error::new(io::ErrorKind::InvalidInput, text))
    }

    /// A simulation's workers are its seed's.
    pub(super) fn workers_to_use(&self) -> io::Result<Option<usize>> {
        match self.workers {
            None if self.world.is_none() => environment::workers(),
            chosen => Ok(chosen),
        }
    }

    pub(super) fn plan(&self) -> io::Result<Plan> {
        if self.world.is_some() {
            return Ok(Plan::Simulation);
        }
        match self.driver {
            DriverChoice::Uring => Ok(Plan::Rings { or_epoll: false }),
            DriverChoice::Epoll => Ok(Plan::epoll_of("the program (Builder::driver)")),
            _ => environment::plan(),
        }
    }

    pub(super) fn restricts_rings(&self) -> io::Result<bool> {
        match self.restrict_rings {
            Some(restrict) => Ok(restrict),
            None => environment::restricts_rings(),
        }
    }

    pub(super) fn watched(&self) -> io::Result<Option<Watched>> {
        match self.watchdog {
            Some(limit) => Ok(limit.map(Watched::Running)),
            None => watchdog::of_environment(),
        }
    }

    /// Installs the handlers of stack overflows and crashes that the program wants.
    pub(super) fn install_crash_handlers(&self) -> io::Result<()> {
        const VARIABLE: &str = "CRINGLE_CRASH_TEXT";
        let values = [("on", true), ("off", false)];
        let prints_crash_text = match self.crash_text {
            Some(print) => print,
            None => {
                word_choice::of_environment(VARIABLE, &values, "`on` or `off`")?.unwrap_or(true)
            }
        };
        if self.overflow_handler {
            crash::install_overflow_handler();
            if prints_crash_text {
                crash::report_crashes();
            }
        }
        Ok(())
    }

    /// Whose thread-locals fibers use, and whether they move. Without a choice they have their own,
    /// and move, wherever that works. A choice of the program's wins over the environment's.
    pub(super) fn mode(&self) -> io::Result<Mode> {
        let balance = match (self.balance, self.thread_locals) {
            (Some(balance), _) => Some(balance),
            (None, Some(ThreadLocals::Shared)) => Some(Balance::Fixed),
            (None, _) => environment::balance()?,
        };
        // What cannot do without thread-locals of its own.
        let needs = if balance.is_some_and(moves) {
            Some("fibers that move between workers (Balance::Moving)")
        } else if sys::is_interposed() && self.world.is_none() {
            Some("a program that interposes libc's calls (`cringle_interpose::install!`)")
        } else {
            None
        };
        let thread_locals = match self.thread_locals {
            Some(choice) => Some((choice, "the program")),
            None if self.balance.is_some_and(moves) => None,
            None => environment::thread_locals()?.map(|choice| (choice, "the environment")),
        };
        let why_shared = match (thread_locals, needs) {
            (Some((ThreadLocals::Shared, _)), Some(needs)) => {
                let text = format!(
                    "{needs}: fibers need thread-locals of their own, but ThreadLocals::Shared was \
                     chosen; remove one of the two"
                );
                return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
            }
            (Some((ThreadLocals::Shared, chooser)), None) => {
                Some(format!("ThreadLocals::Shared was chosen by {chooser}"))
            }
            (None, None) => thread_locals::why_not().inspect(|why| report_fallback(why)),
            (Some((ThreadLocals::Private, _)), _) | (None, Some(_)) => {
                thread_locals::check()?;
                None
            }
        };
        let by_default = if why_shared.is_none() { Balance::Moving } else { Balance::Fixed };
        Ok(Mode { balance: balance.unwrap_or(by_default), why_shared: why_shared.map(Arc::from) })
    }

    pub(super) fn threads_to_use(&self) -> io::Result<Threads> {
        let choice = match self.threads {
            Some(choice) => Some(choice),
            None => environment::threads()?,
        };
        let choice = choice.unwrap_or_default();
        if choice == Threads::System || sys::is_interposed() {
            return Ok(choice);
        }
        let text = "Threads::Fibers was chosen, but this program does not interpose libc's calls; \
                    call `cringle_interpose::install!` in main.rs, or choose Threads::System";
        Err(io::Error::new(io::ErrorKind::InvalidInput, text))
    }
}

/// Reports in a debug build, once in a process, that fibers are less than threads here.
fn report_fallback(why: &str) {
    static IS_REPORTED: AtomicBool = AtomicBool::new(false);
    if cfg!(debug_assertions) && !IS_REPORTED.swap(true, Ordering::Relaxed) {
        sys::report(format_args!(
            "{why}; so they share those of their worker, and stay on it. The book's chapter \
                 \"A fiber as a thread\" lists what differs; ThreadLocals::Shared, or \
                 CRINGLE_THREAD_LOCALS=shared, accepts it without this line"
        ));
    }
}

fn moves(balance: Balance) -> bool {
    balance != Balance::Fixed
}
