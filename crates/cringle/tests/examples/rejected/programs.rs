//! Programs about what may leave a fiber, its worker, or a scope. [`super::variance`] has those
//! about the lifetimes of types.

use super::{Code, Group, TOO_SHORT};

pub(super) const GROUPS: &[Group] = &[
    // An `Rc` cannot leave its worker.
    Group {
        name: "not send",
        accepted: r#"
let shared = std::sync::Arc::new(1);
cringle::run(|| cringle::fiber::spawn(move || *shared).join().unwrap());
"#,
        rejected: &[
            (
                Code("E0277"),
                r#"
let shared = std::rc::Rc::new(1);
cringle::run(|| cringle::fiber::spawn(move || *shared).join().unwrap());
"#,
            ),
            (
                Code("E0277"),
                r#"
// Not as a result either.
cringle::run(|| cringle::fiber::spawn(|| std::rc::Rc::new(1)).join().unwrap());
"#,
            ),
            (
                Code("E0277"),
                r#"
let shared = std::rc::Rc::new(1);
cringle::run(|| cringle::fiber::scope(|s| s.spawn_daemon(|| drop(shared.clone()))));
"#,
            ),
            (
                Code("E0277"),
                r#"
let shared = std::rc::Rc::new(1);
cringle::run(|| cringle::fiber::unblock(|| *shared));
"#,
            ),
        ],
    },
    // Calls on all workers share their closure; the iterator stays on the caller's.
    Group {
        name: "calls on all workers",
        accepted: r#"
let shared = std::rc::Rc::new(1);
let items = (0..3).map(|n| n * *shared);
cringle::run(|| cringle::fiber::par_map_workers(items, 2, |n| n));
"#,
        rejected: &[
            (
                Code("E0277"),
                r#"
let shared = std::rc::Rc::new(1);
cringle::run(|| cringle::fiber::par_map_workers(0..3, 2, |n| n * *shared));
"#,
            ),
            (
                Code("E0277"),
                r#"
// Items and results change workers.
cringle::run(|| cringle::fiber::par_map_workers([std::rc::Rc::new(1)], 2, |rc| *rc));
"#,
            ),
            (
                Code("E0277"),
                r#"
cringle::run(|| cringle::fiber::par_map_workers(0..3, 2, std::rc::Rc::new));
"#,
            ),
        ],
    },
    // Any worker may make a call at a scope's end, unless it is a local one.
    Group {
        name: "exit not send",
        accepted: r#"
let shared = std::rc::Rc::new(1);
cringle::run(|| cringle::fiber::scope(|s| s.on_exit_local(|| drop(shared.clone()))));
"#,
        rejected: &[(
            Code("E0277"),
            r#"
let shared = std::rc::Rc::new(1);
cringle::run(|| cringle::fiber::scope(|s| s.on_exit(|| drop(shared.clone()))));
"#,
        )],
    },
    // A call at a scope's end may outlive the variables of the scope's closure.
    Group {
        name: "exit borrows inside",
        accepted: r#"
let outside = String::new();
cringle::run(|| cringle::fiber::scope(|s| s.on_exit(|| drop(outside.len() == 0))));
"#,
        rejected: &[(
            Code("E0373"),
            r#"
cringle::run(|| {
    cringle::fiber::scope(|s| {
        let inside = String::new();
        s.on_exit(|| drop(inside.len() == 0));
    });
});
"#,
        )],
    },
    // The handle of a fiber whose result is not `Send` cannot leave its worker.
    Group {
        name: "handle not send",
        accepted: r#"
cringle::run(|| {
    let handle = cringle::fiber::spawn_local(|| 1);
    cringle::fiber::spawn(move || drop(handle.join())).join().unwrap();
});
"#,
        rejected: &[(
            Code("E0277"),
            r#"
cringle::run(|| {
    cringle::fiber::scope(|s| {
        let handle = s.spawn_local(|| std::rc::Rc::new(1));
        s.spawn(move || drop(handle.join()));
    });
});
"#,
        )],
    },
    // A fiber-local belongs to its fiber: it is borrowed for one call, and only on its worker.
    Group {
        name: "fiber local escapes",
        accepted: r#"
use std::cell::Cell;
cringle::fiber_local! { static DEPTH: Cell<u32> = Cell::new(0); }
cringle::run(|| {
    DEPTH.with(|depth| {
        cringle::fiber::scope(|s| drop(s.spawn_local(|| depth.set(1))));
    });
});
"#,
        rejected: &[
            (
                Code("E0277"),
                r#"
use std::cell::Cell;
cringle::fiber_local! { static DEPTH: Cell<u32> = Cell::new(0); }
cringle::run(|| {
    DEPTH.with(|depth| {
        cringle::fiber::scope(|s| drop(s.spawn(|| depth.set(1))));
    });
});
"#,
            ),
            (
                TOO_SHORT,
                r#"
use std::cell::Cell;
cringle::fiber_local! { static DEPTH: Cell<u32> = Cell::new(0); }
cringle::run(|| {
    let depth: &Cell<u32> = DEPTH.with(|depth| depth);
    cringle::fiber::spawn_local(move || depth.set(1));
});
"#,
            ),
        ],
    },
    // A `try_scope` borrows as a scope does.
    Group {
        name: "try scope borrows",
        accepted: r#"
cringle::run(|| {
    let outside = String::new();
    cringle::fiber::try_scope(|s| {
        s.spawn(|| Ok(outside.len()));
        std::io::Result::Ok(())
    })
})
.unwrap();
"#,
        rejected: &[
            (
                Code("E0373"),
                r#"
cringle::run(|| {
    cringle::fiber::try_scope(|s| {
        let inside = String::new();
        s.spawn(|| Ok(inside.len()));
        std::io::Result::Ok(())
    })
})
.unwrap();
"#,
            ),
            (
                TOO_SHORT,
                r#"
// The scope cannot be kept past its end.
let kept = cringle::run(|| cringle::fiber::try_scope(|s| std::io::Result::Ok(s)));
"#,
            ),
            (
                TOO_SHORT,
                r#"
// Nor can its handles.
cringle::run(|| {
    let kept = cringle::fiber::scope(|s| s.spawn(|| 1));
    kept.join()
});
"#,
            ),
            (
                Code("E0277"),
                r#"
// An error may be returned on another worker than the one that made it.
struct Error(std::rc::Rc<u8>);
impl From<std::io::Error> for Error {
    fn from(_: std::io::Error) -> Error {
        Error(Default::default())
    }
}
cringle::run(|| {
    cringle::fiber::try_scope(|s| -> Result<(), Error> {
        s.spawn_local(|| -> Result<(), Error> { Ok(()) });
        Ok(())
    })
})
.ok();
"#,
            ),
        ],
    },
    // A scope's fiber may borrow from outside the scope, not from an inner closure of `protect`.
    Group {
        name: "borrow from protect",
        accepted: r#"
cringle::run(|| {
    let outside = String::new();
    cringle::fiber::scope(|s| {
        cringle::fiber::protect(|| {
            s.spawn(|| outside.len());
        });
    });
});
"#,
        rejected: &[(
            Code("E0373"),
            r#"
cringle::run(|| {
    cringle::fiber::scope(|s| {
        cringle::fiber::protect(|| {
            let inside = String::new();
            s.spawn(|| inside.len());
        });
    });
});
"#,
        )],
    },
    // `timeout` takes closures whose error is an `io::Error`; `try_timeout` takes others.
    Group {
        name: "errors of timeout",
        accepted: r#"
use cringle::time::{Duration, try_timeout};

fn answer() -> Result<u8, Box<dyn std::error::Error>> {
    try_timeout(Duration::from_secs(1), || Ok("42".parse()?))
}
assert_eq!(answer().unwrap(), 42);
"#,
        rejected: &[
            (
                Code("E0308"),
                r#"
use cringle::time::{Duration, timeout};

fn answer() -> Result<u8, Box<dyn std::error::Error>> {
    timeout(Duration::from_secs(1), || "42".parse::<u8>().map_err(Box::from))
}
"#,
            ),
            (
                Code("E0308"),
                r#"
use cringle::time::{Duration, timeout};

let _ = timeout(Duration::from_secs(1), || 42);
"#,
            ),
        ],
    },
];
