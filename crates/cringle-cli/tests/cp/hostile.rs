//! Sources that change during the copy, impossible names, missing permissions, and a target that is
//! swapped for a link.

use crate::common::*;
use crate::support::*;
use crate::trees::{mkfifo, set_times};
use std::fs::{self, File};
use std::io::{Read, Write};
use std::os::unix::fs::{PermissionsExt, chown, symlink};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Output, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};

#[test]
fn generated_files_are_copied_to_their_real_end() {
    let place = place("cp-made-up");
    // The first files have size 0, the others a page.
    for (number, path) in [
        "/proc/version",
        "/proc/cmdline",
        "/sys/kernel/mm/transparent_hugepage/enabled",
        "/sys/devices/system/cpu/online",
    ]
    .iter()
    .enumerate()
    {
        let Ok(content) = fs::read(path) else { continue };
        let copy = number.to_string();
        copies(&place, &[path, &copy]);
        copies(&place, &["-r", path, &format!("{copy}-r")]);
        assert_eq!(fs::read(place.join(&copy)).unwrap(), content, "{path}");
        assert_eq!(fs::read(place.join(format!("{copy}-r"))).unwrap(), content, "{path}");
    }
}

/// A hole of this length is read byte for byte, and gets the other length meanwhile: the copy waits
/// for the reader of its output.
fn becomes(place: &Path, length: u64, then: u64) -> Output {
    let big = fs::File::create(place.join("big")).unwrap();
    big.set_len(length).unwrap();
    let mut command = ours();
    command.args(["--sparse=never", "big", "/dev/stdout"]).current_dir(place);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    child.stdout.as_mut().unwrap().read_exact(&mut vec![0; 1 << 20]).unwrap();
    big.set_len(then).unwrap();
    finish(child, "a copy of a file that changes")
}

#[test]
fn a_source_that_shrinks_or_grows_is_reported() {
    let place = place("cp-changes");
    let output = becomes(&place, 64 << 20, 1 << 20);
    assert_eq!(texts(&output).1, "cringle cp: 'big' shrank while it was copied\n");
    assert_eq!(output.status.code(), Some(1));
    let output = becomes(&place, 64 << 20, 128 << 20);
    let stderr = texts(&output).1;
    assert!(stderr.starts_with("cringle cp: 'big' grew while it was copied: "), "{stderr}");
    assert_eq!(output.status.code(), Some(1));
}

#[test]
fn vanished_files_are_reported() {
    let place = place("cp-vanish");
    let tree = place.join("tree");
    fs::create_dir(&tree).unwrap();
    for number in 0..400 {
        fs::write(tree.join(format!("stays-{number}")), "stays").unwrap();
    }
    for round in 0..10 {
        for number in 0..400 {
            fs::write(tree.join(format!("goes-{number}")), "goes").unwrap();
        }
        let copy = format!("copy-{round}");
        let output = std::thread::scope(|scope| {
            scope.spawn(|| {
                for number in 0..400 {
                    fs::remove_file(tree.join(format!("goes-{number}"))).unwrap();
                }
            });
            run(&place, &["-r", "tree", &copy])
        });
        let (status, _, stderr) = output;
        assert_eq!(status, Some(i32::from(!stderr.is_empty())), "{stderr}");
        for line in stderr.lines() {
            assert!(line.starts_with("cringle cp: cannot stat 'tree/goes-"), "{line}");
            assert!(line.ends_with(": No such file or directory"), "{line}");
        }
        for entry in fs::read_dir(place.join(&copy)).unwrap() {
            let path = entry.unwrap().path();
            let text = fs::read_to_string(&path).unwrap();
            assert!(path.file_name().unwrap().to_str().unwrap().starts_with(&text), "{path:?}");
        }
        for number in 0..400 {
            assert!(place.join(&copy).join(format!("stays-{number}")).exists());
        }
    }
}

