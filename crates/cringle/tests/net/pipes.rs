//! Pipes, `io::copy`, and the items of `std::io` in `cringle::io`.

use cringle::fs::File;
use cringle::io::{self, IsTerminal, PipeReader, PipeWriter, copy, pipe};
use cringle::net::{TcpListener, TcpStream};
use cringle::{fiber, time};
use cringle_testing::disk;
use cringle_testing::tools::{
    assert_elapsed, let_others_wait, on_one_worker, on_two_workers, spawn_on,
};
use std::io::{ErrorKind, IoSlice, IoSliceMut, Read, Seek, SeekFrom, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::time::Duration;

/// More than the capacity of a pipe.
const MUCH: usize = 300_000;

#[test]
fn waiting_on_a_pipe_suspends_only_the_fiber() {
    on_one_worker(|| {
        let (mut reader, mut writer) = pipe().unwrap();
        let bytes = disk::pattern(MUCH);
        fiber::scope(|s| {
            let reads = s.spawn_local(|| {
                let mut all = Vec::new();
                reader.read_to_end(&mut all).unwrap();
                all
            });
            let_others_wait();
            assert!(!reads.is_finished());
            let bytes = &bytes;
            let writes = s.spawn_local(move || writer.write_all(bytes).unwrap());
            assert!(reads.join().unwrap() == *bytes);
            writes.join().unwrap();
        });
    });
}

#[test]
fn pipe_behaves_as_std() {
    let inside = |in_fiber: bool| {
        let (mut reader, mut writer) = pipe().unwrap();
        let mut second = writer.try_clone().unwrap();
        assert_eq!(
            writer.write_vectored(&[IoSlice::new(b"a "), IoSlice::new(b"rope")]).unwrap(),
            6
        );
        second.write_all(b"!").unwrap();
        drop(writer);
        let (mut left, mut right) = ([0; 2], [0; 9]);
        let mut slices = [IoSliceMut::new(&mut left), IoSliceMut::new(&mut right)];
        assert_eq!(reader.read_vectored(&mut slices).unwrap(), 7);
        assert_eq!((&left, &right[..5]), (b"a ", b"rope!".as_slice()));
        drop(second);
        let mut other = reader.try_clone().unwrap();
        assert_eq!(other.read(&mut right).unwrap(), 0);
        assert_eq!((&reader).read(&mut right).unwrap(), 0);

        let (reader, mut writer) = pipe().unwrap();
        drop(reader);
        assert_eq!(writer.write(b"!").unwrap_err().kind(), ErrorKind::BrokenPipe);
        assert!(!writer.is_terminal() && !io::stdin().lock().is_terminal() || !in_fiber);
    };
    inside(false);
    on_one_worker(|| inside(true));
}

#[test]
fn ends_convert_to_std_and_back() {
    let (reader, writer) = pipe().unwrap();
    let reader: std::io::PipeReader = reader.into();
    let writer: OwnedFd = writer.into();
    let mut writer = PipeWriter::from(writer);
    writer
        .as_fd()
        .try_clone_to_owned()
        .map(std::fs::File::from)
        .unwrap()
        .write_all(b"rope")
        .unwrap();
    writer.write_all(b"!").unwrap();
    drop(writer);
    assert_eq!(io::read_to_string(PipeReader::from(reader)).unwrap(), "rope!");
}

#[test]
fn cancelled_wait_loses_no_byte() {
    on_one_worker(|| {
        let (mut reader, mut writer) = pipe().unwrap();
        let limit = Duration::from_millis(1);
        let mut buf = [0; 100];
        for n in 0..20 {
            assert_elapsed(&time::timeout(limit, || reader.read(&mut buf)).unwrap_err(), limit);
            writer.write_all(&[n]).unwrap();
            assert_eq!((reader.read(&mut buf).unwrap(), buf[0]), (1, n));
        }
        let full = || time::timeout(limit, || writer.write(&[7; 4096]));
        let written: usize = std::iter::repeat_with(full).map_while(Result::ok).sum();
        drop(writer);
        assert_eq!(copy(&mut reader, &mut io::sink()).unwrap(), written as u64);
    });
}

fn file_with(path: &Path, bytes: &[u8]) -> File {
    std::fs::write(path, bytes).unwrap();
    File::options().read(true).write(true).open(path).unwrap()
}

/// Runs `f` on a fiber that is alone, on a fiber among others, and on a thread.
fn everywhere(f: impl Fn() + Sync) {
    f();
    on_one_worker(&f);
    on_two_workers(|| fiber::scope(|s| spawn_on(1, s, &f).join().unwrap()));
}

#[test]
fn files_are_copied_between_cursors() {
    let directory = disk::directory();
    let (from, to) = (directory.path().join("from"), directory.path().join("to"));
    let bytes = disk::pattern(MUCH);
    everywhere(|| {
        let (mut from, mut to) = (file_with(&from, &bytes), file_with(&to, &[b'.'; 1000]));
        from.seek(SeekFrom::Start(100)).unwrap();
        to.seek(SeekFrom::Start(10)).unwrap();
        assert_eq!(copy(&mut from, &mut to).unwrap(), MUCH as u64 - 100);
        assert_eq!(from.stream_position().unwrap(), MUCH as u64);
        assert_eq!(to.stream_position().unwrap(), MUCH as u64 - 90);
        assert_eq!(copy(&mut from, &mut to).unwrap(), 0);
        to.rewind().unwrap();
        let mut found = Vec::new();
        (&to).read_to_end(&mut found).unwrap();
        assert!(found[..10] == [b'.'; 10] && found[10..] == bytes[100..]);

        // By references, as for a shared file.
        from.rewind().unwrap();
        to.rewind().unwrap();
        assert_eq!(copy(&mut &from, &mut &to).unwrap(), MUCH as u64);
        assert_eq!((&to).stream_position().unwrap(), MUCH as u64);
    });
}

#[test]
fn refused_kernel_copies_are_done_by_hand() {
    let directory = disk::directory();
    let (from, to) = (directory.path().join("from"), directory.path().join("to"));
    let bytes = disk::pattern(MUCH);
    everywhere(|| {
        // To the end of a file that is appended to.
        drop(file_with(&to, b"before"));
        let mut appends = File::options().append(true).open(&to).unwrap();
        let copied = copy(&mut file_with(&from, &bytes), &mut appends).unwrap();
        let found = std::fs::read(&to).unwrap();
        assert!(copied == MUCH as u64 && found[..6] == *b"before" && found[6..] == bytes);

        // From a file that reports a length of 0.
        let mut to = file_with(&to, b"");
        let copied = copy(&mut File::open("/proc/self/status").unwrap(), &mut to).unwrap();
        assert!(copied > 100);

        // A file to its own clone, as std's loop does.
        let mut file = file_with(&from, b"");
        let mut clone = file.try_clone().unwrap();
        assert_eq!(copy(&mut file, &mut clone).unwrap(), 0);

        // From an unreadable file, and to an unwritable one.
        let mut read_only = File::open(&from).unwrap();
        let e = copy(&mut file_with(&from, b"x"), &mut read_only).unwrap_err();
        assert_eq!(e.raw_os_error(), Some(libc::EBADF));
        let mut folder = File::open(directory.path()).unwrap();
        assert_eq!(copy(&mut folder, &mut to).unwrap_err().kind(), ErrorKind::IsADirectory);
    });
}

#[test]
fn every_reader_is_copied_to_every_writer() {
    let directory = disk::directory();
    let path = directory.path().join("file");
    let bytes = disk::pattern(MUCH);
    on_one_worker(|| {
        let (reader, writer) = pipe().unwrap();
        let (second_reader, mut second_writer) = pipe().unwrap();
        fiber::scope(|s| {
            let (path, bytes) = (&path, &bytes);
            s.spawn_local(move || {
                let mut writer = writer;
                assert_eq!(copy(&mut file_with(path, bytes), &mut writer).unwrap(), MUCH as u64);
            });
            s.spawn_local(move || {
                let mut reader = reader;
                assert_eq!(copy(&mut reader, &mut second_writer).unwrap(), MUCH as u64);
            });
            let mut found = Vec::new();
            let mut reader: &mut dyn Read = &mut io::BufReader::new(second_reader).take(1 << 20);
            assert_eq!(copy(&mut reader, &mut found).unwrap(), MUCH as u64);
            assert!(found == *bytes);
        });
    });
}

#[test]
fn copies_in_opposite_directions_do_not_deadlock() {
    let directory = disk::directory();
    on_two_workers(|| {
        // Both cursors are at the end, because otherwise each copy would extend the other.
        let empty = |n| file_with(&directory.path().join(format!("{n}")), b"");
        let files: [File; 2] = std::array::from_fn(empty);
        fiber::scope(|s| {
            for n in 0..2 {
                let files = &files;
                spawn_on(n, s, move || {
                    for _ in 0..2000 {
                        assert_eq!(copy(&mut &files[n], &mut &files[1 - n]).unwrap(), 0);
                    }
                });
            }
        });
    });
}

#[test]
fn copy_retries_interrupts_and_returns_errors() {
    struct Stumbles(u32);
    impl Read for Stumbles {
        fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
            self.0 += 1;
            match self.0 {
                1 | 3 => Err(ErrorKind::Interrupted.into()),
                2 | 4 => {
                    buf[..10].fill(7);
                    Ok(10)
                }
                _ => Err(ErrorKind::TimedOut.into()),
            }
        }
    }
    let mut found = Vec::new();
    assert_eq!(copy(&mut Stumbles(0), &mut found).unwrap_err().kind(), ErrorKind::TimedOut);
    assert_eq!(found, [7; 20]);
}

