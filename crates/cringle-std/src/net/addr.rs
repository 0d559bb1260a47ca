//! Internet addresses: resolving names on a thread of the pool, and the kernel's form of addresses.

use crate::fiber::unblock::call_detached;
use cringle_core::worker::Current;
use cringle_sys::{cannot_start, plainly};
use socket2::{SockAddr, SockAddrStorage};
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6};

/// A value that names one or more addresses, as `std::net::ToSocketAddrs`, for the same types.
///
/// A thread of the pool resolves host names (`getaddrinfo`), and only the calling fiber waits.
///
/// ```
/// # fn main() -> std::io::Result<()> {
/// use cringle::net::ToSocketAddrs;
///
/// cringle::run(|| {
///     let mut literal = "127.0.0.1:80".to_socket_addrs()?;
///     assert_eq!(literal.next(), Some(([127, 0, 0, 1], 80).into()));
///     let named = ("localhost", 80).to_socket_addrs()?;
///     assert!(named.into_iter().all(|addr| addr.port() == 80 && addr.ip().is_loopback()));
///     Ok(())
/// })
/// # }
/// ```
///
/// # Cancellation
///
/// A cancelled fiber stops waiting at once. The thread ends when the resolver returns, and `run`
/// waits for it.
pub trait ToSocketAddrs {
    /// The iterator over the addresses.
    type Iter: Iterator<Item = SocketAddr>;

    /// Returns the addresses.
    ///
    /// # Errors
    ///
    /// As std's; and [`Cancelled`](cringle_core::cancelled::Cancelled).
    fn to_socket_addrs(&self) -> io::Result<Self::Iter>;
}

macro_rules! one_address {
    ($($kind:ty),*) => {$(
        impl ToSocketAddrs for $kind {
            type Iter = std::option::IntoIter<SocketAddr>;

            fn to_socket_addrs(&self) -> io::Result<Self::Iter> {
                std::net::ToSocketAddrs::to_socket_addrs(self)
            }
        }
    )*};
}

one_address!(
    SocketAddr,
    SocketAddrV4,
    SocketAddrV6,
    (IpAddr, u16),
    (Ipv4Addr, u16),
    (Ipv6Addr, u16)
);

impl ToSocketAddrs for (&str, u16) {
    type Iter = std::vec::IntoIter<SocketAddr>;

    fn to_socket_addrs(&self) -> io::Result<Self::Iter> {
        let &(host, port) = self;
        match host.parse::<IpAddr>() {
            Ok(ip) => Ok(vec![SocketAddr::new(ip, port)].into_iter()),
            Err(_) => resolve((host.to_owned(), port)),
        }
    }
}

impl ToSocketAddrs for (String, u16) {
    type Iter = std::vec::IntoIter<SocketAddr>;

    fn to_socket_addrs(&self) -> io::Result<Self::Iter> {
        (&*self.0, self.1).to_socket_addrs()
    }
}

impl ToSocketAddrs for str {
    type Iter = std::vec::IntoIter<SocketAddr>;

    fn to_socket_addrs(&self) -> io::Result<Self::Iter> {
        match self.parse::<SocketAddr>() {
            Ok(addr) => Ok(vec![addr].into_iter()),
            Err(_) => resolve(self.to_owned()),
        }
    }
}

impl ToSocketAddrs for String {
    type Iter = std::vec::IntoIter<SocketAddr>;

    fn to_socket_addrs(&self) -> io::Result<Self::Iter> {
        (**self).to_socket_addrs()
    }
}

impl<'a> ToSocketAddrs for &'a [SocketAddr] {
    type Iter = std::iter::Cloned<std::slice::Iter<'a, SocketAddr>>;

    fn to_socket_addrs(&self) -> io::Result<Self::Iter> {
        Ok(self.iter().cloned())
    }
}

impl<T: ToSocketAddrs + ?Sized> ToSocketAddrs for &T {
    type Iter = T::Iter;

    fn to_socket_addrs(&self) -> io::Result<T::Iter> {
        (**self).to_socket_addrs()
    }
}

/// Resolves a name with std, on a thread of the pool if the caller is a fiber.
fn resolve<N>(name: N) -> io::Result<std::vec::IntoIter<SocketAddr>>
where
    N: std::net::ToSocketAddrs<Iter = std::vec::IntoIter<SocketAddr>> + Send + 'static,
{
    let Some(current) = Current::get() else { return plainly(|| name.to_socket_addrs()) };
    let no_thread = |e: io::Error, _| Err(cannot_start("a thread that resolves a name", &e));
    // On the growing pool: a resolver that does not answer holds its thread for long.
    call_detached(current, move || name.to_socket_addrs(), no_thread)?
}

/// Calls `f` with each address until it succeeds. Otherwise returns its last error, as std does.
pub(super) fn first_of<A: ToSocketAddrs, T>(
    addr: A,
    mut f: impl FnMut(&SocketAddr) -> io::Result<T>,
) -> io::Result<T> {
    let mut last = None;
    for addr in addr.to_socket_addrs()? {
        match f(&addr) {
            Err(e) if crate::cancel::reason(&e).is_some() => return Err(e),
            Err(e) => last = Some(e),
            done => return done,
        }
    }
    Err(last.unwrap_or_else(no_address))
}

/// Returns std's error for an empty list of addresses, which std makes without a system call.
fn no_address() -> io::Error {
    let none: [SocketAddr; 0] = [];
    let refused = plainly(|| std::net::UdpSocket::bind(&none[..])).err();
    refused.unwrap_or_else(|| io::ErrorKind::InvalidInput.into())
}

/// A buffer for an address that the kernel fills in.
pub(super) struct AddrBuf {
    storage: SockAddrStorage,
    len: libc::socklen_t,
}

impl AddrBuf {
    pub(super) fn new() -> AddrBuf {
        let storage = SockAddrStorage::zeroed();
        let len = storage.size_of();
        AddrBuf { storage, len }
    }

    /// Returns the pointers to which the kernel writes the address and its length.
    pub(super) fn parts(&mut self) -> (*mut libc::sockaddr_storage, *mut libc::socklen_t) {
        ((&raw mut self.storage).cast(), &raw mut self.len)
    }

    /// Returns the address that the kernel has filled in.
    pub(super) fn get(self) -> SockAddr {
        // SAFETY: the storage was all-zero, and the kernel has written an address of this length
        // into it.
        unsafe { SockAddr::new(self.storage, self.len) }
    }

    /// Returns the address as an internet address.
    pub(super) fn internet(self) -> io::Result<SocketAddr> {
        let invalid = || io::Error::new(io::ErrorKind::InvalidInput, "invalid argument");
        self.get().as_socket().ok_or_else(invalid)
    }
}
