//! `cringle cp` beside GNU's `cp`: the same trees, the same words, the same status.

mod common;

use common::*;
use std::collections::BTreeMap;
use std::ffi::{CString, OsStr, OsString};
use std::fs;
use std::io::{Read, Write};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

/// A generator of its own: the same tree for the same seed.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        ((self.0.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 33) & 0x7fff_ffff) % limit.max(1)
    }

    fn pick(&mut self, limit: u64) -> u64 {
        self.below(limit) % limit
    }
}

fn c_path(path: &Path) -> CString {
    CString::new(path.as_os_str().as_bytes()).unwrap()
}

fn set_times(path: &Path, seconds: i64, nanoseconds: i64) {
    let time = |s| libc::timespec { tv_sec: s, tv_nsec: nanoseconds };
    let times = [time(seconds), time(seconds + 1)];
    // SAFETY: the path and two times, as the call wants.
    let done = unsafe {
        libc::utimensat(
            libc::AT_FDCWD,
            c_path(path).as_ptr(),
            times.as_ptr(),
            libc::AT_SYMLINK_NOFOLLOW,
        )
    };
    assert_eq!(done, 0);
}

fn set_xattr(path: &Path, value: &[u8]) {
    // SAFETY: path, name and value live through the call. File systems without these are no failure.
    unsafe {
        libc::lsetxattr(
            c_path(path).as_ptr(),
            c"user.cringle".as_ptr(),
            value.as_ptr().cast(),
            value.len(),
            0,
        );
    }
}

fn get_xattr(path: &Path) -> Vec<u8> {
    let mut value = vec![0u8; 256];
    // SAFETY: the buffer is as long as is said.
    let length = unsafe {
        libc::lgetxattr(
            c_path(path).as_ptr(),
            c"user.cringle".as_ptr(),
            value.as_mut_ptr().cast(),
            value.len(),
        )
    };
    value.truncate(usize::try_from(length).unwrap_or(0));
    value
}

fn mkfifo(path: &Path) {
    // SAFETY: the path lives through the call.
    assert_eq!(unsafe { libc::mkfifo(c_path(path).as_ptr(), 0o640) }, 0);
}

fn name(random: &mut Random, number: u64) -> OsString {
    let odd: &[&[u8]] =
        &[b"plain", b"with space", b"\xff\xfe", b"new\nline", b"it's", "é".as_bytes(), b"-r"];
    let mut bytes = odd[random.pick(odd.len() as u64) as usize].to_vec();
    bytes.extend_from_slice(number.to_string().as_bytes());
    OsString::from_vec(bytes)
}

/// A tree with something of everything.
fn random_tree(root: &Path, seed: u64) {
    let mut random = Random(seed.wrapping_mul(0x9E37_79B9).wrapping_add(1));
    let mut directories = vec![root.to_path_buf()];
    let mut files: Vec<PathBuf> = Vec::new();
    fs::create_dir(root).unwrap();
    for number in 0..60 {
        let parent = directories[random.pick(directories.len() as u64) as usize].clone();
        let path = parent.join(name(&mut random, number));
        match random.pick(12) {
            0..=2 => {
                fs::create_dir(&path).unwrap();
                directories.push(path);
            }
            3 => symlink(if number % 2 == 0 { "nowhere" } else { "../plain1" }, &path).unwrap(),
            4 if !files.is_empty() => {
                let first = &files[random.pick(files.len() as u64) as usize];
                fs::hard_link(first, &path).unwrap();
            }
            5 => mkfifo(&path),
            6 => {
                let file = fs::File::create(&path).unwrap();
                std::os::unix::fs::FileExt::write_all_at(&file, b"data", 1 << 20).unwrap();
                file.set_len(3 << 20).unwrap();
                files.push(path);
            }
            _ => {
                let sizes = [0, 1, 4096, 5000, 131_072, 131_073, 400_000];
                let bytes = sizes[random.pick(sizes.len() as u64) as usize];
                let content: Vec<u8> =
                    (0..bytes).map(|i| ((i as u64 * (number + 3)) >> 3) as u8).collect();
                fs::write(&path, content).unwrap();
                if random.pick(3) == 0 {
                    set_xattr(&path, format!("value {number}").as_bytes());
                }
                files.push(path);
            }
        }
    }
    for path in &files {
        let modes = [0o644, 0o600, 0o755, 0o444, 0o4755, 0o666, 0o2711];
        let mode = modes[random.pick(modes.len() as u64) as usize];
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
        set_times(path, 1_000_000_000 + random.pick(1000) as i64, random.pick(999_999_999) as i64);
    }
    for path in directories.iter().rev() {
        let modes = [0o755, 0o700, 0o555, 0o1777];
        let mode = modes[random.pick(modes.len() as u64) as usize];
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
        set_times(path, 1_100_000_000 + random.pick(1000) as i64, random.pick(999_999_999) as i64);
    }
}

