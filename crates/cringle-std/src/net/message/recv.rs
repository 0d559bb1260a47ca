//! Received ancillary data.

use super::send::{HEADER, aligned};
use crate::os::unix::net::UCred;
use std::ffi::c_int;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::os::fd::{FromRawFd, OwnedFd, RawFd};
use std::time::{Duration, SystemTime};

/// The type of a control message with a pidfd of the sender (Linux 6.5).
const SCM_PIDFD: c_int = 4;

/// A buffer for the ancillary data of `recvmsg`, and the data of the last call.
///
/// It owns the received descriptors, which are closed on `exec`. They are closed with this value,
/// or by the next `recvmsg`, unless they are [taken](RecvAncillary::drain).
///
/// ```
/// # fn main() -> std::io::Result<()> {
/// use cringle::net::{AncillaryMessage, MsgFlags, RecvAncillary, SendAncillary};
/// use cringle::os::unix::net::UnixDatagram;
/// use std::fs::File;
/// use std::io::{IoSlice, IoSliceMut, Read};
/// use std::os::fd::AsFd;
///
/// cringle::run(|| {
///     let (ours, theirs) = UnixDatagram::pair()?;
///     let file = File::open("/proc/self/exe")?;
///     let mut outgoing = SendAncillary::new();
///     outgoing.fds(&[file.as_fd()])?;
///     ours.sendmsg(&[IoSlice::new(b"read this")], None, &outgoing, MsgFlags::empty())?;
///
///     let (mut verb, mut object) = ([0; 5], [0; 16]);
///     let mut slices = [IoSliceMut::new(&mut verb), IoSliceMut::new(&mut object)];
///     let mut incoming = RecvAncillary::with_capacity(64);
///     let (received, _from) = theirs.recvmsg(&mut slices, &mut incoming, MsgFlags::empty())?;
///     assert_eq!((received.len, &verb, &object[..4]), (9, b"read ", &b"this"[..]));
///     for message in incoming.drain() {
///         if let AncillaryMessage::Fds(mut fds) = message {
///             let mut magic = [0; 4];
///             File::from(fds.remove(0)).read_exact(&mut magic)?;
///             assert_eq!(&magic, b"\x7fELF");
///         }
///     }
///     Ok(())
/// })
/// # }
/// ```
#[derive(Debug, Default)]
pub struct RecvAncillary {
    /// The control buffer, with the kernel's alignment.
    room: Vec<u64>,
    messages: Vec<AncillaryMessage>,
}

/// One item of a message's ancillary data. Socket options determine which items the kernel adds.
///
/// ```
/// use cringle::net::{AncillaryMessage, RecvAncillary};
///
/// fn print(ancillary: &RecvAncillary) {
///     for message in ancillary.messages() {
///         match message {
///             AncillaryMessage::Credentials(sender) => println!("from user {}", sender.uid),
///             AncillaryMessage::Fds(fds) => println!("{} descriptors", fds.len()),
///             other => println!("{other:?}"),
///         }
///     }
/// }
/// ```
#[derive(Debug)]
#[non_exhaustive]
pub enum AncillaryMessage {
    /// Descriptors (`SCM_RIGHTS`, Unix sockets).
    Fds(Vec<OwnedFd>),
    /// The credentials of the sender (`SCM_CREDENTIALS`, Unix sockets with `SO_PASSCRED`).
    Credentials(UCred),
    /// A pidfd of the sender (`SCM_PIDFD`, Unix sockets with `SO_PASSPIDFD`, Linux 6.5).
    Pidfd(OwnedFd),
    /// The time at which the kernel received or sent the message (`SO_TIMESTAMP`,
    /// `SO_TIMESTAMPNS`).
    Timestamp(SystemTime),
    /// The remaining time to live of the packet (`IP_RECVTTL`, `IPV6_RECVHOPLIMIT`).
    HopLimit(u8),
    /// The traffic class, including the ECN bits (`IP_RECVTOS`, `IPV6_RECVTCLASS`).
    TrafficClass(u8),
    /// The destination address and the receiving interface (`IP_PKTINFO`, `IPV6_RECVPKTINFO`).
    PacketInfo {
        /// The destination address in the packet's header.
        destination: IpAddr,
        /// The index of the interface.
        interface: u32,
    },
    /// The length of each datagram in the message, of which the last may be shorter (`UDP_GRO`).
    SegmentSize(u16),
    /// Any other item, or a truncated one.
    Other {
        /// The protocol level.
        level: c_int,
        /// The type, which depends on the level.
        kind: c_int,
        /// The data, unparsed.
        data: Vec<u8>,
    },
}

