//! One way to make each call such that it need not wait. [`super`] repeats these calls.

use cringle::fiber;
use cringle::process::{Child, Command};
use cringle::signal::{Signal, Signals};
use cringle::sync::{
    Barrier, Condvar, LazyLock, Mutex, Once, OnceLock, RwLock, Semaphore, WaitGroup,
};
use cringle::sync::{mpmc, mpsc, oneshot, watch};
use cringle::{cancel, io, process, time};
use std::cell::RefCell;
use std::io::Write;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Makes one call.
pub(crate) type Call = Box<dyn FnMut()>;

/// A call by its name in `api.txt`, with a function that prepares it on the calling fiber.
pub(crate) struct Row {
    pub(crate) name: &'static str,
    pub(crate) prepare: Box<dyn Fn() -> Call>,
}

/// The calls that are not made here, and why.
pub(crate) const NOT_MADE: &[(&str, &str)] = &[
    ("io::stdio::input::Stdin::read_line", "reads the descriptor of whoever runs the test"),
    (
        "signal::wait",
        "a `Signals::wait` that begins anew, so that a signal must come while it waits",
    ),
    ("fiber::scope::Scope::spawn", SPAWN),
    ("fiber::scope::Scope::spawn_local", SPAWN),
    ("fiber::scope::Scope::spawn_daemon", SPAWN),
    ("fiber::scope::Scope::spawn_daemon_local", SPAWN),
    ("fiber::scoped_handle::ScopedJoinHandle::is_finished", "as `JoinHandle::is_finished`"),
    ("fiber::spawn::Builder::spawn_scoped", SPAWN),
    ("fiber::spawn::Builder::spawn_scoped_local", SPAWN),
    ("fiber::try_scope::TryScope::spawn", SPAWN),
    ("fiber::try_scope::TryScope::spawn_local", SPAWN),
    ("fiber::try_scope::TryScope::spawn_daemon", SPAWN),
    ("fiber::try_scope::TryScope::spawn_daemon_local", SPAWN),
];

const SPAWN: &str = "counted where `spawn` and `spawn_local` are";

/// Drops the result of a call.
fn ignore<T>(_: T) {}

const NONE: Duration = Duration::ZERO;

struct Rows(Vec<Row>);

impl Rows {
    fn add<F: FnMut() + 'static>(&mut self, name: &'static str, prepare: impl Fn() -> F + 'static) {
        self.0.push(Row { name, prepare: Box::new(move || Box::new(prepare())) });
    }
}

/// Returns all calls.
pub(crate) fn rows() -> Vec<Row> {
    let mut rows = Rows(Vec::new());
    locks(&mut rows);
    tried_locks(&mut rows);
    condvars(&mut rows);
    meetings(&mut rows);
    onces(&mut rows);
    channels(&mut rows);
    tried_channels(&mut rows);
    watches(&mut rows);
    fibers(&mut rows);
    combinators(&mut rows);
    spawns(&mut rows);
    times(&mut rows);
    processes(&mut rows);
    streams(&mut rows);
    rows.0
}