/// What a tree is, in full: a line for each name. `times` where they are to be the same.
fn describe(root: &Path, times: bool) -> BTreeMap<OsString, String> {
    let mut all = BTreeMap::new();
    let mut inodes: BTreeMap<(u64, u64), OsString> = BTreeMap::new();
    let mut stack = vec![OsString::new()];
    while let Some(relative) = stack.pop() {
        let path = if relative.is_empty() { root.to_owned() } else { root.join(&relative) };
        let Ok(stat) = fs::symlink_metadata(&path) else { continue };
        let kind = stat.file_type();
        let mut text = format!("{:o} {}:{}", stat.mode(), stat.uid(), stat.gid());
        if times {
            text.push_str(&format!(" mtime {}.{}", stat.mtime(), stat.mtime_nsec()));
        }
        if kind.is_dir() {
            let mut names: Vec<_> =
                fs::read_dir(&path).unwrap().map(|e| e.unwrap().file_name()).collect();
            names.sort();
            stack.extend(
                names.into_iter().map(|name| Path::new(&relative).join(name).into_os_string()),
            );
        } else if kind.is_symlink() {
            text.push_str(&format!(" -> {:?}", fs::read_link(&path).unwrap()));
        } else if kind.is_file() {
            let content = fs::read(&path).unwrap();
            let sum = content
                .iter()
                .fold(7u64, |sum, &byte| sum.wrapping_mul(31).wrapping_add(byte.into()));
            let holes = stat.blocks() * 512 + 65_536 < stat.size();
            text.push_str(&format!(" {} bytes {sum:x} holes {holes}", content.len()));
        } else {
            text.push_str(&format!(" fifo {} device {}", kind.is_fifo(), stat.rdev()));
        }
        text.push_str(&format!(" xattr {:?}", get_xattr(&path)));
        if stat.nlink() > 1 && !kind.is_dir() {
            // The first of its names, in order, stands for the group.
            let first = inodes.entry((stat.dev(), stat.ino())).or_insert_with(|| relative.clone());
            text.push_str(&format!(" links {} group {first:?}", stat.nlink()));
        }
        all.insert(relative, text);
    }
    all
}

fn output_of(mut command: Command, place: &Path, input: &[u8]) -> Output {
    let mut child = command
        .current_dir(place)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let _ = child.stdin.take().unwrap().write_all(input);
    child.wait_with_output().unwrap()
}

fn gnu() -> Command {
    Command::new("cp")
}

fn ours() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_cringle"));
    command.arg("cp");
    command
}

fn lines(bytes: &[u8]) -> Vec<String> {
    let text = String::from_utf8_lossy(bytes).replace("cringle cp", "cp");
    let mut lines: Vec<_> = text.lines().map(str::to_owned).collect();
    lines.sort();
    lines
}

fn is_gnu() -> bool {
    let version = Command::new("cp").arg("--version").output();
    let gnu = version.is_ok_and(|output| String::from_utf8_lossy(&output.stdout).contains("GNU"));
    if !gnu {
        eprintln!("skipped: no GNU cp on this machine");
    }
    gnu
}

