//! The ring without fibers, with errors injected into `io_uring_enter`.

mod release;
mod restricted;

use super::enter::*;
use super::reap::special;
use super::*;
use crate::completion::OpState;
use crate::op::AT_CURSOR;
use crate::{FileOp, Full, Op, Target, Waiter, means_cancelled};
use cringle_sys as sys;
use std::cell::RefCell;
use std::collections::HashMap;
use std::io::Write;
use std::os::fd::AsFd;
use std::os::unix::process::ExitStatusExt;
use std::pin::Pin;
use std::ptr::NonNull;
use std::time::{Duration, Instant};

/// A frame that waits for one op.
struct Frame {
    completion: Completion,
    waiter: Waiter,
    byte: u8,
}

fn options(entries: u32, in_flight_limit: u32) -> UringOptions {
    let restrict = std::env::var_os("CRINGLE_RESTRICT").is_some_and(|value| value == "on");
    UringOptions { restrict, ..UringOptions::new(entries, in_flight_limit) }
}

/// A ring with the frames that it owes entries to. Frames stay in place until they are settled.
struct Rig {
    uring: Uring,
    frames: Vec<Pin<Box<Frame>>>,
    /// How often each frame was settled.
    settled: RefCell<HashMap<NonNull<()>, usize>>,
    wake_fd: sys::Owned,
}

impl Rig {
    fn new(entries: u32, in_flight_limit: u32) -> Rig {
        Rig::with(&options(entries, in_flight_limit))
    }

    fn with(options: &UringOptions) -> Rig {
        let wake_fd = sys::eventfd().unwrap();
        let uring = Uring::new(options, wake_fd.as_raw_fd()).unwrap();
        Rig { uring, frames: Vec::new(), settled: RefCell::default(), wake_fd }
    }

    /// Pushes an op. Returns the number of the frame that waits for it.
    fn push(&mut self, op: impl FnOnce(*mut u8) -> Op) -> Result<usize, Full> {
        static SOMEWHERE: [u8; 1 << 16] = [0; 1 << 16];
        let number = self.frames.len();
        let token = NonNull::from(&SOMEWHERE[number]).cast();
        let mut frame =
            Box::pin(Frame { completion: Completion::new(), waiter: Waiter::new(token), byte: 0 });
        let op = op(&raw mut frame.byte);
        // SAFETY: I1. The rig keeps the frame in place until it is dropped, after the ring.
        unsafe { self.uring.push(&op, &frame.completion, &frame.waiter) }?;
        self.frames.push(frame);
        Ok(number)
    }

    fn nop(&mut self) -> Result<usize, Full> {
        self.push(|_| Op::Nop)
    }

    fn read(&mut self, fd: &impl AsFd) -> Result<usize, Full> {
        let target = Target::fd(fd.as_fd().as_raw_fd());
        self.push(|buf| Op::read(target, buf, 1, 0))
    }

    /// A read that does not count against the limit.
    fn read_of_peer(&mut self, fd: &impl AsFd) -> Result<usize, Full> {
        let target = Target::fd(fd.as_fd().as_raw_fd());
        self.push(|buf| Op::read(target, buf, 1, AT_CURSOR))
    }

    fn cancel(&mut self, frame: usize) {
        self.uring.cancel(&self.frames[frame].completion);
    }

    fn reap(&mut self) {
        let settled = &self.settled;
        self.uring.reap(|token| *settled.borrow_mut().entry(token).or_default() += 1);
    }

    fn enter(&mut self, wait: Wait) {
        self.uring.enter(wait);
        self.reap();
    }

    fn is_done(&self, frame: usize) -> bool {
        self.frames[frame].completion.state() == OpState::Done
    }

    fn result(&self, frame: usize) -> i32 {
        self.frames[frame].completion.result()
    }

    /// Runs until nothing is owed to any frame, and checks that each was settled once.
    fn settle(&mut self) {
        while self.frames.iter().any(|frame| !frame.waiter.is_settled()) {
            self.enter(Wait::Until(None));
        }
        assert_eq!(self.settled.borrow().len(), self.frames.len());
        assert!(self.settled.borrow().values().all(|&times| times == 1));
        assert!(self.uring.cancels.is_idle());
        assert_eq!(self.uring.in_flight(), 0);
    }
}

const BUSY: [i32; 3] = [libc::EAGAIN, libc::EBUSY, libc::EINTR];

