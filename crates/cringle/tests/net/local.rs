//! UDP and Unix sockets: they behave as std's, and a cancel ends every wait.

use super::observations::{Log, observes_the_same};
use cringle::fiber;
use cringle::net::UdpSocket;
use cringle::os::unix::net::{SocketAddr, UnixDatagram, UnixListener, UnixStream};
use cringle_testing::tools::{ends_when_cancelled, on_one_worker};
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, AsRawFd};
use std::os::linux::net::SocketAddrExt;
use std::time::Duration;

const LONG: Duration = Duration::from_secs(3600);
const SHORT: Duration = Duration::from_millis(20);

macro_rules! programs {
    ($($body:item)*) => {
        mod with_std {
            use super::{Log, SHORT};
            use std::net::UdpSocket;
            use std::os::unix::net::{SocketAddr, UnixDatagram, UnixListener, UnixStream};
            use std::thread;
            $($body)*
        }

        mod on_threads {
            use super::{Log, SHORT};
            use cringle::net::UdpSocket;
            use cringle::os::unix::net::{SocketAddr, UnixDatagram, UnixListener, UnixStream};
            use std::thread;
            $($body)*
        }

        mod with_cringle {
            use super::{Log, SHORT};
            use cringle::fiber as thread;
            use cringle::net::UdpSocket;
            use cringle::os::unix::net::{SocketAddr, UnixDatagram, UnixListener, UnixStream};
            $($body)*
        }
    };
}

