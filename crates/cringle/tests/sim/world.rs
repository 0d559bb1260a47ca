//! The simulation: the same library in virtual time, over files in memory, with faults; the same
//! seed gives the same run.

use cringle::block::{Batch, FixedBufs, FixedFile};
use cringle::fs::{File, OpenOptions};
use cringle::io::Interest;
use cringle::os::unix::net::{SocketAddr, UnixDatagram, UnixListener, UnixStream};
use cringle::sim::{self, Checker, Fault, Faults, Options, Stats, World};
use cringle::{fiber, runtime, time};
use cringle_testing::child;
use std::cell::{Cell, RefCell};
use std::io::{self, ErrorKind, Read, Seek, SeekFrom, Write};
use std::os::fd::OwnedFd;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::fs::{FileExt, OpenOptionsExt as _};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, SystemTime};

/// Fibers that sleep, write, read, sync and communicate.
fn busy() -> u64 {
    let file = OpenOptions::new().read(true).write(true).create(true).open("/busy").unwrap();
    let (mut near, mut far) = sim::stream_pair().unwrap();
    fiber::scope(|s| {
        for n in 0..8u64 {
            let file = &file;
            s.spawn_local(move || {
                fiber::sleep(Duration::from_micros(n * 50));
                let bytes = [n as u8; 700];
                file.write_all_at(&bytes, n * 700).unwrap();
                file.sync_data().unwrap();
                let mut read = [0; 700];
                file.read_exact_at(&mut read, n * 700).unwrap();
                assert_eq!(read, bytes);
            });
        }
        s.spawn_local(|| near.write_all(&[7; 3000]).unwrap());
        s.spawn_local(|| far.read_exact(&mut [0; 3000]).unwrap());
    });
    file.metadata().unwrap().len()
}

/// The waits of a program, each on its own fiber.
#[test]
fn dump_in_a_simulation_uses_virtual_time() {
    let dump_and_stats = |seed| {
        let run = sim::run(seed, &Options::new(), || {
            fiber::scope(|s| {
                let named = |name: &str| fiber::Builder::new().name(name.into());
                named("parked").spawn_scoped_local(s, fiber::park).unwrap();
                let sleep = || fiber::sleep(Duration::from_secs(1));
                named("asleep").spawn_scoped_local(s, sleep).unwrap();
                fiber::sleep(Duration::from_millis(250));
                let dump_and_stats =
                    [runtime::dump().unwrap().to_string(), runtime::stats().unwrap().to_string()];
                s.cancel();
                dump_and_stats
            })
        });
        run.unwrap().value
    };
    let [dump, stats] = dump_and_stats(1);
    assert_eq!([dump.clone(), stats], dump_and_stats(1));
    for text in ["'parked'  worker 0, waits for 250 ms", "an unpark", "a timer, in 750 ms"] {
        assert!(dump.contains(text), "{text}: {dump}");
    }
}

fn stats_of(seed: u64) -> Stats {
    let options = Options::new().faults(Faults::hidden());
    let report = sim::run(seed, &options, busy).unwrap();
    assert_eq!(report.value, 5600);
    report.stats
}

#[test]
fn same_seed_gives_the_same_run() {
    for seed in 0..50 {
        let stats = stats_of(seed);
        assert_eq!(stats, stats_of(seed));
        assert_ne!(stats.trace, stats_of(seed + 1000).trace);
    }
}

#[test]
fn virtual_time_stands_still_while_fibers_run() {
    let report = sim::run(1, &Options::new(), || {
        let before = time::now();
        fiber::sleep(Duration::from_secs(86_400));
        fiber::park_timeout(Duration::from_secs(3600));
        let after = time::now();
        assert_eq!(after, time::now());
        after - before
    })
    .unwrap();
    let (least, most) = (Duration::from_secs(90_000), Duration::from_secs(90_001));
    assert!(report.value >= least && report.value < most, "{:?}", report.value);
    assert!(report.elapsed >= least);
}

