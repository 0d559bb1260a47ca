//! The library has the items of std's stable API under the same paths, with the same traits and the
//! same `Debug` texts.
//!
//! [`api`] is compiled with std and with the library, so a missing item is a compile error. A new
//! item of std's needs a line here. The docs of each module name the items that it leaves out.

use cringle_testing::disk;
use cringle_testing::same;
use cringle_testing::same::Log;

/// Compiles uses of std's API with std and with the library.
macro_rules! api {
    ($($body:item)*) => {
        #[allow(unused, deprecated, clippy::all)]
        mod api_of_std {
            use std as it;
            use std::thread;
            $($body)*
        }

        #[allow(unused, deprecated, clippy::all)]
        mod api_of_cringle {
            use cringle as it;
            use cringle::fiber as thread;
            $($body)*
        }
    };
}

api! {
    use it::fs::{self, DirBuilder, DirEntry, File, FileTimes, FileType, Metadata, OpenOptions, Permissions, ReadDir};
    use it::io::{self, BufRead, IoSlice, IoSliceMut, IsTerminal, Read, Seek, Write};
    use it::net::{self, Ipv4Addr, Ipv6Addr, Shutdown, SocketAddr, TcpListener, TcpStream, ToSocketAddrs, UdpSocket};
    use it::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, IntoRawFd, OwnedFd, RawFd};
    use it::os::unix::net::{self as unix, UnixDatagram, UnixListener, UnixStream};
    use it::os::unix::prelude::*;
    use it::process::{self, Child, ChildStderr, ChildStdin, ChildStdout, Command, ExitCode, ExitStatus, Output, Stdio};
    use it::sync::{self, Barrier, Condvar, LazyLock, Mutex, Once, OnceLock, PoisonError, RwLock, TryLockError, mpsc};
    use it::time::{self, Duration, Instant, SystemTime, SystemTimeError, UNIX_EPOCH};
    use std::error::Error;
    use std::fmt::{Debug, Display};
    use std::hash::Hash;
    use std::iter::FusedIterator;
    use std::panic::{RefUnwindSafe, UnwindSafe};

    fn plain<T: Send + Sync + Unpin + UnwindSafe + RefUnwindSafe + Debug>() {}
    fn sent<T: Send + Debug>() {}
    fn shared<T: Send + Sync + Debug>() {}
    fn printed<T: Debug>() {}
    fn value<T: Copy + Eq + Hash + Debug>() {}
    fn descriptor<T: AsFd + AsRawFd + IntoRawFd + FromRawFd + From<OwnedFd> + Into<OwnedFd>>() {}
    fn stream<T: AsFd + AsRawFd + IntoRawFd + From<OwnedFd> + Into<OwnedFd> + Into<Stdio>>() {}
    fn borrowed<T: AsFd + AsRawFd + IsTerminal>() {}
    fn reads<T: Read>() {}
    fn writes<T: Write>() {}
    fn seeks<T: Seek>() {}
    fn error<T: Error + Display>() {}
    fn default<T: Default>() {}

    fn traits() {
        plain::<File>(); plain::<OpenOptions>(); plain::<Metadata>(); plain::<DirEntry>(); plain::<ReadDir>();
        plain::<FileType>(); plain::<FileTimes>(); plain::<DirBuilder>(); plain::<Permissions>();
        plain::<TcpStream>(); plain::<TcpListener>(); plain::<UdpSocket>(); plain::<net::Incoming<'static>>();
        plain::<UnixStream>(); plain::<UnixListener>(); plain::<UnixDatagram>(); plain::<unix::SocketAddr>();
        plain::<unix::Incoming<'static>>(); plain::<Child>(); plain::<ChildStdin>(); plain::<ChildStdout>();
        plain::<ChildStderr>(); plain::<io::PipeReader>(); plain::<io::PipeWriter>(); plain::<io::Stdin>();
        plain::<io::Stdout>(); plain::<io::Stderr>(); plain::<Mutex<i32>>(); plain::<RwLock<i32>>();
        plain::<Condvar>(); plain::<Once>(); plain::<OnceLock<i32>>(); plain::<LazyLock<i32>>(); plain::<Barrier>();
        plain::<mpsc::Sender<i32>>(); shared::<mpsc::SyncSender<i32>>(); sent::<mpsc::Receiver<i32>>();
        shared::<Command>(); shared::<thread::JoinHandle<i32>>(); shared::<thread::Thread>();
        printed::<thread::Builder>(); printed::<thread::Scope<'static, 'static>>();
        printed::<thread::ScopedJoinHandle<'static, i32>>(); printed::<io::StdinLock<'static>>();
        printed::<io::StdoutLock<'static>>(); printed::<io::StderrLock<'static>>();
        printed::<sync::MutexGuard<'static, i32>>(); printed::<sync::RwLockReadGuard<'static, i32>>();
        printed::<sync::RwLockWriteGuard<'static, i32>>(); printed::<sync::OnceState>();
        printed::<sync::BarrierWaitResult>(); printed::<mpsc::Iter<'static, i32>>();
        printed::<mpsc::TryIter<'static, i32>>(); printed::<mpsc::IntoIter<i32>>();
        value::<FileType>(); value::<thread::ThreadId>(); value::<Duration>(); value::<Instant>();
        value::<SystemTime>();
        descriptor::<File>(); descriptor::<TcpStream>(); descriptor::<TcpListener>(); descriptor::<UdpSocket>();
        descriptor::<UnixStream>(); descriptor::<UnixListener>(); descriptor::<UnixDatagram>();
        descriptor::<io::PipeReader>(); descriptor::<io::PipeWriter>();
        stream::<ChildStdin>(); stream::<ChildStdout>(); stream::<ChildStderr>(); stream::<File>();
        stream::<io::PipeReader>(); stream::<io::PipeWriter>();
        borrowed::<io::Stdin>(); borrowed::<io::StdinLock<'static>>(); borrowed::<io::Stdout>();
        borrowed::<io::StdoutLock<'static>>(); borrowed::<io::StderrLock<'static>>(); borrowed::<File>();
        reads::<File>(); reads::<&File>(); reads::<TcpStream>(); reads::<&TcpStream>(); reads::<UnixStream>();
        reads::<&UnixStream>(); reads::<ChildStdout>(); reads::<ChildStderr>(); reads::<io::PipeReader>();
        reads::<&io::PipeReader>(); reads::<io::Stdin>(); reads::<&io::Stdin>(); reads::<io::StdinLock<'static>>();
        writes::<File>(); writes::<&File>(); writes::<TcpStream>(); writes::<&TcpStream>(); writes::<UnixStream>();
        writes::<&UnixStream>(); writes::<ChildStdin>(); writes::<&ChildStdin>(); writes::<io::PipeWriter>();
        writes::<&io::PipeWriter>(); writes::<io::Stdout>(); writes::<&io::Stdout>(); writes::<io::Stderr>();
        writes::<&io::Stderr>(); writes::<io::StdoutLock<'static>>(); writes::<io::StderrLock<'static>>();
        seeks::<File>(); seeks::<&File>();
        error::<thread::AccessError>(); error::<PoisonError<()>>(); error::<TryLockError<()>>();
        error::<mpsc::RecvError>(); error::<mpsc::TryRecvError>(); error::<mpsc::RecvTimeoutError>();
        error::<mpsc::SendError<i32>>(); error::<mpsc::TrySendError<i32>>(); error::<SystemTimeError>();
        error::<time::TryFromFloatSecsError>(); error::<io::Error>();
        default::<FileTimes>(); default::<Mutex<i32>>(); default::<RwLock<i32>>(); default::<Condvar>();
        default::<OnceLock<i32>>(); default::<LazyLock<i32>>(); default::<ExitStatus>();
    }

    fn files(file: File, m: Metadata, entry: DirEntry, mut p: Permissions) -> io::Result<()> {
        (file.sync_all()?, file.sync_data()?, file.set_len(3)?, file.metadata()?, file.try_clone()?);
        (file.set_permissions(p.clone())?, file.set_modified(SystemTime::now())?);
        file.set_times(FileTimes::new().set_accessed(UNIX_EPOCH).set_modified(UNIX_EPOCH))?;
        (file.read_at(&mut [], 0)?, file.read_exact_at(&mut [], 0)?, file.write_at(&[], 0)?, file.write_all_at(&[], 0)?);
        (File::open("")?, File::create("")?, File::create_new("")?, File::options());
        OpenOptions::new().read(true).write(true).append(true).truncate(true).create(true).create_new(true).mode(0).custom_flags(0).open("")?;
        (m.file_type(), m.is_dir(), m.is_file(), m.is_symlink(), m.len(), m.permissions(), m.modified()?, m.accessed()?, m.created()?);
        (m.dev(), m.ino(), m.mode(), m.nlink(), m.uid(), m.gid(), m.rdev(), m.size(), m.atime(), m.atime_nsec());
        (m.mtime(), m.mtime_nsec(), m.ctime(), m.ctime_nsec(), m.blksize(), m.blocks());
        let kind = m.file_type();
        (kind.is_dir(), kind.is_file(), kind.is_symlink(), kind.is_block_device(), kind.is_char_device(), kind.is_fifo(), kind.is_socket());
        (entry.path(), entry.metadata()?, entry.file_type()?, entry.file_name(), entry.ino());
        (p.readonly(), p.set_readonly(true), p.mode(), p.set_mode(0), Permissions::from_mode(0));
        (fs::canonicalize("")?, fs::copy("", "")?, fs::create_dir("")?, fs::create_dir_all("")?, fs::exists("")?);
        (fs::hard_link("", "")?, fs::metadata("")?, fs::read("")?, fs::read_dir("")?, fs::read_link("")?);
        (fs::read_to_string("")?, fs::remove_dir("")?, fs::remove_dir_all("")?, fs::remove_file("")?);
        (fs::rename("", "")?, fs::set_permissions("", p)?, fs::soft_link("", "")?, fs::symlink_metadata("")?);
        (fs::write("", "")?, DirBuilder::new().recursive(true).create("")?);
        use it::os::unix::fs::{self as extra, DirBuilderExt};
        (extra::symlink("", "")?, extra::chown("", None, None)?, extra::lchown("", None, None)?);
        (extra::fchown(io::stdin(), None, None)?, extra::chroot("")?, DirBuilder::new().mode(0).create("")?);
        use it::os::linux::fs::MetadataExt as Linux;
        (Linux::st_dev(&m), Linux::st_mtime_nsec(&m));
        Ok(())
    }

    fn sockets(s: TcpStream, l: TcpListener, u: UdpSocket, a: SocketAddr) -> io::Result<()> {
        (TcpStream::connect(a)?, TcpStream::connect_timeout(&a, Duration::ZERO)?, s.peer_addr()?, s.local_addr()?);
        (s.shutdown(Shutdown::Both)?, s.try_clone()?, s.set_read_timeout(None)?, s.set_write_timeout(None)?);
        (s.read_timeout()?, s.write_timeout()?, s.peek(&mut [])?, s.set_nodelay(true)?, s.nodelay()?);
        (s.set_ttl(1)?, s.ttl()?, s.take_error()?, s.set_nonblocking(true)?);
        (TcpListener::bind(a)?, l.local_addr()?, l.try_clone()?, l.accept()?, l.incoming(), l.set_ttl(1)?, l.ttl()?);
        (l.take_error()?, l.set_nonblocking(true)?);
        (UdpSocket::bind(a)?, u.recv_from(&mut [])?, u.peek_from(&mut [])?, u.send_to(&[], a)?, u.peer_addr()?);
        (u.local_addr()?, u.try_clone()?, u.set_read_timeout(None)?, u.set_write_timeout(None)?, u.read_timeout()?);
        (u.write_timeout()?, u.set_broadcast(true)?, u.broadcast()?, u.set_multicast_loop_v4(true)?, u.multicast_loop_v4()?);
        (u.set_multicast_ttl_v4(1)?, u.multicast_ttl_v4()?, u.set_multicast_loop_v6(true)?, u.multicast_loop_v6()?);
        (u.set_ttl(1)?, u.ttl()?, u.connect(a)?, u.send(&[])?, u.recv(&mut [])?, u.peek(&mut [])?, u.take_error()?);
        (u.join_multicast_v4(&Ipv4Addr::LOCALHOST, &Ipv4Addr::LOCALHOST)?, u.join_multicast_v6(&Ipv6Addr::LOCALHOST, 0)?);
        (u.leave_multicast_v4(&Ipv4Addr::LOCALHOST, &Ipv4Addr::LOCALHOST)?, u.leave_multicast_v6(&Ipv6Addr::LOCALHOST, 0)?);
        ("a:1".to_socket_addrs()?, ("a", 1).to_socket_addrs()?, (&[a][..]).to_socket_addrs()?, a.to_socket_addrs()?);
        fn iterates<T: Iterator + FusedIterator>(_: T) {}
        iterates(l.incoming());
        u.set_nonblocking(true)
    }

    fn unix_sockets(u: UnixStream, l: UnixListener, d: UnixDatagram, a: unix::SocketAddr) -> io::Result<()> {
        (UnixStream::connect("")?, UnixStream::connect_addr(&a)?, UnixStream::pair()?, u.try_clone()?, u.local_addr()?);
        (u.peer_addr()?, u.set_read_timeout(None)?, u.set_write_timeout(None)?, u.read_timeout()?, u.write_timeout()?);
        (u.take_error()?, u.shutdown(Shutdown::Both)?, u.set_nonblocking(true)?);
        (UnixListener::bind("")?, UnixListener::bind_addr(&a)?, l.try_clone()?, l.accept()?, l.incoming());
        (l.local_addr()?, l.set_nonblocking(true)?, l.take_error()?, (&l).into_iter());
        (UnixDatagram::bind("")?, UnixDatagram::bind_addr(&a)?, UnixDatagram::unbound()?, UnixDatagram::pair()?);
        (d.connect("")?, d.connect_addr(&a)?, d.try_clone()?, d.recv_from(&mut [])?, d.recv(&mut [])?);
        (d.send_to(&[], "")?, d.send_to_addr(&[], &a)?, d.send(&[])?, d.set_read_timeout(None)?, d.read_timeout()?);
        (d.set_write_timeout(None)?, d.write_timeout()?, d.shutdown(Shutdown::Both)?, d.peer_addr()?, d.local_addr()?);
        (a.is_unnamed(), a.as_pathname(), unix::SocketAddr::from_pathname("")?);
        use it::os::linux::net::SocketAddrExt;
        (unix::SocketAddr::from_abstract_name(b"")?, a.as_abstract_name());
        (d.take_error()?, d.set_nonblocking(true)?);
        Ok(())
    }

    fn processes(mut c: Child, mut command: Command) -> io::Result<()> {
        (c.stdin.take(), c.stdout.take(), c.stderr.take(), c.kill()?, c.id(), c.wait()?, c.try_wait()?);
        command.arg("").args([""]).env("", "").envs([("", "")]).env_remove("").env_clear().current_dir("");
        command.stdin(Stdio::null()).stdout(Stdio::inherit()).stderr(Stdio::piped());
        command.uid(1).gid(1).arg0("").process_group(0);
        // SAFETY: the closure is never called, because nothing runs this function.
        unsafe { command.pre_exec(|| Ok(())) };
        (command.get_program(), command.get_args().len(), command.get_envs().len(), command.get_current_dir());
        (command.spawn()?, command.output()?, command.status()?, command.exec());
        let status = ExitStatus::from_raw(3);
        (status.signal(), status.core_dumped(), status.stopped_signal(), status.continued(), status.into_raw());
        (status.success(), status.code(), process::id(), ExitCode::SUCCESS, it::os::unix::process::parent_id());
        let Output { status, stdout, stderr } = c.wait_with_output()?;
        process::exit(1)
    }

    fn threads() -> io::Result<()> {
        let handle = thread::Builder::new().name(String::new()).stack_size(1).spawn(|| 1)?;
        (handle.is_finished(), handle.thread().id(), handle.join().unwrap());
        thread::scope(|s| {
            s.spawn(|| 1).join().unwrap();
            thread::Builder::new().spawn_scoped(s, || 1).unwrap().is_finished();
        });
        (thread::sleep(Duration::ZERO), thread::yield_now(), thread::park(), thread::park_timeout(Duration::ZERO));
        (thread::panicking(), thread::available_parallelism()?, thread::current().id(), thread::current().name(), thread::current().unpark());
        let result: thread::Result<i32> = thread::spawn(|| 1).join();
        Ok(())
    }

    fn locks(mut m: Mutex<i32>, mut r: RwLock<i32>, c: Condvar, o: Once, mut cell: OnceLock<i32>, mut lazy: LazyLock<i32>) {
        (m.is_poisoned(), m.clear_poison(), *m.get_mut().unwrap(), *m.try_lock().unwrap());
        let guard = c.wait(m.lock().unwrap()).unwrap();
        let guard = c.wait_while(guard, |_| false).unwrap();
        let (guard, result) = c.wait_timeout(guard, Duration::ZERO).unwrap();
        let (guard, same) = c.wait_timeout_while(guard, Duration::ZERO, |_| true).unwrap();
        (result.timed_out(), result == same, c.notify_one(), c.notify_all(), drop(guard));
        (Mutex::from(1), RwLock::from(1), OnceLock::from(1), m.into_inner().unwrap());
        (*r.read().unwrap(), *r.write().unwrap(), *r.try_read().unwrap(), *r.try_write().unwrap());
        (r.is_poisoned(), r.clear_poison(), *r.get_mut().unwrap(), r.into_inner().unwrap());
        (o.call_once(|| ()), o.call_once_force(|s| assert!(!s.is_poisoned())), o.is_completed(), o.wait(), o.wait_force());
        (cell.get(), cell.set(1), cell.get_or_init(|| 1), cell.wait());
        (cell.get_mut().is_some(), cell.take(), cell.clone() == cell, cell.into_inner());
        (LazyLock::force(&lazy), *lazy);
        let barrier = Barrier::new(1);
        barrier.wait().is_leader();
        static MUTEX: Mutex<i32> = Mutex::new(1);
        static RW_LOCK: RwLock<i32> = RwLock::new(1);
        static CONDVAR: Condvar = Condvar::new();
        static ONCE: Once = Once::new();
        static CELL: OnceLock<i32> = OnceLock::new();
        static LAZY: LazyLock<i32> = LazyLock::new(|| 1);
    }

    fn channels(s: mpsc::Sender<i32>, r: mpsc::Receiver<i32>, y: mpsc::SyncSender<i32>) {
        (s.send(1), s.clone(), y.send(1), y.try_send(1), y.clone(), r.recv(), r.try_recv(), r.recv_timeout(Duration::ZERO));
        (r.iter().next(), r.try_iter().next(), (&r).into_iter().next(), mpsc::channel::<i32>(), mpsc::sync_channel::<i32>(1));
        let _: mpsc::RecvTimeoutError = mpsc::RecvError.into();
        let _: mpsc::TryRecvError = mpsc::RecvError.into();
        let _: mpsc::TrySendError<i32> = mpsc::SendError(3).into();
        r.into_iter().next();
    }

    fn streams() -> io::Result<()> {
        (io::stdin().lines().count(), io::stdin().lock().lines().count(), io::stdin().read_line(&mut String::new())?);
        (io::stdout().lock().flush()?, io::stderr().lock().flush()?, io::read_to_string(io::stdin())?);
        (io::copy(&mut io::empty(), &mut io::sink())?, io::pipe()?.0.try_clone()?, io::pipe()?.1.try_clone()?);
        (io::Error::other(""), io::ErrorKind::Deadlock, io::repeat(1), io::Cursor::new([1]), io::BufReader::new(io::empty()));
        (io::BufWriter::new(io::sink()), io::LineWriter::new(io::sink()), io::stdin().is_terminal());
        Ok(())
    }
}

