//! An open file.
//!
//! # Inline or ring
//!
//! A read that the page cache can answer costs less as a plain call than through the ring, unless
//! it shares its trip to the kernel with others. So a buffered read of a fiber with nobody beside
//! it is tried with `preadv2(RWF_NOWAIT)` first; one of many goes into the turn's batch; a miss
//! always goes to the ring. A fiber that nothing else could run beside is a thread: its calls on
//! files with a place on a disk are the plain ones, hit or miss. After 64 inline
//! reads in a row the others and the kernel get their turn. Writes are tried likewise where the
//! file system knows how not to wait (ext4 does not: there the ring's kernel threads do them).
//!
//! Files of a FUSE file system are read and written by plain calls on threads: a ring may use the wrong offset
//! after a short read or write (see [`sys::FileKind`]).

mod properties;

use super::cursor::Cursor;
use super::write_rest::{rest_of, write_rest};
use super::{Metadata, OpenOptions, fifo, misaligned, slow_device, stat};
use crate::driver::op::AT_CURSOR;
use crate::driver::{Op, Target, blocking};
use crate::fiber::op::{perform, perform_aside, perform_off_ring, perform_to_the_end};
use crate::runtime::fiber::FiberRef;
use crate::runtime::worker::{Here, Worker};
use crate::sys::{self, FileKind, MAX_RW_BYTES, WaitsFor};
use properties::*;
use std::io::{self, IoSlice, IoSliceMut};
use std::ops::Deref;
use std::os::fd::{AsFd, AsRawFd, IntoRawFd, OwnedFd, RawFd};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering, fence};
use std::sync::{Arc, OnceLock};

/// An open file, as `std::fs::File`: `Read`, `Write` and `Seek` for it and for references to it,
/// std's [`FileExt`] for positions. Only the calling fiber waits.
///
/// ```
/// use cringle::fs::File;
/// use std::io::{Read, Write, Seek};
///
/// # let path = std::env::temp_dir().join(format!("cringle-doc-{}", std::process::id()));
/// cringle::run(|| {
///     let mut file = File::create_new(&path)?;
///     file.write_all(b"rope strands")?;
///     file.sync_all()?;
///
///     let mut file = File::open(&path)?;
///     let mut text = String::new();
///     file.read_to_string(&mut text)?;
///     assert_eq!(text, "rope strands");
/// #   std::fs::remove_file(&path)
/// })
/// # ?; Ok::<(), std::io::Error>(())
/// ```
///
/// # The cursor
///
/// `try_clone`s, other processes and other handles may share the cursor with it. Each read, write and seek at
/// the cursor is one step for all of them, as std's is: no byte is read twice or written over. A file whose descriptor
/// was lent ([`AsFd`], [`AsRawFd`]), was turned into another type (`Stdio`, `OwnedFd`, std's `File`) or came from
/// one, uses the kernel's cursor: beside other fibers each such call runs on a thread of the pool (some
/// 10 µs), and a cancel does not end it once it has begun. Calls at an offset ([`FileExt`]) do not depend on that.
///
/// Dropping it closes it at once, as std's does; [`close`](File::close) waits only the fiber, and
/// reports the error.
pub struct File {
    std: std::fs::File,
    /// What is known of it, as bits; 0 until somebody asks.
    properties: AtomicU32,
    cursor: OnceLock<Arc<Cursor>>,
}

impl File {
    /// Opens a file to read.
    ///
    /// # Errors
    ///
    /// As [`OpenOptions::open`].
    pub fn open<P: AsRef<Path>>(path: P) -> io::Result<File> {
        OpenOptions::new().read(true).open(path)
    }

    /// Opens a file to write, made if it is not there and emptied if it is.
    ///
    /// # Errors
    ///
    /// As [`OpenOptions::open`].
    pub fn create<P: AsRef<Path>>(path: P) -> io::Result<File> {
        OpenOptions::new().write(true).create(true).truncate(true).open(path)
    }

    /// Makes a file to read and write; fails if it is there.
    ///
    /// # Errors
    ///
    /// As [`OpenOptions::open`].
    pub fn create_new<P: AsRef<Path>>(path: P) -> io::Result<File> {
        OpenOptions::new().read(true).write(true).create_new(true).open(path)
    }

