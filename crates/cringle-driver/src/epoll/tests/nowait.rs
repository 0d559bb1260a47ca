//! Attempts without waiting: which ops they complete, and which ones go to the pools.

use super::*;
use std::io::Read;
use std::os::unix::fs::{FileExt, OpenOptionsExt};

#[test]
fn status_flags_are_cached_for_one_file() {
    let file = tempfile::tempfile().unwrap();
    let fd = file.as_raw_fd();
    let mut last = LastFile::default();
    let flags = last.flags(fd);
    assert_eq!(flags, sys::status_flags(fd));
    sys::set_status_flags(fd, flags | libc::O_APPEND).unwrap();
    assert_eq!(last.flags(fd), flags, "the flags are cached");
    let other = std::fs::File::open("/dev/null").unwrap();
    assert_eq!(last.flags(other.as_raw_fd()), sys::status_flags(other.as_raw_fd()));
    assert_eq!(last.flags(fd), flags | libc::O_APPEND);
    sys::set_status_flags(fd, flags).unwrap();
    last.forget();
    assert_eq!(last.flags(fd), flags);
}

/// The page cache holds the file, but `O_DIRECT` bypasses it.
#[test]
fn direct_read_goes_to_the_pool() {
    let file = tempfile::NamedTempFile::new().unwrap();
    file.as_file().write_all_at(&[7; 4096], 0).unwrap();
    let direct = std::fs::File::options().read(true).custom_flags(libc::O_DIRECT).open(file.path());
    let Ok(direct) = direct else {
        return println!("skipped: this file system knows no O_DIRECT");
    };
    let mut rig = Rig::new(8);
    let read = |rig: &mut Rig, file: &std::fs::File| {
        let target = Target::fd(file.as_raw_fd());
        let number = rig.push(|buf| Op::read(target, buf, 1, 0)).unwrap();
        rig.epoll.enter(Wait::No);
        number
    };
    let number = read(&mut rig, &direct);
    // Direct reads may refuse a length of one byte.
    rig.until_idle();
    assert!(rig.result(number) < 0 || rig.byte(number) == 7);
    assert_eq!(rig.epoll.pools.storage.load().1, 1);

    // The same number without the flag, one turn later: the page cache answers.
    let mut rig = Rig::new(8);
    read(&mut rig, &direct);
    rig.until_idle();
    let flags = sys::status_flags(direct.as_raw_fd());
    sys::set_status_flags(direct.as_raw_fd(), flags & !libc::O_DIRECT).unwrap();
    let number = read(&mut rig, &direct);
    assert!(matches!(rig.stage(number), Stage::Ended), "the cached flags are stale");
    rig.until_idle();
    assert_eq!(rig.byte(number), 7);
}

/// The file ends before the buffer: a second call finds that out.
#[test]
fn cached_read_returns_all_of_the_file() {
    let file = tempfile::tempfile().unwrap();
    let text: Vec<u8> = (0..10_000u32).map(|n| n as u8).collect();
    file.write_all_at(&text, 0).unwrap();
    let mut buf = vec![0; 20_000];
    let mut rig = Rig::new(8);
    let (target, fd) = (Target::fd(file.as_raw_fd()), file.as_raw_fd());
    let (at, len) = (buf.as_mut_ptr(), buf.len() as u32);
    let plain = rig.push(|_| Op::read(target, at, len, 100)).unwrap();
    rig.until_idle();
    assert_eq!((rig.result(plain), &buf[..9900]), (9900, &text[100..]));
    buf.fill(0);
    let (one, two) = buf.split_at_mut(5000);
    let slices = [one, two]
        .map(|part| libc::iovec { iov_base: part.as_mut_ptr().cast(), iov_len: part.len() });
    let vectored = rig.push(|_| Op::slices(Way::Read, fd, slices.as_ptr(), 2, 100, 0)).unwrap();
    rig.until_idle();
    assert_eq!((rig.result(vectored), &buf[..9900]), (9900, &text[100..]));
    let past = rig.push(|buf| Op::read(target, buf, 1, 1 << 20)).unwrap();
    rig.until_idle();
    assert_eq!(rig.result(past), 0);
}

