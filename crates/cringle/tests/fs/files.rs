//! Promise 1 for files: `cringle::fs` behaves as `std::fs` outside of `run`, on a fiber that is
//! alone (which makes plain calls), on a fiber among others (which uses the ring), and in a
//! destructor while a fiber unwinds.

use cringle::block::Batch;
use cringle::fiber;
use cringle::fs::{File, OpenOptions};
use cringle_testing::disk::{
    alone, directory, essence, everywhere, in_company, make_fifo, outside, pattern, solitary,
};
use cringle_testing::disk::{status_flags, unwinding};
use cringle_testing::terminal;
use cringle_testing::tools::pipe;
use proptest::prelude::*;
use std::cell::Cell;
use std::io::{self, BufRead, BufReader, BufWriter, ErrorKind, IoSlice, IoSliceMut, Read, Seek};
use std::io::{SeekFrom, Write};
use std::os::fd::{AsFd, AsRawFd, FromRawFd, IntoRawFd, OwnedFd};
use std::os::unix::fs::{FileExt, FileTypeExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::rc::Rc;

// ----- a random program, with std and with the library -----

/// A call of the program. A file is named by its slot, which may be empty.
#[derive(Clone, Debug)]
enum Call {
    Open { slot: usize, name: usize, options: u8, custom: i32 },
    Close { slot: usize },
    Clone { from: usize, to: usize },
    Read { slot: usize, len: usize },
    ReadExact { slot: usize, len: usize },
    ReadToEnd { slot: usize },
    ReadVectored { slot: usize, lens: Vec<usize> },
    Write { slot: usize, len: usize, byte: u8 },
    WriteVectored { slot: usize, lens: Vec<usize>, byte: u8 },
    ReadAt { slot: usize, len: usize, offset: u64 },
    WriteAt { slot: usize, len: usize, offset: u64, byte: u8 },
    ReadExactAt { slot: usize, len: usize, offset: u64 },
    Seek { slot: usize, to: SeekFrom },
    SetLen { slot: usize, len: u64 },
    Sync { slot: usize, data_only: bool },
    Len { slot: usize },
}

/// The outcome of a call: numbers and bytes, or the kind of the error.
type Outcome = Result<(u64, Vec<u8>), (ErrorKind, Option<i32>)>;

const NAMES: [&str; 5] = ["a", "b", "directory", "missing/file", "a/below"];

/// An executor of programs over one of the two libraries.
fn in_slot<F>(slots: &mut [Option<F>; 4], slot: usize) -> io::Result<&mut F> {
    slots[slot].as_mut().ok_or_else(|| ErrorKind::NotConnected.into())
}

macro_rules! executor {
    ($name:ident, $fs:path) => {
        fn $name(program: &[Call], directory: &Path) -> Vec<Outcome> {
            use $fs as fs;
            let mut slots: [Option<fs::File>; 4] = [None, None, None, None];
            let mut execute = |call: &Call| -> io::Result<(u64, Vec<u8>)> {
                let nothing = Vec::new();
                Ok(match *call {
                    Call::Open { slot, name, options, custom } => {
                        let is = |bit: u8| options & (1 << bit) != 0;
                        let mut opener = fs::OpenOptions::new();
                        opener.read(is(0)).write(is(1)).append(is(2)).truncate(is(3));
                        opener.create(is(4)).create_new(is(5)).custom_flags(custom);
                        slots[slot] = None;
                        let file = opener.open(directory.join(NAMES[name]))?;
                        let flags = status_flags(&file);
                        slots[slot] = Some(file);
                        (flags as u64, nothing)
                    }
                    Call::Close { slot } => {
                        drop(slots[slot].take());
                        (0, nothing)
                    }
                    Call::Clone { from, to } => {
                        let clone = in_slot(&mut slots, from)?.try_clone()?;
                        slots[to] = Some(clone);
                        (0, nothing)
                    }
                    Call::Read { slot, len } => {
                        let mut buf = vec![0; len];
                        (in_slot(&mut slots, slot)?.read(&mut buf)? as u64, buf)
                    }
                    Call::ReadExact { slot, len } => {
                        let mut buf = vec![0; len];
                        in_slot(&mut slots, slot)?.read_exact(&mut buf)?;
                        (0, buf)
                    }
                    Call::ReadToEnd { slot } => {
                        let mut buf = Vec::new();
                        (in_slot(&mut slots, slot)?.read_to_end(&mut buf)? as u64, buf)
                    }
                    Call::ReadVectored { slot, ref lens } => {
                        let mut bufs: Vec<Vec<u8>> = lens.iter().map(|&len| vec![0; len]).collect();
                        let mut slices: Vec<_> =
                            bufs.iter_mut().map(|buf| IoSliceMut::new(buf)).collect();
                        let count = in_slot(&mut slots, slot)?.read_vectored(&mut slices)?;
                        (count as u64, bufs.concat())
                    }
                    Call::Write { slot, len, byte } => {
                        (in_slot(&mut slots, slot)?.write(&vec![byte; len])? as u64, nothing)
                    }
                    Call::WriteVectored { slot, ref lens, byte } => {
                        let bufs: Vec<Vec<u8>> = lens.iter().map(|&len| vec![byte; len]).collect();
                        let slices: Vec<_> = bufs.iter().map(|buf| IoSlice::new(buf)).collect();
                        (in_slot(&mut slots, slot)?.write_vectored(&slices)? as u64, nothing)
                    }
                    Call::ReadAt { slot, len, offset } => {
                        let mut buf = vec![0; len];
                        (in_slot(&mut slots, slot)?.read_at(&mut buf, offset)? as u64, buf)
                    }
                    Call::ReadExactAt { slot, len, offset } => {
                        let mut buf = vec![0; len];
                        in_slot(&mut slots, slot)?.read_exact_at(&mut buf, offset)?;
                        (0, buf)
                    }
                    Call::WriteAt { slot, len, offset, byte } => (
                        in_slot(&mut slots, slot)?.write_at(&vec![byte; len], offset)? as u64,
                        nothing,
                    ),
                    Call::Seek { slot, to } => (in_slot(&mut slots, slot)?.seek(to)?, nothing),
                    Call::SetLen { slot, len } => {
                        in_slot(&mut slots, slot)?.set_len(len)?;
                        (0, nothing)
                    }
                    Call::Sync { slot, data_only } => {
                        if data_only {
                            in_slot(&mut slots, slot)?.sync_data()?
                        } else {
                            in_slot(&mut slots, slot)?.sync_all()?
                        }
                        (0, nothing)
                    }
                    Call::Len { slot } => {
                        let metadata = in_slot(&mut slots, slot)?.metadata()?;
                        (metadata.len(), vec![u8::from(metadata.is_file())])
                    }
                })
            };
            program.iter().map(|call| execute(call).map_err(|e| essence(&e))).collect()
        }
    };
}

executor!(execute_std, std::fs);
executor!(execute_cringle, cringle::fs);

fn slot() -> impl Strategy<Value = usize> {
    0..4usize
}

fn len() -> impl Strategy<Value = usize> {
    prop_oneof![4 => 0..200usize, 2 => 0..10_000usize, 1 => Just(0)]
}

/// Usually a small offset, sometimes one at the end of the kernel's range.
fn offset() -> impl Strategy<Value = u64> {
    const MAX: u64 = i64::MAX as u64;
    let edges = vec![MAX - 1, MAX, MAX + 1, u64::MAX, u64::MAX - 1, 1 << 44];
    prop_oneof![8 => 0..20_000u64, 1 => prop::sample::select(edges)]
}

fn seek() -> impl Strategy<Value = SeekFrom> {
    prop_oneof![
        offset().prop_map(SeekFrom::Start),
        (-20_000..20_000i64).prop_map(SeekFrom::Current),
        (-20_000..20_000i64).prop_map(SeekFrom::End),
        Just(SeekFrom::Current(i64::MIN)),
    ]
}

fn call() -> impl Strategy<Value = Call> {
    let custom = prop::sample::select(vec![0, 0, 0, libc::O_NONBLOCK, libc::O_NOFOLLOW]);
    // Usually readable and writable, so that the rest of the program has a file.
    let options = prop_oneof![2 => Just(0b010_011u8), 1 => Just(0b010_101u8), 2 => 0..64u8];
    let lens = || prop::collection::vec(0..3000usize, 0..5);
    prop_oneof![
        4 => (slot(), 0..NAMES.len(), options, custom)
            .prop_map(|(slot, name, options, custom)| Call::Open { slot, name, options, custom }),
        1 => slot().prop_map(|slot| Call::Close { slot }),
        1 => (slot(), slot()).prop_map(|(from, to)| Call::Clone { from, to }),
        3 => (slot(), len()).prop_map(|(slot, len)| Call::Read { slot, len }),
        1 => (slot(), len()).prop_map(|(slot, len)| Call::ReadExact { slot, len }),
        1 => slot().prop_map(|slot| Call::ReadToEnd { slot }),
        1 => (slot(), lens()).prop_map(|(slot, lens)| Call::ReadVectored { slot, lens }),
        4 => (slot(), len(), any::<u8>())
            .prop_map(|(slot, len, byte)| Call::Write { slot, len, byte }),
        1 => (slot(), lens(), any::<u8>())
            .prop_map(|(slot, lens, byte)| Call::WriteVectored { slot, lens, byte }),
        2 => (slot(), len(), offset())
            .prop_map(|(slot, len, offset)| Call::ReadAt { slot, len, offset }),
        1 => (slot(), len(), offset())
            .prop_map(|(slot, len, offset)| Call::ReadExactAt { slot, len, offset }),
        2 => (slot(), len(), offset(), any::<u8>())
            .prop_map(|(slot, len, offset, byte)| Call::WriteAt { slot, len, offset, byte }),
        3 => (slot(), seek()).prop_map(|(slot, to)| Call::Seek { slot, to }),
        1 => (slot(), offset()).prop_map(|(slot, len)| Call::SetLen { slot, len }),
        1 => (slot(), any::<bool>())
            .prop_map(|(slot, data_only)| Call::Sync { slot, data_only }),
        1 => slot().prop_map(|slot| Call::Len { slot }),
    ]
}

/// Returns the final contents of the directory. Large sparse files are compared by size and both
/// ends.
fn contents(directory: &Path) -> Vec<(PathBuf, u64, Vec<u8>)> {
    let mut files: Vec<_> = std::fs::read_dir(directory)
        .unwrap()
        .map(|entry| entry.unwrap())
        .filter(|entry| entry.file_type().unwrap().is_file())
        .map(|entry| {
            let mut file = std::fs::File::open(entry.path()).unwrap();
            let len = file.metadata().unwrap().len();
            let mut bytes = Vec::new();
            (&mut file).take(1 << 16).read_to_end(&mut bytes).unwrap();
            file.seek(SeekFrom::Start(len.saturating_sub(1 << 16))).unwrap();
            // The kernel refuses a read beyond the largest offset, which is an end on tmpfs.
            file.take(1 << 16).read_to_end(&mut bytes).unwrap();
            (PathBuf::from(entry.file_name()), len, bytes)
        })
        .collect();
    files.sort();
    files
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 96,
        failure_persistence: None,
        ..Default::default()
    })]

    #[test]
    fn random_programs_behave_as_with_std(
        program in prop::collection::vec(call(), 1..60)
    ) {
        let play = |execute: &dyn Fn(&Path) -> Vec<Outcome>| {
            let directory = directory();
            std::fs::create_dir(directory.path().join("directory")).unwrap();
            let outcomes = execute(directory.path());
            (outcomes, contents(directory.path()))
        };
        let expected = play(&|at| execute_std(&program, at));
        let outside = play(&|at| execute_cringle(&program, at));
        prop_assert_eq!(&outside, &expected, "outside of run");
        let inside = play(&|at| solitary(|| execute_cringle(&program, at)));
        prop_assert_eq!(&inside, &expected, "on the only fiber");
        let inside = play(&|at| alone(|| execute_cringle(&program, at)));
        prop_assert_eq!(&inside, &expected, "on a fiber alone");
        let inside = play(&|at| in_company(|| execute_cringle(&program, at)));
        prop_assert_eq!(&inside, &expected, "on a fiber in company");
        let inside = play(&|at| unwinding(|| execute_cringle(&program, at)));
        prop_assert_eq!(&inside, &expected, "on a fiber that unwinds");
    }
}