    /// What can be set before opening.
    pub fn options() -> OpenOptions {
        OpenOptions::new()
    }

    /// A file of which this is known already.
    pub(super) fn known(fd: OwnedFd, kind: FileKind) -> File {
        let file = File::of_std(fd.into());
        let named = if kind.fifo { FIFO } else { 0 };
        file.properties.store(properties_of(file.fd(), kind) | named, Ordering::Relaxed);
        file
    }

    /// Waits until the file's bytes and metadata are on the disk (`fsync`).
    ///
    /// # Errors
    ///
    /// As std's; and [`Cancelled`](crate::Cancelled).
    pub fn sync_all(&self) -> io::Result<()> {
        match self.ring() {
            None => self.std.sync_all().inspect(|()| self.note_synced()),
            Some(_) => self.retry(Op::Sync { fd: self.fd(), data_only: false }).map(drop),
        }
    }

    /// Waits until the file's bytes are on the disk, and what it takes to read them back
    /// (`fdatasync`).
    ///
    /// # Errors
    ///
    /// As std's; and [`Cancelled`](crate::Cancelled).
    pub fn sync_data(&self) -> io::Result<()> {
        match self.ring() {
            None => self.std.sync_data().inspect(|()| self.note_synced()),
            Some(_) => self.retry(Op::Sync { fd: self.fd(), data_only: true }).map(drop),
        }
    }

    /// A plain sync, of a fiber that unwinds, counts in a simulation too.
    fn note_synced(&self) {
        #[cfg(feature = "sim")]
        crate::driver::sim::with_here(|core| core.sync(self.fd()));
    }

    /// Cuts or extends the file. On the ring since Linux 6.9, before on a thread of the pool.
    ///
    /// # Errors
    ///
    /// As std's; and [`Cancelled`](crate::Cancelled).
    pub fn set_len(&self, size: u64) -> io::Result<()> {
        if i64::try_from(size).is_err() {
            // std refuses it before it asks the kernel, and says it best.
            return self.std.set_len(size);
        }
        // SAFETY: the op has no pointers.
        unsafe { super::perform::perform(Op::SetLen { fd: self.fd(), len: size }) }.map(drop)
    }

    /// What is known of the file (`statx`).
    ///
    /// # Errors
    ///
    /// As std's; and [`Cancelled`](crate::Cancelled).
    pub fn metadata(&self) -> io::Result<Metadata> {
        stat::stat_open(&self.std, stat::ALL)
    }

    /// Another handle to the same open file: they share the cursor.
    ///
    /// # Errors
    ///
    /// As std's.
    pub fn try_clone(&self) -> io::Result<File> {
        let file = File::of_std(self.std.try_clone()?);
        let cursor = Arc::clone(self.cursor());
        // Pairs with `lend`: either it finds the cursor, or this finds its mark.
        fence(Ordering::SeqCst);
        let properties = self.properties.load(Ordering::Relaxed);
        if properties & LENT != 0 {
            cursor.lend();
        }
        file.properties.store(properties, Ordering::Relaxed);
        let _ = file.cursor.set(cursor);
        Ok(file)
    }

    /// Notes, for all clones, that handles which the library does not know may share the file's cursor from now
    /// on. Neither waits nor allocates: it may run between `fork` and `exec`.
    #[inline]
    pub(super) fn lend(&self) {
        if self.properties.load(Ordering::Relaxed) & LENT == 0 {
            self.properties.fetch_or(LENT, Ordering::Relaxed);
            fence(Ordering::SeqCst);
        }
        if let Some(cursor) = self.cursor.get() {
            cursor.lend();
        }
    }

    /// Whether a call at the cursor has to be one call of the kernel, because others may share the cursor or
    /// the kernel alone knows how the call moves it. (In a simulation there are no others.)
    #[inline]
    pub(super) fn uses_kernels_cursor(&self) -> bool {
        (self.properties() & ODD_CURSOR != 0 || self.is_lent())
            && !Worker::here().is_some_and(|worker| worker.is_simulated())
    }

