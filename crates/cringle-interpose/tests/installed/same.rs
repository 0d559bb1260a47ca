//! The same calls of C, on a thread and on fibers: the same results, and the same `errno`.

use crate::common::on_both_drivers;
use libc::*;
use std::ffi::{CString, c_int};
use std::fmt::Debug;
use std::mem::zeroed;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::ptr::{null, null_mut};
use std::sync::Mutex;

/// What the program has seen, line by line.
#[derive(Default)]
struct Seen(Vec<String>);

impl Seen {
    /// Notes the result of a call and its `errno`, which is 4096 if the call has left it alone.
    fn note<T: Debug + PartialEq>(&mut self, name: &str, call: impl FnOnce() -> T) -> T {
        // SAFETY: the calling code's own `errno`.
        let (result, errno) = unsafe {
            *__errno_location() = 4096;
            let result = call();
            (result, *__errno_location())
        };
        self.line(name, &result, errno);
        result
    }

    /// Compiled once, and not for each call.
    fn line(&mut self, name: &str, result: &dyn Debug, errno: c_int) {
        self.0.push(format!("{name}: {result:?}, errno {errno}"));
    }

    /// Notes a value.
    fn value(&mut self, name: &str, value: impl Debug) {
        self.0.push(format!("{name} = {value:?}"));
    }
}

/// An address that is not mapped.
fn nowhere<T>() -> *mut T {
    std::ptr::without_provenance_mut(usize::MAX & !4095)
}

fn c_path(path: &Path) -> CString {
    CString::new(path.as_os_str().as_bytes()).unwrap()
}

/// # Safety
///
/// The calls' contracts: all memory is this function's.
unsafe fn files(seen: &mut Seen, directory: &Path) {
    // SAFETY: by the contract.
    unsafe {
        let path = c_path(&directory.join("file"));
        let mut buf = [0u8; 64];
        let at = buf.as_mut_ptr().cast::<c_void>();
        seen.note("open missing", || open(path.as_ptr(), O_RDONLY));
        seen.note("open nowhere", || open(nowhere::<c_char>(), O_RDONLY));
        let fd = open(path.as_ptr(), O_CREAT | O_RDWR | O_EXCL, 0o640);
        let flags = fcntl(fd, F_GETFL) & (O_ACCMODE | O_NONBLOCK | O_APPEND);
        seen.value("flags", (flags, fcntl(fd, F_GETFD)));
        let mut stat: stat = zeroed();
        seen.note("fstat", || fstat(fd, &mut stat));
        seen.value("mode", stat.st_mode);
        seen.note("create again", || open(path.as_ptr(), O_CREAT | O_EXCL | O_RDWR, 0o600));
        seen.note("write", || write(fd, c"rope strands".as_ptr().cast(), 12));
        seen.note("write nothing", || write(fd, at, 0));
        seen.note("read at the end", || read(fd, at, 64));
        seen.note("pread", || pread(fd, at, 4, 5));
        seen.value("bytes", &buf[..4]);
        seen.note("pread64", || pread64(fd, at, 64, 2));
        seen.note("pread negative", || pread(fd, at, 4, -1));
        seen.note("pread more negative", || pread(fd, at, 4, -5));
        seen.note("pread nowhere", || pread(fd, nowhere(), 4, 0));
        seen.note("pwrite", || pwrite(fd, c"W".as_ptr().cast(), 1, 5));
        seen.note("pwrite negative", || pwrite(fd, c"W".as_ptr().cast(), 1, -1));
        let slices =
            [iovec { iov_base: at, iov_len: 3 }, iovec { iov_base: at.byte_add(3), iov_len: 40 }];
        seen.note("lseek", || lseek(fd, 4, SEEK_SET));
        seen.note("readv", || readv(fd, slices.as_ptr(), 2));
        seen.value("bytes", &buf[..8]);
        seen.note("readv of none", || readv(fd, slices.as_ptr(), 0));
        seen.note("readv of −1", || readv(fd, slices.as_ptr(), -1));
        seen.note("readv of too many", || readv(fd, slices.as_ptr(), 5000));
        seen.note("readv nowhere", || readv(fd, nowhere(), 2));
        seen.note("preadv", || preadv(fd, slices.as_ptr(), 2, 1));
        seen.note("preadv2 at the cursor", || preadv2(fd, slices.as_ptr(), 2, -1, 0));
        seen.note("preadv2 with a bad flag", || preadv2(fd, slices.as_ptr(), 2, 0, 1 << 20));
        seen.note("preadv2, high priority", || preadv2(fd, slices.as_ptr(), 2, 0, RWF_HIPRI));
        seen.note("pwritev2, synchronous", || pwritev2(fd, slices.as_ptr(), 1, 0, RWF_DSYNC));
        seen.note("cursor", || lseek(fd, 0, SEEK_CUR));
        locks(seen, fd);
        seen.note("sendfile to a file", || sendfile(fd, fd, &mut 0, 3));
        seen.note("close", || close(fd));
        seen.note("close again", || close(fd));
        seen.note("close −1", || close(-1));
        seen.note("read, closed", || read(fd, at, 4));
        seen.note("creat", || close(creat(path.as_ptr(), 0o600)));
        appends(seen, directory, at);
        empties(seen, directory, at);
    }
}

