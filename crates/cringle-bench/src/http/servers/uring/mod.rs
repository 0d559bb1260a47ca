//! `uring`: a hand-written loop on the bare ring, one ring a thread.
//!
//! It is what `fibers` are measured against, and takes the advantages that a program with nothing else
//! to do can have: the kernel runs completions only when asked, a connection is found by its number, a
//! round is one system call, and what [`Features`] names. `--ablate` tells what each of them is worth.
//!
//! A slot is used again when none of its connection's operations is under way, so that a completion's
//! number is always that of the connection it was asked for.

mod buffers;

use super::{READ_BYTES, RequestCounter, ServedPage};
use crate::ring;
use buffers::{Buffers, GROUP};
use io_uring::squeue::Flags;
use io_uring::types::{DestinationSlot, Fd, Fixed};
use io_uring::{IoUring, Submitter, cqueue, opcode, squeue};
use std::io;
use std::net::TcpListener;
use std::os::fd::AsRawFd;
use std::ptr::{NonNull, null_mut};

const ENTRIES: usize = 1024;
const COMPLETIONS: usize = 16 * 1024;

/// User data of what has no connection; else it is a connection's number, with a bit for what it sends.
const ACCEPT: u64 = u64::MAX;
const UNHEARD: u64 = u64::MAX - 1;
const SEND: u64 = 1 << 62;

/// What a ring offers to a server, beyond reads and writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in super::super) struct Features {
    /// One submission accepts all connections.
    pub(in super::super) multishot: bool,
    /// Connections are entries of the ring's own table, and no descriptors of the process.
    pub(in super::super) fixed: bool,
    /// One submission receives all that comes on a connection, into buffers that the kernel chooses.
    pub(in super::super) bufring: bool,
    /// A kernel thread submits, on the server's processors; completions are not deferred then.
    pub(in super::super) sqpoll: bool,
}

struct Connection {
    /// A descriptor, or a place in the table.
    fd: i32,
    counter: RequestCounter,
    /// Answers that are not all sent, and how much of the first one is.
    owed: usize,
    sent: usize,
    receiving: bool,
    sending: bool,
    /// Nothing more is to be received.
    over: bool,
}

struct Slot {
    connection: Option<Connection>,
    /// What the kernel receives into where it does not choose; it lives as long as the process.
    buffer: Option<NonNull<[u8; READ_BYTES]>>,
}

struct Loop<'a> {
    page: &'static ServedPage,
    listener: i32,
    features: Features,
    /// Where they are, a receive goes on until the connection's end. So only where a connection has more than
    /// one request: what still receives keeps it open. (A single receive into one of these costs more than one
    /// into the connection's own.)
    buffers: Option<Buffers>,
    submitter: Submitter<'a>,
    queue: squeue::SubmissionQueue<'a>,
    slots: Vec<Slot>,
    free: Vec<usize>,
}

pub(super) fn run(
    listener: &TcpListener,
    page: &'static ServedPage,
    connections: usize,
    features: Features,
) -> io::Result<()> {
    let mut ring = build(features)?;
    let (mut submitter, queue, mut completions) = ring.split();
    // One descriptor lookup less in each call; where it is refused nothing is lost.
    let _ = submitter.register_ring_fd();
    if features.fixed {
        submitter.register_files_sparse(table_size(connections)?)?;
    }
    let chosen = features.bufring && !page.close;
    let buffers = chosen.then(|| Buffers::register(&submitter, connections)).transpose()?;
    let mut work = Loop {
        page,
        listener: listener.as_raw_fd(),
        features,
        buffers,
        submitter,
        queue,
        slots: Vec::new(),
        free: Vec::new(),
    };
    work.accept()?;
    loop {
        work.queue.sync();
        ring::wait_for_one(&work.submitter)?;
        work.queue.sync();
        completions.sync();
        for entry in &mut completions {
            work.take(&entry)?;
        }
        if let Some(buffers) = &work.buffers {
            buffers.publish();
        }
    }
}

