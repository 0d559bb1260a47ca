//! What goes beside the bytes.

use crate::os::unix::net::UCred;
use std::ffi::c_int;
use std::io;
use std::marker::PhantomData;
use std::os::fd::{AsRawFd, BorrowedFd};

/// The most descriptors that the kernel passes at once (`SCM_MAX_FD`).
pub(in crate::net) const MAX_FDS: usize = 253;

/// What a `sendmsg` sends beside the bytes: descriptors, credentials, options of this one message. Empty,
/// to begin with.
///
/// ```
/// use cringle::net::{MsgFlags, SendAncillary, UdpSocket};
/// use std::io::IoSlice;
///
/// cringle::run(|| {
///     let ours = UdpSocket::bind("127.0.0.1:0")?;
///     let theirs = UdpSocket::bind("127.0.0.1:0")?;
///     // Three datagrams by one call (`UDP_SEGMENT`).
///     let mut ancillary = SendAncillary::new();
///     ancillary.segment_size(4);
///     let slices = [IoSlice::new(b"fair"), IoSlice::new(b"windaft!")];
///     ours.sendmsg(&slices, Some(theirs.local_addr()?), &ancillary, MsgFlags::empty())?;
///     let mut text = [0; 16];
///     for expected in [b"fair", b"wind", b"aft!"] {
///         let count = theirs.recv(&mut text)?;
///         assert_eq!(&text[..count], expected);
///     }
///     Ok::<(), std::io::Error>(())
/// })
/// # ?; Ok::<(), std::io::Error>(())
/// ```
#[derive(Clone, Debug, Default)]
pub struct SendAncillary<'fd> {
    bytes: Vec<u8>,
    fds: PhantomData<BorrowedFd<'fd>>,
}

/// The kernel's `cmsghdr`: the length with this header, the level and the type.
pub(super) const HEADER: usize = size_of::<usize>() + 2 * size_of::<c_int>();

/// Where the data of a message begins, and where the next message does.
pub(super) const fn aligned(bytes: usize) -> usize {
    bytes.next_multiple_of(size_of::<usize>())
}

impl<'fd> SendAncillary<'fd> {
    /// Nothing.
    pub const fn new() -> SendAncillary<'fd> {
        SendAncillary { bytes: Vec::new(), fds: PhantomData }
    }

    /// Whether there is nothing.
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// Takes out everything.
    pub fn clear(&mut self) {
        self.bytes.clear();
    }

    /// Descriptors, of which the other side gets its own (`SCM_RIGHTS`, Unix sockets). On a stream they
    /// need a byte to go with; the kernel takes one group of them a message.
    ///
    /// # Errors
    ///
    /// `InvalidInput` for more than 253.
    pub fn fds(&mut self, fds: &[BorrowedFd<'fd>]) -> io::Result<&mut SendAncillary<'fd>> {
        if fds.len() > MAX_FDS {
            let text =
                format!("{} descriptors cannot be passed at once: at most {MAX_FDS}", fds.len());
            return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
        }
        let numbers: Vec<u8> = fds.iter().flat_map(|fd| fd.as_raw_fd().to_ne_bytes()).collect();
        Ok(self.add(libc::SOL_SOCKET, libc::SCM_RIGHTS, &numbers))
    }

    /// Who sends it (`SCM_CREDENTIALS`, Unix sockets). The kernel checks that it is so.
    pub fn credentials(&mut self, who: UCred) -> &mut SendAncillary<'fd> {
        let UCred { uid, gid, pid } = who;
        let words = [pid.unwrap_or(0).to_ne_bytes(), uid.to_ne_bytes(), gid.to_ne_bytes()];
        self.add(libc::SOL_SOCKET, libc::SCM_CREDENTIALS, words.as_flattened())
    }

    /// The bytes are datagrams of this length, the last one of what is left (`UDP_SEGMENT`, Linux 4.18).
    pub fn segment_size(&mut self, bytes: u16) -> &mut SendAncillary<'fd> {
        self.add(libc::SOL_UDP, libc::UDP_SEGMENT, &bytes.to_ne_bytes())
    }

    /// Anything else, as the protocol's manual has it.
    ///
    /// # Errors
    ///
    /// `InvalidInput` for `SCM_RIGHTS`: [`fds`](Self::fds) borrows the descriptors that it passes.
    pub fn raw(
        &mut self,
        level: c_int,
        kind: c_int,
        data: &[u8],
    ) -> io::Result<&mut SendAncillary<'fd>> {
        if (level, kind) == (libc::SOL_SOCKET, libc::SCM_RIGHTS) {
            let text = "descriptors are passed by SendAncillary::fds, which borrows them";
            return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
        }
        Ok(self.add(level, kind, data))
    }

    fn add(&mut self, level: c_int, kind: c_int, data: &[u8]) -> &mut SendAncillary<'fd> {
        let len = aligned(HEADER) + data.len();
        self.bytes.extend(len.to_ne_bytes());
        self.bytes.extend(level.to_ne_bytes());
        self.bytes.extend(kind.to_ne_bytes());
        self.bytes.resize(aligned(self.bytes.len()), 0);
        self.bytes.extend(data);
        self.bytes.resize(aligned(self.bytes.len()), 0);
        self
    }

    /// As the kernel takes it. It copies all of it before it looks, so that where it lies does not matter.
    pub(super) fn bytes(&self) -> &[u8] {
        &self.bytes
    }
}
