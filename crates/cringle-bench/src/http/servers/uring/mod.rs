//! `uring`: a hand-written loop on a bare ring, one ring for each thread.
//!
//! `fibers` are measured against this loop, so it uses the advantages of a program that does
//! nothing else: the kernel runs completions only when the ring is entered, the number of a
//! connection leads to its state, a round is one system call, and each [`Feature`]. `--ablate`
//! measures what each feature is worth.
//!
//! A slot is reused only when none of its connection's operations is in flight, so the number in a
//! completion always refers to the connection of its operation.

mod buffers;

use super::{Feature, READ_BYTES, RequestCounter, ServedPage, Variant};
use crate::ring;
use buffers::{Buffers, GROUP};
use io_uring::squeue::Flags;
use io_uring::types::{DestinationSlot, Fd, Fixed};
use io_uring::{Submitter, cqueue, opcode, squeue};
use std::io;
use std::net::TcpListener;
use std::os::fd::AsRawFd;
use std::ptr::{NonNull, null_mut};

const ENTRIES: usize = 1024;
const COMPLETIONS: usize = 16 * 1024;

/// The user data of operations without a connection. That of others is the connection's number,
/// with the bit `SEND` for a send.
const ACCEPT: u64 = u64::MAX;
const IGNORED: u64 = u64::MAX - 1;
const SEND: u64 = 1 << 62;

#[derive(Default)]
struct Connection {
    /// A descriptor, or an index into the ring's file table.
    fd: i32,
    counter: RequestCounter,
    /// The responses that are not completely sent, and how many bytes of the first one are.
    owed: usize,
    sent: usize,
    /// Whether a receive, or a send, is in flight.
    receiving: bool,
    sending: bool,
    /// Whether nothing more will be received.
    over: bool,
}

struct Slot {
    connection: Option<Connection>,
    /// The buffer for receives without provided buffers. It is never freed.
    buffer: Option<NonNull<[u8; READ_BYTES]>>,
}