    /// Whether handles that the library does not know may share the cursor.
    pub(super) fn is_lent(&self) -> bool {
        let lent = || self.cursor.get().is_some_and(|cursor| cursor.is_lent());
        self.properties.load(Ordering::Relaxed) & LENT != 0 || lent()
    }

    /// What a call at its cursor may wait for.
    pub(super) fn waits_for(&self) -> WaitsFor {
        match self.properties() & (ODD_CURSOR | OFF_RING) {
            0 => WaitsFor::Disk,
            ODD_CURSOR => WaitsFor::Anything,
            _ => WaitsFor::Server,
        }
    }

    /// Closes the file and reports the error, if the kernel has one to report; only the calling
    /// fiber waits. The descriptor is gone in either case.
    ///
    /// # Errors
    ///
    /// What `close` says: of a network file system's last write, say.
    pub fn close(self) -> io::Result<()> {
        let ring = self.ring().filter(|&(worker, fiber)| !worker.refuses(fiber));
        let fd = self.std.into_raw_fd();
        let Some((worker, fiber)) = ring else { return sys::close(fd) };
        match perform_to_the_end(worker, fiber, Op::Close { fd }) {
            // The op was given up before it began. (Any other error comes after the descriptor has
            // gone: to close again might close somebody else's.)
            result if result == -libc::ECANCELED && fiber.is_cancelled() => sys::close(fd),
            result => sys::result_of(result).map(drop),
        }
    }

    // ----- what the other files of this folder use -----

    pub(super) fn of_std(std: std::fs::File) -> File {
        File { std, properties: AtomicU32::new(0), cursor: OnceLock::new() }
    }

    pub(super) fn into_std(self) -> std::fs::File {
        self.std
    }

    pub(super) fn std(&self) -> &std::fs::File {
        &self.std
    }

    /// The descriptor for the library's own calls. (`as_raw_fd` is the program's.)
    pub(crate) fn fd(&self) -> RawFd {
        self.std.as_raw_fd()
    }

    /// How an op names it.
    #[inline]
    pub(crate) fn target(&self) -> Target {
        Target::fd(self.std.as_raw_fd())
    }

    pub(super) fn cursor(&self) -> &Arc<Cursor> {
        self.cursor.get_or_init(Arc::default)
    }

    #[inline]
    fn properties(&self) -> u32 {
        match self.properties.load(Ordering::Relaxed) {
            properties if properties & KNOWN != 0 => properties,
            _ => self.learn_properties(),
        }
    }

    #[cold]
    fn learn_properties(&self) -> u32 {
        let properties = properties_of(self.fd(), sys::file_kind(self.fd()));
        self.properties.fetch_or(properties, Ordering::Relaxed) | properties
    }

    pub(super) fn is_seekable(&self) -> bool {
        self.properties() & SEEKABLE != 0
    }

    pub(super) fn appends(&self) -> bool {
        self.properties() & APPEND != 0
    }

    /// Whether it is written to at its cursor, if at all.
    pub(super) fn takes_no_pwrite(&self) -> bool {
        self.properties() & NO_PWRITE != 0
    }

    /// Whether it has no positions: the ring would read on where `pread` is refused.
    #[inline]
    fn is_stream(&self) -> bool {
        self.properties() & STREAM != 0
    }

    /// Whether a ring would read and write it at the wrong offsets.
    #[inline]
    pub(crate) fn is_off_ring(&self) -> bool {
        self.properties() & OFF_RING != 0
    }

    /// Whether a batch may read it as any other file.
    #[inline]
    pub(crate) fn is_batchable_to_read(&self) -> bool {
        self.properties() & (STREAM | UNREADABLE | OFF_RING) == 0
    }

    /// Whether a batch may write to it as to any other file.
    #[inline]
    pub(crate) fn is_batchable_to_write(&self) -> bool {
        self.properties() & (STREAM | UNWRITABLE | NO_PWRITE | OFF_RING) == 0
    }

    /// The error of each `pread`, whatever it asks for.
    pub(crate) fn refuses_read_at(&self) -> Option<i32> {
        match self.properties() & (STREAM | UNREADABLE) {
            0 => None,
            _ => self.std.read_at(&mut [], 0).err().and_then(|e| e.raw_os_error()),
        }
    }