/// The page cache holds the start of the file only, where the file system heeds the advice.
#[test]
fn read_continues_on_the_pool() {
    const SIZE: usize = 1 << 18;
    let file = tempfile::tempfile().unwrap();
    let text: Vec<u8> = (0..SIZE as u32).map(|n| (n % 251) as u8).collect();
    file.write_all_at(&text, 0).unwrap();
    file.sync_data().unwrap();
    let (fd, target) = (file.as_raw_fd(), Target::fd(file.as_raw_fd()));
    for vectored in [false, true] {
        // SAFETY: no pointers are passed.
        unsafe {
            libc::posix_fadvise(fd, 0, 0, libc::POSIX_FADV_DONTNEED);
            // No read-ahead.
            libc::posix_fadvise(fd, 0, 0, libc::POSIX_FADV_RANDOM);
        }
        file.read_exact_at(&mut [0; 4096], 0).unwrap();
        let mut buf = vec![0; SIZE - 100];
        let at = buf.as_mut_ptr();
        let slices = [(0, 1000), (1000, buf.len() - 1000)].map(|(from, len)| libc::iovec {
            iov_base: at.wrapping_add(from).cast(),
            iov_len: len,
        });
        let mut rig = Rig::new(8);
        let (len, slices) = (buf.len() as u32, slices.as_ptr());
        let read = rig.push(|_| {
            if vectored {
                Op::slices(Way::Read, fd, slices, 2, 100, 0)
            } else {
                Op::read(target, at, len, 100)
            }
        });
        let read = read.unwrap();
        rig.until_idle();
        assert_eq!(rig.result(read) as usize, buf.len());
        assert!(buf == text[100..]);
    }
}

#[test]
fn offset_of_a_pipe_is_ignored() {
    let mut rig = Rig::new(8);
    let (reader, writer) = std::io::pipe().unwrap();
    let [from, to] = [reader.as_raw_fd(), writer.as_raw_fd()].map(Target::fd);
    let reads = [0, 1].map(|index| {
        let read = rig.push(|buf| match index {
            0 => Op::read(from, buf, 1, 5),
            _ => Op::registered(Way::Read, from, buf, 1, 5, 0),
        });
        read.unwrap()
    });
    let writes = [0, 1].map(|index| {
        let write = rig.push(|buf| {
            // SAFETY: I1. The byte belongs to the frame, and no op uses it yet.
            unsafe { *buf = 7 + index as u8 };
            match index {
                0 => Op::write(to, buf, 1, 5),
                _ => Op::registered(Way::Write, to, buf, 1, 5, 0),
            }
        });
        write.unwrap()
    });
    rig.until_idle();
    assert_eq!(reads.map(|read| (rig.result(read), rig.byte(read))), [(1, 7), (1, 8)]);
    assert_eq!(writes.map(|write| rig.result(write)), [1, 1]);
}

#[test]
fn cancel_after_the_completion_does_nothing() {
    let mut rig = Rig::new(8);
    let (reader, mut writer) = std::io::pipe().unwrap();
    let nop = rig.push(|_| Op::Nop).unwrap();
    rig.enter();
    // It has the number of the op that has ended.
    let read = rig.read(&reader);
    rig.enter();
    assert_eq!(rig.number(read), rig.number(nop));
    rig.cancel(nop);
    writer.write_all(&[7]).unwrap();
    rig.until_idle();
    assert_eq!((rig.result(read), rig.byte(read)), (1, 7));
}

/// A writable FIFO has room for `PIPE_BUF` bytes at least.
#[test]
fn fifo_write_takes_one_piece() {
    let directory = tempfile::tempdir().unwrap();
    let mut fifo = fifo(&directory);
    let fd = fifo.as_raw_fd();
    let mut rig = Rig::new(8);
    let mut read = |count: usize| {
        let mut buf = vec![0; count];
        fifo.read_exact(&mut buf).unwrap();
        let drained = poll_now(&fifo, libc::POLLIN) == 0;
        assert!(drained, "more was written");
        buf
    };
    let mut write = |sizes: &[usize]| {
        let text: Vec<u8> = (0..sizes.iter().sum::<usize>()).map(|n| n as u8 | 1).collect();
        let mut rest = &text[..];
        let slices: Vec<_> = sizes
            .iter()
            .map(|&size| {
                let part;
                (part, rest) = rest.split_at(size);
                libc::iovec { iov_base: part.as_ptr().cast_mut().cast(), iov_len: size }
            })
            .collect();
        let (slices, count) = (slices.as_ptr(), slices.len() as u32);
        let op = match sizes {
            &[len] => {
                let (target, buf) = (Target::fd(fd), text.as_ptr());
                Op::write(target, buf, len as u32, AT_CURSOR)
            }
            _ => Op::slices(Way::Write, fd, slices, count, AT_CURSOR, 0),
        };
        let number = rig.push(|_| op).unwrap();
        rig.until_idle();
        let count = rig.result(number) as usize;
        assert!(read(count) == text[..count]);
        count
    };
    assert_eq!(write(&[4096]), 4096);
    assert_eq!(write(&[4097]), 4096);
    assert_eq!(write(&[96, 4000]), 4096);
    assert_eq!(write(&[0, 97, 4000]), 97);
    assert_eq!(write(&[5000, 1]), 4096);
    assert_eq!(rig.epoll.pools.unbounded.load().1, 0, "a write went to the pool");
}

