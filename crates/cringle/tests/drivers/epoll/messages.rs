//! Registered files, and messages with control data.

use super::*;

/// The offset of a registered file without offsets is ignored, as on a ring.
#[test]
fn registered_pipe_is_read_and_written_at_any_offset() {
    for driver in [DriverChoice::Auto, DriverChoice::Epoll] {
        let run = Builder::new().workers(1).driver(driver).run(|| {
            let (reader, writer) = io::pipe().unwrap();
            let [reader, writer] = [OwnedFd::from(reader), OwnedFd::from(writer)]
                .map(|end| FixedFile::register(&File::from(end)).unwrap());
            let mut bufs = FixedBufs::new(2, 8).unwrap();
            bufs[0].copy_from_slice(b"eight by");
            let [out, back] = &mut bufs[..] else { unreachable!() };
            // The read is first, and waits for the write.
            let mut batch = Batch::new();
            let read = batch.read_fixed(&reader, back, 4096);
            let write = batch.write_fixed(&writer, out, 512);
            let results = batch.submit();
            assert_eq!(
                (results.get(read).ok(), results.get(write).ok()),
                (Some(8), Some(8)),
                "{driver:?} {results:?}"
            );
            assert_eq!(bufs[1][..], *b"eight by");
        });
        run.unwrap();
    }
}

#[test]
fn slots_of_files_and_buffers_are_reused() {
    on_epoll(1, || {
        let file = File::open("/proc/self/exe").unwrap();
        for _ in 0..5000 {
            drop((FixedFile::register(&file).unwrap(), FixedBufs::new(1, 8).unwrap()));
        }
    });
}

#[test]
fn dump_names_the_registered_file_that_is_read() {
    use cringle::runtime::{self, FiberState, WaitsFor};
    for driver in [DriverChoice::Auto, DriverChoice::Epoll] {
        let path = std::env::current_exe().unwrap();
        let run = Builder::new().workers(1).driver(driver).run(|| {
            let file = FixedFile::register(&File::open(&path).unwrap()).unwrap();
            let mut bufs = FixedBufs::new(1, 8).unwrap();
            fiber::scope(|s| {
                let reader = fiber::Builder::new().name("reader".into());
                let reads = reader.spawn_scoped_local(s, || {
                    let mut batch = Batch::new();
                    let read = batch.read_fixed(&file, &mut bufs[0], 4);
                    batch.submit().get(read).unwrap()
                });
                // It was suspended in this turn: nothing is submitted yet.
                let dump = s.spawn_local(|| runtime::dump().unwrap()).join().unwrap();
                let FiberState::Waiting { for_what, .. } = &dump.fiber("reader").unwrap().state
                else {
                    panic!("{dump}");
                };
                let WaitsFor::Operation { file: Some(name), .. } = for_what else {
                    panic!("{dump}")
                };
                assert_eq!(name.as_str(), path.to_str().unwrap(), "{driver:?}");
                assert_eq!(reads.unwrap().join().unwrap(), 8);
            });
        });
        run.unwrap();
    }
}

#[test]
fn cancelled_sender_to_a_full_receiver_leaves_the_others_waiting() {
    on_epoll(1, || {
        let addr = abstract_addr("cancelled-datagrams");
        let receiver = UnixDatagram::bind_addr(&addr).unwrap();
        let mut sent = 0;
        let full = UnixDatagram::unbound().unwrap();
        full.set_nonblocking(true).unwrap();
        while full.send_to_addr(&[0], &addr).is_ok() {
            sent += 1;
        }
        let senders: Vec<_> = (0..3).map(|_| UnixDatagram::unbound().unwrap()).collect();
        let send = |sender: &UnixDatagram| sender.send_to_addr(&[1], &addr);
        fiber::scope(|s| {
            let first = s.spawn_local(|| send(&senders[0]));
            let cancelled = s.spawn_local(|| {
                time::timeout(Duration::from_millis(20), || send(&senders[1])).unwrap_err()
            });
            let last = s.spawn_local(|| send(&senders[2]));
            fiber::sleep(Duration::from_millis(5));
            assert_eq!(cancelled.join().unwrap().kind(), ErrorKind::TimedOut);
            for _ in 0..sent + 2 {
                assert_eq!(receiver.recv(&mut [0]).unwrap(), 1);
            }
            assert_eq!((first.join().unwrap().unwrap(), last.join().unwrap().unwrap()), (1, 1));
        });
    });
}

