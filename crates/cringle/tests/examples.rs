//! The programs of `examples/` work as documented.

mod disk;

#[path = "../examples/copy.rs"]
mod copy;
#[path = "../examples/copy_tree.rs"]
mod copy_tree;
#[path = "../examples/crowd.rs"]
mod crowd;
#[path = "../examples/faults.rs"]
mod faults;
#[path = "../examples/from_tokio.rs"]
mod from_tokio;
#[path = "../examples/grep.rs"]
mod grep;
#[path = "../examples/hello.rs"]
mod hello;
#[path = "../examples/lookup.rs"]
mod lookup;
#[path = "../examples/race.rs"]
mod race;

use disk::{directory, pattern};
use std::path::Path;

#[test]
fn hello_counts_lines() {
    let directory = directory();
    let paths: Vec<String> = (0..20usize)
        .map(|n| {
            let path = directory.path().join(n.to_string());
            std::fs::write(&path, "line\n".repeat(n)).unwrap();
            path.to_str().unwrap().into()
        })
        .collect();
    assert_eq!(hello::run(&paths).unwrap(), (0..20).sum());
    assert_eq!(hello::run(&[]).unwrap(), 0);
    let e = hello::run(&["/nowhere".into()]).unwrap_err();
    assert!(e.kind() == std::io::ErrorKind::NotFound && e.to_string().contains("/nowhere"));
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
        assert_eq!(copy_tree::run(&from, &to, block_bytes).unwrap(), bytes);
        for n in 0..100usize {
            let copy = std::fs::read(to.join(format!("folder{}/below/{n}", n % 7))).unwrap();
            assert_eq!(copy, pattern(n * 100), "file {n} in blocks of {block_bytes}");
        }
    }
    assert!(copy_tree::run(Path::new("/nowhere"), &directory.path().join("none"), 4096).is_err());
}

#[test]
fn every_race_has_a_winner() {
    let winners = race::run().unwrap();
    assert_eq!(winners.len(), 4);
    assert!(winners.iter().all(|winner| ["left", "right"].contains(winner)), "{winners:?}");
}

#[test]
fn grep_finds_every_line_in_a_tree() {
    let directory = directory();
    let mut expected = String::new();
    for n in 0..600 {
        let folder = directory.path().join(format!("folder{:02}/below", n % 20));
        std::fs::create_dir_all(&folder).unwrap();
        let text = format!("rope\nstrand {n}\nrope\nthe strand of {n}, without a newline");
        std::fs::write(folder.join(format!("file{n:03}")), text).unwrap();
    }
    std::fs::write(directory.path().join("no text"), [b's', b't', 0xff, 0xfe]).unwrap();
    for folder in 0..20 {
        for n in (folder..600).step_by(20) {
            let path = directory.path().join(format!("folder{folder:02}/below/file{n:03}"));
            let path = path.display();
            expected += &format!("{path}:2: strand {n}\n");
            expected += &format!("{path}:4: the strand of {n}, without a newline\n");
        }
    }
    let mut out = Vec::new();
    assert_eq!(grep::run("strand", directory.path(), &mut out).unwrap(), 1200);
    assert_eq!(String::from_utf8(out).unwrap(), expected);
    assert_eq!(grep::run("bowline", directory.path(), &mut Vec::new()).unwrap(), 0);
    assert!(grep::run("", Path::new("/nowhere"), &mut Vec::new()).is_err());
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
            assert_eq!(copy::run(&from, &to, blocks).unwrap(), len as u64);
            assert!(std::fs::read(&to).unwrap() == bytes);
        }
    }
    assert!(copy::run(&directory.path().join("missing"), &to, 4).is_err());
}

#[test]
fn lookup_finds_only_existing_keys() {
    let directory = directory();
    for keys in [1, 16, 17, 5000] {
        let (one_by_one, batched) = lookup::run(keys, directory.path()).unwrap();
        assert!(one_by_one > 0.0 && batched > 0.0);
    }
    assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 0);
}

#[test]
fn from_tokio_sums_all_records() {
    let directory = directory();
    for (tasks, reads) in [(1, 1), (10, 30), (30, 10)] {
        let all = tasks * reads;
        assert_eq!(from_tokio::run(directory.path(), tasks, reads).unwrap(), (0..all).sum());
    }
    assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 0);
}

#[test]
fn crowd_dump_is_complete() {
    let measured = crowd::run(2_000).unwrap();
    // The receivers, the sender and `main`.
    assert_eq!(measured.last_dump.fibers.len(), 2_002);
    assert!(measured.last_dump.silent.is_empty());
    assert!(measured.received > 0, "the fibers did not run during the dumps");
}

#[test]
fn faults_dump_names_all_three() {
    let dump = faults::run().unwrap();
    let text = dump.to_string();
    for name in ["'spinner'", "'forgotten'", "DEADLOCK: 'to the left', 'to the right'"] {
        let other = "DEADLOCK: 'to the right', 'to the left'";
        assert!(
            text.contains(name) || (name.starts_with("DEAD") && text.contains(other)),
            "{text}"
        );
    }
}
