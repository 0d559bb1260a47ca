//! The handle that stops a server.

use super::counters::{Counters, Served};
use super::stoppable::StoppableCalls;
use crate::sync::Semaphore;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// A handle that stops a [`Server`](super::Server) and reports its counters. Clones refer to the
/// same server.
///
/// A stopped server accepts no more connections, and cancels open ones after the grace period. A
/// handler that waits for a request in [`until_stopped`](Stopper::until_stopped) ends without using
/// up that time.
///
/// ```
/// use cringle::net::{Server, Stopper};
///
/// let stopper: Stopper = Server::bind("127.0.0.1:0")?.stopper();
/// stopper.stop();
/// assert!(stopper.is_stopped());
/// # std::io::Result::Ok(())
/// ```
#[derive(Clone)]
pub struct Stopper {
    shared: Arc<Shared>,
}

struct Shared {
    stopped: AtomicBool,
    /// Without permits until the server is stopped. Each waiter returns its permit, which wakes the
    /// next.
    gate: Semaphore,
    calls: StoppableCalls,
    counters: Counters,
}

/// The number of waiters released at once by a stop. Each wakes the next by returning its permit.
const PERMITS: usize = 1 << 16;

impl Stopper {
    pub(super) fn new() -> Stopper {
        Stopper {
            shared: Arc::new(Shared {
                stopped: AtomicBool::new(false),
                gate: Semaphore::new(0),
                calls: StoppableCalls::default(),
                counters: Counters::default(),
            }),
        }
    }

    /// Stops the server, from any thread or fiber, and returns at once. A server that is stopped
    /// before it runs accepts no connections.
    ///
    /// ```
    /// let stopper = cringle::net::Server::bind("127.0.0.1:0")?.stopper();
    /// stopper.stop();
    /// # std::io::Result::Ok(())
    /// ```
    pub fn stop(&self) {
        if !self.shared.stopped.swap(true, Ordering::SeqCst) {
            self.shared.gate.add_permits(PERMITS);
            self.shared.calls.stop_all();
        }
    }

    /// Returns whether the server is stopped.
    ///
    /// ```
    /// let stopper = cringle::net::Server::bind("127.0.0.1:0")?.stopper();
    /// assert!(!stopper.is_stopped());
    /// # std::io::Result::Ok(())
    /// ```
    pub fn is_stopped(&self) -> bool {
        self.shared.stopped.load(Ordering::SeqCst)
    }

    /// Waits until the server is stopped. Any number of fibers and threads may wait. Returns at
    /// once if the server is already stopped.
    ///
    /// ```
    /// use cringle::{fiber, net::Server};
    ///
    /// cringle::run(|| {
    ///     let stopper = Server::bind("127.0.0.1:0")?.stopper();
    ///     fiber::scope(|s| {
    ///         let waiter = s.spawn(|| stopper.wait());
    ///         stopper.stop();
    ///         waiter.join().unwrap()
    ///     })
    /// })
    /// # ?; std::io::Result::Ok(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`Cancelled`](cringle_core::cancelled::Cancelled).
    pub fn wait(&self) -> io::Result<()> {
        self.shared.gate.acquire_cancellable().map(drop)
    }

    /// Calls `f`, and cancels it when the server is stopped; then it returns `None`. A handler uses
    /// it to wait for the next request:
    ///
    /// ```
    /// use cringle::fiber;
    /// use cringle::net::{Server, TcpStream};
    /// use std::io::{self, Read, Write};
    ///
    /// let served = cringle::run(|| {
    ///     let server = Server::bind("127.0.0.1:0")?;
    ///     let (addr, stopper) = (server.local_addr()?, server.stopper());
    ///     fiber::scope(|s| {
    ///         s.spawn(|| -> io::Result<()> {
    ///             let mut stream = TcpStream::connect(addr)?;
    ///             stream.write_all(b"ahoy")?;
    ///             stream.read_exact(&mut [0; 4])?;
    ///             stopper.stop();
    ///             // No request was under way, so the connection ends before the grace period.
    ///             assert_eq!(stream.read(&mut [0])?, 0);
    ///             Ok(())
    ///         });
    ///         server.run(|mut stream, _peer| {
    ///             let mut word = [0; 4];
    ///             // A request whose first byte has arrived is answered, even if the server stops.
    ///             loop {
    ///                 let read = stopper.until_stopped(|| stream.read(&mut word))?;
    ///                 let Some(count @ 1..) = read else { return Ok(()) };
    ///                 stream.read_exact(&mut word[count..])?;
    ///                 stream.write_all(&word)?;
    ///             }
    ///         })
    ///     })
    /// })?;
    /// assert_eq!((served.cut_off, served.failed), (0, 0));
    /// # io::Result::Ok(())
    /// ```
    ///
    /// If the server is already stopped, `f` is not called.
    ///
    /// # Errors
    ///
    /// The errors of `f`, and [`Cancelled`](cringle_core::cancelled::Cancelled) if the caller is
    /// cancelled.
    ///
    /// # Cancellation
    ///
    /// A stop cancels `f` as a [`timeout`](crate::time::timeout) does: its operations fail, and the
    /// operations of the fibers in its scopes; a wait that cannot return an error unwinds to here.
    /// An operation that has completed returns its result, so an `f` that reads once and then
    /// returns yields either the bytes or `None`. Outside of a fiber, `f` is called and not
    /// cancelled.
    pub fn until_stopped<T>(&self, f: impl FnOnce() -> io::Result<T>) -> io::Result<Option<T>> {
        if self.is_stopped() {
            return crate::cancel::check().map(|()| None);
        }
        self.shared.calls.until_stopped(f)
    }

    /// Returns the counters of the connections served so far.
    ///
    /// ```
    /// let stopper = cringle::net::Server::bind("127.0.0.1:0")?.stopper();
    /// assert_eq!(stopper.served().connections, 0);
    /// # std::io::Result::Ok(())
    /// ```
    pub fn served(&self) -> Served {
        self.shared.counters.snapshot()
    }

    pub(super) fn counters(&self) -> &Counters {
        &self.shared.counters
    }
}

impl std::fmt::Debug for Stopper {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Stopper").field("stopped", &self.is_stopped()).finish()
    }
}