// ----- opening -----

#[test]
fn every_combination_of_open_options_matches_std() {
    macro_rules! answers {
        ($fs:path, $directory:expr, $custom:expr) => {{
            use $fs as fs;
            let mut answers = Vec::new();
            let there = $directory.join("there");
            for options in 0..64u8 {
                for name in ["there", "missing", "directory", "link", "dangling"] {
                    let is = |bit: u8| options & (1 << bit) != 0;
                    let path = $directory.join(name);
                    let opened = fs::OpenOptions::new()
                        .read(is(0))
                        .write(is(1))
                        .append(is(2))
                        .truncate(is(3))
                        .create(is(4))
                        .create_new(is(5))
                        .custom_flags($custom)
                        .open(&path);
                    let answer = opened.map(|file| (status_flags(&file), file.metadata().is_ok()));
                    let answer = answer.map_err(|e| (essence(&e), e.to_string()));
                    answers.push((options, name, answer, false));
                    let _ = std::fs::remove_file($directory.join("missing"));
                    let there = std::fs::OpenOptions::new().write(true).open(&there).unwrap();
                    let truncated = there.metadata().unwrap().len() == 0;
                    answers.last_mut().unwrap().3 = truncated;
                    if truncated {
                        there.write_all_at(b"text", 0).unwrap();
                    }
                    let _ = std::fs::remove_file($directory.join("nowhere"));
                }
            }
            answers
        }};
    }
    let directory = directory();
    let at = directory.path();
    std::fs::write(at.join("there"), "text").unwrap();
    std::fs::create_dir(at.join("directory")).unwrap();
    std::os::unix::fs::symlink("there", at.join("link")).unwrap();
    std::os::unix::fs::symlink("nowhere", at.join("dangling")).unwrap();
    let customs =
        [0, libc::O_NONBLOCK, libc::O_NOFOLLOW, libc::O_DIRECTORY, libc::O_PATH, libc::O_SYNC];
    // Custom flags cannot change the access mode.
    let more = [libc::O_DIRECT, libc::O_NOATIME, libc::O_TMPFILE, libc::O_ACCMODE];
    for custom in customs.into_iter().chain(more) {
        let expected = answers!(std::fs, at, custom);
        assert_eq!(answers!(cringle::fs, at, custom), expected, "outside of run, {custom:#o}");
        let inside = alone(|| answers!(cringle::fs, at, custom));
        assert_eq!(inside, expected, "on a fiber, {custom:#o}");
        let inside = unwinding(|| answers!(cringle::fs, at, custom));
        assert_eq!(inside, expected, "on a fiber that unwinds, {custom:#o}");
    }
}

