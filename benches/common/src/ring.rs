//! The bare ring: what a runtime on top of io_uring is measured against, at its best settings.
//!
//! One thread, no tasks, no futures, no allocation while it works. It takes what a program with
//! nothing else to do can have: the ring has one issuer, the kernel runs completions only when
//! asked for them, the ring's descriptor is registered, a read's state is found by its slot's
//! number; and each round is one system call that submits all that is free, waits for one
//! completion, and then takes all that are there.

use crate::buffer::AlignedBuf;
use crate::plan::head;
use io_uring::{IoUring, opcode, squeue, types};
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;

/// What the kernel is asked to look up once instead of for each read, and how it is called.
#[derive(Clone, Copy, Debug, Default)]
pub struct Options {
    /// Register the file and the buffers.
    pub fixed: bool,
    /// Submit in one call, and wait in another if nothing has come yet, as fio does.
    pub split: bool,
}

/// Reads blocks of one file at a queue depth.
pub struct Reader {
    ring: IoUring,
    file: File,
    /// A block for each slot. Dropped after the ring.
    area: AlignedBuf,
    block: usize,
    depth: usize,
    options: Options,
}

impl Reader {
    pub fn new(file: File, depth: usize, block: usize, options: Options) -> io::Result<Reader> {
        let ring = IoUring::<squeue::Entry>::builder()
            .setup_single_issuer()
            .setup_defer_taskrun()
            .setup_submit_all()
            .setup_no_sqarray()
            .build(depth.next_power_of_two() as u32)?;
        let area = AlignedBuf::new(depth * block);
        if options.fixed {
            ring.submitter().register_files(&[file.as_raw_fd()])?;
            let whole = libc::iovec { iov_base: area.as_ptr().cast(), iov_len: depth * block };
            // SAFETY: the memory outlives the ring: `area` is the later field.
            unsafe { ring.submitter().register_buffers(&[whole]) }?;
        }
        Ok(Reader { ring, file, area, block, depth, options })
    }

    /// Reads the block at each offset; the sum of their heads.
    pub fn read(&mut self, offsets: &[u64]) -> io::Result<u64> {
        let Reader { ring, file, area, block, depth, options } = self;
        let (mut submitter, mut queue, mut completions) = ring.split();
        // One look-up less in each call; where it is refused nothing is lost.
        let _ = submitter.register_ring_fd();
        let (file, block) = (types::Fd(file.as_raw_fd()), *block);
        let place = |slot: usize| area.as_ptr().wrapping_add(slot * block);
        let entry = |slot: usize, offset: u64| {
            let (buf, len) = (place(slot), block as u32);
            let entry = match options.fixed {
                false => opcode::Read::new(file, buf, len).offset(offset).build(),
                true => opcode::ReadFixed::new(types::Fixed(0), buf, len, 0).offset(offset).build(),
            };
            entry.user_data(slot as u64)
        };
        let mut free: Vec<usize> = (0..*depth).rev().collect();
        let (mut next, mut done, mut sum) = (0, 0, 0u64);
        while done < offsets.len() {
            while next < offsets.len()
                && let Some(slot) = free.pop()
            {
                // SAFETY: the slot's memory is used by this read alone until its completion gives
                // the slot back, and this function ends only when all of them have come (or with
                // the process, by a panic that nobody catches).
                unsafe { queue.push(&entry(slot, offsets[next])) }.expect("an entry for each slot");
                next += 1;
            }
            queue.sync();
            match options.split {
                false => submitter.submit_and_wait(1)?,
                true => submitter.submit()?,
            };
            completions.sync();
            if completions.is_empty() {
                submitter.submit_and_wait(1)?;
                completions.sync();
            }
            queue.sync();
            for completion in &mut completions {
                assert_eq!(completion.result(), block as i32, "a short or failed read");
                let slot = completion.user_data() as usize;
                // SAFETY: the read of this slot has ended; the memory is its block.
                sum = sum
                    .wrapping_add(head(unsafe { std::slice::from_raw_parts(place(slot), block) }));
                free.push(slot);
                done += 1;
            }
        }
        submitter.unregister_ring_fd().ok();
        Ok(sum)
    }
}
