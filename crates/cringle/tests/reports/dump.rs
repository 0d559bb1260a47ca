//! A dump shows which fiber waits for what, and disturbs no fiber.

use cringle::runtime::{self, Dump, FiberReport, FiberState, Holder, WaitsFor};
use cringle::{Builder, fiber, fs, io, net, process, sync, time};
use cringle_testing::disk;
use cringle_testing::tools::on_one_worker;
use std::io::{Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

fn named(name: &str) -> fiber::Builder {
    fiber::Builder::new().name(name.into())
}

fn dump() -> Dump {
    let dump = runtime::dump().expect("called within a run");
    let text = dump.to_string();
    assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
    dump
}

/// Returns what the fiber of this name waits for.
fn what(dump: &Dump, name: &str) -> WaitsFor {
    let fiber = dump.fiber(name).unwrap_or_else(|| panic!("no '{name}' in:\n{dump}"));
    match &fiber.state {
        FiberState::Waiting { for_what, .. } => for_what.clone(),
        state => panic!("'{name}' is {state:?}"),
    }
}

fn age(dump: &Dump, name: &str) -> Duration {
    match dump.fiber(name).expect("it is there").state {
        FiberState::Waiting { age, .. } => age,
        ref state => panic!("'{name}' is {state:?}"),
    }
}

/// Lets all ready fibers run until they wait.
fn settle() {
    for _ in 0..4 {
        fiber::yield_now();
    }
}

#[test]
fn dump_is_none_outside_a_run() {
    assert!(runtime::dump().is_none());
}

/// Two fibers that take two locks in opposite orders.
#[test]
fn dump_names_deadlocks_in_full() {
    on_one_worker(|| {
        let (first, second) = (sync::Mutex::new(1), sync::Mutex::new(2));
        fiber::scope(|s| {
            let take = |a: &sync::Mutex<i32>, b: &sync::Mutex<i32>| {
                let _a = a.lock().unwrap();
                fiber::yield_now();
                let _b = b.lock().unwrap();
            };
            let (first, second) = (&first, &second);
            let line = line!() + 1;
            let left = named("left").spawn_scoped_local(s, move || take(first, second)).unwrap();
            let right = named("right").spawn_scoped_local(s, move || take(second, first)).unwrap();
            settle();
            let dump = dump();
            for (waiter, owner) in [("left", "right"), ("right", "left")] {
                let WaitsFor::Lock { holder: Holder::Fiber(at, holder), address, .. } =
                    what(&dump, waiter)
                else {
                    panic!("{dump}");
                };
                assert_eq!(holder.name.as_deref(), Some(owner));
                assert_eq!(dump.fibers[at].who, holder);
                assert!(address != 0);
            }
            let cycles = dump.cycles();
            assert_eq!(cycles.len(), 1, "{dump}");
            let mut names: Vec<_> =
                cycles[0].iter().map(|&at| dump.fibers[at].who.name.as_deref().unwrap()).collect();
            names.sort_unstable();
            assert_eq!(names, ["left", "right"]);
            let text = dump.to_string();
            assert!(text.contains("DEADLOCK: 'left', 'right'"), "{text}");
            assert!(text.contains("which 'right' holds") && text.contains("which 'left' holds"));
            assert!(text.contains(&format!("tests/reports/dump.rs:{line}:")), "{text}");
            s.cancel();
            drop((left.join(), right.join()));
        });
        assert!(dump().cycles().is_empty());
    });
}

/// Which lock keeps most fibers waiting must be visible, and how long each wait may still last.
#[test]
fn dump_groups_fibers_with_equal_waits() {
    on_one_worker(|| {
        let (first, second, lock) =
            (sync::Mutex::new(1), sync::Mutex::new(2), sync::RwLock::new(3));
        let held = (first.lock(), second.lock(), lock.write());
        fiber::scope(|s| {
            let (first, second, lock) = (&first, &second, &lock);
            for n in 0..10 {
                let wait = move || match n {
                    0..5 => drop(first.lock()),
                    5..8 => drop(second.lock()),
                    _ => drop(lock.read()),
                };
                drop(named("waiter").spawn_scoped_local(s, wait).unwrap());
            }
            for hours in [60, 5, 30] {
                let sleep = move || fiber::sleep(Duration::from_secs(3600 * hours));
                drop(named("sleeper").spawn_scoped_local(s, sleep).unwrap());
            }
            settle();
            let dump = dump();
            assert_eq!(dump.fibers.len(), 14, "one each, for programs");
            let text = dump.to_string();
            let addresses = [
                (&raw const *first).addr(),
                (&raw const *second).addr(),
                (&raw const *lock).addr(),
            ];
            for (address, count) in addresses.into_iter().zip([5, 3, 2]) {
                let waits = format!("the lock at {address:#x}, which 'main' holds");
                let mut lines = text.lines();
                let head = lines.by_ref().take_while(|line| !line.contains(&waits)).last();
                let expected = format!("'waiter'  worker 0, {count} fibers, wait for ");
                assert!(head.is_some_and(|head| head.starts_with(&expected)), "{waits}: {text}");
            }
            assert!(text.contains("'sleeper'  worker 0, 3 fibers, wait for "), "{text}");
            assert!(text.contains("a timer, in 4 h ") && text.contains(" to 59 h "), "{text}");
            s.cancel();
            drop(held);
        });
    });
}

#[test]
fn dump_names_parked_fiber_in_full() {
    on_one_worker(|| {
        let line = line!() + 1;
        let forgotten = named("forgotten").spawn_local(fiber::park).unwrap();
        settle();
        let before = age(&dump(), "forgotten");
        fiber::sleep(Duration::from_millis(60));
        let dump = dump();
        assert!(matches!(what(&dump, "forgotten"), WaitsFor::Unpark));
        let fiber = dump.fiber("forgotten").unwrap();
        assert_eq!(fiber.who.spawned.unwrap().line(), line);
        // The clock advances with the kernel's ticks, of up to 10 ms.
        assert!(age(&dump, "forgotten") >= before + Duration::from_millis(40));
        assert_eq!(dump.fibers[0].who.name.as_deref(), Some("forgotten"), "the oldest is first");
        let text = dump.to_string();
        assert!(text.contains("'forgotten'  worker 0, waits for"), "{text}");
        assert!(
            text.contains("an unpark") && text.contains(&format!("tests/reports/dump.rs:{line}:"))
        );
        forgotten.thread().unpark();
        forgotten.join().unwrap();
    });
}

/// Fibers that the library makes for the program show the program's line, not one of the library.
#[test]
fn dump_shows_program_line_of_library_fibers() {
    let fibers_spawned_at = |dump: &Dump, line: u32| {
        let spawned = dump.fibers.iter().filter_map(|fiber| fiber.who.spawned);
        spawned.filter(|place| place.file() == file!() && place.line() == line).count()
    };
    on_one_worker(|| {
        // All fibers have begun, and none has ended.
        let dump_amid = || {
            fiber::yield_now();
            dump()
        };
        let line = line!() + 1;
        let (dump_of_join, ()) = fiber::join(dump_amid, settle);
        assert_eq!(fibers_spawned_at(&dump_of_join, line), 1, "{dump_of_join}");
        let line = line!() + 1;
        let dumps = fiber::par_map(0..2, 2, |_| dump_amid());
        assert_eq!(fibers_spawned_at(&dumps[0], line), 1, "{}", dumps[0]);

        let server = net::Server::bind("127.0.0.1:0").unwrap();
        let (addr, stopper) = (server.local_addr().unwrap(), server.stopper());
        fiber::scope(|s| {
            s.spawn_local(|| net::TcpStream::connect(addr).unwrap());
            let line = line!() + 1;
            let served = server.run(|_, _| {
                let dump = dump();
                assert_eq!(fibers_spawned_at(&dump, line), 1, "{dump}");
                stopper.stop();
                Ok(())
            });
            assert_eq!(served.unwrap().panicked, 0);
        });
    });
}

/// One worker is stuck, and the other one makes the dump.
#[test]
fn dump_names_spinning_fiber_in_full() {
    let spins = Arc::new(AtomicBool::new(true));
    Builder::new()
        .workers(2)
        .run(|| {
            let (theirs, started) = (Arc::clone(&spins), Arc::new(AtomicBool::new(false)));
            let has_started = Arc::clone(&started);
            let line = line!() + 1;
            let spinner = named("spinner").worker(1).spawn(move || {
                has_started.store(true, Ordering::Release);
                while theirs.load(Ordering::Acquire) {
                    std::hint::spin_loop();
                }
            });
            let spinner = spinner.unwrap();
            while !started.load(Ordering::Acquire) {
                fiber::yield_now();
            }
            let dump = dump();
            spins.store(false, Ordering::Release);
            assert!(dump.fiber("main").is_some() && dump.fiber("spinner").is_none());
            let [silent] = &dump.silent[..] else { panic!("{dump}") };
            assert!(silent.worker == 1 && silent.is_stuck && silent.others == 0, "{silent:?}");
            let running = silent.runs.as_ref().unwrap();
            assert_eq!(running.name.as_deref(), Some("spinner"));
            assert_eq!(running.spawned.unwrap().line(), line);
            let text = dump.to_string();
            assert!(text.contains("STUCK: worker 1") && text.contains("'spinner'"), "{text}");
            spinner.join().unwrap();
            assert!(runtime::dump().unwrap().silent.is_empty());
        })
        .unwrap();
}

/// The worker's thread gets almost no time on a busy processor.
#[test]
fn starved_worker_is_waited_for() {
    const SPINNERS: usize = 8;
    let confine = || {
        // SAFETY: by the contract of the calls, which read the set. All-zero is valid, and
        // processor 0 is in range.
        unsafe {
            let mut set: libc::cpu_set_t = std::mem::zeroed();
            libc::CPU_SET(0, &mut set);
            libc::sched_setaffinity(0, size_of_val(&set), &set)
        }
    };
    let busy = AtomicBool::new(true);
    std::thread::scope(|threads| {
        let dump = Builder::new().workers(2).run(|| {
            let parked = named("parked").worker(1).spawn(fiber::park).unwrap();
            let starve = named("starve").worker(1).spawn(move || {
                // SAFETY: by the contract of the call, which reads the structure; all-zero is valid
                // in each C library.
                let idle = unsafe {
                    let param: libc::sched_param = std::mem::zeroed();
                    libc::sched_setscheduler(0, libc::SCHED_IDLE, &param)
                };
                (confine(), idle)
            });
            let confined = starve.unwrap().join().unwrap();
            for _ in 0..SPINNERS {
                threads.spawn(|| {
                    confine();
                    while busy.load(Ordering::Relaxed) {
                        std::hint::spin_loop();
                    }
                });
            }
            let dumps = vec![dump(), dump()];
            busy.store(false, Ordering::Relaxed);
            parked.thread().unpark();
            parked.join().unwrap();
            if confined != (0, 0) {
                println!("skipped: no worker can be starved here: {confined:?}");
                return Vec::new();
            }
            dumps
        });
        for dump in dump.unwrap() {
            assert!(dump.silent.is_empty() && dump.fiber("parked").is_some(), "{dump}");
        }
    });
}

/// The only worker is stuck, and a thread makes the dump.
#[test]
fn dump_from_thread_reports_lone_stuck_worker() {
    static SPINS: AtomicBool = AtomicBool::new(true);
    static STARTED: AtomicBool = AtomicBool::new(false);
    std::thread::scope(|threads| {
        let (spins, started) = (&SPINS, &STARTED);
        let asker = threads.spawn(move || {
            while !started.load(Ordering::Acquire) {
                std::thread::yield_now();
            }
            let dumps = runtime::dump_all();
            spins.store(false, Ordering::Release);
            dumps
        });
        on_one_worker(|| {
            let other = named("other").spawn_local(fiber::park).unwrap();
            let spinner = named("lone spinner").spawn_local(move || {
                started.store(true, Ordering::Release);
                while spins.load(Ordering::Acquire) {
                    std::hint::spin_loop();
                }
            });
            spinner.unwrap().join().unwrap();
            other.thread().unpark();
        });
        let dumps = asker.join().unwrap();
        let name = |dump: &Dump| -> Option<String> {
            Some(dump.silent.first()?.runs.as_ref()?.name.as_ref()?.to_string())
        };
        let found = dumps.iter().find(|dump| name(dump).as_deref() == Some("lone spinner"));
        let found = found.expect("other tests have runtimes of their own").silent.first().unwrap();
        assert!(found.is_stuck && found.others == 2, "{found:?}");
    });
}

#[test]
fn dump_shows_files_of_operations() {
    let directory = disk::directory();
    let path = directory.path().join("data");
    std::fs::write(&path, vec![7; 16384]).unwrap();
    on_one_worker(|| {
        let file = fs::File::options().write(true).open(&path).unwrap();
        let (reader, mut writer) = io::pipe().unwrap();
        let listener = net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let missing = directory.path().join("missing");
        let spawned = std::cell::Cell::new(false);
        let seen = fiber::scope(|s| {
            let pipe = named("pipe").spawn_scoped_local(s, || (&mut &reader).read(&mut [0]));
            let accept = named("accept").spawn_scoped_local(s, || listener.accept().map(drop));
            let child = named("child").spawn_scoped_local(s, || {
                let mut cat = process::Command::new("cat");
                let mut child = cat.stdin(std::process::Stdio::piped()).spawn()?;
                // The child ends when this is dropped.
                let _stdin = child.stdin.take();
                spawned.set(true);
                child.wait()
            });
            // A thread of the pool starts the child.
            while !spawned.get() {
                fiber::yield_now();
            }
            settle();
            // These are suspended in the turn in which the last one makes the dump, before anything
            // is submitted.
            s.spawn_local(|| ());
            named("write").spawn_scoped_local(s, || file.write_at(&[0; 100], 4096)).unwrap();
            named("open").spawn_scoped_local(s, || fs::File::open(&missing).map(drop)).unwrap();
            let asker = named("asker").spawn_scoped_local(s, dump).unwrap();
            let seen = asker.join().unwrap();
            writer.write_all(&[1]).unwrap();
            assert_eq!(pipe.unwrap().join().unwrap().unwrap(), 1);
            drop(net::TcpStream::connect(address).unwrap());
            accept.unwrap().join().unwrap().unwrap();
            s.cancel();
            drop(child.unwrap().join());
            seen
        });
        let WaitsFor::Operation { name: "a read", fd: Some(fd), file: Some(pipe), .. } =
            what(&seen, "pipe")
        else {
            panic!("{seen}");
        };
        assert!(fd == reader.as_raw_fd() && pipe.starts_with("pipe:"), "{seen}");
        let WaitsFor::Operation { file: Some(socket), .. } = what(&seen, "accept") else {
            panic!("{seen}");
        };
        assert!(socket.contains(&address.to_string()), "{socket}");
        let WaitsFor::Operation { file: Some(name), offset, fd, .. } = what(&seen, "write") else {
            panic!("{seen}");
        };
        assert_eq!((name.as_str(), offset), (path.to_str().unwrap(), Some(4096)), "{seen}");
        assert_eq!(fd, Some(file.as_raw_fd()));
        let WaitsFor::Operation { path: Some(opened), .. } = what(&seen, "open") else {
            panic!("{seen}");
        };
        assert_eq!(opened, missing);
        let WaitsFor::Operation { file: Some(child), .. } = what(&seen, "child") else {
            panic!("{seen}");
        };
        assert!(child.starts_with("child process "), "{child}");
    });
}

struct End<'a>([&'a std::cell::Cell<bool>; 2]);