    /// The error of each `pwrite`, whatever it asks for.
    pub(crate) fn refuses_write_at(&self) -> Option<i32> {
        match self.properties() & (STREAM | UNWRITABLE | NO_PWRITE) {
            0 => None,
            _ => self.std.write_at(&[], 0).err().and_then(|e| e.raw_os_error()),
        }
    }

    /// Refuses what `pread` and `pwrite` refuse: an offset beyond the kernel's range (the largest
    /// would mean "at the cursor" to the ring, **I11**), or any offset in a stream.
    #[inline]
    fn check_offset(&self, offset: u64) -> io::Result<()> {
        if i64::try_from(offset).is_err() {
            return Err(io::Error::from_raw_os_error(libc::EINVAL));
        }
        if self.is_stream() {
            return Err(io::Error::from_raw_os_error(libc::ESPIPE));
        }
        Ok(())
    }

    /// The worker and fiber to use the ring with. `None`: the plain call is the right one, because
    /// there is no fiber; or because it unwinds and the file is one that waits for no peer (I8); or
    /// because nothing else could run meanwhile.
    #[inline]
    fn ring(&self) -> Option<(Here, FiberRef)> {
        let (worker, fiber) = Worker::current()?;
        if std::thread::panicking()
            && worker.is_unwinding(fiber)
            && self.properties() & REGULAR != 0
        {
            return None;
        }
        if worker.is_solitary(fiber)
            && self.properties() & SEEKABLE != 0
            && self.spends(worker, fiber)
        {
            return None;
        }
        Some((worker, fiber))
    }

    /// Takes one from the budget of plain calls of a solitary fiber; when it is used up, lets the
    /// worker look first.
    #[inline]
    fn spends(&self, worker: Here, fiber: FiberRef) -> bool {
        if !fiber.spend_inline() {
            worker.refresh_budget(fiber);
            if !worker.is_solitary(fiber) {
                return false;
            }
        }
        worker.events().tried_inline(true);
        true
    }

    pub(super) fn is_plain(&self) -> bool {
        self.ring().is_none()
    }

    /// An op that std's counterpart retries when a signal interrupts it.
    fn retry(&self, op: Op) -> io::Result<usize> {
        let (worker, fiber) = Worker::current().expect("asked before");
        loop {
            match perform(worker, fiber, op) {
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                result => return result,
            }
        }
    }

    /// A transfer through the ring. Rare ways are functions of their own with an op of their own, so
    /// that on the frequent one it need not exist in memory.
    #[inline(always)]
    fn transfer(&self, worker: Here, fiber: FiberRef, op: impl Fn() -> Op) -> io::Result<usize> {
        if self.properties() & (REGULAR | OFF_RING) != REGULAR {
            return self.transfer_irregular(worker, fiber, op());
        }
        if let Op::Write { len: 0, .. } = op() {
            // The ring would not ask the file, and one of `/proc` or `/sys` may refuse it.
            return Self::transfer_aside(op());
        }
        match perform(worker, fiber, op()) {
            Err(e) if e.raw_os_error() == Some(libc::EAGAIN) => Self::transfer_aside(op()),
            result => result,
        }
    }

    #[cold]
    #[inline(never)]
    fn transfer_irregular(&self, worker: Here, fiber: FiberRef, op: Op) -> io::Result<usize> {
        // What asks for nothing does not wait, and the ring would not even ask: of a directory it
        // reads nothing without an error. (A device that is not ready may wait all the same.)
        let nothing = match op {
            Op::Read { len: 0, .. } => self.properties() & ODD == 0 || self.is_readable(),
            Op::Write { len: 0, .. } => self.properties() & REGULAR == 0,
            _ => false,
        };
        let refused = match op {
            Op::Read { .. } | Op::ReadVectored { .. } => UNREADABLE,
            _ => UNWRITABLE,
        };
        let is_plain = self.properties() & refused != 0
            || self.properties() & REGULAR == 0 && self.is_nonblocking();
        if nothing || is_plain {
            // SAFETY: the caller's buffers are borrowed until this returns.
            return sys::result_of(unsafe { blocking::perform(&op) });
        }
        if self.is_off_ring() && worker.driver().borrow().is_ring() {
            if worker.refuses(fiber) {
                return Err(fiber.cancel_error());
            }
            // SAFETY: as above.
            return sys::result_of(unsafe { perform_off_ring(worker, op) });
        }
        if self.properties() & SLOW_DEVICE != 0 {
            // SAFETY: as above.
            return unsafe { slow_device::perform(worker, fiber, &self.std, op) };
        }
        perform(worker, fiber, op)
    }

