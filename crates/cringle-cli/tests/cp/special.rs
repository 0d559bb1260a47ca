//! Targets that are not plain files: pipes, devices, mounted files, files with flags, a closed
//! output.

use crate::common::mounts::{Mount, done_by};
use crate::common::*;
use crate::support::*;
use crate::trees::mkfifo;
use cringle_testing::fuse::{ALWAYS, Faulty, Op, Rules};
use std::fs::{self, File};
use std::io::Write;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// 1 MiB with data, holes (one at its end) and zeros that are data.
fn sparse(path: &Path) -> Vec<u8> {
    let mut bytes = vec![0; 1 << 20];
    let file = File::create(path).unwrap();
    file.set_len(1 << 20).unwrap();
    for at in [4096, 300_000, 600_000] {
        bytes[at..at + 10_000].copy_from_slice(&noise(10_000));
        file.write_all_at(&bytes[at..at + 10_000], at as u64).unwrap();
    }
    file.write_all_at(&[0; 50_000], 700_000).unwrap();
    bytes
}

const SPARSE: [&[&str]; 5] = [
    &[],
    &["-p"],
    &["--sparse=always"],
    &["--sparse=never", "--reflink=never"],
    &["--sparse=auto", "--fsync"],
];

#[test]
fn pipes_get_zeros_for_holes() {
    let place = place("cp-holes");
    let bytes = sparse(&place.join("sparse"));
    let null = null_device(&place);
    for flags in SPARSE {
        let mut command = ours();
        command.args(flags).args(["sparse", "/dev/stdout"]);
        let output = output_of(command, &place, b"");
        assert_eq!((output.status.code(), texts(&output).1), (Some(0), String::new()), "{flags:?}");
        assert!(output.stdout == bytes, "{flags:?}: {} bytes in the pipe", output.stdout.len());
        let _ = fs::remove_file(place.join("fifo"));
        mkfifo(&place.join("fifo"));
        let fifo = place.join("fifo");
        // Open at both ends, so that the reader does not wait if the copy opens nothing.
        let hold = File::options().read(true).write(true).open(&fifo).unwrap();
        let reader = std::thread::spawn(move || fs::read(fifo).unwrap());
        copies(&place, &[flags, &["sparse", "fifo"]].concat());
        drop(hold);
        let read = reader.join().unwrap();
        assert!(read == bytes, "{flags:?}: {} bytes in the FIFO", read.len());
        if let Some(null) = &null {
            copies(&place, &[flags, &["sparse", null]].concat());
        }
    }
}

/// A null device. Root gets one of its own: `-p` changes the mode and the times of the target, and
/// everybody needs those of `/dev/null`.
fn null_device(place: &Path) -> Option<String> {
    if !is_root() {
        return Some("/dev/null".to_owned());
    }
    let path = place.join("null");
    let _ = fs::remove_file(&path);
    let c_path = std::ffi::CString::new(path.to_str().unwrap()).unwrap();
    // SAFETY: the path is a string for the call.
    let made = unsafe { libc::mknod(c_path.as_ptr(), libc::S_IFCHR | 0o666, libc::makedev(1, 3)) };
    let opened = (made == 0).then(|| File::options().write(true).open(&path));
    match opened {
        Some(Ok(_)) => Some(path.into_os_string().into_string().unwrap()),
        other => {
            eprintln!("skipped: no device can be made here: {other:?}");
            None
        }
    }
}

/// A loop device on an image, detached when dropped.
struct Loop(PathBuf);

impl Loop {
    fn new(image: &Path) -> Option<Loop> {
        let output = Command::new("losetup").args(["--find", "--show"]).arg(image).output();
        let output = output.map(|output| (output.status.success(), texts(&output)));
        match output {
            Ok((true, (device, _))) => Some(Loop(PathBuf::from(device.trim()))),
            other => {
                eprintln!("skipped: no loop device can be had here: {other:?}");
                None
            }
        }
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        if let Err(why) = done_by("losetup", &["--detach", self.0.to_str().unwrap()]) {
            eprintln!("still attached: {why}");
        }
    }
}