#[test]
fn spinning_fiber_sees_time_pass() {
    sim::run(1, &Options::new(), || {
        let done = Cell::new(false);
        fiber::scope(|s| {
            s.spawn_local(|| {
                File::create("/a").unwrap().sync_all().unwrap();
                done.set(true);
            });
            while !done.get() {
                fiber::yield_now();
            }
        });
    })
    .unwrap();
}

#[test]
fn simulated_file_behaves_as_a_file() {
    let mut world = World::new(5, &Options::new().faults(Faults::hidden()));
    world.write("/given", b"from outside").unwrap();
    world
        .run(|| {
            assert_eq!(File::open("/etc/passwd").unwrap_err().kind(), io::ErrorKind::NotFound);
            assert_eq!(File::create_new("given").unwrap_err().kind(), io::ErrorKind::AlreadyExists);
            let mut text = String::new();
            File::open("./x/..//given")?.read_to_string(&mut text)?;
            assert_eq!(text, "from outside");

            let mut log = OpenOptions::new().read(true).append(true).create(true).open("/log")?;
            log.write_all(b"one ")?;
            log.write_all(b"two")?;
            let mut again = log.try_clone()?;
            log.seek(SeekFrom::Start(4))?;
            text.clear();
            again.read_to_string(&mut text)?;
            assert_eq!(text, "two");
            log.set_len(3)?;
            let metadata = log.metadata()?;
            assert_eq!((metadata.len(), metadata.is_file()), (3, true));
            // The times of files are virtual.
            assert!(
                metadata.modified()? < SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_001_000)
            );
            assert!(log.write_at(b"x", u64::MAX).is_err());
            // A world has no links to refuse.
            OpenOptions::new().read(true).custom_flags(libc::O_NOFOLLOW).open("/log")?;
            again.close()
        })
        .unwrap()
        .unwrap();
    assert_eq!(world.read("/log").unwrap(), b"one");
    assert_eq!(world.paths(), ["/given", "/log"].map(std::path::PathBuf::from));
    assert!(world.remove("/log") && !world.remove("/log"));
    assert_eq!(world.read("/log"), None);
}

/// Each sync copies the bytes of a file, and could not copy those of a large hole.
#[test]
fn simulated_file_has_a_largest_size() {
    sim::run(1, &Options::new(), || {
        let file = File::create("/log").unwrap();
        file.write_all_at(b"rope", 0).unwrap();
        let is_refused = |result: io::Result<()>| {
            let error = result.unwrap_err();
            assert_eq!(error.raw_os_error(), Some(libc::EFBIG), "{error}");
            file.sync_all().unwrap();
        };
        is_refused(file.set_len(i64::MAX as u64));
        is_refused(file.set_len((1 << 30) + 1));
        is_refused(file.write_all_at(b"strand", 1 << 40));
        is_refused(file.write_vectored_at(&[io::IoSlice::new(b"strand")], 1 << 40).map(drop));
        is_refused(file.allocate(1 << 40, 1 << 20));
        (&file).seek(SeekFrom::Start(1 << 40)).unwrap();
        is_refused((&file).write_all(b"strand"));
        let mut batch = Batch::new();
        batch.write_all(&file, b"strand", 1 << 40);
        is_refused(batch.submit().into_iter().try_for_each(|written| written.map(drop)));
        file.set_len(1 << 20).unwrap();
        file.sync_all().unwrap();
        assert_eq!(file.metadata().unwrap().len(), 1 << 20);
    })
    .unwrap();
}

