//! One error for ever: each call ends.

use super::{Faulty, Op, Rules};
use std::fmt::Debug;

/// The number of times that a call may get the same errno.
const LIMIT: usize = 5000;

/// The ops that fail.
const OPS: [Op; 17] = [
    Op::Lookup,
    Op::Getattr,
    Op::Truncate,
    Op::Setattr,
    Op::Open,
    Op::Create,
    Op::Read,
    Op::Write,
    Op::Flush,
    Op::Fsync,
    Op::Rename,
    Op::CopyRange,
    Op::Readdir,
    Op::Mkdir,
    Op::Unlink,
    Op::Rmdir,
    Op::Link,
];

/// Each may be a reason to try again, to try another way, or to try with another name.
const ERRNOS: [i32; 13] = [
    libc::EPERM,
    libc::ENOENT,
    libc::EIO,
    libc::EAGAIN,
    libc::EEXIST,
    libc::EXDEV,
    libc::ENXIO,
    libc::ENOTDIR,
    libc::EISDIR,
    libc::EINVAL,
    libc::EMLINK,
    libc::ENAMETOOLONG,
    libc::EOPNOTSUPP,
];

impl Faulty {
    /// Checks that a call ends, whichever op returns whichever error for ever. For each of them,
    /// `prepare` makes the files, on an empty file system, and `call` makes the call.
    ///
    /// The ops succeed again after 5,000 errors. So a call that would not end fails the test.
    pub fn call_ends<T: Debug>(
        &self,
        name: impl Debug,
        prepare: impl Fn(&Faulty),
        call: impl Fn() -> T,
    ) {
        self.call_ends_for(|_| true, name, prepare, call);
    }

    /// Like [`Faulty::call_ends`], for those errors whose number `is_chosen`.
    pub fn call_ends_for<T: Debug>(
        &self,
        is_chosen: impl Fn(usize) -> bool,
        name: impl Debug,
        prepare: impl Fn(&Faulty),
        call: impl Fn() -> T,
    ) {
        let mut total = 0;
        let all = OPS.iter().flat_map(|op| ERRNOS.iter().map(move |errno| (*op, *errno)));
        let chosen = all.enumerate().filter(|(number, _)| is_chosen(*number));
        for (op, errno) in chosen.map(|(_, error)| error) {
            self.set(Rules::default());
            self.clear();
            prepare(self);
            self.set(Rules::failing(op, errno, 0, LIMIT));
            let outcome = call();
            let answers = self.fired().len();
            assert!(answers < LIMIT, "{name:?}, {op:?}, {errno}: {answers}, {outcome:?}");
            total += answers;
        }
        assert!(total > 0, "{name:?} got no error");
    }
}
