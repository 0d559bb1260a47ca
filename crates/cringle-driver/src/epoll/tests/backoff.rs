//! Ops that events do not help: the kernel reports the descriptor as ready again and again, but the
//! call would wait. The driver retries them after pauses.

use super::*;
use std::net::UdpSocket;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};

/// A socket with a datagram to receive and an empty error queue.
struct Busy {
    socket: UdpSocket,
    message: Box<libc::msghdr>,
}

impl Busy {
    /// `None` where the kernel reports no transmit timestamps.
    fn new() -> Option<Busy> {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        let what = libc::SOF_TIMESTAMPING_TX_SOFTWARE | libc::SOF_TIMESTAMPING_SOFTWARE;
        // SAFETY: the kernel reads one integer, which is borrowed for the call.
        let set = unsafe {
            let (level, name) = (libc::SOL_SOCKET, libc::SO_TIMESTAMPING);
            libc::setsockopt(socket.as_raw_fd(), level, name, (&raw const what).cast(), 4)
        };
        if set != 0 {
            println!("skipped: this kernel has no SO_TIMESTAMPING");
            return None;
        }
        let sender = UdpSocket::bind("127.0.0.1:0").unwrap();
        sender.send_to(&[7], socket.local_addr().unwrap()).unwrap();
        until_ready(&socket, libc::POLLIN);
        // SAFETY: a `msghdr` may be all-zero.
        let message = Box::new(unsafe { std::mem::zeroed() });
        Some(Busy { socket, message })
    }

    /// Pushes a receive from the error queue.
    fn wait_for_error(&mut self, rig: &mut Rig) -> usize {
        let (fd, message) = (self.socket.as_raw_fd(), &raw mut *self.message);
        let number = rig.push(|_| Op::recv_msg(fd, message, libc::MSG_ERRQUEUE));
        rig.epoll.enter(Wait::No);
        number.unwrap()
    }

    /// Sends a datagram, whose timestamp goes to the error queue.
    fn make_error(&self) {
        self.socket.send_to(&[], "127.0.0.1:9").unwrap();
        until_ready(&self.socket, libc::POLLERR);
    }

    fn receive(&self, rig: &mut Rig) -> usize {
        let fd = self.socket.as_raw_fd();
        let number = rig.push(|buf| Op::recv(fd, buf, 1, 0));
        rig.epoll.enter(Wait::No);
        number.unwrap()
    }
}

/// Sleeps until events have reported the op as ready three times and the driver pauses it.
fn sleep_until_back_off(rig: &mut Rig, number: usize) {
    for _ in 0..2 {
        rig.sleep();
        assert!(matches!(rig.stage(number), Stage::Waiting(..)));
    }
    rig.sleep();
    assert!(matches!(rig.stage(number), Stage::Backoff(_)));
}

#[test]
fn error_queue_receive_pauses_while_data_is_ready() {
    let Some(mut busy) = Busy::new() else { return };
    let mut rig = Rig::new(8);
    let receives = busy.wait_for_error(&mut rig);
    sleep_until_back_off(&mut rig, receives);
    assert_eq!(rig.epoll.wait_queues.count, 0);
    // The driver polls for the end of the pause although no op waits for an event.
    until(|| rig.epoll.is_poll_due());
    busy.make_error();
    rig.until_idle();
    assert_eq!(rig.result(receives), 0);
    assert_eq!(busy.message.msg_flags & libc::MSG_ERRQUEUE, libc::MSG_ERRQUEUE);
}

/// Both receives wait in the same queue.
#[test]
fn error_queue_receive_does_not_block_data_behind_it() {
    let Some(mut busy) = Busy::new() else { return };
    let mut rig = Rig::new(8);
    let errors = busy.wait_for_error(&mut rig);
    let data = busy.receive(&mut rig);
    until(|| {
        rig.sleep();
        rig.settled == [data]
    });
    assert_eq!((rig.result(data), rig.byte(data)), (1, 7));
    busy.make_error();
    rig.until_idle();
    assert_eq!(rig.result(errors), 0);
}