#[test]
fn removing_a_simulated_tree_fails_as_its_listing() {
    sim::run(1, &Options::new(), || {
        cringle::fs::create_dir("/dir").unwrap();
        let errno = |result: io::Result<()>| result.unwrap_err().raw_os_error();
        assert_eq!(errno(cringle::fs::remove_dir_all("/dir")), Some(libc::ENOSYS));
        assert_eq!(
            errno(
                cringle::fs::read_dir("/dir")
                    .and_then(|mut all| { all.next().transpose().map(drop) })
            ),
            Some(libc::ENOSYS)
        );
        assert_eq!(errno(cringle::fs::remove_dir_all("/none")), Some(libc::ENOENT));
    })
    .unwrap();
}

#[test]
fn loops_over_short_counts_survive_hidden_faults() {
    for seed in 0..100 {
        let report = sim::run(seed, &Options::new().faults(Faults::hidden()), busy).unwrap();
        assert_eq!(report.value, 5600);
    }
}

#[test]
fn faults_are_returned_as_errors() {
    let kinds = RefCell::new(Vec::new());
    for seed in 0..300 {
        sim::run(seed, &Options::new().faults(Faults::all()), || {
            let Ok(file) = File::create("/a") else { return };
            for _ in 0..8 {
                let written = file.write_at(b"12345678", 0);
                let _ = written.map_err(|e| kinds.borrow_mut().push(e.raw_os_error().unwrap_or(0)));
            }
        })
        .unwrap();
    }
    for errno in [libc::EINTR, libc::EIO, libc::ENOSPC] {
        assert!(kinds.borrow().contains(&errno), "{errno}");
    }
    // The library handles these faults, so the program does not see them.
    assert!(!kinds.borrow().contains(&libc::ECANCELED) && !kinds.borrow().contains(&libc::EAGAIN));
}

#[test]
fn operations_complete_in_order_unless_reordered() {
    let order = |faults| {
        let ended = RefCell::new(Vec::new());
        sim::run(4, &Options::new().faults(faults), || {
            // One for each fiber: those that sync the same file share a sync.
            let files = [(); 20].map(|()| File::create("/a").unwrap());
            fiber::scope(|s| {
                for (n, file) in files.iter().enumerate() {
                    let ended = &ended;
                    s.spawn_local(move || {
                        file.sync_all().unwrap();
                        ended.borrow_mut().push(n);
                    });
                }
            });
        })
        .unwrap();
        ended.into_inner()
    };
    assert!(order(Faults::none()).is_sorted());
    assert!(!order(Faults::none().with(Fault::Reorder)).is_sorted());
}

#[test]
fn synced_data_survives_and_other_data_may_tear() {
    let (mut lost, mut kept, mut torn, mut gone) = (0, 0, 0, 0);
    for seed in 0..200 {
        let mut world = World::new(seed, &Options::new());
        world
            .run(|| {
                let file = File::create("/data")?;
                file.write_all_at(&[1; 4096], 0)?;
                file.sync_all()?;
                file.write_all_at(&[2; 8192], 0)?;
                File::create("/never-synced")?.write_all(b"x")
            })
            .unwrap()
            .unwrap();
        world.crash();
        let data = world.read("/data").expect("it was synced");
        for block in data[..4096].chunks(512) {
            assert!(block == [1; 512] || block == [2; 512], "a block is never torn");
        }
        match (data[..4096].contains(&1), data[..4096].contains(&2)) {
            (true, true) => torn += 1,
            (true, false) => lost += 1,
            _ => kept += 1,
        }
        gone += i32::from(world.read("/never-synced").is_none());
    }
    assert!(lost > 0 && kept > 0 && torn > 0 && gone > 0 && gone < 200);
}

#[test]
fn loss_of_power_ends_the_run() {
    let mut cut = 0;
    for seed in 0..100 {
        let acknowledged = Cell::new(0);
        let mut world = World::new(seed, &Options::new());
        let value = world
            .run_until_power_loss(|| {
                let log = File::create("/log").unwrap();
                for n in 0..200u64 {
                    let done =
                        log.write_all_at(&n.to_le_bytes(), n * 8).and_then(|()| log.sync_data());
                    if done.is_err() {
                        return;
                    }
                    acknowledged.set(n + 1);
                }
            })
            .unwrap();
        cut += i32::from(value.is_none());
        let log = world.read("/log").unwrap_or_default();
        for n in 0..acknowledged.get() {
            assert_eq!(log[n as usize * 8..][..8], n.to_le_bytes());
        }
        // The machine restarts.
        world.run(|| File::create("/after").unwrap().sync_all().unwrap()).unwrap();
    }
    assert!(cut > 10 && cut < 100, "{cut}");
}

