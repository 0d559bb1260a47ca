//! All runtimes of the process.

use crate::runtime::shared::Shared;
use crate::sys::lock::{Mutex, MutexGuard};
use std::sync::Arc;

static RUNTIMES: Mutex<Vec<Arc<Shared>>> = Mutex::new(Vec::new());

fn runtimes() -> MutexGuard<'static, Vec<Arc<Shared>>> {
    RUNTIMES.lock()
}

/// A runtime is listed in [`all`] until this is dropped.
pub(in crate::runtime) struct Listed(Arc<Shared>);

/// Lists a runtime.
pub(in crate::runtime) fn list(shared: &Arc<Shared>) -> Listed {
    runtimes().push(Arc::clone(shared));
    Listed(Arc::clone(shared))
}

impl Drop for Listed {
    fn drop(&mut self) {
        runtimes().retain(|shared| !Arc::ptr_eq(shared, &self.0));
    }
}

/// Returns the listed runtimes.
pub(super) fn all() -> Vec<Arc<Shared>> {
    runtimes().clone()
}
