//! Promise 1 for names and directories: `cringle::fs` behaves as `std::fs`, including the `errno`,
//! outside of `run`, in each situation of a fiber, and on a ring without ops on names.

use cringle::runtime::Feature;
use cringle_testing::disk;
use cringle_testing::disk::{
    alone, directory, essence, everywhere, in_company, make_fifo, outside, solitary, unwinding,
};
use proptest::prelude::*;
use std::ffi::OsStr;
use std::io::{self, ErrorKind, Read};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, DirEntryExt, FileTypeExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

/// Runs `f` on a fiber of a ring without ops on names, so that the pool performs them.
fn pooled<T>(f: impl FnOnce() -> T) -> T {
    let builder = cringle::Builder::new().workers(1).without(Feature::FileSystem);
    builder
        .without(Feature::Ftruncate)
        .run(|| {
            cringle::fiber::scope(|s| {
                let other = s.spawn_local(cringle::fiber::park);
                cringle::fiber::yield_now();
                let value = f();
                other.thread().unpark();
                value
            })
        })
        .unwrap()
}

/// A call, whose paths are indices into [`paths`].
#[derive(Clone, Debug)]
enum Call {
    Write(usize, usize),
    Read(usize),
    ReadToString(usize),
    Copy(usize, usize),
    Rename(usize, usize),
    HardLink(usize, usize),
    Symlink(usize, usize),
    RemoveFile(usize),
    RemoveDir(usize),
    RemoveDirAll(usize),
    CreateDir(usize),
    CreateDirAll(usize),
    Build(usize, u32, bool),
    ReadDir(usize),
    Metadata(usize),
    SymlinkMetadata(usize),
    SetPermissions(usize, u32),
    SetTimes(usize, Option<i64>, Option<i64>),
    Chown(usize, bool),
    Canonicalize(usize),
    ReadLink(usize),
    Exists(usize),
}

/// Paths that exist, that collide, and that are invalid.
fn paths() -> Vec<PathBuf> {
    let odd = OsStr::from_bytes(b"\xff\xfe not utf-8");
    let mut paths: Vec<PathBuf> =
        ["a", "b", "c", "a/b", "a/c", "a/b/c", "b/a", "b/a/a/a", "c/b/a", "link", "link/a"]
            .into_iter()
            .chain(["a/", "b/.", "a/..", "a/../b", "link/", "circle", "a//b", ".", "..", ""])
            .map(PathBuf::from)
            .collect();
    paths.extend([odd.into(), Path::new("a").join(odd)]);
    paths.extend(["n".repeat(256), "d/".repeat(2500), "nul\0inside".into()].map(PathBuf::from));
    paths
}

/// The outcome of a call.
type Outcome = Result<String, (ErrorKind, Option<i32>)>;

