//! A `block::Log` that is opened again after its process or its disk has failed: what the kernel
//! still holds then. `tests/fs/log` has the rest.

use cringle::block::Log;
use cringle_testing::{child, disk};
use std::fs::File;
use std::io::ErrorKind;
use std::os::fd::AsRawFd;
use std::path::Path;
use std::sync::atomic::{AtomicI32, Ordering};

/// SIGXFSZ would end the process.
#[test]
fn log_beyond_the_limit_of_file_sizes_is_read() {
    child::must_succeed("log_beyond_the_limit_of_file_sizes_is_read", || {
        let directory = disk::directory();
        let path = directory.path().join("log");
        let log = Log::open(&path, |_, _| Ok(())).unwrap();
        for n in 0..100 {
            log.append(&[n; 100]).unwrap();
        }
        drop(log);
        let bytes = std::fs::read(&path).unwrap();
        // SAFETY: no pointers are passed.
        unsafe { libc::signal(libc::SIGXFSZ, libc::SIG_IGN) };
        child::limit(libc::RLIMIT_FSIZE, 1000).unwrap();
        let read = || {
            let mut firsts = Vec::new();
            let replay = |_, record: &[u8]| {
                firsts.push(record[0]);
                Ok(())
            };
            let log = Log::open(&path, replay).unwrap();
            assert_eq!(firsts, Vec::from_iter(0..100));
            assert_eq!(log.check().unwrap_err().kind(), ErrorKind::FileTooLarge);
            assert_eq!(log.append(b"more").unwrap_err().kind(), ErrorKind::FileTooLarge);
        };
        read();
        cringle::run(read);
        assert_eq!(std::fs::read(&path).unwrap(), bytes);
    });
}

/// The kernel releases the locks of a killed process some milliseconds after its end.
#[test]
fn a_lock_that_is_released_soon_is_waited_for() {
    child::must_succeed("a_lock_that_is_released_soon_is_waited_for", || {
        let directory = disk::directory();
        let path = directory.path().join("log");
        let open = || drop(Log::open(&path, |_, _| Ok(())).unwrap());
        for on_a_fiber in [false, true] {
            let holder = File::create(&path).unwrap();
            holder.lock().unwrap();
            unlock_soon(&holder);
            if on_a_fiber { cringle::run(open) } else { open() }
        }
    });
}

/// Releases the lock in 30 ms, in a signal handler of this thread. It runs before the thread waits
/// again, so a busy machine does not use up the time for which a log waits.
fn unlock_soon(holder: &File) {
    static HOLDER: AtomicI32 = AtomicI32::new(-1);
    extern "C" fn unlock(_: libc::c_int) {
        // SAFETY: no pointers are passed, and the call is async-signal-safe.
        unsafe { libc::flock(HOLDER.load(Ordering::SeqCst), libc::LOCK_UN) };
    }
    HOLDER.store(holder.as_raw_fd(), Ordering::SeqCst);
    // SAFETY: the handler is async-signal-safe, and the structures, of which all-zero ones are
    // valid, are borrowed for the calls.
    unsafe {
        libc::signal(libc::SIGALRM, unlock as extern "C" fn(libc::c_int) as libc::sighandler_t);
        let mut event: libc::sigevent = std::mem::zeroed();
        event.sigev_notify = libc::SIGEV_THREAD_ID;
        event.sigev_signo = libc::SIGALRM;
        event.sigev_notify_thread_id = libc::gettid();
        let (mut timer, mut time) = (std::mem::zeroed(), std::mem::zeroed::<libc::itimerspec>());
        assert_eq!(libc::timer_create(libc::CLOCK_MONOTONIC, &mut event, &mut timer), 0);
        time.it_value.tv_nsec = 30_000_000;
        assert_eq!(libc::timer_settime(timer, 0, &time, std::ptr::null_mut()), 0);
    }
}

/// Returns how many descriptors of this process have the file with this name.
fn descriptors_of(path: &Path) -> usize {
    let links = std::fs::read_dir("/proc/self/fd").unwrap();
    let targets = links.filter_map(|link| std::fs::read_link(link.unwrap().path()).ok());
    targets.filter(|target| target == path).count()
}

/// The owner of the lock begins a new file, while another process waits for the lock.
#[test]
fn log_has_its_name_when_it_is_locked() {
    child::must_succeed("log_has_its_name_when_it_is_locked", || {
        let directory = disk::directory();
        let (path, old) = (directory.path().join("log"), directory.path().join("old"));
        for (removes, releases) in [(false, true), (true, true), (false, false), (true, false)] {
            let mut holder = Some(File::create(&path).unwrap());
            holder.as_ref().unwrap().lock().unwrap();
            std::thread::scope(|s| {
                let opener = s.spawn(|| Log::open(&path, |_, _| Ok(())).unwrap());
                while descriptors_of(&path) < 2 {
                    std::thread::yield_now();
                }
                match removes {
                    true => std::fs::remove_file(&path).unwrap(),
                    false => std::fs::rename(&path, &old).unwrap(),
                }
                if releases {
                    holder = None;
                }
                opener.join().unwrap().append(b"acknowledged").unwrap();
            });
            let mut records = 0;
            let count = |_, _: &[u8]| {
                records += 1;
                Ok(())
            };
            drop(Log::open(&path, count).unwrap());
            assert_eq!(records, 1, "removed: {removes}, unlocked: {releases}");
            std::fs::remove_file(&path).unwrap();
        }
    });
}

/// After a failed sync the cache has what the disk has not, and on ext4 a write to the same pages
/// need not change that.
#[test]
fn recovery_reads_from_the_disk() {
    child::must_succeed("recovery_reads_from_the_disk", || {
        const RECORD: usize = 1 << 20;
        const HALF_PAGES: usize = 8 * RECORD / 4096;
        let directory = disk::directory();
        let path = directory.path().join("log");
        let log = Log::builder().group_bytes(2 * RECORD).open(&path, |_, _| Ok(())).unwrap();
        for n in 0..16 {
            log.append(&vec![n; RECORD]).unwrap();
        }
        drop(log);
        let file = File::open(&path).unwrap();
        // SAFETY: no pointers.
        unsafe { libc::posix_fadvise(file.as_raw_fd(), 0, 0, libc::POSIX_FADV_DONTNEED) };
        if disk::cached_pages(&file) > HALF_PAGES {
            return eprintln!("skipped: the files here are in memory only");
        }
        std::fs::read(&path).unwrap();
        let mut at_first = None;
        let replay = |_, record: &[u8]| {
            assert_eq!(record.len(), RECORD);
            at_first.get_or_insert_with(|| disk::cached_pages(&file));
            Ok(())
        };
        Log::open(&path, replay).unwrap();
        let cached = at_first.unwrap();
        assert!(cached < HALF_PAGES, "{cached} pages are in the cache after the first record");
    });
}
