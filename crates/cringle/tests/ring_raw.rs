//! `ring::submit`: any opcode, by hand. (Feature `raw`.)
#![cfg(feature = "raw")]

use cringle::ring::{self, opcode, squeue, types};
use cringle::runtime::DriverChoice;
use cringle::{Builder, Cancelled, fiber, time};
use std::io::{self, ErrorKind, Write};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::time::Duration;

/// With a ring, whatever the environment says: this file is about rings.
fn on_one_worker<T>(f: impl FnOnce() -> T) -> T {
    Builder::new().workers(1).driver(DriverChoice::Uring).run(f).unwrap()
}

/// For entries that point to nothing, or to what outlives the call.
fn submit(entry: &squeue::Entry) -> io::Result<usize> {
    // SAFETY: as above, at each call in this file.
    unsafe { ring::submit(entry) }
}

#[test]
fn a_nop_is_answered() {
    on_one_worker(|| {
        assert_eq!(submit(&opcode::Nop::new().build()).unwrap(), 0);
        // The entry may be used again, and its `user_data` does not matter.
        let entry = opcode::Nop::new().build().user_data(u64::MAX);
        assert_eq!((0..100).map(|_| submit(&entry).unwrap()).sum::<usize>(), 0);
    });
}

#[test]
fn a_read_fills_the_buffer_and_returns_its_count() {
    on_one_worker(|| {
        let (reader, mut writer) = io::pipe().unwrap();
        let mut buf = [0; 16];
        let fd = types::Fd(reader.as_raw_fd());
        let entry = opcode::Read::new(fd, buf.as_mut_ptr(), 16).build();
        fiber::scope(|s| {
            let reads = s.spawn_local(|| submit(&entry));
            (0..5).for_each(|_| fiber::yield_now());
            assert!(!reads.is_finished(), "only the fiber waits");
            writer.write_all(b"hello").unwrap();
            assert_eq!(reads.join().unwrap().unwrap(), 5);
        });
        assert_eq!(&buf[..5], b"hello");
    });
}

#[test]
fn an_error_of_the_kernel_is_returned() {
    on_one_worker(|| {
        let mut buf = [0; 1];
        let entry = opcode::Read::new(types::Fd(-1), buf.as_mut_ptr(), 1).build();
        assert_eq!(submit(&entry).unwrap_err().raw_os_error(), Some(libc::EBADF));
        // An opcode that no kernel has: the ring refuses the entry, and goes on with the rest.
        // SAFETY: an entry is 64 bytes of plain data.
        let unknown: squeue::Entry = unsafe {
            let mut bytes = [0u8; 64];
            bytes[0] = 255;
            std::mem::transmute(bytes)
        };
        assert_eq!(submit(&unknown).unwrap_err().raw_os_error(), Some(libc::EINVAL));
        assert_eq!(submit(&opcode::Nop::new().build()).unwrap(), 0);
    });
}

#[test]
fn what_the_library_does_not_wrap_can_be_done() {
    on_one_worker(|| {
        let entry = opcode::Socket::new(libc::AF_UNIX, libc::SOCK_STREAM, 0).build();
        let fd = submit(&entry).unwrap() as i32;
        // SAFETY: the descriptor is new.
        drop(unsafe { OwnedFd::from_raw_fd(fd) });
    });
}

#[test]
fn entries_with_more_or_less_than_one_completion_are_refused() {
    use squeue::Flags;
    let flags = [
        Flags::IO_LINK,
        Flags::IO_HARDLINK,
        Flags::IO_DRAIN,
        Flags::SKIP_SUCCESS,
        Flags::BUFFER_SELECT,
    ];
    let (ours, _theirs) = std::os::unix::net::UnixStream::pair().unwrap();
    let fd = types::Fd(ours.as_raw_fd());
    let multishot = [
        opcode::PollAdd::new(fd, libc::POLLIN as u32).multi(true).build(),
        opcode::AcceptMulti::new(fd).build(),
        opcode::RecvMulti::new(fd, 0).build(),
        opcode::ReadMulti::new(fd, 0, 0).build(),
    ];
    on_one_worker(|| {
        let flagged = flags.into_iter().map(|flag| opcode::Nop::new().build().flags(flag));
        for entry in flagged.chain(multishot) {
            assert_eq!(submit(&entry).unwrap_err().kind(), ErrorKind::InvalidInput, "{entry:?}");
        }
    });
}

#[test]
fn it_is_unsupported_on_epoll_and_says_why() {
    let builder = Builder::new().workers(1).driver(DriverChoice::Epoll);
    let error = builder.run(|| submit(&opcode::Nop::new().build())).unwrap().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported);
    assert!(error.to_string().contains("epoll was chosen"), "{error}");
}

