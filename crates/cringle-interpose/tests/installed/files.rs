//! std's files, pipes and processes.

use crate::common::{on_both_drivers, waits_for};
use cringle::fiber;
use std::fs::{self, File};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::os::unix::net::UnixStream;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

#[test]
fn std_pipe_waits_only_its_fiber() {
    on_both_drivers(|| {
        let (mut reader, mut writer) = io::pipe().unwrap();
        let mut buf = [0; 4];
        waits_for(|| reader.read_exact(&mut buf).unwrap(), || writer.write_all(b"rope").unwrap());
        assert_eq!(&buf, b"rope");
        let much = vec![7; 1 << 20];
        let mut received = vec![0; 1 << 20];
        waits_for(
            || assert_eq!((&writer).write(&much).unwrap(), 1 << 20),
            || reader.read_exact(&mut received).unwrap(),
        );
        assert!(received == much);
        waits_for(|| assert_eq!(reader.read(&mut buf).unwrap(), 0), || drop(writer));
    });
}

#[test]
fn std_files_keep_their_contents_and_cursor() {
    on_both_drivers(|| {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("file");
        let bytes: Vec<u8> = (0..100_000u32).map(|i| (i / 3) as u8).collect();
        fiber::scope(|s| {
            // Other fibers are ready, so that no call is the plain one.
            let busy = s.spawn(|| (0..2000).for_each(|_| fiber::yield_now()));
            let mut file =
                File::options().read(true).write(true).create_new(true).open(&path).unwrap();
            for part in bytes.chunks(9999) {
                file.write_all(part).unwrap();
            }
            assert_eq!(file.stream_position().unwrap(), bytes.len() as u64);
            file.rewind().unwrap();
            let mut read = Vec::new();
            file.read_to_end(&mut read).unwrap();
            assert!(read == bytes);
            let mut part = [0; 1000];
            file.read_exact_at(&mut part, 5000).unwrap();
            assert!(part == bytes[5000..6000]);
            file.write_all_at(b"rope", 99_998).unwrap();
            file.seek(SeekFrom::Start(99_990)).unwrap();
            read.clear();
            file.read_to_end(&mut read).unwrap();
            assert!(read[..8] == bytes[99_990..99_998] && &read[8..] == b"rope");
            busy.join().unwrap();
        });
        assert_eq!(fs::read(&path).unwrap().len(), 100_002);
    });
}

#[test]
fn std_command_waits_only_its_fiber() {
    on_both_drivers(|| {
        let mut child = Command::new("cat")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("cat is installed");
        let (mut to, from) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
        let text = waits_for(
            || io::read_to_string(from).unwrap(),
            || {
                to.write_all(b"ahoy").unwrap();
                drop(to);
            },
        );
        assert_eq!(text, "ahoy");
        assert!(child.wait().unwrap().success());
        // Both outputs at once, by `poll`.
        let output = Command::new("sh").args(["-c", "echo out; echo err >&2"]).output().unwrap();
        assert_eq!((&output.stdout[..], &output.stderr[..]), (&b"out\n"[..], &b"err\n"[..]));
    });
}

#[test]
fn calls_that_never_wait_let_others_run() {
    on_both_drivers(|| {
        let (file, stop) = (File::open("/proc/self/exe").unwrap(), AtomicBool::new(false));
        let (reads, mut socket) = (AtomicUsize::new(0), UnixStream::pair().unwrap());
        fiber::scope(|s| {
            s.spawn(|| {
                while !stop.load(Ordering::SeqCst) {
                    file.read_exact_at(&mut [0; 64], 0).unwrap();
                    reads.fetch_add(1, Ordering::SeqCst);
                }
            });
            s.spawn(|| {
                let (ours, theirs) = (&mut socket.0, &mut socket.1);
                while !stop.load(Ordering::SeqCst) {
                    ours.write_all(b"!").unwrap();
                    theirs.read_exact(&mut [0]).unwrap();
                }
            });
            while reads.load(Ordering::SeqCst) < 1000 {
                fiber::yield_now();
            }
            stop.store(true, Ordering::SeqCst);
        });
    });
}

/// Whether the file system can say that a write would have to wait, as btrfs and XFS can, and ext4
/// cannot.
fn attempts_writes(file: &File) -> bool {
    let byte = libc::iovec { iov_base: (&raw const b"x"[0]).cast_mut().cast(), iov_len: 1 };
    // SAFETY: the byte and the structure live, and the kernel only reads them.
    let count = unsafe { libc::pwritev2(file.as_raw_fd(), &byte, 1, 0, libc::RWF_NOWAIT) };
    count >= 0 || io::Error::last_os_error().raw_os_error() != Some(libc::EOPNOTSUPP)
}

/// A program's lock, such as SQLite's, may be held over the write: other fibers would wait for it.
#[test]
fn small_writes_to_files_do_not_suspend() {
    if attempts_writes(&tempfile::tempfile().unwrap()) {
        return eprintln!("skipped: on this file system a write may be attempted, and then waits");
    }
    on_both_drivers(|| {
        let (turns, is_done) = (AtomicUsize::new(0), AtomicBool::new(false));
        let mut file = tempfile::tempfile().unwrap();
        fiber::scope(|s| {
            s.spawn(|| {
                while !is_done.load(Ordering::SeqCst) {
                    turns.fetch_add(1, Ordering::SeqCst);
                    fiber::yield_now();
                }
            });
            let writer = s.spawn(|| {
                fiber::yield_now();
                let before = turns.load(Ordering::SeqCst);
                for n in 0..20u8 {
                    file.write_all(&[n; 3000]).unwrap();
                    file.write_all_at(&[n; 40], u64::from(n) * 3000).unwrap();
                }
                let after = turns.load(Ordering::SeqCst);
                is_done.store(true, Ordering::SeqCst);
                assert_eq!(after, before);
                let mut all = Vec::new();
                file.rewind().unwrap();
                file.read_to_end(&mut all).unwrap();
                assert!(
                    all.len() == 60_000 && all.chunks(3000).zip(0u8..).all(|(c, n)| c == [n; 3000])
                );
            });
            writer.join().unwrap();
        });
        assert!(turns.load(Ordering::SeqCst) > 0);
    });
}
