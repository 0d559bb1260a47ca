//! Descriptors that another thread closes, or gives another file, while a fiber waits for them: as
//! a thread does, the fiber receives what arrives at the file later.

use crate::common::{on_both_drivers, on_one_and_two_workers, waits_for};
use cringle::fiber;
use cringle_testing::child;
use libc::*;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::{AsRawFd, FromRawFd, IntoRawFd, RawFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering, Ordering::SeqCst};

/// Calls `f` on a thread, and waits for it.
fn on_a_thread(f: impl FnOnce() + Send) {
    std::thread::scope(|s| {
        s.spawn(f);
    });
}

pub(crate) fn close_number(fd: RawFd) {
    // SAFETY: no pointers; the test owns the number.
    assert_eq!(unsafe { close(fd) }, 0);
}

/// Moves a descriptor to a number that no other test of this process gets.
pub(crate) fn far_away(fd: impl IntoRawFd, number: RawFd) -> RawFd {
    let fd = fd.into_raw_fd();
    // SAFETY: no pointers; the test owns the first number, and the second is free.
    unsafe {
        assert_eq!(fcntl(number, F_GETFD), -1, "the number is in use");
        assert_eq!(dup2(fd, number), number);
        assert_eq!(close(fd), 0);
    }
    number
}

/// Receives at most three bytes.
fn receive(fd: RawFd) -> Vec<u8> {
    let mut buf = [0u8; 3];
    // SAFETY: the buffer is borrowed for the call.
    let count = unsafe { recv(fd, buf.as_mut_ptr().cast(), buf.len(), 0) };
    assert!(count >= 0, "{}", std::io::Error::last_os_error());
    buf[..count as usize].to_vec()
}

/// Ways in which a number stops to name its file.
pub(crate) const WAYS: [fn(RawFd); 4] = [
    |fd| on_a_thread(|| close_number(fd)),
    close_number,
    |fd| {
        let other = std::fs::File::open("/dev/null").unwrap();
        // SAFETY: no pointers; the test owns the number.
        assert_eq!(unsafe { dup2(other.as_raw_fd(), fd) }, fd);
    },
    // SAFETY: no pointers; the test owns the number.
    |fd| assert_eq!(unsafe { close_range(fd as u32, fd as u32, 0) }, 0),
];

#[test]
fn recv_continues_when_its_descriptor_is_closed() {
    on_both_drivers(|| {
        for way in WAYS {
            let (ours, mut theirs) = UnixStream::pair().unwrap();
            let fd = far_away(ours, 500);
            let text = waits_for(
                || receive(fd),
                || {
                    way(fd);
                    theirs.write_all(b"now").unwrap();
                },
            );
            assert_eq!(text, b"now");
            // The file is closed with its last wait.
            assert_eq!(theirs.read(&mut [0]).unwrap(), 0);
            // SAFETY: no pointers; the test owns the number. One of the ways has closed it not.
            unsafe { close(fd) };
        }
    });
}

/// The program does not own the numbers of duplicates.
#[test]
fn recv_continues_when_a_range_with_its_duplicate_is_closed() {
    on_both_drivers(|| {
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        let fd = far_away(ours, 505);
        let link = |fd: RawFd| std::fs::read_link(format!("/proc/self/fd/{fd}")).ok();
        let file = link(fd);
        let (mut closed, mut kept) = (-1, None);
        let text = waits_for(
            || receive(fd),
            || {
                close_number(fd);
                if let Some(duplicate) = (3..fd).find(|&fd| link(fd) == file) {
                    // SAFETY: no pointers; the number is the duplicate's.
                    closed = unsafe { close_range(duplicate as u32, duplicate as u32, 0) };
                    kept = link(duplicate);
                }
                theirs.write_all(b"now").unwrap();
            },
        );
        assert_eq!((closed, kept), (0, file));
        assert_eq!(text, b"now");
        // The file is closed with its last wait.
        assert_eq!(theirs.read(&mut [0]).unwrap(), 0);
    });
}

