//! `uring`: a hand-written loop on the bare ring, one ring a thread.
//!
//! It is what `fibers` are measured against, and takes the advantages that a program with nothing else
//! to do can have: the kernel runs completions only when asked, one submission accepts all connections,
//! a connection is found by its number, memory is used again, and each round is one system call.

use super::{Heads, READ_BYTES, Site};
use crate::bench::strategies::ring;
use io_uring::{Submitter, cqueue, opcode, squeue, types};
use std::io;
use std::net::TcpListener;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::ptr::{NonNull, null_mut};

const ENTRIES: usize = 1024;
const COMPLETIONS: usize = 16 * 1024;

/// User data of the accept; others are a connection's number, with a bit for what it sends.
const ACCEPT: u64 = u64::MAX;
const SEND: u64 = 1 << 63;

struct Connection {
    fd: OwnedFd,
    heads: Heads,
    /// Answers that are not all sent, and how much of the first one is.
    owed: usize,
    sent: usize,
}

struct Slot {
    connection: Option<Connection>,
    /// What the kernel receives into; it lives as long as the process.
    buffer: NonNull<[u8; READ_BYTES]>,
}

struct Loop<'a> {
    site: &'static Site,
    listener: RawFd,
    multishot: bool,
    submitter: Submitter<'a>,
    queue: squeue::SubmissionQueue<'a>,
    slots: Vec<Slot>,
    free: Vec<usize>,
}

pub(super) fn run(listener: &TcpListener, site: &'static Site, multishot: bool) -> io::Result<()> {
    let mut ring = ring::build_with(ENTRIES, COMPLETIONS)?;
    let (mut submitter, queue, mut completions) = ring.split();
    // One descriptor lookup less in each call; where it is refused nothing is lost.
    let _ = submitter.register_ring_fd();
    let listener = listener.as_raw_fd();
    let (slots, free) = (Vec::new(), Vec::new());
    let mut work = Loop { site, listener, multishot, submitter, queue, slots, free };
    work.accept()?;
    loop {
        work.queue.sync();
        ring::wait_for_one(&work.submitter)?;
        work.queue.sync();
        completions.sync();
        for entry in &mut completions {
            work.take(&entry)?;
        }
    }
}

impl Loop<'_> {
    #[inline]
    fn push(&mut self, entry: &squeue::Entry) -> io::Result<()> {
        // SAFETY: what is received into lives as long as the process, and so does what is sent; each
        // buffer has one operation at a time, since a slot's next one is pushed when the last is done.
        while unsafe { self.queue.push(entry) }.is_err() {
            self.queue.sync();
            self.submitter.submit()?;
            self.queue.sync();
        }
        Ok(())
    }

    fn accept(&mut self) -> io::Result<()> {
        let fd = types::Fd(self.listener);
        let entry = match self.multishot {
            true => opcode::AcceptMulti::new(fd).flags(libc::SOCK_CLOEXEC).build(),
            false => {
                opcode::Accept::new(fd, null_mut(), null_mut()).flags(libc::SOCK_CLOEXEC).build()
            }
        };
        self.push(&entry.user_data(ACCEPT))
    }

    #[inline]
    fn take(&mut self, entry: &cqueue::Entry) -> io::Result<()> {
        let (user_data, result) = (entry.user_data(), entry.result());
        if user_data == ACCEPT {
            if !cqueue::more(entry.flags()) {
                self.accept()?;
            }
            return self.welcome(result);
        }
        match user_data & SEND {
            0 => self.received(user_data as usize, result),
            _ => self.sent((user_data & !SEND) as usize, result),
        }
    }

    fn welcome(&mut self, result: i32) -> io::Result<()> {
        if result < 0 {
            return Err(io::Error::from_raw_os_error(-result));
        }
        // SAFETY: the kernel has just made it, for us.
        let fd = unsafe { OwnedFd::from_raw_fd(result) };
        let connection = Connection { fd, heads: Heads::default(), owed: 0, sent: 0 };
        let number = self.free.pop().unwrap_or_else(|| {
            let buffer = Box::leak(Box::new([0; READ_BYTES])).into();
            self.slots.push(Slot { connection: None, buffer });
            self.slots.len() - 1
        });
        self.slots[number].connection = Some(connection);
        self.receive(number)
    }

    #[inline]
    fn receive(&mut self, number: usize) -> io::Result<()> {
        let Slot { connection: Some(connection), buffer } = &self.slots[number] else {
            unreachable!("a connection is there until its last operation has ended")
        };
        let fd = types::Fd(connection.fd.as_raw_fd());
        let entry = opcode::Recv::new(fd, buffer.as_ptr().cast(), READ_BYTES as u32).build();
        self.push(&entry.user_data(number as u64))
    }

    #[inline]
    fn send(&mut self, number: usize) -> io::Result<()> {
        let Some(connection) = &self.slots[number].connection else {
            unreachable!("a connection is there until its last operation has ended")
        };
        let rest = &self.site.response[connection.sent..];
        let fd = types::Fd(connection.fd.as_raw_fd());
        let entry = opcode::Send::new(fd, rest.as_ptr(), rest.len() as u32)
            .flags(libc::MSG_NOSIGNAL | libc::MSG_WAITALL)
            .build();
        self.push(&entry.user_data(number as u64 | SEND))
    }

    #[inline]
    fn received(&mut self, number: usize, result: i32) -> io::Result<()> {
        let slot = &mut self.slots[number];
        let Some(connection) = slot.connection.as_mut().filter(|_| result > 0) else {
            return self.close(number);
        };
        // SAFETY: the receive has ended, and there is no other.
        let bytes = unsafe { &slot.buffer.as_ref()[..result as usize] };
        connection.owed = connection.heads.count(bytes);
        match connection.owed {
            0 => self.receive(number),
            _ => self.send(number),
        }
    }

    #[inline]
    fn sent(&mut self, number: usize, result: i32) -> io::Result<()> {
        let slot = &mut self.slots[number];
        let Some(connection) = slot.connection.as_mut().filter(|_| result > 0) else {
            return self.close(number);
        };
        connection.sent += result as usize;
        if connection.sent < self.site.response.len() {
            return self.send(number);
        }
        (connection.owed, connection.sent) = (connection.owed - 1, 0);
        match (self.site.close, connection.owed) {
            (true, _) => self.close(number),
            (false, 0) => self.receive(number),
            (false, _) => self.send(number),
        }
    }

    fn close(&mut self, number: usize) -> io::Result<()> {
        self.slots[number].connection = None;
        self.free.push(number);
        Ok(())
    }
}
