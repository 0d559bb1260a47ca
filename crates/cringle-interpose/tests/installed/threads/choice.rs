//! The choice between threads of the system and fibers.

use super::common::{kernel_thread, on_workers};
use cringle::Builder;
use cringle::runtime::{self, Threads};
use std::process::Command;
use std::thread;

/// Whether a thread that the calling fiber starts is a fiber.
fn starts_fibers() -> bool {
    let (number, worker) = thread::spawn(|| (kernel_thread(), runtime::worker())).join().unwrap();
    assert_eq!(number == kernel_thread(), worker.is_some());
    worker.is_some()
}

#[test]
fn threads_are_fibers_only_where_that_is_chosen() {
    on_workers(1, || {
        assert_eq!(runtime::threads(), Some(Threads::Fibers));
        assert!(starts_fibers());
        // A fiber that is a thread starts such ones, too.
        assert!(thread::spawn(starts_fibers).join().unwrap());
    });
    let by_default = Builder::new().workers(1).run(|| (runtime::threads(), starts_fibers()));
    assert_eq!(by_default.unwrap(), (Some(Threads::System), false));
}

#[test]
fn threads_of_threads_are_threads() {
    let off_fiber = || thread::spawn(runtime::worker).join().unwrap();
    on_workers(1, || assert_eq!(cringle::fiber::unblock(off_fiber), None));
    assert_eq!(off_fiber(), None);
}

/// The variable is that of the process, so another process is asked.
#[test]
#[ignore = "the test below runs it with the variable"]
fn prints_whether_threads_are_fibers() {
    match Builder::new().workers(1).run(starts_fibers) {
        Ok(starts_fibers) => println!("fibers: {starts_fibers}"),
        Err(e) => println!("{e}"),
    }
}

#[test]
fn environment_chooses_where_the_program_does_not() {
    let printed = |value: &str| {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--ignored", "--exact", "--nocapture"]);
        command.arg("threads::choice::prints_whether_threads_are_fibers");
        let output = command.env("CRINGLE_THREADS", value).output().unwrap();
        String::from_utf8(output.stdout).unwrap()
    };
    assert!(printed("fibers").contains("fibers: true"));
    assert!(printed("system").contains("fibers: false"));
    let refused = printed("green");
    assert!(refused.contains("must be `system` or `fibers`"), "{refused}");
}
