//! Sockets behave as with std (promise 1), also with unusual arguments and wrong descriptors.
#![allow(clippy::useless_conversion, reason = "the same program runs with std's types")]

use cringle::fiber;
use cringle::runtime::{self, FiberReport, FiberState, WaitsFor};
use cringle_testing::disk;
use cringle_testing::same;
use cringle_testing::same::Log;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, Ordering};
use std::time::Duration;

const SHORT: Duration = Duration::from_millis(5);

/// A Unix socket bound to a path of all 108 bytes without a NUL, which std cannot bind.
fn bound_to_longest(directory: &Path, name: u8, kind: i32) -> OwnedFd {
    // SAFETY: the calls get the arguments that their manual pages require.
    unsafe {
        let socket =
            OwnedFd::from_raw_fd(libc::socket(libc::AF_UNIX, kind | libc::SOCK_CLOEXEC, 0));
        let mut addr: libc::sockaddr_un = std::mem::zeroed();
        addr.sun_family = libc::AF_UNIX as u16;
        let mut path = directory.as_os_str().as_bytes().to_vec();
        path.push(b'/');
        assert!(path.len() < 107, "{directory:?} is too long");
        path.resize(108, name);
        for (to, from) in addr.sun_path.iter_mut().zip(path) {
            *to = from as libc::c_char;
        }
        let len = size_of::<libc::sockaddr_un>() as u32;
        assert_eq!(libc::bind(socket.as_raw_fd(), (&raw const addr).cast(), len), 0);
        socket
    }
}

/// Descriptors that are not sockets, or sockets of another kind.
fn wrong(kind: usize) -> OwnedFd {
    match kind {
        0 => std::fs::File::open("/dev/null").unwrap().into(),
        1 => std::fs::File::open("/proc/version").unwrap().into(),
        2 => std::io::pipe().unwrap().0.into(),
        3 => std::net::UdpSocket::bind("127.0.0.1:0").unwrap().into(),
        4 => std::os::unix::net::UnixDatagram::unbound().unwrap().into(),
        5 => std::os::unix::net::UnixStream::pair().unwrap().0.into(),
        6 => std::net::TcpListener::bind("127.0.0.1:0").unwrap().into(),
        // SAFETY: the call has just returned this descriptor.
        7 => unsafe { OwnedFd::from_raw_fd(libc::socket(libc::AF_INET, libc::SOCK_STREAM, 0)) },
        // SAFETY: as above.
        8 => unsafe { OwnedFd::from_raw_fd(libc::eventfd(3, 0)) },
        _ => std::fs::File::open("/").unwrap().into(),
    }
}

const WRONG: usize = 10;

/// A thread, or the only fiber, that calls `accept`.
#[derive(Default)]
struct Acceptor {
    /// The kernel's number of the thread, stored before the call; 0 before that.
    thread_id: Arc<AtomicI32>,
}

impl Acceptor {
    /// Returns when the call is blocked.
    fn wait_until_blocked(&self) {
        while !self.is_blocked() {
            fiber::yield_now();
            std::thread::yield_now();
        }
        // Let the worker submit the call.
        (0..6).for_each(|_| fiber::yield_now());
    }

    fn is_blocked(&self) -> bool {
        if let Some(dump) = runtime::dump() {
            let is_in_operation = |fiber: &FiberReport| match &fiber.state {
                FiberState::Waiting { for_what, .. } => {
                    matches!(for_what, WaitsFor::Operation { .. })
                }
                _ => false,
            };
            return dump.fibers.iter().any(is_in_operation);
        }
        let id = self.thread_id.load(Ordering::Acquire);
        // The thread exists, because it has not returned from `accept`.
        let stat = || std::fs::read_to_string(format!("/proc/self/task/{id}/stat")).unwrap();
        id != 0 && stat().rsplit_once(')').unwrap().1.trim_start().starts_with('S')
    }
}

