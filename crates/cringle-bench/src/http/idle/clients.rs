//! The clients of idle connections: blocking sockets, bound to several loopback addresses, because
//! one address has only about 28,000 ports for connections to a server.

use crate::http::exchange::{REQUEST, read_response};
use crate::http::load::Plan;
use crate::meter::on_threads;
use cringle_report::machine::cpus;
use socket2::{Domain, Socket, Type};
use std::io::{self, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::time::{Duration, Instant};

/// The connections from each address.
const FROM_ONE: usize = 10_000;
/// The connections that are opened before their responses are read.
const WAVE: usize = 500;
/// How long a client waits for a response.
const PATIENCE: Duration = Duration::from_secs(30);

/// The connections of each thread.
pub(super) struct Clients(Vec<Vec<TcpStream>>);

impl Clients {
    /// Opens all connections and sends a request on each. Returns the connections and the seconds
    /// that this took.
    pub(super) fn open(plan: &Plan) -> io::Result<(Clients, f64)> {
        let threads = plan.cpus.len().clamp(1, plan.connections);
        let started = Instant::now();
        let open = |thread: usize| {
            // A thread has consecutive connections.
            let at = |thread: usize| plan.connections * thread / threads;
            move || {
                let mut streams = Vec::with_capacity(at(thread + 1) - at(thread));
                for first in (at(thread)..at(thread + 1)).step_by(WAVE) {
                    let wave = first..at(thread + 1).min(first + WAVE);
                    let from = streams.len();
                    for number in wave {
                        streams.push(connect(plan.addr, number)?);
                    }
                    request(&mut streams[from..], plan)?;
                }
                Ok(streams)
            }
        };
        let streams = on_each(plan, (0..threads).map(open))?;
        Ok((Clients(streams), started.elapsed().as_secs_f64()))
    }

    /// Sends a request on every connection. Returns the seconds until the last response.
    pub(super) fn request(&mut self, plan: &Plan) -> io::Result<f64> {
        let started = Instant::now();
        on_each(plan, self.0.iter_mut().map(|streams| move || request(streams, plan)))?;
        Ok(started.elapsed().as_secs_f64())
    }
}

/// Runs each function on a thread of its own, pinned to one of the load's processors.
fn on_each<T: Send, F: FnOnce() -> io::Result<T> + Send>(
    plan: &Plan,
    all: impl Iterator<Item = F>,
) -> io::Result<Vec<T>> {
    let pinned = |(thread, f): (usize, F)| {
        let cpu = plan.cpus.get(thread).copied();
        move || {
            cpu.map_or(Ok(()), |cpu| cpus::pin_to(&[cpu]))?;
            f()
        }
    };
    on_threads("", all.enumerate().map(pinned))
}

/// Opens a connection from the loopback address for its number.
fn connect(addr: SocketAddr, number: usize) -> io::Result<TcpStream> {
    let explain = |error: io::Error| {
        let text = format!("cannot open connection {}: {error}", number + 1);
        io::Error::new(error.kind(), text)
    };
    let attempt = || {
        let socket = Socket::new(Domain::for_address(addr), Type::STREAM, None)?;
        let host = u32::from(Ipv4Addr::LOCALHOST) + 1 + (number / FROM_ONE) as u32;
        socket.bind(&SocketAddr::from((Ipv4Addr::from(host), 0)).into())?;
        // Closing resets the connection; otherwise its port would stay in TIME_WAIT for a minute.
        socket.set_linger(Some(Duration::ZERO))?;
        socket.set_read_timeout(Some(PATIENCE))?;
        socket.connect(&addr.into())?;
        Ok(TcpStream::from(socket))
    };
    attempt().map_err(explain)
}

/// Sends a request on each connection, and reads the responses.
fn request(streams: &mut [TcpStream], plan: &Plan) -> io::Result<()> {
    for stream in &mut *streams {
        stream.write_all(REQUEST)?;
    }
    let mut buffer = [0; 64 << 10];
    streams.iter_mut().try_for_each(|stream| read_response(stream, &plan.expected, &mut buffer))
}
