//! Ops that wait for a peer do not count against the limit of ops in flight, so they delay no other
//! op.

use cringle::fs::File;
use cringle::{Builder, fiber};
use std::io::{self, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;

fn pipe() -> (File, File) {
    let (reader, writer) = io::pipe().unwrap();
    (OwnedFd::from(reader).into(), OwnedFd::from(writer).into())
}

#[test]
fn waiting_readers_do_not_block_writer() {
    for limit in [1, 2] {
        let builder = Builder::new().workers(1).in_flight_limit(limit);
        let text = builder.run(|| {
            let pipes: Vec<_> = (0..8).map(|_| pipe()).collect();
            fiber::scope(|s| {
                let readers: Vec<_> = pipes
                    .iter()
                    .map(|(reader, _)| {
                        s.spawn_local(move || {
                            let mut byte = [0];
                            (&*reader).read_exact(&mut byte).unwrap();
                            byte[0]
                        })
                    })
                    .collect();
                // All readers wait before the first byte is written.
                (0..4).for_each(|_| fiber::yield_now());
                for ((_, writer), byte) in pipes.iter().zip(b'a'..) {
                    (&*writer).write_all(&[byte]).unwrap();
                }
                readers.into_iter().map(|reader| reader.join().unwrap()).collect::<Vec<u8>>()
            })
        });
        assert_eq!(text.unwrap(), b"abcdefgh", "limit {limit}");
    }
}

#[test]
fn file_is_read_beside_ten_thousand_waiting_reads() {
    const READERS: usize = 10_000;
    const PIPES: usize = 200;
    let exe = File::open("/proc/self/exe").unwrap();
    let builder = Builder::new().workers(1).in_flight_limit(2);
    let woken = builder.run(|| {
        let pipes: Vec<_> = (0..PIPES).map(|_| pipe()).collect();
        fiber::scope(|s| {
            let readers: Vec<_> = (0..READERS)
                .map(|n| {
                    let reader = &pipes[n % PIPES].0;
                    s.spawn_local(move || (&*reader).read(&mut [0]).unwrap())
                })
                .collect();
            fiber::yield_now();
            let mut magic = [0; 4];
            exe.read_exact_at(&mut magic, 0).unwrap();
            assert_eq!(&magic, b"\x7fELF");
            assert!(readers.iter().all(|reader| !reader.is_finished()));
            for (_, writer) in &pipes {
                (&*writer).write_all(&[0; READERS / PIPES]).unwrap();
            }
            readers.into_iter().map(|reader| reader.join().unwrap()).sum::<usize>()
        })
    });
    assert_eq!(woken.unwrap(), READERS);
}
