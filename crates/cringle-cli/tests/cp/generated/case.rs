//! A random case: the files before the copy, and a command line. The same seed gives the same case.

use crate::support::{c_path, gnu_version};
use crate::trees::{ACCESS, acl, mkfifo, set_times, set_xattr};
use crate::users::NOBODY;
use fastrand::Rng;
use std::fs;
use std::os::unix::fs::{PermissionsExt, lchown, symlink};
use std::path::Path;

#[derive(Clone, Debug)]
pub(crate) enum What {
    Dir,
    /// That many bytes of this letter; with `holes`, after a hole of 256 KiB.
    File {
        bytes: usize,
        letter: u8,
        holes: bool,
    },
    Link(String),
    Hard(String),
    Fifo,
    /// A device with the numbers of `/dev/null`.
    Null,
}

#[derive(Clone, Debug)]
pub(crate) struct Made {
    pub(crate) path: String,
    pub(crate) what: What,
    pub(crate) mode: u32,
    pub(crate) seconds: i64,
    pub(crate) nanoseconds: i64,
    pub(crate) owner: u32,
    pub(crate) xattr: bool,
    acl: bool,
}

#[derive(Clone, Debug)]
pub(crate) struct Case {
    pub(crate) made: Vec<Made>,
    pub(crate) flags: Vec<String>,
    pub(crate) names: Vec<String>,
    pub(crate) answers: String,
    pub(crate) user: Option<u32>,
    pub(crate) umask: u32,
    pub(crate) jobs: u64,
    /// Only of ours: GNU's has no such flag.
    pub(crate) fsync: bool,
}

const NAMES: &[&str] = &["a", "b", "c", "x", "y"];

fn one_of<T: Clone>(random: &mut Rng, all: &[T]) -> T {
    all[random.usize(..all.len())].clone()
}

fn chance(random: &mut Rng, of: u64) -> bool {
    random.u64(..of) == 0
}

/// Returns the text of a link: a name beside it or in the other trees, never outside the place.
fn link_text(random: &mut Rng, path: &str) -> String {
    let name = one_of(random, NAMES);
    match (path.matches('/').count(), random.u64(..6)) {
        (_, 0) => "nowhere".into(),
        (_, 1) => path.rsplit('/').next().unwrap().into(),
        (0, 2) => format!("s/{name}"),
        (0, 3) => format!("d/{name}"),
        (1, 2) => format!("../d/{name}"),
        (1, 3) => format!("../s/{name}"),
        (2.., 2) => format!("../{name}"),
        (2.., 3) => "..".into(),
        _ => name.into(),
    }
}

fn tree(random: &mut Rng, root: &str, made: &mut Vec<Made>, nobody: bool, special_modes: bool) {
    let mut directories = vec![root.to_owned()];
    let mut files: Vec<String> = made
        .iter()
        .filter(|m| matches!(m.what, What::File { .. }))
        .map(|m| m.path.clone())
        .collect();
    push(random, made, root.to_owned(), What::Dir, nobody, special_modes);
    for _ in 0..2 + random.u64(..10) {
        let path = format!("{}/{}", one_of(random, &directories), one_of(random, NAMES));
        if made.iter().any(|other| other.path == path) {
            continue;
        }
        let what = match random.u64(..14) {
            0..=2 if path.matches('/').count() < 4 => What::Dir,
            3..=4 => What::Link(link_text(random, &path)),
            5..=6 if !files.is_empty() => What::Hard(one_of(random, &files)),
            7 => What::Fifo,
            8 if chance(random, 3) => What::Null,
            _ => What::File {
                bytes: one_of(random, &[0, 1, 10, 5000, 140_000]),
                letter: random.u8(b'a'..=b'z'),
                holes: chance(random, 8),
            },
        };
        match what {
            What::Dir => directories.push(path.clone()),
            What::File { .. } => files.push(path.clone()),
            _ => {}
        }
        push(random, made, path, what, nobody, special_modes);
    }
}

