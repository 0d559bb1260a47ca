//! `sendmsg` and `recvmsg` on and off fibers: slices, addresses and ancillary data.

use cringle::net::{
    AncillaryMessage, MsgFlags, Received, RecvAncillary, SendAncillary, TcpListener, TcpStream,
    UdpSocket,
};
use cringle::os::unix::net::{UCred, UnixDatagram, UnixStream};
use cringle::{cancel, fiber};
use cringle_testing::tools::on_one_worker;
use std::io::{self, ErrorKind, IoSlice, IoSliceMut, PipeReader, PipeWriter, Read, Write};
use std::net::{IpAddr, Ipv4Addr};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::time::{Duration, SystemTime};

const NONE: MsgFlags = MsgFlags::empty();

/// Runs `f` on a fiber and outside of one.
fn everywhere(f: impl Fn()) {
    on_one_worker(&f);
    f();
}

fn set_option(socket: &impl AsRawFd, level: i32, name: i32) {
    let on = 1i32;
    let (value, len) = ((&raw const on).cast(), size_of::<i32>() as u32);
    // SAFETY: the kernel reads one number.
    let set = unsafe { libc::setsockopt(socket.as_raw_fd(), level, name, value, len) };
    assert_eq!(set, 0, "{}", io::Error::last_os_error());
}

fn none() -> RecvAncillary {
    RecvAncillary::with_capacity(0)
}

#[test]
fn slices_of_a_stream_are_contiguous() {
    everywhere(|| {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let ours = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (theirs, _) = listener.accept().unwrap();
        let slices = [IoSlice::new(b"fair "), IoSlice::new(b""), IoSlice::new(b"winds")];
        assert_eq!(ours.sendmsg(&slices, &SendAncillary::new(), NONE).unwrap(), 10);
        for (flags, expected) in [(MsgFlags::PEEK | MsgFlags::WAITALL, 10), (MsgFlags::WAITALL, 10)]
        {
            let (mut a, mut b) = ([0; 4], [0; 6]);
            let slices = &mut [IoSliceMut::new(&mut a), IoSliceMut::new(&mut b)];
            let received = theirs.recvmsg(slices, &mut none(), flags).unwrap();
            let Received { len, truncated, ancillary_truncated, .. } = received;
            assert_eq!((len, truncated, ancillary_truncated), (expected, false, false));
            assert_eq!((&a, &b), (b"fair", b" winds"));
        }
        let nothing =
            theirs.recvmsg(&mut [IoSliceMut::new(&mut [0])], &mut none(), MsgFlags::DONTWAIT);
        assert_eq!(nothing.unwrap_err().kind(), ErrorKind::WouldBlock);
        drop(ours);
        let end = theirs.recvmsg(&mut [IoSliceMut::new(&mut [0])], &mut none(), NONE).unwrap();
        assert_eq!(end.len, 0);
        // A broken connection is an error, not a signal.
        while theirs.sendmsg(&[IoSlice::new(b"!")], &SendAncillary::new(), NONE).is_ok() {}
    });
}

/// A ring that peeks with `MSG_WAITALL` repeats the bytes until the slices are full.
#[test]
fn a_peek_returns_each_byte_once() {
    everywhere(|| {
        let (ours, theirs) = UnixStream::pair().unwrap();
        (&ours).write_all(b"fair winds").unwrap();
        for flags in [MsgFlags::PEEK | MsgFlags::WAITALL, MsgFlags::PEEK, NONE] {
            let mut text = [0; 64];
            let slices = &mut [IoSliceMut::new(&mut text)];
            let received = theirs.recvmsg(slices, &mut none(), flags).unwrap();
            assert_eq!(&text[..received.len], b"fair winds", "{flags:?}");
        }
    });
}

#[test]
fn datagrams_report_sender_and_truncation() {
    everywhere(|| {
        let (ours, theirs) = [(); 2].map(|()| UdpSocket::bind("127.0.0.1:0").unwrap()).into();
        let to = Some(theirs.local_addr().unwrap());
        let text = [IoSlice::new(b"fair "), IoSlice::new(b"winds")];
        for flags in [NONE, MsgFlags::TRUNC] {
            ours.sendmsg(&text, to, &SendAncillary::new(), NONE).unwrap();
            let mut word = [0; 4];
            let slices = &mut [IoSliceMut::new(&mut word)];
            let (received, from) = theirs.recvmsg(slices, &mut none(), flags).unwrap();
            assert_eq!((&word, from.unwrap()), (b"fair", ours.local_addr().unwrap()));
            assert!(received.truncated && received.flags.contains(MsgFlags::TRUNC));
            assert_eq!(received.len, if flags == NONE { 4 } else { 10 });
        }
        ours.connect(theirs.local_addr().unwrap()).unwrap();
        ours.sendmsg(&text, None, &SendAncillary::new(), NONE).unwrap();
        let mut all = [0; 16];
        let slices = &mut [IoSliceMut::new(&mut all)];
        let (received, _) = theirs.recvmsg(slices, &mut none(), NONE).unwrap();
        assert!(received.len == 10 && !received.truncated && &all[..10] == b"fair winds");
        let nowhere = theirs.sendmsg(&text, None, &SendAncillary::new(), NONE).unwrap_err();
        assert_eq!(nowhere.raw_os_error(), Some(libc::EDESTADDRREQ));
    });
}

