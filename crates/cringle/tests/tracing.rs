//! Spans of the `tracing` crate follow their fiber, and the library tells what it does.

use cringle::fs::File;
use cringle::sync::mpsc;
use cringle::{Builder, fiber};
use std::collections::HashMap;
use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::panic::AssertUnwindSafe;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tracing::field::{Field, Visit};
use tracing::{Event, Id, Level, Subscriber, info, info_span};
use tracing_subscriber::layer::{Context, Layer, SubscriberExt};
use tracing_subscriber::registry::LookupSpan;

/// What an event said, and the spans that it was in, the outermost first.
#[derive(Clone, Debug)]
struct Said {
    level: Level,
    target: String,
    words: HashMap<String, String>,
    spans: Vec<String>,
}

impl Said {
    fn message(&self) -> &str {
        self.words.get("message").map_or("", String::as_str)
    }
}

#[derive(Clone, Default)]
struct Ears(Arc<Mutex<Vec<Said>>>);

struct Words(HashMap<String, String>);

impl Visit for Words {
    fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
        self.0.insert(field.name().into(), format!("{value:?}"));
    }
}

impl<S: Subscriber + for<'a> LookupSpan<'a>> Layer<S> for Ears {
    fn on_event(&self, event: &Event<'_>, context: Context<'_, S>) {
        let mut words = Words(HashMap::new());
        event.record(&mut words);
        let scope = context.event_scope(event).into_iter().flat_map(|scope| scope.from_root());
        let said = Said {
            level: *event.metadata().level(),
            target: event.metadata().target().into(),
            words: words.0,
            spans: scope.map(|span| span.name().to_owned()).collect(),
        };
        self.0.lock().unwrap().push(said);
    }

    fn on_close(&self, id: Id, context: Context<'_, S>) {
        let name = context.span(&id).expect("it is closing").name();
        let words = HashMap::from([("message".to_owned(), format!("{name} has ended"))]);
        let said = Said { level: Level::INFO, target: String::new(), words, spans: Vec::new() };
        self.0.lock().unwrap().push(said);
    }
}

/// Runs on one worker, whose thread is the caller's, and returns what was said.
fn heard(f: impl FnOnce()) -> Vec<Said> {
    let ears = Ears::default();
    let subscriber = tracing_subscriber::registry().with(ears.clone());
    tracing::subscriber::with_default(subscriber, f);
    Arc::into_inner(ears.0).map_or_else(Vec::new, |said| said.into_inner().unwrap())
}

fn on_one_worker(f: impl FnOnce()) {
    Builder::new().workers(1).run(f).unwrap();
}

fn of<'a>(said: &'a [Said], message: &str) -> Vec<&'a Said> {
    said.iter().filter(|said| said.message() == message).collect()
}

#[test]
fn a_span_that_is_entered_over_a_wait_is_its_own_fibers_alone() {
    let said = heard(|| {
        on_one_worker(|| {
            fiber::scope(|s| {
                s.spawn_local(|| {
                    let _outer = info_span!("outer").entered();
                    let _inner = info_span!("inner").entered();
                    fiber::sleep(Duration::from_millis(1));
                    info!("after the sleep");
                });
                s.spawn_local(|| {
                    info!("meanwhile");
                    let _mine = info_span!("mine").entered();
                    fiber::yield_now();
                    info!("in mine");
                });
            });
            info!("in the end");
        });
    });
    assert_eq!(of(&said, "after the sleep")[0].spans, ["outer", "inner"]);
    assert!(of(&said, "meanwhile")[0].spans.is_empty(), "{said:?}");
    assert_eq!(of(&said, "in mine")[0].spans, ["mine"]);
    assert!(of(&said, "in the end")[0].spans.is_empty(), "{said:?}");
    for span in ["outer", "inner", "mine"] {
        assert_eq!(of(&said, &format!("{span} has ended")).len(), 1, "{span}");
    }
}

#[test]
fn spans_that_interleave_are_left_in_their_own_order() {
    let said = heard(|| {
        on_one_worker(|| {
            fiber::scope(|s| {
                for name in ["a", "b", "c"] {
                    s.spawn_local(move || {
                        let span = info_span!("fiber", name);
                        for _ in 0..3 {
                            let _entered = span.enter();
                            fiber::yield_now();
                            info!(name, "within");
                        }
                        info!("between");
                    });
                }
            });
        });
    });
    assert_eq!(of(&said, "within").len(), 9);
    assert!(of(&said, "within").iter().all(|said| said.spans == ["fiber"]), "{said:?}");
    assert_eq!(of(&said, "between").len(), 3);
    assert!(of(&said, "between").iter().all(|said| said.spans.is_empty()), "{said:?}");
}

#[test]
fn the_callers_span_is_the_main_fibers_and_the_callers_again() {
    let said = heard(|| {
        let _calling = info_span!("calling").entered();
        on_one_worker(|| {
            info!("in main");
            fiber::spawn_local(|| info!("in another")).join().unwrap();
            info!("in main again");
        });
        info!("after the run");
    });
    for message in ["in main", "in main again", "after the run"] {
        assert_eq!(of(&said, message)[0].spans, ["calling"], "{message}");
    }
    assert!(of(&said, "in another")[0].spans.is_empty());
}