#[test]
fn each_wait_continues_when_its_descriptor_is_closed() {
    on_both_drivers(|| {
        let (mut reader, writer) = std::io::pipe().unwrap();
        let fd = far_away(writer, 510);
        // SAFETY: no pointers.
        unsafe { fcntl(fd, F_SETPIPE_SZ, 4096) };
        let write = || {
            // SAFETY: the buffer is borrowed for the call.
            unsafe { write(fd, [7u8; 8192].as_ptr().cast(), 8192) }
        };
        let mut all = [0; 8192];
        let written = waits_for(write, || {
            close_number(fd);
            reader.read_exact(&mut all).unwrap();
        });
        assert_eq!((written, all), (8192, [7; 8192]));

        let (reader, mut writer) = std::io::pipe().unwrap();
        let fd = far_away(reader, 511);
        let mut buf = [0u8; 8];
        let count = waits_for(
            // SAFETY: the buffer is borrowed for the call.
            || unsafe { read(fd, buf.as_mut_ptr().cast(), 8) },
            || {
                close_number(fd);
                writer.write_all(b"pipe").unwrap();
            },
        );
        assert_eq!(&buf[..count as usize], b"pipe");

        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("socket");
        let fd = far_away(UnixListener::bind(&path).unwrap(), 512);
        let mut client = None;
        let accepted = waits_for(
            // SAFETY: null is allowed.
            || unsafe { accept(fd, std::ptr::null_mut(), std::ptr::null_mut()) },
            || {
                close_number(fd);
                client = Some(UnixStream::connect(&path).unwrap());
            },
        );
        assert!(accepted >= 0, "{}", std::io::Error::last_os_error());
        // SAFETY: the descriptor is new.
        let mut accepted = unsafe { UnixStream::from_raw_fd(accepted) };
        accepted.write_all(b"!").unwrap();
        client.unwrap().read_exact(&mut [0]).unwrap();
    });
}

/// The next file may get the number at once, and fibers may wait for it, too.
#[test]
fn waits_for_two_files_of_one_number_stay_apart() {
    on_both_drivers(|| {
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        let (next, mut next_theirs) = UnixStream::pair().unwrap();
        let fd = far_away(ours, 520);
        let waiting = &AtomicUsize::new(0);
        fiber::scope(|s| {
            let wait = move || {
                waiting.fetch_add(1, Ordering::SeqCst);
                receive(fd)
            };
            let wait_until = |count| {
                while waiting.load(Ordering::SeqCst) < count {
                    fiber::yield_now();
                }
                (0..3).for_each(|_| fiber::sleep(std::time::Duration::from_millis(1)));
            };
            let old = [s.spawn(wait), s.spawn(wait)];
            wait_until(2);
            // SAFETY: no pointers; the test owns the number.
            on_a_thread(|| assert_eq!(unsafe { dup2(next.as_raw_fd(), fd) }, fd));
            let new = s.spawn(wait);
            wait_until(3);
            next_theirs.write_all(b"new").unwrap();
            assert_eq!(new.join().unwrap(), b"new");
            assert!(old.iter().all(|one| !one.is_finished()));
            theirs.write_all(b"oneold").unwrap();
            let mut got = old.map(|one| one.join().unwrap());
            got.sort();
            assert_eq!(got, [b"old", b"one"]);
        });
        assert_eq!(theirs.read(&mut [0]).unwrap(), 0);
        close_number(fd);
    });
}