#[test]
fn too_long_names_are_reported_as_by_gnus() {
    if !is_gnu() {
        return;
    }
    let name = "n".repeat(300);
    let path = "./".repeat(3000);
    let mut differences = String::new();
    for arguments in [
        &["a", &name][..],
        &["-r", "d", &name],
        &["a", &format!("d/{name}")],
        &["a", &format!("{path}c")],
        &[&format!("{path}a"), "c"],
        &[&name, "c"],
        &["-s", "a", &name],
        &["-l", "a", &name],
        &["-t", &name, "a"],
        &["-S", &name, "-b", "a", "b"],
        &["-b", "a", &name[..255]],
        &["-bv", "a", &name[..254]],
        &["-b", "-S.old", "a", &name[..253]],
        &["--backup=numbered", "a", &name[..252]],
        &["--backup=numbered", "a", &name[..250]],
    ] {
        differences += &compare("long", arguments, b"", Compared::Trees, |place| {
            fs::create_dir(place.join("d")).unwrap();
            fs::write(place.join("a"), "a").unwrap();
            fs::write(place.join("b"), "b").unwrap();
            for length in [250, 252, 253, 254, 255] {
                fs::write(place.join(&name[..length]), "long").unwrap();
            }
        });
    }
    assert_same(differences);
}

const NOBODY: u32 = 65_534;

/// Makes files of another user and of root, in several modes.
fn guarded(place: &Path) {
    let set = |name: &str, mode, owner: u32| {
        let path = place.join(name);
        chown(&path, Some(owner), Some(owner)).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
    };
    set("", 0o755, NOBODY);
    for (name, mode, owner) in [
        ("own", 0o644, NOBODY),
        ("roots", 0o644, 0),
        ("secret", 0o600, 0),
        ("setuid", 0o6755, 0),
        ("own-setuid", 0o6755, NOBODY),
        ("read-only", 0o444, NOBODY),
    ] {
        fs::write(place.join(name), name).unwrap();
        set_times(&place.join(name), 1_000_000_000, 7);
        set(name, mode, owner);
    }
    for (name, mode, owner) in [
        ("tree", 0o755, 0),
        ("tree/closed", 0o700, 0),
        ("tree/open", 0o1777, 0),
        ("tree/own", 0o500, NOBODY),
        ("roots-dir", 0o755, 0),
        ("no-search", 0o644, NOBODY),
        ("no-write", 0o555, NOBODY),
    ] {
        fs::create_dir(place.join(name)).unwrap();
        if name != "tree" {
            fs::write(place.join(name).join("file"), name).unwrap();
        }
        set(name, mode, owner);
    }
}

/// Command lines of a user who is not root, and answers to their questions.
const RESTRICTED: &[(&str, &str)] = &[
    ("secret c", ""),
    ("own roots", ""),
    ("-f own roots", ""),
    ("own read-only", ""),
    ("-f own read-only", ""),
    ("-fv own read-only", ""),
    ("-i own read-only", "n\n"),
    ("-i own read-only", "y\n"),
    ("-if own read-only", "y\n"),
    ("-i own roots", "y\n"),
    ("--remove-destination own read-only", ""),
    ("own roots-dir", ""),
    ("own roots-dir/new", ""),
    ("own no-search/new", ""),
    ("no-search/file c", ""),
    ("-r no-search c", ""),
    ("own no-write", ""),
    ("own no-write/file", ""),
    ("-b own roots-dir/file", ""),
    ("-r tree c", ""),
    ("-a tree c", ""),
    ("-rp tree c", ""),
    ("-r tree no-write", ""),
    ("-a tree roots-dir", ""),
    ("-p setuid c", ""),
    ("-a setuid c", ""),
    ("setuid c", ""),
    ("-p own-setuid c", ""),
    ("--preserve=mode setuid c", ""),
    ("--preserve=ownership setuid c", ""),
    ("-p own roots", ""),
    ("--attributes-only -p own-setuid own", ""),
    ("-l secret c", ""),
    ("-s secret c", ""),
    ("-t no-search own", ""),
    ("--parents tree/open/file c", ""),
    ("--parents tree/open/file no-write", ""),
    ("-u roots own", ""),
];

