//! Receives that wait for a whole buffer, and waits for descriptors that never become ready: on a
//! thread and on fibers.

use crate::common::on_both_drivers;
use libc::*;
use std::io::Write;
use std::net::{TcpListener, TcpStream};
use std::os::fd::AsRawFd;
use std::ptr::{null_mut, without_provenance_mut};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// A peer's parts of `abcdefghi`.
const PARTS: [&[u8]; 3] = [b"abc", b"def", b"ghi"];

/// Receives nine bytes, of which three have arrived before.
fn receive(call: impl FnOnce(c_int, &mut [u8; 9]) -> isize) -> (isize, [u8; 9]) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (server, _) = listener.accept().unwrap();
    server.set_read_timeout(Some(Duration::from_secs(3600))).unwrap();
    client.write_all(PARTS[0]).unwrap();
    let peer = std::thread::spawn(move || {
        for part in &PARTS[1..] {
            std::thread::sleep(Duration::from_millis(10));
            client.write_all(part).unwrap();
        }
        client
    });
    let mut buf = [b'.'; 9];
    let count = call(server.as_raw_fd(), &mut buf);
    peer.join().unwrap();
    (count, buf)
}

/// # Safety
///
/// The calls' contracts: all memory is this function's.
unsafe fn receive_all(flags: c_int) -> [(isize, [u8; 9]); 3] {
    let flags = flags | MSG_WAITALL;
    // SAFETY: by the contract.
    unsafe {
        [
            receive(|fd, buf| recv(fd, buf.as_mut_ptr().cast(), 9, flags)),
            receive(|fd, buf| {
                let mut addr: sockaddr_storage = std::mem::zeroed();
                let mut len = size_of_val(&addr) as socklen_t;
                let addr = (&raw mut addr).cast();
                recvfrom(fd, buf.as_mut_ptr().cast(), 9, flags, addr, &mut len)
            }),
            receive(|fd, buf| {
                let mut slice = iovec { iov_base: buf.as_mut_ptr().cast(), iov_len: 9 };
                let mut message: msghdr = std::mem::zeroed();
                (message.msg_iov, message.msg_iovlen) = (&raw mut slice, 1);
                recvmsg(fd, &mut message, flags)
            }),
        ]
    }
}

#[test]
fn a_receive_of_a_whole_buffer_neither_stops_short_nor_repeats_what_it_peeks_at() {
    let whole = (9, *b"abcdefghi");
    on_both_drivers(|| {
        for flags in [0, MSG_PEEK] {
            // SAFETY: the contract of `receive_all`.
            assert_eq!(unsafe { receive_all(flags) }, [whole; 3], "flags {flags:#x}");
        }
        // What is left out is counted.
        let left_out = receive(|fd, buf| {
            // SAFETY: the contract of `recv`.
            unsafe { recv(fd, buf.as_mut_ptr().cast(), 9, MSG_WAITALL | MSG_TRUNC) }
        });
        assert_eq!(left_out, (9, [b'.'; 9]));
    });
}

#[test]
fn a_peek_at_a_whole_buffer_ends_with_its_stream() {
    on_both_drivers(|| {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (server, _) = listener.accept().unwrap();
        client.write_all(PARTS[0]).unwrap();
        drop(client);
        let mut buf = [b'.'; 9];
        // SAFETY: the contract of `recv`.
        let count =
            unsafe { recv(server.as_raw_fd(), buf.as_mut_ptr().cast(), 9, MSG_PEEK | MSG_WAITALL) };
        assert_eq!((count, &buf), (3, b"abc......"));
    });
}

#[test]
fn a_file_without_the_event_is_never_ready() {
    on_both_drivers(|| {
        for path in [c"/dev/null", c"/etc/passwd"] {
            // SAFETY: the contracts of the calls: all memory is this function's.
            unsafe {
                let fd = open(path.as_ptr(), O_RDONLY);
                let begun = Instant::now();
                let mut one = pollfd { fd, events: POLLPRI, revents: 7 };
                assert_eq!((poll(&mut one, 1, 20), one.revents), (0, 0));
                let mut set: fd_set = std::mem::zeroed();
                FD_SET(fd, &mut set);
                let mut time = timeval { tv_sec: 0, tv_usec: 20_000 };
                assert_eq!(select(fd + 1, null_mut(), null_mut(), &mut set, &mut time), 0);
                assert!(!FD_ISSET(fd, &set) && begun.elapsed() >= Duration::from_millis(40));
                close(fd);
            }
        }
    });
}

/// The sets lie before a page that is not mapped: nothing behind them is read or written.
#[test]
fn select_accepts_a_limit_of_descriptors_beyond_its_sets() {
    let page = 4096;
    // SAFETY: the contracts of the calls: the mapping is this function's.
    let set = unsafe {
        let (protection, flags) = (PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS);
        let at = mmap(null_mut(), 2 * page, protection, flags, -1, 0);
        assert_ne!(at, MAP_FAILED);
        assert_eq!(mprotect(at.byte_add(page), page, PROT_NONE), 0);
        at.byte_add(page - size_of::<fd_set>()).expose_provenance()
    };
    on_both_drivers(|| {
        let set = std::ptr::with_exposed_provenance_mut::<fd_set>(set);
        let (mut writer, reader) = std::os::unix::net::UnixStream::pair().unwrap();
        let begun = AtomicBool::new(false);
        cringle::fiber::scope(|s| {
            s.spawn(|| {
                while !begun.load(Ordering::SeqCst) {
                    cringle::fiber::yield_now();
                }
                cringle::fiber::sleep(Duration::from_millis(5));
                writer.write_all(b"x").unwrap();
            });
            // SAFETY: the contracts of the calls: the set is this test's, and mapped.
            unsafe {
                set.write(std::mem::zeroed());
                FD_SET(reader.as_raw_fd(), &mut *set);
                begun.store(true, Ordering::SeqCst);
                let count = select(1 << 20, set, null_mut(), null_mut(), null_mut());
                assert_eq!((count, FD_ISSET(reader.as_raw_fd(), set)), (1, true));
            }
        });
    });
    // SAFETY: the mapping is this test's.
    unsafe {
        let end = without_provenance_mut::<c_void>(set + size_of::<fd_set>());
        assert_eq!(munmap(end.byte_sub(page), 2 * page), 0);
    }
}