/// A fiber that begins to wait while a thread closes the number gets the bytes or an error.
#[test]
fn receive_ends_whenever_its_number_is_closed() {
    const ROUNDS: usize = 300;
    on_one_and_two_workers(|| {
        for round in 0..ROUNDS {
            let (ours, mut theirs) = UnixStream::pair().unwrap();
            let fd = far_away(ours, 530);
            let begun = AtomicUsize::new(0);
            fiber::scope(|s| {
                let receives = s.spawn(|| {
                    let mut buf = [0u8; 8];
                    begun.store(1, Ordering::SeqCst);
                    // SAFETY: the buffer is borrowed for the call.
                    unsafe { (recv(fd, buf.as_mut_ptr().cast(), 8, 0), buf) }
                });
                std::thread::scope(|threads| {
                    threads.spawn(|| {
                        while begun.load(Ordering::SeqCst) == 0 {
                            std::thread::yield_now();
                        }
                        (0..round % 100 * 100).for_each(|_| std::hint::spin_loop());
                        close_number(fd);
                        // Nobody may hold the file any more.
                        let _ = theirs.write_all(b"late");
                    });
                    let (count, buf) = receives.join().unwrap();
                    assert!(count == -1 || &buf[..count as usize] == b"late", "{count}");
                });
            });
        }
    });
}

/// The kernel waits for all who use marks before it frees one. In a child process: those of other
/// tests inherit the descriptor for a moment, and then this close is not the last one.
#[test]
fn slow_close_waits_only_the_fiber() {
    child::must_succeed("slow_close_waits_only_the_fiber", close_slowly);
}

fn close_slowly() {
    on_both_drivers(|| {
        let (turns, over) = (AtomicUsize::new(0), AtomicBool::new(false));
        fiber::scope(|s| {
            s.spawn(|| {
                while !over.load(SeqCst) {
                    turns.fetch_add(1, SeqCst);
                    fiber::yield_now();
                }
            });
            fiber::yield_now();
            // SAFETY: the path is a C string, and the descriptor is closed once.
            let turns_of_close = || unsafe {
                let inotify = inotify_init1(IN_CLOEXEC);
                assert!(inotify_add_watch(inotify, c"/".as_ptr(), IN_CREATE) >= 0);
                let before = turns.load(SeqCst);
                assert_eq!(close(inotify), 0);
                turns.load(SeqCst) - before
            };
            // A close that ends before its fiber is suspended gives the others no turn.
            let turns_of_closes = (0..10).map(|_| turns_of_close()).sum::<usize>();
            over.store(true, SeqCst);
            assert!(turns_of_closes > 0, "the closes held the worker");
        });
    });
}

/// A socket whose sends wait for its peer to read.
fn full_pair() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    set_option(&listener, SO_RCVBUF, 4096);
    let ours = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (theirs, _) = listener.accept().unwrap();
    ours.set_nonblocking(true).unwrap();
    while (&ours).write(&[1; 4096]).is_ok() {}
    ours.set_nonblocking(false).unwrap();
    (ours, theirs)
}

fn set_option<T>(socket: &impl AsRawFd, option: c_int, value: T) {
    let len = size_of::<T>() as socklen_t;
    // SAFETY: the value is borrowed for the call.
    let code = unsafe {
        setsockopt(socket.as_raw_fd(), SOL_SOCKET, option, (&raw const value).cast(), len)
    };
    assert_eq!(code, 0);
}

/// In a child process, for the same reason.
#[test]
fn lingering_last_holder_waits_only_its_fiber() {
    child::must_succeed("lingering_last_holder_waits_only_its_fiber", close_lingering);
}

fn close_lingering() {
    on_both_drivers(|| {
        let (ours, mut theirs) = full_pair();
        set_option(&ours, SO_LINGER, linger { l_onoff: 1, l_linger: 60 });
        let fd = far_away(ours, 540);
        let drains = AtomicBool::new(false);
        let receive = || {
            let text = receive(fd);
            assert!(drains.load(SeqCst), "the close held the worker");
            text
        };
        let release = || {
            close_number(fd);
            theirs.write_all(b"now").unwrap();
            (0..5).for_each(|_| fiber::sleep(std::time::Duration::from_millis(1)));
            drains.store(true, SeqCst);
            theirs.read_to_end(&mut Vec::new()).unwrap();
        };
        assert_eq!(waits_for(receive, release), b"now");
    });
}