fn push(
    random: &mut Rng,
    made: &mut Vec<Made>,
    path: String,
    what: What,
    nobody: bool,
    special_modes: bool,
) {
    let mode = match what {
        What::Dir if special_modes => one_of(random, &[0o755, 0o1777, 0o2755, 0o700]),
        What::Dir => one_of(random, &[0o755, 0o755, 0o755, 0o755, 0o700, 0o555, 0o775, 0o300]),
        _ if special_modes => one_of(random, &[0o4755, 0o2711, 0o1644, 0o644]),
        _ => one_of(random, &[0o644, 0o644, 0o600, 0o444, 0o755, 0o666, 0o400, 0o000]),
    };
    made.push(Made {
        path,
        what,
        mode,
        seconds: 1_000_000_000 + random.i64(0..3),
        nanoseconds: one_of(random, &[0, 0, 500_000_007]),
        owner: if nobody != chance(random, 6) { NOBODY } else { 0 },
        xattr: chance(random, 6),
        acl: chance(random, 20),
    });
}

fn flags(random: &mut Rng) -> Vec<String> {
    let mut flags: Vec<String> = Vec::new();
    let since = |version: (u32, u32)| gnu_version() >= version;
    let mut maybe = |random: &mut Rng, of: u64, all: &[&str]| {
        if chance(random, of) {
            flags.push(one_of(random, all).to_owned());
        }
    };
    // Always recursive; otherwise a FIFO would be read.
    maybe(random, 1, &["-r", "-R", "-a", "-a", "-rp", "-dR"]);
    maybe(random, 3, &["-d", "-P", "-H", "-H", "-L", "-p"]);
    maybe(random, 7, &["-l", "-s"]);
    maybe(random, 8, &["-n"]);
    maybe(random, 8, &["-i"]);
    maybe(random, 7, &["-u"]);
    maybe(random, 6, &["-f"]);
    maybe(random, 7, &["--remove-destination"]);
    if since((9, 3)) {
        maybe(random, 10, &["--update=none", "--update=all", "--update=older"]);
    }
    if since((9, 5)) {
        maybe(random, 20, &["--update=none-fail"]);
    }
    maybe(random, 7, &["-b", "--backup=numbered", "--backup=simple", "--backup=existing"]);
    maybe(random, 14, &["--suffix=.old", "--backup=none", "--suffix=c"]);
    maybe(random, 12, &["--attributes-only"]);
    let kept = ["mode", "ownership", "timestamps", "links", "xattr", "all", "mode,timestamps"];
    if chance(random, 5) {
        flags.push(format!("--preserve={}", one_of(random, &kept)));
    }
    if chance(random, 8) {
        flags.push(format!("--no-preserve={}", one_of(random, &kept)));
    }
    let mut maybe = |random: &mut Rng, of: u64, all: &[&str]| {
        if chance(random, of) {
            flags.push(one_of(random, all).to_owned());
        }
    };
    maybe(random, 14, &["--strip-trailing-slashes"]);
    maybe(random, 10, &["--sparse=always", "--sparse=never", "--sparse=auto"]);
    maybe(random, 10, &["--reflink=auto", "--reflink=never"]);
    maybe(random, 12, &["-x"]);
    maybe(random, 4, &["-v"]);
    flags
}

/// Returns the sources and their target.
fn names(random: &mut Rng, made: &[Made], flags: &mut Vec<String>) -> Vec<String> {
    let below = |random: &mut Rng, tree: &str| {
        let all: Vec<_> = made.iter().filter(|m| m.path.starts_with(tree)).collect();
        let path = if all.is_empty() { tree.to_owned() } else { one_of(random, &all).path.clone() };
        if chance(random, 10) { format!("{path}/") } else { path }
    };
    match random.u64(..12) {
        0..=3 => vec!["s/.".into(), "d".into()],
        4..=5 => {
            flags.push("-T".into());
            vec!["s".into(), one_of(random, &["d", "d", "new"]).into()]
        }
        6 => vec![one_of(random, &["s", "s/", "s/x/..", "s/../s"]).into(), "d".into()],
        7 => {
            let target = below(random, "d");
            vec![below(random, "s"), target]
        }
        8 => {
            flags.push("-T".into());
            let target = below(random, "d");
            vec![below(random, "s"), target]
        }
        9 => {
            flags.push("--parents".into());
            vec![below(random, "s"), below(random, "s"), "d".into()]
        }
        10 => {
            flags.push("-td".into());
            (0..1 + random.u64(..4)).map(|_| below(random, "s")).collect()
        }
        _ => {
            let (first, second) = (below(random, "s"), below(random, "s"));
            vec![first, second, "s/.".into(), "d".into()]
        }
    }
}

