//! `threads`: std's sockets, with a thread for each connection.

use super::{ServedPage, converse};
use crate::no_thread;
use std::io;
use std::net::TcpListener;
use std::thread;

pub(super) fn run(listener: TcpListener, page: &'static ServedPage) -> io::Result<()> {
    for stream in listener.incoming() {
        let stream = stream?;
        // The thread ends with its connection; an error of the connection ends it, too.
        let serve = move || converse(&stream, page);
        let started = thread::Builder::new().spawn(serve);
        started.map_err(|error| no_thread(&error, "choose fewer --connections, or "))?;
    }
    Ok(())
}
