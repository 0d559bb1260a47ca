//! Fibers that move to another worker, with [`Balance::Moving`]. Which of them, and when: see
//! [`sharing`](super::sharing).
//!
//! # What moves
//!
//! A family is to a worker what an OS thread is to a core. It moves as a whole, so what its fibers
//! share need not be `Send`. It moves only between two turns, when it is ready: then none of its
//! fibers runs, and no op of it is with a ring, where a completion arrives at the worker that has
//! submitted the op (**I1**). A family stays
//!
//! - if it is that of `run`'s closure, whose captures belong to the calling thread;
//! - if it has several members, or the one that it has did not begin yet;
//! - while it is [pinned](crate::runtime::family::Family::pin): it holds something of one ring, a
//!   part of its ops is in the kernel and the rest waits for room, it waits for a lock that an
//!   allocator may wait for, or the program has placed it on its worker.
//!
//! # The way
//!
//! The host *packs* the fiber ([`Worker::depart`]): it takes back the fiber's timers and counts.
//! The fiber travels as a [`Traveller`], in a message or in the queue of *offered* fibers. The
//! worker that takes it *unpacks* it ([`Worker::arrive`]): it sets the timers, makes itself known
//! on the fiber's thread-locals, and reads the messages that have waited. [`Transit`] says which
//! worker owns the block, and how messages find it.
//!
//! Code on the fiber notices nothing: it looks its worker up at each use ([`Here`](super::Here)).
//!
//! # The end
//!
//! A fiber may end away from its home, the worker that has started it. Block and stack go home in a
//! message, and only there the fiber counts as ended. So while any is away, the runtime has not
//! ended (see [`quiescence`](crate::runtime::quiescence)), and home's table and stacks exist.

use super::Worker;
use super::sharing::Pace;
use crate::runtime::balance::Balance;
use crate::runtime::fiber::{FiberId, FiberRef, RunState, Transit};
use crate::runtime::shared::{Mail, MailBox};
use crate::runtime::stack::Stack;
use crate::runtime::timers::Alarm;
use crossbeam_deque::Worker as Deque;
use std::ptr::NonNull;
use std::sync::Arc;

/// A ready fiber between two workers.
pub(crate) struct Traveller(FiberRef);

// SAFETY: I3. The host has given the fiber away, and whoever opens this becomes the host. What the
// fiber's frames hold stays with its thread-locals, as on a thread that changes its core.
unsafe impl Send for Traveller {}

/// What remains of a fiber that has ended away from home.
pub(crate) struct Husk {
    fiber: FiberRef,
    stack: Stack,
}

// SAFETY: I3. The fiber has ended, and the receiver, which is its home, owns the block again.
unsafe impl Send for Husk {}

/// The part of a worker that gives fibers away.
pub(in crate::runtime) struct Moves {
    pub(super) balance: Balance,
    /// Ready fibers that this worker would run next, and others may take.
    pub(super) offered: Deque<Traveller>,
    pub(super) pace: Pace,
    /// A simulation draws which fibers run and move.
    pub(super) are_drawn: bool,
}

impl Moves {
    pub(in crate::runtime) fn new(
        balance: Balance,
        offered: Deque<Traveller>,
        are_drawn: bool,
    ) -> Moves {
        Moves { balance, offered, pace: Pace::default(), are_drawn }
    }

    #[inline(always)]
    pub(super) fn may_happen(&self) -> bool {
        self.balance != Balance::Fixed
    }

    #[inline]
    pub(super) fn has_offered(&self) -> bool {
        !self.offered.is_empty()
    }
}

// Finding a fiber.
impl Worker {
    /// Finds a fiber that this worker hosts. A message for one that lives elsewhere is sent there;
    /// then, and if the fiber has ended, there is nothing to do here.
    #[inline]
    pub(super) fn find(&self, id: FiberId, message: impl FnOnce() -> Mail) -> Option<FiberRef> {
        if !self.moves.may_happen() {
            return self.table.get(id);
        }
        let block = self.shared.block(id)?;
        // SAFETY: I2. The block exists while the runtime does, and so while this worker works.
        let transit = unsafe { FiberRef::transit(block) };
        if transit.is_at(self.index as usize) {
            let fiber = FiberRef::new(block);
            return (fiber.id() == id).then_some(fiber);
        }
        self.send_on(transit, message());
        None
    }