impl Drop for End<'_> {
    fn drop(&mut self) {
        self.0.iter().for_each(|ended| ended.set(true));
    }
}

/// A thread makes the calls for which no ring has an operation. Each is repeated until a dump has
/// shown it.
#[test]
fn dump_shows_files_of_plain_calls() {
    const BYTES: usize = 16 << 20;
    let directory = disk::directory();
    let (from, to) = (directory.path().join("from"), directory.path().join("to"));
    std::fs::write(&from, vec![7; BYTES]).unwrap();
    let missing = directory.path().join("missing");
    let seen_of = |dump: &Dump, fiber: &str, call: &str| {
        let state = &dump.fiber(fiber).unwrap().state;
        let FiberState::Waiting { for_what, .. } = state else { return None };
        let WaitsFor::Operation { name, fd, file, path, aside, .. } = for_what else { return None };
        assert_eq!((*name, aside), (call, &true), "{dump}");
        // Independent of the line breaks.
        let text = dump.to_string().split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(text.contains("by a thread of the pool"), "{dump}");
        Some((*fd, file.clone(), path.clone()))
    };
    on_one_worker(|| {
        let (source, target) = (fs::File::open(&from).unwrap(), fs::File::create(&to).unwrap());
        let (copied, linked) = (std::cell::Cell::new(false), std::cell::Cell::new(false));
        fiber::scope(|s| {
            // They end even if the test fails.
            let _end = End([&copied, &linked]);
            let copies = || {
                while !copied.get() {
                    fs::copy_range(&source, 0, &target, 0, BYTES).unwrap();
                }
            };
            let links = || {
                while !linked.get() {
                    fs::read_link(&missing).unwrap_err();
                }
            };
            named("copies").spawn_scoped_local(s, copies).unwrap();
            named("links").spawn_scoped_local(s, links).unwrap();
            let (mut copy, mut link) = (None, None);
            while copy.is_none() || link.is_none() {
                fiber::yield_now();
                let dump = dump();
                copy = copy.or_else(|| seen_of(&dump, "copies", "a copy_file_range"));
                link = link.or_else(|| seen_of(&dump, "links", "a readlink"));
            }
            let (fd, file, path) = copy.unwrap();
            assert_eq!((fd, path), (Some(target.as_raw_fd()), None));
            assert_eq!(file.as_deref(), to.to_str());
            assert_eq!(link.unwrap(), (None, None, Some(missing.clone())));
        });
    });
}