#[test]
fn new_file_has_the_mode_of_std() {
    let directory = directory();
    for mode in [0o666, 0o600, 0o777, 0o4755, 0o000] {
        let (theirs, ours) = (directory.path().join("theirs"), directory.path().join("ours"));
        std::fs::OpenOptions::new().write(true).create_new(true).mode(mode).open(&theirs).unwrap();
        alone(|| {
            let mut options = OpenOptions::new();
            options.write(true).create_new(true).mode(mode).open(&ours).unwrap();
        });
        let mode_of = |path: &Path| path.metadata().unwrap().permissions().mode();
        assert_eq!(mode_of(&ours), mode_of(&theirs), "{mode:#o}");
        std::fs::remove_file(theirs).unwrap();
        std::fs::remove_file(ours).unwrap();
    }
}

#[test]
fn open_errors_match_std() {
    let directory = directory();
    let at = directory.path();
    let socket = at.join("socket");
    let _listener = std::os::unix::net::UnixListener::bind(&socket).unwrap();
    let circle = at.join("circle");
    std::os::unix::fs::symlink(&circle, &circle).unwrap();
    let paths = [
        at.join("missing"),
        at.join("missing/below"),
        at.join("nul\0inside"),
        at.join("n".repeat(256)),
        at.join("d/".repeat(3000)),
        PathBuf::new(),
        // A socket: `ENXIO`, and no peer to wait for.
        socket,
        circle,
        // The executable is busy while it runs.
        std::env::current_exe().unwrap(),
        // Not writable, even for root.
        "/sys/kernel/uevent_seqnum".into(),
        "/proc/version".into(),
    ];
    for path in paths {
        let theirs = std::fs::OpenOptions::new().write(true).open(&path).map(drop);
        let theirs = theirs.map_err(|e| (essence(&e), e.to_string()));
        for way in [outside, solitary, alone, in_company, unwinding] {
            let ours = way(|| OpenOptions::new().write(true).open(&path).map(drop));
            assert_eq!(ours.map_err(|e| (essence(&e), e.to_string())), theirs, "{path:?}");
        }
    }
}

#[test]
fn open_file_has_the_flags_of_std() {
    let directory = directory();
    let path = directory.path().join("file");
    for way in [outside, solitary, alone, in_company, unwinding] {
        way(|| {
            let theirs = std::fs::File::create(&path).unwrap();
            let ours = File::create(&path).unwrap();
            assert_eq!(status_flags(&ours), status_flags(&theirs));
            // SAFETY: no pointers.
            let descriptor_flags = unsafe { libc::fcntl(ours.as_raw_fd(), libc::F_GETFD) };
            assert_eq!(descriptor_flags, libc::FD_CLOEXEC);
            let fifo = directory.path().join("fifo");
            make_fifo(&fifo);
            let both = OpenOptions::new().read(true).write(true).open(&fifo).unwrap();
            assert_eq!(status_flags(&both) & libc::O_NONBLOCK, 0);
            std::fs::remove_file(&fifo).unwrap();
        });
    }
}

#[test]
fn leased_file_opens_when_the_lease_is_released() {
    let directory = directory();
    let path = directory.path().join("file");
    std::fs::write(&path, "text").unwrap();
    let lease = |file: &std::fs::File, kind: i32| {
        // SAFETY: no pointers.
        unsafe { libc::fcntl(file.as_raw_fd(), libc::F_SETLEASE, kind) }
    };
    // The kernel notifies the holder by a signal, which this test ignores.
    // SAFETY: the call takes no pointer, and only makes the process ignore the signal.
    unsafe { libc::signal(libc::SIGIO, libc::SIG_IGN) };
    for way in [alone, unwinding] {
        way(|| {
            let holder = std::fs::OpenOptions::new().write(true).open(&path).unwrap();
            if lease(&holder, libc::F_WRLCK) != 0 {
                return eprintln!("skipped: this file system has no leases");
            }
            fiber::scope(|s| {
                s.spawn_local(|| {
                    // Wait until the kernel breaks the lease.
                    // SAFETY: no pointers.
                    while unsafe { libc::fcntl(holder.as_raw_fd(), libc::F_GETLEASE) }
                        == libc::F_WRLCK
                    {
                        fiber::yield_now();
                    }
                    assert_eq!(lease(&holder, libc::F_UNLCK), 0);
                });
                let text = io::read_to_string(File::open(&path).unwrap()).unwrap();
                assert_eq!(text, "text");
            });
        });
    }
}

