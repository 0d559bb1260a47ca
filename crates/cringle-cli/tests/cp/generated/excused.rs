//! The differences from GNU's that docs/book/src/command/cp.md documents, each recognised as
//! narrowly as possible.

use super::bits::{alone, keeps_old_bits, mode_of};
use super::case::{Case, Made, What};
use super::{Outcome, differences};
use crate::support::gnu_version;
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::{OsStr, OsString};
use std::path::Path;

pub(super) type Tree = BTreeMap<OsString, String>;

/// Returns why this difference is documented; `None` if it is not. `before`: the files before the
/// copy.
pub(crate) fn excused(
    case: &Case,
    before: &Tree,
    mine: &Outcome,
    theirs: &Outcome,
) -> Option<&'static str> {
    let flag = |wanted: &str| case.has_flag(wanted);
    let says = |outcome: &Outcome, text: &str| outcome.err.iter().any(|line| line.contains(text));
    let backup = flag("-b") || flag("--backup=") || flag("--suffix=");
    if backup && gnu_version() >= (9, 5) && says(mine, "cannot overwrite ") {
        return Some("--backup of another kind");
    }
    let older = flag("-u") || flag("--update=older");
    let rest = |(mine, theirs): (Outcome, Outcome)| {
        mine == theirs || excused(case, before, &mine, &theirs).is_some()
    };
    if older && without_newer(before, mine, theirs).is_some_and(rest) {
        return Some("-u of files with several names");
    }
    if flag("-s")
        && (flag("-L") || flag("-H"))
        && without_new_links(before, mine, theirs).is_some_and(rest)
    {
        return Some("-s -L with hard links");
    }
    if flag("--parents") && without_refused_directories(mine, theirs).is_some_and(rest) {
        return Some("--parents after a new directory");
    }
    if gnu_version() < (9, 5)
        && says(theirs, "--backup and --no-clobber are mutually exclusive")
        && (mine.status, &mine.tree, &mine.out) == (theirs.status, &theirs.tree, &theirs.out)
    {
        return Some("other words of older versions");
    }
    if copies_a_part_into_itself(mine, theirs) {
        return Some("a directory into itself");
    }
    let mut same = mine.clone();
    for (name, text) in &mut same.tree {
        if let Some(other) = theirs.tree.get(name) {
            *text = excused_parts(case, before, name, (mine, text), (theirs, other));
        }
    }
    let mut theirs = theirs.clone();
    excuse_attributes(case, &mut same, &mut theirs);
    excuse_permissions(case, mine, &mut same, &mut theirs);
    if differences(&same, &theirs).is_empty() {
        return Some("times and attributes of directories, set-id bits, ACLs");
    }
    None
}

/// Whether files are copied at the same time, or get their names last, and a link of the target
/// leads to a source or to another target: which is written before the other may differ then.
/// Each file is whole.
pub(super) fn may_be_written_twice(case: &Case, before: &Tree, mine: &Outcome) -> bool {
    let leads_there = |made: &Made| {
        let last = |path: &str| path.rsplit('/').next().map(str::to_owned);
        let is_target = |text: &str| case.made.iter().any(|other| last(&other.path) == last(text));
        made.path.starts_with('d') && matches!(&made.what, What::Link(text) if is_target(text))
    };
    // After the mode and the owner: the length and the sum.
    let bytes = |text: &String| text.split(' ').skip(2).take(3).collect::<Vec<_>>().join(" ");
    let is_file = |text: &&String| text.starts_with("10");
    let had: BTreeSet<_> = before.values().filter(is_file).map(bytes).collect();
    (case.fsync || case.jobs > 1)
        && case.made.iter().any(leads_there)
        && mine.tree.values().filter(is_file).all(|text| had.contains(&bytes(text)))
}

/// Removes the messages about attributes that only one of the programs prints.
fn excuse_attributes(case: &Case, mine: &mut Outcome, theirs: &mut Outcome) {
    let unreadable =
        |line: &String| line.contains("error syncing ") && line.ends_with(": Permission denied");
    if case.fsync && case.user.is_some() && mine.err.iter().any(unreadable) {
        mine.err.retain(|line| !unreadable(line));
        succeed(mine);
    }
    // GNU's asks for the attributes of the file that the symbolic link leads to, and finds some
    // that the link cannot have.
    let attribute = |line: &String| line.contains("setting attribute");
    if case.has_flag("-s") && theirs.err.iter().any(attribute) {
        theirs.err.retain(|line| !attribute(line));
        succeed(theirs);
    }
}

