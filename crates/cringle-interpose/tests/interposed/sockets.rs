//! Sockets and servers.

use crate::files::in_directory;
use crate::{check, own};
use cringle::fiber;
use cringle::net::{
    MsgFlags, RecvAncillary, SendAncillary, Server, TcpListener, TcpStream, UdpSocket,
};
use cringle::os::unix::net::{UnixDatagram, UnixListener, UnixStream};
use std::io::{ErrorKind, IoSlice, IoSliceMut, Read, Write};
use std::net::Shutdown;
use std::os::fd::AsFd;
use std::path::Path;
use std::time::Duration;

fn tcp() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let builder = TcpListener::builder().backlog(8).reuse_addr(true).nodelay(true);
    let other = builder.bind("127.0.0.1:0").unwrap();
    assert!(builder.reuse_addr(false).bind(other.local_addr().unwrap()).is_err());
    let addr = listener.local_addr().unwrap();
    let big = vec![7; 4 << 20];
    fiber::scope(|s| {
        s.spawn_local(|| {
            let mut ours = TcpStream::connect(addr).unwrap();
            ours.write_all(b"small").unwrap();
            ours.write_all(&big).unwrap();
            ours.write_vectored(&[IoSlice::new(b"a"), IoSlice::new(b"b")]).unwrap();
            ours.shutdown(Shutdown::Write).unwrap();
            assert_eq!(ours.read(&mut [0]).unwrap(), 0);
        });
        let (mut theirs, _) = listener.accept().unwrap();
        theirs.peek(&mut [0; 5]).unwrap();
        theirs.read_exact(&mut [0; 5]).unwrap();
        let [mut one, mut two] = [[0; 10]; 2];
        let count = theirs
            .read_vectored(&mut [IoSliceMut::new(&mut one), IoSliceMut::new(&mut two)])
            .unwrap();
        theirs.read_exact(&mut vec![0; big.len() + 2 - count]).unwrap();
        assert_eq!(theirs.read(&mut [0]).unwrap(), 0);
    });
    tcp_modes(&listener);
    assert!(TcpStream::connect_timeout(&addr, Duration::ZERO).is_err());
    drop(listener);
    assert!(TcpStream::connect(addr).is_err());
    assert!(TcpStream::connect("localhost:1").is_err());
    drop(other);
}

fn tcp_modes(listener: &TcpListener) {
    let limit = Duration::from_secs(3600);
    let mut ours = TcpStream::connect_timeout(&listener.local_addr().unwrap(), limit).unwrap();
    let (mut theirs, _) = listener.accept().unwrap();
    listener.set_nonblocking(true).unwrap();
    assert_eq!(listener.accept().unwrap_err().kind(), ErrorKind::WouldBlock);
    ours.set_nonblocking(true).unwrap();
    assert_eq!(ours.read(&mut [0]).unwrap_err().kind(), ErrorKind::WouldBlock);
    ours.write_all(b"plain").unwrap();
    ours.write_vectored(&[IoSlice::new(b"plain")]).unwrap();
    ours.set_nonblocking(false).unwrap();
    theirs.read_exact(&mut [0; 10]).unwrap();
    theirs.set_read_timeout(Some(Duration::from_millis(1))).unwrap();
    assert_eq!(theirs.read(&mut [0]).unwrap_err().kind(), ErrorKind::WouldBlock);
    assert!(theirs.read_timeout().unwrap().is_some());
    theirs.set_linger(Some(Duration::from_secs(1))).unwrap();
    theirs.try_clone().unwrap().set_nodelay(true).unwrap();
    theirs.set_ttl(64).unwrap();
    assert!(theirs.take_error().unwrap().is_none());
    drop(format!("{theirs:?} {listener:?}"));
    drop(theirs);
    // A socket whose modes the library looks up.
    let foreign = own(|| std::net::TcpListener::bind("127.0.0.1:0").unwrap());
    drop(TcpListener::from(foreign));
}