// ----- FIFOs -----

#[test]
fn fifo_opens_when_its_other_end_does() {
    let directory = directory();
    // More than the ring has kernel threads.
    let fifos: Vec<_> = (0..64).map(|n| directory.path().join(n.to_string())).collect();
    fifos.iter().for_each(|fifo| make_fifo(fifo));
    for workers in [1, 2] {
        for writers_first in [false, true] {
            let exchange = || {
                fiber::scope(|s| {
                    let write = |n: usize, fifo: &Path| {
                        let mut file = match n % 3 {
                            0 => File::create(fifo).unwrap(),
                            1 => OpenOptions::new().write(true).open(fifo).unwrap(),
                            _ => OpenOptions::new().append(true).create(true).open(fifo).unwrap(),
                        };
                        assert_eq!(status_flags(&file) & libc::O_NONBLOCK, 0);
                        file.write_all(n.to_string().as_bytes()).unwrap();
                    };
                    let read = |n: usize, fifo: &Path| {
                        let mut text = String::new();
                        let mut file = File::open(fifo).unwrap();
                        assert_eq!(status_flags(&file) & libc::O_NONBLOCK, 0);
                        file.read_to_string(&mut text).unwrap();
                        assert_eq!(text, n.to_string());
                    };
                    for turn in [writers_first, !writers_first] {
                        for (n, fifo) in fifos.iter().enumerate() {
                            if turn {
                                s.spawn(move || write(n, fifo))
                            } else {
                                s.spawn(move || read(n, fifo))
                            };
                        }
                    }
                });
            };
            cringle::Builder::new().workers(workers).run(exchange).unwrap();
        }
    }
}

#[test]
fn writer_without_data_lets_the_reader_open() {
    let directory = directory();
    let fifo = directory.path().join("fifo");
    make_fifo(&fifo);
    alone(|| {
        let opened = std::cell::Cell::new(false);
        fiber::scope(|s| {
            s.spawn_local(|| {
                let writer = File::create(&fifo).unwrap();
                while !opened.get() {
                    fiber::yield_now();
                }
                drop(writer);
            });
            let mut reader = File::open(&fifo).unwrap();
            opened.set(true);
            assert_eq!(reader.read(&mut [0; 9]).unwrap(), 0);
        });
    });
}

#[test]
fn short_lived_thread_can_be_a_fifos_peer() {
    let directory = directory();
    let fifo = directory.path().join("fifo");
    make_fifo(&fifo);
    // If the ring's kernel threads read at the end of a FIFO, they may hold a reader after `close`,
    // and a writer's bytes go to nobody. (The threads are not scoped: if this test panics, one may
    // wait in `open` for ever.)
    for round in 0..200 {
        let text = round.to_string();
        let writer = std::thread::spawn({
            let (fifo, text) = (fifo.clone(), text.clone());
            move || std::fs::write(fifo, text).unwrap()
        });
        let mut read = String::new();
        alone(|| File::open(&fifo).unwrap().read_to_string(&mut read).unwrap());
        assert_eq!(read, text);
        writer.join().unwrap();
        let reader = std::thread::spawn({
            let fifo = fifo.clone();
            move || std::fs::read_to_string(fifo).unwrap()
        });
        alone(|| File::create(&fifo).unwrap().write_all(text.as_bytes()).unwrap());
        assert_eq!(reader.join().unwrap(), text);
    }
}

#[test]
fn nonblocking_open_of_a_fifo_matches_std() {
    let directory = directory();
    let fifo = directory.path().join("fifo");
    make_fifo(&fifo);
    for way in [outside, solitary, alone, unwinding] {
        way(|| {
            let mut options = OpenOptions::new();
            options.custom_flags(libc::O_NONBLOCK);
            let e = options.clone().write(true).open(&fifo).unwrap_err();
            assert_eq!(e.raw_os_error(), Some(libc::ENXIO));
            let mut reader = options.clone().read(true).open(&fifo).unwrap();
            assert_ne!(status_flags(&reader) & libc::O_NONBLOCK, 0);
            assert_eq!(reader.read(&mut [0; 9]).unwrap(), 0);
            let mut writer = options.clone().write(true).open(&fifo).unwrap();
            assert_eq!(reader.read(&mut [0; 9]).unwrap_err().kind(), ErrorKind::WouldBlock);
            writer.write_all(b"text").unwrap();
            assert_eq!(reader.read(&mut [0; 9]).unwrap(), 4);
        });
    }
}

#[test]
fn destructor_can_wait_for_a_fifo_peer() {
    let directory = directory();
    let fifo = directory.path().join("fifo");
    make_fifo(&fifo);
    alone(|| {
        fiber::scope(|s| {
            struct WritesOnDrop<'a>(&'a Path);
            impl Drop for WritesOnDrop<'_> {
                fn drop(&mut self) {
                    File::create(self.0).unwrap().write_all(b"last words").unwrap();
                }
            }
            let fifo = &fifo;
            let writer = s.spawn_local(move || {
                let _guard = WritesOnDrop(fifo);
                std::panic::resume_unwind(Box::new("on purpose"));
            });
            let mut text = String::new();
            File::open(fifo).unwrap().read_to_string(&mut text).unwrap();
            assert_eq!(text, "last words");
            assert!(writer.join().is_err());
        });
    });
}

#[test]
fn end_of_run_cancels_a_fifo_open() {
    let directory = directory();
    let fifo = directory.path().join("fifo");
    make_fifo(&fifo);
    for writes in [false, true] {
        let (fifo, (sender, receiver)) = (fifo.clone(), std::sync::mpsc::channel());
        alone(|| {
            let has_started = Rc::new(Cell::new(false));
            let started = Rc::clone(&has_started);
            fiber::spawn_local(move || {
                started.set(true);
                let mut options = OpenOptions::new();
                let e = options.read(!writes).write(writes).open(&fifo).unwrap_err();
                sender.send(e).unwrap();
            });
            while !has_started.get() {
                fiber::yield_now();
            }
        });
        let e = receiver.recv().unwrap();
        assert!(e.get_ref().unwrap().is::<cringle::Cancelled>(), "{e:?}");
    }
}

