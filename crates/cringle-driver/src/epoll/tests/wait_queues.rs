//! Ops that wait for a descriptor: their order, and the events that the driver asks for.

use super::*;
use std::io::Read;
use std::os::fd::{FromRawFd, IntoRawFd};
use std::os::unix::net::UnixStream;

/// A copy of a descriptor, with a number that the kernel gives to no other test of this process.
fn far_away(fd: &impl AsRawFd, number: i32) -> OwnedFd {
    // SAFETY: the descriptor that it returns is newly opened and owned here.
    unsafe {
        let fd = libc::fcntl(fd.as_raw_fd(), libc::F_DUPFD_CLOEXEC, number);
        assert!(fd >= number);
        OwnedFd::from_raw_fd(fd)
    }
}

/// A slice and a message of one byte.
struct Named {
    slice: Box<libc::iovec>,
    message: Box<libc::msghdr>,
}

impl Named {
    fn new(byte: *mut u8) -> Named {
        let mut slice = Box::new(libc::iovec { iov_base: byte.cast(), iov_len: 1 });
        // SAFETY: a `msghdr` may be all-zero.
        let mut message: Box<libc::msghdr> = Box::new(unsafe { std::mem::zeroed() });
        (message.msg_iov, message.msg_iovlen) = (&raw mut *slice, 1);
        Named { slice, message }
    }
}

fn fill(stream: &UnixStream) {
    stream.set_nonblocking(true).unwrap();
    while (&mut &*stream).write(&[0; 4096]).is_ok() {}
    while (&mut &*stream).write(&[0]).is_ok() {}
    stream.set_nonblocking(false).unwrap();
}

/// Reads all that is buffered, and returns the bytes that are not zero.
fn drain(stream: &UnixStream) -> Vec<u8> {
    let mut all = Vec::new();
    stream.set_nonblocking(true).unwrap();
    let _ = (&mut &*stream).read_to_end(&mut all);
    all.retain(|&byte| byte != 0);
    all
}

type MakeOp = fn(i32, *mut u8, &mut Named) -> Op;

#[test]
fn readers_are_served_in_order_of_arrival() {
    let kinds: [MakeOp; 4] = [
        |fd, buf, _| Op::read(Target::fd(fd), buf, 1, AT_CURSOR),
        |fd, _, named| Op::slices(Way::Read, fd, &*named.slice, 1, AT_CURSOR, 0),
        |fd, buf, _| Op::recv(fd, buf, 1, 0),
        |fd, _, named| Op::recv_msg(fd, &mut *named.message, 0),
    ];
    for kind in kinds {
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        let mut named = Vec::new();
        let mut rig = Rig::new(8);
        let mut push = |rig: &mut Rig| {
            let number = rig.push(|byte| {
                named.push(Named::new(byte));
                kind(ours.as_raw_fd(), byte, named.last_mut().unwrap())
            });
            rig.epoll.enter(Wait::No);
            number.unwrap()
        };
        let first = push(&mut rig);
        theirs.write_all(b"a").unwrap();
        let second = push(&mut rig);
        theirs.write_all(b"b").unwrap();
        rig.until_idle();
        assert_eq!([first, second].map(|number| rig.byte(number)), *b"ab");
    }
}

#[test]
fn writers_are_served_in_order_of_arrival() {
    let kinds: [MakeOp; 5] = [
        |fd, buf, _| Op::write(Target::fd(fd), buf, 1, AT_CURSOR),
        |fd, _, named| Op::slices(Way::Write, fd, &*named.slice, 1, AT_CURSOR, 0),
        |fd, buf, _| Op::send(fd, buf, 1, 0),
        |fd, buf, _| Op::send_zc(fd, buf, 1, 0),
        |fd, _, named| Op::send_msg(fd, &*named.message, 0),
    ];
    for kind in kinds {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let mut named = Vec::new();
        let mut rig = Rig::new(8);
        let mut push = |rig: &mut Rig, text: u8| {
            let number = rig.push(|byte| {
                // SAFETY: I1. The byte belongs to the frame, and no op uses it yet.
                unsafe { *byte = text };
                named.push(Named::new(byte));
                kind(ours.as_raw_fd(), byte, named.last_mut().unwrap())
            });
            rig.epoll.enter(Wait::No);
            number.unwrap()
        };
        fill(&ours);
        let first = push(&mut rig, b'a');
        assert_eq!(drain(&theirs), b"");
        let second = push(&mut rig, b'b');
        rig.until_idle();
        assert_eq!([first, second].map(|number| rig.result(number)), [1, 1]);
        assert_eq!(drain(&theirs), b"ab");
    }
}

