//! `--dry-run`: what would be copied, and what becomes of what is there: the lines of `-v`, and the
//! complaints that can be foreseen. Nothing is changed, nothing is asked.

use super::entry::is_newer;
use super::messages::{complain, complain_of, fail_quietly, quote, say};
use super::options::{Options, Replace};
use super::plan::Copy;
use super::same::{Verdict, same_file};
use super::sys::{self, Stat};
use super::tree::{Item, join};
use std::ffi::{CString, OsStr};
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// One name, and the directories that led to it.
struct Name {
    source: CString,
    target: CString,
    above: Vec<(u64, u64)>,
    device: Option<u64>,
    /// The directory that holds the target is there.
    may_be_there: bool,
}

pub(super) fn run(options: &Options, copies: Vec<Copy>) {
    for copy in copies {
        let mut stack = vec![Name {
            source: sys::c_string(copy.source.as_bytes()),
            target: sys::c_string(copy.target.as_bytes()),
            above: Vec::new(),
            device: None,
            may_be_there: true,
        }];
        while let Some(name) = stack.pop() {
            visit(options, &name, &mut stack);
        }
    }
}

fn quoted(name: &CString) -> String {
    quote(OsStr::from_bytes(name.to_bytes()))
}

fn visit(options: &Options, name: &Name, stack: &mut Vec<Name>) {
    let follow = options.follows(name.above.is_empty());
    let source = quoted(&name.source);
    let stat = match sys::stat_at(sys::CWD, &name.source, follow) {
        Ok(stat) => stat,
        Err(e) => return complain_of(&format!("cannot stat {source}"), &e),
    };
    let is_dir = sys::kind(&stat) == libc::S_IFDIR;
    if is_dir && !options.recursive {
        return complain(&format!("-r not specified; omitting directory {source}"));
    }
    if is_dir && name.above.is_empty() && is_below(name) {
        let target = quoted(&name.target);
        return complain(&format!("cannot copy a directory, {source}, into itself, {target}"));
    }
    if is_dir && follow && name.above.contains(&sys::id(&stat)) {
        return complain(&format!("cannot copy cyclic symbolic link {source}"));
    }
    let existing = match sys::stat_at(sys::CWD, &name.target, false) {
        Ok(existing) if name.may_be_there => Some(existing),
        _ => None,
    };
    if !outcome(options, name, &stat, existing) || !is_dir {
        return;
    }
    let elsewhere = name.device.is_some_and(|device| device != stat.st_dev);
    if !(options.one_file_system && elsewhere) {
        list(name, &stat, existing.is_some(), stack);
    }
}

/// Says what would happen to it; false if nothing would.
fn outcome(options: &Options, name: &Name, stat: &Stat, existing: Option<Stat>) -> bool {
    let (source, target) = (quoted(&name.source), quoted(&name.target));
    let is_dir = sys::kind(stat) == libc::S_IFDIR;
    if !is_readable(options, name, stat) {
        let e = std::io::Error::from_raw_os_error(libc::EACCES);
        let what = if is_dir { "access" } else { "open" };
        let end = if is_dir { "" } else { " for reading" };
        complain_of(&format!("cannot {what} {source}{end}"), &e);
        return false;
    }
    let Some(existing) = existing else {
        if name.may_be_there && !has_room(name) {
            let e = std::io::Error::from_raw_os_error(libc::EACCES);
            let what = if is_dir { "directory" } else { "regular file" };
            complain_of(&format!("cannot create {what} {target}"), &e);
            return false;
        }
        say(&format!("{source} -> {target}"));
        return true;
    };
    let through = sys::stat_at(sys::CWD, &name.target, true).unwrap_or(existing);
    let onto_dir = sys::kind(&through) == libc::S_IFDIR;
    match (is_dir, onto_dir) {
        // What is in it goes into what is there.
        (true, true) => return true,
        (true, false) => {
            complain(&format!("cannot overwrite non-directory {target} with directory {source}"));
            return false;
        }
        (false, true) => {
            complain(&format!("cannot overwrite directory {target} with non-directory"));
            return false;
        }
        (false, false) => {}
    }
    onto_file(options, name, stat, &through)
}

