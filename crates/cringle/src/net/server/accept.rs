//! One worker's part: it takes connections and starts their fibers, until it is stopped.

use super::Stopper;
use super::counters::{Counters, increment};
use crate::cancel;
use crate::fiber::{self, Scope};
use crate::io::{Interest, ready};
use crate::net::{SocketAddr, TcpListener, TcpStream};
use crate::runtime::cancelled::Cancelled;
use crate::runtime::label::Origin;
use crate::runtime::{foreign, unwinding};
use crate::sync::{Permit, Semaphore};
use crate::time;
use std::io;
use std::panic::AssertUnwindSafe;
use std::time::Duration;

/// When the kernel has no descriptor or memory for another connection.
const FIRST_PAUSE: Duration = Duration::from_millis(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

/// What all workers have in common.
pub(super) struct Acceptor<'a, F> {
    pub(super) handler: &'a F,
    pub(super) counters: &'a Counters,
    pub(super) limit: Option<&'a Semaphore>,
    pub(super) grace: Duration,
    pub(super) stopper: &'a Stopper,
    /// Where the server is run: so the fibers of its connections are told of.
    pub(super) caller: Origin,
}

impl<F> Acceptor<'_, F>
where
    F: Fn(TcpStream, SocketAddr) -> io::Result<()> + Sync,
{
    /// Serves until it is stopped, and then for as long as its connections and the grace last.
    pub(super) fn serve(&self, listener: TcpListener) -> io::Result<()> {
        fiber::scope(|connections| {
            let end = self.accept_until_stopped(&listener, connections);
            // Who comes now is told that nobody listens.
            drop(listener);
            if end.is_err() {
                // The other workers end as well.
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
            // Who has come already would be quicker than the cancel.
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

    /// Takes connections until an error ends it, the cancel's perhaps.
    fn accept_all<'scope>(
        &'scope self,
        listener: &TcpListener,
        connections: &'scope Scope<'scope, '_>,
    ) -> io::Result<()> {
        let mut pause = FIRST_PAUSE;
        loop {
            let started = listener.accept().and_then(|(stream, peer)| {
                // Not before: a worker to which nobody comes would keep it from one to which many do.
                let permit = self.limit.map(Semaphore::acquire_cancellable).transpose()?;
                fiber::Builder::new()
                    .origin(self.caller)
                    .spawn_scoped_local(connections, move || self.handle(stream, peer, permit))
                    .map(drop)
            });
            match started {
                Ok(()) => pause = FIRST_PAUSE,
                Err(e) if ends_accepting(&e) => return Err(e),
                Err(e) if is_of_one_connection(&e) => {}
                // It was given to us as one that does not block, or has a timeout.
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

/// The listener is none (a simulation has none that is served), or it is cancelled.
fn ends_accepting(e: &io::Error) -> bool {
    let broken =
        [libc::EBADF, libc::EINVAL, libc::ENOTSOCK, libc::EOPNOTSUPP, libc::EFAULT, libc::ENOSYS];
    cancel::reason(e).is_some() || e.raw_os_error().is_some_and(|errno| broken.contains(&errno))
}

/// The connection was gone, or broken, before it was taken: the next one may be well.
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
