//! The ends of connections: results that a driver could take from the program.

use crate::common::{on_both_drivers, waits_for};
use libc::*;
use std::io::Read;
use std::net::{SocketAddr, TcpListener};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicI32, Ordering};

fn errno() -> i32 {
    std::io::Error::last_os_error().raw_os_error().unwrap()
}

fn stream_socket() -> OwnedFd {
    // SAFETY: the descriptor is new.
    unsafe { OwnedFd::from_raw_fd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) }
}

fn address(listener: &TcpListener) -> sockaddr_in {
    let SocketAddr::V4(address) = listener.local_addr().unwrap() else { unreachable!() };
    // SAFETY: all-zero integers are valid.
    let mut raw: sockaddr_in = unsafe { std::mem::zeroed() };
    raw.sin_family = AF_INET as sa_family_t;
    raw.sin_port = address.port().to_be();
    raw.sin_addr.s_addr = u32::from_ne_bytes(address.ip().octets());
    raw
}

/// Connects, and returns 0 or the error.
fn connect_to(socket: RawFd, address: &sockaddr_in) -> i32 {
    // SAFETY: the address is borrowed for the call.
    match unsafe { connect(socket, std::ptr::from_ref(address).cast(), 16) } {
        0 => 0,
        _ => errno(),
    }
}

#[test]
fn second_connect_fails_as_on_a_thread() {
    on_both_drivers(|| {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let (socket, there) = (stream_socket(), address(&listener));
        let both = [(); 2].map(|()| connect_to(socket.as_raw_fd(), &there));
        assert_eq!(both, [0, EISCONN]);
        drop(listener);
        let socket = stream_socket();
        let both = [(); 2].map(|()| connect_to(socket.as_raw_fd(), &there));
        assert_eq!(both, [ECONNREFUSED; 2]);
    });
}

static SIGNALLED: AtomicI32 = AtomicI32::new(0);
static WORKER: AtomicI32 = AtomicI32::new(0);

extern "C" fn count_signal(_: c_int) {
    // SAFETY: no pointers.
    if unsafe { gettid() } == WORKER.load(Ordering::SeqCst) {
        SIGNALLED.fetch_add(1, Ordering::SeqCst);
    }
}

#[test]
fn write_cut_short_raises_no_signal() {
    // SAFETY: the handler is async-signal-safe. Other tests ignore the signal, as it does.
    unsafe { signal(SIGPIPE, count_signal as *const () as sighandler_t) };
    on_both_drivers(|| {
        // SAFETY: no pointers.
        WORKER.store(unsafe { gettid() }, Ordering::SeqCst);
        SIGNALLED.store(0, Ordering::SeqCst);
        let (ours, theirs) = UnixStream::pair().unwrap();
        let much = vec![0u8; 4 << 20];
        // SAFETY: the buffer is borrowed for the call.
        let write = |len| unsafe { write(ours.as_raw_fd(), much.as_ptr().cast(), len) };
        let count = waits_for(|| write(much.len()), || drop(theirs));
        assert!(count > 0 && (count as usize) < much.len());
        assert_eq!(SIGNALLED.load(Ordering::SeqCst), 0);
        assert_eq!((write(1), errno()), (-1, EPIPE));
        assert_eq!(SIGNALLED.load(Ordering::SeqCst), 1);
    });
}

/// Connects by the first bytes; returns the number of bytes or the error, and whether they arrive.
fn connect_by_data() -> (isize, bool) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let (socket, there) = (stream_socket(), address(&listener));
    let there = (&raw const there).cast();
    let sent = vec![7u8; 100_000];
    // SAFETY: the variables are borrowed for the call.
    let count = unsafe {
        sendto(socket.as_raw_fd(), sent.as_ptr().cast(), sent.len(), MSG_FASTOPEN, there, 16)
    };
    let count = if count < 0 { -errno() as isize } else { count };
    drop(socket);
    let mut received = Vec::new();
    if count > 0 {
        listener.accept().unwrap().0.read_to_end(&mut received).unwrap();
    }
    (count, received == sent)
}

#[test]
fn data_that_connects_is_sent_as_on_a_thread() {
    let expected = connect_by_data();
    on_both_drivers(|| assert_eq!(connect_by_data(), expected));
}

#[test]
fn poll_takes_all_events_of_a_repeated_number() {
    on_both_drivers(|| {
        let (ours, _theirs) = UnixStream::pair().unwrap();
        let (reader, writer) = std::io::pipe().unwrap();
        let (none, pri) = (0, POLLPRI);
        let each = [
            (reader.as_raw_fd(), none),
            (ours.as_raw_fd(), pri),
            (-1, POLLIN),
            (reader.as_raw_fd(), POLLIN),
            (ours.as_raw_fd(), none),
        ];
        let mut all: Vec<pollfd> = each
            .iter()
            .cycle()
            .take(each.len() * 100)
            .map(|&(fd, events)| pollfd { fd, events, revents: 0 })
            .collect();
        let count = waits_for(
            // SAFETY: the array is borrowed for the call.
            || unsafe { poll(all.as_mut_ptr(), all.len() as nfds_t, -1) },
            || std::io::Write::write_all(&mut &writer, b"!").unwrap(),
        );
        assert_eq!(count, 100);
        assert!(
            all.iter().all(|one| (one.revents == POLLIN) == (one.events == POLLIN && one.fd >= 0))
        );
    });
}

unsafe extern "C" {
    fn pthread_once(control: *mut c_int, routine: extern "C" fn()) -> c_int;
}

static PARENT: AtomicI32 = AtomicI32::new(0);
/// 1: the parent's routine runs; 2: it may end.
static STEP: AtomicI32 = AtomicI32::new(0);

extern "C" fn initialize() {
    // SAFETY: no pointers.
    if unsafe { getpid() } != PARENT.load(Ordering::SeqCst) {
        return;
    }
    STEP.store(1, Ordering::SeqCst);
    while STEP.load(Ordering::SeqCst) != 2 {
        std::thread::yield_now();
    }
}

#[test]
fn forked_child_initializes_again() {
    // SAFETY: no pointers.
    PARENT.store(unsafe { getpid() }, Ordering::SeqCst);
    on_both_drivers(|| {
        STEP.store(0, Ordering::SeqCst);
        let control = AtomicI32::new(0);
        // SAFETY: the control block outlives the call.
        let once = || unsafe { pthread_once(control.as_ptr(), initialize) };
        std::thread::scope(|s| {
            s.spawn(once);
            while STEP.load(Ordering::SeqCst) != 1 {
                std::thread::yield_now();
            }
            // SAFETY: the child makes calls that need no other thread.
            let child = unsafe {
                let child = fork();
                if child == 0 {
                    alarm(60);
                    once();
                    _exit(if control.load(Ordering::SeqCst) == 2 { 7 } else { 8 });
                }
                child
            };
            let mut status = 0;
            // SAFETY: the status is borrowed for the call.
            assert_eq!(unsafe { waitpid(child, &mut status, 0) }, child);
            STEP.store(2, Ordering::SeqCst);
            assert!(WIFEXITED(status) && WEXITSTATUS(status) == 7, "{status:x}");
        });
        assert_eq!(control.load(Ordering::SeqCst), 2);
    });
}
