//! The report on a program as text.

use super::functions::Group;
use super::inline::Inline;
use super::{CLibrary, Installed, Kind, Linked, Object, ProgramReport};
use crate::text::Page;
use std::collections::BTreeSet;

pub(crate) fn of(report: &ProgramReport) -> String {
    let mut page = Page::default();
    about(&mut page, report);
    let objects = &report.objects;
    section(&mut page, "Calls without hooks that wait for others", objects, false);
    section(&mut page, "Calls without hooks that are usually short", objects, true);
    meanings(&mut page, objects);
    let hooked: Vec<_> = objects.iter().filter(|object| !object.hooked.is_empty()).collect();
    if !hooked.is_empty() {
        page.heading("Calls with hooks");
        hooked.iter().for_each(|object| page.row(&object.name, &with_hooks(object)));
    }
    rest(&mut page, report);
    page.heading("Verdict");
    page.paragraph(&report.verdict.sentence, 2);
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
                "{name}: with private thread-locals each fiber has a cache of its own, which is \
                 larger than that of glibc's malloc"
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
        let calls = object.blocking.iter().filter(|calls| calls.usually_short == short);
        let mut parts: Vec<_> = calls
            .map(|calls| format!("{}: {}", calls.group.title(), calls.functions.join(", ")))
            .collect();
        if !short {
            parts.extend(object.inline.iter().map(inline_calls));
            if object.go {
                parts.push("Go: it makes its system calls itself".into());
            }
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

fn inline_calls(inline: &Inline) -> String {
    let call = inline.call.unwrap_or("the number is not a constant");
    let places = match inline.places {
        1 => String::new(),
        count => format!(" in {count} places"),
    };
    let functions = match &inline.functions[..] {
        [] => String::new(),
        all if all.len() > SHOWN => format!(" ({}, …)", all[..SHOWN].join(", ")),
        all => format!(" ({})", all.join(", ")),
    };
    format!("inline system call: {call}{places}{functions}")
}

/// How many functions with inline system calls are printed; the JSON has all.
const SHOWN: usize = 4;

fn meanings(page: &mut Page, objects: &[Object]) {
    if !objects.iter().any(|object| object.blocks() || object.blocks_shortly()) {
        return;
    }
    page.heading("What they wait for");
    let groups: BTreeSet<Group> =
        objects.iter().flat_map(|object| &object.blocking).map(|calls| calls.group).collect();
    groups.iter().for_each(|group| page.row(group.title(), group.meaning()));
    if objects.iter().any(|object| !object.inline.is_empty()) {
        page.row(
            "inline system call",
            "an instruction in the object's own code, found by a heuristic: no hook sees it, and \
             the worker blocks as long as the call waits",
        );
    }
    let program = &objects[0];
    if program.needed_by.is_none() && program.stripped && !program.inline.is_empty() {
        page.paragraph(
            &format!(
                "{} has no symbols, so its inline system calls have no names. If it uses Cringle, \
                 some are the library's own.",
                program.name
            ),
            2,
        );
    }
}

fn rest(page: &mut Page, report: &ProgramReport) {
    let is_quiet =
        |object: &&Object| object.hooked.is_empty() && !object.blocks() && !object.blocks_shortly();
    let quiet = report.objects.iter().filter(is_quiet);
    let quiet: Vec<_> = quiet.map(|object| &*object.name).collect();
    let loads = report.objects.iter().filter(|object| object.loads_libraries);
    let loads: Vec<_> = loads.map(|object| &*object.name).collect();
    if quiet.is_empty() && loads.is_empty() && report.not_found.is_empty() {
        return;
    }
    page.heading("Other");
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
