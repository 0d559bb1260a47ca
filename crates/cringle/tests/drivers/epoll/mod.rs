//! The epoll driver: several fibers that wait for one descriptor, sockets that are non-blocking for
//! a while, files without `RWF_NOWAIT`, cancelled jobs of the pool.

mod jobs;
mod messages;

use cringle::block::{Batch, FixedBufs, FixedFile};
use cringle::fs::File;
use cringle::net::{MsgFlags, RecvAncillary, SendAncillary, TcpListener, TcpStream, UdpSocket};
use cringle::os::unix::net::{UnixDatagram, UnixListener, UnixStream};
use cringle::runtime::DriverChoice;
use cringle::{Builder, cancel, fiber, io, time};
use cringle_testing::terminal::terminal;
use std::io::{ErrorKind, IoSlice, IoSliceMut, Read, Write};
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::fs::FileExt;
use std::time::Duration;

fn on_epoll<T>(workers: usize, f: impl FnOnce() -> T) -> T {
    Builder::new().workers(workers).driver(DriverChoice::Epoll).run(f).unwrap()
}

fn is_nonblocking(fd: &impl AsRawFd) -> bool {
    // SAFETY: no pointers are passed.
    unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_GETFL) & libc::O_NONBLOCK != 0 }
}

fn let_others_wait() {
    (0..8).for_each(|_| fiber::yield_now());
}

// ----- many waits for one descriptor -----

#[test]
fn readers_of_one_pipe_are_served_in_order() {
    on_epoll(1, || {
        let (reader, mut writer) = io::pipe().unwrap();
        let (sender, results) = std::sync::mpsc::channel();
        fiber::scope(|s| {
            for n in 0..20 {
                let (reader, sender) = (&reader, sender.clone());
                s.spawn_local(move || {
                    let mut byte = [0];
                    (&mut &*reader).read_exact(&mut byte).unwrap();
                    sender.send((n, byte[0])).unwrap();
                });
                let_others_wait();
            }
            // First one byte at a time, then many at once.
            for byte in 0..5 {
                writer.write_all(&[byte]).unwrap();
                let_others_wait();
            }
            writer.write_all(&(5..20).collect::<Vec<u8>>()).unwrap();
        });
        let order: Vec<_> = results.try_iter().collect();
        assert_eq!(order, (0..20u8).map(|n| (n, n)).collect::<Vec<_>>());
    });
}

#[test]
fn reader_and_writer_of_one_socket_are_independent() {
    const BYTES: usize = 1 << 20;
    on_epoll(1, || {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let sum = |stream: &UnixStream| {
            let mut piece = vec![0; 5000];
            let mut sum = 0;
            loop {
                match (&mut &*stream).read(&mut piece).unwrap() {
                    0 => return sum,
                    count => sum += piece[..count].iter().map(|&byte| u64::from(byte)).sum::<u64>(),
                }
            }
        };
        fiber::scope(|s| {
            let readers = [&ours, &ours, &theirs].map(|stream| s.spawn_local(move || sum(stream)));
            let writers = [(&ours, 1), (&theirs, 1), (&theirs, 2)].map(|(stream, byte)| {
                s.spawn_local(move || (&mut &*stream).write_all(&vec![byte; BYTES]).unwrap())
            });
            writers.into_iter().for_each(|writer| writer.join().unwrap());
            ours.shutdown(cringle::net::Shutdown::Write).unwrap();
            theirs.shutdown(cringle::net::Shutdown::Write).unwrap();
            let [first, second, third] = readers.map(|reader| reader.join().unwrap());
            assert_eq!((first + second, third), (3 * BYTES as u64, BYTES as u64));
        });
    });
}

#[test]
fn cancelled_reader_leaves_the_middle_of_a_queue() {
    on_epoll(1, || {
        let (reader, mut writer) = io::pipe().unwrap();
        let read = || {
            let mut byte = [0];
            (&mut &reader).read_exact(&mut byte).map(|()| byte[0])
        };
        fiber::scope(|s| {
            let first = s.spawn_local(read);
            let_others_wait();
            let leaves = s.spawn_local(|| time::timeout(Duration::from_millis(5), read));
            let_others_wait();
            let last = s.spawn_local(read);
            assert_eq!(leaves.join().unwrap().unwrap_err().kind(), ErrorKind::TimedOut);
            writer.write_all(&[1, 2]).unwrap();
            assert_eq!(first.join().unwrap().unwrap(), 1);
            assert_eq!(last.join().unwrap().unwrap(), 2);
        });
    });
}