/// Fibers write at places of their own, and share syncs.
#[test]
fn shared_syncs_keep_what_they_acknowledge() {
    const WRITERS: usize = 16;
    let mut cut = 0;
    for seed in 0..200 {
        let acknowledged = [const { Cell::new(0) }; WRITERS];
        let mut world = World::new(seed, &Options::new());
        let value = world
            .run_until_power_loss(|| {
                let log = File::create("/log").unwrap();
                let (log, acknowledged) = (&log, &acknowledged);
                fiber::scope(|s| {
                    for writer in 0..WRITERS as u64 {
                        s.spawn_local(move || {
                            for n in 1..=20u64 {
                                let done = log
                                    .write_all_at(
                                        &n.to_le_bytes(),
                                        (n * WRITERS as u64 + writer) * 8,
                                    )
                                    .and_then(|()| log.sync_data());
                                if done.is_err() {
                                    return;
                                }
                                acknowledged[writer as usize].set(n);
                            }
                        });
                    }
                });
            })
            .unwrap();
        cut += i32::from(value.is_none());
        let log = world.read("/log").unwrap_or_default();
        for (writer, acknowledged) in acknowledged.iter().enumerate() {
            for n in 1..=acknowledged.get() {
                let at = (n as usize * WRITERS + writer) * 8;
                assert_eq!(log[at..][..8], n.to_le_bytes(), "seed {seed}, writer {writer}");
            }
        }
    }
    assert!(cut > 20, "the power was lost in {cut} of 200 runs");
}

/// The kernel would report the loss once only.
#[test]
fn failed_sync_fails_for_good() {
    let mut failed = 0;
    for seed in 0..100 {
        let options = Options::new().faults(Faults::none().with(Fault::InputOutput));
        World::new(seed, &options)
            .run(|| {
                let Ok(log) = File::create("/log") else { return };
                let Ok(clone) = log.try_clone() else { return };
                let first = (0..20).map(|_| log.sync_data()).find_map(Result::err);
                let Some(first) = first else { return };
                failed += 1;
                assert_eq!(first.raw_os_error(), Some(libc::EIO));
                for again in [log.sync_data(), clone.sync_all(), log.sync_all()] {
                    let again = again.unwrap_err();
                    assert_eq!(again.kind(), first.kind());
                    assert!(again.to_string().contains("an earlier sync"), "{again}");
                }
            })
            .unwrap();
    }
    assert!(failed > 50, "a sync failed in {failed} of 100 runs");
}

#[test]
fn sync_of_a_directory_keeps_names() {
    let kept = |seed, syncs: bool| {
        let mut world = World::new(seed, &Options::new());
        let written = world.run(|| -> io::Result<()> {
            cringle::fs::create_dir("/logs")?;
            File::create("/logs/one")?.write_all(b"text")?;
            if syncs {
                File::open("/logs")?.sync_all()?;
            }
            Ok(())
        });
        written.unwrap().unwrap();
        world.crash();
        world.read("/logs/one").is_some()
    };
    assert!((0..50).all(|seed| kept(seed, true)));
    assert!((0..50).any(|seed| !kept(seed, false)));
}

