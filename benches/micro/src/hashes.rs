//! The checksums of a tree of small files: `examples/hash.rs`, and the same program with rayon.
//!
//! Both list the directories on all cores, and then read the files on all cores. *Cold* means
//! that the kernel has dropped its caches of files, names and inodes before each run, which only
//! root can ask for.

#[allow(dead_code, reason = "its `main` is not called")]
#[path = "../../../crates/cringle/examples/hash.rs"]
mod hash;

use crate::report::{Contest, Report};
use rayon::prelude::*;
use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::time::Instant;
use std::{fs, io};

const DIRECTORIES: usize = 250;
const FILES: usize = 50_000;
/// The largest file.
const BYTES: usize = 8192;
const WARM_THREADS: [usize; 4] = [1, 2, 4, 8];
const COLD_THREADS: [usize; 5] = [4, 8, 16, 32, 64];

pub(crate) fn run(rounds: usize, directory: &Path) -> Vec<Report> {
    let tree = Tree::new(directory);
    assert!(tree.by_fibers() == tree.by_rayon(&pool(2)), "both print the same");
    let warm = contest("a file of 4 KiB hashed, by all cores", &tree, &WARM_THREADS, || ());
    let mut reports = vec![finish(warm, rounds, &WARM_THREADS, 1.0)];
    match drop_caches() {
        Ok(()) => {
            let drops = || drop_caches().expect("root can drop caches");
            let title = "a file of 4 KiB hashed, by all cores, cold";
            let cold = contest(title, &tree, &COLD_THREADS, drops);
            reports.push(finish(cold, rounds.min(7), &COLD_THREADS, 0.9));
        }
        Err(e) => eprintln!("/proc/sys/vm/drop_caches: {e}; without cold runs"),
    }
    reports
}

const FIBERS: &str = "cringle: par_map_workers, 128 at once";

fn threads_name(threads: usize) -> String {
    format!("rayon, {threads} threads")
}

/// `prepare` precedes each timed run.
fn contest<'a>(
    title: &'static str,
    tree: &'a Tree,
    threads: &[usize],
    prepare: impl Fn() + Copy + 'a,
) -> Contest<'a> {
    let timed = move |run: &dyn Fn() -> String| {
        prepare();
        let begin = Instant::now();
        let lines = run();
        let nanoseconds = begin.elapsed().as_nanos() as f64 / FILES as f64;
        assert_eq!(lines.lines().count(), FILES);
        nanoseconds
    };
    let contest = Contest::new(title).side(FIBERS, move || timed(&|| tree.by_fibers()));
    threads.iter().fold(contest, |contest, &threads| {
        let pool = pool(threads);
        contest.side(&threads_name(threads), move || timed(&|| tree.by_rayon(&pool)))
    })
}

fn finish(contest: Contest<'_>, rounds: usize, threads: &[usize], bar: f64) -> Report {
    let names: Vec<String> = threads.iter().map(|&threads| threads_name(threads)).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    contest.run(rounds).ratio(FIBERS, &names, Some(bar))
}

fn pool(threads: usize) -> rayon::ThreadPool {
    rayon::ThreadPoolBuilder::new().num_threads(threads).build().expect("threads start")
}

fn drop_caches() -> io::Result<()> {
    // SAFETY: no pointers.
    unsafe { libc::sync() };
    fs::write("/proc/sys/vm/drop_caches", "3")
}

/// The files. They are removed at the end.
struct Tree(PathBuf);

impl Tree {
    fn new(directory: &Path) -> Tree {
        let tree = Tree(directory.join(format!("cringle-hash-{}", std::process::id())));
        let bytes: Vec<u8> = (0..2 * BYTES).map(|n| (n * n / 7) as u8).collect();
        for directory in 0..DIRECTORIES {
            let path = tree.0.join(directory.to_string());
            fs::create_dir_all(&path).expect("a directory can be created");
            for n in (directory..FILES).step_by(DIRECTORIES) {
                let part = &bytes[n % BYTES..][..1 + n * 7919 % BYTES];
                fs::write(path.join(n.to_string()), part).expect("a file can be created");
            }
        }
        tree
    }

    fn by_fibers(&self) -> String {
        let mut lines = Vec::new();
        let failed = hash::run(self.0.clone(), &mut lines).expect("a Vec takes all lines");
        assert!(!failed, "each file can be read");
        String::from_utf8(lines).expect("the paths are UTF-8")
    }

    fn by_rayon(&self, pool: &rayon::ThreadPool) -> String {
        let hash_all = || {
            let files = list(self.0.clone()).into_par_iter();
            files.map(|file| (hash_file(&file), file)).collect()
        };
        let hashes: Vec<(io::Result<u32>, PathBuf)> = pool.install(hash_all);
        let mut lines = String::new();
        for (hash, file) in &hashes {
            let hash = hash.as_ref().expect("each file can be read");
            writeln!(lines, "{hash:08x}  {}", file.display()).expect("a String takes all lines");
        }
        lines
    }
}

impl Drop for Tree {
    fn drop(&mut self) {
        if let Err(e) = fs::remove_dir_all(&self.0) {
            eprintln!("cannot remove {}: {e}", self.0.display());
        }
    }
}

/// The example's function, with std's calls.
fn list(path: PathBuf) -> Vec<PathBuf> {
    let entries = fs::read_dir(&path).and_then(|entries| entries.collect::<io::Result<Vec<_>>>());
    let Ok(mut entries) = entries else { return vec![path] };
    entries.sort_by_cached_key(fs::DirEntry::file_name);
    let kinds = entries.iter().map(|entry| (entry.path(), entry.file_type().ok()));
    let entries: Vec<(PathBuf, Option<fs::FileType>)> = kinds.collect();
    let is_directory = |kind: &Option<fs::FileType>| kind.is_some_and(|kind| kind.is_dir());
    let directories = entries.iter().filter(|(_, kind)| is_directory(kind));
    let directories: Vec<PathBuf> = directories.map(|(path, _)| path.clone()).collect();
    let listed: Vec<_> = directories.into_par_iter().map(list).collect();
    let mut listed = listed.into_iter();
    let files = |(path, kind): (PathBuf, Option<fs::FileType>)| match kind {
        Some(kind) if kind.is_dir() => listed.next().expect("each directory was listed"),
        Some(kind) if !kind.is_file() => Vec::new(),
        _ => vec![path],
    };
    entries.into_iter().flat_map(files).collect()
}

/// The example's function, with std's calls.
fn hash_file(path: &PathBuf) -> io::Result<u32> {
    let mut file = flate2::CrcReader::new(fs::File::open(path)?);
    io::copy(&mut file, &mut io::sink()).map(|_| file.crc().sum())
}
