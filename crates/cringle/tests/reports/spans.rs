//! Spans of the `tracing` crate stay with the fiber that entered them, and the library emits
//! events.

use cringle::fiber;
use cringle::fs::File;
use cringle::sync::mpsc;
use cringle_testing::child;
use cringle_testing::tools::on_one_worker;
use std::collections::HashMap;
use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::panic::AssertUnwindSafe;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tracing::field::{Field, Visit};
use tracing::{Event, Id, Level, Metadata, Subscriber, info, info_span};
use tracing_subscriber::filter::filter_fn;
use tracing_subscriber::layer::{Context, Layer, SubscriberExt};
use tracing_subscriber::registry::LookupSpan;

/// A recorded event, or the end of a span.
#[derive(Clone, Debug)]
struct Record {
    level: Level,
    target: String,
    fields: HashMap<String, String>,
    /// The spans that contain the event, the outermost first.
    spans: Vec<String>,
}

impl Record {
    fn message(&self) -> &str {
        self.fields.get("message").map_or("", String::as_str)
    }
}

/// A layer that records events and the ends of spans.
#[derive(Clone, Default)]
struct Recorder(Arc<Mutex<Vec<Record>>>);

/// The fields of an event as text.
struct Fields(HashMap<String, String>);

impl Fields {
    fn of(event: &Event<'_>) -> Fields {
        let mut fields = Fields(HashMap::new());
        event.record(&mut fields);
        fields
    }
}

impl Visit for Fields {
    fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
        self.0.insert(field.name().into(), format!("{value:?}"));
    }
}

impl<S: Subscriber + for<'a> LookupSpan<'a>> Layer<S> for Recorder {
    fn on_event(&self, event: &Event<'_>, context: Context<'_, S>) {
        let scope = context.event_scope(event).into_iter().flat_map(|scope| scope.from_root());
        let record = Record {
            level: *event.metadata().level(),
            target: event.metadata().target().into(),
            fields: Fields::of(event).0,
            spans: scope.map(|span| span.name().to_owned()).collect(),
        };
        self.0.lock().unwrap().push(record);
    }

    fn on_close(&self, id: Id, context: Context<'_, S>) {
        let name = context.span(&id).expect("the span is closing").name();
        let fields = HashMap::from([("message".to_owned(), format!("{name} has ended"))]);
        let record = Record { level: Level::INFO, target: String::new(), fields, spans: vec![] };
        self.0.lock().unwrap().push(record);
    }
}

/// Calls `f` with a recorder as the subscriber of this thread, and returns the records.
fn recorded(f: impl FnOnce()) -> Vec<Record> {
    let recorder = Recorder::default();
    let subscriber = tracing_subscriber::registry().with(recorder.clone());
    tracing::subscriber::with_default(subscriber, f);
    Arc::into_inner(recorder.0).map_or_else(Vec::new, |records| records.into_inner().unwrap())
}

fn with_message<'a>(records: &'a [Record], message: &str) -> Vec<&'a Record> {
    records.iter().filter(|record| record.message() == message).collect()
}

#[test]
fn entered_span_stays_with_its_fiber() {
    let records = recorded(|| {
        on_one_worker(|| {
            fiber::scope(|s| {
                s.spawn_local(|| {
                    let _outer = info_span!("outer").entered();
                    let _inner = info_span!("inner").entered();
                    fiber::sleep(Duration::from_millis(1));
                    info!("after the sleep");
                });
                s.spawn_local(|| {
                    info!("without a span");
                    let _mine = info_span!("mine").entered();
                    fiber::yield_now();
                    info!("in mine");
                });
            });
            info!("after the scope");
        });
    });
    assert_eq!(with_message(&records, "after the sleep")[0].spans, ["outer", "inner"]);
    assert!(with_message(&records, "without a span")[0].spans.is_empty(), "{records:?}");
    assert_eq!(with_message(&records, "in mine")[0].spans, ["mine"]);
    assert!(with_message(&records, "after the scope")[0].spans.is_empty(), "{records:?}");
    for span in ["outer", "inner", "mine"] {
        assert_eq!(with_message(&records, &format!("{span} has ended")).len(), 1, "{span}");
    }
}

