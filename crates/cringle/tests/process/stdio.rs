//! The standard streams. Each test runs in its own process, whose descriptors it replaces.

use cringle::io::{self, BufRead, IsTerminal, PipeReader, PipeWriter, Read, Write};
use cringle::{fiber, time};
use cringle_testing::terminal::{raw_terminal, set_timing, terminal};
use cringle_testing::tools::{
    assert_cancelled, assert_elapsed, let_others_wait, on_one_worker, readable_bytes,
};
use cringle_testing::{child, disk};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::time::Duration;

const SHORT: Duration = Duration::from_millis(1);

/// Replaces a standard stream until it is dropped, so that the test's report is not affected.
struct Replaced {
    number: i32,
    before: OwnedFd,
}

impl Replaced {
    fn new(number: i32, by: &impl AsRawFd) -> Replaced {
        // SAFETY: no pointers; `dup` returns a new descriptor.
        unsafe {
            let before = OwnedFd::from_raw_fd(libc::fcntl(number, libc::F_DUPFD_CLOEXEC, 3));
            assert_eq!(libc::dup2(by.as_raw_fd(), number), number);
            Replaced { number, before }
        }
    }
}

impl Drop for Replaced {
    fn drop(&mut self) {
        // SAFETY: no pointers.
        assert_eq!(unsafe { libc::dup2(self.before.as_raw_fd(), self.number) }, self.number);
    }
}

/// Makes standard input the end of a pipe, and returns the other end.
fn input() -> (Replaced, PipeWriter) {
    let (reader, writer) = io::pipe().unwrap();
    (Replaced::new(0, &reader), writer)
}

fn output(number: i32) -> (Replaced, PipeReader) {
    let (reader, writer) = io::pipe().unwrap();
    (Replaced::new(number, &writer), reader)
}

/// Takes the data that is in the pipe now.
fn visible(reader: &mut PipeReader) -> String {
    let mut found = vec![0; readable_bytes(reader)];
    reader.read_exact(&mut found).unwrap();
    String::from_utf8(found).unwrap()
}

#[test]
fn waiting_for_input_suspends_only_the_fiber() {
    child::must_succeed("waiting_for_input_suspends_only_the_fiber", || {
        let (_replaced, mut writer) = input();
        on_one_worker(|| {
            fiber::scope(|s| {
                let reads = s.spawn_local(|| {
                    let mut line = String::new();
                    assert_eq!(io::stdin().read_line(&mut line).unwrap(), 7);
                    line
                });
                let next = s.spawn_local(|| {
                    let mut lines = io::stdin().lines();
                    lines.next().unwrap().unwrap()
                });
                let_others_wait();
                assert!(!reads.is_finished() && !next.is_finished());
                writer.write_all(b"a rope\nits strands\nand more").unwrap();
                // The lock is fair: the first waiter gets the first line.
                assert_eq!(reads.join().unwrap(), "a rope\n");
                assert_eq!(next.join().unwrap(), "its strands");
            });
            drop(writer);
            assert_eq!(io::read_to_string(io::stdin()).unwrap(), "and more");
            assert_eq!(io::stdin().read_line(&mut String::new()).unwrap(), 0);
        });
    });
}

#[test]
fn cancelled_wait_for_input_loses_no_byte() {
    child::must_succeed("cancelled_wait_for_input_loses_no_byte", || {
        let (_replaced, mut writer) = input();
        on_one_worker(|| {
            let mut line = String::new();
            writer.write_all(b"a ro").unwrap();
            fiber::scope(|s| {
                let reader = s.spawn_local(|| io::stdin().read_line(&mut line).unwrap_err());
                let_others_wait();
                s.cancel();
                assert_cancelled(&reader.join().unwrap());
            });
            assert_eq!(line, "a ro");
            writer.write_all(b"pe\nx").unwrap();
            assert_eq!(io::stdin().read_line(&mut line).unwrap(), 3);
            assert_eq!(line, "a rope\n");
            let mut locked = io::stdin().lock();
            assert_eq!(locked.fill_buf().unwrap(), b"x");
            locked.consume(1);
            drop(writer);
            assert_eq!(locked.read(&mut [0; 9]).unwrap(), 0);
        });
    });
}

#[test]
fn input_can_share_a_files_cursor() {
    child::must_succeed("input_can_share_a_files_cursor", || {
        let directory = disk::directory();
        let path = directory.path().join("file");
        std::fs::write(&path, disk::pattern(100_000)).unwrap();
        let file = std::fs::File::open(&path).unwrap();
        let _replaced = Replaced::new(0, &file);
        let read = || {
            let mut found = Vec::new();
            fiber::scope(|s| {
                // Another fiber, so that this one is not alone.
                s.spawn_local(|| (0..100).for_each(|_| fiber::yield_now()));
                io::stdin().read_to_end(&mut found).unwrap();
            });
            found
        };
        assert!(on_one_worker(read) == disk::pattern(100_000));
        // The buffer has read all data, and moved the cursor that a child would share.
        assert_eq!(std::io::Seek::stream_position(&mut &file).unwrap(), 100_000);
    });
}

