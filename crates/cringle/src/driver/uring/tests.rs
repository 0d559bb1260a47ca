//! The ring by itself, with what the kernel answers in bad moments put into its mouth.

use super::enter::*;
use super::reap::special;
use super::*;
use crate::driver::completion::OpState;
use crate::driver::op::AT_CURSOR;
use crate::driver::{Full, Op, Target, Waiter, means_cancelled};
use crate::sys;
use std::cell::RefCell;
use std::collections::HashMap;
use std::io::Write;
use std::os::fd::{AsFd, OwnedFd};
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

/// A ring with the frames it owes to. Frames stay where they are until the ring is done with them.
struct Rig {
    uring: Uring,
    frames: Vec<Pin<Box<Frame>>>,
    /// How often each frame was handed back.
    settled: RefCell<HashMap<NonNull<()>, usize>>,
    bell: OwnedFd,
}

impl Rig {
    fn new(entries: u32, in_flight_limit: u32) -> Rig {
        let bell = sys::eventfd().unwrap();
        let features = Features::all();
        let options =
            UringOptions { entries, in_flight_limit, sqpoll: None, iopoll: false, features };
        let uring = Uring::new(&options, bell.as_raw_fd()).unwrap();
        Rig { uring, frames: Vec::new(), settled: RefCell::default(), bell }
    }

