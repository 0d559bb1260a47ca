//! Calls that C libraries make and std does not: in each, only the calling fiber waits.

use crate::common::{on_both_drivers, waits_for};
use cringle::fiber;
use libc::*;
use std::ffi::CString;
use std::fs::File;
use std::io::{Read, Write, pipe};
use std::mem::zeroed;
use std::os::fd::{AsRawFd, FromRawFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::net::{UnixDatagram, UnixStream};
use std::process::{Command, Stdio};
use std::ptr::{null, null_mut};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::time::Duration;

unsafe extern "C" {
    fn vfork() -> pid_t;
    fn __read_chk(fd: c_int, buf: *mut c_void, len: size_t, room: size_t) -> ssize_t;
    fn __recv_chk(fd: c_int, buf: *mut c_void, len: size_t, room: size_t, flags: c_int) -> ssize_t;
    fn __poll_chk(fds: *mut pollfd, count: nfds_t, timeout: c_int, room: size_t) -> c_int;
}

/// Calls `wait` on a fiber with a pipe's reading end, into which a byte is written afterwards.
fn waits_for_byte(wait: impl Fn(c_int) -> c_int + Send + Sync) {
    on_both_drivers(|| {
        let (reader, mut writer) = pipe().unwrap();
        let fd = reader.as_raw_fd();
        assert_eq!(waits_for(|| wait(fd), || writer.write_all(b"!").unwrap()), 1);
    });
}

#[test]
fn poll_waits_only_its_fiber() {
    waits_for_byte(|fd| {
        let mut one = pollfd { fd, events: POLLIN, revents: 0 };
        // SAFETY: the structure is borrowed for the call.
        unsafe { poll(&mut one, 1, -1) }
    });
    waits_for_byte(|fd| {
        // Several descriptors, one of them twice and one not at all.
        let (other, _writer) = pipe().unwrap();
        let mut several = [(fd, 0), (other.as_raw_fd(), POLLIN), (fd, POLLIN), (-1, POLLIN)]
            .map(|(fd, events)| pollfd { fd, events, revents: 0 });
        let room = size_of_val(&several);
        // SAFETY: the array is borrowed for the call.
        let ready = unsafe { __poll_chk(several.as_mut_ptr(), 4, 60_000, room) };
        assert_eq!(several.map(|one| one.revents), [0, 0, POLLIN, 0]);
        ready
    });
}

#[test]
fn poll_of_a_few_reports_each_in_turn() {
    on_both_drivers(|| {
        let mut pipes: [_; 4] = std::array::from_fn(|_| pipe().unwrap());
        for round in 0..40 {
            let mut set = pipes.each_ref().map(|(reader, _)| pollfd {
                fd: reader.as_raw_fd(),
                events: POLLIN,
                revents: 0,
            });
            let mut wait = |timeout| {
                // SAFETY: the array is borrowed for the call.
                let count = unsafe { poll(set.as_mut_ptr(), 4, timeout) };
                (count, set.map(|one| one.revents))
            };
            let (reader, writer) = &mut pipes[round % 4];
            let mut expected = [0; 4];
            expected[round % 4] = POLLIN;
            let found = waits_for(|| wait(-1), || writer.write_all(b"!").unwrap());
            assert_eq!(found, (1, expected));
            reader.read_exact(&mut [0]).unwrap();
            assert_eq!(wait(1), (0, [0; 4]));
        }
    });
}

#[test]
fn select_waits_only_its_fiber() {
    waits_for_byte(|fd| {
        // SAFETY: all-zero sets are valid, and borrowed for the calls.
        unsafe {
            let mut set: fd_set = zeroed();
            FD_SET(fd, &mut set);
            let ready = select(fd + 1, &mut set, null_mut(), null_mut(), null_mut());
            assert!(FD_ISSET(fd, &set));
            ready
        }
    });
}

#[test]
fn epoll_wait_waits_only_its_fiber() {
    waits_for_byte(|fd| {
        // SAFETY: the structures are borrowed for the calls.
        unsafe {
            let instance = epoll_create1(EPOLL_CLOEXEC);
            let mut event = epoll_event { events: EPOLLIN as u32, u64: 77 };
            assert_eq!(epoll_ctl(instance, EPOLL_CTL_ADD, fd, &mut event), 0);
            event.u64 = 0;
            let ready = epoll_wait(instance, &mut event, 1, -1);
            assert_eq!({ event.u64 }, 77);
            close(instance);
            ready
        }
    });
}

#[test]
fn fortified_reads_wait_only_their_fiber() {
    waits_for_byte(|fd| {
        let mut buf = [0u8; 8];
        // SAFETY: the buffer is borrowed for the call.
        unsafe { __read_chk(fd, buf.as_mut_ptr().cast(), 8, 8) as c_int }
    });
    on_both_drivers(|| {
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        let mut buf = [0u8; 8];
        // SAFETY: the buffer is borrowed for the call.
        let wait = || unsafe { __recv_chk(ours.as_raw_fd(), buf.as_mut_ptr().cast(), 8, 8, 0) };
        assert_eq!(waits_for(wait, || theirs.write_all(b"rope").unwrap()), 4);
    });
}

#[test]
fn recvmmsg_waits_for_all_its_messages() {
    on_both_drivers(|| {
        let (ours, theirs) = UnixDatagram::pair().unwrap();
        let received = waits_for(
            || {
                let mut bufs = [[0u8; 8]; 2];
                let mut slices = bufs
                    .each_mut()
                    .map(|buf| iovec { iov_base: buf.as_mut_ptr().cast(), iov_len: 8 });
                // SAFETY: all-zero headers are valid; the buffers are borrowed for the call.
                unsafe {
                    let mut messages: [mmsghdr; 2] = zeroed();
                    for (message, slice) in messages.iter_mut().zip(&mut slices) {
                        (message.msg_hdr.msg_iov, message.msg_hdr.msg_iovlen) = (slice, 1);
                    }
                    let fd = theirs.as_raw_fd();
                    let count = recvmmsg(fd, messages.as_mut_ptr(), 2, 0, null_mut());
                    (count, messages.map(|message| message.msg_len))
                }
            },
            || {
                ours.send(b"one").unwrap();
                ours.send(b"three").unwrap();
            },
        );
        assert_eq!(received, (2, [3, 5]));
    });
}

#[test]
fn opening_a_fifo_waits_for_its_writer() {
    on_both_drivers(|| {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("fifo");
        let c_path = CString::new(path.as_os_str().as_bytes()).unwrap();
        // SAFETY: the path is a C string.
        assert_eq!(unsafe { mkfifo(c_path.as_ptr(), 0o600) }, 0);
        let mut text = String::new();
        let mut writer = None;
        let mut reader = waits_for(
            || File::open(&path).unwrap(),
            || writer = Some(File::options().write(true).open(&path).unwrap()),
        );
        writer.unwrap().write_all(b"rope").unwrap();
        reader.read_to_string(&mut text).unwrap();
        assert_eq!(text, "rope");
        // SAFETY: no pointers.
        assert_eq!(unsafe { fcntl(reader.as_raw_fd(), F_GETFL) } & O_NONBLOCK, 0);
    });
}

#[test]
fn waitpid_waits_only_its_fiber() {
    on_both_drivers(|| {
        for peeks in [false, true] {
            #[expect(clippy::zombie_processes, reason = "`waitpid` reaps it")]
            let mut child = Command::new("cat").stdin(Stdio::piped()).spawn().unwrap();
            let (id, stdin) = (child.id() as pid_t, child.stdin.take());
            let status = waits_for(
                || {
                    let mut status = -1;
                    // SAFETY: the status is borrowed for the call.
                    let reaped = unsafe {
                        if peeks {
                            let options = WEXITED | WNOWAIT;
                            assert_eq!(waitid(P_PID, id as id_t, null_mut(), options), 0);
                        }
                        waitpid(id, &mut status, 0)
                    };
                    assert_eq!(reaped, id);
                    status
                },
                || drop(stdin),
            );
            assert!(WIFEXITED(status) && WEXITSTATUS(status) == 0);
        }
    });
}

#[test]
fn file_locks_of_other_processes_are_waited_for() {
    on_both_drivers(|| {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("lock");
        let file = File::create(&path).unwrap();
        let held = File::open(&path).unwrap();
        // SAFETY: no pointers.
        unsafe {
            assert_eq!(flock(held.as_raw_fd(), LOCK_EX), 0);
            let fd = file.as_raw_fd();
            let unlock = || assert_eq!(flock(held.as_raw_fd(), LOCK_UN), 0);
            assert_eq!(waits_for(|| flock(fd, LOCK_EX), unlock), 0);
        }
        let lock = |kind: c_int| {
            // SAFETY: an all-zero structure is valid.
            let mut lock: flock64 = unsafe { zeroed() };
            lock.l_type = kind as c_short;
            lock
        };
        let other = File::options().write(true).open(&path).unwrap();
        // SAFETY: the structures are borrowed for the calls.
        unsafe {
            assert_eq!(fcntl(other.as_raw_fd(), F_OFD_SETLK, &lock(F_WRLCK)), 0);
            let fd = file.as_raw_fd();
            let wait = || fcntl(fd, F_OFD_SETLKW, &lock(F_WRLCK));
            let unlock = || assert_eq!(fcntl(other.as_raw_fd(), F_OFD_SETLK, &lock(F_UNLCK)), 0);
            assert_eq!(waits_for(wait, unlock), 0);
        }
    });
}

#[test]
fn splice_and_sendfile_move_bytes() {
    on_both_drivers(|| {
        let (from, mut to) = pipe().unwrap();
        let mut file = tempfile::tempfile().unwrap();
        // SAFETY: null offsets mean the cursors.
        let wait =
            || unsafe { splice(from.as_raw_fd(), null_mut(), file.as_raw_fd(), null_mut(), 64, 0) };
        assert_eq!(waits_for(wait, || to.write_all(b"strands").unwrap()), 7);
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        let mut offset = 2;
        // SAFETY: the offset is borrowed for the call.
        let sent = unsafe { sendfile(ours.as_raw_fd(), file.as_raw_fd(), &mut offset, 64) };
        assert_eq!((sent, offset), (5, 7));
        let mut buf = [0; 5];
        theirs.read_exact(&mut buf).unwrap();
        assert_eq!(&buf, b"rands");
        file.write_all(b"!").unwrap();
    });
}

#[test]
fn copies_that_move_nothing_do_not_wait_for_a_peer() {
    on_both_drivers(|| {
        let ((from, _from_peer), (_to_peer, to)) = (pipe().unwrap(), pipe().unwrap());
        let (from, to, null) = (from.as_raw_fd(), to.as_raw_fd(), null_mut());
        let call = || {
            // SAFETY: null offsets mean the cursors.
            let copied = unsafe { copy_file_range(from, null, to, null, 8, 0) };
            let error = std::io::Error::last_os_error().raw_os_error();
            // SAFETY: as above.
            Ok(unsafe { (copied, error, splice(from, null, to, null, 0, 0)) })
        };
        let (copied, error, spliced) =
            cringle::time::timeout(Duration::from_secs(10), call).unwrap();
        assert_eq!((copied, error, spliced), (-1, Some(EINVAL), 0));
    });
}

#[test]
fn resolver_and_clocks_wait_only_their_fiber() {
    on_both_drivers(|| {
        let mut found = null_mut();
        // SAFETY: the strings are C strings, and the result is freed.
        unsafe {
            assert_eq!(getaddrinfo(c"localhost".as_ptr(), null(), null(), &mut found), 0);
            freeaddrinfo(found);
        }
        let addresses = std::net::ToSocketAddrs::to_socket_addrs("localhost:80").unwrap();
        assert!(addresses.into_iter().all(|address| address.ip().is_loopback()));
    });
}

/// glibc reads a file of aliases before it asks a server: here a FIFO, which has no writer until
/// the deadline has passed.
#[test]
fn deadline_ends_the_wait_for_the_resolver() {
    let Some(fifo) = std::env::var_os("HOSTALIASES") else {
        let directory = tempfile::tempdir().unwrap();
        let fifo = directory.path().join("aliases");
        let path = CString::new(fifo.as_os_str().as_bytes()).unwrap();
        // SAFETY: the path is a C string.
        assert_eq!(unsafe { mkfifo(path.as_ptr(), 0o600) }, 0);
        let mut child = Command::new(std::env::current_exe().unwrap());
        child.args(["--exact", "calls::deadline_ends_the_wait_for_the_resolver", "--nocapture"]);
        child.env("HOSTALIASES", &fifo).env("RES_OPTIONS", "timeout:1 attempts:1");
        return assert!(child.status().unwrap().success());
    };
    // Calls of the resolver that read the FIFO, which they find empty then.
    let (is_held, reads) = (Mutex::new(false), AtomicUsize::new(0));
    let let_read = |is_over: &dyn Fn() -> bool| {
        while !is_over() {
            let mut open = std::fs::OpenOptions::new();
            let open = open.write(true).custom_flags(O_NONBLOCK);
            let is_held = is_held.lock().unwrap();
            if !*is_held && open.open(&fifo).is_ok() {
                reads.fetch_add(1, SeqCst);
            }
            drop(is_held);
            std::thread::yield_now();
        }
    };
    let resolve = || std::net::ToSocketAddrs::to_socket_addrs(&("cringle-without-dots", 80));
    let plain = std::thread::spawn(move || drop(resolve()));
    let_read(&|| plain.is_finished());
    if reads.load(SeqCst) == 0 {
        return eprintln!("skipped: this machine resolves names without the file of aliases");
    }
    let over = AtomicBool::new(false);
    std::thread::scope(|s| {
        s.spawn(|| let_read(&|| over.load(SeqCst)));
        on_both_drivers(|| {
            *is_held.lock().unwrap() = true;
            let limit = Duration::from_millis(20);
            let result = cringle::time::timeout(limit, || resolve().map(|_| ()));
            assert_eq!(result.unwrap_err().kind(), std::io::ErrorKind::TimedOut);
            // The thread that has made the call is still there.
            let before = reads.load(SeqCst);
            *is_held.lock().unwrap() = false;
            while reads.load(SeqCst) == before {
                fiber::yield_now();
            }
            // A cancelled fiber makes no call.
            let refused = fiber::scope(|s| {
                s.cancel();
                resolve().map(|_| ()).unwrap_err()
            });
            assert_eq!(refused.raw_os_error(), Some(ECANCELED));
        });
        over.store(true, SeqCst);
    });
}

#[test]
fn signal_is_waited_for() {
    on_both_drivers(|| {
        // SAFETY: the sets are initialised; the signal is blocked in this thread alone, to which it
        // is sent.
        unsafe {
            let (mut set, mut before): (sigset_t, sigset_t) = (zeroed(), zeroed());
            sigemptyset(&mut set);
            sigaddset(&mut set, SIGUSR2);
            pthread_sigmask(SIG_BLOCK, &set, &mut before);
            let mut signal = 0;
            let wait = || sigwait(&set, &mut signal);
            let send = || assert_eq!(syscall(SYS_tgkill, getpid(), gettid(), SIGUSR2), 0);
            assert_eq!(waits_for(wait, send), 0);
            assert_eq!(signal, SIGUSR2);
            pthread_sigmask(SIG_SETMASK, &before, null_mut());
        }
    });
}

#[test]
fn accepted_descriptor_has_the_callers_flags() {
    on_both_drivers(|| {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        for (flags, expected) in
            [(0, (0, 0)), (SOCK_CLOEXEC, (FD_CLOEXEC, 0)), (SOCK_NONBLOCK, (0, O_NONBLOCK))]
        {
            let _client = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
            // SAFETY: null addresses are allowed; the descriptor is new.
            unsafe {
                let fd = accept4(listener.as_raw_fd(), null_mut(), null_mut(), flags);
                let seen = (fcntl(fd, F_GETFD), fcntl(fd, F_GETFL) & O_NONBLOCK);
                assert_eq!(seen, expected);
                drop(File::from_raw_fd(fd));
            }
        }
    });
}

#[test]
fn child_of_a_fiber_is_a_plain_process() {
    on_both_drivers(|| {
        for fork in [fork, vfork] {
            let (mut reader, writer) = pipe().unwrap();
            let child = || {
                // SAFETY: the child makes only calls that a signal handler may make.
                unsafe {
                    let id = fork();
                    if id == 0 {
                        let time = timespec { tv_sec: 0, tv_nsec: 1_000_000 };
                        nanosleep(&time, null_mut());
                        let null = open(c"/dev/null".as_ptr(), O_RDONLY);
                        write(writer.as_raw_fd(), c"child".as_ptr().cast(), 5);
                        close(null);
                        _exit(0);
                    }
                    id
                }
            };
            let id = cringle::fiber::scope(|s| s.spawn(child).join().unwrap());
            let mut text = [0; 5];
            reader.read_exact(&mut text).unwrap();
            assert_eq!(&text, b"child");
            let mut status = -1;
            // SAFETY: the status is borrowed for the call.
            assert_eq!(unsafe { waitpid(id, &mut status, 0) }, id);
            assert_eq!(status, 0);
        }
        let mut command = Command::new("echo");
        // SAFETY: the closure makes one call that a signal handler may make.
        unsafe {
            std::os::unix::process::CommandExt::pre_exec(&mut command, || {
                libc::usleep(100);
                Ok(())
            });
        }
        let output = cringle::fiber::scope(|s| s.spawn(|| command.output()).join().unwrap());
        assert_eq!(output.unwrap().stdout, b"\n");
    });
}

/// The writer has the program open at the first attempt, and closes it in one of the next turns.
#[test]
fn program_starts_once_its_writer_closes() {
    // In a child of its own: the children of other tests inherit what is open.
    let Some(program) = std::env::var_os("CRINGLE_TEST_PROGRAM") else {
        let directory = tempfile::tempdir().unwrap();
        let program = directory.path().join("program");
        std::fs::copy("/bin/true", &program).unwrap();
        let mut child = Command::new(std::env::current_exe().unwrap());
        child.args(["--exact", "calls::program_starts_once_its_writer_closes", "--nocapture"]);
        return assert!(child.env("CRINGLE_TEST_PROGRAM", program).status().unwrap().success());
    };
    on_both_drivers(|| {
        let writer = File::options().write(true).open(&program).unwrap();
        fiber::scope(|s| {
            let started = s.spawn(|| Command::new(&program).status());
            for _ in 0..4 {
                fiber::yield_now();
            }
            assert!(!started.is_finished(), "the program is open");
            drop(writer);
            assert!(started.join().unwrap().unwrap().success());
        });
    });
}

/// The action finds the file that the attempt before it has created.
#[test]
fn busy_program_is_busy_whatever_an_action_finds() {
    on_both_drivers(|| {
        let directory = tempfile::tempdir().unwrap();
        let path = |name| directory.path().join(name);
        std::fs::copy("/bin/true", path("program")).unwrap();
        let _writer = std::fs::File::options().write(true).open(path("program")).unwrap();
        let text = |name| CString::new(path(name).as_os_str().as_bytes()).unwrap();
        let (program, out) = (text("program"), text("out"));
        let arguments = [program.as_ptr().cast_mut(), null_mut()];
        // SAFETY: the contracts of the calls: all memory is this function's.
        let code = unsafe {
            let actions: *mut posix_spawn_file_actions_t = &mut zeroed();
            posix_spawn_file_actions_init(actions);
            let flags = O_CREAT | O_EXCL | O_WRONLY;
            posix_spawn_file_actions_addopen(actions, 1, out.as_ptr(), flags, 0o600);
            let (mut child, none) = (0, [null_mut()]);
            let (attributes, argv) = (null(), arguments.as_ptr());
            let started =
                posix_spawn(&mut child, program.as_ptr(), actions, attributes, argv, none.as_ptr());
            posix_spawn_file_actions_destroy(actions);
            started
        };
        assert_eq!((code, path("out").exists()), (ETXTBSY, true));
    });
}
