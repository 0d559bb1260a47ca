//! `send_zc`: the kernel uses the buffer until the call returns, and no longer.

use cringle::net::{TcpStream, UdpSocket};
use cringle::os::unix::net::UnixStream;
use cringle::runtime::{self, Driver, Feature};
use cringle::{Builder, cancel, fiber};
use cringle_testing::disk;
use cringle_testing::tools::{on_one_worker, tcp_pair};
use std::io::{self, Read, Write};
use std::time::Duration;

/// Reads everything in pieces with pauses, so that much data is in transit.
fn drain(mut stream: TcpStream) -> io::Result<Vec<u8>> {
    let (mut all, mut piece) = (Vec::new(), vec![0; 48 << 10]);
    loop {
        match stream.read(&mut piece)? {
            0 => return Ok(all),
            count => all.extend_from_slice(&piece[..count]),
        }
        fiber::yield_now();
    }
}

/// Sends a number of bytes of this value, and reuses the buffer at once.
fn send_all(stream: &TcpStream, kind: u8, bytes: usize) {
    let mut buf = vec![kind; bytes];
    let mut sent = 0;
    while sent < bytes {
        let count = stream.send_zc(&buf[sent..]).unwrap();
        assert!(count > 0);
        buf[sent..sent + count].fill(!kind);
        sent += count;
    }
}

fn sends_and_uses_again() {
    fiber::scope(|s| {
        for _ in 0..4 {
            s.spawn_local(|| {
                let (ours, theirs) = tcp_pair();
                let peer = fiber::spawn_local(|| drain(theirs).unwrap());
                let sizes = [1, 4095, 100_000, 3_000_001, 0, 700_000];
                for (kind, bytes) in (1..).zip(sizes) {
                    send_all(&ours, kind, bytes);
                }
                drop(ours);
                let expected: Vec<u8> =
                    (1..).zip(sizes).flat_map(|(kind, bytes)| vec![kind; bytes]).collect();
                assert!(peer.join().unwrap() == expected, "what was sent was changed on its way");
            });
        }
    });
}

#[test]
fn buffer_is_free_when_the_call_returns() {
    on_one_worker(sends_and_uses_again);
}

#[test]
fn ring_copies_where_it_must() {
    Builder::new().workers(1).without(Feature::SendZc).run(sends_and_uses_again).unwrap();
}

#[test]
fn other_sockets_and_threads_fall_back_to_send() {
    let unix = || {
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        assert_eq!(ours.send_zc(b"ahoy").unwrap(), 4);
        let mut word = [0; 4];
        theirs.read_exact(&mut word).unwrap();
        assert_eq!(&word, b"ahoy");
        // A broken connection is an error, not a signal.
        drop(theirs);
        assert_eq!(ours.send_zc(b"ahoy").unwrap_err().kind(), io::ErrorKind::BrokenPipe);
    };
    let udp = || {
        let ours = UdpSocket::bind("127.0.0.1:0").unwrap();
        let theirs = UdpSocket::bind("127.0.0.1:0").unwrap();
        ours.connect(theirs.local_addr().unwrap()).unwrap();
        let message = vec![7; 20_000];
        assert_eq!(ours.send_zc(&message).unwrap(), 20_000);
        let mut all = vec![0; 30_000];
        assert_eq!(theirs.recv(&mut all).unwrap(), 20_000);
        assert_eq!(all[..20_000], message);
        // Too long for a datagram.
        assert_eq!(
            ours.send_zc(&vec![0; 1 << 17]).unwrap_err().raw_os_error(),
            Some(libc::EMSGSIZE)
        );
    };
    let tcp = || {
        let (ours, mut theirs) = tcp_pair();
        assert_eq!(ours.send_zc(b"ahoy").unwrap(), 4);
        theirs.read_exact(&mut [0; 4]).unwrap();
        ours.shutdown(cringle::net::Shutdown::Write).unwrap();
        assert_eq!(ours.send_zc(b"ahoy").unwrap_err().kind(), io::ErrorKind::BrokenPipe);
    };
    for program in [unix, udp, tcp] {
        on_one_worker(program);
        program();
    }
}

