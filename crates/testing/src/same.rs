//! Runs the same program with std and with the library. A program logs the result of each call: the
//! value, or the error's kind, number and text. [`compare`] lists every call whose result differs.

use cringle::runtime::DriverChoice;
use cringle::{Builder, fiber};
use std::cell::Cell;
use std::fmt::Debug;
use std::io;

/// The results of a program's calls, in order.
#[derive(Debug, Default)]
pub struct Log(Vec<(String, String)>);

impl Log {
    fn push(&mut self, call: String, text: String) {
        // If the program hangs, the call after the last printed one is the reason.
        if std::env::var_os("CRINGLE_SAME_TRACE").is_some() {
            eprintln!("{call}: {text}");
        }
        self.0.push((call, text));
    }

    /// Logs a value.
    pub fn value(&mut self, call: impl Into<String>, value: impl Debug) {
        self.push(call.into(), format!("{value:?}"));
    }

    /// Logs a result with the text of its error.
    pub fn result<T: Debug>(&mut self, call: impl Into<String>, result: io::Result<T>) {
        let text = match result {
            Ok(value) => format!("{value:?}"),
            Err(e) => format!("{:?} {:?} {e}", e.kind(), e.raw_os_error()),
        };
        self.push(call.into(), text);
    }

    /// Logs a result. An error is logged without its text.
    pub fn result_without_text<T: Debug>(
        &mut self,
        call: impl Into<String>,
        result: io::Result<T>,
    ) {
        let text = match result {
            Ok(value) => format!("{value:?}"),
            Err(e) => format!("{:?} {:?}", e.kind(), e.raw_os_error()),
        };
        self.push(call.into(), text);
    }

    /// Logs whether a call panics, and the message up to the first colon.
    pub fn panic_prefix<T>(&mut self, call: impl Into<String>, f: impl FnOnce() -> T) {
        self.panic_message(call, f);
        let (_, text) = self.0.last_mut().expect("just logged");
        *text = text.split(':').next().expect("one part at least").to_owned();
    }

    /// Replaces a word in the log.
    pub fn replace(&mut self, from: &str, to: &str) {
        self.0.iter_mut().for_each(|(_, text)| *text = text.replace(from, to));
    }

    /// Logs the message of a panic, or that there was none.
    pub fn panic_message<T>(&mut self, call: impl Into<String>, f: impl FnOnce() -> T) {
        let caught = fiber::catch_unwind(std::panic::AssertUnwindSafe(|| drop(f())));
        let text = match caught {
            Ok(()) => "no panic".to_owned(),
            Err(payload) => match payload.downcast::<String>() {
                Ok(text) => *text,
                Err(payload) => payload.downcast_ref::<&str>().unwrap_or(&"?").to_string(),
            },
        };
        self.push(call.into(), text);
    }
}

/// Compiles a program three times: with std, with the library's types on threads, and on fibers.
/// `it` is `std` or `cringle`, `thread` is `std::thread` or `cringle::fiber`.
#[macro_export]
macro_rules! programs {
    ($($body:item)*) => {
        #[allow(dead_code, unused_imports)]
        mod with_std {
            use super::*;
            use std as it;
            use std::thread;
            $($body)*
        }

        /// The library's types, used by threads.
        #[allow(dead_code, unused_imports)]
        mod on_threads {
            use super::*;
            use cringle as it;
            use std::thread;
            $($body)*
        }

        #[allow(dead_code, unused_imports)]
        mod on_fibers {
            use super::*;
            use cringle as it;
            use cringle::fiber as thread;
            $($body)*
        }
    };
}
pub use programs;

/// Defines a test for each program.
#[macro_export]
macro_rules! the_same {
    ($($name:ident),* $(,)?) => {$(
        #[test]
        fn $name() {
            $crate::same::compare(with_std::$name, on_threads::$name, on_fibers::$name);
        }
    )*};
}
pub use the_same;

/// The other fibers of the worker. They determine whether a call is inline, plain or queued.
#[derive(Clone, Copy, Debug)]
enum Company {
    None,
    Waiting,
    Ready,
}

fn run_in(driver: DriverChoice, workers: usize, company: Company, f: fn() -> Log) -> Log {
    /// Ends the other fiber, even if `f` panics.
    struct Done<'a>(&'a Cell<bool>, fiber::Thread);
    impl Drop for Done<'_> {
        fn drop(&mut self) {
            self.0.set(true);
            self.1.unpark();
        }
    }
    let wait = match company {
        Company::None => return Builder::new().driver(driver).workers(workers).run(f).unwrap(),
        Company::Waiting => fiber::park,
        Company::Ready => fiber::yield_now,
    };
    let beside = || {
        let done = Cell::new(false);
        fiber::scope(|s| {
            let other = s.spawn_local(|| {
                while !done.get() {
                    wait();
                }
            });
            let _done = Done(&done, other.thread().clone());
            fiber::yield_now();
            f()
        })
    };
    Builder::new().driver(driver).workers(workers).run(beside).unwrap()
}

/// Runs the library's programs in each situation, and fails with a list of the calls whose results
/// differ from std's.
#[track_caller]
pub fn compare(std: fn() -> Log, on_threads: fn() -> Log, on_fibers: fn() -> Log) {
    let expected = std();
    assert!(!expected.0.is_empty());
    let mut differences = Vec::new();
    let mut check = |way: &str, found: Log| {
        for ((call, expected), (same_call, found)) in expected.0.iter().zip(&found.0) {
            assert_eq!(call, same_call, "{way}: another call");
            if expected != found {
                differences.push(format!("{way}: {call}\n   std: {expected}\n  here: {found}"));
            }
        }
        assert_eq!(expected.0.len(), found.0.len(), "{way}: calls");
    };
    check("without a runtime", on_threads());
    for driver in [DriverChoice::Uring, DriverChoice::Epoll] {
        for (workers, company) in
            [(1, Company::None), (1, Company::Waiting), (1, Company::Ready), (2, Company::None)]
        {
            let way = format!("{driver:?}, {workers} workers, beside {company:?}");
            check(&way, run_in(driver, workers, company, on_fibers));
        }
    }
    let count = differences.len();
    assert!(count == 0, "{count} calls differ from std's:\n{}", differences.join("\n"));
}