    /// `readv` and `writev` of no bytes do not reach the file: they never wait, where a ring might.
    #[cold]
    fn transfer_of_nothing(&self, worker: Here, fiber: FiberRef, op: Op) -> io::Result<usize> {
        if worker.refuses(fiber) {
            return Err(fiber.cancel_error());
        }
        // SAFETY: the caller's buffers are borrowed until this returns.
        sys::result_of(unsafe { blocking::perform(&op) })
    }

    /// For a regular file that answers `EAGAIN` (XFS may).
    #[cold]
    #[inline(never)]
    fn transfer_aside(op: Op) -> io::Result<usize> {
        // SAFETY: the caller's buffers are borrowed until this returns.
        sys::result_of(unsafe { perform_aside(op) })
    }

    /// Whether the file is one that says `EAGAIN` rather than wait *now*: others may have changed
    /// that, whose file it is too. The ring would wait all the same.
    fn is_nonblocking(&self) -> bool {
        sys::status_flags(self.fd()) & libc::O_NONBLOCK != 0
    }

    fn is_readable(&self) -> bool {
        sys::poll_now(self.std.as_fd(), libc::POLLIN).is_ok_and(|events| events != 0)
    }

    /// Whether a call that does not wait is worth a try now.
    #[inline]
    fn tries_inline(&self, worker: Here, fiber: FiberRef, never: u32) -> bool {
        let properties = self.properties();
        if properties & (REGULAR | DIRECT | never) != REGULAR || !worker.is_alone() {
            return false;
        }
        if fiber.spend_inline() {
            return true;
        }
        worker.refresh_budget(fiber);
        worker.is_alone()
    }

    /// Bytes that came without waiting, if it was worth a try; an error that the ring would give
    /// too is left to the ring. At `offset` −1 it reads at the cursor and moves it.
    #[inline]
    fn read_inline(&self, worker: Here, fiber: FiberRef, buf: &mut [u8], offset: i64) -> Inline {
        if !self.tries_inline(worker, fiber, NO_INLINE_READ) {
            return Inline::Rest(0);
        }
        let mut done = 0;
        loop {
            let at = if offset < 0 { offset } else { offset + done as i64 };
            match sys::read_nowait(self.fd(), &mut buf[done..], at) {
                // The end of the file, or nothing was asked for.
                0 => {
                    worker.events().tried_inline(true);
                    return Inline::All(done);
                }
                count if count > 0 => done += count as usize,
                error => {
                    if error == -libc::EOPNOTSUPP {
                        self.properties.fetch_or(NO_INLINE_READ, Ordering::Relaxed);
                    }
                    worker.events().tried_inline(false);
                    return Inline::Rest(done);
                }
            }
            if done == buf.len() {
                worker.events().tried_inline(true);
                return Inline::All(done);
            }
        }
    }

    #[inline]
    fn write_inline(
        &self,
        worker: Here,
        fiber: FiberRef,
        buf: &[u8],
        offset: i64,
    ) -> Option<usize> {
        // Of nothing the call would not ask the file, which may refuse it.
        if buf.is_empty() || !self.tries_inline(worker, fiber, NO_INLINE_WRITE) {
            return None;
        }
        let result = sys::write_nowait(self.fd(), buf, offset);
        if result == -libc::EOPNOTSUPP {
            self.properties.fetch_or(NO_INLINE_WRITE, Ordering::Relaxed);
        }
        worker.events().tried_inline(result >= 0);
        (result >= 0).then_some(result as usize)
    }

