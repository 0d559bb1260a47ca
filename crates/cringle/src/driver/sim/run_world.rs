//! The simulated world that a run is part of, if it is one.

use super::{Boxed, Core, Sim, lock};
use crate::sys::lock::Mutex;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// See the module.
#[derive(Clone, Default)]
pub(crate) struct World(Option<Arc<Mutex<Core>>>);

impl World {
    pub(crate) fn of(core: &Arc<Mutex<Core>>) -> World {
        World(Some(Arc::clone(core)))
    }

    /// Whether the run is in a simulated world.
    pub(crate) fn is_simulated(&self) -> bool {
        self.0.is_some()
    }

    /// Makes the driver of a worker in a simulated world, on the calling thread. `bell` is set when
    /// another thread wakes the worker.
    pub(crate) fn driver(&self, worker: usize, bell: &Arc<AtomicBool>) -> Option<Boxed> {
        let core = self.0.as_ref()?;
        Some(Box::new(Sim::new(Arc::clone(core), worker, Arc::clone(bell))))
    }

    /// Lets the workers of a run end that could not start.
    pub(crate) fn abandon_run(&self) {
        if let Some(core) = &self.0 {
            lock(core).abandon_run();
        }
    }
}

impl fmt::Debug for World {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("World").field(&self.is_simulated()).finish()
    }
}