macro_rules! executor {
    ($name:ident, $fs:path, $unix:path) => {
        fn $name(program: &[Call], root: &Path) -> Vec<Outcome> {
            use $fs as fs;
            use $unix as unix;
            let paths = paths();
            let known = |m: fs::Metadata| {
                let (kind, mode) = (m.file_type(), m.permissions().mode());
                let kinds = (kind.is_dir(), kind.is_file(), kind.is_symlink(), kind.is_fifo());
                assert_eq!(kinds, (m.is_dir(), m.is_file(), m.is_symlink(), kind.is_fifo()));
                // The size of a directory depends on the file system.
                let len = if m.is_dir() { 0 } else { m.len() };
                format!("{kinds:?} {mode:o} {len} {} {} {}", m.uid(), m.gid(), m.nlink())
            };
            let execute = |call: &Call| -> io::Result<String> {
                let at = |path: usize| -> PathBuf {
                    // The empty path and the path of the root's parent are kept as they are.
                    if paths[path].as_os_str().is_empty() {
                        PathBuf::new()
                    } else {
                        root.join(&paths[path])
                    }
                };
                let done = |()| String::from("done");
                match *call {
                    Call::Write(path, len) => fs::write(at(path), vec![b'x'; len]).map(done),
                    Call::Read(path) => fs::read(at(path)).map(|bytes| format!("{}", bytes.len())),
                    Call::ReadToString(path) => fs::read_to_string(at(path)),
                    Call::Copy(a, b) => fs::copy(at(a), at(b)).map(|count| count.to_string()),
                    Call::Rename(a, b) => fs::rename(at(a), at(b)).map(done),
                    Call::HardLink(a, b) => fs::hard_link(at(a), at(b)).map(done),
                    Call::Symlink(a, b) => unix::symlink(&paths[a], at(b)).map(done),
                    Call::RemoveFile(path) => fs::remove_file(at(path)).map(done),
                    Call::RemoveDir(path) => fs::remove_dir(at(path)).map(done),
                    // Neither the parent nor the directory of the next calls.
                    Call::RemoveDirAll(path)
                        if [".", "..", "a/.."].map(Path::new).contains(&&*paths[path]) =>
                    {
                        Ok("spared".into())
                    }
                    Call::RemoveDirAll(path) => fs::remove_dir_all(at(path)).map(done),
                    Call::CreateDir(path) => fs::create_dir(at(path)).map(done),
                    Call::CreateDirAll(path) => fs::create_dir_all(at(path)).map(done),
                    Call::Build(path, mode, recursive) => {
                        let mut builder = fs::DirBuilder::new();
                        builder.mode(mode).recursive(recursive).create(at(path)).map(done)
                    }
                    Call::ReadDir(path) => {
                        let mut seen = Vec::new();
                        let entries = fs::read_dir(at(path))?;
                        assert_eq!(format!("{entries:?}"), format!("ReadDir({:?})", at(path)));
                        for entry in entries {
                            let entry = entry?;
                            // Other tests create directories beside this one.
                            if paths[path] == Path::new("..") {
                                continue;
                            }
                            assert_eq!(entry.path(), at(path).join(entry.file_name()));
                            assert_eq!(
                                format!("{entry:?}"),
                                format!("DirEntry({:?})", entry.path())
                            );
                            let metadata = entry.metadata()?;
                            assert_eq!(entry.ino(), metadata.ino());
                            assert_eq!(entry.file_type()?, metadata.file_type());
                            seen.push((entry.file_name(), known(metadata)));
                        }
                        seen.sort();
                        Ok(format!("{seen:?}"))
                    }
                    Call::Metadata(path) => {
                        if paths[path] == Path::new("..") {
                            return Ok("busy".into());
                        }
                        fs::metadata(at(path)).map(known)
                    }
                    Call::SymlinkMetadata(path) => {
                        if paths[path] == Path::new("..") {
                            return Ok("busy".into());
                        }
                        fs::symlink_metadata(at(path)).map(known)
                    }
                    Call::SetPermissions(path, _) if paths[path] == Path::new("..") => {
                        Ok("spared".into())
                    }
                    Call::SetPermissions(path, mode) => {
                        fs::set_permissions(at(path), fs::Permissions::from_mode(mode)).map(done)
                    }
                    Call::SetTimes(path, accessed, modified) => {
                        let file = fs::File::open(at(path))?;
                        let time = |seconds: i64| {
                            let offset = Duration::new(seconds.unsigned_abs(), 7);
                            if seconds < 0 {
                                SystemTime::UNIX_EPOCH - offset
                            } else {
                                SystemTime::UNIX_EPOCH + offset
                            }
                        };
                        let mut times = fs::FileTimes::new();
                        if let Some(at) = accessed {
                            times = times.set_accessed(time(at));
                        }
                        if let Some(at) = modified {
                            times = times.set_modified(time(at));
                        }
                        file.set_times(times)?;
                        let m = file.metadata()?;
                        let if_set = |time: Option<i64>, found: (i64, i64)| time.map(|_| found);
                        Ok(format!(
                            "{:?} {:?}",
                            if_set(accessed, (m.atime(), m.atime_nsec())),
                            if_set(modified, (m.mtime(), m.mtime_nsec())),
                        ))
                    }
                    Call::Chown(path, followed) => {
                        let user = std::fs::metadata(root)?.uid();
                        if followed {
                            unix::chown(at(path), Some(user), None).map(done)
                        } else {
                            unix::lchown(at(path), None, None).map(done)
                        }
                    }
                    Call::Canonicalize(path) => fs::canonicalize(at(path)).map(|path| {
                        let root = std::fs::canonicalize(root).unwrap();
                        format!("{:?}", path.strip_prefix(root))
                    }),
                    Call::ReadLink(path) => fs::read_link(at(path)).map(|path| format!("{path:?}")),
                    Call::Exists(path) => fs::exists(at(path)).map(|is| is.to_string()),
                }
            };
            program.iter().map(|call| execute(call).map_err(|e| essence(&e))).collect()
        }
    };
}

