//! `ring::submit`: any opcode, filled in by hand. (Feature `raw`.)

use cringle::block::{Batch, FixedBufs, FixedFile};
use cringle::fs::File;
use cringle::ring::{self, opcode, squeue, types};
use cringle::runtime::DriverChoice;
use cringle::{Builder, Cancelled, fiber, time};
use cringle_testing::child;
use std::io::{self, ErrorKind, Read, Write};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::time::Duration;

/// Runs on a ring, whatever the environment chooses.
fn on_one_worker<T>(f: impl FnOnce() -> T) -> T {
    let builder = Builder::new().workers(1).driver(DriverChoice::Uring);
    builder.restrict_rings(false).run(f).unwrap()
}

/// Submits an entry that points to nothing, or to memory that outlives the call.
fn submit(entry: &squeue::Entry) -> io::Result<usize> {
    // SAFETY: by the contract above, which each call in this file keeps.
    unsafe { ring::submit(entry) }
}

#[test]
fn nop_completes() {
    on_one_worker(|| {
        assert_eq!(submit(&opcode::Nop::new().build()).unwrap(), 0);
        // The entry may be reused, and its `user_data` is ignored.
        let entry = opcode::Nop::new().build().user_data(u64::MAX);
        assert_eq!((0..100).map(|_| submit(&entry).unwrap()).sum::<usize>(), 0);
    });
}

