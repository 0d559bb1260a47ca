//! The count of the batches in a [`BlockIo`](super::BlockIo).

use cringle_sys::lock::{Mutex, MutexGuard};
use std::io;
use std::sync::Arc;

/// Counts the batches in flight, and refuses new ones after the close.
#[derive(Default)]
pub(super) struct Admission {
    state: Mutex<AdmissionState>,
}

#[derive(Default)]
struct AdmissionState {
    inside: usize,
    closed: bool,
    on_drained: Option<Box<dyn FnOnce() + Send>>,
}

/// The right to submit one batch. The workers run until it is dropped.
pub(super) struct Pass<G: std::ops::Deref<Target = Admission>>(G);

impl Admission {
    pub(super) fn enter(&self) -> io::Result<Pass<&Admission>> {
        self.admit()?;
        Ok(Pass(self))
    }

    pub(super) fn enter_owned(self: &Arc<Self>) -> io::Result<Pass<Arc<Admission>>> {
        self.admit()?;
        Ok(Pass(Arc::clone(self)))
    }

    fn admit(&self) -> io::Result<()> {
        let mut state = self.state();
        if state.closed {
            return Err(io::Error::new(io::ErrorKind::NotConnected, "the BlockIo is closed"));
        }
        state.inside += 1;
        Ok(())
    }

    pub(super) fn close(&self) {
        let mut state = self.state();
        state.closed = true;
        Self::notify_if_drained(state);
    }

    fn leave(&self) {
        let mut state = self.state();
        state.inside -= 1;
        Self::notify_if_drained(state);
    }

    pub(super) fn on_closed(&self, notify: impl FnOnce() + Send + 'static) {
        let mut state = self.state();
        state.on_drained = Some(Box::new(notify));
        Self::notify_if_drained(state);
    }

    fn notify_if_drained(mut state: MutexGuard<'_, AdmissionState>) {
        if state.closed && state.inside == 0 {
            let notify = state.on_drained.take();
            drop(state);
            notify.into_iter().for_each(|notify| notify());
        }
    }

    pub(super) fn is_drained(&self) -> bool {
        let state = self.state();
        state.closed && state.inside == 0
    }

    fn state(&self) -> MutexGuard<'_, AdmissionState> {
        self.state.lock()
    }
}

impl<G: std::ops::Deref<Target = Admission>> Drop for Pass<G> {
    fn drop(&mut self) {
        self.0.leave();
    }
}
