//! SIGINT, SIGTERM and SIGHUP: the status is 130, and a child (fio) does not outlive us.
//!
//! Most temporary files need no care: they have no name, and go with the process. Whoever makes
//! files with names asks to be let end by itself ([`let_command_clean_up`]). SIGHUP is one more of them, except where it is
//! ignored: under `nohup` it must stay so.

use cringle::signal::{self, Signal, Signals};
use std::io;
use std::process::{Child, Command, Output};
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::{Mutex, MutexGuard, PoisonError};

const INTERRUPTED: i32 = crate::failure::INTERRUPTED as i32;

/// The child that is running, negative if it is a process group, and the signal that ends it; the
/// number is 0 when none is.
static CHILD: Mutex<(i32, i32)> = Mutex::new((0, libc::SIGKILL));
/// Who started this process has gone, and is_requested for this signal then. It comes once for each of its
/// threads, so that a second one says no more than the first.
pub const PARENT_DIED: Signal = Signal::User2;

/// The first signal only kills the child and is left to [`is_requested`].
static CLEANS_UP: AtomicBool = AtomicBool::new(false);
static REQUESTED: AtomicBool = AtomicBool::new(false);

/// From now on the first signal does not end the process: the command sees [`is_requested`], removes
/// what it made and returns [`crate::failure::Failure::interrupted`]. The second one does.
pub fn let_command_clean_up() {
    CLEANS_UP.store(true, SeqCst);
}

/// Whether a signal came, after [`let_command_clean_up`].
pub fn is_requested() -> bool {
    REQUESTED.load(SeqCst)
}

/// What is killed by an interruption until [`forget_child`].
///
/// A signal may have come between the child's start and this call; then it is killed here. (The
/// signal's side sets `REQUESTED` and then reads `CHILD`, this one writes `CHILD` and then reads
/// `REQUESTED`: one of them sees the other.)
pub fn kill_group_on_interrupt(leader: u32) {
    set_child(-(leader as i32), libc::SIGKILL);
}

/// The same for a child that has things to remove before it ends, as this process has: it is is_requested to.
pub fn terminate_on_interrupt(child: u32) {
    set_child(child as i32, libc::SIGTERM);
}

fn set_child(pid: i32, signal: i32) {
    *child() = (pid, signal);
    if is_requested() {
        kill_child();
    }
}

fn child() -> MutexGuard<'static, (i32, i32)> {
    CHILD.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Call it before the child is reaped: afterwards its number may be another's.
pub fn forget_child() {
    child().0 = 0;
}

/// Starts to listen. Call it once, early. (Not by `signal::cancel_on`: most strategies are no fibers,
/// and nobody wants the rest of a measurement that was interrupted.)
pub fn watch() -> io::Result<()> {
    dump_on_sigusr1()?;
    let mut ends = vec![Signal::Interrupt, Signal::Terminate, PARENT_DIED];
    if !crate::startup::is_ignored(libc::SIGHUP) {
        ends.push(Signal::Hangup);
    }
    let signals = Signals::new(&ends)?;
    std::thread::Builder::new().name("signals".into()).spawn(move || {
        while let Ok(signal) = signals.wait() {
            let first = !REQUESTED.swap(true, SeqCst);
            kill_child();
            if CLEANS_UP.load(SeqCst) {
                if first {
                    crate::complain("\ncringle: interrupted; removing what was made");
                    continue;
                }
                if signal == PARENT_DIED {
                    continue;
                }
                crate::complain("cringle: interrupted again; the rest is left in place");
                exit();
            }
            // Past a progress bar's half-drawn line.
            crate::complain("\ncringle: interrupted; the temporary files are gone");
            exit();
        }
    })?;
    Ok(())
}

/// SIGUSR1 has it said on standard error who waits for what, until the end.
pub fn dump_on_sigusr1() -> io::Result<()> {
    signal::dump_on(&[Signal::User1]).map(std::mem::forget)
}

/// C's exit, which has a trace written. Not std's: that also unmaps the stack on which the main thread may
/// still be in the handler of this very signal.
pub fn exit() -> ! {
    // SAFETY: what is called at exit may be called from any thread.
    unsafe { libc::exit(INTERRUPTED) }
}

fn kill_child() {
    let child = child();
    let (pid, signal) = *child;
    if pid != 0 {
        // SAFETY: a plain system call. The number is our child's, or that of a group it leads:
        // it is stored after the child was made and cleared before it is reaped, for which it
        // takes the lock that is held here; so it cannot have been reused.
        unsafe { libc::kill(pid, signal) };
    }
}

/// Kills a process group that a child of ours leads, which has not been reaped.
pub fn kill_group(leader: u32) {
    // SAFETY: a plain system call; the number cannot be another's while the leader is not reaped.
    unsafe { libc::kill(-(leader as i32), libc::SIGKILL) };
}

/// Whether a child of ours has ended; it stays to be reaped.
pub fn has_ended(child: u32) -> bool {
    let mut info = std::mem::MaybeUninit::<libc::siginfo_t>::zeroed();
    let flags = libc::WEXITED | libc::WNOHANG | libc::WNOWAIT;
    // SAFETY: the call writes the one value that it is lent; zeroes are a valid one, and what it leaves
    // while the child runs.
    unsafe {
        libc::waitid(libc::P_PID, child, info.as_mut_ptr(), flags) == 0
            && info.assume_init_ref().si_pid() != 0
    }
}

/// Runs a child to its end; an interruption ends it too.
pub fn output_of(command: &mut Command) -> io::Result<Output> {
    use std::io::Read;
    use std::process::Stdio;
    let mut child: Child =
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
    set_child(child.id() as i32, libc::SIGKILL);
    let (mut stdout, mut stderr) = (Vec::new(), Vec::new());
    let (mut out, mut err) = (child.stdout.take(), child.stderr.take());
    // Both pipes are emptied at once: a child that fills one must not wait for the other.
    let read = std::thread::scope(|s| {
        let errors = s.spawn(|| err.as_mut().map(|pipe| pipe.read_to_end(&mut stderr)));
        let read = out.as_mut().map(|pipe| pipe.read_to_end(&mut stdout)).transpose();
        let _ = errors.join();
        read
    });
    forget_child();
    let status = child.wait()?;
    read?;
    Ok(Output { status, stdout, stderr })
}
