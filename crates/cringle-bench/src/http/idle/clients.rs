//! The other side of the connections: plain blocking sockets, from as many addresses of the loopback as
//! they need, since an address has only some 28,000 ports towards one server.

use crate::http::exchange::{self, ResponseReader};
use crate::http::load::Plan;
use cringle_report::machine::cpus;
use socket2::{Domain, Socket, Type};
use std::io::{self, ErrorKind, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

/// From each address.
const FROM_ONE: usize = 10_000;
/// Connections that are made before their answers are taken.
const WAVE: usize = 500;
/// A server that says nothing for so long will say nothing any more.
const PATIENCE: Duration = Duration::from_secs(30);

/// Each thread's.
pub(super) struct Clients(Vec<Vec<TcpStream>>);

impl Clients {
    /// All connected and answered once, and how long that took.
    pub(super) fn open(plan: &Plan) -> io::Result<(Clients, f64)> {
        let threads = plan.cpus.len().clamp(1, plan.connections);
        let started = Instant::now();
        let open = |thread: usize| {
            // Neighbours come from one address.
            let at = |thread: usize| plan.connections * thread / threads;
            move || {
                let mut streams = Vec::with_capacity(at(thread + 1) - at(thread));
                for first in (at(thread)..at(thread + 1)).step_by(WAVE) {
                    let wave = first..at(thread + 1).min(first + WAVE);
                    let from = streams.len();
                    for number in wave {
                        streams.push(connect(plan.addr, number)?);
                    }
                    ask(&mut streams[from..], plan)?;
                }
                Ok(streams)
            }
        };
        let streams = on_each(plan, (0..threads).map(open))?;
        Ok((Clients(streams), started.elapsed().as_secs_f64()))
    }

    /// All ask at once. How many seconds pass until the last has its answer.
    pub(super) fn ask(&mut self, plan: &Plan) -> io::Result<f64> {
        let started = Instant::now();
        on_each(plan, self.0.iter_mut().map(|streams| move || ask(streams, plan)))?;
        Ok(started.elapsed().as_secs_f64())
    }
}

/// A thread for each, tied to one of the load's processors.
fn on_each<T: Send, F: FnOnce() -> io::Result<T> + Send>(
    plan: &Plan,
    all: impl Iterator<Item = F>,
) -> io::Result<Vec<T>> {
    thread::scope(|s| {
        let spawn = |(thread, f): (usize, F)| {
            let cpu = plan.cpus.get(thread).copied();
            s.spawn(move || {
                cpu.map_or(Ok(()), cpus::pin_to)?;
                f()
            })
        };
        let threads: Vec<_> = all.enumerate().map(spawn).collect();
        let joined = threads
            .into_iter()
            .map(|one| one.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)));
        joined.collect()
    })
}

/// Each from its address of the loopback.
fn connect(addr: SocketAddr, number: usize) -> io::Result<TcpStream> {
    let explain = |error: io::Error| {
        let text = format!("connection {} of them cannot be made: {error}", number + 1);
        io::Error::new(error.kind(), text)
    };
    let attempt = || {
        let socket = Socket::new(Domain::for_address(addr), Type::STREAM, None)?;
        let host = u32::from(Ipv4Addr::LOCALHOST) + 1 + (number / FROM_ONE) as u32;
        socket.bind(&SocketAddr::from((Ipv4Addr::from(host), 0)).into())?;
        // Its end is a reset: else each port would be kept for a minute.
        socket.set_linger(Some(Duration::ZERO))?;
        socket.set_read_timeout(Some(PATIENCE))?;
        socket.connect(&addr.into())?;
        Ok(TcpStream::from(socket))
    };
    attempt().map_err(explain)
}

fn ask(streams: &mut [TcpStream], plan: &Plan) -> io::Result<()> {
    for stream in &mut *streams {
        stream.write_all(exchange::REQUEST)?;
    }
    let (mut answer, mut buffer) = (ResponseReader::default(), vec![0; 64 << 10]);
    for stream in streams {
        answer.reset();
        loop {
            match stream.read(&mut buffer) {
                Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
                Ok(count) if answer.take(&buffer[..count], &plan.expected)? => break,
                Ok(_) => {}
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    let text = format!("no answer came for {} s", PATIENCE.as_secs());
                    return Err(io::Error::new(ErrorKind::TimedOut, text));
                }
                Err(error) => return Err(error),
            }
        }
    }
    Ok(())
}