#[test]
fn entries_that_enter_refuses_stay_queued() {
    for errno in BUSY {
        let mut rig = Rig::new(8, 8);
        let frames: Vec<usize> = (0..3).map(|_| rig.nop().unwrap()).collect();
        rig.uring.injected_errors.extend([errno; 5]);
        for _ in 0..5 {
            rig.enter(Wait::No);
            assert!(frames.iter().all(|&frame| !rig.is_done(frame)), "{errno}");
            assert!(rig.uring.has_queued(), "{errno}");
        }
        rig.enter(Wait::No);
        assert!(frames.iter().all(|&frame| rig.is_done(frame) && rig.result(frame) == 0));
        assert!(!rig.uring.has_queued());
        rig.settle();
    }
}

#[test]
fn sleep_ends_after_a_refused_submission() {
    for errno in BUSY {
        let mut rig = Rig::new(8, 8);
        let frame = rig.nop().unwrap();
        // More errors than one call of `enter` makes system calls.
        rig.uring.injected_errors.extend([errno; 10]);
        let mut calls = 0;
        while !rig.is_done(frame) {
            rig.enter(Wait::Until(None));
            calls += 1;
        }
        assert!(calls > 1 && rig.uring.injected_errors.is_empty());
        rig.settle();
    }
}

#[test]
fn refused_op_can_be_pushed_again() {
    for errno in BUSY {
        let mut rig = Rig::new(1, 8);
        rig.enter(Wait::No);
        rig.nop().unwrap();
        // The queue has one entry, which the kernel does not consume now.
        rig.uring.injected_errors.push_back(errno);
        assert!(rig.nop().is_err(), "{errno}");
        assert_eq!(rig.uring.in_flight(), 1, "a refused op does not count");
        rig.nop().unwrap();
        rig.settle();
    }
}

#[test]
fn limit_holds_though_the_queue_has_room() {
    let mut rig = Rig::new(64, 3);
    let (reader, mut writer) = io::pipe().unwrap();
    (0..3).for_each(|n| assert_eq!(rig.read(&reader).unwrap(), n));
    assert_eq!(rig.uring.room(), 0);
    assert!(rig.nop().is_err());
    rig.enter(Wait::No);
    assert!(rig.nop().is_err());
    writer.write_all(b"abc").unwrap();
    rig.settle();
    assert_eq!(rig.uring.room(), 3);
    rig.nop().unwrap();
    rig.settle();
}

#[test]
fn ops_that_wait_for_a_peer_do_not_count() {
    let mut rig = Rig::new(4, 2);
    let (reader, mut writer) = io::pipe().unwrap();
    // Far more than the completion queue holds.
    const WAITING: usize = 1000;
    (0..WAITING).for_each(|n| assert_eq!(rig.read_of_peer(&reader).unwrap(), n));
    assert_eq!((rig.uring.room(), rig.uring.in_flight()), (2, WAITING as u32));
    rig.read(&reader).unwrap();
    rig.read(&reader).unwrap();
    assert!(rig.nop().is_err(), "the limit is reached");
    rig.read_of_peer(&reader).unwrap();
    // All of them end at once: the queue overflows and loses nothing.
    writer.write_all(&[0; WAITING + 3]).unwrap();
    rig.settle();
    assert!((0..WAITING + 3).all(|frame| rig.result(frame) == 1));
    assert_eq!(rig.uring.room(), 2);
}

#[test]
fn full_queue_drops_no_cancel() {
    const READS: usize = 500;
    for errno in BUSY {
        let mut rig = Rig::new(1, READS as u32);
        let (reader, _writer) = io::pipe().unwrap();
        (0..READS).for_each(|n| assert_eq!(rig.read(&reader).unwrap(), n));
        rig.enter(Wait::No);
        // Every third call fails.
        rig.uring.injected_errors.extend([errno, 0, 0].repeat(200));
        (0..READS).for_each(|frame| rig.cancel(frame));
        (0..READS).for_each(|frame| rig.cancel(frame)); // a second request does nothing
        rig.settle();
        assert!((0..READS).all(|frame| means_cancelled(rig.result(frame))));
    }
}

/// A sleep with a cancel that was never submitted would not end: nothing else ends the read.
#[test]
fn unsubmitted_cancel_limits_the_sleep() {
    let mut rig = Rig::new(1, 8);
    let (reader, _writer) = io::pipe().unwrap();
    let cancelled = rig.read(&reader).unwrap();
    rig.enter(Wait::No);
    sys::eventfd_signal(rig.wake_fd.as_fd());
    while rig.uring.wake.armed {
        rig.enter(Wait::No);
    }
    let _second = rig.read(&reader).unwrap();
    // No room for the cancel; then room for the read of the eventfd, which does not end by itself;
    // then no room for the cancel again.
    rig.uring.injected_errors.extend([libc::EAGAIN, 0, libc::EAGAIN]);
    rig.cancel(cancelled);
    assert!(rig.uring.cancels.has_backlog());
    while !rig.is_done(cancelled) {
        rig.enter(Wait::Until(None));
    }
    rig.cancel(1);
    rig.settle();
}

