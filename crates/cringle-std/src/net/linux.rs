//! The extension traits of `std::os::linux::net`.

use super::TcpStream;
use socket2::SockRef;
use std::io;

/// Linux options of a [`TcpStream`], as `std::os::linux::net::TcpStreamExt`, which is sealed.
///
/// ```
/// use cringle::net::{TcpListener, TcpStream};
/// use cringle::os::linux::net::TcpStreamExt;
///
/// let listener = TcpListener::bind("127.0.0.1:0")?;
/// let stream = TcpStream::connect(listener.local_addr()?)?;
/// stream.set_quickack(false)?;
/// assert!(!stream.quickack()?);
/// # std::io::Result::Ok(())
/// ```
pub trait TcpStreamExt: sealed::Sealed {
    /// Sets whether received data is acknowledged at once (`TCP_QUICKACK`). The kernel may change
    /// the option later.
    ///
    /// # Errors
    ///
    /// The errors of `setsockopt(2)`.
    fn set_quickack(&self, quickack: bool) -> io::Result<()>;

    /// Returns whether received data is acknowledged at once.
    ///
    /// # Errors
    ///
    /// The errors of `getsockopt(2)`.
    fn quickack(&self) -> io::Result<bool>;
}

impl TcpStreamExt for TcpStream {
    fn set_quickack(&self, quickack: bool) -> io::Result<()> {
        SockRef::from(self).set_tcp_quickack(quickack)
    }

    fn quickack(&self) -> io::Result<bool> {
        SockRef::from(self).tcp_quickack()
    }
}

mod sealed {
    pub trait Sealed {}
    impl Sealed for crate::net::TcpStream {}
}