/// Control data of the first part is not lost by waiting for the rest.
#[test]
fn message_with_descriptors_is_not_waited_on_for_more() {
    for driver in [DriverChoice::Auto, DriverChoice::Epoll] {
        let run = Builder::new().workers(1).driver(driver).run(|| {
            let (ours, theirs) = UnixStream::pair().unwrap();
            let mut beside = SendAncillary::new();
            beside.fds(&[ours.as_fd()]).unwrap();
            ours.sendmsg(&[IoSlice::new(b"with")], &beside, MsgFlags::empty()).unwrap();
            ours.sendmsg(&[IoSlice::new(b"more")], &SendAncillary::new(), MsgFlags::empty())
                .unwrap();
            let (mut buf, mut room) = ([0; 8], RecvAncillary::for_fds(2));
            let slices = &mut [IoSliceMut::new(&mut buf)];
            let received = theirs.recvmsg(slices, &mut room, MsgFlags::WAITALL).unwrap();
            assert_eq!((received.len, room.messages().len()), (4, 1), "{driver:?}");
            let received = theirs.recvmsg(slices, &mut room, MsgFlags::empty()).unwrap();
            assert_eq!((received.len, &buf[..4]), (4, &b"more"[..]), "{driver:?}");
        });
        run.unwrap();
    }
}

/// Control data of a later part is left for the next call.
#[test]
fn receive_with_room_for_descriptors_returns_the_first_part() {
    for driver in [DriverChoice::Auto, DriverChoice::Epoll] {
        let run = Builder::new().workers(1).driver(driver).run(|| {
            let (ours, theirs) = UnixStream::pair().unwrap();
            let (mut buf, mut room) = ([0; 8], RecvAncillary::for_fds(2));
            (&ours).write_all(b"part").unwrap();
            let slices = &mut [IoSliceMut::new(&mut buf)];
            let received = theirs.recvmsg(slices, &mut room, MsgFlags::WAITALL).unwrap();
            assert_eq!((received.len, room.messages().len()), (4, 0), "{driver:?}");
            let mut beside = SendAncillary::new();
            beside.fds(&[ours.as_fd()]).unwrap();
            ours.sendmsg(&[IoSlice::new(b"rest")], &beside, MsgFlags::empty()).unwrap();
            let received = theirs.recvmsg(slices, &mut room, MsgFlags::WAITALL).unwrap();
            assert_eq!((received.len, room.messages().len()), (4, 1), "{driver:?}");
        });
        run.unwrap();
    }
}

/// Both fibers wait for the same event; a datagram is of no use to the one that waits for an error.
#[test]
fn fiber_that_waits_for_an_error_leaves_data_to_others() {
    for driver in [DriverChoice::Auto, DriverChoice::Epoll] {
        let run = Builder::new().workers(1).driver(driver).run(|| {
            let [ours, theirs] = [(); 2].map(|()| UdpSocket::bind("127.0.0.1:0").unwrap());
            fiber::scope(|s| {
                let errors = s.spawn_local(|| {
                    let mut room = RecvAncillary::with_capacity(64);
                    let received = ours.recvmsg(&mut [], &mut room, MsgFlags::ERRQUEUE);
                    cancel::reason(&received.err().unwrap())
                });
                let_others_wait();
                for round in 0..3 {
                    theirs.send_to(&[round], ours.local_addr().unwrap()).unwrap();
                    let mut byte = [9];
                    assert_eq!(ours.recv(&mut byte).unwrap(), 1);
                    assert_eq!(byte, [round], "{driver:?}");
                }
                assert!(!errors.is_finished(), "{driver:?}");
                s.cancel();
                let reason = fiber::protect(|| errors.join().unwrap());
                assert_eq!(reason, Some(cancel::Reason::Cancelled));
            });
        });
        run.unwrap();
    }
}

#[test]
fn message_larger_than_the_socket_is_moved_whole() {
    const PART: usize = 500_000;
    let text: Vec<u8> = (0..3 * PART as u32).map(|n| (n % 251) as u8).collect();
    for driver in [DriverChoice::Auto, DriverChoice::Epoll] {
        let run = Builder::new().workers(1).driver(driver).run(|| {
            let (ours, theirs) = UnixStream::pair().unwrap();
            let mut received = vec![0; text.len()];
            fiber::scope(|s| {
                let sends = s.spawn_local(|| {
                    let slices: Vec<_> = text.chunks(PART).map(IoSlice::new).collect();
                    ours.sendmsg(&slices, &SendAncillary::new(), MsgFlags::WAITALL).unwrap()
                });
                let mut slices: Vec<_> = received.chunks_mut(PART).map(IoSliceMut::new).collect();
                let mut room = RecvAncillary::with_capacity(0);
                let got = theirs.recvmsg(&mut slices, &mut room, MsgFlags::WAITALL).unwrap();
                assert_eq!((got.len, sends.join().unwrap()), (3 * PART, 3 * PART), "{driver:?}");
            });
            assert!(received == text, "{driver:?}");
        });
        run.unwrap();
    }
}
