//! A host that refuses threads.

use crate::denied::{deny, in_child};
use cringle::runtime::{self, Balance, ThreadLocals};
use cringle::{Builder, fiber};
use cringle_testing::child;
use seccompiler::SeccompAction;
use std::io::ErrorKind;

#[test]
fn refused_threads_are_errors_with_a_remedy() {
    in_child("refused_threads_are_errors_with_a_remedy", || {
        deny(&[libc::SYS_clone, libc::SYS_clone3], SeccompAction::Errno(libc::EAGAIN as u32));
        // The check of private thread-locals needs a thread, too.
        let builder = || Builder::new().balance(Balance::Fixed).thread_locals(ThreadLocals::Shared);
        let error = builder().workers(2).run(|| ()).unwrap_err().to_string();
        assert!(error.contains("a worker thread") && error.contains("`ulimit -u`"), "{error}");
        let unblock = || fiber::catch_unwind(|| fiber::unblock(|| ()));
        let payload = builder().workers(1).run(unblock).unwrap().unwrap_err();
        let text = payload.downcast_ref::<String>().unwrap();
        assert!(text.contains("a blocking call") && text.contains("`ulimit -u`"), "{text}");
    });
}

/// The check of thread-locals looks at a thread, and here it can start none.
#[test]
fn fibers_share_what_they_cannot_have() {
    let output = child::run_with("fibers_share_what_they_cannot_have", |command| {
        command.env_remove("CRINGLE_THREAD_LOCALS").env_remove("CRINGLE_BALANCE")
    });
    let Some(output) = output else { return run_where_the_check_fails() };
    let text = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.success(), "{text}");
    let reports = text.matches("so they share those of their worker").count();
    assert_eq!(reports, usize::from(cfg!(debug_assertions)), "{text}");
}

fn run_where_the_check_fails() {
    deny(&[libc::SYS_clone, libc::SYS_clone3], SeccompAction::Errno(libc::EAGAIN as u32));
    for _ in 0..2 {
        let run = Builder::new().workers(1).run(|| {
            let seen = (runtime::thread_locals(), runtime::balance());
            assert_eq!(seen, (Some(ThreadLocals::Shared), Some(Balance::Fixed)));
            let why = runtime::why_shared().expect("a reason");
            assert!(why.starts_with("fibers cannot have thread-locals of their own: "), "{why}");
            assert_eq!(fiber::spawn(|| 6 * 7).join().unwrap(), 42);
        });
        run.unwrap();
    }
    for builder in [
        Builder::new().thread_locals(ThreadLocals::Private),
        Builder::new().balance(Balance::Moving),
        Builder::new().thread_locals(ThreadLocals::Private).balance(Balance::Fixed),
    ] {
        let error = builder.workers(1).run(|| ()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}");
        assert!(error.to_string().contains("without a choice"), "{error}");
    }
}
