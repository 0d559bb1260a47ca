//! Fibers, results and exits stay on their workers.

use super::{FOREVER, current_thread};
use cringle::{fiber, time};
use cringle_testing::tools::*;
use std::io::{self, ErrorKind};
use std::marker::PhantomData;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;
use std::sync::Mutex;
use std::thread::ThreadId;

// ----- use by foreign threads -----

#[test]
fn foreign_thread_can_spawn_but_not_spawn_local() {
    on_two_workers(|| {
        let worker = fiber::Builder::new().worker(1);
        let on_one = worker.spawn(|| {
            let worker = || cringle::runtime::worker().unwrap();
            let home = worker();
            fiber::scope(|s| {
                fiber::unblock(|| {
                    assert_eq!(cringle::runtime::worker(), None);
                    let local = catch_unwind(AssertUnwindSafe(|| drop(s.spawn_local(|| ()))));
                    let text = message(local.unwrap_err());
                    assert!(text.contains("inside of `cringle::run`"), "{text}");
                    let exit = catch_unwind(AssertUnwindSafe(|| s.on_exit_local(|| ())));
                    assert!(exit.is_err());
                    // The scope's worker starts it, and this thread can join it.
                    assert_eq!(s.spawn(worker).join().unwrap(), home);
                    let placed = fiber::Builder::new().worker(0).spawn_scoped(s, worker).unwrap();
                    assert_ne!(placed.join().unwrap(), home);
                    let nowhere = fiber::Builder::new().worker(2).spawn_scoped(s, worker);
                    assert_eq!(nowhere.unwrap_err().kind(), ErrorKind::InvalidInput);
                    s.spawn_daemon(|| fiber::sleep(FOREVER));
                    s.spawn(|| s.spawn(|| ()));
                });
            });
        });
        on_one.unwrap().join().unwrap();
    });
}

// ----- unclaimed results -----

/// Records the threads that created and dropped it. It is not `Send`, so they must be the same.
struct Homing<'a>(&'a Mutex<Vec<(ThreadId, ThreadId)>>, ThreadId, PhantomData<Rc<()>>);

impl<'a> Homing<'a> {
    fn new(drops: &'a Mutex<Vec<(ThreadId, ThreadId)>>) -> Homing<'a> {
        Homing(drops, current_thread(), PhantomData)
    }
}

impl Drop for Homing<'_> {
    fn drop(&mut self) {
        self.0.lock().unwrap().push((self.1, current_thread()));
    }
}

#[test]
fn unclaimed_values_drop_on_their_own_worker() {
    let drops = Mutex::new(Vec::new());
    on_two_workers(|| {
        fiber::scope(|s| {
            for worker in [0, 1] {
                spawn_on(worker, s, || {
                    // The handle is dropped before the fiber ends, after it, or never.
                    drop(s.spawn_local(|| Homing::new(&drops)));
                    let handle = s.spawn_local(|| Homing::new(&drops));
                    while !handle.is_finished() {
                        fiber::yield_now();
                    }
                    drop(handle);
                    std::mem::forget(s.spawn_local(|| ()));
                    // Results of a failed scope, whose `Ok` is not `Send`.
                    let failed: Result<(), io::Error> = fiber::try_scope(|t| {
                        t.spawn_local(|| Ok(Homing::new(&drops)));
                        let fails = || -> Result<Homing<'_>, io::Error> {
                            let _homing = Homing::new(&drops);
                            fiber::yield_now();
                            Err(ErrorKind::NotFound.into())
                        };
                        t.spawn_local(fails);
                        t.spawn_local(|| {
                            let homing = Homing::new(&drops);
                            drop(time::sleep(FOREVER));
                            Ok(homing)
                        });
                        Ok(())
                    });
                    assert_eq!(failed.unwrap_err().kind(), ErrorKind::NotFound);
                    // A capture of an exit.
                    let homing = Homing::new(&drops);
                    s.on_exit_local(move || drop(homing));
                });
            }
        });
    });
    let drops = drops.into_inner().unwrap();
    assert_eq!(drops.len(), 2 * 6);
    assert!(drops.iter().all(|(made, dropped)| made == dropped), "{drops:?}");
}
