//! Fibers that move to another worker, with [`Balance::Moving`](crate::choices::Balance). Which of
//! them, and when: see [`sharing`](super::sharing).
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
//! - while a member was started and has not begun: it begins on the worker that started it;
//! - while it is [pinned](crate::family::Family::pin): a member holds something of one
//!   ring, or has a part of its ops in the kernel and waits for room for the others, or waits for a
//!   lock that an allocator may wait for, or runs alone; a later member is to start on this worker
//!   (`on_exit_local`); or the program has placed the family there;
//! - while a member holds the others back;
//! - if it has more than [`MOST_MEMBERS`]: a worker that is pressed looks at each member in each
//!   turn, and may pack and unpack it, so that a large family would cost more than it gains.
//!
//! Otherwise each member is ready, or it waits for a wake-up: a message, a timer or a cancel. No
//! worker but the host ends such a wait, and others know the fiber by a name, which finds it
//! wherever it is ([`FiberId`](crate::fiber::FiberId)). For each fiber the host has timers (of its
//! wait and of the regions around it), counts, and a place among the ready fibers. It takes all of
//! them back when it packs the fiber.
//!
//! A family is given away between two turns, when a member is ready, or by the wake-up that makes
//! the first one ready ([`Worker::wake_from`]). No member runs then. At the begin of a turn each
//! ready fiber is in the turn's list: it is in no other queue of its worker, because nothing is
//! offered then, and no family that may leave holds members back. So a walk over the list finds all
//! ready members, and unlinks them. A family without a ready member has nothing to do elsewhere.
//!
//! # The way
//!
//! The host *packs* each member ([`Worker::depart`]): it takes back the fiber's timers and counts.
//! The family travels as a [`Traveller`], in a message or in the queue of *offered* ones. The
//! worker that takes it *unpacks* each member ([`Worker::arrive`]): it sets the timers, makes
//! itself known on the family's thread-locals, and reads the messages that have waited.
//! [`Transit`](crate::fiber::Transit) says which worker owns a block, and how messages find it.
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
//! ended (see [`quiescence`](crate::quiescence)), and home's table and stacks exist.

use super::Worker;
use crate::fiber::{FiberRef, RunState, Wait};
use crate::shared::{Mail, Shared};
use crate::stack::Stack;
use crate::timers::Alarm;
use cringle_tls as thread_locals;
use std::ptr::NonNull;
use std::sync::atomic::Ordering;

/// The most members of a family that moves.
const MOST_MEMBERS: u32 = 64;

/// A family between two workers, by one of its ready members. If several are ready, the family has
/// a list of them.
pub struct Traveller(FiberRef);

// SAFETY: I3. The host has given the family away, and the worker that opens this becomes the host.
// What the fibers' frames hold stays with their thread-locals, as on a thread that changes its
// core.
unsafe impl Send for Traveller {}

/// What remains of a fiber that has ended away from home.
pub struct Husk {
    pub(super) fiber: FiberRef,
    pub(super) stack: Stack,
}

// SAFETY: I3. The fiber has ended, and the receiver, which is its home, owns the block again.
unsafe impl Send for Husk {}

/// No fiber departs while it exists.
pub struct HeldMoves<'a>(&'a Shared);

impl Drop for HeldMoves<'_> {
    fn drop(&mut self) {
        self.0.dumps.fetch_sub(1, Ordering::SeqCst);
    }
}

impl Shared {
    /// Keeps fibers from moving until the result is dropped.
    pub fn hold_moves(&self) -> HeldMoves<'_> {
        self.dumps.fetch_add(1, Ordering::SeqCst);
        HeldMoves(self)
    }

    #[inline]
    pub(super) fn holds_moves(&self) -> bool {
        self.dumps.load(Ordering::Relaxed) > 0
    }
}

/// Whether the family of a fiber may move now. Is asked between two turns.
pub(super) fn may_move(fiber: FiberRef) -> bool {
    all_may_move(fiber, is_without_ops)
}

