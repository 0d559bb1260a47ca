//! Files whose resident pages are copied without a system call.
//!
//! [`MappedFile`] owns the file and its mapping. A read whose pages are known to be in memory
//! ([`residency`]) is copied by [`sys::mapped_copy`], and any other read is the driver's.
//! [`MappedFile::copy`] has the rules of both calls, `read_at` and a batch ([`batch`]):
//!
//! - Only whole pages within the file are copied, so the mapping shows what a read would return.
//! - The file may become shorter at any time. A copy from a page beyond its end raises SIGBUS and
//!   ends short (**I16**). In the page that has the new end, the kernel sets the rest to 0. So a
//!   copy whose last byte is 0 counts only if the file still reaches that far, as `fstat` reports
//!   after the copy. If the copy's last byte is not 0, the file reached that far when it was made.
//!   (Unless a process stores bytes beyond the end of the file through a mapping of its own. The
//!   last page of a file is not copied because of them; after a truncation they show until the next
//!   look.)
//! - If any part of a read cannot be copied, the driver performs the whole read. So its result is
//!   `EFAULT` if the caller's memory is the mapping of a file that became shorter.

mod batch;
mod residency;
mod sigbus_handler;
mod unmapped;

pub use sigbus_handler::SigbusHandler;
pub use unmapped::Unmapped;

use cringle_core as runtime;
use cringle_core::worker::{Current, Here};
use cringle_std::fs::File;
use cringle_std::internal::{InternalFile, unblock_or_here};
use cringle_sys::mapping::Mapping;
use cringle_sys::{self as sys, MAX_RW_BYTES, mapped_copy};
use residency::{Look, Residency, SLICE};
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

/// The number of bytes that are copied in one step, for which the fiber spends one inline call.
const STEP_BYTES: u64 = 1 << 16;
/// The longest time that a thread without a worker looks at pages before its own read.
const THREADS_SLICE: Duration = Duration::from_millis(1);

/// A file that is mapped into memory, whose reads copy resident pages without a system call.
///
/// A read of pages that are in memory is a copy from the mapping. Any other read goes to the ring,
/// as a read of a [`File`], and a batch sends all of them together. So a file that fits the page
/// cache is read as fast as by a mapping, and a page that is not in memory makes only the fiber
/// wait, not its worker.
///
/// Results are as of [`File`]: counts, short reads at the end, errors. [`FileExt`] reads and writes
/// at an offset; [`Batch::read_mapped`](super::Batch::read_mapped) adds reads to a batch.
///
/// ```
/// # fn main() -> std::io::Result<()> {
/// use cringle::block::{Batch, MappedFile, SigbusHandler};
/// use cringle::fs::File;
/// use std::os::unix::fs::FileExt;
///
/// let handler = SigbusHandler::install()?;
/// cringle::run(|| {
///     let program = MappedFile::new(File::open("/proc/self/exe")?, handler)?;
///     let (mut magic, mut page) = ([0; 4], [0; 4096]);
///     program.read_exact_at(&mut magic, 0)?;
///     assert_eq!(&magic, b"\x7fELF");
///
///     let mut batch = Batch::new();
///     let read = batch.read_mapped(&program, &mut page, 4096);
///     assert_eq!(batch.submit().get(read)?, 4096);
///     Ok(())
/// })
/// # }
/// ```
///
/// # Which pages are copied
///
/// Two threads look from time to time which pages of all mapped files are in memory, and enter them
/// into the page table of the process: while a file is read, every 100 ms, or as rarely as keeps
/// the looks below 2 % of a processor. Pages that come into memory are copied after the next look.
/// (A page in the page table counts in the process's resident size, and is not dropped by
/// `POSIX_FADV_DONTNEED` or `drop_caches`.)
///
/// If memory runs short, the kernel may evict a page after the look. A copy from it is a page
/// fault, during which the worker waits for the disk, as every program does that maps files. A look
/// is used for twice the time between looks: for 200 ms, or 100 times the processor time of a look
/// if that is more (a few milliseconds for a file of some GiB in memory).
///
/// These go to the ring: reads beyond the size that the file had when it was opened, and reads of
/// the last page of a file if it is not a whole one. [`unmapped`](MappedFile::unmapped) returns why
/// no page of a file is copied.
///
/// # Other processes
///
/// The file may be written, truncated and extended meanwhile, also by other processes: a read
/// returns what `read_at` returns. A read that coincides with a change may see a part of it, as one
/// by the ring may. A page that is truncated, or that the disk cannot read, raises SIGBUS during
/// the copy; see [`SigbusHandler`]. In a child of `fork`, reads go to the driver.
///
/// # Dropping
///
/// Dropped on a fiber, the file is unmapped and closed by one of these threads, soon after: until
/// then its locks last, and its file system is in use. Dropped elsewhere, it is unmapped and closed
/// by the calling thread.
pub struct MappedFile {
    /// `None` only while it is dropped.
    inner: Option<Arc<Inner>>,
}