programs! {
    use std::io::{IoSlice, Read, Write};
    use std::net::{Ipv4Addr, Ipv6Addr, Shutdown};
    use std::os::linux::net::SocketAddrExt;

    pub(super) fn udp() -> Log {
        let mut log = Log::default();
        let bind = || UdpSocket::bind(("127.0.0.1", 0)).unwrap();
        let (ours, theirs, third) = (bind(), bind(), bind());
        let [ours_at, theirs_at] = [&ours, &theirs].map(|it| it.local_addr().unwrap());
        let mut buf = [0; 8];
        log.result(ours.send_to(b"to you", theirs_at));
        log.result(theirs.peek_from(&mut buf).map(|(len, from)| (len, from == ours_at)));
        log.result(theirs.recv_from(&mut buf).map(|(len, from)| (len, from == ours_at)));
        log.result(Ok(buf));
        // Bytes that do not fit are lost.
        log.result(ours.send_to(b"more than eight bytes", theirs_at));
        log.result(theirs.recv(&mut buf));
        log.result(ours.send(b"to whom?"));
        log.result(ours.peer_addr().map(drop));
        log.result(ours.connect(theirs_at));
        log.result(ours.peer_addr().map(|it| it == theirs_at));
        log.result(ours.send(b""));
        log.result(theirs.recv(&mut buf));
        log.result(ours.send(b"connected"));
        log.result(theirs.peek(&mut buf));
        log.result(theirs.recv(&mut buf));
        log.result(ours.send_to(b"x", &[][..] as &[std::net::SocketAddr]));
        log.result(ours.send(&[0; 1 << 17]));
        // Messages from other sockets than the peer are not received.
        log.result(third.send_to(b"x", ours_at));
        log.result(ours.set_read_timeout(Some(SHORT)));
        log.timed_result(|| ours.recv(&mut [0; 8]));
        log.timed_result(|| ours.recv_from(&mut [0; 8]).map(drop));
        log.timed_result(|| ours.peek_from(&mut [0; 8]).map(drop));
        log.result(ours.set_nonblocking(true));
        log.result(ours.try_clone().unwrap().recv(&mut [0; 8]));
        log.result(ours.set_nonblocking(false));
        // The kernel reports a message to a closed socket as an error.
        drop(theirs);
        log.result(ours.send(b"x"));
        log.timed_result(|| ours.recv(&mut [0; 8]));
        log.result(ours.take_error().map(|e| e.is_none()));
        log.result(ours.set_broadcast(true));
        log.result(ours.broadcast());
        log.result(ours.set_ttl(7));
        log.result(ours.ttl());
        log.result(UdpSocket::bind("192.0.2.1:0").map(drop));
        log.result(UdpSocket::bind(ours_at).map(drop));
        log
    }

    pub(super) fn groups() -> Log {
        let mut log = Log::default();
        let socket = UdpSocket::bind("0.0.0.0:0").unwrap();
        let (group, here) = (Ipv4Addr::new(224, 0, 0, 123), Ipv4Addr::LOCALHOST);
        log.result(socket.join_multicast_v4(&group, &here));
        log.result(socket.join_multicast_v4(&group, &here));
        log.result(socket.join_multicast_v4(&Ipv4Addr::LOCALHOST, &here));
        log.result(socket.set_multicast_loop_v4(true));
        log.result(socket.multicast_loop_v4());
        log.result(socket.set_multicast_ttl_v4(0));
        log.result(socket.multicast_ttl_v4());
        log.result(socket.leave_multicast_v4(&group, &here));
        log.result(socket.leave_multicast_v4(&group, &here));
        if let Ok(socket) = UdpSocket::bind("[::1]:0") {
            let group = Ipv6Addr::new(0xff01, 0, 0, 0, 0, 0, 0, 0x123);
            log.result(socket.join_multicast_v6(&group, 1));
            log.result(socket.set_multicast_loop_v6(false));
            log.result(socket.multicast_loop_v6());
            log.result(socket.leave_multicast_v6(&group, 1));
            log.result(socket.leave_multicast_v6(&group, 1));
        }
        log
    }

    pub(super) fn unix_streams() -> Log {
        let mut log = Log::default();
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("socket");
        log.result(UnixStream::connect(&path).map(drop));
        log.result(UnixStream::connect("with\0nul").map(drop));
        log.result(UnixStream::connect("x".repeat(200)).map(drop));
        log.result(UnixListener::bind("x".repeat(200)).map(drop));
        let listener = UnixListener::bind(&path).unwrap();
        log.result(UnixListener::bind(&path).map(drop));
        log.result(listener.local_addr().map(|it| it.as_pathname() == Some(&path)));
        thread::scope(|s| {
            let serve = s.spawn(|| {
                let (mut stream, from) = listener.accept().unwrap();
                let mut text = String::new();
                stream.read_to_string(&mut text).unwrap();
                stream.write_all(text.as_bytes()).unwrap();
                from.is_unnamed()
            });
            let mut stream = UnixStream::connect(&path).unwrap();
            log.result(stream.write_vectored(&[IoSlice::new(b"knot"), IoSlice::new(b"ted")]));
            log.result(stream.shutdown(Shutdown::Write));
            log.result(stream.write(b"x"));
            let mut text = String::new();
            log.result(stream.read_to_string(&mut text));
            log.result(Ok(text));
            log.result(stream.peer_addr().map(|it| it.as_pathname() == Some(&path)));
            log.result(Ok(serve.join().unwrap()));
        });
        drop(listener);
        // The path exists, but no socket is bound to it.
        log.result(UnixStream::connect(&path).map(drop));
        let name = format!("cringle test {:?}", directory.path());
        let addr = SocketAddr::from_abstract_name(name).unwrap();
        let listener = UnixListener::bind_addr(&addr).unwrap();
        let stream = UnixStream::connect_addr(&addr).unwrap();
        drop(listener.incoming().next().unwrap().unwrap());
        log.result((&stream).read(&mut [0; 8]));
        let (ours, theirs) = UnixStream::pair().unwrap();
        let nameless = theirs.local_addr().unwrap();
        log.result(UnixStream::connect_addr(&nameless).map(drop));
        log.result(ours.set_read_timeout(Some(SHORT)));
        log.timed_result(|| (&ours).read(&mut [0; 8]));
        drop(theirs);
        log.result((&ours).write(b"x"));
        log
    }

    pub(super) fn unix_datagrams() -> Log {
        let mut log = Log::default();
        let directory = tempfile::tempdir().unwrap();
        let (here, there) = (directory.path().join("here"), directory.path().join("there"));
        let ours = UnixDatagram::bind(&here).unwrap();
        log.result(ours.send_to(b"x", &there));
        let theirs = UnixDatagram::bind(&there).unwrap();
        log.result(UnixDatagram::bind(&there).map(drop));
        log.result(ours.send_to(b"to you", &there));
        let mut buf = [0; 8];
        let from_path = |(len, from): (usize, SocketAddr)| {
            (len, from.as_pathname().map(|path| path.file_name().unwrap().to_owned()))
        };
        log.result(theirs.recv_from(&mut buf).map(from_path));
        let unbound = UnixDatagram::unbound().unwrap();
        log.result(unbound.send_to(b"x", &there));
        log.result(theirs.recv_from(&mut buf).map(|(len, from)| (len, from.is_unnamed())));
        log.result(unbound.send(b"x"));
        log.result(unbound.connect(&there));
        log.result(unbound.send(b"more than eight bytes"));
        log.result(theirs.recv(&mut buf));
        let name = format!("cringle datagram {:?}", directory.path());
        let addr = SocketAddr::from_abstract_name(&name).unwrap();
        let named = UnixDatagram::bind_addr(&addr).unwrap();
        log.result(ours.send_to_addr(b"abc", &addr));
        log.result(named.recv_from(&mut buf).map(from_path));
        log.result(named.send_to(b"abc", &here));
        let from_name = |(len, from): (usize, SocketAddr)| {
            (len, from.as_abstract_name() == Some(name.as_bytes()))
        };
        log.result(ours.recv_from(&mut buf).map(from_name));
        // The peer's queue is full.
        log.result(ours.set_write_timeout(Some(SHORT)));
        let full = loop {
            match ours.send_to(b"x", &there) {
                Err(e) if e.kind() != std::io::ErrorKind::Interrupted => break e,
                _ => {}
            }
        };
        log.result(Err::<(), _>(full));
        log.result(ours.set_nonblocking(true));
        log.result(ours.send_to(b"x", &there));
        drop(theirs);
        log.result(unbound.send(b"x"));
        log.result(ours.shutdown(Shutdown::Both));
        log
    }
}

