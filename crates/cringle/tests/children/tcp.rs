//! TCP sockets on fibers: a wait suspends only its fiber, and a cancel ends every wait.

use cringle::io::{Interest, ready};
use cringle::net::{Shutdown, SocketAddr, TcpListener, TcpStream, ToSocketAddrs};
use cringle::{Builder, Cancelled, cancel, fiber, time};
use cringle_testing::child;
use cringle_testing::tools::{ends_when_cancelled, on_one_worker, tcp_pair};
use std::cell::Cell;
use std::io::{self, Read, Write};
use std::os::fd::OwnedFd;
use std::time::Duration;

const LONG: Duration = Duration::from_secs(3600);
/// A multiple of the ticks in which the kernel stores timeouts.
const SHORT: Duration = Duration::from_millis(20);

fn listener() -> (TcpListener, SocketAddr) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let addr = listener.local_addr().unwrap();
    (listener, addr)
}

/// Writes until the buffers are full.
fn fill(stream: &TcpStream) {
    stream.set_nonblocking(true).unwrap();
    let mut stream_ref = stream;
    while stream_ref.write(&[0; 1 << 16]).is_ok() {}
    stream.set_nonblocking(false).unwrap();
}

/// A listener with a full queue, so that a connect waits.
fn crowded_listener() -> (socket2::Socket, SocketAddr, Vec<socket2::Socket>) {
    let new = || socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).unwrap();
    let listener = new();
    listener.bind(&SocketAddr::from(([127, 0, 0, 1], 0)).into()).unwrap();
    listener.listen(0).unwrap();
    let addr = listener.local_addr().unwrap();
    let crowd = (0..4).map(|_| {
        let client = new();
        client.set_nonblocking(true).unwrap();
        let _ = client.connect(&addr);
        client
    });
    let crowd = crowd.collect();
    (listener, addr.as_socket().unwrap(), crowd)
}

fn is_cancelled<T>(result: io::Result<T>) -> bool {
    result.err().and_then(|e| cancel::reason(&e)) == Some(cancel::Reason::Cancelled)
}

#[test]
fn cancel_ends_every_wait() {
    on_one_worker(|| {
        let (listener, _) = listener();
        ends_when_cancelled(|| listener.accept());
        let (mut ours, theirs) = tcp_pair();
        ends_when_cancelled(|| (&ours).read(&mut [0; 8]));
        ends_when_cancelled(|| (&ours).read_vectored(&mut [io::IoSliceMut::new(&mut [0; 8])]));
        ends_when_cancelled(|| ours.peek(&mut [0; 8]));
        // The socket works afterwards, and no data is lost.
        (&theirs).write_all(b"after").unwrap();
        let mut text = [0; 5];
        ours.read_exact(&mut text).unwrap();
        assert_eq!(&text, b"after");
        fill(&ours);
        ends_when_cancelled(|| (&ours).write(&[0; 1 << 16]));
        ends_when_cancelled(|| (&ours).write_vectored(&[io::IoSlice::new(&[0; 1 << 16])]));
        let (_listener, addr, _crowd) = crowded_listener();
        ends_when_cancelled(|| TcpStream::connect(addr));
        ends_when_cancelled(|| TcpStream::connect_timeout(&addr, LONG));
        ours.set_read_timeout(Some(LONG)).unwrap();
        ends_when_cancelled(|| (&ours).read(&mut [0; 8]));
    });
}

#[test]
fn cancelled_fiber_is_refused_on_every_socket() {
    on_one_worker(|| {
        let (mut ours, theirs) = tcp_pair();
        let (listener, addr) = listener();
        (&theirs).write_all(b"x").unwrap();
        fiber::scope(|s| {
            s.cancel();
            for nonblocking in [false, true] {
                ours.set_nonblocking(nonblocking).unwrap();
                listener.set_nonblocking(nonblocking).unwrap();
                assert!(is_cancelled(ours.read(&mut [0; 8])));
                assert!(is_cancelled(ours.write(b"x")));
                assert!(is_cancelled(listener.accept()));
                assert!(is_cancelled(TcpStream::connect(addr)));
            }
        });
        ours.set_nonblocking(false).unwrap();
        assert_eq!(ours.read(&mut [0; 8]).unwrap(), 1);
    });
}

