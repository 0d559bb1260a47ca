//! What all commands have in common: exit statuses, signals, pipes, help.

use crate::common::*;
use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Child, Command, Stdio};

#[test]
fn wrong_usage_exits_with_2_and_a_reason() {
    let place = place("usage");
    for (args, why) in [
        (&["bench", "disk", "--profile", "nonsense"][..], "nonsense"),
        (&["bench", "disk", "--block", "4x"], "64KiB"),
        (&["bench", "disk", "--block", "12"], "multiple of 8"),
        (&["bench", "disk", "--qd", "0"], "'--qd <N>': 0 is not in 1.."),
        (&["bench", "disk", "--ops", "1", "--seconds", "1"], "cannot be used with"),
        (&["bench", "disk", "--block", "64", "--size", "1m"], "O_DIRECT"),
        (&["bench", "batch", "low", "x", "--workers", "0"], "'--workers <N>': 0 is not in 1.."),
        (&["nothing"], "nothing"),
    ] {
        let output = cringle(&place).args(args).output().unwrap();
        let (_, err) = texts(&output);
        assert_eq!(output.status.code(), Some(2), "{args:?}: {err}");
        assert!(err.contains(why), "{args:?}: {err}");
    }
}

#[test]
fn a_missing_path_exits_with_1() {
    let place = place("missing");
    let output = cringle(&place).args(["bench", "disk", "no/such/place"]).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(texts(&output).1.contains("no/such/place"));
    // An open of the FIFO would block until a writer opens it.
    assert!(Command::new("mkfifo").arg(place.join("fifo")).status().unwrap().success());
    for args in [&["bench", "disk", "fifo"][..], &["doctor", "fifo"], &["doctor", "/dev/null"]] {
        let output = cringle(&place).args(args).output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{args:?}");
        assert!(texts(&output).1.contains("give a directory, a file or a block device"));
    }
}

/// Starts a benchmark of an hour, and returns when its test file exists.
fn started(place: &std::path::Path, profile: &str) -> Child {
    let mut command = cringle(place);
    command.args(["bench", "disk", "--size", "16m", "--seconds", "3600", "--qd", "4"]);
    command.args(["--strategies", "fibers", "--profile", profile]);
    let child = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    let descriptors = format!("/proc/{}/fd", child.id());
    let has_file = || {
        std::fs::read_dir(&descriptors).unwrap().flatten().any(|entry| {
            std::fs::read_link(entry.path()).is_ok_and(|target| target.starts_with(place))
        })
    };
    while !has_file() {
        std::thread::yield_now();
    }
    child
}

#[test]
fn an_interruption_exits_with_130_and_leaves_no_file() {
    for (name, profile) in [("interrupt", "direct"), ("interrupt-wal", "wal")] {
        let place = std::fs::canonicalize(place(name)).unwrap();
        let child = started(&place, profile);
        let pid = i32::try_from(child.id()).unwrap();
        // SAFETY: `kill` takes no pointer; the child is not reaped yet, so the number is its own.
        assert_eq!(unsafe { libc::kill(pid, libc::SIGINT) }, 0);
        let output = child.wait_with_output().unwrap();
        assert_eq!(output.status.code(), Some(130));
        assert!(texts(&output).1.contains("interrupted"));
        assert!(is_empty(&place));
    }
}

#[test]
fn a_killed_benchmark_leaves_no_file() {
    let place = std::fs::canonicalize(place("killed")).unwrap();
    let mut child = started(&place, "cached");
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(is_empty(&place));
}

#[test]
fn a_closed_pipe_is_no_failure() {
    let place = place("pipe");
    for args in [&["bench", "disk", "--help"][..], &["completions", "zsh"], &["man"]] {
        let mut child = cringle(&place)
            .args(args)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        drop(child.stdout.take());
        let output = child.wait_with_output().unwrap();
        assert_eq!(output.status.code(), Some(0), "{args:?}");
        assert_eq!(texts(&output).1, "", "{args:?}");
    }
    let mut command = small_disk(&place);
    command.args(["--strategies", "sync", "--profile", "cached"]);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    drop(child.stdout.take());
    let output = child.wait_with_output().unwrap();
    assert_eq!((output.status.code(), texts(&output).1), (Some(0), String::new()));
}

#[test]
fn help_that_cannot_be_written_fails() {
    let place = place("full-stdout");
    for args in [&["--help"][..], &["--version"], &["bench", "--help"], &["man"]] {
        let full = std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
        let output = cringle(&place).args(args).stdout(full).output().unwrap();
        assert_eq!(output.status.code(), Some(1), "{args:?}");
        assert!(texts(&output).1.contains("cannot write"), "{args:?}: {}", texts(&output).1);
    }
}

