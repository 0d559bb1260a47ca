//! Programs that must not compile: with std's types and with ours, a lifetime must not be shortened
//! behind a lock, and the content of a cell must not outlive what it borrows. Only rustdoc sees
//! this module. The programs that must compile are in `tests/sync/same_sync.rs`.
//!
//! Each program is compiled twice for std and twice for the library: as it is, which must fail, and
//! with the one change that makes it right, so that it cannot fail for another reason.

/// `Short<'a>` is `&'a str` in the program that must fail, and `&'static str` in the other one.
macro_rules! shortened {
    ($($name:ident: $code:literal,)*) => {$(
        #[doc = shortened!(@program "compile_fail", "'a", "use std::{sync, thread};", $code)]
        #[doc = shortened!(@program "", "'static", "use std::{sync, thread};", $code)]
        #[doc = shortened!(@program "compile_fail", "'a", "use cringle::{fiber as thread, sync};", $code)]
        #[doc = shortened!(@program "", "'static", "use cringle::{fiber as thread, sync};", $code)]
        pub mod $name {}
    )*};
    (@program $fails:literal, $life:literal, $uses:literal, $code:literal) => {
        concat!(
            "```", $fails, "\n#![allow(unused)]\n", $uses, "\n",
            "trait Life<'a> { type Str; }\nimpl<'a> Life<'a> for () { type Str = &", $life, " str; }\n",
            "type Short<'a> = <() as Life<'a>>::Str;\ntype Long = &'static str;\n", $code, "\n```\n"
        )
    };
}

shortened! {
    mutex: "fn f<'a>(it: &'a sync::Mutex<Long>) -> &'a sync::Mutex<Short<'a>> { it }",
    rwlock: "fn f<'a>(it: &'a sync::RwLock<Long>) -> &'a sync::RwLock<Short<'a>> { it }",
    once_lock: "fn f<'a>(it: &'a sync::OnceLock<Long>) -> &'a sync::OnceLock<Short<'a>> { it }",
    lazy_lock: "fn f<'a>(it: &'a sync::LazyLock<Long>) -> &'a sync::LazyLock<Short<'a>> { it }",
    mutex_guard: "fn f<'a>(it: sync::MutexGuard<'a, Long>) -> sync::MutexGuard<'a, Short<'a>> { it }",
    write_guard: "fn f<'a>(it: sync::RwLockWriteGuard<'a, Long>) -> sync::RwLockWriteGuard<'a, Short<'a>> { it }",
    sender: "fn f<'a>(it: sync::mpsc::Sender<Long>) -> sync::mpsc::Sender<Short<'a>> { it }",
    sync_sender: "fn f<'a>(it: sync::mpsc::SyncSender<Long>) -> sync::mpsc::SyncSender<Short<'a>> { it }",
    receiver: "fn f<'a>(it: sync::mpsc::Receiver<Long>) -> sync::mpsc::Receiver<Short<'a>> { it }",
    handle: "fn f<'a>(it: thread::JoinHandle<Long>) -> thread::JoinHandle<Short<'a>> { it }",
    scoped_handle: "fn f<'a>(it: thread::ScopedJoinHandle<'a, Long>) -> thread::ScopedJoinHandle<'a, Short<'a>> { it }",
}

/// A value whose destructor may read what it borrows must be dropped before it.
macro_rules! outlived {
    ($($name:ident: $code:literal,)*) => {$(
        #[doc = outlived!(@program "compile_fail", "let it; let text = String::new();", "use std::sync;", $code)]
        #[doc = outlived!(@program "", "let text = String::new(); let it;", "use std::sync;", $code)]
        #[doc = outlived!(@program "compile_fail", "let it; let text = String::new();", "use cringle::sync;", $code)]
        #[doc = outlived!(@program "", "let text = String::new(); let it;", "use cringle::sync;", $code)]
        pub mod $name {}
    )*};
    (@program $fails:literal, $order:literal, $uses:literal, $code:literal) => {
        concat!(
            "```", $fails, "\n#![allow(unused)]\n", $uses, "\n",
            "struct Looks<'a>(&'a str);\n",
            "impl Drop for Looks<'_> { fn drop(&mut self) { println!(\"{}\", self.0); } }\n",
            $order, "\n", $code, "\n```\n"
        )
    };
}

outlived! {
    in_a_mutex: "it = sync::Mutex::new(Looks(&text));",
    in_a_rwlock: "it = sync::RwLock::new(Looks(&text));",
    in_a_once_lock: "it = sync::OnceLock::new(); it.set(Looks(&text)).ok();",
    in_a_lazy_lock: "it = sync::LazyLock::new(|| Looks(&text)); sync::LazyLock::force(&it);",
    in_a_channel: "it = sync::mpsc::channel(); it.0.send(Looks(&text)).ok();",
}
