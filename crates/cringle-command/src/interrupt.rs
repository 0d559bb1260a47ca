//! Ends the command with status 130 on SIGINT, SIGTERM and SIGHUP, and kills its child (fio) first.
//!
//! Most temporary files have no name and disappear with the process. A command that makes files
//! with names calls [`let_command_clean_up`] and removes them itself. SIGHUP counts unless it is
//! ignored at the start, as under `nohup`.

use cringle::signal::{self, Signal, Signals};
use rustix::process::{Pid, WaitId, WaitIdOptions, kill_process_group, waitid};
use std::io;
use std::process::{Child, Command, Output};
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::{Mutex, MutexGuard, PoisonError};

const INTERRUPTED: i32 = crate::failure::INTERRUPTED as i32;

/// The running child, negative for a process group and 0 for none, and the signal that ends it.
static CHILD: Mutex<(i32, i32)> = Mutex::new((0, libc::SIGKILL));
/// The signal that a child requests for the death of its parent. The kernel sends it once for each
/// of the parent's threads, so that a repetition carries no information.
pub const PARENT_DIED: Signal = Signal::User2;

/// Whether the first signal only kills the child and sets [`REQUESTED`].
static CLEANS_UP: AtomicBool = AtomicBool::new(false);
static REQUESTED: AtomicBool = AtomicBool::new(false);

/// Lets the command end itself after the first signal: it polls [`is_requested`], removes what it
/// made and returns [`crate::failure::Failure::interrupted`]. A second signal ends the process.
pub fn let_command_clean_up() {
    CLEANS_UP.store(true, SeqCst);
}

/// Returns whether a signal has arrived.
pub fn is_requested() -> bool {
    REQUESTED.load(SeqCst)
}

/// Kills this process group on an interruption, until [`forget_child`].
///
/// If a signal arrived between the child's start and this call, this call kills the child. No
/// interruption is missed: the thread of the signals sets `REQUESTED` and then reads `CHILD`; this
/// function writes `CHILD` and then reads `REQUESTED`. `CHILD`'s lock orders the two accesses to
/// it, so at least one side sees what the other wrote.
pub fn kill_group_on_interrupt(leader: u32) {
    set_child(-(leader as i32), libc::SIGKILL);
}

/// Sends SIGTERM to this child on an interruption, until [`forget_child`], so that it can clean up.
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

/// Stops signalling the child. Call it before the child is reaped: afterwards the kernel may reuse
/// its number.
pub fn forget_child() {
    child().0 = 0;
}

/// Starts the thread that waits for signals. Call it once, early.
///
/// It does not use `signal::cancel_on`, which cancels fibers: most of what the command runs is not
/// on fibers, and the rest of an interrupted measurement is of no use.
pub fn watch() -> io::Result<()> {
    start_watching().map_err(|error| {
        let text = format!("cannot start a thread for signals: {error}");
        let remedy = match error.kind() {
            io::ErrorKind::WouldBlock => "; raise `ulimit -u`, or the control group's pids.max",
            _ => "",
        };
        io::Error::new(error.kind(), text + remedy)
    })
}

fn start_watching() -> io::Result<()> {
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
                    crate::complain("\ncringle: interrupted; removing temporary files");
                    continue;
                }
                if signal == PARENT_DIED {
                    continue;
                }
                crate::complain("cringle: interrupted again; temporary files may be left");
                exit();
            }
            // The line break ends the line of a progress bar.
            crate::complain("\ncringle: interrupted; temporary files are removed");
            exit();
        }
    })?;
    Ok(())
}

/// Makes SIGUSR1 print the fibers and what they wait for to standard error, until the process ends.
pub fn dump_on_sigusr1() -> io::Result<()> {
    signal::dump_on(&[Signal::User1]).map(std::mem::forget)
}

/// Ends the process by C's `exit`, whose handlers finish a trace. Std's `process::exit` would also
/// unmap the alternate signal stack, on which the main thread may be running the handler of this
/// signal.
pub fn exit() -> ! {
    // SAFETY: a library call without pointers; this program's exit handlers may run on any thread.
    unsafe { libc::exit(INTERRUPTED) }
}

fn kill_child() {
    let child = child();
    let (pid, signal) = *child;
    if pid != 0 {
        // SAFETY: a system call without pointers. The number is that of our child, or of a process
        // group that it leads. It is stored after the child started and cleared before the child is
        // reaped, under the lock that is held here; so the kernel cannot have reused it.
        unsafe { libc::kill(pid, signal) };
    }
}

/// Kills the process group of a child that leads it and has not been reaped: the kernel does not
/// reuse the number before that.
pub fn kill_group(leader: u32) {
    // An error means that the group has ended.
    let _ = kill_process_group(pid_of(leader), rustix::process::Signal::KILL);
}

/// Returns whether a child has ended, without reaping it.
pub fn has_ended(child: u32) -> bool {
    let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
    waitid(WaitId::Pid(pid_of(child)), options).is_ok_and(|ended| ended.is_some())
}

fn pid_of(child: u32) -> Pid {
    Pid::from_raw(child as i32).expect("the number of a child is positive")
}

/// Runs a child to its end and returns its output. An interruption kills it.
pub fn output_of(command: &mut Command) -> io::Result<Output> {
    use std::io::Read;
    use std::process::Stdio;
    let mut child: Child =
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
    set_child(child.id() as i32, libc::SIGKILL);
    let (mut stdout, mut stderr) = (Vec::new(), Vec::new());
    let (mut out, mut err) = (child.stdout.take(), child.stderr.take());
    // Read both pipes at once: a child that fills one would otherwise block before closing the
    // other.
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
