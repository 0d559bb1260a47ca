//! Files and pipes behave as with std (promise 1), for every kind of descriptor.

use cringle_testing::disk;
use cringle_testing::same;
use cringle_testing::same::Log;
use cringle_testing::terminal::{raw_terminal, set_timing};
use std::os::fd::{FromRawFd, OwnedFd};
use std::path::Path;

/// The kinds of descriptors behind a `File`. A read finds data, and a write has room.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Regular,
    ReadOnly,
    WriteOnly,
    Appending,
    NoAccess,
    Directory,
    Memory,
    Reader,
    Writer,
    ClosedReader,
    BrokenWriter,
    NonblockingReader,
    Stream,
    NonblockingStream,
    Datagram,
    Listener,
    Event,
    NonblockingEvent,
    Timer,
    Epoll,
    Inotify,
    Process,
    Signal,
    Terminal,
    Null,
    Zero,
    Full,
    Random,
    Proc,
    ProcWritable,
    ProcSequence,
    Sys,
}

const KINDS: [Kind; 32] = {
    use Kind::*;
    [
        Regular,
        ReadOnly,
        WriteOnly,
        Appending,
        NoAccess,
        Directory,
        Memory,
        Reader,
        Writer,
        ClosedReader,
        BrokenWriter,
        NonblockingReader,
        Stream,
        NonblockingStream,
        Datagram,
        Listener,
        Event,
        NonblockingEvent,
        Timer,
        Epoll,
        Inotify,
        Process,
        Signal,
        Terminal,
        Null,
        Zero,
        Full,
        Random,
        Proc,
        ProcWritable,
        ProcSequence,
        Sys,
    ]
};

