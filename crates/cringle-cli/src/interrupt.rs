//! SIGINT and SIGTERM: the status is 130, and a child (fio) does not outlive us.
//!
//! The temporary files need no care: they have no name, and go with the process. SIGHUP is left
//! as it is: under `nohup` it must stay ignored.

use cringle::signal::{Signal, Signals};
use std::io;
use std::process::{Child, Command, Output};
use std::sync::atomic::{AtomicI32, Ordering::SeqCst};

const INTERRUPTED: i32 = 130;

/// The child that is running; 0 when none is.
static CHILD: AtomicI32 = AtomicI32::new(0);

/// Starts to listen. Call it once, early. (Not by `signal::cancel_on`: most strategies are no fibers,
/// and nobody wants the rest of a measurement that was interrupted.)
pub(crate) fn watch() -> io::Result<()> {
    let signals = Signals::new(&[Signal::Interrupt, Signal::Terminate])?;
    std::thread::Builder::new().name("signals".into()).spawn(move || {
        if signals.wait().is_ok() {
            kill_child();
            // Past a progress bar's half-drawn line.
            crate::report::complain("\ncringle: interrupted; the temporary files are gone");
            std::process::exit(INTERRUPTED);
        }
    })?;
    Ok(())
}

fn kill_child() {
    let pid = CHILD.load(SeqCst);
    if pid > 0 {
        // SAFETY: a plain system call. The number is our child's: it is stored after the
        // child was made and cleared before it is reaped, so it cannot have been reused.
        unsafe { libc::kill(pid, libc::SIGKILL) };
    }
}

/// Runs a child to its end; an interruption ends it too.
pub(crate) fn output_of(command: &mut Command) -> io::Result<Output> {
    use std::io::Read;
    use std::process::Stdio;
    let mut child: Child =
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
    CHILD.store(child.id() as i32, SeqCst);
    let (mut stdout, mut stderr) = (Vec::new(), Vec::new());
    let (mut out, mut err) = (child.stdout.take(), child.stderr.take());
    // Both pipes are emptied at once: a child that fills one must not wait for the other.
    let read = std::thread::scope(|s| {
        let errors = s.spawn(|| err.as_mut().map(|pipe| pipe.read_to_end(&mut stderr)));
        let read = out.as_mut().map(|pipe| pipe.read_to_end(&mut stdout)).transpose();
        let _ = errors.join();
        read
    });
    CHILD.store(0, SeqCst);
    let status = child.wait()?;
    read?;
    Ok(Output { status, stdout, stderr })
}
