//! The driver without fibers.

mod backoff;
mod kept;
mod nowait;
mod offload;
mod sockets;
mod wait_queues;

use super::flight::{Flight, Stage};
use super::*;
use crate::completion::Completion;
use crate::op::AT_CURSOR;
use crate::{FileOp, Full, Op, PathOp, Target, Wait, Waiter, Way};
use cringle_sys as sys;
use std::ffi::CString;
use std::io::Write;
use std::mem::ManuallyDrop;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::ExitStatusExt;
use std::pin::Pin;
use std::ptr::NonNull;

/// The token of a frame points to the byte with the frame's number.
static SOMEWHERE: [u8; 64] = [0; 64];

/// A frame that waits for one op.
struct Frame {
    completion: Completion,
    waiter: Waiter,
    byte: u8,
}

/// A driver with the frames that it owes results to. Frames stay in place until they are settled.
struct Rig {
    epoll: ManuallyDrop<Epoll>,
    frames: Vec<Pin<Box<Frame>>>,
    settled: Vec<usize>,
    wake_fd: ManuallyDrop<sys::Owned>,
}

impl Drop for Rig {
    /// A failed test may leave ops in flight. It leaks their memory, because dropping the driver
    /// would abort.
    fn drop(&mut self) {
        if std::thread::panicking() {
            return std::mem::forget(std::mem::take(&mut self.frames));
        }
        // SAFETY: I1. No op is in flight. By the contract of `ManuallyDrop`, no code uses them
        // again.
        unsafe {
            ManuallyDrop::drop(&mut self.epoll);
            ManuallyDrop::drop(&mut self.wake_fd);
        }
    }
}

impl Rig {
    fn new(limit: u32) -> Rig {
        let wake_fd = sys::eventfd().unwrap();
        let pool = |threads| Arc::new(Pool::new("test", threads, &sys::allowed_cpus()));
        let pools = Pools { storage: pool(2), unbounded: pool(usize::MAX) };
        let epoll = Epoll::new(wake_fd.as_raw_fd(), limit, pools).unwrap();
        let (epoll, wake_fd) = (ManuallyDrop::new(epoll), ManuallyDrop::new(wake_fd));
        Rig { epoll, frames: Vec::new(), settled: Vec::new(), wake_fd }
    }

    fn push(&mut self, op: impl FnOnce(*mut u8) -> Op) -> Result<usize, Full> {
        let number = self.frames.len();
        let token = NonNull::from(&SOMEWHERE[number]).cast();
        let mut frame =
            Box::pin(Frame { completion: Completion::new(), waiter: Waiter::new(token), byte: 0 });
        let op = op(&raw mut frame.byte);
        // SAFETY: I1. The rig keeps the frame in place until it is dropped, after the driver.
        unsafe { self.epoll.push(&op, &frame.completion, &frame.waiter) }?;
        self.frames.push(frame);
        Ok(number)
    }

    fn read(&mut self, fd: &impl AsRawFd) -> usize {
        let target = Target::fd(fd.as_raw_fd());
        self.push(|buf| Op::read(target, buf, 1, AT_CURSOR)).unwrap()
    }

    fn reap(&mut self) {
        let settled = &mut self.settled;
        self.epoll.reap(|token| settled.push(token.addr().get() - SOMEWHERE.as_ptr().addr()));
    }

    fn until_idle(&mut self) {
        while !self.epoll.is_idle() {
            self.sleep();
        }
    }

    fn result(&self, number: usize) -> i32 {
        self.frames[number].completion.result()
    }

    fn byte(&self, number: usize) -> u8 {
        self.frames[number].byte
    }

    fn cancel(&mut self, number: usize) {
        self.epoll.cancel(&self.frames[number].completion);
    }

    /// The driver's number of a frame's op.
    fn number(&self, number: usize) -> u32 {
        self.frames[number].completion.cancel_place.get() as u32
    }

    fn flight(&mut self, number: usize) -> &mut Flight {
        let number = self.number(number);
        self.epoll.flights.get_mut(number)
    }

    fn stage(&mut self, number: usize) -> &Stage {
        &self.flight(number).stage
    }