#[test]
fn the_library_tells_of_fibers_at_debug_and_of_operations_at_trace() {
    let said = heard(|| {
        on_one_worker(|| {
            let named = fiber::Builder::new().name("named".into());
            named.spawn_local(fiber::yield_now).unwrap().join().unwrap();
            fiber::scope(|s| {
                s.spawn_local(|| cringle::fs::metadata("/").unwrap());
                s.spawn_local(|| cringle::fs::metadata("/").unwrap());
            });
            fiber::scope(|s| s.cancel());
        });
    });
    let said: Vec<Said> = said.into_iter().filter(|said| said.target == "cringle").collect();
    assert_eq!(of(&said, "run")[0].words["workers"], "1");
    let spawns = of(&said, "spawn");
    assert!(spawns.iter().any(|said| said.words["name"].contains("named")), "{spawns:?}");
    assert!(spawns.iter().all(|said| said.words["place"].contains("tests/tracing.rs")));
    assert_eq!(of(&said, "a scope is cancelled").len(), 1);
    assert!(said.iter().all(|said| [Level::DEBUG, Level::TRACE].contains(&said.level)));
    assert!(said.iter().any(|said| said.level == Level::TRACE), "{said:?}");
}

// ----- subscribers that misbehave -----

/// Calls this for each event and each span that is entered or left, by the thread that set it.
struct Unruly(Box<dyn Fn(&str) + Send + Sync>);

impl<S: Subscriber + for<'a> LookupSpan<'a>> Layer<S> for Unruly {
    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        let mut words = Words(HashMap::new());
        event.record(&mut words);
        (self.0)(words.0.get("message").map_or("", String::as_str));
    }

    fn on_enter(&self, _: &Id, _: Context<'_, S>) {
        (self.0)("enter");
    }

    fn on_exit(&self, _: &Id, _: Context<'_, S>) {
        (self.0)("exit");
    }
}

/// Runs `f` on one worker with a subscriber that does this, and counts how often it did.
fn with_unruly(does: impl Fn(&str) -> bool + Send + Sync + 'static, f: impl FnOnce()) -> usize {
    let count = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&count);
    let unruly = Unruly(Box::new(move |what| {
        // Before it panics.
        counted.fetch_add(1, Ordering::Relaxed);
        if !does(what) {
            counted.fetch_sub(1, Ordering::Relaxed);
        }
    }));
    let subscriber = tracing_subscriber::registry().with(unruly);
    tracing::subscriber::with_default(subscriber, || on_one_worker(f));
    count.load(Ordering::Relaxed)
}

/// The kernel writes to the buffer of a read while the reader's span is left.
#[test]
fn a_subscriber_that_panics_in_a_suspension_frees_no_frame() {
    let panics = |what: &str| match what {
        "exit" | "enter" => panic!("a subscriber"),
        _ => false,
    };
    let count = with_unruly(panics, || {
        let (reader, writer) = std::io::pipe().unwrap();
        let [reader, writer] = [OwnedFd::from(reader), OwnedFd::from(writer)].map(File::from);
        fiber::scope(|s| {
            let reads = s.spawn_local(|| {
                // Made without calls of ours, which would panic here.
                let span = info_span!("reads");
                let _entered = std::panic::catch_unwind(AssertUnwindSafe(|| span.enter()));
                let mut buf = vec![0; 64];
                let count = (&reader).read(&mut buf).unwrap();
                buf.truncate(count);
                buf
            });
            fiber::yield_now();
            (&writer).write_all(b"abc").unwrap();
            assert_eq!(reads.join().unwrap(), b"abc");
        });
    });
    assert!(count > 0);
}

#[test]
fn a_subscriber_that_panics_leaves_no_scope_before_its_fibers() {
    let panics = |what: &str| what == "a fiber continues" && panic!("a subscriber");
    let count = with_unruly(panics, || {
        let ended = std::cell::Cell::new(false);
        fiber::scope(|s| {
            // The owner's wait ends twice: when nobody is left but the daemon, and when that has
            // ended.
            s.spawn_daemon_local(|| {
                fiber::protect(|| (0..9).for_each(|_| fiber::yield_now()));
                ended.set(true);
            });
            s.spawn_local(fiber::yield_now);
        });
        assert!(ended.get());
    });
    assert!(count > 0);
}

/// It needs no panic: a wait of a cancelled fiber unwinds, and the subscriber waits on the owner's
/// fiber.
#[test]
fn a_subscriber_may_send_in_a_cancelled_owner() {
    let (sender, receiver) = mpsc::sync_channel(1000);
    let sends = move |what: &str| what == "a fiber continues" && sender.send(()).is_ok();
    let count = with_unruly(sends, || {
        let ended = std::cell::Cell::new(0);
        fiber::scope(|outer| {
            outer.spawn_local(|| {
                fiber::scope(|s| {
                    s.spawn_daemon_local(|| {
                        fiber::protect(|| (0..9).for_each(|_| fiber::yield_now()));
                        ended.set(ended.get() + 1);
                    });
                    s.spawn_local(fiber::yield_now);
                });
            });
            fiber::yield_now();
            outer.cancel();
        });
        assert_eq!(ended.get(), 1);
    });
    assert_eq!(receiver.try_iter().count(), count);
    assert!(count > 0);
}

#[test]
fn a_descriptor_is_not_lost_to_a_subscriber_that_panics() {
    let panics = |what: &str| what == "an operation has ended" && panic!("a subscriber");
    let open = || std::fs::read_dir("/proc/self/fd").unwrap().count();
    let path = std::env::temp_dir();
    let before = open();
    let count = with_unruly(panics, || {
        fiber::scope(|s| {
            for _ in 0..20 {
                s.spawn_local(|| drop(File::open(&path).unwrap()));
            }
        });
    });
    assert!(count > 0);
    // Other tests of this process have a ring and files each.
    assert!(open() < before + 20);
}
