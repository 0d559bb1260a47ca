//! `cringle trace` and `--trace`, as a user runs them.

use crate::common::*;
use serde_json::Value;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

const OPS: u64 = 500;

/// Traces [`OPS`] reads by eight fibers; returns the directory and the file.
fn traced(name: &str) -> (PathBuf, PathBuf) {
    let place = place(name);
    let mut command = cringle(&place);
    command.args(["bench", "disk", "--trace", "reads.pftrace", "--strategies", "fibers"]);
    command.args(["--size", "16m", "--ops", "500", "--qd", "8", "--repeat", "1", "--warmup", "0"]);
    let output = command.output().unwrap();
    let (_, err) = texts(&output);
    assert!(output.status.success(), "{err}");
    assert!(err.contains("events in reads.pftrace"), "{err}");
    let file = place.join("reads.pftrace");
    (place, file)
}

fn summary(place: &Path, file: &Path) -> Value {
    json(cringle(place).arg("trace").arg(file))
}

fn named<'v>(list: &'v Value, key: &str, name: &str) -> &'v Value {
    let list = list.as_array().unwrap();
    list.iter().find(|entry| entry[key] == name).unwrap_or_else(|| panic!("no {name} in {list:?}"))
}

#[test]
fn a_trace_and_results_cannot_share_a_file() {
    let place = place("trace-shared");
    for flag in ["--json", "--html"] {
        let mut command = cringle(&place);
        command.args(["bench", "disk", "--trace", "both", flag, "./both", "--size", "1m"]);
        let output = command.output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{flag}: {}", texts(&output).1);
        assert!(texts(&output).1.contains("name the same file"));
    }
}

#[test]
fn the_summary_counts_every_read() {
    let (place, file) = traced("trace-summary");
    let summary = summary(&place, &file);
    assert_eq!((&summary["schema"], &summary["command"]), (&1.into(), &"trace".into()));
    assert_eq!((&summary["lost"], &summary["cut_short"]), (&0.into(), &false.into()));
    let reads = named(&summary["ops"], "name", "read");
    // A fiber without others beside it reads inline.
    let inline = summary["inline"]["answered"].as_u64().unwrap();
    assert!(reads["count"].as_u64().unwrap() + inline >= OPS, "{reads}, {inline} inline");
    assert!(reads["count"].as_u64().unwrap() > OPS / 2, "{reads}");
    assert!(reads["p50_ns"].as_u64() <= reads["max_ns"].as_u64());
    let waits = named(&summary["waits"], "for", "read");
    assert_eq!(waits["count"], reads["count"]);
    let longest = waits["longest"].as_array().unwrap();
    assert!(longest.windows(2).all(|pair| pair[0]["ns"].as_u64() >= pair[1]["ns"].as_u64()));
    // Unnamed fibers are named after the place that spawned them.
    let fibers = summary["fibers"].as_array().unwrap();
    let readers =
        fibers.iter().find(|fiber| fiber["count"] == 8).expect("eight fibers of one name");
    assert!(readers["name"].as_str().unwrap().contains(".rs:"), "{readers}");
    let means = summary["depth"]["means"].as_array().unwrap();
    assert!(means.iter().all(|mean| (0.0..=8.0).contains(&mean.as_f64().unwrap())), "{means:?}");
    assert!(means.iter().any(|mean| mean.as_f64().unwrap() > 0.0));
    assert!(summary["workers"].as_array().unwrap().iter().any(|worker| worker["most_depth"] == 8));
}

fn assert_narrow(text: &str) {
    for line in text.lines() {
        assert!(line.chars().count() <= 80, "{}: {line}", line.chars().count());
    }
}

#[test]
fn the_text_fits_80_columns_and_lists_waits() {
    let (place, file) = traced("trace-text");
    let output = cringle(&place).arg("trace").arg(&file).output().unwrap();
    let (out, err) = texts(&output);
    assert!(output.status.success(), "{err}");
    assert_narrow(&out);
    for phrase in ["worker 0", "running", "waits for", "longest", "operations in flight"] {
        assert!(out.contains(phrase), "{phrase} is not in:\n{out}");
    }
}

