//! `io::ready`: waits for the readiness of any descriptor.

use cringle::io::{Interest, ready};
use cringle::{Builder, fiber};
use cringle_testing::tools::{on_one_worker, yield_times};
use std::cell::Cell;
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, FromRawFd, OwnedFd};
use std::os::unix::net::UnixStream;

fn eventfd() -> File {
    // SAFETY: no pointers are passed, and the new descriptor has no other owner.
    unsafe {
        let fd = libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK);
        assert!(fd >= 0);
        OwnedFd::from_raw_fd(fd).into()
    }
}

/// Asserts that `ready` waits until `make` has made the descriptor readable, and consumes nothing.
fn assert_becomes_readable(fd: impl AsFd, make: impl FnOnce()) {
    let made = Cell::new(false);
    fiber::scope(|s| {
        let waits = s.spawn_local(|| {
            let events = ready(&fd, Interest::READABLE).unwrap();
            assert!(made.get() && events.is_readable(), "{events:?}");
        });
        yield_times(5);
        assert!(!waits.is_finished());
        made.set(true);
        make();
        waits.join().unwrap();
    });
    assert!(ready(&fd, Interest::READABLE).unwrap().is_readable());
}

#[test]
fn pipe_becomes_readable_when_written() {
    on_one_worker(|| {
        let (mut reader, mut writer) = io::pipe().unwrap();
        assert_becomes_readable(reader.as_fd(), || writer.write_all(b"x").unwrap());
        reader.read_exact(&mut [0]).unwrap();
    });
}

#[test]
fn eventfd_becomes_readable_when_signalled() {
    on_one_worker(|| {
        let event = eventfd();
        assert_becomes_readable(event.as_fd(), || (&event).write_all(&1u64.to_ne_bytes()).unwrap());
    });
}

#[test]
fn inotify_becomes_readable_when_directory_changes() {
    let directory = tempfile::tempdir().unwrap();
    let path = std::ffi::CString::new(directory.path().to_str().unwrap()).unwrap();
    // SAFETY: the path is a C string that lives for the call, and the new descriptor has no other
    // owner.
    let watch: File = unsafe {
        let fd = libc::inotify_init1(libc::IN_CLOEXEC);
        assert!(fd >= 0);
        assert!(libc::inotify_add_watch(fd, path.as_ptr(), libc::IN_CREATE) >= 0);
        OwnedFd::from_raw_fd(fd).into()
    };
    on_one_worker(|| {
        assert_becomes_readable(watch.as_fd(), || drop(File::create(directory.path().join("new"))));
    });
    assert!((&watch).read(&mut [0; 512]).unwrap() > 0);
}

#[test]
fn full_socket_becomes_writable_when_peer_reads() {
    on_one_worker(|| {
        let (socket, peer) = UnixStream::pair().unwrap();
        socket.set_nonblocking(true).unwrap();
        while (&socket).write(&[0; 4096]).is_ok() {}
        fiber::scope(|s| {
            let waits = s.spawn_local(|| ready(&socket, Interest::WRITABLE).unwrap());
            yield_times(5);
            assert!(!waits.is_finished());
            peer.set_nonblocking(true).unwrap();
            while (&peer).read(&mut [0; 4096]).is_ok() {}
            assert!(waits.join().unwrap().is_writable());
        });
    });
}

#[test]
fn hang_up_ends_every_wait() {
    on_one_worker(|| {
        let (reader, writer) = io::pipe().unwrap();
        drop(writer);
        let events = ready(&reader, Interest::READABLE).unwrap();
        assert!(events.is_readable(), "a read returns at once: {events:?}");
        assert_ne!(events.poll_events() & libc::POLLHUP as u16, 0);
        let events = ready(&reader, Interest::PRIORITY).unwrap();
        assert_ne!(events.poll_events() & libc::POLLHUP as u16, 0);

        let (reader, writer) = io::pipe().unwrap();
        drop(reader);
        let events = ready(&writer, Interest::WRITABLE).unwrap();
        assert_ne!(events.poll_events() & libc::POLLERR as u16, 0);
    });
}

#[test]
fn interests_convert_to_and_from_poll_events() {
    let both = Interest::READABLE | Interest::WRITABLE;
    assert_eq!(Interest::from_poll_events(both.poll_events()), both);
    on_one_worker(|| {
        let (socket, _peer) = UnixStream::pair().unwrap();
        let events = ready(&socket, both).unwrap();
        assert!(events.is_writable() && !events.is_readable());
        let named = Interest::from_poll_events(libc::POLLOUT as u16);
        assert!(ready(&socket, named).unwrap().is_writable());
    });
}

#[test]
fn regular_file_is_always_ready() {
    let file = File::open("/proc/self/exe").unwrap();
    let inside = on_one_worker(|| ready(&file, Interest::READABLE).unwrap());
    let outside = ready(&file, Interest::READABLE).unwrap();
    assert!(inside.is_readable() && outside.is_readable());
}

#[test]
fn ready_blocks_a_thread_outside_of_run() {
    let (reader, mut writer) = io::pipe().unwrap();
    let thread = std::thread::spawn(move || ready(&reader, Interest::READABLE).unwrap());
    writer.write_all(b"x").unwrap();
    assert!(thread.join().unwrap().is_readable());
}

#[test]
fn thousands_of_fibers_wait_for_own_descriptors() {
    const EVENTS: usize = 2000;
    Builder::new()
        .workers(2)
        .in_flight_limit(512)
        .run(|| {
            let events: Vec<File> = (0..EVENTS).map(|_| eventfd()).collect();
            fiber::scope(|s| {
                for event in &events {
                    s.spawn(move || {
                        assert!(ready(event, Interest::READABLE).unwrap().is_readable());
                        (&*event).read_exact(&mut [0; 8]).unwrap();
                    });
                }
                for event in &events {
                    (&*event).write_all(&1u64.to_ne_bytes()).unwrap();
                }
            });
        })
        .unwrap();
}
