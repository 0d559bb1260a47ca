//! Code of the caller.

use super::{Foreign, join_in_scope, raise};
use crate::act::Act;
use cringle::sync::{LazyLock, OnceLock};
use cringle::{fiber, time};
use std::cell::Cell;
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

pub(super) fn fiber_itself(act: Act) {
    join_in_scope(|| act.run());
}

pub(super) fn scope_body(act: Act) {
    let on_stack = Cell::new(0);
    let scope = AssertUnwindSafe(|| {
        fiber::scope(|s| {
            s.spawn_local(|| {
                fiber::protect(|| (0..20).for_each(|_| fiber::yield_now()));
                on_stack.set(1);
            });
            act.run();
        });
    });
    let ended = catch_unwind(scope);
    assert_eq!(on_stack.get(), 1);
    raise(ended);
}

pub(super) fn timeout_body(act: Act) {
    let ended = time::timeout(Duration::from_secs(3600), || {
        act.run();
        Ok(())
    });
    drop(ended);
}

pub(super) fn closure_destructor(act: Act) {
    let captured = Foreign(act);
    join_in_scope(move || drop(captured));
}

pub(super) fn iterator(act: Act) {
    let items = (0..6).inspect(|&n| {
        if n == 2 {
            act.run();
        }
    });
    let results = fiber::par_map(items, 3, |n| {
        fiber::protect(fiber::yield_now);
        n
    });
    assert_eq!(results, [0, 1, 2, 3, 4, 5]);
}

pub(super) fn iterator_for_all_workers(act: Act) {
    let items = (0..6).inspect(|&n| {
        if n == 2 {
            act.run();
        }
    });
    let results = fiber::par_map_workers(items, 3, |n| {
        fiber::protect(fiber::yield_now);
        n
    });
    assert_eq!(results, [0, 1, 2, 3, 4, 5]);
}

pub(super) fn once_initialiser(act: Act) {
    let once = OnceLock::new();
    fiber::scope(|s| {
        s.spawn_local(|| fiber::protect(|| once.get_or_init(|| 7)));
        assert_eq!(
            once.get_or_init(|| {
                act.run();
                7
            }),
            &7
        );
    });
}

pub(super) fn lazy_initialiser(act: Act) {
    let lazy = LazyLock::new(|| act.run());
    LazyLock::force(&lazy);
}

thread_local! {
    /// The act, for initialisers without arguments.
    static ACT: Cell<Act> = const { Cell::new(Act::Returns) };
}

pub(super) fn local_initialiser(act: Act) {
    cringle::fiber_local! {
        static LOCAL: u32 = {
            ACT.get().run();
            7
        };
    }
    ACT.set(act);
    LOCAL.with(|local| assert_eq!(*local, 7));
}

struct Polls(Act, u32);

impl Future for Polls {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        self.1 += 1;
        self.0.run();
        context.waker().wake_by_ref();
        if self.1 < 2 { Poll::Pending } else { Poll::Ready(()) }
    }
}

pub(super) fn future_poll(act: Act) {
    fiber::block_on(Polls(act, 0));
}

pub(super) fn future_destructor(act: Act) {
    let foreign = Foreign(act);
    fiber::block_on(async move {
        let _foreign = foreign;
        std::future::ready(()).await;
    });
}

pub(super) fn unblocked(act: Act) {
    let on_stack = vec![7; 64];
    fiber::unblock(|| {
        act.run();
        assert_eq!(on_stack, [7; 64]);
    });
}
