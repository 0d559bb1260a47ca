//! `cringle bench cp` as a user runs it, on tiny trees.

use crate::common::*;
use serde_json::Value;
use std::io::Read;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

/// 30 files of 100 bytes, one round.
fn small(place: &Path) -> Command {
    let mut command = cringle(place);
    command.args(["bench", "cp", "--files", "30", "--file-size", "100", "--repeat", "1"]);
    command.args(["--tree", "a"]);
    command
}

fn output(command: &mut Command) -> (Option<i32>, String, String) {
    let output: Output = command.output().unwrap();
    let (out, err) = texts(&output);
    (output.status.code(), out, err)
}

/// Whether this build has the command `cp`.
fn has_cp(place: &Path) -> bool {
    cringle(place).args(["cp", "--help"]).output().unwrap().status.success()
}

#[test]
fn json_has_every_figure_and_no_file_is_left() {
    let place = place("cp-json");
    let mut command = small(&place);
    let report = json(command.args(["--tools", "cp,tar", "--repeat", "2"]));
    assert_eq!((&report["schema"], &report["benchmark"]), (&1.into(), &"cp".into()));
    assert!(report["machine"]["filesystem"].is_string());
    let names: Vec<&str> = runs(&report).iter().map(|run| run["name"].as_str().unwrap()).collect();
    let durable = ["cp + fsync", "cp, then sync", "tar + fsync"];
    assert_eq!(names, [&["cp", "tar", "cp", "tar"][..], &durable].concat());
    for run in runs(&report) {
        assert_eq!((&run["files"], &run["directories"]), (&30.into(), &6.into()));
        assert_eq!(run["samples"].as_array().unwrap().len(), 2, "{run}");
        assert_eq!(run["error"], Value::Null);
        let fields = ["seconds", "files_per_second", "bytes_per_second", "system_seconds"];
        for field in fields {
            assert!(run[field].is_number(), "{field} of {run}");
        }
        assert!(run["ratios"]["time_to_cp"].is_number(), "{run}");
    }
    assert_eq!(runs(&report)[0]["ratios"]["time_to_cp"], 1.0);
    assert!(runs(&report)[2]["command"].as_str().unwrap().ends_with("&& sync -f {dst}"));
    assert!(is_empty(&place));
}

#[test]
fn the_report_has_a_table_and_sentences() {
    let place = place("cp-table");
    let mut command = small(&place);
    let (status, out, err) = output(command.args(["--tools", "cp,tar", "--regime", "warm"]));
    assert_eq!(status, Some(0), "{err}");
    for part in ["A: 30 files of 100 bytes in 6 directories", "warm", "× cp", "files/s", "tar"] {
        assert!(out.contains(part), "{part} in {out}");
    }
    // The sentence depends on the winner.
    let won = ["No command is faster than cp.", "tar is the fastest"];
    assert!(won.iter().any(|words| out.contains(words)), "{out}");
    assert!(is_empty(&place));
}

#[test]
fn copies_of_large_files_are_emptied() {
    let place = place("cp-large");
    let mut command = small(&place);
    command.args(["--files", "7", "--file-size", "1100000", "--tree", "b", "--repeat", "3"]);
    // A tool that runs after others finds their copies emptied.
    let seen =
        "n=$(find $(dirname {dst}) -type f -size +0 | wc -l); [ $n = 0 ] && cp -r {src} {dst}";
    let tool = format!("seen={seen}");
    let report = json(command.args(["--tools", "cp,seen", "--regime", "warm", "--tool", &tool]));
    assert!(runs(&report).iter().all(|run| run["error"].is_null()), "{report}");
    assert!(is_empty(&place));
}

