//! A TCP server: a listener on each worker, and a fiber for each connection.
//!
//! | task | in |
//! |---|---|
//! | opens a listener for each worker, and waits until all of them have ended | [`Server::run`] |
//! | accepts connections, starts and finally cancels their fibers | [`accept`] |
//! | stops the server | [`Stopper`] |
//! | then ends the calls that wait for the next request | [`stoppable`] |
//! | counts the connections by outcome | [`Served`] |

mod accept;
mod counters;
mod stoppable;
mod stopper;

use super::{SocketAddr, TcpListener, TcpStream, ToSocketAddrs};
use crate::fiber;
use crate::sync::Semaphore;
use accept::Acceptor;
use cringle_core::worker::Worker;
use cringle_sys::plainly;
use std::io;
use std::panic::Location;
use std::time::Duration;

pub use counters::Served;
pub use stopper::Stopper;

/// The default of [`Server::grace`].
const DEFAULT_GRACE: Duration = Duration::from_secs(10);

/// A TCP server: it listens on each worker, and calls a function for each connection, on a new
/// fiber.
///
/// ```
/// use cringle::net::{Server, TcpStream};
/// use std::io::{Read, Write};
/// use std::time::Duration;
///
/// let served = cringle::run(|| {
///     let greeting = String::from("ahoy, "); // The handler may borrow.
///     let server = Server::bind("127.0.0.1:0")?;
///     let server = server.max_connections(1000).grace(Duration::from_secs(1));
///     let (addr, stopper) = (server.local_addr()?, server.stopper());
///     cringle::fiber::scope(|s| {
///         s.spawn(move || {
///             let mut stream = TcpStream::connect(addr).unwrap();
///             stream.write_all(b"me").unwrap();
///             let mut answer = [0; 8];
///             stream.read_exact(&mut answer).unwrap();
///             assert_eq!(&answer, b"ahoy, me");
///             stopper.stop();
///         });
///         server.run(|mut stream, _peer| {
///             let mut name = [0; 2];
///             stream.read_exact(&mut name)?;
///             stream.write_all(greeting.as_bytes())?;
///             stream.write_all(&name)
///         })
///     })
/// })?;
/// assert_eq!((served.connections, served.failed), (1, 0));
/// # std::io::Result::Ok(())
/// ```
///
/// One worker accepts, and connections continue on workers that have time for them. Where fibers
/// [do not move](cringle_core::choices::Balance::Fixed), each worker has a listener, among which
/// the kernel distributes connections by their addresses (`SO_REUSEPORT`), and a connection stays
/// on the worker that has accepted it.
///
/// # The port
///
/// [`bind`](Server::bind) fails if another socket listens on the port. Until the server ends,
/// another process *of the same user* can listen on the port too, if it sets `SO_REUSEPORT`, and
/// receives a share of the connections. With one worker the option is not set.
///
/// The port is free when `run` has returned, also if the server was ended by
/// [`signal::cancel_on`](crate::signal::cancel_on) or a [`Stopper`]. If a signal or `process::exit`
/// kills the process while it accepts, the kernel ends the ring's `accept` only after the process,
/// and the port stays in use for some milliseconds, or longer on a busy machine.
#[derive(Debug)]
#[must_use = "it serves when `run` is called"]
pub struct Server {
    source: Source,
    max_connections: Option<usize>,
    grace: Duration,
    stopper: Stopper,
}

#[derive(Debug)]
enum Source {
    /// The server's own listener: each further worker opens another one at its address.
    Own(TcpListener),
    /// The caller's listener, which all workers share.
    Given(TcpListener),
}

impl Server {
    /// Returns a server that is bound to the first of the addresses that is free. For port 0 the
    /// kernel chooses a port.
    ///
    /// ```
    /// let server = cringle::net::Server::bind("127.0.0.1:0")?;
    /// println!("listening on {}", server.local_addr()?);
    /// # std::io::Result::Ok(())
    /// ```
    ///
    /// # Errors
    ///
    /// As [`TcpListener::bind`]: `AddrInUse` if another socket listens on the address.
    pub fn bind<A: ToSocketAddrs>(addr: A) -> io::Result<Server> {
        let builder = TcpListener::builder();
        let share = acceptors() != Some(1);
        let listen = |addr: &SocketAddr| {
            let socket = builder.bound(addr)?;
            // The bind has succeeded without the option, so the port was free. Now it may be
            // shared.
            socket.set_reuse_port(share)?;
            builder.listen(socket)
        };
        let listener = super::addr::first_of(addr, |addr| plainly(|| listen(addr)));
        Ok(Server::of(Source::Own(listener?)))
    }

    fn of(source: Source) -> Server {
        let stopper = Stopper::new();
        Server { source, max_connections: None, grace: DEFAULT_GRACE, stopper }
    }

    /// Sets the number of connections served at the same time. Further connections wait, most of
    /// them in the kernel's queue. The default is no limit.
    ///
    /// ```
    /// let server = cringle::net::Server::bind("127.0.0.1:0")?.max_connections(1000);
    /// # std::io::Result::Ok(())
    /// ```
    pub fn max_connections(mut self, connections: usize) -> Server {
        self.max_connections = Some(connections.clamp(1, Semaphore::MAX_PERMITS));
        self
    }

