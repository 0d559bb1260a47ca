//! `cringle bench disk` as a user runs it.

use crate::common::*;
use cringle_testing::disk;
use serde_json::Value;
use std::collections::HashSet;

const OURS: &str = "sync,threads,mmap,tokio,uring,fibers,batch";

/// Checks the fields of every run, and that all runs of a profile have the same checksum.
fn check_runs(report: &Value) {
    assert_eq!(report["schema"], 1);
    for field in ["kernel", "cpus", "filesystem", "device"] {
        assert!(!report["machine"][field].is_null(), "machine.{field}");
    }
    assert!(!runs(report).is_empty());
    let mut checksums = HashSet::new();
    for run in runs(report) {
        for field in ["strategy", "profile", "checksum"] {
            assert!(run[field].is_string(), "{field} of {run}");
        }
        for field in [
            "queue_depth",
            "threads",
            "block_bytes",
            "ops",
            "seconds",
            "iops",
            "bytes_per_second",
            "cpu_us_per_op",
            "context_switches_per_op",
            "p50_us",
            "p99_us",
        ] {
            assert!(run[field].is_number(), "{field} of {run}");
        }
        assert!(run["iops"].as_f64().unwrap() > 0.0);
        assert!(run["p50_us"].as_f64() <= run["p99_us"].as_f64());
        assert_eq!(run["samples"].as_array().unwrap().len(), 2, "every sample is there");
        assert!(run["ratios"].is_object());
        checksums.insert((run["profile"].clone(), run["checksum"].clone()));
    }
    let profiles: HashSet<_> = runs(report).iter().map(|run| run["profile"].clone()).collect();
    assert_eq!(checksums.len(), profiles.len(), "one checksum a profile: {checksums:?}");
}

#[test]
fn every_strategy_reads_the_same_directly() {
    let place = place("direct");
    let report = json(small_disk(&place).args(["--strategies", OURS]));
    check_runs(&report);
    assert!(report["load_average"].is_number());
    assert!(runs(&report).iter().all(|run| run["spread"].as_f64().unwrap() >= 0.0));
    let names: HashSet<_> = runs(&report).iter().map(|run| run["strategy"].to_string()).collect();
    assert_eq!(names.len(), 7);
    for run in runs(&report) {
        assert_eq!((&run["profile"], &run["ops"]), (&"direct".into(), &512.into()));
        assert_eq!(run["block_bytes"], 4096);
    }
    assert!(notes(&report).contains("EINVAL"), "tokio's way with O_DIRECT is told");
    assert!(is_empty(&place), "the temporary file is gone");
}

#[test]
fn every_strategy_reads_the_same_from_the_cache() {
    let place = place("cached");
    let report = json(small_disk(&place).args([
        "--strategies",
        OURS,
        "--profile",
        "cached",
        "--block",
        "64",
    ]));
    check_runs(&report);
    assert!(is_empty(&place));
}

#[test]
fn every_strategy_commits_the_same_log() {
    let place = place("wal");
    let args =
        ["--strategies", "sync,threads,tokio,uring,fibers,batch,log,mmap", "--profile", "wal"];
    let report = json(small_disk(&place).args(args).args(["--ops", "64"]));
    check_runs(&report);
    assert!(notes(&report).contains("mmap is left out"));
    assert!(notes(&report).contains("group commit"));
    assert!(is_empty(&place));
}

#[test]
fn registered_files_and_buffers_read_the_same() {
    let place = place("fixed");
    let args = ["--strategies", "sync,uring,batch", "--fixed"];
    let report = json(small_disk(&place).args(args).args(["--profile", "direct,cached"]));
    check_runs(&report);
    for run in runs(&report) {
        assert_eq!(run["fixed"], run["strategy"] != "sync");
    }
}

