//! The fibers of a scope, as the target of a cancel.
//!
//! A fiber enters itself when it starts, on its own worker, and strikes itself out at its end. A
//! cancel marks the scope and takes the list in one critical section. The second of the two sees
//! the first: a fiber that starts later starts cancelled, and one that started before is in the
//! list.

use super::cancelled::Reason;
use super::fiber::FiberId;
use super::label::Origin;
use super::shared::{Mail, MailBox};
use super::wait_target::ScopeOrigin;
use super::worker::Worker;
use cringle_sys::lock::{Mutex, MutexGuard};
use slab::Slab;
use std::panic::Location;
use std::sync::Arc;

/// See the module.
pub struct Members {
    /// The fiber that opened the scope, if a fiber did.
    owner: Option<Address>,
    opened: Origin,
    list: Mutex<MemberList>,
}

/// The address of a fiber for messages.
#[derive(Clone)]
pub struct Address {
    pub(super) home: Arc<MailBox>,
    pub(super) id: FiberId,
}

#[derive(Default)]
struct MemberList {
    /// Why all of them are cancelled, if they are.
    cause: Option<Reason>,
    daemons_cancelled: bool,
    slots: Slab<Member>,
}

struct Member {
    address: Address,
    daemon: bool,
}

/// A fiber's slot in the list.
#[derive(Debug)]
pub struct MemberSlot(usize);

impl Members {
    /// Returns the members of a new scope. `cause` is set if the scope is opened within a cancelled
    /// region.
    #[track_caller]
    pub fn new(owner: Option<Address>, cause: Option<Reason>) -> Arc<Members> {
        let list = MemberList { cause, ..MemberList::default() };
        Arc::new(Members { owner, opened: Location::caller(), list: Mutex::new(list) })
    }

    /// The place that opened the scope, and the owner.
    pub(super) fn origin(&self) -> ScopeOrigin {
        let owner = self.owner.as_ref().map(|owner| owner.id);
        ScopeOrigin { opened: self.opened, owner }
    }

    /// The mailbox of the owner.
    pub fn home(&self) -> Option<&Arc<MailBox>> {
        self.owner.as_ref().map(|owner| &owner.home)
    }

    /// Enters a fiber. Also returns why it is cancelled already, if it is.
    pub(super) fn enter(&self, address: Address, daemon: bool) -> (MemberSlot, Option<Reason>) {
        let mut list = self.lock();
        let cause = if daemon && list.daemons_cancelled {
            list.cause.or(Some(Reason::Cancelled))
        } else {
            list.cause
        };
        (MemberSlot(list.slots.insert(Member { address, daemon })), cause)
    }

    pub fn strike_out(&self, slot: MemberSlot) {
        self.lock().slots.remove(slot.0);
    }

    /// Why the scope is cancelled, if it is.
    pub fn cause(&self) -> Option<Reason> {
        self.lock().cause
    }

    /// Marks the scope cancelled. Returns the fibers to cancel: none if it was cancelled before.
    pub(super) fn take_for_cancel(&self, reason: Reason) -> Vec<Address> {
        let mut list = self.lock();
        if list.cause.is_some() {
            return Vec::new();
        }
        list.cause = Some(reason);
        list.slots.iter().map(|(_, member)| member.address.clone()).collect()
    }

    /// Cancels the scope: its fibers, and the part of its owner that lies within it. For any
    /// thread.
    pub fn cancel(self: &Arc<Self>, reason: Reason) {
        let members = self.take_for_cancel(reason);
        // The owner first: when its wait for a member ends, it is cancelled already.
        if let Some(owner) = &self.owner {
            owner.send(Mail::CancelScope(owner.id, Arc::clone(self), reason));
        }
        for member in members {
            member.cancel(reason);
        }
    }

    pub fn daemons_are_cancelled(&self) -> bool {
        self.lock().daemons_cancelled
    }

    /// Cancels the daemons alone, after the fibers that they served have ended.
    pub fn cancel_daemons(&self) {
        let daemons: Vec<Address> = {
            let mut list = self.lock();
            list.daemons_cancelled = true;
            let daemons = list.slots.iter().filter(|(_, member)| member.daemon);
            daemons.map(|(_, member)| member.address.clone()).collect()
        };
        for daemon in daemons {
            daemon.cancel(Reason::Cancelled);
        }
    }

    fn lock(&self) -> MutexGuard<'_, MemberList> {
        self.list.lock()
    }
}

impl Address {
    /// Cancels the fiber, here or by message.
    pub(super) fn cancel(&self, reason: Reason) {
        self.send(Mail::Cancel(self.id, reason));
    }

    /// Cancels the cancellation point of libc that the fiber is in, if it is in one.
    pub fn cancel_point(&self) {
        self.send(Mail::CancelPoint(self.id));
    }

    fn send(&self, message: Mail) {
        match Worker::here() {
            Some(worker) if worker.table.reaches(&self.home) => worker.handle(message),
            Some(worker) => worker.mail(&self.home, message),
            // An error says that the worker has ended, and so has the fiber.
            None => drop(self.home.inbox.send(message)),
        }
    }
}
