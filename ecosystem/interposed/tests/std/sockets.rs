//! `std::net`, `std::os::unix::net`.

use cringle_ecosystem_interposed::{WAIT, Waits};
use std::io::{self, BufRead, BufReader, ErrorKind, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream, ToSocketAddrs, UdpSocket};
use std::os::unix::net::{UnixDatagram, UnixListener, UnixStream};
use std::thread;
use std::time::Duration;

/// A server on a thread and its client, with buffered lines.
fn lines_over_tcp(n: usize, waits: &Waits) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let server = thread::spawn(move || -> io::Result<()> {
        let (stream, _) = listener.accept()?;
        thread::sleep(WAIT);
        let mut writer = stream.try_clone()?;
        for line in BufReader::new(stream).lines() {
            writeln!(writer, "{}!", line?)?;
        }
        Ok(())
    });
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_nodelay(true).unwrap();
    writeln!(stream, "first {n}").unwrap();
    let mut answers = BufReader::new(stream.try_clone().unwrap());
    let mut line = String::new();
    waits.during(|| answers.read_line(&mut line).unwrap());
    assert_eq!(line, format!("first {n}!\n"));
    writeln!(stream, "second").unwrap();
    stream.shutdown(Shutdown::Write).unwrap();
    line.clear();
    answers.read_to_string(&mut line).unwrap();
    assert_eq!(line, "second!\n");
    server.join().unwrap().unwrap();
}

/// Half a megabyte there and back, with the server in the job and the client on a thread.
fn much_over_tcp(n: usize, waits: &Waits) {
    let listener = TcpListener::bind(("localhost", 0)).unwrap();
    let address = listener.local_addr().unwrap();
    let bytes = (n as u32).to_ne_bytes().repeat(1 << 17);
    let client = {
        let bytes = bytes.clone();
        thread::spawn(move || -> io::Result<bool> {
            thread::sleep(WAIT);
            let mut stream = TcpStream::connect(address)?;
            stream.write_all(&bytes)?;
            stream.shutdown(Shutdown::Write)?;
            let mut back = Vec::new();
            stream.read_to_end(&mut back)?;
            Ok(back == bytes)
        })
    };
    let mut stream = waits.during(|| listener.incoming().next().unwrap().unwrap());
    let mut received = Vec::new();
    stream.read_to_end(&mut received).unwrap();
    assert!(received == bytes);
    stream.write_all(&received).unwrap();
    drop(stream);
    assert!(client.join().unwrap().unwrap());
}

fn time_limits_of_sockets(_: usize, waits: &Waits) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut stream = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    stream.set_read_timeout(Some(WAIT)).unwrap();
    let error = waits.during(|| stream.read(&mut [0]).unwrap_err());
    assert_eq!(error.kind(), ErrorKind::WouldBlock);
    stream.set_nonblocking(true).unwrap();
    assert_eq!(stream.read(&mut [0]).unwrap_err().kind(), ErrorKind::WouldBlock);
    listener.set_nonblocking(true).unwrap();
    assert!(listener.accept().is_ok());
    assert_eq!(listener.accept().unwrap_err().kind(), ErrorKind::WouldBlock);
    drop(listener);
    // No server listens there now.
    let address = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let error = TcpStream::connect_timeout(&address, Duration::from_secs(60)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ConnectionRefused);
}

fn datagrams(n: usize, waits: &Waits) {
    let one = UdpSocket::bind("127.0.0.1:0").unwrap();
    let other = UdpSocket::bind("127.0.0.1:0").unwrap();
    one.connect(other.local_addr().unwrap()).unwrap();
    let sender = thread::spawn(move || {
        thread::sleep(WAIT);
        one.send(&n.to_ne_bytes()).unwrap();
        let mut buf = [0; 64];
        let count = one.recv(&mut buf).unwrap();
        buf[..count].to_vec()
    });
    let mut buf = [0; 8];
    let (count, from) = waits.during(|| other.recv_from(&mut buf).unwrap());
    assert_eq!((count, usize::from_ne_bytes(buf)), (8, n));
    buf.reverse();
    other.send_to(&buf, from).unwrap();
    assert_eq!(sender.join().unwrap(), buf);
}

fn unix_sockets(n: usize, waits: &Waits) {
    let place = tempfile::tempdir().unwrap();
    let path = place.path().join("socket");
    let listener = UnixListener::bind(&path).unwrap();
    let server = thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        thread::sleep(WAIT);
        stream.write_all(b"hello").unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).unwrap();
        text
    });
    let mut stream = UnixStream::connect(&path).unwrap();
    let mut buf = [0; 5];
    waits.during(|| stream.read_exact(&mut buf).unwrap());
    assert_eq!(&buf, b"hello");
    write!(stream, "{n}").unwrap();
    drop(stream);
    assert_eq!(server.join().unwrap(), n.to_string());
    let (one, other) = UnixDatagram::pair().unwrap();
    one.send(b"datagram").unwrap();
    let mut buf = [0; 64];
    let count = other.recv(&mut buf).unwrap();
    assert_eq!(&buf[..count], b"datagram");
}

fn names_are_resolved(n: usize, waits: &Waits) {
    let port = 1000 + n as u16;
    let mut addresses = ("localhost", port).to_socket_addrs().unwrap();
    assert!(addresses.all(|address| address.ip().is_loopback() && address.port() == port));
    // A name that is none is refused without a server for names.
    assert!("no name:80".to_socket_addrs().is_err());
    waits.during(|| thread::sleep(WAIT));
}

crate::programs! {
    lines_over_tcp, much_over_tcp, time_limits_of_sockets, datagrams, unix_sockets,
    names_are_resolved
}
