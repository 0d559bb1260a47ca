//! The choice by the program and the environment.

use crate::runtime::word_choice;
use std::io;

const VARIABLE: &str = "CRINGLE_THREAD_LOCALS";

/// Whose thread-locals fibers use: see [`Builder::thread_locals`](crate::Builder::thread_locals).
/// [`runtime::why_shared`](crate::runtime::why_shared) returns why a runtime uses shared ones.
///
/// ```
/// use cringle::runtime::{self, ThreadLocals};
///
/// let builder = cringle::Builder::new().thread_locals(ThreadLocals::Shared);
/// assert_eq!(builder.run(runtime::thread_locals)?, Some(ThreadLocals::Shared));
/// # std::io::Result::Ok(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum ThreadLocals {
    /// The fibers of a worker share the thread-locals of its thread, and stay on it. Code that
    /// assumes a thread to do one thing at a time, and waits meanwhile, is not right then: the
    /// book's chapter "What not to hold over a wait" lists what goes wrong.
    Shared,
    /// Each fiber that is started with `Send` bounds
    /// ([`fiber::spawn`](crate::fiber::spawn()), [`Scope::spawn`](crate::fiber::Scope::spawn), a
    /// connection of a [`Server`](crate::net::Server)) has thread-locals of its own, as a thread
    /// has. The fibers that it starts with [`spawn_local`](crate::fiber::spawn_local()) share them.
    #[default]
    Private,
}

impl ThreadLocals {
    /// The choice of the environment variable `CRINGLE_THREAD_LOCALS`, if it is set.
    pub(in crate::runtime) fn of_environment() -> io::Result<Option<ThreadLocals>> {
        let values = [("shared", ThreadLocals::Shared), ("private", ThreadLocals::Private)];
        word_choice::of_environment(VARIABLE, &values, "`shared` or `private`")
    }
}