same::programs! {
    use it::io::{self, IoSlice, IoSliceMut, Read, Write};
    use it::net::{Ipv4Addr, Ipv6Addr, Shutdown, SocketAddr, TcpListener, TcpStream, UdpSocket};
    use it::os::unix::net::{UnixDatagram, UnixListener, UnixStream};
    use std::os::linux::net::SocketAddrExt;
    use std::os::unix::net::SocketAddr as UnixAddr;

    /// Calls on a socket of the wrong kind, or on another file.
    pub(super) fn wrong_descriptors() -> Log {
        let mut log = Log::default();
        for kind in 0..WRONG {
            // std reads and writes some files that are not sockets, where the library fails: see
            // `cringle::net`.
            let is_socket = (3..8).contains(&kind);
            let at = |what: &str| format!("{kind}: {what}");
            let tcp = || TcpStream::from(wrong(kind));
            let limit = |set: io::Result<()>| { let _ = set; };
            macro_rules! stream {
                ($name:literal, $new:expr) => {
                    let new = || { let it = $new; limit(it.set_read_timeout(Some(SHORT))); it };
                    log.result(at(concat!($name, " read_timeout")), new().read_timeout());
                    log.result(at(concat!($name, " set_read_timeout")), new().set_read_timeout(Some(SHORT)));
                    log.result(at(concat!($name, " read")), new().read(&mut [0; 8]));
                    log.result(at(concat!($name, " read of nothing")), new().read(&mut []));
                    if is_socket { log.result(at(concat!($name, " read_vectored")), new().read_vectored(&mut [IoSliceMut::new(&mut [0; 8])])); }
                    if is_socket { log.result(at(concat!($name, " read_vectored of nothing")), new().read_vectored(&mut [])); }
                    log.result(at(concat!($name, " write")), new().write(b"x"));
                    log.result(at(concat!($name, " write of nothing")), new().write(b""));
                    if is_socket { log.result(at(concat!($name, " write_vectored")), new().write_vectored(&[IoSlice::new(b"x")])); }
                    if is_socket { log.result(at(concat!($name, " write_vectored of nothing")), new().write_vectored(&[])); }
                    log.result(at(concat!($name, " flush")), new().flush());
                    log.result(at(concat!($name, " shutdown")), new().shutdown(Shutdown::Both));
                    log.result(at(concat!($name, " take_error")), new().take_error().map(|e| e.map(|e| e.to_string())));
                    log.result(at(concat!($name, " set_nonblocking")), new().set_nonblocking(true));
                    log.result(at(concat!($name, " try_clone")), new().try_clone().map(drop));
                    log.result(at(concat!($name, " peer_addr")), new().peer_addr().map(drop));
                    log.result(at(concat!($name, " local_addr")), new().local_addr().map(drop));
                };
            }
            stream!("tcp", TcpStream::from(wrong(kind)));
            stream!("unix", UnixStream::from(wrong(kind)));
            log.result(at("tcp peek"), { let it = tcp(); limit(it.set_read_timeout(Some(SHORT))); it.peek(&mut [0; 8]) });
            log.result(at("tcp nodelay"), tcp().nodelay());
            log.result(at("tcp set_nodelay"), tcp().set_nodelay(true));
            log.result(at("tcp ttl"), tcp().ttl());
            log.result(at("tcp set_ttl"), tcp().set_ttl(7));
            if kind != 6 {
                log.result(at("tcp accept"), TcpListener::from(wrong(kind)).accept().map(drop));
                log.result(at("unix accept"), UnixListener::from(wrong(kind)).accept().map(drop));
            }
            macro_rules! datagram {
                ($name:literal, $new:expr) => {
                    let new = || { let it = $new; limit(it.set_read_timeout(Some(SHORT))); it };
                    log.result(at(concat!($name, " recv")), new().recv(&mut [0; 8]));
                    log.result(at(concat!($name, " recv_from")), new().recv_from(&mut [0; 8]).map(drop));
                    if is_socket { log.result(at(concat!($name, " send")), new().send(b"x")); }
                    if is_socket { log.result(at(concat!($name, " send of nothing")), new().send(b"")); }
                };
            }
            datagram!("udp", UdpSocket::from(wrong(kind)));
            datagram!("unix datagram", UnixDatagram::from(wrong(kind)));
            log.result(at("udp send_to"), UdpSocket::from(wrong(kind)).send_to(b"x", "127.0.0.1:9").map(drop));
            log.result(at("udp connect"), UdpSocket::from(wrong(kind)).connect("127.0.0.1:9"));
            log.result(at("unix datagram send_to"), UnixDatagram::from(wrong(kind)).send_to(b"x", "/nowhere"));
            log.result(at("unix datagram connect"), UnixDatagram::from(wrong(kind)).connect("/nowhere"));
        }
        log
    }

    pub(super) fn datagrams() -> Log {
        let mut log = Log::default();
        let ours = UdpSocket::bind("127.0.0.1:0").unwrap();
        let theirs = UdpSocket::bind("127.0.0.1:0").unwrap();
        let (our_addr, their_addr) = (ours.local_addr().unwrap(), theirs.local_addr().unwrap());
        log.result("send without a peer", ours.send(b"x"));
        log.result("send_to no address", ours.send_to(b"x", &[] as &[SocketAddr]));
        log.result("send_to a bad name", ours.send_to(b"x", "127.0.0.1"));
        log.result("send_to port 0", ours.send_to(b"x", "127.0.0.1:0"));
        log.result("send_to another family", ours.send_to(b"x", "[::1]:9"));
        log.result("send_to the broadcast address", ours.send_to(b"x", "255.255.255.255:9"));
        log.result("too long", ours.send_to(&[7; 65_508], their_addr));
        log.result("the longest", ours.send_to(&[7; 65_507], their_addr));
        let mut buf = vec![0; 70_000];
        log.result("peeked", theirs.peek_from(&mut buf).map(|(count, from)| (count, from == our_addr)));
        log.result("received", theirs.recv_from(&mut buf).map(|(count, from)| (count, from == our_addr)));
        log.result("send an empty datagram", ours.send_to(b"", their_addr));
        log.result("receive an empty datagram", theirs.recv_from(&mut buf).map(|(count, from)| (count, from == our_addr)));
        ours.send_to(b"0123456789", their_addr).unwrap();
        log.result("peek at a part", theirs.peek(&mut buf[..4]));
        log.result("peek with an empty buffer", theirs.peek(&mut []));
        log.result("receive a part", theirs.recv_from(&mut buf[..4]).map(|(count, _)| count));
        ours.send_to(b"0123456789", their_addr).unwrap();
        log.result("receive with an empty buffer", theirs.recv(&mut []));
        log.result("set a timeout of 0", theirs.set_read_timeout(Some(Duration::ZERO)));
        log.result("set a timeout of 1 ns", theirs.set_read_timeout(Some(Duration::from_nanos(1))));
        log.result("the timeout", theirs.read_timeout());
        log.result("recv times out", theirs.recv(&mut buf));
        log.result("peek times out", theirs.peek_from(&mut buf).map(drop));
        log.result("set the longest timeout", theirs.set_read_timeout(Some(Duration::MAX)));
        log.result("the longest timeout", theirs.read_timeout().map(|it| it > Some(Duration::from_secs(1 << 40))));
        ours.send_to(b"x", their_addr).unwrap();
        log.result("recv with the longest timeout", theirs.recv(&mut buf));
        log.result("remove the timeout", theirs.set_read_timeout(None));
        log.result("set_nonblocking", theirs.set_nonblocking(true));
        log.result("nonblocking recv_from", theirs.recv_from(&mut buf).map(drop));
        log.result("nonblocking peek", theirs.peek(&mut buf));
        let closed = UdpSocket::bind("127.0.0.1:0").unwrap();
        log.result("connect", ours.connect(closed.local_addr().unwrap()));
        theirs.send_to(b"filtered", our_addr).unwrap();
        drop(closed);
        log.result("send to a closed peer", ours.send(b"x"));
        log.result("recv from a closed peer", ours.recv(&mut buf));
        log.result("peer", ours.peer_addr().map(drop));
        log.result("connect to no address", ours.connect(&[] as &[SocketAddr]));
        let any = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)).unwrap();
        log.result("no peer", any.peer_addr());
        log.result("broadcast", (|| { any.set_broadcast(true)?; any.broadcast() })());
        log.result("ttl", (|| { any.set_ttl(9)?; any.ttl() })());
        log.result("set_ttl to 0", any.set_ttl(0));
        log.result("set_ttl to 256", any.set_ttl(256));
        log.result("multicast", (|| { any.set_multicast_ttl_v4(3)?; any.multicast_ttl_v4() })());
        log.result("set_multicast_ttl_v4 to 300", any.set_multicast_ttl_v4(300));
        log.result("loop", (|| { any.set_multicast_loop_v4(false)?; any.multicast_loop_v4() })());
        log.result("loop of another family", any.multicast_loop_v6());
        log.result("join an address that is no group", any.join_multicast_v4(&Ipv4Addr::LOCALHOST, &Ipv4Addr::LOCALHOST));
        log.result("leave a group that was not joined", any.leave_multicast_v4(&Ipv4Addr::new(224, 0, 0, 9), &Ipv4Addr::LOCALHOST));
        log.result("join of another family", any.join_multicast_v6(&Ipv6Addr::LOCALHOST, 0));
        log.value("Debug", format!("{ours:?}").starts_with("UdpSocket { addr: 127.0.0.1:"));
        log
    }

    pub(super) fn streams() -> Log {
        let mut log = Log::default();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let addr = listener.local_addr().unwrap();
        let pair = || {
            let ours = TcpStream::connect(addr).unwrap();
            (ours, listener.accept().unwrap().0)
        };
        let (mut ours, mut theirs) = pair();
        log.result("write of no bytes", ours.write(b""));
        log.result("vectored write of no slices", ours.write_vectored(&[]));
        log.result("vectored write of empty slices", ours.write_vectored(&[IoSlice::new(b""), IoSlice::new(b"")]));
        log.result("set a timeout of 1 ns", ours.set_read_timeout(Some(Duration::from_nanos(1))));
        log.result("the timeout", ours.read_timeout());
        log.result("read times out", ours.read(&mut [0; 8]));
        log.result("peek times out", ours.peek(&mut [0; 8]));
        log.result("set the longest timeout", ours.set_read_timeout(Some(Duration::MAX)));
        theirs.write_all(b"x").unwrap();
        log.result("peek with an empty buffer", ours.peek(&mut []));
        log.result("read with the longest timeout", ours.read(&mut [0; 8]));
        log.result("set a write timeout of 0", ours.set_write_timeout(Some(Duration::ZERO)));
        log.result("connect with a timeout of 0", TcpStream::connect_timeout(&addr, Duration::ZERO).map(drop));
        log.result("connect with the longest timeout", TcpStream::connect_timeout(&addr, Duration::MAX).map(drop));
        drop(listener.accept().unwrap());
        log.result("connect to port 0", TcpStream::connect("127.0.0.1:0").map(drop));
        log.result("connect to no address", TcpStream::connect(&[] as &[SocketAddr]).map(drop));
        let reads = thread::spawn(move || {
            let mut all = Vec::new();
            // The socket is returned: once it is closed, the connection has ended.
            (theirs.read_to_end(&mut all).map(|_| all.len()), theirs)
        });
        log.result("large write", ours.write(&vec![7; 8 << 20]));
        log.result("shutdown", ours.shutdown(Shutdown::Write));
        log.result("shutdown again", ours.shutdown(Shutdown::Write));
        log.result("write after shutdown", ours.write(b"x"));
        log.result("write no bytes after shutdown", ours.write(b""));
        let (read, _theirs) = reads.join().unwrap();
        log.result("read", read);
        // A write that times out has written a part.
        let (mut ours, theirs) = pair();
        ours.set_write_timeout(Some(SHORT)).unwrap();
        let first = ours.write(&vec![7; 16 << 20]);
        log.result("a write that times out", first.map(|count| count > 0 && count < 16 << 20));
        drop(theirs);
        // A clone toggles the mode of all clones.
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        let clone = ours.try_clone().unwrap();
        let third = clone.try_clone().unwrap();
        for round in 0..3 {
            clone.set_nonblocking(true).unwrap();
            log.result(format!("{round}: ours"), (&ours).read(&mut [0; 8]));
            log.result(format!("{round}: third"), (&third).read(&mut [0; 8]));
            third.set_nonblocking(false).unwrap();
            theirs.write_all(b"xy").unwrap();
            log.result(format!("{round}: clone"), (&clone).read(&mut [0; 1]));
            log.result(format!("{round}: ours again"), (&ours).read(&mut [0; 1]));
        }
        // A clone made by std, which sets the mode.
        let foreign = std::os::unix::net::UnixStream::from(ours);
        let ours = UnixStream::from(OwnedFd::from(foreign.try_clone().unwrap()));
        foreign.set_nonblocking(true).unwrap();
        log.result("read after std has set the mode", (&ours).read(&mut [0; 8]));
        listener.set_nonblocking(true).unwrap();
        let other = listener.try_clone().unwrap();
        log.result("nonblocking accept", other.accept().map(drop));
        other.set_nonblocking(false).unwrap();
        let connects = thread::spawn(move || TcpStream::connect(addr).map(drop));
        log.result("blocking accept", listener.accept().map(drop));
        log.result("connect", connects.join().unwrap());
        log.result("bind to an invalid address", TcpListener::bind("256.0.0.1:0").map(drop));
        log.result("bind to the address of another machine", TcpListener::bind("203.0.113.1:80").map(drop));
        log
    }

    /// A clone toggles the mode while a fiber or thread waits in `accept`; later calls use the last
    /// mode.
    pub(super) fn mode_is_toggled_during_accept() -> Log {
        let mut log = Log::default();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let addr = listener.local_addr().unwrap();
        for (round, last) in [true, false, true].into_iter().enumerate() {
            let (clone, toggles) = (listener.try_clone().unwrap(), listener.try_clone().unwrap());
            let acceptor = Acceptor::default();
            let thread_id = acceptor.thread_id.clone();
            let accepts = thread::spawn(move || {
                // SAFETY: no pointers.
                thread_id.store(unsafe { libc::gettid() }, Ordering::Release);
                clone.accept().map(drop)
            });
            acceptor.wait_until_blocked();
            toggles.set_nonblocking(!last).unwrap();
            toggles.set_nonblocking(last).unwrap();
            let connected = TcpStream::connect(addr);
            log.result(format!("{round}: connect"), connected.map(drop));
            log.result(format!("{round}: accept"), accepts.join().unwrap());
            if last {
                log.result(format!("{round}: nonblocking accept"), toggles.accept().map(drop));
            } else {
                let connects = thread::spawn(move || TcpStream::connect(addr).map(drop));
                log.result(format!("{round}: blocking accept"), toggles.accept().map(drop));
                log.result(format!("{round}: connect, blocking"), connects.join().unwrap());
            }
            toggles.set_nonblocking(false).unwrap();
        }
        log
    }

    pub(super) fn unix_addresses() -> Log {
        let mut log = Log::default();
        let holder = disk::short_directory();
        let at = holder.path();
        let _ = std::fs::write(at.join("file"), "");
        let long = |len: usize| {
            let mut path = at.as_os_str().as_bytes().to_vec();
            path.push(b'/');
            path.resize(len, b'n');
            std::path::PathBuf::from(std::ffi::OsStr::from_bytes(&path))
        };
        let not_utf8 = at.join(std::ffi::OsStr::from_bytes(b"\xff\xfe"));
        let paths: Vec<(&str, std::path::PathBuf)> = vec![
            ("empty", "".into()),
            ("a NUL", at.join("a\0b")),
            ("107", long(107)),
            ("108", long(108)),
            ("109", long(109)),
            ("not UTF-8", not_utf8),
            ("a file", at.join("file")),
            ("a directory", at.into()),
            ("in a missing directory", at.join("no/where")),
            ("missing", at.join("missing")),
        ];
        for (name, path) in &paths {
            let shown = |addr: io::Result<UnixAddr>| {
                addr.map(|addr| (addr.is_unnamed(), addr.as_pathname() == Some(path)))
            };
            log.result(format!("connect a stream to {name}"), UnixStream::connect(path).map(drop));
            log.result(format!("connect a datagram to {name}"), UnixDatagram::unbound().unwrap().connect(path));
            log.result(format!("send_to {name}"), UnixDatagram::unbound().unwrap().send_to(b"x", path));
            let bound = UnixDatagram::bind(path);
            log.result(format!("bind a datagram to {name}"), bound.as_ref().map(drop).map_err(|e| io::Error::new(e.kind(), e.to_string())));
            if let Ok(bound) = bound {
                log.result(format!("it is at {name}"), shown(bound.local_addr()));
                if !path.as_os_str().is_empty() {
                    log.result(format!("connect a stream to the datagram at {name}"), UnixStream::connect(path).map(drop));
                    log.result(format!("send_to it at {name}"), UnixDatagram::unbound().unwrap().send_to(b"x", path));
                    let mut buf = [0; 8];
                    log.result(format!("received at {name}"), bound.recv_from(&mut buf).map(|(count, from)| (count, from.is_unnamed())));
                    let other = UnixDatagram::unbound().unwrap();
                    log.result(format!("send from {name}"), (|| {
                        let them = UnixDatagram::bind(at.join("them"))?;
                        bound.send_to(b"yx", at.join("them"))?;
                        let (count, from) = them.recv_from(&mut buf)?;
                        std::fs::remove_file(at.join("them"))?;
                        other.connect(path)?;
                        Ok((count, from.as_pathname() == Some(path)))
                    })());
                    std::fs::remove_file(path).unwrap();
                }
            }
            let bound = UnixListener::bind(path);
            log.result(format!("listen at {name}"), bound.as_ref().map(drop).map_err(|e| io::Error::new(e.kind(), e.to_string())));
            if let Ok(bound) = bound {
                log.result(format!("it listens at {name}"), shown(bound.local_addr()));
                if !path.as_os_str().is_empty() {
                    let stream = UnixStream::connect(path).unwrap();
                    log.result(format!("accepted at {name}"), bound.accept().map(|(_, from)| from.is_unnamed()));
                    log.result(format!("the peer at {name}"), shown(stream.peer_addr()));
                    log.result(format!("a datagram to the listener at {name}"), UnixDatagram::unbound().unwrap().send_to(b"x", path));
                    std::fs::remove_file(path).unwrap();
                }
            }
        }
        let unnamed = UnixDatagram::unbound().unwrap().local_addr().unwrap();
        log.value("an unnamed address", &unnamed);
        log.result("connect to no name", UnixStream::connect_addr(&unnamed).map(drop));
        log.result("connect a datagram to no name", UnixDatagram::unbound().unwrap().connect_addr(&unnamed));
        log.result("send to no name", UnixDatagram::unbound().unwrap().send_to_addr(b"x", &unnamed));
        log.result("bind to no name", UnixDatagram::bind_addr(&unnamed).map(drop));
        let thread = format!("{:?}", std::thread::current().id());
        for (round, name) in [&b"\0"[..], b"same", b"with\0inside", b"\xff\xfe", &[b'n'; 90], &[b'n'; 107], &[b'n'; 108]].into_iter().enumerate() {
            // Other runs use other names.
            let mut name = name.to_vec();
            if name.len() < 80 {
                name.extend(format!("{}{thread}", std::process::id()).bytes());
            }
            let addr = match UnixAddr::from_abstract_name(&name) {
                Ok(addr) => addr,
                Err(e) => {
                    log.result(format!("{round}: address"), Err::<(), _>(e));
                    continue;
                }
            };
            log.result(format!("{round}: connect to a free name"), UnixStream::connect_addr(&addr).map(drop));
            log.result(format!("{round}: send to a free name"), UnixDatagram::unbound().unwrap().send_to_addr(b"x", &addr));
            let listener = UnixListener::bind_addr(&addr).unwrap();
            log.result(format!("{round}: bind to a used name"), UnixDatagram::bind_addr(&addr).map(drop).map_err(|e| io::Error::from(e.kind())));
            let stream = UnixStream::connect_addr(&addr).unwrap();
            log.result(format!("{round}: accepted"), listener.accept().map(|(_, from)| from.is_unnamed()));
            log.result(format!("{round}: peer"), stream.peer_addr().map(|peer| peer.as_abstract_name() == Some(&name)));
            drop(listener);
            let theirs = UnixDatagram::bind(at.join("theirs")).unwrap();
            let ours = UnixDatagram::bind_addr(&addr).unwrap();
            ours.send_to(b"x", at.join("theirs")).unwrap();
            let (count, from) = theirs.recv_from(&mut [0; 8]).unwrap();
            log.value(format!("{round}: received"), (count, from.as_abstract_name() == Some(&name)));
            log.result(format!("{round}: answered"), theirs.send_to_addr(b"yy", &from));
            log.result(format!("{round}: received the answer"), ours.recv(&mut [0; 8]));
            std::fs::remove_file(at.join("theirs")).unwrap();
        }
        log
    }

    /// A path of all 108 bytes has no NUL. std cannot bind to one, but can receive from one.
    pub(super) fn longest_unix_addresses() -> Log {
        let mut log = Log::default();
        let holder = disk::short_directory();
        let at = holder.path();
        let sender = UnixDatagram::from(bound_to_longest(at, b'n', libc::SOCK_DGRAM));
        let receiver = UnixDatagram::bind(at.join("receiver")).unwrap();
        let shown = |addr: UnixAddr| {
            addr.as_pathname().map(|path| path.strip_prefix(at).unwrap().to_owned())
        };
        log.result("its address", sender.local_addr().map(shown));
        let mut buf = [0; 8];
        log.result("sent", sender.send_to(b"ahoy", at.join("receiver")));
        log.result("received", receiver.recv_from(&mut buf).map(|(count, from)| (count, shown(from))));
        log.value("the message", buf);
        // The sender is connected to another socket, so its address cannot be looked up: the
        // library returns the message with an unnamed address, as `UnixDatagram::recv_from`
        // documents. The same if its path is gone.
        sender.connect(at.join("receiver")).unwrap();
        log.result("sent", sender.send(b"ahoy again"));
        log.result("received", receiver.recv_from(&mut buf).map(|(count, _)| count));
        log.value("the message", buf);
        log.result("sent", sender.send(b"ahoy"));
        for entry in std::fs::read_dir(at).unwrap() {
            let path = entry.unwrap().path();
            if path != at.join("receiver") {
                std::fs::remove_file(path).unwrap();
            }
        }
        log.result("sent", sender.send(b"x"));
        drop(sender);
        log.result("received", receiver.recv_from(&mut buf).map(|(count, _)| count));
        log.result("received", receiver.recv_from(&mut buf).map(|(count, _)| count));
        log.value("the message", buf);
        let stream = bound_to_longest(at, b'm', libc::SOCK_STREAM);
        // SAFETY: no pointers.
        assert_eq!(unsafe { libc::listen(stream.as_raw_fd(), 4) }, 0);
        let listener = UnixListener::from(stream);
        log.result("its address", listener.local_addr().map(shown));
        log
    }

    pub(super) fn unix_sockets() -> Log {
        let mut log = Log::default();
        let (ours, theirs) = UnixDatagram::pair().unwrap();
        log.result("send an empty message", ours.send(b""));
        log.result("receive an empty message", theirs.recv(&mut [0; 8]));
        log.result("send a message", ours.send(b"x"));
        log.result("receive with an empty buffer", theirs.recv_from(&mut []).map(|(count, from)| (count, from.is_unnamed())));
        log.result("too long", ours.send(&vec![7; 1 << 24]));
        log.result("set a timeout of 1 ns", theirs.set_read_timeout(Some(Duration::from_nanos(1))));
        log.result("recv_from times out", theirs.recv_from(&mut [0; 8]).map(drop));
        ours.send(b"message").unwrap();
        log.result("recv of a queued message", theirs.recv(&mut [0; 8]));
        log.result("set a write timeout of 0", theirs.set_write_timeout(Some(Duration::ZERO)));
        log.result("shutdown", theirs.shutdown(Shutdown::Read));
        log.result("recv after shutdown", theirs.recv(&mut [0; 8]));
        theirs.set_read_timeout(None).unwrap();
        log.result("recv after shutdown, without a timeout", theirs.recv_from(&mut [0; 8]).map(|(count, _)| count));
        log.result("send to a peer that is shut down", ours.send(b"x"));
        drop(theirs);
        log.result("send to a closed peer", ours.send(b"x"));
        log.result("receive from a closed peer", { ours.set_read_timeout(Some(SHORT)).unwrap(); ours.recv(&mut [0; 8]) });
        let lone = UnixDatagram::unbound().unwrap();
        log.result("send without a peer", lone.send(b"x"));
        log.result("address of no peer", lone.peer_addr().map(drop));
        log.result("set_nonblocking", lone.set_nonblocking(true));
        log.result("nonblocking recv", lone.recv(&mut [0; 8]));
        let (mut ours, mut theirs) = UnixStream::pair().unwrap();
        log.result("addresses", ours.local_addr().and_then(|a| Ok((a.is_unnamed(), ours.peer_addr()?.is_unnamed()))));
        log.result("write of no bytes", ours.write(b""));
        ours.set_read_timeout(Some(SHORT)).unwrap();
        log.result("read times out", ours.read(&mut [0; 8]));
        ours.set_nonblocking(true).unwrap();
        log.result("nonblocking read", ours.read(&mut [0; 8]));
        let full = loop { if let Err(e) = ours.write(&[7; 10_000]) { break e } };
        log.result("write to a full buffer", Err::<(), _>(full));
        ours.set_nonblocking(false).unwrap();
        let reads = thread::spawn(move || {
            let mut all = Vec::new();
            theirs.read_to_end(&mut all).map(|_| all.len() > 2 << 20)
        });
        log.result("a large write", ours.write(&vec![7; 2 << 20]));
        log.result("shutdown", ours.shutdown(Shutdown::Both));
        log.result("write after shutdown", ours.write(b"x"));
        log.result("write of no bytes after shutdown", ours.write(b""));
        log.result("read after shutdown", ours.read(&mut [0; 8]));
        log.result("the peer's read", reads.join().unwrap());
        log.value("Debug", format!("{ours:?}").starts_with("UnixStream { fd: "));
        log
    }
}

same::the_same!(
    wrong_descriptors,
    datagrams,
    streams,
    mode_is_toggled_during_accept,
    unix_addresses,
    longest_unix_addresses,
    unix_sockets,
);