struct Inner {
    file: File,
    residency: Result<Residency, Unmapped>,
    /// The kernel has stopped to report which pages are in memory.
    is_unreported: AtomicBool,
    /// The handle is dropped: a look ends early.
    is_dropped: AtomicBool,
    /// The process that made the mapping.
    process: u32,
}

/// How a copy has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Copied {
    /// The driver must read it.
    No,
    /// The range was within the file.
    Whole,
    /// The range was within the file if the file still reaches its end.
    IfWithinFile,
}

impl MappedFile {
    /// Maps a regular file that is open for reading. The [proof](SigbusHandler) shows that the
    /// program agrees to a SIGBUS handler. Does not wait for the disk.
    ///
    /// If the file cannot be mapped, its reads go to the driver: see
    /// [`unmapped`](MappedFile::unmapped).
    ///
    /// ```
    /// use cringle::block::{MappedFile, SigbusHandler};
    /// use cringle::fs::File;
    ///
    /// let program = MappedFile::new(File::open("/proc/self/exe")?, SigbusHandler::install()?)?;
    /// # std::io::Result::Ok(())
    /// ```
    ///
    /// # Errors
    ///
    /// `InvalidInput` if the file is not a regular one, is not open for reading, or is opened with
    /// `O_DIRECT`; `Unsupported` if the program has removed the handler.
    pub fn new(file: File, handler: SigbusHandler) -> io::Result<MappedFile> {
        let SigbusHandler { .. } = handler;
        check(&file)?;
        let residency = map(&file);
        let (is_unreported, is_dropped) = (AtomicBool::new(false), AtomicBool::new(false));
        let process = std::process::id();
        let inner = Inner { file, residency, is_unreported, is_dropped, process };
        Ok(MappedFile { inner: Some(Arc::new(inner)) })
    }

    /// Returns the file, for calls that are not reads at an offset.
    ///
    /// ```
    /// use cringle::block::{MappedFile, SigbusHandler};
    /// use cringle::fs::File;
    ///
    /// let program = MappedFile::new(File::open("/proc/self/exe")?, SigbusHandler::install()?)?;
    /// assert!(program.file().metadata()?.len() > 0);
    /// # std::io::Result::Ok(())
    /// ```
    pub fn file(&self) -> &File {
        &self.inner().file
    }

    /// Returns why all reads go to the driver, or `None` if reads of resident pages are copied.
    ///
    /// ```
    /// use cringle::block::{MappedFile, SigbusHandler};
    /// use cringle::fs::File;
    ///
    /// let program = MappedFile::new(File::open("/proc/self/exe")?, SigbusHandler::install()?)?;
    /// if let Some(reason) = program.unmapped() {
    ///     println!("each read is an operation of the ring: {reason}");
    /// }
    /// # std::io::Result::Ok(())
    /// ```
    pub fn unmapped(&self) -> Option<Unmapped> {
        let inner = self.inner();
        match &inner.residency {
            Err(reason) => Some(*reason),
            Ok(_) if inner.is_unreported.load(Relaxed) => Some(Unmapped::Permission),
            Ok(_) => None,
        }
    }

    /// Returns the number of bytes that are copied if they are read now.
    ///
    /// ```
    /// use cringle::block::{MappedFile, SigbusHandler};
    /// use cringle::fs::File;
    ///
    /// let program = MappedFile::new(File::open("/proc/self/exe")?, SigbusHandler::install()?)?;
    /// assert!(program.resident_bytes() <= program.file().metadata()?.len());
    /// # std::io::Result::Ok(())
    /// ```
    pub fn resident_bytes(&self) -> u64 {
        let residency = self.inner().residency.as_ref();
        residency.map_or(0, |residency| residency.resident_bytes(sys::coarse_ns()))
    }

