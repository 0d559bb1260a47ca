//! The simulated world that a run is part of.

use super::{Core, Sim, lock, plain};
use cringle_driver::simulation::{Simulation, World};
use cringle_sys::lock::Mutex;
use std::fmt;
use std::panic::{RefUnwindSafe, UnwindSafe};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// See the module.
pub(crate) struct RunWorld(Arc<Mutex<Core>>);

// A panic under the lock of the core is a bug of a checker, and still reported.
impl UnwindSafe for RunWorld {}
impl RefUnwindSafe for RunWorld {}

impl RunWorld {
    pub(crate) fn of(core: &Arc<Mutex<Core>>) -> RunWorld {
        plain::CALLS.install();
        RunWorld(Arc::clone(core))
    }
}

impl World for RunWorld {
    fn driver(&self, worker: usize, bell: &Arc<AtomicBool>) -> Box<dyn Simulation> {
        Box::new(Sim::new(Arc::clone(&self.0), worker, Arc::clone(bell)))
    }

    fn abandon_run(&self) {
        lock(&self.0).abandon_run();
    }
}

impl fmt::Debug for RunWorld {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RunWorld").finish_non_exhaustive()
    }
}
