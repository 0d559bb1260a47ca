//! The consent to a SIGBUS handler.

use cringle_sys::mapped_copy;
use std::io;

/// The proof that the process has the SIGBUS handler that a [`MappedFile`](super::MappedFile)
/// needs.
///
/// A process gets SIGBUS if it accesses a mapped page that another process has truncated, or that
/// the disk cannot read. Without a handler the signal ends the process.
///
/// ```
/// use cringle::block::SigbusHandler;
///
/// let handler = SigbusHandler::install()?;
/// // It is installed once, and the proof can be copied.
/// assert_eq!(SigbusHandler::install()?, handler);
/// # std::io::Result::Ok(())
/// ```
///
/// # What it does
///
/// The handler acts only if the signal was raised by an instruction that copies for a `MappedFile`,
/// or for [`Direct::Bounce`](cringle_std::fs::Direct::Bounce), at an address of its source or of
/// the memory that it copies to. The copy ends then, and the read goes to the driver, which returns
/// what `read_at` returns. Any other SIGBUS goes to the action that was installed before: a handler
/// of the program, of std or of a sanitizer is called, and the default action ends the process.
///
/// # What the program must do
///
/// - The handler belongs to the process, and stays. A handler that the program installs later must
///   call it for the signals that are not its own, as each handler should.
/// - No thread that reads a `MappedFile` may block SIGBUS: the kernel ends the process then.
///
/// It runs on the thread's alternate signal stack if there is one, as on workers, and otherwise on
/// the stack of the fiber or thread that reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SigbusHandler(());

impl SigbusHandler {
    /// Installs the handler, unless the process has it already.
    ///
    /// ```
    /// let handler = cringle::block::SigbusHandler::install()?;
    /// # std::io::Result::Ok(())
    /// ```
    ///
    /// # Errors
    ///
    /// Those of `sigaction(2)`: a seccomp filter may refuse it.
    pub fn install() -> io::Result<SigbusHandler> {
        mapped_copy::install_handler()?;
        Ok(SigbusHandler(()))
    }
}
