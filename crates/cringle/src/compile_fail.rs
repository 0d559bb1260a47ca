//! Programs that the compiler rejects, beyond the examples in the documentation.
//!
//! The first block of each item is the accepted counterpart of the rejected ones. A nightly
//! compiler also checks the numbers of the errors: `RUSTC_BOOTSTRAP=1 cargo test --doc
//! compile_fail`.

/// An `Rc` cannot leave its worker.
///
/// ```
/// let shared = std::sync::Arc::new(1);
/// cringle::run(|| cringle::fiber::spawn(move || *shared).join().unwrap());
/// ```
/// ```compile_fail,E0277
/// let shared = std::rc::Rc::new(1);
/// cringle::run(|| cringle::fiber::spawn(move || *shared).join().unwrap());
/// ```
/// ```compile_fail,E0277
/// // Not as a result either.
/// cringle::run(|| cringle::fiber::spawn(|| std::rc::Rc::new(1)).join().unwrap());
/// ```
/// ```compile_fail,E0277
/// let shared = std::rc::Rc::new(1);
/// cringle::run(|| cringle::fiber::scope(|s| s.spawn_daemon(|| drop(shared.clone()))));
/// ```
/// ```compile_fail,E0277
/// let shared = std::rc::Rc::new(1);
/// cringle::run(|| cringle::fiber::unblock(|| *shared));
/// ```
struct NotSend;

/// Calls on all workers share their closure; the iterator stays on the caller's.
///
/// ```
/// let shared = std::rc::Rc::new(1);
/// let items = (0..3).map(|n| n * *shared);
/// cringle::run(|| cringle::fiber::par_map_workers(items, 2, |n| n));
/// ```
/// ```compile_fail,E0277
/// let shared = std::rc::Rc::new(1);
/// cringle::run(|| cringle::fiber::par_map_workers(0..3, 2, |n| n * *shared));
/// ```
/// ```compile_fail,E0277
/// // Items and results change workers.
/// cringle::run(|| cringle::fiber::par_map_workers([std::rc::Rc::new(1)], 2, |rc| *rc));
/// ```
/// ```compile_fail,E0277
/// cringle::run(|| cringle::fiber::par_map_workers(0..3, 2, std::rc::Rc::new));
/// ```
struct CallsOnAllWorkers;

/// Any worker may make a call at a scope's end, unless it is a local one.
///
/// ```
/// let shared = std::rc::Rc::new(1);
/// cringle::run(|| cringle::fiber::scope(|s| s.on_exit_local(|| drop(shared.clone()))));
/// ```
/// ```compile_fail,E0277
/// let shared = std::rc::Rc::new(1);
/// cringle::run(|| cringle::fiber::scope(|s| s.on_exit(|| drop(shared.clone()))));
/// ```
struct ExitNotSend;

/// A call at a scope's end may outlive the variables of the scope's closure.
///
/// ```
/// let outside = String::new();
/// cringle::run(|| cringle::fiber::scope(|s| s.on_exit(|| drop(outside.len() == 0))));
/// ```
/// ```compile_fail,E0373
/// cringle::run(|| {
///     cringle::fiber::scope(|s| {
///         let inside = String::new();
///         s.on_exit(|| drop(inside.len() == 0));
///     });
/// });
/// ```
struct ExitBorrowsInside;

/// The handle of a fiber whose result is not `Send` cannot leave its worker.
///
/// ```
/// cringle::run(|| {
///     let handle = cringle::fiber::spawn_local(|| 1);
///     cringle::fiber::spawn(move || drop(handle.join())).join().unwrap();
/// });
/// ```
/// ```compile_fail,E0277
/// cringle::run(|| {
///     cringle::fiber::scope(|s| {
///         let handle = s.spawn_local(|| std::rc::Rc::new(1));
///         s.spawn(move || drop(handle.join()));
///     });
/// });
/// ```
struct HandleNotSend;