#[test]
fn directories_are_opened_and_examined() {
    let run = || {
        cringle::fs::write("/a/b/file", "text")?;
        for path in ["/", ".", "/a", "/a/b", "/a/b/.."] {
            assert!(cringle::fs::metadata(path)?.is_dir(), "{path}");
            let directory = File::open(path)?;
            assert!(directory.metadata()?.is_dir(), "{path}");
            let error = (&directory).read(&mut [0]).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::IsADirectory, "{path}");
        }
        let kind = |result: io::Result<File>| result.unwrap_err().kind();
        assert_eq!(kind(File::open("/a/c")), ErrorKind::NotFound);
        assert_eq!(kind(File::create("/a")), ErrorKind::IsADirectory);
        let exists = cringle::fs::create_dir("/a/b/file").unwrap_err();
        assert_eq!(exists.kind(), ErrorKind::AlreadyExists);
        let listed = cringle::fs::read_dir("/a")?.next().unwrap();
        assert_eq!(listed.unwrap_err().raw_os_error(), Some(libc::ENOSYS));
        io::Result::Ok(())
    };
    let mut world = World::new(1, &Options::new());
    world.run(run).unwrap().unwrap();
    assert_eq!(world.paths(), [std::path::Path::new("/a/b/file")]);
}

#[test]
fn pipes_and_readiness_wait_in_virtual_time() {
    for seed in 0..50 {
        sim::run(seed, &Options::new().faults(Faults::hidden()), || {
            let (reader, writer) = io::pipe().unwrap();
            let (mut reader, writer) = (File::from(OwnedFd::from(reader)), OwnedFd::from(writer));
            let mut writer = File::from(writer);
            let before = time::now();
            let late = fiber::spawn_local(move || {
                fiber::sleep(Duration::from_secs(60));
                // More than the capacity of a pipe.
                writer.write_all(&vec![7; 300_000]).unwrap();
            });
            assert!(cringle::io::ready(&reader, Interest::READABLE).unwrap().is_readable());
            assert!(time::now() - before >= Duration::from_secs(60));
            let mut read = Vec::new();
            reader.read_to_end(&mut read).unwrap();
            assert_eq!(read.len(), 300_000);
            late.join().unwrap();
        })
        .unwrap();
    }
}

/// Connected sockets: more data than the buffers hold, and a timeout in virtual time.
#[test]
fn sockets_wait_in_virtual_time() {
    const LEN: usize = 1 << 20;
    for seed in 0..20 {
        sim::run(seed, &Options::new().faults(Faults::hidden()), || {
            let (ours, theirs) = UnixStream::pair().unwrap();
            fiber::scope(|s| {
                s.spawn_local(|| {
                    fiber::sleep(Duration::from_secs(60));
                    (&ours).write_all(&vec![7; LEN]).unwrap();
                    ours.shutdown(std::net::Shutdown::Write).unwrap();
                });
                let begin = time::now();
                let mut all = Vec::new();
                (&theirs).read_to_end(&mut all).unwrap();
                assert!(time::now() - begin >= Duration::from_secs(60));
                assert!(all == vec![7; LEN]);
            });
            ours.set_read_timeout(Some(Duration::from_secs(3600))).unwrap();
            let error = (&ours).read_exact(&mut [0]).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::WouldBlock);
        })
        .unwrap();
    }
}

#[test]
fn message_is_complete_or_absent() {
    for seed in 0..20 {
        sim::run(seed, &Options::new().faults(Faults::hidden()), || {
            let (ours, theirs) = UnixDatagram::pair().unwrap();
            let mut buf = [0; 16];
            for text in [&b"a rope of strands"[..16], b"knot", b""] {
                let patient = |mut call: Box<dyn FnMut() -> io::Result<usize> + '_>| loop {
                    match call() {
                        Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                        count => return count.unwrap(),
                    }
                };
                assert_eq!(patient(Box::new(|| ours.send(text))), text.len());
                assert_eq!(patient(Box::new(|| theirs.recv(&mut buf))), text.len());
                assert_eq!(&buf[..text.len()], text);
            }
        })
        .unwrap();
    }
}