#[test]
fn dump_shows_first_operation_of_batch() {
    let directory = disk::directory();
    let path = directory.path().join("data");
    std::fs::write(&path, vec![7; 16384]).unwrap();
    on_one_worker(|| {
        let file = fs::File::open(&path).unwrap();
        let seen = fiber::scope(|s| {
            named("batch")
                .spawn_scoped_local(s, || {
                    let mut pages = vec![0; 4 * 512];
                    let mut batch = cringle::block::Batch::new();
                    for (page, offset) in pages.chunks_mut(512).zip((512..).step_by(512)) {
                        batch.read(&file, page, offset);
                    }
                    batch.submit().into_iter().count()
                })
                .unwrap();
            s.spawn_local(dump).join().unwrap()
        });
        let WaitsFor::Operation { batch, offset, file, .. } = what(&seen, "batch") else {
            panic!("{seen}");
        };
        assert_eq!((batch, offset), (Some((4, 4)), Some(512)), "{seen}");
        assert_eq!(file.as_deref(), path.to_str());
    });
}

#[test]
fn dump_shows_every_other_wait() {
    on_one_worker(|| {
        let (sender, receiver) = sync::mpsc::channel::<()>();
        let semaphore = sync::Semaphore::new(1);
        let shared = sync::RwLock::new(0);
        let (mutex, condvar) = (sync::Mutex::new(()), sync::Condvar::new());
        let held = semaphore.acquire();
        let reading = shared.read().unwrap();
        let again = shared.read().unwrap();
        let line = line!() + 1;
        let dump = fiber::scope(|s| {
            let sleeper = named("sleeper").spawn_scoped_local(s, || {
                fiber::sleep(Duration::from_secs(3600));
            });
            named("channel").spawn_scoped_local(s, move || receiver.recv()).unwrap();
            named("permit").spawn_scoped_local(s, || drop(semaphore.acquire())).unwrap();
            named("writer").spawn_scoped_local(s, || drop(shared.write())).unwrap();
            named("condvar")
                .spawn_scoped_local(s, || drop(condvar.wait(mutex.lock().unwrap())))
                .unwrap();
            let sleeper = sleeper.unwrap();
            named("joiner").spawn_scoped_local(s, || drop(sleeper.join())).unwrap();
            named("parent")
                .spawn_scoped_local(s, || {
                    fiber::scope(|s| {
                        named("child").spawn_scoped_local(s, fiber::park).unwrap();
                        s.spawn_local(fiber::park);
                    });
                })
                .unwrap();
            named("hurried")
                .spawn_scoped_local(s, || {
                    let _ = time::timeout(Duration::from_secs(1800), || {
                        fiber::park();
                        std::io::Result::Ok(())
                    });
                })
                .unwrap();
            settle();
            let dump = dump();
            // First end the fibers, so that a failed assertion does not hang.
            drop((held, reading, again, sender));
            s.cancel();
            dump
        });
        let FiberState::Waiting { timer: Some(timer), .. } = dump.fiber("sleeper").unwrap().state
        else {
            panic!("{dump}");
        };
        assert!(timer > Duration::from_secs(3000) && timer <= Duration::from_secs(3600));
        assert!(matches!(what(&dump, "sleeper"), WaitsFor::Timer));
        let WaitsFor::Other { what: text, address: Some(_), .. } = what(&dump, "channel") else {
            panic!("{dump}");
        };
        assert!(text.contains("channel"));
        assert!(matches!(what(&dump, "permit"), WaitsFor::Permits { free: 0, .. }));
        let WaitsFor::Lock { holder: Holder::Readers(2), .. } = what(&dump, "writer") else {
            panic!("{dump}");
        };
        let WaitsFor::Other { what: text, .. } = what(&dump, "condvar") else { panic!("{dump}") };
        assert!(text.contains("notification"));
        let WaitsFor::Join(joined) = what(&dump, "joiner") else { panic!("{dump}") };
        assert_eq!(joined.name.as_deref(), Some("sleeper"));
        assert!(matches!(what(&dump, "parent"), WaitsFor::Scope(2)));
        let scope = dump.fiber("child").unwrap().scope.clone().unwrap();
        assert_eq!(scope.owner.unwrap().name.as_deref(), Some("parent"));
        assert!(scope.opened.file().ends_with("tests/reports/dump.rs"));
        let scope = dump.fiber("sleeper").unwrap().scope.clone().unwrap();
        assert_eq!(scope.owner.unwrap().name.as_deref(), Some("main"));
        assert_eq!(scope.opened.line(), line);
        let deadline = dump.fiber("hurried").unwrap().deadline.unwrap();
        assert!(deadline > Duration::from_secs(1000) && deadline <= Duration::from_secs(1800));
        let main = dump.fiber("main").unwrap();
        assert!(matches!(main.state, FiberState::Running));
        assert!(main.who.spawned.unwrap().file().ends_with("tests/reports/dump.rs"));
    });
}