#[test]
fn iopoll_reads_the_same_or_names_the_device() {
    let place = place("polled");
    let args = ["--iopoll", "--strategies", "sync,uring,batch", "--qd", "4", "--threads", "1,2"];
    let report = json(small_disk(&place).args(args));
    check_runs(&report);
    let notes = notes(&report);
    let polled = notes.contains("completions are polled for at");
    // `cargo xtask kernels` sets the variable in its machines, which have a disk without such
    // queues.
    let required = std::env::var_os("CRINGLE_POLL_QUEUES").is_some_and(|word| word == "required");
    let reason = match disk::is_on_block_device() {
        true => "no queues to be polled",
        false => "the file is not on a single block device",
    };
    assert!(polled || !required && notes.contains(reason), "{notes}");
    if let Some(plain) = std::env::var_os("CRINGLE_DISK_WITHOUT_QUEUES") {
        let report = json(small_disk(plain.as_ref()).args(args));
        check_runs(&report);
        assert!(self::notes(&report).contains("no queues to be polled"), "{report}");
    }

    let refused = small_disk(&place).args(["--iopoll", "--profile", "cached"]).output().unwrap();
    assert_eq!(refused.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&refused.stderr).contains("--profile direct"));
}

#[test]
fn two_workers_share_the_reads() {
    let place = place("workers");
    let args = ["--strategies", OURS, "--threads", "1,2", "--profile", "cached"];
    let report = json(small_disk(&place).args(args));
    check_runs(&report);
    assert!(runs(&report).iter().any(|run| run["threads"] == 2 && run["strategy"] == "fibers"));
}

#[test]
fn writes_are_verified_in_the_temporary_file() {
    let place = place("writes");
    for profile in ["direct", "cached"] {
        let args = ["--strategies", OURS, "--rw", "write", "--profile", profile];
        let report = json(small_disk(&place).args(args));
        check_runs(&report);
        assert_eq!(report["rw"], "write");
    }
    assert!(is_empty(&place));
}

#[test]
fn notes_on_writes_speak_of_writes() {
    let place = place("write-notes");
    std::fs::File::create(place.join("data")).unwrap().set_len(1 << 20).unwrap();
    let args = ["--rw", "write", "--destroy", "--strategies", "sync,uring", "data"];
    for profile in ["direct", "cached"] {
        let output = small_disk(&place).args(args).args(["--profile", profile]).output().unwrap();
        let (out, err) = texts(&output);
        assert!(output.status.success() && out.contains("smaller than --size"), "{out}{err}");
        let words = out.split(|c: char| !c.is_alphabetic());
        let of_reads: Vec<_> = words.filter(|word| ["read", "reads"].contains(word)).collect();
        assert!(of_reads.is_empty(), "{out}");
    }
}

#[test]
fn direct_writes_through_the_cache_are_noted() {
    if !is_root() {
        return eprintln!("skipped: only root mounts file systems");
    }
    let base = tempfile::tempdir_in(place("btrfs")).unwrap();
    let Some(mount) = mounts::Mount::new(base.path(), "btrfs", 256) else { return };
    let without = mount.0.join("without-checksums");
    std::fs::create_dir(&without).unwrap();
    if let Err(why) = mounts::done_by("chattr", &["+C", without.to_str().unwrap()]) {
        return eprintln!("skipped: {why}");
    }
    for (directory, rw, is_noted) in
        [(&mount.0, "write", true), (&mount.0, "read", false), (&without, "write", false)]
    {
        let report = json(small_disk(directory).args(["--strategies", "sync", "--rw", rw]));
        let notes = notes(&report);
        assert_eq!(notes.contains("go through the page cache"), is_noted, "{rw}: {notes}");
        assert_eq!(notes.contains("chattr +C"), is_noted, "{rw}: {notes}");
    }
    for (directory, is_noted) in [(&mount.0, true), (&without, false)] {
        let report = json(cringle(directory).args(["doctor", "--no-measure"]));
        let direct = report["paths"][0]["direct"]["words"].as_str().unwrap();
        assert_eq!(direct.contains("chattr +C"), is_noted, "{direct}");
    }
}

/// Makes the command run under a filter that refuses these calls with `EPERM`.
fn denying(mut command: std::process::Command, calls: &[i64]) -> std::process::Command {
    use seccompiler::{BpfProgram, SeccompAction, SeccompFilter};
    use std::os::unix::process::CommandExt;
    let rules = calls.iter().map(|&call| (call, Vec::new())).collect();
    let (action, arch) = (SeccompAction::Errno(libc::EPERM as u32), std::env::consts::ARCH);
    let filter = SeccompFilter::new(rules, SeccompAction::Allow, action, arch.try_into().unwrap());
    let program = BpfProgram::try_from(filter.unwrap()).unwrap();
    let install = move || seccompiler::apply_filter(&program).map_err(std::io::Error::other);
    // SAFETY: the closure only makes system calls.
    unsafe { command.pre_exec(install) };
    command
}

