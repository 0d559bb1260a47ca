//! Ctrl-C ends the copy in order and leaves no unfinished file under its final name.

use crate::common::*;
use crate::support::*;
use crate::trees::mkfifo;
use std::fs;
use std::io::{Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Stdio};

fn interrupt(child: &Child) {
    // SAFETY: the call takes no pointers. The child has not been reaped, so the number is still its
    // own.
    assert_eq!(unsafe { libc::kill(child.id() as i32, libc::SIGINT) }, 0);
}

#[test]
fn an_interrupt_leaves_no_partial_file() {
    let place = place("cp-interrupt");
    mkfifo(&place.join("source"));
    // Opened for both ends, so that no open waits for the other side.
    let source = fs::OpenOptions::new()
        .read(true)
        .write(true)
        .custom_flags(libc::O_NONBLOCK)
        .open(place.join("source"))
        .unwrap();
    let write = || (&source).write(&[b'x'; 4096]).unwrap_or(0);
    assert_eq!(write(), 4096);
    let mut command = ours();
    command.args(["-r", "--copy-contents", "source", "copy"]).current_dir(&place);
    let mut child = command.stderr(Stdio::piped()).spawn().unwrap();
    while !fs::metadata(place.join("copy")).is_ok_and(|copy| copy.len() > 0) {
        assert!(child.try_wait().unwrap().is_none());
        std::thread::yield_now();
    }
    interrupt(&child);
    // The device never ends, so the copy does not end by itself.
    while child.try_wait().unwrap().is_none() {
        write();
        if fs::metadata(place.join("copy")).is_ok_and(|copy| copy.len() > 1 << 30) {
            child.kill().unwrap();
        }
        std::thread::yield_now();
    }
    let output = finish(child, "an interrupted cp");
    let stderr = texts(&output).1;
    assert_eq!(output.status.code(), Some(130));
    assert_eq!(stderr, "cringle cp: interrupted; 0 files, 0 directories, 0 bytes were copied\n");
    assert!(!place.join("copy").exists());
}

