//! What std's extension traits of Unix add to a [`Command`] and a [`Child`].

use super::{Child, Command};
use std::ffi::OsStr;
use std::io;
use std::os::unix::process::CommandExt as _;

/// `std::os::unix::process::CommandExt`, which std has sealed, for [`Command`]; without `before_exec`, which std
/// has deprecated.
///
/// ```
/// use cringle::{os::unix::process::CommandExt, process::Command};
///
/// cringle::run(|| -> std::io::Result<()> {
///     let output = Command::new("sh").arg0("a rope").args(["-c", "echo $0"]).output()?;
///     assert_eq!(output.stdout, b"a rope\n");
///     Ok(())
/// })
/// # ?; Ok::<(), std::io::Error>(())
/// ```
pub trait CommandExt: sealed::Sealed {
    /// The user to be in the child (`setuid`).
    fn uid(&mut self, id: u32) -> &mut Command;

    /// The group to be in the child (`setgid`).
    fn gid(&mut self, id: u32) -> &mut Command;

    /// Runs `f` in the child between `fork` and `exec`, in addition to those before.
    ///
    /// # Safety
    ///
    /// As std's: the child is a copy of one thread of a program of many, so `f` may do only what a
    /// signal's handler may. It may wait for no fiber and call nothing of this library.
    unsafe fn pre_exec<F>(&mut self, f: F) -> &mut Command
    where
        F: FnMut() -> io::Result<()> + Send + Sync + 'static;

    /// Becomes the program, in place of this process; returns only the error. Nothing is dropped, and
    /// what other fibers do ends where it is.
    fn exec(&mut self) -> io::Error;

    /// What the program is told that its name is.
    fn arg0<S>(&mut self, arg: S) -> &mut Command
    where
        S: AsRef<OsStr>;

    /// The process group to be in the child; 0 for one of its own.
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
        // SAFETY: by the contract.
        unsafe { self.std.pre_exec(f) };
        self
    }

    fn exec(&mut self) -> io::Error {
        self.std.exec()
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

/// `std::os::unix::process::ChildExt`, which is not stable there, for [`Child`].
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
/// # ?; Ok::<(), std::io::Error>(())
/// ```
pub trait ChildExt: sealed::Sealed {
    /// Sends it a signal, by number. A child that has been waited for is left alone, as its number may be
    /// another's by now.
    ///
    /// # Errors
    ///
    /// `InvalidInput` for what is no signal, `PermissionDenied` for a child that has become another user.
    fn send_signal(&self, signal: i32) -> io::Result<()>;
}

impl ChildExt for Child {
    fn send_signal(&self, signal: i32) -> io::Result<()> {
        match self.is_reaped() {
            true => Ok(()),
            false => crate::sys::kill(self.id(), signal),
        }
    }
}

mod sealed {
    pub trait Sealed {}
    impl Sealed for crate::process::Command {}
    impl Sealed for crate::process::Child {}
}
