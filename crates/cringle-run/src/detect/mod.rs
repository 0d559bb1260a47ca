//! A detector of what fibers must not hold over a wait, and std's `RefCell` and `Mutex` in a form
//! that it sees.
//!
//! The fibers of a worker share a thread. If one of them waits with a `RefMut` or a guard of a std
//! `Mutex` in its hands, the next one that needs the value panics, or blocks the worker for ever.
//! The book's chapter "What not to hold over a wait" lists such hazards. Import [`RefCell`] and
//! [`Mutex`] from here, and the detector reports the hazards that it sees on standard error:
//!
//! ```
//! use cringle::detect::RefCell;
//! use cringle::fiber;
//!
//! thread_local! {
//!     static CACHE: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
//! }
//!
//! cringle::run(|| {
//!     CACHE.with(|cache| {
//!         let mut cache = cache.borrow_mut();
//!         cache.push(1);
//!         drop(cache); // Without this line, `yield_now` is reported, and this place.
//!         fiber::yield_now();
//!     });
//! });
//! ```
//!
//! ```text
//! cringle: hazard: fiber 'main' (spawned at src/main.rs:8:1) holds a mutable borrow of a
//! `detect::RefCell`, taken at src/main.rs:10:31, while it yields at src/main.rs:13:9; another
//! fiber of worker 0 panics if it borrows; end the borrow before the wait
//! ```
//!
//! # When it works
//!
//! In debug builds, and with the feature `detect` in release builds. Elsewhere these types are
//! std's, at no cost. `CRINGLE_DETECT=off` turns it off, and `CRINGLE_DETECT=abort` aborts the
//! process after the first report, for tests. The default is `report`.
//!
//! # What it reports
//!
//! Each hazard is reported once in a process, on one line.
//!
//! | hazard | reported | names |
//! |---|---|---|
//! | a guard of [`RefCell`] or [`Mutex`] is held over a wait | at the wait, the first time | the fiber, the place where it was taken, the place of the wait |
//! | a [`Mutex`] is locked that a suspended fiber of the same worker holds, or the same fiber | before it blocks the worker for ever | both fibers, where it was taken, where its holder waits, where it is locked |
//! | a [`RefCell`] is borrowed that another fiber has borrowed | in the message of the panic | both fibers and all three places |
//! | a recursive or error-checking pthread mutex is locked by a second fiber for which libc has the same owner | if libc's calls are interposed | both fibers, where they wait and lock |
//! | a span of `tracing` stays entered over a wait | with the feature `detect`, without the feature `tracing` | the fiber, the span's name and place, the place of the wait |
//!
//! The place of a wait is the innermost call of the program, if the program has line tables.
//! Without them the report says what the fiber waits for.
//!
//! # What it does not report
//!
//! - std's own types. An uncontended lock of std, and every borrow of a std `RefCell`, is inlined
//!   into the program, and nothing can see it. Nor does the detector see locks of other crates. The
//!   [watchdog](crate::run::Builder::watchdog) names the fiber whose wait for such a lock blocks
//!   its worker, but not the holder.
//! - A borrow that no other fiber can reach: with
//!   [private thread-locals](cringle_tls::ThreadLocals::Private), a borrow of a fiber which
//!   shares its thread-locals with no other. A report does not say that another fiber does borrow;
//!   it may.
//! - What panic hooks and `tracing` subscribers take, which the library calls beside a fiber.
//!
//! # Cost
//!
//! A guard costs an entry in a list of its thread, some nanoseconds. A suspension tests a flag.
//! `benches/RESULTS.md` has figures.

mod mutex;
mod ref_cell;

pub use mutex::{Mutex, MutexGuard};
pub use ref_cell::{Ref, RefCell, RefMut};