impl Case {
    /// Returns whether one of the flags begins like this.
    pub(crate) fn has_flag(&self, wanted: &str) -> bool {
        self.flags.iter().any(|flag| flag.starts_with(wanted))
    }

    pub(crate) fn new(seed: u64, may_be_nobody: bool) -> Case {
        let mut random = Rng::with_seed(seed);
        let user = (may_be_nobody && chance(&mut random, 3)).then_some(NOBODY);
        let special_modes = chance(&mut random, 8);
        let mut made = Vec::new();
        tree(&mut random, "s", &mut made, user.is_some(), special_modes);
        tree(&mut random, "d", &mut made, user.is_some(), special_modes);
        let mut flags = flags(&mut random);
        let mut names = names(&mut random, &made, &mut flags);
        let backup = |flag: &String| {
            flag.starts_with("-b") || flag.contains("--backup") || flag.contains("--suffix")
        };
        if flags.iter().any(backup) && gnu_version() < (9, 2) {
            // 9.1 puts the backups of files that go into a directory into another one.
            flags.retain(|flag| !matches!(flag.as_str(), "-td" | "--parents" | "-T"));
            flags.push("-T".into());
            names = vec!["s".into(), "d".into()];
        }
        // A link of the target may lead to a path where a FIFO is made, and a later source may have
        // the name of an earlier FIFO: a writer to it would wait for a reader.
        let is_link = |made: &Made| matches!(made.what, What::Link(_));
        let sources = names.len() + usize::from(flags.iter().any(|flag| flag == "-td"));
        if sources > 2 || made.iter().any(|made| made.path.starts_with('d') && is_link(made)) {
            for made in made.iter_mut().filter(|made| matches!(made.what, What::Fifo)) {
                if made.path.starts_with('s') {
                    made.what = What::Null;
                }
            }
        }
        let parents = flags.iter().any(|flag| flag == "--parents");
        if !parents && flags.iter().any(|flag| flag == "-s") && chance(&mut random, 2) {
            for name in &mut names {
                *name = format!("PLACE/{name}");
            }
        }
        let answers = one_of(&mut random, &["y\n", "n\n", "y\n"]).repeat(40);
        Case {
            made,
            flags,
            names,
            answers,
            user,
            umask: one_of(&mut random, &[0o022, 0o022, 0o022, 0o077, 0o002]),
            jobs: random.u64(1..=16),
            fsync: chance(&mut random, 3),
        }
    }

    /// Returns the same case with the last name, if it links to a directory above it, replaced by
    /// that directory.
    pub(crate) fn with_target_of_link(&self) -> Option<Case> {
        let last = self.names.last()?.trim_end_matches('/');
        let link = self.made.iter().find(|made| made.path == last)?;
        let What::Link(text) = &link.what else { return None };
        let mut parts: Vec<_> = last.split('/').collect();
        parts.pop();
        for part in text.split('/') {
            match part {
                ".." => drop(parts.pop()?),
                part => parts.push(part),
            }
        }
        let mut direct = self.clone();
        *direct.names.last_mut()? = parts.join("/");
        Some(direct)
    }

    /// Returns the flags that GNU's does not have.
    pub(crate) fn own_flags(&self) -> Vec<String> {
        let fsync = self.fsync.then(|| "--fsync".to_owned());
        [format!("--jobs={}", self.jobs)].into_iter().chain(fsync).collect()
    }