executor!(execute_std, std::fs, std::os::unix::fs);
executor!(execute_cringle, cringle::fs, cringle::os::unix::fs);

fn call() -> impl Strategy<Value = Call> {
    let any_path = paths().len();
    // Mostly paths that collide.
    let path = move || prop_oneof![6 => 0..11usize, 1 => 0..any_path];
    let mode = || prop::sample::select(vec![0o777, 0o755, 0o700, 0o600, 0o444, 0o1777]);
    let seconds = || prop::option::of(-4_000_000_000..20_000_000_000i64);
    prop_oneof![
        4 => (path(), 0..9000usize).prop_map(|(path, len)| Call::Write(path, len)),
        1 => path().prop_map(Call::Read),
        1 => path().prop_map(Call::ReadToString),
        2 => (path(), path()).prop_map(|(a, b)| Call::Copy(a, b)),
        3 => (path(), path()).prop_map(|(a, b)| Call::Rename(a, b)),
        2 => (path(), path()).prop_map(|(a, b)| Call::HardLink(a, b)),
        3 => (path(), path()).prop_map(|(a, b)| Call::Symlink(a, b)),
        2 => path().prop_map(Call::RemoveFile),
        2 => path().prop_map(Call::RemoveDir),
        2 => path().prop_map(Call::RemoveDirAll),
        3 => path().prop_map(Call::CreateDir),
        4 => path().prop_map(Call::CreateDirAll),
        1 => (path(), mode(), any::<bool>())
            .prop_map(|(path, mode, all)| Call::Build(path, mode, all)),
        2 => path().prop_map(Call::ReadDir),
        1 => path().prop_map(Call::Metadata),
        1 => path().prop_map(Call::SymlinkMetadata),
        1 => (path(), mode()).prop_map(|(path, mode)| Call::SetPermissions(path, mode)),
        1 => (path(), seconds(), seconds())
            .prop_map(|(path, read, written)| Call::SetTimes(path, read, written)),
        1 => (path(), any::<bool>()).prop_map(|(path, follow)| Call::Chown(path, follow)),
        1 => path().prop_map(Call::Canonicalize),
        1 => path().prop_map(Call::ReadLink),
        1 => path().prop_map(Call::Exists),
    ]
}

/// Returns every file below a directory.
fn tree(root: &Path) -> Vec<String> {
    let mut lines = Vec::new();
    let mut rest = vec![root.to_owned()];
    while let Some(at) = rest.pop() {
        for entry in std::fs::read_dir(&at).unwrap() {
            let path = entry.unwrap().path();
            let known = path.symlink_metadata().unwrap();
            let mut bytes = Vec::new();
            if known.is_file() {
                std::fs::File::open(&path).unwrap().read_to_end(&mut bytes).unwrap();
            }
            let link = std::fs::read_link(&path).ok();
            let shown = path.strip_prefix(root).unwrap();
            lines.push(format!("{shown:?} {:o} {} {link:?}", known.mode(), bytes.len()));
            if known.is_dir() {
                rest.push(path);
            }
        }
    }
    lines.sort();
    lines
}

/// Runs a program in a new directory on the disk, and returns the outcomes of its calls and the
/// files that remain.
fn play(execute: impl FnOnce(&Path) -> Vec<Outcome>) -> (Vec<Outcome>, Vec<String>) {
    play_in(directory(), execute)
}