/// A program for std, with other imports.
mod ported {
    use cringle::io::prelude::*;
    use cringle::io::{self, BufReader, BufWriter, Cursor, Error, ErrorKind, LineWriter, SeekFrom};

    pub(super) fn works() -> io::Result<String> {
        let (reader, writer) = io::pipe()?;
        let mut writer = BufWriter::new(LineWriter::new(writer));
        writeln!(writer, "a rope")?;
        drop(writer);
        let mut lines = BufReader::new(reader).lines();
        let mut cursor = Cursor::new(lines.next().unwrap()?.into_bytes());
        cursor.seek(SeekFrom::Start(2))?;
        io::copy(&mut io::repeat(0).take(3), &mut io::sink())?;
        let text = io::read_to_string(cursor)?;
        match lines.next() {
            None => Ok(text),
            Some(_) => Err(Error::new(ErrorKind::InvalidData, "one line was written")),
        }
    }
}

#[test]
fn std_program_needs_only_other_imports() {
    assert_eq!(ported::works().unwrap(), "rope");
    assert_eq!(on_one_worker(ported::works).unwrap(), "rope");
}

#[test]
fn cancelled_copy_leaves_a_prefix() {
    const BUFFER_BYTES: u64 = 64 << 10;
    let directory = disk::directory();
    let path = directory.path().join("file");
    // More than the capacity of a socket's buffers.
    let bytes = disk::pattern(64 << 20);
    std::fs::write(&path, &bytes).unwrap();
    on_one_worker(|| {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut ours = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let mut theirs = listener.accept().unwrap().0;
        let mut file = File::open(&path).unwrap();
        // The copy is cancelled as soon as data has arrived.
        let copies = || io::copy(&mut file, &mut ours).map(|_| "the copy");
        let first = fiber::race(copies, || theirs.peek(&mut [0]).map(|_| "the peer"));
        assert_eq!(first.unwrap(), "the peer");
        drop(ours);
        let mut received = Vec::new();
        theirs.read_to_end(&mut received).unwrap();
        assert!(!received.is_empty() && received.len() < bytes.len());
        assert!(bytes.starts_with(&received));
        let (sent, read) = (received.len() as u64, file.stream_position().unwrap());
        assert!((sent..=sent + BUFFER_BYTES).contains(&read), "sent {sent}, read {read}");
    });
}