// ----- files without positions -----

#[test]
fn positioned_calls_on_a_pipe_fail_without_loss() {
    for way in [outside, solitary, alone, in_company, unwinding] {
        way(|| {
            let (mut reader, mut writer) = pipe();
            writer.write_all(b"kept").unwrap();
            let mut buf = [0; 4];
            let mut slices = [IoSliceMut::new(&mut buf)];
            let refused = [
                reader.read_vectored_at(&mut slices, 0).map(drop),
                reader.read_at(&mut [0; 4], 0).map(drop),
                reader.read_at(&mut [], 0).map(drop),
                writer.write_at(b"lost", 0).map(drop),
                writer.write_vectored_at(&[IoSlice::new(b"lost")], 0).map(drop),
                reader.stream_position().map(drop),
                writer.seek(SeekFrom::End(0)).map(drop),
            ];
            for result in refused {
                assert_eq!(result.unwrap_err().raw_os_error(), Some(libc::ESPIPE));
            }
            drop(writer);
            let mut rest = String::new();
            reader.read_to_string(&mut rest).unwrap();
            assert_eq!(rest, "kept");
        });
    }
}

#[test]
fn reading_a_pipe_suspends_only_the_fiber() {
    alone(|| {
        let (mut reader, mut writer) = pipe();
        fiber::scope(|s| {
            let lines = s.spawn_local(move || {
                let mut bytes = Vec::new();
                reader.read_to_end(&mut bytes).unwrap();
                bytes
            });
            // More than the capacity of a pipe, so that the writer waits too.
            let bytes = pattern(1 << 20);
            writer.write_all(&bytes).unwrap();
            drop(writer);
            assert!(lines.join().unwrap() == bytes);
        });
    });
}

#[test]
fn pipe_without_a_reader_is_broken() {
    for way in [outside, solitary, alone, in_company, unwinding] {
        way(|| {
            let (reader, mut writer) = pipe();
            drop(reader);
            assert_eq!(writer.write(b"text").unwrap_err().kind(), ErrorKind::BrokenPipe);
        });
    }
}

#[test]
fn signals_do_not_interrupt_a_read() {
    extern "C" fn nothing(_: libc::c_int) {}
    let mut action = std::mem::MaybeUninit::<libc::sigaction>::zeroed();
    // SAFETY: the handler does nothing. Without `SA_RESTART`, it interrupts system calls.
    let worker = unsafe {
        (*action.as_mut_ptr()).sa_sigaction = nothing as *const () as usize;
        assert_eq!(libc::sigaction(libc::SIGUSR1, action.as_ptr(), std::ptr::null_mut()), 0);
        libc::pthread_self() as usize
    };
    let over = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|threads| {
        threads.spawn(|| {
            while !over.load(std::sync::atomic::Ordering::Relaxed) {
                // SAFETY: the scope keeps the thread alive.
                unsafe { libc::pthread_kill(worker as libc::pthread_t, libc::SIGUSR1) };
                std::thread::yield_now();
            }
        });
        let (reader, mut writer) = pipe();
        threads.spawn(move || {
            let writer = &mut writer;
            (0..2000u32).for_each(|n| writer.write_all(&n.to_le_bytes()).unwrap());
        });
        alone(|| {
            for n in 0..2000u32 {
                let mut bytes = [0; 4];
                // `read_exact` would hide an `Interrupted`.
                assert_eq!((&reader).read(&mut bytes).unwrap(), 4);
                assert_eq!(u32::from_le_bytes(bytes), n);
            }
        });
        over.store(true, std::sync::atomic::Ordering::Relaxed);
    });
}

#[test]
fn terminal_is_read_line_by_line() {
    let (master, slave) = terminal::terminal();
    let (master, slave) = (File::from(master), File::from(slave));
    alone(|| {
        fiber::scope(|s| {
            let lines = s.spawn_local(|| {
                let lines = BufReader::new(&slave).lines();
                lines.take(2).map(Result::unwrap).collect::<Vec<_>>()
            });
            fiber::yield_now();
            (&master).write_all(b"first\n").unwrap();
            fiber::yield_now();
            (&master).write_all(b"second\n").unwrap();
            assert_eq!(lines.join().unwrap(), ["first", "second"]);
        });
        assert_eq!(slave.read_at(&mut [0], 0).unwrap_err().raw_os_error(), Some(libc::ESPIPE));
    });
}

#[test]
fn files_of_proc_are_read_as_by_std() {
    for path in ["/proc/version", "/proc/filesystems", "/proc/self/cmdline", "/proc/self/maps"] {
        for custom in [0, libc::O_NONBLOCK] {
            for way in [outside, solitary, alone, in_company, unwinding] {
                way(|| {
                    let expected = std::fs::read(path).unwrap();
                    let mut options = OpenOptions::new();
                    options.read(true).custom_flags(custom);
                    let mut file = options.open(path).unwrap();
                    let mut bytes = Vec::new();
                    file.read_to_end(&mut bytes).unwrap();
                    // The mappings change while other tests run.
                    if path != "/proc/self/maps" {
                        assert_eq!(bytes, expected);
                        file.rewind().unwrap();
                        let pieces: Vec<u8> = std::iter::from_fn(|| {
                            let mut piece = [0; 7];
                            let count = file.read(&mut piece).unwrap();
                            (count > 0).then(|| piece[..count].to_vec())
                        })
                        .flatten()
                        .collect();
                        assert_eq!(pieces, expected);
                    }
                    assert!(!bytes.is_empty());
                });
            }
        }
    }
}

#[test]
fn eagain_from_a_regular_file_is_returned() {
    // A regular file by its mode, without positions and data.
    let path = "/sys/kernel/tracing/trace_pipe";
    let mut options = OpenOptions::new();
    options.read(true).custom_flags(libc::O_NONBLOCK);
    let Ok(file) = options.open(path) else { return };
    for way in [outside, solitary, alone, in_company, unwinding] {
        way(|| {
            assert_eq!((&file).read(&mut [0; 9]).unwrap_err().kind(), ErrorKind::WouldBlock);
            let e = file.read_at(&mut [0; 9], 0).unwrap_err();
            assert_eq!(e.raw_os_error(), Some(libc::ESPIPE));
        });
    }
}

