//! The body of a fiber: it enters its scope, runs the closure, stores the result and leaves the
//! scope.

use super::packet::Packet;
use super::scope_core::Membership;
use cringle_core::fiber::body::{run_body, with_identity};
use cringle_core::foreign;
use cringle_core::lent_frame::LentFrame;
use cringle_core::shared::Body;
use cringle_core::worker::Current;
use std::cell::Cell;
use std::io;
use std::sync::Arc;

/// A fiber's membership in a scope of some kind, which ends when this is dropped.
pub(super) trait ScopeMember<T> {
    fn membership(&self) -> &Membership;

    /// Returns whether the scope fails if the fiber ends with this result and no joiner waits.
    fn is_failure(&self, _result: &std::thread::Result<T>) -> bool {
        false
    }

    /// Reports the fiber's failure to the scope.
    fn fail(&self, _packet: &Arc<Packet<T>>) {}
}

impl<T> ScopeMember<T> for Membership {
    fn membership(&self) -> &Membership {
        self
    }
}

/// The body of a fiber that any worker may start.
pub(super) struct Sent<F, T, M> {
    pub(super) packet: Arc<Packet<T>>,
    pub(super) member: Option<M>,
    pub(super) f: F,
}

impl<F, T, M> Body for Sent<F, T, M>
where
    F: FnOnce() -> T + Send,
    T: Send,
    M: ScopeMember<T> + Send,
{
    fn run(self: Box<Self>) {
        let Sent { packet, member, f } = *self;
        run(packet, member, f);
    }

    fn fail(self: Box<Self>, e: io::Error) {
        let Sent { packet, member, f } = *self;
        let lent = begin(member.as_ref().map(M::membership));
        let (mut f, mut dropped) = (Some(f), Ok(()));
        with_identity(&packet.meta, &mut || dropped = foreign::drop_value(f.take()));
        // The error becomes the result, as a panic's payload does.
        let result = dropped.and_then(|()| Err(Box::new(e) as Box<dyn std::any::Any + Send>));
        let failed = store(&packet, member.as_ref(), result);
        end(packet, member, failed, lent);
    }
}

/// Returns the body of a local fiber.
pub(super) fn local_body<F, T, M>(packet: Arc<Packet<T>>, member: Option<M>, f: F) -> impl FnOnce()
where
    F: FnOnce() -> T,
    M: ScopeMember<T>,
{
    move || run(packet, member, f)
}

fn run<F, T, M>(packet: Arc<Packet<T>>, member: Option<M>, f: F)
where
    F: FnOnce() -> T,
    M: ScopeMember<T>,
{
    let lent = begin(member.as_ref().map(M::membership));
    let (mut f, value, mut failed) = (Some(f), Cell::new(None), false);
    let mut call = || value.set(f.take().map(|f| f()));
    // While the fiber has its locals and thread-locals, which the destructor of a result may use.
    run_body(&packet.meta, &mut call, &mut |ended| {
        let ended = ended.map(|()| value.take().expect("the closure has returned"));
        failed = store(&packet, member.as_ref(), ended);
    });
    end(packet, member, failed, lent);
}

/// Stores the fiber's result, and returns whether its scope fails because of it.
fn store<T>(
    packet: &Packet<T>,
    member: Option<&impl ScopeMember<T>>,
    result: std::thread::Result<T>,
) -> bool {
    let failed = member.is_some_and(|member| {
        member.membership().record(&result);
        member.is_failure(&result)
    });
    packet.store(result, failed);
    failed
}

/// Enters the fiber into its scope. From here on, the frame is lent: the scope's owner waits for
/// the fiber's end, and a joiner for its result.
#[inline]
fn begin(member: Option<&Membership>) -> LentFrame {
    let current = Current::get().expect("a fiber's body runs on a worker");
    let lent = LentFrame::begin();
    match member {
        Some(member) => member.begin(current),
        None => current.enter_root(),
    }
    lent
}

/// Wakes the joiner. Leaves the scope, which fails if the fiber `failed` and no joiner waits.
fn end<T>(
    packet: Arc<Packet<T>>,
    member: Option<impl ScopeMember<T>>,
    failed: bool,
    lent: LentFrame,
) {
    let has_joiner = packet.finish();
    if let Some(member) = member.as_ref().filter(|_| failed && !has_joiner) {
        member.fail(&packet);
    }
    drop(packet);
    drop(member);
    lent.end();
}
