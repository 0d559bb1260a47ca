//! std's sockets.

use crate::common::{on_both_drivers, waits_for};
use cringle::fiber;
use std::io::{ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::os::fd::AsRawFd;
use std::os::unix::net::{UnixDatagram, UnixListener, UnixStream};
use std::time::{Duration, Instant};

/// More than the buffers of a connection hold.
const MUCH: usize = 8 << 20;

fn tcp_pair() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let ours = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    (ours, listener.accept().unwrap().0)
}

#[test]
fn std_accept_waits_only_its_fiber() {
    on_both_drivers(|| {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let mut client = None;
        let (stream, peer) = waits_for(
            || listener.accept().unwrap(),
            || client = Some(TcpStream::connect(address).unwrap()),
        );
        assert_eq!(peer, client.unwrap().local_addr().unwrap());
        assert_eq!(stream.local_addr().unwrap(), address);
    });
}

#[test]
fn std_tcp_read_waits_only_its_fiber() {
    on_both_drivers(|| {
        let (mut ours, theirs) = tcp_pair();
        let text = waits_for(
            || {
                let mut buf = [0; 64];
                let n = (&theirs).read(&mut buf).unwrap();
                buf[..n].to_vec()
            },
            || ours.write_all(b"ahoy").unwrap(),
        );
        assert_eq!(text, b"ahoy");
    });
}

#[test]
fn std_tcp_write_waits_for_its_reader() {
    on_both_drivers(|| {
        let (ours, mut theirs) = tcp_pair();
        let sent: Vec<u8> = (0..MUCH).map(|i| (i / 7) as u8).collect();
        let received = &mut Vec::new();
        waits_for(
            // One call: a blocking socket sends all bytes.
            || assert_eq!((&ours).write(&sent).unwrap(), MUCH),
            || {
                received.resize(MUCH, 0);
                theirs.read_exact(received).unwrap();
            },
        );
        assert!(*received == sent);
    });
}

#[test]
fn std_vectored_write_sends_everything() {
    on_both_drivers(|| {
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        let (one, two) = (vec![1; MUCH / 2 - 5], vec![2; MUCH / 2 + 5]);
        let slices = [std::io::IoSlice::new(&one), std::io::IoSlice::new(&two)];
        let mut received = vec![0; MUCH];
        waits_for(
            || assert_eq!((&ours).write_vectored(&slices).unwrap(), MUCH),
            || theirs.read_exact(&mut received).unwrap(),
        );
        assert!(received[..one.len()] == one && received[one.len()..] == two);
    });
}

#[test]
fn std_unix_sockets_wait_only_their_fiber() {
    on_both_drivers(|| {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("socket");
        let listener = UnixListener::bind(&path).unwrap();
        let mut client = None;
        let (mut theirs, _) = waits_for(
            || listener.accept().unwrap(),
            || client = Some(UnixStream::connect(&path).unwrap()),
        );
        let mut ours = client.unwrap();
        let mut buf = [0; 4];
        waits_for(|| theirs.read_exact(&mut buf).unwrap(), || ours.write_all(b"rope").unwrap());
        assert_eq!(&buf, b"rope");
    });
}

#[test]
fn std_datagrams_keep_their_sender() {
    on_both_drivers(|| {
        let (ours, theirs) =
            (UdpSocket::bind("127.0.0.1:0").unwrap(), UdpSocket::bind("127.0.0.1:0").unwrap());
        let mut buf = [0; 16];
        let (n, from) = waits_for(
            || theirs.recv_from(&mut buf).unwrap(),
            || assert_eq!(ours.send_to(b"ahoy", theirs.local_addr().unwrap()).unwrap(), 4),
        );
        assert_eq!((&buf[..n], from), (&b"ahoy"[..], ours.local_addr().unwrap()));
        let (ours, theirs) = UnixDatagram::pair().unwrap();
        let send = || assert_eq!(ours.send(b"!").unwrap(), 1);
        let n = waits_for(|| theirs.recv(&mut buf).unwrap(), send);
        assert_eq!(&buf[..n], b"!");
    });
}

#[test]
fn read_timeout_of_a_std_socket_holds() {
    on_both_drivers(|| {
        let (ours, _theirs) = tcp_pair();
        ours.set_read_timeout(Some(Duration::from_millis(30))).unwrap();
        let begun = Instant::now();
        let error = (&ours).read(&mut [0; 8]).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::WouldBlock);
        assert!(begun.elapsed() >= Duration::from_millis(30));
    });
}