#[test]
fn denied_calls_have_their_own_remedy() {
    let place = place("disk-denied");
    let strategies = ["--strategies", "uring", "--profile", "cached"];
    let mut command = small_disk(&place);
    command.args(strategies);
    if !command.output().unwrap().status.success() {
        return eprintln!("skipped: rings are not available");
    }
    let output = denying(command, &[libc::SYS_io_uring_enter]).output().unwrap();
    let (_, err) = texts(&output);
    assert_eq!(output.status.code(), Some(1), "{err}");
    for word in ["seccomp", "io_uring_enter", "cringle doctor"] {
        assert!(err.contains(word), "{word}: {err}");
    }
    let mut command = small_disk(&place);
    command.args(["--strategies", "threads", "--profile", "cached"]);
    let output = denying(command, &[libc::SYS_clone, libc::SYS_clone3]).output().unwrap();
    let (_, err) = texts(&output);
    assert_eq!(output.status.code(), Some(1), "{err}");
    assert!(err.contains("Operation not permitted") && !err.contains("ulimit -u"), "{err}");
}

#[test]
fn runs_limited_by_time_are_verified() {
    let place = place("seconds");
    let mut command = cringle(&place);
    command.args(["bench", "disk", "--size", "16m", "--seconds", "0.05", "--repeat", "1"]);
    command.args(["--qd", "8", "--strategies", &format!("{OURS},log"), "--profile", "cached,wal"]);
    let report = json(&mut command);
    // On a busy machine the time of a run may be over before its first operation.
    assert!(runs(&report).iter().any(|run| run["ops"].as_u64().unwrap() > 0));
    assert!(runs(&report).iter().all(|run| run["seconds"].as_f64().unwrap() >= 0.05));
}

#[test]
fn the_seed_determines_the_reads() {
    let place = place("seed");
    let checksum = |seed: &str| {
        let args = ["--strategies", "sync", "--profile", "cached", "--seed", seed];
        runs(&json(small_disk(&place).args(args)))[0]["checksum"].clone()
    };
    assert_eq!(checksum("7"), checksum("7"));
    assert_ne!(checksum("7"), checksum("8"));
}

#[test]
fn an_existing_file_needs_destroy_to_be_written() {
    let place = place("existing");
    let file = place.join("data");
    let content = noise(1 << 20);
    std::fs::write(&file, &content).unwrap();
    let report = json(small_disk(&place).args(["--strategies", OURS, "--size", "2m"]).arg(&file));
    check_runs(&report);
    assert!(notes(&report).contains("smaller than --size"), "{}", notes(&report));
    for args in [["--rw", "write"], ["--profile", "wal"]] {
        let output = small_disk(&place).args(args).arg(&file).output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{args:?}");
        assert!(texts(&output).1.contains("--destroy"));
    }
    assert_eq!(std::fs::read(&file).unwrap(), content, "nothing was written");
    let args = ["--rw", "write", "--destroy", "--strategies", "sync,fibers", "--size", "1m"];
    check_runs(&json(small_disk(&place).args(args).arg(&file)));
    assert_ne!(std::fs::read(&file).unwrap(), content);
}

#[test]
fn misleading_content_is_noted() {
    let place = place("fooled");
    let sparse = place.join("sparse");
    std::fs::File::create(&sparse).unwrap().set_len(4 << 20).unwrap();
    let mut command = cringle(&place);
    command.args(["bench", "disk", "--ops", "64", "--strategies", "sync", "--profile", "cached"]);
    let report = json(command.arg(&sparse));
    assert!(notes(&report).contains("has holes"), "{}", notes(&report));
    assert!(notes(&report).contains("begin with the same bytes"), "{}", notes(&report));
}

#[test]
fn cached_runs_warm_a_cold_file() {
    let place = place("cold");
    let file = place.join("data");
    std::fs::write(&file, noise(4 << 20)).unwrap();
    let evicted = evict(&file);
    let mut command = cringle(&place);
    command.args(["bench", "disk", "--ops", "64", "--strategies", "sync", "--profile", "cached"]);
    let report = json(command.arg(&file));
    if evicted && report["machine"]["filesystem"] != "tmpfs" {
        assert!(
            notes(&report).contains("was not completely in the page cache"),
            "{}",
            notes(&report)
        );
    }
}