impl RecvAncillary {
    /// Returns a buffer of this number of bytes, headers included: 24 for an integer; 16, plus 4
    /// for each descriptor, rounded up to a multiple of 8. Without a buffer, the kernel discards
    /// all ancillary data.
    ///
    /// ```
    /// let ancillary = cringle::net::RecvAncillary::with_capacity(64);
    /// assert!(ancillary.messages().is_empty());
    /// ```
    pub fn with_capacity(bytes: usize) -> RecvAncillary {
        RecvAncillary { room: vec![0; bytes.div_ceil(8)], messages: Vec::new() }
    }

    /// Returns a buffer for a message with this number of descriptors.
    ///
    /// ```
    /// let ancillary = cringle::net::RecvAncillary::for_fds(2);
    /// assert!(ancillary.messages().is_empty());
    /// ```
    pub fn for_fds(count: usize) -> RecvAncillary {
        RecvAncillary::with_capacity(aligned(HEADER) + count * size_of::<RawFd>())
    }

    /// Returns the ancillary data of the last message, in the kernel's order.
    ///
    /// ```
    /// assert!(cringle::net::RecvAncillary::default().messages().is_empty());
    /// ```
    pub fn messages(&self) -> &[AncillaryMessage] {
        &self.messages
    }

    /// Removes and returns the ancillary data of the last message. Dropping the iterator drops the
    /// rest, and closes its descriptors.
    ///
    /// ```
    /// use cringle::net::{AncillaryMessage, RecvAncillary};
    /// use std::os::fd::OwnedFd;
    ///
    /// fn take_fds(ancillary: &mut RecvAncillary) -> Vec<OwnedFd> {
    ///     let fds = ancillary.drain().filter_map(|message| match message {
    ///         AncillaryMessage::Fds(fds) => Some(fds),
    ///         _ => None,
    ///     });
    ///     fds.flatten().collect()
    /// }
    /// ```
    pub fn drain(&mut self) -> std::vec::Drain<'_, AncillaryMessage> {
        self.messages.drain(..)
    }

    /// Drops the data of the last message, and returns the buffer and its length in bytes.
    pub(super) fn lend(&mut self) -> (*mut u64, usize) {
        self.messages.clear();
        (self.room.as_mut_ptr(), size_of_val(&*self.room))
    }

    /// Parses the first `bytes` bytes of the buffer.
    ///
    /// # Safety
    ///
    /// They are control messages that the kernel has just written, whose descriptors have no owner
    /// yet.
    pub(super) unsafe fn take(&mut self, bytes: usize) {
        let len = bytes.min(size_of_val(&*self.room));
        // SAFETY: the buffer is borrowed with `self`, initialised, and at least `len` bytes long.
        let mut rest = unsafe { std::slice::from_raw_parts(self.room.as_ptr().cast::<u8>(), len) };
        while let Some((level, kind, data, after)) = split(rest) {
            // SAFETY: the caller's contract.
            self.messages.push(unsafe { AncillaryMessage::read(level, kind, data) });
            rest = after;
        }
    }
}

/// Splits off the first control message: its level, type and data, and the rest of the bytes.
fn split(bytes: &[u8]) -> Option<(c_int, c_int, &[u8], &[u8])> {
    let (len, rest) = bytes.split_first_chunk()?;
    let (level, rest) = rest.split_first_chunk()?;
    let (kind, _) = rest.split_first_chunk()?;
    // The kernel has adjusted the length of a truncated message; `min` guards the slice below.
    let len = usize::from_ne_bytes(*len).min(bytes.len());
    let data = bytes.get(aligned(HEADER)..len)?;
    let after = bytes.get(aligned(len)..).unwrap_or_default();
    Some((c_int::from_ne_bytes(*level), c_int::from_ne_bytes(*kind), data, after))
}

