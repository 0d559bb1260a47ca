//! Fibers that move to another worker, with [`Balance::Moving`]. Which of them, and when: see
//! [`sharing`](super::sharing).
//!
//! # What moves
//!
//! A family is to a worker what an OS thread is to a core. It needs private thread-locals: without
//! them, a fiber that continued on another thread would find that thread's locals, of which the
//! compiler may even have kept the address. It moves as a whole, so what its fibers share need not
//! be `Send`. A family stays
//!
//! - if it is the family of `run`'s closure, whose captures belong to the calling thread;
//! - while an op of any member is with a ring, because the completion arrives at the worker that
//!   has submitted the op (**I1**);
//! - while a member has started and did not begin: it begins where it was started;
//! - while it is [pinned](crate::runtime::family::Family::pin): it holds something of one ring, a
//!   part of its ops is in the kernel and the rest waits for room, it waits for a lock that an
//!   allocator may wait for, a later member is to start on this worker (`on_exit_local`), or the
//!   program has placed it there;
//! - while a member holds the others back, or runs alone;
//! - if it has more than [`MOST_MEMBERS`]: a worker that is pressed looks at each member in each
//!   turn, and may pack and unpack it, so that a large family would cost more than it gains.
//!
//! Otherwise each member is ready, or it waits for a wake-up: a message, a timer or a cancel. No
//! worker but the host ends such a wait, and others know the fiber by a name, which finds it
//! wherever it is ([`FiberId`]). The host keeps timers for it (of the wait, and of regions around
//! it), counts, and its place among the ready. All that is packed.
//!
//! A family is given away between two turns, when a member is ready, or by the wake-up that makes
//! the first one ready ([`Worker::send_after`]). No member runs then. At the begin of a turn each
//! ready fiber is in the turn's list: it is in no other queue of its worker, because nothing is
//! offered then, and no family that may leave holds members back. So a walk over the list finds all
//! ready members, and unlinks them. A family without a ready member has nothing to do elsewhere.
//!
//! # The way
//!
//! The host *packs* each member ([`Worker::depart`]): it takes back the fiber's timers and counts.
//! The family travels as a [`Traveller`], in a message or in the queue of *offered* ones. The
//! worker that takes it *unpacks* each member ([`Worker::arrive`]): it sets the timers, makes
//! itself known on the family's thread-locals, and reads the messages that have waited. [`Transit`]
//! says which worker owns a block, and how messages find it.
//!
//! Code on the fiber notices nothing: it looks its worker up at each use ([`Here`](super::Here)).
//! `docs/cells.md` lists each cell that a fiber reaches, with why a move does not break it. On
//! epoll, a descriptor's registration stays in the old worker's instance, disarmed, and the next
//! host adds its own.
//!
//! # The end
//!
//! A fiber may end away from its home, the worker that has started it. Block and stack go home in a
//! message, and only there the fiber counts as ended. So while any is away, the runtime has not
//! ended (see [`quiescence`](crate::runtime::quiescence)), and home's table and stacks exist.

use super::Worker;
use super::sharing::Pace;
use crate::runtime::balance::Balance;
use crate::runtime::family::FamilyRef;
use crate::runtime::fiber::{FiberId, FiberRef, RunState, Transit, Wait};
use crate::runtime::shared::{Mail, MailBox};
use crate::runtime::stack::Stack;
use crate::runtime::timers::Alarm;
use crossbeam_deque::Worker as Deque;
use std::ptr::NonNull;
use std::sync::Arc;

/// The most members of a family that moves.
pub(super) const MOST_MEMBERS: u32 = 64;

/// A family between two workers, by one of its ready members. If several are ready, the family has
/// a list of them.
pub(crate) struct Traveller(FiberRef);

