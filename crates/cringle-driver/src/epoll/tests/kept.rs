//! Descriptors that the program closes while ops wait for them.

use super::*;
use crate::epoll::poller::{Event, IN};
use crate::epoll::wait_queues::Direction;
use crate::kept::{closing, closing_range};
use std::io::PipeWriter;
use std::os::fd::RawFd;

/// A driver to which the program announces its closes.
fn rig() -> Rig {
    let mut rig = Rig::new(8);
    rig.epoll.has_closing = true;
    rig
}

/// A reader at a number that no other test of this process gets.
fn reader_at(number: RawFd) -> (RawFd, PipeWriter) {
    let (reader, writer) = std::io::pipe().unwrap();
    // SAFETY: I9. The test owns this number.
    unsafe {
        assert_eq!(libc::dup2(reader.as_raw_fd(), number), number);
    }
    (number, writer)
}

fn close(fd: RawFd) {
    // SAFETY: I9. The test owns this number.
    assert_eq!(unsafe { libc::close(fd) }, 0);
}

fn close_range(first: RawFd, last: RawFd) {
    let close = |first, last| (first..=last).map(|fd: u32| close(fd as RawFd)).map(|()| 0).sum();
    assert_eq!(closing_range(first as u32..=last as u32, close), 0);
}

fn read(rig: &mut Rig, fd: RawFd) -> usize {
    let target = Target::fd(fd);
    let number = rig.push(|buf| Op::read(target, buf, 1, AT_CURSOR)).unwrap();
    rig.enter();
    number
}

#[test]
fn wait_continues_on_a_duplicate() {
    let ways: [fn(RawFd); 2] = [|fd| closing(fd, || close(fd)), |fd| close_range(fd, fd)];
    for way in ways {
        let (fd, mut writer) = reader_at(610);
        let mut rig = rig();
        let reads = [read(&mut rig, fd), read(&mut rig, fd)];
        way(fd);
        writer.write_all(&[7, 8]).unwrap();
        rig.until_idle();
        assert_eq!(reads.map(|number| rig.byte(number)), [7, 8]);
        assert_eq!(rig.epoll.wait_queues.count, 0);
        // The duplicate is closed, but a child that another test starts has it for a moment.
        until(|| writer.write(&[9]).is_err());
    }
}

/// The event is older than the post: the driver finds the later generation first.
#[test]
fn event_of_a_closed_number_finds_the_duplicate() {
    let (fd, mut writer) = reader_at(620);
    let mut rig = rig();
    let reads = read(&mut rig, fd);
    closing(fd, || close(fd));
    writer.write_all(&[7]).unwrap();
    rig.epoll.on_event(&Event { fd, events: IN });
    rig.until_idle();
    assert_eq!((rig.result(reads), rig.byte(reads)), (1, 7));
}

#[test]
fn paused_op_continues_on_a_duplicate() {
    let (fd, mut writer) = reader_at(630);
    let mut rig = rig();
    let reads = [read(&mut rig, fd), read(&mut rig, fd)];
    for number in reads.map(|number| rig.number(number)) {
        let epoll = &mut *rig.epoll;
        epoll.wait_queues.remove(&mut epoll.flights, fd, Direction::In, number);
        epoll.back_off(number);
    }
    let (next, mut next_writer) = std::io::pipe().unwrap();
    // SAFETY: I9. The test owns this number.
    closing(fd, || assert_eq!(unsafe { libc::dup2(next.as_raw_fd(), fd) }, fd));
    next_writer.write_all(&[9, 9]).unwrap();
    writer.write_all(&[7, 8]).unwrap();
    // The pauses are over before the post is taken.
    rig.epoll.last_poll = Instant::now() + Duration::from_secs(1);
    rig.epoll.retry_due();
    rig.until_idle();
    assert_eq!(reads.map(|number| rig.byte(number)), [7, 8]);
    close(fd);
}

#[test]
fn wait_for_another_number_stays() {
    // The numbers share a part of the table.
    let [(fd, mut writer), (other, mut other_writer)] = [640, 640 + 256].map(reader_at);
    let mut rig = rig();
    let reads = [read(&mut rig, fd), read(&mut rig, other)];
    closing(fd, || close(fd));
    let waits_for = |rig: &mut Rig, number| match *rig.stage(number) {
        Stage::Waiting(fd, _) => fd,
        _ => panic!("the op waits"),
    };
    rig.epoll.take_results();
    assert_ne!(waits_for(&mut rig, reads[0]), fd);
    assert_eq!(waits_for(&mut rig, reads[1]), other);
    writer.write_all(&[7]).unwrap();
    other_writer.write_all(&[8]).unwrap();
    rig.until_idle();
    assert_eq!(reads.map(|number| rig.byte(number)), [7, 8]);
    close(other);
}

/// An op that begins to wait after the duplicate was made, and before the close.
#[test]
fn wait_that_the_close_overtakes_fails() {
    let (fd, mut writer) = reader_at(650);
    let mut rig = rig();
    let first = read(&mut rig, fd);
    let mut late = 0;
    closing(fd, || {
        late = read(&mut rig, fd);
        close(fd);
    });
    until(|| {
        rig.sleep();
        !rig.settled.is_empty()
    });
    assert_eq!((&rig.settled[..], rig.result(late)), (&[late][..], -libc::EBADF));
    writer.write_all(&[7]).unwrap();
    rig.until_idle();
    assert_eq!(rig.byte(first), 7);
}