#[test]
fn calls_that_need_threads_stay_or_fail() {
    sim::run(1, &Options::new(), || {
        assert_eq!(runtime::driver(), runtime::Driver::Simulation);
        assert_eq!(runtime::workers(), Some(1));
        let here = std::thread::current().id();
        assert_eq!(fiber::unblock(|| std::thread::current().id()), here);
        let refused = cringle::block::BlockIo::builder().build().unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::Unsupported);
        assert!(fiber::Builder::new().worker(1).spawn(|| ()).is_err());
    })
    .unwrap();
}

#[test]
fn remaining_fibers_are_cancelled_in_every_wait() {
    for seed in 0..200 {
        sim::run(seed, &Options::new().faults(Faults::hidden()), || {
            let (reader, writer) = sim::stream_pair().unwrap();
            let file = File::create("/a").unwrap();
            fiber::spawn_local(move || {
                let _open = writer;
                (&reader).read(&mut [0; 8])
            });
            fiber::spawn_local(move || while file.sync_all().is_ok() {});
            fiber::spawn_local(|| fiber::sleep(Duration::MAX));
            fiber::spawn_local(fiber::park);
            fiber::sleep(Duration::from_micros(seed * 10));
        })
        .unwrap();
    }
}

#[test]
fn file_left_open_is_reported_with_the_seed() {
    let failure = sim::run(12, &Options::new(), || {
        std::mem::forget(File::create("/a").unwrap());
    })
    .unwrap_err();
    assert_eq!((failure.seed, failure.checker), (12, Checker::Descriptors));
    assert!(failure.to_string().contains("seed 12"));
}

#[test]
fn close_dropped_by_the_kernel_is_repeated() {
    for seed in 0..200 {
        sim::run(seed, &Options::new().faults(Faults::none().with(Fault::SpuriousCancel)), || {
            for _ in 0..8 {
                File::create("/a").unwrap().close().unwrap();
            }
        })
        .unwrap();
    }
}

#[test]
fn eagain_of_a_registered_file_is_handled() {
    for seed in 0..100 {
        sim::run(seed, &Options::new().faults(Faults::none().with(Fault::WouldBlock)), || {
            let file = OpenOptions::new().read(true).write(true).create(true).open("/a").unwrap();
            let (file, mut bufs) =
                (FixedFile::register(&file).unwrap(), FixedBufs::new(2, 4).unwrap());
            for round in 0..20 {
                bufs[0].copy_from_slice(&[round; 4]);
                let mut batch = Batch::new();
                batch.write_fixed(&file, &bufs[0], 4);
                assert_eq!(batch.submit().into_iter().next().unwrap().unwrap(), 4);
                let mut batch = Batch::new();
                batch.read_fixed(&file, &mut bufs[1], 4);
                assert_eq!(batch.submit().into_iter().next().unwrap().unwrap(), 4);
                assert_eq!(bufs[1][..], [round; 4]);
            }
        })
        .unwrap();
    }
}

#[test]
fn each_prints_how_to_replay_a_seed() {
    let caught = std::panic::catch_unwind(|| {
        sim::each(0..10, |seed| {
            sim::run(seed, &Options::new(), || assert_ne!(seed, 7, "seven"))?;
            Ok(())
        });
    });
    let payload = caught.unwrap_err();
    let text = payload.downcast_ref::<String>().unwrap();
    assert!(text.contains("CRINGLE_SIM_SEED=7") && text.contains("seven"), "{text}");
}

#[test]
fn each_names_the_seed_of_a_panic() {
    let Some(output) = child::run("each_names_the_seed_of_a_panic") else {
        sim::each(0..10, |seed| {
            assert_ne!(seed, 7, "outside of a run");
            Ok(())
        });
        return;
    };
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(text.contains("CRINGLE_SIM_SEED=7 cargo test"), "{text}");
}