/// Its timeout is looked up meanwhile.
#[test]
fn a_long_receive_is_one_op() {
    let entries = || cringle::runtime::stats().expect("within run").workers[0].entries.sum();
    on_both_drivers(|| {
        for timeout in [None, Some(Duration::from_secs(3600))] {
            let (ours, mut theirs) = tcp_pair();
            ours.set_read_timeout(timeout).unwrap();
            // The first op on a socket may also prepare it.
            theirs.write_all(b"x").unwrap();
            assert_eq!((&ours).read(&mut [0; 8]).unwrap(), 1);
            let before = entries();
            let write = || theirs.write_all(b"yz").unwrap();
            assert_eq!(waits_for(|| (&ours).read(&mut [0; 8]).unwrap(), write), 2);
            let made = entries() - before;
            assert!(made <= 1, "{made} entries of the ring");
        }
    });
}

/// Writes until an error, which must be `WouldBlock`, after some bytes were sent.
#[track_caller]
fn write_until_it_would_wait(mut stream: &TcpStream, buf: &[u8]) {
    let mut sent = 0;
    let error = loop {
        match stream.write(buf) {
            Ok(count) => sent += count,
            Err(e) => break e,
        }
    };
    assert!(sent > 0);
    assert_eq!(error.kind(), ErrorKind::WouldBlock);
}

#[test]
fn write_timeout_of_a_std_socket_holds() {
    on_both_drivers(|| {
        let (ours, _theirs) = tcp_pair();
        ours.set_write_timeout(Some(Duration::from_millis(30))).unwrap();
        // The kernel's buffers grow while the peer's side acknowledges.
        write_until_it_would_wait(&ours, &vec![0; MUCH]);
    });
}

#[test]
fn nonblocking_std_socket_does_not_wait() {
    on_both_drivers(|| {
        let (ours, _theirs) = tcp_pair();
        ours.set_nonblocking(true).unwrap();
        assert_eq!((&ours).read(&mut [0; 8]).unwrap_err().kind(), ErrorKind::WouldBlock);
        write_until_it_would_wait(&ours, &vec![0; 1 << 20]);
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        listener.set_nonblocking(true).unwrap();
        assert_eq!(listener.accept().unwrap_err().kind(), ErrorKind::WouldBlock);
    });
}

#[test]
fn closed_number_is_reported() {
    on_both_drivers(|| {
        let mut buf = [0; 8];
        // SAFETY: the buffer is borrowed for the call.
        let result = unsafe { libc::recv(-1, buf.as_mut_ptr().cast(), 8, 0) };
        assert_eq!(result, -1);
        assert_eq!(std::io::Error::last_os_error().raw_os_error(), Some(libc::EBADF));
        // SAFETY: as above.
        let result = unsafe { libc::read(12345, buf.as_mut_ptr().cast(), 8) };
        assert_eq!(result, -1);
        assert_eq!(std::io::Error::last_os_error().raw_os_error(), Some(libc::EBADF));
    });
}

#[test]
fn bad_address_is_reported() {
    on_both_drivers(|| {
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        theirs.write_all(b"data").unwrap();
        let nowhere = usize::MAX & !4095;
        // SAFETY: the address is not mapped, so no memory is written.
        let result = unsafe { libc::read(ours.as_raw_fd(), nowhere as *mut _, 8) };
        assert_eq!(result, -1);
        assert_eq!(std::io::Error::last_os_error().raw_os_error(), Some(libc::EFAULT));
    });
}

#[test]
fn success_leaves_errno_alone() {
    on_both_drivers(|| {
        let (mut ours, theirs) = tcp_pair();
        let errno = waits_for(
            || {
                let mut buf = [0; 8];
                // SAFETY: the buffer is borrowed for the call.
                unsafe {
                    *libc::__errno_location() = 77;
                    assert_eq!(libc::read(theirs.as_raw_fd(), buf.as_mut_ptr().cast(), 8), 1);
                    *libc::__errno_location()
                }
            },
            || {
                // SAFETY: the thread's own `errno`.
                unsafe { *libc::__errno_location() = 12 };
                ours.write_all(b"!").unwrap();
            },
        );
        assert_eq!(errno, 77);
    });
}

#[test]
fn cancelled_read_reports_the_cancel() {
    on_both_drivers(|| {
        let (ours, _theirs) = tcp_pair();
        fiber::scope(|s| {
            s.spawn(|| {
                let code = (&ours).read(&mut [0; 8]).unwrap_err().raw_os_error();
                assert_eq!(code, Some(libc::ECANCELED));
                for _ in 0..3000 {
                    // Refused, however often: it cannot be unwound.
                    let code = (&ours).read(&mut [0; 8]).unwrap_err().raw_os_error();
                    assert_eq!(code, Some(libc::ECANCELED));
                }
            });
            fiber::sleep(Duration::from_millis(1));
            s.cancel();
        });
        let late = cringle::time::timeout(Duration::from_millis(10), || (&ours).read(&mut [0; 8]));
        assert_eq!(late.unwrap_err().raw_os_error(), Some(libc::ETIMEDOUT));
    });
}