/// The first Ctrl-C ends the wait for an answer, for the other end of a FIFO, and for its data.
#[test]
fn an_interrupt_ends_waits() {
    let place = place("cp-interrupt-waits");
    for (name, text) in [("new", "new"), ("old", "old")] {
        fs::write(place.join(name), text).unwrap();
    }
    mkfifo(&place.join("fifo"));
    let start = |arguments: &[&str]| {
        let mut command = ours();
        command.args(arguments).current_dir(&place);
        command.stdin(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
    };
    let mut asking = start(&["-i", "new", "old"]);
    let mut asked = [0; 32];
    let question = asking.stderr.as_mut().unwrap().read(&mut asked).unwrap();
    assert!(question > 0);
    interrupt(&asking);
    // Its input stays open and empty.
    let input = asking.stdin.take();
    let output = finish(asking, "a question that is interrupted");
    assert_eq!(output.status.code(), Some(130), "{output:?}");
    assert_eq!(fs::read_to_string(place.join("old")).unwrap(), "old");
    drop(input);
    for held in [false, true] {
        let hold = || fs::OpenOptions::new().read(true).write(true).open(place.join("fifo"));
        let _writer = held.then(|| hold().unwrap());
        let mut waiting = start(&["-r", "--copy-contents", "fifo", "copy"]);
        wait_until_open(&mut waiting, &place.join("fifo"));
        interrupt(&waiting);
        let output = finish(waiting, "a FIFO that is interrupted");
        assert_eq!(output.status.code(), Some(130), "{output:?}");
        assert!(!place.join("copy").exists());
    }
}

/// Waits until the program has opened the file, after which it catches signals.
fn wait_until_open(child: &mut Child, file: &Path) {
    let file = fs::canonicalize(file).unwrap();
    let has_opened = |child: &Child| {
        let open = fs::read_dir(format!("/proc/{}/fd", child.id())).into_iter().flatten();
        open.flatten().any(|open| fs::read_link(open.path()).is_ok_and(|open| open == file))
    };
    while !has_opened(child) {
        assert!(child.try_wait().unwrap().is_none());
        std::thread::yield_now();
    }
}

/// Like GNU's, which waits in the open of the FIFO.
#[test]
fn a_fifo_without_writer_keeps_the_target() {
    let place = place("cp-fifo-without-writer");
    let fifo = place.join("fifo");
    mkfifo(&fifo);
    fs::write(place.join("old"), "old").unwrap();
    for name in ["old", "new"] {
        let mut command = ours();
        command.args(["fifo", name]).current_dir(&place).stderr(Stdio::piped());
        let mut waiting = command.spawn().unwrap();
        wait_until_open(&mut waiting, &fifo);
        interrupt(&waiting);
        let output = finish(waiting, "a FIFO that is interrupted");
        assert_eq!(output.status.code(), Some(130), "{output:?}");
        assert_eq!(texts(&output).1.lines().count(), 1, "{output:?}");
    }
    assert_eq!(fs::read(place.join("old")).unwrap(), b"old");
    assert!(!place.join("new").exists());
    // A writer that writes nothing ends the wait, too.
    let mut command = ours();
    command.args(["fifo", "old"]).current_dir(&place);
    let mut waiting = command.stderr(Stdio::piped()).spawn().unwrap();
    wait_until_open(&mut waiting, &fifo);
    drop(fs::OpenOptions::new().write(true).open(&fifo).unwrap());
    assert!(finish(waiting, "an empty FIFO").status.success());
    assert_eq!(fs::read(place.join("old")).unwrap(), b"");
}

/// The first signal after the copy ends the process.
#[test]
fn a_signal_ends_the_wait_for_a_summarys_reader() {
    let place = place("cp-interrupt-summary");
    mkfifo(&place.join("fifo"));
    fs::write(place.join("source"), "text").unwrap();
    let mut command = ours();
    command.args(["--trace", "trace", "--json", "fifo", "source", "to"]).current_dir(&place);
    let mut waiting = command.stderr(Stdio::piped()).spawn().unwrap();
    // The line about the trace is printed after the copy.
    let mut line = [0; 256];
    assert!(waiting.stderr.as_mut().unwrap().read(&mut line).unwrap() > 0);
    interrupt(&waiting);
    let output = finish(waiting, "a summary without a reader");
    assert_eq!(output.status.code(), Some(130), "{output:?}");
    assert_eq!(fs::read(place.join("to")).unwrap(), b"text");
}

const FILES: u64 = 100;

fn old(number: u64) -> Vec<u8> {
    format!("old {number}").into_bytes()
}

fn new(number: u64) -> Vec<u8> {
    noise(8 * (1 + (number as usize * 977) % 6_000))
}

fn file(tree: &Path, number: u64) -> std::path::PathBuf {
    tree.join(format!("{}", number % 7)).join(number.to_string())
}

/// Existing files are replaced until the stop: each is the old one or the new one.
fn replaced_until_interrupted(flags: &[&str], seed: u64) -> bool {
    let base = tempfile::tempdir_in(place(&format!("cp-interrupt-{seed}"))).unwrap();
    let (tree, copy) = (base.path().join("tree"), base.path().join("copy"));
    for number in 0..FILES {
        for (tree, content) in [(&tree, new(number)), (&copy, old(number))] {
            let path = file(tree, number);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, content).unwrap();
        }
    }
    let mut command = ours();
    command.args(flags).args(["-rT", "tree", "copy"]).current_dir(base.path());
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    // The signal is sent when this file is new.
    let last = file(&copy, fastrand::Rng::with_seed(seed).u64(..FILES));
    let length = fs::metadata(&last).unwrap().len();
    while fs::metadata(&last).unwrap().len() == length && child.try_wait().unwrap().is_none() {
        std::thread::yield_now();
    }
    if child.try_wait().unwrap().is_none() {
        interrupt(&child);
    }
    let output = finish(child, "an interrupted cp");
    let stderr = texts(&output).1;
    let (code, interrupted) = (output.status.code(), !stderr.is_empty());
    if interrupted {
        assert_eq!(code, Some(130), "{stderr}");
        assert!(stderr.starts_with("cringle cp: interrupted; "), "{stderr}");
        assert!(stderr.contains(" files, "), "{stderr}");
    } else {
        // A signal that arrives after the copy ends the process, and reports nothing.
        assert!(matches!(code, Some(0 | 130)), "{code:?}");
    }
    let mut whole = 0;
    for number in 0..FILES {
        let content = fs::read(file(&copy, number)).unwrap();
        let is_new = content == new(number);
        assert!(is_new || content == old(number), "{number} is neither the old nor the new one");
        whole += u64::from(is_new);
    }
    assert!(interrupted || whole == FILES);
    for directory in fs::read_dir(&copy).unwrap() {
        for entry in fs::read_dir(directory.unwrap().path()).unwrap() {
            let name = entry.unwrap().file_name().into_string().unwrap();
            assert!(!name.contains("cringle"), "{name} is left");
        }
    }
    interrupted
}