#[test]
fn it_is_unsupported_where_there_is_no_ring() {
    let error = submit(&opcode::Nop::new().build()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported);
    let error = cringle::run(|| fiber::unblock(|| submit(&opcode::Nop::new().build())));
    assert_eq!(error.unwrap_err().kind(), ErrorKind::Unsupported);
}

fn is_cancelled(error: &io::Error) -> bool {
    error.get_ref().is_some_and(|inner| inner.is::<Cancelled>())
}

/// Begins operations on as many fibers and ends the run: at once, or after so many turns.
fn all_are_cancelled(
    count: usize,
    turns: usize,
    entry: impl Fn() -> squeue::Entry + Copy + 'static,
) {
    let builder = Builder::new()
        .driver(DriverChoice::Uring)
        .workers(1)
        .ring_entries(8)
        .in_flight_limit(count as u32);
    let handles = builder.run(|| {
        let wait = move || submit(&entry().flags(squeue::Flags::ASYNC)).unwrap_err();
        let handles: Vec<_> = (0..count).map(|_| fiber::spawn_local(wait)).collect();
        (0..turns).for_each(|_| fiber::yield_now());
        handles
    });
    for handle in handles.unwrap() {
        let error = handle.join().unwrap();
        assert!(is_cancelled(&error), "{error:?}");
    }
}

#[test]
fn operations_that_begin_in_the_kernels_threads_are_cancelled_when_run_ends() {
    let (reader, _writer) = io::pipe().unwrap();
    let fd = types::Fd(reader.as_raw_fd());
    let buffer: &'static mut [u8; 1] = Box::leak(Box::new([0]));
    let address = buffer.as_mut_ptr();
    for turns in 0..20 {
        all_are_cancelled(64, turns, move || opcode::Read::new(fd, address, 1).build());
    }
}

/// The kernel's threads wait in these: a cancel that comes while one is about to begin is answered
/// `EALREADY`, and has to be asked again; one that interrupts it makes it end by `ERESTARTSYS`.
#[test]
fn operations_that_block_the_kernels_threads_are_cancelled_when_run_ends() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("fifo").into_os_string().into_encoded_bytes();
    let path: &'static std::ffi::CStr = Box::leak(std::ffi::CString::new(path).unwrap().into());
    // SAFETY: the path is a C string.
    assert_eq!(unsafe { libc::mkfifo(path.as_ptr(), 0o600) }, 0);
    for turns in 0..40 {
        let here = types::Fd(libc::AT_FDCWD);
        let open = move || opcode::OpenAt::new(here, path.as_ptr()).flags(libc::O_RDONLY).build();
        all_are_cancelled(16, turns, open);
    }
}

/// `SEND_ZC` is answered twice: its result is the first entry's, its end the second's.
#[test]
fn an_operation_with_a_notification_ends_with_it_and_keeps_its_result() {
    on_one_worker(|| {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let ours = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (mut theirs, _) = listener.accept().unwrap();
        let data = vec![7u8; 3000];
        for _ in 0..20 {
            let fd = types::Fd(ours.as_raw_fd());
            let entry = opcode::SendZc::new(fd, data.as_ptr(), data.len() as u32).build();
            let mut seen = vec![0; 3000];
            fiber::scope(|s| {
                let sends = s.spawn_local(|| submit(&entry).unwrap());
                // The peer takes it: else the notification does not come.
                fiber::unblock(|| io::Read::read_exact(&mut theirs, &mut seen).unwrap());
                assert_eq!(sends.join().unwrap(), 3000);
            });
            assert_eq!(seen, data);
        }
    });
}

/// An open of a FIFO waits in a thread of the kernel, for ever. The kernel answers some cancels that a
/// thread is about to begin, and leaves the open armed: a cancel that is asked once would leave it, and
/// the run with it.
#[test]
fn opens_that_wait_in_the_kernels_threads_are_all_given_up() {
    const FIBERS: u64 = 48;
    const ROUNDS: u64 = 1000;
    let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let path = directory.path().join("fifo");
    let path = std::ffi::CString::new(path.to_str().unwrap()).unwrap();
    // SAFETY: the path is a C string.
    assert_eq!(unsafe { libc::mkfifo(path.as_ptr(), 0o600) }, 0);
    on_one_worker(|| {
        fiber::scope(|s| {
            for n in 0..FIBERS {
                let path = &path;
                s.spawn_local(move || {
                    for round in 0..ROUNDS {
                        let at = types::Fd(libc::AT_FDCWD);
                        let open = opcode::OpenAt::new(at, path.as_ptr()).flags(libc::O_RDONLY);
                        // Not at once, where the kernel does not wait for the other end.
                        let entry = open.build().flags(squeue::Flags::ASYNC);
                        let limit = Duration::from_micros((n * 37 + round * 11) % 150);
                        let error = time::timeout(limit, || submit(&entry)).unwrap_err();
                        assert!(cringle::cancel::reason(&error).is_some(), "{error:?}");
                    }
                });
            }
        });
    });
}
