//! Calls at a cursor that unknown handles may share (**I11**).
//!
//! The kernel serialises the plain calls at the cursor of an open file description, in whichever
//! process they are made, but not a ring's ops at offset −1. So a thread makes the plain call,
//! which may wait for the disk and for another handle's call.

use crate::fiber::op::{perform_off_ring, perform_on_pool};
use crate::io::{Interest, ready};
use cringle_core::worker::Current;
use cringle_driver::Op;
use cringle_sys::{self as sys, WaitsFor};
use std::io;
use std::os::fd::AsFd;

/// Performs a read, a write or a seek at the cursor of a seekable file, while the fiber waits.
///
/// A fiber that is cancelled before the call gets the error of the cancel. Once the call has begun,
/// it is not interrupted.
///
/// # Safety
///
/// The op's pointers are valid until this returns.
#[cold]
pub(crate) unsafe fn perform_at_kernels_cursor(
    current: Current,
    fd: &impl AsFd,
    waits_for: WaitsFor,
    op: Op,
) -> io::Result<usize> {
    current.admit()?;
    if waits_for == WaitsFor::Anything && op.is_read() && !is_readable(fd) {
        // A cancel ends this wait, but would not end the call.
        ready(fd, Interest::READABLE)?;
    }
    // SAFETY: the caller's contract: the pointers are valid until this returns.
    sys::result_of(unsafe {
        match waits_for {
            WaitsFor::Disk => perform_on_pool(op),
            WaitsFor::Anything | WaitsFor::Server => perform_off_ring(current.worker, op),
        }
    })
}

fn is_readable(fd: &impl AsFd) -> bool {
    sys::poll_now(fd.as_fd(), libc::POLLIN).is_ok_and(|events| events != 0)
}

#[cfg(test)]
mod tests {
    use crate::fs::{self, Advice, File, FileTimes, copy_range};
    use std::io::{Read, Seek, Write};
    use std::os::fd::{AsFd, AsRawFd};
    use std::os::unix::fs::FileExt;

    type Call<'a> = &'a dyn Fn(&File);
    type Lend = fn(File);

    /// A new file and a clone of it.
    fn file(directory: &tempfile::TempDir) -> (File, File) {
        let path = directory.path().join("file");
        std::fs::write(&path, [7; 4096]).unwrap();
        let file = File::options().read(true).write(true).open(path).unwrap();
        let clone = file.try_clone().unwrap();
        (file, clone)
    }

    /// No call of the library marks a file as lent, so a file that only the library uses keeps its
    /// fast path.
    #[test]
    fn library_calls_do_not_lend_a_file() {
        let directory = tempfile::tempdir().unwrap();
        let use_it = || {
            let (mut file, clone) = file(&directory);
            let other = File::create(directory.path().join("other")).unwrap();
            let calls: &[(&str, Call<'_>)] = &[
                ("lock", &|file| file.lock().and_then(|()| file.unlock()).unwrap()),
                ("try_lock", &|file| file.try_lock().unwrap()),
                ("metadata", &|file| assert!(file.metadata().unwrap().is_file())),
                ("set_times", &|file| file.set_times(FileTimes::new()).unwrap()),
                ("set_permissions", &|file| {
                    file.set_permissions(file.metadata().unwrap().permissions()).unwrap();
                }),
                ("set_len", &|file| file.set_len(8192).unwrap()),
                ("allocate", &|file| drop(file.allocate(0, 4096))),
                ("advise", &|file| file.advise(Advice::Random, 0, 0).unwrap()),
                ("sync_range", &|file| drop(file.sync_range(0, 0))),
                ("seek_data", &|file| drop(file.seek_data(0))),
                ("set_xattr", &|file| drop(file.set_xattr("user.a", b"b"))),
                ("list_xattrs", &|file| drop(file.list_xattrs())),
                ("copy_range", &|file| drop(copy_range(file, 0, &other, 0, 10))),
                ("reflink_from", &|file| drop(other.reflink_from(file))),
                ("sync_all", &|file| file.sync_all().and_then(|()| file.sync_data()).unwrap()),
                ("write_at", &|file| assert_eq!(file.write_at(b"a", 0).unwrap(), 1)),
                ("a batch", &|file| {
                    assert!(file.is_batchable_to_read());
                    assert!(file.target().number() > 0);
                }),
            ];
            for (name, call) in calls {
                call(&file);
                assert!(!file.uses_kernels_cursor(), "{name} lends the file");
            }
            file.read_exact(&mut [0; 8]).unwrap();
            file.write_all(b"abcd").unwrap();
            file.rewind().unwrap();
            std::io::copy(&mut (&file).take(5), &mut std::io::sink()).unwrap();
            drop(format!("{file:?}"));
            assert!(!file.uses_kernels_cursor() && !clone.uses_kernels_cursor());
            assert_eq!(fs::read(directory.path().join("file")).unwrap().len(), 8192);
        };
        use_it();
        cringle_run::run::run(use_it);
    }

    /// Each conversion to or from another type marks all clones as lent.
    #[test]
    fn lending_one_clone_marks_all_clones() {
        let directory = tempfile::tempdir().unwrap();
        let lenders: [(&str, Lend); 6] = [
            ("as_fd", |file| assert!(file.as_fd().as_raw_fd() > 0)),
            ("as_raw_fd", |file| assert!(file.as_raw_fd() > 0)),
            ("OwnedFd", |file| drop(std::os::fd::OwnedFd::from(file))),
            ("std's file", |file| drop(std::fs::File::from(file))),
            ("Stdio", |file| drop(std::process::Stdio::from(file))),
            ("a number", |file| {
                let number = std::os::fd::IntoRawFd::into_raw_fd(file);
                cringle_sys::close(number).unwrap();
            }),
        ];
        for (name, lend) in lenders {
            let (file, clone) = file(&directory);
            lend(clone);
            assert!(file.uses_kernels_cursor(), "{name}");
            assert!(file.try_clone().unwrap().uses_kernels_cursor(), "a clone after {name}");
            // A clone made after the descriptor was lent.
            let file = File::open(directory.path().join("file")).unwrap();
            assert!(!file.uses_kernels_cursor());
            let _ = file.as_fd();
            assert!(file.try_clone().unwrap().uses_kernels_cursor());
        }
        assert!(File::from(std::fs::File::open("/dev/null").unwrap()).uses_kernels_cursor());
    }
}