/// A new descriptor, and the peers that must stay open.
fn open(kind: Kind, directory: &Path) -> (OwnedFd, Vec<OwnedFd>) {
    use std::io::Write;
    use std::os::unix::fs::OpenOptionsExt;
    use std::os::unix::net::{UnixDatagram, UnixListener, UnixStream};
    let path = directory.join("file");
    let _ = std::fs::remove_file(&path);
    std::fs::write(&path, "0123456789").unwrap();
    let mut options = std::fs::OpenOptions::new();
    let new = |fd: i32| {
        assert!(fd >= 0, "{kind:?}: {}", std::io::Error::last_os_error());
        // SAFETY: the call has just returned this descriptor.
        unsafe { OwnedFd::from_raw_fd(fd) }
    };
    let alone = |fd: OwnedFd| (fd, Vec::new());
    let file = |options: &std::fs::OpenOptions, path: &str| {
        (OwnedFd::from(options.open(path).unwrap()), Vec::new())
    };
    let path = path.to_str().unwrap();
    let pipe = || {
        let (reader, mut writer) = std::io::pipe().unwrap();
        writer.write_all(b"0123456789").unwrap();
        (OwnedFd::from(reader), OwnedFd::from(writer))
    };
    // SAFETY: each call gets the arguments that its manual page requires.
    unsafe {
        match kind {
            Kind::Regular => file(options.read(true).write(true), path),
            Kind::ReadOnly => file(options.read(true), path),
            Kind::WriteOnly => file(options.write(true), path),
            Kind::Appending => file(options.read(true).append(true), path),
            Kind::NoAccess => file(options.read(true).custom_flags(libc::O_PATH), path),
            Kind::Directory => file(options.read(true), directory.to_str().unwrap()),
            Kind::Memory => {
                let fd = new(libc::memfd_create(c"same".as_ptr(), libc::MFD_CLOEXEC));
                assert_eq!(
                    libc::pwrite(
                        std::os::fd::AsRawFd::as_raw_fd(&fd),
                        c"0123".as_ptr().cast(),
                        4,
                        0
                    ),
                    4
                );
                alone(fd)
            }
            Kind::Reader => {
                let (reader, writer) = pipe();
                (reader, vec![writer])
            }
            Kind::Writer => {
                let (reader, writer) = pipe();
                (writer, vec![reader])
            }
            Kind::ClosedReader => alone(OwnedFd::from(std::io::pipe().unwrap().0)),
            Kind::BrokenWriter => alone(OwnedFd::from(std::io::pipe().unwrap().1)),
            Kind::NonblockingReader => {
                let (reader, writer) = std::io::pipe().unwrap();
                let fd = std::os::fd::AsRawFd::as_raw_fd(&reader);
                assert_eq!(libc::fcntl(fd, libc::F_SETFL, libc::O_NONBLOCK), 0);
                (reader.into(), vec![writer.into()])
            }
            Kind::Stream => {
                let (ours, mut theirs) = UnixStream::pair().unwrap();
                theirs.write_all(b"0123456789").unwrap();
                (ours.into(), vec![theirs.into()])
            }
            Kind::NonblockingStream => {
                let (ours, theirs) = UnixStream::pair().unwrap();
                ours.set_nonblocking(true).unwrap();
                (ours.into(), vec![theirs.into()])
            }
            Kind::Datagram => {
                let (ours, theirs) = UnixDatagram::pair().unwrap();
                for text in [b"0123", b"4567"] {
                    theirs.send(text).unwrap();
                }
                (ours.into(), vec![theirs.into()])
            }
            Kind::Listener => {
                let path = directory.join("socket");
                let _ = std::fs::remove_file(&path);
                alone(UnixListener::bind(path).unwrap().into())
            }
            Kind::Event => alone(new(libc::eventfd(3, libc::EFD_CLOEXEC))),
            Kind::NonblockingEvent => {
                alone(new(libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK)))
            }
            Kind::Timer => {
                let fd = new(libc::timerfd_create(libc::CLOCK_MONOTONIC, libc::TFD_CLOEXEC));
                let nothing = libc::timespec { tv_sec: 0, tv_nsec: 0 };
                let soon = libc::timespec { tv_sec: 0, tv_nsec: 1 };
                let spec = libc::itimerspec { it_interval: nothing, it_value: soon };
                let number = std::os::fd::AsRawFd::as_raw_fd(&fd);
                assert_eq!(libc::timerfd_settime(number, 0, &spec, std::ptr::null_mut()), 0);
                alone(fd)
            }
            Kind::Epoll => alone(new(libc::epoll_create1(libc::EPOLL_CLOEXEC))),
            Kind::Inotify => alone(new(libc::inotify_init1(libc::IN_CLOEXEC | libc::IN_NONBLOCK))),
            Kind::Process => {
                alone(new(libc::syscall(libc::SYS_pidfd_open, std::process::id(), 0) as i32))
            }
            Kind::Signal => {
                let mut set = std::mem::zeroed();
                libc::sigemptyset(&mut set);
                alone(new(libc::signalfd(-1, &set, libc::SFD_CLOEXEC | libc::SFD_NONBLOCK)))
            }
            Kind::Terminal => {
                let (mut ours, mut theirs) = (0, 0);
                let null = std::ptr::null_mut();
                assert_eq!(
                    libc::openpty(&mut ours, &mut theirs, null, null.cast(), null.cast()),
                    0
                );
                let (ours, theirs) = (new(ours), new(theirs));
                let ours = std::fs::File::from(ours);
                (&ours).write_all(b"0123456789\n").unwrap();
                (theirs, vec![ours.into()])
            }
            Kind::Null => file(options.read(true).write(true), "/dev/null"),
            Kind::Zero => file(options.read(true).write(true), "/dev/zero"),
            Kind::Full => file(options.read(true).write(true), "/dev/full"),
            Kind::Random => file(options.read(true), "/dev/urandom"),
            Kind::Proc => file(options.read(true), "/proc/version"),
            Kind::ProcWritable => file(options.read(true).write(true), "/proc/self/oom_score_adj"),
            Kind::ProcSequence => {
                // It has a cursor, but `pwrite` is refused.
                std::fs::write("/proc/self/comm", "0123456789").unwrap();
                file(options.read(true).write(true), "/proc/self/comm")
            }
            Kind::Sys => file(options.read(true), "/sys/kernel/mm/transparent_hugepage/enabled"),
        }
    }
}