#[test]
fn closed_streams_read_empty_and_accept_writes() {
    child::must_succeed("closed_streams_read_empty_and_accept_writes", || {
        let works = || {
            let null = std::fs::File::open("/dev/null").unwrap();
            let _replaced: [_; 3] =
                std::array::from_fn(|number| Replaced::new(number as i32, &null));
            // SAFETY: no pointers; no descriptor is opened before these are restored.
            (0..3).for_each(|number| unsafe { assert_eq!(libc::close(number), 0) });
            let read = io::stdin().read(&mut [0; 10]).map_err(|e| e.kind());
            let written =
                [writeln!(io::stdout(), "discarded"), writeln!(io::stderr(), "discarded")];
            (read, written.map(|result| result.map_err(|e| e.kind())))
        };
        assert_eq!(works(), (Ok(0), [Ok(()); 2]));
        assert_eq!(on_one_worker(works), (Ok(0), [Ok(()); 2]));
    });
}

#[test]
fn output_is_line_buffered() {
    child::must_succeed("output_is_line_buffered", || {
        let (replaced, mut reader) = output(1);
        on_one_worker(|| {
            let mut out = io::stdout();
            write!(out, "a ").unwrap();
            assert_eq!(visible(&mut reader), "");
            write!(out, "rope\nand").unwrap();
            assert_eq!(visible(&mut reader), "a rope\n");
            out.flush().unwrap();
            assert_eq!(visible(&mut reader), "and");
            assert_eq!(out.write_vectored(&[io::IoSlice::new(b"x\n")]).unwrap(), 2);
            assert_eq!(visible(&mut reader), "x\n");
        });
        drop(replaced);
        let (_replaced, mut reader) = output(2);
        on_one_worker(|| {
            write!(io::stderr(), "at once").unwrap();
            assert_eq!(visible(&mut reader), "at once");
        });
    });
}

#[test]
fn slow_reader_suspends_only_the_fiber() {
    child::must_succeed("slow_reader_suspends_only_the_fiber", || {
        let (replaced, mut reader) = output(1);
        on_one_worker(|| {
            let text = "a line of text\n".repeat(100_000);
            fiber::scope(|s| {
                let writes = s.spawn_local(|| {
                    io::stdout().write_all(text.as_bytes()).unwrap();
                    io::stdout().flush().unwrap();
                });
                let_others_wait();
                assert!(!writes.is_finished());
                let mut found = vec![0; text.len()];
                reader.read_exact(&mut found).unwrap();
                assert!(found == text.as_bytes());
                writes.join().unwrap();
            });
            // Without a reader, a cancel ends the wait.
            let floods = || (0..100).try_for_each(|_| io::stdout().write_all(text.as_bytes()));
            assert_elapsed(&time::timeout(SHORT, floods).unwrap_err(), SHORT);
            fiber::scope(|s| {
                s.spawn_local(|| io::copy(&mut reader, &mut io::sink()));
                io::stdout().flush().unwrap();
                drop(replaced);
            });
        });
    });
}

#[test]
fn lock_is_exclusive_and_reentrant() {
    child::must_succeed("lock_is_exclusive_and_reentrant", || {
        let (_replaced, mut reader) = output(2);
        on_one_worker(|| {
            fiber::scope(|s| {
                let mut locked = io::stderr().lock();
                let others: Vec<_> =
                    (0..3).map(|n| s.spawn_local(move || writeln!(io::stderr(), "{n}"))).collect();
                let thread = std::thread::spawn(|| writeln!(io::stderr(), "a thread").unwrap());
                let_others_wait();
                assert!(others.iter().all(|other| !other.is_finished()));
                struct Prints;
                impl std::fmt::Display for Prints {
                    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                        write!(io::stderr(), "inner ").unwrap();
                        f.write_str("outer")
                    }
                }
                write!(locked, "first ").unwrap();
                let again = io::stderr().lock();
                writeln!(locked, "{Prints}").unwrap();
                drop(locked);
                let_others_wait();
                assert!(others.iter().all(|other| !other.is_finished()));
                drop(again);
                others.into_iter().for_each(|other| other.join().unwrap().unwrap());
                fiber::unblock(|| thread.join().unwrap());
                let printed = visible(&mut reader);
                let mut lines: Vec<_> = printed.lines().collect();
                assert_eq!(lines.remove(0), "first inner outer");
                lines.sort_unstable();
                assert_eq!(lines, ["0", "1", "2", "a thread"]);
            });
        });
    });
}

