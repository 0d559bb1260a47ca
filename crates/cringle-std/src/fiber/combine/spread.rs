//! Concurrent iteration by a crew on all workers.
//!
//! The calling fiber advances the iterator, which need not be `Send`, and adds the items to a
//! [queue](Feed). The crew's fibers take them from there, one by one. So an item costs two short
//! locks and no message, as long as the queue is neither empty nor full, and a worker that is
//! faster takes more items.
//!
//! The crew grows as the local one does: a fiber that has taken an item hires others before it
//! begins the call, if more items are queued. So the calls may wait for each other: while items are
//! queued and places are free, a fiber is on its way. [`Places`] decides on which worker it starts.
//!
//! More fibers than calls that wait would only take turns, each with a stack and buffers that have
//! left the cache meanwhile, and the calling fiber would get one turn in many. So a new fiber
//! [stays back](Place::stay_back) while the others of its worker return from their calls without a
//! wait. And a fiber whose call did not wait ends if it finds the queue empty, and one fiber for
//! each worker waits there already.
//!
//! The calling fiber sleeps while the queue is full, and is woken when it is half empty. A fiber
//! that takes an item on the caller's worker then lets the caller run first: the fiber's call may
//! compute for long, and the other workers would run out of items meanwhile.
//!
//! A fiber for which no stack can be mapped ends before it begins. If no fiber is left, the calling
//! fiber works alone.

use super::spread_places::{Places, Returns};
use super::{Combination, End, is_interrupted};
use crate::fiber::protect;
use crate::fiber::scope::{Scope, scope_of_caught};
use crate::fiber::spawn::{current_or_panic, expect_spawned};
use crate::sync::feed::Feed;
use cringle_core::worker::Worker;
use cringle_sys::lock::Mutex;
use std::io;

/// The items in the queue for each fiber. Between two items the calling fiber may wait for as long
/// as many calls take: for the next directory of a tree, for example.
const QUEUED_PER_FIBER: usize = 8;
/// The largest number of items in the queue.
const MOST_QUEUED: usize = 1024;
/// A fiber that has taken an item hires this number of others, at most.
const HIRED_AT_ONCE: usize = 2;

/// A call has failed, and no further item begins.
pub(super) struct Failed;

/// Calls `work` for each item and its index, in at most `limit` fibers of all workers, until a call
/// fails or, if `interruptible`, a cancel ends the iteration. Each fiber passes a `D` of its own to
/// its calls. Returns them all.
#[track_caller]
pub(super) fn each<I, D, W>(items: I, limit: usize, interruptible: bool, work: W) -> (End, Vec<D>)
where
    I: Iterator,
    I::Item: Send,
    D: Default + Send,
    W: Fn(&mut D, usize, I::Item) -> Result<(), Failed> + Sync,
{
    assert!(limit > 0, "a limit of 0 allows no work: it must be 1 or more");
    let worker = current_or_panic().worker;
    let mut items = items.fuse().enumerate();
    let crew = Crew {
        combination: Combination::new(),
        feed: Feed::new(limit.saturating_mul(QUEUED_PER_FIBER).min(MOST_QUEUED)),
        places: Places::new(limit, worker.shared().workers()),
        home: worker.index(),
        done: Mutex::new(Vec::new()),
        work,
        interruptible,
    };
    let all_queued = scope_of_caught(|s| crew.queue_all(s, &mut items));
    if !(crew.is_over() || all_queued && crew.feed.is_empty()) {
        scope_of_caught(|s| crew.work_alone(s, &mut items));
    }
    crew.combination.resume_panic();
    let done = std::mem::take(&mut *crew.done.lock());
    (End::of(&crew.combination), done)
}

/// The fibers of one iteration: see the module.
struct Crew<T, D, W> {
    combination: Combination,
    feed: Feed<(usize, T)>,
    places: Places,
    /// The worker of the calling fiber.
    home: u32,
    /// What the fibers that have ended passed to their calls.
    done: Mutex<Vec<D>>,
    work: W,
    interruptible: bool,
}