observes_the_same!(udp, groups, unix_streams, unix_datagrams);

#[test]
fn cancel_ends_every_wait() {
    on_one_worker(|| {
        let udp = UdpSocket::bind("127.0.0.1:0").unwrap();
        ends_when_cancelled(|| udp.recv_from(&mut [0; 8]));
        ends_when_cancelled(|| udp.peek_from(&mut [0; 8]));
        ends_when_cancelled(|| udp.recv(&mut [0; 8]));
        udp.set_read_timeout(Some(LONG)).unwrap();
        ends_when_cancelled(|| udp.recv_from(&mut [0; 8]));
        let (ours, theirs) = UnixStream::pair().unwrap();
        ends_when_cancelled(|| (&ours).read(&mut [0; 8]));
        ends_when_cancelled(|| ours.peek(&mut [0; 8]));
        ends_when_cancelled(|| (&theirs).write_all(&vec![0; 1 << 24]));
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("socket");
        let listener = UnixListener::bind(&path).unwrap();
        ends_when_cancelled(|| listener.accept());
        let path = directory.path().join("datagrams");
        let reader = UnixDatagram::bind(&path).unwrap();
        ends_when_cancelled(|| reader.recv_from(&mut [0; 8]));
        let writer = UnixDatagram::unbound().unwrap();
        ends_when_cancelled(|| -> io::Result<()> {
            loop {
                writer.send_to(b"x", &path)?;
            }
        });
        // The queue is full now.
        writer.connect(&path).unwrap();
        ends_when_cancelled(|| -> io::Result<()> {
            loop {
                writer.send(b"x")?;
            }
        });
    });
}

/// A listener with a full queue; the kernel does not report when it has room.
#[test]
fn blocked_connect_suspends_only_the_fiber() {
    on_one_worker(|| {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("socket");
        let listener = UnixListener::bind(&path).unwrap();
        socket2::SockRef::from(&listener).listen(0).unwrap();
        let first = UnixStream::connect(&path).unwrap();
        ends_when_cancelled(|| UnixStream::connect(&path));
        fiber::scope(|s| {
            let second = s.spawn_local(|| UnixStream::connect(&path));
            (0..5).for_each(|_| fiber::yield_now());
            assert!(!second.is_finished());
            drop(listener.accept().unwrap());
            let mut second = second.join().unwrap().unwrap();
            listener.accept().unwrap().0.write_all(b"!").unwrap();
            second.read_exact(&mut [0]).unwrap();
        });
        drop(first);
    });
}