/// Both on a place of their own that `make` prepared; everything must be the same.
fn compare(
    test: &str,
    arguments: &[&str],
    input: &[u8],
    times: bool,
    make: impl Fn(&Path),
) -> String {
    let base = tempfile::tempdir_in(place(&format!("cp-{test}"))).unwrap();
    let (theirs, mine) = (base.path().join("gnu"), base.path().join("ours"));
    for place in [&theirs, &mine] {
        fs::create_dir(place).unwrap();
        make(place);
    }
    let run = |mut command: Command, place: &Path| {
        command.args(arguments);
        output_of(command, place, input)
    };
    let (theirs_said, mine_said) = (run(gnu(), &theirs), run(ours(), &mine));
    let mut told = String::new();
    let mut differ = |what: &str, mine: String, theirs: String| {
        if mine != theirs {
            told.push_str(&format!(
                "cp {arguments:?}: {what}: {mine:.300} but GNU {theirs:.300}\n"
            ));
        }
    };
    let text = |bytes: &[u8]| format!("{:?}", lines(bytes));
    differ("standard error", text(&mine_said.stderr), text(&theirs_said.stderr));
    differ("standard output", text(&mine_said.stdout), text(&theirs_said.stdout));
    let code = |output: &Output| format!("{:?}", output.status.code());
    differ("status", code(&mine_said), code(&theirs_said));
    let (mine, theirs) = (describe(&mine, times), describe(&theirs, times));
    let names: std::collections::BTreeSet<_> = mine.keys().chain(theirs.keys()).collect();
    for name in names {
        let text = |tree: &BTreeMap<OsString, String>| format!("{:?}", tree.get(name));
        differ(&format!("{name:?}"), text(&mine), text(&theirs));
    }
    told
}

/// Nothing may differ; what does is told, all of it.
fn assert_same(told: String) {
    assert!(told.is_empty(), "\n{told}");
}

#[test]
fn archives_of_random_trees_are_the_same_in_full() {
    if !is_gnu() {
        return;
    }
    for seed in 0..12 {
        // The place itself gets times of its own: only what was copied is compared.
        let base = tempfile::tempdir_in(place(&format!("cp-archive-{seed}"))).unwrap();
        let source = base.path().join("tree");
        random_tree(&source, seed);
        let mut command = gnu();
        assert!(
            output_of(
                {
                    command.args(["-a", "tree", "gnu"]);
                    command
                },
                base.path(),
                b""
            )
            .status
            .success()
        );
        let mut command = ours();
        command.args(["-a", "tree", "ours"]);
        let said = output_of(command, base.path(), b"");
        assert_eq!(texts(&said), (String::new(), String::new()));
        assert_eq!(said.status.code(), Some(0));
        let of = |name: &str| describe(&base.path().join(name), true);
        assert_eq!(of("ours"), of("gnu"), "seed {seed}");
        let mut command = ours();
        command.args(["-a", "--fsync", "--verify", "tree", "durable"]);
        assert_eq!(texts(&output_of(command, base.path(), b"")), (String::new(), String::new()));
        assert_eq!(of("durable"), of("gnu"), "seed {seed}");
        rsync_finds_nothing(base.path());
    }
}

fn rsync_finds_nothing(place: &Path) {
    let rsync =
        Command::new("rsync").args(["-naciAXH", "tree/", "ours/"]).current_dir(place).output();
    match rsync {
        Ok(output) => assert_eq!(texts(&output).0, ""),
        Err(_) => eprintln!("skipped: no rsync on this machine"),
    }
}

#[test]
fn recursive_copies_of_random_trees_are_the_same_with_each_flag() {
    if !is_gnu() {
        return;
    }
    let mut told = String::new();
    for (seed, flags) in [
        &["-r"][..],
        &["-rp"],
        &["-rd"],
        &["-rP"],
        &["-rv"],
        &["-r", "--preserve=mode"],
        &["-r", "--preserve=timestamps,links"],
        &["-r", "--preserve=ownership"],
        &["-a", "--no-preserve=mode"],
        &["-r", "--no-preserve=mode"],
        &["-rx"],
        &["-rl"],
        &["-rlv"],
        &["-r", "--attributes-only"],
        &["-r", "--sparse=always"],
        &["-r", "--sparse=never"],
        &["-r", "--reflink=never"],
        &["-r", "--preserve=xattr"],
        &["-a", "--no-preserve=all"],
        &["-r", "--reflink=auto"],
        &["-dR", "--preserve=all"],
        &["-rH"],
    ]
    .iter()
    .enumerate()
    {
        let arguments = [flags, &["tree", "copy"][..]].concat();
        told += &compare("flags", &arguments, b"", false, |place| {
            random_tree(&place.join("tree"), seed as u64 + 100)
        });
    }
    assert_same(told);
}