#[test]
fn deadline_ends_a_read_with_timed_out() {
    on_one_worker(|| {
        let (mut ours, _theirs) = tcp_pair();
        let error = time::timeout(SHORT, || ours.read(&mut [0; 8])).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        // If the socket's own timeout expires first, the error is another one; and vice versa.
        ours.set_read_timeout(Some(SHORT)).unwrap();
        let error = time::timeout(LONG, || ours.read(&mut [0; 8])).unwrap_err();
        assert_eq!((error.kind(), error.raw_os_error()), (io::ErrorKind::WouldBlock, Some(11)));
        ours.set_read_timeout(Some(LONG)).unwrap();
        let error = time::timeout(SHORT, || ours.read(&mut [0; 8])).unwrap_err();
        assert!(matches!(cancel::reason(&error), Some(cancel::Reason::Elapsed(_))));
    });
}

#[test]
fn connect_timeout_is_respected() {
    on_one_worker(|| {
        let (_listener, addr, _crowd) = crowded_listener();
        let error = TcpStream::connect_timeout(&addr, SHORT).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        let expected = std::net::TcpStream::connect_timeout(&addr, SHORT).unwrap_err();
        assert_eq!(error.to_string(), expected.to_string());
        assert_eq!(cancel::reason(&error), None);
    });
}

/// No cancel reaches a fiber that unwinds, but the timeout of a socket applies.
#[test]
fn timeout_applies_in_a_destructor_while_unwinding() {
    struct Reads<'a>(&'a TcpStream, &'a Cell<Option<io::ErrorKind>>);
    impl Drop for Reads<'_> {
        fn drop(&mut self) {
            self.1.set(self.0.read(&mut [0; 8]).err().map(|e| e.kind()));
        }
    }
    let seen = Cell::new(None);
    on_one_worker(|| {
        let (ours, _theirs) = tcp_pair();
        ours.set_read_timeout(Some(SHORT)).unwrap();
        fiber::scope(|s| {
            let unwinds = s.spawn_local(|| {
                let _reads = Reads(&ours, &seen);
                std::panic::resume_unwind(Box::new("unwound"));
            });
            assert!(unwinds.join().is_err());
        });
    });
    assert_eq!(seen.get(), Some(io::ErrorKind::WouldBlock));
}

#[test]
fn peer_that_never_reads_suspends_only_its_writer() {
    on_one_worker(|| {
        let (ours, theirs) = tcp_pair();
        fiber::scope(|s| {
            let writes = s.spawn_local(|| (&ours).write_all(&vec![7; 64 << 20]));
            // Complete conversations on other connections.
            for _ in 0..20 {
                let (mut a, mut b) = tcp_pair();
                let echo = s.spawn_local(move || -> io::Result<()> {
                    let mut byte = [0];
                    b.read_exact(&mut byte)?;
                    b.write_all(&byte)
                });
                a.write_all(b"!").unwrap();
                a.read_exact(&mut [0]).unwrap();
                echo.join().unwrap().unwrap();
            }
            assert!(!writes.is_finished());
            drop(theirs);
            let kind = writes.join().unwrap().unwrap_err().kind();
            let gone = [io::ErrorKind::ConnectionReset, io::ErrorKind::BrokenPipe];
            assert!(gone.contains(&kind), "{kind:?}");
        });
    });
}