fn build(features: Features) -> io::Result<IoUring> {
    match features.sqpoll {
        true => ring::build_polled(ENTRIES, COMPLETIONS),
        false => ring::build_with(ENTRIES, COMPLETIONS),
    }
}

/// As many connections as could have descriptors, within reason.
fn table_size(connections: usize) -> io::Result<u32> {
    let allowed = super::super::open_files::allowed()?;
    let enough = connections.saturating_add(1 << 16) as u64;
    Ok(allowed.min(enough) as u32)
}

impl Loop<'_> {
    #[inline]
    fn push(&mut self, entry: &squeue::Entry) -> io::Result<()> {
        // SAFETY: what is received into lives as long as the process, and so does what is sent; each
        // buffer has one operation at a time: a connection's next receive is pushed when the last is
        // over, and the kernel has each of its buffers once.
        while unsafe { self.queue.push(entry) }.is_err() {
            self.queue.sync();
            self.submitter.submit()?;
            if self.features.sqpoll {
                self.submitter.squeue_wait()?;
            }
            self.queue.sync();
        }
        Ok(())
    }

    /// On a connection.
    #[inline]
    fn push_on(&mut self, entry: squeue::Entry, user_data: u64) -> io::Result<()> {
        let flags = if self.features.fixed { Flags::FIXED_FILE } else { Flags::empty() };
        self.push(&entry.flags(flags).user_data(user_data))
    }

    fn accept(&mut self) -> io::Result<()> {
        let (fd, fixed) = (Fd(self.listener), self.features.fixed);
        // A place in the table is closed on `exec` anyway, and refuses the flag.
        let flags = if fixed { 0 } else { libc::SOCK_CLOEXEC };
        let entry = match self.features.multishot {
            true => opcode::AcceptMulti::new(fd).allocate_file_index(fixed).flags(flags).build(),
            false => opcode::Accept::new(fd, null_mut(), null_mut())
                .file_index(fixed.then(DestinationSlot::auto_target))
                .flags(flags)
                .build(),
        };
        self.push(&entry.user_data(ACCEPT))
    }

    #[inline]
    fn take(&mut self, entry: &cqueue::Entry) -> io::Result<()> {
        let (user_data, result) = (entry.user_data(), entry.result());
        match user_data {
            ACCEPT => {
                if !cqueue::more(entry.flags()) {
                    self.accept()?;
                }
                self.welcome(result)
            }
            UNHEARD => Ok(()),
            _ if user_data & SEND == 0 => self.received(user_data as usize, entry),
            _ => self.sent((user_data & !SEND) as usize, result),
        }
    }

    fn welcome(&mut self, fd: i32) -> io::Result<()> {
        if fd < 0 {
            let error = io::Error::from_raw_os_error(-fd);
            return Err(io::Error::new(error.kind(), format!("a connection is refused: {error}")));
        }
        let number = self.free.pop().unwrap_or_else(|| {
            self.slots.push(Slot { connection: None, buffer: None });
            self.slots.len() - 1
        });
        self.slots[number].connection = Some(Connection {
            fd,
            counter: RequestCounter::default(),
            owed: 0,
            sent: 0,
            receiving: false,
            sending: false,
            over: false,
        });
        self.go_on(number)
    }

    /// What is next on a connection: to send what is owed, to receive, or to end.
    #[inline]
    fn go_on(&mut self, number: usize) -> io::Result<()> {
        let connection = connection(&mut self.slots, number);
        if connection.owed > 0 {
            return if connection.sending { Ok(()) } else { self.send(number) };
        }
        match (connection.over, connection.receiving || connection.sending) {
            (false, _) if !connection.receiving => self.receive(number),
            (true, false) => self.close(number),
            _ => Ok(()),
        }
    }

    #[inline]
    fn receive(&mut self, number: usize) -> io::Result<()> {
        let connection = connection(&mut self.slots, number);
        connection.receiving = true;
        let fd = Fd(connection.fd);
        let entry = if self.buffers.is_some() {
            opcode::RecvMulti::new(fd, GROUP).build()
        } else {
            let buffer = &mut self.slots[number].buffer;
            let buffer = buffer.get_or_insert_with(|| Box::leak(Box::new([0; READ_BYTES])).into());
            opcode::Recv::new(fd, buffer.as_ptr().cast(), READ_BYTES as u32).build()
        };
        self.push_on(entry, number as u64)
    }

    #[inline]
    fn send(&mut self, number: usize) -> io::Result<()> {
        let connection = connection(&mut self.slots, number);
        connection.sending = true;
        let rest = &self.page.response[connection.sent..];
        let entry = opcode::Send::new(Fd(connection.fd), rest.as_ptr(), rest.len() as u32)
            .flags(libc::MSG_NOSIGNAL | libc::MSG_WAITALL)
            .build();
        self.push_on(entry, number as u64 | SEND)
    }

    #[inline]
    fn received(&mut self, number: usize, entry: &cqueue::Entry) -> io::Result<()> {
        let Slot { connection: Some(connection), buffer } = &mut self.slots[number] else {
            unreachable!("a connection is there until its last operation has ended")
        };
        connection.receiving = cqueue::more(entry.flags());
        match entry.result() {
            count @ 1.. => {
                let count = count as usize;
                let id = cqueue::buffer_select(entry.flags());
                connection.owed += match (&mut self.buffers, id, buffer) {
                    (Some(buffers), Some(id), _) => {
                        let requests = connection.counter.count(buffers.bytes(id, count));
                        buffers.give(id);
                        requests
                    }
                    // SAFETY: the receive has ended, and there is no other.
                    (_, _, Some(buffer)) => unsafe {
                        connection.counter.count(&buffer.as_ref()[..count])
                    },
                    _ => unreachable!("it was received into one of them"),
                };
            }
            // All buffers are full: those of this round are the kernel's again before it is asked next.
            error if error == -libc::ENOBUFS => {}
            // Half an end: what was asked is answered. An error is a whole one.
            result => {
                let id = cqueue::buffer_select(entry.flags());
                if let (Some(buffers), Some(id)) = (&mut self.buffers, id) {
                    buffers.give(id);
                }
                connection.over = true;
                if result < 0 && !connection.sending {
                    connection.owed = 0;
                }
            }
        }
        self.go_on(number)
    }

    #[inline]
    fn sent(&mut self, number: usize, result: i32) -> io::Result<()> {
        let length = self.page.response.len();
        let connection = connection(&mut self.slots, number);
        connection.sending = false;
        if result <= 0 {
            (connection.owed, connection.over) = (0, true);
            if connection.receiving {
                // It ends what is received.
                let entry = opcode::Shutdown::new(Fd(connection.fd), libc::SHUT_RDWR).build();
                return self.push_on(entry, UNHEARD);
            }
            return self.go_on(number);
        }
        connection.sent += result as usize;
        if connection.sent == length {
            (connection.owed, connection.sent) = (connection.owed - 1, 0);
            if self.page.close {
                (connection.owed, connection.over) = (0, true);
            }
        }
        self.go_on(number)
    }

    /// By the ring, in the same call as all else.
    fn close(&mut self, number: usize) -> io::Result<()> {
        let fd = connection(&mut self.slots, number).fd;
        self.slots[number].connection = None;
        self.free.push(number);
        let entry = match self.features.fixed {
            true => opcode::Close::new(Fixed(fd as u32)).build(),
            false => opcode::Close::new(Fd(fd)).build(),
        };
        self.push(&entry.flags(Flags::SKIP_SUCCESS).user_data(UNHEARD))
    }
}

#[inline]
fn connection(slots: &mut [Slot], number: usize) -> &mut Connection {
    match &mut slots[number].connection {
        Some(connection) => connection,
        None => unreachable!("a connection is there until its last operation has ended"),
    }
}
