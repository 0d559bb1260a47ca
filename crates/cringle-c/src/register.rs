//! The exported functions that register files and buffers.

use crate::abi::*;
use crate::error::{Error, border};
use crate::handles;
use crate::registered::{Range, Registered, Tables};
use crate::registry::Registry;
use cringle::fs::File;
use std::ffi::c_int;
use std::os::fd::{BorrowedFd, RawFd};
use std::slice;
use std::sync::Arc;

/// The most elements of a call. More of them are registered by several calls.
const MAX_ELEMENTS: usize = 1 << 16;

/// Registers files, and stores the number of each in `numbers`, for operations with
/// `CRINGLE_OP_REGISTERED_FILE`. The engine keeps a duplicate of each descriptor, so the caller may
/// close its own. An engine has at most 65536 registered files.
///
/// A number of another engine, or of an unregistered file or buffer, is refused. A number is used
/// again when the 32767 numbers of its slot are used up, by all engines of the process; and an
/// engine uses a slot again only when 1024 are free. So that happens after 33 million registrations
/// of one engine, or of 32767 engines that register one file or buffer each.
///
/// "Registered" means looked up once: it saves what a submission does for each other descriptor,
/// one or two system calls that find out its kind. The files are not in the kernel's table of a
/// ring, so the operations themselves are as fast as others.
///
/// Returns 0, or registers none and returns `-EBADF` (no such engine, or a descriptor is not open),
/// `-ESRCH`, `-EFAULT`, `-EINVAL` (a pointer that is not aligned), `-E2BIG` (more than 65536 of
/// them), `-EMFILE` or `-ENOSPC`.
///
/// # Safety
///
/// `fds` and `numbers` have `count` elements. They may be the same array.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cringle_register_files(
    io: cringle_io,
    fds: *const c_int,
    count: usize,
    numbers: *mut i32,
) -> c_int {
    border(|| {
        let engine = handles::get(io)?;
        check(numbers, count, "numbers")?;
        // SAFETY: this function's contract.
        let fds = unsafe { elements(fds, count, "fds") }?;
        let files = fds.iter().enumerate().map(|(at, &fd)| duplicate(at, fd));
        let files = files.collect::<Result<Vec<_>, _>>()?;
        let added = add(&engine.registered, |tables| &mut tables.files, files, "files")?;
        // SAFETY: this function's contract, and the check.
        unsafe { store(&added, numbers) };
        Ok(0)
    })
}

/// Unregisters files. Submissions that are under way keep them until they have ended: a submission
/// keeps all files and buffers that are registered when it is accepted, which is before
/// `cringle_submit_cb` or `cringle_submit_eventfd` returns.
///
/// Returns 0, or unregisters none and returns `-EBADF` (no such engine, or a number that is not
/// registered), `-ESRCH`, `-EFAULT`, `-EINVAL` or `-E2BIG`.
///
/// # Safety
///
/// `numbers` has `count` elements.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cringle_unregister_files(
    io: cringle_io,
    numbers: *const i32,
    count: usize,
) -> c_int {
    border(|| {
        let engine = handles::get(io)?;
        // SAFETY: this function's contract.
        let numbers = unsafe { elements(numbers, count, "numbers") }?;
        remove(&engine.registered, |tables| &mut tables.files, numbers)?;
        Ok(0)
    })
}

/// Registers memory, and stores the number of each range in `numbers`, for operations with
/// `CRINGLE_OP_REGISTERED_BUFFER`, which are refused with `-EFAULT` unless they lie within it. An
/// engine has at most 65536 registered buffers. It is a check of addresses: the memory is not
/// pinned, and not in the kernel's table of a ring. The memory stays the caller's; it stays
/// allocated until it is unregistered, or the engine is closed.
///
/// Returns 0, or registers none and returns `-EBADF`, `-ESRCH`, `-EFAULT`, `-EINVAL`, `-E2BIG` or
/// `-ENOSPC`.
///
/// # Safety
///
/// `buffers` and `numbers` have `count` elements.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cringle_register_buffers(
    io: cringle_io,
    buffers: *const cringle_buffer,
    count: usize,
    numbers: *mut i32,
) -> c_int {
    border(|| {
        let engine = handles::get(io)?;
        check(numbers, count, "numbers")?;
        // SAFETY: this function's contract.
        let buffers = unsafe { elements(buffers, count, "buffers") }?;
        let range = |buffer: &cringle_buffer| Range { base: buffer.base.addr(), len: buffer.len };
        let ranges = buffers.iter().map(range).collect();
        let added = add(&engine.registered, |tables| &mut tables.buffers, ranges, "buffers")?;
        // SAFETY: this function's contract, and the check.
        unsafe { store(&added, numbers) };
        Ok(0)
    })
}