/// Removes the differences that missing permissions and older versions make.
fn excuse_permissions(case: &Case, original: &Outcome, mine: &mut Outcome, theirs: &mut Outcome) {
    // Ours sets them on a directory that its owner may not write to.
    let unwritable = |line: &String| {
        line.contains("setting attribute ") && line.ends_with(": Permission denied")
    };
    let only_those = !theirs.err.is_empty() && theirs.err.iter().all(unwritable);
    if case.user.is_some() && original.status == Some(0) && only_those {
        theirs.err.clear();
        theirs.status = Some(0);
    }
    // Where a directory may not be searched, GNU's notices only when it creates the file.
    let searched = |line: &mut String| {
        if line.ends_with(": Permission denied") {
            *line = line.replace("cannot create directory", "cannot stat");
        }
    };
    if case.has_flag("--parents") && case.user.is_some() {
        for outcome in [&mut *mine, &mut *theirs] {
            outcome.err.iter_mut().for_each(searched);
            outcome.err.sort();
        }
    }
    // GNU's fails without a message if a directory belongs to another user.
    let silent = |line: &String| {
        line.contains("preserving permissions for ") && line.ends_with(": Operation not permitted")
    };
    if case.user.is_some() && mine.status == Some(1) && mine.err.len() > theirs.err.len() {
        mine.err.retain(|line| !silent(line));
    }
    let declined = case.has_flag("-i") && case.answers.starts_with('n');
    if declined && gnu_version() >= (9, 2) && original.status == Some(0) {
        theirs.status = Some(0);
    }
    if case.has_flag("--attributes-only") || gnu_version() < (9, 2) {
        // Older versions name the attribute twice instead of the file.
        let other = |line: &String| !line.contains("ting attribute '");
        mine.err.retain(other);
        theirs.err.retain(other);
    }
}

/// Sets the status of an outcome to 0, if all messages but questions and warnings were excused.
fn succeed(outcome: &mut Outcome) {
    let fails = |line: &String| !line.ends_with('?') && !line.starts_with("cp: warning: ");
    if outcome.status == Some(1) && !outcome.err.iter().any(fails) {
        outcome.status = Some(0);
    }
}

/// Returns both outcomes without the directories that GNU's refuses to enter because it has just
/// created them as parents of another source; `None` if there is no such directory that ours
/// enters.
fn without_refused_directories(mine: &Outcome, theirs: &Outcome) -> Option<(Outcome, Outcome)> {
    let refused = |line: &String| {
        let name = line.strip_prefix("cp: cannot create directory '")?;
        name.strip_suffix("': File exists").map(|name| name.trim_end_matches('/').to_owned())
    };
    let names: Vec<_> = theirs.err.iter().filter_map(refused).collect();
    if names.is_empty() || mine.err.iter().any(|line| refused(line).is_some()) {
        return None;
    }
    let without = |outcome: &Outcome| {
        let mut outcome = outcome.clone();
        outcome
            .tree
            .retain(|name, _| !names.iter().any(|above| Path::new(name).starts_with(above)));
        // Files below may have hard links elsewhere, and change the times of the directories above.
        for (name, text) in &mut outcome.tree {
            *text = alone(text);
            if text.starts_with('4') && names.iter().any(|below| Path::new(below).starts_with(name))
            {
                *text = text.split(" mtime ").next().unwrap_or_default().to_owned();
            }
        }
        // A message names the target, or the source, whose name is the end of the target's.
        let about = |line: &String| {
            names.iter().any(|name| {
                let source = name.strip_prefix("d/").unwrap_or(name);
                let quoted = [format!("'{name}'"), format!("'{source}'"), format!("'{source}/")];
                line.contains(&format!("{name}/")) || quoted.iter().any(|name| line.contains(name))
            })
        };
        outcome.out.retain(|line| !about(line));
        outcome.err.retain(|line| !about(line));
        succeed(&mut outcome);
        outcome
    };
    let is_told = mine.status == Some(0) || !mine.err.is_empty();
    is_told.then(|| (without(mine), without(theirs)))
}

