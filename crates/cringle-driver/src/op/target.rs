//! The file that an op acts on, and how it is to reach it.

use std::os::fd::RawFd;

/// A file as an op names it: a descriptor, or an index into the driver's registered files.
///
/// One `u64`, written by one store: a processor that reads two narrow stores back as one wide load
/// waits until both have left its store buffer, and ops are read soon after they are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Target(u64);

impl Target {
    const FIXED: u64 = 1 << 32;
    const POLLED: u64 = 1 << 33;
    const EXACT: u64 = 1 << 34;
    const PUNTED: u64 = 1 << 35;

    #[inline]
    pub fn fd(fd: RawFd) -> Target {
        Target(u64::from(fd as u32))
    }

    #[inline]
    pub fn fixed(index: u32) -> Target {
        Target(Target::FIXED | u64::from(index))
    }

    #[inline]
    pub(crate) fn is_fixed(self) -> bool {
        self.0 & Target::FIXED != 0
    }

    /// Marks the op for the ring whose completions are polled, if the driver has one.
    pub(crate) fn polled(self) -> Target {
        Target(self.0 | Target::POLLED)
    }

    /// Removes the mark of [`polled`](Self::polled).
    pub(super) fn unpolled(self) -> Target {
        Target(self.0 & !Target::POLLED)
    }

    #[inline]
    pub(super) fn is_polled(self) -> bool {
        self.0 & Target::POLLED != 0
    }

    /// Marks an op of a batch that is repeated until all of its bytes are transferred.
    #[inline]
    pub(super) fn exact(self) -> Target {
        Target(self.0 | Target::EXACT)
    }

    #[inline]
    pub(super) fn is_exact(self) -> bool {
        self.0 & Target::EXACT != 0
    }

    /// Marks an op that the ring hands to a kernel thread at once (`IOSQE_ASYNC`).
    pub fn punted(self) -> Target {
        Target(self.0 | Target::PUNTED)
    }

    pub(crate) fn is_punted(self) -> bool {
        self.0 & Target::PUNTED != 0
    }

    /// Whether this is a descriptor whose op needs no flag in its entry.
    #[inline]
    pub(crate) fn is_ordinary(self) -> bool {
        self.0 & (Target::FIXED | Target::PUNTED) == 0
    }

    /// The descriptor or the index, as the kernel takes it.
    #[inline]
    pub fn number(self) -> i32 {
        self.0 as u32 as i32
    }

    /// The descriptor; `None` for a registered file.
    #[inline]
    pub fn as_fd(self) -> Option<RawFd> {
        (!self.is_fixed()).then(|| self.number())
    }

    /// The file as a completion keeps it, in one number: a descriptor; or −2 and below for a
    /// [registered file](super::OpDescription::fixed).
    #[inline(always)]
    pub(super) fn file(self) -> i32 {
        if self.is_fixed() { -2 - self.number() } else { self.number() }
    }
}
