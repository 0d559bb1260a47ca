//! The thread-locals that interposed calls need.

use cringle::runtime::{self, ThreadLocals};
use cringle::{Builder, fiber};
use std::io::ErrorKind;

#[test]
fn fibers_have_thread_locals_of_their_own() {
    assert_eq!(cringle::run(runtime::thread_locals), Some(ThreadLocals::Private));
    let errno = || {
        // SAFETY: the calling code's own `errno`.
        unsafe { libc::__errno_location() as usize }
    };
    cringle::run(|| {
        let own = errno();
        assert_ne!(fiber::scope(|s| s.spawn(errno).join().unwrap()), own);
    });
}

#[test]
fn shared_thread_locals_are_refused() {
    let error = Builder::new().thread_locals(ThreadLocals::Shared).run(|| ()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidInput);
    assert!(error.to_string().contains("install!"), "{error}");
}
