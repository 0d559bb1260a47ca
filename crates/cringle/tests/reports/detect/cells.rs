//! Borrows of `detect::RefCell`.

use super::{
    assert_names, assert_one, lines_with, named, output, place, private, reports, shared, succeeded,
};
use cringle::detect::{Ref, RefCell, RefMut};
use cringle::fiber;
use std::rc::Rc;
use std::time::Duration;

fn at(comment: &str) -> String {
    place("cells.rs", include_str!("cells.rs"), comment)
}

#[test]
fn borrow_over_a_wait_is_reported_once() {
    let body = || {
        let hold = |cell: &RefCell<i32>| {
            let mut value = cell.borrow_mut(); // borrow
            *value += 1;
            fiber::sleep(Duration::from_millis(1)); // wait in a borrow
            fiber::yield_now();
        };
        let run = move || {
            let cell = RefCell::new(0);
            hold(&cell);
            hold(&cell);
        };
        let run = move || named("holder").spawn_local(run).unwrap().join().unwrap(); // holder
        shared().run(run).unwrap();
    };
    if let Some(reports) = reports("borrow_over_a_wait_is_reported_once", body) {
        let (spawned, taken, waited) = (at("holder"), at("borrow"), at("wait in a borrow"));
        let texts = ["fiber 'holder' (spawned at", &spawned, "a mutable borrow", &taken];
        assert_one(&reports, &texts);
        assert_names(&reports[0], &[&taken, "waits for a timer at", &waited, "before the wait"]);
    }
}

#[test]
fn borrows_that_end_before_the_wait_are_not_reported() {
    let body = || {
        let run = || {
            let cell = RefCell::new((1, 2));
            for _ in 0..3 {
                *cell.borrow_mut() = (3, 4);
                fiber::yield_now();
                let second = Ref::map(cell.borrow(), |pair| &pair.1);
                let clone = Ref::clone(&second);
                drop((second, clone));
                fiber::yield_now();
                *RefMut::map(cell.borrow_mut(), |pair| &mut pair.0) = 5;
                drop(cell.try_borrow_mut().unwrap());
                fiber::yield_now();
                cell.replace((6, 7));
                let unwound = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
                    let _borrow = cell.borrow_mut();
                    std::panic::resume_unwind(Box::new(()));
                }));
                assert!(unwound.is_err());
                fiber::yield_now();
            }
        };
        shared().run(run).unwrap();
    };
    let name = "borrows_that_end_before_the_wait_are_not_reported";
    if let Some(reports) = reports(name, body) {
        assert_eq!(reports, [""; 0]);
    }
}

#[test]
fn parts_and_clones_of_a_borrow_are_reported() {
    let body = || {
        let run = || {
            let cell = RefCell::new((1, 2));
            let part = RefMut::map(cell.borrow_mut(), |pair| &mut pair.1); // part
            fiber::yield_now();
            drop(part);
            let first = cell.borrow();
            let clone = Ref::clone(&first); // clone
            drop(first);
            fiber::yield_now();
            drop(clone);
            fiber::yield_now();
        };
        shared().run(run).unwrap();
    };
    if let Some(reports) = reports("parts_and_clones_of_a_borrow_are_reported", body) {
        assert_eq!(reports.len(), 2, "{reports:#?}");
        assert_names(&reports[0], &["a mutable borrow", &at("part"), "yields"]);
        assert_names(&reports[1], &["a borrow", &at("clone"), "yields"]);
    }
}