#[test]
fn forgotten_lock_names_no_other_holder() {
    on_one_worker(|| {
        let mutex = sync::Mutex::new(());
        fiber::scope(|s| {
            s.spawn_local(|| std::mem::forget(mutex.lock().unwrap())).join().unwrap();
            // It may reuse the block and the stack of the fiber that has ended.
            named("innocent").spawn_scoped_local(s, fiber::park).unwrap();
            named("waiter").spawn_scoped_local(s, || drop(mutex.lock())).unwrap();
            settle();
            let dump = dump();
            let WaitsFor::Lock { holder, .. } = what(&dump, "waiter") else { panic!("{dump}") };
            assert!(matches!(holder, Holder::Unknown), "{holder:?}");
            s.cancel();
        });
        let held = sync::Mutex::new(());
        let (locked, done) = (AtomicBool::new(false), AtomicBool::new(false));
        std::thread::scope(|threads| {
            let (held, locked, done) = (&held, &locked, &done);
            threads.spawn(move || {
                let _held = held.lock().unwrap();
                locked.store(true, Ordering::Release);
                while !done.load(Ordering::Acquire) {
                    std::thread::yield_now();
                }
            });
            while !locked.load(Ordering::Acquire) {
                std::thread::yield_now();
            }
            fiber::scope(|s| {
                named("waiter").spawn_scoped_local(s, || drop(held.lock())).unwrap();
                settle();
                let WaitsFor::Lock { holder, .. } = what(&dump(), "waiter") else { panic!() };
                assert!(matches!(holder, Holder::Thread), "{holder:?}");
                done.store(true, Ordering::Release);
            });
        });
    });
}

