//! All runtimes of the process.

use crate::diagnostics::debugger;
use cringle_core::shared::Shared;
use cringle_sys::fork::{self, ForkGuard, ForkLock};
use std::sync::Arc;

/// A runtime, and the generation of the process that has its threads.
struct Entry {
    shared: Arc<Shared>,
    generation: u32,
}

static RUNTIMES: ForkLock<Vec<Entry>> = ForkLock::new(Vec::new());

fn runtimes() -> ForkGuard<'static, Vec<Entry>> {
    RUNTIMES.lock()
}

/// A runtime is listed in [`all`], and for debuggers, until this is dropped.
pub(crate) struct Listed {
    shared: Arc<Shared>,
    for_debugger: debugger::Listed,
}

/// Lists a runtime.
pub(crate) fn list(shared: &Arc<Shared>) -> Listed {
    let mut runtimes = runtimes();
    runtimes.push(Entry { shared: Arc::clone(shared), generation: fork::generation() });
    Listed { shared: Arc::clone(shared), for_debugger: debugger::Listed::begin(shared) }
}

impl Drop for Listed {
    fn drop(&mut self) {
        let mut runtimes = runtimes();
        runtimes.retain(|entry| !Arc::ptr_eq(&entry.shared, &self.shared));
        self.for_debugger.end();
    }
}

/// Returns the listed runtimes. A child of `fork` has copies of its parent's, whose threads and
/// locks are not its own.
pub(super) fn all() -> Vec<Arc<Shared>> {
    let generation = fork::generation();
    let runtimes = runtimes();
    let own = runtimes.iter().filter(|entry| entry.generation == generation);
    own.map(|entry| Arc::clone(&entry.shared)).collect()
}