fn onto_file(options: &Options, name: &Name, stat: &Stat, existing: &Stat) -> bool {
    let (source, target) = (quoted(&name.source), quoted(&name.target));
    let item = Item {
        dir: None,
        source_dir: sys::CWD,
        source: &name.source,
        target_dir: sys::CWD,
        target: &name.target,
    };
    let stays = matches!(options.replace, Replace::Skip | Replace::Refuse);
    match if stays { Verdict::Go } else { same_file(options, &item, stat, existing) } {
        Verdict::Refuse => {
            complain(&format!("{source} and {target} are the same file"));
            return false;
        }
        Verdict::Nothing => return false,
        Verdict::Go => {}
    }
    let older = options.only_newer && !is_newer(stat, existing);
    if older || options.replace == Replace::Skip {
        say(&format!("skipped {target}"));
        return false;
    }
    let how = match options.replace {
        Replace::Refuse => {
            complain(&format!("not replacing {target}"));
            fail_quietly();
            return false;
        }
        Replace::Ask => "asked about, overwritten",
        _ if options.backup.is_some() => "backed up, replaced",
        _ if options.remove_first => "removed, replaced",
        _ => "overwritten",
    };
    say(&format!("{source} -> {target} ({how})"));
    true
}

/// A file that is linked to need not be read.
fn is_readable(options: &Options, name: &Name, stat: &Stat) -> bool {
    let opened = match sys::kind(stat) {
        libc::S_IFDIR => true,
        libc::S_IFREG => !options.hard_link && !options.symbolic_link,
        _ => false,
    };
    !opened || sys::accessible(&name.source, libc::R_OK)
}

fn parent(path: &CString) -> &Path {
    match Path::new(OsStr::from_bytes(path.to_bytes())).parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    }
}

fn has_room(name: &Name) -> bool {
    let parent = sys::c_string(parent(&name.target).as_os_str().as_bytes());
    sys::accessible(&parent, libc::W_OK | libc::X_OK)
}

/// Whether the target lies within the source.
fn is_below(name: &Name) -> bool {
    let source = Path::new(OsStr::from_bytes(name.source.to_bytes())).canonicalize();
    let target = Path::new(OsStr::from_bytes(name.target.to_bytes()));
    let target = target.canonicalize().or_else(|_| parent(&name.target).canonicalize());
    matches!((source, target), (Ok(source), Ok(target)) if target.starts_with(&source))
}

fn list(name: &Name, stat: &Stat, is_there: bool, stack: &mut Vec<Name>) {
    let mut above = name.above.clone();
    above.push(sys::id(stat));
    let flags = libc::O_RDONLY | libc::O_DIRECTORY;
    let (mut entries, mut buffer, mut position) = (Vec::new(), vec![0; 32 << 10], Some(0));
    let listed = sys::open_at(sys::CWD, &name.source, flags, 0).and_then(|open| {
        while let Some(from) = position {
            position = sys::list(open.as_fd(), from, &mut buffer, 1 << 15, &mut entries)?;
        }
        Ok(())
    });
    if let Err(e) = listed {
        complain_of(&format!("cannot access {}", quoted(&name.source)), &e);
    }
    let below = |path: &CString, entry: &CString| {
        let mut path = path.to_bytes().to_vec();
        join(&mut path, entry.to_bytes());
        sys::c_string(&path)
    };
    stack.extend(entries.iter().map(|entry| Name {
        source: below(&name.source, &entry.name),
        target: below(&name.target, &entry.name),
        above: above.clone(),
        device: name.device.or(Some(stat.st_dev)),
        may_be_there: is_there,
    }));
}