    /// Tries the pushed ops, and reaps.
    fn enter(&mut self) {
        self.epoll.enter(Wait::No);
        self.reap();
    }

    /// Sleeps until the next event, and reaps.
    fn sleep(&mut self) {
        let end = Instant::now() + Duration::from_secs(60);
        self.epoll.enter(Wait::Until(Some(end)));
        assert!(Instant::now() < end, "nothing has ended the sleep");
        self.reap();
    }
}

/// The result of `poll(2)` without waiting.
fn poll_now(fd: &impl AsFd, events: i16) -> i16 {
    sys::poll_now(fd.as_fd(), events).unwrap()
}

/// Waits until one of the events is reported.
fn until_ready(fd: &impl AsFd, events: i16) {
    let ready = sys::wait_for(fd.as_fd(), events, Some(Duration::from_secs(60)));
    ready.unwrap();
    assert!(poll_now(fd, events) & events != 0);
}

/// Repeats until the condition holds, for a minute at most.
fn until(mut holds: impl FnMut() -> bool) {
    let end = Instant::now() + Duration::from_secs(60);
    while !holds() {
        assert!(Instant::now() < end, "the condition never held");
        std::thread::yield_now();
    }
}

fn fifo(directory: &tempfile::TempDir) -> std::fs::File {
    let path = directory.path().join("fifo");
    let name = CString::new(path.as_os_str().as_bytes()).unwrap();
    // SAFETY: the path is a C string, which is borrowed for the call.
    assert_eq!(unsafe { libc::mkfifo(name.as_ptr(), 0o600) }, 0);
    std::fs::File::options().read(true).write(true).open(path).unwrap()
}

#[test]
fn each_op_is_answered_once() {
    let mut rig = Rig::new(8);
    let (reader, mut writer) = std::io::pipe().unwrap();
    let waits = rig.read(&reader);
    let nothing = rig.push(|_| Op::Nop).unwrap();
    let aside =
        rig.push(|_| Op::File(FileOp::Sync { fd: reader.as_raw_fd(), data_only: true })).unwrap();
    rig.epoll.enter(Wait::No);
    rig.reap();
    assert_eq!(rig.result(nothing), 0);
    writer.write_all(&[7]).unwrap();
    rig.until_idle();
    assert_eq!(rig.result(waits), 1);
    assert_eq!(rig.frames[waits].byte, 7);
    assert_eq!(rig.result(aside), -libc::EINVAL);
    rig.settled.sort_unstable();
    assert_eq!(rig.settled, [waits, nothing, aside]);
}

#[test]
fn cancel_of_a_waiting_op_is_immediate() {
    let mut rig = Rig::new(8);
    let (reader, mut writer) = std::io::pipe().unwrap();
    let [first, second] = [rig.read(&reader), rig.read(&reader)];
    rig.epoll.enter(Wait::No);
    let frame = &rig.frames[first];
    rig.epoll.cancel(&frame.completion);
    rig.epoll.cancel(&frame.completion);
    assert_eq!(rig.epoll.attention(), (true, true));
    rig.reap();
    assert_eq!(rig.result(first), -libc::ECANCELED);
    // The other reader is first now.
    writer.write_all(&[7]).unwrap();
    rig.until_idle();
    assert_eq!(rig.result(second), 1);
    assert_eq!(rig.frames[first].byte, 0);
}

#[test]
fn new_reader_queues_behind_waiting_readers() {
    let mut rig = Rig::new(8);
    let (reader, mut writer) = std::io::pipe().unwrap();
    let first = rig.read(&reader);
    rig.epoll.enter(Wait::No);
    writer.write_all(b"a").unwrap();
    let second = rig.read(&reader);
    rig.epoll.enter(Wait::No);
    writer.write_all(b"b").unwrap();
    rig.until_idle();
    assert_eq!([first, second].map(|number| rig.frames[number].byte), *b"ab");
}

