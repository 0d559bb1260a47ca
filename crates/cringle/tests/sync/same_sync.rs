//! Locks, channels and fibers return std's values, errors, texts and panics, and each type has the
//! traits of std's.
#![allow(clippy::readonly_write_lock, reason = "the guard itself is printed")]

use cringle_testing::same;
use cringle_testing::same::Log;
use std::time::Duration;

same::programs! {
    use it::sync::{
        Barrier, Condvar, LazyLock, Mutex, Once, OnceLock, PoisonError, RwLock, TryLockError, mpsc,
    };

    fn poison<T>(lock: impl FnOnce() -> T + Send) {
        let panicked = thread::scope(|s| {
            let holds = s.spawn(|| {
                let _guard = lock();
                std::panic::resume_unwind(Box::new("on purpose"))
            });
            holds.join().is_err()
        });
        assert!(panicked);
    }

    pub(super) fn locks_print_and_fail_as_stds() -> Log {
        let mut log = Log::default();
        let mutex = Mutex::new("value");
        log.value("a mutex", &mutex);
        log.value("a mutex, pretty", format!("{mutex:#?}"));
        {
            let guard = mutex.lock().unwrap();
            log.value("a locked mutex", &mutex);
            log.value("a locked mutex, pretty", format!("{mutex:#?}"));
            log.value("its guard", &guard);
            log.value("its guard displayed", guard.to_string());
            log.value("a failed try_lock", mutex.try_lock());
            log.value("a failed try_lock displayed", mutex.try_lock().map(drop).unwrap_err().to_string());
        }
        poison(|| mutex.lock().unwrap());
        log.value("a poisoned mutex", &mutex);
        log.value("its error", mutex.lock());
        log.value("its error displayed", mutex.lock().map(drop).unwrap_err().to_string());
        log.value("its try_lock", mutex.try_lock());
        {
            let _guard = mutex.lock().unwrap_or_else(PoisonError::into_inner);
            log.value("a poisoned and locked mutex", &mutex);
        }
        mutex.clear_poison();
        log.value("after clear_poison", &mutex);
        log.value("unsized", &*Box::new(Mutex::new([1, 2])) as &Mutex<[i32]>);

        let lock = RwLock::new(7);
        log.value("a lock", &lock);
        {
            let reads = lock.read().unwrap();
            log.value("a lock with a reader", &lock);
            log.value("its read guard", (&reads, reads.to_string()));
            log.value("a failed try_write", lock.try_write());
            log.value("a second reader", lock.try_read());
        }
        {
            let writes = lock.write().unwrap();
            log.value("a lock with a writer", format!("{lock:?} {lock:#?}"));
            log.value("its write guard", (&writes, writes.to_string()));
            log.value("a failed try_read", lock.try_read());
        }
        poison(|| lock.write().unwrap());
        log.value("a poisoned lock", &lock);
        log.value("its readers", lock.read());
        log.value("its writers", lock.try_write());
        log.value("its value", lock.into_inner());

        let cell = OnceLock::new();
        log.value("an empty cell", format!("{cell:?} {cell:#?}"));
        log.value("set", cell.set(Mutex::new(1)).is_ok());
        log.value("a cell", format!("{cell:?} {cell:#?}"));
        let lazy = LazyLock::new(|| 5);
        log.value("a lazy value before its first use", format!("{lazy:?} {lazy:#?}"));
        log.value("its value", *lazy);
        log.value("a lazy value after its first use", format!("{lazy:?} {lazy:#?}"));
        let broken = LazyLock::<i32>::new(|| std::panic::resume_unwind(Box::new("on purpose")));
        log.panic_message("a lazy value whose closure panics", || *broken);
        log.panic_message("its second use", || *broken);
        log.value("after the panic", format!("{broken:?}"));

        let once = Once::new();
        log.value("a once", (&once, once.is_completed()));
        let mut state = None;
        once.call_once_force(|it| state = Some(format!("{it:?} {}", it.is_poisoned())));
        log.value("its state", (state, &once, once.is_completed()));
        let once = Once::new();
        log.panic_message("a once whose closure panics", || once.call_once(|| std::panic::resume_unwind(Box::new("on purpose"))));
        log.panic_message("its second closure", || once.call_once(|| ()));
        log.panic_message("its wait", || once.wait());
        let mut state = None;
        once.call_once_force(|it| state = Some(format!("{it:?} {}", it.is_poisoned())));
        log.value("its state", state);

        log.value("a condition", Condvar::new());
        let barrier = Barrier::new(1);
        log.value("a barrier", &barrier);
        let leader = barrier.wait();
        log.value("its leader", (&leader, leader.is_leader()));
        let (guard, out) = Condvar::new().wait_timeout(Mutex::new(0).lock().unwrap(), Duration::ZERO).map(|(guard, out)| (*guard, out)).unwrap();
        log.value("wait_timeout of zero", (guard, out, out.timed_out()));
        let (guard, out) = Condvar::new().wait_timeout_while(Mutex::new(0).lock().unwrap(), Duration::ZERO, |_| true).map(|(guard, out)| (*guard, out)).unwrap();
        log.value("wait_timeout_while of zero", (guard, out));
        let (guard, out) = Condvar::new().wait_timeout_while(Mutex::new(0).lock().unwrap(), Duration::MAX, |_| false).map(|(guard, out)| (*guard, out)).unwrap();
        log.value("wait_timeout_while without a wait", (guard, out));
        log
    }

    pub(super) fn channels_answer_as_stds() -> Log {
        let mut log = Log::default();
        let (sender, receiver) = mpsc::channel::<i32>();
        log.value("ends", (&sender, &receiver));
        log.value("try_recv of an empty channel", receiver.try_recv());
        log.value("recv_timeout of zero", receiver.recv_timeout(Duration::ZERO));
        log.value("send", sender.send(1));
        log.value("recv_timeout of zero with a value", receiver.recv_timeout(Duration::ZERO));
        sender.send(2).unwrap();
        log.value("recv_timeout without limit", receiver.recv_timeout(Duration::MAX));
        let clone = sender.clone();
        sender.send(3).unwrap();
        clone.send(4).unwrap();
        drop((sender, clone));
        log.value("try_iter", receiver.try_iter().collect::<Vec<_>>());
        log.value("disconnected", receiver.try_recv());
        log.value("disconnected", receiver.recv());
        log.value("disconnected", receiver.recv_timeout(Duration::ZERO));
        log.value("errors displayed", (receiver.recv().unwrap_err().to_string(), receiver.try_recv().unwrap_err().to_string(), receiver.recv_timeout(Duration::ZERO).unwrap_err().to_string()));
        log.value("iterators of a disconnected channel", (receiver.iter().next(), receiver.into_iter().next()));
        let (sender, receiver) = mpsc::channel::<i32>();
        log.value("empty", receiver.try_recv().unwrap_err().to_string());
        log.value("timed out", receiver.recv_timeout(Duration::ZERO).unwrap_err().to_string());
        drop(receiver);
        let refused = sender.send(5).unwrap_err();
        log.value("refused", (&refused, refused.to_string(), refused.0));
        for room in [0, 1, 2] {
            let (sender, receiver) = mpsc::sync_channel::<i32>(room);
            log.value("ends", (&sender, &receiver));
            let fits: Vec<_> = (0..3).map(|n| sender.try_send(n)).collect();
            log.value(format!("room for {room}"), &fits);
            if let Some(Err(e)) = fits.last() {
                log.value("full", e.to_string());
            }
            log.value("received", receiver.try_iter().collect::<Vec<_>>());
            drop(receiver);
            let refused = sender.try_send(9).unwrap_err();
            log.value("refused", (&refused, refused.to_string(), sender.send(9)));
        }
        let (sender, receiver) = mpsc::sync_channel(0);
        let sends = thread::spawn(move || (0..3).map(|n| sender.send(n)).collect::<Vec<_>>());
        log.value("a rendezvous", (receiver.recv(), receiver.recv()));
        drop(receiver);
        log.value("its sender", sends.join().unwrap());
        log
    }

    pub(super) fn fibers_behave_as_threads() -> Log {
        let mut log = Log::default();
        let named = |name: &str| thread::Builder::new().name(name.into());
        for name in ["a\0b", "\0", "a\0"] {
            log.panic_prefix(format!("spawn {name:?}"), || named(name).spawn(|| ()).map(|it| it.join().unwrap()));
            log.panic_prefix(format!("spawn_scoped {name:?}"), || thread::scope(|s| {
                named(name).spawn_scoped(s, || ()).map(|it| it.join().unwrap()).unwrap();
            }));
        }
        for name in ["", "fetch", "a name that is longer than the kernel's", "\u{1f980}"] {
            let it = named(name).spawn(|| thread::current().name().map(str::to_owned)).unwrap();
            log.value("its handle", &it);
            log.value("its name", it.thread().name().map(str::to_owned));
            let shown = format!("{:?}", it.thread());
            let id = format!("{:?}", it.thread().id());
            log.value("its thread", shown.replace(&id, "ID"));
            log.value("its id", id.starts_with("ThreadId(") && id.ends_with(')'));
            log.value("its own name", it.join().unwrap());
        }
        let unnamed = thread::spawn(|| format!("{:?}", thread::current()).replace(&format!("{:?}", thread::current().id()), "ID"));
        log.value("unnamed", unnamed.join().unwrap());
        log.value("a panic", thread::spawn(|| std::panic::resume_unwind(Box::new(7))).join().unwrap_err().downcast_ref::<i32>().copied());
        log.panic_message("a scope", || thread::scope(|s| {
            s.spawn(|| std::panic::resume_unwind(Box::new(7)));
        }));
        thread::scope(|s| {
            log.value("a scope", format!("{s:?}").starts_with("Scope {"));
            let it = s.spawn(|| 1);
            log.value("a scoped handle", &it);
            log.value("joined", it.join().unwrap());
        });
        thread::park_timeout(Duration::ZERO);
        thread::sleep(Duration::ZERO);
        thread::current().unpark();
        thread::park();
        log.value("parked", thread::panicking());
        log.result_without_text("parallelism", thread::available_parallelism().map(|it| it.get() > 0));
        // The library's messages say "fiber".
        log.replace("fiber", "thread");
        log
    }
}