    /// Looks now which pages are in memory, at all of the file. Only the calling fiber waits. After
    /// a program has read a file in advance, its next reads need not wait for the next look.
    /// May suspend the calling fiber.
    ///
    /// ```
    /// use cringle::block::{MappedFile, SigbusHandler};
    /// use cringle::fs::File;
    ///
    /// let program = MappedFile::new(File::open("/proc/self/exe")?, SigbusHandler::install()?)?;
    /// program.refresh();
    /// println!("{} bytes are in memory", program.resident_bytes());
    /// # std::io::Result::Ok(())
    /// ```
    ///
    /// # Cancellation
    ///
    /// A cancel does not interrupt it.
    pub fn refresh(&self) {
        let inner = self.inner();
        if let Ok(residency) = &inner.residency {
            unblock_or_here(|| {
                if inner.is_forked() {
                    return residency.forget();
                }
                inner.note(residency.look_at_all(inner.file.fd()));
            });
        }
    }

    fn inner(&self) -> &Arc<Inner> {
        self.inner.as_ref().expect("taken only when it is dropped")
    }

    /// Starts a look if one is due: on the pool of mapped files, or, without a worker, at once.
    #[inline]
    fn look_if_due(&self, worker: Option<Here>, now: u64) {
        if let Ok(residency) = &self.inner().residency
            && residency.is_due(now)
        {
            self.start_look(worker);
        }
    }

    #[cold]
    fn start_look(&self, worker: Option<Here>) {
        let Some(worker) = worker else { return self.inner().look(THREADS_SLICE) };
        let inner = Arc::clone(self.inner());
        // Without a thread there is no look, and the reads go to the ring.
        let _ = worker.shared().map_pool.run(Box::new(move || inner.look(SLICE)));
    }

    /// Copies a range of the file, if all of its pages are in memory. After each step it calls
    /// `pause`, which returns the time.
    ///
    /// # Safety
    ///
    /// `to` is valid for a write of `len` bytes, or is a writable mapping of a file.
    #[inline]
    unsafe fn copy(
        &self,
        to: *mut u8,
        len: usize,
        offset: u64,
        mut now: u64,
        mut pause: impl FnMut() -> u64,
    ) -> Copied {
        let (Ok(residency), Some(end)) =
            (&self.inner().residency, offset.checked_add(len as u64).filter(|_| len > 0))
        else {
            return Copied::No;
        };
        let mut start = offset;
        while start < end {
            let step = start..end.min(start + STEP_BYTES);
            let to = to.wrapping_add((start - offset) as usize);
            // SAFETY: by the contract: the step is a part of the range.
            if !residency.has(&step, now) || !unsafe { residency.copy(step.clone(), to) } {
                return Copied::No;
            }
            start = step.end;
            now = pause();
        }
        // SAFETY: by the contract; all bytes were copied.
        match unsafe { mapped_copy::load(to.wrapping_add(len - 1)) } {
            None => Copied::No,
            Some(0) => Copied::IfWithinFile,
            Some(_) => Copied::Whole,
        }
    }

    /// Prepares a copy from an offset, which is made soon.
    #[inline]
    fn prefetch(&self, offset: u64, now: u64) {
        if let Ok(residency) = &self.inner().residency {
            residency.prefetch(offset, now);
        }
    }

    /// Returns the size of the file now.
    #[inline]
    fn size(&self) -> u64 {
        sys::fstat(self.inner().file.fd()).map_or(0, |stat| stat.st_size as u64)
    }

    /// Copies a whole read. Returns `false` if the driver must perform it.
    #[inline]
    fn read_resident(&self, here: Option<Current>, buf: &mut [u8], offset: u64) -> bool {
        let (now, len) = (sys::coarse_ns(), buf.len().min(MAX_RW_BYTES));
        self.look_if_due(here.map(|current| current.worker), now);
        let pause = || here.map_or(now, |current| pause(current, now));
        // SAFETY: I16. The buffer is borrowed until this returns, also while the fiber yields.
        match unsafe { self.copy(buf.as_mut_ptr(), len, offset, now, pause) } {
            Copied::No => false,
            Copied::Whole => true,
            Copied::IfWithinFile => offset + len as u64 <= self.size(),
        }
    }
}

/// Spends an inline call of the fiber, which may yield. Returns the time.
#[inline]
fn pause(current: Current, now: u64) -> u64 {
    if current.fiber.spend_inline() {
        return now;
    }
    current.refresh_budget();
    sys::coarse_ns()
}