/// Does the same in memory where possible: on some disks it takes long to create files where many
/// were removed.
fn play_in_memory(execute: impl FnOnce(&Path) -> Vec<Outcome>) -> (Vec<Outcome>, Vec<String>) {
    play_in(tempfile::tempdir_in("/dev/shm").unwrap_or_else(|_| directory()), execute)
}

fn play_in(
    holder: tempfile::TempDir,
    execute: impl FnOnce(&Path) -> Vec<Outcome>,
) -> (Vec<Outcome>, Vec<String>) {
    let root = holder.path().join("root");
    std::fs::create_dir(&root).unwrap();
    std::os::unix::fs::symlink("a", root.join("link")).unwrap();
    std::os::unix::fs::symlink("circle", root.join("circle")).unwrap();
    let outcomes = execute(&root);
    (outcomes, tree(&root))
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 48,
        failure_persistence: None,
        ..Default::default()
    })]

    #[test]
    fn random_name_operations_behave_as_with_std(
        program in prop::collection::vec(call(), 1..80)
    ) {
        let expected = play(|root| execute_std(&program, root));
        prop_assert_eq!(&play(|root| outside(|| execute_cringle(&program, root))), &expected, "outside");
        prop_assert_eq!(&play(|root| solitary(|| execute_cringle(&program, root))), &expected, "solitary");
        prop_assert_eq!(&play(|root| alone(|| execute_cringle(&program, root))), &expected, "alone");
        prop_assert_eq!(&play(|root| in_company(|| execute_cringle(&program, root))), &expected, "company");
        prop_assert_eq!(&play(|root| unwinding(|| execute_cringle(&program, root))), &expected, "unwinding");
        prop_assert_eq!(&play(|root| pooled(|| execute_cringle(&program, root))), &expected, "pool");
    }
}

/// Describes success or the error.
type Answer = Result<(), (ErrorKind, Option<i32>)>;

/// A ring copies both paths before it resolves the first, where `linkat` and `renameat` resolve the
/// first.
#[test]
fn invalid_second_path_does_not_hide_first_error() {
    for second in ["".to_owned(), "d/".repeat(2500)] {
        let (from, to) = (Path::new("circle/a"), Path::new(&second));
        let run = |execute: fn(&Path, &Path) -> io::Result<()>| {
            move |root: &Path| vec![execute(&root.join(from), to).map_err(|e| essence(&e))]
        };
        for (ours, stds) in [
            (run(|a, b| cringle::fs::hard_link(a, b)), run(|a, b| std::fs::hard_link(a, b))),
            (run(|a, b| cringle::fs::rename(a, b)), run(|a, b| std::fs::rename(a, b))),
        ] {
            let results = |run: &dyn Fn(&Path) -> Vec<Answer>| {
                let holder = directory();
                std::os::unix::fs::symlink("circle", holder.path().join("circle")).unwrap();
                run(holder.path())
            };
            let expected = results(&stds);
            assert_eq!(expected[0].unwrap_err().1, Some(libc::ELOOP));
            everywhere(|| assert_eq!(results(&ours), expected, "{second:.9}"));
        }
    }
}