fn udp() {
    let [ours, theirs] = [0; 2].map(|_| UdpSocket::bind("127.0.0.1:0").unwrap());
    let (near, far) = (ours.local_addr().unwrap(), theirs.local_addr().unwrap());
    ours.send_to(b"ahoy", far).unwrap();
    theirs.peek_from(&mut [0; 4]).unwrap();
    theirs.recv_from(&mut [0; 4]).unwrap();
    ours.connect(far).unwrap();
    theirs.connect(near).unwrap();
    ours.send(b"ahoy").unwrap();
    theirs.peek(&mut [0; 4]).unwrap();
    theirs.recv(&mut [0; 4]).unwrap();
    ours.sendmsg(&[IoSlice::new(b"ahoy")], None, &SendAncillary::new(), MsgFlags::empty()).unwrap();
    let (mut text, mut ancillary) = ([0; 16], RecvAncillary::default());
    let slices = &mut [IoSliceMut::new(&mut text)];
    theirs.recvmsg(slices, &mut ancillary, MsgFlags::empty()).unwrap();
    theirs.set_nonblocking(true).unwrap();
    assert!(theirs.recv(&mut [0]).is_err());
    assert!(theirs.recv_from(&mut [0]).is_err());
    theirs.send(b"ahoy").unwrap();
    let none: &[std::net::SocketAddr] = &[];
    assert!(ours.send_to(b"ahoy", none).is_err());
    assert!(UdpSocket::bind(none).is_err());
}

fn unix(directory: &Path) {
    let path = directory.join("stream");
    let listener = UnixListener::bind(&path).unwrap();
    let mut ours = UnixStream::connect(&path).unwrap();
    let (mut theirs, _) = listener.accept().unwrap();
    ours.write_all(b"ahoy").unwrap();
    theirs.read_exact(&mut [0; 4]).unwrap();
    ours.send_with_fds(b"!", &[listener.as_fd()]).unwrap();
    let received = theirs.recv_with_fds(&mut [0; 1]).unwrap();
    assert_eq!(received.fds.len(), 1);
    // std's descriptors, which the program closes.
    own(|| drop(received));
    theirs.peer_cred().unwrap();
    let (mut near, mut far) = UnixStream::pair().unwrap();
    fiber::scope(|s| {
        s.spawn_local(|| near.write_all(&[7; 1 << 20]).unwrap());
        far.read_exact(&mut vec![0; 1 << 20]).unwrap();
    });
    assert!(UnixStream::connect(directory.join("missing")).is_err());
    let path = directory.join("datagram");
    let socket = UnixDatagram::bind(&path).unwrap();
    let other = UnixDatagram::unbound().unwrap();
    other.send_to(b"ahoy", &path).unwrap();
    socket.recv_from(&mut [0; 4]).unwrap();
    other.connect(&path).unwrap();
    other.send(b"ahoy").unwrap();
    socket.peek(&mut [0; 4]).unwrap();
    socket.recv(&mut [0; 4]).unwrap();
    drop(UnixDatagram::pair().unwrap());
}

fn server() {
    let server = Server::bind("127.0.0.1:0").unwrap().max_connections(2);
    let (addr, stopper) = (server.local_addr().unwrap(), server.stopper());
    fiber::scope(|s| {
        s.spawn(move || {
            for _ in 0..8 {
                let mut stream = TcpStream::connect(addr).unwrap();
                stream.write_all(b"ping").unwrap();
                stream.read_exact(&mut [0; 4]).unwrap();
            }
            stopper.stop();
        });
        let served = server.run(|mut stream, _peer| {
            let mut name = [0; 4];
            stream.read_exact(&mut name)?;
            stream.write_all(&name)
        });
        served.unwrap();
    });
}

#[test]
fn socket_calls_pass_no_interposed_function() {
    check(tcp);
    check(udp);
    check(|| in_directory(unix));
    check(server);
}
