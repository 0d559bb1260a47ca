//! `cringle doctor --program`: which waits of a program and its libraries block a worker.
//!
//! The program is read, not run. [`elf`] reads one file, [`search`] finds its libraries as the
//! dynamic linker would, [`functions`] knows what waits, [`text`] prints.
//!
//! What waits is found by names: the libc functions that a file imports. No name leads to a system
//! call that code makes by an instruction of its own, and none is reported.

mod elf;
mod functions;
mod search;
mod served;
mod system_calls;
mod text;

#[cfg(test)]
mod tests;

use crate::paths::as_text;
use cringle_report::failure::Failure;
use elf::{Facts, Identity, Machine};
use functions::Blocking;
use search::{Origin, Search};
use serde::Serialize;
use std::collections::{BTreeSet, VecDeque};
use std::path::{Path, PathBuf};

pub use served::{explanation, refusal};
pub(crate) use text::of as text_of;

/// What was found in a program and its libraries.
#[derive(Serialize)]
pub(crate) struct ProgramReport {
    #[serde(serialize_with = "as_text")]
    path: PathBuf,
    kind: Kind,
    architecture: &'static str,
    linked: Linked,
    c_library: CLibrary,
    hooks: Hooks,
    private_thread_locals: PrivateThreadLocals,
    allocator: Option<&'static str>,
    /// The program, then its libraries in the order in which they are loaded. The C library is not
    /// among them.
    objects: Vec<Object>,
    not_found: Vec<NotFound>,
    verdict: Verdict,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
enum Kind {
    Program,
    Library,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
enum Linked {
    Dynamically,
    Statically,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
enum CLibrary {
    Glibc,
    Musl,
    Unknown,
}

/// The waiting functions of libc that the program defines itself.
#[derive(Serialize)]
struct Hooks {
    state: Installed,
    defined: Vec<String>,
    /// The functions that have hooks in this version, and none in this program.
    missing: Vec<&'static str>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
enum Installed {
    Yes,
    /// The program defines some of the functions by which hooks are recognised.
    Partly,
    No,
    /// A static program does not say; a library has none of its own.
    Unknown,
}

#[derive(Serialize)]
struct PrivateThreadLocals {
    /// `null` for a library: its program decides.
    possible: Option<bool>,
    words: String,
}

/// The program or one of its libraries.
#[derive(Serialize)]
struct Object {
    name: String,
    #[serde(serialize_with = "as_text")]
    path: PathBuf,
    needed_by: Option<String>,
    /// The waiting functions that it imports and that are hooked.
    hooked: Vec<String>,
    /// Those that are not.
    blocking: Vec<Blocking>,
    stripped: bool,
    go: bool,
    /// The places from which it enters the kernel by an instruction of its own, as far as they were
    /// found.
    system_calls: usize,
    /// The functions that it imports and that concern threads of the system.
    #[serde(skip)]
    of_system_threads: Vec<&'static str>,
    /// Whether it loads further libraries while it runs, which are not examined.
    loads_libraries: bool,
}

#[derive(Serialize)]
struct NotFound {
    name: String,
    needed_by: String,
}

#[derive(Serialize)]
struct Verdict {
    /// Whether hooks work in this program; `null` for a library.
    hooks_work: Option<bool>,
    /// The names of the objects that can wait for another process without a hook.
    blocking: Vec<String>,
    sentence: String,
}

impl Object {
    /// Whether it can wait without a hook for another process to act.
    fn blocks(&self) -> bool {
        self.go || self.blocking.iter().any(|calls| !calls.group.usually_short)
    }

