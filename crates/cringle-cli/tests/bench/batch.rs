//! `cringle bench batch` as a user runs it.

use crate::common::*;
use serde_json::Value;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

#[test]
fn low_reads_every_block_once_and_high_in_whole_batches() {
    let place = place("batch");
    std::fs::write(place.join("data"), noise(4 << 20)).unwrap();
    for (args, ops) in [
        (&["low", "data"][..], 1024),
        (&["low", "data", "--workers", "2", "--cached"], 1024),
        (&["high", "data"], 7 * 4 * 32),
        (&["high", "data", "--workers", "2", "--cached"], 3 * 8 * 32),
    ] {
        let mut command = cringle(&place);
        let report = json(command.args(["bench", "batch"]).args(args).arg("--no-fio"));
        assert_eq!(report["schema"], 1);
        let result = &report["result"];
        assert_eq!(result["ops"], ops, "{args:?}");
        for field in [
            "seconds",
            "iops",
            "allocations",
            "allocations_per_op",
            "allocated_bytes",
            "allocated_bytes_per_op",
            "user_seconds",
            "system_seconds",
            "p999_us",
            "max_us",
        ] {
            assert!(result[field].is_number(), "{field} of {result}");
        }
    }
}

#[test]
fn via_c_is_measured_beside_rust() {
    let place = place("batch-via");
    std::fs::write(place.join("data"), noise(4 << 20)).unwrap();
    let args = ["high", "data", "--cached", "--warm", "--via", "c", "--repeat", "1", "--no-fio"];
    let report = json(cringle(&place).args(["bench", "batch"]).args(args));
    let [rust] = &report["samples"].as_array().unwrap()[..] else { panic!("{report}") };
    let [via] = &report["via"]["samples"].as_array().unwrap()[..] else { panic!("{report}") };
    assert_eq!((&report["via"]["name"], &via["ops"]), (&"c".into(), &(7 * 4 * 32).into()));
    let ratio = via["iops"].as_f64().unwrap() / rust["iops"].as_f64().unwrap();
    // The parser of the report may be off by the last bit of each number.
    let reported = report["ratios"]["via_iops_to_rust"].as_f64().unwrap();
    assert!((reported / ratio - 1.0).abs() < 1e-12, "{reported}, {ratio}");
    for wrong in [&["low", "data", "--via", "c"][..], &["high", "data", "--warm"]] {
        let output = cringle(&place).args(["bench", "batch"]).args(wrong).output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{wrong:?}");
    }
}

/// A program that prints `line` and ends with `status`. Its arguments are left in `arguments`.
fn program(place: &Path, name: &str, line: &str, status: u8) -> String {
    let path = place.join(name);
    let script = format!(
        "#!/bin/sh\necho \"$@\" >> arguments\necho '{line}'\necho its reason >&2\nexit {status}\n"
    );
    std::fs::write(&path, script).unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
    path.into_os_string().into_string().unwrap()
}

const FIGURES: &str = r#"{"ops": 896, "seconds": 0.5, "user_seconds": 0.25, "system_seconds": 0.75,
    "context_switches": 7, "allocated_bytes": 1792, "driver": "a further field"}"#;