// Programs that compile with std's types. `tests/examples/rejected/variance.rs` has those
// that must not.
mod borrowed {
    use super::*;
    same::programs! {
        use it::sync::{Condvar, LazyLock, Mutex, MutexGuard, OnceLock, RwLock, RwLockReadGuard, RwLockWriteGuard};

        fn guards_are_shortened<'a, 'b: 'a>(
            reads: RwLockReadGuard<'b, &'b str>,
            writes: RwLockWriteGuard<'b, &'static str>,
            holds: MutexGuard<'b, &'static str>,
        ) -> (
            RwLockReadGuard<'a, &'a str>,
            RwLockWriteGuard<'a, &'static str>,
            MutexGuard<'a, &'static str>,
        ) {
            (reads, writes, holds)
        }

        fn a_read_guard_is_covariant<'a>(
            guard: RwLockReadGuard<'a, &'static str>,
        ) -> RwLockReadGuard<'a, &'a str> {
            guard
        }

        pub(super) fn locks_may_outlive_what_their_values_borrow() -> Log {
            let (cell, mutex, lock, lazy): (OnceLock<&String>, _, _, LazyLock<u8>);
            let text = String::from("text");
            cell = OnceLock::new();
            cell.set(&text).unwrap();
            mutex = Mutex::new(&text);
            lock = RwLock::new(&text);
            lazy = LazyLock::new(|| 1);
            let mut log = Log::default();
            log.value("all", (&cell, &*mutex.lock().unwrap(), &*lock.read().unwrap(), *lazy));
            // A guard in a temporary at the end of a block outlives its lock.
            let length = {
                let lock = RwLock::new(String::from("four"));
                lock.read().unwrap().len()
            };
            log.value("its length", length);
            log
        }
    }
    same::the_same!(locks_may_outlive_what_their_values_borrow);
}