#[test]
fn a_tree_onto_a_tree_is_the_same_with_each_flag() {
    if !is_gnu() {
        return;
    }
    let mut told = String::new();
    for (seed, flags) in [
        &["-rT"][..],
        &["-aT"],
        &["-rTf"],
        &["-rTn"],
        &["-rTu"],
        &["-rTb"],
        &["-aTb"],
        &["-rT", "--remove-destination"],
        &["-rTv", "--backup=numbered"],
        &["-rT", "-S.old"],
        &["-rT", "--preserve=links"],
        &["-rTbv"],
    ]
    .iter()
    .enumerate()
    {
        let arguments = [flags, &["tree", "there"][..]].concat();
        told += &compare("onto", &arguments, b"", false, |place| {
            random_tree(&place.join("tree"), 300 + seed as u64);
            random_tree(&place.join("there"), 300 + seed as u64 / 2);
        });
    }
    assert_same(told);
}

/// A few names that most questions can be asked about.
fn little(place: &Path) {
    let at = |name: &str| place.join(name);
    fs::write(at("a"), "text of a").unwrap();
    fs::write(at("b"), "another").unwrap();
    fs::write(at("old"), "older").unwrap();
    set_times(&at("old"), 1_000_000_000, 5);
    fs::hard_link(at("a"), at("a2")).unwrap();
    fs::create_dir_all(at("d/sub/deep")).unwrap();
    fs::write(at("d/sub/f"), "f").unwrap();
    fs::write(at("d/a"), "a in d").unwrap();
    fs::create_dir(at("e")).unwrap();
    fs::create_dir(at("locked")).unwrap();
    symlink("a", at("la")).unwrap();
    symlink("d", at("ld")).unwrap();
    symlink("nowhere", at("dangling")).unwrap();
    symlink("../d", at("d/up")).unwrap();
    symlink("loop", at("loop")).unwrap();
    mkfifo(&at("fifo"));
}

#[test]
fn questions_are_asked_and_answered_as_gnus() {
    if !is_gnu() {
        return;
    }
    let mut told = String::new();
    for (case, answer) in [
        ("-i a b", "y\n"),
        ("-i a b", "n\n"),
        ("-i a b", ""),
        ("-iv a b", "yes\n"),
        ("-in a b", ""),
        ("-ni a b", "y\n"),
        ("-i a b e", ""),
        ("-ir d e", "y\n"),
        ("-if a b", "y\n"),
        ("-iu old b", "y\n"),
    ] {
        let arguments: Vec<_> = case.split_whitespace().collect();
        told += &compare("asked", &arguments, answer.as_bytes(), false, little);
    }
    assert_same(told);
}

#[test]
fn update_has_the_words_of_newer_versions() {
    let place = place("cp-update");
    little(&place);
    let run = |arguments: &[&str]| {
        let mut command = ours();
        command.args(arguments);
        output_of(command, &place, b"")
    };
    assert!(run(&["--update=none", "a", "b"]).status.success());
    assert_eq!(fs::read(place.join("b")).unwrap(), b"another");
    let said = run(&["--update=none-fail", "a", "b"]);
    assert_eq!(
        (said.status.code(), texts(&said).1.as_str()),
        (Some(1), "cringle cp: not replacing 'b'\n")
    );
    assert!(run(&["--update=older", "old", "b"]).status.success());
    assert_eq!(fs::read(place.join("b")).unwrap(), b"another");
    assert!(run(&["--update=all", "old", "b"]).status.success());
    assert_eq!(fs::read(place.join("b")).unwrap(), b"older");
}

