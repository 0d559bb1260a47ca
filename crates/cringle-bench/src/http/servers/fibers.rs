//! `fibers`: `net::Server`, used as its documentation shows.

use super::{ServerConfig, converse};
use cringle::net::Server;
use std::io;
use std::net::SocketAddr;

pub(super) fn run(config: &ServerConfig, ready: &dyn Fn(SocketAddr)) -> io::Result<()> {
    cringle::Builder::new().workers(config.workers).run(|| {
        crate::describe_runtime();
        let server = Server::bind(config.addr)?;
        ready(server.local_addr()?);
        let page = config.page;
        server.run(|stream, _peer| converse(&stream, page)).map(drop)
    })?
}
