//! Unix sockets, with the names and semantics of `std::os::unix::net`. Only the calling fiber
//! waits.
//!
//! The kernel can wait for room in a listener's queue, or in the queue of another datagram socket,
//! only by blocking a thread. So `connect` and `send_to` poll with a backoff, which a cancel ends.

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
