//! Files and locks that fibers share with threads.

use crate::common::{on_both_drivers, on_one_and_two_workers};
use cringle::fiber;
use std::fs::File;
use std::io::{Read, Seek, Write};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Condvar, Mutex, RwLock};
use std::time::Duration;

const EACH: usize = 200;

/// The kernel serialises the writes at one cursor, whoever makes them.
#[test]
fn writers_at_one_cursor_lose_nothing() {
    on_one_and_two_workers(|| {
        let file = tempfile::tempfile().unwrap();
        let write = |who: usize| {
            for n in 0..EACH {
                // Small ones and ones that suspend.
                let len = if n % 20 == 0 { 80_000 } else { 16 };
                let record = vec![who as u8 + 1; len];
                assert_eq!((&file).write(&record).unwrap(), len);
            }
        };
        std::thread::scope(|threads| {
            threads.spawn(|| write(0));
            fiber::scope(|s| (1..4).for_each(|who| drop(s.spawn(move || write(who)))));
        });
        let mut all = Vec::new();
        (&file).rewind().unwrap();
        (&file).read_to_end(&mut all).unwrap();
        let expected = EACH / 20 * 80_000 + (EACH - EACH / 20) * 16;
        for who in 1..=4 {
            assert_eq!(all.iter().filter(|&&byte| byte == who).count(), expected);
        }
        assert_eq!(all.len(), 4 * expected);
    });
}

#[test]
fn readers_at_one_cursor_read_each_byte_once() {
    on_one_and_two_workers(|| {
        let file = tempfile::tempfile().unwrap();
        let numbers: Vec<u8> = (0..20_000u32).flat_map(u32::to_ne_bytes).collect();
        file.write_all_at(&numbers, 0).unwrap();
        let found: [AtomicUsize; 20_000] = std::array::from_fn(|_| AtomicUsize::new(0));
        let read = || {
            let mut buf = [0; 40];
            while (&file).read(&mut buf).unwrap() > 0 {
                for number in buf.chunks_exact(4) {
                    let number = u32::from_ne_bytes(number.try_into().unwrap());
                    found[number as usize].fetch_add(1, Ordering::SeqCst);
                }
            }
        };
        std::thread::scope(|threads| {
            threads.spawn(read);
            fiber::scope(|s| [(); 3].map(|()| s.spawn(read)).into_iter().for_each(drop));
        });
        assert!(found.iter().all(|count| count.load(Ordering::SeqCst) == 1));
    });
}

#[repr(align(4096))]
struct Page([u8; 4096]);

/// Opens a file in the build's directory, whose file system has direct I/O, unlike some `/tmp`.
fn direct_file() -> Option<File> {
    let directory = std::path::Path::new(env!("CARGO_TARGET_TMPDIR"));
    let path = directory.join(format!("direct-{}", std::process::id()));
    let mut options = File::options();
    options.read(true).write(true).create(true).custom_flags(libc::O_DIRECT);
    let file = match options.open(&path) {
        Err(e) if e.raw_os_error() == Some(libc::EINVAL) => return None,
        result => result.unwrap(),
    };
    std::fs::remove_file(path).unwrap();
    Some(file)
}

#[test]
fn direct_files_keep_their_contents() {
    let Some(file) = direct_file() else { return println!("skipped: no direct I/O here") };
    // The kernel and the disk decide whether it is refused.
    let misaligned = |file: &File, page: &Page, at| {
        let short = file.write_at(&page.0[1..100], at).map_err(|e| e.raw_os_error());
        (short, file.write_at(&page.0[1..513], at).map_err(|e| e.raw_os_error()))
    };
    let on_a_thread = misaligned(&file, &Page([0; 4096]), 0);
    on_both_drivers(|| {
        (&file).rewind().unwrap();
        fiber::scope(|s| {
            for n in 0..8u8 {
                let file = &file;
                s.spawn(move || {
                    let (mut page, at) = (Box::new(Page([n; 4096])), u64::from(n) * 4096);
                    assert_eq!(file.write_at(&page.0, at).unwrap(), 4096);
                    page.0.fill(99);
                    assert_eq!(file.read_at(&mut page.0, at).unwrap(), 4096);
                    assert_eq!(page.0, [n; 4096]);
                    assert_eq!(misaligned(file, &page, at), on_a_thread);
                });
            }
        });
        // At the cursor, which the kernel moves.
        let seen = Mutex::new(Vec::new());
        fiber::scope(|s| {
            for _ in 0..8 {
                s.spawn(|| {
                    let mut page = Box::new(Page([99; 4096]));
                    assert_eq!((&file).read(&mut page.0).unwrap(), 4096);
                    assert!(page.0.iter().all(|&byte| byte == page.0[0]));
                    seen.lock().unwrap().push(page.0[0]);
                });
            }
        });
        let mut seen = seen.into_inner().unwrap();
        seen.sort_unstable();
        assert_eq!(seen, [0, 1, 2, 3, 4, 5, 6, 7]);
    });
}

/// The waits for locks continue, so each caller has what it has waited for.
#[test]
fn cancelled_fibers_get_their_locks() {
    on_one_and_two_workers(|| {
        let (count, turn, readers) = (Mutex::new(0), Condvar::new(), RwLock::new(0));
        let work = |who: usize| {
            for _ in 0..50 {
                let mut held = count.lock().unwrap();
                let before = *held;
                std::thread::yield_now();
                *held = before + 1;
                turn.notify_all();
                while *held % 2 == 1 && *held < 8 {
                    held = turn.wait_timeout(held, Duration::from_micros(100)).unwrap().0;
                }
                drop(held);
                if who.is_multiple_of(2) {
                    *readers.write().unwrap() += 1;
                } else {
                    let first = readers.read().unwrap();
                    let seen = *first;
                    std::thread::yield_now();
                    assert_eq!(*first, seen);
                }
            }
        };
        std::thread::scope(|threads| {
            threads.spawn(|| work(0));
            fiber::scope(|s| {
                (1..8).for_each(|who| drop(s.spawn(move || work(who))));
                fiber::sleep(Duration::from_micros(300));
                s.cancel();
            });
        });
        assert_eq!(count.into_inner().unwrap(), 8 * 50);
        assert_eq!(readers.into_inner().unwrap(), 4 * 50);
    });
}