/// Large enough that a call with all bits set fails for its range and not for its size.
const OFFSETS: [u64; 7] = [0, 3, 1 << 20, i64::MAX as u64 - 1, i64::MAX as u64, 1 << 63, u64::MAX];

same::programs! {
    use it::fs::{File, FileTimes};
    use it::io::{self, IoSlice, IoSliceMut, Read, Seek, SeekFrom, Write};
    use it::os::unix::fs::{FileExt, FileTypeExt, PermissionsExt};
    use std::time::{Duration, SystemTime};

    /// Makes one call of each kind on a new descriptor, and returns what a plain read finds
    /// afterwards.
    pub(super) fn one_call_on_each_kind() -> Log {
        let mut log = Log::default();
        let directory = disk::directory();
        type Call = (&'static str, fn(&File) -> io::Result<String>);
        fn text(count: usize, bytes: &[u8]) -> String {
            format!("{count} {:?}", String::from_utf8_lossy(&bytes[..count.min(bytes.len())]))
        }
        fn shown(count: usize) -> String {
            count.to_string()
        }
        fn nothing((): ()) -> String {
            "done".to_owned()
        }
        let calls: Vec<Call> = vec![
            ("read", |mut file| {
                let mut buf = [0; 64];
                file.read(&mut buf).map(|count| text(count, &buf))
            }),
            ("read of nothing", |mut file| file.read(&mut []).map(shown)),
            ("read_vectored", |mut file| {
                let (mut left, mut right) = ([0; 4], [0; 60]);
                let mut bufs = [IoSliceMut::new(&mut left), IoSliceMut::new(&mut right)];
                let count = file.read_vectored(&mut bufs);
                count.map(|count| text(count, &[&left[..], &right[..]].concat()))
            }),
            ("read_vectored of nothing", |mut file| file.read_vectored(&mut []).map(shown)),
            ("read_vectored of an empty slice", |mut file| {
                file.read_vectored(&mut [IoSliceMut::new(&mut [])]).map(shown)
            }),
            ("write", |mut file| file.write(b"abcdefgh").map(shown)),
            ("write of nothing", |mut file| file.write(b"").map(shown)),
            ("write_vectored", |mut file| {
                file.write_vectored(&[IoSlice::new(b"abcd"), IoSlice::new(b"efgh")]).map(shown)
            }),
            ("write_vectored of nothing", |mut file| file.write_vectored(&[]).map(shown)),
            ("read_exact_at", |file| {
                let mut buf = [0; 4];
                file.read_exact_at(&mut buf, 2).map(|()| text(4, &buf))
            }),
            ("write_all_at", |file| file.write_all_at(b"abcd", 2).map(nothing)),
            ("write_all_at of nothing", |file| file.write_all_at(b"", 2).map(nothing)),
            ("flush", |mut file| file.flush().map(nothing)),
            ("where the cursor is", |mut file| file.stream_position().map(|at| at.to_string())),
            ("rewind", |mut file| file.rewind().map(nothing)),
            ("seek to 3", |mut file| file.seek(SeekFrom::Start(3)).map(|at| at.to_string())),
            ("seek to the largest offset", |mut file| {
                file.seek(SeekFrom::Start(u64::MAX)).map(|at| at.to_string())
            }),
            ("seek from the end", |mut file| file.seek(SeekFrom::End(-1)).map(|_| String::new())),
            ("seek before the start", |mut file| file.seek(SeekFrom::Current(-11)).map(|at| at.to_string())),
            ("sync_all", |file| file.sync_all().map(nothing)),
            ("sync_data", |file| file.sync_data().map(nothing)),
            ("set_len", |file| file.set_len(5).map(nothing)),
            ("set_len of too much", |file| file.set_len(u64::MAX).map(nothing)),
            ("set_len of the most", |file| file.set_len(i64::MAX as u64).map(nothing)),
            ("metadata", |file| {
                let known = file.metadata()?;
                let kind = known.file_type();
                let kinds = (known.is_file(), known.is_dir(), known.is_symlink());
                let odd = (kind.is_fifo(), kind.is_socket(), kind.is_char_device());
                Ok(format!("{kinds:?} {odd:?} {:o} {}", known.permissions().mode(), known.len()))
            }),
            ("set_times", |file| {
                let then = SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000_000);
                // The times of a device are shared with other processes.
                if file.metadata()?.file_type().is_char_device() {
                    Ok("skipped".to_owned())
                } else {
                    file.set_times(FileTimes::new().set_modified(then)).map(nothing)
                }
            }),
            ("set_permissions", |file| {
                let known = file.metadata()?;
                file.set_permissions(known.permissions()).map(nothing)
            }),
            ("try_clone", |file| {
                let clone = file.try_clone()?;
                let mut buf = [0; 2];
                (&clone).read(&mut buf).map(|count| text(count, &buf))
            }),
            ("read to the end", |file| {
                let (mut file, mut bytes) = (file, Vec::new());
                // Other kinds have no end.
                let ends = file.metadata().is_ok_and(|m| m.is_file() || m.is_dir());
                if ends {
                    file.read_to_end(&mut bytes).map(|count| text(count, &bytes))
                } else {
                    Ok("skipped".to_owned())
                }
            }),
            ("two reads", |mut file| {
                let mut buf = [0; 2];
                let first = file.read(&mut buf)?;
                let second = file.take(64).read(&mut buf);
                second.map(|count| format!("{first} {}", text(count, &buf)))
            }),
            ("two writes", |mut file| {
                let first = file.write(b"ab")?;
                file.write(b"cd").map(|second| format!("{first} {second}"))
            }),
        ];
        for kind in KINDS {
            let rest = |fd: std::os::fd::OwnedFd| {
                // The remaining data shows what the call has consumed or written.
                let mut file = std::fs::File::from(fd);
                let at = file.stream_position();
                if matches!(kind, Kind::Regular | Kind::Appending | Kind::Memory | Kind::ReadOnly) {
                    let _ = file.rewind();
                    let mut bytes = Vec::new();
                    let _ = (&file).take(1 << 20).read_to_end(&mut bytes);
                    return format!("{:?} {:?}", at.ok(), String::from_utf8_lossy(&bytes));
                }
                format!("{:?}", at.map_err(|e| e.kind()))
            };
            for (name, call) in &calls {
                // These calls would wait without end.
                let never_ends = matches!(
                    (kind, *name),
                    (Kind::Event, "two reads") | (Kind::Timer, "two reads") | (Kind::Event, "write" | "write_vectored" | "two writes")
                );
                if never_ends || kind == Kind::Random && (name.contains("read") && !name.contains("nothing") || *name == "try_clone") {
                    continue;
                }
                let (fd, _beside) = open(kind, directory.path());
                let file = File::from(fd);
                log.result(format!("{kind:?}: {name}"), call(&file));
                log.value(format!("{kind:?}: after {name}"), rest(file.into()));
            }
            for offset in OFFSETS {
                let new = || {
                    let (fd, beside) = open(kind, directory.path());
                    (File::from(fd), beside)
                };
                if kind == Kind::Random {
                    continue;
                }
                for len in [0, 4] {
                    let mut buf = vec![0; len];
                    let (file, _beside) = new();
                    let read = file.read_at(&mut buf, offset).map(|count| text(count, &buf));
                    log.result(format!("{kind:?}: read_at {offset} of {len}"), read);
                    let (file, _beside) = new();
                    let written = file.write_at(&buf, offset);
                    log.result(format!("{kind:?}: write_at {offset} of {len}"), written);
                    log.value(format!("{kind:?}: after write_at {offset} of {len}"), rest(file.into()));
                }
            }
        }
        log
    }

    fn drain(mut reader: impl Read + Send, chunk: usize) -> usize {
        let (mut buf, mut total) = (vec![0; chunk], 0);
        while let count @ 1.. = reader.read(&mut buf).unwrap() {
            total += count;
            thread::yield_now();
        }
        total
    }

    pub(super) fn pipes() -> Log {
        let mut log = Log::default();
        // More than the capacity of a pipe, and a slow reader.
        for len in [1, 4096, 65_536, 65_537, 200_000, 1 << 20] {
            let bytes = disk::pattern(len);
            let (reader, mut writer) = io::pipe().unwrap();
            let reads = thread::spawn(move || drain(reader, 1000));
            log.result(format!("write of {len}"), writer.write(&bytes));
            drop(writer);
            log.value("read", reads.join().unwrap());
            let (reader, mut writer) = io::pipe().unwrap();
            let reads = thread::spawn(move || drain(reader, 5000));
            let slices: Vec<_> = bytes.chunks(len.div_ceil(7)).map(IoSlice::new).collect();
            log.result(format!("write_vectored of {len}"), writer.write_vectored(&slices));
            drop(writer);
            log.value("read", reads.join().unwrap());
            let (reader, writer) = io::pipe().unwrap();
            let reads = thread::spawn(move || drain(reader, 5000));
            let file = File::from(std::os::fd::OwnedFd::from(writer));
            log.result(format!("a file's write of {len}"), (&file).write(&bytes));
            drop(file);
            log.value("read", reads.join().unwrap());
            let (ours, theirs) = it::os::unix::net::UnixStream::pair().unwrap();
            let reads = thread::spawn(move || drain(theirs, 5000));
            let file = File::from(std::os::fd::OwnedFd::from(ours));
            log.result(format!("a file's write of {len} to a socket"), (&file).write(&bytes));
            log.result(format!("a file's write_vectored of {len} to a socket"), (&file).write_vectored(&slices));
            drop(file);
            log.value("read", reads.join().unwrap());
        }
        // The reader closes while a write waits: the write returns the bytes written.
        let (mut reader, mut writer) = io::pipe().unwrap();
        let closes = thread::spawn(move || reader.read_exact(&mut vec![0; 70_000]));
        log.result("write to a reader that closes", writer.write(&[7; 300_000]).map(|count| count < 300_000));
        log.result("the reader", closes.join().unwrap());
        log.result("write without a reader", writer.write(b"x"));
        log.result("write of no bytes without a reader", writer.write(b""));
        log.result("write_vectored without a reader", writer.write_vectored(&[IoSlice::new(b"x")]));
        log.result("flush", writer.flush());
        // An empty read of an empty pipe.
        let (mut reader, mut writer) = io::pipe().unwrap();
        log.result("read of nothing", reader.read(&mut []));
        log.result("read_vectored of nothing", reader.read_vectored(&mut []));
        log.result("read_vectored of an empty slice", reader.read_vectored(&mut [IoSliceMut::new(&mut [])]));
        log.result("write of nothing", writer.write(b""));
        log.result("write_vectored of nothing", writer.write_vectored(&[]));
        let clone = reader.try_clone().unwrap();
        writer.write_all(b"0123456789").unwrap();
        let mut buf = [0; 4];
        log.result("read by a clone", (&clone).read(&mut buf));
        log.result("read by the original", reader.read(&mut buf));
        log.value("the bytes", buf);
        drop(writer);
        let mut rest = Vec::new();
        log.result("read_to_end", reader.read_to_end(&mut rest));
        log.result("read at the end", reader.read(&mut buf));
        log.result("read of nothing at the end", reader.read(&mut []));
        // Wrong ends, and descriptors that are not pipes.
        let (reader, writer) = io::pipe().unwrap();
        use std::os::fd::OwnedFd;
        let (reader, writer) = (OwnedFd::from(reader), OwnedFd::from(writer));
        let mut wrong_writer = io::PipeWriter::from(reader);
        let mut wrong_reader = io::PipeReader::from(writer);
        log.result("read from a writer", wrong_reader.read(&mut buf));
        log.result("read of nothing from a writer", wrong_reader.read(&mut []));
        log.result("write to a reader", wrong_writer.write(b"x"));
        log.result("write of nothing to a reader", wrong_writer.write(b""));
        // (Another test uses the name of this process.)
        for kind in KINDS.into_iter().filter(|&kind| kind != Kind::ProcSequence) {
            let directory = disk::directory();
            let new = || open(kind, directory.path());
            let (fd, _beside) = new();
            if kind != Kind::Random {
                let mut buf = [0; 64];
                log.result(format!("read by a PipeReader of {kind:?}"), io::PipeReader::from(fd).read(&mut buf).map(|count| buf[..count].to_vec()));
            }
            let (fd, _beside) = new();
            log.result(format!("write by a PipeWriter of {kind:?}"), io::PipeWriter::from(fd).write(b"01234567"));
        }
        log
    }

    /// Writes more than a terminal accepts at once, to a slow reader.
    pub(super) fn terminals() -> Log {
        let mut log = Log::default();
        for (to_master, vectored) in [(false, false), (false, true), (true, false), (true, true)] {
            let (ours, theirs) = raw_terminal();
            let (from, to) = if to_master { (theirs, ours) } else { (ours, theirs) };
            let (mut from, to) = (File::from(from), File::from(to));
            // The other end stays open until all data is read, so that none is discarded.
            let (_open, writer) = (to.try_clone().unwrap(), to);
            let writes = thread::spawn(move || {
                let bytes = disk::pattern(20_000);
                let halves = bytes.split_at(7_000);
                if vectored {
                    (&writer)
                        .write_vectored(&[IoSlice::new(halves.0), IoSlice::new(halves.1)])
                } else {
                    (&writer).write(&bytes)
                }
            });
            let (mut found, mut buf) = (Vec::new(), [0; 100]);
            while found.len() < 20_000 {
                let count = from.read(&mut buf).unwrap();
                found.extend_from_slice(&buf[..count]);
            }
            log.result(format!("to the master {to_master}, vectored {vectored}"), writes.join().unwrap());
            log.value("the data is equal", found == disk::pattern(20_000));
        }
        log
    }

    /// Sets `VMIN` and `VTIME` as programs for serial lines and for key presses do.
    pub(super) fn terminals_with_timing() -> Log {
        let mut log = Log::default();
        for (bytes, tenths) in [(1, 0), (0, 0), (0, 1), (5, 0), (5, 1), (2, 255)] {
            for vectored in [false, true] {
                let (ours, theirs) = raw_terminal();
                set_timing(&theirs, bytes, tenths);
                let (ours, theirs) = (File::from(ours), File::from(theirs));
                let read = || {
                    let mut buf = [0; 16];
                    let (left, right) = buf.split_at_mut(3);
                    let count = if vectored {
                        (&theirs)
                            .read_vectored(&mut [IoSliceMut::new(left), IoSliceMut::new(right)])
                    } else {
                        (&theirs).read(&mut buf)
                    };
                    count.map(|count| buf[..count].to_vec())
                };
                let way = format!("VMIN {bytes}, VTIME {tenths}");
                if bytes == 0 {
                    log.result(format!("{way}: no bytes"), read());
                }
                (&ours).write_all(b"01234567").unwrap();
                log.result(format!("{way}: enough bytes"), read());
                if (bytes, tenths) == (5, 1) {
                    (&ours).write_all(b"abc").unwrap();
                    log.result(format!("{way}: too few bytes"), read());
                }
                // The fiber that writes the rest runs only while the reader waits.
                if bytes > 1 && tenths != 1 {
                    let rest = thread::scope(|s| {
                        s.spawn(|| {
                            for n in 0..bytes {
                                (&ours).write_all(&[b'a' + n]).unwrap();
                                thread::yield_now();
                            }
                        });
                        read()
                    });
                    log.result(format!("{way}: byte by byte"), rest);
                }
                drop(ours);
                log.result(format!("{way}: after a hang-up"), read());
            }
        }
        log
    }

    pub(super) fn nonblocking_pipes() -> Log {
        fn nonblocking(end: &impl std::os::fd::AsRawFd, on: bool) {
            let flags = if on { libc::O_NONBLOCK } else { 0 };
            // SAFETY: no pointers.
            assert_eq!(unsafe { libc::fcntl(end.as_raw_fd(), libc::F_SETFL, flags) }, 0);
        }
        let mut log = Log::default();
        let (mut reader, mut writer) = io::pipe().unwrap();
        // Before and after the first use, because other processes may change the mode at any time.
        for round in 0..2 {
            nonblocking(&reader, true);
            nonblocking(&writer, true);
            log.result(format!("{round}: read"), reader.read(&mut [0; 8]));
            log.result(format!("{round}: read of nothing"), reader.read(&mut []));
            log.result(format!("{round}: write"), writer.write(&[7; 200_000]));
            log.result(format!("{round}: write to a full pipe"), writer.write(b"x"));
            log.result(format!("{round}: write_vectored to a full pipe"), writer.write_vectored(&[IoSlice::new(b"x")]));
            log.result(format!("{round}: write of nothing"), writer.write(b""));
            nonblocking(&reader, false);
            nonblocking(&writer, false);
            log.result(format!("{round}: read, blocking"), reader.read(&mut vec![0; 200_000]));
            let clone = reader.try_clone().unwrap();
            let waits = thread::spawn(move || (&clone).read(&mut [0; 8]));
            log.result(format!("{round}: write, blocking"), writer.write(b"01"));
            log.result(format!("{round}: read by a waiting clone"), waits.join().unwrap());
        }
        log
    }
}