#[test]
fn ancillary_data_of_a_datagram_is_parsed() {
    everywhere(|| {
        for (bind, local) in
            [("127.0.0.1:0", IpAddr::V4(Ipv4Addr::LOCALHOST)), ("[::1]:0", "::1".parse().unwrap())]
        {
            let theirs = UdpSocket::bind(bind).unwrap();
            let ours = UdpSocket::bind(bind).unwrap();
            match local {
                IpAddr::V4(_) => {
                    for name in [libc::IP_RECVTTL, libc::IP_RECVTOS, libc::IP_PKTINFO] {
                        set_option(&theirs, libc::SOL_IP, name);
                    }
                }
                IpAddr::V6(_) => {
                    let names =
                        [libc::IPV6_RECVHOPLIMIT, libc::IPV6_RECVTCLASS, libc::IPV6_RECVPKTINFO];
                    for name in names {
                        set_option(&theirs, libc::SOL_IPV6, name);
                    }
                }
            }
            set_option(&theirs, libc::SOL_SOCKET, libc::SO_TIMESTAMPNS);
            set_option(&theirs, libc::SOL_UDP, libc::UDP_GRO);
            let mut outgoing = SendAncillary::new();
            assert!(outgoing.is_empty());
            outgoing.segment_size(4);
            // An option for which there is no method.
            let (level, ttl, class) = match local {
                IpAddr::V4(_) => (libc::SOL_IP, libc::IP_TTL, libc::IP_TOS),
                IpAddr::V6(_) => (libc::SOL_IPV6, libc::IPV6_HOPLIMIT, libc::IPV6_TCLASS),
            };
            outgoing.raw(level, ttl, &7i32.to_ne_bytes()).unwrap();
            outgoing.raw(level, class, &8i32.to_ne_bytes()).unwrap();
            let to = Some(theirs.local_addr().unwrap());
            ours.sendmsg(&[IoSlice::new(b"fairwindaft")], to, &outgoing, NONE).unwrap();

            let mut text = [0; 64];
            let mut incoming = RecvAncillary::with_capacity(512);
            let slices = &mut [IoSliceMut::new(&mut text)];
            let (received, _) = theirs.recvmsg(slices, &mut incoming, NONE).unwrap();
            assert!(!received.ancillary_truncated);
            let (mut hops, mut traffic, mut segment, mut info) = (None, None, None, None);
            let mut when = None;
            for message in incoming.drain() {
                match message {
                    AncillaryMessage::HopLimit(limit) => hops = Some(limit),
                    AncillaryMessage::TrafficClass(class) => traffic = Some(class),
                    AncillaryMessage::SegmentSize(size) => segment = Some(size),
                    AncillaryMessage::Timestamp(at) => when = Some(at),
                    AncillaryMessage::PacketInfo { destination, interface } => {
                        info = Some((destination, interface > 0));
                    }
                    other => panic!("not requested: {other:?}"),
                }
            }
            assert_eq!((hops, traffic, segment), (Some(7), Some(8), Some(4)));
            assert_eq!((received.len, info), (11, Some((local, true))));
            let ago = SystemTime::now().duration_since(when.unwrap()).unwrap_or_default();
            assert!(ago < Duration::from_secs(3600), "{ago:?}");
            assert!(incoming.messages().is_empty());
        }
    });
}

#[test]
fn sender_credentials_are_received() {
    everywhere(|| {
        let (ours, theirs) = UnixDatagram::pair().unwrap();
        set_option(&theirs, libc::SOL_SOCKET, libc::SO_PASSCRED);
        // SAFETY: no pointers.
        let (uid, gid) = unsafe { (libc::getuid(), libc::getgid()) };
        let own = UCred { uid, gid, pid: Some(std::process::id() as i32) };
        let mut outgoing = SendAncillary::new();
        outgoing.credentials(own);
        for outgoing in [outgoing, SendAncillary::new()] {
            ours.sendmsg(&[IoSlice::new(b"!")], None, &outgoing, NONE).unwrap();
            let mut incoming = RecvAncillary::with_capacity(64);
            theirs.recvmsg(&mut [IoSliceMut::new(&mut [0])], &mut incoming, NONE).unwrap();
            let [AncillaryMessage::Credentials(credentials)] = incoming.messages() else {
                panic!("{incoming:?}");
            };
            assert_eq!(*credentials, own);
        }
    });
}