/// After a cancel or a timeout, the call waits for the bytes that were sent, and returns their
/// number.
#[test]
fn cancelled_send_returns_the_bytes_sent() {
    for by_cancel in [true, false] {
        on_one_worker(|| {
            let (ours, theirs) = tcp_pair();
            if !by_cancel {
                ours.set_write_timeout(Some(Duration::from_millis(20))).unwrap();
            }
            let mut buf = vec![7; 64 << 20];
            let (sent, received) = fiber::scope(|s| {
                let sends = s.spawn_local(|| {
                    let sent = ours.send_zc(&buf);
                    buf.fill(8);
                    drop(ours);
                    sent
                });
                // Until the buffers between the two are full.
                (0..8).for_each(|_| fiber::yield_now());
                if by_cancel {
                    s.cancel();
                }
                fiber::protect(|| {
                    if matches!(runtime::driver(), Driver::Epoll(_)) {
                        // It copies, so the buffer is not in use.
                        while !sends.is_finished() {
                            fiber::yield_now();
                        }
                    } else {
                        fiber::sleep(Duration::from_millis(40));
                        assert!(!sends.is_finished(), "the peer has not even looked");
                    }
                    let received = drain(theirs).unwrap();
                    (sends.join().unwrap(), received)
                })
            });
            let sent = sent.unwrap();
            assert!((1..64 << 20).contains(&sent), "{sent}");
            assert_eq!(received.len(), sent);
            assert!(disk::is_filled(&received, 7));
        });
    }
}

#[test]
fn refused_send_is_not_started() {
    on_one_worker(|| {
        let (ours, theirs) = tcp_pair();
        fiber::scope(|s| {
            s.cancel();
            let error = ours.send_zc(b"ahoy").unwrap_err();
            assert_eq!(cancel::reason(&error), Some(cancel::Reason::Cancelled));
        });
        drop(ours);
        assert!(drain(theirs).unwrap().is_empty());
    });
}

/// A reset of the connection releases the buffer.
#[test]
fn closing_the_peer_ends_the_send() {
    on_one_worker(|| {
        let (ours, mut theirs) = tcp_pair();
        let buf = vec![7; 64 << 20];
        fiber::scope(|s| {
            let sends = s.spawn_local(|| {
                let mut sent = 0;
                loop {
                    match ours.send_zc(&buf[sent..]) {
                        Ok(count) => sent += count,
                        Err(e) => return (sent, e),
                    }
                }
            });
            theirs.read_exact(&mut [0; 1 << 16]).unwrap();
            // Closing with unread data resets the connection.
            drop(theirs);
            let (sent, error) = sends.join().unwrap();
            assert!(sent < buf.len());
            let ends = [io::ErrorKind::ConnectionReset, io::ErrorKind::BrokenPipe];
            assert!(ends.contains(&error.kind()), "{error}");
        });
    });
}

/// `run` waits for a buffer that the network uses.
#[test]
fn end_of_run_waits_for_sent_buffers() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let addr = listener.local_addr().unwrap();
    let peer = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let mut all = Vec::new();
        stream.read_to_end(&mut all).unwrap();
        all
    });
    let sends = on_one_worker(|| {
        let sends = fiber::spawn_local(move || {
            let mut buf = vec![7; 32 << 20];
            let mut stream = TcpStream::connect(addr).unwrap();
            stream.write_all(&[7]).unwrap();
            let sent = stream.send_zc(&buf);
            buf.fill(8);
            sent
        });
        (0..20).for_each(|_| fiber::yield_now());
        sends
    });
    let sent = sends.join().unwrap().unwrap_or(0);
    let received = peer.join().unwrap();
    assert_eq!(received.len(), sent + 1);
    assert!(disk::is_filled(&received, 7));
}
