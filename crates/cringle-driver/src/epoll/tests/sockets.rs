//! Sockets that are non-blocking during an op, and transfers that continue until all bytes are
//! moved.

use super::super::nowait::Outcome;
use super::super::wait_queues::Direction;
use super::*;
use crate::nonblocking::{Hold, is_set_by_program, set};
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::os::fd::{FromRawFd, IntoRawFd};
use std::os::unix::net::{UnixDatagram, UnixStream};

fn is_nonblocking(socket: &impl AsRawFd) -> bool {
    sys::status_flags(socket.as_raw_fd()) & libc::O_NONBLOCK != 0
}

fn accept(rig: &mut Rig, fd: &impl AsRawFd) -> usize {
    let (fd, addr, addr_len) = (fd.as_raw_fd(), std::ptr::null_mut(), std::ptr::null_mut());
    rig.push(|_| Op::Accept { fd, addr, addr_len }).unwrap()
}

fn connect(rig: &mut Rig, fd: &impl AsRawFd, addr: &socket2::SockAddr) -> usize {
    let (fd, addr, addr_len) = (fd.as_raw_fd(), addr.as_ptr().cast(), addr.len());
    rig.push(|_| Op::Connect { fd, addr, addr_len }).unwrap()
}

fn tcp_socket() -> socket2::Socket {
    socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).unwrap()
}

#[test]
fn socket_blocks_again_after_its_last_hold() {
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    let clone = socket.try_clone().unwrap();
    let [one, two] = [&socket, &clone].map(|socket| Hold::take(socket.as_raw_fd()).unwrap());
    assert!(is_nonblocking(&socket));
    one.release(clone.as_raw_fd());
    assert!(is_nonblocking(&socket));
    two.release(socket.as_raw_fd());
    assert!(!is_nonblocking(&socket));
}

#[test]
fn socket_that_the_program_set_is_not_held() {
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    socket.set_nonblocking(true).unwrap();
    assert!(Hold::take(socket.as_raw_fd()).is_none());
    assert!(is_nonblocking(&socket) && is_set_by_program(socket.as_raw_fd()));
    let (pipe, _writer) = std::io::pipe().unwrap();
    assert!(Hold::take(pipe.as_raw_fd()).is_none());
    assert!(!is_nonblocking(&pipe));
}

#[test]
fn holds_do_not_hide_what_the_program_set() {
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    let fd = socket.as_raw_fd();
    assert!(!is_set_by_program(fd));
    set(fd, true, || socket.set_nonblocking(true)).unwrap();
    assert!(is_nonblocking(&socket) && is_set_by_program(fd));
    set(fd, false, || socket.set_nonblocking(false)).unwrap();
    assert!(!is_nonblocking(&socket) && !is_set_by_program(fd));
    for stays in [true, false] {
        let hold = Hold::take(fd).unwrap();
        assert!(is_nonblocking(&socket) && !is_set_by_program(fd));
        for on in [!stays, stays] {
            set(fd, on, || unreachable!("it is held")).unwrap();
            assert_eq!((is_nonblocking(&socket), is_set_by_program(fd)), (true, on));
        }
        hold.release(fd);
        assert_eq!((is_nonblocking(&socket), is_set_by_program(fd)), (stays, stays));
        socket.set_nonblocking(false).unwrap();
    }
}

/// The number now belongs to another socket, which the program has made non-blocking.
#[test]
fn hold_leaves_a_reused_number_alone() {
    let [held, other] = [(); 2].map(|()| UdpSocket::bind("127.0.0.1:0").unwrap());
    let hold = Hold::take(held.as_raw_fd()).unwrap();
    other.set_nonblocking(true).unwrap();
    hold.release(other.as_raw_fd());
    assert!(is_nonblocking(&other));
    // The hold has ended nevertheless.
    assert!(is_set_by_program(held.as_raw_fd()));
}

#[test]
fn listener_is_non_blocking_only_during_accept() {
    let mut rig = Rig::new(8);
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let [first, second] = [(); 2].map(|()| accept(&mut rig, &listener));
    rig.enter();
    assert!(is_nonblocking(&listener));
    rig.cancel(first);
    rig.reap();
    assert!(!is_nonblocking(&listener));
    let _stream = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    rig.until_idle();
    assert!(!is_nonblocking(&listener));
    // SAFETY: the descriptor is newly opened by the op, and owned here.
    let accepted = unsafe { TcpStream::from_raw_fd(rig.result(second)) };
    assert!(!is_nonblocking(&accepted));
    assert_eq!(rig.result(first), -libc::ECANCELED);
}

#[test]
fn accept_on_a_non_blocking_listener_fails() {
    let mut rig = Rig::new(8);
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.set_nonblocking(true).unwrap();
    let accepts = accept(&mut rig, &listener);
    rig.enter();
    assert_eq!((&rig.settled[..], rig.result(accepts)), (&[accepts][..], -libc::EAGAIN));
}