/// Returns the worker whose fiber may copy: not one of a simulation, whose faults would not reach a
/// copy, and no fiber that unwinds (**I8**).
fn copying(current: Option<Current>) -> Result<Option<Current>, NoCopy> {
    match current {
        Some(current) if !current.worker.may_bypass() || current.is_unwinding() => Err(NoCopy),
        current => Ok(current),
    }
}

struct NoCopy;

/// Short counts are returned as they are, and the cursor does not move. A write goes to the
/// [`File`].
impl FileExt for MappedFile {
    #[inline]
    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        let current = Current::get();
        if let Some(current) = current
            && current.refuses()
        {
            return Err(current.fiber.cancel_error());
        }
        if let Ok(here) = copying(current)
            && self.read_resident(here, buf, offset)
        {
            if let Some(Current { worker, .. }) = here {
                worker.events().copied_mapped();
            }
            return Ok(buf.len().min(MAX_RW_BYTES));
        }
        self.file().read_at(buf, offset)
    }

    fn write_at(&self, buf: &[u8], offset: u64) -> io::Result<usize> {
        self.file().write_at(buf, offset)
    }
}

impl std::fmt::Debug for MappedFile {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut debug = f.debug_struct("MappedFile");
        debug.field("file", self.file()).field("unmapped", &self.unmapped());
        debug.field("resident_bytes", &self.resident_bytes()).finish()
    }
}

impl Drop for MappedFile {
    fn drop(&mut self) {
        let inner = self.inner.take().expect("dropped once");
        inner.is_dropped.store(true, Relaxed);
        // It takes milliseconds to unmap some GiB.
        if let Some(Current { worker, .. }) = Current::get().filter(|_| inner.residency.is_ok()) {
            let pool = &worker.shared().map_pool;
            if let Err((_, unmap)) = pool.run(Box::new(move || drop(inner))) {
                unmap();
            }
        }
    }
}

impl Inner {
    fn is_forked(&self) -> bool {
        std::process::id() != self.process
    }

    fn look(&self, limit: Duration) {
        let Ok(residency) = &self.residency else { return };
        if self.is_forked() {
            residency.forget();
        } else {
            let is_dropped = || self.is_dropped.load(Relaxed);
            self.note(residency.look(self.file.fd(), limit, is_dropped));
        }
    }

    fn note(&self, look: Look) {
        self.is_unreported.store(look == Look::Unreported, Relaxed);
    }
}

/// Refuses a file for which a mapping is a mistake.
fn check(file: &File) -> io::Result<()> {
    let flags = sys::status_flags(file.fd());
    let error = |kind, text: &str| Err(io::Error::new(kind, format!("MappedFile::new: {text}")));
    let invalid = |text| error(io::ErrorKind::InvalidInput, text);
    if sys::mode(file.fd()) & libc::S_IFMT != libc::S_IFREG {
        invalid("only a regular file can be mapped: use its File")
    } else if flags & libc::O_ACCMODE == libc::O_WRONLY {
        invalid("the file is open for writing only: open it for reading, too")
    } else if flags & libc::O_DIRECT != 0 {
        invalid("O_DIRECT bypasses the page cache, from which a mapping is read: open it without")
    } else if !mapped_copy::has_handler() {
        let text = "SIGBUS has no handler any more: the program must not remove the one of \
                    SigbusHandler";
        error(io::ErrorKind::Unsupported, text)
    } else {
        Ok(())
    }
}

fn map(file: &File) -> Result<Residency, Unmapped> {
    if !runtime::may_bypass() {
        return Err(Unmapped::Simulation);
    }
    if !mapped_copy::IS_SUPPORTED {
        return Err(Unmapped::Architecture);
    }
    if !file.is_on_local_storage() {
        return Err(Unmapped::FileSystem);
    }
    let size = sys::fstat(file.fd()).map_or(0, |stat| stat.st_size as u64);
    if size == 0 {
        return Err(Unmapped::Empty);
    }
    if !residency::is_reported(file.fd(), size) {
        return Err(Unmapped::Permission);
    }
    match Mapping::new(file.fd(), size as usize, 0) {
        Ok(mapping) => Ok(Residency::new(mapping)),
        Err(e) if e.raw_os_error() == Some(libc::ENODEV) => Err(Unmapped::FileSystem),
        Err(e) => Err(Unmapped::Refused(e.raw_os_error().unwrap_or_default())),
    }
}
