//! Promise 1: a program written for std needs only other imports. Each program here is one source,
//! compiled twice. Its output and files must be the same with std, with the library outside of
//! `run`, on one worker, and on two.

use cringle_testing::disk::directory;
use std::path::Path;

macro_rules! programs {
    ($name:ident, $fs:path, $thread:path, $sync:path, $os:path) => {
        mod $name {
            use $fs as fs;
            use $os as os;
            use $sync as sync;
            use $thread as thread;

            use fs::{DirBuilder, File, FileTimes, OpenOptions, Permissions};
            use os::unix::fs::{
                DirBuilderExt, DirEntryExt, FileExt, FileTypeExt, MetadataExt, OpenOptionsExt,
                PermissionsExt, symlink,
            };
            use std::collections::{BTreeMap, BTreeSet};
            use std::io::{self, BufRead, BufReader, BufWriter, Read, Seek, SeekFrom, Write};
            use std::path::{Path, PathBuf};
            use std::time::{Duration, SystemTime};
            use sync::{Arc, Mutex, mpsc};

            /// Creates a tree, copies it with modes, times and links, and compares both.
            pub(crate) fn backup(root: &Path) -> io::Result<Vec<String>> {
                let (source, target) = (root.join("source"), root.join("target"));
                for n in 0..20u32 {
                    let directory = source.join(format!("{}/{}", n % 3, n % 5));
                    DirBuilder::new().recursive(true).mode(0o750).create(&directory)?;
                    let mut file = OpenOptions::new()
                        .write(true)
                        .create_new(true)
                        .mode(0o600 + n % 8)
                        .open(directory.join(format!("{n}.txt")))?;
                    file.write_all(format!("file {n}\n").repeat(n as usize * 50).as_bytes())?;
                    let age = Duration::from_secs(u64::from(n) * 86_400);
                    let then = SystemTime::UNIX_EPOCH + Duration::from_secs(1 << 30) - age;
                    file.set_times(FileTimes::new().set_modified(then).set_accessed(then))?;
                }
                symlink("0/0/0.txt", source.join("first"))?;
                fs::hard_link(source.join("1/1/1.txt"), source.join("second"))?;
                fn copy_tree(
                    from: &Path,
                    to: &Path,
                    seen: &mut BTreeMap<u64, PathBuf>,
                ) -> io::Result<u64> {
                    fs::create_dir_all(to)?;
                    fs::set_permissions(to, fs::metadata(from)?.permissions())?;
                    let mut bytes = 0;
                    let mut entries = fs::read_dir(from)?.collect::<io::Result<Vec<_>>>()?;
                    entries.sort_by_key(|entry| entry.file_name());
                    for entry in entries {
                        let (kind, to) = (entry.file_type()?, to.join(entry.file_name()));
                        assert!(!kind.is_fifo());
                        if kind.is_dir() {
                            bytes += copy_tree(&entry.path(), &to, seen)?;
                        } else if kind.is_symlink() {
                            symlink(fs::read_link(entry.path())?, &to)?;
                        } else if let Some(known) = seen.get(&entry.ino()) {
                            fs::hard_link(known, &to)?;
                        } else {
                            bytes += fs::copy(entry.path(), &to)?;
                            let modified = entry.metadata()?.modified()?;
                            File::open(&to)?.set_modified(modified)?;
                            seen.insert(entry.ino(), to);
                        }
                    }
                    Ok(bytes)
                }
                let bytes = copy_tree(&source, &target, &mut BTreeMap::new())?;
                let mut report = vec![format!("{bytes} bytes")];
                let mut rest = vec![target.clone()];
                while let Some(at) = rest.pop() {
                    for entry in fs::read_dir(&at)? {
                        let path = entry?.path();
                        let known = fs::symlink_metadata(&path)?;
                        let shown = path.strip_prefix(&target).unwrap().display();
                        let time = known.is_file().then(|| known.mtime());
                        report.push(format!(
                            "{shown} {:o} {} {time:?}",
                            known.mode(),
                            known.nlink()
                        ));
                        if known.is_dir() {
                            rest.push(path);
                        }
                    }
                }
                report.sort();
                fs::remove_dir_all(&source)?;
                report.push(format!(
                    "{} {}",
                    fs::exists(&source)?,
                    fs::exists(target.join("second"))?
                ));
                Ok(report)
            }

            /// Counts words in many files with threads that share a queue and a map.
            pub(crate) fn words(root: &Path) -> io::Result<Vec<String>> {
                for n in 0..30 {
                    let mut file = BufWriter::new(File::create(root.join(format!("{n}")))?);
                    for line in 0..200 {
                        writeln!(file, "line {} of {n} rope ring", line % 7)?;
                    }
                    file.flush()?;
                }
                let (sender, receiver) = mpsc::channel::<PathBuf>();
                let receiver = Arc::new(Mutex::new(receiver));
                let counts = Arc::new(Mutex::new(BTreeMap::<String, u64>::new()));
                let threads: Vec<_> = (0..4)
                    .map(|n| {
                        let (receiver, counts) = (Arc::clone(&receiver), Arc::clone(&counts));
                        let name = format!("counter {n}");
                        thread::Builder::new().name(name).spawn(move || -> io::Result<()> {
                            loop {
                                let next = receiver.lock().unwrap().recv();
                                let Ok(path) = next else { return Ok(()) };
                                for line in BufReader::new(File::open(path)?).lines() {
                                    for word in line?.split(' ') {
                                        *counts.lock().unwrap().entry(word.into()).or_default() +=
                                            1;
                                    }
                                }
                            }
                        })
                    })
                    .collect::<io::Result<_>>()?;
                for entry in fs::read_dir(root)? {
                    sender.send(entry?.path()).unwrap();
                }
                drop(sender);
                for thread in threads {
                    thread.join().unwrap()?;
                }
                let counts = counts.lock().unwrap();
                Ok(counts.iter().map(|(word, count)| format!("{word}: {count}")).collect())
            }

            /// A store that replaces its file by a rename, and a log that is read at random
            /// offsets.
            pub(crate) fn store(root: &Path) -> io::Result<Vec<String>> {
                let (path, draft) = (root.join("store"), root.join("store.new"));
                let mut report = Vec::new();
                for version in 0..10u64 {
                    let old = match fs::read_to_string(&path) {
                        Err(e) if e.kind() == io::ErrorKind::NotFound => String::new(),
                        text => text?,
                    };
                    fs::write(&draft, format!("{old}version {version}\n"))?;
                    let file = File::open(&draft)?;
                    file.sync_all()?;
                    file.set_permissions(Permissions::from_mode(0o640))?;
                    fs::rename(&draft, &path)?;
                    File::open(root)?.sync_all()?;
                }
                let mut log = OpenOptions::new()
                    .read(true)
                    .append(true)
                    .create(true)
                    .open(root.join("log"))?;
                for record in 0..100u32 {
                    log.write_all(&record.to_le_bytes())?;
                }
                for at in [0, 7, 99] {
                    let mut record = [0; 4];
                    log.read_exact_at(&mut record, at * 4)?;
                    log.seek(SeekFrom::Start(at * 4))?;
                    let mut again = [0; 4];
                    log.read_exact(&mut again)?;
                    assert_eq!(record, again);
                    report.push(format!("{}", u32::from_le_bytes(record)));
                }
                log.set_len(10)?;
                report.push(format!(
                    "{} {:?}",
                    log.metadata()?.len(),
                    log.try_clone()?.stream_position()?
                ));
                report.push(fs::read_to_string(&path)?);
                report.push(format!("{:o}", fs::metadata(&path)?.mode() & 0o7777));
                report.push(format!("{:?}", fs::exists(&draft)?));
                Ok(report)
            }

            /// Scoped threads that create, find and remove files, and print their errors.
            pub(crate) fn errors(root: &Path) -> io::Result<Vec<String>> {
                let errors = Mutex::new(BTreeSet::new());
                thread::scope(|s| {
                    for n in 0..6 {
                        let (errors, root) = (&errors, root.join(n.to_string()));
                        s.spawn(move || -> io::Result<()> {
                            fs::create_dir(&root)?;
                            fs::write(root.join("file"), "text")?;
                            let record = |what: &str, e: io::Error| {
                                errors
                                    .lock()
                                    .unwrap()
                                    .insert(format!("{what}: {e} {:?}", e.kind()));
                            };
                            let at = |name: &str| root.join(name);
                            record("create_dir", fs::create_dir(&root).unwrap_err());
                            record("remove_dir", fs::remove_dir(&root).unwrap_err());
                            record("remove_file", fs::remove_file(&root).unwrap_err());
                            record("read", fs::read(&root).unwrap_err());
                            record("open", File::open(at("missing")).unwrap_err());
                            record("create_new", File::create_new(at("file")).unwrap_err());
                            record("options", OpenOptions::new().open(at("file")).unwrap_err());
                            record("nul", fs::metadata("nul\0inside").unwrap_err());
                            record("below", fs::metadata(at("file/below")).unwrap_err());
                            record("link", fs::read_link(at("file")).unwrap_err());
                            record("rename", fs::rename(at("file"), at("a/b")).unwrap_err());
                            record("copy", fs::copy(&root, at("copy")).unwrap_err());
                            record("all", fs::remove_dir_all(at("file")).unwrap_err());
                            record("tree", fs::create_dir_all(at("file/a/b")).unwrap_err());
                            record("canonicalize", fs::canonicalize(at("missing")).unwrap_err());
                            record("read_dir", fs::read_dir(at("file")).unwrap_err());
                            record("long", fs::write(at(&"n".repeat(300)), "").unwrap_err());
                            fs::remove_dir_all(&root)
                        });
                    }
                });
                assert_eq!(fs::read_dir(root)?.count(), 0);
                Ok(errors.into_inner().unwrap().into_iter().collect())
            }

            /// Merges sorted files, each read by a thread.
            pub(crate) fn merge(root: &Path) -> io::Result<Vec<String>> {
                for n in 0..5u32 {
                    let lines: String =
                        (0..100).map(|line| format!("{:04}\n", line * 5 + n)).collect();
                    fs::write(root.join(format!("part{n}")), lines)?;
                }
                let readers: Vec<_> = (0..5)
                    .map(|n| {
                        let path = root.join(format!("part{n}"));
                        let (sender, receiver) = mpsc::sync_channel(3);
                        let thread = thread::spawn(move || -> io::Result<()> {
                            for line in BufReader::with_capacity(64, File::open(path)?).lines() {
                                sender.send(line?).unwrap();
                            }
                            Ok(())
                        });
                        (thread, receiver)
                    })
                    .collect();
                let mut heads: BTreeSet<(String, usize)> = BTreeSet::new();
                for (n, (_, lines)) in readers.iter().enumerate() {
                    heads.extend(lines.recv().ok().map(|line| (line, n)));
                }
                let mut merged = BufWriter::new(File::create(root.join("merged"))?);
                while let Some((line, n)) = heads.pop_first() {
                    writeln!(merged, "{line}")?;
                    heads.extend(readers[n].1.recv().ok().map(|line| (line, n)));
                }
                merged.into_inner()?.sync_data()?;
                for (thread, _) in readers {
                    thread.join().unwrap()?;
                }
                Ok(vec![fs::read_to_string(root.join("merged"))?])
            }
        }
    };
}

