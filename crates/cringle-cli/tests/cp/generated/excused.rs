//! The differences from GNU's that docs/cp.md names, each as narrow as it can be told.

use super::case::{Case, What};
use super::{Outcome, differences};
use crate::support::{gnu_version, same_but_old_bits};
use std::ffi::OsStr;

/// Why this difference is none; `None`: it is one.
pub(crate) fn excused(case: &Case, mine: &Outcome, theirs: &Outcome) -> Option<&'static str> {
    let flag = |wanted: &str| case.flags.iter().any(|flag| flag.starts_with(wanted));
    let says = |outcome: &Outcome, text: &str| outcome.err.iter().any(|line| line.contains(text));
    let backup = flag("-b") || flag("--backup=") || flag("--suffix=");
    if backup && gnu_version() >= (9, 5) && says(mine, "cannot overwrite ") {
        return Some("--backup of another kind");
    }
    let old_sets = case.made.iter().any(|made| matches!(made.what, What::Hard(_)));
    let older = flag("-u") || flag("--update=older");
    if older && (old_sets || says(theirs, "cannot create hard link")) {
        return Some("-u with hard links");
    }
    // The same file by two sources: GNU's replaces the first name by a link to itself.
    let removed = |line: &&String| !line.starts_with("removed ");
    let without_removed = |outcome: &Outcome| Outcome {
        out: outcome.out.iter().filter(removed).cloned().collect(),
        ..outcome.clone()
    };
    if older && mine.out.len() < theirs.out.len() && *mine == without_removed(theirs) {
        return Some("-u of a file that is named twice");
    }
    if flag("-s") && old_sets && (flag("-L") || flag("-H")) {
        return Some("-s -L with hard links");
    }
    let exists =
        |line: &String| line.contains("cannot create directory") && line.ends_with(": File exists");
    if flag("--parents") && theirs.err.iter().any(exists) && !mine.err.iter().any(exists) {
        return Some("--parents after a new directory");
    }
    if gnu_version() < (9, 5) && says(theirs, "--backup and --no-clobber are mutually exclusive") {
        return Some("other words of older versions");
    }
    let mut same = mine.clone();
    for (name, text) in &mut same.tree {
        if let Some(theirs) = theirs.tree.get(name)
            && (gnu_version() >= (9, 2)
                && !text.starts_with("10")
                && same_but_old_bits(text, theirs)
                || is_renamed_into(case, name, text, theirs)
                || (flag("--parents") || flag("-L") || flag("-H") || case.user.is_some())
                    && has_more_attributes(text, theirs)
                || older && text.starts_with('4') && has_another_time(text, theirs)
                || gnu_version() < (9, 2) && same_but_old_bits(text, theirs)
                || gnu_version() >= (9, 2) && without_acl(text) == without_acl(theirs))
        {
            text.clone_from(theirs);
        }
    }
    let mut theirs = theirs.clone();
    let unreadable =
        |line: &String| line.contains("error syncing ") && line.ends_with(": Permission denied");
    if case.fsync && case.user.is_some() && same.err.iter().any(unreadable) {
        same.err.retain(|line| !unreadable(line));
        same.status = theirs.status;
    }
    // GNU's looks for the attributes of what a symbolic link is made to, and finds none that the link could have.
    let attribute = |line: &String| line.contains("setting attribute");
    if flag("-s") && theirs.err.iter().any(attribute) {
        theirs.err.retain(|line| !attribute(line));
        theirs.status = same.status;
    }
    // Where a directory may not be searched, GNU's finds out by making what it does not look at.
    let searched = |line: &mut String| {
        if line.ends_with(": Permission denied") {
            *line = line.replace("cannot create directory", "cannot stat");
        }
    };
    if flag("--parents") && case.user.is_some() {
        for outcome in [&mut same, &mut theirs] {
            outcome.err.iter_mut().for_each(searched);
            outcome.err.sort();
        }
    }
    // GNU's fails without a word where a directory is another's.
    let silent = |line: &String| {
        line.contains("preserving permissions for ") && line.ends_with(": Operation not permitted")
    };
    if case.user.is_some() && same.status == Some(1) && same.err.len() > theirs.err.len() {
        same.err.retain(|line| !silent(line));
    }
    if flag("-i")
        && case.answers.starts_with('n')
        && gnu_version() >= (9, 2)
        && mine.status == Some(0)
    {
        theirs.status = Some(0);
    }
    if flag("--attributes-only") || gnu_version() < (9, 2) {
        // Older versions name the attribute twice instead of the file.
        let other = |line: &String| !line.contains("ting attribute '");
        same.err.retain(other);
        theirs.err.retain(other);
    }
    if differences(&same, &theirs).is_empty() {
        return Some("times and attributes of directories, set-id bits, ACLs");
    }
    None
}

/// A directory with a time of now, in which files were replaced, where GNU's wrote in place.
fn is_renamed_into(case: &Case, name: &OsStr, mine: &str, theirs: &str) -> bool {
    let had = case.made.iter().find(|made| OsStr::new(&made.path) == name);
    let parents = case.flags.iter().any(|flag| flag == "--parents");
    let Some((rest, time)) = theirs.split_once(" mtime ") else { return false };
    let had_it =
        had.is_some_and(|made| time == format!("{}.{}", made.seconds + 1, made.nanoseconds));
    mine.starts_with('4') && rest == mine && (had_it || parents)
}

/// A directory in which GNU's replaced a name that it had kept before.
fn has_another_time(mine: &str, theirs: &str) -> bool {
    mine.split_once(" mtime ").is_some_and(|(rest, _)| rest == theirs)
}

/// A directory that `--parents` made, that its owner may not write to, or that was found through a link, with the
/// attributes of its source, where GNU's has none.
fn has_more_attributes(mine: &str, theirs: &str) -> bool {
    let without = |text: &str| {
        // (The values in the tests have no braces.)
        let (before, after) = text.split_once("xattr {")?;
        Some(format!("{before}{}", after.split_once('}')?.1))
    };
    mine.starts_with('4') && without(mine) == without(theirs)
}

fn without_acl(text: &str) -> String {
    let Some(start) = text.find("\"system.posix_acl_access\": \"") else { return text.to_owned() };
    let value = &text[start + 28..];
    let end = value.find('"').map_or(value.len(), |at| at + 1);
    let rest = value[end..].strip_prefix(", ").unwrap_or(&value[end..]);
    format!("{}{rest}", &text[..start])
}