#[test]
fn reading_a_directory_fails_as_in_std() {
    let directory = directory();
    everywhere(|| {
        let file = File::open(directory.path()).unwrap();
        let mut byte = [0];
        let refused = [
            (&file).read(&mut []),
            (&file).read(&mut byte),
            (&file).read_vectored(&mut []),
            (&file).read_vectored(&mut [IoSliceMut::new(&mut [])]),
            (&file).read_vectored(&mut [IoSliceMut::new(&mut byte)]),
            file.read_at(&mut [], 0),
            file.read_at(&mut byte, 0),
            file.read_vectored_at(&mut [IoSliceMut::new(&mut [])], 0),
        ];
        let std = std::fs::File::open(directory.path()).unwrap();
        let expected = [
            (&std).read(&mut []),
            (&std).read(&mut byte),
            (&std).read_vectored(&mut []),
            (&std).read_vectored(&mut [IoSliceMut::new(&mut [])]),
            (&std).read_vectored(&mut [IoSliceMut::new(&mut byte)]),
            std.read_at(&mut [], 0),
            std.read_at(&mut byte, 0),
            // std's is not stable, so this uses the plain call.
            Ok(0),
        ];
        let plain = |result: io::Result<usize>| result.map_err(|e| essence(&e));
        assert_eq!(refused.map(plain), expected.map(plain));
        let e = io::read_to_string(&file).unwrap_err();
        assert_eq!(e.kind(), ErrorKind::IsADirectory);
    });
}

// ----- sizes -----