/// Transfers of no bytes, which a file may refuse nevertheless.
///
/// # Safety
///
/// As for [`files`].
unsafe fn empties(seen: &mut Seen, directory: &Path, at: *mut c_void) {
    // SAFETY: by the contract.
    unsafe {
        let note = |seen: &mut Seen, name: &str, fd: c_int| {
            seen.note(&format!("read nothing, {name}"), || read(fd, at, 0));
            seen.note(&format!("write nothing, {name}"), || write(fd, at, 0));
            seen.note(&format!("pread nothing, {name}"), || pread(fd, at, 0, 0));
            seen.note(&format!("pwrite nothing, {name}"), || pwrite(fd, at, 0, 0));
            let none = iovec { iov_base: at, iov_len: 0 };
            seen.note(&format!("readv nothing, {name}"), || readv(fd, &none, 1));
            seen.note(&format!("writev nothing, {name}"), || writev(fd, &none, 1));
        };
        note(seen, "closed", -1);
        for (name, path, flags) in [
            ("a directory", directory.as_os_str().as_bytes(), O_RDONLY),
            ("a full device", b"/dev/full", O_RDWR),
            ("a null device", b"/dev/null", O_RDWR),
        ] {
            let path = CString::new(path).unwrap();
            let fd = open(path.as_ptr(), flags);
            note(seen, name, fd);
            close(fd);
        }
        let path = c_path(&directory.join("empties"));
        for flags in [O_RDONLY, O_WRONLY, O_RDWR, O_RDWR | O_DIRECT] {
            let fd = open(path.as_ptr(), O_CREAT | flags, 0o600);
            note(seen, &format!("a file of {flags:#x}"), fd);
            close(fd);
        }
        for (name, fd) in [
            ("an eventfd", eventfd(0, 0)),
            ("a timer", timerfd_create(CLOCK_MONOTONIC, 0)),
            ("an epoll instance", epoll_create1(0)),
        ] {
            note(seen, name, fd);
            close(fd);
        }
        let mut pipe_ends = [0; 2];
        pipe(pipe_ends.as_mut_ptr());
        pipe_ends.iter().for_each(|&fd| note(seen, "an end of a pipe", fd));
        close(pipe_ends[0]);
        note(seen, "a broken pipe", pipe_ends[1]);
        close(pipe_ends[1]);
        for kind in [SOCK_STREAM, SOCK_DGRAM, SOCK_SEQPACKET] {
            let mut pair = [0; 2];
            socketpair(AF_UNIX, kind, 0, pair.as_mut_ptr());
            note(seen, &format!("a socket of kind {kind}"), pair[0]);
            // The empty datagrams have arrived.
            let mut packet = [0u8; 4];
            let packet = packet.as_mut_ptr().cast();
            seen.note("arrived", || recv(pair[1], packet, 4, MSG_DONTWAIT));
            close(pair[1]);
            seen.note("write nothing, a broken socket", || write(pair[0], at, 0));
            seen.note("read nothing, a broken socket", || read(pair[0], at, 0));
            close(pair[0]);
        }
    }
}

