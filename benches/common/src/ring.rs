//! The bare ring, at its best settings: the baseline of a runtime on io_uring.
//!
//! One thread, without tasks, futures, or allocation in the loop. It uses every setting that a
//! single-purpose program can: a single issuer, `DEFER_TASKRUN`, a registered ring descriptor, and
//! slot numbers as `user_data`. Each round is one system call, which submits a read for each free
//! slot and waits for one completion; then the loop takes all completions in the queue.

use crate::plan::head;
use cringle::block::AlignedBuf;
use io_uring::{IoUring, opcode, squeue, types};
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;

/// Reads blocks of one file at a queue depth.
pub struct Reader {
    ring: IoUring,
    file: File,
    /// A block for each slot. This field is dropped after the ring.
    area: AlignedBuf,
    block: usize,
    depth: usize,
    /// The file and the buffers are registered.
    fixed: bool,
}

impl Reader {
    pub fn new(file: File, depth: usize, block: usize, fixed: bool) -> io::Result<Reader> {
        let ring = IoUring::<squeue::Entry>::builder()
            .setup_single_issuer()
            .setup_defer_taskrun()
            .setup_submit_all()
            .setup_no_sqarray()
            .build(depth.next_power_of_two() as u32)?;
        let mut area = AlignedBuf::new(depth * block);
        if fixed {
            ring.submitter().register_files(&[file.as_raw_fd()])?;
            let whole = libc::iovec { iov_base: area.as_mut_ptr().cast(), iov_len: depth * block };
            // SAFETY: the memory outlives the ring, because `area` is the later field.
            unsafe { ring.submitter().register_buffers(&[whole]) }?;
        }
        Ok(Reader { ring, file, area, block, depth, fixed })
    }

    /// Reads the block at each offset, and returns the sum of their heads.
    pub fn read(&mut self, offsets: &[u64]) -> io::Result<u64> {
        let Reader { ring, file, area, block, depth, fixed } = self;
        let (mut submitter, mut queue, mut completions) = ring.split();
        // Saves a lookup in each call. Without it the ring works, too.
        let _ = submitter.register_ring_fd();
        let (file, block) = (types::Fd(file.as_raw_fd()), *block);
        let start = area.as_mut_ptr();
        let address = |slot: usize| start.wrapping_add(slot * block);
        let entry = |slot: usize, offset: u64| {
            let (buf, len) = (address(slot), block as u32);
            let entry = if *fixed {
                opcode::ReadFixed::new(types::Fixed(0), buf, len, 0).offset(offset).build()
            } else {
                opcode::Read::new(file, buf, len).offset(offset).build()
            };
            entry.user_data(slot as u64)
        };
        let mut free: Vec<usize> = (0..*depth).rev().collect();
        let (mut next, mut done, mut sum) = (0, 0, 0u64);
        while done < offsets.len() {
            while next < offsets.len()
                && let Some(slot) = free.pop()
            {
                // SAFETY: only this read uses the slot's memory until its completion frees the
                // slot, and this function returns after all completions. A panic ends the process.
                unsafe { queue.push(&entry(slot, offsets[next])) }.expect("an entry for each slot");
                next += 1;
            }
            queue.sync();
            submitter.submit_and_wait(1)?;
            completions.sync();
            queue.sync();
            for completion in &mut completions {
                assert_eq!(completion.result(), block as i32, "a short or failed read");
                let slot = completion.user_data() as usize;
                // SAFETY: the read of this slot has ended, and the slot's memory is `block` bytes.
                let bytes = unsafe { std::slice::from_raw_parts(address(slot), block) };
                sum = sum.wrapping_add(head(bytes));
                free.push(slot);
                done += 1;
            }
        }
        submitter.unregister_ring_fd().ok();
        Ok(sum)
    }
}