programs!(with_std, std::fs, std::thread, std::sync, std::os);
programs!(with_cringle, cringle::fs, cringle::fiber, cringle::sync, cringle::os);

type Program = fn(&Path) -> std::io::Result<Vec<String>>;

fn both_ways(theirs: Program, ours: Program, needs_fibers: bool) {
    let play = |run: &dyn Fn(&Path) -> std::io::Result<Vec<String>>| {
        let directory = directory();
        run(directory.path()).unwrap()
    };
    let expected = play(&theirs);
    assert!(!expected.is_empty());
    if !needs_fibers {
        assert_eq!(play(&ours), expected, "outside of run");
    }
    for workers in [1, 2] {
        let found =
            play(&|root| cringle::Builder::new().workers(workers).run(|| ours(root)).unwrap());
        assert_eq!(found, expected, "{workers} workers");
    }
}

#[test]
fn backup_program_behaves_as_with_std() {
    both_ways(with_std::backup, with_cringle::backup, false);
}

#[test]
fn word_count_program_behaves_as_with_std() {
    both_ways(with_std::words, with_cringle::words, true);
}

#[test]
fn store_program_behaves_as_with_std() {
    both_ways(with_std::store, with_cringle::store, false);
}

#[test]
fn errors_have_the_text_of_std() {
    both_ways(with_std::errors, with_cringle::errors, true);
}

#[test]
fn merge_program_behaves_as_with_std() {
    both_ways(with_std::merge, with_cringle::merge, true);
}
