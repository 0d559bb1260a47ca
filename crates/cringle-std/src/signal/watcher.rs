//! A thread that waits for signals, independently of the workers.

use super::handler::Listener;
use super::wait_for_bell;
use cringle_sys::{library_thread, plainly};
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

/// The thread, which ends when this is dropped.
#[derive(Debug)]
pub struct Watcher {
    watch: Arc<Watch>,
    thread: Option<JoinHandle<()>>,
}

/// The state that the thread shares with its watcher.
#[derive(Debug)]
pub struct Watch {
    pub(super) listener: Listener,
    leaving: AtomicBool,
}

impl Watcher {
    /// Starts a thread of this name, which calls `work`.
    pub fn start(
        name: &str,
        listener: Listener,
        work: impl FnOnce(&Watch) + Send + 'static,
    ) -> io::Result<Watcher> {
        let watch = Arc::new(Watch { listener, leaving: AtomicBool::new(false) });
        let theirs = Arc::clone(&watch);
        let thread = library_thread(name.into());
        let thread = plainly(|| thread.spawn(move || work(&theirs)))?;
        Ok(Watcher { watch, thread: Some(thread) })
    }

    pub(super) fn listener(&self) -> &Listener {
        &self.watch.listener
    }
}

impl Drop for Watcher {
    fn drop(&mut self) {
        self.watch.leaving.store(true, Ordering::Release);
        self.watch.listener.ring();
        if let Some(thread) = self.thread.take() {
            plainly(|| thread.join()).expect("the thread that waits for signals does not panic");
        }
    }
}

impl Watch {
    /// Waits until `look` finds a signal. Returns `None` if the watcher is dropped first, and an
    /// error if the kernel has no memory for a `poll`.
    pub fn wait<T>(&self, look: impl Fn(&Listener) -> Option<T>) -> io::Result<Option<T>> {
        while !self.leaving.load(Ordering::Acquire) {
            if let Some(found) = look(&self.listener) {
                return Ok(Some(found));
            }
            wait_for_bell(&self.listener)?;
        }
        Ok(None)
    }
}
