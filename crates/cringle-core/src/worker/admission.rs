//! From a spawned fiber to a running one, and the release of a fiber that has ended.
//!
//! A fiber starts at once (`start`), or it is *unstarted* first: without a stack, in a queue from
//! which idle workers steal. An unstarted fiber is always started, if only to fail (**I2**). Once
//! started it belongs to its worker, or to the one that it [moves](super::moving) to (**I3**).

use super::families::Families;
use super::{Current, Here, Husk, Worker};
use crate::family::{FamilyChoice, FamilyRef};
use crate::fiber::FiberRef;
use crate::shared::{Mail, Unstarted};
use crate::spans;
use crate::stack::{Stack, StackPool};
use corosensei::Coroutine;
use crossbeam_deque::{Steal, Worker as Deque};
use std::cell::{Cell, RefCell, RefMut};
use std::io;
use std::ptr::NonNull;

/// The largest body that is moved onto its fiber's stack. `corosensei` refuses more than 1024
/// bytes; larger bodies are boxed.
const MOVED_BODY_BYTES: usize = 512;
/// Unstarted fibers that start in one turn, at most. The worker looks at the kernel in between.
const STARTS_PER_TURN: usize = 64;

/// Whose thread-locals a new fiber uses, where they are private.
#[derive(Clone, Copy)]
pub enum Kin {
    /// Those of the fiber that starts it.
    Callers,
    /// Its own.
    None,
}

/// The worker of the calling fiber.
fn own_worker() -> Here {
    Worker::here().expect("a fiber runs on a worker")
}

/// What an unstarted fiber needs to start.
pub(super) struct Place {
    stack: Stack,
    family: FamilyRef,
}

/// The fibers that have no stack yet, and the stacks for them.
pub(super) struct Admission {
    /// Unstarted fibers that were made here. Other workers may steal them.
    unstarted: Deque<Unstarted>,
    stacks: RefCell<StackPool>,
    /// Fibers that wait for other fibers of this runtime to end.
    waiting_for_fibers: Cell<u32>,
}

impl Admission {
    pub(super) fn new(unstarted: Deque<Unstarted>, stacks: StackPool) -> Admission {
        Admission { unstarted, stacks: RefCell::new(stacks), waiting_for_fibers: Cell::new(0) }
    }

    #[inline]
    pub(super) fn has_unstarted(&self) -> bool {
        !self.unstarted.is_empty()
    }

    /// The stacks, borrowed for short.
    pub(super) fn stacks(&self) -> RefMut<'_, StackPool> {
        self.stacks.borrow_mut()
    }

    /// Takes a stack and thread-locals; an error if there is no memory for them.
    pub(super) fn place(&self, families: &Families, unstarted: &Unstarted) -> io::Result<Place> {
        let stack = self.stacks().take(unstarted.stack_bytes)?;
        let family = match &unstarted.family {
            FamilyChoice::Join(family) => Ok(family.open()),
            FamilyChoice::Reserved(locals) => Ok(locals.open()),
            FamilyChoice::Own => families.found(),
        };
        match family {
            Ok(family) => Ok(Place { stack, family }),
            Err(e) => {
                self.stacks().give_back(stack);
                Err(e)
            }
        }
    }

    /// The place of a fiber that only fails: the reserve, if no fiber is on it.
    pub(super) fn place_for_failure(
        &self,
        families: &Families,
        unstarted: &Unstarted,
    ) -> Option<Place> {
        let stack = self.stacks().take_reserve()?;
        let family = match &unstarted.family {
            FamilyChoice::Join(family) => family.open(),
            FamilyChoice::Reserved(locals) => locals.open(),
            FamilyChoice::Own => {
                let family = families.reserved();
                // The reserve stays with its worker.
                family.pin();
                family
            }
        };
        Some(Place { stack, family })
    }

    /// The number of fibers that wait for other fibers to end.
    #[inline]
    pub(super) fn waiting_for_fibers(&self) -> u32 {
        self.waiting_for_fibers.get()
    }

    /// The running fiber begins to wait for others to end.
    pub(super) fn begin_wait_for_fibers(&self) {
        self.waiting_for_fibers.set(self.waiting_for_fibers.get() + 1);
    }

    pub(super) fn end_wait_for_fibers(&self) {
        self.waiting_for_fibers.set(self.waiting_for_fibers.get() - 1);
    }
}

// Spawning.
impl Worker {
    /// Starts a fiber here, at the end of the ready queue.
    ///
    /// # Safety
    ///
    /// I2: what `body` borrows outlives the fiber, because the caller waits for its end.
    pub unsafe fn start<B: FnOnce()>(
        &self,
        stack_bytes: usize,
        kin: Kin,
        body: B,
    ) -> io::Result<FiberRef> {
        if size_of::<B>() > MOVED_BODY_BYTES {
            let body: Box<dyn FnOnce() + '_> = Box::new(body);
            // SAFETY: I2. By this function's contract.
            return unsafe { self.start(stack_bytes, kin, body) };
        }
        let stack = self.admission.stacks().take(stack_bytes)?;
        let family = match kin {
            Kin::Callers => {
                self.foreground.get().map_or_else(|| self.families.first(), |it| it.family())
            }
            Kin::None => self.families.found()?,
        };
        self.me().made.bump();
        // SAFETY: I2. By this function's contract.
        let fiber = unsafe { self.start_on(stack, family, body) };
        self.events.started(fiber, self.table.occupied(), 0, true);
        Ok(fiber)
    }