#[test]
fn an_unwritable_directory_for_pages_is_named() {
    let place = place("man-unwritable");
    let output = cringle(&place).args(["man", "--all", "/proc/pages"]).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    let (_, err) = texts(&output);
    assert!(err.contains("/proc/pages: ") && err.contains("name a directory"), "{err}");
}

#[test]
fn a_slip_in_a_page_name_creates_nothing() {
    let place = place("man-slip");
    for (name, page) in [
        ("cp", ".TH cringle-cp "),
        ("bench-disk", ".TH cringle-bench-disk "),
        ("cringle", ".TH cringle "),
    ] {
        let output = cringle(&place).args(["man", name]).output().unwrap();
        let (out, err) = texts(&output);
        assert!(output.status.success() && out.contains(page), "{name}: {err}{out:.200}");
    }
    for slip in ["bnech", "./bnech"] {
        let output = cringle(&place).args(["man", slip]).output().unwrap();
        let (_, err) = texts(&output);
        assert_eq!(output.status.code(), Some(2), "{err}");
        assert!(err.contains("bench-disk") && err.contains("--all DIRECTORY"), "{err}");
    }
    assert!(is_empty(&place));
}

#[test]
fn pages_replace_symbolic_links() {
    let place = place("man-link");
    std::fs::create_dir(place.join("pages")).unwrap();
    std::fs::write(place.join("precious"), "text").unwrap();
    std::os::unix::fs::symlink("../precious", place.join("pages/cringle-cp.1")).unwrap();
    assert!(cringle(&place).args(["man", "--all", "pages"]).output().unwrap().status.success());
    assert_eq!(std::fs::read(place.join("precious")).unwrap(), b"text");
    let page = std::fs::read_to_string(place.join("pages/cringle-cp.1")).unwrap();
    assert!(page.contains(".TH cringle-cp "), "{page}");
}

#[test]
fn a_closed_standard_output_is_named() {
    let place = place("closed-stdout");
    std::fs::write(place.join("file"), "text").unwrap();
    for args in ["--help", "bench disk --help", "man", "completions bash"] {
        for redirection in [">&-", "1<file"] {
            let line = format!("exec {} {args} {redirection}", env!("CARGO_BIN_EXE_cringle"));
            let mut command = Command::new("sh");
            let output = command.args(["-c", &line]).current_dir(&place).output().unwrap();
            let (_, err) = texts(&output);
            assert_eq!(output.status.code(), Some(1), "{line}: {err}");
            assert!(err.contains("standard output is closed"), "{line}: {err}");
        }
    }
}

/// Every command with an option for results.
const RESULTS: &[(&[&str], &str)] = &[
    (&["bench", "disk", "--size", "1m", "--ops", "64"], "--json --html --trace"),
    (&["bench", "batch", "high", "data", "--cached"], "--json --html --trace"),
    (&["bench", "sum", "--sizes", "64k"], "--json --html --trace"),
    (&["bench", "db", "--transactions", "10", "--no-fio"], "--json --html --trace"),
    (&["bench", "cp", "--files", "30", "--file-size", "100"], "--json --html"),
    (&["bench", "http", "--connections", "2", "--requests", "10"], "--json --html"),
    (&["bench", "http", "--idle", "5"], "--json --html"),
    (&["bench", "all", "--quick"], "--json --html"),
    (&["doctor", "--no-measure"], "--json"),
    (&["doctor", "--program", "/bin/sh"], "--json"),
    (&["sim", "--seeds", "10"], "--json --trace"),
    (&["trace", "data"], "--json --svg"),
];

#[test]
fn results_overwrite_no_foreign_file() {
    let place = place("results-foreign");
    let precious = "{\"name\": \"not of cringle\"}";
    for name in ["data", "precious", "other"] {
        std::fs::write(place.join(name), precious).unwrap();
    }
    std::os::unix::fs::symlink("other", place.join("link")).unwrap();
    let refused = |command: &mut Command| {
        let output = command.output().unwrap();
        let (out, err) = texts(&output);
        assert_eq!(output.status.code(), Some(2), "{command:?}: {err}{out}");
        assert!(err.contains("is not empty") && out.is_empty(), "{command:?}: {err}{out}");
    };
    for (args, options) in RESULTS {
        for option in options.split(' ') {
            for file in ["precious", "link"] {
                refused(cringle(&place).args(*args).args([option, file]));
            }
        }
        if args[0] != "trace" {
            refused(cringle(&place).args(*args).env("CRINGLE_TRACE", "precious"));
        }
    }
    let count = std::fs::read_dir(&place).unwrap().count();
    assert_eq!(count, 4, "a command has left a file");
    for name in ["data", "precious", "other"] {
        assert_eq!(std::fs::read_to_string(place.join(name)).unwrap(), precious);
    }
}

