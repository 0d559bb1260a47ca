//! A `tracing` subscriber, which the library calls on its workers.

use super::OnDrop;
use crate::act::{Act, pipe};
use cringle::fiber;
use std::cell::Cell;
use std::io::{Read, Write};
use std::sync::atomic::{AtomicBool, Ordering};
use tracing::{Event, Id, Subscriber};
use tracing_subscriber::layer::{Context, Layer, SubscriberExt};

/// Runs the act on each event of the library, or whenever a span is entered or left.
struct Acts {
    act: Act,
    spans: bool,
}

/// Set while the test itself uses spans, or the act runs: their events are ignored.
static ACTS: AtomicBool = AtomicBool::new(false);

impl Acts {
    fn act(&self) {
        if !ACTS.swap(true, Ordering::Relaxed) {
            let _over = OnDrop(|| ACTS.store(false, Ordering::Relaxed));
            self.act.run();
        }
    }
}

impl<S: Subscriber> Layer<S> for Acts {
    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        if !self.spans && event.metadata().target() == "cringle" {
            self.act();
        }
    }

    fn on_enter(&self, _: &Id, _: Context<'_, S>) {
        if self.spans {
            self.act();
        }
    }

    fn on_exit(&self, _: &Id, _: Context<'_, S>) {
        if self.spans {
            self.act();
        }
    }
}

/// Runs fibers that cause events and spans: an op, a scope with a daemon, a spawn.
fn with(act: Act, spans: bool) {
    let acts = tracing_subscriber::registry().with(Acts { act, spans });
    tracing::subscriber::set_global_default(acts).unwrap();
    let (reader, writer) = pipe();
    let on_stack = Cell::new(0);
    fiber::scope(|s| {
        s.spawn_daemon_local(|| {
            fiber::protect(|| (0..20).for_each(|_| fiber::yield_now()));
            on_stack.set(on_stack.get() + 1);
        });
        s.spawn_local(|| {
            let mut buf = vec![0; 64];
            let span = tracing::info_span!("reads");
            let own = |f: &mut dyn FnMut()| {
                ACTS.store(spans, Ordering::Relaxed);
                f();
                ACTS.store(false, Ordering::Relaxed);
            };
            let mut entered = None;
            own(&mut || entered = spans.then(|| span.enter()));
            assert_eq!(fiber::protect(|| (&reader).read(&mut buf)).unwrap(), 3);
            assert_eq!(&buf[..3], b"abc");
            own(&mut || entered = None);
            on_stack.set(on_stack.get() + 1);
        });
        fiber::protect(|| {
            fiber::yield_now();
            (&writer).write_all(b"abc").unwrap();
        });
    });
    assert_eq!(on_stack.get(), 2);
}

pub(super) fn event(act: Act) {
    with(act, false);
}

pub(super) fn span(act: Act) {
    with(act, true);
}
