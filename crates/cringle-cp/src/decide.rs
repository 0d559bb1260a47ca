//! Decides what happens to an existing target.
//!
//! [`decide`] is a pure function of the options and of what is known about source and target. The
//! copy and the dry run share it through [`decide_target`](crate::compare::decide_target). The
//! rules are GNU's: a copy that would lose the source's data is refused; one that only replaces a
//! link to it is not.

use crate::backup;
use crate::choices::Replace;
use crate::options::Options;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Kind {
    Regular,
    Directory,
    Link,
    /// A FIFO, a device or a socket.
    Special,
}

/// The status of a file, reduced to what the decision depends on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Node {
    pub(crate) kind: Kind,
    pub(crate) id: (u64, u64),
    pub(crate) links: u64,
    pub(crate) modified: (i64, i64),
}

/// The options, for one name.
#[derive(Clone, Copy)]
pub(crate) struct Rules<'a> {
    pub(crate) options: &'a Options,
    /// Links of the source are followed (with `-H`, on the command line only).
    pub(crate) follow: bool,
}

impl Rules<'_> {
    /// Returns whether the target is the file that a link under its name leads to: only a regular
    /// file is written through a link, and only if the name is not removed or renamed first.
    pub(crate) fn looks_through(&self, source: Kind) -> bool {
        let regular = match source {
            Kind::Regular => true,
            Kind::Special => self.options.as_regular,
            Kind::Directory | Kind::Link => false,
        };
        regular
            && !self.options.symbolic_link
            && !self.options.hard_link
            && self.options.backup.is_none()
            && !self.options.remove_first
    }

    /// Returns whether the decision depends on [`Comparison::names`].
    pub(crate) fn wants_names(&self, source: &Node, target: &Node) -> bool {
        let link = source.kind == Kind::Link || target.kind == Kind::Link;
        !self.keeps_every_target() && (source.id == target.id || !self.follow && link)
    }

    /// No target is replaced, so that it may even be the source.
    fn keeps_every_target(&self) -> bool {
        matches!(self.options.replace, Replace::Skip | Replace::Refuse)
    }
}

