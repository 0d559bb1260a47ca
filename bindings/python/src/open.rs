//! Opening files.

use crate::engine::{self, Entered};
use crate::file::{File, Opened};
use crate::{errors, integers};
use cringle::block::{MappedFile, SigbusHandler};
use cringle::fs::{self, Direct, OpenOptions};
use pyo3::exceptions::{PyOSError, PyOverflowError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyInt};
use std::ffi::OsStr;
use std::fs::Metadata;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::PathBuf;
use std::sync::{Mutex, mpsc};
use std::{io, thread};

/// Opens a file.
#[pyfunction]
#[pyo3(signature = (path, mode = "r", *, direct = false, mapped = false, permissions = 0o666))]
pub(crate) fn open(
    path: &Bound<'_, PyAny>,
    mode: &str,
    direct: bool,
    mapped: bool,
    #[pyo3(from_py_with = permissions_of)] permissions: u32,
) -> PyResult<File> {
    let py = path.py();
    let entered = engine::enter()?;
    let mut options = options_of(mode)?;
    check_options(mode, direct, mapped)?;
    let (file, name, _entered) = if path.is_instance_of::<PyInt>() {
        let (file, name) = of_descriptor(path, mode, direct)?;
        (file, name, entered)
    } else {
        let (path, name) = path_of(path)?;
        options.mode(permissions);
        if direct {
            options.direct(Direct::Bounce);
        }
        let (file, entered) = open_path(py, entered, options, path)?;
        (file, name, entered)
    };
    let file = file.map_err(|e| errors::of_file(py, &e, &name))?;
    if file.metadata().is_ok_and(|metadata| metadata.is_dir()) {
        return Err(errors::of_file(py, &is_a_directory(), &name));
    }
    if direct {
        // Requests that are not aligned are copied, and memory of the caller may be the mapping of
        // a file that was truncated.
        SigbusHandler::install().map_err(|e| errors::of_file(py, &e, &name))?;
    }
    let kept_name = name.clone_ref(py);
    if !mapped {
        return Ok(File::new(Opened::plain(file, kept_name), name));
    }
    if let Some(why) = unmappable(&file) {
        return Err(PyOSError::new_err((libc::EINVAL, why, name)));
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

fn is_a_directory() -> io::Error {
    io::Error::from_raw_os_error(libc::EISDIR)
}

fn permissions_of(object: &Bound<'_, PyAny>) -> PyResult<u32> {
    let value = integers::argument(object, "permissions")?;
    u32::try_from(value).map_err(|_| {
        PyOverflowError::new_err(format!("permissions is {value}: it must be between 0 and 0o7777"))
    })
}

/// Refuses arguments that exclude each other, before the file is created or truncated.
fn check_options(mode: &str, direct: bool, mapped: bool) -> PyResult<()> {
    if direct && mapped {
        return Err(PyValueError::new_err(
            "direct and mapped exclude each other: a mapping is read from the page cache, which \
             direct I/O bypasses",
        ));
    }
    if mapped && !mode.contains(['r', '+']) {
        return Err(PyValueError::new_err(format!(
            "mode is {mode:?}: a mapped file must be open for reading: use r, r+, w+ or x+"
        )));
    }
    Ok(())
}

/// Duplicates the descriptor, and returns its number as the name.
fn of_descriptor(
    path: &Bound<'_, PyAny>,
    mode: &str,
    direct: bool,
) -> PyResult<(io::Result<fs::File>, Py<PyAny>)> {
    let value = integers::argument(path, "path")?;
    let fd = RawFd::try_from(value).map_err(|_| {
        PyOverflowError::new_err(format!(
            "path is {value}: the number of a descriptor is between 0 and 2³¹ − 1"
        ))
    })?;
    if mode != "r" || direct {
        return Err(PyValueError::new_err(
            "mode and direct belong to a path: a descriptor is used as it was opened",
        ));
    }
    // SAFETY: the contract of `fcntl`: it has none for this command.
    let flags = unsafe { libc::fcntl(fd, libc::F_GETFL) };
    let is_written = flags & libc::O_ACCMODE != libc::O_RDONLY;
    if flags != -1 && flags & libc::O_APPEND != 0 && is_written {
        return Err(PyValueError::new_err(format!(
            "descriptor {fd} was opened with O_APPEND (mode a), by which all writes are at the end \
             of the file: open it with r+"
        )));
    }
    Ok((duplicate(fd), fd.into_pyobject(path.py())?.into_any().unbind()))
}

/// Returns the path of a str, bytes or path-like object, and the file's name: a str, or bytes. The
/// object itself is not kept, because it may refer to the file.
fn path_of(path: &Bound<'_, PyAny>) -> PyResult<(PathBuf, Py<PyAny>)> {
    let os = path.py().import("os")?;
    let given = os.call_method1("fspath", (path,))?;
    let encoded = os.call_method1("fsencode", (&given,))?;
    let bytes = encoded.cast::<PyBytes>()?.as_bytes();
    if bytes.contains(&0) {
        return Err(PyValueError::new_err("path has a null byte"));
    }
    let path = PathBuf::from(OsStr::from_bytes(bytes));
    let is_bytes = given.is_instance_of::<PyBytes>();
    let name = if is_bytes { encoded } else { os.call_method1("fsdecode", (encoded,))? };
    Ok((path, name.unbind()))
}

/// Opens a path. The open of a FIFO waits for the other end: another thread waits for it, while
/// this one runs the handlers of signals. After an exception of one, that thread closes the FIFO as
/// soon as it is open.
fn open_path(
    py: Python<'_>,
    mut entered: Entered,
    options: OpenOptions,
    path: PathBuf,
) -> PyResult<(io::Result<fs::File>, Entered)> {
    let found = engine::detached(py, || std::fs::metadata(&path).ok());
    let is = |kind: fn(&Metadata) -> bool| found.as_ref().is_some_and(kind);
    if !is(|metadata| metadata.file_type().is_fifo()) {
        let is_directory = is(Metadata::is_dir);
        let open = move || match options.open(path) {
            // A directory has no direct I/O.
            Err(e) if is_directory && e.raw_os_error().is_none() => Err(is_a_directory()),
            opened => opened,
        };
        return Ok(engine::detached_for_long(py, entered, open));
    }
    let (sender, receiver) = mpsc::channel();
    let thread = thread::Builder::new().name("cringle-open".into());
    thread.spawn(move || drop(sender.send(options.open(path))))?;
    let receiver = Mutex::new(receiver);
    loop {
        let wait = || receiver.lock().map(|receiver| receiver.recv_timeout(engine::SIGNAL_CHECK));
        let (received, again) = engine::detached_for_long(py, entered, || wait().ok());
        entered = again;
        match received {
            Some(Ok(opened)) => return Ok((opened, entered)),
            Some(Err(mpsc::RecvTimeoutError::Timeout)) => py.check_signals()?,
            Some(Err(mpsc::RecvTimeoutError::Disconnected)) | None => return Err(errors::of_bug()),
        }
    }
}

/// Returns why a file cannot be mapped, and what to do.
fn unmappable(file: &fs::File) -> Option<&'static str> {
    let fd = file.as_fd().as_raw_fd();
    // SAFETY: the contract of `fcntl`: it has none for this command.
    let flags = unsafe { libc::fcntl(fd, libc::F_GETFL) };
    if !file.metadata().is_ok_and(|metadata| metadata.is_file()) {
        Some("only a regular file can be mapped: open it without mapped=True")
    } else if flags & libc::O_ACCMODE == libc::O_WRONLY {
        Some("the descriptor is open for writing only: a mapped file must be open for reading")
    } else if flags & libc::O_DIRECT != 0 {
        Some("O_DIRECT bypasses the page cache, from which a mapping is read: open it without")
    } else {
        None
    }
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
fn duplicate(fd: RawFd) -> io::Result<fs::File> {
    if fd < 0 {
        return Err(io::Error::from_raw_os_error(libc::EBADF));
    }
    // SAFETY: the contract of `borrow_raw`: the caller's descriptor is only passed to the kernel,
    // which refuses it if it is not open.
    let borrowed = unsafe { BorrowedFd::borrow_raw(fd) };
    Ok(borrowed.try_clone_to_owned()?.into())
}