#[test]
fn devices_get_zeros_and_are_verified() {
    let place = place("cp-device");
    let bytes = sparse(&place.join("sparse"));
    fs::write(place.join("image"), vec![0xaa; 2 << 20]).unwrap();
    let Some(device) = Loop::new(&place.join("image")) else { return };
    let path = device.0.to_str().unwrap();
    for flags in SPARSE.into_iter().chain([&["--verify"][..], &["--verify", "--sparse=always"]]) {
        fs::write(&device.0, vec![0xaa; 2 << 20]).unwrap();
        copies(&place, &[flags, &["sparse", path]].concat());
        let now = fs::read(&device.0).unwrap();
        assert!(now[..1 << 20] == bytes, "{flags:?}: holes keep what was there");
        assert!(now[1 << 20..] == [0xaa; 1 << 20], "{flags:?}: beyond the source");
    }
}

#[test]
fn verify_fails_where_nothing_can_be_read_back() {
    let place = place("cp-unverifiable");
    fs::write(place.join("a"), "text").unwrap();
    for target in ["/dev/stdout", "/dev/null"] {
        let (status, out, stderr) = run(&place, &["--verify", "a", target]);
        assert_eq!(status, Some(1), "{target}");
        assert_eq!(out, if target == "/dev/stdout" { "text" } else { "" });
        assert!(stderr.contains(&format!("cannot verify '{target}'")), "{stderr}");
    }
}

#[test]
fn a_mounted_file_is_written_in_place() {
    let base = tempfile::tempdir_in(place("cp-bind")).unwrap();
    if !is_root() {
        eprintln!("skipped: only root mounts files");
        return;
    }
    let at = |name: &str| base.path().join(name);
    fs::create_dir_all(at("tree")).unwrap();
    fs::create_dir(at("there")).unwrap();
    fs::write(at("tree/file"), "new").unwrap();
    let elsewhere = Mount::new(base.path(), "tmpfs", 4);
    let other = elsewhere.as_ref().map(|mount| mount.0.join("origin"));
    for origin in [Some(at("origin")), other].into_iter().flatten() {
        fs::write(at("there/file"), "covered").unwrap();
        fs::write(&origin, "old").unwrap();
        let target = at("there/file");
        done_by("mount", &["--bind", origin.to_str().unwrap(), target.to_str().unwrap()]).unwrap();
        let mount = Mount(target);
        for arguments in [
            &["tree/file", "there"][..],
            &["-f", "tree/file", "there"],
            &["-p", "tree/file", "there/file"],
            &["--fsync", "--verify", "tree/file", "there"],
            &["-rT", "tree", "there"],
            &["-aT", "--fsync", "tree", "there"],
        ] {
            fs::write(&origin, "older and longer").unwrap();
            copies(base.path(), arguments);
            assert_eq!(fs::read_to_string(&origin).unwrap(), "new", "{arguments:?}");
            assert_eq!(fs::read_dir(at("there")).unwrap().count(), 1, "{arguments:?}");
        }
        drop(mount);
        assert_eq!(fs::read_to_string(at("there/file")).unwrap(), "covered");
    }
}