/// The number means another file, which the kernel does not watch yet.
#[test]
fn reused_descriptor_number_is_armed_anew() {
    on_epoll(1, || {
        let mut numbers = std::collections::BTreeSet::<RawFd>::new();
        for round in 0..50u8 {
            let (reader, mut writer) = io::pipe().unwrap();
            numbers.insert(reader.as_raw_fd());
            let read = || {
                let mut byte = [0];
                (&mut &reader).read_exact(&mut byte).map(|()| byte[0])
            };
            // The kernel still watches the descriptor, although no fiber waits for it.
            time::timeout(Duration::from_micros(200), read).unwrap_err();
            fiber::scope(|s| {
                let reads = s.spawn_local(read);
                let_others_wait();
                writer.write_all(&[round]).unwrap();
                assert_eq!(reads.join().unwrap().unwrap(), round);
            });
        }
        assert!(numbers.len() < 50, "descriptor numbers are reused");
    });
}

/// Unsafe code closes a descriptor under a fiber that waits for it. A fiber that uses the number
/// later still reaches its own file.
#[test]
fn closed_descriptor_does_not_block_its_successor() {
    on_epoll(1, || {
        let (doomed, _writer) = std::io::pipe().unwrap();
        let fd = OwnedFd::from(doomed).into_raw();
        // SAFETY: violated on purpose: the descriptor is closed below while it is borrowed.
        let stale = std::mem::ManuallyDrop::new(unsafe { File::from_raw_fd(fd) });
        fiber::scope(|s| {
            let robbed = s.spawn_local(|| (&*stale).read(&mut [0; 8]));
            let_others_wait();
            let (reader, mut writer) = std::io::pipe().unwrap();
            // SAFETY: both descriptors are open; the copy has the old number and is owned here.
            let reader = unsafe {
                assert_eq!(libc::dup2(reader.as_raw_fd(), fd), fd);
                File::from_raw_fd(fd)
            };
            let served = s.spawn_local(move || (&mut &reader).read(&mut [0; 8]));
            let_others_wait();
            // One byte for the fiber that waits for the old file, and one for the other.
            writer.write_all(&[1]).unwrap();
            while !robbed.is_finished() && !served.is_finished() {
                fiber::yield_now();
            }
            writer.write_all(&[1]).unwrap();
            assert_eq!(robbed.join().unwrap().unwrap(), 1);
            assert_eq!(served.join().unwrap().unwrap(), 1);
        });
    });
}

trait IntoRaw {
    fn into_raw(self) -> RawFd;
}

impl IntoRaw for OwnedFd {
    fn into_raw(self) -> RawFd {
        std::os::fd::IntoRawFd::into_raw_fd(self)
    }
}

// ----- sockets that are non-blocking for a while -----

#[test]
fn listener_blocks_again_after_accept() {
    let listener = on_epoll(1, || {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let addr = listener.local_addr().unwrap();
        fiber::scope(|s| {
            let waits = s.spawn_local(|| listener.accept().unwrap());
            let_others_wait();
            assert!(is_nonblocking(&listener));
            drop(TcpStream::connect(addr).unwrap());
            let (accepted, _) = waits.join().unwrap();
            assert!(!is_nonblocking(&accepted));
            assert!(!is_nonblocking(&listener));
            // Cancelled.
            time::timeout(Duration::from_millis(1), || listener.accept()).unwrap_err();
            assert!(!is_nonblocking(&listener));
        });
        listener
    });
    assert!(!is_nonblocking(&listener));
}

#[test]
fn connected_and_refused_sockets_block() {
    on_epoll(1, || {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let stream = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        assert!(!is_nonblocking(&stream));
        let path = std::env::temp_dir().join(format!("cringle-epoll-{}", std::process::id()));
        assert_eq!(UnixStream::connect(&path).unwrap_err().kind(), ErrorKind::NotFound);
    });
}

