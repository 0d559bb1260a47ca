//! The same programs with std's sockets and threads, with the library's sockets and fibers, and
//! with the library's sockets outside of a runtime. The recorded observations must be equal.

use super::observations::{Log, observes_the_same};

/// A local address without the parts that differ from run to run.
fn nameless(addr: std::net::SocketAddr) -> std::net::IpAddr {
    assert_ne!(addr.port(), 0);
    addr.ip()
}

macro_rules! programs {
    ($($body:item)*) => {
        #[allow(dead_code)]
        mod with_std {
            use super::{Log, nameless};
            use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream, ToSocketAddrs};
            use std::thread;
            $($body)*
        }

        #[allow(dead_code)]
        mod on_threads {
            use super::{Log, nameless};
            use cringle::net::{Shutdown, SocketAddr, TcpListener, TcpStream, ToSocketAddrs};
            use std::thread;
            $($body)*
        }

        #[allow(dead_code)]
        mod with_cringle {
            use super::{Log, nameless};
            use cringle::fiber as thread;
            use cringle::net::{Shutdown, SocketAddr, TcpListener, TcpStream, ToSocketAddrs};
            $($body)*
        }
    };
}

programs! {
    use std::io::{self, IoSlice, IoSliceMut, Read, Write};
    use std::time::Duration;

    /// Both ends of a connection.
    pub(super) fn pair() -> (TcpStream, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let addr = listener.local_addr().unwrap();
        let ours = TcpStream::connect(addr).unwrap();
        let (theirs, peer) = listener.accept().unwrap();
        assert_eq!(peer, ours.local_addr().unwrap());
        (ours, theirs)
    }

    /// A stream that resets the connection when it is dropped.
    fn reset_on_drop(stream: TcpStream) -> socket2::Socket {
        let socket = socket2::Socket::from(std::os::fd::OwnedFd::from(stream));
        socket.set_linger(Some(Duration::ZERO)).unwrap();
        socket
    }

    pub(super) fn a_conversation() -> Log {
        let mut log = Log::default();
        let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let addr = listener.local_addr().unwrap();
        log.value(nameless(addr));
        thread::scope(|s| {
            s.spawn(|| {
                let mut stream = listener.incoming().next().unwrap().unwrap();
                let mut text = String::new();
                stream.read_to_string(&mut text).unwrap();
                stream.write_all(text.to_uppercase().as_bytes()).unwrap();
                stream.flush().unwrap();
            });
            let mut stream = TcpStream::connect(addr).unwrap();
            log.value(stream.peer_addr().unwrap() == addr);
            // An empty read without data.
            log.result(stream.read_vectored(&mut []));
            log.result(stream.read_vectored(&mut [IoSliceMut::new(&mut [])]));
            let parts = [IoSlice::new(b"ropes "), IoSlice::new(b""), IoSlice::new(b"and sails")];
            log.result(stream.write_vectored(&parts));
            log.result(stream.write(b""));
            log.result(stream.shutdown(Shutdown::Write));
            log.result(stream.write(b"x"));
            let mut peeked = [0; 15];
            while stream.peek(&mut peeked).unwrap() < peeked.len() {}
            log.value(peeked);
            let (mut head, mut tail) = ([0; 5], [0; 10]);
            let mut bufs = [IoSliceMut::new(&mut head), IoSliceMut::new(&mut tail)];
            log.result(stream.read_vectored(&mut bufs));
            log.value((head, tail));
            log.result(stream.read(&mut head));
            log.result((&stream).read(&mut head));
        });
        log
    }

    pub(super) fn addresses_that_cannot_be_had() -> Log {
        let mut log = Log::default();
        let taken = TcpListener::bind("127.0.0.1:0").unwrap();
        let addr = taken.local_addr().unwrap();
        log.result(TcpListener::bind(addr).map(drop));
        log.result(TcpListener::bind("192.0.2.1:0").map(drop));
        log.result(TcpListener::bind("127.0.0.1").map(drop));
        log.result(TcpListener::bind("127.0.0.1:what").map(drop));
        log.result(TcpListener::bind(&[] as &[SocketAddr]).map(drop));
        // The first address that is free.
        let free = SocketAddr::from(([127, 0, 0, 1], 0));
        log.result(TcpListener::bind(&[addr, free][..]).map(|it| it.local_addr().unwrap() != addr));
        drop(taken);
        log.result(TcpStream::connect(addr).map(drop));
        log.result(TcpStream::connect_timeout(&addr, Duration::from_secs(3600)).map(drop));
        log.result(TcpStream::connect("255.255.255.255:9").map(drop));
        log.result(TcpStream::connect("").map(drop));
        log.result(TcpStream::connect(("127.0.0.1\0", 80)).map(drop));
        log.result("127.0.0.1:80".to_socket_addrs().map(|it| it.collect::<Vec<_>>()));
        log.result(("::1", 80).to_socket_addrs().map(|it| it.collect::<Vec<_>>()));
        log.result("localhost:70000".to_socket_addrs().map(|it| it.collect::<Vec<_>>()));
        log
    }

    pub(super) fn timeouts() -> Log {
        let mut log = Log::default();
        let (mut ours, mut theirs) = pair();
        log.result(ours.read_timeout());
        log.result(ours.set_read_timeout(Some(Duration::ZERO)));
        log.result(ours.set_write_timeout(Some(Duration::ZERO)));
        log.result(ours.set_read_timeout(Some(Duration::from_millis(20))));
        log.result(ours.read_timeout());
        log.result(ours.write_timeout());
        log.timed_result(|| ours.read(&mut [0; 8]));
        log.timed_result(|| ours.peek(&mut [0; 8]));
        log.timed_result(|| ours.read_vectored(&mut [IoSliceMut::new(&mut [0; 8])]));
        // Clones share the timeout.
        let clone = ours.try_clone().unwrap();
        log.timed_result(|| (&clone).read(&mut [0; 8]));
        log.result(clone.set_read_timeout(None));
        log.result(ours.read_timeout());
        log.result(theirs.write(b"x"));
        log.timed_result(|| ours.read(&mut [0; 8]));
        // Without a reader, the buffers fill up.
        log.result(theirs.set_write_timeout(Some(Duration::from_millis(20))));
        let stuck = loop {
            match theirs.write(&[0; 1 << 16]) {
                Err(e) if e.kind() != io::ErrorKind::Interrupted => break e,
                _ => {}
            }
        };
        log.result(Err::<(), _>(stuck));
        // (Data in transit may have freed some room.)
        let stuck = loop {
            match theirs.write_vectored(&[IoSlice::new(&[0; 1 << 16])]) {
                Err(e) if e.kind() != io::ErrorKind::Interrupted => break e,
                _ => {}
            }
        };
        log.result(Err::<(), _>(stuck));
        log.result(theirs.set_write_timeout(None));
        drop((ours, clone));
        log
    }

    pub(super) fn calls_that_do_not_block() -> Log {
        let mut log = Log::default();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let other = listener.try_clone().unwrap();
        log.result(listener.set_nonblocking(true));
        log.result(other.accept().map(drop));
        log.result(listener.incoming().next().unwrap().map(drop));
        log.result(other.set_nonblocking(false));
        let mut ours = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (theirs, _) = listener.accept().unwrap();
        log.result(ours.set_nonblocking(true));
        log.result(ours.read(&mut [0; 8]));
        log.result(ours.peek(&mut [0; 8]));
        log.result((&ours.try_clone().unwrap()).read(&mut [0; 8]));
        let full = loop {
            if let Err(e) = ours.write(&[0; 1 << 16]) {
                break e;
            }
        };
        log.result(Err::<(), _>(full));
        drop(theirs);
        log
    }

    /// The peer resets the connection at each step.
    pub(super) fn resets() -> Log {
        let mut log = Log::default();
        let reset = |theirs| drop(reset_on_drop(theirs));
        // Before it is accepted.
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let addr = listener.local_addr().unwrap();
        reset(TcpStream::connect(addr).unwrap());
        let (mut stream, _) = listener.accept().unwrap();
        log.result(stream.read(&mut [0; 8]));
        log.result(stream.read(&mut [0; 8]));
        // Before a read.
        let (mut ours, theirs) = pair();
        reset(theirs);
        log.result(ours.read(&mut [0; 8]));
        log.result(ours.read(&mut [0; 8]));
        log.result(ours.write(b"x"));
        log.result(ours.peer_addr().map(drop));
        log.result(ours.shutdown(Shutdown::Both));
        // Before a write.
        let (mut ours, theirs) = pair();
        reset(theirs);
        log.result(ours.write(b"x"));
        log.result(ours.write(b"x"));
        log.result(ours.write_vectored(&[IoSlice::new(b"x")]));
        log.result(ours.read(&mut [0; 8]));
        // The pending error is taken before another call reports it.
        let (ours, theirs) = pair();
        reset(theirs);
        log.result(ours.take_error());
        log.result(ours.take_error().map(|e| e.is_none()));
        // While a read waits.
        let (mut ours, theirs) = pair();
        let read = thread::spawn(move || {
            let mut byte = [0];
            ours.read_exact(&mut byte)?;
            ours.read_exact(&mut byte)
        });
        (&theirs).write_all(b"x").unwrap();
        reset(theirs);
        // The reset may have arrived before the first read, which then finds no data.
        log.result(read.join().unwrap());
        // Closing with unread data resets the connection, too.
        let (mut ours, theirs) = pair();
        ours.write_all(b"unread").unwrap();
        while theirs.peek(&mut [0; 8]).unwrap() < 6 {}
        drop(theirs);
        log.result(ours.read(&mut [0; 8]));
        log
    }

    /// Each side shuts down its own direction.
    pub(super) fn half_open_connections() -> Log {
        let mut log = Log::default();
        let (mut ours, mut theirs) = pair();
        log.result(theirs.shutdown(Shutdown::Write));
        log.result(ours.read(&mut [0; 8]));
        log.result(ours.write(b"still there"));
        let mut text = [0; 11];
        log.result(theirs.read_exact(&mut text));
        log.value(text);
        log.result(ours.shutdown(Shutdown::Read));
        log.result(ours.read(&mut [0; 8]));
        drop(ours);
        log.result(theirs.read(&mut [0; 8]));
        // A shutdown ends a read of a clone.
        let (ours, theirs) = pair();
        let clone = ours.try_clone().unwrap();
        let read = thread::spawn(move || (&clone).read(&mut [0; 8]));
        log.result(ours.shutdown(Shutdown::Both));
        log.result(read.join().unwrap());
        log.result((&theirs).read(&mut [0; 8]));
        // A drop does not end the clone's read.
        let (ours, theirs) = pair();
        let clone = ours.try_clone().unwrap();
        let read = thread::spawn(move || (&clone).read(&mut [0; 8]));
        drop(ours);
        (&theirs).write_all(b"on").unwrap();
        log.result(read.join().unwrap());
        log
    }

    pub(super) fn options() -> Log {
        let mut log = Log::default();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        log.result(listener.set_ttl(44));
        log.result(listener.ttl());
        log.result(listener.take_error().map(|e| e.is_none()));
        let (ours, theirs) = pair();
        log.result(ours.nodelay());
        log.result(ours.set_nodelay(true));
        log.result(ours.nodelay());
        log.result(theirs.nodelay());
        log.result(ours.set_ttl(33));
        log.result(ours.ttl());
        log.result(ours.set_ttl(1000));
        log.result(ours.take_error().map(|e| e.is_none()));
        log.value(format!("{ours:?}").starts_with("TcpStream { addr: 127.0.0.1:"));
        log.value(format!("{listener:?}").starts_with("TcpListener { addr: 127.0.0.1:"));
        log
    }
}

observes_the_same!(
    a_conversation,
    addresses_that_cannot_be_had,
    timeouts,
    calls_that_do_not_block,
    resets,
    half_open_connections,
    options,
);