    /// Whether it has calls without a hook that are short as a rule.
    fn blocks_shortly(&self) -> bool {
        self.blocking.iter().any(|calls| calls.group.usually_short)
    }
}

impl ProgramReport {
    /// Whether the program has hooks that work. A library is no program and cannot lack them.
    pub(crate) fn hooks_work(&self) -> bool {
        self.verdict.hooks_work.unwrap_or(true)
    }
}

/// Examines the program at `path`, and the libraries that the dynamic linker would load with it.
pub(crate) fn examine(path: &Path) -> Result<ProgramReport, Failure> {
    let refused = |why| Failure::failed(format!("{}: {why}", path.display()));
    let mut facts = elf::read(path).map_err(refused)?;
    let hooks = hooks(&facts);
    if hooks.state == Installed::Yes {
        facts.imports.retain(|name| !functions::OF_EVERY_PROGRAM.contains(&&**name));
    }
    let hooked: BTreeSet<_> = match hooks.state {
        Installed::Yes | Installed::Partly => hooks.defined.iter().cloned().collect(),
        Installed::No | Installed::Unknown => {
            functions::HOOKED.iter().map(|name| (*name).to_owned()).collect()
        }
    };
    let c_library = c_library(&facts.identity);
    let linked = if facts.identity.is_static() { Linked::Statically } else { Linked::Dynamically };
    let mut report = ProgramReport {
        path: path.into(),
        kind: if facts.identity.is_library { Kind::Library } else { Kind::Program },
        architecture: match facts.identity.machine {
            Machine::X86_64 => "x86_64",
            Machine::Aarch64 => "aarch64",
        },
        linked,
        c_library,
        hooks,
        private_thread_locals: private_thread_locals(&facts, linked, c_library),
        allocator: facts.allocator,
        objects: Vec::new(),
        not_found: Vec::new(),
        verdict: Verdict { hooks_work: None, blocking: Vec::new(), sentence: String::new() },
    };
    walk(path, facts, &hooked, &mut report);
    report.verdict = verdict(&report);
    Ok(report)
}

fn hooks(facts: &Facts) -> Hooks {
    let known = functions::known();
    let defined = facts.defines.iter().filter(|name| known.contains(&***name));
    let defined: Vec<_> = defined.cloned().collect();
    let core = functions::CORE.iter().filter(|name| facts.defines.contains(**name)).count();
    let state = match core {
        _ if facts.identity.is_library || facts.identity.is_static() => Installed::Unknown,
        0 => Installed::No,
        all if all == functions::CORE.len() => Installed::Yes,
        _ => Installed::Partly,
    };
    let missing = functions::current().filter(|name| !facts.defines.contains(*name));
    let missing = if state == Installed::Yes { missing.collect() } else { Vec::new() };
    Hooks { state, defined, missing }
}

fn c_library(program: &Identity) -> CLibrary {
    let is_musl = |name: &String| name.starts_with("libc.musl") || name == "libc.so";
    let linker = program.interpreter.as_deref().unwrap_or_default();
    if program.needed.iter().any(is_musl) || linker.contains("ld-musl") {
        return CLibrary::Musl;
    }
    let needs_glibc = program.needed.iter().any(|name| name == "libc.so.6");
    let is_glibc = needs_glibc || program.has_glibc_start || linker.contains("ld-linux");
    if is_glibc { CLibrary::Glibc } else { CLibrary::Unknown }
}

fn private_thread_locals(
    facts: &Facts,
    linked: Linked,
    c_library: CLibrary,
) -> PrivateThreadLocals {
    let (possible, words) = match (linked, c_library) {
        _ if facts.identity.is_library => (None, "the program that loads the library decides"),
        (Linked::Statically, _) => (
            Some(false),
            "shared by fibers: their own ones need a glibc that is linked dynamically",
        ),
        (_, CLibrary::Musl) => {
            (Some(false), "shared by fibers: their own ones need glibc, and the program has musl")
        }
        (_, CLibrary::Glibc) => {
            (Some(true), "each fiber can have its own: glibc is linked dynamically")
        }
        (_, CLibrary::Unknown) => (None, "unknown: the program's C library was not recognised"),
    };
    PrivateThreadLocals { possible, words: words.to_owned() }
}

/// An object that is to be examined.
struct Pending {
    name: String,
    path: PathBuf,
    facts: Facts,
    needed_by: Option<String>,
    /// The object, and those that caused it to be loaded.
    chain: Vec<Origin>,
}

/// Examines the program and, in the linker's breadth-first order, what it needs.
fn walk(path: &Path, facts: Facts, hooked: &BTreeSet<String>, report: &mut ProgramReport) {
    let search = Search::new(facts.identity.machine, report.c_library == CLibrary::Musl);
    let real = path.canonicalize().unwrap_or_else(|_| path.into());
    let name = real.file_name().map_or_else(String::new, |name| name.to_string_lossy().into());
    let chain = vec![origin(&real, &facts)];
    let mut seen = BTreeSet::from([name.clone()]);
    let mut queue =
        VecDeque::from([Pending { name, path: path.into(), facts, needed_by: None, chain }]);
    while let Some(object) = queue.pop_front() {
        for needed in &object.facts.identity.needed {
            if is_c_library(needed) || !seen.insert(needed.clone()) {
                continue;
            }
            match found(&search, needed, &object) {
                Some(library) => queue.push_back(library),
                None => report
                    .not_found
                    .push(NotFound { name: needed.clone(), needed_by: object.name.clone() }),
            }
        }
        report.objects.push(examined(object, hooked));
    }
}

fn origin(path: &Path, facts: &Facts) -> Origin {
    let directory = path.parent().unwrap_or(Path::new("/")).to_owned();
    Origin {
        directory,
        rpath: facts.identity.rpath.clone(),
        runpath: facts.identity.runpath.clone(),
    }
}

/// Finds a library that `loader` needs. A candidate of another architecture does not count.
fn found(search: &Search, name: &str, loader: &Pending) -> Option<Pending> {
    let candidates = search.candidates(name, &loader.chain);
    candidates.into_iter().find_map(|path| {
        let facts = elf::read(&path).ok()?;
        if facts.identity.machine != loader.facts.identity.machine {
            return None;
        }
        let mut chain = vec![origin(&path, &facts)];
        chain.extend(loader.chain.iter().cloned());
        let needed_by = Some(loader.name.clone());
        Some(Pending { name: name.to_owned(), path, facts, needed_by, chain })
    })
}

/// The libraries that belong to the C library: their calls are inside it.
const C_LIBRARY: [&str; 13] = [
    "libc.so",
    "libc.musl-",
    "ld-linux",
    "ld-musl-",
    "libpthread.so",
    "libdl.so",
    "librt.so",
    "libm.so",
    "libmvec.so",
    "libresolv.so",
    "libutil.so",
    "libanl.so",
    "libnss_",
];

fn is_c_library(name: &str) -> bool {
    C_LIBRARY.iter().any(|start| name.starts_with(start))
}

fn examined(object: Pending, hooked: &BTreeSet<String>) -> Object {
    let facts = object.facts;
    let (hooked, blocking) = functions::divided(&facts.imports, hooked);
    let loads = ["dlopen", "dlmopen", "__libc_dlopen_mode"];
    Object {
        name: object.name,
        path: object.path,
        needed_by: object.needed_by,
        hooked,
        blocking,
        stripped: facts.is_stripped,
        system_calls: facts.system_calls,
        of_system_threads: functions::of_system_threads(&facts.imports),
        go: facts.identity.is_go,
        // libc itself loads libraries in each static program.
        loads_libraries: !facts.identity.is_static()
            && loads.iter().any(|name| facts.imports.contains(*name)),
    }
}

fn verdict(report: &ProgramReport) -> Verdict {
    let blocking = report.objects.iter().filter(|object| object.blocks());
    let blocking: Vec<_> = blocking.map(|object| object.name.clone()).collect();
    let hooks_work = match (report.kind, report.linked, report.hooks.state) {
        (Kind::Library, ..) => None,
        (_, Linked::Statically, _) => Some(false),
        (.., state) => Some(state == Installed::Yes && report.c_library != CLibrary::Musl),
    };
    let sentence = sentence(report, &blocking);
    Verdict { hooks_work, blocking, sentence }
}

fn sentence(report: &ProgramReport, blocking: &[String]) -> String {
    let program = &report.objects[0].name;
    if report.linked == Linked::Statically {
        let unknown = match report.objects[0].stripped {
            true => {
                " It has no symbols, so nothing can be known of its calls: build it without \
                 stripping (strip = false, no -s)."
            }
            false => "",
        };
        return format!(
            "{program} is linked statically: private thread-locals are refused, and a library that \
             it loads brings a C library of its own, which no hook reaches. Link it dynamically \
             with glibc (without -C target-feature=+crt-static).{unknown}"
        );
    }
    if report.kind == Kind::Program && report.c_library == CLibrary::Musl {
        return format!(
            "{program} uses musl, where private thread-locals are refused, and with them the \
             hooks. Build it for a target with glibc."
        );
    }
    match report.hooks.state {
        Installed::No => {
            return format!(
                "{program} has no hooks: std's waits, and those of its crates and libraries, block \
                 the worker. Add cringle_interpose::install!(); to its main.rs."
            );
        }
        Installed::Partly => {
            return format!(
                "{program} defines some of libc's waiting functions, but not those of \
                 cringle_interpose::install!: another crate replaces them. Add install! to its \
                 main.rs, or remove the other crate."
            );
        }
        Installed::Yes | Installed::Unknown => {}
    }
    let missing = match report.not_found.len() {
        0 => String::new(),
        1 => " One library was not found.".into(),
        count => format!(" {count} libraries were not found."),
    };
    if !blocking.is_empty() {
        let names = blocking.join(", ");
        return format!(
            "Hooks do not cover each wait: the calls listed first block the worker. They are in \
             {names}.{missing}"
        );
    }
    if report.objects.iter().any(Object::blocks_shortly) {
        return format!(
            "Hooks cover each call of libc that waits for another process; the calls without \
             hooks are usually short.{missing}"
        );
    }
    format!("Hooks cover each call of libc that waits.{missing}")
}
