//! `epoll`: one thread and a table of connections, each registered once, edge-triggered. Only the
//! table is allocated.

use super::{READ_BYTES, RequestCounter, ServedPage};
use mio::net::{TcpListener, TcpStream};
use mio::{Events, Interest, Poll, Token};
use std::io::{self, ErrorKind, Read, Write};

const LISTENER: Token = Token(usize::MAX);

struct Connection {
    stream: TcpStream,
    counter: RequestCounter,
    /// The responses that are not completely sent, and how many bytes of the first one are.
    owed: usize,
    sent: usize,
}

struct Table<'a> {
    page: &'a ServedPage,
    poll: Poll,
    connections: Vec<Option<Connection>>,
    free: Vec<usize>,
    buffer: [u8; READ_BYTES],
}

pub(super) fn run(listener: std::net::TcpListener, page: &ServedPage) -> io::Result<()> {
    listener.set_nonblocking(true)?;
    let mut listener = TcpListener::from_std(listener);
    let poll = Poll::new()?;
    poll.registry().register(&mut listener, LISTENER, Interest::READABLE)?;
    let (connections, free) = (Vec::new(), Vec::new());
    let mut table = Table { page, poll, connections, free, buffer: [0; READ_BYTES] };
    let mut events = Events::with_capacity(1024);
    loop {
        match table.poll.poll(&mut events, None) {
            Err(error) if error.kind() == ErrorKind::Interrupted => continue,
            polled => polled?,
        }
        for event in &events {
            match event.token() {
                LISTENER => table.accept_all(&listener)?,
                // An earlier event of this round may have closed the connection.
                Token(index) => table.advance(index, event.is_read_closed()),
            }
        }
    }
}

impl Table<'_> {
    fn accept_all(&mut self, listener: &TcpListener) -> io::Result<()> {
        loop {
            let mut stream = match listener.accept() {
                Ok((stream, _peer)) => stream,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(error) => return Err(error),
            };
            let index = self.free.pop().unwrap_or(self.connections.len());
            let both = Interest::READABLE | Interest::WRITABLE;
            self.poll.registry().register(&mut stream, Token(index), both)?;
            let connection =
                Connection { stream, counter: RequestCounter::default(), owed: 0, sent: 0 };
            match self.connections.get_mut(index) {
                Some(slot) => *slot = Some(connection),
                None => self.connections.push(Some(connection)),
            }
        }
    }

    fn advance(&mut self, index: usize, closed: bool) {
        let Some(Some(connection)) = self.connections.get_mut(index) else { return };
        // Any error ends the connection.
        if !connection.converse(self.page, &mut self.buffer, closed).unwrap_or(false) {
            self.connections[index] = None;
            self.free.push(index);
        }
    }
}

impl Connection {
    /// Reads and writes until it would block. Returns whether the connection stays open.
    fn converse(&mut self, page: &ServedPage, buffer: &mut [u8], closed: bool) -> io::Result<bool> {
        loop {
            while self.owed > 0 {
                match self.stream.write(&page.response[self.sent..]) {
                    Ok(count) => self.sent += count,
                    Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(true),
                    Err(error) => return Err(error),
                }
                if self.sent == page.response.len() {
                    (self.owed, self.sent) = (self.owed - 1, 0);
                    if page.close {
                        return Ok(false);
                    }
                }
            }
            match self.stream.read(buffer) {
                Ok(0) => return Ok(false),
                Ok(count) => {
                    self.owed = self.counter.count(&buffer[..count]);
                    // A short read has emptied the socket: later bytes cause another event.
                    if self.owed == 0 && count < buffer.len() && !closed {
                        return Ok(true);
                    }
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(true),
                Err(error) => return Err(error),
            }
        }
    }
}
