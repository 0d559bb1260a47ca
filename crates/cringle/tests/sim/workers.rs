//! Simulations with several workers: the seed draws which one runs.

use cringle::fs::File;
use cringle::runtime::Balance;
use cringle::sim::{self, Checker, Failure, Faults, Options, Stats, World};
use cringle::sync::mpsc;
use cringle::{fiber, runtime, time};
use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::time::Duration;

const HOUR: Duration = Duration::from_secs(3600);

fn options(workers: usize) -> Options {
    Options::new().faults(Faults::hidden()).workers(workers)
}

fn placed(worker: usize) -> fiber::Builder {
    fiber::Builder::new().worker(worker)
}

fn here() -> usize {
    runtime::worker().unwrap()
}

/// The workers on which steps of some fibers ran, in order.
fn steps() -> Vec<usize> {
    let (sender, receiver) = mpsc::channel();
    fiber::scope(|s| {
        for number in 0..12 {
            let sender = sender.clone();
            s.spawn(move || {
                for _ in 0..4 {
                    sender.send(here()).unwrap();
                    match number % 3 {
                        0 => fiber::yield_now(),
                        1 => fiber::sleep(Duration::from_micros(5)),
                        _ => drop(File::create(format!("/{number}")).unwrap()),
                    }
                }
            });
        }
        drop(sender);
    });
    receiver.iter().collect()
}

fn run_with(seed: u64, workers: usize, balance: Balance) -> Result<(Vec<usize>, Stats), Failure> {
    let mut world = World::new(seed, &options(workers));
    world.set_balance(balance);
    let steps = world.run(steps)?;
    Ok((steps, world.stats()))
}

/// Whether fibers can move here.
fn can_move() -> bool {
    let can = cringle::Builder::new().workers(1).balance(Balance::Moving).run(|| ());
    can.inspect_err(|e| eprintln!("skipped: {e}")).is_ok()
}

#[test]
fn the_seed_draws_the_order_of_workers() {
    for workers in [2, 3] {
        let run = |seed| run_with(seed, workers, Balance::Fixed).unwrap();
        let mut orders = BTreeSet::new();
        let mut used = BTreeSet::new();
        for seed in 0..40 {
            let (steps, stats) = run(seed);
            assert_eq!((&steps, stats), (&run(seed).0, run(seed).1), "seed {seed}");
            assert_eq!(steps.len(), 48);
            used.extend(steps.iter().copied());
            orders.insert(steps);
        }
        assert_eq!(used.len(), workers, "unstarted fibers are stolen by all");
        assert!(orders.len() > 30, "{} orders", orders.len());
    }
}

#[test]
fn the_seed_draws_which_fibers_move() {
    if !can_move() {
        return;
    }
    let moves = |seed| {
        let mut world = World::new(seed, &options(3));
        world.set_balance(Balance::Moving);
        world.run(|| {
            let walks =
                || -> Vec<usize> { (0..30).map(|_| (fiber::yield_now(), here()).1).collect() };
            let walkers: Vec<_> = (0..4).map(|_| fiber::spawn(walks)).collect();
            let walks = walkers.into_iter().map(|walker| walker.join().unwrap());
            walks.collect::<Vec<_>>()
        })
    };
    let has_moved = |walk: &Vec<usize>| walk.iter().any(|&worker| worker != walk[0]);
    let mut moved = 0;
    for seed in 0..40 {
        let walks = moves(seed).unwrap();
        assert_eq!(walks, moves(seed).unwrap(), "seed {seed}");
        moved += walks.iter().filter(|&walk| has_moved(walk)).count();
    }
    assert!(moved > 80, "{moved} fibers moved");
}

#[test]
fn fixed_fibers_stay() {
    sim::each(0..40, |seed| {
        let report = sim::run(seed, &options(2), || {
            let stay = |worker| {
                placed(worker)
                    .spawn(move || (0..20).all(|_| (fiber::yield_now(), here() == worker).1))
            };
            let both = [0, 1].map(|worker| stay(worker).unwrap());
            both.map(|fiber| fiber.join().unwrap())
        })?;
        assert_eq!(report.value, [true, true]);
        Ok(())
    });
}

#[test]
fn time_jumps_to_the_next_event_of_any_worker() {
    sim::each(0..40, |seed| {
        let report = sim::run(seed, &options(3), || {
            let start = time::now();
            let sleep = |worker: usize| {
                let nap = HOUR * (worker as u32 + 1);
                placed(worker).spawn(move || (fiber::sleep(nap), time::now() - start).1).unwrap()
            };
            [0, 1, 2].map(sleep).map(|fiber| fiber.join().unwrap())
        })?;
        for (nap, hours) in report.value.into_iter().zip(1..) {
            assert!(nap >= HOUR * hours && nap < HOUR * hours + Duration::from_secs(1));
        }
        Ok(())
    });
}

#[test]
fn a_reader_sees_what_another_worker_writes_and_closes() {
    sim::each(0..60, |seed| {
        let report = sim::run(seed, &options(2), || {
            let (mut near, mut far) = sim::stream_pair().unwrap();
            let reads = placed(1).spawn(move || {
                let mut bytes = Vec::new();
                far.read_to_end(&mut bytes).map(|_| bytes.len())
            });
            fiber::sleep(Duration::from_millis(2));
            near.write_all(&[7; 5000]).unwrap();
            fiber::sleep(Duration::from_millis(2));
            drop(near);
            reads.unwrap().join().unwrap()
        })?;
        assert_eq!(report.value.unwrap(), 5000);
        Ok(())
    });
}

