//! A file system that gives one answer for ever: each call ends.

use super::DRIVERS;
use cringle::fs::{self, Dir, File};
use cringle::{Builder, fiber};
use cringle_testing::child;
use cringle_testing::fuse::Faulty;
use std::io;
use std::path::Path;

/// A directory deeper than the number of levels that `remove_dir_all` keeps open.
const DEEP: usize = 20;

type Call = (&'static str, fn(&Path) -> io::Result<()>);

const CALLS: &[Call] = &[
    ("read", |at| fs::read(at.join("victim")).map(drop)),
    ("write", |at| fs::write(at.join("victim"), "rope")),
    ("set_len and sync", |at| {
        let file = File::options().write(true).open(at.join("victim"))?;
        file.set_len(1)?;
        file.sync_all()
    }),
    ("copy", |at| fs::copy(at.join("victim"), at.join("victim2")).map(drop)),
    ("rename", |at| fs::rename(at.join("victim"), at.join("victim3"))),
    ("rename_noreplace", |at| fs::rename_noreplace(at.join("victim3"), at.join("victim"))),
    ("hard_link", |at| fs::hard_link(at.join("victim"), at.join("victim4"))),
    ("create_dir_all", |at| fs::create_dir_all(at.join("victims/victims/victims"))),
    ("read_dir", |at| fs::read_dir(at)?.try_for_each(|entry| entry?.metadata().map(drop))),
    ("set_permissions", |at| {
        let permissions = fs::metadata(at.join("victim"))?.permissions();
        fs::set_permissions(at.join("victim"), permissions)
    }),
    ("Dir", |at| Dir::open(at)?.open_file("../victims/victim").map(drop)),
    ("Dir::create_dir", |at| Dir::open(at)?.create_dir("victim5")),
    ("exists", |at| fs::exists(at.join("victim6")).map(drop)),
    ("remove_file", |at| fs::remove_file(at.join("victim"))),
    ("remove_dir_all", |at| fs::remove_dir_all(at)),
];

fn prepare(faulty: &Faulty) {
    let mut path = String::from("victims");
    faulty.mkdir(&path);
    faulty.put("victims/victim", b"strand");
    for _ in 0..DEEP {
        path.push_str("/victims");
        faulty.mkdir(&path);
    }
}

/// Each call gets every third error, and another third on the other driver; with `CRINGLE_FULL=1`
/// all.
#[test]
fn one_errno_for_ever_ends_each_call() {
    let base = tempfile::tempdir().unwrap();
    let Some(faulty) = Faulty::mount(base.path(), "mounted") else { return };
    let at = faulty.at.join("victims");
    let step = child::scaled(3, 1);
    for (first, driver) in DRIVERS.into_iter().enumerate() {
        let try_all = || {
            for (at_call, (name, call)) in CALLS.iter().enumerate() {
                let is_chosen = |error: usize| (first + at_call + error).is_multiple_of(step);
                faulty.call_ends_for(is_chosen, name, prepare, || call(&at));
            }
        };
        // Beside another fiber, so that calls go through the ring.
        let run = || {
            fiber::scope(|s| {
                s.spawn_daemon_local(fiber::park);
                try_all();
            });
        };
        Builder::new().workers(1).driver(driver).run(run).unwrap();
    }
}
