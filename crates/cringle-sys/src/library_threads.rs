//! The threads of the library that wake no fiber by themselves.
//!
//! Their names do not show them: a thread that is started without a name inherits its creator's,
//! so that what a closure on a pool's thread starts has the name of the pool's thread.

use super::fork::{self, ForkLock};
use super::thread_number;
use std::ffi::{c_int, c_void};

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

/// Returns the builder of a thread of the library, which the caller starts next.
///
/// The library may be a part of a program, or of an extension, whose threads `cringle run` makes
/// fibers of its own copy. A worker that was one of those could lose its ring to another thread. So
/// that copy is asked to leave the caller's next thread one of the system.
pub fn library_thread(name: String) -> std::thread::Builder {
    let symbol = c"cringle_next_thread_is_of_the_system";
    // SAFETY: the contract of `dlsym`: the name is a C string.
    let found = unsafe { libc::dlsym(libc::RTLD_DEFAULT, symbol.as_ptr()) };
    // SAFETY: contract: only the library of `cringle run` defines the symbol, as this function;
    // null is `None`.
    let ask = unsafe { std::mem::transmute::<*mut c_void, Option<extern "C" fn()>>(found) };
    if let Some(ask) = ask {
        ask();
    }
    std::thread::Builder::new().name(name)
}

/// Whether the thread with this number is one of the library.
pub fn is_library_thread(number: c_int) -> bool {
    THREADS.lock().contains(&(number, fork::generation()))
}