#[test]
fn failed_borrow_names_the_fiber_that_holds_it() {
    let body = || {
        let run = || {
            let cell = Rc::new(RefCell::new(0));
            let theirs = Rc::clone(&cell);
            let hold = move || {
                let _borrow = theirs.borrow(); // first borrow
                fiber::park(); // wait of the first
            };
            let holder = named("holder").spawn_local(hold).unwrap();
            fiber::yield_now();
            let second = fiber::spawn_local(move || *cell.borrow_mut() += 1); // second borrow
            let payload = second.join().unwrap_err();
            let text = payload.downcast_ref::<String>().unwrap();
            let texts = ["RefCell already borrowed: at", &at("first borrow"), "fiber 'holder'"];
            assert_names(text, &texts);
            assert_names(text, &["waits for an unpark at", &at("wait of the first")]);
            holder.thread().unpark();
            holder.join().unwrap();
        };
        shared().run(run).unwrap();
    };
    let name = "failed_borrow_names_the_fiber_that_holds_it";
    if let Some(output) = output(name, |command| command, body) {
        let printed = succeeded(&output);
        assert!(printed.contains(&at("second borrow")), "{printed}");
    }
}

#[test]
fn lone_fiber_with_private_thread_locals_may_borrow() {
    let body = || {
        let Some(builder) = private() else { return };
        let hold = || {
            let cell = RefCell::new(0);
            let _borrow = cell.borrow_mut();
            fiber::yield_now();
        };
        builder.clone().run(|| fiber::spawn(hold).join().unwrap()).unwrap();
        println!("until here: none");
        let run = || {
            // Two fibers with the same thread-locals.
            let hold = || {
                let cell = RefCell::new(0);
                let _borrow = cell.borrow_mut(); // in a family
                fiber::yield_now();
            };
            fiber::spawn_local(hold).join().unwrap();
        };
        builder.clone().run(|| fiber::spawn(run).join().unwrap()).unwrap();
        let grow = || {
            let cell = RefCell::new(0);
            let _borrow = cell.borrow_mut(); // before the family
            fiber::yield_now();
            fiber::spawn_local(|| ()).join().unwrap(); // wait with a family
        };
        builder.run(|| fiber::spawn(grow).join().unwrap()).unwrap();
        println!("private");
    };
    let name = "lone_fiber_with_private_thread_locals_may_borrow";
    if let Some(output) = output(name, |command| command, body) {
        let printed = succeeded(&output);
        if printed.contains("\nprivate\n") {
            let reports = lines_with(&printed, "hazard");
            assert_eq!(reports.len(), 2, "{reports:#?}");
            assert_names(&reports[0], &[&at("in a family")]);
            assert_names(&reports[1], &[&at("before the family"), &at("wait with a family")]);
        }
    }
}

#[test]
fn cancelled_fiber_releases_its_guards() {
    let body = || {
        let run = || {
            let cell = Rc::new(RefCell::new(0));
            let theirs = Rc::clone(&cell);
            fiber::scope(|s| {
                let hold = move || {
                    let _borrow = theirs.borrow_mut(); // cancelled
                    fiber::park();
                };
                s.spawn_local(hold);
                fiber::yield_now();
                s.cancel();
            });
            assert!(cell.try_borrow_mut().is_ok());
            fiber::yield_now();
        };
        shared().run(run).unwrap();
    };
    if let Some(reports) = reports("cancelled_fiber_releases_its_guards", body) {
        assert_one(&reports, &[&at("cancelled")]);
    }
}

#[test]
fn guard_that_another_fiber_drops_is_forgotten() {
    let body = || {
        let run = || {
            let cell: &'static RefCell<i32> = Box::leak(Box::new(RefCell::new(0)));
            let give = move || cell.borrow_mut(); // given away
            let (sender, receiver) = std::sync::mpsc::channel();
            let taker = move || {
                let guard = give();
                sender.send(guard).unwrap();
                fiber::yield_now();
                // The other fiber has dropped it.
                fiber::yield_now();
                fiber::yield_now();
            };
            let taker = fiber::spawn_local(taker);
            let dropper = fiber::spawn_local(move || drop(receiver.recv().unwrap()));
            taker.join().unwrap();
            dropper.join().unwrap();
            // The entry is gone: a borrow here is the only one.
            drop(cell.borrow_mut());
            fiber::yield_now();
        };
        shared().run(run).unwrap();
    };
    if let Some(reports) = reports("guard_that_another_fiber_drops_is_forgotten", body) {
        assert_one(&reports, &[&at("given away"), "yields"]);
    }
}