/// The intended differences: the type, and a part of the message.
const INTENDED: [(&str, &str); 4] = [
    // A handle of a fiber whose result is not `Send` stays on its worker: see `fiber::JoinHandle`.
    ("fiber::JoinHandle", "is false"),
    // Local fibers may write, one at a time, through a lock that they borrow.
    ("StdoutLock", "is true"),
    ("StderrLock", "is true"),
    // The library's has no `Cell`.
    ("OnceState", "is true"),
];

/// Compares which traits a type of std and one of the library have.
#[derive(Default)]
struct Comparison {
    count: usize,
    differences: Vec<String>,
}

impl Comparison {
    fn compare<const N: usize>(
        &mut self,
        name: &str,
        bounds: &[&str; N],
        std: &[bool; N],
        ours: &[bool; N],
    ) {
        self.count += N;
        let name = name.replace(' ', "");
        for ((bound, std), ours) in bounds.iter().zip(std).zip(ours) {
            // An additional trait is no difference, except for `Send` and `Sync`.
            if *std && !ours || *ours && !std && matches!(*bound, "Send" | "Sync") {
                let text = format!("{name}: {bound} is {ours}, std's {std}");
                let is_intended = |(name, difference): &(&str, &str)| {
                    text.contains(name) && text.contains(difference)
                };
                if !INTENDED.iter().any(is_intended) {
                    self.differences.push(text);
                }
            }
        }
    }
}

