//! The programs of `examples/` work as documented.

#[path = "../examples/cache.rs"]
mod cache;
#[path = "../examples/chat.rs"]
mod chat;
#[path = "../examples/commits.rs"]
mod commits;
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
#[path = "../examples/hash.rs"]
mod hash;
#[path = "../examples/hello.rs"]
mod hello;
#[path = "../examples/lookup.rs"]
mod lookup;
#[path = "../examples/mapped.rs"]
mod mapped;
#[path = "../examples/race.rs"]
mod race;
#[path = "../examples/random.rs"]
mod random;

use cringle_testing::disk::{directory, pattern};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};

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
fn commits_measures_three_ways_and_removes_its_files() {
    let directory = directory();
    let rates = commits::run(directory.path(), 8, 5, 2).unwrap();
    assert!(rates.iter().all(|rate| *rate > 0.0));
    assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 0);
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
fn mapped_reads_by_the_ring_and_from_memory() {
    let directory = directory();
    let path = directory.path().join("file");
    std::fs::write(&path, pattern(1 << 20)).unwrap();
    let (file, mapped) = mapped::run(&path, 100).unwrap();
    assert!(file > 0.0 && mapped > 0.0);
    assert!(mapped::run(Path::new("/nowhere"), 1).is_err());
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
fn cache_answers_pipelines_until_it_is_stopped() {
    let (sender, receiver) = std::sync::mpsc::channel();
    let server = std::thread::spawn(move || {
        cache::run("127.0.0.1:0", |server| {
            sender.send((server.local_addr().unwrap(), server.stopper())).unwrap();
        })
    });
    let (addr, stopper) = receiver.recv().unwrap();
    let mut stream = TcpStream::connect(addr).unwrap();
    let commands =
        "PING\r\nSET a 41\r\nINCR a\r\nGET a\r\nDEL a b\r\nGET a\r\nSET b x\r\nINCR b\r\nNO\r\n";
    let answers = "+PONG\r\n+OK\r\n:42\r\n$2\r\n42\r\n:1\r\n$-1\r\n+OK\r\n-ERR value is not an integer or \
                   out of range\r\n-ERR unknown command or wrong number of arguments\r\n";
    stream.write_all(commands.as_bytes()).unwrap();
    let mut received = vec![0; answers.len()];
    stream.read_exact(&mut received).unwrap();
    assert_eq!(String::from_utf8(received).unwrap(), answers);
    // The connection is idle.
    stopper.stop();
    assert_eq!(stream.read(&mut [0]).unwrap(), 0);
    server.join().unwrap().unwrap();
}

#[test]
fn chat_sends_each_line_to_all_clients() {
    cringle::run(|| {
        let listener = cringle::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let addr = listener.local_addr().unwrap();
        cringle::fiber::spawn(|| chat::run(listener));
        let connect = || BufReader::new(cringle::net::TcpStream::connect(addr).unwrap());
        let line_of = |client: &mut BufReader<cringle::net::TcpStream>| {
            let mut line = String::new();
            assert!(client.read_line(&mut line).unwrap() > 0, "the server closed the connection");
            line
        };
        let mut clients: Vec<_> = (0..3).map(|_| connect()).collect();
        // A client that gets its own line is known to the server.
        for (n, client) in clients.iter_mut().enumerate() {
            writeln!(client.get_ref(), "{n}").unwrap();
            while line_of(client) != format!("{n}\n") {}
        }
        writeln!(clients[0].get_ref(), "ahoy").unwrap();
        for client in &mut clients {
            while line_of(client) != "ahoy\n" {}
        }
    });
}

#[test]
fn random_reads_all_blocks_it_was_asked_for() {
    let directory = directory();
    let path = directory.path().join("file");
    std::fs::write(&path, pattern(64 * 4096)).unwrap();
    let mut out = Vec::new();
    random::run(&path, 500, 32, &mut out).unwrap();
    let out = String::from_utf8(out).unwrap();
    let starts = out.lines().map(|line| line.split([' ', ':']).next().unwrap());
    assert_eq!(starts.skip(1).collect::<Vec<_>>(), ["p50", "p99", "p99.9"], "{out}");
    assert!(out.lines().next().unwrap().ends_with(" reads/s"), "{out}");
    assert!(random::run(Path::new("/nowhere"), 1, 1, &mut Vec::new()).is_err());
    std::fs::write(&path, "short").unwrap();
    let e = random::run(&path, 1, 1, &mut Vec::new()).unwrap_err();
    assert_eq!(e.kind(), std::io::ErrorKind::UnexpectedEof);
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
    let mut out = Vec::new();
    assert!(!hash::run(directory.path().into(), &mut out).unwrap());
    let lines = String::from_utf8(out).unwrap();
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
    let mut out = Vec::new();
    assert!(hash::run(directory.path().into(), &mut out).unwrap());
    let path = directory.path().display();
    assert_eq!(
        String::from_utf8(out).unwrap(),
        format!("cbf43926  {path}/a\n00000000  {path}/z\n")
    );
    let mut nothing = Vec::new();
    assert!(hash::run("/nowhere".into(), &mut nothing).unwrap() && nothing.is_empty());
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
