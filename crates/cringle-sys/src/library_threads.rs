//! The threads of the library that wake no fiber by themselves.
//!
//! Their names do not show them: a thread that is started without a name inherits its creator's,
//! so that what a closure on a pool's thread starts has the name of the pool's thread.

use super::fork::{self, ForkLock};
use super::thread_number;
use std::ffi::c_int;

/// The kernel's number of each, and the [generation](fork::generation) of its process.
static THREADS: ForkLock<Vec<(c_int, u32)>> = ForkLock::new(Vec::new());

/// The calling thread is one of the library's while this exists.
pub struct LibraryThread((c_int, u32));

impl LibraryThread {
    /// Notes the calling thread as one of the library.
    pub fn begin() -> LibraryThread {
        let thread = (thread_number(), fork::generation());
        THREADS.lock().push(thread);
        LibraryThread(thread)
    }
}

impl Drop for LibraryThread {
    fn drop(&mut self) {
        let mut threads = THREADS.lock();
        if let Some(place) = threads.iter().position(|thread| *thread == self.0) {
            threads.swap_remove(place);
        }
    }
}

/// Whether the thread with this number is one of the library.
pub fn is_library_thread(number: c_int) -> bool {
    THREADS.lock().contains(&(number, fork::generation()))
}
