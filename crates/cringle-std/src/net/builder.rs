//! Listeners with options that std does not offer.

use super::socket::Socket;
use super::{SocketAddr, TcpListener, ToSocketAddrs};
use cringle_sys::plainly;
use socket2::{Domain, SockAddr, Type};
use std::io;

/// Options for a [`TcpListener`], set before it listens: see [`TcpListener::builder`].
///
/// ```
/// use cringle::net::TcpListener;
///
/// let listener = TcpListener::builder().backlog(1024).nodelay(true).bind("127.0.0.1:0")?;
/// # std::io::Result::Ok(())
/// ```
#[derive(Clone, Debug)]
#[must_use = "it listens when `bind` is called"]
pub struct TcpListenerBuilder {
    backlog: i32,
    reuse_addr: bool,
    reuse_port: bool,
    only_v6: Option<bool>,
    nodelay: bool,
    recv_buffer: Option<usize>,
    send_buffer: Option<usize>,
}

impl TcpListener {
    /// Returns a builder for a listener with options such as the length of its queue and the
    /// sharing of its port.
    ///
    /// ```
    /// use cringle::net::TcpListener;
    ///
    /// let first = TcpListener::builder().backlog(4096).reuse_port(true).bind("127.0.0.1:0")?;
    /// let second = TcpListener::builder().reuse_port(true).bind(first.local_addr()?)?;
    /// # drop(second);
    /// # std::io::Result::Ok(())
    /// ```
    pub fn builder() -> TcpListenerBuilder {
        TcpListenerBuilder {
            backlog: i32::MAX,
            reuse_addr: true,
            reuse_port: false,
            only_v6: None,
            nodelay: false,
            recv_buffer: None,
            send_buffer: None,
        }
    }
}

setters! {
    TcpListenerBuilder:
    /// Sets the number of connections that may wait to be accepted. The default is the kernel's own
    /// limit (`net.core.somaxconn`), which no value exceeds.
    ///
    /// ```
    /// use cringle::net::TcpListener;
    ///
    /// let listener = TcpListener::builder().backlog(128).bind("127.0.0.1:0")?;
    /// # std::io::Result::Ok(())
    /// ```
    pub fn backlog(connections: u32)
        |it| it.backlog = i32::try_from(connections).unwrap_or(i32::MAX);

    /// Sets whether the listener may bind to a port of which old connections linger
    /// (`SO_REUSEADDR`). The default is `true`, as for std's listeners.
    ///
    /// ```
    /// use cringle::net::TcpListener;
    ///
    /// let listener = TcpListener::builder().reuse_addr(false).bind("127.0.0.1:0")?;
    /// # std::io::Result::Ok(())
    /// ```
    pub fn reuse_addr(reuse: bool) |it| it.reuse_addr = reuse;

    /// Sets whether several listeners of the same user may share the port (`SO_REUSEPORT`). The
    /// kernel distributes connections among them. The default is `false`.
    ///
    /// ```
    /// use cringle::net::TcpListener;
    ///
    /// let listener = TcpListener::builder().reuse_port(true).bind("127.0.0.1:0")?;
    /// # std::io::Result::Ok(())
    /// ```
    pub fn reuse_port(reuse: bool) |it| it.reuse_port = reuse;

    /// Sets whether a listener at an IPv6 address refuses IPv4 connections (`IPV6_V6ONLY`). The
    /// default is the system's.
    ///
    /// ```
    /// use cringle::net::TcpListener;
    ///
    /// let listener = TcpListener::builder().only_v6(true).bind("127.0.0.1:0")?;
    /// # std::io::Result::Ok(())
    /// ```
    pub fn only_v6(only: bool) |it| it.only_v6 = Some(only);

    /// Sets whether accepted connections send small writes at once (`TCP_NODELAY`, which they
    /// inherit). The default is `false`.
    ///
    /// ```
    /// use cringle::net::TcpListener;
    ///
    /// let listener = TcpListener::builder().nodelay(true).bind("127.0.0.1:0")?;
    /// # std::io::Result::Ok(())
    /// ```
    pub fn nodelay(nodelay: bool) |it| it.nodelay = nodelay;

    /// Sets the size of the receive buffer of accepted connections, in bytes (`SO_RCVBUF`).
    ///
    /// ```
    /// use cringle::net::TcpListener;
    ///
    /// let listener = TcpListener::builder().recv_buffer_size(1 << 20).bind("127.0.0.1:0")?;
    /// # std::io::Result::Ok(())
    /// ```
    pub fn recv_buffer_size(bytes: usize) |it| it.recv_buffer = Some(bytes);

    /// Sets the size of the send buffer of accepted connections, in bytes (`SO_SNDBUF`).
    ///
    /// ```
    /// use cringle::net::TcpListener;
    ///
    /// let listener = TcpListener::builder().send_buffer_size(1 << 20).bind("127.0.0.1:0")?;
    /// # std::io::Result::Ok(())
    /// ```
    pub fn send_buffer_size(bytes: usize) |it| it.send_buffer = Some(bytes);
}

impl TcpListenerBuilder {
    /// Listens on the first of the addresses that is free.
    ///
    /// ```
    /// let listener = cringle::net::TcpListener::builder().bind("127.0.0.1:0")?;
    /// assert_ne!(listener.local_addr()?.port(), 0);
    /// # std::io::Result::Ok(())
    /// ```
    ///
    /// # Errors
    ///
    /// As [`TcpListener::bind`]; and the errors of setting the options.
    pub fn bind<A: ToSocketAddrs>(&self, addr: A) -> io::Result<TcpListener> {
        super::addr::first_of(addr, |addr| plainly(|| self.listen(self.bound(addr)?)))
    }

    /// Returns a socket that is bound to the address and does not listen yet.
    pub(super) fn bound(&self, addr: &SocketAddr) -> io::Result<socket2::Socket> {
        let addr = &SockAddr::from(*addr);
        let socket = socket2::Socket::new(addr.domain(), Type::STREAM, None)?;
        socket.set_reuse_address(self.reuse_addr)?;
        socket.set_reuse_port(self.reuse_port)?;
        if let Some(only) = self.only_v6.filter(|_| addr.domain() == Domain::IPV6) {
            socket.set_only_v6(only)?;
        }
        if self.nodelay {
            socket.set_tcp_nodelay(true)?;
        }
        self.recv_buffer.map_or(Ok(()), |bytes| socket.set_recv_buffer_size(bytes))?;
        self.send_buffer.map_or(Ok(()), |bytes| socket.set_send_buffer_size(bytes))?;
        socket.bind(addr)?;
        Ok(socket)
    }

    pub(super) fn listen(&self, socket: socket2::Socket) -> io::Result<TcpListener> {
        socket.listen(self.backlog)?;
        Ok(TcpListener { socket: Socket::fresh(socket.into()) })
    }
}
