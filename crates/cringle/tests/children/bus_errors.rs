//! The SIGBUS handler of mapped files acts for their copies alone, and mapped files in processes
//! with other users, handlers, and parents.

use cringle::block::{MappedFile, SigbusHandler, Unmapped};
use cringle::fs::File;
use cringle::runtime;
use cringle_testing::child;
use cringle_testing::disk::{directory, pattern, solitary};
use std::io::ErrorKind;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

const PAGE: usize = 4096;

fn file() -> (tempfile::TempDir, PathBuf) {
    let directory = directory();
    let path = directory.path().join("file");
    std::fs::write(&path, pattern(64 * PAGE)).unwrap();
    (directory, path)
}

fn map(path: &PathBuf) -> MappedFile {
    MappedFile::new(File::open(path).unwrap(), SigbusHandler::install().unwrap()).unwrap()
}

/// Reads a mapped page of the program's own that is beyond the end of its file.
fn raise_bus_error() -> u8 {
    let file = tempfile::tempfile().unwrap();
    // SAFETY: a new mapping; the read of it raises SIGBUS, which is the purpose of the test.
    unsafe {
        let (protection, flags) = (libc::PROT_READ, libc::MAP_SHARED);
        let page = libc::mmap(std::ptr::null_mut(), PAGE, protection, flags, file.as_raw_fd(), 0);
        assert_ne!(page, libc::MAP_FAILED);
        page.cast::<u8>().read_volatile()
    }
}

fn set_action(handler: usize, flags: i32) {
    // SAFETY: all-zero is a valid action, and the handlers of this file may interrupt any code.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = handler;
        action.sa_flags = flags;
        assert_eq!(libc::sigaction(libc::SIGBUS, &action, std::ptr::null_mut()), 0);
    }
}

/// Sends the signal to this thread, which handles it before this returns.
fn send_to_itself() {
    // SAFETY: no pointers.
    assert_eq!(unsafe { libc::raise(libc::SIGBUS) }, 0);
}

#[track_caller]
fn must_die_of_bus_error(test: &str, body: impl FnOnce()) {
    match child::run(test) {
        None => {
            // A fault that no handler ends would occur for ever.
            child::limit(libc::RLIMIT_CPU, 2).unwrap();
            body();
        }
        Some(output) => {
            let text = child::transcript(&output);
            assert_eq!(output.status.signal(), Some(libc::SIGBUS), "{text}");
            assert!(text.contains("about to die"), "{text}");
        }
    }
}

#[test]
fn a_bus_error_of_the_program_ends_it() {
    must_die_of_bus_error("a_bus_error_of_the_program_ends_it", || {
        SigbusHandler::install().unwrap();
        println!("about to die");
        raise_bus_error();
    });
}

#[test]
fn a_bus_error_on_a_fiber_ends_the_program() {
    must_die_of_bus_error("a_bus_error_on_a_fiber_ends_the_program", || {
        set_action(libc::SIG_DFL, 0);
        SigbusHandler::install().unwrap();
        println!("about to die");
        solitary(raise_bus_error);
    });
}

#[test]
fn a_sent_bus_error_ends_the_program() {
    must_die_of_bus_error("a_sent_bus_error_ends_the_program", || {
        set_action(libc::SIG_DFL, 0);
        SigbusHandler::install().unwrap();
        println!("about to die");
        send_to_itself();
    });
}

static CALLS: AtomicUsize = AtomicUsize::new(0);

extern "C" fn count(_: i32) {
    CALLS.fetch_add(1, SeqCst);
}

extern "C" fn count_with_info(_: i32, info: *mut libc::siginfo_t, _: *mut libc::c_void) {
    // SAFETY: the kernel passes a valid structure.
    if unsafe { (*info).si_code } == libc::SI_TKILL {
        CALLS.fetch_add(10, SeqCst);
    }
}

#[test]
fn the_handler_before_is_called() {
    child::must_succeed("the_handler_before_is_called", || {
        set_action(count_with_info as *const () as usize, libc::SA_SIGINFO);
        SigbusHandler::install().unwrap();
        SigbusHandler::install().unwrap();
        send_to_itself();
        assert_eq!(CALLS.load(SeqCst), 10);
        solitary(send_to_itself);
        assert_eq!(CALLS.load(SeqCst), 20);
    });
}

#[test]
fn a_plain_handler_before_is_called() {
    child::must_succeed("a_plain_handler_before_is_called", || {
        set_action(count as *const () as usize, 0);
        SigbusHandler::install().unwrap();
        send_to_itself();
        assert_eq!(CALLS.load(SeqCst), 1);
    });
}

/// As a handler that prints a report and returns, so that the fault ends the process.
#[test]
fn a_handler_before_that_is_called_once_is_called_once() {
    must_die_of_bus_error("a_handler_before_that_is_called_once_is_called_once", || {
        set_action(report as *const () as usize, libc::SA_RESETHAND);
        SigbusHandler::install().unwrap();
        raise_bus_error();
    });
}