#[test]
fn acceptors_are_served_in_order_of_arrival() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let addr = listener.local_addr().unwrap();
    let mut rig = Rig::new(8);
    let accept = |rig: &mut Rig| {
        let (addr, addr_len) = (std::ptr::null_mut(), std::ptr::null_mut());
        let number = rig.push(|_| Op::Accept { fd: listener.as_raw_fd(), addr, addr_len });
        rig.epoll.enter(Wait::No);
        number.unwrap()
    };
    let connect = |byte| {
        let mut stream = std::net::TcpStream::connect(addr).unwrap();
        stream.write_all(&[byte]).unwrap();
        stream
    };
    let first = accept(&mut rig);
    let _one = connect(1);
    until_ready(&listener, libc::POLLIN);
    let second = accept(&mut rig);
    let _two = connect(2);
    rig.until_idle();
    for (number, byte) in [(first, 1), (second, 2)] {
        // SAFETY: the descriptor is newly opened by the op, and owned here.
        let mut stream = unsafe { std::net::TcpStream::from_raw_fd(rig.result(number)) };
        let mut got = [0];
        stream.read_exact(&mut got).unwrap();
        assert_eq!(got, [byte]);
    }
}

#[test]
fn cancelled_waits_leave_the_others_in_order() {
    // Each bit selects a read to cancel.
    for leaves in 0u32..32 {
        let mut rig = Rig::new(8);
        let (reader, mut writer) = std::io::pipe().unwrap();
        let five: [usize; 5] = std::array::from_fn(|_| rig.read(&reader));
        rig.enter();
        for n in (0..5).filter(|n| leaves & (1 << n) != 0) {
            rig.cancel(five[n]);
        }
        let late = rig.read(&reader);
        rig.enter();
        let stay: Vec<_> =
            (0..5).filter(|n| leaves & (1 << n) == 0).map(|n| five[n]).chain([late]).collect();
        for (byte, _) in (1..).zip(&stay) {
            writer.write_all(&[byte]).unwrap();
        }
        rig.until_idle();
        for (byte, &number) in (1..).zip(&stay) {
            assert_eq!((rig.result(number), rig.byte(number)), (1, byte), "{leaves:b}");
        }
        assert_eq!(rig.epoll.wait_queues.count, 0);
    }
}

/// The kernel keeps one set of events per descriptor, so it has to be the union of what the waits
/// need.
#[test]
fn waits_for_different_events_share_a_descriptor() {
    let wait = |events: &[i16]| {
        let (ours, theirs) = UnixStream::pair().unwrap();
        fill(&ours);
        let mut rig = Rig::new(8);
        let fd = ours.as_raw_fd();
        let polls: Vec<_> = events
            .iter()
            .map(|&events| rig.push(|_| Op::Poll { fd, events: events as u32 }).unwrap())
            .collect();
        let receives = rig.push(|buf| Op::recv(fd, buf, 1, 0)).unwrap();
        rig.enter();
        (ours, theirs, rig, polls, receives)
    };
    let (none, out, closed) = (libc::POLLPRI, libc::POLLOUT, libc::POLLRDHUP);
    for order in [[none, out, closed], [out, closed, none], [closed, none, out]] {
        let place = |events| order.iter().position(|&those| those == events).unwrap();
        let (_ours, mut theirs, mut rig, polls, receives) = wait(&order);
        drain(&theirs);
        until(|| {
            rig.sleep();
            rig.settled == [polls[place(out)]]
        });
        assert_eq!(rig.result(polls[place(out)]), out.into());
        theirs.set_nonblocking(false).unwrap();
        theirs.write_all(&[7]).unwrap();
        until(|| {
            rig.sleep();
            rig.settled.len() == 2
        });
        assert_eq!((rig.result(receives), rig.byte(receives)), (1, 7));
        theirs.shutdown(std::net::Shutdown::Write).unwrap();
        until(|| {
            rig.sleep();
            rig.settled.len() == 3
        });
        assert_eq!(rig.result(polls[place(closed)]), closed.into());
        rig.cancel(polls[place(none)]);
        rig.until_idle();
        assert_eq!(rig.result(polls[place(none)]), -libc::ECANCELED);
    }
}