#[test]
fn data_receive_pauses_while_errors_are_queued() {
    let Some(busy) = Busy::new() else { return };
    let mut rig = Rig::new(8);
    let first = busy.receive(&mut rig);
    rig.until_idle();
    assert_eq!(rig.result(first), 1);
    busy.make_error();
    let second = busy.receive(&mut rig);
    sleep_until_back_off(&mut rig, second);
    let sender = UdpSocket::bind("127.0.0.1:0").unwrap();
    sender.send_to(&[8], busy.socket.local_addr().unwrap()).unwrap();
    rig.until_idle();
    assert_eq!((rig.result(second), rig.byte(second)), (1, 8));
}

#[test]
fn stolen_data_does_not_make_a_reader_pause() {
    let (reader, writer) = std::io::pipe().unwrap();
    reads_though_data_is_stolen(&reader, writer, |fd, buf| {
        Op::read(Target::fd(fd), buf, 1, AT_CURSOR)
    });
    let directory = tempfile::tempdir().unwrap();
    let fifo = fifo(&directory);
    reads_though_data_is_stolen(&fifo, &fifo, |fd, buf| {
        Op::read(Target::fd(fd), buf, 1, AT_CURSOR)
    });
    let (ours, theirs) = std::os::unix::net::UnixStream::pair().unwrap();
    reads_though_data_is_stolen(&ours, &theirs, |fd, buf| Op::recv(fd, buf, 1, 0));
}

fn reads_though_data_is_stolen<R: AsRawFd>(
    reader: &R,
    mut writer: impl Write,
    op: fn(i32, *mut u8) -> Op,
) where
    for<'a> &'a R: std::io::Read,
{
    let mut rig = Rig::new(8);
    let read = rig.push(|buf| op(reader.as_raw_fd(), buf)).unwrap();
    rig.enter();
    for _ in 0..5 {
        // Another reader takes the byte between the event and the attempt.
        writer.write_all(&[6]).unwrap();
        assert_eq!(rig.epoll.poller.wait(None), 1);
        std::io::Read::read_exact(&mut &*reader, &mut [0]).unwrap();
        let told = rig.epoll.poller.event(0).unwrap();
        rig.epoll.on_event(&told);
        assert!(matches!(rig.stage(read), Stage::Waiting(..)));
    }
    writer.write_all(&[7]).unwrap();
    rig.until_idle();
    assert_eq!(rig.byte(read), 7);
}

/// A datagram socket is writable though the receiver's queue is full.
#[test]
fn sender_to_a_full_receiver_lets_others_pass() {
    let name = format!("cringle-pauses-{}", std::process::id());
    let bind = |what| {
        let addr = SocketAddr::from_abstract_name(format!("{name}-{what}")).unwrap();
        (UnixDatagram::bind_addr(&addr).unwrap(), addr)
    };
    let (full, full_addr) = bind("full");
    let (roomy, roomy_addr) = bind("roomy");
    let sender = UnixDatagram::unbound().unwrap();
    sender.set_nonblocking(true).unwrap();
    while sender.send_to_addr(&[0], &full_addr).is_ok() {}
    sender.set_nonblocking(false).unwrap();

    let byte = 7u8;
    let mut slice = libc::iovec { iov_base: (&raw const byte).cast_mut().cast(), iov_len: 1 };
    let raw = [&full_addr, &roomy_addr].map(|addr| {
        let name = [&[0], addr.as_abstract_name().unwrap()].concat();
        socket2::SockAddr::unix(std::ffi::OsStr::from_bytes(&name)).unwrap()
    });
    let messages = raw.each_ref().map(|addr| {
        // SAFETY: a `msghdr` may be all-zero.
        let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
        (message.msg_name, message.msg_namelen) = (addr.as_ptr().cast_mut().cast(), addr.len());
        (message.msg_iov, message.msg_iovlen) = (&raw mut slice, 1);
        message
    });
    let mut rig = Rig::new(8);
    let send = |rig: &mut Rig, message: &libc::msghdr| {
        let (fd, message) = (sender.as_raw_fd(), std::ptr::from_ref(message));
        let number = rig.push(|_| Op::send_msg(fd, message, 0));
        rig.epoll.enter(Wait::No);
        number.unwrap()
    };
    let [to_full, to_roomy] = messages.each_ref().map(|message| send(&mut rig, message));
    sleep_until_back_off(&mut rig, to_full);
    assert_eq!((&rig.settled[..], rig.result(to_roomy)), (&[to_roomy][..], 1));
    assert_eq!(roomy.recv(&mut [0]).unwrap(), 1);
    full.recv(&mut [0]).unwrap();
    rig.until_idle();
    assert_eq!(rig.result(to_full), 1);
}