/// Whether a type has a bound: an inherent constant comes before that of a trait.
mod has {
    pub(super) trait Without {
        const HAS: bool = false;
    }
    impl<T: ?Sized> Without for T {}

    /// Defines a module for each bound. (One for each type and bound would take the compiler far
    /// longer than the rest of the program.)
    macro_rules! bounds {
        ($($name:ident: $bound:path;)*) => {$(
            pub(super) mod $name {
                pub(crate) const NAME: &str = stringify!($bound);
                pub(crate) struct Has<T: ?Sized>(std::marker::PhantomData<T>);
                #[allow(dead_code, reason = "no type of the test has some of the bounds")]
                impl<T: ?Sized + $bound> Has<T> {
                    pub(crate) const HAS: bool = true;
                }
            }
        )*};
    }
    bounds! {
        send: Send;
        sync: Sync;
        unpin: Unpin;
        unwind_safe: std::panic::UnwindSafe;
        ref_unwind_safe: std::panic::RefUnwindSafe;
        debug: std::fmt::Debug;
        display: std::fmt::Display;
        default: Default;
        clone: Clone;
        copy: Copy;
        partial_eq: PartialEq;
        eq: Eq;
        partial_ord: PartialOrd;
        ord: Ord;
        hash: std::hash::Hash;
        iterator: Iterator;
        exact_size_iterator: ExactSizeIterator;
        double_ended_iterator: DoubleEndedIterator;
        fused_iterator: std::iter::FusedIterator;
        into_iterator: IntoIterator;
        error: std::error::Error;
        read: std::io::Read;
        write: std::io::Write;
        seek: std::io::Seek;
        buf_read: std::io::BufRead;
        as_fd: std::os::fd::AsFd;
        as_raw_fd: std::os::fd::AsRawFd;
        from_raw_fd: std::os::fd::FromRawFd;
        into_raw_fd: std::os::fd::IntoRawFd;
        from_owned_fd: From<std::os::fd::OwnedFd>;
        into_owned_fd: Into<std::os::fd::OwnedFd>;
        into_stdio: Into<std::process::Stdio>;
        file_ext: std::os::unix::fs::FileExt;
    }
}

/// Calls a macro with its arguments and the bounds that a type is compared by.
macro_rules! with_bounds {
    ($then:ident!($($arguments:tt)*)) => {
        $then! {
            $($arguments)* [
                send sync unpin unwind_safe ref_unwind_safe debug display default clone copy
                partial_eq eq partial_ord ord hash iterator exact_size_iterator
                double_ended_iterator fused_iterator into_iterator error read write seek buf_read
                as_fd as_raw_fd from_raw_fd into_raw_fd from_owned_fd into_owned_fd into_stdio
                file_ext
            ] [send unwind_safe into_iterator read write seek]
        }
    };
}