    /// Makes a fiber that any worker may start.
    #[inline]
    pub fn make_unstarted(&self, mut unstarted: Unstarted) {
        self.events.spawned(&mut unstarted);
        self.me().made.bump();
        self.admission.unstarted.push(unstarted);
        if self.shared.workers() > 1
            && let Some(thief) = self.shared.thief_to_wake(self.index, |_| true)
        {
            self.wake_peer(thief);
        }
    }

    /// Makes a fiber that the given worker starts.
    pub fn make_placed(&self, worker: usize, mut unstarted: Unstarted) {
        self.events.spawned(&mut unstarted);
        self.me().made.bump();
        if worker == self.index as usize {
            self.start_or_postpone(unstarted);
        } else {
            self.mail(&self.shared.peers[worker].mailbox, Mail::Start(unstarted));
        }
    }

    /// Makes a fiber that the given worker starts. This worker starts its own at once, or returns
    /// it with the error.
    pub fn make_thread(
        &self,
        worker: usize,
        mut unstarted: Unstarted,
    ) -> Result<(), (Unstarted, io::Error)> {
        if worker != self.index as usize {
            self.make_placed(worker, unstarted);
            return Ok(());
        }
        match self.admission.place(&self.families, &unstarted) {
            Ok(place) => {
                self.events.spawned(&mut unstarted);
                self.me().made.bump();
                self.start_unstarted(unstarted, place, None);
                Ok(())
            }
            Err(e) => Err((unstarted, e)),
        }
    }
}

// Starting, stealing and burying.
impl Worker {
    /// Starts some of the unstarted fibers.
    pub(super) fn start_some(&self) {
        let most = if self.moves.are_drawn() { self.draw_starts() } else { STARTS_PER_TURN };
        for _ in 0..most {
            match self.admission.unstarted.pop() {
                Some(unstarted) => self.start_or_postpone(unstarted),
                None => return,
            }
        }
    }

    /// Takes an unstarted fiber from another worker and starts it. False if none has one.
    pub(super) fn steal(&self) -> bool {
        let count = self.shared.workers();
        for step in 1..count {
            let victim = &self.shared.peers[(self.index as usize + step) % count];
            loop {
                match victim.stealer.steal() {
                    Steal::Success(unstarted) => {
                        self.events.stole();
                        // Without a stack here it goes back to its own worker, which may have one.
                        match self.admission.place(&self.families, &unstarted) {
                            Ok(place) => self.start_unstarted(unstarted, place, None),
                            Err(_) => self.mail(&victim.mailbox, Mail::Start(unstarted)),
                        }
                        return true;
                    }
                    Steal::Retry => {}
                    Steal::Empty => break,
                }
            }
        }
        false
    }

    /// Starts a fiber on this stack. With an error, the fiber fails with it instead of running its
    /// closure.
    pub(super) fn start_unstarted(
        &self,
        unstarted: Unstarted,
        Place { stack, family }: Place,
        error: Option<io::Error>,
    ) {
        let Unstarted { body, origin, is_placed, family: choice, .. } = unstarted;
        if is_placed && !matches!(choice, FamilyChoice::Join(_)) {
            family.pin();
        }
        let body = move || match error {
            None => body.run(),
            Some(e) => body.fail(e),
        };
        // SAFETY: I2. The body of an unstarted fiber borrows only what its maker keeps until the
        // fiber has ended.
        let fiber = unsafe { self.start_on(stack, family, body) };
        self.events.started(fiber, self.table.occupied(), origin, false);
    }

    /// # Safety
    ///
    /// As for [`Worker::start`].
    unsafe fn start_on(&self, stack: Stack, family: FamilyRef, body: impl FnOnce()) -> FiberRef {
        let fiber = self.table.vacancy();
        let bounds = stack.bounds();
        let worker = NonNull::from(self);
        // SAFETY: I2. What the body borrows outlives the fiber, by the contract, and so does the
        // worker. I14: the fiber enters its family as a member.
        let coroutine = unsafe {
            Coroutine::with_stack_unchecked(stack, move |yielder, ()| {
                fiber.entered(yielder);
                // A fiber begins where it was started.
                let worker = worker.as_ref();
                family.enter(|| {
                    family.learn(worker.index);
                    worker.enter_block();
                });
                body();
                let current = Current { worker: own_worker(), fiber };
                spans::end_body(current);
                current.leave_family();
            })
        };
        fiber.occupy(coroutine, bounds, family);
        if self.moves.may_happen() {
            family.siblings().add(fiber);
        }
        self.schedule.ready().push(fiber);
        fiber
    }

    /// Releases the block and the stack of a fiber that has ended.
    #[inline(never)]
    pub(super) fn bury(&self, fiber: FiberRef) {
        self.events.ended(fiber);
        // The rest is the worker's: an allocator, whose locks a program may interpose, must not
        // find the fiber (I14).
        self.foreground.set(None);
        let stack = fiber.take_stack();
        let mut home = self.index as usize;
        if self.moves.may_happen() {
            fiber.family().siblings().remove(fiber);
            home = self.shared.home_of(fiber.id());
        }
        self.families.bury(fiber);
        fiber.vacate();
        if home == self.index as usize {
            return self.release(Husk { fiber, stack });
        }
        fiber.as_transit().go_home(home);
        self.mail(&self.shared.peers[home].mailbox, Mail::Bury(Husk { fiber, stack }));
    }

    /// Releases what remains of a fiber of this worker, wherever it has ended.
    pub(super) fn release(&self, Husk { fiber, stack }: Husk) {
        self.admission.stacks().give_back(stack);
        self.table.release(fiber);
        self.me().ended.bump();
        if !self.postponed.is_empty() {
            self.start_postponed(false);
        }
    }
}