/// Unregisters memory. It may be freed when the submissions that use it have ended; they keep it
/// registered for themselves until then.
///
/// Returns 0, or unregisters none and returns `-EBADF` (no such engine, or a number that is not
/// registered), `-ESRCH`, `-EFAULT`, `-EINVAL` or `-E2BIG`.
///
/// # Safety
///
/// `numbers` has `count` elements.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cringle_unregister_buffers(
    io: cringle_io,
    numbers: *const i32,
    count: usize,
) -> c_int {
    border(|| {
        let engine = handles::get(io)?;
        // SAFETY: this function's contract.
        let numbers = unsafe { elements(numbers, count, "numbers") }?;
        remove(&engine.registered, |tables| &mut tables.buffers, numbers)?;
        Ok(0)
    })
}

fn duplicate(at: usize, fd: RawFd) -> Result<Arc<File>, Error> {
    if fd < 0 {
        return Err(Error::new(libc::EBADF, format!("fds[{at}] is {fd}, which is no descriptor")));
    }
    // SAFETY: the number is only duplicated, and the kernel checks it.
    let duplicated = unsafe { BorrowedFd::borrow_raw(fd) }.try_clone_to_owned();
    let file = duplicated.map_err(|e| {
        let errno = e.raw_os_error().unwrap_or(libc::EIO);
        Error::new(errno, format!("fds[{at}], descriptor {fd}, cannot be duplicated: {e}"))
    })?;
    Ok(Arc::new(File::from(file)))
}

/// Registers all values, or none if there is no room.
fn add<T: Clone>(
    registered: &Registered,
    registry: impl FnOnce(&mut Tables) -> &mut Registry<T>,
    values: Vec<T>,
    what: &str,
) -> Result<Vec<i32>, Error> {
    registered.change(|tables| {
        let registry = registry(tables);
        let numbers = values.into_iter().map(|value| registry.add(value)).collect::<Option<_>>();
        numbers.ok_or_else(|| {
            let text = format!("65536 {what} are registered, or would be: unregister some");
            Error::new(libc::ENOSPC, text)
        })
    })
}

/// Unregisters all numbers, or none if one of them names no value.
fn remove<T: Clone>(
    registered: &Registered,
    registry: impl FnOnce(&mut Tables) -> &mut Registry<T>,
    numbers: &[i32],
) -> Result<(), Error> {
    registered.change(|tables| {
        let registry = registry(tables);
        match numbers.iter().find(|&&number| !registry.remove(number)) {
            None => Ok(()),
            Some(number) => {
                let text =
                    format!("{number} is not registered, or occurs twice; none was unregistered");
                Err(Error::new(libc::EBADF, text))
            }
        }
    })
}

fn check<T>(pointer: *const T, count: usize, name: &str) -> Result<(), Error> {
    if count > MAX_ELEMENTS {
        return Err(Error::new(libc::E2BIG, format!("{count} elements: at most {MAX_ELEMENTS}")));
    }
    if count > 0 && pointer.is_null() {
        return Err(Error::new(libc::EFAULT, format!("`{name}` is NULL")));
    }
    if count > 0 && !pointer.is_aligned() {
        return Err(Error::new(libc::EINVAL, format!("`{name}` is not aligned")));
    }
    Ok(())
}

/// Returns the caller's array. The reference is used before anything is stored in another array of
/// the caller, which may be the same one.
///
/// # Safety
///
/// `pointer` is NULL or has `count` elements, which the caller has initialised.
unsafe fn elements<'a, T>(pointer: *const T, count: usize, name: &str) -> Result<&'a [T], Error> {
    check(pointer, count, name)?;
    if count == 0 {
        return Ok(&[]);
    }
    // SAFETY: this function's contract, and the check.
    Ok(unsafe { slice::from_raw_parts(pointer, count) })
}

/// Stores numbers in the caller's array, to which there is no reference: it may be uninitialised.
///
/// # Safety
///
/// `numbers` has room for as many elements, and is aligned.
unsafe fn store(added: &[i32], numbers: *mut i32) {
    // SAFETY: this function's contract. The numbers come from memory of the library.
    unsafe { numbers.copy_from_nonoverlapping(added.as_ptr(), added.len()) };
}