/// Returns our line with each excused part as in GNU's. Each excuse has a part of its own: several
/// may meet at one name, and none hides a loss in another part.
fn excused_parts(
    case: &Case,
    before: &Tree,
    name: &OsStr,
    (ours, mine): (&Outcome, &str),
    (gnus, theirs): (&Outcome, &str),
) -> String {
    let flag = |wanted: &str| case.flags.iter().any(|flag| flag.starts_with(wanted));
    let is_dir = mine.starts_with('4');
    let mut text = mine.to_owned();
    if is_dir && (flag("--parents") || flag("-L") || flag("-H") || case.user.is_some()) {
        text = without_more_attributes(&text, theirs);
    }
    if is_dir && case.user.is_some() {
        text = with_old_attributes(before, name, &text, theirs);
    }
    if is_dir {
        text = with_time_of(case, name, &text, theirs);
    }
    if is_dir && (flag("-u") || flag("--update=older")) && !theirs.contains(" mtime ") {
        // GNU's replaced a name in it that it had kept before.
        text = text.split_once(" mtime ").map_or(text.clone(), |(rest, _)| rest.to_owned());
    }
    if gnu_version() >= (9, 2) && without_acl(&text) == without_acl(theirs) {
        return theirs.to_owned();
    }
    let has_old_bits = if gnu_version() < (9, 2) { true } else { !mine.starts_with("10") };
    if has_old_bits && keeps_old_bits(case, before, name, (ours, gnus), &text, theirs)
        || stops_at_attributes(case, before, name, mine, gnus, theirs)
    {
        return theirs.to_owned();
    }
    text
}

/// Recognises a directory that `--parents` created, that its owner may not write to, or that was
/// found through a link: it has the attribute of its source, and GNU's has none.
fn without_more_attributes(mine: &str, theirs: &str) -> String {
    let attribute = "\"user.cringle\": \"";
    match mine.split_once(attribute) {
        Some((before, after)) if !theirs.contains(attribute) => {
            let after = after.split_once('"').map_or("", |(_, rest)| rest);
            // Attributes are in the order of their names: this is the last one.
            format!("{}{after}", before.strip_suffix(", ").unwrap_or(before))
        }
        _ => mine.to_owned(),
    }
}

/// Recognises a directory that its owner may not write to, and that keeps its old attribute with
/// GNU's.
fn with_old_attributes(before: &Tree, name: &OsStr, mine: &str, theirs: &str) -> String {
    let part = |text: &str| {
        let (before, after) = text.split_once("xattr {")?;
        let (attributes, after) = after.split_once('}')?;
        Some((before.to_owned(), attributes.to_owned(), after.to_owned()))
    };
    let is_closed = |had: &&String| mode_of(had) & 0o200 == 0;
    let old = before.get(name).filter(is_closed).and_then(|had| part(had));
    match (old, part(mine), part(theirs)) {
        (Some((_, old, _)), Some((start, new, end)), Some((_, theirs, _)))
            if old == theirs && new.contains("\"user.cringle\": \"s") =>
        {
            format!("{start}xattr {{{theirs}}}{end}")
        }
        _ => mine.to_owned(),
    }
}

/// Recognises a directory with the current time, because files in it were replaced that GNU's
/// writes in place.
fn with_time_of(case: &Case, name: &OsStr, mine: &str, theirs: &str) -> String {
    let had = case.made.iter().find(|made| OsStr::new(&made.path) == name);
    let parents = case.flags.iter().any(|flag| flag == "--parents");
    let Some((_, time)) = theirs.split_once(" mtime ") else { return mine.to_owned() };
    let had_it =
        had.is_some_and(|made| time == format!("{}.{}", made.seconds + 1, made.nanoseconds));
    if !mine.contains(" mtime ") && (had_it || parents) {
        return format!("{mine} mtime {time}");
    }
    mine.to_owned()
}

