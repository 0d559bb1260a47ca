//! The parts that all socket types share.

/// Implements the conversions to and from descriptors, std's type and `socket2::Socket`.
macro_rules! descriptors {
    ($ours:ident, $std:ty) => {
        impl std::fmt::Debug for $ours {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                self.socket.std().fmt(f)
            }
        }

        stands_for_std!(
            $ours,
            $std,
            |it| it.socket.std(),
            |std| $ours { socket: $crate::net::socket::Socket::foreign(std) },
            |socket| socket.socket.into_std()
        );

        impl From<$ours> for socket2::Socket {
            fn from(socket: $ours) -> socket2::Socket {
                socket.socket.into_std().into()
            }
        }

        impl From<socket2::Socket> for $ours {
            fn from(socket: socket2::Socket) -> $ours {
                <$std>::from(socket).into()
            }
        }
    };
}
pub(super) use descriptors;

/// Defines methods that call std's method of the same name, which does not wait.
macro_rules! std_calls {
    ($($(#[$doc:meta])* fn $name:ident($($arg:ident: $ty:ty),*) -> $result:ty;)*) => {$(
        $(#[$doc])*
        ///
        /// # Errors
        ///
        /// As std's.
        pub fn $name(&self $(, $arg: $ty)*) -> std::io::Result<$result> {
            cringle_sys::plainly(|| self.socket.std().$name($($arg),*))
        }
    )*};
}
pub(super) use std_calls;

/// The line of an example that opens `socket`, a stream.
macro_rules! example_socket {
    (TcpStream) => {
        "# let listener = cringle::net::TcpListener::bind(\"127.0.0.1:0\")?;
let socket = cringle::net::TcpStream::connect(listener.local_addr()?)?;"
    };
    (UnixStream) => {
        "let (socket, peer) = cringle::os::unix::net::UnixStream::pair()?;"
    };
}
pub(super) use example_socket;

/// Defines the methods that every socket has.
macro_rules! all_sockets {
    ($ours:ident) => {
        impl $ours {
            /// Returns another handle to the same socket. Options set through one handle apply to
            /// both.
            ///
            /// # Errors
            ///
            /// As std's: no descriptor is free.
            pub fn try_clone(&self) -> std::io::Result<$ours> {
                let fd = cringle_sys::duplicate(self.socket.fd())?;
                Ok($ours { socket: self.socket.clone_with(fd.into_std().into()) })
            }

            /// Sets whether calls that would wait fail with `WouldBlock` instead.
            ///
            /// # Errors
            ///
            /// As std's.
            pub fn set_nonblocking(&self, nonblocking: bool) -> std::io::Result<()> {
                self.socket.set_nonblocking(nonblocking, |std| std.set_nonblocking(nonblocking))
            }

            $crate::net::macros::std_calls! {
                /// Returns and clears the pending error of the socket (`SO_ERROR`).
                fn take_error() -> Option<std::io::Error>;
            }
        }
    };
}
pub(super) use all_sockets;

/// Defines the timeouts of sockets that transfer data.
macro_rules! timeouts {
    ($ours:ident) => {
        impl $ours {
            /// Sets how long a read may wait. After that time it fails with `WouldBlock`, as std's
            /// does on Linux. For a limit on several calls, use
            /// [`time::timeout`](crate::time::timeout).
            ///
            /// # Errors
            ///
            /// As std's: `InvalidInput` for a timeout of zero.
            pub fn set_read_timeout(
                &self,
                limit: Option<std::time::Duration>,
            ) -> std::io::Result<()> {
                let direction = $crate::net::socket::Direction::Receive;
                self.socket.set_timeout(direction, limit, |std| std.set_read_timeout(limit))
            }

            /// Sets how long a write may wait. After that time it fails with `WouldBlock`, as std's
            /// does on Linux.
            ///
            /// # Errors
            ///
            /// As std's: `InvalidInput` for a timeout of zero.
            pub fn set_write_timeout(
                &self,
                limit: Option<std::time::Duration>,
            ) -> std::io::Result<()> {
                let direction = $crate::net::socket::Direction::Send;
                self.socket.set_timeout(direction, limit, |std| std.set_write_timeout(limit))
            }

            $crate::net::macros::std_calls! {
                /// Returns how long a read may wait; `None` means without a limit.
                fn read_timeout() -> Option<std::time::Duration>;
                /// Returns how long a write may wait; `None` means without a limit.
                fn write_timeout() -> Option<std::time::Duration>;
            }
        }
    };
}
pub(super) use timeouts;
