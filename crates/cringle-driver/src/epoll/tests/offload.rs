//! Ops that threads of the pools perform.

use super::*;
use std::os::unix::fs::FileExt;
use std::sync::mpsc;

impl Rig {
    /// Keeps the only thread of the bounded pool busy until the sender is dropped.
    fn occupy(&mut self) -> mpsc::Sender<()> {
        self.epoll.pools.storage = Arc::new(Pool::new("test", 1, &sys::allowed_cpus()));
        let (goes_on, gate) = mpsc::channel();
        let job = Box::new(move || assert!(gate.recv().is_err()));
        assert!(self.epoll.pools.storage.run(job).is_ok());
        goes_on
    }

    /// The threads of the bounded pool and of the other.
    fn threads(&self) -> (usize, usize) {
        let Pools { storage, unbounded } = &self.epoll.pools;
        (storage.load().1, unbounded.load().1)
    }
}

#[test]
fn pending_job_is_cancelled_at_once() {
    let mut rig = Rig::new(8);
    let gate = rig.occupy();
    let file = tempfile::tempfile().unwrap();
    let target = Target::fd(file.as_raw_fd());
    let writes = [0, 1].map(|offset| {
        let write = rig.push(|buf| {
            // SAFETY: I1. The byte belongs to the frame, and no op uses it yet.
            unsafe { *buf = 7 };
            Op::write(target, buf, 1, offset)
        });
        write.unwrap()
    });
    rig.enter();
    assert!(matches!(rig.stage(writes[0]), Stage::Offloaded(_)));
    rig.cancel(writes[0]);
    rig.reap();
    assert_eq!((&rig.settled[..], rig.result(writes[0])), (&[writes[0]][..], -libc::ECANCELED));
    // The next op reuses its number.
    let nop = rig.push(|_| Op::Nop).unwrap();
    assert_eq!(rig.number(nop), rig.number(writes[0]));
    drop(gate);
    rig.until_idle();
    rig.epoll.pools.storage.close();
    assert!(!rig.epoll.results.has_any(), "the cancelled write was performed");
    let mut read = [1; 2];
    file.read_exact_at(&mut read, 0).unwrap();
    assert_eq!((rig.result(writes[1]), read), (1, [0, 7]));
}

#[test]
fn started_job_is_waited_for() {
    let mut rig = Rig::new(8);
    let held = tempfile::NamedTempFile::new().unwrap();
    let own = std::fs::File::open(held.path()).unwrap();
    held.as_file().lock().unwrap();
    let lock = crate::syscall::Syscall::Lock { fd: own.as_raw_fd(), how: libc::LOCK_EX };
    let locks = rig.push(|_| Op::Syscall(lock)).unwrap();
    rig.enter();
    let Stage::Offloaded(job) = rig.stage(locks) else { panic!("the op is not on the pool") };
    let job = Arc::clone(job);
    until(|| job.has_started());
    rig.cancel(locks);
    assert_eq!(rig.epoll.attention(), (false, false));
    assert!(!rig.epoll.is_idle());
    held.as_file().unlock().unwrap();
    rig.until_idle();
    assert_eq!(rig.result(locks), 0);
}

#[test]
fn result_signals_a_sleeping_worker() {
    let rig = Rig::new(8);
    let (results, is_rung) = (&rig.epoll.results, || poll_now(&*rig.wake_fd, libc::POLLIN) != 0);
    assert!(!results.has_any());
    assert!(results.fall_asleep());
    results.wake_up();
    results.post(1, 11);
    assert!(results.has_any() && !is_rung(), "the worker is awake");
    assert!(!results.fall_asleep(), "a result is available");
    results.post(2, 22);
    assert!(!is_rung(), "the worker stayed awake");
    let mut taken = Vec::new();
    results.take(&mut taken);
    assert_eq!(taken, [(1, 11), (2, 22)]);
    assert!(!results.has_any());
    assert!(results.fall_asleep());
    results.post(3, 33);
    assert!(is_rung());
    sys::eventfd_clear(rig.wake_fd.as_fd());
    results.post(4, 44);
    assert!(!is_rung(), "the eventfd is signalled once per sleep");
}

