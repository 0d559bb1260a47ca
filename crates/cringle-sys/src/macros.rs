//! Implementations that many types of the library repeat.

/// Methods of a builder that each set something, and return the builder.
#[macro_export]
macro_rules! setters {
    ($builder:ty: $(
        $(#[$doc:meta])*
        $visibility:vis fn $name:ident($value:ident: $type:ty) |$it:ident| $set:expr;
    )*) => {
        impl $builder {
            $(
                $(#[$doc])*
                $visibility fn $name(self, $value: $type) -> $builder {
                    let mut $it = self;
                    $set;
                    $it
                }
            )*
        }
    };
}

/// `Debug` that prints the name of the type and some values.
#[macro_export]
macro_rules! brief_debug {
    ($name:ident $(<$($parameter:tt),+>)?, |$it:ident| $($field:ident: $value:expr),+) => {
        impl $(<$($parameter),+>)? std::fmt::Debug for $name $(<$($parameter),+>)? {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                let $it = self;
                let mut fields = f.debug_struct(stringify!($name));
                $(fields.field(stringify!($field), &$value);)+
                fields.finish_non_exhaustive()
            }
        }
    };
}

/// `Debug` that prints the name of the type alone.
#[macro_export]
macro_rules! opaque_debug {
    ($($name:ident $(<$($parameter:tt),+>)?),+) => {$(
        impl $(<$($parameter),+>)? std::fmt::Debug for $name $(<$($parameter),+>)? {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.debug_struct(stringify!($name)).finish_non_exhaustive()
            }
        }
    )+};
}

/// `Debug` and `Display` of guards, which print the guarded value.
#[macro_export]
macro_rules! prints_value {
    ($($guard:ident),+) => {$(
        impl<T: ?Sized + std::fmt::Debug> std::fmt::Debug for $guard<'_, T> {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                (**self).fmt(f)
            }
        }

        impl<T: ?Sized + std::fmt::Display> std::fmt::Display for $guard<'_, T> {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                (**self).fmt(f)
            }
        }
    )+};
}

/// `Default`, by a constructor without arguments.
#[macro_export]
macro_rules! default_by_new {
    ($name:ident $(<$parameter:ident>)?) => {
        impl $(<$parameter>)? Default for $name $(<$parameter>)? {
            fn default() -> Self {
                $name::new()
            }
        }
    };
}

/// `Default` and `From` of a cell or a lock, by a constructor that takes the value.
#[macro_export]
macro_rules! made_of_value {
    ($name:ident) => {
        impl<T: Default> Default for $name<T> {
            fn default() -> $name<T> {
                $name::new(T::default())
            }
        }

        impl<T> From<T> for $name<T> {
            fn from(value: T) -> $name<T> {
                $name::new(value)
            }
        }
    };
}

/// `Deref` to what a value contains or guards, and with `mut` also `DerefMut`.
#[macro_export]
macro_rules! derefs {
    ([$($generics:tt)*] $type:ty => $target:ty, |$it:ident| $shared:expr) => {
        impl<$($generics)*> std::ops::Deref for $type {
            type Target = $target;

            #[inline]
            fn deref(&self) -> &$target {
                let $it = self;
                $shared
            }
        }
    };
    ([$($generics:tt)*] $type:ty => $target:ty, |$it:ident| $shared:expr, mut $exclusive:expr) => {
        $crate::derefs!([$($generics)*] $type => $target, |$it| $shared);

        impl<$($generics)*> std::ops::DerefMut for $type {
            #[inline]
            fn deref_mut(&mut self) -> &mut $target {
                let $it = self;
                $exclusive
            }
        }
    };
}

/// `Read` by the methods of another value, and by these in addition.
#[macro_export]
macro_rules! reads_by {
    (
        $type:ty, |$it:ident| $reader:expr
        $(, $also:ident($buf:ty) -> $result:ty)*
    ) => {
        impl std::io::Read for $type {
            #[inline]
            fn read(&mut self, buf: &mut [u8]) -> std::io::Result<usize> {
                let $it = self;
                $reader.read(buf)
            }

            fn read_vectored(
                &mut self,
                bufs: &mut [std::io::IoSliceMut<'_>],
            ) -> std::io::Result<usize> {
                let $it = self;
                $reader.read_vectored(bufs)
            }

            $(fn $also(&mut self, buf: $buf) -> std::io::Result<$result> {
                let $it = self;
                $reader.$also(buf)
            })*
        }
    };
}

/// `Write` by the methods of another value, and by these in addition.
#[macro_export]
macro_rules! writes_by {
    (
        $type:ty, |$it:ident| $writer:expr
        $(, $also:ident($buf:ty) -> $result:ty)*
    ) => {
        impl std::io::Write for $type {
            #[inline]
            fn write(&mut self, buf: &[u8]) -> std::io::Result<usize> {
                let $it = self;
                $writer.write(buf)
            }

            fn write_vectored(&mut self, bufs: &[std::io::IoSlice<'_>]) -> std::io::Result<usize> {
                let $it = self;
                $writer.write_vectored(bufs)
            }

            fn flush(&mut self) -> std::io::Result<()> {
                let $it = self;
                $writer.flush()
            }

            $(fn $also(&mut self, buf: $buf) -> std::io::Result<$result> {
                let $it = self;
                $writer.$also(buf)
            })*
        }
    };
}

/// The conversions of a handle to and from descriptors and the type of std that it stands for.
#[macro_export]
macro_rules! stands_for_std {
    (
        $ours:ident, $std:ty,
        |$it:ident| $borrowed:expr, |$of:ident| $of_std:expr, |$into:ident| $into_std:expr
    ) => {
        impl std::os::fd::AsFd for $ours {
            fn as_fd(&self) -> std::os::fd::BorrowedFd<'_> {
                let $it = self;
                $borrowed.as_fd()
            }
        }

        impl std::os::fd::AsRawFd for $ours {
            fn as_raw_fd(&self) -> std::os::fd::RawFd {
                let $it = self;
                $borrowed.as_raw_fd()
            }
        }

        impl From<$std> for $ours {
            fn from($of: $std) -> $ours {
                $of_std
            }
        }

        impl From<$ours> for $std {
            fn from($into: $ours) -> $std {
                $into_std
            }
        }

        impl From<std::os::fd::OwnedFd> for $ours {
            fn from(fd: std::os::fd::OwnedFd) -> $ours {
                <$std>::from(fd).into()
            }
        }

        impl From<$ours> for std::os::fd::OwnedFd {
            fn from(ours: $ours) -> std::os::fd::OwnedFd {
                <$std>::from(ours).into()
            }
        }

        impl std::os::fd::IntoRawFd for $ours {
            fn into_raw_fd(self) -> std::os::fd::RawFd {
                std::os::fd::OwnedFd::from(self).into_raw_fd()
            }
        }

        impl std::os::fd::FromRawFd for $ours {
            unsafe fn from_raw_fd(fd: std::os::fd::RawFd) -> $ours {
                // SAFETY: the contract of std's function: the caller passes ownership of an open
                // descriptor.
                unsafe { std::os::fd::OwnedFd::from_raw_fd(fd) }.into()
            }
        }
    };
}

/// `BitOr` of a set of flags.
#[macro_export]
macro_rules! flags_or {
    ($($flags:ident),+) => {$(
        impl std::ops::BitOr for $flags {
            type Output = $flags;

            fn bitor(self, other: $flags) -> $flags {
                $flags(self.0 | other.0)
            }
        }
    )+};
}