/// Items of std that are newer than the library's minimum version of Rust: compiled with the
/// library only.
#[allow(unused)]
mod newer {
    use cringle::fs::{File, TryLockError};
    use cringle::net::TcpStream;
    use cringle::os::linux::net::TcpStreamExt;
    use cringle::sync::{LazyLock, RwLock, RwLockWriteGuard};
    use std::io;

    fn file(file: File) -> io::Result<()> {
        file.lock()?;
        file.lock_shared()?;
        file.unlock()?;
        file.try_lock_shared()?;
        let error: TryLockError = file.try_lock().unwrap_err();
        Err(error.into())
    }

    fn stream(stream: TcpStream) -> io::Result<bool> {
        stream.set_quickack(true)?;
        stream.quickack()
    }

    fn lazy(mut lazy: LazyLock<i32>) {
        assert!(LazyLock::get(&lazy).is_none() && LazyLock::get_mut(&mut lazy).is_none());
        *LazyLock::force_mut(&mut lazy) = 1;
        *lazy = 2;
    }

    fn downgrade(lock: &RwLock<i32>) {
        drop(RwLockWriteGuard::downgrade(lock.write().unwrap()));
    }
}

same::programs! {
    use it::fs::{self, DirBuilder, File, FileTimes, OpenOptions};
    use it::io;
    use it::os::unix::process::CommandExt;
    use it::process::{Command, Stdio};
    use it::sync::mpsc;
    use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
    use std::time::{Duration, UNIX_EPOCH};

    /// Formats the value without descriptors and process ids, which differ in each run.
    fn debug_text(value: impl std::fmt::Debug) -> String {
        let mut text = format!("{value:?} {value:#?}");
        for name in ["fd: ", "pipe:[", "id: "] {
            let parts: Vec<_> = text.split(name).map(|part| part.trim_start_matches(|c: char| c.is_ascii_digit())).collect();
            text = parts.join(name);
        }
        text
    }

    pub(super) fn debug_texts_equal_stds() -> Log {
        let mut log = Log::default();
        let directory = disk::directory();
        let path = directory.path().join("file");
        std::fs::write(&path, "text").unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o640)).unwrap();
        let then = UNIX_EPOCH + Duration::from_secs(1_000_000_000);
        let times = FileTimes::new().set_modified(then).set_accessed(then);
        let file = File::options().read(true).write(true).open(&path).unwrap();
        file.set_times(times).unwrap();
        let stable = |metadata: fs::Metadata| {
            // The time of creation differs in each run.
            let text = debug_text(metadata);
            let (before, created) = text.split_once("created").unwrap();
            (before.to_owned(), created.contains("SystemTime"))
        };
        log.value("a file", debug_text(&file).replace(path.to_str().unwrap(), "PATH"));
        log.value("its metadata", stable(file.metadata().unwrap()));
        for path in ["/", "/dev/null", "/proc/self/exe"] {
            log.value(format!("type of {path}"), debug_text(fs::symlink_metadata(path).unwrap().file_type()));
        }
        log.value("options", debug_text(OpenOptions::new().read(true).mode(0o600).custom_flags(3)));
        log.value("a builder of directories", debug_text(DirBuilder::new().recursive(true).mode(0o700)));
        log.value("times", debug_text((FileTimes::new(), times)));
        log.value("a directory", debug_text(fs::read_dir("/proc/self/task").unwrap()));

        let mut command = Command::new("ls");
        command.arg("-l").arg("a b").env("X", "1").env_remove("Y").current_dir("/");
        log.value("a command", debug_text(&command));
        command.arg0("name").env_clear().env("A", "b").stdin(Stdio::null());
        log.value("a command with a clean environment", debug_text(&command));
        let mut command = Command::new("true");
        command.output().unwrap();
        log.value("a command that has run", format!("{command:?}"));
        let mut child = Command::new("cat").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        log.value("a child", debug_text(&child));
        child.wait().unwrap();
        log.value("a child that has ended", debug_text(&child));
        log.value("its stream", debug_text(child.stdout.take().unwrap()));

        log.value("standard streams", debug_text((io::stdin(), io::stdout(), io::stderr())));
        log.value("locked", debug_text((io::stdin().lock(), io::stderr().lock())));
        log.value("a pipe", debug_text(io::pipe().unwrap()));
        let (sender, receiver) = mpsc::channel::<i32>();
        log.value("a channel", debug_text((&sender, &receiver, receiver.iter(), receiver.try_iter())));
        log.value("its iterator", debug_text(receiver.into_iter()));
        let builder = format!("{:?}", thread::Builder::new().name("name".into()).stack_size(100_000));
        log.value("a builder", builder.split(", ").take(2).collect::<Vec<_>>());

        let none: [std::net::SocketAddr; 0] = [];
        log.value("no address", debug_text(it::net::TcpStream::connect(&none[..]).map(drop)));
        log.value("no address to bind", debug_text(it::net::UdpSocket::bind(&none[..]).map(drop)));
        let socket = it::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        log.value("no address to send to", debug_text(socket.send_to(b"x", &none[..])));
        log
    }
}

same::the_same!(debug_texts_equal_stds);

/// std's file locks are newer than the library's minimum version of Rust, so their texts stand here.
#[test]
fn error_of_held_file_lock_prints_as_stds() {
    let directory = disk::directory();
    let path = directory.path().join("file");
    let file = cringle::fs::File::create(&path).unwrap();
    file.lock().unwrap();
    let error = cringle::fs::File::open(&path).unwrap().try_lock().unwrap_err();
    assert_eq!(format!("{error:?}"), "\"WouldBlock\"");
    assert_eq!(error.to_string(), "lock acquisition failed because the operation would block");
    assert!(std::error::Error::source(&error).is_none());
    assert_eq!(std::io::Error::from(error).kind(), std::io::ErrorKind::WouldBlock);
}