/// A thread without a fiber waits in `accept` as usual while a fiber waits, too.
#[test]
fn blocking_accept_beside_a_fiber_waits() {
    on_epoll(1, || {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let addr = listener.local_addr().unwrap();
        std::thread::scope(|threads| {
            fiber::scope(|s| {
                let fiber = s.spawn_local(|| listener.accept().map(drop));
                let_others_wait();
                assert!(is_nonblocking(&listener));
                let thread = threads.spawn(|| listener.accept().map(drop));
                // Usually until the thread got `EAGAIN` and waits; it may also arrive later.
                fiber::sleep(Duration::from_millis(20));
                let _both = [addr; 2].map(|addr| TcpStream::connect(addr).unwrap());
                fiber.join().unwrap().unwrap();
                fiber::unblock(|| thread.join().unwrap()).unwrap();
            });
        });
    });
}

/// A listener made from a clone of the descriptor meanwhile counts as blocking.
#[test]
fn clones_made_during_an_accept_wait_too() {
    on_epoll(2, || {
        let std = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let clone = std.try_clone().unwrap();
        let (ours, addr) = (TcpListener::from(std), clone.local_addr().unwrap());
        fiber::scope(|s| {
            let first = s.spawn_local(|| ours.accept().map(drop));
            let_others_wait();
            assert!(is_nonblocking(&ours));
            let second = fiber::Builder::new().worker(1);
            let second =
                second.spawn_scoped(s, move || TcpListener::from(clone).accept().map(drop));
            fiber::sleep(Duration::from_millis(5));
            let _both = [addr; 2].map(|addr| TcpStream::connect(addr).unwrap());
            first.join().unwrap().unwrap();
            second.unwrap().join().unwrap().unwrap();
        });
        assert!(!is_nonblocking(&ours));
    });
}

#[test]
fn set_nonblocking_during_accept_takes_effect() {
    on_epoll(1, || {
        let listener = UnixListener::bind_addr(&abstract_addr("sets")).unwrap();
        fiber::scope(|s| {
            let waits = s.spawn_local(|| listener.accept().map(drop));
            let_others_wait();
            listener.set_nonblocking(true).unwrap();
            drop(UnixStream::connect_addr(&abstract_addr("sets")).unwrap());
            waits.join().unwrap().unwrap();
        });
        assert!(is_nonblocking(&listener));
        assert_eq!(listener.accept().unwrap_err().kind(), ErrorKind::WouldBlock);
        listener.set_nonblocking(false).unwrap();
        assert!(!is_nonblocking(&listener));
    });
}

fn abstract_addr(name: &str) -> cringle::os::unix::net::SocketAddr {
    use std::os::linux::net::SocketAddrExt;
    let name = format!("cringle-epoll-{name}-{}", std::process::id());
    cringle::os::unix::net::SocketAddr::from_abstract_name(name).unwrap()
}

/// Many acceptors on several workers, of which none blocks its worker.
#[test]
fn racing_workers_do_not_block_in_accept() {
    const CONNECTIONS: usize = 300;
    on_epoll(3, || {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let addr = listener.local_addr().unwrap();
        let accepted = std::sync::atomic::AtomicUsize::new(0);
        fiber::scope(|s| {
            for n in 0..9 {
                let (listener, accepted) = (listener.try_clone().unwrap(), &accepted);
                let acceptor = fiber::Builder::new().worker(n % 3);
                let accept_all = move || {
                    while let Ok((mut stream, _)) = listener.accept() {
                        stream.write_all(b"!").unwrap();
                        if accepted.fetch_add(1, std::sync::atomic::Ordering::Relaxed) + 1
                            == CONNECTIONS
                        {
                            s.cancel();
                        }
                    }
                };
                acceptor.spawn_scoped(s, accept_all).unwrap();
            }
            fiber::protect(|| {
                for _ in 0..CONNECTIONS {
                    TcpStream::connect(addr).unwrap().read_exact(&mut [0]).unwrap();
                }
            });
        });
        assert_eq!(accepted.into_inner(), CONNECTIONS);
        assert!(!is_nonblocking(&listener));
    });
}

// ----- waits without an event -----