#[test]
fn figures_of_another_program_are_reported() {
    let place = place("batch-via-program");
    std::fs::write(place.join("data"), noise(4 << 20)).unwrap();
    let program = program(&place, "a program", FIGURES, 0);
    let command = format!("'{program}' first");
    let args = ["high", "data", "--cached", "--seed", "9", "--repeat", "2", "--no-fio"];
    for language in ["haskell", "python"] {
        let mut bench = cringle(&place);
        bench.args(["bench", "batch"]).args(args).args(["--via", language]);
        let report = json(bench.args(["--via-program", &command]));
        let [via, _] = &report["via"]["samples"].as_array().unwrap()[..] else {
            panic!("{report}")
        };
        assert_eq!((&report["via"]["name"], &via["iops"]), (&language.into(), &1792.0.into()));
        assert_eq!((&via["system_seconds"], &via["context_switches"]), (&0.75.into(), &7.into()));
        assert_eq!(
            (&via["allocations"], &via["allocated_bytes_per_op"]),
            (&Value::Null, &2.0.into())
        );
        let cpu = |sample: &Value| {
            sample["user_seconds"].as_f64().unwrap() + sample["system_seconds"].as_f64().unwrap()
        };
        let ratio = report["ratios"]["via_cpu_per_op_to_rust"].as_f64().unwrap();
        let samples = report["samples"].as_array().unwrap();
        let [one, other] = [cpu(&samples[0]), cpu(&samples[1])].map(|rust| 1.0 / rust);
        assert!((ratio - (one + other) / 2.0).abs() < 1e-6 * ratio, "{report}");
    }
    let arguments = std::fs::read_to_string(place.join("arguments")).unwrap();
    let first = arguments.lines().next().unwrap();
    assert!(first.starts_with("first /proc/"), "{first}");
    assert!(first.ends_with(" --cached --workers 1 --seed 9"), "{first}");
}