#[test]
fn the_picture_is_small_valid_svg() {
    let (place, file) = traced("trace-svg");
    let mut command = cringle(&place);
    command.arg("trace").arg(&file).args(["--svg", "picture.svg", "--title", "a < b & \"c\""]);
    let output = command.output().unwrap();
    assert!(output.status.success(), "{}", texts(&output).1);
    let text = std::fs::read_to_string(place.join("picture.svg")).unwrap();
    assert!(text.len() < 200_000, "{} bytes", text.len());
    let document = roxmltree::Document::parse(&text).unwrap();
    assert_eq!(document.root_element().tag_name().name(), "svg");
    let texts_in: Vec<&str> = document.descendants().filter_map(|node| node.text()).collect();
    for wanted in ["a < b & \"c\"", "worker 0", "fibers", "operations", "operations in flight"] {
        assert!(texts_in.contains(&wanted), "{wanted} is not in {texts_in:?}");
    }
    let empty = cringle(&place)
        .arg("trace")
        .arg(&file)
        .args(["--svg", "none.svg", "--from", "2ms", "--to", "1ms"])
        .output()
        .unwrap();
    assert_eq!(empty.status.code(), Some(2));
    // A picture may end after the trace, but not after the largest time.
    for end in ["10s", "99999999999999999999s"] {
        let mut command = cringle(&place);
        command.arg("trace").arg(&file).args(["--svg", "long.svg", "--to", end]);
        let output = command.output().unwrap();
        assert!(output.status.success(), "{end}: {}", texts(&output).1);
    }
}

#[test]
fn a_truncated_trace_is_read_up_to_the_cut() {
    let (place, file) = traced("trace-cut");
    let whole = std::fs::read(&file).unwrap();
    let events = summary(&place, &file)["events"].as_u64().unwrap();
    let mut last = 0;
    for part in 1..8 {
        let cut = place.join("cut.pftrace");
        std::fs::write(&cut, &whole[..whole.len() * part / 8]).unwrap();
        let summary = summary(&place, &cut);
        let read = summary["events"].as_u64().unwrap();
        assert!(last <= read && read < events, "{part}/8: {read} of {events}");
        last = read;
    }
    assert!(last > events / 2);
    // The file ends one byte before the end of its last packet.
    std::fs::write(place.join("cut.pftrace"), &whole[..whole.len() - 1]).unwrap();
    let output = cringle(&place).args(["trace", "cut.pftrace"]).output().unwrap();
    let (out, err) = texts(&output);
    assert!(output.status.success(), "{err}");
    assert!(out.contains("ends within a packet"), "{out}");
}

#[test]
fn outputs_cannot_overwrite_the_trace() {
    let (place, file) = traced("trace-kept");
    let before = std::fs::read(&file).unwrap();
    let name = file.to_str().unwrap();
    std::os::unix::fs::symlink(&file, place.join("link")).unwrap();
    for args in [
        &["trace", name, "--svg", name][..],
        &["trace", name, "--json", "link"],
        &["trace", name, "--svg", "new", "--json", "new"],
        &["--trace", name, "trace", name],
        &["--trace", "-", "bench", "disk", "--ops", "1"],
        &["trace", name, "--svg", "picture", "--from", "100s"],
    ] {
        let output = cringle(&place).args(args).output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{args:?}: {}", texts(&output).1);
    }
    let mut reader = cringle(&place);
    let output = reader.args(["trace", name]).env("CRINGLE_TRACE", name).output().unwrap();
    assert!(output.status.success());
    assert!(std::fs::read(&file).unwrap() == before);
    for absent in ["new", "picture", "-"] {
        assert!(!place.join(absent).exists(), "{absent}");
    }
    let output = cringle(&place).args(["trace", name, "--svg", "-"]).output().unwrap();
    let (out, _) = texts(&output);
    assert!(out.starts_with("<svg") && out.trim_end().ends_with("</svg>"), "{out}");
}

/// `cp` starts several runtimes at once, whose workers are all in one file.
#[test]
fn no_worker_is_busy_longer_than_the_trace() {
    let place = place("trace-times");
    for n in 0..64 {
        std::fs::create_dir_all(place.join(format!("tree/{n}"))).unwrap();
        std::fs::write(place.join(format!("tree/{n}/file")), vec![7; 100_000]).unwrap();
    }
    let mut command = cringle(&place);
    command.args(["--trace", "cp.pftrace", "cp", "-r", "--fsync", "tree", "copy"]);
    let output = command.output().unwrap();
    assert!(output.status.success(), "{}", texts(&output).1);
    let summary = summary(&place, &place.join("cp.pftrace"));
    let all = summary["ns"].as_u64().unwrap();
    for worker in summary["workers"].as_array().unwrap() {
        let parts = ["running_ns", "kernel_ns", "asleep_ns"].map(|part| worker[part].as_u64());
        let sum: u64 = parts.into_iter().map(Option::unwrap).sum();
        assert!(sum <= all, "{sum} of {all}: {worker}");
    }
}

#[test]
fn a_file_that_is_no_trace_fails() {
    let place = place("trace-none");
    std::fs::write(place.join("noise"), noise(1 << 20)).unwrap();
    std::fs::write(place.join("empty"), b"").unwrap();
    for file in ["noise", "empty", "missing"] {
        let output = cringle(&place).args(["trace", file]).output().unwrap();
        let (_, err) = texts(&output);
        assert_eq!(output.status.code(), Some(1), "{file}: {err}");
        assert!(err.contains(file), "{err}");
    }
    let output = cringle(&place).args(["trace", "noise", "--svg", "x", "--from", "3"]).output();
    assert_eq!(output.unwrap().status.code(), Some(2));
}

