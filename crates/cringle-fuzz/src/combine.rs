//! Runs bodies by `join`, `join_all`, `par_map`, `par_map_workers`, `race` and `any`.

use super::env::{Env, Stop};
use super::frames::Frame;
use super::interpret::{finished, run_body};
use super::peers::Presence;
use super::{Body, Combine};
use cringle::fiber;
use cringle::fs::File;
use cringle::sim::Checker;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// Runs the bodies concurrently and returns the digests, which only `Race` and `Any` leave
/// undetermined.
pub(super) fn combine(
    env: &Arc<Env>,
    file: &File,
    by: Combine,
    bodies: &[Arc<Body>],
) -> Result<Vec<u64>, Stop> {
    let inside = Arc::new(AtomicUsize::new(0));
    let flag = Arc::new(AtomicBool::new(false));
    let run = |env: &Arc<Env>, body: &Arc<Body>| {
        let _presence = Presence::of(&inside);
        finished(env, body, run_body(env, body, Some(file)))
    };
    let within = env.within(Frame::scope(env, &flag));
    let first = |body: &Arc<Body>| {
        let digest = run(&within, body);
        // The first to return cancels the others.
        flag.store(true, Ordering::Release);
        match digest {
            // Without power, a body that fails must win too: in a protected call nothing else would
            // end the others.
            Err(Stop) if within.has_lost_power() => Ok(0),
            digest => digest.map_err(|Stop| io::Error::other("stopped")),
        }
    };
    let (a, b) = (&bodies[0], &bodies[1]);
    let limit = 1 + a.region % 2;
    let results = match by {
        Combine::Join => {
            let (a, b) = fiber::join(|| run(env, a), || run(env, b));
            vec![a, b]
        }
        Combine::JoinAll => fiber::join_all(bodies.iter().map(|body| || run(env, body))),
        Combine::ParMap => fiber::par_map(bodies, limit, |body| run(env, body)),
        Combine::ParMapWorkers => fiber::par_map_workers(bodies, limit, |body| run(env, body)),
        Combine::Race => vec![fiber::race(|| first(a), || first(b)).map_err(|_| Stop)],
        Combine::Any => {
            vec![fiber::any(bodies.iter().map(|body| || first(body))).map_err(|_| Stop)]
        }
    };
    if inside.load(Ordering::Acquire) != 0 {
        return Err(env.fail(Checker::Scopes, format!("{by:?} returned while a closure ran")));
    }
    env.check_cancelled()?;
    results.into_iter().collect()
}
