//! The body of a fiber: it enters its scope, runs the closure, stores the result and leaves the
//! scope.

use super::packet::{Packet, drop_unwanted};
use super::scope_core::Membership;
use crate::runtime::fiber::body::{run_body, with_identity};
use crate::runtime::foreign;
use crate::runtime::lent_frame::LentFrame;
use crate::runtime::shared::Body;
use crate::runtime::worker::Current;
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
        end(packet, member, Some(result), lent);
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
    let (mut f, value, mut result) = (Some(f), Cell::new(None), None);
    let mut call = || value.set(f.take().map(|f| f()));
    run_body(&packet.meta, &mut call, &mut |ended| {
        let ended = ended.map(|()| value.take().expect("the closure has returned"));
        result = keep_claimed(&packet, member.as_ref(), ended);
    });
    end(packet, member, result, lent);
}

/// Drops a result that nothing can ask for any more, while the fiber has its locals and
/// thread-locals: its destructor may use them.
fn keep_claimed<T>(
    packet: &Arc<Packet<T>>,
    member: Option<&impl ScopeMember<T>>,
    result: std::thread::Result<T>,
) -> Option<std::thread::Result<T>> {
    // The only reference: the handle is gone.
    let is_claimed =
        Arc::strong_count(packet) > 1 || member.is_some_and(|member| member.is_failure(&result));
    if is_claimed {
        return Some(result);
    }
    if let Some(member) = member {
        member.membership().record(&result);
    }
    drop_unwanted(result);
    None
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

/// Stores the fiber's result, if it was not dropped, and then leaves its scope.
fn end<T>(
    packet: Arc<Packet<T>>,
    member: Option<impl ScopeMember<T>>,
    result: Option<std::thread::Result<T>>,
    lent: LentFrame,
) {
    if let Some(result) = result {
        finish(packet, member.as_ref(), result);
    }
    drop(member);
    lent.end();
}

fn finish<T>(
    packet: Arc<Packet<T>>,
    member: Option<&impl ScopeMember<T>>,
    result: std::thread::Result<T>,
) {
    let failed = member.is_some_and(|member| {
        member.membership().record(&result);
        member.is_failure(&result)
    });
    let taken = packet.finish(result);
    if let Some(member) = member.filter(|_| failed && !taken) {
        member.fail(&packet);
    }
    // The handle may have been dropped meanwhile. The result is dropped before the scope can end:
    // it may borrow from outside the scope.
    if let Some(packet) = Arc::into_inner(packet)
        && let Some(result) = packet.try_take()
    {
        // Its destructor is code of the fiber: it may wait, and use fiber-locals.
        let mut result = Some(result);
        with_identity(&packet.meta, &mut || {
            if let Some(result) = result.take() {
                drop_unwanted(result);
            }
        });
    }
}
