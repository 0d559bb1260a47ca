//! `threads`: std's sockets, and a thread for each connection.

use super::{ServedPage, converse};
use std::io;
use std::net::TcpListener;
use std::thread;

pub(super) fn run(listener: TcpListener, page: &'static ServedPage) -> io::Result<()> {
    for stream in listener.incoming() {
        let stream = stream?;
        // The end of a connection, however it comes, is that of its thread.
        let serve = move || converse(&stream, page);
        if let Err(error) = thread::Builder::new().spawn(serve) {
            let text = format!("no thread for another connection: {error}; see `ulimit -u`");
            return Err(io::Error::new(error.kind(), text));
        }
    }
    Ok(())
}