/// Pauses two reads of an empty pipe.
fn two_back_off(rig: &mut Rig, reader: &impl AsRawFd) -> [usize; 2] {
    let both = [rig.read(reader), rig.read(reader)];
    rig.epoll.queued.clear();
    for number in both {
        let number = rig.number(number);
        rig.epoll.back_off(number);
    }
    both
}

#[test]
fn cancel_during_a_pause_removes_only_that_op() {
    let mut rig = Rig::new(8);
    let (reader, mut writer) = std::io::pipe().unwrap();
    let [first, second] = two_back_off(&mut rig, &reader);
    rig.cancel(first);
    rig.reap();
    assert_eq!((&rig.settled[..], rig.result(first)), (&[first][..], -libc::ECANCELED));
    assert_eq!(rig.epoll.backing_off, [rig.number(second)]);
    writer.write_all(&[7]).unwrap();
    rig.until_idle();
    assert_eq!((rig.result(second), rig.byte(second)), (1, 7));
}

#[test]
fn only_due_ops_are_retried() {
    let mut rig = Rig::new(8);
    let (reader, _writer) = std::io::pipe().unwrap();
    let [first, second] = two_back_off(&mut rig, &reader);
    let far = Instant::now() + Duration::from_secs(3600);
    rig.flight(second).stage = Stage::Backoff(far);
    assert!(rig.epoll.next_retry().unwrap() < far);
    until(|| {
        rig.epoll.attention();
        matches!(rig.stage(first), Stage::Waiting(..))
    });
    assert_eq!(rig.epoll.backing_off, [rig.number(second)]);
    assert_eq!(rig.epoll.next_retry(), Some(far));
    rig.cancel(first);
    rig.cancel(second);
    rig.until_idle();
}

#[test]
fn sleep_ends_with_the_next_pause_or_deadline() {
    let mut rig = Rig::new(8);
    let (reader, _writer) = std::io::pipe().unwrap();
    let [first, second] = two_back_off(&mut rig, &reader);
    let far = Instant::now() + Duration::from_secs(3600);
    rig.epoll.enter(Wait::Until(Some(far)));
    rig.flight(second).stage = Stage::Backoff(far);
    assert!(matches!(rig.stage(first), Stage::Waiting(..)));
    let near = Instant::now() + Duration::from_millis(3);
    rig.epoll.enter(Wait::Until(Some(near)));
    assert!(Instant::now() >= near && Instant::now() < far);
    rig.cancel(first);
    rig.cancel(second);
    rig.until_idle();
}

#[test]
fn pauses_double_up_to_the_longest() {
    let mut rig = Rig::new(8);
    let (reader, _writer) = std::io::pipe().unwrap();
    let read = rig.read(&reader);
    rig.epoll.queued.clear();
    let number = rig.number(read);
    for micros in [250, 500, 1000, 2000, 4000, 8000, 8000, 8000] {
        let pause = Duration::from_micros(micros);
        let before = Instant::now();
        rig.epoll.back_off(number);
        let due = rig.flight(read).due().unwrap();
        assert!(before + pause <= due && due <= Instant::now() + pause, "{pause:?}");
        rig.epoll.backing_off.clear();
    }
    rig.flight(read).stage = Stage::Queued;
    rig.epoll.queued.push_back(number);
    rig.cancel(read);
    rig.until_idle();
}