#[test]
fn fifo_reads_wait_for_data() {
    let directory = tempfile::tempdir().unwrap();
    let mut fifo = fifo(&directory);
    let mut rig = Rig::new(8);
    let plain = rig.read(&fifo);
    let mut buf = [0u8; 4];
    let slices = [0, 1, 2].map(|n| libc::iovec { iov_base: (&raw mut buf[n]).cast(), iov_len: 1 });
    let fd = fifo.as_raw_fd();
    let vectored =
        rig.push(|_| Op::slices(Way::Read, fd, slices.as_ptr(), 3, AT_CURSOR, 0)).unwrap();
    rig.enter();
    assert!(rig.settled.is_empty());
    fifo.write_all(b"1234").unwrap();
    rig.until_idle();
    assert_eq!((rig.result(plain), rig.byte(plain)), (1, b'1'));
    assert_eq!((rig.result(vectored), &buf), (3, b"234\0"));
}

#[test]
fn only_cached_opens_need_no_thread() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("file");
    std::fs::write(&path, "text").unwrap();
    let [here, gone, inside] = [&path, &directory.path().join("gone"), directory.path()]
        .map(|path: &std::path::Path| CString::new(path.as_os_str().as_bytes()).unwrap());
    let mut rig = Rig::new(8);
    let mut open = |path: &CString, flags: i32| {
        let (dir, path) = (libc::AT_FDCWD, path.as_ptr());
        let number =
            rig.push(|_| Op::Path(PathOp::Open { dir, path, flags, mode: 0o600 })).unwrap();
        rig.epoll.enter(Wait::No);
        let threads = rig.epoll.pools.storage.load().1;
        rig.until_idle();
        let result = rig.result(number);
        if result >= 0 {
            // SAFETY: the descriptor is newly opened by the op, and owned here.
            drop(unsafe { <OwnedFd as std::os::fd::FromRawFd>::from_raw_fd(result) });
        }
        (threads, result.min(0))
    };
    assert_eq!(open(&here, libc::O_RDONLY | libc::O_CLOEXEC), (0, 0));
    assert_eq!(open(&gone, libc::O_RDONLY), (1, -libc::ENOENT));
    for flags in [libc::O_CREAT, libc::O_TRUNC] {
        assert_eq!(open(&here, libc::O_RDWR | flags).1, 0);
    }
    assert_eq!(std::fs::metadata(&path).unwrap().len(), 0);
    let unnamed = open(&inside, libc::O_RDWR | libc::O_TMPFILE).1;
    assert!(unnamed == 0 || unnamed == -libc::EOPNOTSUPP);
}

#[test]
fn attention_reports_completions_and_queued_ops() {
    let mut rig = Rig::new(8);
    let (reader, mut writer) = std::io::pipe().unwrap();
    assert_eq!(rig.epoll.attention(), (false, false));
    let read = rig.read(&reader);
    assert_eq!(rig.epoll.attention(), (false, true));
    assert!(rig.epoll.has_queued() && rig.epoll.queued() == 1);
    rig.enter();
    assert!(!rig.epoll.has_queued() && rig.epoll.queued() == 0);
    assert_eq!(rig.epoll.attention(), (false, false));
    writer.write_all(&[7]).unwrap();
    // It polls for events, too.
    until(|| rig.epoll.attention() == (true, true));
    rig.reap();
    assert_eq!((rig.result(read), rig.byte(read)), (1, 7));
    assert_eq!(rig.epoll.attention(), (false, false));
}

#[test]
fn events_are_polled_only_while_ops_wait() {
    let mut rig = Rig::new(8);
    let (reader, _writer) = std::io::pipe().unwrap();
    rig.epoll.last_poll = Instant::now() - 2 * POLL_INTERVAL;
    assert!(!rig.epoll.is_poll_due());
    let read = rig.read(&reader);
    rig.enter();
    rig.epoll.last_poll = Instant::now() + Duration::from_secs(3600);
    assert!(!rig.epoll.is_poll_due(), "a poll has just been done");
    rig.epoll.last_poll = Instant::now();
    until(|| rig.epoll.is_poll_due());
    let before = rig.epoll.last_poll;
    rig.epoll.attention();
    assert!(rig.epoll.last_poll > before);
    rig.cancel(read);
    rig.until_idle();
    rig.epoll.last_poll = Instant::now() - 2 * POLL_INTERVAL;
    assert!(!rig.epoll.is_poll_due());
}

#[test]
fn driver_counts_enters_and_ops() {
    let mut rig = Rig::new(8);
    let (reader, _writer) = std::io::pipe().unwrap();
    let read = rig.read(&reader);
    rig.push(|_| Op::Nop).unwrap();
    rig.epoll.enter(Wait::No);
    let counts = Arc::clone(rig.epoll.counts());
    assert_eq!((counts.enters.get(), counts.submitted.get(), counts.in_flight.get()), (1, 2, 2));
    rig.reap();
    assert_eq!(counts.in_flight.get(), 1);
    rig.cancel(read);
    rig.until_idle();
    assert_eq!(counts.in_flight.get(), 0);
}