#[test]
fn an_interrupt_leaves_old_or_new_files() {
    replaced_at_least(10, &[], 0);
}

#[test]
fn an_interrupt_with_fsync_leaves_old_or_new_files() {
    replaced_at_least(6, &["--fsync"], 1 << 32);
}

/// This number of copies, and more until one has been interrupted before its end.
fn replaced_at_least(copies: u64, flags: &[&str], first_seed: u64) {
    let (mut count, mut interrupted) = (0, 0);
    while count < copies || interrupted == 0 {
        interrupted += u64::from(replaced_until_interrupted(flags, first_seed + count));
        count += 1;
    }
}

/// Starts a copy that reads a FIFO and has created its target; both ends of the FIFO are held.
fn started(place: &Path, ignored: Option<i32>) -> (Child, fs::File) {
    let fifo = place.join("fifo");
    if !fifo.exists() {
        mkfifo(&fifo);
    }
    let mut held = fs::OpenOptions::new().read(true).write(true).open(&fifo).unwrap();
    // The target is created when the FIFO can be read.
    held.write_all(b"te").unwrap();
    let mut command = ours();
    command.args(["-r", "--copy-contents", "fifo", "copy"]).current_dir(place);
    if let Some(signal) = ignored {
        // SAFETY: the child makes one async-signal-safe call between fork and exec.
        unsafe {
            command.pre_exec(move || {
                libc::signal(signal, libc::SIG_IGN);
                Ok(())
            });
        }
    }
    let mut child = command.stderr(Stdio::piped()).spawn().unwrap();
    while !place.join("copy").exists() {
        assert!(child.try_wait().unwrap().is_none());
        std::thread::yield_now();
    }
    (child, held)
}

/// Like a background job of a shell: Ctrl-C is for the foreground.
#[test]
fn an_ignored_signal_does_not_interrupt() {
    let place = place("cp-interrupt-ignored");
    let (child, mut held) = started(&place, Some(libc::SIGINT));
    interrupt(&child);
    held.write_all(b"xt").unwrap();
    drop(held);
    let output = finish(child, "a copy that ignores SIGINT");
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    assert_eq!(fs::read(place.join("copy")).unwrap(), b"text");
}

/// A file that another process has put under the name meanwhile stays.
#[test]
fn an_interrupt_removes_only_its_own_file() {
    let place = place("cp-interrupt-another");
    let (child, _held) = started(&place, None);
    fs::write(place.join("small"), "small").unwrap();
    copies(&place, &["small", "copy"]);
    interrupt(&child);
    let output = finish(child, "an interrupted copy");
    assert_eq!(output.status.code(), Some(130), "{output:?}");
    assert_eq!(fs::read(place.join("copy")).unwrap(), b"small");
}