/// A fiber-local belongs to its fiber: it is borrowed for one call, and only on its worker.
///
/// ```
/// use std::cell::Cell;
/// cringle::fiber_local! { static DEPTH: Cell<u32> = Cell::new(0); }
/// cringle::run(|| {
///     DEPTH.with(|depth| {
///         cringle::fiber::scope(|s| drop(s.spawn_local(|| depth.set(1))));
///     });
/// });
/// ```
/// ```compile_fail,E0277
/// use std::cell::Cell;
/// cringle::fiber_local! { static DEPTH: Cell<u32> = Cell::new(0); }
/// cringle::run(|| {
///     DEPTH.with(|depth| {
///         cringle::fiber::scope(|s| drop(s.spawn(|| depth.set(1))));
///     });
/// });
/// ```
/// ```compile_fail
/// use std::cell::Cell;
/// cringle::fiber_local! { static DEPTH: Cell<u32> = Cell::new(0); }
/// cringle::run(|| {
///     let depth: &Cell<u32> = DEPTH.with(|depth| depth);
///     cringle::fiber::spawn_local(move || depth.set(1));
/// });
/// ```
struct FiberLocalEscapes;

/// A `try_scope` borrows as a scope does.
///
/// ```
/// cringle::run(|| {
///     let outside = String::new();
///     cringle::fiber::try_scope(|s| {
///         s.spawn(|| Ok(outside.len()));
///         std::io::Result::Ok(())
///     })
/// })?;
/// # std::io::Result::Ok(())
/// ```
/// ```compile_fail,E0373
/// cringle::run(|| {
///     cringle::fiber::try_scope(|s| {
///         let inside = String::new();
///         s.spawn(|| Ok(inside.len()));
///         std::io::Result::Ok(())
///     })
/// })?;
/// # std::io::Result::Ok(())
/// ```
/// ```compile_fail
/// // The scope cannot be kept past its end.
/// let kept = cringle::run(|| cringle::fiber::try_scope(|s| std::io::Result::Ok(s)));
/// # let _ = kept;
/// ```
/// ```compile_fail
/// // Nor can its handles.
/// cringle::run(|| {
///     let kept = cringle::fiber::scope(|s| s.spawn(|| 1));
///     kept.join()
/// });
/// ```
/// ```compile_fail,E0277
/// // An error may be returned on another worker than the one that made it.
/// struct Error(std::rc::Rc<u8>);
/// impl From<std::io::Error> for Error {
///     fn from(_: std::io::Error) -> Error {
///         Error(Default::default())
///     }
/// }
/// cringle::run(|| {
///     cringle::fiber::try_scope(|s| -> Result<(), Error> {
///         s.spawn_local(|| -> Result<(), Error> { Ok(()) });
///         Ok(())
///     })
/// })
/// .ok();
/// ```
struct TryScopeBorrows;

/// A scope's fiber may borrow from outside the scope, not from the closure of an inner `protect`.
///
/// ```compile_fail
/// cringle::run(|| {
///     cringle::fiber::scope(|s| {
///         cringle::fiber::protect(|| {
///             let inside = String::new();
///             s.spawn(|| inside.len());
///         });
///     });
/// });
/// ```
struct BorrowFromProtect;

/// `timeout` takes closures whose error is an `io::Error`; `try_timeout` takes others.
///
/// ```
/// use cringle::time::{Duration, try_timeout};
///
/// fn answer() -> Result<u8, Box<dyn std::error::Error>> {
///     try_timeout(Duration::from_secs(1), || Ok("42".parse()?))
/// }
/// assert_eq!(answer().unwrap(), 42);
/// ```
/// ```compile_fail,E0308
/// use cringle::time::{Duration, timeout};
///
/// fn answer() -> Result<u8, Box<dyn std::error::Error>> {
///     timeout(Duration::from_secs(1), || "42".parse::<u8>().map_err(Box::from))
/// }
/// ```
/// ```compile_fail,E0308
/// use cringle::time::{Duration, timeout};
///
/// let _ = timeout(Duration::from_secs(1), || 42);
/// ```
struct ErrorsOfTimeout;