/// No event reports that the queue of a Unix listener has room again.
#[test]
fn connect_waits_for_a_full_unix_listener() {
    on_epoll(1, || {
        let addr = abstract_addr("full");
        let socket =
            socket2::Socket::new(socket2::Domain::UNIX, socket2::Type::STREAM, None).unwrap();
        let raw = std::os::linux::net::SocketAddrExt::as_abstract_name(&addr).unwrap();
        let path = std::ffi::OsStr::new(std::str::from_utf8(raw).unwrap());
        let mut name = std::ffi::OsString::from("\0");
        name.push(path);
        socket.bind(&socket2::SockAddr::unix(name).unwrap()).unwrap();
        socket.listen(1).unwrap();
        let listener = UnixListener::from(OwnedFd::from(socket));
        fiber::scope(|s| {
            let all: Vec<_> =
                (0..6).map(|_| s.spawn_local(|| UnixStream::connect_addr(&addr))).collect();
            let_others_wait();
            let late = time::timeout(Duration::from_millis(10), || UnixStream::connect_addr(&addr));
            assert_eq!(late.unwrap_err().kind(), ErrorKind::TimedOut);
            assert!(
                all.iter().any(|connects| !connects.is_finished()),
                "the queue has room for all"
            );
            let _accepted = (0..6).map(|_| listener.accept().unwrap()).collect::<Vec<_>>();
            all.into_iter().for_each(|connects| drop(connects.join().unwrap().unwrap()));
        });
    });
}

/// The sender's socket is always writable.
#[test]
fn datagram_waits_for_room_at_its_receiver() {
    on_epoll(1, || {
        let addr = abstract_addr("datagrams");
        let receiver = UnixDatagram::bind_addr(&addr).unwrap();
        let sender = UnixDatagram::unbound().unwrap();
        fiber::scope(|s| {
            let sends = s.spawn_local(|| {
                (0..100u8).for_each(|n| assert_eq!(sender.send_to_addr(&[n], &addr).unwrap(), 1));
            });
            fiber::sleep(Duration::from_millis(5));
            assert!(!sends.is_finished(), "the receiver has room for all");
            for n in 0..100 {
                let mut byte = [0];
                receiver.recv(&mut byte).unwrap();
                assert_eq!(byte[0], n);
            }
        });
    });
}

/// They do not support `RWF_NOWAIT`: the driver calls `poll(2)` first.
#[test]
fn only_the_fiber_waits_for_fifos_and_terminals() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("fifo");
    let name = std::ffi::CString::new(path.as_os_str().as_encoded_bytes()).unwrap();
    // SAFETY: the path is a C string, which is borrowed for the call.
    assert_eq!(unsafe { libc::mkfifo(name.as_ptr(), 0o600) }, 0);
    let both = std::fs::File::options().read(true).write(true).open(&path).unwrap();
    let (master, slave) = terminal();
    on_epoll(1, || {
        talk(File::from(both.try_clone().unwrap()), File::from(both));
        // A typed line is read by a fiber, and a fiber's line appears on the terminal.
        talk(File::from(slave.try_clone().unwrap()), File::from(master.try_clone().unwrap()));
    });
}

fn talk(reader: File, writer: File) {
    fiber::scope(|s| {
        let reads = s.spawn_local(|| {
            let mut line = [0; 5];
            (&mut &reader).read_exact(&mut line).map(|()| line)
        });
        let given_up = time::timeout(Duration::from_millis(2), || {
            fiber::scope(|inner| {
                inner.spawn_local(|| (&mut &reader).read(&mut [0; 5])).join().unwrap()
            })
        });
        assert_eq!(given_up.unwrap_err().kind(), ErrorKind::TimedOut);
        assert!(!reads.is_finished());
        (&mut &writer).write_all(b"ahoy\n").unwrap();
        assert_eq!(&reads.join().unwrap().unwrap(), b"ahoy\n");
    });
}

/// The bytes arrive in order.
#[test]
fn writer_waits_for_a_full_fifo() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("fifo");
    let name = std::ffi::CString::new(path.as_os_str().as_encoded_bytes()).unwrap();
    // SAFETY: the path is a C string, which is borrowed for the call.
    assert_eq!(unsafe { libc::mkfifo(name.as_ptr(), 0o600) }, 0);
    let both = std::fs::File::options().read(true).write(true).open(&path).unwrap();
    let bytes: Vec<u8> = (0..300_000u32).map(|n| (n % 251) as u8).collect();
    on_epoll(1, || {
        let (reader, writer) = (File::from(both.try_clone().unwrap()), File::from(both));
        fiber::scope(|s| {
            let writes = s.spawn_local(|| (&mut &writer).write_all(&bytes).unwrap());
            fiber::sleep(Duration::from_millis(2));
            assert!(!writes.is_finished(), "the FIFO holds all bytes");
            let mut read = vec![0; bytes.len()];
            (&mut &reader).read_exact(&mut read).unwrap();
            assert!(read == bytes);
        });
    });
}
