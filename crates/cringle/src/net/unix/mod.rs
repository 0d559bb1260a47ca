//! Unix sockets: `std::os::unix::net`'s names and semantics; only the calling fiber waits.
//!
//! The kernel cannot wait for room at a listener or in a queue of another socket without a thread: it
//! is asked again after a pause, which a cancel ends.

mod addr;
mod datagram;
mod fds;
mod listener;
mod stream;

pub use datagram::UnixDatagram;
pub use fds::ReceivedFds;
pub use listener::{Incoming, UnixListener};
pub use std::os::unix::net::SocketAddr;
pub use stream::{UCred, UnixStream};