/// A pipe whose reader finds the end when every writing descriptor is closed.
struct Traced {
    reader: PipeReader,
    writer: PipeWriter,
}

impl Traced {
    fn new() -> Traced {
        let (reader, writer) = io::pipe().unwrap();
        Traced { reader, writer }
    }

    /// Returns several references to the same descriptor.
    fn send(&self, ours: &UnixStream, count: usize) {
        let mut outgoing = SendAncillary::new();
        outgoing.fds(&vec![self.writer.as_fd(); count]).unwrap();
        assert_eq!(ours.sendmsg(&[IoSlice::new(b"!")], &outgoing, NONE).unwrap(), 1);
    }

    /// Whether this is the only open descriptor.
    fn all_closed(self) -> bool {
        let Traced { mut reader, writer } = self;
        drop(writer);
        // SAFETY: no pointers.
        unsafe { libc::fcntl(reader.as_raw_fd(), libc::F_SETFL, libc::O_NONBLOCK) };
        matches!(reader.read(&mut [0]), Ok(0))
    }
}

fn take(theirs: &UnixStream, room: &mut RecvAncillary) -> Received {
    theirs.recvmsg(&mut [IoSliceMut::new(&mut [0; 8])], room, NONE).unwrap()
}

#[test]
fn untaken_descriptors_are_closed() {
    everywhere(|| {
        let (ours, theirs) = UnixStream::pair().unwrap();
        // Closed with the buffer, by the next message, and with an unfinished iterator.
        let first = Traced::new();
        first.send(&ours, 3);
        let mut room = RecvAncillary::for_fds(3);
        assert!(!take(&theirs, &mut room).ancillary_truncated);
        assert!(matches!(room.messages(), [AncillaryMessage::Fds(fds)] if fds.len() == 3));
        let second = Traced::new();
        second.send(&ours, 2);
        take(&theirs, &mut room);
        assert!(first.all_closed());
        drop(room.drain());
        assert!(second.all_closed());
        let third = Traced::new();
        third.send(&ours, 2);
        take(&theirs, &mut room);
        drop(room);
        assert!(third.all_closed());
        // Descriptors for which the buffer had no room.
        for count in [0, 1] {
            let cut = Traced::new();
            cut.send(&ours, 5);
            let mut room = RecvAncillary::with_capacity(count * 24);
            assert!(take(&theirs, &mut room).ancillary_truncated);
            let received = room.drain().map(|message| match message {
                AncillaryMessage::Fds(fds) => fds.len(),
                other => panic!("{other:?}"),
            });
            assert_eq!(received.sum::<usize>(), count * 2);
            assert!(cut.all_closed());
        }
        // Taken descriptors belong to the caller, and close on `exec`.
        let kept = Traced::new();
        kept.send(&ours, 1);
        let mut room = RecvAncillary::for_fds(1);
        take(&theirs, &mut room);
        let Some(AncillaryMessage::Fds(mut fds)) = room.drain().next() else { panic!("none") };
        let fd: OwnedFd = fds.pop().unwrap();
        // SAFETY: F_GETFD takes no pointer.
        let flags = unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_GETFD) };
        assert_eq!(flags & libc::FD_CLOEXEC, libc::FD_CLOEXEC);
        io::PipeWriter::from(fd).write_all(b"!").unwrap();
        assert!(!kept.all_closed());
    });
}

/// A message and a cancel arrive at the same time: the message is received, or stays in the queue.
#[test]
fn cancel_loses_no_descriptor() {
    on_one_worker(|| {
        let (mut received_count, mut queued_count) = (0, 0);
        for round in 0..400 {
            let (ours, theirs) = UnixStream::pair().unwrap();
            let traced = Traced::new();
            let mut room = RecvAncillary::for_fds(4);
            let received = fiber::scope(|s| {
                let waits = s.spawn_local(|| {
                    theirs.recvmsg(&mut [IoSliceMut::new(&mut [0; 8])], &mut room, NONE)
                });
                (0..round % 5).for_each(|_| fiber::yield_now());
                // Before, with and after the cancel.
                match round % 3 {
                    0 => traced.send(&ours, 4),
                    1 => drop(s.spawn_local(|| fiber::protect(|| traced.send(&ours, 4)))),
                    _ => {}
                }
                s.cancel();
                if round % 3 == 2 {
                    fiber::protect(|| traced.send(&ours, 4));
                }
                fiber::protect(|| waits.join())
            });
            match received.unwrap() {
                Ok(received) => {
                    received_count += 1;
                    assert_eq!((received.len, room.messages().len()), (1, 1));
                }
                Err(e) => {
                    queued_count += 1;
                    assert!(cancel::reason(&e).is_some() && room.messages().is_empty(), "{e}");
                    fiber::protect(|| take(&theirs, &mut room));
                }
            }
            drop(room);
            assert!(traced.all_closed());
        }
        let counts = (received_count, queued_count);
        assert!(counts.0 > 0 && counts.1 > 0, "received and still queued: {counts:?}");
    });
}

