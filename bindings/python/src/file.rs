//! Open files.

use crate::fork::Born;
use crate::memory::Owner;
use crate::{engine, errors};
use cringle::block::MappedFile;
use cringle::fs;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::fs::FileTypeExt;
use std::sync::{Arc, Mutex, PoisonError};

/// A file that its handle and the jobs that use it share.
pub(crate) struct Opened {
    kind: Kind,
    /// `None` only while it is dropped.
    name: Option<Py<PyAny>>,
    pub(crate) is_direct: bool,
    /// Whether a read that need not wait may be tried on the calling thread.
    pub(crate) is_cached: bool,
    /// Whether the library serialises writes of the file.
    is_serialised: bool,
    born: Born,
}

enum Kind {
    Plain(fs::File),
    Mapped(MappedFile),
}

impl Opened {
    pub(crate) fn plain(file: fs::File, name: Py<PyAny>) -> Opened {
        let fd = file.as_fd().as_raw_fd();
        // SAFETY: the contract of `fcntl`: it has none for this command.
        let flags = unsafe { libc::fcntl(fd, libc::F_GETFL) };
        let is_direct = flags & libc::O_DIRECT != 0;
        let is_serialised = flags & (libc::O_DIRECT | libc::O_DSYNC) != 0;
        let is_regular = file.metadata().is_ok_and(|metadata| metadata.is_file());
        let (kind, name, is_cached) = (Kind::Plain(file), Some(name), is_regular && !is_direct);
        Opened { kind, name, is_direct, is_cached, is_serialised, born: Born::here() }
    }

    pub(crate) fn of_mapped(file: MappedFile, name: Py<PyAny>) -> Opened {
        let (kind, name) = (Kind::Mapped(file), Some(name));
        let (is_direct, is_cached, is_serialised) = (false, false, false);
        Opened { kind, name, is_direct, is_cached, is_serialised, born: Born::here() }
    }

    /// Refuses a write that could wait for ever: in a child of `fork`, the lock of the file may be
    /// held by a thread of the parent (**P4**).
    pub(crate) fn check_write(&self) -> PyResult<()> {
        if self.is_serialised { self.born.check_file() } else { Ok(()) }
    }

    /// Refuses a sync that could wait for ever: callers share one, which may be the parent's.
    pub(crate) fn check_sync(&self) -> PyResult<()> {
        self.born.check_file()
    }

    #[inline]
    pub(crate) fn file(&self) -> &fs::File {
        match &self.kind {
            Kind::Plain(file) => file,
            Kind::Mapped(mapped) => mapped.file(),
        }
    }

    /// The path, or the number of the descriptor that it was opened from: for errors.
    pub(crate) fn name(&self) -> &Py<PyAny> {
        self.name.as_ref().expect("taken by `drop` alone")
    }

    #[inline]
    pub(crate) fn mapped(&self) -> Option<&MappedFile> {
        match &self.kind {
            Kind::Plain(_) => None,
            Kind::Mapped(mapped) => Some(mapped),
        }
    }
}

impl Drop for Opened {
    /// A worker may be the last user.
    fn drop(&mut self) {
        if let Some(name) = self.name.take() {
            Owner::Object(name).release_anywhere();
        }
    }
}

/// An open file, for the calls of a `BlockIO`.
#[pyclass(frozen, weakref, module = "cringle")]
pub(crate) struct File {
    /// `None` after `close`. Jobs under way keep their own reference.
    opened: Mutex<Option<Arc<Opened>>>,
    name: Py<PyAny>,
}

impl File {
    pub(crate) fn new(opened: Opened, name: Py<PyAny>) -> File {
        File { opened: Mutex::new(Some(Arc::new(opened))), name }
    }

    pub(crate) fn opened(&self) -> PyResult<Arc<Opened>> {
        let opened = self.opened.lock().unwrap_or_else(PoisonError::into_inner);
        opened.clone().ok_or_else(|| PyValueError::new_err("the file is closed: open it again"))
    }
}

#[pymethods]
impl File {
    /// The path or descriptor that the file was opened from.
    #[getter]
    fn name(&self, py: Python<'_>) -> Py<PyAny> {
        self.name.clone_ref(py)
    }

    /// The size of the file or block device in bytes, now.
    #[getter]
    fn size(&self, py: Python<'_>) -> PyResult<u64> {
        let opened = self.opened()?;
        let size = engine::detached(py, || size_of(opened.file()));
        size.map_err(|e| errors::of_file(py, &e, &self.name))
    }

    /// Whether reads and writes bypass the page cache.
    #[getter]
    fn direct(&self) -> PyResult<bool> {
        Ok(self.opened()?.is_direct)
    }

    /// Whether reads of pages in memory are copies.
    #[getter]
    fn mapped(&self) -> PyResult<bool> {
        Ok(self.opened()?.mapped().is_some_and(|mapped| mapped.unmapped().is_none()))
    }

    /// Why no read of a file opened with `mapped=True` is a copy.
    #[getter]
    fn unmapped_reason(&self) -> PyResult<Option<String>> {
        let opened = self.opened()?;
        Ok(opened.mapped().and_then(MappedFile::unmapped).map(|reason| reason.to_string()))
    }

    #[getter]
    fn closed(&self) -> bool {
        self.opened.lock().unwrap_or_else(PoisonError::into_inner).is_none()
    }

    fn fileno(&self) -> PyResult<i32> {
        Ok(self.opened()?.file().as_fd().as_raw_fd())
    }

    /// Looks which pages of a mapped file are in memory now.
    fn refresh(&self, py: Python<'_>) -> PyResult<()> {
        let opened = self.opened()?;
        engine::detached(py, || opened.mapped().map(MappedFile::refresh));
        Ok(())
    }

    /// Closes the handle; the descriptor is closed when the last job that uses it has ended.
    fn close(&self, py: Python<'_>) {
        let opened = self.opened.lock().unwrap_or_else(PoisonError::into_inner).take();
        engine::detached(py, || drop(opened));
    }

    fn __enter__(slf: Bound<'_, File>) -> PyResult<Bound<'_, File>> {
        slf.get().opened()?;
        Ok(slf)
    }

    #[pyo3(signature = (*_exception))]
    fn __exit__(&self, py: Python<'_>, _exception: &Bound<'_, pyo3::types::PyTuple>) {
        self.close(py);
    }

    fn __repr__(&self, py: Python<'_>) -> PyResult<String> {
        let name = self.name.bind(py).repr()?;
        let state = if self.closed() { " (closed)" } else { "" };
        Ok(format!("<cringle.File {name}{state}>"))
    }
}

/// Returns the size of a file or block device in bytes.
fn size_of(file: &fs::File) -> io::Result<u64> {
    let metadata = file.metadata()?;
    if !metadata.file_type().is_block_device() {
        return Ok(metadata.len());
    }
    /// `_IOR(0x12, 114, size_t)` of linux/fs.h.
    const BLKGETSIZE64: u32 = 0x8008_1272;
    let (fd, mut bytes) = (file.as_fd().as_raw_fd(), 0_u64);
    // SAFETY: the contract of this request: it stores 8 bytes.
    match unsafe { libc::ioctl(fd, BLKGETSIZE64 as libc::Ioctl, &raw mut bytes) } {
        0 => Ok(bytes),
        _ => Err(io::Error::last_os_error()),
    }
}
