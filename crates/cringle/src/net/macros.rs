//! What the types of this folder have in common, written once.

/// From and to descriptors and std's type.
macro_rules! descriptors {
    ($ours:ident, $std:ty) => {
        impl std::fmt::Debug for $ours {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                self.socket.std().fmt(f)
            }
        }

        impl std::os::fd::AsFd for $ours {
            fn as_fd(&self) -> std::os::fd::BorrowedFd<'_> {
                self.socket.std().as_fd()
            }
        }

        impl std::os::fd::AsRawFd for $ours {
            fn as_raw_fd(&self) -> std::os::fd::RawFd {
                self.socket.std().as_raw_fd()
            }
        }

        impl std::os::fd::IntoRawFd for $ours {
            fn into_raw_fd(self) -> std::os::fd::RawFd {
                self.socket.into_std().into_raw_fd()
            }
        }

        impl std::os::fd::FromRawFd for $ours {
            unsafe fn from_raw_fd(fd: std::os::fd::RawFd) -> $ours {
                // SAFETY: the caller owns the descriptor, as std's function asks.
                unsafe { <$std>::from_raw_fd(fd) }.into()
            }
        }

        impl From<std::os::fd::OwnedFd> for $ours {
            fn from(fd: std::os::fd::OwnedFd) -> $ours {
                <$std>::from(fd).into()
            }
        }

        impl From<$ours> for std::os::fd::OwnedFd {
            fn from(socket: $ours) -> std::os::fd::OwnedFd {
                socket.socket.into_std().into()
            }
        }

        impl From<$std> for $ours {
            fn from(std: $std) -> $ours {
                $ours { socket: $crate::net::socket::Socket::foreign(std) }
            }
        }

        impl From<$ours> for $std {
            fn from(socket: $ours) -> $std {
                socket.socket.into_std()
            }
        }

        /// A descriptor is a descriptor: as for std's types.
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

/// Calls that do not wait: std's own.
macro_rules! std_calls {
    ($($(#[$doc:meta])* fn $name:ident($($arg:ident: $ty:ty),*) -> $result:ty;)*) => {$(
        $(#[$doc])*
        ///
        /// # Errors
        ///
        /// As std's.
        pub fn $name(&self $(, $arg: $ty)*) -> std::io::Result<$result> {
            self.socket.std().$name($($arg),*)
        }
    )*};
}
pub(super) use std_calls;

/// What every socket has.
macro_rules! all_sockets {
    ($ours:ident) => {
        impl $ours {
            /// Another handle to the same socket: what is set by one holds for both.
            ///
            /// # Errors
            ///
            /// As std's.
            pub fn try_clone(&self) -> std::io::Result<$ours> {
                let std = self.socket.std().try_clone()?;
                Ok($ours { socket: self.socket.clone_with(std) })
            }

            /// Whether calls that would wait fail with `WouldBlock` instead.
            ///
            /// # Errors
            ///
            /// As std's.
            pub fn set_nonblocking(&self, nonblocking: bool) -> std::io::Result<()> {
                self.socket.set_nonblocking(nonblocking, |std| std.set_nonblocking(nonblocking))
            }

            $crate::net::macros::std_calls! {
                /// The error that waits on the socket, which is cleared (`SO_ERROR`).
                fn take_error() -> Option<std::io::Error>;
            }
        }
    };
}
pub(super) use all_sockets;

/// What sockets have that data comes from.
macro_rules! timeouts {
    ($ours:ident) => {
        impl $ours {
            /// How long a read may wait: it fails with `WouldBlock` then, as std's on Linux. For more
            /// than one call there is [`time::timeout`](crate::time::timeout).
            ///
            /// # Errors
            ///
            /// As std's: `InvalidInput` for no time at all.
            pub fn set_read_timeout(
                &self,
                limit: Option<std::time::Duration>,
            ) -> std::io::Result<()> {
                let direction = $crate::net::socket::Direction::Receive;
                self.socket.set_timeout(direction, limit, |std| std.set_read_timeout(limit))
            }

            /// How long a write may wait.
            ///
            /// # Errors
            ///
            /// As std's: `InvalidInput` for no time at all.
            pub fn set_write_timeout(
                &self,
                limit: Option<std::time::Duration>,
            ) -> std::io::Result<()> {
                let direction = $crate::net::socket::Direction::Send;
                self.socket.set_timeout(direction, limit, |std| std.set_write_timeout(limit))
            }

            $crate::net::macros::std_calls! {
                /// How long a read may wait.
                fn read_timeout() -> Option<std::time::Duration>;
                /// How long a write may wait.
                fn write_timeout() -> Option<std::time::Duration>;
            }
        }
    };
}
pub(super) use timeouts;