#[test]
fn the_environment_variable_starts_a_trace() {
    let place = place("trace-environment");
    let run = |value: &str| {
        let mut command = cringle(&place);
        command
            .args(["sim", "--seeds", "3", "--threads", "1", "--workers", "1", "--quiet"])
            .env("CRINGLE_TRACE", value);
        command.output().unwrap()
    };
    let output = run("sim-%p.pftrace");
    assert!(output.status.success(), "{}", texts(&output).1);
    let files: Vec<PathBuf> =
        std::fs::read_dir(&place).unwrap().map(|entry| entry.unwrap().path()).collect();
    let [file] = &files[..] else { panic!("{files:?}") };
    assert!(!file.to_str().unwrap().contains('%'));
    let summary = summary(&place, file);
    assert!(summary["events"].as_u64().unwrap() > 0);
    // Each of the three programs has one worker, whose number is 0.
    assert_eq!(summary["workers"].as_array().unwrap().len(), 3);
    let output = cringle(&place).arg("trace").arg(file).output().unwrap();
    let (out, _) = texts(&output);
    assert!(out.contains(" on 0 ") && !out.contains(" on 1 ") && !out.contains(" on 2 "), "{out}");
    let names = summary["workers"].as_array().unwrap().iter().map(|worker| &worker["name"]);
    assert!(names.eq(["worker 0", "worker 0 (2)", "worker 0 (3)"]));
    assert_narrow(&out);
    let output = run("no/such/directory/x");
    let (out, err) = texts(&output);
    assert!(!output.status.success(), "{out}");
    assert!(err.contains("CRINGLE_TRACE") && err.contains("no/such/directory/x"), "{out}{err}");
    // The error must not look like the failure of a seed.
    assert!(!format!("{out}{err}").contains("seed"), "{out}{err}");
}

#[test]
fn cp_takes_the_trace_option_in_both_positions() {
    let place = place("trace-cp");
    std::fs::write(place.join("from"), noise(100_000)).unwrap();
    for (args, file) in [
        (&["cp", "--trace", "a.pftrace", "--fsync", "from", "a"][..], "a.pftrace"),
        (&["--trace=b.pftrace", "cp", "--fsync", "from", "b"], "b.pftrace"),
        (&["--trace", "c.pftrace", "cp", "--fsync", "from", "c"], "c.pftrace"),
    ] {
        let output = cringle(&place).args(args).output().unwrap();
        assert!(output.status.success(), "{args:?}: {}", texts(&output).1);
        let summary = summary(&place, &place.join(file));
        // `--fsync` makes the copy run on fibers.
        let main = named(&summary["fibers"], "name", "main");
        assert!(main["runs"].as_u64().unwrap() >= 1, "{summary}");
    }
}

#[test]
fn each_child_process_writes_its_own_trace() {
    let place = place("trace-children");
    let mut command = cringle(&place);
    command.args(["--trace", "web.pftrace", "bench", "http", "--servers", "fibers"]);
    command.args(["--repeat", "1", "--requests", "200", "--connections", "4", "--workers", "2"]);
    let output = command.output().unwrap();
    assert!(output.status.success(), "{}", texts(&output).1);
    let files: Vec<PathBuf> = std::fs::read_dir(&place)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "pftrace"))
        .collect();
    assert!(
        !files.is_empty() && files.iter().all(|file| !file.ends_with("web.pftrace")),
        "{files:?}"
    );
}

#[test]
fn an_interrupted_command_finishes_its_trace() {
    let place = place("trace-interrupted");
    let mut command = cringle(&place);
    command.args(["--trace", "web.pftrace", "bench", "http", "--listen", "127.0.0.1:0"]);
    command.args(["--servers", "fibers", "--workers", "2"]);
    let mut child = command.stderr(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(child.stderr.take().unwrap()).read_line(&mut line).unwrap();
    let addr = line.split_once("listens at ").and_then(|(_, rest)| rest.split_once(';')).unwrap().0;
    let mut stream = TcpStream::connect(addr).unwrap();
    stream.write_all(b"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n").unwrap();
    stream.shutdown(std::net::Shutdown::Write).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    assert!(answer.contains("200 OK"), "{answer}");
    let pid = child.id();
    assert!(Command::new("kill").args(["-TERM", &pid.to_string()]).status().unwrap().success());
    let status = child.wait().unwrap();
    assert_eq!(status.code(), Some(130), "{status}");
    let file = place.join(format!("web-{pid}.pftrace"));
    let output = cringle(&place).arg("trace").arg(&file).output().unwrap();
    assert_narrow(&texts(&output).0);
    let summary = summary(&place, &file);
    assert!(named(&summary["ops"], "name", "accept")["count"].as_u64().unwrap() >= 1, "{summary}");
}