#[test]
fn a_deadlock_lists_the_fibers_of_all_workers() {
    let failure = sim::run(7, &options(3), || {
        let name = |name: &str, worker| placed(worker).name(name.into());
        let (one, other) = (name("one", 1), name("other", 2));
        let waits = [one.spawn(fiber::park).unwrap(), other.spawn(fiber::park).unwrap()];
        waits.map(|fiber| fiber.join())
    })
    .unwrap_err();
    assert_eq!(failure.checker, Checker::Deadlock);
    for text in ["'main' waits for: another", "'one' waits for: an unpark", "'other' waits for"] {
        assert!(failure.message.contains(text), "{failure}");
    }
}

#[test]
fn a_livelock_of_one_worker_ends_the_run() {
    let failure = sim::run(7, &options(2).turn_limit(2000), || {
        let spins = || {
            loop {
                fiber::yield_now();
            }
        };
        placed(1).name("spins".into()).spawn(spins).unwrap().join()
    })
    .unwrap_err();
    assert_eq!(failure.checker, Checker::Livelock);
    assert!(failure.message.contains("'spins'"), "{failure}");
}

#[test]
fn a_livelock_lists_each_fiber_once_though_they_move() {
    if !can_move() {
        return;
    }
    let spin = || {
        loop {
            fiber::yield_now();
        }
    };
    for seed in 0..40 {
        let mut world = World::new(seed, &options(3).turn_limit(2000));
        world.set_balance(Balance::Restless);
        let failure = world.run(|| {
            for _ in 0..10 {
                fiber::spawn(move || {
                    fiber::spawn_local(fiber::park);
                    spin();
                });
            }
            fiber::park();
        });
        let failure = failure.unwrap_err();
        assert_eq!(failure.checker, Checker::Livelock);
        let listed: Vec<_> = failure.message.matches("\n  fiber ").collect();
        assert_eq!(listed.len(), 21, "seed {seed}: {failure}");
    }
}

#[test]
fn loss_of_power_ends_all_workers() {
    let mut lost = 0;
    for seed in 0..60 {
        let mut world = World::new(seed, &options(2));
        let writes = |worker: usize| {
            placed(worker).spawn(move || -> std::io::Result<()> {
                for number in 0..400 {
                    let mut file = File::create(format!("/{worker}-{}", number % 3))?;
                    file.write_all(&[7; 100])?;
                    file.sync_all()?;
                }
                Ok(())
            })
        };
        let ended = world.run_until_power_loss(|| {
            let both = [0, 1].map(|worker| writes(worker).unwrap());
            both.map(|fiber| fiber.join().is_ok())
        });
        lost += u32::from(ended.unwrap().is_none());
    }
    assert!(lost > 10, "{lost} losses of power");
}

#[test]
fn a_dump_has_the_fibers_of_all_workers() {
    let dump = |seed| {
        let run = sim::run(seed, &options(2), || {
            fiber::scope(|s| {
                for worker in [0, 1] {
                    let parks = placed(worker).name(format!("parks-{worker}"));
                    parks.spawn_scoped(s, fiber::park).unwrap();
                }
                fiber::sleep(Duration::from_millis(250));
                let dump = runtime::dump().unwrap().to_string();
                s.cancel();
                dump
            })
        });
        run.unwrap().value
    };
    let text = dump(3);
    assert!(text.contains("'parks-0'  worker 0") && text.contains("'parks-1'  worker 1"), "{text}");
    assert_eq!(text, dump(3));
}

#[test]
fn items_are_shared_by_the_workers_that_the_seed_draws() {
    let balances =
        if can_move() { vec![Balance::Fixed, Balance::Moving] } else { vec![Balance::Fixed] };
    for balance in balances {
        let run = |seed| {
            let mut world = World::new(seed, &options(3));
            world.set_balance(balance);
            let places = world.run(|| {
                fiber::par_map_workers(0..60, 9, |number| {
                    match number % 3 {
                        0 => fiber::yield_now(),
                        1 => fiber::sleep(Duration::from_micros(5)),
                        _ => drop(File::create(format!("/{number}")).unwrap()),
                    }
                    (number, here())
                })
            });
            (places.unwrap(), world.stats())
        };
        let mut used = BTreeSet::new();
        for seed in 0..40 {
            let (places, stats) = run(seed);
            assert_eq!((&places, stats), (&run(seed).0, run(seed).1), "seed {seed}");
            assert!(places.iter().map(|place| place.0).eq(0..60));
            used.extend(places.into_iter().map(|place| place.1));
        }
        assert_eq!(used.len(), 3);
    }
}

#[test]
fn an_error_on_any_worker_ends_the_iteration() {
    sim::each(0..60, |seed| {
        let report = sim::run(seed, &options(3), || {
            fiber::try_par_map_workers(0.., 7, |number| {
                time::sleep(Duration::from_micros(number % 7))?;
                if number == 50 { Err(std::io::Error::other("50")) } else { Ok(number) }
            })
        })?;
        assert_eq!(report.value.unwrap_err().to_string(), "50");
        Ok(())
    });
}
