//! What a run uses, by its builder, by the environment, and by default.

use super::{Builder, MAX_IN_FLIGHT, MAX_RING_ENTRIES, MAX_WORKERS};
use crate::runtime::balance::Balance;
use crate::runtime::crash;
use crate::runtime::diagnostics::watchdog::{self, Watched};
use crate::runtime::driver_choice::Plan;
use crate::runtime::thread_locals::{self, ThreadLocals};
use crate::runtime::threads::Threads;
use crate::runtime::word_choice;
use crate::sys;
use std::io;

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

    pub(super) fn plan(&self) -> io::Result<Plan> {
        if self.world.is_simulated() {
            return Ok(Plan::Simulation);
        }
        self.driver.plan()
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

    pub(super) fn balance_to_use(&self) -> io::Result<Balance> {
        let chosen = match self.balance {
            Some(balance) => Some(balance),
            None => Balance::of_environment()?,
        };
        Ok(chosen.unwrap_or_default())
    }

    pub(super) fn thread_locals_to_use(&self, balance: Balance) -> io::Result<ThreadLocals> {
        let choice = match self.thread_locals {
            Some(choice) => Some(choice),
            None => ThreadLocals::of_environment()?,
        };
        let choice = choice.unwrap_or_else(|| match balance {
            Balance::Fixed => ThreadLocals::default_choice(),
            Balance::Moving | Balance::Restless => ThreadLocals::Private,
        });
        if choice == ThreadLocals::Private {
            thread_locals::check()?;
        } else if balance.moves() {
            let text = "fibers that move between workers (Balance::Moving) need thread-locals of \
                        their own, but ThreadLocals::Shared was chosen; remove one of the two";
            return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
        } else if sys::is_interposed() && !self.world.is_simulated() {
            let text = "this program interposes libc's calls (`cringle_interpose::install!`), for \
                        which fibers need thread-locals of their own, but ThreadLocals::Shared was \
                        chosen; remove one of the two";
            return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
        }
        Ok(choice)
    }

    pub(super) fn threads_to_use(&self) -> io::Result<Threads> {
        let choice = match self.threads {
            Some(choice) => Some(choice),
            None => Threads::of_environment()?,
        };
        let choice = choice.unwrap_or_default();
        choice.check()?;
        Ok(choice)
    }
}
