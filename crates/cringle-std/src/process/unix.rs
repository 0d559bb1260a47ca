//! std's extension traits for [`Command`] and [`Child`] on Unix.

use super::{Child, Command};
use cringle_sys::plainly;
use std::ffi::OsStr;
use std::io;
use std::os::unix::process::CommandExt as _;

/// `std::os::unix::process::CommandExt`, which std has sealed, for [`Command`]. It lacks
/// `before_exec`, which std has deprecated.
///
/// ```
/// use cringle::{os::unix::process::CommandExt, process::Command};
///
/// cringle::run(|| -> std::io::Result<()> {
///     let output = Command::new("sh").arg0("a rope").args(["-c", "echo $0"]).output()?;
///     assert_eq!(output.stdout, b"a rope\n");
///     Ok(())
/// })
/// # ?; std::io::Result::Ok(())
/// ```
pub trait CommandExt: sealed::Sealed {
    /// Sets the child's user id (`setuid(2)`).
    fn uid(&mut self, id: u32) -> &mut Command;

    /// Sets the child's group id (`setgid(2)`).
    fn gid(&mut self, id: u32) -> &mut Command;

    /// Registers a function that runs in the child between `fork` and `exec`, after those
    /// registered before.
    ///
    /// # Safety
    ///
    /// As for std's: the child has only one thread of the program, so `f` may do only what a signal
    /// handler may do. It must not wait for a fiber, nor call this library.
    unsafe fn pre_exec<F>(&mut self, f: F) -> &mut Command
    where
        F: FnMut() -> io::Result<()> + Send + Sync + 'static;

    /// Replaces this process with the program. Returns only if that fails, with the error. No
    /// destructor runs, and the other fibers stop where they are.
    fn exec(&mut self) -> io::Error;

    /// Sets the first argument of the child, which is by convention the program's name.
    fn arg0<S>(&mut self, arg: S) -> &mut Command
    where
        S: AsRef<OsStr>;

    /// Sets the child's process group; 0 creates one for it.
    fn process_group(&mut self, pgroup: i32) -> &mut Command;
}

impl CommandExt for Command {
    fn uid(&mut self, id: u32) -> &mut Command {
        self.std.uid(id);
        self
    }

    fn gid(&mut self, id: u32) -> &mut Command {
        self.std.gid(id);
        self
    }

    unsafe fn pre_exec<F>(&mut self, f: F) -> &mut Command
    where
        F: FnMut() -> io::Result<()> + Send + Sync + 'static,
    {
        // SAFETY: by this function's contract.
        unsafe { self.std.pre_exec(f) };
        self
    }

    fn exec(&mut self) -> io::Error {
        plainly(|| self.std.exec())
    }

    fn arg0<S>(&mut self, arg: S) -> &mut Command
    where
        S: AsRef<OsStr>,
    {
        self.std.arg0(arg);
        self
    }

    fn process_group(&mut self, pgroup: i32) -> &mut Command {
        self.std.process_group(pgroup);
        self
    }
}

/// `std::os::unix::process::ChildExt`, which is unstable in std, for [`Child`].
///
/// ```
/// use cringle::os::unix::process::{ChildExt, ExitStatusExt};
/// use cringle::{process::Command, signal::Signal};
///
/// cringle::run(|| -> std::io::Result<()> {
///     let mut child = Command::new("sleep").arg("3600").spawn()?;
///     child.send_signal(Signal::Terminate.number())?;
///     assert_eq!(child.wait()?.signal(), Some(Signal::Terminate.number()));
///     Ok(())
/// })
/// # ?; std::io::Result::Ok(())
/// ```
pub trait ChildExt: sealed::Sealed {
    /// Sends a signal, by number, to the child. Does nothing if the child has been waited for,
    /// since its process id may belong to another process.
    ///
    /// ```
    /// use cringle::{os::unix::process::ChildExt, process::Command, signal::Signal};
    ///
    /// cringle::run(|| {
    ///     let mut child = Command::new("sleep").arg("3600").spawn()?;
    ///     child.send_signal(Signal::Terminate.number())?;
    ///     child.wait().map(drop)
    /// })?;
    /// # std::io::Result::Ok(())
    /// ```
    ///
    /// # Errors
    ///
    /// `InvalidInput` if there is no such signal, `PermissionDenied` if the child runs as another
    /// user.
    fn send_signal(&self, signal: i32) -> io::Result<()>;
}

impl ChildExt for Child {
    fn send_signal(&self, signal: i32) -> io::Result<()> {
        if self.is_reaped() { Ok(()) } else { cringle_sys::kill(self.id(), signal) }
    }
}

mod sealed {
    pub trait Sealed {}
    impl Sealed for crate::process::Command {}
    impl Sealed for crate::process::Child {}
}