/// The status of the names themselves, for names that may be the same file.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Names {
    /// The entry: a link is not followed.
    pub(crate) source: Node,
    pub(crate) target: Node,
    /// The file that a link leads to, if it exists.
    pub(crate) source_end: Option<(u64, u64)>,
    pub(crate) target_end: Option<(u64, u64)>,
    /// Both are the same entry of the same directory.
    pub(crate) same_entry: bool,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Comparison {
    pub(crate) source: Node,
    /// The entry, or the file that it leads to: see [`Rules::looks_through`].
    pub(crate) target: Node,
    /// `None` if [`Rules::wants_names`] is false, or one of the names no longer exists.
    pub(crate) names: Option<Names>,
    /// An earlier source of this command line made the target.
    pub(crate) just_made: bool,
    /// The last component of the source's name is `.` or `..`.
    pub(crate) is_dots: bool,
    /// The source has the name that the backup would get.
    pub(crate) backup_is_source: bool,
    /// The granularity of the target's time stamps in nanoseconds; 1 where it makes no difference.
    pub(crate) time_step: i64,
    /// The user's answer, after the decision [`Decision::Ask`].
    pub(crate) answer: Option<bool>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Refusal {
    SameFile,
    /// `--update=none-fail`
    NotReplacing,
    DirectoryOntoOther,
    OtherOntoDirectory,
    JustMade,
    BackupDestroysSource,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Decision {
    /// Copy into the directory, or replace the file.
    Overwrite,
    /// Remove the target, then make it anew.
    RemoveFirst,
    /// Rename the target, then make it anew.
    BackUp,
    /// Ask the user, then decide again with [`Comparison::answer`].
    Ask,
    /// Do nothing: the target is the source already.
    AlreadySame,
    /// `-n`: keep the target.
    Keep,
    /// `-u`: keep the target, which counts as the copy of its source.
    KeepNewer,
    /// The user refused.
    Declined,
    Refuse(Refusal),
}

/// Decides what happens to the target.
pub(crate) fn decide(rules: &Rules<'_>, comparison: &Comparison) -> Decision {
    let Comparison { source, target, .. } = comparison;
    let is_dir = source.kind == Kind::Directory;
    let onto_dir = target.kind == Kind::Directory;
    let same = if rules.keeps_every_target() { Same::No } else { same_file(rules, comparison) };
    if same == Same::Refuse {
        return Decision::Refuse(Refusal::SameFile);
    }
    if !is_dir && let Some(decision) = keeps_target(rules, comparison) {
        return decision;
    }
    if same == Same::Identical {
        return Decision::AlreadySame;
    }
    if is_dir != onto_dir {
        return Decision::Refuse(if is_dir {
            Refusal::DirectoryOntoOther
        } else {
            Refusal::OtherOntoDirectory
        });
    }
    if onto_dir {
        return Decision::Overwrite;
    }
    if comparison.just_made && rules.options.backup != Some(backup::Kind::Numbered) {
        return Decision::Refuse(Refusal::JustMade);
    }
    match rules.options.backup {
        Some(kind) if !comparison.is_dots => {
            let destroys = comparison.backup_is_source && kind != backup::Kind::Numbered;
            if destroys {
                Decision::Refuse(Refusal::BackupDestroysSource)
            } else {
                Decision::BackUp
            }
        }
        _ if removes(rules, comparison) => Decision::RemoveFirst,
        _ => Decision::Overwrite,
    }
}

/// Decides whether a target that no directory is copied onto stays as it is.
fn keeps_target(rules: &Rules<'_>, comparison: &Comparison) -> Option<Decision> {
    if rules.options.only_newer && !is_newer(comparison) {
        return Some(Decision::KeepNewer);
    }
    match (rules.options.replace, comparison.answer) {
        (Replace::Always, _) | (Replace::Ask, Some(true)) => None,
        (Replace::Skip, _) => Some(Decision::Keep),
        (Replace::Refuse, _) => Some(Decision::Refuse(Refusal::NotReplacing)),
        (Replace::Ask, None) => Some(Decision::Ask),
        (Replace::Ask, Some(false)) => Some(Decision::Declined),
    }
}

/// Returns whether the source is newer, at the granularity of the target's time stamps.
fn is_newer(comparison: &Comparison) -> bool {
    let (seconds, nanoseconds) = comparison.source.modified;
    let second = 1_000_000_000;
    let kept = match comparison.time_step {
        step if step > second => (seconds - seconds.rem_euclid(step / second), 0),
        step => (seconds, nanoseconds - nanoseconds % step),
    };
    kept > comparison.target.modified
}

/// Returns whether the target is removed: its other names must keep their content, or it is a link
/// that must not be written through.
fn removes(rules: &Rules<'_>, comparison: &Comparison) -> bool {
    let shared = rules.options.preserve.links && comparison.target.links > 1;
    let not_written_to = !rules.follow && comparison.source.kind != Kind::Regular;
    rules.options.remove_first || !rules.options.attributes_only && (shared || not_written_to)
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Same {
    /// Two files, or the difference does not matter.
    No,
    /// The target already is what the copy would make.
    Identical,
    Refuse,
}

fn refuse_if(refused: bool) -> Same {
    if refused { Same::Refuse } else { Same::No }
}

/// Compares the files, as GNU's does, to protect the source from its own copy.
fn same_file(rules: &Rules<'_>, comparison: &Comparison) -> Same {
    let same = comparison.source.id == comparison.target.id;
    if same && rules.options.hard_link {
        return Same::Identical;
    }
    if rules.follow && !same {
        return Same::No;
    }
    let Some(names) = &comparison.names else { return Same::No };
    let is_link = |node: &Node| node.kind == Kind::Link;
    let (source, target) = if rules.follow {
        (names.source, names.target)
    } else {
        (comparison.source, comparison.target)
    };
    let same_itself = source.id == target.id;
    let both_links = is_link(&source) && is_link(&target);
    if both_links && !rules.follow {
        return match (names.same_entry, same && rules.options.backup.is_none()) {
            (true, _) => Same::Refuse,
            (false, true) => Same::Identical,
            (false, false) => Same::No,
        };
    }
    if both_links && rules.options.remove_first {
        return Same::No;
    }
    if rules.options.backup.is_some() {
        // Renaming the target would rename the source's data, or the file that the source leads to.
        return refuse_if(if same_itself {
            names.same_entry
        } else {
            rules.follow && is_link(&source) && !is_link(&target)
        });
    }
    let is_removed_anyway =
        is_link(&target) || same_itself && target.links > 1 && !names.same_entry;
    if rules.options.remove_first && is_removed_anyway {
        return Same::No;
    }
    if !is_link(&source) && !is_link(&target) && !same_itself {
        return Same::No;
    }
    if rules.options.symbolic_link && is_link(&target) {
        return Same::No;
    }
    if !rules.follow {
        let end = |node: &Node, end| if is_link(node) { end } else { Some(node.id) };
        match (end(&source, names.source_end), end(&target, names.target_end)) {
            (Some(from), Some(to)) if from == to => {}
            _ => return Same::No,
        }
        if rules.options.hard_link {
            return if is_link(&target) { Same::No } else { Same::Identical };
        }
    }
    Same::Refuse
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::choices::Preserve;

    /// As `cp -r`.
    fn plain() -> Options {
        Options::new().recursive(true)
    }

    fn decided(options: &Options, comparison: &Comparison) -> Decision {
        decide(&Rules { options, follow: false }, comparison)
    }

    fn node(kind: Kind, inode: u64) -> Node {
        Node { kind, id: (1, inode), links: 1, modified: (100, 0) }
    }

    fn comparison(source: Node, target: Node) -> Comparison {
        Comparison {
            source,
            target,
            names: None,
            just_made: false,
            is_dots: false,
            backup_is_source: false,
            time_step: 1,
            answer: None,
        }
    }

    fn named(source: Node, target: Node, ends: (u64, u64), same_entry: bool) -> Comparison {
        let names = Names {
            source,
            target,
            source_end: Some((1, ends.0)),
            target_end: Some((1, ends.1)),
            same_entry,
        };
        Comparison { names: Some(names), ..comparison(source, target) }
    }

    use Decision::*;
    use Kind::*;

    #[test]
    fn directories_and_other_files_do_not_replace_each_other() {
        for kind in [Regular, Link, Special] {
            let onto_dir = comparison(node(kind, 1), node(Directory, 2));
            let dir_onto = comparison(node(Directory, 1), node(kind, 2));
            assert_eq!(decided(&plain(), &onto_dir), Refuse(Refusal::OtherOntoDirectory));
            assert_eq!(decided(&plain(), &dir_onto), Refuse(Refusal::DirectoryOntoOther));
            let backup = Options { backup: Some(backup::Kind::Simple), ..plain() };
            assert_eq!(decided(&backup, &dir_onto), Refuse(Refusal::DirectoryOntoOther));
            // `-n` is checked first: a target that is kept cannot have the wrong type.
            let keep = Options { replace: Replace::Skip, ..plain() };
            assert_eq!(decided(&keep, &onto_dir), Keep);
            assert_eq!(decided(&keep, &dir_onto), Refuse(Refusal::DirectoryOntoOther));
        }
        assert_eq!(
            decided(&plain(), &comparison(node(Directory, 1), node(Directory, 2))),
            Overwrite
        );
    }

    #[test]
    fn update_keeps_a_target_that_is_not_older() {
        let rules = Options { only_newer: true, ..plain() };
        let mut case = comparison(node(Regular, 1), node(Regular, 2));
        assert_eq!(decided(&rules, &case), KeepNewer);
        case.source.modified = (100, 1);
        assert_eq!(decided(&rules, &case), Overwrite);
        case.target.kind = Directory;
        case.target.modified = (200, 0);
        assert_eq!(decided(&rules, &case), KeepNewer);
    }

    #[test]
    fn the_user_is_asked_before_a_refusal() {
        let rules = Options { replace: Replace::Ask, ..plain() };
        let mut case = comparison(node(Regular, 1), node(Directory, 2));
        assert_eq!(decided(&rules, &case), Ask);
        case.answer = Some(false);
        assert_eq!(decided(&rules, &case), Declined);
        case.answer = Some(true);
        assert_eq!(decided(&rules, &case), Refuse(Refusal::OtherOntoDirectory));
        assert_eq!(decided(&rules, &comparison(node(Directory, 1), node(Directory, 2))), Overwrite);
    }

    #[test]
    fn links_and_special_files_are_removed_first() {
        for kind in [Link, Special] {
            let case = comparison(node(kind, 1), node(Regular, 2));
            assert_eq!(decided(&plain(), &case), RemoveFirst);
            assert_eq!(decide(&Rules { options: &plain(), follow: true }, &case), Overwrite);
            assert_eq!(decided(&Options { attributes_only: true, ..plain() }, &case), Overwrite);
        }
        let mut case = comparison(node(Regular, 1), node(Regular, 2));
        assert_eq!(decided(&plain(), &case), Overwrite);
        assert_eq!(decided(&Options { remove_first: true, ..plain() }, &case), RemoveFirst);
        case.target.links = 2;
        assert_eq!(decided(&plain(), &case), Overwrite);
        assert_eq!(
            decided(
                &Options { preserve: Preserve { links: true, ..Preserve::default() }, ..plain() },
                &case
            ),
            RemoveFirst
        );
    }

    #[test]
    fn a_file_is_not_copied_onto_itself() {
        let file = Node { links: 2, ..node(Regular, 1) };
        for same_entry in [true, false] {
            let case = named(file, file, (1, 1), same_entry);
            assert_eq!(decided(&plain(), &case), Refuse(Refusal::SameFile));
            let backup = Options { backup: Some(backup::Kind::Simple), ..plain() };
            let remove = Options { remove_first: true, ..plain() };
            let expected = if same_entry { Refuse(Refusal::SameFile) } else { BackUp };
            assert_eq!(decided(&backup, &case), expected);
            let expected = if same_entry { Refuse(Refusal::SameFile) } else { RemoveFirst };
            assert_eq!(decided(&remove, &case), expected);
            assert_eq!(decided(&Options { hard_link: true, ..plain() }, &case), AlreadySame);
            assert_eq!(decided(&Options { replace: Replace::Skip, ..plain() }, &case), Keep);
        }
    }

    #[test]
    fn a_link_to_the_source_is_only_replaced() {
        let (file, link) = (node(Regular, 1), node(Link, 2));
        let onto_link = named(file, link, (1, 1), false);
        assert_eq!(decided(&plain(), &onto_link), Refuse(Refusal::SameFile));
        assert_eq!(decided(&Options { remove_first: true, ..plain() }, &onto_link), RemoveFirst);
        assert_eq!(decided(&Options { symbolic_link: true, ..plain() }, &onto_link), Overwrite);
        let elsewhere = named(file, link, (1, 3), false);
        assert_eq!(decided(&plain(), &elsewhere), Overwrite);
        let links = named(link, link, (1, 1), true);
        assert_eq!(decided(&plain(), &links), Refuse(Refusal::SameFile));
        assert_eq!(decided(&plain(), &named(link, node(Link, 3), (1, 1), false)), RemoveFirst);
    }

    #[test]
    fn a_backup_does_not_replace_the_source() {
        let mut case = comparison(node(Regular, 1), node(Regular, 2));
        case.backup_is_source = true;
        let with = |kind| Options { backup: Some(kind), ..plain() };
        let refused = Refuse(Refusal::BackupDestroysSource);
        assert_eq!(decided(&with(backup::Kind::Simple), &case), refused);
        assert_eq!(decided(&with(backup::Kind::Existing), &case), refused);
        assert_eq!(decided(&with(backup::Kind::Numbered), &case), BackUp);
        case.is_dots = true;
        assert_eq!(decided(&with(backup::Kind::Simple), &case), Overwrite);
        case.just_made = true;
        let refused = Refuse(Refusal::JustMade);
        assert_eq!(decided(&with(backup::Kind::Simple), &case), refused);
        assert_eq!(decided(&plain(), &case), refused);
    }

    /// A file system with whole seconds (or FAT's two) must not make a copied time look older than
    /// its source.
    #[test]
    fn a_truncated_time_is_not_older() {
        let newer = |modified, kept, time_step| {
            let mut comparison = comparison(node(Regular, 1), node(Regular, 2));
            (comparison.source.modified, comparison.target.modified) = (modified, kept);
            comparison.time_step = time_step;
            is_newer(&comparison)
        };
        let second = 1_000_000_000;
        assert!(newer((7, 5), (7, 0), 1));
        assert!(!newer((7, 999_999_999), (7, 0), second) && newer((8, 0), (7, 0), second));
        assert!(!newer((7, 5), (6, 0), 2 * second) && newer((8, 0), (6, 0), 2 * second));
        assert!(!newer((-1, 5), (-2, 0), 2 * second) && newer((0, 0), (-2, 0), 2 * second));
        assert!(!newer((7, 1_234), (7, 1_200), 100) && newer((7, 1_300), (7, 1_200), 100));
    }
}
