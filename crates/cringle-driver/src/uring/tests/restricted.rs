//! A restricted ring does what the driver asks, and nothing else.

use super::*;
use crate::FileOp;
use crate::ring_use::{OPS, flag};
use io_uring::squeue::Entry;

fn restricted() -> Rig {
    Rig::with(&UringOptions { restrict: true, ..options(8, 8) })
}

/// An entry of this opcode and these flags, and otherwise zero.
fn entry(code: u8, flags: u8) -> Entry {
    let mut bytes = [0u8; 64];
    (bytes[0], bytes[1]) = (code, flags);
    // SAFETY: the contract of `transmute`: an entry is a `struct io_uring_sqe`, 64 bytes of plain
    // data.
    unsafe { std::mem::transmute::<[u8; 64], Entry>(bytes) }
}

impl Rig {
    fn result_of(&mut self, entry: &Entry) -> i32 {
        let raw = Op::Raw(entry);
        let frame = self.push(|_| raw).unwrap();
        self.settle();
        self.result(frame)
    }
}

#[test]
fn ops_without_a_row_are_refused() {
    let mut rig = restricted();
    // The number of opcodes that the kernel knows.
    let mut probe = io_uring::Probe::new();
    IoUring::new(1).unwrap().submitter().register_probe(&mut probe).unwrap();
    let known = (0..u8::MAX).filter(|code| probe.is_supported(*code));
    let others: Vec<_> = known.filter(|code| OPS.iter().all(|(row, _)| row != code)).collect();
    assert!(others.len() > 5, "{others:?}");
    for code in others {
        assert_eq!(rig.result_of(&entry(code, 0)), -libc::EACCES, "opcode {code}");
    }
    assert_eq!(rig.result_of(&entry(opcode::Nop::CODE, 0)), 0);
    // Without the restriction the kernel knows it.
    const TIMEOUT: u8 = 11;
    let mut free = Rig::with(&UringOptions { restrict: false, ..options(8, 8) });
    assert_ne!(free.result_of(&entry(TIMEOUT, 0)), -libc::EACCES);
}

#[test]
fn flags_without_a_row_are_refused() {
    // (The kernel drains also for an entry with `IO_DRAIN` that it then refuses.)
    const LINK: u8 = 1 << 2;
    let mut rig = restricted();
    assert_eq!(rig.result_of(&entry(opcode::Nop::CODE, LINK)), -libc::EACCES);
    assert_eq!(rig.result_of(&entry(opcode::Nop::CODE, flag::ASYNC.bits())), 0);
}

#[test]
fn requests_without_a_row_are_refused() {
    let rig = restricted();
    let ring = rig.uring.ring.submitter();
    let refused = |result: io::Result<()>| result.unwrap_err().raw_os_error() == Some(libc::EACCES);
    assert!(refused(ring.register_eventfd(rig.wake_fd.as_raw_fd())));
    assert!(refused(ring.unregister_files()));
    assert!(ring.register_restrictions(&mut []).is_err(), "it cannot be freed");
}

#[test]
fn ops_in_linked_and_fixed_forms_pass() {
    let mut rig = restricted();
    let mut file = tempfile::tempfile().unwrap();
    file.write_all(b"x").unwrap();
    // A linked pair.
    let fd = file.as_raw_fd();
    let sync = rig.push(|_| Op::File(FileOp::Sync { fd, data_only: true })).unwrap();
    // A registered file.
    let slot = rig.uring.register_file(fd).unwrap();
    let fixed = rig.push(|buf| Op::read(Target::fixed(slot), buf, 1, 0)).unwrap();
    rig.settle();
    assert_eq!((rig.result(sync), rig.result(fixed)), (0, 1));
    rig.uring.unregister_file(slot);
    // A registered buffer.
    let mut page = vec![0u8; 4096];
    // SAFETY: I4. The slot is emptied before the page is freed.
    let buffer = unsafe { rig.uring.register_buffer(page.as_mut_ptr(), page.len()) }.unwrap();
    rig.uring.unregister_buffer(buffer);
    // A cancel.
    let (reader, _writer) = io::pipe().unwrap();
    let waits = rig.read_of_peer(&reader).unwrap();
    rig.enter(Wait::No);
    rig.cancel(waits);
    rig.settle();
    assert!(means_cancelled(rig.result(waits)));
}

#[test]
fn rings_of_each_kind_can_be_restricted() {
    let sqpoll = Some(Duration::from_millis(1));
    let of_kind = |sqpoll, iopoll| UringOptions { sqpoll, iopoll, restrict: true, ..options(8, 8) };
    for options in [of_kind(None, true), of_kind(sqpoll, false), of_kind(sqpoll, true)] {
        let mut rig = Rig::with(&options);
        assert_eq!(rig.result_of(&entry(opcode::Nop::CODE, 0)), 0);
        const TIMEOUT: u8 = 11;
        assert_eq!(rig.result_of(&entry(TIMEOUT, 0)), -libc::EACCES);
        if let Some(polled) = &rig.uring.polled {
            let error = polled.ring.submitter().unregister_files().unwrap_err();
            assert_eq!(error.raw_os_error(), Some(libc::EACCES));
        }
    }
    // An older kernel lacks features, which are then tried one by one.
    let features = Features::none().with(Feature::SubmitAll);
    let mut rig = Rig::with(&UringOptions { features, restrict: true, ..options(8, 8) });
    assert_eq!(rig.result_of(&entry(opcode::Nop::CODE, 0)), 0);
}

/// The wake-up from ring to ring, and its entry without a completion.
#[test]
fn restricted_rings_wake_each_other() {
    let (mut rig, mut other) = (restricted(), restricted());
    assert!(rig.uring.send_wake(other.uring.ring_fd(), 1));
    rig.enter(Wait::No);
    // It ends when the message is there.
    other.enter(Wait::Until(None));
    assert_eq!(rig.uring.take_undelivered(), None);
}