/// A long buffer of little memory: all but its end is the same chunk of it again and again, so that
/// a transfer of all stays in the processor's cache.
struct Zeros(&'static mut [u8]);

impl Zeros {
    const CHUNK: usize = 2 << 20;

    fn new(len: usize) -> Zeros {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        // SAFETY: a new mapping of zeros, freed when this is dropped, and others in its place. Only
        // the kernel writes to those.
        unsafe {
            let prot = libc::PROT_READ | libc::PROT_WRITE;
            let start = libc::mmap(std::ptr::null_mut(), len, prot, flags, -1, 0);
            assert_ne!(start, libc::MAP_FAILED);
            let chunk = libc::memfd_create(c"chunk".as_ptr(), libc::MFD_CLOEXEC);
            assert_eq!(libc::ftruncate(chunk, Self::CHUNK as libc::off_t), 0);
            let flags = libc::MAP_SHARED | libc::MAP_FIXED;
            for offset in (0..len - 3 * Self::CHUNK).step_by(Self::CHUNK) {
                let at = start.byte_add(offset);
                assert_eq!(libc::mmap(at, Self::CHUNK, prot, flags, chunk, 0), at);
            }
            libc::close(chunk);
            Zeros(std::slice::from_raw_parts_mut(start.cast(), len))
        }
    }
}

impl Drop for Zeros {
    fn drop(&mut self) {
        // SAFETY: the mapping of `new`, which is not borrowed any more.
        unsafe { libc::munmap(self.0.as_mut_ptr().cast(), self.0.len()) };
    }
}

/// Calls `f` beside a fiber that is ready, so that its first call goes through the ring. A fiber that
/// stays ready would spin meanwhile.
fn beside_one(f: &dyn Fn()) {
    alone(|| {
        let other = fiber::spawn_local(fiber::yield_now);
        f();
        other.join().unwrap();
    });
}

/// With `CRINGLE_FULL=1` also outside of a runtime, and through the page cache.
#[test]
fn large_transfers_are_cut_as_by_std() {
    const MOST: usize = 0x7fff_f000;
    const LENGTH: usize = MOST + (1 << 20);
    let directory = directory();
    let path = directory.path().join("sparse");
    let sparse = std::fs::File::create(&path).unwrap();
    sparse.set_len(LENGTH as u64).unwrap();
    sparse.write_all_at(b"last", MOST as u64 - 4).unwrap();
    sparse.write_all_at(b"next", MOST as u64).unwrap();
    let buf = std::cell::RefCell::new(Zeros::new(LENGTH));
    // Direct I/O, because filling the page cache is slower.
    let mut options = OpenOptions::new();
    let direct = options.read(true).custom_flags(libc::O_DIRECT).open(&path).unwrap();
    let is_full = std::env::var_os("CRINGLE_FULL").is_some();
    let ways: &[fn(&dyn Fn())] =
        if is_full { &[|f| outside(f), beside_one] } else { &[beside_one] };
    for way in ways {
        way(&|| {
            let buf = &mut *buf.borrow_mut().0;
            buf[MOST - 4..MOST + 4].fill(7);
            assert_eq!(direct.read_at(buf, 0).unwrap(), MOST);
            assert_eq!(&buf[MOST - 4..MOST + 4], b"last\x07\x07\x07\x07");
        });
    }
    // An exact read of a batch needs more than one call.
    alone(|| {
        let buf = &mut *buf.borrow_mut().0;
        buf[MOST - 4..MOST + 4].fill(7);
        let mut batch = Batch::new();
        batch.read(&direct, &mut [], 0);
        batch.read_exact(&direct, buf, 0);
        let results = batch.submit();
        assert_eq!(results.into_iter().last().unwrap().unwrap(), LENGTH);
        assert_eq!(&buf[MOST - 4..MOST + 4], b"lastnext");
        let mut null = OpenOptions::new().write(true).open("/dev/null").unwrap();
        assert_eq!(null.write(buf).unwrap(), MOST);
    });
    if !is_full {
        return;
    }
    // The same at the cursor.
    alone(|| {
        let file = File::open(&path).unwrap();
        let buf = &mut *buf.borrow_mut().0;
        assert_eq!((&file).read(buf).unwrap(), MOST);
        assert_eq!((&file).stream_position().unwrap(), MOST as u64);
        let mut next = [0; 4];
        (&file).read_exact(&mut next).unwrap();
        assert_eq!(&next, b"next");
        // The data is cached now, and read inline.
        assert_eq!(file.read_at(buf, 0).unwrap(), MOST);
    });
}

#[test]
fn full_disk_is_reported() {
    for way in [outside, solitary, alone, in_company, unwinding] {
        way(|| {
            let mut full = OpenOptions::new().write(true).open("/dev/full").unwrap();
            assert_eq!(full.write(b"text").unwrap_err().kind(), ErrorKind::StorageFull);
            assert_eq!(full.write_all(b"text").unwrap_err().kind(), ErrorKind::StorageFull);
            let e = full.write_at(b"text", 4096).unwrap_err();
            assert_eq!(e.raw_os_error(), Some(libc::ENOSPC));
            let e = full.write_vectored(&[IoSlice::new(b"text")]).unwrap_err();
            assert_eq!(e.raw_os_error(), Some(libc::ENOSPC));
            let mut buffered = BufWriter::new(full);
            buffered.write_all(b"text").unwrap();
            assert_eq!(buffered.flush().unwrap_err().kind(), ErrorKind::StorageFull);
            let _ = buffered.into_parts();
        });
    }
}

#[test]
fn excess_slices_are_cut_as_by_std() {
    let directory = directory();
    for way in [outside, solitary, alone, in_company, unwinding] {
        way(|| {
            let file = directory.path().join("file");
            let file = OpenOptions::new().read(true).write(true).create(true).open(file).unwrap();
            let bytes = pattern(2000);
            let slices: Vec<_> = bytes.chunks(1).map(IoSlice::new).collect();
            assert_eq!((&file).write_vectored(&slices).unwrap(), 1024);
            assert_eq!(file.write_vectored_at(&slices, 0).unwrap(), 1024);
            let mut read = vec![0; 2000];
            let mut slices: Vec<_> = read.chunks_mut(1).map(IoSliceMut::new).collect();
            assert_eq!(file.read_vectored_at(&mut slices, 0).unwrap(), 1024);
            assert_eq!(read[..1024], bytes[..1024]);
            assert!(read[1024..].iter().all(|&byte| byte == 0));
            assert_eq!((&file).write_vectored(&[]).unwrap(), 0);
            assert_eq!((&file).read_vectored(&mut []).unwrap(), 0);
        });
    }
}

// ----- metadata -----

#[test]
fn metadata_matches_std() {
    let directory = directory();
    let at = directory.path();
    std::fs::write(at.join("file"), pattern(5000)).unwrap();
    make_fifo(&at.join("fifo"));
    // Other tests change the times of other devices.
    let paths =
        [at.join("file"), at.into(), at.join("fifo"), "/dev/random".into(), "/proc/cmdline".into()];
    for path in paths {
        let mut options = std::fs::OpenOptions::new();
        options.read(true).custom_flags(libc::O_NONBLOCK);
        let std_file = options.open(&path).unwrap();
        let theirs = std_file.metadata().unwrap();
        let file = File::from(std_file);
        for way in [outside, solitary, alone, unwinding] {
            let ours = way(|| file.metadata().unwrap());
            macro_rules! same {
                ($ours:ident $theirs:ident: $($field:ident)*) => {
                    $(assert_eq!($ours.$field(), $theirs.$field(), "{}", stringify!($field));)*
                };
            }
            same!(ours theirs: dev ino mode nlink uid gid rdev size atime atime_nsec);
            same!(ours theirs: mtime mtime_nsec ctime ctime_nsec blksize blocks len);
            same!(ours theirs: is_dir is_file is_symlink permissions);
            assert_eq!(ours.modified().unwrap(), theirs.modified().unwrap());
            assert_eq!(ours.accessed().unwrap(), theirs.accessed().unwrap());
            let created = |created: io::Result<_>| created.map_err(|e| (e.kind(), e.to_string()));
            // With musl, std does not request it.
            if cfg!(not(target_env = "musl")) {
                assert_eq!(created(ours.created()), created(theirs.created()), "{path:?}");
            }
            let (ours, theirs) = (ours.file_type(), theirs.file_type());
            same!(ours theirs: is_dir is_file is_symlink is_fifo is_socket is_block_device);
            same!(ours theirs: is_char_device);
        }
    }
}

// ----- handles -----

#[test]
fn clone_shares_the_cursor() {
    let directory = directory();
    let path = directory.path().join("file");
    std::fs::write(&path, "0123456789").unwrap();
    for way in [outside, solitary, alone, in_company, unwinding] {
        way(|| {
            let mut one = File::open(&path).unwrap();
            let mut other = one.try_clone().unwrap();
            let read = |file: &mut File| {
                let mut bytes = [0; 2];
                file.read_exact(&mut bytes).unwrap();
                bytes
            };
            assert_eq!(&read(&mut one), b"01");
            assert_eq!(&read(&mut other), b"23");
            other.seek(SeekFrom::Current(2)).unwrap();
            assert_eq!(&read(&mut one), b"67");
            drop(one);
            assert_eq!(&read(&mut other), b"89");
        });
    }
}

#[test]
fn conversion_to_std_and_back_keeps_the_cursor() {
    let directory = directory();
    let path = directory.path().join("file");
    std::fs::write(&path, "0123456789").unwrap();
    alone(|| {
        let mut bytes = [0; 2];
        let mut file = File::open(&path).unwrap();
        file.read_exact(&mut bytes).unwrap();
        let mut file = std::fs::File::from(file);
        file.read_exact(&mut bytes).unwrap();
        let mut file = File::from(file);
        file.read_exact(&mut bytes).unwrap();
        let mut file = File::from(OwnedFd::from(file));
        file.read_exact(&mut bytes).unwrap();
        // SAFETY: the file has given up ownership of the descriptor.
        let mut file = unsafe { File::from_raw_fd(file.into_raw_fd()) };
        assert_eq!(file.stream_position().unwrap(), 8);
        assert_eq!(file.as_fd().as_raw_fd(), file.as_raw_fd());
        file.read_exact(&mut bytes).unwrap();
        assert_eq!(&bytes, b"89");
        let debug = format!("{:?}", file);
        assert_eq!(debug, format!("{:?}", std::fs::File::from(file)));
    });
}

#[test]
fn close_reports_the_error() {
    for way in [outside, solitary, alone, in_company, unwinding] {
        way(|| {
            let (mut reader, writer) = pipe();
            writer.close().unwrap();
            assert_eq!(reader.read(&mut [0]).unwrap(), 0);
            reader.close().unwrap();
            // SAFETY: the number is not open, and is not used after the failed close.
            let closed = unsafe { File::from_raw_fd(1 << 20) };
            assert_eq!(closed.close().unwrap_err().raw_os_error(), Some(libc::EBADF));
        });
    }
}

#[test]
fn cancelled_fiber_closes_its_files() {
    let (mut reader, writer) = io::pipe().unwrap();
    alone(|| {
        fiber::spawn_local(move || {
            let file = File::from(OwnedFd::from(writer));
            // `run` cancels this fiber when its closure has returned.
            while cringle::io::ready(&file, cringle::io::Interest::WRITABLE).is_ok() {}
            file.close().unwrap();
        });
        fiber::yield_now();
    });
    assert_eq!(reader.read(&mut [0]).unwrap(), 0);
}

#[test]
fn sync_errors_match_std() {
    let (reader, writer) = io::pipe().unwrap();
    let theirs = std::fs::File::from(OwnedFd::from(reader));
    let expected = [theirs.sync_all(), theirs.sync_data(), theirs.set_len(1)];
    let expected = expected.map(|result| essence(&result.unwrap_err()));
    let ours = File::from(OwnedFd::from(writer));
    for way in [outside, solitary, alone, unwinding] {
        let results = way(|| [ours.sync_all(), ours.sync_data(), ours.set_len(1)]);
        assert_eq!(results.map(|result| essence(&result.unwrap_err())), expected);
    }
}

// ----- code of other crates -----

#[test]
fn std_buffers_and_foreign_parsers_work_over_files() {
    let directory = directory();
    for way in [outside, solitary, alone, in_company, unwinding] {
        way(|| {
            let path = directory.path().join("lines");
            let mut writer = BufWriter::new(File::create(&path).unwrap());
            (0..20_000).for_each(|n| writeln!(writer, "line {n}").unwrap());
            writer.into_inner().unwrap().close().unwrap();
            let lines = BufReader::new(File::open(&path).unwrap()).lines();
            let count = lines.enumerate().map(|(n, line)| {
                assert_eq!(line.unwrap(), format!("line {n}"));
            });
            assert_eq!(count.count(), 20_000);
            let text = io::read_to_string(File::open(&path).unwrap()).unwrap();
            assert_eq!(text.lines().last(), Some("line 19999"));

            let path = directory.path().join("json");
            let json = serde_json::json!({ "strands": [1, 2, 3], "rope": "three-strand" });
            serde_json::to_writer_pretty(File::create(&path).unwrap(), &json).unwrap();
            let read: serde_json::Value =
                serde_json::from_reader(File::open(&path).unwrap()).unwrap();
            assert_eq!(read, json);

            let copy = directory.path().join("copy");
            let mut copy = File::options().read(true).append(true).create(true).open(copy).unwrap();
            copy.set_len(0).unwrap();
            io::copy(&mut File::open(&path).unwrap(), &mut copy).unwrap();
            copy.rewind().unwrap();
            assert_eq!(serde_json::from_reader::<_, serde_json::Value>(&copy).unwrap(), json);
        });
    }
}

#[test]
fn destructor_writes_its_file_while_unwinding() {
    let directory = directory();
    let path = directory.path().join("file");
    let bytes = pattern(100_000);
    alone(|| {
        let panicked = fiber::scope(|s| {
            s.spawn_local(|| {
                // The destructor flushes it.
                let mut writer = BufWriter::with_capacity(1 << 20, File::create(&path).unwrap());
                writer.write_all(&bytes).unwrap();
                std::panic::resume_unwind(Box::new("on purpose"));
            })
            .join()
        });
        assert!(panicked.is_err());
    });
    assert!(std::fs::read(&path).unwrap() == bytes);
}

#[test]
fn appending_fibers_lose_no_record() {
    let directory = directory();
    let path = directory.path().join("log");
    const FIBERS: usize = 16;
    const RECORDS: usize = 100;
    let log = OpenOptions::new().append(true).create(true).open(&path).unwrap();
    let append = || {
        fiber::scope(|s| {
            for writer in 0..FIBERS {
                let log = &log;
                s.spawn(move || {
                    for record in 0..RECORDS {
                        let line = format!("{writer:04} {record:04}\n");
                        let mut log = log;
                        let count = match record % 2 {
                            0 => log.write(line.as_bytes()).unwrap(),
                            _ => log.write_vectored(&[IoSlice::new(line.as_bytes())]).unwrap(),
                        };
                        assert_eq!(count, line.len());
                    }
                });
            }
        });
    };
    cringle::Builder::new().workers(2).run(append).unwrap();
    let text = std::fs::read_to_string(&path).unwrap();
    let mut next = [0; FIBERS];
    for line in text.lines() {
        let (writer, record) = line.split_once(' ').unwrap();
        let (writer, record): (usize, usize) = (writer.parse().unwrap(), record.parse().unwrap());
        // The records of each writer are in order.
        assert_eq!(record, next[writer]);
        next[writer] += 1;
    }
    assert_eq!(next, [RECORDS; FIBERS]);
}

// ----- closing -----

/// Returns how often the calling thread has slept.
fn sleeps() -> i64 {
    let mut usage = std::mem::MaybeUninit::<libc::rusage>::uninit();
    // SAFETY: the structure is borrowed for the call, which fills it.
    let usage = unsafe {
        assert_eq!(libc::getrusage(libc::RUSAGE_THREAD, usage.as_mut_ptr()), 0);
        usage.assume_init()
    };
    usage.ru_nvcsw as i64
}

/// The kernel waits for all who use marks before it frees one: each such close sleeps once.
#[test]
fn slow_close_waits_only_the_fiber() {
    const CLOSES: i64 = 40;
    // The other fiber is always ready, so that the worker itself does not sleep.
    let slept = in_company(|| {
        let before = sleeps();
        for _ in 0..CLOSES {
            // SAFETY: the path is a C string, and the new descriptor has no other owner.
            let inotify = unsafe {
                let inotify = OwnedFd::from_raw_fd(libc::inotify_init1(libc::IN_CLOEXEC));
                libc::inotify_add_watch(inotify.as_raw_fd(), c"/".as_ptr(), libc::IN_CREATE);
                inotify
            };
            File::from(inotify).close().unwrap();
        }
        sleeps() - before
    });
    assert!(slept < CLOSES, "the worker slept {slept} times in {CLOSES} closes");
}