/// Recognises a directory whose attributes GNU's cannot copy: it stops there, and leaves the mode
/// of before or that of a new directory. Ours sets the mode of the source, and the attributes that
/// can be read.
fn stops_at_attributes(
    case: &Case,
    before: &Tree,
    name: &OsStr,
    mine: &str,
    gnus: &Outcome,
    theirs: &str,
) -> bool {
    let printed = |what: &str| {
        gnus.err.iter().any(|line| line.contains(what) && line.ends_with(": Permission denied"))
    };
    let (unreadable, unwritable) = (printed("getting attribute "), printed("setting attribute "));
    let left = before.get(name).map_or(0o700, |had| mode_of(had));
    let rest = |text: &str| text.split_once(' ').map(|(_, rest)| rest.to_owned());
    let alike = rest(mine) == rest(theirs) && unreadable
        || rest(&without_more_attributes(mine, theirs)) == rest(theirs) && unwritable;
    let is_source = |made: &Made| {
        made.path.starts_with('s')
            && matches!(made.what, What::Dir)
            && made.mode == mode_of(mine)
            && (made.mode & 0o400 == 0 || mine.contains(&format!("\"{}\"", made.path)))
    };
    case.user.is_some()
        && gnus.status == Some(1)
        && mine.starts_with('4')
        && (mode_of(theirs) == left || mode_of(theirs) == left & mode_of(mine) & 0o700)
        && alike
        && case.made.iter().any(is_source)
}

/// With `-s -L`, ours makes each symbolic link anew, where GNU's makes hard links to some sources,
/// which also replace existing files. Returns both outcomes without those files.
fn without_new_links(
    before: &Tree,
    mine: &Outcome,
    theirs: &Outcome,
) -> Option<(Outcome, Outcome)> {
    let linked = |name: &OsStr| theirs.tree.get(name).is_some_and(|text| text.contains(" links "));
    let is_kept = |line: &&String| {
        let had = name_in(line, "cp: cannot create symbolic link '");
        let had = had.and_then(|name| Some((before.get(name)?, mine.tree.get(name)?)));
        let relative = line.split_once(": can make relative symbolic links only");
        let relative = relative.and_then(|(name, _)| name.strip_prefix("cp: ")).map(OsStr::new);
        let is_new = relative.is_some_and(|name| linked(name) && !mine.tree.contains_key(name));
        !theirs.err.contains(line) && (had.is_some_and(|(had, now)| had == now) || is_new)
    };
    let (mut same, mut gnus) = (mine.clone(), theirs.clone());
    same.err.retain(|line| !is_kept(&line));
    succeed(&mut same);
    gnus.out.retain(|line| !line.starts_with("removed "));
    for (name, other) in theirs.tree.iter().filter(|(_, text)| text.contains(" links ")) {
        let to_a_source = other.contains(" group \"s/") || other.contains(" group \"d/");
        let is_new_link = mine
            .tree
            .get(name)
            .is_none_or(|text| alone(text) == alone(other) || text.contains(" -> ") && to_a_source);
        if is_new_link {
            same.tree.insert(name.clone(), other.clone());
        }
    }
    changed((mine, theirs), (same, gnus))
}

/// Returns the files that remain to be compared; `None` for all.
fn changed(
    (mine, theirs): (&Outcome, &Outcome),
    (same, gnus): (Outcome, Outcome),
) -> Option<(Outcome, Outcome)> {
    (*mine != same || *theirs != gnus).then_some((same, gnus))
}

/// Returns the target's name, from a message that begins like this.
fn name_in<'a>(line: &'a str, start: &str) -> Option<&'a OsStr> {
    let rest = line.strip_prefix(start)?;
    rest.strip_prefix("PLACE/").unwrap_or(rest).split('\'').next().map(OsStr::new)
}

