//! `main!` in a program. It is a program of its own, without libtest: `main!` defines the program's
//! `main`, which is what is tested.

use cringle::runtime::{self, ThreadLocals, Threads};
use std::io;
use std::process::Command;
use std::sync::mpsc;
use std::thread;

cringle_interpose::main!(
    cringle::Builder::new().workers(1).threads(Threads::Fibers),
    fn main() -> io::Result<()> {
        // The test runner's own arguments are of no concern.
        match std::env::var("CRINGLE_MAIN").as_deref() {
            Err(_) => test(),
            Ok("fails") => Err(io::Error::other("expected by the test")),
            Ok("panics") => panic!("expected by the test"),
            Ok("leaves threads") => {
                leave_thread();
                Ok(())
            }
            Ok(_) => {
                leave_thread();
                Err(io::Error::other("expected by the test"))
            }
        }
    }
);

/// Starts a thread that never ends.
fn leave_thread() {
    let (sender, receiver) = mpsc::channel::<()>();
    thread::spawn(move || receiver.recv());
    thread::yield_now();
    std::mem::forget(sender);
}

fn test() -> io::Result<()> {
    main_is_a_fiber_and_threads_are_fibers();
    for (what, status) in
        [("fails", 1), ("panics", 101), ("leaves threads", 0), ("leaves threads and fails", 1)]
    {
        let mut command = Command::new(std::env::current_exe()?);
        let output = command.env("CRINGLE_MAIN", what).output()?;
        let text = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(status), "{what}: {text}");
        assert_eq!(text.contains("expected by the test"), !what.ends_with("threads"), "{text}");
    }
    Ok(())
}

fn main_is_a_fiber_and_threads_are_fibers() {
    assert_eq!(runtime::worker(), Some(0));
    assert_eq!(runtime::thread_locals(), Some(ThreadLocals::Private));
    assert_eq!(thread::spawn(runtime::worker).join().unwrap(), Some(0));
}
