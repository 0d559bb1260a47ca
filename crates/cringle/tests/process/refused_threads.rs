//! A host that refuses threads.

use crate::denied::{deny, in_child};
use cringle::{Builder, fiber};
use seccompiler::SeccompAction;

#[test]
fn refused_threads_are_errors_with_a_remedy() {
    in_child("refused_threads_are_errors_with_a_remedy", || {
        deny(&[libc::SYS_clone, libc::SYS_clone3], SeccompAction::Errno(libc::EAGAIN as u32));
        let error = Builder::new().workers(2).run(|| ()).unwrap_err().to_string();
        assert!(error.contains("a worker thread") && error.contains("`ulimit -u`"), "{error}");
        let unblock = || fiber::catch_unwind(|| fiber::unblock(|| ()));
        let payload = Builder::new().workers(1).run(unblock).unwrap().unwrap_err();
        let text = payload.downcast_ref::<String>().unwrap();
        assert!(text.contains("a blocking call") && text.contains("`ulimit -u`"), "{text}");
    });
}