    /// The number of the frame that now waits for this op.
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
        self.push(|buf| Op::Read { target, buf, len: 1, offset: 0 })
    }

    /// A read that the limit is not about.
    fn read_of_peer(&mut self, fd: &impl AsFd) -> Result<usize, Full> {
        let target = Target::fd(fd.as_fd().as_raw_fd());
        self.push(|buf| Op::Read { target, buf, len: 1, offset: AT_CURSOR })
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

    /// Goes on until nothing is owed to any frame, then sees that each was handed back once.
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
fn what_enter_did_not_take_stays_queued_and_is_taken_later() {
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
fn a_sleeper_whose_submission_was_refused_comes_back_to_try_again() {
    for errno in BUSY {
        let mut rig = Rig::new(8, 8);
        let frame = rig.nop().unwrap();
        // More refusals than one call of `enter` makes system calls.
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
fn an_op_that_finds_no_room_is_refused_and_can_be_given_again() {
    for errno in BUSY {
        let mut rig = Rig::new(1, 8);
        rig.enter(Wait::No);
        rig.nop().unwrap();
        // The queue has one entry, and the kernel takes it not now.
        rig.uring.injected_errors.push_back(errno);
        assert!(rig.nop().is_err(), "{errno}");
        assert_eq!(rig.uring.in_flight(), 1, "what was refused does not count");
        rig.nop().unwrap();
        rig.settle();
    }
}

#[test]
fn the_limit_holds_whatever_the_kernel_has_room_for() {
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
fn who_waits_for_a_peer_takes_no_place_and_needs_none() {
    let mut rig = Rig::new(4, 2);
    let (reader, mut writer) = io::pipe().unwrap();
    // Many more than the completion queue holds.
    const WAITING: usize = 1000;
    (0..WAITING).for_each(|n| assert_eq!(rig.read_of_peer(&reader).unwrap(), n));
    assert_eq!((rig.uring.room(), rig.uring.in_flight()), (2, WAITING as u32));
    rig.read(&reader).unwrap();
    rig.read(&reader).unwrap();
    assert!(rig.nop().is_err(), "the limit is reached");
    rig.read_of_peer(&reader).unwrap();
    // All of them end at once: the queue overflows, and nothing is lost.
    writer.write_all(&[0; WAITING + 3]).unwrap();
    rig.settle();
    assert!((0..WAITING + 3).all(|frame| rig.result(frame) == 1));
    assert_eq!(rig.uring.room(), 2);
}

#[test]
fn no_cancel_is_dropped_when_the_queue_is_full() {
    const READS: usize = 500;
    for errno in BUSY {
        let mut rig = Rig::new(1, READS as u32);
        let (reader, _writer) = io::pipe().unwrap();
        (0..READS).for_each(|n| assert_eq!(rig.read(&reader).unwrap(), n));
        rig.enter(Wait::No);
        // Every third call fails.
        rig.uring.injected_errors.extend([errno, 0, 0].repeat(200));
        (0..READS).for_each(|frame| rig.cancel(frame));
        (0..READS).for_each(|frame| rig.cancel(frame)); // asking twice is asking once
        rig.settle();
        assert!((0..READS).all(|frame| means_cancelled(rig.result(frame))));
    }
}

/// Sleeping with a cancel that was never submitted would be for ever: nothing else ends the read.
#[test]
fn a_worker_does_not_sleep_over_a_cancel_that_found_no_room() {
    let mut rig = Rig::new(1, 8);
    let (reader, _writer) = io::pipe().unwrap();
    let cancelled = rig.read(&reader).unwrap();
    rig.enter(Wait::No);
    sys::eventfd_signal(rig.bell.as_fd());
    while rig.uring.wake.armed {
        rig.enter(Wait::No);
    }
    let _second = rig.read(&reader).unwrap();
    // No room for the cancel; then room for the read of the wake-ups, which never ends by itself,
    // and none for the cancel again.
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
fn a_cancel_of_what_has_ended_is_withdrawn() {
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
        assert!(rig.uring.cancels.is_idle(), "it has ended: there is nothing to cancel");
    }
}

/// The op's entry is in the queue already when it is cancelled, and is taken before the cancel is given
/// to the kernel: given later it would name a frame that is others' by then.
#[test]
fn a_cancel_that_still_waits_when_its_op_ends_is_not_given_to_the_kernel() {
    // More than may be asked for at once.
    let many = setup::RESERVED_CQES as usize;
    let mut rig = Rig::new(8, many as u32);
    let nops: Vec<_> = (0..many).map(|_| rig.nop().unwrap()).collect();
    rig.uring.enter(Wait::No);
    nops.iter().for_each(|&nop| rig.cancel(nop));
    assert!(rig.uring.cancels.has_backlog());
    rig.reap();
    assert!(nops.iter().all(|&nop| rig.is_done(nop)));
    assert!(!rig.uring.cancels.has_backlog(), "what waits is withdrawn");
    let settled = nops.iter().filter(|&&nop| rig.frames[nop].waiter.is_settled());
    assert!(settled.count() >= many / 2);
    rig.settle();
}

#[test]
fn a_cancel_that_is_withdrawn_leaves_the_others_in_their_places() {
    let many = 4 * setup::RESERVED_CQES as usize;
    let mut rig = Rig::new(8, 8);
    let (fed, mut writer) = io::pipe().unwrap();
    let (reader, _writer) = io::pipe().unwrap();
    let mut read = |fd| rig.read_of_peer(fd).unwrap();
    let (ends, waits): (Vec<_>, Vec<_>) =
        (0..many / 2).map(|_| (read(&fed), read(&reader))).unzip();
    rig.enter(Wait::No);
    (0..many).for_each(|frame| rig.cancel(frame));
    // Some of them are given to the kernel; then ops end whose cancels are still behind those.
    rig.enter(Wait::No);
    writer.write_all(&vec![0; many]).unwrap();
    // One reader is woken at a time, which needs the kernel to be entered: no more cancels until then.
    while !ends.iter().any(|&read| rig.is_done(read) && rig.result(read) == 1) {
        rig.uring.submit();
        rig.reap();
    }
    rig.settle();
    assert!(waits.iter().all(|&read| means_cancelled(rig.result(read))));
    let ended = ends.iter().filter(|&&read| rig.result(read) == 1).count();
    assert!(ended > 0, "none of them could be withdrawn");
}

/// What the kernel answers while one of its threads is about to run the op, which then stays armed.
#[test]
fn a_cancel_that_was_not_answered_by_0_is_asked_again() {
    for answer in [-libc::EALREADY, -libc::ENOENT] {
        let mut rig = Rig::new(8, 8);
        let (reader, _writer) = io::pipe().unwrap();
        let read = rig.read(&reader).unwrap();
        rig.enter(Wait::No);
        // As if it had been asked, and answered so.
        let completion = &rig.frames[read].completion;
        completion.waiter_ref().owe();
        completion.cancel.set(CancelState::InFlight);
        let user_data = std::ptr::from_ref(completion) as u64 | CANCEL_TAG;
        let uring = &mut rig.uring;
        uring.cancels.in_flight += 1;
        let undelivered = &mut uring.undelivered;
        let freed = special(user_data, answer, &mut uring.cancels, &mut uring.wake, undelivered);
        assert!(freed.is_none(), "the op's own entry is still owed");
        rig.settle();
        assert!(means_cancelled(rig.result(read)));
    }
}

/// The frame of an op is handed back when its cancel has been answered, too: that answer must not
/// find the next op of the same frame.
#[test]
fn a_frame_is_not_handed_back_before_its_cancel_is_answered() {
    let mut rig = Rig::new(8, 8);
    let read = {
        let (reader, writer) = io::pipe().unwrap();
        let read = rig.read(&reader).unwrap();
        rig.enter(Wait::No);
        rig.cancel(read);
        drop(writer);
        // Both the end of the pipe and the cancel end it now; two entries come for one frame.
        assert!(!rig.frames[read].waiter.is_settled());
        rig.uring.call_enter(0, ENTER_GETEVENTS, None);
        rig.reap();
        read
    };
    rig.settle();
    assert!(rig.result(read) == 0 || means_cancelled(rig.result(read)));
}

#[test]
fn a_deadline_ends_a_sleep_with_nothing_in_flight() {
    let mut rig = Rig::new(8, 8);
    let deadline = Instant::now() + Duration::from_millis(5);
    while Instant::now() < deadline {
        rig.enter(Wait::Until(Some(deadline)));
    }
    // One that is over does not sleep.
    rig.enter(Wait::Until(Some(deadline)));
}

#[test]
fn a_signal_of_the_wake_up_descriptor_ends_a_sleep_again_and_again() {
    let mut rig = Rig::new(1, 1);
    for _ in 0..100 {
        let bell = rig.bell.try_clone().unwrap();
        let thread = std::thread::spawn(move || sys::eventfd_signal(bell.as_fd()));
        // It returns because of the signal: nothing else is there.
        rig.uring.wake.armed.then(|| rig.enter(Wait::Until(None)));
        rig.enter(Wait::No);
        thread.join().unwrap();
    }
}

#[test]
fn a_message_reaches_another_ring_and_one_that_cannot_is_told_of() {
    let mut rig = Rig::new(8, 8);
    let mut other = Rig::new(8, 8);
    assert!(rig.uring.send_wake(other.uring.ring_fd(), 7));
    rig.enter(Wait::No);
    // It ends the other's sleep, and is no completion of an op.
    other.enter(Wait::Until(None));
    assert_eq!(rig.uring.take_undelivered(), None);

    let not_a_ring = sys::eventfd().unwrap();
    assert!(rig.uring.send_wake(not_a_ring.as_raw_fd(), 7));
    rig.enter(Wait::No);
    assert_eq!(rig.uring.take_undelivered(), Some(7));
    assert_eq!(rig.uring.take_undelivered(), None);
}

/// More messages than the other's completion queue has entries: its own ops are answered once each.
#[test]
fn an_overflow_of_the_completion_queue_loses_nothing() {
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

#[test]
fn closing_a_ring_with_an_op_in_flight_aborts() {
    const CHILD: &str = "CRINGLE_TEST_CHILD";
    let name = "driver::uring::tests::closing_a_ring_with_an_op_in_flight_aborts";
    if std::env::var_os(CHILD).is_some() {
        let mut rig = Rig::new(8, 8);
        let (reader, _writer) = io::pipe().unwrap();
        rig.read(&reader).unwrap();
        rig.enter(Wait::No);
        return drop(rig);
    }
    let mut command = std::process::Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", name, "--nocapture"]).env(CHILD, "1");
    let output = command.output().unwrap();
    assert_eq!(output.status.signal(), Some(libc::SIGABRT));
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("a ring was closed with 1 ops in flight"), "{said}");
}

/// The room for cancels and wake-ups is beside that for ops, up to the largest queue there is.
#[test]
fn the_completion_queue_has_room_for_all_that_may_be_in_flight() {
    for limit in [1, 2, 63, 64, 100, 4032, 65_535] {
        let features = Features::all();
        let options = UringOptions {
            entries: 1,
            in_flight_limit: limit,
            sqpoll: None,
            iopoll: false,
            features,
        };
        let entries = options.cq_entries();
        assert!(entries.is_power_of_two() && entries > limit, "{limit}: {entries}");
    }
}