#[test]
fn missing_permissions_are_reported_as_by_gnus() {
    if !is_gnu() || !is_root() {
        eprintln!("skipped: only root becomes another");
        return;
    }
    let base = tempfile::tempdir().unwrap();
    fs::set_permissions(base.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let mut can = ours();
    if !can.arg("--version").uid(NOBODY).gid(NOBODY).output().is_ok_and(|o| o.status.success()) {
        eprintln!("skipped: the command cannot be reached by another user");
        return;
    }
    let mut differences = String::new();
    for (number, (case, answer)) in RESTRICTED.iter().enumerate() {
        let place = base.path().join(number.to_string());
        fs::create_dir(&place).unwrap();
        let arguments: Vec<_> = case.split_whitespace().collect();
        let who = Some(NOBODY);
        let answer = answer.as_bytes();
        differences += &compare_in(&place, who, &arguments, answer, Compared::TreesOnto, guarded);
    }
    assert_same(differences);
}

#[test]
fn a_directory_swapped_for_a_link_is_not_followed() {
    let place = place("cp-swap");
    let tree = place.join("tree");
    for number in 0..40 {
        fs::create_dir_all(tree.join(format!("sub/{number}"))).unwrap();
        fs::write(tree.join(format!("sub/{number}/file")), "data").unwrap();
        fs::set_permissions(tree.join(format!("sub/{number}")), fs::Permissions::from_mode(0o555))
            .unwrap();
    }
    fs::create_dir(place.join("outside")).unwrap();
    fs::set_permissions(place.join("outside"), fs::Permissions::from_mode(0o711)).unwrap();
    let (mut refused, mut round) = (0, 0);
    // Until a directory has been swapped in time.
    while round < 30 || refused == 0 {
        round += 1;
        let copy = place.join(format!("copy-{round}"));
        fs::create_dir_all(copy.join("sub")).unwrap();
        symlink(place.join("outside"), copy.join("way-out")).unwrap();
        let over = AtomicBool::new(false);
        let (status, _, stderr) = std::thread::scope(|scope| {
            scope.spawn(|| {
                let (sub, out) = (c_path(&copy.join("sub")), c_path(&copy.join("way-out")));
                while !over.load(Ordering::Relaxed) {
                    // SAFETY: both paths outlive the call.
                    let swapped = unsafe {
                        libc::syscall(
                            libc::SYS_renameat2,
                            libc::AT_FDCWD,
                            sub.as_ptr(),
                            libc::AT_FDCWD,
                            out.as_ptr(),
                            libc::RENAME_EXCHANGE,
                        )
                    };
                    assert_eq!(swapped, 0);
                }
            });
            let output = run(&place, &["-aT", "tree", copy.to_str().unwrap()]);
            over.store(true, Ordering::Relaxed);
            output
        });
        assert_eq!(status, Some(i32::from(!stderr.is_empty())), "{stderr}");
        refused += u32::from(!stderr.is_empty());
        assert!(is_empty(&place.join("outside")), "{stderr}");
        let mode = fs::metadata(place.join("outside")).unwrap().permissions().mode();
        assert_eq!(mode, 0o40711);
    }
}

/// The directories that `--parents` creates get their attributes at the end; a file that has their
/// name by then gets none of them.
#[test]
fn a_swapped_parent_gets_no_attributes() {
    let place = place("cp-parents-swapped");
    for directory in ["s/b", "d", "victim"] {
        fs::create_dir_all(place.join(directory)).unwrap();
    }
    fs::set_permissions(place.join("victim"), fs::Permissions::from_mode(0o700)).unwrap();
    for directory in ["s", "s/b"] {
        fs::set_permissions(place.join(directory), fs::Permissions::from_mode(0o777)).unwrap();
    }
    let fifo = place.join("s/b/fifo");
    mkfifo(&fifo);
    for swaps in [true, false] {
        let mut command = ours();
        command.args(["-p", "--parents", "--copy-contents", "-r", "s/b/fifo", "d"]);
        let mut child = command.current_dir(&place).stderr(Stdio::piped()).spawn().unwrap();
        let mut writer = File::options().write(true).open(&fifo).unwrap();
        writer.write_all(b"te").unwrap();
        // The copy waits for the rest, after it has created the directories and the file.
        while !place.join("d/s/b/fifo").exists() {
            assert!(child.try_wait().unwrap().is_none());
            std::thread::yield_now();
        }
        fs::rename(place.join("d/s"), place.join(format!("moved-{swaps}"))).unwrap();
        if swaps {
            symlink(place.join("victim"), place.join("d/s")).unwrap();
            fs::create_dir(place.join("victim/b")).unwrap();
            fs::set_permissions(place.join("victim/b"), fs::Permissions::from_mode(0o700)).unwrap();
        }
        writer.write_all(b"xt").unwrap();
        drop(writer);
        let output = finish(child, "a copy whose parents are swapped");
        let stderr = texts(&output).1;
        assert_eq!(output.status.code(), Some(1), "{stderr}");
        let words = "failed to preserve times for 'd/s/b': No such file or directory";
        assert!(stderr.contains(words), "{stderr}");
        for name in ["victim", "victim/b"] {
            let mode = fs::metadata(place.join(name)).unwrap().permissions().mode();
            assert_eq!(mode & 0o7777, 0o700, "{name}");
        }
        if swaps {
            fs::remove_file(place.join("d/s")).unwrap();
        }
    }
}