#[test]
fn reader_and_writer_share_a_descriptor() {
    let (ours, mut theirs) = UnixStream::pair().unwrap();
    fill(&ours);
    let fd = ours.as_raw_fd();
    let mut rig = Rig::new(8);
    let receives = rig.push(|buf| Op::recv(fd, buf, 1, 0)).unwrap();
    let sends = rig.push(|buf| Op::send(fd, buf, 1, 0)).unwrap();
    rig.enter();
    theirs.write_all(&[7]).unwrap();
    rig.sleep();
    assert_eq!((&rig.settled[..], rig.byte(receives)), (&[receives][..], 7));
    let receives = rig.push(|buf| Op::recv(fd, buf, 1, 0)).unwrap();
    rig.enter();
    assert_eq!(rig.flight(sends).fruitless_events, 0, "it was attempted without an event");
    drain(&theirs);
    theirs.set_nonblocking(false).unwrap();
    rig.sleep();
    assert_eq!((rig.settled.len(), rig.result(sends)), (2, 1));
    assert_eq!(rig.flight(receives).fruitless_events, 0, "it was attempted without an event");
    theirs.write_all(&[8]).unwrap();
    rig.until_idle();
    assert_eq!(rig.byte(receives), 8);
}

/// Otherwise the worker would spin, because a socket is mostly writable.
#[test]
fn unwanted_events_do_not_wake_the_worker() {
    let sleeps_until_its_deadline = |rig: &mut Rig| {
        let deadline = Instant::now() + Duration::from_millis(2);
        rig.epoll.enter(Wait::Until(Some(deadline)));
        assert!(Instant::now() >= deadline, "there was an event");
    };
    let (ours, mut theirs) = UnixStream::pair().unwrap();
    let fd = ours.as_raw_fd();
    let mut rig = Rig::new(8);
    let receives = rig.push(|buf| Op::recv(fd, buf, 1, 0)).unwrap();
    rig.enter();
    sleeps_until_its_deadline(&mut rig);
    rig.cancel(receives);
    rig.until_idle();
    fill(&ours);
    let sends = rig.push(|buf| Op::send(fd, buf, 1, 0)).unwrap();
    theirs.write_all(&[7]).unwrap();
    rig.enter();
    sleeps_until_its_deadline(&mut rig);
    rig.cancel(sends);
    rig.until_idle();
}

#[test]
fn one_event_ends_every_poll_for_it() {
    let mut rig = Rig::new(8);
    let (reader, mut writer) = std::io::pipe().unwrap();
    let fd = reader.as_raw_fd();
    let polls: [usize; 3] = std::array::from_fn(|_| {
        rig.push(|_| Op::Poll { fd, events: libc::POLLIN as u32 }).unwrap()
    });
    rig.enter();
    rig.cancel(polls[1]);
    writer.write_all(&[7]).unwrap();
    rig.until_idle();
    let expected = [libc::POLLIN.into(), -libc::ECANCELED, libc::POLLIN.into()];
    assert_eq!(polls.map(|number| rig.result(number)), expected);
}

/// The kernel reports a closed pipe even if no event is asked for.
#[test]
fn descriptor_without_waits_reports_no_more_events() {
    let mut rig = Rig::new(8);
    let (reader, writer) = std::io::pipe().unwrap();
    let read = rig.read(&reader);
    rig.enter();
    rig.cancel(read);
    rig.reap();
    drop(writer);
    // The event that the cancelled read asked for.
    rig.sleep();
    let later = Instant::now() + Duration::from_millis(3);
    rig.epoll.enter(Wait::Until(Some(later)));
    assert!(Instant::now() >= later, "there was another event");
}