    /// What of a read at the cursor the page cache answers; the lock is held.
    pub(super) fn read_cached_at_cursor(&self, buf: &mut [u8]) -> io::Result<Inline> {
        let Some((worker, fiber)) = self.ring() else { return Ok(Inline::Rest(0)) };
        if worker.refuses(fiber) {
            return Err(fiber.cancel_error());
        }
        Ok(self.read_inline(worker, fiber, buf, -1))
    }

    /// A read through the ring where there is one, with no thought of the page cache.
    pub(super) fn read_through(&self, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        let Some((worker, fiber)) = self.ring() else {
            return match offset {
                AT_CURSOR => io::Read::read(&mut &self.std, buf),
                _ => self.std.read_at(buf, offset),
            };
        };
        let (start, len) = (buf.as_mut_ptr(), buf.len().min(MAX_RW_BYTES) as u32);
        let op = || Op::Read { target: self.target(), buf: start, len, offset };
        self.read_of_any_kind(worker, fiber, op)
    }

    fn read_of_any_kind(
        &self,
        worker: Here,
        fiber: FiberRef,
        op: impl Fn() -> Op,
    ) -> io::Result<usize> {
        match self.properties() & FIFO {
            FIFO if !worker.is_simulated() => {
                fifo::read_to_its_end(fiber, self, || self.transfer(worker, fiber, &op))
            }
            _ => self.transfer(worker, fiber, op),
        }
    }

    pub(super) fn write_through(&self, buf: &[u8], offset: u64) -> io::Result<usize> {
        let Some((worker, fiber)) = self.ring() else {
            return match offset {
                AT_CURSOR => io::Write::write(&mut &self.std, buf),
                _ => self.std.write_at(buf, offset),
            };
        };
        let write = |buf: &[u8]| {
            let (buf, len) = (buf.as_ptr(), buf.len().min(MAX_RW_BYTES) as u32);
            self.transfer(worker, fiber, || Op::Write { target: self.target(), buf, len, offset })
        };
        let done = write(buf)?;
        match self.stopped_short(done, buf.len()) {
            true => write_rest(done, buf.len(), |done| write(&buf[done..])),
            false => Ok(done),
        }
    }

    /// Whether a write must go on: a ring writes to a pipe or a socket what there is room for, where the
    /// plain call waits until all is written.
    #[inline]
    fn stopped_short(&self, done: usize, len: usize) -> bool {
        done < len.min(MAX_RW_BYTES)
            && done > 0
            && self.properties() & WRITES_ALL != 0
            && !self.is_nonblocking()
    }