extern "C" fn report(_: i32) {
    const TEXT: &[u8] = b"about to die\n";
    // SAFETY: the bytes are static.
    unsafe { libc::write(1, TEXT.as_ptr().cast(), TEXT.len()) };
    // A second call would be one of many, without an end.
    if CALLS.fetch_add(1, SeqCst) > 0 {
        // SAFETY: no pointers.
        unsafe { libc::_exit(3) };
    }
}

#[test]
fn an_ignored_signal_stays_ignored() {
    child::must_succeed("an_ignored_signal_stays_ignored", || {
        set_action(libc::SIG_IGN, 0);
        SigbusHandler::install().unwrap();
        send_to_itself();
        send_to_itself();
    });
}

#[test]
fn a_removed_handler_is_refused() {
    child::must_succeed("a_removed_handler_is_refused", || {
        let (_directory, path) = file();
        let handler = SigbusHandler::install().unwrap();
        set_action(libc::SIG_DFL, 0);
        let e = MappedFile::new(File::open(&path).unwrap(), handler).unwrap_err();
        assert!(e.kind() == ErrorKind::Unsupported && e.to_string().contains("SIGBUS"), "{e}");
    });
}

/// `mincore` reports each page of another user's file as resident.
#[test]
fn a_file_of_another_user_is_read_by_the_driver() {
    child::must_succeed("a_file_of_another_user_is_read_by_the_driver", || {
        let (directory, path) = file();
        if std::fs::metadata(directory.path()).unwrap().uid() != 0 {
            return println!("skipped: only root can become another user");
        }
        let (opened, mapped) = (File::open(&path).unwrap(), map(&path));
        mapped.refresh();
        assert_eq!(mapped.unmapped(), None);
        // SAFETY: no pointers.
        if unsafe { libc::setuid(65_534) } != 0 {
            return println!("skipped: this root cannot become another user");
        }
        mapped.refresh();
        assert_eq!((mapped.unmapped(), mapped.resident_bytes()), (Some(Unmapped::Permission), 0));
        let other = MappedFile::new(opened, SigbusHandler::install().unwrap()).unwrap();
        assert_eq!(other.unmapped(), Some(Unmapped::Permission));
        for file in [mapped, other] {
            let mut page = [0; PAGE];
            file.read_exact_at(&mut page, 0).unwrap();
            assert_eq!(page[..], pattern(PAGE));
        }
        std::mem::forget(directory);
    });
}

#[test]
fn a_child_of_fork_reads_by_the_driver() {
    child::must_succeed("a_child_of_fork_reads_by_the_driver", || {
        let (_directory, path) = file();
        let mapped = map(&path);
        mapped.refresh();
        // SAFETY: the process has one thread, besides that of the test harness, which waits.
        match unsafe { libc::fork() } {
            0 => {
                let mut page = [0; PAGE];
                mapped.read_exact_at(&mut page, 0).unwrap();
                assert_eq!(page[..], pattern(PAGE));
                mapped.refresh();
                assert_eq!(mapped.resident_bytes(), 0);
                mapped.read_exact_at(&mut page, 0).unwrap();
                assert_eq!(page[..], pattern(PAGE));
                // SAFETY: no pointers.
                unsafe { libc::_exit(7) };
            }
            child => {
                let mut status = 0;
                // SAFETY: the variable is borrowed for the call.
                unsafe { libc::waitpid(child, &mut status, 0) };
                assert!(libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == 7, "{status}");
            }
        }
    });
}

/// A thread for each look would exhaust the memory maps of the process, and end it.
#[test]
fn many_files_are_looked_at_by_few_threads() {
    let (_directory, path) = file();
    solitary(|| {
        let files: Vec<_> = (0..500).map(|_| map(&path)).collect();
        for file in &files {
            file.read_exact_at(&mut [0; 100], 0).unwrap();
        }
        drop(files);
        let stats = runtime::stats().unwrap();
        let (threads, others) = (stats.map_pool.threads, stats.unblock_pool.threads);
        assert!(threads <= 2 && others == 0, "{stats}");
    });
}

fn resident_pages() -> usize {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap();
    statm.split(' ').nth(1).unwrap().parse().unwrap()
}

#[test]
fn a_large_sparse_file_takes_little_memory() {
    child::must_succeed("a_large_sparse_file_takes_little_memory", || {
        let directory = directory();
        let path = directory.path().join("file");
        let file = std::fs::File::create_new(&path).unwrap();
        let len = 8 << 40;
        if file.set_len(len).is_err() {
            return println!("skipped: the file system has no files of 8 TiB");
        }
        let before = resident_pages();
        let mapped = map(&path);
        if mapped.unmapped().is_some() {
            return println!("skipped: {:?}", mapped.unmapped());
        }
        let mut page = [1; PAGE];
        mapped.read_exact_at(&mut page, len / 2).unwrap();
        assert_eq!(page, [0; PAGE]);
        // A bit for each page would be 256 MiB.
        assert!(resident_pages() - before < (64 << 20) / PAGE);
    });
}