#[test]
fn wrong_programs_of_another_language_are_explained() {
    let place = place("batch-via-wrong");
    std::fs::write(place.join("data"), noise(4 << 20)).unwrap();
    let timeless = FIGURES.replace("0.5", "0.0");
    let wrong = [
        (program(&place, "garbage", "no figures", 0), 1, "prints no line of JSON"),
        (program(&place, "silent", "", 0), 1, "prints no line of JSON"),
        (program(&place, "poor", r#"{"ops": 896}"#, 0), 1, "missing field `seconds`"),
        (program(&place, "failing", FIGURES, 3), 1, "failed (exit status: 3): its reason"),
        (program(&place, "idle", &FIGURES.replace("896", "32"), 0), 1, "32 reads, not 896"),
        (program(&place, "timeless", &timeless, 0), 1, "a time of 0 s"),
        ("/no/such/program".into(), 1, "does not start: No such file"),
        ("'".into(), 2, "--via-program"),
        (" ".into(), 2, "no program is given"),
    ];
    for (program, status, words) in wrong {
        let args = ["high", "data", "--cached", "--no-fio", "--via", "python", "--via-program"];
        let output = cringle(&place).args(["bench", "batch"]).args(args).arg(&program).output();
        let output = output.unwrap();
        let (_, err) = texts(&output);
        assert_eq!(output.status.code(), Some(status), "{program}: {err}");
        assert!(err.contains(words), "{program}: {err}");
        assert!(status == 2 || err.contains("pip install ./bindings/python"), "{program}: {err}");
    }
    for (args, words) in [
        (&["--via", "haskell"][..], "bindings/haskell/build"),
        (&["--via", "c", "--via-program", "true"], "haskell and python"),
        (&["--via-program", "true"], "--via"),
    ] {
        let mut command = cringle(&place);
        let output = command.args(["bench", "batch", "high", "data"]).args(args).output().unwrap();
        let (_, err) = texts(&output);
        assert!(output.status.code() == Some(2) && err.contains(words), "{args:?}: {err}");
    }
}

#[test]
fn low_allocates_nothing_per_operation() {
    let place = place("batch-alloc");
    std::fs::write(place.join("data"), noise(4 << 20)).unwrap();
    let mut command = cringle(&place);
    let report = json(command.args(["bench", "batch", "low", "data", "--no-fio"]));
    assert!(report["result"]["allocations"].as_u64().unwrap() < 16, "{report}");
}

/// If two jobs read the same block, the second would read it from the page cache.
#[test]
fn jobs_of_fio_read_each_block_once() {
    let place = place("batch-fio");
    std::fs::write(place.join("data"), noise(4 << 20)).unwrap();
    let Some(fio) = std::env::split_paths(&std::env::var_os("PATH").unwrap())
        .map(|directory| directory.join("fio"))
        .find(|fio| fio.exists())
    else {
        return println!("skipped: there is no fio");
    };
    // The same call of fio, with a log of the offsets of each job.
    let script =
        format!("#!/bin/sh\nexec {} --log_offset=1 --write_lat_log=read \"$@\"\n", fio.display());
    std::fs::write(place.join("fio"), script).unwrap();
    let executable = std::fs::Permissions::from_mode(0o755);
    std::fs::set_permissions(place.join("fio"), executable).unwrap();
    let mut command = cringle(&place);
    let args = ["bench", "batch", "low", "data", "--cached", "--workers", "3"];
    command.args(args).args(["--repeat", "1", "--warmup", "0"]).env("PATH", &*place);
    let (_, err) = texts(&command.output().unwrap());
    let mut offsets: Vec<u64> = Vec::new();
    for job in 1..=3 {
        let log = std::fs::read_to_string(place.join(format!("read_clat.{job}.log")));
        let log = log.unwrap_or_else(|e| panic!("job {job} wrote nothing: {e}; {err}"));
        let offset = |line: &str| line.split(',').nth(4)?.trim().parse::<u64>().ok();
        offsets.extend(log.lines().map(|line| offset(line).expect("an offset")));
    }
    offsets.sort_unstable();
    assert_eq!(offsets, (0..1023).map(|block| block * 4096).collect::<Vec<u64>>());
}

#[test]
fn the_report_has_the_lines_of_blockio_uring() {
    let place = place("batch-header");
    std::fs::write(place.join("data"), noise(4 << 20)).unwrap();
    let output = cringle(&place).args(["bench", "batch", "high", "data"]).output().unwrap();
    let (out, err) = texts(&output);
    assert!(output.status.success(), "{err}");
    for line in [
        "High-level API benchmark",
        "File caching:    False",
        "Workers:         1",
        "Threads:         4",
        "Total I/O ops:",
        "Elapsed time:",
        "IOPS:",
        "Allocated total:",
        "Allocated per:",
        "p99.9",
        "Longest:",
    ] {
        assert!(out.contains(line), "{line} in {out}");
    }
}

#[test]
fn a_small_or_missing_file_is_refused() {
    let place = place("batch-small");
    std::fs::write(place.join("data"), noise(64 << 10)).unwrap();
    for file in ["data", "nothing"] {
        let output = cringle(&place).args(["bench", "batch", "high", file]).output().unwrap();
        assert_eq!(output.status.code(), Some(1));
        assert!(texts(&output).1.contains(file));
    }
}

#[test]
fn threads_that_cannot_start_are_no_panic() {
    use std::os::unix::process::CommandExt;
    const NOBODY: u32 = 65_534;
    let place = place("batch-no-threads");
    std::fs::write(place.join("data"), noise(16 << 20)).unwrap();
    let readable = std::fs::Permissions::from_mode(0o644);
    std::fs::set_permissions(place.join("data"), readable).unwrap();
    for (level, workers) in [("low", "20"), ("high", "2"), ("high", "20")] {
        let mut command = cringle(&place);
        command.args([
            "bench",
            "batch",
            level,
            "data",
            "--cached",
            "--no-fio",
            "--workers",
            workers,
        ]);
        command.uid(NOBODY).gid(NOBODY);
        // SAFETY: the closure only makes a system call.
        unsafe {
            command.pre_exec(|| {
                let limit = libc::rlimit { rlim_cur: 6, rlim_max: 6 };
                libc::setrlimit(libc::RLIMIT_NPROC, &limit);
                Ok(())
            })
        };
        let Ok(output) = command.output() else {
            return eprintln!("skipped: only root is another user, who can reach the command");
        };
        let (_, err) = texts(&output);
        assert_eq!(output.status.code(), Some(1), "{level}: {err}");
        assert!(err.contains("cannot start") && !err.contains("panicked"), "{level}: {err}");
    }
}
