//! `uring`: a hand-written loop on the bare ring, one ring a thread.
//!
//! This is what the runtime is measured against, so it takes every advantage that a program
//! with nothing else to do can have: the kernel runs completions only when asked
//! (`DEFER_TASKRUN`), the ring's descriptor is registered, an access's state is found by its
//! slot number, nothing is allocated, and each round is one system call that submits all that
//! is free, waits for one completion, and then takes all that are there. With `--fixed` files
//! and buffers are registered as well.
//!
//! With `O_DIRECT` one thing is different: see [`DIRECT_GROUP`].

use crate::disk::job::{Job, LaneResult};
use crate::disk::plan::{Access, Lane};
use crate::ring;
use io_uring::{IoUring, Submitter, opcode, squeue, types};
use memmap2::MmapMut;
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Instant;

pub(super) fn run(job: &Job) -> io::Result<Vec<LaneResult>> {
    super::on_threads(job, |thread, mut party| {
        let build = if job.iopoll { ring::build_iopoll } else { ring::build };
        let mut ring = build(entries(job))?;
        let loops = Loop::prepare(job, thread)?;
        if job.fixed {
            loops.register(&ring)?;
        }
        party.enter()?;
        let result = loops.work(&mut ring);
        drop(party);
        result
    })
}

/// A committed append is two linked submissions: the write, and the sync after it.
fn entries(job: &Job) -> usize {
    job.queue_depth * if job.commits() { 2 } else { 1 }
}

/// So many direct operations are submitted at a time.
///
/// The kernel plugs the block device while it takes submissions, and rings its bell when it has
/// taken the last: of 32 in one call the first begins when all are prepared, and the device
/// idles meanwhile. On a virtio disk at queue depth 32, groups of 2 to 8 gave 15 to 30 % more
/// operations than one group, for less CPU each (fewer of them complete alone); at depth 128
/// the device is the limit either way. In the page cache nobody idles and a call more is a
/// call more: there all go at once.
const DIRECT_GROUP: usize = 4;

struct Loop<'a> {
    job: &'a Job,
    files: Vec<File>,
    area: MmapMut,
    /// Where `area` begins. Its bytes are reached through this pointer only, since the kernel
    /// writes to some of them while others are looked at.
    base: *mut u8,
    slots: Vec<Slot>,
    free: Vec<usize>,
    /// Submissions in one call.
    group: usize,
    lane: Lane,
    lane_result: LaneResult,
    in_flight: usize,
    failed: Option<io::Error>,
}

#[derive(Clone, Copy)]
struct Slot {
    access: Access,
    started: Option<Instant>,
}

/// Set in the user data of a write that has a sync behind it, which stands for both.
const FIRST_OF_TWO: u64 = 1 << 63;

