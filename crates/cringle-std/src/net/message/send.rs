//! Ancillary data to be sent.

use crate::os::unix::net::UCred;
use std::ffi::c_int;
use std::io;
use std::marker::PhantomData;
use std::os::fd::{AsRawFd, BorrowedFd};

/// The number of descriptors that the kernel passes in one message at most (`SCM_MAX_FD`).
pub(in crate::net) const MAX_FDS: usize = 253;

/// The ancillary data of a `sendmsg`: descriptors, credentials and options of the message.
///
/// ```
/// # fn main() -> std::io::Result<()> {
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
///     Ok(())
/// })
/// # }
/// ```
#[derive(Clone, Debug, Default)]
pub struct SendAncillary<'fd> {
    bytes: Vec<u8>,
    fds: PhantomData<BorrowedFd<'fd>>,
}

/// The size of the kernel's `cmsghdr`: the length including this header, the level and the type.
pub(super) const HEADER: usize = size_of::<usize>() + 2 * size_of::<c_int>();

/// Rounds up to the alignment of control messages and of their data.
pub(super) const fn aligned(bytes: usize) -> usize {
    bytes.next_multiple_of(size_of::<usize>())
}

impl<'fd> SendAncillary<'fd> {
    /// Returns empty ancillary data.
    ///
    /// ```
    /// assert!(cringle::net::SendAncillary::new().is_empty());
    /// ```
    pub const fn new() -> SendAncillary<'fd> {
        SendAncillary { bytes: Vec::new(), fds: PhantomData }
    }

    /// Returns whether it is empty.
    ///
    /// ```
    /// assert!(cringle::net::SendAncillary::new().is_empty());
    /// ```
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// Removes all items.
    ///
    /// ```
    /// use cringle::net::SendAncillary;
    ///
    /// let mut ancillary = SendAncillary::new();
    /// ancillary.segment_size(1200);
    /// ancillary.clear();
    /// assert!(ancillary.is_empty());
    /// ```
    pub fn clear(&mut self) {
        self.bytes.clear();
    }

    /// Adds descriptors, of which the receiver gets duplicates (`SCM_RIGHTS`, Unix sockets). A
    /// stream passes them with a byte of data. The kernel accepts one such item per message.
    ///
    /// ```
    /// use std::os::fd::AsFd;
    ///
    /// let file = std::fs::File::open("/proc/self/exe")?;
    /// let mut ancillary = cringle::net::SendAncillary::new();
    /// ancillary.fds(&[file.as_fd()])?;
    /// # std::io::Result::Ok(())
    /// ```
    ///
    /// # Errors
    ///
    /// `InvalidInput` for more than 253 descriptors.
    pub fn fds(&mut self, fds: &[BorrowedFd<'fd>]) -> io::Result<&mut SendAncillary<'fd>> {
        if fds.len() > MAX_FDS {
            let text = format!(
                "{} descriptors cannot be passed in one message: the limit is {MAX_FDS}",
                fds.len()
            );
            return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
        }
        let numbers: Vec<u8> = fds.iter().flat_map(|fd| fd.as_raw_fd().to_ne_bytes()).collect();
        Ok(self.add(libc::SOL_SOCKET, libc::SCM_RIGHTS, &numbers))
    }

    /// Adds the sender's credentials (`SCM_CREDENTIALS`, Unix sockets). The kernel verifies them.
    ///
    /// ```
    /// use cringle::net::SendAncillary;
    /// use cringle::os::unix::net::UnixStream;
    ///
    /// let (ours, _theirs) = UnixStream::pair()?;
    /// let mut ancillary = SendAncillary::new();
    /// ancillary.credentials(ours.peer_cred()?);
    /// # std::io::Result::Ok(())
    /// ```
    pub fn credentials(&mut self, who: UCred) -> &mut SendAncillary<'fd> {
        let UCred { uid, gid, pid } = who;
        let words = [pid.unwrap_or(0).to_ne_bytes(), uid.to_ne_bytes(), gid.to_ne_bytes()];
        self.add(libc::SOL_SOCKET, libc::SCM_CREDENTIALS, words.as_flattened())
    }

    /// Splits the data into datagrams of this length, of which the last may be shorter
    /// (`UDP_SEGMENT`, Linux 4.18).
    ///
    /// ```
    /// use cringle::net::SendAncillary;
    ///
    /// let mut ancillary = SendAncillary::new();
    /// ancillary.segment_size(1200);
    /// ```
    pub fn segment_size(&mut self, bytes: u16) -> &mut SendAncillary<'fd> {
        self.add(libc::SOL_UDP, libc::UDP_SEGMENT, &bytes.to_ne_bytes())
    }

    /// Adds any other item, as the protocol's manual defines it.
    ///
    /// ```
    /// let mut ancillary = cringle::net::SendAncillary::new();
    /// ancillary.raw(libc::SOL_IP, libc::IP_TTL, &64i32.to_ne_bytes())?;
    /// # std::io::Result::Ok(())
    /// ```
    ///
    /// # Errors
    ///
    /// `InvalidInput` for `SCM_RIGHTS`: use [`fds`](Self::fds), which borrows the descriptors.
    pub fn raw(
        &mut self,
        level: c_int,
        kind: c_int,
        data: &[u8],
    ) -> io::Result<&mut SendAncillary<'fd>> {
        if (level, kind) == (libc::SOL_SOCKET, libc::SCM_RIGHTS) {
            let text = "raw ancillary data cannot pass descriptors: use SendAncillary::fds";
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

    /// Returns the control messages in the kernel's format. Their address needs no alignment,
    /// because the kernel copies them before it parses them.
    pub(super) fn bytes(&self) -> &[u8] {
        &self.bytes
    }
}