/// # Safety
///
/// As for [`files`].
unsafe fn locks(seen: &mut Seen, fd: c_int) {
    // SAFETY: by the contract.
    unsafe {
        seen.note("fsync", || fsync(fd));
        seen.note("fdatasync", || fdatasync(fd));
        seen.note("fsync of −1", || fsync(-1));
        seen.note("flock", || flock(fd, LOCK_EX));
        seen.note("flock again", || flock(fd, LOCK_SH));
        seen.note("flock, bad", || flock(fd, 77));
        let mut lock: flock64 = zeroed();
        (lock.l_type, lock.l_len) = (F_WRLCK as c_short, 10);
        seen.note("record lock", || fcntl(fd, F_SETLKW, &raw mut lock));
        lock.l_type = F_UNLCK as c_short;
        seen.note("record unlock", || fcntl(fd, F_SETLKW, &raw mut lock));
        lock.l_type = F_WRLCK as c_short;
        seen.note("open file lock", || fcntl(fd, F_OFD_SETLKW, &raw mut lock));
        seen.note("record lock nowhere", || fcntl(fd, F_SETLKW, nowhere::<flock64>()));
    }
}

/// # Safety
///
/// As for [`files`].
unsafe fn appends(seen: &mut Seen, directory: &Path, at: *mut c_void) {
    // SAFETY: by the contract.
    unsafe {
        let dir = open(c_path(directory).as_ptr(), O_DIRECTORY);
        seen.note("read a directory", || read(dir, at, 4));
        let again = openat(dir, c"file".as_ptr(), O_WRONLY | O_APPEND | O_CLOEXEC);
        seen.value("flags", (fcntl(again, F_GETFD), fcntl(again, F_GETFL) & O_APPEND));
        seen.note("read, write-only", || read(again, at, 4));
        seen.note("append", || write(again, at, 4));
        seen.note("cursor", || lseek(again, 0, SEEK_CUR));
        close(again);
        close(dir);
    }
}

/// # Safety
///
/// As for [`files`].
unsafe fn sockets(seen: &mut Seen) {
    // SAFETY: by the contract.
    unsafe {
        let mut pair = [0; 2];
        let mut buf = [7u8; 64];
        let at = buf.as_mut_ptr().cast::<c_void>();
        seen.note("socketpair", || socketpair(AF_UNIX, SOCK_STREAM, 0, pair.as_mut_ptr()));
        let [ours, theirs] = pair;
        seen.note("send", || send(ours, at, 10, MSG_NOSIGNAL));
        seen.note("peek", || recv(theirs, at, 4, MSG_PEEK));
        seen.note("recv", || recv(theirs, at, 4, 0));
        seen.note("recv the rest", || recv(theirs, at, 64, 0));
        seen.note("recv at once", || recv(theirs, at, 64, MSG_DONTWAIT));
        seen.note("recv, bad flags", || recv(theirs, at, 64, MSG_OOB));
        seen.note("pread", || pread(theirs, at, 4, 0));
        seen.note("connect again", || connect(ours, null(), 0));
        seen.note("accept, no listener", || accept(ours, null_mut(), null_mut()));
        seen.note("accept4, bad flags", || accept4(ours, null_mut(), null_mut(), 1));
        let limit = timeval { tv_sec: 0, tv_usec: 10_000 };
        let len = size_of::<timeval>() as socklen_t;
        for option in [SO_RCVTIMEO, SO_SNDTIMEO] {
            setsockopt(theirs, SOL_SOCKET, option, (&raw const limit).cast(), len);
        }
        seen.note("recv, late", || recv(theirs, at, 64, 0));
        seen.note("read, late", || read(theirs, at, 64));
        let mut message: msghdr = zeroed();
        let mut slice = iovec { iov_base: at, iov_len: 64 };
        (message.msg_iov, message.msg_iovlen) = (&mut slice, 1);
        seen.note("recvmsg, late", || recvmsg(theirs, &mut message, 0));
        seen.note("send 2", || send(ours, at, 2, 0));
        seen.note("all of 8, late", || recv(theirs, at, 8, MSG_WAITALL));
        seen.note("send 3", || write(ours, at, 3));
        seen.note("recvmsg", || recvmsg(theirs, &mut message, 0));
        fcntl(theirs, F_SETFL, O_NONBLOCK);
        seen.note("recv, non-blocking", || recv(theirs, at, 64, 0));
        seen.note("all, non-blocking", || recv(theirs, at, 64, MSG_WAITALL));
        seen.note("read, non-blocking", || read(theirs, at, 64));
        seen.note("shutdown", || shutdown(ours, SHUT_WR));
        seen.note("recv at the end", || recv(theirs, at, 64, 0));
        close(theirs);
        seen.note("send, broken", || send(ours, at, 1, MSG_NOSIGNAL));
        seen.note("write, broken", || write(ours, at, 1));
        close(ours);
        seen.note("send to no socket", || send(0x7fff, at, 1, 0));
        messages(seen, at);
    }
}