/// Whether the family of a waiting fiber may move with it, when a wake-up ends its wait. Another
/// member that is ready may run now, or be in any queue: then the family stays.
pub(super) fn may_follow(fiber: FiberRef) -> bool {
    all_may_move(fiber, awaits_wake)
}

fn all_may_move(fiber: FiberRef, is_free: impl Fn(FiberRef) -> bool) -> bool {
    let family = fiber.family();
    family.may_move()
        && family.members() <= MOST_MEMBERS
        && family.siblings().iter().all(|member| member.has_begun() && is_free(member))
}

/// Whether a member of the fiber's family computes. (Of a large family, which stays, the others are
/// not looked at.)
pub(super) fn computes(fiber: FiberRef) -> bool {
    let family = fiber.family();
    fiber.computes()
        || (family.members() <= MOST_MEMBERS && family.siblings().iter().any(|it| it.computes()))
}

/// Whether the fiber is ready, or a wake-up ends its wait: no ring has an op of it.
fn is_without_ops(fiber: FiberRef) -> bool {
    fiber.state() == RunState::Runnable || awaits_wake(fiber)
}

/// Whether a wake-up ends the fiber's wait.
pub(super) fn awaits_wake(fiber: FiberRef) -> bool {
    match fiber.state() {
        RunState::Waiting(wait) => !matches!(wait, Wait::Ops | Wait::Room | Wait::Thread),
        RunState::Runnable | RunState::Vacant => false,
    }
}

impl Worker {
    /// Packs the family of a ready fiber. Its ready members are in no queue but the family's, where
    /// the fiber may be missing if it is the only one.
    pub(super) fn depart(&self, fiber: FiberRef) -> Traveller {
        let runs = || self.foreground.get().is_some_and(|it| it.family() == fiber.family());
        debug_assert!(!runs(), "I3: a family departs while it runs");
        for member in fiber.family().siblings().iter() {
            debug_assert!(is_without_ops(member), "I1: the ring has ops of a family that departs");
            self.alarms.pack(member, || self.now());
            if member.waits_for_fibers() {
                self.admission.end_wait_for_fibers();
            }
            self.events.departed(member);
            let transit = member.as_transit();
            debug_assert!(transit.is_at(self.index as usize), "I3: only the host gives it away");
            transit.depart(matches!(member.state(), RunState::Waiting(_)));
        }
        Traveller(fiber)
    }

    /// Unpacks a family that this worker has taken. Returns its ready members, linked as a queue
    /// that was [taken](crate::fiber::ReadyQueue::take_all).
    pub(super) fn arrive(&self, Traveller(fiber): Traveller) -> FiberRef {
        let family = fiber.family();
        debug_assert!(family.has_own_locals(), "I14: thread-locals stay with their thread");
        let members = || family.siblings().iter();
        let take_messages = |member: FiberRef| member.as_transit().arrive(self.index as usize);
        let messages: Vec<Mail> = members().flat_map(take_messages).collect();
        family.clear_verdict();
        if family.learn(self.index) {
            // SAFETY: I14. No member runs.
            unsafe { thread_locals::on_block(family.thread_pointer(), || self.enter_block()) };
        }
        members().for_each(|member| self.unpack(member));
        let ready = family.held().take_all().unwrap_or(fiber);
        // The family belongs to this worker now. First it gets what it has missed on its way.
        for member in members() {
            if self.shared.is_cancelled() {
                self.cancel_root(member);
            }
            if member.asked_to_end().is_some() {
                self.watch_stubborn(self.now());
            }
        }
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
        if let Some(at) = fiber.take_packed_alarm() {
            fiber.set_wait_alarm(self.set_alarm(at, Alarm::Wake(fiber)));
        }
        if fiber.waits_for_fibers() {
            self.admission.begin_wait_for_fibers();
        }
        self.events.arrived(fiber);
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
}