#[test]
fn messages_respect_timeouts_and_cancels() {
    on_one_worker(|| {
        let (ours, theirs) = UnixDatagram::pair().unwrap();
        let wait = || theirs.recvmsg(&mut [IoSliceMut::new(&mut [0; 8])], &mut none(), NONE);
        theirs.set_read_timeout(Some(Duration::from_millis(5))).unwrap();
        assert_eq!(wait().unwrap_err().kind(), ErrorKind::WouldBlock);
        theirs.set_read_timeout(None).unwrap();
        fiber::scope(|s| {
            let waits = s.spawn_local(|| wait().unwrap_err());
            fiber::yield_now();
            s.cancel();
            assert!(cancel::reason(&waits.join().unwrap()).is_some());
        });
        drop(ours);
    });
}

#[test]
fn blocked_send_suspends_only_the_fiber() {
    on_one_worker(|| {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("socket");
        let theirs = UnixDatagram::bind(&path).unwrap();
        let to = theirs.local_addr().unwrap();
        let ours = UnixDatagram::unbound().unwrap();
        let text = [IoSlice::new(b"ahoy")];
        let send = |flags| ours.sendmsg(&text, Some(&to), &SendAncillary::new(), flags);
        let mut count = 0;
        while send(MsgFlags::DONTWAIT).is_ok() {
            count += 1;
        }
        fiber::scope(|s| {
            let sends = s.spawn_local(|| send(NONE));
            fiber::yield_now();
            assert!(!sends.is_finished());
            for _ in 0..count {
                theirs.recv(&mut [0; 4]).unwrap();
            }
            assert_eq!(sends.join().unwrap().unwrap(), 4);
        });
        assert_eq!(theirs.recv(&mut [0; 4]).unwrap(), 4);
    });
}

#[test]
fn invalid_ancillary_data_is_refused_with_a_reason() {
    let (reader, _writer) = io::pipe().unwrap();
    let mut outgoing = SendAncillary::new();
    let error = outgoing.fds(&vec![reader.as_fd(); 254]).unwrap_err();
    assert!(error.kind() == ErrorKind::InvalidInput && error.to_string().contains("253"));
    let error = outgoing.raw(libc::SOL_SOCKET, libc::SCM_RIGHTS, &[0; 4]).unwrap_err();
    assert!(error.kind() == ErrorKind::InvalidInput && error.to_string().contains("fds"));
    assert!(outgoing.is_empty());
    outgoing.segment_size(1).clear();
    assert!(outgoing.is_empty());
    let flags = MsgFlags::PEEK | MsgFlags::OOB;
    assert_eq!(format!("{flags:?}"), r#"{"PEEK", "OOB"}"#);
}

/// A path of all 108 bytes, which the kernel accepts without a NUL.
#[test]
fn message_from_the_longest_path_is_received() {
    let directory = tempfile::Builder::new().prefix("s").tempdir_in("/tmp").unwrap();
    let mut path = directory.path().to_str().unwrap().to_owned() + "/";
    path.extend(std::iter::repeat_n('x', 108 - path.len()));
    let from = UnixDatagram::unbound().unwrap();
    // SAFETY: an all-zero structure is valid, and the kernel reads only the given length.
    unsafe {
        let mut raw: libc::sockaddr_un = std::mem::zeroed();
        raw.sun_family = libc::AF_UNIX as u16;
        let bytes = path.bytes().map(|byte| byte as libc::c_char);
        raw.sun_path.iter_mut().zip(bytes).for_each(|(place, byte)| *place = byte);
        let (addr, len) = ((&raw const raw).cast(), size_of_val(&raw) as u32);
        assert_eq!(libc::bind(from.as_raw_fd(), addr, len), 0, "{}", io::Error::last_os_error());
    }
    let to_path = directory.path().join("to");
    let to = UnixDatagram::bind(&to_path).unwrap();
    let mut seen = Vec::new();
    let mut see = |gone: bool| {
        from.send_to(b"ahoy", &to_path).unwrap();
        if gone {
            std::fs::remove_file(&path).unwrap();
        }
        let mut text = [0; 8];
        let (count, addr) = to.recv_from(&mut text).unwrap();
        assert_eq!(&text[..count], b"ahoy");
        seen.push(addr.as_pathname().map(|path| path.to_str().unwrap().to_owned()));
    };
    see(false);
    on_one_worker(|| see(false));
    // The sender's path is removed, so its address cannot be looked up; the message is received.
    on_one_worker(|| see(true));
    assert_eq!(seen, [Some(path.clone()), Some(path.clone()), None]);
}