/// # Safety
///
/// As for [`files`].
unsafe fn messages(seen: &mut Seen, at: *mut c_void) {
    // SAFETY: by the contract.
    unsafe {
        let mut pair = [0; 2];
        socketpair(AF_UNIX, SOCK_DGRAM, 0, pair.as_mut_ptr());
        let [ours, theirs] = pair;
        let mut slice = iovec { iov_base: at, iov_len: 5 };
        let mut both: [mmsghdr; 2] = zeroed();
        for one in &mut both {
            (one.msg_hdr.msg_iov, one.msg_hdr.msg_iovlen) = (&mut slice, 1);
        }
        seen.note("sendmmsg", || sendmmsg(ours, both.as_mut_ptr(), 2, 0));
        seen.note("recvmmsg", || recvmmsg(theirs, both.as_mut_ptr(), 2, 0, null_mut()));
        seen.value("lengths", both.map(|one| one.msg_len));
        seen.note("send nothing", || send(ours, at, 0, 0));
        seen.note("recv nothing", || recv(theirs, at, 64, 0));
        seen.note("send 10", || send(ours, at, 10, 0));
        seen.note("truncated", || recv(theirs, at, 4, MSG_TRUNC));
        let (mut from, mut len): (sockaddr_un, _) = (zeroed(), size_of::<sockaddr_un>() as u32);
        send(ours, at, 3, 0);
        seen.note("recvfrom", || recvfrom(theirs, at, 64, 0, (&raw mut from).cast(), &mut len));
        seen.value("length of the address", len);
        seen.note("shutdown", || shutdown(theirs, SHUT_RD));
        seen.note("recv, shut", || recv(theirs, at, 64, 0));
        close(ours);
        close(theirs);
    }
}