#[test]
fn awake_worker_gets_no_signal() {
    let mut rig = Rig::new(8);
    let (reader, _writer) = std::io::pipe().unwrap();
    let sync = |rig: &mut Rig| {
        rig.push(|_| Op::File(FileOp::Sync { fd: reader.as_raw_fd(), data_only: true })).unwrap()
    };
    for _ in 0..20 {
        let number = sync(&mut rig);
        rig.until_idle();
        assert_eq!(rig.result(number), -libc::EINVAL);
    }
    // A sleep that ends by its deadline.
    rig.epoll.enter(Wait::Until(Some(Instant::now())));
    let number = sync(&mut rig);
    rig.epoll.enter(Wait::No);
    let results = Arc::clone(&rig.epoll.results);
    until(|| results.has_any() || rig.epoll.attention().0);
    assert_eq!(rig.epoll.attention(), (true, true));
    assert_eq!(poll_now(&*rig.wake_fd, libc::POLLIN), 0, "the worker did not sleep");
    rig.reap();
    assert_eq!(rig.result(number), -libc::EINVAL);
}

#[test]
fn worker_does_not_sleep_before_completions() {
    let mut rig = Rig::new(8);
    let (reader, _writer) = std::io::pipe().unwrap();
    let fd = reader.as_raw_fd();
    let sync = rig.push(|_| Op::File(FileOp::Sync { fd, data_only: true })).unwrap();
    rig.epoll.enter(Wait::No);
    let results = Arc::clone(&rig.epoll.results);
    until(|| results.has_any() || rig.epoll.attention().0);
    rig.sleep();
    assert_eq!(rig.settled, [sync]);
    let nop = rig.push(|_| Op::Nop).unwrap();
    rig.sleep();
    assert_eq!(rig.settled, [sync, nop]);
}

#[test]
fn storage_ops_use_the_bounded_pool() {
    let directory = tempfile::tempdir().unwrap();
    let open = |path: &str| std::fs::File::options().read(true).append(true).open(path);
    let file = directory.path().join("file");
    std::fs::write(&file, "x").unwrap();
    let file = open(file.to_str().unwrap()).unwrap();
    let maps = std::fs::File::open("/proc/self/maps").unwrap();
    let writes = Target::fd(file.as_raw_fd());
    let reads = Target::fd(maps.as_raw_fd());
    type Make = Box<dyn FnOnce(*mut u8) -> Op>;
    let ops: [Make; 6] = [
        Box::new(move |buf| Op::write(writes, buf, 1, AT_CURSOR)),
        Box::new(move |buf| Op::write(writes, buf, 1, 0)),
        Box::new(move |_| {
            let slices = std::ptr::null();
            Op::slices(Way::Write, writes.number(), slices, 0, AT_CURSOR, 0)
        }),
        Box::new(move |buf| Op::read(reads, buf, 1, AT_CURSOR)),
        Box::new(move |buf| Op::read(reads, buf, 1, 0)),
        Box::new(move |_| Op::File(FileOp::SetLen { fd: writes.number(), len: 7 })),
    ];
    for op in ops {
        let mut rig = Rig::new(8);
        let number = rig.push(op).unwrap();
        rig.epoll.enter(Wait::No);
        assert!(matches!(rig.stage(number), Stage::Offloaded(_) | Stage::Ended));
        assert_eq!(rig.threads(), (1, 0));
        rig.until_idle();
        assert!(rig.result(number) >= 0);
    }
}

/// `/dev/full` supports neither `RWF_NOWAIT` nor `poll`.
#[test]
fn device_that_epoll_refuses_goes_to_the_pool() {
    let device = std::fs::File::options().read(true).write(true).open("/dev/full").unwrap();
    let target = Target::fd(device.as_raw_fd());
    let rig_after = |op: fn(Target, *mut u8) -> Op| {
        let mut rig = Rig::new(8);
        let number = rig.push(|buf| {
            // SAFETY: I1. The byte belongs to the frame, and no op uses it yet.
            unsafe { *buf = 7 };
            op(target, buf)
        });
        assert_eq!(number.unwrap(), 0);
        rig.until_idle();
        assert_eq!(rig.epoll.wait_queues.count, 0);
        rig
    };
    let rig = rig_after(|target, buf| Op::read(target, buf, 1, AT_CURSOR));
    assert_eq!((rig.result(0), rig.byte(0), rig.threads()), (1, 0, (0, 1)));
    let rig = rig_after(|target, buf| Op::write(target, buf, 1, AT_CURSOR));
    assert_eq!((rig.result(0), rig.threads()), (-libc::ENOSPC, (0, 1)));
    let rig = rig_after(|target, buf| Op::write(target, buf, 1, 0));
    assert_eq!((rig.result(0), rig.threads()), (-libc::ENOSPC, (1, 0)));
}