/// The calling fiber.
impl<T, D, W> Crew<T, D, W>
where
    T: Send,
    D: Default + Send,
    W: Fn(&mut D, usize, T) -> Result<(), Failed> + Sync,
{
    /// Queues the items. Returns whether all are queued; if not, the iteration is over, or no fiber
    /// of the crew is left.
    fn queue_all<'scope>(
        &'scope self,
        scope: &'scope Scope<'scope, '_>,
        items: &mut impl Iterator<Item = (usize, T)>,
    ) -> bool {
        let all_queued = self.combination.run(scope, || {
            while self.wait_for_room() {
                let mut has_room = true;
                while has_room {
                    let Some(item) = items.next() else {
                        self.feed.end();
                        return true;
                    };
                    if self.must_stop() {
                        return false;
                    }
                    let added = self.feed.add(item);
                    has_room = added.has_room;
                    if !added.is_expected {
                        self.hire(scope, 1);
                    }
                }
            }
            false
        });
        if all_queued.is_none() {
            self.decide(scope);
        }
        if all_queued != Some(true) {
            // A fiber that gets a stack after others had none does not wait for further items.
            self.feed.close();
        }
        all_queued == Some(true)
    }

    /// Waits until the queue has room, or a cancel ends the wait: then the iterator decides whether
    /// items are left. Returns false if no further item is wanted.
    fn wait_for_room(&self) -> bool {
        let has_room = self.wait(|| self.feed.wait_for_room());
        has_room.unwrap_or_else(|_| !self.combination.is_decided())
    }

    /// Works on the queued items, and then on the others, in place of the crew.
    fn work_alone(&self, scope: &Scope<'_, '_>, items: &mut impl Iterator<Item = (usize, T)>) {
        let mut done = D::default();
        let ended = self.combination.run(scope, || {
            while let Some((index, item)) = self.feed.take_back().or_else(|| items.next())
                && !self.must_stop()
            {
                if (self.work)(&mut done, index, item).is_err() {
                    return self.decide(scope);
                }
            }
        });
        if ended.is_none() {
            self.decide(scope);
        }
        self.done.lock().push(done);
    }
}

/// The other fibers.
impl<T, D, W> Crew<T, D, W>
where
    T: Send,
    D: Default + Send,
    W: Fn(&mut D, usize, T) -> Result<(), Failed> + Sync,
{
    /// Adds up to `count` fibers to the crew.
    fn hire<'scope>(&'scope self, scope: &'scope Scope<'scope, '_>, count: usize) {
        for _ in 0..count {
            match self.places.take(current_or_panic().worker) {
                Some(worker) => self.start(scope, worker),
                None => return,
            }
        }
    }

    /// Starts a fiber, for which a place on this worker was taken.
    fn start<'scope>(&'scope self, scope: &'scope Scope<'scope, '_>, worker: usize) {
        let mut builder = self.combination.builder();
        if worker != own_worker() {
            builder = builder.starts_on(worker);
        }
        let seen = (worker == own_worker()).then(|| (worker, self.places.returns(worker)));
        let place = Place { crew: self, worker, has_begun: false, seen };
        let work = move || self.work_through(scope, place);
        drop(expect_spawned(builder.spawn_scoped(scope, work)));
    }

    /// Takes items and works on them: the body of each fiber.
    fn work_through<'scope>(
        &'scope self,
        scope: &'scope Scope<'scope, '_>,
        mut place: Place<'scope, T, D, W>,
    ) {
        place.stay_back();
        place.begin();
        let mut done = D::default();
        let mut has_waited = false;
        let ended = self.combination.run(scope, || {
            while let Some((index, item)) = self.next_item(scope, has_waited) {
                current_or_panic().forget_waits();
                if (self.work)(&mut done, index, item).is_err() {
                    return self.decide(scope);
                }
                has_waited = current_or_panic().has_waited();
                self.places.note_return(own_worker(), has_waited);
                if let Some(worker) = self.places.take_better(place.worker) {
                    return self.start(scope, worker);
                }
            }
        });
        if ended.is_none() {
            // Without the result of each item there is no result at all.
            self.decide(scope);
        }
        self.done.lock().push(done);
    }

    /// Takes the next item, unless the iteration is over or the fiber is one too many, and hires
    /// others for the items behind it.
    fn next_item<'scope>(
        &'scope self,
        scope: &'scope Scope<'scope, '_>,
        has_waited: bool,
    ) -> Option<(usize, T)> {
        let enough_waiting = if has_waited { usize::MAX } else { self.places.workers() };
        // After a cancel, the calling fiber finds out whether items are left.
        let taken = self.wait(|| self.feed.take(enough_waiting)).ok()??;
        if taken.calls_feeder && own_worker() == self.home as usize {
            // This call may compute for long, and the other workers run out of items.
            let current = current_or_panic();
            current.yield_now();
        }
        if self.must_stop() {
            return None;
        }
        self.hire(scope, taken.left.min(HIRED_AT_ONCE));
        Some(taken.item)
    }
}