/// Drops the file from the page cache. Returns whether the kernel accepted the advice.
fn evict(path: &std::path::Path) -> bool {
    use std::os::fd::AsRawFd;
    let file = std::fs::File::open(path).unwrap();
    file.sync_all().unwrap();
    // SAFETY: `posix_fadvise` takes no pointer.
    unsafe { libc::posix_fadvise(file.as_raw_fd(), 0, 0, libc::POSIX_FADV_DONTNEED) == 0 }
}

#[test]
fn storage_in_memory_is_noted() {
    let shared = std::path::Path::new("/dev/shm");
    let mounts = std::fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    if !mounts.contains(" /dev/shm ") {
        return;
    }
    let place = place("memory");
    let args = ["--strategies", "sync", "--profile", "cached", "--size", "1m"];
    let report = json(small_disk(&place).args(args).arg(shared));
    assert!(notes(&report).contains("is memory"), "{}", notes(&report));
}

#[test]
fn the_report_has_a_table_and_sentences() {
    let place = place("table");
    let output = small_disk(&place).args(["--strategies", OURS]).output().unwrap();
    let (out, err) = texts(&output);
    assert!(output.status.success(), "{err}");
    for text in
        ["strategy", "IOPS", "spread", "× sync", "CPU µs/op", "p99 µs", "O_DIRECT", "load average"]
    {
        assert!(out.contains(text), "{text} in {out}");
    }
    assert!(out.contains("Compared with the hand-written ring"), "{out}");
    assert!(!out.contains('\u{1b}'), "no colours into a pipe");
}

#[test]
fn json_goes_to_a_file_besides_the_table() {
    let place = place("json-file");
    let output =
        small_disk(&place).args(["--strategies", "sync", "--json", "out.json"]).output().unwrap();
    assert!(texts(&output).0.contains("sync"));
    let text = std::fs::read_to_string(place.join("out.json")).unwrap();
    check_runs(&serde_json::from_str(&text).unwrap());
}

#[test]
fn fio_runs_if_installed() {
    let place = place("fio");
    let installed = std::process::Command::new("fio").arg("--version").output().is_ok();
    let args = ["--strategies", "uring,fio", "--profile", "direct,cached"];
    let mut command = small_disk(&place);
    command.args(args).args(["--ops", "64", "--repeat", "1"]);
    if !installed {
        assert_eq!(command.output().unwrap().status.code(), Some(1));
        return;
    }
    let report = json(&mut command);
    let of_fio: Vec<_> = runs(&report).iter().filter(|run| run["strategy"] == "fio").collect();
    assert_eq!(of_fio.len(), 4);
    assert!(of_fio.iter().all(|run| run["checksum"].is_null()));
    assert!(of_fio.iter().all(|run| run["iops"].as_f64().unwrap() > 0.0));
}

#[test]
fn numbers_beyond_any_use_are_refused() {
    let place = place("bench-numbers");
    let most = u64::MAX.to_string();
    for (arguments, status) in [
        (&["disk", "--warmup", &most][..], 2),
        (&["disk", "--repeat", &most], 2),
        (&["disk", "--ops", &most], 2),
        (&["disk", "--ops", "99999999999"], 2),
        (&["sum", "--warmup", &most], 2),
        (&["cp", "--repeat", &most], 2),
        (&["cp", "--files", "4294967295", "--file-size", "16t"], 1),
        (&["http", "--repeat", &most], 2),
        (&["all", "--repeat", &most], 2),
        (&["batch", "low", "file", "--workers", &most], 2),
    ] {
        let output = cringle(&place).arg("bench").args(arguments).output().unwrap();
        let (_, err) = texts(&output);
        assert_eq!(output.status.code(), Some(status), "{arguments:?}: {err}");
        assert!(!err.contains("panicked"), "{arguments:?}: {err}");
    }
}

#[test]
fn a_file_smaller_than_a_block_is_refused() {
    let place = place("bench-small-file");
    std::fs::write(place.join("data"), noise(64 << 10)).unwrap();
    let output =
        cringle(&place).args(["bench", "disk", "--block", "128k", "data"]).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    let (_, err) = texts(&output);
    assert!(err.contains("less than one block of 128 KiB"), "{err}");
}

#[test]
fn a_size_beyond_the_free_space_is_refused() {
    let place = place("too-small");
    let output = cringle(&place).args(["bench", "disk", "--size", "65536t"]).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(texts(&output).1.contains("smaller --size"));
}
