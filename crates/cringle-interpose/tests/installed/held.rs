//! What a call does with its file after a wait, when another thread has closed the descriptor
//! meanwhile, or has given it another file.

use crate::closed::{WAYS, close_number, far_away};
use crate::common::{on_both_drivers, waits_for, waits_until_timeout};
use cringle::fiber;
use cringle_testing::child;
use libc::*;
use std::io::{Error, Read, Write};
use std::net::UdpSocket;
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

const TIMEOUT: Duration = Duration::from_millis(100);

/// Receives once by `recv`. The error is `errno`.
fn receive(fd: RawFd, flags: c_int) -> Result<Vec<u8>, i32> {
    let mut buf = [0u8; 8];
    // SAFETY: the buffer is borrowed for the call.
    let count = unsafe { recv(fd, buf.as_mut_ptr().cast(), buf.len(), flags) };
    received(count, &buf)
}

fn received(count: isize, buf: &[u8]) -> Result<Vec<u8>, i32> {
    match usize::try_from(count) {
        Ok(count) => Ok(buf[..count].to_vec()),
        Err(_) => Err(Error::last_os_error().raw_os_error().unwrap()),
    }
}

/// The last chance to look the timeout up is before the close.
#[test]
fn timeout_ends_wait_for_closed_descriptor() {
    on_both_drivers(|| {
        for way in WAYS {
            let (ours, _theirs) = UnixStream::pair().unwrap();
            ours.set_read_timeout(Some(TIMEOUT)).unwrap();
            let fd = far_away(ours, 540);
            let begun = AtomicBool::new(false);
            fiber::scope(|s| {
                let waiter = s.spawn(|| {
                    begun.store(true, Ordering::SeqCst);
                    receive(fd, 0)
                });
                while !begun.load(Ordering::SeqCst) {
                    fiber::yield_now();
                }
                (0..4).for_each(|_| fiber::yield_now());
                way(fd);
                // A worker that was slow to submit the wait has found the number closed.
                let result = waiter.join().unwrap();
                assert!(matches!(result, Err(EAGAIN | EBADF | ENOTSOCK)), "{result:?}");
            });
            // SAFETY: no pointers; the test owns the number. One of the ways has closed it not.
            unsafe { close(fd) };
        }
    });
}

#[test]
fn timed_out_call_leaves_next_file_alone() {
    on_both_drivers(|| {
        for flags in [0, MSG_WAITALL, MSG_PEEK | MSG_WAITALL] {
            let (ours, _theirs) = UnixStream::pair().unwrap();
            let (mut next, mut next_theirs) = UnixStream::pair().unwrap();
            next_theirs.write_all(b"next").unwrap();
            ours.set_read_timeout(Some(TIMEOUT)).unwrap();
            let fd = far_away(ours, 541);
            let replace = || {
                // SAFETY: no pointers; the test owns both numbers.
                assert_eq!(unsafe { dup2(next.as_raw_fd(), fd) }, fd);
            };
            assert_eq!(waits_until_timeout(|| receive(fd, flags), replace), Err(EAGAIN));
            let mut buf = [0; 4];
            next.read_exact(&mut buf).unwrap();
            assert_eq!(&buf, b"next");
            close_number(fd);
        }
    });
}

type Receive = fn(RawFd) -> Result<Vec<u8>, i32>;

/// Receives a datagram in several ways.
const CALLS: [Receive; 4] = [
    |fd| receive(fd, 0),
    |fd| {
        // SAFETY: all zeros are an address; the variables are borrowed for the call.
        unsafe {
            let (mut buf, mut addr): (_, sockaddr_in) = ([0u8; 8], std::mem::zeroed());
            let mut len = size_of_val(&addr) as socklen_t;
            let to = (&raw mut addr).cast();
            let count = recvfrom(fd, buf.as_mut_ptr().cast(), 8, 0, to, &mut len);
            let is_whole = len as usize == size_of_val(&addr);
            assert!(count < 0 || is_whole && addr.sin_family == AF_INET as u16);
            received(count, &buf)
        }
    },
    |fd| {
        let mut buf = [0u8; 8];
        let mut message = header(&mut iovec { iov_base: buf.as_mut_ptr().cast(), iov_len: 8 });
        // SAFETY: the message and its buffer are borrowed for the call.
        let count = unsafe { recvmsg(fd, &mut message, 0) };
        received(count, &buf)
    },
    |fd| {
        let mut buf = [0u8; 8];
        let mut slice = iovec { iov_base: buf.as_mut_ptr().cast(), iov_len: 8 };
        let mut message = mmsghdr { msg_hdr: header(&mut slice), msg_len: 0 };
        // SAFETY: the message and its buffer are borrowed for the call.
        let count = unsafe { recvmmsg(fd, &mut message, 1, 0, std::ptr::null_mut()) };
        received(if count == 1 { message.msg_len as isize } else { -1 }, &buf)
    },
];