#[test]
fn an_incomplete_copy_is_detected() {
    let place = place("cp-loses");
    for (harm, found) in [
        ("rm {dst}/d0/d0/f3", "d0/d0/f3 is missing"),
        ("echo short > {dst}/f1", "f1 has 6 bytes instead of 100"),
        ("tr '\\0-\\377' 'x' <{src}/f1 >{dst}/f1", "f1 differs from the source at byte"),
        ("ln -f {src}/f2 {dst}/f2", "f2 is a hard link"),
        ("touch {dst}/more", "its root has"),
        ("rm -r {dst}", "no copy exists"),
        ("echo no such luck >&2; false", "no such luck"),
    ] {
        let tool = format!("bad=cp -r {{src}} {{dst}} && {harm}");
        let mut command = small(&place);
        command.args(["--tool", &tool, "--tools", "cp,bad", "--regime", "warm", "--json", "-"]);
        let (status, out, err) = output(&mut command);
        assert_eq!(status, Some(1), "{harm}: {err}");
        assert!(err.contains("bad"), "{err}");
        let report: Value = serde_json::from_str(&out).unwrap();
        let error = runs(&report)[1]["error"].as_str().unwrap();
        assert!(error.contains(found), "{harm}: {error}");
        assert_eq!(runs(&report)[1]["seconds"], Value::Null);
        assert!(runs(&report)[0]["error"].is_null());
        assert!(is_empty(&place));
    }
}

#[test]
fn missing_tools_are_noted() {
    let place = place("cp-absent");
    let bin = place.join("bin");
    std::fs::create_dir(&bin).unwrap();
    for name in ["sh", "cp", "fcp"] {
        let real = if name == "sh" { "/bin/sh" } else { "/bin/cp" };
        let script =
            format!("#!/bin/sh\nexec {real} {} \"$@\"\n", ["", "-r"][(name == "fcp") as usize]);
        std::fs::write(bin.join(name), script).unwrap();
        std::fs::set_permissions(bin.join(name), PermissionsExt::from_mode(0o755)).unwrap();
    }
    let mut command = small(&place);
    let report = json(command.env("PATH", &bin).args(["--regime", "warm"]));
    let tools: Vec<&str> = runs(&report).iter().map(|run| run["tool"].as_str().unwrap()).collect();
    let all: &[&str] = if has_cp(&place) { &["cp", "cringle", "fcp"] } else { &["cp", "fcp"] };
    assert_eq!(tools, all);
    assert!(notes(&report).contains("rsync, tar, cpz, xcp"), "{}", notes(&report));
    assert_eq!(has_cp(&place), !notes(&report).contains("no `cp` command"));
}

#[test]
fn a_link_from_cp_to_cringle_is_ignored() {
    let place = place("cp-link");
    std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_cringle"), place.join("cp")).unwrap();
    let mut command = small(&place);
    command.env("PATH", format!("{}:/usr/bin:/bin", place.display()));
    let report = json(command.args(["--tools", "cp", "--regime", "warm"]));
    let run = &runs(&report)[0];
    assert!(!run["command"].as_str().unwrap().contains("cp-link"), "{run}");
    assert!(run["error"].is_null(), "{run}");
}

#[test]
fn wrong_usage_is_refused_with_a_reason() {
    let place = place("cp-usage");
    for (args, status, why) in [
        (&["--tools", "cp,nonsense"][..], 2, "`nonsense`"),
        (&["--tool", "nonsense"], 2, "NAME=COMMAND"),
        (&["--repeat", "0"], 2, "'--repeat <N>': 0 is not in 1.."),
        (&["--files", "0"], 2, "'--files <N>': 0 is not in 1.."),
        (&["--tree", "c"], 2, "possible values"),
        (&["--files", "4000000000"], 1, "DIRECTORY"),
        (&["no/such/place"], 1, "no/such/place"),
    ] {
        let (code, _, err) = output(small(&place).args(["--tools", "cp"]).args(args));
        assert_eq!(code, Some(status), "{args:?}: {err}");
        assert!(err.contains(why), "{args:?}: {err}");
        assert!(is_empty(&place), "{args:?}");
    }
}

