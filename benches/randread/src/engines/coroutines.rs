//! Bare coroutines over the bare ring: the lower bound for reads by stackful fibers.
//!
//! There is no scheduler, cancellation or limit. Each coroutine pushes its entry to the submission
//! queue and suspends; the loop resumes the coroutines whose completions have arrived. Beyond the
//! difference between this and [`uring`](super::uring), a runtime's cost is its own.

use crate::job::{Job, finish};
use common::clock::{Meter, Usage};
use common::plan::head;
use corosensei::stack::DefaultStack;
use corosensei::{Coroutine, Yielder};
use io_uring::{IoUring, opcode, squeue, types};
use std::cell::{Cell, RefCell};
use std::os::fd::AsRawFd;

const STACK_BYTES: usize = 64 << 10;

pub(super) fn run(job: &Job) -> (Usage, u64) {
    let ring = IoUring::<squeue::Entry>::builder()
        .setup_single_issuer()
        .setup_defer_taskrun()
        .setup_submit_all()
        .setup_no_sqarray()
        .build(job.depth().next_power_of_two() as u32);
    let ring = RefCell::new(ring.expect("a ring"));
    ring.borrow_mut().submitter().register_ring_fd().ok();
    let (file, area) = (job.open(), job.area());
    let (fd, block) = (types::Fd(file.as_raw_fd()), job.block());
    let results: Vec<Cell<i32>> = (0..job.depth()).map(|_| Cell::new(0)).collect();
    let (next, sum) = (Cell::new(0), Cell::new(0u64));

    let meter = Meter::start();
    let read_all = |index: usize, yielder: &Yielder<(), ()>| {
        let address = area.as_ptr().wrapping_add(index * block);
        while let Some(&offset) = job.offsets.get(next.get()) {
            next.set(next.get() + 1);
            let entry = opcode::Read::new(fd, address, block as u32).offset(offset);
            let entry = entry.build().user_data(index as u64);
            // SAFETY: only this read uses this block of the area until its completion resumes the
            // coroutine, and the loop below ends after all coroutines. A panic ends the process.
            unsafe { ring.borrow_mut().submission().push(&entry) }.expect("an entry for each");
            yielder.suspend(());
            assert_eq!(results[index].get(), block as i32, "a short or failed read");
            // SAFETY: the read has ended, and the memory is `block` bytes.
            let bytes = unsafe { std::slice::from_raw_parts(address, block) };
            sum.set(sum.get().wrapping_add(head(bytes)));
        }
    };
    let start = |index: usize| {
        let stack = DefaultStack::new(STACK_BYTES).expect("a stack");
        let read_all = &read_all;
        // SAFETY: the values that the body borrows outlive the coroutine, which is dropped below.
        unsafe {
            Coroutine::with_stack_unchecked(stack, move |yielder, ()| read_all(index, yielder))
        }
    };
    let mut coroutines: Vec<Coroutine<(), (), (), DefaultStack>> =
        (0..job.depth()).map(start).collect();
    let mut ready: Vec<usize> = (0..job.depth()).collect();
    let mut alive = job.depth();
    while alive > 0 {
        for index in ready.drain(..) {
            alive -= usize::from(coroutines[index].resume(()).as_return().is_some());
        }
        let mut ring = ring.borrow_mut();
        if alive > 0 {
            ring.submit_and_wait(1).expect("the ring works");
        }
        for completion in ring.completion() {
            let index = completion.user_data() as usize;
            results[index].set(completion.result());
            ready.push(index);
        }
    }
    drop(coroutines);
    finish(meter, sum.get())
}
