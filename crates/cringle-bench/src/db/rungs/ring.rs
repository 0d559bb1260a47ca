//! `ring` and `+evict`: a bare ring, and one transaction after the other. A read is one submission
//! and one wait; so is a write of many pages.

use super::{Outcome, memory, one_by_one};
use crate::db::Job;
use crate::db::engine::{Platform, offset};
use crate::db::tree::PAGE_BYTES;
use crate::ring;
use io_uring::{IoUring, opcode, squeue, types};
use std::cell::RefCell;
use std::fs::File;
use std::io;
use std::marker::PhantomData;
use std::os::fd::AsRawFd;

pub(super) fn run(job: &Job, evict_batch: usize) -> io::Result<Outcome> {
    let bare = Bare {
        ring: RefCell::new(ring::build(evict_batch)?),
        file: job.store.open()?,
        pages: PhantomData,
    };
    // Saves a descriptor lookup in each call. An old kernel refuses; the ring works without.
    let _ = bare.ring.borrow().submitter().register_ring_fd();
    one_by_one(job, bare, &mut memory(job), evict_batch)
}

struct Bare<'a> {
    ring: RefCell<IoUring>,
    file: File,
    pages: PhantomData<&'a mut [u8]>,
}

impl Bare<'_> {
    /// Submits operations on whole pages, waits for all of them, and checks their results.
    ///
    /// # Safety
    ///
    /// The memory of the operations is valid until this call returns.
    unsafe fn perform(&self, entries: impl Iterator<Item = squeue::Entry>) -> io::Result<()> {
        let mut ring = self.ring.borrow_mut();
        let (submitter, mut submissions, mut completions) = ring.split();
        let mut in_flight = 0;
        for entry in entries {
            // SAFETY: by this function's contract, because it returns after the last completion.
            unsafe { submissions.push(&entry) }.expect("an entry for each page of a batch");
            in_flight += 1;
        }
        submissions.sync();
        let mut result = Ok(());
        while in_flight > 0 {
            super::ring_works(submitter.submit_and_wait(in_flight));
            submissions.sync();
            completions.sync();
            for entry in &mut completions {
                in_flight -= 1;
                let page = entry.user_data() as u32;
                result = result.and(super::moved(entry.result(), page));
            }
        }
        result
    }
}

impl<'a> Platform for Bare<'a> {
    type Page = &'a mut [u8];
    type Token = ();
    type Cell<T> = RefCell<T>;

    fn read(&self, number: u32, page: &mut &'a mut [u8]) -> io::Result<()> {
        let fd = types::Fd(self.file.as_raw_fd());
        let read = opcode::Read::new(fd, page.as_mut_ptr(), PAGE_BYTES as u32);
        let entry = read.offset(offset(number)).build().user_data(u64::from(number));
        // SAFETY: the page is a whole one, and borrowed until the call returns.
        unsafe { self.perform(std::iter::once(entry)) }
    }

    fn write(&self, pages: &[(u32, &&'a mut [u8])]) -> io::Result<()> {
        let fd = types::Fd(self.file.as_raw_fd());
        let entry = |(number, page): &(u32, &&mut [u8])| {
            let write = opcode::Write::new(fd, page.as_ptr(), PAGE_BYTES as u32);
            write.offset(offset(*number)).build().user_data(u64::from(*number))
        };
        // SAFETY: the pages are whole ones, and borrowed until the call returns.
        unsafe { self.perform(pages.iter().map(entry)) }
    }

    fn token(&self) {}

    fn wait(&self) {
        unreachable!("one transaction after the other never finds a busy page");
    }

    fn wake(&self, (): ()) {}
}