#[test]
fn connect_returns_success_or_the_error() {
    let mut rig = Rig::new(8);
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let addr = listener.local_addr().unwrap();
    let socket = tcp_socket();
    let connects = connect(&mut rig, &socket, &addr.into());
    rig.until_idle();
    assert_eq!(rig.result(connects), 0);
    assert_eq!(socket.peer_addr().unwrap(), addr.into());
    assert!(!is_nonblocking(&socket));
    drop(listener);
    let refused = tcp_socket();
    let connects = connect(&mut rig, &refused, &addr.into());
    rig.until_idle();
    assert_eq!(rig.result(connects), -libc::ECONNREFUSED);
}

#[test]
fn connect_reports_the_error_of_its_socket() {
    let mut rig = Rig::new(8);
    // Its error is pending, as after a connection that was refused later.
    let closed = UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    socket.connect(closed).unwrap();
    socket.send(&[7]).unwrap();
    until_ready(&socket, libc::POLLERR);
    let connects = connect(&mut rig, &socket, &closed.into());
    rig.flight(connects).connecting = true;
    rig.enter();
    assert_eq!(rig.result(connects), -libc::ECONNREFUSED);
    // Unsafe code has closed it.
    const CLOSED: i32 = 1 << 20;
    let connects = rig.push(|_| Op::Connect { fd: CLOSED, addr: std::ptr::null(), addr_len: 0 });
    let connects = connects.unwrap();
    rig.flight(connects).connecting = true;
    rig.enter();
    assert_eq!(rig.result(connects), -libc::EBADF);
}

/// The listener's queue is full, so the kernel does not answer.
#[test]
fn connect_without_an_answer_can_be_cancelled() {
    let mut rig = Rig::new(64);
    let listener = tcp_socket();
    let any = std::net::SocketAddr::from(([127, 0, 0, 1], 0));
    listener.bind(&any.into()).unwrap();
    listener.listen(0).unwrap();
    let addr = listener.local_addr().unwrap();
    let sockets: Vec<_> = (0..5).map(|_| tcp_socket()).collect();
    let connects: Vec<_> = sockets.iter().map(|socket| connect(&mut rig, socket, &addr)).collect();
    rig.enter();
    until(|| {
        let near = Instant::now() + Duration::from_millis(1);
        rig.epoll.enter(Wait::Until(Some(near)));
        rig.reap();
        !rig.settled.is_empty()
    });
    let waits = *connects.last().unwrap();
    // An attempt without readiness keeps waiting.
    let number = rig.number(waits);
    // SAFETY: I1. Its frame waits for it.
    let outcome =
        unsafe { rig.epoll.flights.get_mut(number).attempt(&mut LastFile::default(), true) };
    let fd = sockets[4].as_raw_fd();
    assert_eq!(outcome, Outcome::Wait(fd, Direction::Out));
    assert!(matches!(rig.stage(waits), Stage::Waiting(..)));
    assert!(is_nonblocking(&sockets[4]));
    for (&number, socket) in connects.iter().zip(&sockets) {
        if !rig.settled.contains(&number) {
            rig.cancel(number);
            rig.reap();
            assert_eq!(rig.result(number), -libc::ECANCELED);
        }
        assert!(!is_nonblocking(socket));
    }
}

// ----- transfers -----

fn receive(rig: &mut Rig, fd: &impl AsRawFd, buf: &mut [u8], flags: i32) -> usize {
    let (fd, buf, len) = (fd.as_raw_fd(), buf.as_mut_ptr(), buf.len() as u32);
    rig.push(|_| Op::recv(fd, buf, len, flags)).unwrap()
}

#[test]
fn receive_with_waitall_fills_its_buffer() {
    let (ours, mut theirs) = UnixStream::pair().unwrap();
    let mut buf = [0; 8];
    let mut rig = Rig::new(8);
    let receives = receive(&mut rig, &ours, &mut buf, libc::MSG_WAITALL);
    for piece in ["ei", "ght", " by"] {
        rig.enter();
        assert_eq!(rig.settled, []);
        theirs.write_all(piece.as_bytes()).unwrap();
        if piece == " by" {
            rig.until_idle();
        } else {
            rig.sleep();
        }
    }
    assert_eq!((rig.result(receives), &buf), (8, b"eight by"));
}