/// Calls every function with every kind of path, each on a fresh tree.
#[test]
fn functions_match_std_for_every_kind_of_path() {
    let prepare = [Call::CreateDirAll(5), Call::Write(4, 10), Call::Symlink(4, 2)];
    let count = paths().len();
    let one = (0..count).flat_map(|p| {
        [
            Call::Write(p, 5),
            Call::Read(p),
            Call::ReadToString(p),
            Call::RemoveFile(p),
            Call::RemoveDir(p),
            Call::RemoveDirAll(p),
            Call::CreateDir(p),
            Call::CreateDirAll(p),
            Call::ReadDir(p),
            Call::Metadata(p),
            Call::SymlinkMetadata(p),
            Call::SetPermissions(p, 0o700),
            Call::Chown(p, true),
            Call::Chown(p, false),
            Call::Canonicalize(p),
            Call::ReadLink(p),
            Call::Exists(p),
        ]
    });
    let two = (0..count).flat_map(|p| {
        [4, 5, 9, 1].into_iter().flat_map(move |q| {
            [Call::Copy(p, q), Call::Copy(q, p), Call::Rename(p, q), Call::Rename(q, p)]
                .into_iter()
                .chain([Call::HardLink(p, q), Call::HardLink(q, p), Call::Symlink(p, q)])
        })
    });
    let calls: Vec<Call> = one.chain(two).collect();
    let programs: Vec<Vec<Call>> =
        calls.into_iter().map(|call| prepare.iter().cloned().chain([call]).collect()).collect();
    let all = |execute: &dyn Fn(&[Call], &Path) -> Vec<Outcome>| -> Vec<_> {
        programs.iter().map(|program| play_in_memory(|root| execute(program, root))).collect()
    };
    let expected = all(&execute_std);
    let compare = |found: Vec<_>, way: &str| {
        for ((program, found), expected) in programs.iter().zip(found).zip(&expected) {
            assert_eq!(&found, expected, "{way}: {:?}", program.last());
        }
    };
    compare(outside(|| all(&execute_cringle)), "outside");
    compare(alone(|| all(&execute_cringle)), "alone");
    compare(pooled(|| all(&execute_cringle)), "pool");
}

#[test]
fn copying_irregular_files_matches_std() {
    let directory = directory();
    let at = directory.path();
    make_fifo(&at.join("fifo"));
    // Their contents stay the same while other programs run.
    let sources =
        ["/proc/version", "/proc/self", "/dev/null", "/dev/zero", "/sys/devices/system/cpu/online"];
    let targets = [at.join("to"), "/dev/full".into(), "/dev/null".into(), at.join("no/where")];
    for (source, target) in
        sources.iter().flat_map(|source| targets.iter().map(move |target| (source, target)))
    {
        let outcome = |result: io::Result<u64>| {
            let mode = std::fs::metadata(at.join("to")).map(|m| m.mode()).ok();
            let text = std::fs::read(at.join("to")).ok();
            let _ = std::fs::remove_file(at.join("to"));
            (result.map_err(|e| (essence(&e), e.to_string())), mode, text)
        };
        let expected = outcome(std::fs::copy(source, target));
        for way in [outside, solitary, alone, in_company, unwinding] {
            let found = outcome(way(|| cringle::fs::copy(source, target)));
            assert_eq!(found, expected, "{source} to {target:?}");
        }
    }
    for way in [outside, alone] {
        way(|| {
            let e = cringle::fs::write("/dev/full", "text").unwrap_err();
            assert_eq!(e.kind(), ErrorKind::StorageFull);
            assert!(cringle::fs::read("/proc/self/status").unwrap().starts_with(b"Name:"));
            let e = cringle::fs::read_to_string("/proc/self/exe").unwrap_err();
            assert_eq!(e.kind(), ErrorKind::InvalidData);
        });
    }
}

#[test]
fn large_and_sparse_files_are_copied_completely() {
    let directory = directory();
    let (from, to) = (directory.path().join("from"), directory.path().join("to"));
    let bytes = disk::pattern(5 << 20);
    std::fs::write(&from, &bytes).unwrap();
    std::fs::OpenOptions::new().write(true).open(&from).unwrap().set_len(70 << 20).unwrap();
    for way in [outside, solitary, alone, unwinding] {
        way(|| {
            assert_eq!(cringle::fs::copy(&from, &to).unwrap(), 70 << 20);
            let copied = std::fs::read(&to).unwrap();
            assert_eq!(copied.len(), 70 << 20);
            assert!(copied.starts_with(&bytes) && disk::is_filled(&copied[bytes.len()..], 0));
            // To another file system, if there is one.
            let far = Path::new("/dev/shm").join(format!("cringle-{}", std::process::id()));
            if cringle::fs::copy(&from, &far).is_ok() {
                assert!(std::fs::read(&far).unwrap() == copied);
                std::fs::remove_file(far).unwrap();
            }
        });
    }
}
