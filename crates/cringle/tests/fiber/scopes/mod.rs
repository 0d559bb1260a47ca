//! Scopes: std's behaviour, daemons, exits, and `try_scope`, which the first failure cancels.

mod as_std;
mod daemons;
mod exits;
mod fallible;
mod workers;

use std::sync::Mutex;
use std::thread::ThreadId;
use std::time::Duration;

const FOREVER: Duration = Duration::MAX;

fn current_thread() -> ThreadId {
    std::thread::current().id()
}

/// Events in order.
#[derive(Default)]
struct Log(Mutex<Vec<&'static str>>);

impl Log {
    fn note(&self, event: &'static str) {
        self.0.lock().unwrap().push(event);
    }
}