impl<'a> Loop<'a> {
    fn prepare(job: &'a Job, thread: usize) -> io::Result<Loop<'a>> {
        let lane = job.plan.lane(thread, job.threads, 0, 1);
        let mut area = job.buffers(job.queue_depth)?;
        let nothing = Access { offset: 0, file: 0, write: false };
        Ok(Loop {
            job,
            files: job.open_files()?,
            base: area.as_mut_ptr(),
            area,
            slots: vec![Slot { access: nothing, started: None }; job.queue_depth],
            free: (0..job.queue_depth).rev().collect(),
            group: if job.profile.direct() { DIRECT_GROUP } else { usize::MAX },
            lane_result: LaneResult::new(lane.clone()),
            lane,
            in_flight: 0,
            failed: None,
        })
    }

    fn register(&self, ring: &IoUring) -> io::Result<()> {
        let descriptors: Vec<_> = self.files.iter().map(File::as_raw_fd).collect();
        ring.submitter().register_files(&descriptors)?;
        let whole = libc::iovec { iov_base: self.base.cast(), iov_len: self.area.len() };
        // SAFETY: the memory is `area`, which outlives every operation on it (see `work`); the
        // kernel itself keeps registered pages alive.
        unsafe { ring.submitter().register_buffers(&[whole]) }.map_err(|error| {
            let bytes = self.area.len() >> 10;
            let text = format!("cannot register {bytes} KiB of buffers: {error}; see `ulimit -l`");
            io::Error::new(error.kind(), text)
        })
    }

    fn work(mut self, ring: &mut IoUring) -> io::Result<Vec<LaneResult>> {
        let (mut submitter, mut submissions, mut completions) = ring.split();
        // One descriptor lookup less in each call; where it is refused nothing is lost.
        let _ = submitter.register_ring_fd();
        loop {
            self.fill(&submitter, &mut submissions);
            if self.in_flight == 0 {
                break;
            }
            submissions.sync();
            if let Err(error) = ring::wait_for_one(&submitter) {
                // Operations that cannot be waited for may still write to their buffers:
                // those must never be used for anything else.
                std::mem::forget(self.area);
                return Err(error);
            }
            // The kernel has taken what was queued: there is room again.
            submissions.sync();
            completions.sync();
            for entry in &mut completions {
                self.complete(entry.user_data(), entry.result());
            }
        }
        match self.failed {
            Some(error) => Err(error),
            None => Ok(vec![self.lane_result]),
        }
    }

    /// Gives every free slot an access. The last group is left to be submitted with the wait.
    #[inline]
    fn fill(&mut self, submitter: &Submitter<'_>, submissions: &mut squeue::SubmissionQueue<'_>) {
        if self.job.stopped() {
            return;
        }
        let mut queued = 0;
        while let Some(&slot) = self.free.last() {
            let Some(index) = self.lane.next() else { return };
            if queued == self.group {
                submissions.sync();
                // What is refused stays queued; the call that waits asks again, and reports.
                let _ = submitter.submit();
                submissions.sync();
                queued = 0;
            }
            queued += 1;
            self.free.pop();
            self.in_flight += 1;
            let access = self.job.access(index);
            if access.write {
                self.job.stamp(self.block(slot), &access);
            }
            let started = self.job.sampling.takes(index).then(Instant::now);
            self.slots[slot] = Slot { access, started };
            self.push(submissions, slot, &access);
        }
    }

    #[inline]
    fn push(
        &mut self,
        submissions: &mut squeue::SubmissionQueue<'_>,
        slot: usize,
        access: &Access,
    ) {
        let entry = self.entry(slot, access);
        let result = if self.job.commits() {
            let write = entry.flags(squeue::Flags::IO_LINK).user_data(slot as u64 | FIRST_OF_TWO);
            let sync = self.sync_entry(access).user_data(slot as u64);
            // SAFETY: as below; a sync has no memory.
            unsafe { submissions.push_multiple(&[write, sync]) }
        } else {
            // SAFETY: the slot's bytes are in `area` and used by this operation alone until
            // its completion gives the slot back; `work` ends only when none is in flight,
            // or else gives `area` away for good.
            unsafe { submissions.push(&entry.user_data(slot as u64)) }
        };
        // There are as many entries as slots, and each slot has at most one in the queue.
        result.expect("the submission queue has room for every slot");
    }

    #[inline]
    fn entry(&self, slot: usize, access: &Access) -> squeue::Entry {
        let bytes = self.job.plan.block as u32;
        let (place, offset) = (self.place(slot), access.offset);
        let file = types::Fixed(access.file);
        let plain = types::Fd(self.files[access.file as usize].as_raw_fd());
        match (self.job.fixed, access.write) {
            (false, false) => opcode::Read::new(plain, place, bytes).offset(offset).build(),
            (false, true) => opcode::Write::new(plain, place, bytes).offset(offset).build(),
            (true, false) => opcode::ReadFixed::new(file, place, bytes, 0).offset(offset).build(),
            (true, true) => opcode::WriteFixed::new(file, place, bytes, 0).offset(offset).build(),
        }
    }

    fn sync_entry(&self, access: &Access) -> squeue::Entry {
        let flags = types::FsyncFlags::DATASYNC;
        let plain = types::Fd(self.files[access.file as usize].as_raw_fd());
        match self.job.fixed {
            true => opcode::Fsync::new(types::Fixed(access.file)).flags(flags).build(),
            false => opcode::Fsync::new(plain).flags(flags).build(),
        }
    }

    #[inline]
    fn complete(&mut self, user_data: u64, result: i32) {
        let slot = (user_data & !FIRST_OF_TWO) as usize;
        let Slot { access, started } = self.slots[slot];
        let first_of_two = user_data & FIRST_OF_TWO != 0;
        let moved = result as usize == self.job.plan.block;
        let good = result >= 0 && (moved || (self.job.commits() && !first_of_two));
        if !good && self.failed.is_none() {
            self.failed = Some(match result {
                n if n >= 0 => self.job.short(&access, n as usize),
                n => io::Error::from_raw_os_error(-n),
            });
            self.job.stop.store(true, Relaxed);
        }
        if first_of_two {
            return;
        }
        if let Some(started) = started {
            self.lane_result.time(started);
        }
        self.in_flight -= 1;
        self.free.push(slot);
        // SAFETY: the operation of this slot has ended, so its bytes are nobody else's.
        let block = unsafe { std::slice::from_raw_parts(self.place(slot), self.job.plan.block) };
        self.lane_result.add(block, &access);
    }

    /// The bytes of a slot that has no operation in flight.
    fn block(&mut self, slot: usize) -> &mut [u8] {
        // SAFETY: as for `place`; the slot is free, so that the kernel does not use it, and
        // `&mut self` keeps others out.
        unsafe { std::slice::from_raw_parts_mut(self.place(slot), self.job.plan.block) }
    }

    #[inline]
    fn place(&self, slot: usize) -> *mut u8 {
        debug_assert!(slot < self.slots.len());
        // SAFETY: `area` has a block for each slot.
        unsafe { self.base.add(slot * self.job.plan.block) }
    }
}