/// With `-u`, GNU's makes the targets of one file links to each other, even those that are newer;
/// ours keeps each newer target. Returns both outcomes without those files.
fn without_newer(before: &Tree, mine: &Outcome, theirs: &Outcome) -> Option<(Outcome, Outcome)> {
    let timeless = |text: &String| text.split(" mtime ").next().map(str::to_owned);
    // GNU's fails to replace a target, which ours keeps, with such a link.
    let is_link_of_kept = |line: &&String| {
        let name = name_in(line, "cp: cannot create hard link '");
        let as_before = |had: &String, now: &String| match had.starts_with('4') {
            true => timeless(had) == timeless(now),
            false => alone(had) == alone(now),
        };
        name.and_then(|name| Some(as_before(before.get(name)?, mine.tree.get(name)?))) == Some(true)
    };
    let (mut same, mut gnus) = (mine.clone(), theirs.clone());
    gnus.err.retain(|line| mine.err.contains(line) || !is_link_of_kept(&line));
    succeed(&mut gnus);
    // Such a link, or of a file that is named twice a link to itself, replaces an existing file.
    let is_link_removed = |line: &String| {
        let name = name_in(line, "removed '");
        let (ours, other) =
            name.map_or((None, None), |name| (mine.tree.get(name), theirs.tree.get(name)));
        other.is_some_and(|text| ours == other || text.contains(" links "))
    };
    let mut printed = mine.out.clone();
    gnus.out.retain(|line| match printed.iter().position(|ours| ours == line) {
        Some(at) => !printed.remove(at).is_empty(),
        None => !is_link_removed(line),
    });
    let mut replaced: BTreeSet<OsString> = BTreeSet::new();
    for (name, text) in &mut same.tree {
        let Some(other) = theirs.tree.get(name) else { continue };
        let kept = before.get(name).is_some_and(|had| alone(had) == alone(text));
        if alone(text) == alone(other) || kept && other.contains(" links ") {
            text.clone_from(other);
            replaced.extend(Path::new(name).parent().map(|path| path.as_os_str().to_owned()));
        }
    }
    // The link that replaces a file changes its directory.
    for name in replaced {
        if let (Some(text), Some(other)) = (same.tree.get_mut(&name), theirs.tree.get(&name))
            && timeless(text) == timeless(other)
        {
            text.clone_from(other);
        }
    }
    changed((mine, theirs), (same, gnus))
}

/// Recognises a directory copied into itself: GNU's notices only after it has copied a part.
fn copies_a_part_into_itself(mine: &Outcome, theirs: &Outcome) -> bool {
    let refuses = |line: &String| line.contains("cannot copy a directory, ");
    let timeless = |text: &String| match text.starts_with('4') {
        true => text.split(" mtime ").next().map(str::to_owned),
        false => Some(text.clone()),
    };
    mine.status == theirs.status
        && mine.err == theirs.err
        && mine.err.iter().any(refuses)
        && mine
            .tree
            .iter()
            .all(|(name, text)| theirs.tree.get(name).map(timeless) == Some(timeless(text)))
}

/// Returns whether GNU's failed to find its copy: it names the copy through a link of the command
/// line that the copy has replaced.
pub(crate) fn lost_its_way(case: &Case, theirs: &Outcome) -> bool {
    let last = case.names.last().map_or("", |name| name.trim_end_matches('/'));
    let is_lost = |line: &String| {
        line.contains(&format!(" '{last}/"))
            && (line.ends_with(": Not a directory")
                || line.ends_with(": No such file or directory"))
    };
    let link = theirs.tree.get(OsStr::new(last));
    theirs.err.iter().any(is_lost) && link.is_none_or(|found| !found.contains(" -> "))
}

/// Returns our messages with the other name of the target.
pub(crate) fn by_the_direct_name(case: &Case, direct: &Case, mine: &Outcome) -> Outcome {
    let name = |case: &Case| case.names.last().map(|name| name.trim_end_matches('/').to_owned());
    let (from, to) = (name(case).unwrap_or_default(), name(direct).unwrap_or_default());
    let mut mine = mine.clone();
    for line in mine.out.iter_mut().chain(&mut mine.err) {
        *line = line.replace(&format!("'{from}/"), &format!("'{to}/"));
    }
    mine
}

fn without_acl(text: &str) -> String {
    let Some(start) = text.find("\"system.posix_acl_access\": \"") else { return text.to_owned() };
    let value = &text[start + 28..];
    let end = value.find('"').map_or(value.len(), |at| at + 1);
    let rest = value[end..].strip_prefix(", ").unwrap_or(&value[end..]);
    format!("{}{rest}", &text[..start])
}