#[test]
fn holder_may_print_while_its_child_writes() {
    child::must_succeed("holder_may_print_while_its_child_writes", || {
        // More than the capacity of the pipe.
        const LINES: usize = 1 << 18;
        let (_replaced, mut reader) = output(1);
        let mut printed = vec![0; LINES + 5];
        on_one_worker(|| {
            let mut locked = io::stdout().lock();
            fiber::scope(|s| {
                let writes = s.spawn_local(|| locked.write_all(&[b'\n'; LINES]));
                let_others_wait();
                assert!(!writes.is_finished());
                let reads = s.spawn_local(|| reader.read_exact(&mut printed));
                writeln!(io::stdout(), "mine").unwrap();
                writes.join().unwrap().unwrap();
                reads.join().unwrap().unwrap();
            });
        });
        assert_eq!(&printed[LINES..], b"mine\n");
    });
}

#[test]
fn output_to_a_file_interleaves_with_children() {
    child::must_succeed("output_to_a_file_interleaves_with_children", || {
        let directory = disk::directory();
        let path = directory.path().join("file");
        let file = std::fs::File::create(&path).unwrap();
        let replaced = Replaced::new(1, &file);
        on_one_worker(|| {
            fiber::scope(|s| {
                s.spawn_local(|| (0..100).for_each(|_| fiber::yield_now()));
                for n in 0..20 {
                    writeln!(io::stdout(), "{n} ours").unwrap();
                    let mut echo = cringle::process::Command::new("echo");
                    echo.args([&n.to_string(), "a child's"]).stdout(io::stdout());
                    assert!(echo.status().unwrap().success());
                }
            });
        });
        drop(replaced);
        let expected: String = (0..20).map(|n| format!("{n} ours\n{n} a child's\n")).collect();
        assert_eq!(std::fs::read_to_string(&path).unwrap(), expected);
    });
}

/// Writes at a cursor that another process shares are serialised by the kernel only as plain calls.
#[test]
fn concurrent_output_with_a_child_loses_no_byte() {
    const LINES: usize = 20_000;
    const OURS: &str = "a strand of ours\n";
    const THEIRS: &str = "a childs strand\n";
    child::must_succeed("concurrent_output_with_a_child_loses_no_byte", || {
        let directory = disk::directory();
        let path = directory.path().join("file");
        // Not in append mode, in which writes do not use the cursor.
        let file = std::fs::File::create(&path).unwrap();
        let replaced = Replaced::new(1, &file);
        on_one_worker(|| {
            let mut shell = cringle::process::Command::new("sh");
            let script =
                format!("i=0; while [ $i -lt {LINES} ]; do printf '{THEIRS}'; i=$((i+1)); done");
            let mut child = shell.args(["-c", &script]).stdout(io::stdout()).spawn().unwrap();
            fiber::scope(|s| {
                // Another fiber, because a fiber that is alone makes the plain call anyway.
                s.spawn_daemon(|| {
                    loop {
                        fiber::yield_now();
                    }
                });
                let mut written = 0;
                while written < LINES || child.try_wait().unwrap().is_none() {
                    io::stdout().write_all(OURS.as_bytes()).unwrap();
                    written += 1;
                }
                assert!(child.wait().unwrap().success());
                let bytes = (written * OURS.len() + LINES * THEIRS.len()) as u64;
                assert_eq!(file.metadata().unwrap().len(), bytes);
                let text = std::fs::read_to_string(&path).unwrap();
                let count = |line: &str| text.split_inclusive('\n').filter(|l| *l == line).count();
                assert_eq!((count(OURS), count(THEIRS)), (written, LINES));
            });
        });
        drop(replaced);
    });
}

#[test]
fn partial_line_is_written_at_exit() {
    let test = "partial_line_is_written_at_exit";
    let endings: [fn(); 4] = [
        || drop(write!(io::stdout(), "the last words").map(|()| std::process::exit(0))),
        || {
            on_one_worker(|| {
                let mut locked = io::stdout().lock();
                write!(locked, "the last words").unwrap();
                std::process::exit(0);
            })
        },
        || {
            on_one_worker(|| write!(io::stdout(), "the last words").unwrap());
            std::process::exit(0);
        },
        || {
            on_one_worker(|| {
                write!(io::stdout(), "the last words").unwrap();
                fiber::unblock(|| std::process::exit(0));
            })
        },
    ];
    for (number, ending) in endings.into_iter().enumerate() {
        let which = number.to_string();
        match child::run_with(test, |c| c.env("CRINGLE_TEST_ENDING", &which)) {
            None if std::env::var("CRINGLE_TEST_ENDING").unwrap() == which => ending(),
            None => {}
            Some(output) => {
                assert!(output.status.success());
                assert!(output.stdout.ends_with(b"the last words"), "{number}: {output:?}");
            }
        }
    }
}