fn locks(rows: &mut Rows) {
    fn add(rows: &mut Rows, name: &'static str, call: fn(&Mutex<u8>)) {
        rows.add(name, move || {
            let mutex = Mutex::new(0);
            move || call(&mutex)
        });
    }
    add(rows, "sync::mutex::Mutex::lock", |m| ignore(m.lock()));
    add(rows, "sync::mutex::Mutex::lock_cancellable", |m| ignore(m.lock_cancellable()));

    fn add_rw(rows: &mut Rows, name: &'static str, call: fn(&RwLock<u8>)) {
        rows.add(name, move || {
            let lock = RwLock::new(0);
            move || call(&lock)
        });
    }
    add_rw(rows, "sync::rwlock::RwLock::read", |l| ignore(l.read()));
    add_rw(rows, "sync::rwlock::RwLock::write", |l| ignore(l.write()));
    add_rw(rows, "sync::rwlock::RwLock::read_cancellable", |l| ignore(l.read_cancellable()));
    add_rw(rows, "sync::rwlock::RwLock::write_cancellable", |l| ignore(l.write_cancellable()));

    fn add_permits(rows: &mut Rows, name: &'static str, call: fn(&Semaphore)) {
        rows.add(name, move || {
            let semaphore = Semaphore::new(2);
            move || call(&semaphore)
        });
    }
    add_permits(rows, "sync::semaphore::Semaphore::acquire", |s| ignore(s.acquire()));
    add_permits(rows, "sync::semaphore::Semaphore::acquire_many", |s| ignore(s.acquire_many(2)));
    add_permits(rows, "sync::semaphore::Semaphore::acquire_cancellable", |s| {
        ignore(s.acquire_cancellable());
    });
    add_permits(rows, "sync::semaphore::Semaphore::acquire_many_cancellable", |s| {
        ignore(s.acquire_many_cancellable(2));
    });
}

fn tried_locks(rows: &mut Rows) {
    rows.add("sync::mutex::Mutex::try_lock", || {
        let mutex: &'static Mutex<u8> = Box::leak(Box::default());
        std::mem::forget(mutex.lock());
        move || assert!(mutex.try_lock().is_err())
    });
    let locked = || {
        let lock: &'static RwLock<u8> = Box::leak(Box::default());
        std::mem::forget(lock.write());
        lock
    };
    rows.add("sync::rwlock::RwLock::try_read", move || {
        let lock = locked();
        move || assert!(lock.try_read().is_err())
    });
    rows.add("sync::rwlock::RwLock::try_write", move || {
        let lock = locked();
        move || assert!(lock.try_write().is_err())
    });
    rows.add("sync::semaphore::Semaphore::try_acquire", || {
        let semaphore = Semaphore::new(0);
        move || assert!(semaphore.try_acquire().is_none())
    });
    rows.add("sync::semaphore::Semaphore::try_acquire_many", || {
        let semaphore = Semaphore::new(1);
        move || assert!(semaphore.try_acquire_many(2).is_none())
    });
}

