//! The start of a run.

use super::choices::Mode;
use super::internal::RestoreAffinity;
use super::{Builder, MAX_WORKERS};
use crate::run::start::Setup;
use cringle_core::foreign;
use cringle_core::hazards;
use cringle_core::unwinding;
use cringle_core::worker::Worker;
use cringle_driver::UringOptions;
use cringle_sys as sys;
use std::io;
use std::panic::Location;

impl Builder {
    /// [`run`](Self::run) without the types of the closure and its result: it is compiled once.
    #[track_caller]
    pub(super) fn run_call(self, f: &mut dyn FnMut()) -> io::Result<()> {
        assert!(
            Worker::here().is_none(),
            "`cringle::run` was called within a `run`: call the code directly, or spawn a fiber"
        );
        self.validate()?;
        crate::trace::start_from_environment()?;
        crate::dump_on::dump_from_environment()?;
        hazards::start_from_environment()?;
        sys::set_beside(|call| foreign::beside(call));
        // Without a handler of `fork`, its children cannot call `run`.
        let _ = unwinding::watch_forks();
        unwinding::install_hook();
        self.install_crash_handlers()?;
        let cpus = sys::allowed_cpus();
        let _affinity = self.pin.then(|| RestoreAffinity(cpus.clone()));
        let plan = self.plan()?;
        let Mode { balance, why_shared } = self.mode()?;
        let setup = Setup {
            workers: self.workers_to_use()?.unwrap_or(cpus.len()).clamp(1, MAX_WORKERS),
            pin: self.pin,
            is_open: self.is_open,
            watchdog: self.watched()?,
            stubborn_reports: self.stubborn_reports,
            threads: self.threads_to_use()?,
            balance,
            why_shared,
            ring: UringOptions { restrict: self.restricts_rings()?, ..self.ring },
            origin: Location::caller(),
            cpus,
            world: self.world,
        };
        setup.run(plan, f)
    }
}
