//! Each call that unwinds a cancelled fiber has a twin that returns an error.

use super::api::{self, Kind};
use std::collections::{BTreeMap, BTreeSet};

/// Why a call that may wait has no twin `…_cancellable`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Reason {
    /// It returns an error itself, which its signature proves.
    ReturnsError,
    /// Its twin has another name.
    Named(&'static str),
    /// It runs the caller's closures or fibers, which are cancelled with the caller, and cannot
    /// return before they have ended: they borrow from its frame.
    RunsClosures,
    /// It waits only while another caller has the value: initialises it, changes a watched one, or
    /// holds the lock of a standard stream.
    OthersUse,
    /// It only yields when its budget is spent.
    Yields,
    /// A trait prescribes its signature; the named call returns an error.
    Iterator(&'static str),
}

use Reason::{Iterator, Named, OthersUse, ReturnsError, RunsClosures, Yields};

const WITHOUT_TWIN: &[(&str, Reason)] = &[
    ("fiber::combine::join::join", RunsClosures),
    ("fiber::combine::join::join_all", RunsClosures),
    ("fiber::combine::par::par_for_each", Named("fiber::combine::par::try_par_for_each")),
    ("fiber::combine::par::par_map", Named("fiber::combine::par::try_par_map")),
    ("fiber::combine::par::try_par_for_each", ReturnsError),
    ("fiber::combine::par::try_par_map", ReturnsError),
    (
        "fiber::combine::par_workers::par_for_each_workers",
        Named("fiber::combine::par_workers::try_par_for_each_workers"),
    ),
    (
        "fiber::combine::par_workers::par_map_workers",
        Named("fiber::combine::par_workers::try_par_map_workers"),
    ),
    ("fiber::combine::par_workers::try_par_for_each_workers", ReturnsError),
    ("fiber::combine::par_workers::try_par_map_workers", ReturnsError),
    ("fiber::combine::race::any", ReturnsError),
    ("fiber::combine::race::race", ReturnsError),
    ("fiber::combine::race::race_with", ReturnsError),
    ("fiber::scope::scope", RunsClosures),
    ("fiber::try_scope::try_scope", ReturnsError),
    ("fiber::unblock::unblock", RunsClosures),
    ("io::copy::copy", ReturnsError),
    ("io::ready::ready", ReturnsError),
    ("io::stdio::input::Stdin::lines", Named("io::stdio::input::Stdin::read_line")),
    ("io::stdio::input::Stdin::lock", Named("io::stdio::input::Stdin::read_line")),
    ("io::stdio::input::Stdin::read_line", ReturnsError),
    ("io::stdio::output::Stderr::lock", OthersUse),
    ("io::stdio::output::Stdout::lock", OthersUse),
    ("process::child::Child::wait", ReturnsError),
    ("process::child::Child::wait_with_output", ReturnsError),
    ("process::command::Command::output", ReturnsError),
    ("process::command::Command::spawn", ReturnsError),
    ("process::command::Command::status", ReturnsError),
    ("signal::Signals::wait", ReturnsError),
    ("signal::wait", ReturnsError),
    ("sync::lazy_lock::LazyLock::force", OthersUse),
    ("sync::mpmc::Iter::next", Iterator("sync::mpmc::Receiver::recv_cancellable")),
    ("sync::mpsc::Iter::next", Iterator("sync::mpsc::Receiver::recv_cancellable")),
    ("sync::mpsc::Sender::send", Yields),
    ("sync::once::Once::call_once", OthersUse),
    ("sync::once::Once::call_once_force", OthersUse),
    ("sync::once_lock::OnceLock::get_or_init", OthersUse),
    ("sync::once_lock::OnceLock::set", OthersUse),
    ("sync::oneshot::Sender::send", Yields),
    ("sync::watch::Sender::borrow", OthersUse),
    ("sync::watch::Sender::send_modify", Named("sync::watch::Sender::send_cancellable")),
    ("sync::watch::Sender::send_replace", Named("sync::watch::Sender::send_cancellable")),
    ("sync::watch::receiver::Receiver::borrow", OthersUse),
    ("sync::watch::receiver::Receiver::borrow_and_update", OthersUse),
    ("time::interval::Interval::tick", ReturnsError),
    ("time::wait::sleep", ReturnsError),
    ("time::wait::sleep_until", ReturnsError),
];

#[test]
fn every_wait_that_unwinds_has_a_twin() {
    let listed = api::listed();
    let found = api::found_in_source();
    let mut excused: BTreeMap<_, _> = WITHOUT_TWIN.iter().copied().collect();
    let may_wait = |kind: &Kind| matches!(kind, Kind::Blocks | Kind::Once);
    let waits = listed.iter().filter(|(_, kind)| may_wait(kind)).map(|(name, _)| *name);
    let (twins, waits): (Vec<_>, Vec<_>) = waits.partition(|name| name.ends_with("_cancellable"));
    let mut with_twin = 0;
    for name in &waits {
        let twin = format!("{name}_cancellable");
        match (excused.remove(name), listed.get(twin.as_str())) {
            (None, Some(Kind::Blocks)) => {
                with_twin += 1;
                assert!(returns_error(&found[&twin].signature), "{twin} returns no error");
            }
            (None, _) => panic!("{name} has no twin {twin}, and twins.rs does not say why"),
            (Some(reason), Some(_)) => panic!("{name} has a twin, and twins.rs says {reason:?}"),
            (Some(ReturnsError), None) => {
                let signature = &found[*name].signature;
                assert!(returns_error(signature), "{name} returns no error: {signature}");
            }
            (Some(Named(other) | Iterator(other)), None) => {
                assert!(found.contains_key(other), "{name}: there is no {other}");
                assert!(returns_error(&found[other].signature), "{other} returns no error");
            }
            (Some(RunsClosures | OthersUse | Yields), None) => {}
        }
    }
    assert!(excused.is_empty(), "these calls do not wait: {excused:?}");
    assert_eq!(twins.len(), with_twin, "a twin of no call: {twins:?}");
    assert_eq!(waits.len(), with_twin + WITHOUT_TWIN.len(), "each wait has a twin or a reason");
}

/// The modules whose waits need no twins: their calls return errors, and a cancel is one of them.
/// (`fs_children/cancel.rs` and `net_children/tcp.rs` call them on cancelled fibers.)
const WITH_ERRORS: &[&str] = &["block", "fs", "net", "os.rs"];

/// Types there of which no method asks the kernel: options, answers, and what a batch consists of.
const PASSIVE: &[&str] = &[
    "AlignedBuf",
    "BlockIoBuilder",
    "DirBuilder",
    "DirEntry",
    "FileTimes",
    "FileType",
    "LogBuilder",
    "Metadata",
    "OpenOptions",
    "OwnedBatch",
    "OwnedResults",
    "RecvAncillary",
    "Results",
    "SendAncillary",
    "Stopper",
    "TcpListenerBuilder",
];

/// Other calls there that never wait.
const IMMEDIATE: &[&str] = &[
    "block::batch::Batch::is_empty",
    "block::batch::Batch::len",
    "block::batch::Batch::new",
    "block::batch::Batch::read",
    "block::batch::Batch::read_exact",
    "block::batch::Batch::read_fixed",
    "block::batch::Batch::with_capacity",
    "block::batch::Batch::write",
    "block::batch::Batch::write_all",
    "block::batch::Batch::write_fixed",
    "block::block_io::BlockIo::builder",
    "block::block_io::BlockIo::stats",
    "block::log::Log::builder",
    "block::log::Log::cut_bytes",
    "block::log::Log::end",
    "block::mapped::MappedFile::file",
    "block::mapped::MappedFile::refresh",
    "block::mapped::MappedFile::resident_bytes",
    "block::mapped::MappedFile::unmapped",
    "block::mapped::batch::Batch::read_exact_mapped",
    "block::mapped::batch::Batch::read_mapped",
    "fs::file::File::options",
    "fs::open::option::$name",
    "net::builder::TcpListener::builder",
    // Iterators, whose items are results.
    "net::tcp_listener::TcpListener::incoming",
    "net::unix::listener::UnixListener::incoming",
    "net::server::Server::grace",
    "net::server::Server::max_connections",
    "net::server::Server::stopper",
];

#[test]
fn waits_of_files_and_sockets_return_errors() {
    let found = api::found_in(WITH_ERRORS);
    let mut immediate: BTreeSet<_> = IMMEDIATE.iter().copied().collect();
    let mut passive: BTreeSet<_> = PASSIVE.iter().copied().collect();
    for (name, function) in &found {
        assert!(!name.ends_with("_cancellable"), "{name}: its twin would return errors itself");
        let result = function.signature.split(" where ").next().unwrap().rsplit_once("-> ");
        if result.is_some_and(|(_, result)| result.contains("Result")) || immediate.remove(&**name)
        {
            continue;
        }
        let owner = name.rsplit("::").nth(1).unwrap();
        passive.remove(owner);
        let is_passive = PASSIVE.contains(&owner);
        assert!(is_passive, "{name} may wait, but returns no error: {}", function.signature);
    }
    assert!(immediate.is_empty() && passive.is_empty(), "unknown: {immediate:?} {passive:?}");
    for file in api::files_of(WITH_ERRORS) {
        let text = std::fs::read_to_string(&file).unwrap();
        for unwinds in ["WaitOptions::unwinding", "cancelled::unwind"] {
            assert!(!text.contains(unwinds), "{}: a wait that unwinds", file.display());
        }
    }
}

/// Returns whether the signature has a result whose error a cancel can be.
fn returns_error(signature: &str) -> bool {
    let header = signature.split(" where ").next().unwrap();
    let result = header.rsplit_once("-> ").map_or("", |(_, result)| result);
    ["io::Result<", "Result<T, E>", "Result<(), E>", "Result<Vec<R>, E>", "Unsent<"]
        .iter()
        .any(|error| result.contains(error))
}
