//! With std's types and with ours, a lifetime must not be shortened behind a lock, and the content
//! of a cell must not outlive what it borrows. (`tests/sync/same_sync.rs` has programs that must
//! compile.)

use super::{Code, Error, TOO_SHORT};

/// `Short<'a>` is `&'a str` in the program that must fail, and `&'static str` in the other one.
const SHORTENED: &[(&str, &str)] = &[
    ("mutex", "fn f<'a>(it: &'a sync::Mutex<Long>) -> &'a sync::Mutex<Short<'a>> { it }"),
    ("rwlock", "fn f<'a>(it: &'a sync::RwLock<Long>) -> &'a sync::RwLock<Short<'a>> { it }"),
    ("once_lock", "fn f<'a>(it: &'a sync::OnceLock<Long>) -> &'a sync::OnceLock<Short<'a>> { it }"),
    ("lazy_lock", "fn f<'a>(it: &'a sync::LazyLock<Long>) -> &'a sync::LazyLock<Short<'a>> { it }"),
    (
        "mutex_guard",
        "fn f<'a>(it: sync::MutexGuard<'a, Long>) -> sync::MutexGuard<'a, Short<'a>> { it }",
    ),
    (
        "write_guard",
        "fn f<'a>(it: sync::RwLockWriteGuard<'a, Long>) -> sync::RwLockWriteGuard<'a, Short<'a>> { it }",
    ),
    ("sender", "fn f<'a>(it: sync::mpsc::Sender<Long>) -> sync::mpsc::Sender<Short<'a>> { it }"),
    (
        "sync_sender",
        "fn f<'a>(it: sync::mpsc::SyncSender<Long>) -> sync::mpsc::SyncSender<Short<'a>> { it }",
    ),
    (
        "receiver",
        "fn f<'a>(it: sync::mpsc::Receiver<Long>) -> sync::mpsc::Receiver<Short<'a>> { it }",
    ),
    ("handle", "fn f<'a>(it: thread::JoinHandle<Long>) -> thread::JoinHandle<Short<'a>> { it }"),
    (
        "scoped_handle",
        "fn f<'a>(it: thread::ScopedJoinHandle<'a, Long>) -> thread::ScopedJoinHandle<'a, Short<'a>> { it }",
    ),
];

/// A value whose destructor may read what it borrows must be dropped before it.
const OUTLIVED: &[(&str, &str)] = &[
    ("in_a_mutex", "it = sync::Mutex::new(Looks(&text));"),
    ("in_a_rwlock", "it = sync::RwLock::new(Looks(&text));"),
    ("in_a_once_lock", "it = sync::OnceLock::new(); it.set(Looks(&text)).ok();"),
    ("in_a_lazy_lock", "it = sync::LazyLock::new(|| Looks(&text)); sync::LazyLock::force(&it);"),
    ("in_a_channel", "it = sync::mpsc::channel(); it.0.send(Looks(&text)).ok();"),
];

/// Returns the programs that must compile, or those that must not, each for std and for the
/// library:
/// the name, the error and the text.
pub(super) fn programs(accepted: bool) -> Vec<(String, Error, String)> {
    let (life, order) = if accepted {
        ("'static", "let text = String::new(); let it;")
    } else {
        ("'a", "let it; let text = String::new();")
    };
    let mut programs = Vec::new();
    for (of, uses) in
        [("std", "use std::{sync, thread};"), ("cringle", "use cringle::{fiber as thread, sync};")]
    {
        for (name, code) in SHORTENED {
            let types = format!(
                "trait Life<'a> {{ type Str; }} impl<'a> Life<'a> for () {{ type Str = &{life} str; }}\n\
                 type Short<'a> = <() as Life<'a>>::Str; type Long = &'static str;"
            );
            programs.push((format!("{of} {name}"), TOO_SHORT, format!("{uses}\n{types}\n{code}")));
        }
        for (name, code) in OUTLIVED {
            let looks = "struct Looks<'a>(&'a str);\n\
                         impl Drop for Looks<'_> { fn drop(&mut self) { println!(\"{}\", self.0); } }";
            let text = format!("{uses}\n{looks}\n{order}\n{code}");
            programs.push((format!("{of} {name}"), Code("E0597"), text));
        }
    }
    programs
}
