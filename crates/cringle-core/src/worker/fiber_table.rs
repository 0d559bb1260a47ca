//! The blocks of the fibers that a worker has started, by index, and how to find those that it
//! hosts.
//!
//! Where fibers move, a worker may host fibers of the others' tables, and its own may be elsewhere:
//! then all workers find a block by [`Shared::block`].

use crate::fiber::{Fiber, FiberId, FiberRef, RunState, Transit};
use crate::shared::{Mail, MailBox, Shared};
use crate::wait_target::FiberTag;
use std::cell::{Cell, RefCell};
use std::ptr::NonNull;
use std::sync::Arc;

/// The blocks of a worker's fibers. A block is reused, and freed only with the table (**I2**).
pub struct FiberTable {
    /// The worker, and the low bits of an index that name it.
    home: u32,
    home_bits: u32,
    mailbox: Arc<MailBox>,
    shared: Arc<Shared>,
    fibers_move: bool,
    blocks: RefCell<Blocks>,
    /// Started fibers that have not ended.
    occupied: Cell<u32>,
}

/// Where a fiber is.
pub(super) enum Found<'a> {
    /// This worker hosts it.
    Here(FiberRef),
    /// Another worker does, or it is on the way.
    Away(&'a Transit<Mail>),
}

#[derive(Default)]
struct Blocks {
    all: Vec<NonNull<Fiber>>,
    vacant: Vec<u32>,
}

impl FiberTable {
    pub(super) fn new(home: u32, shared: Arc<Shared>, fibers_move: bool) -> FiberTable {
        FiberTable {
            home,
            home_bits: shared.home_bits(),
            mailbox: Arc::clone(&shared.peers[home as usize].mailbox),
            shared,
            fibers_move,
            blocks: RefCell::default(),
            occupied: Cell::new(0),
        }
    }

    /// The number of fibers that have started and not ended.
    #[inline]
    pub(super) fn occupied(&self) -> u32 {
        self.occupied.get()
    }

    /// Returns a vacant block for the next fiber.
    pub(super) fn vacancy(&self) -> FiberRef {
        self.occupied.set(self.occupied.get() + 1);
        let Blocks { all, vacant } = &mut *self.blocks.borrow_mut();
        let position = match vacant.pop() {
            Some(position) => position as usize,
            None => {
                let position = all.len();
                let index = (position << self.home_bits) | self.home as usize;
                let index = u32::try_from(index).expect("fewer than 2³² fibers in a runtime");
                let block = NonNull::from(Box::leak(Box::new(Fiber::new(index, self.home))));
                self.shared.peers[self.home as usize].blocks.add(position, block);
                all.push(block);
                position
            }
        };
        FiberRef::new(all[position])
    }

    /// Takes back the block of a fiber that has ended.
    pub(super) fn release(&self, fiber: FiberRef) {
        debug_assert_eq!(fiber.state(), RunState::Vacant, "a fiber that has ended");
        self.occupied.set(self.occupied.get() - 1);
        self.blocks.borrow_mut().vacant.push(fiber.id().index >> self.home_bits);
    }

    /// Finds a fiber by its name; `None` if it has ended (**I9**).
    #[inline(always)]
    pub(super) fn find(&self, id: FiberId) -> Option<Found<'_>> {
        let fiber = if self.fibers_move {
            let block = self.shared.block(id)?;
            // SAFETY: I2. The block exists while the runtime does, and so while this worker works.
            let transit = unsafe { FiberRef::transit(block) };
            if !transit.is_at(self.home as usize) {
                return Some(Found::Away(transit));
            }
            FiberRef::new(block)
        } else {
            let position = (id.index >> self.home_bits) as usize;
            FiberRef::new(*self.blocks.borrow().all.get(position)?)
        };
        (fiber.id() == id).then_some(Found::Here(fiber))
    }

    /// Whether this worker can deliver a message for a fiber of this home itself, or send it on.
    #[inline]
    pub fn reaches(&self, home: &Arc<MailBox>) -> bool {
        Arc::ptr_eq(&self.mailbox, home) || (self.fibers_move && self.shared.has(home))
    }

    /// The mailbox of the worker that has started the fiber.
    #[inline]
    pub(super) fn home_of(&self, fiber: FiberRef) -> &Arc<MailBox> {
        if self.fibers_move {
            &self.shared.peers[self.shared.home_of(fiber.id())].mailbox
        } else {
            &self.mailbox
        }
    }

    /// The fiber that this worker hosts in a block, if it does. `block` is a worker that has made
    /// blocks, and a position among them; it becomes the next one. `None` behind the last one.
    pub(super) fn next_block(&self, block: &mut (usize, usize)) -> Option<Option<FiberRef>> {
        loop {
            let (peer, position) = *block;
            let blocks = &self.shared.peers.get(peer)?.blocks;
            let may_host = self.fibers_move || peer == self.home as usize;
            match blocks.get(position).filter(|_| may_host) {
                Some(found) => {
                    block.1 += 1;
                    return Some(self.hosted(found));
                }
                None => *block = (peer + 1, 0),
            }
        }
    }

    fn hosted(&self, block: NonNull<Fiber>) -> Option<FiberRef> {
        // SAFETY: I2. As in `find`.
        let is_here = unsafe { FiberRef::transit(block) }.is_at(self.home as usize);
        is_here.then(|| FiberRef::new(block)).filter(|fiber| fiber.state() != RunState::Vacant)
    }

    /// The fibers that this worker hosts.
    pub(crate) fn fibers(&self) -> Vec<FiberRef> {
        let mut block = (0, 0);
        std::iter::from_fn(|| self.next_block(&mut block)).flatten().collect()
    }

    /// The fiber of this worker that has this number.
    pub fn tagged(&self, tag: FiberTag) -> Option<FiberRef> {
        self.fibers().into_iter().find(|fiber| fiber.tag() == tag)
    }
}

impl Drop for FiberTable {
    fn drop(&mut self) {
        if self.occupied.get() > 0 {
            // The kernel may write to their frames, and other threads may borrow from them (I1,
            // I2).
            cringle_sys::report(format_args!("a worker ended before its fibers; aborting"));
            std::process::abort();
        }
        for block in self.blocks.get_mut().all.drain(..) {
            // SAFETY: I2. The worker ends after its last fiber, and only its fibers' code refers to
            // blocks.
            drop(unsafe { Box::from_raw(block.as_ptr()) });
        }
    }
}