fn condvars(rows: &mut Rows) {
    fn add(rows: &mut Rows, name: &'static str, call: fn(&Condvar, &Mutex<u8>)) {
        rows.add(name, move || {
            let pair = (Condvar::new(), Mutex::new(0));
            move || call(&pair.0, &pair.1)
        });
    }
    fn add_notified(
        rows: &mut Rows,
        name: &'static str,
        call: fn(&Condvar, cringle::sync::MutexGuard<'_, u8>),
    ) {
        rows.add(name, move || {
            let pair = Rc::new((Condvar::new(), Mutex::new(0)));
            move || {
                let guard = pair.1.lock().unwrap();
                let other = Rc::clone(&pair);
                ignore(fiber::spawn_local(move || other.0.notify_one()));
                call(&pair.0, guard);
            }
        });
    }
    add_notified(rows, "sync::condvar::Condvar::wait", |c, g| ignore(c.wait(g)));
    add_notified(rows, "sync::condvar::Condvar::wait_cancellable", |c, g| {
        ignore(c.wait_cancellable(g));
    });
    add(rows, "sync::condvar::Condvar::wait_while", |c, m| {
        ignore(c.wait_while(m.lock().unwrap(), |_| false));
    });
    add(rows, "sync::condvar::Condvar::wait_while_cancellable", |c, m| {
        ignore(c.wait_while_cancellable(m.lock().unwrap(), |_| false));
    });
    add(rows, "sync::condvar::Condvar::wait_timeout", |c, m| {
        ignore(c.wait_timeout(m.lock().unwrap(), NONE));
    });
    add(rows, "sync::condvar::Condvar::wait_timeout_cancellable", |c, m| {
        ignore(c.wait_timeout_cancellable(m.lock().unwrap(), NONE));
    });
    add(rows, "sync::condvar::Condvar::wait_timeout_while", |c, m| {
        ignore(c.wait_timeout_while(m.lock().unwrap(), NONE, |_| true));
    });
    add(rows, "sync::condvar::Condvar::wait_timeout_while_cancellable", |c, m| {
        ignore(c.wait_timeout_while_cancellable(m.lock().unwrap(), NONE, |_| true));
    });
}

fn meetings(rows: &mut Rows) {
    rows.add("sync::barrier::Barrier::wait", || {
        let barrier = Barrier::new(1);
        move || ignore(barrier.wait())
    });
    rows.add("sync::barrier::Barrier::wait_cancellable", || {
        let barrier = Barrier::new(1);
        move || ignore(barrier.wait_cancellable())
    });
    rows.add("sync::wait_group::WaitGroup::wait", || || WaitGroup::new().wait());
    rows.add("sync::wait_group::WaitGroup::wait_cancellable", || {
        || WaitGroup::new().wait_cancellable().unwrap()
    });
}

fn onces(rows: &mut Rows) {
    fn add(rows: &mut Rows, name: &'static str, call: fn(&Once)) {
        rows.add(name, move || {
            let once = Once::new();
            once.call_once(|| ());
            move || call(&once)
        });
    }
    add(rows, "sync::once::Once::call_once", |o| o.call_once(|| ()));
    add(rows, "sync::once::Once::call_once_force", |o| o.call_once_force(|_| ()));
    add(rows, "sync::once::Once::wait", Once::wait);
    add(rows, "sync::once::Once::wait_force", Once::wait_force);
    add(rows, "sync::once::Once::wait_cancellable", |o| o.wait_cancellable().unwrap());
    add(rows, "sync::once::Once::wait_force_cancellable", |o| o.wait_force_cancellable().unwrap());

    fn add_lock(rows: &mut Rows, name: &'static str, call: fn(&OnceLock<u8>)) {
        rows.add(name, move || {
            let lock = OnceLock::from(1);
            move || call(&lock)
        });
    }
    add_lock(rows, "sync::once_lock::OnceLock::wait", |l| assert_eq!(*l.wait(), 1));
    add_lock(rows, "sync::once_lock::OnceLock::wait_cancellable", |l| ignore(l.wait_cancellable()));
    add_lock(rows, "sync::once_lock::OnceLock::set", |l| assert!(l.set(2).is_err()));
    add_lock(rows, "sync::once_lock::OnceLock::get_or_init", |l| {
        assert_eq!(*l.get_or_init(|| 2), 1)
    });
    rows.add("sync::once::Once::is_completed", || {
        let once = Once::new();
        move || assert!(!once.is_completed())
    });
    rows.add("sync::once_lock::OnceLock::get", || {
        let lock = OnceLock::<u8>::new();
        move || assert!(lock.get().is_none())
    });
    rows.add("sync::lazy_lock::LazyLock::get", || {
        let lazy = LazyLock::new(|| 1);
        move || assert!(LazyLock::get(&lazy).is_none())
    });
    rows.add("sync::lazy_lock::LazyLock::force", || {
        let lazy = LazyLock::new(|| 1);
        move || assert_eq!(*LazyLock::force(&lazy), 1)
    });
}

fn channels(rows: &mut Rows) {
    rows.add("sync::mpsc::Sender::send", || {
        let (sender, receiver) = mpsc::channel();
        move || {
            let _kept = &receiver;
            sender.send(1).unwrap();
        }
    });
    fn add_sync(rows: &mut Rows, name: &'static str, call: fn(&mpsc::SyncSender<u8>)) {
        rows.add(name, move || {
            let (sender, receiver) = mpsc::sync_channel(1 << 20);
            move || {
                let _kept = &receiver;
                call(&sender);
            }
        });
    }
    add_sync(rows, "sync::mpsc::SyncSender::send", |s| s.send(1).unwrap());
    add_sync(rows, "sync::mpsc::SyncSender::send_cancellable", |s| ignore(s.send_cancellable(1)));
    fn add_many(rows: &mut Rows, name: &'static str, call: fn(&mpmc::Sender<u8>)) {
        rows.add(name, move || {
            let (sender, receiver) = mpmc::bounded(1 << 20);
            move || {
                let _kept = &receiver;
                call(&sender);
            }
        });
    }
    add_many(rows, "sync::mpmc::Sender::send", |s| s.send(1).unwrap());
    add_many(rows, "sync::mpmc::Sender::send_cancellable", |s| ignore(s.send_cancellable(1)));

    /// A channel that never becomes empty during the calls.
    const FULL: usize = 2000;
    fn add_received(rows: &mut Rows, name: &'static str, call: fn(&mpsc::Receiver<usize>)) {
        rows.add(name, move || {
            let (sender, receiver) = mpsc::channel();
            (0..FULL).for_each(|n| sender.send(n).unwrap());
            move || {
                let _kept = &sender;
                call(&receiver);
            }
        });
    }
    add_received(rows, "sync::mpsc::Receiver::recv", |r| ignore(r.recv().unwrap()));
    add_received(rows, "sync::mpsc::Receiver::recv_cancellable", |r| ignore(r.recv_cancellable()));
    add_received(rows, "sync::mpsc::Receiver::recv_timeout", |r| ignore(r.recv_timeout(NONE)));
    add_received(rows, "sync::mpsc::Receiver::recv_timeout_cancellable", |r| {
        ignore(r.recv_timeout_cancellable(NONE));
    });
    add_received(rows, "sync::mpsc::Iter::next", |r| ignore(r.iter().next().unwrap()));
    fn add_shared(rows: &mut Rows, name: &'static str, call: fn(&mpmc::Receiver<usize>)) {
        rows.add(name, move || {
            let (sender, receiver) = mpmc::bounded(FULL);
            (0..FULL).for_each(|n| sender.send(n).unwrap());
            move || {
                let _kept = &sender;
                call(&receiver);
            }
        });
    }
    add_shared(rows, "sync::mpmc::Receiver::recv", |r| ignore(r.recv().unwrap()));
    add_shared(rows, "sync::mpmc::Receiver::recv_cancellable", |r| ignore(r.recv_cancellable()));
    add_shared(rows, "sync::mpmc::Receiver::recv_timeout", |r| ignore(r.recv_timeout(NONE)));
    add_shared(rows, "sync::mpmc::Receiver::recv_timeout_cancellable", |r| {
        ignore(r.recv_timeout_cancellable(NONE));
    });
    add_shared(rows, "sync::mpmc::Iter::next", |r| ignore(r.iter().next().unwrap()));

    fn add_one(rows: &mut Rows, name: &'static str, call: fn(oneshot::Receiver<u8>)) {
        rows.add(name, move || {
            // The values are sent before, so that only one call counts.
            let filled = || {
                let (sender, receiver) = oneshot::channel();
                sender.send(1).unwrap();
                receiver
            };
            let mut receivers: Vec<_> = (0..FULL).map(|_| filled()).collect();
            move || call(receivers.pop().unwrap())
        });
    }
    rows.add("sync::oneshot::Sender::send", || {
        || {
            let (sender, _receiver) = oneshot::channel();
            sender.send(1).unwrap();
        }
    });
    add_one(rows, "sync::oneshot::Receiver::recv", |r| ignore(r.recv().unwrap()));
    add_one(rows, "sync::oneshot::Receiver::recv_cancellable", |r| ignore(r.recv_cancellable()));
    add_one(rows, "sync::oneshot::Receiver::recv_timeout", |r| ignore(r.recv_timeout(NONE)));
    add_one(rows, "sync::oneshot::Receiver::recv_timeout_cancellable", |r| {
        ignore(r.recv_timeout_cancellable(NONE));
    });
}

fn tried_channels(rows: &mut Rows) {
    fn add(rows: &mut Rows, name: &'static str, call: fn(&mpsc::Receiver<u8>)) {
        rows.add(name, move || {
            let (sender, receiver) = mpsc::channel();
            move || {
                let _kept = &sender;
                call(&receiver);
            }
        });
    }
    add(rows, "sync::mpsc::Receiver::try_recv", |r| assert!(r.try_recv().is_err()));
    add(rows, "sync::mpsc::TryIter::next", |r| assert!(r.try_iter().next().is_none()));
    rows.add("sync::mpsc::SyncSender::try_send", || {
        let (sender, receiver) = mpsc::sync_channel(0);
        move || {
            let _kept = &receiver;
            assert!(sender.try_send(1).is_err());
        }
    });
    rows.add("sync::mpmc::Sender::try_send", || {
        let (sender, receiver) = mpmc::bounded(0);
        move || {
            let _kept = &receiver;
            assert!(sender.try_send(1).is_err());
        }
    });
    rows.add("sync::mpmc::Receiver::try_recv", || {
        let (sender, receiver) = mpmc::bounded::<u8>(1);
        move || {
            let _kept = &sender;
            assert!(receiver.try_recv().is_err());
        }
    });
    rows.add("sync::oneshot::Receiver::try_recv", || {
        let (sender, receiver) = oneshot::channel::<u8>();
        move || {
            let _kept = &sender;
            assert!(receiver.try_recv().is_err());
        }
    });
}

fn watches(rows: &mut Rows) {
    fn add(
        rows: &mut Rows,
        name: &'static str,
        call: fn(&watch::Sender<u8>, &mut watch::Receiver<u8>),
    ) {
        rows.add(name, move || {
            let (sender, mut receiver) = watch::channel(0);
            move || call(&sender, &mut receiver)
        });
    }
    add(rows, "sync::watch::Sender::send", |s, _| s.send(1).unwrap());
    add(rows, "sync::watch::Sender::send_cancellable", |s, _| ignore(s.send_cancellable(1)));
    add(rows, "sync::watch::Sender::send_replace", |s, _| ignore(s.send_replace(1)));
    add(rows, "sync::watch::Sender::send_modify", |s, _| s.send_modify(|n| *n = 1));
    add(rows, "sync::watch::Sender::borrow", |s, _| ignore(s.borrow()));
    add(rows, "sync::watch::receiver::Receiver::borrow", |_, r| ignore(r.borrow()));
    add(rows, "sync::watch::receiver::Receiver::borrow_and_update", |_, r| {
        ignore(r.borrow_and_update())
    });
    add(rows, "sync::watch::receiver::Receiver::has_changed", |_, r| {
        assert!(!r.has_changed().unwrap())
    });
    add(rows, "sync::watch::receiver::Receiver::wait_for", |_, r| ignore(r.wait_for(|_| true)));
    add(rows, "sync::watch::receiver::Receiver::wait_for_cancellable", |_, r| {
        ignore(r.wait_for_cancellable(|_| true))
    });
    fn add_ended(rows: &mut Rows, name: &'static str, call: fn(&mut watch::Receiver<u8>)) {
        rows.add(name, move || {
            let (_, mut receiver) = watch::channel(0);
            move || call(&mut receiver)
        });
    }
    add_ended(rows, "sync::watch::receiver::Receiver::changed", |r| assert!(r.changed().is_err()));
    add_ended(rows, "sync::watch::receiver::Receiver::changed_cancellable", |r| {
        ignore(r.changed_cancellable())
    });
}

fn fibers(rows: &mut Rows) {
    rows.add("fiber::block_on::block_on", || || fiber::block_on(std::future::ready(())));
    rows.add("fiber::block_on::block_on_cancellable", || {
        || fiber::block_on_cancellable(std::future::ready(())).unwrap()
    });
    /// As many as a test uses.
    const CALLS: usize = 1500;
    fn add_ended(rows: &mut Rows, name: &'static str, call: fn(fiber::JoinHandle<()>)) {
        rows.add(name, move || {
            let mut handles: Vec<_> = (0..CALLS).map(|_| fiber::spawn_local(|| ())).collect();
            fiber::yield_now();
            move || call(handles.pop().unwrap())
        });
    }
    add_ended(rows, "fiber::handle::JoinHandle::join", |h| h.join().unwrap());
    add_ended(rows, "fiber::handle::JoinHandle::join_cancellable", |h| {
        ignore(h.join_cancellable())
    });
    rows.add("fiber::handle::JoinHandle::is_finished", || {
        let waits = fiber::spawn_local(fiber::park);
        move || assert!(!waits.is_finished())
    });
    rows.add("fiber::scope::scope", || || fiber::scope(|_| ()));
    rows.add("fiber::try_scope::try_scope", || {
        || fiber::try_scope(|_| std::io::Result::Ok(())).unwrap()
    });
    rows.add("fiber::scoped_handle::ScopedJoinHandle::join", || {
        || fiber::scope(|s| s.spawn_local(|| ()).join().unwrap())
    });
    rows.add("fiber::scoped_handle::ScopedJoinHandle::join_cancellable", || {
        || ignore(fiber::scope(|s| s.spawn_local(|| ()).join_cancellable()))
    });
    rows.add("fiber::unblock::unblock", || || fiber::unblock(|| ()));
    rows.add("fiber::park::yield_now", || fiber::yield_now);
    rows.add("fiber::park::yield_now_cancellable", || || fiber::yield_now_cancellable().unwrap());
    rows.add("fiber::park::sleep", || || fiber::sleep(NONE));
    rows.add("fiber::park::sleep_cancellable", || || fiber::sleep_cancellable(NONE).unwrap());
    fn add_parked(rows: &mut Rows, name: &'static str, call: fn()) {
        rows.add(name, move || {
            move || {
                fiber::current().unpark();
                call();
            }
        });
    }
    add_parked(rows, "fiber::park::park", fiber::park);
    add_parked(rows, "fiber::park::park_cancellable", || fiber::park_cancellable().unwrap());
    add_parked(rows, "fiber::park::park_timeout", || fiber::park_timeout(NONE));
    add_parked(rows, "fiber::park::park_timeout_cancellable", || {
        fiber::park_timeout_cancellable(NONE).unwrap();
    });
}

fn combinators(rows: &mut Rows) {
    type Never = std::io::Error;
    rows.add("fiber::combine::join::join", || || ignore(fiber::join(|| (), || ())));
    rows.add("fiber::combine::join::join_all", || {
        || ignore(fiber::join_all([(); 0].map(|()| || ())))
    });
    rows.add("fiber::combine::par::par_map", || || ignore(fiber::par_map([(); 0], 1, |()| ())));
    rows.add("fiber::combine::par::par_for_each", || || fiber::par_for_each([(); 0], 1, |()| ()));
    rows.add("fiber::combine::par::try_par_map", || {
        || ignore(fiber::try_par_map([(); 0], 1, |()| Ok::<(), Never>(())))
    });
    rows.add("fiber::combine::par::try_par_for_each", || {
        || ignore(fiber::try_par_for_each([(); 0], 1, |()| Ok::<(), Never>(())))
    });
    rows.add("fiber::combine::par_workers::par_map_workers", || {
        || ignore(fiber::par_map_workers([(); 0], 1, |()| ()))
    });
    rows.add("fiber::combine::par_workers::par_for_each_workers", || {
        || fiber::par_for_each_workers([(); 0], 1, |()| ())
    });
    rows.add("fiber::combine::par_workers::try_par_map_workers", || {
        || ignore(fiber::try_par_map_workers([(); 0], 1, |()| Ok::<(), Never>(())))
    });
    rows.add("fiber::combine::par_workers::try_par_for_each_workers", || {
        || ignore(fiber::try_par_for_each_workers([(); 0], 1, |()| Ok::<(), Never>(())))
    });
    rows.add("fiber::combine::race::race", || {
        || ignore(fiber::race(|| Ok::<_, Never>(()), || Ok(())))
    });
    rows.add("fiber::combine::race::race_with", || {
        || ignore(fiber::race_with(|| Ok::<_, Never>(()), || Ok(()), |(), ()| ()))
    });
    rows.add("fiber::combine::race::any", || || ignore(fiber::any([|| Ok::<_, Never>(())])));
}

fn spawns(rows: &mut Rows) {
    rows.add("fiber::spawn::spawn", || || ignore(fiber::spawn(|| ())));
    rows.add("fiber::spawn::spawn_local", || || ignore(fiber::spawn_local(|| ())));
    rows.add("fiber::spawn::Builder::spawn", || || ignore(fiber::Builder::new().spawn(|| ())));
    rows.add("fiber::spawn::Builder::spawn_local", || {
        || ignore(fiber::Builder::new().spawn_local(|| ()))
    });
    rows.add("cancel::check", || || cancel::check().unwrap());
}

fn times(rows: &mut Rows) {
    rows.add("time::interval::Interval::tick", || {
        // Ticks of an hour are due, so no call waits.
        let begun =
            Instant::now().checked_sub(Duration::from_secs(3600)).unwrap_or_else(Instant::now);
        let mut interval = time::interval_at(begun, Duration::from_nanos(1));
        move || ignore(interval.tick().unwrap())
    });
    rows.add("time::wait::sleep", || || time::sleep(NONE).unwrap());
    rows.add("time::wait::sleep_until", || {
        let begun = Instant::now();
        move || time::sleep_until(begun).unwrap()
    });
}

fn processes(rows: &mut Rows) {
    fn ended() -> Rc<RefCell<Child>> {
        let mut child = Command::new("true").spawn().unwrap();
        child.wait().unwrap();
        Rc::new(RefCell::new(child))
    }
    rows.add("process::child::Child::wait", || {
        let child = ended();
        move || ignore(child.borrow_mut().wait().unwrap())
    });
    rows.add("process::child::Child::try_wait", || {
        let mut child = Command::new("sleep")
            .arg("3600")
            .stdin(process::Stdio::piped())
            .spawn()
            .map(KillOnDrop)
            .unwrap();
        move || assert!(child.0.try_wait().unwrap().is_none())
    });
    rows.add("process::child::Child::wait_with_output", || {
        || ignore(Command::new("true").spawn().unwrap().wait_with_output().unwrap())
    });
    rows.add("process::command::Command::spawn", || {
        || ignore(Command::new("true").spawn().unwrap().wait())
    });
    rows.add("process::command::Command::output", || {
        || ignore(Command::new("true").output().unwrap())
    });
    rows.add("process::command::Command::status", || {
        || ignore(Command::new("true").status().unwrap())
    });
    rows.add("signal::Signals::wait", || {
        let signals = Signals::new(&[Signal::User1]).unwrap();
        move || {
            // SAFETY: by the contract of `raise`: the signal is caught.
            unsafe { libc::raise(libc::SIGUSR1) };
            signals.wait().unwrap();
        }
    });
}

struct KillOnDrop(Child);

impl Drop for KillOnDrop {
    fn drop(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

fn streams(rows: &mut Rows) {
    rows.add("io::copy::copy", || {
        || ignore(io::copy(&mut std::io::empty(), &mut std::io::sink()).unwrap())
    });
    rows.add("io::ready::ready", || {
        let (ours, theirs) = std::os::unix::net::UnixStream::pair().unwrap();
        (&theirs).write_all(b"!").unwrap();
        let theirs = Arc::new(theirs);
        move || {
            let _kept = &theirs;
            io::ready(&ours, io::Interest::READABLE).unwrap();
        }
    });
    rows.add("io::stdio::input::Stdin::lock", || || ignore(io::stdin().lock()));
    rows.add("io::stdio::input::Stdin::lines", || || ignore(io::stdin().lines()));
    rows.add("io::stdio::output::Stdout::lock", || || ignore(io::stdout().lock()));
    rows.add("io::stdio::output::Stderr::lock", || || ignore(io::stderr().lock()));
}