/// # Safety
///
/// As for [`files`].
unsafe fn readiness(seen: &mut Seen) {
    // SAFETY: by the contract.
    unsafe {
        let mut ends = [0; 2];
        pipe(ends.as_mut_ptr());
        let [from, to] = ends;
        let all = |events: [c_short; 2]| {
            [(from, events[0]), (to, events[1])].map(|(fd, events)| pollfd {
                fd,
                events,
                revents: 0,
            })
        };
        let mut fds = all([POLLIN, 0]);
        seen.note("poll, late", || poll(fds.as_mut_ptr(), 2, 10));
        fds = all([POLLIN, POLLOUT]);
        seen.note("poll", || poll(fds.as_mut_ptr(), 2, -1));
        seen.value("events", fds.map(|fd| fd.revents));
        fds[0].fd = 0x7fff;
        seen.note("poll, closed", || poll(fds.as_mut_ptr(), 1, 1000));
        seen.value("events", fds[0].revents);
        seen.note("poll nothing", || poll(null_mut(), 0, 5));
        seen.note("poll nowhere", || poll(nowhere(), 1, 5));
        let time = timespec { tv_sec: 0, tv_nsec: 5_000_000 };
        let bad = timespec { tv_sec: 0, tv_nsec: 1_000_000_000 };
        fds = all([POLLIN, 0]);
        seen.note("ppoll, late", || ppoll(fds.as_mut_ptr(), 1, &time, null()));
        seen.note("ppoll, bad time", || ppoll(fds.as_mut_ptr(), 1, &bad, null()));
        let (mut reads, mut writes): (fd_set, fd_set) = (zeroed(), zeroed());
        FD_SET(from, &mut reads);
        let mut limit = timeval { tv_sec: 0, tv_usec: 5000 };
        let null = null_mut();
        seen.note("select, late", || select(from + 1, &mut reads, null, null, &mut limit));
        seen.value("set", (FD_ISSET(from, &reads), limit.tv_usec));
        FD_SET(from, &mut reads);
        FD_SET(to, &mut writes);
        seen.note("select", || select(to.max(from) + 1, &mut reads, &mut writes, null, null_mut()));
        seen.value("sets", (FD_ISSET(from, &reads), FD_ISSET(to, &writes)));
        seen.note("select of −1", || select(-1, null, null, null, &mut limit));
        let instance = epoll_create1(0);
        let mut event = epoll_event { events: EPOLLIN as u32, u64: 9 };
        epoll_ctl(instance, EPOLL_CTL_ADD, from, &mut event);
        seen.note("epoll_wait, late", || epoll_wait(instance, &mut event, 1, 5));
        write(to, c"!".as_ptr().cast(), 1);
        seen.note("epoll_wait", || epoll_wait(instance, &mut event, 1, -1));
        seen.value("event", (event.events, { event.u64 }));
        seen.note("epoll_wait for none", || epoll_wait(instance, &mut event, 0, -1));
        seen.note("epoll_wait on a pipe", || epoll_wait(from, &mut event, 1, -1));
        close(to);
        (limit.tv_sec, limit.tv_usec) = (0, 5000);
        FD_SET(from, &mut reads);
        seen.note("select, hung up", || select(from + 1, null, null, &mut reads, &mut limit));
        close(from);
        close(instance);
    }
}

/// # Safety
///
/// As for [`files`].
unsafe fn times_and_children(seen: &mut Seen) {
    // SAFETY: by the contract.
    unsafe {
        let mut left = timespec { tv_sec: 7, tv_nsec: 7 };
        for (sec, nsec) in [(0, 1000), (0, 1_000_000_000), (-1, 0), (0, -1)] {
            let time = timespec { tv_sec: sec, tv_nsec: nsec };
            seen.note("nanosleep", || nanosleep(&time, &mut left));
            seen.note("clock_nanosleep", || clock_nanosleep(CLOCK_MONOTONIC, 0, &time, &mut left));
            seen.note("until", || {
                clock_nanosleep(CLOCK_REALTIME, TIMER_ABSTIME, &time, null_mut())
            });
        }
        seen.note("nanosleep nowhere", || nanosleep(null(), null_mut()));
        seen.note("sleep by a bad clock", || clock_nanosleep(77, 0, &left, null_mut()));
        seen.note("usleep", || usleep(100));
        seen.note("sleep", || sleep(0));
        let mut status = 0;
        seen.note("waitpid, no child of mine", || waitpid(1, &mut status, 0));
        let mut child = 0;
        let arguments = [c"sh".as_ptr(), c"-c".as_ptr(), c"exit 3".as_ptr(), null()];
        for _ in 0..3 {
            let argv = arguments.as_ptr().cast();
            posix_spawnp(&mut child, c"sh".as_ptr(), null(), null(), argv, null());
            match status {
                0 => seen.value("reaped", waitpid(child, &mut status, 0) == child),
                1 => {
                    let mut usage: rusage = zeroed();
                    seen.value("reaped", wait4(child, &mut status, 0, &mut usage) == child);
                }
                _ => {
                    let mut info: siginfo_t = zeroed();
                    seen.note("waitid", || waitid(P_PID, child as u32, &mut info, WEXITED));
                    seen.value("child", (info.si_pid() == child, info.si_status(), info.si_code));
                }
            }
            seen.value("status", status);
            status = (status + 1) % 3;
        }
        seen.note("waitid, bad", || waitid(P_PID, 1, null_mut(), 0));
    }
}