/// A batch uses offsets: it refuses what `pread` and `pwrite` refuse, without waiting.
#[test]
fn batch_fails_like_pread_and_pwrite() {
    use cringle::block::Batch;
    use std::os::unix::fs::FileExt;
    let directory = disk::directory();
    let mut buf = [0; 16];
    let mut refused = 0;
    for kind in KINDS.into_iter().filter(|&kind| kind != Kind::ProcSequence) {
        let std_file = || {
            let (fd, beside) = open(kind, directory.path());
            (std::fs::File::from(fd), beside)
        };
        let (file, _beside) = std_file();
        let read = file.read_at(&mut buf, 0).map_err(|e| e.raw_os_error());
        let (file, _beside) = std_file();
        let written = file.write_at(b"abcd", 0).map_err(|e| e.raw_os_error());
        refused += u32::from(read.is_err()) + u32::from(written.is_err());
        for driver in [cringle::runtime::DriverChoice::Uring, cringle::runtime::DriverChoice::Epoll]
        {
            cringle::Builder::new()
                .driver(driver)
                .workers(1)
                .run(|| {
                    let (file, _beside) = std_file();
                    let (file, mut bytes) = (cringle::fs::File::from(file), [0; 16]);
                    let mut batch = Batch::new();
                    batch.read(&file, &mut bytes, 0);
                    let found =
                        batch.submit().into_iter().next().unwrap().map_err(|e| e.raw_os_error());
                    assert_eq!(found, read, "{kind:?}, {driver:?}: read");
                    let (file, _beside) = std_file();
                    let file = cringle::fs::File::from(file);
                    let mut batch = Batch::new();
                    batch.write(&file, b"abcd", 0);
                    let found =
                        batch.submit().into_iter().next().unwrap().map_err(|e| e.raw_os_error());
                    assert_eq!(found, written, "{kind:?}, {driver:?}: write");
                })
                .unwrap();
        }
    }
    assert!(refused > 20);
}

same::the_same!(one_call_on_each_kind, pipes, nonblocking_pipes, terminals, terminals_with_timing);
