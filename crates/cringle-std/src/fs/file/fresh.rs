//! Files that were opened for reading, and of which nothing else is known yet.
//!
//! `open` sets `O_NONBLOCK`, so that it waits for no other process. To look up the kind of the file
//! and to clear the flag takes two system calls, a tenth of the time in which a small file is
//! opened, read and closed (`benches/RESULTS.md`). So both are put off until a call needs them. A
//! file that its owner reads from start to end, and then closes, needs neither.
//!
//! A file is *fresh* from a plain `open` for reading, which has found that it is no FIFO, until it
//! [settles](File::settle). While it is fresh,
//!
//! - only its owner reads it, by `&mut File`, in calls that do not wait (`RWF_NOWAIT`). The kernel
//!   refuses such a call, and changes nothing, where the kind of the file matters: files of `/proc`
//!   and FUSE, and devices that may wait;
//! - no clone and no lent descriptor of it exists, so the program cannot see the flag. Other calls
//!   get the descriptor from [`File::fd`] or [`File::std`], which settle the file, and so does
//!   [`File::lend`]. Only `metadata`, `close` and the drop, which no flag affects, do without.
//!
//! A `fork` copies a fresh file, and both processes settle their copy. If one of them has set a
//! status flag by a lent descriptor before the other settles, the flag is lost.

use super::File;
use super::inline::{Inline, is_within_page};
use super::properties::{FRESH, MOVED};
use cringle_core::worker::Current;
use cringle_sys::fork::ForkLock;
use cringle_sys::{self as sys, MAX_RW_BYTES, Owned};
use std::os::fd::AsRawFd;
use std::sync::atomic::Ordering;

impl File {
    /// Wraps a descriptor that was opened for reading, with `O_NONBLOCK` and no other status flag.
    /// The file has a cursor, which is at the start.
    pub(in crate::fs) fn of_fresh(fd: Owned) -> File {
        let file = File::of_std(fd.into_std().into());
        file.properties.store(FRESH, Ordering::Relaxed);
        file
    }

    /// Clears `O_NONBLOCK` before the first call that the flag may affect. Returns whether this
    /// call did it, so that the file has no status flags.
    #[inline]
    pub(super) fn settle(&self) -> bool {
        self.properties.load(Ordering::Acquire) & FRESH != 0 && self.settle_now()
    }

    #[cold]
    fn settle_now(&self) -> bool {
        // Otherwise a late caller could clear the flag after the program has set it by a descriptor
        // that another caller lent. The callers of this hold no `ForkLock`.
        static SETTLING: ForkLock<()> = ForkLock::new(());
        let _held = SETTLING.lock();
        let was_fresh = self.properties.load(Ordering::Relaxed) & FRESH != 0;
        if was_fresh {
            // It fails only if a seccomp filter refuses the call.
            let _ = sys::set_status_flags(self.std.as_raw_fd(), 0);
            self.properties.fetch_and(!FRESH, Ordering::Release);
        }
        was_fresh
    }

    /// Reads at the cursor of a fresh file, as far as that does not wait.
    #[inline]
    pub(in crate::fs) fn read_fresh(&mut self, buf: &mut [u8]) -> Inline {
        match *self.properties.get_mut() & FRESH {
            0 => Inline::Rest(0),
            _ => self.read_while_fresh(buf),
        }
    }

    #[inline]
    fn read_while_fresh(&mut self, buf: &mut [u8]) -> Inline {
        let Some(current) = Current::get() else { return Inline::Rest(0) };
        // The kernel does not ask the file about an empty `preadv2`, where `read` may fail.
        if buf.is_empty() || current.fiber.is_cancelled() || current.is_unwinding() {
            return Inline::Rest(0);
        }
        Self::spend_inline(current);
        let (most, mut done) = (buf.len().min(MAX_RW_BYTES), 0);
        let starts_page = *self.properties.get_mut() & MOVED == 0;
        let result = loop {
            let count = sys::read_nowait(self.std.as_raw_fd(), &mut buf[done..most], -1);
            if count < 0 {
                // Is tried again, and counted, when the file has settled.
                break Inline::Rest(done);
            }
            done += count as usize;
            if count == 0 || done == most || starts_page && is_within_page(done as u64) {
                current.worker.events().tried_inline(true);
                break Inline::All(done);
            }
        };
        if is_within_page(done as u64) {
            *self.properties.get_mut() |= MOVED;
        }
        result
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Seek};
    use std::os::fd::{AsFd, OwnedFd};
    use std::os::unix::fs::FileExt;
    use std::path::{Path, PathBuf};

