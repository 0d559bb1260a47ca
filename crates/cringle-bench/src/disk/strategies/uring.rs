//! `uring`: a hand-written loop on a bare ring, one ring for each thread.
//!
//! The runtime is measured against this loop, so it uses every advantage of a program that does
//! nothing else: the kernel runs completions only when the ring is entered (`DEFER_TASKRUN`), the
//! ring's descriptor is registered, the slot number leads to the state of an access, nothing is
//! allocated, and each round is one system call, which submits an access for every free slot and
//! waits for one completion; the loop then takes all completions. With `--fixed`, files and buffers
//! are registered.
//!
//! With `O_DIRECT`, submissions are made in groups: see [`DIRECT_GROUP`].

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
        if job.setting.fixed {
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
    job.setting.queue_depth * if job.commits() { 2 } else { 1 }
}

/// The number of direct operations that are submitted in one call.
///
/// The kernel plugs the block device while it takes submissions, and notifies the device after the
/// last one. With many operations in one call, the device idles until all of them are prepared;
/// smaller groups start it earlier. From the page cache no device idles, and each call more is a
/// cost: there all operations are submitted in one call.
const DIRECT_GROUP: usize = 4;

struct Loop<'a> {
    job: &'a Job,
    file: File,
    area: MmapMut,
    /// The start of `area`. Its bytes are accessed through this pointer only, because the kernel
    /// writes to some slots while the loop reads others.
    base: *mut u8,
    slots: Vec<Slot>,
    free: Vec<usize>,
    /// The most submissions in one call.
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

/// Set in the user data of a write that a linked sync follows. The sync's completion ends the
/// access.
const FIRST_OF_TWO: u64 = 1 << 63;

impl<'a> Loop<'a> {
    fn prepare(job: &'a Job, thread: usize) -> io::Result<Loop<'a>> {
        let lane = job.plan.lane(thread, job.setting.threads, 0, 1);
        let mut area = job.buffers(job.setting.queue_depth)?;
        let nothing = Access { offset: 0, write: false };
        Ok(Loop {
            job,
            file: job.open()?,
            base: area.as_mut_ptr(),
            area,
            slots: vec![Slot { access: nothing, started: None }; job.setting.queue_depth],
            free: (0..job.setting.queue_depth).rev().collect(),
            group: if job.setting.profile.is_direct() { DIRECT_GROUP } else { usize::MAX },
            lane_result: LaneResult::new(lane.clone()),
            lane,
            in_flight: 0,
            failed: None,
        })
    }

    fn register(&self, ring: &IoUring) -> io::Result<()> {
        ring.submitter().register_files(&[self.file.as_raw_fd()])?;
        let whole = libc::iovec { iov_base: self.base.cast(), iov_len: self.area.len() };
        // SAFETY: the memory is `area`, which outlives every operation on it (see `work`). The
        // kernel pins registered pages, so unmapping `area` later does no harm.
        unsafe { ring.submitter().register_buffers(&[whole]) }.map_err(|error| {
            let bytes = self.area.len() >> 10;
            let text = format!("cannot register {bytes} KiB of buffers: {error}; see `ulimit -l`");
            io::Error::new(error.kind(), text)
        })
    }

    fn work(mut self, ring: &mut IoUring) -> io::Result<Vec<LaneResult>> {
        let (mut submitter, mut submissions, mut completions) = ring.split();
        // Saves a descriptor lookup in each call. An old kernel refuses; the loop works without.
        let _ = submitter.register_ring_fd();
        loop {
            self.fill(&submitter, &mut submissions);
            if self.in_flight == 0 {
                break;
            }
            submissions.sync();
            if let Err(error) = ring::wait_for_one(&submitter) {
                // Operations that cannot be waited for may still write to their buffers, so that
                // memory must never be unmapped and reused.
                std::mem::forget(self.area);
                return Err(error);
            }
            // The kernel has taken the submissions; reads the new head of the queue.
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

    /// Queues an access for every free slot. The last group is submitted by the call that waits.
    #[inline]
    fn fill(&mut self, submitter: &Submitter<'_>, submissions: &mut squeue::SubmissionQueue<'_>) {
        if self.job.is_stopped() {
            return;
        }
        let mut queued = 0;
        while let Some(&slot) = self.free.last() {
            let Some(index) = self.lane.next() else { return };
            if queued == self.group {
                submissions.sync();
                // Refused submissions stay queued. The call that waits repeats them and reports
                // errors.
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
            let sync = self.sync_entry().user_data(slot as u64);
            // SAFETY: as below for the write; the sync uses no memory.
            unsafe { submissions.push_multiple(&[write, sync]) }
        } else {
            // SAFETY: the slot's bytes lie in `area`, and only this operation uses them until its
            // completion frees the slot. `work` returns when no operation is in flight, or forgets
            // `area`, so that the bytes outlive the operation.
            unsafe { submissions.push(&entry.user_data(slot as u64)) }
        };
        // The queue has an entry (two with commits) for each slot, and each slot queues at most one
        // access.
        result.expect("the submission queue has room for every slot");
    }

    #[inline]
    fn entry(&self, slot: usize, access: &Access) -> squeue::Entry {
        let bytes = self.job.plan.block as u32;
        let (start, offset) = (self.start_of(slot), access.offset);
        let (file, plain) = (types::Fixed(0), types::Fd(self.file.as_raw_fd()));
        match (self.job.setting.fixed, access.write) {
            (false, false) => opcode::Read::new(plain, start, bytes).offset(offset).build(),
            (false, true) => opcode::Write::new(plain, start, bytes).offset(offset).build(),
            (true, false) => opcode::ReadFixed::new(file, start, bytes, 0).offset(offset).build(),
            (true, true) => opcode::WriteFixed::new(file, start, bytes, 0).offset(offset).build(),
        }
    }

    fn sync_entry(&self) -> squeue::Entry {
        let file = types::Fd(self.file.as_raw_fd());
        opcode::Fsync::new(file).flags(types::FsyncFlags::DATASYNC).build()
    }

    #[inline]
    fn complete(&mut self, user_data: u64, result: i32) {
        let slot = (user_data & !FIRST_OF_TWO) as usize;
        let Slot { access, started } = self.slots[slot];
        let first_of_two = user_data & FIRST_OF_TWO != 0;
        let whole = result as usize == self.job.plan.block;
        let succeeded = result >= 0 && (whole || (self.job.commits() && !first_of_two));
        if !succeeded && self.failed.is_none() {
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
        // SAFETY: the bytes lie in `area` (see `start_of`). The operation of this slot has ended,
        // so the kernel does not write to them, and no reference to them exists.
        let block = unsafe { std::slice::from_raw_parts(self.start_of(slot), self.job.plan.block) };
        self.lane_result.add(block, &access);
    }

    /// Returns the bytes of a slot without an operation in flight.
    fn block(&mut self, slot: usize) -> &mut [u8] {
        // SAFETY: the bytes lie in `area` (see `start_of`). The slot has no operation, so the
        // kernel does not access them, and `&mut self` excludes other references.
        unsafe { std::slice::from_raw_parts_mut(self.start_of(slot), self.job.plan.block) }
    }

    /// Returns the address of a slot's bytes.
    #[inline]
    fn start_of(&self, slot: usize) -> *mut u8 {
        debug_assert!(slot < self.slots.len());
        // SAFETY: `area` has one block for each slot, so the result lies within the mapping.
        unsafe { self.base.add(slot * self.job.plan.block) }
    }
}
