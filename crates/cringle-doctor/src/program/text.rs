//! The report on a program as text.

use super::functions::GROUPS;
use super::{CLibrary, Installed, Kind, Linked, Object, ProgramReport};
use crate::text::Page;

pub(crate) fn of(report: &ProgramReport) -> String {
    let mut page = Page::default();
    about(&mut page, report);
    let objects = &report.objects;
    section(&mut page, "Calls without hooks that wait for others", objects, false);
    section(&mut page, "Calls without hooks that are usually short", objects, true);
    meanings(&mut page, objects);
    let hooked: Vec<_> = objects.iter().filter(|object| !object.hooked.is_empty()).collect();
    if !hooked.is_empty() {
        page.heading(match report.hooks.state {
            Installed::Yes | Installed::Partly => "Calls with hooks",
            Installed::No | Installed::Unknown => "Calls that hooks would cover",
        });
        hooked.iter().for_each(|object| page.row(&object.name, &with_hooks(object)));
    }
    rest(&mut page, report);
    page.heading("Verdict");
    page.paragraph(&report.verdict.sentence);
    page.finished()
}

fn about(page: &mut Page, report: &ProgramReport) {
    let kind = match report.kind {
        Kind::Program => "Program",
        Kind::Library => "Library",
    };
    page.heading(&format!("{kind} {}", report.path.display()));
    let linked = match report.linked {
        Linked::Dynamically => "dynamically linked",
        Linked::Statically => "statically linked",
    };
    let library = match report.c_library {
        CLibrary::Glibc => "glibc",
        CLibrary::Musl => "musl",
        CLibrary::Unknown => "an unknown C library",
    };
    page.row("kind", &format!("{}, {linked}, {library}", report.architecture));
    page.row("hooks", &hooks(report));
    page.row("thread-locals", &report.private_thread_locals.words);
    if let Some(name) = report.allocator {
        page.row(
            "allocator",
            &format!(
                "{name}: each fiber has a cache of its own, as each thread has, which is larger \
                 than that of glibc's malloc"
            ),
        );
    }
}

fn hooks(report: &ProgramReport) -> String {
    let (defined, missing) = (report.hooks.defined.len(), &report.hooks.missing);
    match report.hooks.state {
        Installed::Yes if missing.is_empty() => {
            format!("installed: the program defines {defined} of libc's functions")
        }
        Installed::Yes => format!(
            "installed: the program defines {defined} of libc's functions; this version of \
             cringle also knows {}",
            missing.join(", ")
        ),
        Installed::Partly => {
            format!("not those of cringle, but it defines {}", report.hooks.defined.join(", "))
        }
        Installed::No => "none".into(),
        Installed::Unknown if report.kind == Kind::Library => {
            "those of the program that loads the library".into()
        }
        Installed::Unknown => "unknown: a static program does not export them".into(),
    }
}

/// Prints the calls without hooks of one weight, by object.
fn section(page: &mut Page, title: &str, objects: &[Object], short: bool) {
    let mut has_heading = false;
    for object in objects {
        let calls = object.blocking.iter().filter(|calls| calls.group.usually_short == short);
        let mut parts: Vec<_> = calls
            .map(|calls| format!("{}: {}", calls.group.title, calls.functions.join(", ")))
            .collect();
        if !short && object.go {
            parts.push("Go: it makes its system calls itself".into());
        }
        if !parts.is_empty() && !has_heading {
            page.heading(title);
            has_heading = true;
        }
        let mut name = &*object.name;
        for part in parts {
            page.row(name, &part);
            name = "";
        }
    }
}

fn with_hooks(object: &Object) -> String {
    let limited = |name: &String| match &**name {
        "syscall" => "syscall (for SYS_futex only)".to_owned(),
        name => name.to_owned(),
    };
    object.hooked.iter().map(limited).collect::<Vec<_>>().join(", ")
}

fn meanings(page: &mut Page, objects: &[Object]) {
    let imported: Vec<_> = objects.iter().flat_map(|object| &object.blocking).collect();
    if imported.is_empty() {
        return;
    }
    page.heading("What they wait for");
    GROUPS
        .iter()
        .filter(|group| imported.iter().any(|calls| calls.group == *group))
        .for_each(|group| page.row(group.title, group.meaning));
}

const NOT_SEEN: &str = "system calls that code makes by an instruction of its own, as rustix, \
    liburing and Go do: no symbol names them, and no hook sees them. If one waits, the worker \
    blocks";
const STATIC: &str = "the names are those of the symbol table: some functions are called only by \
    libc itself";

/// Says that an object has system call instructions.
fn own_calls(object: &Object) -> Option<String> {
    let count = object.system_calls;
    (count > 0).then(|| format!("{}: {count} system calls of its own were found", object.name))
}

fn rest(page: &mut Page, report: &ProgramReport) {
    let is_static = report.linked == Linked::Statically;
    let has_calls = |object: &Object| !object.hooked.is_empty() || !object.blocking.is_empty();
    // Without symbols, the calls of a static program are unknown.
    let is_known = |object: &Object| !(object.go || is_static && object.stripped);
    let is_quiet = |object: &&Object| is_known(object) && !has_calls(object);
    let quiet = report.objects.iter().filter(is_quiet);
    let quiet: Vec<_> = quiet.map(|object| &*object.name).collect();
    let loads = report.objects.iter().filter(|object| object.loads_libraries);
    let loads: Vec<_> = loads.map(|object| &*object.name).collect();
    page.heading("Other");
    page.row("not seen", NOT_SEEN);
    let own_calls = report.objects.iter().filter_map(own_calls).collect::<Vec<_>>().join("; ");
    if !own_calls.is_empty() {
        page.row("instructions", &own_calls);
    }
    if is_static && has_calls(&report.objects[0]) {
        page.row("static", STATIC);
    }
    if !quiet.is_empty() {
        page.row("no waiting calls", &quiet.join(", "));
    }
    if !loads.is_empty() {
        page.row(
            "load libraries",
            &format!(
                "{}: examine what they load with --program, too; a constructor that waits blocks \
                 the worker",
                loads.join(", ")
            ),
        );
    }
    for missing in &report.not_found {
        page.row("not found", &format!("{}, needed by {}", missing.name, missing.needed_by));
    }
}
