//! Opening files.

use crate::file::{File, Opened};
use crate::{engine, errors};
use cringle::block::{MappedFile, SigbusHandler};
use cringle::fs::{Direct, OpenOptions};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyInt};
use std::ffi::OsStr;
use std::io;
use std::os::fd::{BorrowedFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::OpenOptionsExt;
use std::path::PathBuf;

/// Opens a file.
#[pyfunction]
#[pyo3(signature = (path, mode = "r", *, direct = false, mapped = false, permissions = 0o666))]
pub(crate) fn open(
    path: &Bound<'_, PyAny>,
    mode: &str,
    direct: bool,
    mapped: bool,
    permissions: u32,
) -> PyResult<File> {
    let py = path.py();
    let entered = engine::enter()?;
    let mut options = options_of(mode)?;
    if direct && mapped {
        return Err(PyValueError::new_err(
            "direct and mapped exclude each other: a mapping is read from the page cache, which \
             direct I/O bypasses",
        ));
    }
    let name = path.clone().unbind();
    let (file, _entered) = if path.is_instance_of::<PyInt>() {
        let fd: RawFd = path.extract()?;
        if mode != "r" || direct {
            return Err(PyValueError::new_err(
                "mode and direct belong to a path: a descriptor is used as it was opened",
            ));
        }
        (duplicate(fd), entered)
    } else {
        // A str, bytes or path-like object.
        let path = py.import("os")?.call_method1("fsencode", (path,))?;
        let path = path.cast::<PyBytes>()?.as_bytes();
        if path.contains(&0) {
            return Err(PyValueError::new_err("path has a null byte"));
        }
        let path = PathBuf::from(OsStr::from_bytes(path));
        options.mode(permissions);
        if direct {
            options.direct(Direct::Bounce);
        }
        // That of a FIFO waits for the other end.
        engine::detached_for_long(py, entered, || options.open(path))
    };
    let file = file.map_err(|e| errors::of_file(py, &e, &name))?;
    if direct {
        // Requests that are not aligned are copied, and memory of the caller may be the mapping of
        // a file that was truncated.
        SigbusHandler::install().map_err(|e| errors::of_file(py, &e, &name))?;
    }
    let kept_name = name.clone_ref(py);
    if !mapped {
        return Ok(File::new(Opened::plain(file, kept_name), name));
    }
    let mapped = engine::detached(py, || {
        let mapped = MappedFile::new(file, SigbusHandler::install()?)?;
        // The pages that are in memory are known before the first read.
        mapped.refresh();
        Ok::<_, io::Error>(mapped)
    });
    let mapped = mapped.map_err(|e| errors::of_file(py, &e, &name))?;
    Ok(File::new(Opened::of_mapped(mapped, kept_name), name))
}

fn options_of(mode: &str) -> PyResult<OpenOptions> {
    let mut options = OpenOptions::new();
    match mode.replace('b', "").as_str() {
        "r" => options.read(true),
        "r+" => options.read(true).write(true),
        "w" => options.write(true).create(true).truncate(true),
        "w+" => options.read(true).write(true).create(true).truncate(true),
        "x" => options.write(true).create_new(true),
        "x+" => options.read(true).write(true).create_new(true),
        _ => {
            return Err(PyValueError::new_err(format!(
                "mode is {mode:?}: it must be r, r+, w, w+, x or x+ (all reads and writes are at \
                 offsets, so there is no a)"
            )));
        }
    };
    Ok(options)
}

/// Duplicates a descriptor, so that its owner may close it.
fn duplicate(fd: RawFd) -> io::Result<cringle::fs::File> {
    if fd < 0 {
        return Err(io::Error::from_raw_os_error(libc::EBADF));
    }
    // SAFETY: the contract of `borrow_raw`: the caller's descriptor is only passed to the kernel,
    // which refuses it if it is not open.
    let borrowed = unsafe { BorrowedFd::borrow_raw(fd) };
    Ok(borrowed.try_clone_to_owned()?.into())
}
