//! The servers, which send the same response in six ways.

mod epoll;
mod fibers;
mod threads;
mod tokio;
mod uring;

use super::args::{Feature, Server, Variant};
use super::served_page::{READ_BYTES, RequestCounter, ServedPage};
use crate::no_thread;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener};
use std::thread;

/// The parameters of a server.
pub(super) struct ServerConfig {
    pub(super) variant: Variant,
    pub(super) addr: SocketAddr,
    pub(super) workers: usize,
    /// The expected number of simultaneous connections.
    pub(super) connections: usize,
    pub(super) page: &'static ServedPage,
}

/// Serves until the process ends; calls `ready` when it listens.
pub(super) fn run(config: &ServerConfig, ready: &dyn Fn(SocketAddr)) -> io::Result<()> {
    let &ServerConfig { variant, page, connections, .. } = config;
    match variant.server {
        Server::Threads => threads::run(listener(config, ready)?, page),
        Server::Epoll => epoll::run(listener(config, ready)?, page),
        Server::Tokio => tokio::run(listener(config, ready)?, page, None),
        Server::TokioMt => tokio::run(listener(config, ready)?, page, Some(config.workers)),
        Server::Uring => on_each(config, ready, move |listener| {
            uring::run(&listener, page, connections, variant)
        }),
        Server::Fibers => fibers::run(config, ready),
    }
}

fn bind(addr: SocketAddr, shared: bool) -> io::Result<TcpListener> {
    let listener = cringle::net::TcpListener::builder().reuse_port(shared).bind(addr);
    listener.map(TcpListener::from)
}

fn listener(config: &ServerConfig, ready: &dyn Fn(SocketAddr)) -> io::Result<TcpListener> {
    let listener = bind(config.addr, false)?;
    // The port stays open until the process has ended: a load that is refused then finds the end.
    std::mem::forget(listener.try_clone()?);
    ready(listener.local_addr()?);
    Ok(listener)
}

/// Runs `work` on a thread for each worker, with a listener of its own.
fn on_each(
    config: &ServerConfig,
    ready: &dyn Fn(SocketAddr),
    work: impl Fn(TcpListener) -> io::Result<()> + Copy + Send,
) -> io::Result<()> {
    let first = bind(config.addr, config.workers > 1)?;
    let addr = first.local_addr()?;
    let others = (1..config.workers).map(|_| bind(addr, true)).collect::<io::Result<Vec<_>>>()?;
    thread::scope(|s| {
        for listener in others {
            let started = thread::Builder::new().spawn_scoped(s, move || fatal(work(listener)));
            // The workers that have started would serve for ever.
            fatal(started.map(drop).map_err(|error| no_thread(&error, FEWER)));
        }
        ready(addr);
        work(first)
    })
}

const FEWER: &str = "choose fewer --workers, or ";

/// Ends the process if a worker fails: the other workers alone would give a wrong figure.
fn fatal(result: io::Result<()>) {
    if let Err(error) = result {
        cringle_report::complain(&format!("cringle: {error}"));
        std::process::exit(i32::from(cringle_report::failure::FAILED));
    }
}

/// Serves a connection in `threads` and `fibers`, which differ in their types only.
#[inline]
fn converse(mut stream: impl Read + Write, page: &ServedPage) -> io::Result<()> {
    let (mut buffer, mut counter) = ([0; READ_BYTES], RequestCounter::default());
    loop {
        let count = stream.read(&mut buffer)?;
        if count == 0 {
            return Ok(());
        }
        for _ in 0..counter.count(&buffer[..count]) {
            stream.write_all(&page.response)?;
            if page.close {
                return Ok(());
            }
        }
    }
}
