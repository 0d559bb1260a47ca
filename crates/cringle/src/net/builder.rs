//! Listeners with options that std has not.

use super::socket::Socket;
use super::{SocketAddr, TcpListener, ToSocketAddrs};
use socket2::{Domain, SockAddr, Type};
use std::io;

/// What a [`TcpListener`] can be told before it listens: see [`TcpListener::builder`].
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
    /// A listener with options: how many connections may wait in the kernel, whether the port may be
    /// shared.
    ///
    /// ```
    /// use cringle::net::TcpListener;
    ///
    /// let first = TcpListener::builder().backlog(4096).reuse_port(true).bind("127.0.0.1:0")?;
    /// let second = TcpListener::builder().reuse_port(true).bind(first.local_addr()?)?;
    /// # drop(second);
    /// # Ok::<(), std::io::Error>(())
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

impl TcpListenerBuilder {
    /// Connections that may wait to be accepted, at most; the kernel has a limit of its own, which is the
    /// default (`net.core.somaxconn`).
    pub fn backlog(mut self, connections: u32) -> TcpListenerBuilder {
        self.backlog = i32::try_from(connections).unwrap_or(i32::MAX);
        self
    }

    /// Whether the port may be taken though old connections of it linger (`SO_REUSEADDR`). As std's
    /// listeners: yes.
    pub fn reuse_addr(mut self, reuse: bool) -> TcpListenerBuilder {
        self.reuse_addr = reuse;
        self
    }

    /// Whether others of the same user that say the same may listen on the port; the kernel spreads
    /// connections over them (`SO_REUSEPORT`).
    pub fn reuse_port(mut self, reuse: bool) -> TcpListenerBuilder {
        self.reuse_port = reuse;
        self
    }

    /// Whether a listener at an IPv6 address takes no IPv4 connections (`IPV6_V6ONLY`). By default it is
    /// as the system has it.
    pub fn only_v6(mut self, only: bool) -> TcpListenerBuilder {
        self.only_v6 = Some(only);
        self
    }

    /// Whether small writes of its connections are sent at once (`TCP_NODELAY`, which they inherit).
    pub fn nodelay(mut self, nodelay: bool) -> TcpListenerBuilder {
        self.nodelay = nodelay;
        self
    }

    /// Room for what its connections receive, in bytes (`SO_RCVBUF`).
    pub fn recv_buffer_size(mut self, bytes: usize) -> TcpListenerBuilder {
        self.recv_buffer = Some(bytes);
        self
    }

    /// Room for what its connections send, in bytes (`SO_SNDBUF`).
    pub fn send_buffer_size(mut self, bytes: usize) -> TcpListenerBuilder {
        self.send_buffer = Some(bytes);
        self
    }

    /// Listens at the first of the addresses that is free.
    ///
    /// # Errors
    ///
    /// As [`TcpListener::bind`], and what the options cannot be set for.
    pub fn bind<A: ToSocketAddrs>(&self, addr: A) -> io::Result<TcpListener> {
        super::addr::first_of(addr, |addr| self.listen(self.bound(addr)?))
    }

    /// A socket that has the address and does not listen yet.
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
