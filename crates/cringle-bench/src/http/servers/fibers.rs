//! `fibers`: `net::Server` as anybody would use it.

use super::{Orders, converse};
use cringle::net::Server;
use cringle::runtime::Feature;
use std::io;
use std::net::SocketAddr;

pub(super) fn run(orders: &Orders, ready: &dyn Fn(SocketAddr), eager: bool) -> io::Result<()> {
    let mut runtime = cringle::Builder::new().workers(orders.workers);
    if eager {
        runtime = runtime.without(Feature::DeferTaskrun);
    }
    runtime.run(|| {
        let server = Server::bind(orders.addr)?;
        ready(server.local_addr()?);
        let site = orders.site;
        server.run(|stream, _peer| converse(&stream, site)).map(drop)
    })?
}