#[test]
fn large_write_arrives_completely() {
    const LEN: usize = 16 << 20;
    let sent: Vec<u8> = (0..LEN).map(|n| (n * 31 % 251) as u8).collect();
    on_one_worker(|| {
        let (ours, mut theirs) = tcp_pair();
        let mut got = vec![0; LEN];
        fiber::scope(|s| {
            // Writes all bytes, as a blocking socket does.
            let writes = s.spawn_local(|| (&ours).write(&sent));
            theirs.read_exact(&mut got).unwrap();
            assert_eq!(writes.join().unwrap().unwrap(), LEN);
        });
        assert!(got == sent);
    });
}

/// After a read that fills its buffer, the next one is inline: within the budget, and not after a
/// cancel.
#[test]
fn inline_reads_yield_and_notice_cancels() {
    const BYTES: usize = 4096;
    on_one_worker(|| {
        let (mut ours, mut theirs) = tcp_pair();
        theirs.write_all(&[7; BYTES]).unwrap();
        let read = Cell::new(0);
        let before = fiber::scope(|s| {
            let reads = s.spawn_local(|| {
                loop {
                    match ours.read(&mut [0]) {
                        Ok(count) => read.set(read.get() + count),
                        failed => return assert!(is_cancelled(failed)),
                    }
                }
            });
            while read.get() == 0 {
                fiber::yield_now();
            }
            let before = read.get();
            s.cancel();
            reads.join().unwrap();
            before
        });
        assert!(before < BYTES, "no other fiber ran before the last byte");
        // An op may have received its byte before the cancel.
        assert!(read.get() <= before + 1, "it continued to read after the cancel");
        let mut left = vec![0; BYTES - read.get()];
        ours.read_exact(&mut left).unwrap();
        assert!(!left.is_empty() && left.iter().all(|&byte| byte == 7));
    });
}

#[test]
fn shutdown_wakes_a_reader_of_a_clone() {
    on_one_worker(|| {
        let (ours, _theirs) = tcp_pair();
        let clone = ours.try_clone().unwrap();
        fiber::scope(|s| {
            let reads = s.spawn_local(|| (&clone).read(&mut [0; 8]));
            (0..5).for_each(|_| fiber::yield_now());
            assert!(!reads.is_finished());
            ours.shutdown(Shutdown::Both).unwrap();
            assert_eq!(reads.join().unwrap().unwrap(), 0);
        });
    });
}

/// A reader and a writer on different workers, which borrow one stream.
#[test]
fn stream_is_read_and_written_concurrently() {
    const ROUNDS: usize = 500;
    Builder::new()
        .workers(2)
        .run(|| {
            let (ours, theirs) = tcp_pair();
            fiber::scope(|s| {
                s.spawn(|| {
                    io::copy(&mut &theirs, &mut &theirs).unwrap();
                    theirs.shutdown(Shutdown::Write).unwrap();
                });
                let writes = s.spawn(|| {
                    for round in 0..ROUNDS {
                        (&ours).write_all(&[round as u8; 997]).unwrap();
                    }
                    ours.shutdown(Shutdown::Write).unwrap();
                });
                let mut all = Vec::new();
                (&ours).read_to_end(&mut all).unwrap();
                writes.join().unwrap();
                let expected = (0..ROUNDS).flat_map(|round| [round as u8; 997]);
                assert!(all.into_iter().eq(expected));
            });
        })
        .unwrap();
}