#[test]
fn reader_sees_the_end_of_a_pipe() {
    let mut rig = Rig::new(8);
    let (reader, writer) = std::io::pipe().unwrap();
    let read = rig.read(&reader);
    rig.enter();
    drop(writer);
    rig.until_idle();
    assert_eq!(rig.result(read), 0);
}

/// Unsafe code closes the descriptor. A copy keeps the file open, so the kernel still reports
/// events for the old number, but `epoll_ctl` fails.
#[test]
fn closing_a_descriptor_fails_all_its_waits() {
    let regular = tempfile::tempfile().unwrap();
    for (number, readable, reused) in [(600, false, false), (650, true, false), (700, false, true)]
    {
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        fill(&ours);
        theirs.write_all(b"part").unwrap();
        let fd = far_away(&ours, number).into_raw_fd();
        let mut buf = [0; 8];
        let (at, flags) = (buf.as_mut_ptr(), libc::MSG_WAITALL);
        let mut rig = Rig::new(8);
        let partial = rig.push(|_| Op::recv(fd, at, 8, flags)).unwrap();
        let others = [
            rig.push(|buf| Op::recv(fd, buf, 1, 0)).unwrap(),
            rig.push(|buf| Op::send(fd, buf, 1, 0)).unwrap(),
            rig.push(|buf| Op::send(fd, buf, 1, 0)).unwrap(),
            rig.push(|_| Op::Poll { fd, events: libc::POLLPRI as u32 }).unwrap(),
        ];
        rig.enter();
        assert_eq!(rig.settled, []);
        // SAFETY: I9. The test owns this number; no other test gets it.
        unsafe {
            if reused {
                assert_eq!(libc::dup2(regular.as_raw_fd(), fd), fd);
            } else {
                assert_eq!(libc::close(fd), 0);
            }
        }
        if readable {
            theirs.write_all(b"more").unwrap();
        } else {
            assert_eq!(drain(&theirs), b"");
        }
        rig.until_idle();
        // A regular file is no socket, and cannot be waited for.
        let expected = if reused {
            [-libc::EPERM, -libc::ENOTSOCK, -libc::ENOTSOCK, -libc::EPERM]
        } else {
            [-libc::EBADF, -libc::EBADF, -libc::EBADF, libc::POLLNVAL.into()]
        };
        assert_eq!(others.map(|other| rig.result(other)), expected);
        assert_eq!((rig.result(partial), &buf), (4, b"part\0\0\0\0"));
        if reused {
            // SAFETY: I9. The descriptor is the copy made above, owned here.
            unsafe { libc::close(fd) };
        }
    }
}

#[test]
fn read_of_a_closed_descriptor_fails_behind_waits() {
    let mut rig = Rig::new(8);
    let (reader, _writer) = std::io::pipe().unwrap();
    let fd = far_away(&reader, 800);
    let first = rig.read(&fd);
    rig.enter();
    // SAFETY: I9. The test owns this number and does not use it again.
    unsafe { libc::close(fd.as_raw_fd()) };
    let second = rig.read(&fd);
    let _ = fd.into_raw_fd();
    rig.enter();
    assert_eq!((&rig.settled[..], rig.result(second)), (&[second][..], -libc::EBADF));
    rig.cancel(first);
    rig.until_idle();
}

/// The kernel forgets a closed descriptor, so the next file with its number has to be added anew.
#[test]
fn reused_number_is_waited_for_again() {
    let mut rig = Rig::new(8);
    let mut last = None;
    for round in 0..3 {
        let (reader, mut writer) = std::io::pipe().unwrap();
        let reader = far_away(&reader, 900);
        assert_eq!(*last.get_or_insert(reader.as_raw_fd()), reader.as_raw_fd());
        for byte in [round, round + 1] {
            let read = rig.read(&reader);
            rig.enter();
            writer.write_all(&[byte]).unwrap();
            rig.until_idle();
            assert_eq!((rig.result(read), rig.byte(read)), (1, byte));
        }
    }
}