/// A zero-copy send uses its buffer for longer than the send itself, whatever faults occur.
#[test]
fn zero_copy_send_waits_for_its_buffer() {
    let options = Options::new().faults(Faults::hidden()).swarm(true);
    for seed in 0..300 {
        let report = sim::run(seed, &options, || {
            let (ours, mut theirs) = UnixStream::pair().unwrap();
            fiber::scope(|s| {
                s.spawn_local(|| {
                    let ours = ours;
                    let mut sent = 0;
                    while sent < 5000 {
                        let mut buf = vec![7; 5000 - sent];
                        sent += ours.send_zc(&buf).unwrap();
                        buf.fill(8);
                    }
                });
                let mut all = Vec::new();
                theirs.read_to_end(&mut all).unwrap();
                assert_eq!(all, [7; 5000]);
            });
            // A send that is cancelled while the kernel has its buffer.
            let (ours, _theirs) = UnixStream::pair().unwrap();
            fiber::scope(|s| {
                s.spawn_local(|| ours.send_zc(&[7; 100]).map(drop));
                fiber::yield_now();
                s.cancel();
            });
        });
        report.unwrap_or_else(|failure| panic!("{failure}"));
    }
}

/// Answers each client on its own fiber, and returns the numbers of words received and of resets.
fn serve_words(clients: usize) -> (usize, usize) {
    static NAMES: AtomicU32 = AtomicU32::new(0);
    let number = NAMES.fetch_add(1, Ordering::Relaxed);
    let name = format!("cringle-sim-{}-{number}", std::process::id());
    let addr = SocketAddr::from_abstract_name(name).unwrap();
    let listener = UnixListener::bind_addr(&addr).unwrap();
    let received = Cell::new(0);
    let answers = fiber::scope(|s| {
        s.spawn_daemon_local(|| {
            fiber::scope(|connections| {
                while let Ok((mut stream, _)) = listener.accept() {
                    connections.spawn_local(move || {
                        let mut word = [0; 100];
                        stream.read_exact(&mut word)?;
                        stream.write_all(&word)
                    });
                }
            });
        });
        let request = |n: usize| {
            let mut stream = UnixStream::connect_addr(&addr)?;
            stream.write_all(&[n as u8; 100])?;
            let mut word = [0; 100];
            stream.read_exact(&mut word)?;
            assert_eq!(word, [n as u8; 100]);
            received.set(received.get() + 1);
            io::Result::Ok(())
        };
        let requests: Vec<_> = (0..clients).map(|n| s.spawn_local(move || request(n))).collect();
        requests.into_iter().map(|request| request.join().unwrap()).collect::<Vec<_>>()
    });
    let errors: Vec<_> = answers.into_iter().filter_map(Result::err).collect();
    for error in &errors {
        let cuts = [ErrorKind::ConnectionReset, ErrorKind::BrokenPipe, ErrorKind::UnexpectedEof];
        assert!(cuts.contains(&error.kind()), "{error}");
    }
    (received.get(), errors.len())
}

#[test]
fn server_and_clients_are_simulated() {
    let options = Options::new().faults(Faults::hidden().with(Fault::Interrupted)).swarm(true);
    for seed in 0..100 {
        let report = sim::run(seed, &options, || serve_words(7)).unwrap();
        assert_eq!(report.value, (7, 0), "seed {seed}");
        // The seed determines the time of each connection.
        let again = sim::run(seed, &options, || serve_words(7)).unwrap();
        assert_eq!(report.stats, again.stats, "seed {seed}");
    }
}

#[test]
fn simulated_server_survives_reset_connections() {
    let options = Options::new().faults(Faults::hidden().with(Fault::ConnectionReset));
    let (mut received, mut cut) = (0, 0);
    for seed in 0..100 {
        let report = sim::run(seed, &options, || serve_words(7)).unwrap();
        assert_eq!(report.value.0 + report.value.1, 7);
        received += report.value.0;
        cut += report.value.1;
    }
    assert!(received > 0 && cut > 0, "{received} answered and {cut} reset");
}
