//! Set-id and sticky bits that GNU's `cp` before 9.2 leaves and ours removes: recognises such
//! differences, as opposed to bits that the copy has lost.

use super::Outcome;
use super::case::Case;
use super::excused::Tree;
use crate::support::same_but_old_bits;
use std::ffi::{OsStr, OsString};
use std::path::Path;

/// Returns the set-id and sticky bits that the copy must not have, and that GNU's before 9.2 leaves
/// on an existing target.
pub(super) fn keeps_old_bits(
    case: &Case,
    before: &Tree,
    name: &OsStr,
    outcomes: (&Outcome, &Outcome),
    mine: &str,
    theirs: &str,
) -> bool {
    if !same_but_old_bits(mine, theirs) {
        return false;
    }
    let bits = mode_of(theirs) & !mode_of(mine);
    let had = target_bits(before, name, outcomes.1, theirs);
    bits & !(had
        | first_bits(case, before, name, &outcomes.0.tree, mine)
        | bits_of_changed_source(name, outcomes))
        == 0
}

/// Returns the bits that the target had before, under any of its names, or inherits from the
/// directories above.
fn target_bits(before: &Tree, name: &OsStr, gnus: &Outcome, theirs: &str) -> u32 {
    let group = |text: &str| text.split_once(" group ").map(|(_, group)| group.to_owned());
    let is_this = |other: &OsStr, text: &str| {
        other == name || group(text).is_some() && group(text) == group(theirs)
    };
    let names = gnus.tree.iter().filter(|(other, text)| is_this(other, text));
    let had = names.filter_map(|(name, _)| before.get(name)).map(|had| mode_of(had));
    let above = Path::new(name).ancestors().skip(1).map(Path::as_os_str);
    let above = above.filter_map(|above| before.get(above).or(gnus.tree.get(above)));
    let is_dir = theirs.starts_with('4');
    let given = above.map(|above| if is_dir { mode_of(above) & 0o2000 } else { 0 });
    had.chain(given).fold(0, |all, bits| all | bits)
}

/// Returns the bits that a file first gets from its source and then loses: the copy has another
/// owner, is to have no mode of its source (a FIFO, a device), or is overwritten by another source
/// under another name.
fn first_bits(case: &Case, before: &Tree, name: &OsStr, ours: &Tree, mine: &str) -> u32 {
    let is_dir = mine.starts_with('4');
    let is_special = !is_dir && !mine.starts_with("100");
    let no_mode = case.flags.iter().any(|flag| flag.starts_with("--no-preserve="));
    let names = names_of(before, name, ours);
    let sources: Vec<_> = names.iter().flat_map(|name| sources_of(before, name)).collect();
    let is_last = |source: &&&String| mode_of(source) == mode_of(mine);
    let overwritten = names.len() > 1 && sources.iter().any(|source| is_last(&source));
    let goes = is_special && no_mode || overwritten;
    let owner = |text: &str| text.split(' ').nth(1).map(str::to_owned);
    let lost = sources.iter().filter(|source| goes || owner(source) != owner(mine));
    // A directory is created with the sticky bit.
    let new_top = if is_dir && case.user.is_some() { 0o1000 } else { 0 };
    lost.fold(new_top, |all, source| all | mode_of(source) & 0o7000)
}

fn last_of(path: &str) -> &OsStr {
    Path::new(path).file_name().unwrap_or_default()
}

/// Returns the last components of the names under which sources are copied to this file: its own
/// and those of links to it.
fn names_of(before: &Tree, name: &OsStr, ours: &Tree) -> Vec<OsString> {
    let here = Path::new(name).file_name().unwrap_or_default();
    let group = |text: &str| text.split_once(" group ").map(|(_, group)| group.to_owned());
    let of_it = ours.get(name).and_then(|text| group(text));
    let mut names = vec![here.to_owned()];
    for (other, text) in before.iter().chain(ours) {
        let leads_here = link_of(text).is_some_and(|text| last_of(text) == here);
        let is_it = of_it.is_some() && group(text) == of_it;
        let last = Path::new(other).file_name().unwrap_or_default().to_owned();
        if other.as_encoded_bytes().starts_with(b"d/")
            && (leads_here || is_it)
            && !names.contains(&last)
        {
            names.push(last);
        }
    }
    names
}

/// Returns the text of a link, from its line.
fn link_of(text: &str) -> Option<&str> {
    text.split_once(" -> \"")?.1.split('"').next()
}

/// Returns the sources with this last component, and those to which such a link leads.
fn sources_of<'a>(before: &'a Tree, name: &OsStr) -> Vec<&'a String> {
    let named = |name: &OsStr| {
        let name = name.to_owned();
        before.iter().filter(move |(path, _)| Path::new(path).file_name() == Some(&name))
    };
    let sources = named(name).filter(|(path, _)| path.as_encoded_bytes().starts_with(b"s"));
    let sources: Vec<_> = sources.map(|(_, text)| text).collect();
    let ends = sources.iter().filter_map(|text| link_of(text));
    let ends: Vec<_> = ends.flat_map(|end| named(last_of(end))).map(|(_, text)| text).collect();
    sources.into_iter().chain(ends).collect()
}

/// Returns the bits of a source that is also a target, on which GNU's left bits.
fn bits_of_changed_source(name: &OsStr, (mine, gnus): (&Outcome, &Outcome)) -> u32 {
    let sources = gnus.tree.iter().filter(|(source, _)| {
        source.as_encoded_bytes().starts_with(b"s/")
            && Path::new(source).file_name() == Path::new(name).file_name()
    });
    let lost = sources.filter_map(|(source, text)| {
        let ours = mine.tree.get(source).filter(|ours| alone(ours) != alone(text))?;
        Some(mode_of(text) & !mode_of(ours))
    });
    lost.fold(0, |all, bits| all | bits)
}

/// Returns the permission and special bits, from a line of a tree.
pub(super) fn mode_of(text: &str) -> u32 {
    let mode = text.split(' ').next().and_then(|mode| u32::from_str_radix(mode, 8).ok());
    mode.unwrap_or(0) & 0o7777
}

/// Returns the line of a file without its other names.
pub(super) fn alone(text: &str) -> String {
    let Some((rest, links)) = text.split_once(" links ") else { return text.to_owned() };
    links.split_once(" mtime ").map_or(rest.to_owned(), |(_, time)| format!("{rest} mtime {time}"))
}
