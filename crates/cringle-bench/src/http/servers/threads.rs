//! `threads`: std's sockets, with a thread for each connection.

use super::{ServedPage, converse};
use std::io;
use std::net::TcpListener;
use std::thread;

pub(super) fn run(listener: TcpListener, page: &'static ServedPage) -> io::Result<()> {
    for stream in listener.incoming() {
        let stream = stream?;
        // The thread ends with its connection; an error of the connection ends it, too.
        let serve = move || converse(&stream, page);
        if let Err(error) = thread::Builder::new().spawn(serve) {
            let text = format!("cannot start a thread for a connection: {error}; see `ulimit -u`");
            return Err(io::Error::new(error.kind(), text));
        }
    }
    Ok(())
}