    type Call<'a> = &'a dyn Fn(&mut File);

    const BYTES: usize = 10_000;

    fn directory_with_file() -> (tempfile::TempDir, PathBuf) {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("file");
        let bytes: Vec<u8> = (0..BYTES).map(|n| (n / 7) as u8).collect();
        std::fs::write(&path, bytes).unwrap();
        (directory, path)
    }

    fn is_fresh(file: &File) -> bool {
        file.properties.load(Ordering::Relaxed) & FRESH != 0
    }

    fn is_nonblocking(fd: i32) -> bool {
        sys::status_flags(fd) & libc::O_NONBLOCK != 0
    }

    #[test]
    fn file_that_its_owner_reads_stays_fresh() {
        let (_directory, path) = directory_with_file();
        cringle_run::run::run(|| {
            let mut file = File::open(&path).unwrap();
            assert_eq!(file.metadata().unwrap().len(), BYTES as u64);
            assert_eq!(file.read_to_end(&mut Vec::new()).unwrap(), BYTES);
            assert_eq!(file.read(&mut [0; 8]).unwrap(), 0);
            assert!(is_fresh(&file));
            assert!(is_nonblocking(file.std.as_raw_fd()));
            file.close().unwrap();
        });
    }

    #[test]
    fn other_calls_settle_the_file() {
        let (_directory, path) = directory_with_file();
        let calls: &[(&str, Call<'_>)] = &[
            ("a read by reference", &|file| assert_eq!((&*file).read(&mut [0; 8]).unwrap(), 8)),
            ("read_at", &|file| assert_eq!(file.read_at(&mut [0; 8], 1).unwrap(), 8)),
            ("seek", &|file| assert_eq!(file.stream_position().unwrap(), 0)),
            ("try_clone", &|file| assert!(!is_fresh(&file.try_clone().unwrap()))),
            ("as_fd", &|file| assert!(!is_nonblocking(file.as_fd().as_raw_fd()))),
            ("as_raw_fd", &|file| assert!(!is_nonblocking(file.as_raw_fd()))),
            ("sync_all", &|file| file.sync_all().unwrap()),
            ("lock", &|file| file.lock().unwrap()),
            ("io::copy", &|file| {
                let to = &mut File::create(path.with_extension("copy")).unwrap();
                assert_eq!(crate::io::copy(file, to).unwrap(), BYTES as u64);
            }),
            ("a batch", &|file| {
                assert!(file.is_batchable_to_read());
                assert!(file.target().number() > 0);
            }),
        ];
        cringle_run::run::run(|| {
            for (name, call) in calls {
                let mut file = File::open(&path).unwrap();
                assert!(is_fresh(&file), "{name}");
                call(&mut file);
                assert!(!is_fresh(&file), "{name}");
                assert!(!is_nonblocking(file.std.as_raw_fd()), "{name}");
            }
            let fd = OwnedFd::from(File::open(&path).unwrap());
            assert!(!is_nonblocking(fd.as_raw_fd()));
        });
    }

    #[test]
    fn file_that_outlives_run_settles() {
        let (_directory, path) = directory_with_file();
        let mut file = cringle_run::run::run(|| File::open(&path)).unwrap();
        assert!(is_fresh(&file));
        assert_eq!(file.read_to_end(&mut Vec::new()).unwrap(), BYTES);
        assert!(!is_fresh(&file) && !is_nonblocking(file.std.as_raw_fd()));
    }

    #[test]
    fn settled_file_keeps_the_flags_of_the_program() {
        let (_directory, path) = directory_with_file();
        cringle_run::run::run(|| {
            let mut file = File::open(&path).unwrap();
            sys::set_status_flags(file.as_raw_fd(), libc::O_NONBLOCK | libc::O_APPEND).unwrap();
            file.read_exact(&mut [0; 8]).unwrap();
            file.read_exact_at(&mut [0; 8], 0).unwrap();
            let flags = sys::status_flags(file.as_raw_fd());
            assert_eq!(
                flags & (libc::O_NONBLOCK | libc::O_APPEND),
                libc::O_NONBLOCK | libc::O_APPEND
            );
            assert!(file.appends());
        });
    }

    #[test]
    fn files_of_other_modes_are_never_fresh() {
        let (_directory, path) = directory_with_file();
        cringle_run::run::run(|| {
            use std::os::unix::fs::OpenOptionsExt;
            for flags in [libc::O_NONBLOCK, libc::O_SYNC, libc::O_NOATIME, libc::O_PATH] {
                let file = File::options().read(true).custom_flags(flags).open(&path).unwrap();
                assert!(!is_fresh(&file), "{flags:#o}");
            }
            let file = File::options().read(true).write(true).open(&path).unwrap();
            assert!(!is_fresh(&file));
        });
    }

    /// What reads with buffers of these sizes return, by the owner and by a reference in turn.
    fn results(file: &mut impl Read, sizes: &[usize]) -> Vec<Result<Vec<u8>, Option<i32>>> {
        let read = |&size| {
            let mut buf = vec![0; size];
            let count = file.read(&mut buf).map_err(|e| e.raw_os_error())?;
            Ok(buf[..count].to_vec())
        };
        sizes.iter().map(read).collect()
    }

    #[test]
    fn reads_return_what_reads_of_std_return() {
        let (directory, path) = directory_with_file();
        let empty = directory.path().join("empty");
        std::fs::write(&empty, "").unwrap();
        let paths = ["/dev/null", "/proc/self/comm", "/sys/kernel/notes", "/"];
        let paths = paths.iter().map(Path::new).chain([path.as_path(), empty.as_path()]);
        for path in paths {
            for sizes in [&[0, 8192, 8192, 0, 8192][..], &[1, 0, 4096, 9000, 9000], &[4096; 5]] {
                let expected = results(&mut std::fs::File::open(path).unwrap(), sizes);
                for owned in 0..=sizes.len() {
                    let (by_owner, by_reference) = sizes.split_at(owned);
                    let ours = cringle_run::run::run(|| {
                        let mut file = File::open(path).unwrap();
                        let mut ours = results(&mut file, by_owner);
                        ours.extend(results(&mut &file, by_reference));
                        ours
                    });
                    assert!(ours == expected, "{} {sizes:?} {owned}", path.display());
                }
            }
        }
    }

    /// A read that finds only a part of its bytes in the page cache gets the others from the disk.
    #[test]
    fn read_within_a_page_goes_on_after_a_cache_miss() {
        let (_directory, path) = directory_with_file();
        let contents = std::fs::read(&path).unwrap();
        let cache_first_page = || {
            let file = std::fs::File::open(&path).unwrap();
            file.sync_all().unwrap();
            for advice in [libc::POSIX_FADV_DONTNEED, libc::POSIX_FADV_RANDOM] {
                // SAFETY: no pointers.
                unsafe { libc::posix_fadvise(file.as_raw_fd(), 0, 0, advice) };
            }
            file.read_exact_at(&mut [0; 8], 0).unwrap();
        };
        for by_owner in [true, false] {
            cringle_run::run::run(|| {
                cache_first_page();
                let mut file = File::open(&path).unwrap();
                file.read_exact(&mut [0; 100]).unwrap();
                let mut buf = [0; 8000];
                let count = if by_owner { file.read(&mut buf) } else { (&file).read(&mut buf) };
                assert_eq!(count.unwrap(), buf.len(), "by its owner: {by_owner}");
                assert_eq!(buf, contents[100..8100]);
            });
        }
    }
}