    /// Returns the arguments after `cp`, in this place.
    pub(crate) fn arguments(&self, place: &Path) -> Vec<String> {
        let at = place.to_str().unwrap();
        let names = self.names.iter().map(|name| name.replace("PLACE", at));
        self.flags.iter().cloned().chain(names).collect()
    }

    /// Makes the files before the copy. Files that cannot be made are missing for both programs.
    pub(crate) fn make(&self, place: &Path, made: &[Made]) {
        fs::create_dir(place).unwrap();
        fs::set_permissions(place, fs::Permissions::from_mode(0o777)).unwrap();
        let mut left: Vec<_> = made.iter().collect();
        // A name may be listed before the directory or the file that it needs.
        loop {
            let before = left.len();
            left.retain(|one| !create(place, one, made));
            if left.len() == before || left.is_empty() {
                break;
            }
        }
        for made in made.iter().filter(|made| !matches!(made.what, What::Hard(_))).rev() {
            finish(place, made);
        }
    }
}

fn create(place: &Path, made: &Made, all: &[Made]) -> bool {
    let path = place.join(&made.path);
    if fs::symlink_metadata(&path).is_ok()
        || !path.parent().unwrap().symlink_metadata().is_ok_and(|parent| parent.is_dir())
    {
        return false;
    }
    match &made.what {
        What::Dir => fs::create_dir(&path).is_ok(),
        What::File { bytes, letter, holes } => {
            let links =
                |other: &&Made| matches!(&other.what, What::Hard(first) if *first == made.path);
            let others = all.iter().filter(links).map(|other| place.join(&other.path));
            if let Some(other) = others.into_iter().find(|other| is_file(other)) {
                return fs::hard_link(other, &path).is_ok();
            }
            use std::os::unix::fs::FileExt;
            let start = if *holes { 256 << 10 } else { 0 };
            fs::File::create(&path)
                .and_then(|file| file.write_all_at(&vec![*letter; *bytes], start))
                .is_ok()
        }
        What::Link(text) => symlink(text, &path).is_ok(),
        // Any name of the file may be the first one.
        What::Hard(first) => match all.iter().find(|other| other.path == *first) {
            Some(first) if is_file(&place.join(&first.path)) => {
                fs::hard_link(place.join(&first.path), &path).is_ok()
            }
            Some(first) if matches!(first.what, What::File { .. }) => {
                let same =
                    |other: &&Made| matches!(&other.what, What::Hard(of) if *of == first.path);
                let others = all.iter().filter(same).map(|other| place.join(&other.path));
                if let Some(other) = others.into_iter().find(|other| is_file(other)) {
                    return fs::hard_link(other, &path).is_ok();
                }
                create(place, &Made { path: made.path.clone(), ..first.clone() }, &[])
            }
            _ => false,
        },
        What::Fifo => {
            mkfifo(&path);
            true
        }
        What::Null => {
            let path = c_path(&path);
            let mode = libc::S_IFCHR | 0o666;
            // SAFETY: the path outlives the call.
            unsafe { libc::mknod(path.as_ptr(), mode, libc::makedev(1, 3)) == 0 }
        }
    }
}

fn is_file(path: &Path) -> bool {
    fs::symlink_metadata(path).is_ok_and(|found| found.is_file())
}

fn finish(place: &Path, made: &Made) {
    let path = place.join(&made.path);
    let Ok(found) = fs::symlink_metadata(&path) else { return };
    let is_link = found.is_symlink();
    let _ = lchown(&path, Some(made.owner), Some(made.owner));
    if !is_link {
        if made.xattr && (found.is_file() || found.is_dir()) {
            set_xattr(&path, c"user.cringle", made.path.as_bytes());
        }
        let _ = fs::set_permissions(&path, fs::Permissions::from_mode(made.mode));
        if made.acl && found.is_file() {
            set_xattr(&path, ACCESS, &acl(6, 5, 4, 6, 4));
        } else if made.acl && found.is_dir() {
            set_xattr(&path, ACCESS, &acl(7, 5, 5, 7, 5));
        }
    }
    set_times(&path, made.seconds, made.nanoseconds);
}