#[inline(never)]
fn a_function_that_parks(done: &AtomicUsize) {
    fiber::park();
    done.fetch_add(1, Ordering::Relaxed);
}

#[test]
fn backtraces_leave_fibers_suspended() {
    Builder::new()
        .workers(2)
        .run(|| {
            let done = Arc::new(AtomicUsize::new(0));
            let fibers: Vec<_> = (0..20)
                .map(|n| {
                    let done = Arc::clone(&done);
                    let place = fiber::Builder::new().name(format!("fiber {n}")).worker(n % 2);
                    place.spawn(move || a_function_that_parks(&done)).unwrap()
                })
                .collect();
            // This one has too little stack for a backtrace.
            let small = named("small").stack_size(16 << 10).spawn_local(fiber::park).unwrap();
            let waits = |dump: &Dump| {
                let parked = |fiber: &&FiberReport| {
                    matches!(fiber.state, FiberState::Waiting { for_what: WaitsFor::Unpark, .. })
                };
                dump.fibers.iter().filter(parked).count()
            };
            while waits(&dump()) < 21 {
                fiber::yield_now();
            }
            for _ in 0..3 {
                let dump = runtime::dump_with_backtraces().unwrap();
                assert_eq!(waits(&dump), 21);
                for n in 0..20 {
                    let fiber = dump.fiber(&format!("fiber {n}")).unwrap();
                    let text = fiber.backtrace.as_ref().unwrap().to_string();
                    assert!(text.contains("a_function_that_parks"), "{text}");
                }
                assert!(dump.fiber("small").unwrap().backtrace.is_none());
                let own = dump.fiber("main").unwrap().backtrace.as_ref().unwrap().to_string();
                assert!(own.contains("dump_with_backtraces"), "{own}");
            }
            assert_eq!(done.load(Ordering::Relaxed), 0, "a backtrace resumed a fiber");
            for fiber in fibers {
                fiber.thread().unpark();
                fiber.join().unwrap();
            }
            small.thread().unpark();
            small.join().unwrap();
            assert_eq!(done.load(Ordering::Relaxed), 20);
        })
        .unwrap();
}

