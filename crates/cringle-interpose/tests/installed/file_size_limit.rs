//! A write that reaches the limit of a file's size is short, and raises no signal. The limit is the
//! process's: the test runs in a child.

use cringle::Builder;
use cringle::runtime::DriverChoice;
use cringle_testing::child;
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicI32, AtomicUsize, Ordering};

const LIMIT: usize = 100_000;

static SIGNALS: AtomicUsize = AtomicUsize::new(0);
/// The thread of the runtime. Another one writes the test's output.
static WRITER: AtomicI32 = AtomicI32::new(0);

/// The kernel sends the signal to the thread that writes.
extern "C" fn count(_: i32) {
    // SAFETY: the call has no contract.
    if unsafe { libc::gettid() } == WRITER.load(Ordering::SeqCst) {
        SIGNALS.fetch_add(1, Ordering::SeqCst);
    }
}

/// The limit, until this is dropped: it holds for the test's output, too, which may go to a file.
struct Limited(libc::rlimit);

impl Limited {
    fn begin() -> Limited {
        let mut before = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
        // SAFETY: the kernel writes to `before` and reads `limit`.
        unsafe {
            assert_eq!(libc::getrlimit(libc::RLIMIT_FSIZE, &mut before), 0);
            let limit = libc::rlimit { rlim_cur: LIMIT as u64, ..before };
            assert_eq!(libc::setrlimit(libc::RLIMIT_FSIZE, &limit), 0);
        }
        Limited(before)
    }
}

impl Drop for Limited {
    fn drop(&mut self) {
        // SAFETY: the kernel reads the limit.
        unsafe { libc::setrlimit(libc::RLIMIT_FSIZE, &self.0) };
    }
}

#[test]
fn reached_by_a_write() {
    child::must_succeed("reached_by_a_write", reach_it);
}

fn reach_it() {
    // SAFETY: the handler only counts.
    unsafe {
        WRITER.store(libc::gettid(), Ordering::SeqCst);
        libc::signal(libc::SIGXFSZ, count as *const () as usize);
    }
    let _limited = Limited::begin();
    for driver in [DriverChoice::Uring, DriverChoice::Epoll] {
        let run = Builder::new().workers(1).driver(driver).run(|| {
            for len in [LIMIT + 1, LIMIT * 10] {
                at_the_cursor(len);
            }
            at_an_offset(30_000);
            at_an_offset(LIMIT * 10);
        });
        run.expect("the driver is available");
    }
}

fn at_the_cursor(len: usize) {
    let file = tempfile::tempfile().unwrap();
    assert_eq!(write(&file, len).unwrap(), LIMIT);
    assert_eq!(SIGNALS.swap(0, Ordering::SeqCst), 0);
    assert_eq!(write(&file, len).unwrap_err().raw_os_error(), Some(libc::EFBIG));
    assert_eq!(SIGNALS.swap(0, Ordering::SeqCst), 1);
}

fn write(file: &File, len: usize) -> io::Result<usize> {
    let bytes = vec![1; len];
    // SAFETY: the buffer has this length.
    let count = unsafe { libc::write(file.as_raw_fd(), bytes.as_ptr().cast(), len) };
    usize::try_from(count).map_err(|_| io::Error::last_os_error())
}

fn at_an_offset(len: usize) {
    let file = tempfile::tempfile().unwrap();
    assert_eq!(file.write_at(&vec![1; len], LIMIT as u64 - 10).unwrap(), 10);
    assert_eq!(SIGNALS.swap(0, Ordering::SeqCst), 0);
}