#[test]
fn interleaved_spans_stay_with_their_fibers() {
    let records = recorded(|| {
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
    let within = with_message(&records, "within");
    assert_eq!(within.len(), 9);
    assert!(within.iter().all(|record| record.spans == ["fiber"]), "{records:?}");
    let between = with_message(&records, "between");
    assert_eq!(between.len(), 3);
    assert!(between.iter().all(|record| record.spans.is_empty()), "{records:?}");
}

#[test]
fn main_fiber_runs_in_the_callers_span() {
    let records = recorded(|| {
        let _calling = info_span!("calling").entered();
        on_one_worker(|| {
            info!("in main");
            fiber::spawn_local(|| info!("in another fiber")).join().unwrap();
            info!("in main again");
        });
        info!("after the run");
    });
    for message in ["in main", "in main again", "after the run"] {
        assert_eq!(with_message(&records, message)[0].spans, ["calling"], "{message}");
    }
    assert!(with_message(&records, "in another fiber")[0].spans.is_empty());
}

/// The destructor of a value for a key, which is called after those of thread-locals. Emits events
/// on threads, which get the places in the subscriber that are free.
#[cfg(target_env = "gnu")]
unsafe extern "C" fn start_threads(_: *mut std::ffi::c_void) {
    let all_have_places = std::sync::Barrier::new(THREADS);
    let work = || {
        drop(info_span!("takes a place").entered());
        info!("on a thread");
        all_have_places.wait();
    };
    std::thread::scope(|threads| (0..THREADS).for_each(|_| drop(threads.spawn(work))));
}
#[cfg(target_env = "gnu")]
const THREADS: usize = 8;

#[test]
#[cfg(target_env = "gnu")]
fn forgotten_span_ends_with_private_thread_locals() {
    child::must_succeed("forgotten_span_ends_with_private_thread_locals", || {
        let recorder = Recorder::default();
        let subscriber = tracing_subscriber::registry().with(recorder.clone());
        tracing::subscriber::set_global_default(subscriber).unwrap();
        let private = cringle::runtime::ThreadLocals::Private;
        let builder = cringle::Builder::new().workers(1).thread_locals(private);
        let forget = || {
            let mut key = 0;
            // SAFETY: the key is made before it is used, and the destructor uses no value.
            unsafe {
                assert_eq!(libc::pthread_key_create(&mut key, Some(start_threads)), 0);
                assert_eq!(libc::pthread_setspecific(key, (&raw const key).cast()), 0);
            }
            std::mem::forget(info_span!("forgotten").entered());
        };
        builder.run(|| fiber::spawn(forget).join().unwrap()).unwrap();
        let records = recorder.0.lock().unwrap();
        let on_threads = with_message(&records, "on a thread");
        assert_eq!(on_threads.len(), THREADS);
        assert!(on_threads.iter().all(|record| record.spans.is_empty()), "{on_threads:?}");
    });
}

/// Events of fibers have the level `DEBUG`, events of operations the level `TRACE`.
#[test]
fn library_emits_events_of_fibers_and_operations() {
    let records = recorded(|| {
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
    let own = records.into_iter().filter(|record| record.target == "cringle");
    let records: Vec<Record> = own.collect();
    assert_eq!(with_message(&records, "run")[0].fields["workers"], "1");
    let spawns = with_message(&records, "spawn");
    assert!(spawns.iter().any(|record| record.fields["name"].contains("named")), "{spawns:?}");
    assert!(spawns.iter().all(|record| record.fields["place"].contains("tests/reports/spans.rs")));
    assert_eq!(with_message(&records, "a scope is cancelled").len(), 1);
    assert!(records.iter().all(|record| [Level::DEBUG, Level::TRACE].contains(&record.level)));
    assert!(records.iter().any(|record| record.level == Level::TRACE), "{records:?}");
}

/// The events of a fiber have its name, if it has one, and the number of its `ThreadId`.
#[test]
fn events_name_the_fiber_that_causes_them() {
    let id = || format!("{:?}", fiber::current().id());
    let mut ids = Vec::new();
    let records = recorded(|| {
        on_one_worker(|| {
            let members = fiber::scope(|s| {
                let work = || {
                    cringle::fs::write("/dev/null", "x").unwrap();
                    fiber::yield_now();
                    fiber::sleep(Duration::from_millis(1));
                    id()
                };
                let named = fiber::Builder::new().name("named".into());
                let named = named.spawn_scoped_local(s, work).unwrap();
                let unnamed = fiber::Builder::new().spawn_scoped_local(s, work).unwrap();
                // Which of them ends first differs.
                [named, unnamed].map(|member| member.join().unwrap())
            });
            fiber::scope(|s| s.cancel());
            ids.extend(members);
            ids.push(id());
        });
    });
    let records: Vec<Record> =
        records.into_iter().filter(|record| record.target == "cringle").collect();
    let number = |record: &Record, field| format!("ThreadId(Fiber({}))", record.fields[field]);
    // The fiber and the new one, by their numbers.
    let spawned: Vec<String> =
        with_message(&records, "spawn").iter().map(|record| number(record, "id")).collect();
    assert_eq!(spawned, ids[..2]);
    for record in with_message(&records, "spawn") {
        assert_eq!(
            (&*record.fields["fiber"], number(record, "fiber_id")),
            ("\"main\"", ids[2].clone())
        );
    }
    for message in ["a fiber continues", "an operation has ended"] {
        let causes = with_message(&records, message);
        for (id, name) in ids.iter().zip([Some("\"named\""), None, Some("\"main\"")]) {
            let own: Vec<_> =
                causes.iter().filter(|record| number(record, "fiber_id") == *id).collect();
            // `main` performs no operation.
            let is_expected = name != Some("\"main\"") || message == "a fiber continues";
            assert_eq!(!own.is_empty(), is_expected, "{message}: {causes:?}");
            let names = own.iter().map(|record| record.fields.get("fiber").map(String::as_str));
            assert!(names.into_iter().all(|found| found == name), "{own:?}");
        }
    }
    assert_eq!(with_message(&records, "a scope is cancelled")[0].fields["fiber"], "\"main\"");
    // `run` is called outside of any fiber.
    for message in ["run", "run has ended"] {
        let fields = &with_message(&records, message)[0].fields;
        assert!(!fields.contains_key("fiber") && !fields.contains_key("fiber_id"), "{fields:?}");
    }
}

/// Looking for the fiber gives it a number, which shows who has looked.
#[test]
fn unwanted_events_look_for_no_fiber() {
    child::must_succeed("unwanted_events_look_for_no_fiber", || {
        let given = || {
            let number = || {
                let id = format!("{:?}", fiber::current().id());
                let digits: String = id.chars().filter(char::is_ascii_digit).collect();
                digits.parse::<u64>().unwrap()
            };
            on_one_worker(|| {
                let before = fiber::spawn_local(number).join().unwrap();
                fiber::scope(|s| (0..9).for_each(|_| drop(s.spawn_local(fiber::yield_now))));
                fiber::spawn_local(number).join().unwrap() - before - 1
            })
        };
        assert_eq!(given(), 0, "without a subscriber");
        let with_filter = |wanted: fn(&Metadata<'_>) -> bool| {
            let recorder = Recorder::default().with_filter(filter_fn(wanted));
            let subscriber = tracing_subscriber::registry().with(recorder);
            tracing::subscriber::with_default(subscriber, given)
        };
        assert_eq!(with_filter(|event| event.target() != "cringle"), 0);
        // The scope's fibers, and both that say their number.
        assert!(with_filter(|event| *event.level() <= Level::DEBUG) >= 9);
    });
}

// ----- subscribers that misbehave -----

/// A layer that calls a closure with the message of each event, and with `enter` or `exit` for each
/// span that is entered or exited.
struct Hook(Box<dyn Fn(&str) + Send + Sync>);

impl<S: Subscriber + for<'a> LookupSpan<'a>> Layer<S> for Hook {
    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        let fields = Fields::of(event).0;
        (self.0)(fields.get("message").map_or("", String::as_str));
    }

    fn on_enter(&self, _: &Id, _: Context<'_, S>) {
        (self.0)("enter");
    }

    fn on_exit(&self, _: &Id, _: Context<'_, S>) {
        (self.0)("exit");
    }
}

/// Runs `f` on one worker with a [`Hook`] that calls `misbehave`. Returns how often that returned
/// true or panicked.
fn with_hook(misbehave: impl Fn(&str) -> bool + Send + Sync + 'static, f: impl FnOnce()) -> usize {
    let count = Arc::new(AtomicUsize::new(0));
    let counter = Arc::clone(&count);
    let hook = Hook(Box::new(move |what| {
        // Count first, because the call may panic.
        counter.fetch_add(1, Ordering::Relaxed);
        if !misbehave(what) {
            counter.fetch_sub(1, Ordering::Relaxed);
        }
    }));
    let subscriber = tracing_subscriber::registry().with(hook);
    tracing::subscriber::with_default(subscriber, || on_one_worker(f));
    count.load(Ordering::Relaxed)
}

/// The subscriber panics when the reader suspends within its span, while the kernel writes to the
/// reader's buffer.
#[test]
fn panicking_subscriber_frees_no_lent_buffer() {
    let panics = |what: &str| match what {
        "exit" | "enter" => panic!("a subscriber"),
        _ => false,
    };
    let count = with_hook(panics, || {
        let (reader, writer) = std::io::pipe().unwrap();
        let [reader, writer] = [OwnedFd::from(reader), OwnedFd::from(writer)].map(File::from);
        fiber::scope(|s| {
            let reader = s.spawn_local(|| {
                let span = info_span!("reads");
                // The subscriber panics in this call, too.
                let _entered = std::panic::catch_unwind(AssertUnwindSafe(|| span.enter()));
                let mut buf = vec![0; 64];
                let count = (&reader).read(&mut buf).unwrap();
                buf.truncate(count);
                buf
            });
            fiber::yield_now();
            (&writer).write_all(b"abc").unwrap();
            assert_eq!(reader.join().unwrap(), b"abc");
        });
    });
    assert!(count > 0);
}

#[test]
fn panicking_subscriber_ends_no_scope_early() {
    let panics = |what: &str| what == "a fiber continues" && panic!("a subscriber");
    let count = with_hook(panics, || {
        let has_ended = std::cell::Cell::new(false);
        fiber::scope(|s| {
            // The owner waits twice: until only the daemon is left, and until the daemon has ended.
            s.spawn_daemon_local(|| {
                fiber::protect(|| (0..9).for_each(|_| fiber::yield_now()));
                has_ended.set(true);
            });
            s.spawn_local(fiber::yield_now);
        });
        assert!(has_ended.get());
    });
    assert!(count > 0);
}

/// A scope must not end early without a panic either: the owner is cancelled, so a call that may
/// suspend unwinds, and the subscriber makes such a call on the owner's fiber.
#[test]
fn subscriber_can_send_on_a_cancelled_fiber() {
    let (sender, receiver) = mpsc::sync_channel(1000);
    let sends = move |what: &str| what == "a fiber continues" && sender.send(()).is_ok();
    let count = with_hook(sends, || {
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
fn panicking_subscriber_leaks_no_descriptor() {
    child::must_succeed("panicking_subscriber_leaks_no_descriptor", || {
        let panics = |what: &str| what == "an operation has ended" && panic!("a subscriber");
        let file = tempfile::NamedTempFile::new().unwrap();
        // An open that may create a file is an operation, also if the kernel knows the path.
        let mut options = File::options();
        let options = options.write(true).create(true).truncate(false);
        let round = || {
            let count = with_hook(panics, || {
                fiber::scope(|s| {
                    for _ in 0..20 {
                        s.spawn_local(|| drop(options.open(file.path()).unwrap()));
                    }
                });
            });
            assert!(count > 0);
        };
        round();
        let before = child::Footprint::now();
        round();
        assert_eq!(child::Footprint::now().descriptors, before.descriptors);
    });
}
