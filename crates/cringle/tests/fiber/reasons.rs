//! The reason behind errors that other crates have made.

use cringle::{cancel, fiber, time};
use cringle_testing::tools::*;
use std::error::Error;
use std::io::{self, ErrorKind};
use std::time::Duration;

const HOUR: Duration = Duration::from_secs(3600);
const SHORT: Duration = Duration::from_millis(2);

/// An error that wraps another.
#[derive(Debug)]
struct Wrapper(Box<dyn Error + Send + Sync>);

impl std::fmt::Display for Wrapper {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("the query has failed")
    }
}

impl Error for Wrapper {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        Some(&*self.0)
    }
}

/// An error that is its own source.
#[derive(Debug)]
struct Circle;

impl std::fmt::Display for Circle {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("a circle")
    }
}

impl Error for Circle {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        Some(self)
    }
}

#[test]
fn reason_is_found_within_other_errors() {
    on_one_worker(|| {
        let late = time::timeout(SHORT, || time::sleep(HOUR)).unwrap_err();
        let cancelled = fiber::scope(|s| {
            s.cancel();
            cancel::check().unwrap_err()
        });
        for error in [late, cancelled] {
            let reason = cancel::reason(&error);
            assert!(reason.is_some());
            assert_eq!(cancel::reason_of(&error), reason);
            let wrapped = Wrapper(Box::new(io::Error::other(Wrapper(Box::new(error)))));
            assert_eq!(cancel::reason_of(&wrapped), reason);
            assert_eq!(cancel::reason_of(&io::Error::other(wrapped)), reason);
        }
        let others: [&(dyn Error + 'static); 4] = [
            &io::Error::from_raw_os_error(libc::ETIMEDOUT),
            &io::Error::from(ErrorKind::TimedOut),
            &io::Error::other(Wrapper(Box::new(Circle))),
            &Circle,
        ];
        assert_eq!(others.map(cancel::reason_of), [None; 4]);
    });
}

#[test]
fn reason_is_found_on_the_late_fiber() {
    on_one_worker(|| {
        let foreign = io::Error::from_raw_os_error(libc::ETIMEDOUT);
        let reason = time::timeout(SHORT, || {
            drop(time::sleep(HOUR));
            Ok((cancel::reason_of(&foreign), fiber::protect(|| cancel::reason_of(&foreign))))
        });
        let (reason, protected) = reason.unwrap();
        assert!(matches!(reason, Some(cancel::Reason::Elapsed(e)) if e.limit() == Some(SHORT)));
        assert_eq!((protected, cancel::reason_of(&foreign)), (None, None));
    });
    assert_eq!(cancel::reason_of(&Circle), None);
}
