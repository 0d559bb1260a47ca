//! The progress: a bar on a terminal, one line at the end elsewhere.

use crate::common::*;
use crate::support::*;
use crate::trees::mkfifo;
use std::fs::{self, File};
use std::io::{Read, Write};
use std::path::Path;
use std::process::{Child, Stdio};

fn start(place: &Path, arguments: &[&str], err: Stdio) -> Child {
    let mut command = ours();
    command.args(arguments).current_dir(place).stderr(err);
    command.spawn().unwrap()
}

/// Reads what is drawn on the terminal until `ends` accepts a part between two line clears.
fn read_until(terminal: &mut File, ends: impl Fn(&str) -> bool) -> String {
    let mut drawn = String::new();
    loop {
        let mut bytes = [0; 256];
        let n = terminal.read(&mut bytes).unwrap();
        drawn.push_str(&String::from_utf8_lossy(&bytes[..n]));
        if let Some(line) = drawn.split("\u{1b}[2K").find(|line| ends(line)) {
            return line.to_owned();
        }
    }
}

#[test]
fn unknown_total_is_shown_as_lower_bound() {
    let place = place("cp-progress-unknown");
    mkfifo(&place.join("fifo"));
    let (mut seen, terminal) = terminal(80);
    let child = start(&place, &["--copy-contents", "-r", "fifo", "copy"], terminal.into());
    let mut fifo = fs::OpenOptions::new().write(true).open(place.join("fifo")).unwrap();
    // When it is written, all but what the FIFO holds has been read.
    fifo.write_all(&noise(2 << 20)).unwrap();
    // The progress moves during the copy of one file.
    let line = read_until(&mut seen, |line| {
        line.contains(" MiB/s, 0 of at least 0 files") && !line.starts_with('0')
    });
    assert!(line.contains(" of at least ") && !line.contains('%'), "{line:?}");
    drop(fifo);
    assert_eq!(finish(child, "cp on a terminal").status.code(), Some(0));
}

#[test]
fn percentage_follows_the_counted_total() {
    let place = place("cp-progress-percentage");
    fs::create_dir(place.join("tree")).unwrap();
    fs::write(place.join("file"), noise(8 << 20)).unwrap();
    mkfifo(&place.join("fifo"));
    // The reader of the target decides how far the copy is.
    let mut fifo = fs::OpenOptions::new().read(true).write(true).open(place.join("fifo")).unwrap();
    let (mut seen, terminal) = terminal(100);
    let child = start(&place, &["--progress", "file", "fifo"], terminal.into());
    let mut half = vec![0; 4 << 20];
    fifo.read_exact(&mut half).unwrap();
    let percent = |line: &str| -> Option<u32> { line.split(" % [").next()?.trim().parse().ok() };
    let line = read_until(&mut seen, |line| percent(line) >= Some(49) && line.contains(" left"));
    // What the FIFO and the block hold has been copied, too.
    assert!(percent(&line) < Some(60), "{line:?}");
    assert!(line.contains(" of 8.00 MiB, ") && line.contains(" 0 of 1 files"), "{line:?}");
    // The bar and the figures are of one moment.
    let bar = line.matches('=').count() as u32;
    let mib: f64 = line.split("left, ").nth(1).unwrap().split(' ').next().unwrap().parse().unwrap();
    assert_eq!(bar, percent(&line).unwrap() / 5, "{line:?}");
    assert!((mib / 8.0 * 100.0 - f64::from(percent(&line).unwrap())).abs() < 2.0, "{line:?}");
    fifo.read_exact(&mut half).unwrap();
    assert_eq!(finish(child, "cp on a terminal").status.code(), Some(0));
}

/// Messages are whole lines: the bar is removed while they are written.
#[test]
fn messages_are_written_above_the_bar() {
    let place = place("cp-progress-messages");
    mkfifo(&place.join("fifo"));
    fs::create_dir(place.join("copy")).unwrap();
    let (mut seen, terminal) = terminal(80);
    let child =
        start(&place, &["--copy-contents", "-r", "fifo", "missing", "copy"], terminal.into());
    let mut fifo = fs::OpenOptions::new().write(true).open(place.join("fifo")).unwrap();
    fifo.write_all(b"text").unwrap();
    read_until(&mut seen, |line| line.contains(" MiB/s"));
    drop(fifo);
    let line = read_until(&mut seen, |line| line.contains("cannot stat 'missing'"));
    assert!(line.trim_start_matches('\r').starts_with("cringle cp: cannot stat"), "{line:?}");
    assert_eq!(finish(child, "cp on a terminal").status.code(), Some(1));
}

#[test]
fn one_line_is_printed_without_a_terminal() {
    let place = place("cp-progress-line");
    fs::create_dir_all(place.join("tree/below")).unwrap();
    fs::write(place.join("tree/file"), noise(4096)).unwrap();
    fs::write(place.join("tree/below/file"), noise(4096)).unwrap();
    let err = |arguments: &[&str]| {
        let _ = fs::remove_dir_all(place.join("copy"));
        let (_, out, err) = run(&place, arguments);
        assert_eq!(out, "", "{arguments:?}");
        err
    };
    let line = err(&["--progress", "-r", "tree", "copy"]);
    let begin = "cringle cp: copied 2 files, 2 directories, 8 KiB in ";
    assert!(line.starts_with(begin) && line.ends_with(" MiB/s\n"), "{line:?}");
    assert_eq!(line.lines().count(), 1, "{line:?}");
    for flags in [&[][..], &["--quiet"], &["--progress", "--quiet"], &["--no-progress"]] {
        assert_eq!(err(&[flags, &["-r", "tree", "copy"]].concat()), "", "{flags:?}");
    }
    assert!(!err(&["--quiet", "--progress", "-r", "tree", "copy"]).is_empty());
    let failed = err(&["--progress", "-r", "missing", "tree/file", "tree/below"]);
    let last = failed.lines().last().unwrap();
    assert!(last.starts_with("cringle cp: copied 1 file, 0 directories, "), "{failed:?}");
    assert!(last.ends_with("; 1 failed"), "{failed:?}");
}