struct Loop<'a> {
    page: &'static ServedPage,
    listener: i32,
    /// One submission accepts all connections.
    multishot: bool,
    /// Connections are entries of the ring's file table instead of descriptors of the process.
    fixed: bool,
    /// A kernel thread submits, on the server's processors. Completions are not deferred then.
    sqpoll: bool,
    /// The provided buffers. With them, a receive stays in flight until the end of the connection
    /// and keeps it open, so they are used only if a connection has several requests. (A single
    /// receive into a provided buffer costs more than one into the connection's own.)
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
    variant: Variant,
) -> io::Result<()> {
    let fixed = variant.has(Feature::Fixed);
    let sqpoll = variant.has(Feature::Sqpoll);
    let build = if sqpoll { ring::build_sqpoll } else { ring::build_with };
    let mut ring = build(ENTRIES, COMPLETIONS)?;
    let (mut submitter, queue, mut completions) = ring.split();
    // Saves a descriptor lookup in each call. An old kernel refuses; the loop works without.
    let _ = submitter.register_ring_fd();
    if fixed {
        submitter.register_files_sparse(table_size(connections)?)?;
    }
    let chosen = variant.has(Feature::Bufring) && !page.close;
    let buffers = chosen.then(|| Buffers::register(&submitter, connections)).transpose()?;
    let mut work = Loop {
        page,
        listener: listener.as_raw_fd(),
        multishot: variant.has(Feature::Multishot),
        fixed,
        sqpoll,
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

/// Returns the size of the file table: the limit of open files, but not much more than the
/// connections.
fn table_size(connections: usize) -> io::Result<u32> {
    let allowed = super::super::open_files::allowed()?;
    let enough = connections.saturating_add(1 << 16) as u64;
    Ok(allowed.min(enough) as u32)
}

impl Loop<'_> {
    #[inline]
    fn push(&mut self, entry: &squeue::Entry) -> io::Result<()> {
        // SAFETY: the buffers of receives and the response that is sent are never freed. Each
        // buffer has one operation at a time: a connection's next receive is pushed when the last
        // one has ended, and a provided buffer is in the kernel's ring only once.
        while unsafe { self.queue.push(entry) }.is_err() {
            self.queue.sync();
            self.submitter.submit()?;
            if self.sqpoll {
                self.submitter.squeue_wait()?;
            }
            self.queue.sync();
        }
        Ok(())
    }

    /// Queues an operation on a connection.
    #[inline]
    fn push_on(&mut self, entry: squeue::Entry, user_data: u64) -> io::Result<()> {
        let flags = if self.fixed { Flags::FIXED_FILE } else { Flags::empty() };
        self.push(&entry.flags(flags).user_data(user_data))
    }

    fn accept(&mut self) -> io::Result<()> {
        let (fd, fixed) = (Fd(self.listener), self.fixed);
        // The kernel refuses SOCK_CLOEXEC for an entry of the file table, which `exec` closes
        // anyway.
        let flags = if fixed { 0 } else { libc::SOCK_CLOEXEC };
        let entry = if self.multishot {
            opcode::AcceptMulti::new(fd).allocate_file_index(fixed).flags(flags).build()
        } else {
            opcode::Accept::new(fd, null_mut(), null_mut())
                .file_index(fixed.then(DestinationSlot::auto_target))
                .flags(flags)
                .build()
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
                self.accepted(result)
            }
            IGNORED => Ok(()),
            _ if user_data & SEND == 0 => self.received(user_data as usize, entry),
            _ => self.sent((user_data & !SEND) as usize, result),
        }
    }

    fn accepted(&mut self, fd: i32) -> io::Result<()> {
        if fd < 0 {
            let error = io::Error::from_raw_os_error(-fd);
            return Err(io::Error::new(error.kind(), format!("cannot accept: {error}")));
        }
        let number = self.free.pop().unwrap_or_else(|| {
            self.slots.push(Slot { connection: None, buffer: None });
            self.slots.len() - 1
        });
        self.slots[number].connection = Some(Connection { fd, ..Connection::default() });
        self.advance(number)
    }

    /// Starts the next operation of a connection: sends a response, receives, or closes.
    #[inline]
    fn advance(&mut self, number: usize) -> io::Result<()> {
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
            unreachable!("a connection exists until its last operation has ended")
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
                    // SAFETY: the buffer is never freed, and was initialised. The receive has ended
                    // and the connection has no other, so the kernel does not write to it.
                    (_, _, Some(buffer)) => unsafe {
                        connection.counter.count(&buffer.as_ref()[..count])
                    },
                    _ => unreachable!("a receive uses one of the two"),
                };
            }
            // No provided buffer was free. This round gives some back before the next receive is
            // submitted.
            error if error == -libc::ENOBUFS => {}
            // The peer has ended its side, and still gets the responses that are owed. After an
            // error it gets none.
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
        self.advance(number)
    }

    #[inline]
    fn sent(&mut self, number: usize, result: i32) -> io::Result<()> {
        let length = self.page.response.len();
        let connection = connection(&mut self.slots, number);
        connection.sending = false;
        if result <= 0 {
            (connection.owed, connection.over) = (0, true);
            if connection.receiving {
                // Ends the receive, whose completion closes the connection.
                let entry = opcode::Shutdown::new(Fd(connection.fd), libc::SHUT_RDWR).build();
                return self.push_on(entry, IGNORED);
            }
            return self.advance(number);
        }
        connection.sent += result as usize;
        if connection.sent == length {
            (connection.owed, connection.sent) = (connection.owed - 1, 0);
            if self.page.close {
                (connection.owed, connection.over) = (0, true);
            }
        }
        self.advance(number)
    }

    /// Closes a connection through the ring, which needs no system call of its own.
    fn close(&mut self, number: usize) -> io::Result<()> {
        let fd = connection(&mut self.slots, number).fd;
        self.slots[number].connection = None;
        self.free.push(number);
        let entry = if self.fixed {
            opcode::Close::new(Fixed(fd as u32)).build()
        } else {
            opcode::Close::new(Fd(fd)).build()
        };
        self.push(&entry.flags(Flags::SKIP_SUCCESS).user_data(IGNORED))
    }
}

#[inline]
fn connection(slots: &mut [Slot], number: usize) -> &mut Connection {
    match &mut slots[number].connection {
        Some(connection) => connection,
        None => unreachable!("a connection exists until its last operation has ended"),
    }
}
