//! Sockets, with the names and semantics of `std::net`. Only the calling fiber waits.
//!
//! Outside of [`run`] the same calls are std's blocking ones. Unix sockets are in
//! [`os::unix::net`](crate::os::unix::net), as in std. Addresses are std's own types.
//! [`ToSocketAddrs`] is a trait of this library, because std's resolves names on the calling
//! thread.
//!
//! Beyond std: [`Server`], [`TcpListenerBuilder`], `sendmsg` and `recvmsg` with ancillary data, and
//! [`send_zc`](TcpStream::send_zc).
//!
//! ```
//! use cringle::{fiber, io};
//! use cringle::io::{Read, Write};
//! use cringle::net::{TcpListener, TcpStream};
//!
//! cringle::run(|| {
//!     let listener = TcpListener::bind("127.0.0.1:0")?;
//!     let address = listener.local_addr()?;
//!     let server = fiber::spawn(move || listener.accept()?.0.write_all(b"hello"));
//!     let mut greeting = String::new();
//!     TcpStream::connect(address)?.read_to_string(&mut greeting)?;
//!     assert_eq!(greeting, "hello");
//!     server.join().unwrap()
//! })?;
//! # std::io::Result::Ok(())
//! ```
//!
//! # Differences from std
//!
//! - `TcpListener::{only_v6, set_only_v6}`, which std has deprecated, are missing.
//! - A socket type made from a descriptor that is not a socket (`From<OwnedFd>`) fails on a fiber
//!   with `ENOTSOCK`. std's vectored calls and `UnixDatagram::send` would read and write the file.
//!
//! [`run`]: https://docs.rs/cringle/latest/cringle/fn.run.html

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