/// The kernel queues at most 4096 connections for a listener (`somaxconn`); others are lost if they
/// are not accepted fast enough. Under load the kernel can return a connection whose client is
/// already gone (after a SYN cookie), and its handler waits until the end.
#[test]
fn ten_thousand_connect_at_once() {
    child::must_succeed("ten_thousand_connect_at_once", || {
        const CLIENTS: usize = 10_000;
        const ACCEPTORS: usize = 200;
        let run = Builder::new().workers(2).run(|| {
            let (listener, addr) = listener();
            socket2::SockRef::from(&listener).listen(4096).unwrap();
            let answer = |mut stream: TcpStream| {
                let mut byte = [0];
                stream.read_exact(&mut byte)?;
                stream.write_all(&byte)
            };
            let serve = || -> io::Result<()> {
                loop {
                    // The client reports the outcome.
                    let _ = answer(listener.accept()?.0);
                }
            };
            fiber::scope(|s| {
                let serve = || assert!(is_cancelled(serve()));
                (0..ACCEPTORS).for_each(|_| s.spawn_daemon_local(serve));
                let request = move |n: usize| -> io::Result<()> {
                    let mut stream = TcpStream::connect(addr)?;
                    stream.write_all(&[n as u8])?;
                    let mut answer = Vec::new();
                    stream.read_to_end(&mut answer)?;
                    assert_eq!(answer, [n as u8]);
                    Ok(())
                };
                let clients: Vec<_> = (0..CLIENTS).map(|n| s.spawn(move || request(n))).collect();
                for end in clients {
                    end.join().unwrap().unwrap();
                }
            });
        });
        run.unwrap();
    });
}

/// Connections that are accepted before the cancel of their `accept` are returned to the caller.
#[test]
fn cancelled_accepts_leak_no_descriptor() {
    child::must_succeed("cancelled_accepts_leak_no_descriptor", || {
        let before = child::Footprint::now();
        for turns in 0..100 {
            on_one_worker(|| {
                let (listener, addr) = listener();
                fiber::scope(|s| {
                    let accepts: Vec<_> =
                        (0..8).map(|_| s.spawn_local(|| listener.accept())).collect();
                    for _ in 0..8 {
                        s.spawn_local(|| TcpStream::connect(addr));
                    }
                    (0..turns % 5).for_each(|_| fiber::yield_now());
                    s.cancel();
                    for accept in accepts {
                        if let Err(e) = accept.join().unwrap() {
                            assert!(e.get_ref().unwrap().is::<Cancelled>(), "{e}");
                        }
                    }
                });
            });
        }
        assert_eq!(child::Footprint::now().descriptors, before.descriptors);
    });
}

#[test]
fn listener_survives_running_out_of_descriptors() {
    child::must_succeed("listener_survives_running_out_of_descriptors", || {
        on_one_worker(|| {
            let (listener, addr) = listener();
            let mut client = TcpStream::connect(addr).unwrap();
            // All free descriptors.
            let mut hoard: Vec<OwnedFd> = Vec::new();
            child::limit(libc::RLIMIT_NOFILE, 100).unwrap();
            while let Ok(fd) = client.try_clone() {
                hoard.push(fd.into());
            }
            let error = listener.accept().map(drop).unwrap_err();
            assert_eq!(error.raw_os_error(), Some(libc::EMFILE));
            let error = TcpStream::connect(addr).map(drop).unwrap_err();
            assert_eq!(error.raw_os_error(), Some(libc::EMFILE));
            hoard.clear();
            let (mut stream, _) = listener.accept().unwrap();
            stream.write_all(b"!").unwrap();
            client.read_exact(&mut [0]).unwrap();
        });
    });
}

/// A deadline over the whole request ends a client that trickles bytes.
#[test]
fn deadline_ends_a_connection_that_trickles() {
    on_one_worker(|| {
        let (mut ours, theirs) = tcp_pair();
        fiber::scope(|s| {
            s.spawn_local(move || {
                while (&theirs).write_all(b"x").is_ok() {
                    fiber::sleep(Duration::from_millis(1));
                }
            });
            // Each read ends in time.
            ours.set_read_timeout(Some(LONG)).unwrap();
            let mut request = vec![0; 1 << 20];
            let request = time::timeout(SHORT * 5, || ours.read_exact(&mut request));
            assert_eq!(request.unwrap_err().kind(), io::ErrorKind::TimedOut);
            drop(ours);
        });
    });
}

