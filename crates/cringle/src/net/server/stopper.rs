//! Telling a server to end, and hearing of it.

use super::counters::{Counters, Served};
use super::stoppable::StoppableCalls;
use crate::sync::Semaphore;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Ends a [`Server`](super::Server): it takes no more connections, and gives those it has a grace. And
/// tells what it has done so far.
///
/// Handlers that keep a clone of it need not use up that grace where nobody has asked them anything: see
/// [`until_stopped`](Stopper::until_stopped).
#[derive(Clone)]
pub struct Stopper {
    shared: Arc<Shared>,
}

struct Shared {
    stopped: AtomicBool,
    /// Has permits when it is stopped, which are handed on.
    gate: Semaphore,
    calls: StoppableCalls,
    counters: Counters,
}

/// As many may go on at once. Those that go on have others go on.
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

    /// Ends the server, from any thread or fiber; returns at once. A server that is stopped before it
    /// runs serves nobody.
    pub fn stop(&self) {
        if !self.shared.stopped.swap(true, Ordering::SeqCst) {
            self.shared.gate.add_permits(PERMITS);
            self.shared.calls.stop_all();
        }
    }

    /// Whether it was told to end.
    pub fn is_stopped(&self) -> bool {
        self.shared.stopped.load(Ordering::SeqCst)
    }

    /// Waits until the server is told to end: any number of fibers and threads may. At once, if it was
    /// already.
    ///
    /// ```
    /// use cringle::{fiber, net::Server};
    ///
    /// cringle::run(|| {
    ///     let stopper = Server::bind("127.0.0.1:0")?.stopper();
    ///     fiber::scope(|s| {
    ///         let says_so = s.spawn(|| stopper.wait().map(|()| "it ends"));
    ///         stopper.stop();
    ///         assert_eq!(says_so.join().unwrap()?, "it ends");
    ///         Ok::<(), std::io::Error>(())
    ///     })
    /// })
    /// # ?; Ok::<(), std::io::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`Cancelled`](crate::Cancelled).
    pub fn wait(&self) -> io::Result<()> {
        self.shared.gate.acquire_cancellable().map(drop)
    }

    /// Calls `f`, and gives it up when the server is told to end: `None` then. For what a handler does
    /// while nobody has asked it anything, which is to wait for the next request:
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
    ///             // Nothing was under way: the connection ends, and not when the grace does.
    ///             assert_eq!(stream.read(&mut [0])?, 0);
    ///             Ok(())
    ///         });
    ///         server.run(|mut stream, _peer| {
    ///             let mut word = [0; 4];
    ///             // The next request may begin, or the server end; after its first byte it is answered.
    ///             while let Some(count @ 1..) = stopper.until_stopped(|| stream.read(&mut word))? {
    ///                 stream.read_exact(&mut word[count..])?;
    ///                 stream.write_all(&word)?;
    ///             }
    ///             Ok(())
    ///         })
    ///     })
    /// })?;
    /// assert_eq!((served.cut_off, served.failed), (0, 0));
    /// # Ok::<(), io::Error>(())
    /// ```
    ///
    /// If it was told before, `f` is not called.
    ///
    /// # Errors
    ///
    /// `f`'s own, and [`Cancelled`](crate::Cancelled) where the caller is cancelled.
    ///
    /// # Cancellation
    ///
    /// `f` is given up as a [`timeout`](crate::time::timeout) gives up what it calls: the operations in it
    /// fail, and those of the fibers of its scopes; a wait without room for an error unwinds to here. What
    /// was done already wins, so that no byte which was read is lost: an `f` that reads once and then
    /// returns gives either the bytes or `None`. Outside of a fiber `f` is just called.
    pub fn until_stopped<T>(&self, f: impl FnOnce() -> io::Result<T>) -> io::Result<Option<T>> {
        match self.is_stopped() {
            true => crate::cancel::check().map(|()| None),
            false => self.shared.calls.until_stopped(f),
        }
    }

    /// What came of its connections so far.
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