#[test]
fn read_fills_the_buffer_and_returns_its_count() {
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
fn kernel_errors_are_returned() {
    on_one_worker(|| {
        let mut buf = [0; 1];
        let entry = opcode::Read::new(types::Fd(-1), buf.as_mut_ptr(), 1).build();
        assert_eq!(submit(&entry).unwrap_err().raw_os_error(), Some(libc::EBADF));
        // An opcode that no kernel has: the ring refuses this entry and accepts the others.
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
fn opcodes_without_a_wrapper_work() {
    on_one_worker(|| {
        let entry = opcode::Socket::new(libc::AF_UNIX, libc::SOCK_STREAM, 0).build();
        let fd = submit(&entry).unwrap() as i32;
        // SAFETY: the descriptor is newly opened and owned here.
        drop(unsafe { OwnedFd::from_raw_fd(fd) });
    });
}

/// A restricted ring refuses what the library has no op for, and does the rest.
#[test]
fn restricted_rings_refuse_other_opcodes() {
    let on = |workers| {
        let builder = Builder::new().workers(workers).driver(DriverChoice::Uring);
        builder.restrict_rings(true)
    };
    let socket = || opcode::Socket::new(libc::AF_UNIX, libc::SOCK_STREAM, 0).build();
    on(1)
        .run(|| {
            let error = submit(&socket()).unwrap_err();
            assert_eq!(error.raw_os_error(), Some(libc::EACCES), "{error}");
            assert_eq!(submit(&opcode::Nop::new().build()).unwrap(), 0);
        })
        .unwrap();
    // Registered files and buffers, links, cancels, and messages from worker to worker.
    let path = tempfile::NamedTempFile::new().unwrap().into_temp_path();
    on(2)
        .run(|| {
            let file = File::options().write(true).read(true).open(&path)?;
            let (fixed, mut bufs) = (FixedFile::register(&file)?, FixedBufs::new(1, 4)?);
            bufs[0].copy_from_slice(b"rope");
            let mut batch = Batch::new();
            batch.write_fixed(&fixed, &bufs[0], 0);
            batch.submit().into_iter().sum::<io::Result<usize>>()?;
            file.sync_all()?;
            assert_eq!(cringle::fs::read(&path)?, b"rope");
            let (sender, receiver) = cringle::sync::mpsc::channel();
            let other = fiber::Builder::new().worker(1).spawn(move || receiver.recv().unwrap())?;
            sender.send(7).unwrap();
            assert_eq!(other.join().unwrap(), 7);
            let (mut reader, _writer) = cringle::io::pipe()?;
            let timed_out = time::timeout(Duration::from_millis(1), || reader.read(&mut [0]));
            assert_eq!(timed_out.unwrap_err().kind(), ErrorKind::TimedOut);
            Ok::<_, io::Error>(())
        })
        .unwrap()
        .unwrap();
}

#[test]
fn the_environment_restricts_rings() {
    let name = "the_environment_restricts_rings";
    for value in ["on", "off", "maybe"] {
        let output = child::run_with(name, |command| command.env("CRINGLE_RESTRICT", value));
        if let Some(output) = output {
            assert!(output.status.success(), "{}", child::transcript(&output));
        } else {
            let value = std::env::var("CRINGLE_RESTRICT").unwrap();
            let rings = || Builder::new().workers(1).driver(DriverChoice::Uring);
            let timeout = || submit(&opcode::Socket::new(-1, 0, 0).build()).unwrap_err();
            match &value[..] {
                "maybe" => {
                    let error = rings().run(|| ()).unwrap_err();
                    assert_eq!(error.kind(), ErrorKind::InvalidInput);
                    assert!(error.to_string().contains("must be `on` or `off`"), "{error}");
                }
                value => {
                    let refused = rings().run(timeout).unwrap().raw_os_error();
                    assert_eq!(refused == Some(libc::EACCES), value == "on");
                }
            }
            // The program's choice wins.
            let free = rings().restrict_rings(false).run(timeout).unwrap();
            return assert_ne!(free.raw_os_error(), Some(libc::EACCES));
        }
    }
}

#[test]
fn entries_without_exactly_one_completion_are_refused() {
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
fn submit_on_epoll_fails_with_the_reason() {
    let builder = Builder::new().workers(1).driver(DriverChoice::Epoll);
    let error = builder.run(|| submit(&opcode::Nop::new().build())).unwrap().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported);
    assert!(error.to_string().contains("epoll was chosen"), "{error}");
}

#[test]
fn submit_without_a_ring_fails() {
    let error = submit(&opcode::Nop::new().build()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported);
    let error = cringle::run(|| fiber::unblock(|| submit(&opcode::Nop::new().build())));
    assert_eq!(error.unwrap_err().kind(), ErrorKind::Unsupported);
}

fn is_cancelled(error: &io::Error) -> bool {
    error.get_ref().is_some_and(|inner| inner.is::<Cancelled>())
}

/// Starts operations, one on each fiber, and ends the run at once or after a number of turns.
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
fn run_cancels_ops_that_start_in_io_wq() {
    let (reader, _writer) = io::pipe().unwrap();
    let fd = types::Fd(reader.as_raw_fd());
    let buffer: &'static mut [u8; 1] = Box::leak(Box::new([0]));
    let address = buffer.as_mut_ptr();
    for turns in 0..20 {
        all_are_cancelled(64, turns, move || opcode::Read::new(fd, address, 1).build());
    }
}

/// These ops block threads of io-wq. A cancel is answered `EALREADY` while a thread is about to run
/// the op, and must be repeated; a cancel that interrupts the thread ends the op with
/// `ERESTARTSYS`.
#[test]
fn run_cancels_ops_that_block_io_wq() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("fifo").into_os_string().into_encoded_bytes();
    let path: &'static std::ffi::CStr = Box::leak(std::ffi::CString::new(path).unwrap().into());
    // SAFETY: the path is a C string, which is borrowed for the call.
    assert_eq!(unsafe { libc::mkfifo(path.as_ptr(), 0o600) }, 0);
    for turns in 0..40 {
        let here = types::Fd(libc::AT_FDCWD);
        let open = move || opcode::OpenAt::new(here, path.as_ptr()).flags(libc::O_RDONLY).build();
        all_are_cancelled(16, turns, open);
    }
}

/// `SEND_ZC` has two cqes: the first has the result, the second ends the op.
#[test]
fn notification_ends_an_op_and_keeps_its_result() {
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
                // The peer must read the data, or the notification does not arrive.
                fiber::unblock(|| io::Read::read_exact(&mut theirs, &mut seen).unwrap());
                assert_eq!(sends.join().unwrap(), 3000);
            });
            assert_eq!(seen, data);
        }
    });
}

/// An open of a FIFO blocks a thread of io-wq without end. The kernel answers some cancels that a
/// thread is about to run the op, and leaves the open armed. With a single cancel, the open and the
/// run would never end.
#[test]
fn opens_that_block_io_wq_are_all_cancelled() {
    const FIBERS: u64 = 48;
    const ROUNDS: u64 = 1000;
    let directory = cringle_testing::disk::directory();
    let path = directory.path().join("fifo");
    let path = std::ffi::CString::new(path.to_str().unwrap()).unwrap();
    // SAFETY: the path is a C string, which is borrowed for the call.
    assert_eq!(unsafe { libc::mkfifo(path.as_ptr(), 0o600) }, 0);
    on_one_worker(|| {
        fiber::scope(|s| {
            for n in 0..FIBERS {
                let path = &path;
                s.spawn_local(move || {
                    for round in 0..ROUNDS {
                        let at = types::Fd(libc::AT_FDCWD);
                        let open = opcode::OpenAt::new(at, path.as_ptr()).flags(libc::O_RDONLY);
                        // Without this flag the kernel would first attempt the open inline.
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