#[test]
fn closing_a_lingering_stream_suspends_only_the_fiber() {
    on_one_worker(|| {
        let (ours, mut theirs) = tcp_pair();
        fill(&ours);
        ours.set_linger(Some(LONG)).unwrap();
        assert_eq!(ours.linger().unwrap(), Some(Duration::from_secs(3600)));
        fiber::scope(|s| {
            let closes = s.spawn_local(|| drop(ours));
            (0..100).for_each(|_| fiber::yield_now());
            assert!(!closes.is_finished());
            io::copy(&mut theirs, &mut io::sink()).unwrap();
            closes.join().unwrap();
        });
    });
}

#[test]
fn lingering_stream_is_closed_without_a_free_thread() {
    let test = "lingering_stream_is_closed_without_a_free_thread";
    child::must_succeed(test, || {
        on_one_worker(|| {
            let (ours, mut theirs) = tcp_pair();
            ours.set_linger(Some(LONG)).unwrap();
            let now = child::status_kib("VmSize:") * 1024;
            child::limit(libc::RLIMIT_AS, now + (1 << 20)).unwrap();
            // libc may have kept the stacks of some threads that have ended.
            let parked =
                std::iter::from_fn(|| std::thread::Builder::new().spawn(std::thread::park).ok());
            let parked: Vec<_> = parked.take(100).collect();
            assert!(parked.len() < 100, "no more threads can be started");
            drop(ours);
            assert_eq!(theirs.read(&mut [0]).unwrap(), 0);
            parked.iter().for_each(|parked| parked.thread().unpark());
        });
    });
}

#[test]
fn foreign_socket_keeps_its_modes() {
    on_one_worker(|| {
        let std_listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let addr = std_listener.local_addr().unwrap();
        let client = std::net::TcpStream::connect(addr).unwrap();
        client.set_read_timeout(Some(SHORT)).unwrap();
        let mut client = TcpStream::from(client);
        assert_eq!(client.read(&mut [0]).unwrap_err().kind(), io::ErrorKind::WouldBlock);
        std_listener.set_nonblocking(true).unwrap();
        let listener = TcpListener::from(std_listener);
        // The client may be connected before the kernel has queued its connection.
        ready(&listener, Interest::READABLE).unwrap();
        drop(listener.accept().unwrap());
        assert_eq!(listener.accept().unwrap_err().kind(), io::ErrorKind::WouldBlock);
        // Connections inherit the listener's modes, except the non-blocking mode.
        let socket: socket2::Socket = listener.into();
        socket.set_nonblocking(false).unwrap();
        socket.set_read_timeout(Some(SHORT)).unwrap();
        let listener = TcpListener::from(socket);
        assert_eq!(listener.accept().unwrap_err().kind(), io::ErrorKind::WouldBlock);
        let _client = TcpStream::connect(addr).unwrap();
        let (mut stream, _) = listener.accept().unwrap();
        assert_eq!(stream.read(&mut [0]).unwrap_err().kind(), io::ErrorKind::WouldBlock);
        let std: std::net::TcpStream = stream.into();
        assert_eq!(std.read_timeout().unwrap(), Some(SHORT));
    });
}

#[test]
fn stream_outlives_the_runtime() {
    let (ours, theirs) = on_one_worker(tcp_pair);
    ours.set_read_timeout(Some(LONG)).unwrap();
    let thread = std::thread::spawn(move || (&ours).read(&mut [0; 8]).unwrap());
    (&theirs).write_all(b"later").unwrap();
    assert_eq!(thread.join().unwrap(), 5);
}

#[test]
fn resolving_a_name_suspends_only_the_fiber() {
    on_one_worker(|| {
        let listener = TcpListener::bind("localhost:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        drop(TcpStream::connect(("localhost", port)).unwrap());
        let has_run = Cell::new(false);
        fiber::scope(|s| {
            s.spawn_local(|| has_run.set(true));
            // (The answer may arrive before the fiber would wait.)
            while !has_run.get() {
                assert!(("localhost", port).to_socket_addrs().unwrap().len() > 0);
            }
        });
        fiber::scope(|s| {
            s.cancel();
            assert!(is_cancelled(TcpStream::connect(("localhost", port))));
        });
    });
}
