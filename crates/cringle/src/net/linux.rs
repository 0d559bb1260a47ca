//! What std's extension traits of Linux add to sockets.

use super::TcpStream;
use socket2::SockRef;
use std::io;

/// `std::os::linux::net::TcpStreamExt`, which std has sealed, for [`TcpStream`].
///
/// ```
/// use cringle::net::{TcpListener, TcpStream};
/// use cringle::os::linux::net::TcpStreamExt;
///
/// let listener = TcpListener::bind("127.0.0.1:0")?;
/// let stream = TcpStream::connect(listener.local_addr()?)?;
/// stream.set_quickack(false)?;
/// assert!(!stream.quickack()?);
/// # Ok::<(), std::io::Error>(())
/// ```
pub trait TcpStreamExt: sealed::Sealed {
    /// Whether what arrives is acknowledged at once (`TCP_QUICKACK`). The kernel may change that later.
    ///
    /// # Errors
    ///
    /// What `setsockopt` says.
    fn set_quickack(&self, quickack: bool) -> io::Result<()>;

    /// Whether what arrives is acknowledged at once.
    ///
    /// # Errors
    ///
    /// What `getsockopt` says.
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