/// The end.
impl<T, D, W> Crew<T, D, W> {
    /// Waits by a call that fails if the fiber is cancelled and the iteration can be interrupted.
    fn wait<R>(&self, call: impl FnOnce() -> io::Result<R>) -> io::Result<R> {
        if self.interruptible { call() } else { protect(call) }
    }

    /// Whether an item that was taken must not begin. Is checked last: if no item is left, a cancel
    /// came too late.
    fn must_stop(&self) -> bool {
        if self.combination.is_decided() {
            return true;
        }
        let is_interrupted = self.interruptible && is_interrupted();
        if is_interrupted {
            self.interrupt();
        }
        is_interrupted
    }

    fn interrupt(&self) {
        self.combination.interrupt();
        self.feed.close();
    }

    fn decide(&self, scope: &Scope<'_, '_>) {
        self.combination.decide(scope);
        // A cancel does not end the wait of a calling fiber that unwinds.
        self.feed.close();
    }

    fn is_over(&self) -> bool {
        self.combination.is_decided() || self.combination.was_interrupted()
    }
}

fn own_worker() -> usize {
    Worker::here().expect("a fiber runs on a worker").index() as usize
}

/// A fiber's place in the crew, from its spawn to its end.
struct Place<'crew, T, D, W> {
    crew: &'crew Crew<T, D, W>,
    worker: usize,
    has_begun: bool,
    /// A worker, and the calls that had returned there when the fiber last looked.
    seen: Option<(usize, Returns)>,
}

impl<T, D, W> Place<'_, T, D, W> {
    /// Lets other fibers run for as long as calls on this worker return, and none of them has
    /// waited. If none returns, the calls may wait for the one that this fiber would make.
    fn stay_back(&mut self) {
        while let Some((worker, before)) = self.seen {
            let current = current_or_panic();
            let now = self.crew.places.returns(worker);
            let is_wanted = worker != own_worker()
                || now.waited != before.waited
                || now.at_once == before.at_once
                || !current.worker.has_others_ready()
                || self.crew.combination.is_decided()
                || is_interrupted();
            if is_wanted {
                return;
            }
            self.seen = Some((worker, now));
            current.yield_now();
        }
    }

    /// The fiber has started, on this worker.
    fn begin(&mut self) {
        let hired_for = std::mem::replace(&mut self.worker, own_worker());
        self.crew.places.begin(hired_for, self.worker);
        self.has_begun = true;
    }
}

impl<T, D, W> Drop for Place<'_, T, D, W> {
    fn drop(&mut self) {
        if self.crew.places.give_back(self.worker, self.has_begun) {
            self.crew.feed.desert();
        }
    }
}
