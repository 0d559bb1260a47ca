//! What `cringle run` wants to know of a program: whether the library can be preloaded into it, and
//! what of it waits on fibers then.

use super::elf::{self, Machine};
use super::functions::OF_SYSTEM_THREADS;
use super::{CLibrary, Object, c_library, examine};
use crate::text::Page;
use cringle_report::failure::Failure;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// Says why the library cannot be preloaded into the program, and what to do.
pub fn refusal(path: &Path) -> Option<String> {
    let opened = std::fs::File::open(path);
    if opened.is_err_and(|error| error.kind() == io::ErrorKind::PermissionDenied) {
        // A program that may be executed, and not read.
        return None;
    }
    let program = match elf::identify(path) {
        Ok(program) => program,
        Err(why) => return Some(format!("{why}; run it without cringle")),
    };
    let own = if cfg!(target_arch = "x86_64") { Machine::X86_64 } else { Machine::Aarch64 };
    let why = if program.machine != own {
        "it is built for another architecture; use the cringle of that architecture"
    } else if program.is_go {
        "it is written in Go, whose threads make their system calls themselves; run it without \
         cringle"
    } else if program.is_static() {
        "it is linked statically, so nothing can be preloaded; link it dynamically with glibc \
         (without -static, without -C target-feature=+crt-static)"
    } else if program.interpreter.is_none() {
        "it is a shared library, not a program; give a program that loads it"
    } else {
        match c_library(&program) {
            CLibrary::Glibc => return of_privileges(path),
            CLibrary::Musl => "it uses musl; build it for a target with glibc",
            CLibrary::Unknown => "its dynamic linker is not glibc's; build it for glibc",
        }
    };
    Some(why.to_owned())
}

/// The linker ignores `LD_PRELOAD` in a program that gets more rights than its caller has.
fn of_privileges(path: &Path) -> Option<String> {
    let file = path.metadata().ok()?;
    let has = |bits| file.mode() & bits == bits;
    // SAFETY: system calls without arguments.
    let (user, group) = unsafe { (libc::getuid(), libc::getgid()) };
    let what = if has(libc::S_ISUID) && file.uid() != user {
        "setuid"
    } else if has(libc::S_ISGID | libc::S_IXGRP) && file.gid() != group {
        "setgid"
    } else if user != 0 && has_capabilities(path) {
        "of file capabilities (getcap)"
    } else {
        return None;
    };
    // SAFETY: a system call with no pointers.
    if unsafe { libc::prctl(libc::PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0) } == 1 {
        return None;
    }
    Some(format!(
        "it is {what}, so the system preloads nothing into it; run it as the user who owns it, or \
         run a copy without these rights"
    ))
}

fn has_capabilities(path: &Path) -> bool {
    rustix::fs::getxattr(path, c"security.capability", &mut [0_u8; 0][..])
        .is_ok_and(|bytes| bytes > 0)
}

/// Reports what of a program waits on fibers and what does not, by what it imports.
///
/// # Errors
///
/// The file cannot be read.
pub fn explanation(path: &Path) -> Result<String, Failure> {
    let report = examine(path)?;
    let objects = &report.objects;
    let mut page = Page::default();
    page.heading(&format!("Program {}", path.display()));
    section(&mut page, objects, "Waits on fibers", |object| match object.hooked.len() {
        0 => String::new(),
        count => format!("{count} of libc's calls"),
    });
    section(
        &mut page,
        objects,
        "Blocks a worker, until the fiber gets a thread of its own after 10 ms",
        |object| {
            // A fiber gets a thread of its own for these.
            let groups = object.blocking.iter().filter(|calls| calls.group.name != "mutex-kinds");
            let groups = groups
                .map(|calls| format!("{}: {}", calls.group.title, calls.functions.join(", ")));
            let own = (object.system_calls > 0)
                .then(|| format!("system calls of its own: {} places", object.system_calls));
            groups.chain(own).collect::<Vec<_>>().join("; ")
        },
    );
    section(&mut page, objects, "Gets a thread of its own, or concerns one", |object| {
        let groups = OF_SYSTEM_THREADS.iter().filter_map(|(title, names)| {
            let names = names.split(' ').filter(|name| object.of_system_threads.contains(name));
            let names = names.collect::<Vec<_>>().join(", ");
            (!names.is_empty()).then(|| format!("{title}: {names}"))
        });
        groups.collect::<Vec<_>>().join("; ")
    });
    page.heading("Not known from the files");
    page.row("loops", "whether code computes for long, or spins until another thread acts");
    let loads = objects.iter().filter(|object| object.loads_libraries);
    let loads = loads.map(|object| &*object.name).collect::<Vec<_>>().join(", ");
    if !loads.is_empty() {
        page.row("load libraries", &format!("{loads}: what they load is not in this report"));
    }
    for missing in &report.not_found {
        page.row("not found", &format!("{}, needed by {}", missing.name, missing.needed_by));
    }
    Ok(page.finished())
}

/// A row for each object with a text.
fn section(page: &mut Page, objects: &[Object], title: &str, text: impl Fn(&Object) -> String) {
    let rows = objects.iter().map(|object| (&*object.name, text(object)));
    let rows: Vec<_> = rows.filter(|(_, text)| !text.is_empty()).collect();
    if !rows.is_empty() {
        page.heading(title);
        rows.iter().for_each(|(name, text)| page.row(name, text));
    }
}