#[test]
fn results_name_a_missing_directory() {
    let place = place("results-missing");
    for (args, options) in RESULTS {
        let children = if args[0] == "bench" { &["--trace"][..] } else { &[] };
        for option in options.split(' ').chain(children.iter().copied()) {
            let output = cringle(&place).args(*args).args([option, "nodir/x"]).output().unwrap();
            let (out, err) = texts(&output);
            assert_eq!(output.status.code(), Some(1), "{args:?} {option}: {err}{out}");
            assert!(err.contains("the directory nodir does not exist"), "{args:?}: {err}");
            assert!(err.contains(option) && !err.contains(".cringle-"), "{args:?}: {err}");
        }
    }
    assert!(is_empty(&place));
}

#[test]
fn results_of_the_same_command_are_overwritten() {
    let place = place("results-again");
    let disk = ["bench", "disk", "--size", "1m", "--ops", "64", "--repeat", "1", "--quiet"];
    let disk = [&disk[..], &["--strategies", "fibers", "--profile", "cached"]].concat();
    for round in 0..2 {
        for args in [
            &[&disk[..], &["--json", "a", "--html", "b", "--trace", "c"]].concat()[..],
            &["doctor", "--no-measure", "--json", "d"],
            &["sim", "--seeds", "1", "--json", "e"],
            &["trace", "c", "--json", "f", "--svg", "g"],
        ] {
            let output = cringle(&place).args(args).output().unwrap();
            assert!(output.status.success(), "{round}, {args:?}: {}", texts(&output).1);
        }
    }
    let input = ["bench", "sum", "c", "--trace", "c"];
    let before = std::fs::read(place.join("c")).unwrap();
    let output = cringle(&place).args(input).output().unwrap();
    assert_eq!(output.status.code(), Some(2), "{}", texts(&output).1);
    assert!(std::fs::read(place.join("c")).unwrap() == before);
}

#[test]
fn an_incomplete_trace_fails_the_command() {
    let place = place("full-trace");
    let output =
        cringle(&place).args(["--trace", "/dev/full", "sim", "--seeds", "1"]).output().unwrap();
    assert_eq!(output.status.code(), Some(1), "{}", texts(&output).1);
    assert!(texts(&output).1.contains("the trace is incomplete"), "{}", texts(&output).1);
}

#[test]
fn completions_and_manual_pages_have_all_commands() {
    let place = place("shells");
    for shell in ["bash", "zsh", "fish"] {
        let output = cringle(&place).args(["completions", shell]).output().unwrap();
        assert!(texts(&output).0.contains("profile"), "{shell}");
    }
    let output = cringle(&place).args(["man"]).output().unwrap();
    assert!(texts(&output).0.contains("cringle"));
    let output = cringle(&place).args(["man", "--all", "pages"]).output().unwrap();
    let pages = place.join("pages");
    let count = std::fs::read_dir(&pages).unwrap().count();
    let words = format!("{count} pages are in pages, one for each command; read one by ");
    assert_eq!(texts(&output).0, format!("{words}`man pages/cringle-cp.1`\n"), "{output:?}");
    let page = |name: &str| std::fs::read_to_string(pages.join(name)).unwrap();
    assert!(page("cringle-bench-disk.1").contains("wal"));
    // A command that has nothing to trace does not offer it.
    for (name, is_offered) in
        [("man", false), ("trace", false), ("doctor", false), ("completions", false), ("sim", true)]
    {
        let page = page(&format!("cringle-{name}.1"));
        assert_eq!(page.contains("\\fB\\-\\-trace\\fR"), is_offered, "{name}: {page}");
    }
    for args in [
        &["--trace", "t", "man"][..],
        &["man", "--trace", "t"],
        &["--trace", "t", "doctor"],
        &["doctor", "--trace", "t"],
    ] {
        let output = cringle(&place).args(args).output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{args:?}");
        assert!(texts(&output).1.contains("no fibers or operations to trace"), "{args:?}");
        assert!(!place.join("t").exists());
    }
}

/// Every command that has a help text of its own.
const COMMANDS: &[&[&str]] = &[
    &[],
    &["bench"],
    &["bench", "all"],
    &["bench", "batch"],
    &["bench", "cp"],
    &["bench", "db"],
    &["bench", "disk"],
    &["bench", "http"],
    &["bench", "sum"],
    &["completions"],
    &["cp"],
    &["doctor"],
    &["man"],
    &["sim"],
    &["trace"],
];