/// # Safety
///
/// As for [`files`].
unsafe fn futexes(seen: &mut Seen) {
    let futex = |op: c_int, word: *const u32, value: u32, time: *const timespec| {
        // SAFETY: the arguments are this function's, or not mapped.
        unsafe { syscall(SYS_futex, word, op | FUTEX_PRIVATE_FLAG, value, time, 0usize, u32::MAX) }
    };
    let (word, time) = (5u32, timespec { tv_sec: 0, tv_nsec: 3_000_000 });
    let bad = timespec { tv_sec: 0, tv_nsec: -1 };
    seen.note("futex, changed", || futex(FUTEX_WAIT, &word, 4, null()));
    seen.note("futex, late", || futex(FUTEX_WAIT, &word, 5, &time));
    seen.note("futex, long ago", || futex(FUTEX_WAIT_BITSET, &word, 5, &time));
    seen.note("futex, bad time", || futex(FUTEX_WAIT, &word, 5, &bad));
    seen.note("futex, null", || futex(FUTEX_WAIT, null(), 5, &time));
    seen.note("futex, odd", || futex(FUTEX_WAIT, (&raw const word).wrapping_byte_add(1), 5, &time));
    seen.note("futex, wake none", || futex(FUTEX_WAKE, &word, 9, null()));
    // SAFETY: no pointers.
    unsafe {
        seen.note("syscall, none such", || syscall(9999));
        seen.value("syscall", syscall(SYS_getpid) == i64::from(getpid()));
        let mut buf = [0u8; 8];
        seen.note("six arguments", || {
            let at = buf.as_mut_ptr();
            let (length, flags) = (4096, MAP_PRIVATE | MAP_ANONYMOUS);
            let page = syscall(SYS_mmap, 0usize, length, PROT_READ, flags, -1, 0usize);
            at.write(*(page as *const u8));
            syscall(SYS_munmap, page, length)
        });
    }
}

fn names(seen: &mut Seen) {
    // SAFETY: all memory is this function's.
    unsafe {
        let mut hints: addrinfo = zeroed();
        (hints.ai_flags, hints.ai_socktype) = (AI_NUMERICHOST | AI_NUMERICSERV, SOCK_STREAM);
        let mut found = null_mut();
        seen.note("getaddrinfo", || {
            getaddrinfo(c"127.0.0.1".as_ptr(), c"80".as_ptr(), &hints, &mut found)
        });
        let mut host = [0 as c_char; 64];
        let (addr, len) = ((*found).ai_addr, (*found).ai_addrlen);
        seen.note("getnameinfo", || {
            getnameinfo(addr, len, host.as_mut_ptr(), 64, null_mut(), 0, NI_NUMERICHOST)
        });
        seen.value("host", std::ffi::CStr::from_ptr(host.as_ptr()));
        freeaddrinfo(found);
        let name = c"no number".as_ptr();
        seen.note("no such host", || getaddrinfo(name, null(), &hints, &mut found));
    }
}

fn observe() -> Vec<String> {
    let directory = tempfile::tempdir().unwrap();
    let mut seen = Seen::default();
    // SAFETY: each function keeps the contracts of the calls that it makes.
    unsafe {
        files(&mut seen, directory.path());
        sockets(&mut seen);
        readiness(&mut seen);
        times_and_children(&mut seen);
        futexes(&mut seen);
    }
    names(&mut seen);
    seen.0
}

#[test]
fn calls_of_c_behave_as_on_a_thread() {
    let expected = observe();
    assert!(expected.len() > 140, "{}", expected.len());
    on_both_drivers(|| {
        // On `run`'s own fiber, beside another one and alone, and on one with its own block.
        let compare = |seen: Vec<String>| {
            let differ: Vec<_> =
                expected.iter().zip(&seen).filter(|(expected, seen)| expected != seen).collect();
            assert!(differ.is_empty() && expected.len() == seen.len(), "{differ:#?}");
        };
        compare(observe());
        let seen = Mutex::new(Vec::new());
        cringle::fiber::scope(|s| {
            let busy = s.spawn(|| (0..500).for_each(|_| cringle::fiber::yield_now()));
            s.spawn(|| *seen.lock().unwrap() = observe());
            busy.join().unwrap();
        });
        compare(seen.into_inner().unwrap());
    });
}
