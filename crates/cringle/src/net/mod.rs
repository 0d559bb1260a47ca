//! Sockets: `std::net`'s names and semantics; only the calling fiber waits.
//!
//! Outside of [`run`](crate::run) the same calls are std's blocking ones. Unix sockets are in
//! [`os::unix::net`](crate::os::unix::net), as std's. Addresses are std's own types, and so is their
//! parsing; [`ToSocketAddrs`] is a trait of its own, because std's resolves names on the calling thread.
//!
//! `TcpListener::{only_v6, set_only_v6}`, which std has deprecated, are left out.
//!
//! Of a descriptor that is no socket (given to `From<OwnedFd>`), each call on a fiber answers `ENOTSOCK`; std's
//! vectored calls and `UnixDatagram::send` would read and write it.

mod addr;
mod builder;
pub(crate) mod linux;
mod macros;
mod message;
mod server;
mod socket;
mod tcp_listener;
mod tcp_stream;
mod transfer;
mod udp_socket;
pub(crate) mod unix;

pub use addr::ToSocketAddrs;
pub use builder::TcpListenerBuilder;
pub use message::{AncillaryMessage, MsgFlags, Received, RecvAncillary, SendAncillary};
pub use server::{Served, Server, Stopper};
pub use std::net::{
    AddrParseError, IpAddr, Ipv4Addr, Ipv6Addr, Shutdown, SocketAddr, SocketAddrV4, SocketAddrV6,
};
pub use tcp_listener::{Incoming, TcpListener};
pub use tcp_stream::TcpStream;
pub use udp_socket::UdpSocket;