#[test]
fn a_replaced_file_keeps_its_flags() {
    let place = place("cp-flags");
    let output = |program: &str, arguments: &[&str]| {
        let output = Command::new(program).args(arguments).current_dir(&place).output();
        output.map(|output| (output.status.success(), texts(&output).0))
    };
    fs::write(place.join("new"), "new").unwrap();
    for flag in ["+d", "+A", "+S", "+AdS"] {
        for arguments in [&["new", "old"][..], &["-a", "new", "old"], &["--fsync", "new", "old"]] {
            fs::write(place.join("old"), "old").unwrap();
            if !matches!(output("chattr", &[flag, "old"]), Ok((true, _))) {
                eprintln!("skipped: no chattr, or no flags on this file system");
                return;
            }
            let before = output("lsattr", &["old"]).unwrap();
            copies(&place, arguments);
            assert_eq!(fs::read_to_string(place.join("old")).unwrap(), "new");
            assert_eq!(output("lsattr", &["old"]).unwrap(), before, "{flag} {arguments:?}");
            fs::remove_file(place.join("old")).unwrap();
        }
    }
    // Without flags of its own, it is still replaced.
    fs::write(place.join("old"), "old").unwrap();
    let inode = || fs::metadata(place.join("old")).unwrap().ino();
    let before = inode();
    copies(&place, &["new", "old"]);
    assert_ne!(inode(), before);
}

#[test]
fn an_unwritable_output_is_a_failure() {
    let place = place("cp-closed");
    fs::create_dir(place.join("d")).unwrap();
    for name in ["a", "d/b", "d/c"] {
        fs::write(place.join(name), "text").unwrap();
    }
    let shell = |program: &str, line: &str| {
        let to = place.join("to");
        let _ = if to.is_dir() { fs::remove_dir_all(&to) } else { fs::remove_file(&to) };
        let mut command = Command::new("sh");
        command.args(["-c", &format!("exec {program} {line}")]);
        let output = output_of(command, &place, b"");
        (output.status.code(), lines(&output.stderr))
    };
    let mine = format!("{} cp", env!("CARGO_BIN_EXE_cringle"));
    for (line, status) in [
        ("-v a to >&-", 1),
        ("a to >&-", 0),
        ("-rv d to >&-", 1),
        ("-rv d to >/dev/full", 1),
        ("--help >&-", 1),
        ("--help >/dev/full", 1),
        ("-rv d to >/dev/null", 0),
        ("-v a to >&- 2>&-", 1),
        ("-r d to <&- >&- 2>&-", 0),
    ] {
        let output = shell(&mine, line);
        assert_eq!(output.0, Some(status), "{line}: {:?}", output.1);
        if is_gnu() {
            assert_eq!(output, shell("cp", line), "{line}");
        }
        assert!(place.join("to").exists() || line.starts_with("--help"), "{line}");
    }
}

#[test]
fn fsync_reaches_the_file_behind_a_link() {
    let base = tempfile::tempdir_in(place("cp-fsync-link")).unwrap();
    let Some(faulty) = Faulty::mount(base.path(), "faulty") else { return };
    let at = |name: &str| base.path().join(name);
    fs::create_dir(at("tree")).unwrap();
    fs::create_dir_all(at("there/tree")).unwrap();
    fs::write(at("tree/file"), "new").unwrap();
    // Another tree first, whose file system is synced as a whole.
    fs::create_dir(at("first")).unwrap();
    fs::write(at("first/other"), "other").unwrap();
    symlink(faulty.at.join("victim"), at("there/tree/file")).unwrap();
    for arguments in [
        &["--fsync", "tree/file", "there/tree"][..],
        &["-r", "--fsync", "--jobs=1", "first", "tree", "there"],
    ] {
        faulty.clear();
        faulty.put("victim", b"old");
        faulty.set(Rules::failing(Op::Fsync, libc::EIO, 0, ALWAYS));
        let (status, _, stderr) = run(base.path(), arguments);
        assert_eq!(
            faulty.fired(),
            [Op::Fsync],
            "{arguments:?}: the file's own server was not asked"
        );
        assert_eq!(status, Some(1), "{arguments:?}");
        assert!(stderr.contains("file': Input/output error"), "{stderr}");
        faulty.set(Rules::default());
        copies(base.path(), arguments);
        assert_eq!(faulty.get("victim").unwrap().0, b"new");
    }
}