#[test]
fn blocked_writer_sees_the_pipe_close() {
    let mut rig = Rig::new(8);
    let (reader, mut writer) = std::io::pipe().unwrap();
    let fd = writer.as_raw_fd();
    // SAFETY: no pointers are passed.
    let capacity = unsafe { libc::fcntl(fd, libc::F_GETPIPE_SZ) };
    writer.write_all(&vec![0; capacity as usize]).unwrap();
    let target = Target::fd(fd);
    let waits = rig.push(|buf| Op::write(target, buf, 1, AT_CURSOR)).unwrap();
    rig.epoll.enter(Wait::No);
    drop(reader);
    rig.until_idle();
    assert_eq!(rig.result(waits), -libc::EPIPE);
}

/// As on a ring, which consumes the op before its cancel.
fn gives_up_two_reads_of_one_byte(reader: &impl AsRawFd, mut writer: impl Write) {
    let mut rig = Rig::new(8);
    writer.write_all(&[7]).unwrap();
    let [there, not_there] = [rig.read(reader), rig.read(reader)];
    for number in [there, not_there] {
        rig.epoll.cancel(&rig.frames[number].completion);
    }
    rig.until_idle();
    assert_eq!((rig.result(there), rig.result(not_there)), (1, -libc::ECANCELED));
}

#[test]
fn early_cancel_still_performs_ready_ops() {
    let (reader, writer) = std::io::pipe().unwrap();
    gives_up_two_reads_of_one_byte(&reader, writer);
    // A file without `RWF_NOWAIT`.
    let directory = tempfile::tempdir().unwrap();
    let fifo = fifo(&directory);
    gives_up_two_reads_of_one_byte(&fifo, &fifo);
}

#[test]
fn limit_counts_ops_that_end_by_themselves() {
    let mut rig = Rig::new(1);
    let (reader, _writer) = std::io::pipe().unwrap();
    let waits = [rig.read(&reader), rig.read(&reader)];
    rig.push(|_| Op::Nop).unwrap();
    assert_eq!(rig.epoll.room(), 0);
    rig.push(|_| Op::Nop).unwrap_err();
    rig.epoll.enter(Wait::No);
    rig.reap();
    assert_eq!(rig.epoll.room(), 1);
    rig.push(|_| Op::Nop).unwrap();
    for number in waits {
        rig.epoll.cancel(&rig.frames[number].completion);
    }
    rig.until_idle();
}

#[test]
fn eventfd_wakes_a_sleeper_once() {
    let mut rig = Rig::new(1);
    sys::eventfd_signal(rig.wake_fd.as_fd());
    rig.epoll.enter(Wait::Until(None));
    let begun = Instant::now();
    let later = begun + Duration::from_millis(3);
    rig.epoll.enter(Wait::Until(Some(later)));
    assert!(Instant::now() >= later, "the eventfd was cleared");
}

/// A message arrives after the worker has declared that it sleeps, and before it does.
#[test]
fn eventfd_wakes_a_sleeper_due_to_poll() {
    let mut rig = Rig::new(1);
    let (reader, mut writer) = std::io::pipe().unwrap();
    rig.read(&reader);
    rig.epoll.enter(Wait::No);
    while !rig.epoll.is_poll_due() {
        std::hint::spin_loop();
    }
    sys::eventfd_signal(rig.wake_fd.as_fd());
    let for_ever = Instant::now() + Duration::from_secs(60);
    rig.epoll.enter(Wait::Until(Some(for_ever)));
    assert!(Instant::now() < for_ever, "the sleep did not end");
    writer.write_all(&[7]).unwrap();
    rig.until_idle();
}

/// Otherwise a thread of the pool could write into a frame that is gone.
#[test]
fn closing_a_driver_with_ops_aborts() {
    const WHO: &str = "CRINGLE_TEST_CHILD";
    let name = "epoll::tests::closing_a_driver_with_ops_aborts";
    if std::env::var(WHO).is_ok_and(|who| who == name) {
        let mut rig = Rig::new(1);
        let (reader, _writer) = std::io::pipe().unwrap();
        rig.read(&reader);
        return drop(rig);
    }
    let mut command = std::process::Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", name, "--nocapture"]).env(WHO, name);
    let output = command.output().unwrap();
    assert_eq!(output.status.signal(), Some(libc::SIGABRT));
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(stderr.contains("closed with 1 ops in flight"), "{stderr}");
}
