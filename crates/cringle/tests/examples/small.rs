//! The programs of `examples/` that have one file work as documented.

use crate::program::{self, Server, error, out, with};
use cringle_testing::disk::{directory, pattern};
use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};

/// Returns the number that follows these words.
#[track_caller]
fn number_after(text: &str, words: &str) -> f64 {
    let after = text.split_once(words).unwrap_or_else(|| panic!("no '{words}' in {text}")).1;
    after.split_whitespace().next().unwrap().parse().unwrap()
}

#[test]
fn hello_counts_lines() {
    let directory = directory();
    let mut hello = program::command("hello");
    let mut expected = String::new();
    for n in 0..20usize {
        let path = directory.path().join(n.to_string());
        std::fs::write(&path, "line\n".repeat(n)).unwrap();
        hello.arg(&path);
        expected += &format!("{n:8} {}\n", path.display());
    }
    let ended = program::run(hello);
    assert!(ended.status == Some(0) && ended.errors.is_empty(), "{ended:?}");
    assert_eq!(ended.out, format!("{expected}     190 total\n"));
    assert_eq!(out("hello", &[]), "       0 total\n");
    let e = error("hello", &[&"/nowhere"]);
    assert!(e.contains("NotFound") && e.contains("/nowhere"), "{e}");
}

#[test]
fn copy_tree_copies_with_any_block_size() {
    let directory = directory();
    let (from, mut bytes) = (directory.path().join("from"), 0);
    for n in 0..100usize {
        let folder = from.join(format!("folder{}/below", n % 7));
        std::fs::create_dir_all(&folder).unwrap();
        std::fs::write(folder.join(n.to_string()), pattern(n * 100)).unwrap();
        bytes += n as u64 * 100;
    }
    for block_bytes in [512, 1 << 20] {
        let to = directory.path().join(block_bytes.to_string());
        let out = out("copy_tree", &[&from, &to, &block_bytes.to_string()]);
        assert_eq!(out, format!("{bytes} bytes\n"));
        for n in 0..100usize {
            let copy = std::fs::read(to.join(format!("folder{}/below/{n}", n % 7))).unwrap();
            assert_eq!(copy, pattern(n * 100), "file {n} in blocks of {block_bytes}");
        }
    }
    let e = error("copy_tree", &[&"/nowhere", &directory.path().join("none"), &"4096"]);
    assert!(e.contains("NotFound"), "{e}");
}

#[test]
fn every_race_has_a_winner() {
    let out = out("race", &[]);
    let winners: Vec<&str> = out.trim_end().split(", ").collect();
    assert_eq!(winners.len(), 4, "{out}");
    assert!(winners.iter().all(|winner| ["left", "right"].contains(winner)), "{out}");
}

#[test]
fn chat_sends_each_line_to_all_clients() {
    let server = Server::start_endless(with("chat", &[&"127.0.0.1:0"]));
    let line_of = |client: &mut BufReader<TcpStream>| {
        let mut line = String::new();
        assert!(client.read_line(&mut line).unwrap() > 0, "the server closed the connection");
        line
    };
    let mut clients: Vec<_> = (0..3).map(|_| BufReader::new(server.connect())).collect();
    // A client that gets its own line is known to the server.
    for (n, client) in clients.iter_mut().enumerate() {
        writeln!(client.get_ref(), "{n}").unwrap();
        while line_of(client) != format!("{n}\n") {}
    }
    writeln!(clients[0].get_ref(), "ahoy").unwrap();
    for client in &mut clients {
        while line_of(client) != "ahoy\n" {}
    }
}

#[test]
fn random_reads_all_blocks_it_was_asked_for() {
    let directory = directory();
    let path = directory.path().join("file");
    std::fs::write(&path, pattern(64 * 4096)).unwrap();
    let out = out("random", &[&path, &"500", &"32"]);
    let starts = out.lines().map(|line| line.split([' ', ':']).next().unwrap());
    assert_eq!(starts.skip(1).collect::<Vec<_>>(), ["p50", "p99", "p99.9"], "{out}");
    assert!(out.lines().next().unwrap().ends_with(" reads/s"), "{out}");
    let e = error("random", &[&"/nowhere", &"1", &"1"]);
    assert!(e.contains("NotFound"), "{e}");
    std::fs::write(&path, "short").unwrap();
    let e = error("random", &[&path, &"1", &"1"]);
    assert!(e.contains("UnexpectedEof"), "{e}");
}