#[test]
fn terminal_is_read_line_by_line() {
    child::must_succeed("terminal_is_read_line_by_line", || {
        let (ours, theirs) = terminal();
        let mut ours = cringle::fs::File::from(ours);
        let _replaced = Replaced::new(0, &theirs);
        assert!(io::stdin().is_terminal() && !ours.metadata().unwrap().is_file());
        on_one_worker(|| {
            fiber::scope(|s| {
                let reads = s.spawn_local(|| {
                    let mut line = String::new();
                    io::stdin().read_line(&mut line).unwrap();
                    line
                });
                let_others_wait();
                ours.write_all(b"typed ").unwrap();
                let_others_wait();
                assert!(!reads.is_finished());
                ours.write_all(b"at last\n").unwrap();
                assert_eq!(reads.join().unwrap(), "typed at last\n");
            });
            let read_without_input = || io::stdin().read_line(&mut String::new());
            assert_elapsed(&time::timeout(SHORT, read_without_input).unwrap_err(), SHORT);
        });
    });
}

/// A terminal in raw mode, with this `VMIN` and `VTIME`.
fn timed_terminal(bytes: u8, tenths: u8) -> (cringle::fs::File, OwnedFd) {
    let (ours, theirs) = raw_terminal();
    set_timing(&theirs, bytes, tenths);
    (ours.into(), theirs)
}

/// The peer is a fiber of the same worker, which must run while a call waits.
#[test]
fn raw_terminal_suspends_only_its_fiber() {
    child::must_succeed("raw_terminal_suspends_only_its_fiber", || {
        for driver in [cringle::runtime::DriverChoice::Uring, cringle::runtime::DriverChoice::Epoll]
        {
            let builder = cringle::Builder::new().driver(driver).workers(1);
            let run = || {
                // A check for a key press does not wait.
                let (_ours, theirs) = timed_terminal(0, 0);
                let replaced = Replaced::new(0, &theirs);
                assert_eq!(io::stdin().read(&mut [0; 8]).unwrap(), 0);
                drop(replaced);
                // The worker does not wait between two bytes.
                let (mut ours, theirs) = timed_terminal(3, 255);
                let replaced = Replaced::new(0, &theirs);
                let mut found = [0; 8];
                let count = fiber::scope(|s| {
                    s.spawn_local(|| {
                        for byte in b"abc" {
                            ours.write_all(&[*byte]).unwrap();
                            fiber::yield_now();
                        }
                    });
                    io::stdin().read(&mut found).unwrap()
                });
                assert_eq!(&found[..count], b"abc");
                drop(replaced);
                // A terminal with a slow reader.
                let (mut ours, theirs) = timed_terminal(1, 0);
                let replaced = Replaced::new(2, &theirs);
                let bytes = disk::pattern(30_000);
                let mut found = vec![0; bytes.len()];
                fiber::scope(|s| {
                    s.spawn_local(|| io::stderr().write_all(&bytes).unwrap());
                    ours.read_exact(&mut found).unwrap();
                });
                drop(replaced);
                assert!(found == bytes);
            };
            builder.run(run).unwrap();
        }
    });
}

/// A blocking write to a pipe returns when all bytes are written, as std's does.
#[test]
fn write_to_a_full_pipe_writes_all() {
    child::must_succeed("write_to_a_full_pipe_writes_all", || {
        let bytes = disk::pattern(200_000);
        let (_replaced, mut reader) = output(2);
        for driver in [cringle::runtime::DriverChoice::Uring, cringle::runtime::DriverChoice::Epoll]
        {
            let written = cringle::Builder::new().driver(driver).workers(1).run(|| {
                fiber::scope(|s| {
                    let writes = s.spawn_local(|| {
                        let slices: Vec<_> = bytes.chunks(30_000).map(io::IoSlice::new).collect();
                        let mut stderr = io::stderr();
                        (stderr.write(&bytes).unwrap(), stderr.write_vectored(&slices).unwrap())
                    });
                    let mut found = vec![0; 2 * bytes.len()];
                    reader.read_exact(&mut found).unwrap();
                    assert!(found[..bytes.len()] == bytes && found[bytes.len()..] == bytes);
                    writes.join().unwrap()
                })
            });
            assert_eq!(written.unwrap(), (bytes.len(), bytes.len()), "{driver:?}");
        }
    });
}