#[test]
fn a_tmpfs_is_measured_with_a_warning() {
    let shm = Path::new("/dev/shm");
    let Ok(memory) = tempfile::tempdir_in(shm) else {
        eprintln!("skipped: no /dev/shm");
        return;
    };
    let mut command = small(memory.path());
    let report = json(command.args(["--tools", "cp", "--regime", "warm"]));
    if report["machine"]["filesystem"] == "tmpfs" {
        assert!(notes(&report).contains("memory"), "{report}");
    }
    assert!(is_empty(memory.path()));
}

#[test]
fn help_has_examples() {
    let (_, out, _) = output(cringle(&place("cp-help")).args(["bench", "cp", "--help"]));
    for part in ["Examples:", "Regimes:", "cold-durable", "--tool"] {
        assert!(out.contains(part), "{part}");
    }
}

/// Waits for a path below `place` that `wanted` accepts, and returns it.
fn awaited(place: &Path, child: &mut Child, wanted: impl Fn(&Path) -> bool) -> PathBuf {
    loop {
        let workspaces = std::fs::read_dir(place).unwrap().flatten().map(|entry| entry.path());
        let inside = workspaces.flat_map(|path| std::fs::read_dir(path).into_iter().flatten());
        if let Some(found) = inside.flatten().map(|entry| entry.path()).find(|path| wanted(path)) {
            return found;
        }
        if child.try_wait().unwrap().is_some() {
            let mut text = String::new();
            child.stderr.take().unwrap().read_to_string(&mut text).unwrap();
            panic!("it ended before that: {text}");
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn interrupt(child: Child) -> Output {
    end_by(libc::SIGINT, child)
}

fn end_by(signal: i32, child: Child) -> Output {
    let pid = i32::try_from(child.id()).unwrap();
    // SAFETY: `kill` takes no pointer; the child is not reaped yet, so the number is its own.
    assert_eq!(unsafe { libc::kill(pid, signal) }, 0);
    child.wait_with_output().unwrap()
}

#[test]
fn an_interruption_kills_the_tool_and_removes_everything() {
    let place = place("cp-interrupt");
    let tool = "slow=mkdir {dst}; sleep 3600 & echo $! >{dst}/pid.new; mv {dst}/pid.new {dst}/pid; \
                wait; true {src}";
    let mut command = small(&place);
    command.args(["--tool", tool, "--tools", "slow"]);
    let mut child = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    let copies = awaited(&place, &mut child, |path| path.join("1/pid").exists());
    let sleeper = std::fs::read_to_string(copies.join("1/pid")).unwrap();
    let output = interrupt(child);
    assert_eq!(output.status.code(), Some(130));
    assert!(texts(&output).1.contains("interrupted"));
    assert!(is_empty(&place));
    // Until the process has ended: it is reaped, or a zombie that its new parent has not reaped.
    let lives = || {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", sleeper.trim()));
        stat.is_ok_and(|stat| stat.contains("(sleep) ") && !stat.contains(") Z "))
    };
    while lives() {
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn an_interruption_while_creating_trees_removes_them() {
    for signal in [libc::SIGINT, libc::SIGHUP] {
        let place = place("cp-interrupt-trees");
        let mut command = small(&place);
        command.args(["--tools", "cp", "--files", "50000"]);
        // The command keeps to an ignored SIGHUP, which `nohup` gives to the tests, too.
        // SAFETY: the contract of `pre_exec`: `signal` may be called between `fork` and `exec`.
        unsafe {
            command.pre_exec(move || match libc::signal(signal, libc::SIG_DFL) {
                libc::SIG_ERR => Err(std::io::Error::last_os_error()),
                _ => Ok(()),
            });
        }
        let mut child = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
        awaited(&place, &mut child, |path| path.join("f4").exists());
        let output = end_by(signal, child);
        assert_eq!(output.status.code(), Some(130), "{signal}: {}", texts(&output).1);
        assert!(is_empty(&place), "{signal}");
    }
}