/// The lines of `examples/hash.rs`, by a plain program with another algorithm.
fn plain_hashes(root: &Path) -> String {
    fn walk(directory: &Path, files: &mut Vec<PathBuf>) {
        for entry in std::fs::read_dir(directory).unwrap().map(Result::unwrap) {
            match entry.file_type().unwrap() {
                kind if kind.is_dir() => walk(&entry.path(), files),
                kind if kind.is_file() => files.push(entry.path()),
                _ => {}
            }
        }
    }
    fn crc32(bytes: &[u8]) -> u32 {
        let shift = |crc: u32, _| (crc >> 1) ^ (0xedb8_8320 & (crc & 1).wrapping_neg());
        !bytes.iter().fold(!0, |crc, &byte| (0..8).fold(crc ^ u32::from(byte), shift))
    }
    let mut files = Vec::new();
    walk(root, &mut files);
    files.sort();
    let line = |path: &PathBuf| {
        let hash = crc32(&std::fs::read(path).unwrap());
        format!("{hash:08x}  {}\n", path.display())
    };
    files.iter().map(line).collect()
}

#[test]
fn hash_prints_what_a_plain_program_prints() {
    let directory = directory();
    for n in 0..700usize {
        let folder = directory.path().join(format!("folder{:02}/below", n % 20));
        std::fs::create_dir_all(&folder).unwrap();
        std::fs::write(folder.join(format!("file{n}")), pattern(n * 31)).unwrap();
    }
    std::fs::write(directory.path().join("folder"), pattern(1_000_003)).unwrap();
    std::os::unix::fs::symlink("folder", directory.path().join("link")).unwrap();
    std::fs::create_dir(directory.path().join("empty")).unwrap();
    let lines = out("hash", &[&directory.path()]);
    assert_eq!(lines.lines().count(), 701);
    assert_eq!(lines, plain_hashes(directory.path()));
}

#[test]
fn hash_reports_errors_and_hashes_the_rest() {
    let directory = directory();
    std::fs::write(directory.path().join("a"), "123456789").unwrap();
    std::fs::write(directory.path().join("z"), "").unwrap();
    // The path of the lowest directory is too long for the kernel.
    let mut bottom = cringle::fs::Dir::open(directory.path()).unwrap();
    for _ in 0..20 {
        bottom.create_dir("m".repeat(250)).unwrap();
        bottom = bottom.open_dir("m".repeat(250)).unwrap();
    }
    let ended = program::run(with("hash", &[&directory.path()]));
    let path = directory.path().display();
    assert_eq!(ended.out, format!("cbf43926  {path}/a\n00000000  {path}/z\n"));
    let reported = ended.errors.starts_with(&format!("hash: {path}/mmm"));
    assert!(ended.status == Some(1) && reported, "{ended:?}");
    let nothing = program::run(with("hash", &[&"/nowhere"]));
    assert_eq!((nothing.status, &*nothing.out), (Some(1), ""), "{}", nothing.errors);
    assert!(nothing.errors.starts_with("hash: /nowhere: "), "{}", nothing.errors);
}

#[test]
fn copy_copies_any_length() {
    let directory = directory();
    let (from, to) = (directory.path().join("from"), directory.path().join("to"));
    const BLOCK: usize = 256 * 1024;
    for len in [0, 1, BLOCK - 1, BLOCK, 4 * BLOCK, 4 * BLOCK + 1, 9 * BLOCK + 77] {
        for blocks in [1, 4] {
            let bytes = pattern(len);
            std::fs::write(&from, &bytes).unwrap();
            // The copy replaces a longer file.
            std::fs::write(&to, pattern(BLOCK * 10)).unwrap();
            let out = out("copy", &[&from, &to, &blocks.to_string()]);
            assert_eq!(out, format!("{len} bytes\n"));
            assert!(std::fs::read(&to).unwrap() == bytes);
        }
    }
    let e = error("copy", &[&directory.path().join("missing"), &to, &"4"]);
    assert!(e.contains("NotFound"), "{e}");
}

#[test]
fn from_tokio_sums_all_records() {
    let directory = directory();
    for (tasks, reads) in [(1u64, 1u64), (10, 30), (30, 10)] {
        let mut command = with("from_tokio", &[&tasks.to_string(), &reads.to_string()]);
        command.env("TMPDIR", directory.path());
        let sum: u64 = (0..tasks * reads).sum();
        let expected =
            format!("{tasks} tasks have read {reads} records each: their sum is {sum}\n");
        let ended = program::run(command);
        assert_eq!((ended.status, ended.out), (Some(0), expected), "{}", ended.errors);
    }
    assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 0);
}

#[test]
fn crowd_dump_is_complete() {
    let out = out("crowd", &[&"2000"]);
    // The receivers, the sender and `main`.
    assert!(out.starts_with("2002 fibers on 2 workers, "), "{out}");
    assert_eq!(number_after(&out, "workers that did not answer the last dump: "), 0.0, "{out}");
    let received = number_after(&out, "values that the fibers received during a dump: ");
    assert!(received > 0.0, "the fibers did not run during the dumps: {out}");
}

#[test]
fn faults_dump_names_all_three() {
    let text = out("faults", &[]);
    for name in ["'spinner'", "'forgotten'", "DEADLOCK: 'to the left', 'to the right'"] {
        let other = "DEADLOCK: 'to the right', 'to the left'";
        assert!(
            text.contains(name) || (name.starts_with("DEAD") && text.contains(other)),
            "{text}"
        );
    }
}
