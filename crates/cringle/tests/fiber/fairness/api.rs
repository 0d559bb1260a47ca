//! The calls listed in `api.txt` and those in the source.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// How a call treats the other fibers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Shaped to block.
    Blocks,
    /// Yields after 128 failures in a row.
    Tries,
    /// Counts, and never suspends.
    Counts,
    /// Counts once the value exists, and waits while another fiber makes it.
    Once,
    /// Neither counts nor suspends.
    Quiet,
}

impl Kind {
    fn of(word: &str) -> Kind {
        match word {
            "blocks" => Kind::Blocks,
            "tries" => Kind::Tries,
            "counts" => Kind::Counts,
            "once" => Kind::Once,
            "quiet" => Kind::Quiet,
            _ => panic!("{word} is no kind of call"),
        }
    }

    /// The sentence in the docs of such a call.
    pub(crate) fn sentence(self) -> &'static str {
        match self {
            Kind::Blocks => "May suspend the calling fiber.",
            Kind::Tries => "Suspends the calling fiber only after 128 failures in a row.",
            Kind::Counts => "Never suspends the calling fiber.",
            Kind::Once => "Suspends the calling fiber only while another one initialises.",
            Kind::Quiet => "",
        }
    }
}

/// Names that are listed although the source has no such `pub fn`.
pub(crate) const TRAIT_METHODS: &[&str] =
    &["sync::mpsc::Iter::next", "sync::mpsc::TryIter::next", "sync::mpmc::Iter::next"];

/// The types that a macro defines methods of.
const BY_MACROS: &[(&str, &[&str])] = &[
    ("sync::channel_macros::sends", &["sync::mpsc::SyncSender", "sync::mpmc::Sender"]),
    ("sync::channel_macros::receives_many", &["sync::mpsc::Receiver", "sync::mpmc::Receiver"]),
    (
        "sync::channel_macros::receives",
        &["sync::mpsc::Receiver", "sync::mpmc::Receiver", "sync::oneshot::Receiver"],
    ),
];

/// The modules with calls that may wait.
const PLACES: &[&str] =
    &["sync", "fiber", "time", "process", "io", "signal", "dump_on.rs", "cancel.rs"];
/// Modules without items that users have. Those of `cringle_std::internal` are for other crates of
/// the library.
const PRIVATE: &[&str] = &[
    "fiber::backoff",
    "fiber::op",
    "fs::fifo",
    "fs::misaligned",
    "process::busy",
    "process::wait",
    "signal::handler",
    "signal::watcher",
    "sync::fair_lock",
    "sync::loom_tests",
    "sync::reentrant",
    "sync::shared_run",
];
/// Functions that users do not have: see [`PRIVATE`].
const INTERNAL: &[&str] = &[
    "fiber::park::sleep_till_cancellable",
    "fiber::unblock::call_by",
    "fiber::unblock::call_detached",
    "fiber::unblock::unblock_or_here",
];

pub(crate) fn listed() -> BTreeMap<&'static str, Kind> {
    let lines = include_str!("api.txt").lines();
    lines
        .map(|line| {
            let (kind, name) = line.split_once(' ').expect("a kind and a name");
            (name, Kind::of(kind))
        })
        .collect()
}

pub(crate) fn kind_of(name: &str) -> Kind {
    *listed().get(name).unwrap_or_else(|| panic!("api.txt does not list {name}"))
}

/// A public function of the source.
#[derive(Clone)]
pub(crate) struct Found {
    pub(crate) docs: String,
    /// From the name to the body, on one line.
    pub(crate) signature: String,
}

/// Returns each public function of the modules with calls that may wait.
pub(crate) fn found_in_source() -> BTreeMap<String, Found> {
    found_in(PLACES)
}