fn header(slice: *mut iovec) -> msghdr {
    // SAFETY: all zeros are a message.
    let mut message: msghdr = unsafe { std::mem::zeroed() };
    (message.msg_iov, message.msg_iovlen) = (slice, 1);
    message
}

#[test]
fn datagram_arrives_at_file_of_closed_descriptor() {
    on_both_drivers(|| {
        for call in CALLS {
            for way in WAYS {
                let (ours, theirs) =
                    (UdpSocket::bind("127.0.0.1:0"), UdpSocket::bind("127.0.0.1:0"));
                let (ours, theirs) = (ours.unwrap(), theirs.unwrap());
                theirs.connect(ours.local_addr().unwrap()).unwrap();
                let fd = far_away(ours, 542);
                let close_and_send = || {
                    way(fd);
                    theirs.send(b"right").unwrap();
                };
                assert_eq!(waits_for(|| call(fd), close_and_send), Ok(b"right".to_vec()));
                // SAFETY: no pointers; the test owns the number. One of the ways has closed it not.
                unsafe { close(fd) };
            }
        }
    });
}

#[test]
fn datagram_of_next_file_is_not_received() {
    on_both_drivers(|| {
        for call in CALLS {
            let [ours, next, theirs] = [(); 3].map(|()| UdpSocket::bind("127.0.0.1:0").unwrap());
            let addr = ours.local_addr().unwrap();
            theirs.send_to(b"wrong", next.local_addr().unwrap()).unwrap();
            let fd = far_away(ours, 543);
            let replace_and_send = || {
                // SAFETY: no pointers; the test owns both numbers.
                assert_eq!(unsafe { dup2(next.as_raw_fd(), fd) }, fd);
                theirs.send_to(b"right", addr).unwrap();
            };
            assert_eq!(waits_for(|| call(fd), replace_and_send), Ok(b"right".to_vec()));
            assert_eq!(next.recv(&mut [0; 8]).unwrap(), 5);
            close_number(fd);
        }
    });
}

/// A ring holds the file of its op by itself. Without one, the call must not wait for ever.
#[test]
fn closed_wait_without_number_for_duplicate_ends() {
    child::must_succeed("closed_wait_without_number_for_duplicate_ends", close_at_limit);
}

fn close_at_limit() {
    on_both_drivers(|| {
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        let fd = far_away(ours, 545);
        let close_and_send = || {
            let mut limit = rlimit { rlim_cur: 0, rlim_max: 0 };
            // SAFETY: the structures are borrowed for the calls.
            unsafe {
                assert_eq!(getrlimit(RLIMIT_NOFILE, &mut limit), 0);
                assert_eq!(setrlimit(RLIMIT_NOFILE, &rlimit { rlim_cur: 0, ..limit }), 0);
                close_number(fd);
                assert_eq!(setrlimit(RLIMIT_NOFILE, &limit), 0);
            }
            // Without a ring, the file is closed.
            let _ = theirs.write_all(b"now");
        };
        let result = waits_for(|| receive(fd, 0), close_and_send);
        assert!(result == Ok(b"now".to_vec()) || result == Err(EBADF), "{result:?}");
    });
}

/// What arrives at the old file no longer wakes the fiber, but it does not sleep for ever.
#[test]
fn poll_of_two_reports_closed_descriptor() {
    on_both_drivers(|| {
        let (ours, _theirs) = UnixStream::pair().unwrap();
        let (other, _other_theirs) = UnixStream::pair().unwrap();
        let fd = far_away(ours, 544);
        let wait = || {
            let wanted = |fd| pollfd { fd, events: POLLIN, revents: 0 };
            let mut set = [wanted(fd), wanted(other.as_raw_fd())];
            // SAFETY: the array is borrowed for the call.
            let count = unsafe { poll(set.as_mut_ptr(), 2, -1) };
            (count, set[0].revents)
        };
        assert_eq!(waits_for(wait, || close_number(fd)), (1, POLLNVAL));
    });
}
