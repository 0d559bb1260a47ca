//! What came beside the bytes.

use super::send::{HEADER, aligned};
use crate::os::unix::net::UCred;
use std::ffi::c_int;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::os::fd::{FromRawFd, OwnedFd, RawFd};
use std::time::{Duration, SystemTime};

/// A descriptor of the sender (Linux 6.5).
const SCM_PIDFD: c_int = 4;

/// Room for what a `recvmsg` brings beside the bytes, and what the last one has brought.
///
/// ```
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
///     Ok::<(), std::io::Error>(())
/// })
/// # ?; Ok::<(), std::io::Error>(())
/// ```
///
/// Descriptors that came are owned by this value, close on `exec`, and are closed with it, or by the next
/// `recvmsg`, unless they are [taken](RecvAncillary::drain).
#[derive(Debug, Default)]
pub struct RecvAncillary {
    /// As the kernel aligns it.
    room: Vec<u64>,
    messages: Vec<AncillaryMessage>,
}

/// One of the things that came beside the bytes of a message. Which do is set by options of the socket.
#[derive(Debug)]
#[non_exhaustive]
pub enum AncillaryMessage {
    /// Descriptors (`SCM_RIGHTS`, Unix sockets).
    Fds(Vec<OwnedFd>),
    /// Who has sent it (`SCM_CREDENTIALS`, Unix sockets with `SO_PASSCRED`).
    Credentials(UCred),
    /// The process that has sent it (`SCM_PIDFD`, Unix sockets with `SO_PASSPIDFD`, Linux 6.5).
    Pidfd(OwnedFd),
    /// When the kernel got it, or sent it (`SO_TIMESTAMP`, `SO_TIMESTAMPNS`).
    Timestamp(SystemTime),
    /// How many networks it may still cross (`IP_RECVTTL`, `IPV6_RECVHOPLIMIT`).
    HopLimit(u8),
    /// Its class, with the marks of congestion (`IP_RECVTOS`, `IPV6_RECVTCLASS`).
    TrafficClass(u8),
    /// Where it was sent to, and by which interface it came (`IP_PKTINFO`, `IPV6_RECVPKTINFO`).
    PacketInfo {
        /// The destination in its head.
        destination: IpAddr,
        /// The interface's index.
        interface: u32,
    },
    /// It is several datagrams of this length, the last of what is left (`UDP_GRO`).
    SegmentSize(u16),
    /// Anything else, or what was cut off.
    Other {
        /// The protocol level.
        level: c_int,
        /// What it is there.
        kind: c_int,
        /// As it came.
        data: Vec<u8>,
    },
}

impl RecvAncillary {
    /// Room for so many bytes, heads included: 24 for a number, 20 and 4 for each descriptor, rounded up
    /// to 8. With no room all of it is dropped.
    pub fn with_capacity(bytes: usize) -> RecvAncillary {
        RecvAncillary { room: vec![0; bytes.div_ceil(8)], messages: Vec::new() }
    }

    /// Room for a message with so many descriptors.
    pub fn for_fds(count: usize) -> RecvAncillary {
        RecvAncillary::with_capacity(aligned(HEADER) + count * size_of::<RawFd>())
    }

    /// What the last message has brought, in the kernel's order.
    pub fn messages(&self) -> &[AncillaryMessage] {
        &self.messages
    }

    /// Takes what the last message has brought. What is not taken is dropped, and closed, with the
    /// iterator.
    pub fn drain(&mut self) -> std::vec::Drain<'_, AncillaryMessage> {
        self.messages.drain(..)
    }

    /// Forgets the last message, and says where the kernel may write, and how much.
    pub(super) fn lend(&mut self) -> (*mut u64, usize) {
        self.messages.clear();
        (self.room.as_mut_ptr(), size_of_val(&*self.room))
    }

    /// Reads what the kernel has written: so many bytes.
    ///
    /// # Safety
    ///
    /// They are control messages that the kernel has just written, whose descriptors nobody owns.
    pub(super) unsafe fn take(&mut self, bytes: usize) {
        let len = bytes.min(size_of_val(&*self.room));
        // SAFETY: it is that long, and initialised.
        let mut rest = unsafe { std::slice::from_raw_parts(self.room.as_ptr().cast::<u8>(), len) };
        while let Some((level, kind, data, after)) = split(rest) {
            // SAFETY: handed on to the caller.
            self.messages.push(unsafe { AncillaryMessage::read(level, kind, data) });
            rest = after;
        }
    }
}

/// The first message, and what follows it.
fn split(bytes: &[u8]) -> Option<(c_int, c_int, &[u8], &[u8])> {
    let (len, rest) = bytes.split_first_chunk()?;
    let (level, rest) = rest.split_first_chunk()?;
    let (kind, _) = rest.split_first_chunk()?;
    // One that was cut says how long it is now.
    let len = usize::from_ne_bytes(*len).min(bytes.len());
    let data = bytes.get(aligned(HEADER)..len)?;
    let after = bytes.get(aligned(len)..).unwrap_or_default();
    Some((c_int::from_ne_bytes(*level), c_int::from_ne_bytes(*kind), data, after))
}

impl AncillaryMessage {
    /// # Safety
    ///
    /// As for [`RecvAncillary::take`].
    unsafe fn read(level: c_int, kind: c_int, data: &[u8]) -> AncillaryMessage {
        if (level, kind) == (libc::SOL_SOCKET, libc::SCM_RIGHTS) {
            let (numbers, _) = data.as_chunks();
            // SAFETY: by the contract, each is new and ours.
            let own = |&number| unsafe { OwnedFd::from_raw_fd(RawFd::from_ne_bytes(number)) };
            return AncillaryMessage::Fds(numbers.iter().map(own).collect());
        }
        if (level, kind) == (libc::SOL_SOCKET, SCM_PIDFD)
            && let Some(number @ 0..) = data.first_chunk().map(|&bytes| RawFd::from_ne_bytes(bytes))
        {
            // SAFETY: by the contract, it is new and ours. (An error of the kernel's is no descriptor.)
            return AncillaryMessage::Pidfd(unsafe { OwnedFd::from_raw_fd(number) });
        }
        let known = AncillaryMessage::known(level, kind, data);
        known.unwrap_or_else(|| AncillaryMessage::Other { level, kind, data: data.to_vec() })
    }

    /// What has no descriptors, if it has all of its bytes.
    fn known(level: c_int, kind: c_int, data: &[u8]) -> Option<AncillaryMessage> {
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

/// Seconds, and a fraction in units of so many nanoseconds: two of the kernel's `long`s.
fn time(data: &[u8], unit_ns: u32) -> Option<SystemTime> {
    let (words, _) = data.as_chunks();
    let [seconds, fraction] = *words.first_chunk::<2>()?;
    let seconds = u64::try_from(isize::from_ne_bytes(seconds)).ok()?;
    let nanos = u32::try_from(isize::from_ne_bytes(fraction)).ok()?.checked_mul(unit_ns)?;
    SystemTime::UNIX_EPOCH.checked_add(Duration::new(seconds, nanos.min(999_999_999)))
}
