//! Waiting for the readiness of descriptors that the library has no type for.

use cringle::io::{Interest, ready};
use cringle::{Builder, fiber};
use std::cell::Cell;
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::net::UnixStream;

fn on_one_worker<T>(f: impl FnOnce() -> T) -> T {
    Builder::new().workers(1).run(f).unwrap()
}

fn eventfd() -> File {
    // SAFETY: no pointers; the descriptor is new.
    unsafe {
        let fd = libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK);
        assert!(fd >= 0);
        OwnedFd::from_raw_fd(fd).into()
    }
}

/// Waits until it is readable, and asserts that another fiber ran and made it so meanwhile.
fn becomes_readable(fd: impl AsFd, make: impl FnOnce()) {
    let made = Cell::new(false);
    fiber::scope(|s| {
        let waits = s.spawn_local(|| {
            let events = ready(&fd, Interest::READABLE).unwrap();
            assert!(made.get() && events.is_readable(), "{events:?}");
        });
        (0..5).for_each(|_| fiber::yield_now());
        assert!(!waits.is_finished());
        made.set(true);
        make();
        waits.join().unwrap();
    });
    // It is still readable: nothing was taken.
    assert!(ready(&fd, Interest::READABLE).unwrap().is_readable());
}

#[test]
fn a_pipe_becomes_readable_when_something_is_written() {
    on_one_worker(|| {
        let (mut reader, mut writer) = io::pipe().unwrap();
        becomes_readable(reader.as_fd(), || writer.write_all(b"x").unwrap());
        reader.read_exact(&mut [0]).unwrap();
    });
}

#[test]
fn an_eventfd_becomes_readable_when_it_is_signalled() {
    on_one_worker(|| {
        let event = eventfd();
        becomes_readable(event.as_fd(), || (&event).write_all(&1u64.to_ne_bytes()).unwrap());
    });
}

#[test]
fn an_inotify_descriptor_becomes_readable_when_the_directory_changes() {
    let directory = tempfile::tempdir().unwrap();
    let path = std::ffi::CString::new(directory.path().to_str().unwrap()).unwrap();
    // SAFETY: the path is a C string, and the descriptor is new.
    let watch: File = unsafe {
        let fd = libc::inotify_init1(libc::IN_CLOEXEC);
        assert!(fd >= 0);
        assert!(libc::inotify_add_watch(fd, path.as_ptr(), libc::IN_CREATE) >= 0);
        OwnedFd::from_raw_fd(fd).into()
    };
    on_one_worker(|| {
        becomes_readable(watch.as_fd(), || drop(File::create(directory.path().join("new"))));
    });
    assert!((&watch).read(&mut [0; 512]).unwrap() > 0);
}

#[test]
fn a_full_socket_becomes_writable_when_the_peer_reads() {
    on_one_worker(|| {
        let (ours, theirs) = UnixStream::pair().unwrap();
        ours.set_nonblocking(true).unwrap();
        while (&ours).write(&[0; 4096]).is_ok() {}
        fiber::scope(|s| {
            let waits = s.spawn_local(|| ready(&ours, Interest::WRITABLE).unwrap());
            (0..5).for_each(|_| fiber::yield_now());
            assert!(!waits.is_finished());
            theirs.set_nonblocking(true).unwrap();
            while (&theirs).read(&mut [0; 4096]).is_ok() {}
            assert!(waits.join().unwrap().is_writable());
        });
    });
}

#[test]
fn a_hang_up_ends_every_wait() {
    on_one_worker(|| {
        let (reader, writer) = io::pipe().unwrap();
        drop(writer);
        let events = ready(&reader, Interest::READABLE).unwrap();
        assert!(events.is_readable(), "a read would not wait: {events:?}");
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
fn interests_can_be_joined_and_named_as_poll_does() {
    let both = Interest::READABLE | Interest::WRITABLE;
    assert_eq!(Interest::from_poll_events(both.poll_events()), both);
    on_one_worker(|| {
        let (ours, _theirs) = UnixStream::pair().unwrap();
        let events = ready(&ours, both).unwrap();
        assert!(events.is_writable() && !events.is_readable());
        let named = Interest::from_poll_events(libc::POLLOUT as u16);
        assert!(ready(&ours, named).unwrap().is_writable());
    });
}

#[test]
fn a_regular_file_is_always_ready() {
    let file = File::open("/proc/self/exe").unwrap();
    let inside = on_one_worker(|| ready(&file, Interest::READABLE).unwrap());
    let outside = ready(&file, Interest::READABLE).unwrap();
    assert!(inside.is_readable() && outside.is_readable());
}

#[test]
fn outside_of_a_fiber_the_thread_waits() {
    let (reader, mut writer) = io::pipe().unwrap();
    let thread = std::thread::spawn(move || ready(&reader, Interest::READABLE).unwrap());
    writer.write_all(b"x").unwrap();
    assert!(thread.join().unwrap().is_readable());
}

#[test]
fn thousands_of_fibers_wait_for_as_many_descriptors() {
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
            assert!(events[0].as_raw_fd() > 0);
        })
        .unwrap();
}