#[test]
fn a_stalled_read_blocks_no_other_directory() {
    let base = tempfile::tempdir_in(place("cp-stall")).unwrap();
    let Some(faulty) = Faulty::mount(base.path(), "faulty") else { return };
    faulty.mkdir("s");
    for directory in 0..4 {
        faulty.mkdir(&format!("s/{directory}"));
        for file in 0..20 {
            faulty.put(&format!("s/{directory}/{file}"), b"text");
        }
    }
    faulty.mkdir("s/victims");
    let bytes = noise(400_000);
    faulty.put("s/victims/victim", &bytes);
    faulty.set(Rules { stalls_at: Some(100_000), ..Rules::default().direct() });
    let mut command = ours();
    command.args(["-r", "--jobs=4", "faulty/s", "to"]).current_dir(base.path());
    let mut child = command.stdin(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    let others = || {
        let count =
            |n: usize| fs::read_dir(base.path().join(format!("to/{n}"))).map_or(0, Iterator::count);
        (0..4).map(count).sum::<usize>()
    };
    // Without an end, if the stalled read holds a directory.
    while others() < 80 || faulty.stalled() == 0 {
        assert!(child.try_wait().unwrap().is_none(), "the copy has not waited for the read");
        std::thread::yield_now();
    }
    faulty.release();
    let output = finish(child, "a copy with a stalled read");
    assert_eq!((output.status.code(), texts(&output).1), (Some(0), String::new()));
    assert!(fs::read(base.path().join("to/victims/victim")).unwrap() == bytes);
}

/// As with GNU's, the open waits until the holder releases the lease.
#[test]
fn a_leased_source_is_waited_for() {
    let place = place("cp-lease");
    const F_SETSIG: libc::c_int = 10;
    let mut file = File::create(place.join("leased")).unwrap();
    file.write_all(b"before").unwrap();
    // SAFETY: the calls take no pointers; the signal is ignored by default.
    let leased = unsafe {
        libc::fcntl(file.as_raw_fd(), F_SETSIG, libc::SIGURG);
        libc::fcntl(file.as_raw_fd(), libc::F_SETLEASE, libc::F_WRLCK)
    };
    if leased != 0 {
        eprintln!("skipped: no leases here: {}", std::io::Error::last_os_error());
        return;
    }
    let mut command = ours();
    command.args(["leased", "to"]).current_dir(&place);
    let mut child = command.stdin(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    // SAFETY: the call takes no pointers.
    while unsafe { libc::fcntl(file.as_raw_fd(), libc::F_GETLEASE) } == libc::F_WRLCK {
        assert!(child.try_wait().unwrap().is_none(), "the copy has not waited for the lease");
        std::thread::yield_now();
    }
    file.write_all(b" and after").unwrap();
    // SAFETY: the call takes no pointers.
    unsafe { libc::fcntl(file.as_raw_fd(), libc::F_SETLEASE, libc::F_UNLCK) };
    let output = finish(child, "a copy of a leased file");
    assert_eq!((output.status.code(), texts(&output).1), (Some(0), String::new()));
    assert_eq!(fs::read_to_string(place.join("to")).unwrap(), "before and after");
}

/// No name can be removed from such a directory, neither a temporary one nor an old one.
#[test]
fn append_only_directories_are_written_in_place() {
    let place = place("cp-append-only");
    let only = place.join("only");
    fs::create_dir(&only).unwrap();
    fs::write(only.join("old"), "old").unwrap();
    fs::write(place.join("new"), "new").unwrap();
    if let Err(why) = done_by("chattr", &["+a", only.to_str().unwrap()]) {
        eprintln!("skipped: no directory can be append-only here: {why}");
        return;
    }
    let copied = [&["new", "only/old"][..], &["--fsync", "new", "only/fresh"]]
        .map(|arguments| run(&place, arguments));
    let linked = run(&place, &["-lf", "new", "only/old"]);
    let mut names: Vec<_> = fs::read_dir(&only).unwrap().map(|e| e.unwrap().file_name()).collect();
    names.sort();
    let contents = ["old", "fresh"].map(|name| fs::read_to_string(only.join(name)).unwrap());
    done_by("chattr", &["-a", only.to_str().unwrap()]).unwrap();
    assert_eq!(copied, [(); 2].map(|()| (Some(0), String::new(), String::new())));
    assert_eq!(linked.0, Some(1), "{linked:?}");
    assert_eq!(names, ["fresh", "old"]);
    assert_eq!(contents, ["new", "new"]);
}

fn has_fchmodat2() -> bool {
    // SAFETY: the name outlives the call, and does not exist.
    unsafe { libc::syscall(452, libc::AT_FDCWD, c"/nothing/here".as_ptr(), 0, 0) };
    std::io::Error::last_os_error().raw_os_error() == Some(libc::ENOENT)
}

/// As in a rescue system or a bare chroot.
#[test]
fn without_proc_special_files_keep_their_modes() {
    let place = place("cp-no-proc");
    fs::create_dir(place.join("s")).unwrap();
    mkfifo(&place.join("s/fifo"));
    let _socket = std::os::unix::net::UnixListener::bind(place.join("s/socket")).unwrap();
    for (name, mode) in [("fifo", 0o764), ("socket", 0o751)] {
        fs::set_permissions(place.join("s").join(name), fs::Permissions::from_mode(mode)).unwrap();
    }
    let mut command = Command::new("unshare");
    let script = "mount -t tmpfs none /proc && exec \"$@\"";
    command.args(["-m", "sh", "-c", script, "sh"]);
    command.arg(ours().get_program()).args(ours().get_args()).args(["-a", "s", "d"]);
    let output = output_of(command, &place, b"");
    let stderr = texts(&output).1;
    if !is_root() || stderr.contains("unshare:") || stderr.contains("mount:") {
        eprintln!("skipped: /proc cannot be hidden here: {stderr}");
        return;
    }
    // `fchmodat2` came with Linux 6.6; before that, only `/proc` leads to such a file.
    if output.status.code() != Some(0) && !has_fchmodat2() {
        eprintln!("skipped: this kernel has no fchmodat2");
        return;
    }
    assert_eq!((output.status.code(), stderr), (Some(0), String::new()));
    for (name, mode) in [("fifo", 0o764), ("socket", 0o751)] {
        let copied = fs::symlink_metadata(place.join("d").join(name)).unwrap();
        assert_eq!(copied.mode() & 0o7777, mode, "{name}");
    }
}

/// As `/proc/kmsg` does when it is empty: the read is repeated, and waits.
#[test]
fn a_regular_file_may_block() {
    let base = place("cp-would-wait");
    let Some(faulty) = Faulty::mount(&base, "from") else { return };
    let bytes = noise(300_000);
    faulty.put("victim", &bytes);
    for at in [0, 100_000] {
        faulty.set(Rules::failing(Op::Read, libc::EAGAIN, at, 1).direct());
        copies(&base, &["--reflink=never", "from/victim", "to"]);
        assert_eq!(faulty.fired(), [Op::Read]);
        assert!(fs::read(base.join("to")).unwrap() == bytes, "from {at}");
    }
}

/// No read may go beyond the largest offset.
#[test]
fn the_longest_file_is_copied() {
    let place = place_in_memory("cp-longest");
    let file = File::create(place.path().join("long")).unwrap();
    if file.set_len(i64::MAX as u64).is_err() {
        eprintln!("skipped: no such long file can be made here");
        return;
    }
    file.write_all_at(b"text", 4096).unwrap();
    copies(place.path(), &["long", "copy"]);
    let copy = File::open(place.path().join("copy")).unwrap();
    assert_eq!(copy.metadata().unwrap().len(), i64::MAX as u64);
    let mut found = [0; 4];
    copy.read_exact_at(&mut found, 4096).unwrap();
    assert_eq!(&found, b"text");
}
