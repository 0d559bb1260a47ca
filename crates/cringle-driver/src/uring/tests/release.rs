//! Ops that kernel threads perform, and the release of their files.

use super::*;
use crate::op::FileRange;
use std::fs::{File, OpenOptions};
use std::os::fd::FromRawFd;

/// A kernel thread may still have an op's file when the completion arrives. Without the releases
/// this fails once in 2,000 to 8,000 ops. (A child that another test starts has the file until it
/// executes its program: so this test has a process of its own.)
#[test]
fn closed_file_holds_no_lock() {
    if let Some(output) = in_child("release::closed_file_holds_no_lock") {
        let text = String::from_utf8_lossy(&output.stderr);
        return assert!(output.status.success(), "{text}");
    }
    const FIRST_BYTE: FileRange = FileRange { offset: 0, len: 1 };
    const OPS: [fn(RawFd, *mut u8) -> Op; 5] = [
        |fd, _| Op::File(FileOp::Sync { fd, data_only: true }),
        |fd, buf| Op::write(Target::fd(fd).punted(), buf, 1, 0),
        |fd, _| Op::File(FileOp::Allocate { fd, mode: 0, range: &FIRST_BYTE }),
        |fd, _| Op::File(FileOp::SetLen { fd, len: 1 }),
        |fd, _| Op::File(FileOp::SyncRange { fd, flags: 0, range: &FIRST_BYTE }),
    ];
    let mut rig = Rig::new(8, 8);
    // SAFETY: the contract of `from_raw_fd`: the new descriptor has no other owner. The name is a
    // C string.
    let file = unsafe {
        File::from_raw_fd(sys::result_of(libc::memfd_create(c"lock".as_ptr(), 0)).unwrap() as i32)
    };
    for round in 0..4000 {
        for op in OPS {
            let path = format!("/proc/self/fd/{}", file.as_raw_fd());
            let locked = OpenOptions::new().write(true).open(path).unwrap();
            if !op(0, std::ptr::null_mut()).fits_ring(rig.uring.features()) {
                continue;
            }
            locked.try_lock().unwrap();
            let frame = rig.push(|buf| op(locked.as_raw_fd(), buf)).unwrap();
            while !rig.is_done(frame) {
                rig.enter(Wait::No);
            }
            assert!(rig.result(frame) >= 0, "{}", rig.result(frame));
            let name = op(0, std::ptr::null_mut()).name();
            drop(locked);
            file.try_lock().unwrap_or_else(|e| panic!("round {round}, {name:?}: {e}"));
            file.unlock().unwrap();
        }
    }
}

#[test]
fn result_and_release_arrive_in_either_order() {
    let waiter = Waiter::new(NonNull::dangling());
    let start = || {
        let completion = Completion::new();
        completion.start(&Op::File(FileOp::Sync { fd: 0, data_only: false }), &raw const waiter);
        completion.await_release();
        completion
    };
    let completion = start();
    assert_eq!(completion.take_result(-5), None);
    assert!(!completion.is_cancellable(), "it has its result");
    assert_eq!(completion.take_release(), Some(-5));
    let completion = start();
    assert_eq!(completion.take_release(), None);
    assert!(completion.is_cancellable());
    assert_eq!(completion.take_result(-5), Some(-5));
}

/// A link ends with the submission: an op and its release are never split.
#[test]
fn op_and_its_release_are_queued_together() {
    let mut rig = Rig::new(2, 8);
    let file = tempfile::tempfile().unwrap();
    rig.enter(Wait::No);
    let sync = |rig: &mut Rig| {
        let fd = file.as_raw_fd();
        rig.push(|_| Op::File(FileOp::Sync { fd, data_only: true }))
    };
    rig.nop().unwrap();
    // One entry is free, and the kernel does not take the other now.
    rig.uring.injected_errors.push_back(libc::EAGAIN);
    assert!(sync(&mut rig).is_err());
    assert_eq!(rig.uring.queued(), 1, "nothing of the refused op is queued");
    let synced = sync(&mut rig).unwrap();
    assert_eq!(rig.uring.queued(), 2);
    rig.settle();
    assert_eq!(rig.result(synced), 0);
}

#[test]
fn op_is_cancelled_with_its_release() {
    let mut rig = Rig::new(8, 8);
    let (_reader, writer) = io::pipe().unwrap();
    // More than the pipe takes: the kernel thread waits.
    let bytes = vec![0; 1 << 20];
    let op = |_| {
        Op::write(
            Target::fd(writer.as_raw_fd()).punted(),
            bytes.as_ptr(),
            bytes.len() as u32,
            AT_CURSOR,
        )
    };
    let write = rig.push(op).unwrap();
    rig.enter(Wait::No);
    rig.cancel(write);
    rig.settle();
    let result = rig.result(write);
    assert!(means_cancelled(result) || result > 0, "{result}");
}
