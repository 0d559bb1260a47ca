//! A TCP server: a listener on each worker, and a fiber for each connection.
//!
//! | what | by whom |
//! |---|---|
//! | opens a listener for each worker, ends when all of them have | [`Server::run`] |
//! | takes connections, starts their fibers, ends them | [`accept`](accept) |
//! | says when it is to end | [`Stopper`] |
//! | ends what waits for the next request then | [`idle`](idle) |
//! | what came of the connections | [`Served`] |

mod accept;
mod counters;
mod stoppable;
mod stopper;

use super::{SocketAddr, TcpListener, TcpStream, ToSocketAddrs};
use crate::fiber;
use crate::sync::Semaphore;
use accept::Acceptor;
use std::io;
use std::panic::Location;
use std::time::Duration;

pub use counters::Served;
pub use stopper::Stopper;

/// How long requests may take to end after [`Stopper::stop`], unless it is said otherwise.
const DEFAULT_GRACE: Duration = Duration::from_secs(10);

/// A TCP server: it listens on each worker, and calls a function for each connection, on a fiber of its
/// own.
///
/// ```
/// use cringle::net::{Server, TcpStream};
/// use std::io::{Read, Write};
/// use std::time::Duration;
///
/// let served = cringle::run(|| {
///     let greeting = String::from("ahoy, "); // The handler may borrow.
///     let server = Server::bind("127.0.0.1:0")?.max_connections(1000).grace(Duration::from_secs(1));
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
/// # Ok::<(), std::io::Error>(())
/// ```
///
/// A connection stays on the worker that has accepted it. The kernel spreads connections over the
/// workers' listeners by their addresses (`SO_REUSEPORT`).
///
/// # The port
///
/// [`bind`](Server::bind) fails when somebody listens on the port. After that, and until the server has
/// ended, another process *of the same user* could open the port too, if it asks for `SO_REUSEPORT`, and
/// would get some of the connections: that is what the option means. With one worker it is not set.
///
/// The port is free when [`run`](crate::run) has returned, and so is it for the next process if the server ends by
/// [`signal::cancel_on`](crate::signal::cancel_on) or a [`Stopper`]. If a signal or `process::exit` kills the
/// process while it accepts, the kernel ends the ring's `accept` only after the process: the port stays in use for
/// milliseconds, more on a busy machine.
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
    /// Our own: each further worker gets another one at its address.
    Own(TcpListener),
    /// Somebody else's: all workers share it.
    Given(TcpListener),
}

impl Server {
    /// A server at the first of the addresses that is free; port 0 has the kernel choose one.
    ///
    /// # Errors
    ///
    /// As [`TcpListener::bind`]: `AddrInUse` where somebody listens there.
    pub fn bind<A: ToSocketAddrs>(addr: A) -> io::Result<Server> {
        let builder = TcpListener::builder();
        let listener = super::addr::first_of(addr, |addr| {
            let socket = builder.bound(addr)?;
            // Nobody else had the port, and from now on it may be shared.
            socket.set_reuse_port(crate::runtime::workers() != Some(1))?;
            builder.listen(socket)
        });
        Ok(Server::of(Source::Own(listener?)))
    }

    fn of(source: Source) -> Server {
        let stopper = Stopper::new();
        Server { source, max_connections: None, grace: DEFAULT_GRACE, stopper }
    }

    /// Connections served at the same time, at most: others wait, most of them in the kernel. (Default: any
    /// number.)
    pub fn max_connections(mut self, connections: usize) -> Server {
        self.max_connections = Some(connections.clamp(1, Semaphore::MAX_PERMITS));
        self
    }

    /// How long connections may go on after [`Stopper::stop`] before they are cancelled. (Default: 10
    /// seconds.) A handler in [`Stopper::until_stopped`] ends at once.
    pub fn grace(mut self, grace: Duration) -> Server {
        self.grace = grace;
        self
    }

    /// Where it will listen.
    ///
    /// # Errors
    ///
    /// As [`TcpListener::local_addr`].
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        match &self.source {
            Source::Own(listener) | Source::Given(listener) => listener.local_addr(),
        }
    }

    /// What ends it, and tells what it does, from any thread or fiber.
    pub fn stopper(&self) -> Stopper {
        self.stopper.clone()
    }

    /// Serves until it is stopped: calls `handler` with each connection and its peer, and says what came
    /// of them. An error of the handler, and a panic, end that connection and are counted.
    ///
    /// When there is no descriptor or memory left for another connection, it pauses, and goes on.
    ///
    /// # Errors
    ///
    /// What a listener says that cannot go on; that it is called outside of [`run`](crate::run); and
    /// [`Cancelled`](crate::Cancelled).
    ///
    /// # Cancellation
    ///
    /// Connections are cancelled with it, without a grace.
    #[track_caller]
    pub fn run<F>(self, handler: F) -> io::Result<Served>
    where
        F: Fn(TcpStream, SocketAddr) -> io::Result<()> + Sync,
    {
        let Some(workers) = crate::runtime::workers() else {
            let text = "a server runs on fibers: call it within cringle::run";
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
                    fiber::Builder::new().name(format!("acceptor {worker}")).worker(worker);
                builder.spawn_scoped(s, move || acceptor.serve(listener))
            });
            let placed: Vec<_> = placed.collect::<io::Result<_>>().inspect_err(|_| s.cancel())?;
            placed.into_iter().try_for_each(|serves| match serves.join_cancellable()? {
                Ok(end) => end,
                Err(payload) => crate::runtime::unwinding::resume(payload),
            })
        })?;
        Ok(stopper.served())
    }
}

impl Source {
    /// A listener for each worker.
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

/// One that is bound, or has options of its own: see [`TcpListener::builder`]. Its workers share it.
impl From<TcpListener> for Server {
    fn from(listener: TcpListener) -> Server {
        Server::of(Source::Given(listener))
    }
}