#[test]
fn types_have_the_traits_of_stds_types() {
    use has::Without;
    use std::cell::Cell;
    use std::rc::Rc;
    let mut all = Comparison::default();
    macro_rules! names {
        ([$($bound:ident)*] [$($of_reference:ident)*]) => {
            (&[$(has::$bound::NAME),*], &[$(has::$of_reference::NAME),*])
        };
    }
    macro_rules! traits {
        ($type:ty, [$($bound:ident)*] [$($of_reference:ident)*]) => {
            (
                &[$(<has::$bound::Has<$type>>::HAS),*],
                &[$(<has::$of_reference::Has<&'static $type>>::HAS),*],
            )
        };
    }
    let (bounds, bounds_of_references) = with_bounds!(names!());
    macro_rules! each {
        ($($std:ty, $ours:ty;)*) => {$(
            let (std, std_reference) = with_bounds!(traits!($std,));
            let (ours, our_reference) = with_bounds!(traits!($ours,));
            let name = stringify!($ours);
            all.compare(name, bounds, std, ours);
            all.compare(&format!("&{name}"), bounds_of_references, std_reference, our_reference);
        )*};
    }
    macro_rules! of_values {
        ($($value:ty),*) => {$(
            each! {
                std::sync::Mutex<$value>, cringle::sync::Mutex<$value>;
                std::sync::MutexGuard<'static, $value>, cringle::sync::MutexGuard<'static, $value>;
                std::sync::RwLock<$value>, cringle::sync::RwLock<$value>;
                std::sync::RwLockReadGuard<'static, $value>, cringle::sync::RwLockReadGuard<'static, $value>;
                std::sync::RwLockWriteGuard<'static, $value>, cringle::sync::RwLockWriteGuard<'static, $value>;
                std::sync::OnceLock<$value>, cringle::sync::OnceLock<$value>;
                std::sync::LazyLock<$value>, cringle::sync::LazyLock<$value>;
                std::sync::mpsc::Sender<$value>, cringle::sync::mpsc::Sender<$value>;
                std::sync::mpsc::SyncSender<$value>, cringle::sync::mpsc::SyncSender<$value>;
                std::sync::mpsc::Receiver<$value>, cringle::sync::mpsc::Receiver<$value>;
                std::sync::mpsc::IntoIter<$value>, cringle::sync::mpsc::IntoIter<$value>;
                std::sync::mpsc::Iter<'static, $value>, cringle::sync::mpsc::Iter<'static, $value>;
                std::sync::mpsc::TryIter<'static, $value>, cringle::sync::mpsc::TryIter<'static, $value>;
                std::sync::mpsc::SendError<$value>, cringle::sync::mpsc::SendError<$value>;
                std::thread::JoinHandle<$value>, cringle::fiber::JoinHandle<$value>;
                std::thread::ScopedJoinHandle<'static, $value>, cringle::fiber::ScopedJoinHandle<'static, $value>;
            }
        )*};
    }
    of_values!(u8, String, Cell<u8>, Rc<u8>, &'static mut u8, *const u8);
    each! {
        std::sync::LazyLock<u8, Rc<u8>>, cringle::sync::LazyLock<u8, Rc<u8>>;
        std::sync::Once, cringle::sync::Once;
        std::sync::OnceState, cringle::sync::OnceState;
        std::sync::Condvar, cringle::sync::Condvar;
        std::sync::WaitTimeoutResult, cringle::sync::WaitTimeoutResult;
        std::sync::Barrier, cringle::sync::Barrier;
        std::sync::BarrierWaitResult, cringle::sync::BarrierWaitResult;
        std::thread::Thread, cringle::fiber::Thread;
        std::thread::ThreadId, cringle::fiber::ThreadId;
        std::thread::Builder, cringle::fiber::Builder;
        std::thread::Scope<'static, 'static>, cringle::fiber::Scope<'static, 'static>;
        std::thread::LocalKey<u8>, cringle::fiber::LocalKey<u8>;
        std::thread::AccessError, cringle::fiber::AccessError;
        std::fs::File, cringle::fs::File;
        std::fs::OpenOptions, cringle::fs::OpenOptions;
        std::fs::Metadata, cringle::fs::Metadata;
        std::fs::FileType, cringle::fs::FileType;
        std::fs::FileTimes, cringle::fs::FileTimes;
        std::fs::DirBuilder, cringle::fs::DirBuilder;
        std::fs::DirEntry, cringle::fs::DirEntry;
        std::fs::ReadDir, cringle::fs::ReadDir;
        std::io::Stdin, cringle::io::Stdin;
        std::io::StdinLock<'static>, cringle::io::StdinLock<'static>;
        std::io::Stdout, cringle::io::Stdout;
        std::io::StdoutLock<'static>, cringle::io::StdoutLock<'static>;
        std::io::Stderr, cringle::io::Stderr;
        std::io::StderrLock<'static>, cringle::io::StderrLock<'static>;
        std::io::PipeReader, cringle::io::PipeReader;
        std::io::PipeWriter, cringle::io::PipeWriter;
        std::net::TcpStream, cringle::net::TcpStream;
        std::net::TcpListener, cringle::net::TcpListener;
        std::net::Incoming<'static>, cringle::net::Incoming<'static>;
        std::net::UdpSocket, cringle::net::UdpSocket;
        std::os::unix::net::UnixStream, cringle::os::unix::net::UnixStream;
        std::os::unix::net::UnixListener, cringle::os::unix::net::UnixListener;
        std::os::unix::net::Incoming<'static>, cringle::os::unix::net::Incoming<'static>;
        std::os::unix::net::UnixDatagram, cringle::os::unix::net::UnixDatagram;
        std::process::Command, cringle::process::Command;
        std::process::Child, cringle::process::Child;
        std::process::ChildStdin, cringle::process::ChildStdin;
        std::process::ChildStdout, cringle::process::ChildStdout;
        std::process::ChildStderr, cringle::process::ChildStderr;
    }
    println!("{} comparisons", all.count);
    assert!(all.differences.is_empty(), "{}", all.differences.join("\n"));
}

same::the_same!(locks_print_and_fail_as_stds, channels_answer_as_stds, fibers_behave_as_threads);