fn widest(text: &str) -> usize {
    text.lines().map(|line| line.chars().count()).max().unwrap_or_default()
}

#[test]
fn help_has_examples_and_fits_a_pipe() {
    let place = place("help");
    for command in COMMANDS {
        let output = cringle(&place).args(*command).arg("--help").output().unwrap();
        let (help, _) = texts(&output);
        assert!(output.status.success() && help.contains("Usage:"), "{command:?}: {help}");
        assert!(widest(&help) <= 80, "{command:?}: {help}");
        let has_examples = !matches!(command, [] | ["bench"]);
        assert_eq!(help.contains("Example"), has_examples, "{command:?}: {help}");
    }
}

#[test]
fn help_wraps_at_the_terminals_width() {
    let place = place("help-terminal");
    // Wider terminals get lines of 100 columns.
    for (columns, limit) in [(60, 60), (100, 100), (200, 100)] {
        for command in COMMANDS {
            let (mut ours, theirs) = terminal(columns);
            let mut program = cringle(&place);
            program.args(*command).arg("--help").env("NO_COLOR", "1").stdout(theirs);
            let mut child = program.spawn().unwrap();
            // When the child has exited and this end is closed too, a read fails with EIO.
            drop(program);
            let mut help = Vec::new();
            let _ = ours.read_to_end(&mut help);
            assert!(child.wait().unwrap().success());
            let help = String::from_utf8(help).unwrap();
            let widest = widest(&help);
            assert!(widest <= limit, "{command:?}: {help}");
            let is_short = matches!(command, [] | ["bench"] | ["completions"]);
            let is_filled = widest > limit - 15 || is_short;
            assert!(is_filled, "{command:?} uses {widest} of {columns} columns: {help}");
        }
    }
}

#[test]
fn color_always_colours_a_pipe() {
    let place = place("colours");
    let args = ["--strategies", "sync", "--profile", "cached"];
    let output = small_disk(&place).args(args).args(["--color", "always"]).output().unwrap();
    assert!(texts(&output).0.contains('\u{1b}'));
}

/// Sends SIGUSR1 until a runtime exists, and returns the first lines of its dump.
#[test]
fn sigusr1_dumps_a_running_benchmark() {
    let place = std::fs::canonicalize(place("dump")).unwrap();
    let mut child = started(&place, "direct");
    let pid = i32::try_from(child.id()).unwrap();
    let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
    let request_dump = || {
        // SAFETY: `kill` takes no pointer; the child is not reaped yet, so the number is its own.
        assert_eq!(unsafe { libc::kill(pid, libc::SIGUSR1) }, 0);
    };
    request_dump();
    let mut is_dumped = false;
    while !is_dumped {
        let line = lines.next().expect("it runs for an hour").unwrap();
        if line.contains("SIGUSR1: no runtime") {
            request_dump();
        }
        is_dumped = line.contains("'main'");
    }
    // SAFETY: as above.
    assert_eq!(unsafe { libc::kill(pid, libc::SIGINT) }, 0);
    let rest: Vec<String> = lines.map_while(Result::ok).collect();
    assert_eq!(child.wait().unwrap().code(), Some(130), "{rest:?}");
}

/// The fiber of the copy blocks in a plain system call. The dump reports that, and the copy
/// continues.
#[test]
fn sigusr1_dumps_a_running_copy() {
    let place = place("dump-cp");
    let made = Command::new("mkfifo").arg(place.join("from")).status().unwrap();
    assert!(made.success());
    let mut command = cringle(&place);
    command.args(["cp", "--fsync", "from", "to"]).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    // When this open returns, the copy has opened the other end, and handles signals.
    let mut writer = std::fs::OpenOptions::new().write(true).open(place.join("from")).unwrap();
    let pid = i32::try_from(child.id()).unwrap();
    // SAFETY: as above.
    assert_eq!(unsafe { libc::kill(pid, libc::SIGUSR1) }, 0);
    let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
    let is_reported = |line: &String| line.contains("STUCK: worker 0");
    assert!(lines.any(|line| line.is_ok_and(|line| is_reported(&line))));
    writer.write_all(b"bytes").unwrap();
    drop(writer);
    let rest: Vec<String> = lines.map_while(Result::ok).collect();
    assert!(child.wait().unwrap().success(), "{rest:?}");
    assert_eq!(std::fs::read(place.join("to")).unwrap(), b"bytes");
}