/// A fiber that has not run yet must not begin because of a backtrace.
#[test]
fn backtrace_does_not_start_fiber() {
    on_one_worker(|| {
        // So that blocks and stacks of ended fibers are reused.
        (0..10).for_each(|_| fiber::spawn_local(fiber::yield_now).join().unwrap());
        let begun = std::rc::Rc::new(std::cell::Cell::new(0));
        let handles: Vec<_> = (0..10)
            .map(|_| {
                let begun = std::rc::Rc::clone(&begun);
                fiber::spawn_local(move || begun.set(begun.get() + 1))
            })
            .collect();
        let dump = runtime::dump_with_backtraces().unwrap();
        assert_eq!(begun.get(), 0);
        let ready = dump.fibers.iter().filter(|fiber| matches!(fiber.state, FiberState::Ready));
        assert_eq!(ready.count(), 10);
        handles.into_iter().for_each(|handle| handle.join().unwrap());
        assert_eq!(begun.get(), 10);
    });
}

#[inline(never)]
fn a_function_that_yields(rounds: &std::cell::Cell<u32>) {
    fiber::yield_now();
    rounds.set(rounds.get() + 1);
}

/// Fibers that have yielded or were woken, and have not run again.
#[test]
fn backtraces_keep_order_of_ready_fibers() {
    on_one_worker(|| {
        let rounds = std::rc::Rc::new(std::cell::Cell::new(0));
        let theirs = std::rc::Rc::clone(&rounds);
        let yields = named("yields").spawn_local(move || a_function_that_yields(&theirs)).unwrap();
        let done = Arc::new(AtomicUsize::new(0));
        let counts = Arc::clone(&done);
        let woken = named("woken").spawn_local(move || a_function_that_parks(&counts)).unwrap();
        fiber::yield_now();
        woken.thread().unpark();
        for _ in 0..3 {
            let dump = runtime::dump_with_backtraces().unwrap();
            for (name, function) in
                [("yields", "a_function_that_yields"), ("woken", "a_function_that_parks")]
            {
                let fiber = dump.fiber(name).unwrap();
                assert!(matches!(fiber.state, FiberState::Ready), "{dump}");
                let text = fiber.backtrace.as_ref().unwrap().to_string();
                assert!(text.contains(function), "{text}");
            }
        }
        assert_eq!(
            (rounds.get(), done.load(Ordering::Relaxed)),
            (0, 0),
            "a backtrace resumed a fiber"
        );
        yields.join().unwrap();
        woken.join().unwrap();
        assert_eq!((rounds.get(), done.load(Ordering::Relaxed)), (1, 1));
    });
}