#[test]
fn cancel_of_an_ended_op_is_withdrawn() {
    let mut rig = Rig::new(8, 8);
    let (reader, mut writer) = io::pipe().unwrap();
    for _ in 0..100 {
        let read = rig.read(&reader).unwrap();
        rig.enter(Wait::No);
        writer.write_all(b"x").unwrap();
        rig.cancel(read);
        rig.settle();
        match rig.result(read) {
            1 => assert_eq!(rig.frames[read].byte, b'x'),
            result => {
                assert!(means_cancelled(result));
                io::Read::read_exact(&mut &reader, &mut [0]).unwrap();
            }
        }
        rig.cancel(read);
        assert!(rig.uring.cancels.is_idle(), "an op that has ended cannot be cancelled");
    }
}

/// The op's cqe is in the queue when the op is cancelled, and is reaped before the cancel is
/// submitted. A cancel submitted later would name a frame that has been reused.
#[test]
fn queued_cancel_of_an_ended_op_is_not_submitted() {
    // More than may be submitted at once.
    let many = setup::RESERVED_CQES as usize;
    let mut rig = Rig::new(8, many as u32);
    let nops: Vec<_> = (0..many).map(|_| rig.nop().unwrap()).collect();
    rig.uring.enter(Wait::No);
    nops.iter().for_each(|&nop| rig.cancel(nop));
    assert!(rig.uring.cancels.has_backlog());
    rig.reap();
    assert!(nops.iter().all(|&nop| rig.is_done(nop)));
    assert!(!rig.uring.cancels.has_backlog(), "the queued cancels are withdrawn");
    let settled = nops.iter().filter(|&&nop| rig.frames[nop].waiter.is_settled());
    assert!(settled.count() >= many / 2);
    rig.settle();
}

#[test]
fn withdrawn_cancel_leaves_the_others_queued() {
    let many = 4 * setup::RESERVED_CQES as usize;
    let mut rig = Rig::new(8, 8);
    let (fed, mut writer) = io::pipe().unwrap();
    let (reader, _writer) = io::pipe().unwrap();
    let mut read = |fd| rig.read_of_peer(fd).unwrap();
    let (ends, waits): (Vec<_>, Vec<_>) =
        (0..many / 2).map(|_| (read(&fed), read(&reader))).unzip();
    rig.enter(Wait::No);
    (0..many).for_each(|frame| rig.cancel(frame));
    // Some cancels are submitted; then ops end whose cancels are still queued.
    rig.enter(Wait::No);
    writer.write_all(&vec![0; many]).unwrap();
    // The kernel wakes one reader at a time, each in an enter. No further cancels are submitted.
    while !ends.iter().any(|&read| rig.is_done(read) && rig.result(read) == 1) {
        rig.uring.submit();
        rig.reap();
    }
    rig.settle();
    assert!(waits.iter().all(|&read| means_cancelled(rig.result(read))));
    let ended = ends.iter().filter(|&&read| rig.result(read) == 1).count();
    assert!(ended > 0, "no cancel was withdrawn");
}

/// The kernel's answers while an io-wq thread is about to run the op, which stays armed.
#[test]
fn unsuccessful_cancel_is_repeated() {
    for answer in [-libc::EALREADY, -libc::ENOENT] {
        let mut rig = Rig::new(8, 8);
        let (reader, _writer) = io::pipe().unwrap();
        let read = rig.read(&reader).unwrap();
        rig.enter(Wait::No);
        // As if a cancel had been submitted and answered like this.
        let completion = &rig.frames[read].completion;
        completion.waiter_ref().owe();
        completion.cancel.set(CancelState::InFlight);
        let user_data = std::ptr::from_ref(completion) as u64 | CANCEL_TAG;
        let uring = &mut rig.uring;
        uring.cancels.in_flight += 1;
        let undelivered = &mut uring.undelivered;
        let freed = special(user_data, answer, &mut uring.cancels, &mut uring.wake, undelivered);
        assert!(freed.is_none(), "the op's own cqe is still owed");
        rig.settle();
        assert!(means_cancelled(rig.result(read)));
    }
}