// SAFETY: I3. The host has given the family away, and the worker that opens this becomes the host.
// What the fibers' frames hold stays with their thread-locals, as on a thread that changes its
// core.
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
    /// Families with fibers that this worker would run next, and others may take.
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
        let is_wake = matches!(message, Mail::Wake(..));
        if let Some((host, message)) = transit.leave(message, is_wake) {
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

    /// The block at this position among the blocks that a worker has made, if this worker hosts it;
    /// `None` behind the last one.
    pub(super) fn hosted_at(&self, peer: usize, position: usize) -> Option<Option<FiberRef>> {
        if !self.moves.may_happen() {
            let own = if peer == self.index as usize { self.table.at(position) } else { None };
            return own.map(Some);
        }
        let block = self.shared.peers[peer].blocks.get(position)?;
        // SAFETY: I2. As in `find`.
        let is_here = unsafe { FiberRef::transit(block) }.is_at(self.index as usize);
        Some(is_here.then(|| FiberRef::new(block)))
    }

    /// The fibers that this worker hosts.
    pub(in crate::runtime) fn fibers(&self) -> Vec<FiberRef> {
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
    /// Whether the family of a fiber may move now. Is asked between two turns.
    pub(super) fn may_move(&self, fiber: FiberRef) -> bool {
        let family = fiber.family();
        family.may_move()
            && family.members() <= MOST_MEMBERS
            && family.siblings().iter().all(|member| self.member_may_move(member))
    }

    fn member_may_move(&self, fiber: FiberRef) -> bool {
        let is_free = match fiber.state() {
            RunState::Runnable => true,
            RunState::Waiting(wait) => !matches!(wait, Wait::Ops | Wait::Room),
            RunState::Vacant => false,
        };
        is_free && fiber.has_begun() && self.schedule.alone() != Some(fiber)
    }

    /// Whether the family of a waiting fiber may move with it, when a wake-up ends its wait.
    /// Another member that is ready may run now, or be in any queue: then the family stays.
    pub(super) fn may_follow(&self, fiber: FiberRef) -> bool {
        let waits = |member: FiberRef| matches!(member.state(), RunState::Waiting(_));
        self.may_move(fiber) && fiber.family().siblings().iter().all(waits)
    }

    /// Packs the family of a ready fiber. Its ready members are in no queue but the family's, where
    /// the fiber may be missing if it is the only one.
    pub(super) fn depart(&self, fiber: FiberRef) -> Traveller {
        for member in fiber.family().siblings().iter() {
            self.pack(member);
        }
        Traveller(fiber)
    }

    fn pack(&self, fiber: FiberRef) {
        let waits = matches!(fiber.state(), RunState::Waiting(_));
        if waits {
            self.pack_wait_alarm(fiber);
        } else {
            self.take_back_wait_alarm(fiber);
        }
        for region in fiber.regions().with_alarms() {
            if let Some(alarm) = region.pack_alarm() {
                self.take_back_timer(alarm);
            }
        }
        if fiber.waits_for_fibers() {
            self.admission.end_wait_for_fibers();
        }
        self.events.departed(fiber);
        fiber.as_transit().depart(waits);
    }

    /// Unpacks a family that this worker has taken. Returns its ready members, linked as a queue
    /// that was [taken](crate::runtime::fiber::ReadyQueue::take_all).
    pub(super) fn arrive(&self, Traveller(fiber): Traveller) -> FiberRef {
        let family = fiber.family();
        let take_messages = |member: FiberRef| member.as_transit().arrive(self.index as usize);
        let messages: Vec<Mail> = family.siblings().iter().flat_map(take_messages).collect();
        family.clear_verdict();
        self.enter_moved(family);
        family.siblings().iter().for_each(|member| self.unpack(member));
        let ready = family.held().take_all().unwrap_or(fiber);
        // From here on this worker hosts the family as any other of its families.
        self.catch_up(family);
        for message in messages {
            match message {
                // The worker that read the message first has recorded it in the trace.
                Mail::Wake(id, by) => self.wake_from(id, by),
                message => self.handle(message),
            }
        }
        ready
    }

    fn unpack(&self, fiber: FiberRef) {
        for region in fiber.regions().with_packed_alarms() {
            let deadline = region.deadline().expect("a region with an alarm").deadline();
            let alarm = Alarm::Expire(fiber, NonNull::from(region));
            region.set_alarm(self.set_alarm(deadline, alarm));
        }
        self.unpack_wait_alarm(fiber);
        if fiber.waits_for_fibers() {
            self.admission.begin_wait_for_fibers();
        }
        self.events.arrived(fiber);
    }

    /// Does what this worker has done to all fibers while the family was on the way.
    fn catch_up(&self, family: FamilyRef) {
        for fiber in family.siblings().iter() {
            if fiber.is_root() {
                self.cancel_late_root(fiber);
            }
            self.follow_watch(fiber);
        }
    }

    pub(super) fn receive(&self, traveller: Traveller) {
        let mut next = Some(self.arrive(traveller));
        if let Some(fiber) = next {
            self.events.received(fiber.family().members());
        }
        while let Some(fiber) = next {
            next = fiber.unlink();
            fiber.set_arrived(true);
            self.schedule.ready().push(fiber);
        }
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
