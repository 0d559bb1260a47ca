//! What one program observes with sockets of std and of the library.

use std::fmt::Debug;
use std::io;

/// The results of a program's calls: values, and errors by kind, number and text.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Log(pub(super) Vec<String>);

impl Log {
    pub(super) fn value(&mut self, what: impl Debug) {
        self.0.push(format!("{what:?}"));
    }

    /// Logs the result of a call with a timeout, which is repeated if a signal interrupts it.
    pub(super) fn timed_result<T: Debug>(&mut self, mut call: impl FnMut() -> io::Result<T>) {
        loop {
            match call() {
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                result => return self.result(result),
            }
        }
    }

    pub(super) fn result<T: Debug>(&mut self, result: io::Result<T>) {
        self.0.push(match result {
            Ok(value) => format!("{value:?}"),
            Err(e) => format!("{:?} {:?} {e}", e.kind(), e.raw_os_error()),
        });
    }
}

/// Defines a test for each program: it observes the same with std, with fibers and without a
/// runtime.
macro_rules! observes_the_same {
    ($($name:ident),* $(,)?) => {$(
        #[test]
        fn $name() {
            let expected = with_std::$name();
            assert!(expected.0.len() > 3);
            let builder = cringle::Builder::new();
            let fibers = builder.clone().workers(1).run(with_cringle::$name).unwrap();
            assert_eq!(fibers, expected, "on one worker");
            let fibers = builder.workers(2).run(with_cringle::$name).unwrap();
            assert_eq!(fibers, expected, "on two workers");
            assert_eq!(on_threads::$name(), expected, "without a runtime");
        }
    )*};
}
pub(super) use observes_the_same;
