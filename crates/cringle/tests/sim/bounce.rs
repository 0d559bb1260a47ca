//! Writes of parts of blocks in the simulation, with short transfers, errors and cancels, in many
//! orders.

use cringle::fiber;
use cringle::fs::{Direct, File};
use cringle::sim::{Fault, Faults, Options, World};
use cringle::time::timeout;
use std::os::unix::fs::FileExt;
use std::time::Duration;

const SEEDS: u64 = 300;
const WRITERS: usize = 12;
/// About four writers share a block of 4,096 bytes.
const STRIDE: usize = 1000;
/// A byte that no writer writes.
const OLD: u8 = 0xff;

/// Opens the file, until the simulation's faults let it.
fn open() -> File {
    let mut options = File::options();
    options.read(true).write(true).direct(Direct::Bounce);
    loop {
        match options.open("/index") {
            Ok(file) => return file,
            Err(e) => assert_eq!(e.raw_os_error(), Some(libc::EIO), "{e}"),
        }
    }
}

/// Writes until the simulation's faults are over.
fn write(file: &File, bytes: &[u8], offset: u64) {
    let mut done = 0;
    while done < bytes.len() {
        match file.write_at(&bytes[done..], offset + done as u64) {
            Ok(count) => done += count,
            // The read of a block that is kept may end early, too.
            Err(e) if e.kind() == std::io::ErrorKind::UnexpectedEof => {}
            Err(e) => assert_eq!(e.raw_os_error(), Some(libc::EIO), "{e}"),
        }
    }
}

fn world(seed: u64) -> World {
    let faults = Faults::none()
        .with(Fault::InputOutput)
        .with(Fault::ShortTransfer)
        .with(Fault::ZeroTransfer)
        .with(Fault::CancelRace);
    let latency = Duration::from_micros(1)..=Duration::from_micros(50);
    let options =
        Options::new().latency(latency).faults(faults).faults_for(Duration::from_millis(1));
    let mut world = World::new(seed, &options);
    world.write("/index", [OLD; 5000]).unwrap();
    world
}

#[test]
fn no_byte_of_a_neighbour_is_lost_and_none_comes_back() {
    for seed in 0..SEEDS {
        let mut world = world(seed);
        world
            .run(move || {
                let [left, right] = [open(), open()];
                fiber::scope(|s| {
                    for n in 0..WRITERS {
                        let file = if n % 2 == 0 { &left } else { &right };
                        s.spawn_local(move || {
                            write(file, &[1 + n as u8; STRIDE], (n * STRIDE) as u64);
                        });
                    }
                });
            })
            .unwrap();
        let content = world.read("/index").unwrap();
        assert_eq!(content.len(), WRITERS * STRIDE, "seed {seed}");
        for (n, chunk) in content.chunks(STRIDE).enumerate() {
            let lost = chunk.iter().any(|&byte| byte != 1 + n as u8);
            assert!(!lost, "seed {seed}: bytes of writer {n} are lost");
        }
    }
}

/// A short read ends before the bytes that were asked for, or among them. It is not the end of the
/// file.
#[test]
fn short_read_is_not_taken_for_the_end() {
    for seed in 0..SEEDS {
        let faults = Faults::none().with(Fault::ShortTransfer);
        let options = Options::new().faults(faults);
        let mut world = World::new(seed, &options);
        let content: Vec<u8> = (0..20_000).map(|n| n as u8).collect();
        world.write("/index", &content).unwrap();
        world
            .run(move || {
                let file = open();
                for at in (4000..20_000).step_by(3333) {
                    let mut bytes = vec![0; 500.min(20_000 - at)];
                    file.read_exact_at(&mut bytes, at as u64).unwrap();
                    assert!(bytes == content[at..][..bytes.len()], "seed {seed}: at {at}");
                }
                assert_eq!(file.read_at(&mut [0; 9], 20_000).unwrap(), 0);
            })
            .unwrap();
    }
}

/// A cancelled writer leaves its own bytes old or new, and holds up no other.
#[test]
fn cancelled_writer_leaves_its_neighbours_alone() {
    for seed in 0..SEEDS {
        let mut world = world(seed);
        world
            .run(move || {
                let file = open();
                fiber::scope(|s| {
                    for n in 0..WRITERS {
                        let (file, bytes) = (&file, [1 + n as u8; STRIDE]);
                        let at = (n * STRIDE) as u64;
                        let limit = Duration::from_micros(seed % 40 + 10 * n as u64);
                        s.spawn_local(move || match n % 2 {
                            0 => write(file, &bytes, at),
                            // Both ends are right: in time, or not.
                            _ => drop(timeout(limit, || file.write_at(&bytes, at))),
                        });
                    }
                });
            })
            .unwrap();
        let content = world.read("/index").unwrap();
        for (n, chunk) in content.chunks(STRIDE).enumerate() {
            let own = |byte: &u8| *byte == 1 + n as u8;
            let old = |byte: &u8| *byte == if n < 5 { OLD } else { 0 };
            let is_right = match n % 2 {
                0 => chunk.iter().all(own),
                _ => chunk.iter().all(|byte| own(byte) || old(byte)),
            };
            assert!(is_right, "seed {seed}: bytes of writer {n} are wrong");
        }
    }
}