/// The calls do not wait, so only their budget lets the fiber run that binds the socket.
#[test]
fn retries_let_the_awaited_peer_run() {
    const RETRIES: usize = 1000;
    let directory = tempfile::tempdir().unwrap();
    let (stream, datagram) = (directory.path().join("stream"), directory.path().join("datagram"));
    on_one_worker(|| {
        fiber::scope(|s| {
            let _listener = s.spawn_local(|| UnixListener::bind(&stream).unwrap());
            assert!((0..RETRIES).any(|_| UnixStream::connect(&stream).is_ok()));
            let _theirs = s.spawn_local(|| UnixDatagram::bind(&datagram).unwrap());
            let ours = UnixDatagram::unbound().unwrap();
            assert!((0..RETRIES).any(|_| ours.send_to(b"!", &datagram).is_ok()));
        });
    });
}

#[test]
fn abstract_and_path_names_are_preserved() {
    let path = SocketAddr::from_pathname("/a/path").unwrap();
    let name = SocketAddr::from_abstract_name(b"a name").unwrap();
    on_one_worker(|| {
        for addr in [path, name] {
            // No socket is bound there, but the address was passed on.
            let socket = UnixDatagram::unbound().unwrap();
            let kind = socket.send_to_addr(b"x", &addr).unwrap_err().kind();
            let gone = [io::ErrorKind::NotFound, io::ErrorKind::ConnectionRefused];
            assert!(gone.contains(&kind), "{addr:?}: {kind:?}");
        }
    });
}

#[test]
fn peer_credentials_are_returned() {
    on_one_worker(|| {
        let (ours, _theirs) = UnixStream::pair().unwrap();
        let cred = ours.peer_cred().unwrap();
        // SAFETY: no pointers.
        let (uid, gid) = unsafe { (libc::getuid(), libc::getgid()) };
        assert_eq!((cred.uid, cred.gid, cred.pid), (uid, gid, Some(std::process::id() as i32)));
        let udp = UdpSocket::bind("127.0.0.1:0").unwrap();
        let stream = UnixStream::from(std::os::fd::OwnedFd::from(udp));
        assert_eq!(stream.peer_cred().unwrap().pid, None);
    });
}

#[test]
fn passed_descriptors_are_complete_and_close_on_exec() {
    let passes = || {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let (mut reader, writer) = io::pipe().unwrap();
        let many = vec![writer.as_fd(); 253];
        assert_eq!(ours.send_with_fds(b"take these", &many).unwrap(), 10);
        drop(writer);
        let mut text = [0; 16];
        let received = theirs.recv_with_fds(&mut text).unwrap();
        assert_eq!((received.len, received.fds.len(), received.lost_some), (10, 253, false));
        for fd in &received.fds {
            // SAFETY: F_GETFD takes no pointer.
            let flags = unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_GETFD) };
            assert_eq!(flags & libc::FD_CLOEXEC, libc::FD_CLOEXEC);
        }
        std::fs::File::from(received.fds.into_iter().next().unwrap()).write_all(b"!").unwrap();
        // The last descriptor is closed.
        let mut rest = String::new();
        reader.read_to_string(&mut rest).unwrap();
        assert_eq!(rest, "!");
        // Without descriptors, and at the end of the stream.
        ours.send_with_fds(b"none", &[]).unwrap();
        assert_eq!(theirs.recv_with_fds(&mut text).unwrap().fds.len(), 0);
        let refused = ours.send_with_fds(b"", &[reader.as_fd()]).unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::InvalidInput);
        let refused = ours.send_with_fds(b"x", &vec![reader.as_fd(); 254]).unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::InvalidInput);
        drop(ours);
        assert_eq!(theirs.recv_with_fds(&mut text).unwrap().len, 0);
    };
    on_one_worker(passes);
    passes();
    on_one_worker(|| {
        let (ours, _theirs) = UnixDatagram::pair().unwrap();
        ends_when_cancelled(|| ours.recv_with_fds(&mut [0; 8]));
    });
}
