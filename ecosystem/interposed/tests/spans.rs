//! The hazard detector reports spans of `tracing` that stay entered over a wait, once each, and no
//! others. Here, because with the feature `tracing` of cringle, spans follow their fiber.

use cringle::runtime::ThreadLocals;
use cringle::{Builder, fiber};
use std::io::{Read, Seek};
use std::os::fd::AsRawFd;
use tracing::info_span;

fn shared() -> Builder {
    Builder::new().workers(1).thread_locals(ThreadLocals::Shared)
}

fn named(name: &str) -> fiber::Builder {
    fiber::Builder::new().name(name.into())
}

/// The reports on standard error while `f` runs.
fn reports(f: impl FnOnce()) -> Vec<String> {
    let mut file = tempfile::tempfile().unwrap();
    // SAFETY: by the contract of the calls; the descriptors are open, and the copy is closed once.
    let before = unsafe {
        let before = libc::dup(2);
        assert!(before >= 0 && libc::dup2(file.as_raw_fd(), 2) == 2);
        before
    };
    f();
    // SAFETY: as above.
    unsafe {
        assert!(libc::dup2(before, 2) == 2);
        libc::close(before);
    }
    let mut text = String::new();
    file.rewind().unwrap();
    file.read_to_string(&mut text).unwrap();
    print!("{text}");
    text.lines().filter(|line| line.contains("hazard: ")).map(str::to_owned).collect()
}

fn wait_in_span() {
    let span = info_span!("kept").entered();
    fiber::yield_now();
    fiber::yield_now();
    drop(span);
    // In the span of `run`'s caller, as before.
    fiber::yield_now();
}

fn wait_beside_spans() {
    for _ in 0..3 {
        info_span!("left").in_scope(|| std::hint::black_box(()));
        fiber::yield_now();
    }
}

#[test]
fn entered_spans_are_reported_once() {
    tracing::subscriber::set_global_default(tracing_subscriber::registry()).unwrap();
    // SAFETY: no other thread of this process reads the environment now.
    unsafe { std::env::set_var("CRINGLE_DETECT", "report") };

    // Spans that were left, those of `run`'s caller, and those of other fibers are no hazards.
    let callers = info_span!("caller's").entered();
    let run = || {
        fiber::scope(|s| (0..3).for_each(|_| drop(s.spawn(wait_beside_spans))));
        info_span!("left").in_scope(wait_nowhere);
        fiber::yield_now();
    };
    assert_eq!(reports(|| shared().run(run).unwrap()), [""; 0]);

    // Fibers in the same span, and others that are resumed in it.
    let run = || {
        fiber::scope(|s| {
            named("in span").spawn_scoped(s, wait_in_span).unwrap();
            named("in span").spawn_scoped(s, wait_in_span).unwrap();
            (0..3).for_each(|_| drop(named("beside").spawn_scoped(s, wait_beside_spans)));
        });
        fiber::yield_now();
    };
    let found = reports(|| shared().run(run).unwrap());
    assert_eq!(found.len(), 1, "{found:#?}");
    for text in ["fiber 'in span'", "`kept`", "tests/spans.rs:", "it yields at"] {
        assert!(found[0].contains(text), "{text}: {found:?}");
    }
    drop(callers);

    // A fiber with thread-locals of its own has spans of its own.
    let wait = || {
        let _span = info_span!("own").entered();
        fiber::yield_now();
    };
    let private = Builder::new().workers(1).thread_locals(ThreadLocals::Private);
    let run = || {
        let fibers = [(); 3].map(|()| fiber::spawn(wait));
        fibers.into_iter().for_each(|fiber| fiber.join().unwrap());
    };
    assert_eq!(reports(|| private.run(run).unwrap()), [""; 0]);
    let run = || fiber::spawn_local(wait).join().unwrap();
    let found = reports(|| shared().run(run).unwrap());
    assert!(found.len() == 1 && found[0].contains("`own`"), "{found:?}");
}

fn wait_nowhere() {
    std::hint::black_box(());
}