/// Fibers of two workers exchange messages while dumps are made.
#[test]
fn dump_is_complete_while_fibers_run() {
    const PAIRS: usize = 400;
    Builder::new()
        .workers(2)
        .run(|| {
            let rounds = Arc::new(AtomicUsize::new(0));
            let stop = Arc::new(AtomicBool::new(false));
            let mut fibers = Vec::new();
            for n in 0..PAIRS {
                let (there, from_there) = sync::mpsc::channel();
                let (back, from_back) = sync::mpsc::channel();
                let (rounds, stop) = (Arc::clone(&rounds), Arc::clone(&stop));
                let echo = named(&format!("echo {n}")).worker(0).spawn(move || {
                    while let Ok(value) = from_there.recv() {
                        if back.send(value).is_err() {
                            break;
                        }
                    }
                });
                let requester = named(&format!("requester {n}")).worker(1).spawn(move || {
                    while !stop.load(Ordering::Relaxed) {
                        there.send(n).unwrap();
                        assert_eq!(from_back.recv().unwrap(), n);
                        rounds.fetch_add(1, Ordering::Relaxed);
                    }
                });
                fibers.extend([echo.unwrap(), requester.unwrap()]);
            }
            while rounds.load(Ordering::Relaxed) < 2 * PAIRS {
                fiber::yield_now();
            }
            for _ in 0..20 {
                let before = rounds.load(Ordering::Relaxed);
                let dump = runtime::dump().unwrap();
                assert!(dump.silent.is_empty(), "{:?}", dump.silent);
                let mut names: Vec<_> =
                    dump.fibers.iter().filter_map(|fiber| fiber.who.name.clone()).collect();
                names.sort_unstable();
                names.dedup();
                assert_eq!((names.len(), dump.fibers.len()), (2 * PAIRS + 1, 2 * PAIRS + 1));
                while rounds.load(Ordering::Relaxed) == before {
                    fiber::yield_now();
                }
            }
            stop.store(true, Ordering::Relaxed);
            fibers.into_iter().for_each(|fiber| fiber.join().unwrap());
        })
        .unwrap();
}

/// Fibers of all workers and threads make dumps at once.
#[test]
fn concurrent_dumps_are_complete() {
    Builder::new()
        .workers(2)
        .run(|| {
            fiber::scope(|s| {
                for n in 0..16 {
                    fiber::Builder::new()
                        .worker(n % 2)
                        .spawn_scoped(s, || {
                            for _ in 0..5 {
                                let seen = runtime::dump().unwrap();
                                assert!(seen.silent.is_empty() && seen.fiber("main").is_some());
                            }
                        })
                        .unwrap();
                }
                s.spawn(|| fiber::unblock(|| assert!(!runtime::dump_all().is_empty())));
            });
        })
        .unwrap();
}