    pub(super) fn read_vectored_through(
        &self,
        bufs: &mut [IoSliceMut<'_>],
        offset: u64,
    ) -> io::Result<usize> {
        let Some((worker, fiber)) = self.ring() else {
            return match offset {
                AT_CURSOR => io::Read::read_vectored(&mut &self.std, bufs),
                _ => sys::preadv(self.fd(), bufs, offset),
            };
        };
        // `IoSliceMut` is guaranteed to have the layout of `iovec`.
        let (slices, count) = (bufs.as_ptr().cast(), slice_count(bufs.len()));
        let op = || Op::ReadVectored { fd: self.fd(), slices, count, offset };
        if bufs.iter().all(|buf| buf.is_empty()) {
            return self.transfer_of_nothing(worker, fiber, op());
        }
        self.read_of_any_kind(worker, fiber, op)
    }

    pub(super) fn write_vectored_through(
        &self,
        bufs: &[IoSlice<'_>],
        offset: u64,
    ) -> io::Result<usize> {
        let Some((worker, fiber)) = self.ring() else {
            return match offset {
                AT_CURSOR => io::Write::write_vectored(&mut &self.std, bufs),
                _ => sys::pwritev(self.fd(), bufs, offset),
            };
        };
        let bufs = &bufs[..bufs.len().min(sys::MAX_SLICES)];
        let len = bufs.iter().map(|buf| buf.len()).sum();
        let write = |bufs: &[IoSlice<'_>]| {
            let (slices, count) = (bufs.as_ptr().cast(), slice_count(bufs.len()));
            self.transfer(worker, fiber, || Op::WriteVectored {
                fd: self.fd(),
                slices,
                count,
                offset,
            })
        };
        if len == 0 {
            let (slices, count) = (bufs.as_ptr().cast(), slice_count(bufs.len()));
            let op = Op::WriteVectored { fd: self.fd(), slices, count, offset };
            return self.transfer_of_nothing(worker, fiber, op);
        }
        let done = write(bufs)?;
        match self.stopped_short(done, len) {
            true => write_rest(done, len, |done| write(&rest_of(bufs, done))),
            false => Ok(done),
        }
    }

    /// Reads into several buffers from an offset; the cursor stays.
    ///
    /// # Errors
    ///
    /// As [`read_at`](FileExt::read_at).
    pub fn read_vectored_at(&self, bufs: &mut [IoSliceMut<'_>], offset: u64) -> io::Result<usize> {
        self.check_offset(offset)?;
        self.read_vectored_through(bufs, offset).map_err(|e| self.explain(bufs, offset, e))
    }

    /// Writes several buffers at an offset; the cursor stays.
    ///
    /// # Errors
    ///
    /// As [`write_at`](FileExt::write_at).
    pub fn write_vectored_at(&self, bufs: &[IoSlice<'_>], offset: u64) -> io::Result<usize> {
        self.check_offset(offset)?;
        if self.takes_no_pwrite() {
            return sys::pwritev(self.fd(), bufs, offset);
        }
        self.write_vectored_through(bufs, offset).map_err(|e| self.explain(bufs, offset, e))
    }

    /// Why the kernel refused to read or write these buffers, where it is direct I/O's rules.
    #[cold]
    pub(super) fn explain<S: Deref<Target = [u8]>>(
        &self,
        bufs: &[S],
        offset: u64,
        e: io::Error,
    ) -> io::Error {
        misaligned::explain(self.fd(), bufs, offset, e)
    }
}

fn slice_count(len: usize) -> u32 {
    len.min(sys::MAX_SLICES) as u32
}

/// How far a read came that does not wait.
pub(super) enum Inline {
    /// All that was asked for, or the end of the file is there.
    All(usize),
    /// What comes after these bytes would wait.
    Rest(usize),
}

/// As std's, whose trait it is: short counts as they are, the cursor stays.
impl FileExt for File {
    #[inline]
    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        let Some((worker, fiber)) = self.ring() else {
            return self.std.read_at(buf, offset).map_err(|e| self.explain(&[&*buf], offset, e));
        };
        self.check_offset(offset)?;
        if worker.refuses(fiber) {
            return Err(fiber.cancel_error());
        }
        if buf.is_empty() {
            // The ring would not ask the file, and one of `/proc` may refuse the offset.
            return self.std.read_at(buf, offset);
        }
        let most = buf.len().min(MAX_RW_BYTES);
        let done = match self.read_inline(worker, fiber, &mut buf[..most], offset as i64) {
            Inline::All(count) => return Ok(count),
            Inline::Rest(done) => done,
        };
        let rest = &mut buf[done..most];
        let (target, buf_start, len) = (self.target(), rest.as_mut_ptr(), rest.len() as u32);
        let from = offset + done as u64;
        let op = || Op::Read { target, buf: buf_start, len, offset: from };
        match self.transfer(worker, fiber, op) {
            Ok(count) => Ok(done + count),
            // What was read counts; the error comes again with the next read.
            Err(_) if done > 0 => Ok(done),
            Err(e) => Err(self.explain(&[&*buf], offset, e)),
        }
    }

    #[inline]
    fn write_at(&self, buf: &[u8], offset: u64) -> io::Result<usize> {
        let Some((worker, fiber)) = self.ring().filter(|_| !self.takes_no_pwrite()) else {
            return self.std.write_at(buf, offset).map_err(|e| self.explain(&[&*buf], offset, e));
        };
        self.check_offset(offset)?;
        if worker.refuses(fiber) {
            return Err(fiber.cancel_error());
        }
        if let Some(count) = self.write_inline(worker, fiber, buf, offset as i64) {
            return Ok(count);
        }
        self.write_through(buf, offset).map_err(|e| self.explain(&[&*buf], offset, e))
    }
}