    /// Sets the time after [`Stopper::stop`] after which open connections are cancelled. The
    /// default is 10 seconds. A handler that waits in [`Stopper::until_stopped`] ends at once.
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// let server = cringle::net::Server::bind("127.0.0.1:0")?.grace(Duration::from_secs(1));
    /// # std::io::Result::Ok(())
    /// ```
    pub fn grace(mut self, grace: Duration) -> Server {
        self.grace = grace;
        self
    }

    /// Returns the address that the server is bound to.
    ///
    /// ```
    /// let server = cringle::net::Server::bind("127.0.0.1:0")?;
    /// assert_ne!(server.local_addr()?.port(), 0);
    /// # std::io::Result::Ok(())
    /// ```
    ///
    /// # Errors
    ///
    /// As [`TcpListener::local_addr`].
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        match &self.source {
            Source::Own(listener) | Source::Given(listener) => listener.local_addr(),
        }
    }

    /// Returns a handle that stops the server, and reports its counters, from any thread or fiber.
    ///
    /// ```
    /// let server = cringle::net::Server::bind("127.0.0.1:0")?;
    /// let stopper = server.stopper();
    /// assert!(!stopper.is_stopped());
    /// # std::io::Result::Ok(())
    /// ```
    pub fn stopper(&self) -> Stopper {
        self.stopper.clone()
    }

    /// Serves until the server is stopped, and returns the counters. Calls `handler` with each
    /// connection and the peer's address, on a new fiber. An error or a panic of the handler ends
    /// that connection and is counted.
    ///
    /// If no descriptor or memory is left for a connection, it pauses and retries.
    ///
    /// ```
    /// use cringle::net::Server;
    /// use std::io::Write;
    ///
    /// cringle::run(|| {
    ///     let server = Server::bind("127.0.0.1:0")?;
    ///     server.stopper().stop();
    ///     server.run(|mut stream, _peer| stream.write_all(b"ahoy"))
    /// })?;
    /// # std::io::Result::Ok(())
    /// ```
    ///
    /// # Errors
    ///
    /// The error of a listener that cannot continue; `Unsupported` outside of `run`; and
    /// [`Cancelled`](cringle_core::cancelled::Cancelled).
    ///
    /// # Cancellation
    ///
    /// A cancel ends the server and cancels its connections at once, without the grace period.
    #[track_caller]
    pub fn run<F>(self, handler: F) -> io::Result<Served>
    where
        F: Fn(TcpStream, SocketAddr) -> io::Result<()> + Sync,
    {
        let Some(workers) = acceptors() else {
            let text = "a server needs fibers: call Server::run inside of cringle::run";
            return Err(io::Error::new(io::ErrorKind::Unsupported, text));
        };
        let limit = self.max_connections.map(Semaphore::new);
        let listeners = self.source.listeners(workers)?;
        let stopper = self.stopper;
        let acceptor = Acceptor {
            handler: &handler,
            counters: stopper.counters(),
            limit: limit.as_ref(),
            grace: self.grace,
            stopper: &stopper,
            caller: Location::caller(),
        };
        fiber::scope(|s| {
            let placed = listeners.into_iter().enumerate().map(|(worker, listener)| {
                let acceptor = &acceptor;
                let builder =
                    fiber::Builder::new().name(format!("cringle acceptor {worker}")).worker(worker);
                builder.spawn_scoped(s, move || acceptor.serve(listener))
            });
            let placed: Vec<_> = placed.collect::<io::Result<_>>().inspect_err(|_| s.cancel())?;
            placed.into_iter().try_for_each(|serves| match serves.join_cancellable()? {
                Ok(end) => end,
                Err(payload) => cringle_core::unwinding::resume(payload),
            })
        })?;
        Ok(stopper.served())
    }
}

/// The number of workers that accept connections; `None` outside of `run`. One where fibers move:
/// then connections are served where there is time for them.
fn acceptors() -> Option<usize> {
    let worker = Worker::here()?;
    Some(if worker.moves.may_happen() { 1 } else { worker.shared().workers() })
}

impl Source {
    /// Returns a listener for each worker that accepts.
    fn listeners(self, workers: usize) -> io::Result<Vec<TcpListener>> {
        let builder = TcpListener::builder().reuse_port(true);
        let (first, others) = match self {
            Source::Own(first) => {
                let addr = first.local_addr()?;
                let others = (1..workers).map(|_| builder.bind(addr));
                (first, others.collect::<io::Result<Vec<_>>>()?)
            }
            Source::Given(first) => {
                let others = (1..workers).map(|_| first.try_clone());
                let others = others.collect::<io::Result<Vec<_>>>()?;
                (first, others)
            }
        };
        Ok([first].into_iter().chain(others).collect())
    }
}

/// Serves on an existing listener, which may have been bound with [`TcpListener::builder`]. All
/// workers share it.
impl From<TcpListener> for Server {
    fn from(listener: TcpListener) -> Server {
        Server::of(Source::Given(listener))
    }
}