#[test]
fn called_as_cp_it_is_cp() {
    let place = place("cp-called");
    symlink(env!("CARGO_BIN_EXE_cringle"), place.join("cp")).unwrap();
    let said = output_of(Command::new(place.join("cp")), &place, b"");
    assert_eq!(said.status.code(), Some(1));
    assert_eq!(texts(&said).1, "cp: missing file operand\nTry 'cp --help' for more information.\n");
}

#[test]
fn a_swapped_directory_leads_nowhere() {
    let place = place("cp-swapped");
    fs::create_dir_all(place.join("tree/sub")).unwrap();
    fs::write(place.join("tree/sub/secret"), "x").unwrap();
    fs::create_dir_all(place.join("copy")).unwrap();
    fs::create_dir_all(place.join("elsewhere")).unwrap();
    symlink("../elsewhere", place.join("copy/sub")).unwrap();
    let mut command = ours();
    command.args(["-rT", "tree", "copy"]);
    let said = output_of(command, &place, b"");
    assert_eq!(said.status.code(), Some(1));
    assert!(is_empty(&place.join("elsewhere")));
}

#[test]
fn a_deep_tree_and_a_wide_directory_are_bounded() {
    let place = place("cp-bounds");
    let deep = place.join("deep");
    fs::create_dir(&deep).unwrap();
    let mut dir = cringle::fs::Dir::open(&deep).unwrap();
    for _ in 0..2000 {
        dir.create_dir("d").unwrap();
        dir = dir.open_dir("d").unwrap();
    }
    fs::create_dir(place.join("wide")).unwrap();
    for number in 0..5000 {
        fs::write(place.join(format!("wide/{number}")), "").unwrap();
    }
    let mut command = Command::new("sh");
    let program = env!("CARGO_BIN_EXE_cringle");
    command.args(["-c", &format!("ulimit -n 256; exec {program} cp -a deep wide out")]);
    fs::create_dir(place.join("out")).unwrap();
    let said = output_of(command, &place, b"");
    assert_eq!(texts(&said), (String::new(), String::new()));
    assert_eq!(fs::read_dir(place.join("out/wide")).unwrap().count(), 5000);
    let mut levels = 0;
    let mut dir = cringle::fs::Dir::open(place.join("out/deep")).unwrap();
    while let Ok(below) = dir.open_dir("d") {
        (dir, levels) = (below, levels + 1);
    }
    assert_eq!(levels, 2000);
}

#[test]
fn an_interruption_leaves_no_half_written_file() {
    let place = place("cp-interrupt");
    let file = fs::File::create(place.join("big")).unwrap();
    file.set_len(64 << 30).unwrap();
    let mut command = ours();
    command.args(["--sparse=never", "big", "copy"]).current_dir(&place).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    while !place.join("copy").exists() {
        std::thread::yield_now();
    }
    // SAFETY: a plain system call; the child is not waited for yet, so the number is its.
    assert_eq!(unsafe { libc::kill(child.id() as i32, libc::SIGINT) }, 0);
    let mut told = String::new();
    child.stderr.take().unwrap().read_to_string(&mut told).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(130));
    assert!(told.contains("interrupted"), "{told}");
    assert!(!place.join("copy").exists());
}

#[test]
fn the_summary_and_the_dry_run_are_true() {
    let place = place("cp-summary");
    random_tree(&place.join("tree"), 9);
    let mut command = ours();
    let report = json(command.args(["-r", "tree", "copy"]).current_dir(&place));
    assert_eq!((report["schema"].as_u64(), report["status"].as_u64()), (Some(1), Some(0)));
    assert!(report["files"].as_u64().unwrap() > 5);
    let mut command = ours();
    command.args(["-r", "--dry-run", "tree", "not-made"]);
    let said = output_of(command, &place, b"");
    assert_eq!(said.status.code(), Some(0));
    assert!(!lines(&said.stdout).is_empty());
    assert!(!place.join("not-made").exists());
    let _ = OsStr::new("");
}
