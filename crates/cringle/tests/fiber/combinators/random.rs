//! Random combinations.

use super::{FOREVER, is_cancel, silent_pipe};
use cringle::fs::File;
use cringle::{Builder, cancel, fiber, time};
use std::io::{self, ErrorKind, Read};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

/// A random tree of nested combinators, scopes and deadlines.
struct Tree<'a> {
    alive: &'a AtomicUsize,
    pipe: &'a File,
}

impl Tree<'_> {
    fn grow(&self, depth: u32, seed: u64) -> io::Result<u64> {
        self.alive.fetch_add(1, Ordering::Relaxed);
        let _ended = Ended(self.alive);
        let mut rng = fastrand::Rng::with_seed(seed);
        let (kind, pick) = (rng.u8(..16), rng.u64(..4));
        let seeds = rng.u64(..);
        let child = |n: u64| self.grow(depth - 1, seeds.wrapping_add(n));
        if depth == 0 {
            return match kind {
                0 | 1 => (&*self.pipe).read(&mut [0]).map(|_| 0),
                2 | 3 => time::sleep(Duration::from_micros(pick * 300)).map(|()| 1),
                4 => time::sleep(FOREVER).map(|()| 2),
                5 => {
                    fiber::sleep(FOREVER);
                    Ok(3)
                }
                6 => Err(ErrorKind::NotFound.into()),
                7 => {
                    fiber::protect(|| fiber::sleep(Duration::from_micros(pick * 100)));
                    Ok(4)
                }
                8 => fiber::scope(|s| s.spawn(|| time::sleep(FOREVER).map(|()| 5)).join().unwrap()),
                _ => fiber::yield_now_cancellable().map(|()| 6),
            };
        }
        match kind {
            0..3 => fiber::race(|| child(1), || child(2)),
            3..5 => fiber::race_with(|| child(1), || child(2), u64::wrapping_add),
            5 | 6 => {
                let (a, b) = fiber::join(|| child(1), || child(2));
                Ok(a? + b?)
            }
            7 | 8 => fiber::any((0..pick + 1).map(|n| move || child(n))),
            9 => Ok(fiber::try_par_map(0..6, pick as usize + 1, child)?.len() as u64),
            10 => Ok(fiber::try_par_map_workers(0..6, pick as usize + 1, child)?.len() as u64),
            11 => Ok(fiber::par_map(0..4, 2, child).len() as u64),
            12 | 13 => time::timeout(Duration::from_micros(pick * 500), || child(1)),
            14 => fiber::scope(|s| {
                let other = s.spawn(|| child(1));
                s.spawn_local(|| drop(child(2)));
                fiber::yield_now_cancellable()?;
                s.cancel();
                other.join().unwrap_or(Ok(7))
            }),
            _ => fiber::try_scope(|s| {
                s.spawn(|| child(1));
                s.spawn_local(|| child(2));
                child(3)
            }),
        }
    }
}

struct Ended<'a>(&'a AtomicUsize);

impl Drop for Ended<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Every call of the tree ends before its frame, and no call unwinds that was not cancelled.
#[test]
fn random_trees_of_combinators_end_when_cancelled() {
    let alive = AtomicUsize::new(0);
    let (pipe, _writer) = silent_pipe();
    let tree = Tree { alive: &alive, pipe: &pipe };
    let run = || {
        for seed in 0..400 {
            let limit = Duration::from_micros(seed * 7919 % 3000);
            let result = time::timeout(limit, || tree.grow(3, seed));
            if let Err(error) = result {
                assert!(is_cancel(&error) || error.kind() == ErrorKind::NotFound, "{error:?}");
            }
            assert_eq!(alive.load(Ordering::Relaxed), 0, "seed {seed}");
            assert!(cancel::check().is_ok(), "seed {seed}");
        }
    };
    for workers in [1, 2] {
        Builder::new().workers(workers).run(run).unwrap();
    }
}
