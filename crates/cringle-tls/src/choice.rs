//! The choice whether fibers have thread-locals of their own.

/// Whose thread-locals fibers use: see [`Builder::thread_locals`]. [`runtime::why_shared`] returns
/// why a runtime uses shared ones.
///
/// [`Builder::thread_locals`]: https://docs.rs/cringle/latest/cringle/struct.Builder.html#method.thread_locals
/// [`runtime::why_shared`]: https://docs.rs/cringle/latest/cringle/runtime/fn.why_shared.html
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
    /// Each fiber that is started with `Send` bounds (`fiber::spawn`, `Scope::spawn`, a connection
    /// of a `net::Server`) has thread-locals of its own, as a thread has. The fibers that it starts
    /// with `spawn_local` share them.
    #[default]
    Private,
}
