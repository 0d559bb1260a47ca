//! `--dry-run`: what would be copied, and what becomes of what is there: the lines of `-v`, and the
//! complaints that can be foreseen. Nothing is changed, nothing is asked.

use super::decide::{Decision, Facts, Kind, Node, Rules, decide};
use super::listing::next_entries;
use super::messages::{complain, complain_of, quote, say};
use super::options::Options;
use super::plan::Copy;
use super::same;
use super::sys::{self, Stat};
use super::target::refusal;
use super::tree::{Item, Side, join};
use std::ffi::{CString, OsStr};
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
        let onto_dir = existing.is_some_and(|there| sys::kind(&there) == libc::S_IFDIR);
        list(name, &stat, onto_dir, stack);
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
    let item = Item {
        dir: None,
        source_dir: sys::CWD,
        source: &name.source,
        target_dir: sys::CWD,
        target: &name.target,
    };
    let rules = Rules::of(options, name.above.is_empty());
    let node = Node::of(stat);
    let through = rules.looks_through(node.kind);
    let existing = sys::stat_at(sys::CWD, &name.target, through).unwrap_or(existing);
    onto(options, &rules, &item, node, &existing)
}

/// The same decision as that of a copy, with "yes" to each question.
fn onto(options: &Options, rules: &Rules, item: &Item<'_>, source: Node, existing: &Stat) -> bool {
    let target = Node::of(existing);
    let mut facts = Facts {
        source,
        target,
        names: same::names(rules, item, &source, &target),
        just_made: false,
        is_dots: matches!(same::last_part(item.source.to_bytes()), b"." | b".."),
        backup_is_source: same::source_is_backup(options, item, &source),
        time_step: same::time_step(options, item, existing),
        answer: None,
    };
    let mut decision = decide(rules, &facts);
    let asks = decision == Decision::Ask;
    if asks {
        facts.answer = Some(true);
        decision = decide(rules, &facts);
    }
    let how = match decision {
        Decision::Refuse(why) => {
            complain(&refusal(why, item));
            return false;
        }
        Decision::Nothing | Decision::Declined | Decision::Ask => return false,
        Decision::Keep | Decision::KeepNewer => {
            say(&format!("skipped {}", item.quoted(Side::Target)));
            return false;
        }
        // What is in it goes into what exists.
        Decision::Onto if source.kind == Kind::Directory => return true,
        Decision::Onto if asks => "asked about, overwritten",
        Decision::Onto => "overwritten",
        Decision::BackUp => "backed up, replaced",
        Decision::Remove => "removed, replaced",
    };
    let (source, target) = (item.quoted(Side::Source), item.quoted(Side::Target));
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
    let (mut entries, mut buffer) = (Vec::new(), vec![0; 32 << 10]);
    let listed = sys::open_at(sys::CWD, &name.source, flags, 0).and_then(|open| {
        while next_entries(&open, &mut buffer, 1 << 15, &mut entries)? {}
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