/// Returns each public function of these modules.
pub(crate) fn found_in(places: &[&str]) -> BTreeMap<String, Found> {
    let mut found = BTreeMap::new();
    for file in files_of(places) {
        let rooms = [("std", ""), ("storage", "block::"), ("run", "signal::")];
        let within = |(name, room)| file.strip_prefix(source(name)).ok().map(|file| (file, room));
        let (source, room) = rooms.into_iter().find_map(within).expect("a source of the library");
        let path = source.with_extension("");
        let module = format!("{room}{}", path.to_str().unwrap().replace('/', "::"));
        let module = module.strip_suffix("::mod").unwrap_or(&module);
        if !PRIVATE.contains(&module) {
            read(&std::fs::read_to_string(&file).unwrap(), module, &mut found);
        }
    }
    found.retain(|name, _| !INTERNAL.contains(&&**name));
    assert!(found.len() > 200, "the source is not read as it is written");
    found
}

fn source(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("../cringle-{name}/src"))
}

/// The source of a module of `cringle`.
fn source_of(place: &str) -> PathBuf {
    match place {
        "block" => source("storage"),
        "dump_on.rs" => source("run").join(place),
        _ => source("std").join(place),
    }
}

/// Returns the source files of these modules.
pub(crate) fn files_of(places: &[&str]) -> Vec<PathBuf> {
    let mut files = Vec::new();
    places.iter().for_each(|place| collect(&source_of(place), &mut files));
    files
}

fn collect(path: &Path, files: &mut Vec<PathBuf>) {
    if path.is_dir() {
        let entries = std::fs::read_dir(path).unwrap();
        entries.for_each(|entry| collect(&entry.unwrap().path(), files));
    } else {
        files.push(path.to_owned());
    }
}

fn read(text: &str, module: &str, found: &mut BTreeMap<String, Found>) {
    let (mut owner, mut docs) = (None, String::new());
    let mut lines = text.lines().take_while(|line| !line.starts_with("#[cfg(test)]"));
    while let Some(line) = lines.next() {
        let trimmed = line.trim_start();
        if let Some(more) = trimmed.strip_prefix("///") {
            docs.push_str(more.trim_start());
            docs.push('\n');
        } else if let Some(header) = line.strip_prefix("impl") {
            owner = owner_of(header);
        } else if line == "setters! {" {
            // The next line names the builder.
            owner = lines.next().and_then(|line| line.trim().strip_suffix(':'));
        } else if let Some(header) = line.strip_prefix("macro_rules! ") {
            owner = header.split(' ').next();
        } else if let Some(rest) = trimmed.strip_prefix("pub fn ") {
            let name = rest.split(['(', '<']).next().unwrap();
            let owner = match line.starts_with(' ') {
                true => format!("{module}::{}", owner.expect("the type of a method")),
                false => module.to_owned(),
            };
            let mut signature = rest.to_owned();
            while !signature.ends_with(['{', ';']) {
                signature.push(' ');
                signature.push_str(lines.next().expect("a body").trim());
            }
            let function = Found { docs: std::mem::take(&mut docs), signature };
            let by_macro = BY_MACROS.iter().find(|(of, _)| *of == owner);
            let itself = [&*owner];
            let owners = by_macro.map_or(&itself[..], |(_, owners)| owners);
            found.extend(owners.iter().map(|of| (format!("{of}::{name}"), function.clone())));
        } else if !trimmed.starts_with("#[") {
            docs.clear();
        }
    }
}

/// Returns the type of an `impl`; `None` for the `impl` of a trait.
fn owner_of(header: &str) -> Option<&str> {
    let mut depth = 0;
    let mut before = ' ';
    // Skips the generics. The `>` of an arrow closes none.
    let begin = header.find(|c: char| {
        depth += i32::from(c == '<') - i32::from(c == '>' && before != '-');
        before = c;
        depth == 0 && c.is_ascii_uppercase()
    });
    let name = &header[begin?..];
    (!header.contains(" for ")).then(|| name.split(['<', ' ']).next().unwrap())
}