    #[cold]
    fn send_on(&self, transit: &Transit<Mail>, message: Mail) {
        // A fiber on the way is ready, and so needs no wake-up.
        let is_needed = !matches!(message, Mail::Wake(..));
        if let Some((host, message)) = transit.leave(message, is_needed) {
            self.mail(&self.shared.peers[host].mailbox, message);
        }
    }

    /// Whether fibers move between the workers.
    pub(crate) fn moves_fibers(&self) -> bool {
        self.moves.may_happen()
    }

    /// Whether this worker can deliver a message for a fiber of this home itself, or send it on.
    #[inline]
    pub(crate) fn reaches(&self, home: &Arc<MailBox>) -> bool {
        self.lives_at(home) || (self.moves.may_happen() && self.shared.has(home))
    }

    /// The mailbox of the worker that has started the fiber.
    #[inline]
    pub(crate) fn home_of(&self, fiber: FiberRef) -> &Arc<MailBox> {
        if self.moves.may_happen() {
            &self.shared.peers[self.shared.home_of(fiber.id())].mailbox
        } else {
            self.mailbox()
        }
    }

    /// The fibers that this worker hosts.
    pub(super) fn fibers(&self) -> Vec<FiberRef> {
        if !self.moves.may_happen() {
            return self.table.fibers();
        }
        let blocks = self.shared.peers.iter().flat_map(|peer| peer.blocks.all());
        let here = blocks.filter(|&block| {
            // SAFETY: I2. As in `find`.
            unsafe { FiberRef::transit(block) }.is_at(self.index as usize)
        });
        let fibers = here.map(FiberRef::new);
        fibers.filter(|fiber| fiber.state() != RunState::Vacant).collect()
    }
}

// Moving one.
impl Worker {
    /// Whether a ready fiber may move.
    pub(super) fn may_move(&self, fiber: FiberRef) -> bool {
        debug_assert_eq!(fiber.state(), RunState::Runnable);
        fiber.has_begun() && fiber.family().may_move() && self.schedule.alone() != Some(fiber)
    }

    /// Packs a ready fiber, which is in no queue.
    pub(super) fn depart(&self, fiber: FiberRef) -> Traveller {
        self.take_back_wait_alarm(fiber);
        for region in fiber.regions().with_alarms() {
            if let Some(alarm) = region.pack_alarm() {
                self.take_back_timer(alarm);
            }
        }
        if fiber.waits_for_fibers() {
            self.admission.end_wait_for_fibers();
        }
        self.events.departed(fiber);
        fiber.as_transit().depart();
        Traveller(fiber)
    }

    /// Unpacks a fiber that this worker has taken, and returns it: it is ready, and in no queue.
    pub(super) fn arrive(&self, Traveller(fiber): Traveller) -> FiberRef {
        let messages = fiber.as_transit().arrive(self.index as usize);
        for region in fiber.regions().with_packed_alarms() {
            let deadline = region.deadline().expect("a region with an alarm").deadline();
            let alarm = Alarm::Expire(fiber, NonNull::from(region));
            region.set_alarm(self.set_alarm(deadline, alarm));
        }
        if fiber.waits_for_fibers() {
            self.admission.begin_wait_for_fibers();
        }
        self.enter_moved(fiber.family());
        self.events.arrived(fiber);
        if fiber.is_root() {
            self.cancel_late_root(fiber);
        }
        self.follow_watch(fiber);
        messages.into_iter().for_each(|message| self.handle(message));
        fiber
    }

    pub(super) fn receive(&self, traveller: Traveller) {
        let fiber = self.arrive(traveller);
        self.events.received();
        fiber.set_arrived(true);
        self.schedule.ready().push(fiber);
    }

    /// Sends home what remains of a fiber that has ended. Returns its stack if this is its home.
    pub(super) fn send_home(&self, fiber: FiberRef, stack: Stack) -> Option<Stack> {
        if !self.moves.may_happen() {
            return Some(stack);
        }
        let home = self.shared.home_of(fiber.id());
        if home == self.index as usize {
            return Some(stack);
        }
        fiber.as_transit().go_home(home);
        self.mail(&self.shared.peers[home].mailbox, Mail::Bury(Husk { fiber, stack }));
        None
    }

    pub(super) fn bury_husk(&self, Husk { fiber, stack }: Husk) {
        self.release(fiber, stack);
    }
}