/// A frame is settled only when the op's cancel has been answered, too: the answer must not arrive
/// for the next op of the same frame.
#[test]
fn frame_is_owed_until_its_cancel_is_answered() {
    let mut rig = Rig::new(8, 8);
    let read = {
        let (reader, writer) = io::pipe().unwrap();
        let read = rig.read(&reader).unwrap();
        rig.enter(Wait::No);
        rig.cancel(read);
        drop(writer);
        // The end of the pipe and the cancel both end the op; two cqes arrive for one frame.
        assert!(!rig.frames[read].waiter.is_settled());
        rig.uring.call_enter(0, ENTER_GETEVENTS, None);
        rig.reap();
        read
    };
    rig.settle();
    assert!(rig.result(read) == 0 || means_cancelled(rig.result(read)));
}

#[test]
fn deadline_ends_a_sleep_without_ops() {
    let mut rig = Rig::new(8, 8);
    let deadline = Instant::now() + Duration::from_millis(5);
    while Instant::now() < deadline {
        rig.enter(Wait::Until(Some(deadline)));
    }
    // A deadline that has passed does not sleep.
    rig.enter(Wait::Until(Some(deadline)));
}

#[test]
fn each_eventfd_signal_ends_a_sleep() {
    let mut rig = Rig::new(1, 1);
    for _ in 0..100 {
        let wake_fd = rig.wake_fd.try_clone().unwrap();
        let thread = std::thread::spawn(move || sys::eventfd_signal(wake_fd.as_fd()));
        // Only the signal can end this call.
        rig.uring.wake.armed.then(|| rig.enter(Wait::Until(None)));
        rig.enter(Wait::No);
        thread.join().unwrap();
    }
}

#[test]
fn undelivered_messages_are_reported() {
    let mut rig = Rig::new(8, 8);
    let mut other = Rig::new(8, 8);
    assert!(rig.uring.send_wake(other.uring.ring_fd(), 7));
    rig.enter(Wait::No);
    // It ends the other's sleep, and completes no op.
    other.enter(Wait::Until(None));
    assert_eq!(rig.uring.take_undelivered(), None);

    let not_a_ring = sys::eventfd().unwrap();
    assert!(rig.uring.send_wake(not_a_ring.as_raw_fd(), 7));
    rig.enter(Wait::No);
    assert_eq!(rig.uring.take_undelivered(), Some(7));
    assert_eq!(rig.uring.take_undelivered(), None);
}

/// With more messages than the other's completion queue has entries, its ops are answered once
/// each.
#[test]
fn completion_queue_overflow_loses_nothing() {
    let mut rig = Rig::new(64, 64);
    let mut other = Rig::new(1, 1);
    let (reader, mut writer) = io::pipe().unwrap();
    let read = other.read(&reader).unwrap();
    other.enter(Wait::No);
    for _ in 0..200 {
        assert!(rig.uring.send_wake(other.uring.ring_fd(), 0));
        rig.enter(Wait::No);
    }
    writer.write_all(b"x").unwrap();
    other.uring.call_enter(0, ENTER_GETEVENTS, None);
    assert!(other.uring.ring.submission().cq_overflow());
    other.settle();
    assert_eq!(other.result(read), 1);
}

#[test]
fn flush_leaves_nothing_queued() {
    let mut rig = Rig::new(8, 8);
    let other = Rig::new(8, 8);
    rig.uring.injected_errors.extend([libc::EAGAIN; 3]);
    assert!(rig.uring.send_wake(other.uring.ring_fd(), 0));
    rig.uring.flush();
    assert!(rig.uring.ring.submission().is_empty());
}

/// Runs a test of this module in a process of its own, and returns its output; `None` within it.
fn in_child(test: &str) -> Option<std::process::Output> {
    const CHILD: &str = "CRINGLE_TEST_CHILD";
    if std::env::var_os(CHILD).is_some() {
        return None;
    }
    let mut command = std::process::Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", &format!("uring::tests::{test}"), "--nocapture"]);
    Some(command.env(CHILD, "1").output().unwrap())
}

#[test]
fn closing_a_ring_with_ops_aborts() {
    let Some(output) = in_child("closing_a_ring_with_ops_aborts") else {
        let mut rig = Rig::new(8, 8);
        let (reader, _writer) = io::pipe().unwrap();
        rig.read(&reader).unwrap();
        rig.enter(Wait::No);
        return drop(rig);
    };
    assert_eq!(output.status.signal(), Some(libc::SIGABRT));
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(stderr.contains("a ring was closed with 1 ops in flight"), "{stderr}");
}

/// The room for cancels and wake-ups comes on top of the limit, up to the largest queue.
#[test]
fn completion_queue_has_room_for_the_limit() {
    for limit in [1, 2, 63, 64, 100, 4032, 65_535] {
        let entries = options(1, limit).cq_entries();
        assert!(entries.is_power_of_two() && entries > limit, "{limit}: {entries}");
    }
}