#[test]
fn interrupted_waitall_receive_returns_its_bytes() {
    for ends in ["early cancel", "cancel", "shutdown", "reset"] {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut theirs = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let ours = listener.accept().unwrap().0;
        let mut buf = [0; 8];
        let mut rig = Rig::new(8);
        let receives = receive(&mut rig, &ours, &mut buf, libc::MSG_WAITALL);
        theirs.write_all(b"part").unwrap();
        until_ready(&ours, libc::POLLIN);
        if ends == "early cancel" {
            rig.cancel(receives);
        }
        rig.enter();
        match ends {
            "early cancel" => assert_eq!(rig.settled, [receives]),
            "cancel" => rig.cancel(receives),
            "shutdown" => theirs.shutdown(std::net::Shutdown::Write).unwrap(),
            _ => {
                socket2::SockRef::from(&theirs).set_linger(Some(Duration::ZERO)).unwrap();
                drop(theirs);
            }
        }
        rig.until_idle();
        assert_eq!((rig.result(receives), &buf), (4, b"part\0\0\0\0"), "{ends}");
    }
}

#[test]
fn peeks_and_datagrams_are_not_continued() {
    let (ours, mut theirs) = UnixStream::pair().unwrap();
    theirs.write_all(b"part").unwrap();
    let mut buf = [0; 8];
    let mut rig = Rig::new(8);
    let peeks = receive(&mut rig, &ours, &mut buf, libc::MSG_WAITALL | libc::MSG_PEEK);
    rig.enter();
    assert_eq!((&rig.settled[..], rig.result(peeks), &buf), (&[peeks][..], 4, b"part\0\0\0\0"));
    let part = receive(&mut rig, &ours, &mut buf, 0);
    rig.enter();
    assert_eq!((rig.settled.len(), rig.result(part)), (2, 4));

    let (ours, theirs) = UnixDatagram::pair().unwrap();
    theirs.send(b"whole").unwrap();
    theirs.send(b"next").unwrap();
    let receives = receive(&mut rig, &ours, &mut buf, libc::MSG_WAITALL);
    rig.enter();
    assert_eq!((rig.settled.len(), rig.result(receives), &buf), (3, 5, b"whole\0\0\0"));
}

/// A socket that was shut for reading can be full for its sender.
#[test]
fn send_waits_on_a_socket_shut_for_reading() {
    let (ours, theirs) = UnixStream::pair().unwrap();
    theirs.shutdown(std::net::Shutdown::Write).unwrap();
    ours.set_nonblocking(true).unwrap();
    while (&mut &ours).write(&[0; 4096]).is_ok() {}
    while (&mut &ours).write(&[0]).is_ok() {}
    let fd = ours.as_raw_fd();
    let mut rig = Rig::new(8);
    let sends = rig.push(|buf| Op::send(fd, buf, 1, 0)).unwrap();
    let number = rig.number(sends);
    // SAFETY: I1. Its frame waits for it. (The socket has room for no byte.)
    let outcome =
        unsafe { rig.epoll.flights.get_mut(number).attempt(&mut LastFile::default(), true) };
    assert_eq!(outcome, Outcome::Wait(fd, Direction::Out));
    rig.cancel(sends);
    rig.until_idle();
}

#[test]
fn receive_with_dontwait_fails_at_once() {
    let (ours, _theirs) = UnixStream::pair().unwrap();
    let mut buf = [0; 8];
    let mut rig = Rig::new(8);
    let receives = receive(&mut rig, &ours, &mut buf, libc::MSG_DONTWAIT);
    rig.enter();
    assert_eq!((&rig.settled[..], rig.result(receives)), (&[receives][..], -libc::EAGAIN));
}

/// A call that does not wait returns `EAGAIN`, though the kernel reports the socket as readable.
#[test]
fn shut_datagram_socket_receives_nothing() {
    let (ours, _theirs) = UnixDatagram::pair().unwrap();
    let mut buf = [0; 8];
    let mut rig = Rig::new(8);
    let waits = receive(&mut rig, &ours, &mut buf, 0);
    rig.enter();
    assert_eq!(rig.settled, []);
    ours.shutdown(std::net::Shutdown::Read).unwrap();
    rig.until_idle();
    assert_eq!(rig.result(waits), 0);
    let late = receive(&mut rig, &ours, &mut buf, 0);
    rig.until_idle();
    assert_eq!(rig.result(late), 0);
}

/// Unsafe code gives the listener's number to another socket while an accept waits.
#[test]
fn accept_leaves_a_reused_number_alone() {
    let mut rig = Rig::new(8);
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let addr = listener.local_addr().unwrap();
    let copy = listener.try_clone().unwrap();
    let accepts = accept(&mut rig, &listener);
    rig.enter();
    let other = UdpSocket::bind("127.0.0.1:0").unwrap();
    other.set_nonblocking(true).unwrap();
    let fd = listener.into_raw_fd();
    // SAFETY: I9. The test owns this number, which means another socket from now on.
    let other = unsafe {
        assert_eq!(libc::dup2(other.as_raw_fd(), fd), fd);
        UdpSocket::from_raw_fd(fd)
    };
    let _stream = TcpStream::connect(addr).unwrap();
    rig.until_idle();
    assert!(rig.result(accepts) < 0);
    assert!(is_nonblocking(&other) && is_nonblocking(&copy));
}
