//! One worker's part of a server: accepts connections and starts their fibers, until the server is
//! stopped.

use super::Stopper;
use super::counters::{Counters, increment};
use crate::cancel;
use crate::fiber::{self, Scope};
use crate::io::{Interest, ready};
use crate::net::{SocketAddr, TcpListener, TcpStream};
use crate::sync::{Permit, Semaphore};
use crate::time;
use cringle_core::cancelled::Cancelled;
use cringle_core::label::Origin;
use cringle_core::{foreign, unwinding};
use std::io;
use std::panic::AssertUnwindSafe;
use std::time::Duration;

/// The first and the longest pause after the kernel had no descriptor or memory for a connection.
const FIRST_PAUSE: Duration = Duration::from_millis(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

/// The state that all workers of a server share.
pub(super) struct Acceptor<'a, F> {
    pub(super) handler: &'a F,
    pub(super) counters: &'a Counters,
    pub(super) limit: Option<&'a Semaphore>,
    pub(super) grace: Duration,
    pub(super) stopper: &'a Stopper,
    /// The caller of `Server::run`, reported as the place that spawned the fibers of the
    /// connections.
    pub(super) caller: Origin,
}

impl<F> Acceptor<'_, F>
where
    F: Fn(TcpStream, SocketAddr) -> io::Result<()> + Sync,
{
    /// Serves until the server is stopped, and then until its connections end or the grace period
    /// is over.
    pub(super) fn serve(&self, listener: TcpListener) -> io::Result<()> {
        fiber::scope(|connections| {
            let end = self.accept_until_stopped(&listener, connections);
            // From now on the kernel refuses new connections.
            drop(listener);
            if end.is_err() {
                // Stops the other workers.
                self.stopper.stop();
            }
            connections.spawn_daemon_local(|| {
                if time::sleep(self.grace).is_ok() {
                    connections.cancel();
                }
            });
            end
        })
    }

    fn accept_until_stopped<'scope>(
        &'scope self,
        listener: &TcpListener,
        connections: &'scope Scope<'scope, '_>,
    ) -> io::Result<()> {
        if self.stopper.is_stopped() {
            // A pending connection would be accepted before the cancel arrives.
            return cancel::check();
        }
        let end = fiber::scope(|accepting| {
            accepting.spawn_daemon_local(|| {
                if self.stopper.wait().is_ok() {
                    accepting.cancel();
                }
            });
            self.accept_all(listener, connections)
        });
        match end {
            Err(e) if cancel::reason(&e).is_some() && self.stopper.is_stopped() => cancel::check(),
            end => end,
        }
    }

    /// Accepts connections until an error, such as a cancel.
    fn accept_all<'scope>(
        &'scope self,
        listener: &TcpListener,
        connections: &'scope Scope<'scope, '_>,
    ) -> io::Result<()> {
        let mut pause = FIRST_PAUSE;
        loop {
            let started = listener.accept().and_then(|(stream, peer)| {
                // Acquired after the accept, so that an idle worker holds no permit.
                let permit = self.limit.map(Semaphore::acquire_cancellable).transpose()?;
                fiber::Builder::new()
                    .origin(self.caller)
                    .spawn_scoped_apart(connections, move || self.handle(stream, peer, permit))
            });
            match started {
                Ok(()) => pause = FIRST_PAUSE,
                Err(e) if ends_accepting(&e) => return Err(e),
                Err(e) if is_of_one_connection(&e) => {}
                // The caller's listener is non-blocking or has a timeout.
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => {
                    ready(listener, Interest::READABLE)?;
                }
                Err(_) => {
                    increment(&self.counters.refused);
                    time::sleep(pause)?;
                    pause = (pause * 2).min(LONGEST_PAUSE);
                }
            }
        }
    }

    fn handle(&self, stream: TcpStream, peer: SocketAddr, permit: Option<Permit<'_>>) {
        increment(&self.counters.connections);
        let end = fiber::catch_unwind(AssertUnwindSafe(|| (self.handler)(stream, peer)));
        drop(permit);
        match end {
            Ok(Ok(())) => {}
            Ok(Err(e)) if cancel::reason(&e) == Some(cancel::Reason::Cancelled) => {
                increment(&self.counters.cut_off);
            }
            Ok(Err(_)) => increment(&self.counters.failed),
            Err(payload) if payload.is::<Cancelled>() => {
                increment(&self.counters.cut_off);
                unwinding::resume(payload);
            }
            Err(payload) => {
                increment(&self.counters.panicked);
                foreign::discard(payload);
            }
        }
    }
}

/// Whether the error is permanent: a cancel, or a descriptor that is not a listener (a simulation
/// does not support TCP).
fn ends_accepting(e: &io::Error) -> bool {
    let broken =
        [libc::EBADF, libc::EINVAL, libc::ENOTSOCK, libc::EOPNOTSUPP, libc::EFAULT, libc::ENOSYS];
    cancel::reason(e).is_some() || e.raw_os_error().is_some_and(|errno| broken.contains(&errno))
}

/// Whether the error concerns only the connection, which was closed or failed before it was
/// accepted.
fn is_of_one_connection(e: &io::Error) -> bool {
    let errnos = [
        libc::ECONNABORTED,
        libc::ECONNRESET,
        libc::EPERM,
        libc::EPROTO,
        libc::ETIMEDOUT,
        libc::ENETDOWN,
        libc::ENETUNREACH,
        libc::EHOSTDOWN,
        libc::EHOSTUNREACH,
        libc::ENONET,
        libc::ENOPROTOOPT,
    ];
    e.raw_os_error().is_some_and(|errno| errnos.contains(&errno))
}
