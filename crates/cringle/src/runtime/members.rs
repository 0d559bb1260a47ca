//! The fibers of a scope, as a cancel finds them.
//!
//! A fiber enters itself when it starts, on its own worker, and strikes itself out at its end; whoever
//! cancels marks the scope and takes the list in one critical section. Whichever comes second sees the
//! first: a fiber that starts later starts cancelled, one that started before is told.

use super::cancelled::Reason;
use super::fiber::FiberId;
use super::label::Origin;
use super::shared::{Mail, MailBox};
use super::wait_target::ScopeOrigin;
use super::worker::Worker;
use std::panic::Location;
use std::sync::{Arc, Mutex, MutexGuard};

/// See the module.
pub(crate) struct Members {
    /// The fiber that opened the scope; none outside of any.
    owner: Option<Address>,
    opened: Origin,
    state: Mutex<State>,
}

/// Where a fiber is reached.
#[derive(Clone)]
pub(crate) struct Address {
    pub(super) home: Arc<MailBox>,
    pub(super) id: FiberId,
}

#[derive(Default)]
struct State {
    /// Why all of them are cancelled.
    cause: Option<Reason>,
    /// The daemons among them are.
    daemons_cancelled: bool,
    list: Vec<Option<Member>>,
    vacant: Vec<usize>,
}

struct Member {
    address: Address,
    daemon: bool,
}

/// A fiber's place in the list.
#[derive(Debug)]
pub(crate) struct MemberSlot(usize);

impl Members {
    /// The members of a scope that is opened within what is cancelled already, or not.
    #[track_caller]
    pub(crate) fn new(owner: Option<Address>, cause: Option<Reason>) -> Arc<Members> {
        let state = State { cause, ..State::default() };
        Arc::new(Members { owner, opened: Location::caller(), state: Mutex::new(state) })
    }

    /// Where it was opened, and by whom.
    pub(super) fn origin(&self) -> ScopeOrigin {
        let owner = self.owner.as_ref().map(|owner| (owner.home.worker, owner.id));
        ScopeOrigin { opened: self.opened, owner }
    }

    /// Where the fiber that opened the scope lives.
    pub(crate) fn home(&self) -> Option<&Arc<MailBox>> {
        self.owner.as_ref().map(|owner| &owner.home)
    }

    /// Enters a fiber; also says why it is cancelled already, if it is.
    pub(super) fn enter(&self, address: Address, daemon: bool) -> (MemberSlot, Option<Reason>) {
        let mut state = self.state();
        let cause = match daemon && state.daemons_cancelled {
            true => state.cause.or(Some(Reason::Cancelled)),
            false => state.cause,
        };
        let member = Some(Member { address, daemon });
        let place = match state.vacant.pop() {
            Some(place) => {
                state.list[place] = member;
                place
            }
            None => {
                state.list.push(member);
                state.list.len() - 1
            }
        };
        (MemberSlot(place), cause)
    }

    pub(crate) fn strike_out(&self, place: MemberSlot) {
        let mut state = self.state();
        state.list[place.0] = None;
        state.vacant.push(place.0);
    }

    /// Whether the scope was cancelled.
    pub(crate) fn cause(&self) -> Option<Reason> {
        self.state().cause
    }

    /// Marks all cancelled, and says who is to be told: nobody, if they were already.
    pub(super) fn take_for_cancel(&self, reason: Reason) -> Vec<Address> {
        let mut state = self.state();
        if state.cause.is_some() {
            return Vec::new();
        }
        state.cause = Some(reason);
        state.list.iter().flatten().map(|member| member.address.clone()).collect()
    }

    /// Cancels the scope: its fibers, and what of its owner is within it. From anywhere.
    pub(crate) fn cancel(self: &Arc<Self>, reason: Reason) {
        let members = self.take_for_cancel(reason);
        // The owner first: a wait of its for one of them then knows why.
        if let Some(owner) = &self.owner {
            owner.tell(Mail::CancelScope(owner.id, Arc::clone(self), reason));
        }
        for member in members {
            member.cancel(reason);
        }
    }

    pub(crate) fn daemons_are_cancelled(&self) -> bool {
        self.state().daemons_cancelled
    }

    /// Cancels the daemons alone: what they served has ended.
    pub(crate) fn cancel_daemons(&self) {
        let daemons: Vec<Address> = {
            let mut state = self.state();
            state.daemons_cancelled = true;
            let daemons = state.list.iter().flatten().filter(|member| member.daemon);
            daemons.map(|member| member.address.clone()).collect()
        };
        for daemon in daemons {
            daemon.cancel(Reason::Cancelled);
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no code panics under this lock")
    }
}

impl Address {
    /// Cancels the fiber, here or by message.
    pub(super) fn cancel(&self, reason: Reason) {
        self.tell(Mail::Cancel(self.id, reason));
    }

    fn tell(&self, message: Mail) {
        Worker::with(|worker| match worker {
            Some(worker) if worker.lives_at(&self.home) => worker.handle(message),
            Some(worker) => worker.mail(&self.home, message),
            // One for a worker that is gone is for a fiber that is gone too.
            None => drop(self.home.inbox.send(message)),
        });
    }
}