impl AncillaryMessage {
    /// Converts a control message, and takes ownership of its descriptors.
    ///
    /// # Safety
    ///
    /// As for [`RecvAncillary::take`].
    unsafe fn read(level: c_int, kind: c_int, data: &[u8]) -> AncillaryMessage {
        if (level, kind) == (libc::SOL_SOCKET, libc::SCM_RIGHTS) {
            let (numbers, _) = data.as_chunks();
            // SAFETY: the caller's contract: each descriptor is open and has no owner yet.
            let own = |&number| unsafe { OwnedFd::from_raw_fd(RawFd::from_ne_bytes(number)) };
            return AncillaryMessage::Fds(numbers.iter().map(own).collect());
        }
        if (level, kind) == (libc::SOL_SOCKET, SCM_PIDFD)
            && let Some(number @ 0..) = data.first_chunk().map(|&bytes| RawFd::from_ne_bytes(bytes))
        {
            // SAFETY: the caller's contract: the descriptor is open and has no owner yet. A
            // negative number is an error code, and excluded by the pattern.
            return AncillaryMessage::Pidfd(unsafe { OwnedFd::from_raw_fd(number) });
        }
        let parsed = AncillaryMessage::parse(level, kind, data);
        parsed.unwrap_or_else(|| AncillaryMessage::Other { level, kind, data: data.to_vec() })
    }

    /// Parses a message without descriptors. `None` if its type is unknown or it is truncated.
    fn parse(level: c_int, kind: c_int, data: &[u8]) -> Option<AncillaryMessage> {
        let word =
            |at: usize| data.get(at..)?.first_chunk().map(|&bytes| i32::from_ne_bytes(bytes));
        let byte = || u8::try_from(word(0)?).ok();
        Some(match (level, kind) {
            (libc::SOL_SOCKET, libc::SCM_CREDENTIALS) => {
                let (pid, uid, gid) = (word(0)?, word(4)? as u32, word(8)? as u32);
                AncillaryMessage::Credentials(UCred { uid, gid, pid: (pid != 0).then_some(pid) })
            }
            (libc::SOL_SOCKET, libc::SCM_TIMESTAMPNS) => {
                AncillaryMessage::Timestamp(time(data, 1)?)
            }
            (libc::SOL_SOCKET, libc::SCM_TIMESTAMP) => {
                AncillaryMessage::Timestamp(time(data, 1000)?)
            }
            (libc::SOL_IP, libc::IP_TTL) | (libc::SOL_IPV6, libc::IPV6_HOPLIMIT) => {
                AncillaryMessage::HopLimit(byte()?)
            }
            (libc::SOL_IP, libc::IP_TOS) => AncillaryMessage::TrafficClass(*data.first()?),
            (libc::SOL_IPV6, libc::IPV6_TCLASS) => AncillaryMessage::TrafficClass(byte()?),
            (libc::SOL_IP, libc::IP_PKTINFO) => {
                let destination = Ipv4Addr::from(*data.get(8..)?.first_chunk::<4>()?).into();
                AncillaryMessage::PacketInfo { destination, interface: word(0)? as u32 }
            }
            (libc::SOL_IPV6, libc::IPV6_PKTINFO) => {
                let destination = Ipv6Addr::from(*data.first_chunk::<16>()?).into();
                AncillaryMessage::PacketInfo { destination, interface: word(16)? as u32 }
            }
            (libc::SOL_UDP, libc::UDP_GRO) => {
                AncillaryMessage::SegmentSize(u16::try_from(word(0)?).ok()?)
            }
            _ => return None,
        })
    }
}

/// Parses a time: two `long`s, the seconds and a fraction in units of `unit_ns` nanoseconds.
fn time(data: &[u8], unit_ns: u32) -> Option<SystemTime> {
    let (words, _) = data.as_chunks();
    let [seconds, fraction] = *words.first_chunk::<2>()?;
    let seconds = u64::try_from(isize::from_ne_bytes(seconds)).ok()?;
    let nanos = u32::try_from(isize::from_ne_bytes(fraction)).ok()?.checked_mul(unit_ns)?;
    SystemTime::UNIX_EPOCH.checked_add(Duration::new(seconds, nanos.min(999_999_999)))
}
