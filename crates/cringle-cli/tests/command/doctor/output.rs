//! The output: the shape of the JSON, the width of the text, exit statuses, features.

use super::support::*;
use crate::common::*;
use cringle::runtime::{self, Driver, Feature};

#[test]
fn the_json_has_the_documented_shape() {
    let place = place("doctor-shape");
    let report = report_of(|| doctor(&place));
    let keys = |value: &serde_json::Value| -> Vec<String> {
        value.as_object().unwrap().keys().cloned().collect()
    };
    let all = [
        "schema",
        "command",
        "version",
        "kernel",
        "io_uring",
        "paths",
        "limits",
        "thread_locals",
        "measured",
        "verdict",
    ];
    assert_eq!(keys(&report.json), all);
    assert_eq!((&report.json["schema"], &report.json["command"]), (&1.into(), &"doctor".into()));
    let ring =
        ["usable", "calls", "causes", "runtime", "locked_memory", "features", "note", "facts"];
    assert_eq!(keys(&report.json["io_uring"]), ring);
    assert_eq!(keys(&report.json["verdict"]), ["driver", "missing", "unknown", "sentence"]);
    assert_eq!(keys(&report.json["limits"][0]), ["name", "value", "enough", "meaning", "remedy"]);
    assert_eq!(keys(&report.json["thread_locals"]), ["private", "moves", "why"]);
    let fibers = &report.json["thread_locals"];
    assert_eq!(fibers["moves"], fibers["private"], "fibers move with their thread-locals");
    assert!(report.text.contains("  moves  "), "{}", report.text);
    assert_eq!(report.json["measured"], serde_json::Value::Null);
    let page = include_str!("../../../../../docs/book/src/command/doctor.md");
    for key in all.iter().chain(&ring).chain(&["driver", "missing", "sentence"]) {
        assert!(page.contains(&format!("`{key}`")), "the page of doctor does not mention {key}");
    }
}

#[test]
fn the_text_fits_80_columns() {
    let place = place("doctor-width");
    let mut command = doctor(&place);
    filtered(&mut command, filter(&[SETUP], seccompiler::SeccompAction::Errno(1)));
    for output in [doctor(&place).output().unwrap(), command.output().unwrap()] {
        let (out, _) = texts(&output);
        assert!(out.lines().count() > 20, "{out}");
        let wide: Vec<_> = out.lines().filter(|line| line.chars().count() > 80).collect();
        assert!(wide.is_empty(), "{wide:#?}");
        assert!(!out.contains('\u{1b}'), "coloured without a terminal");
    }
}

#[test]
fn settings_of_containers_and_all_ops_are_printed() {
    let place = place("doctor-container");
    let run = |arguments: &[&str]| {
        let mut command = cringle(&place);
        // No ring is needed.
        filtered(&mut command, filter(&[SETUP], seccompiler::SeccompAction::KillProcess));
        command.args(["doctor", "--container"]).args(arguments).env("CRINGLE_WORKERS", "16");
        command.output().unwrap()
    };
    let (text, error) = texts(&run(&[]));
    assert_eq!(error, "");
    assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
    for setting in ["LimitMEMLOCK=infinity", "--ulimit memlock=-1:-1", "seccompProfile", "NOP=0,"] {
        assert!(text.contains(setting), "{setting}: {text}");
    }
    let found: serde_json::Value = serde_json::from_str(&texts(&run(&["--json", "-"])).0).unwrap();
    let found = &found["container"];
    assert_eq!(found["needed_bytes"], 16 * found["ring_bytes"].as_u64().unwrap());
    let rows = |list: &str| -> Vec<(u64, String)> {
        let rows = found[list].as_array().unwrap().iter();
        rows.map(|row| (row["number"].as_u64().unwrap(), row["name"].as_str().unwrap().to_owned()))
            .collect()
    };
    // As the kernel's header has them.
    for op in [(0, "NOP"), (22, "READ"), (47, "SEND_ZC"), (55, "FTRUNCATE")] {
        assert!(rows("ops").contains(&(op.0, op.1.into())), "{op:?}");
    }
    for (code, name) in runtime::Features::NEEDED_OPS {
        assert!(rows("ops").contains(&(code.into(), name.into())), "{name}");
    }
    assert!(rows("entry_flags").contains(&(1, "IOSQE_FIXED_FILE".into())));
    assert!(rows("requests").contains(&(12, "ENABLE_RINGS".into())));
    let page = include_str!("../../../../../docs/book/src/command/doctor.md");
    for key in found.as_object().unwrap().keys() {
        assert!(page.contains(&format!("`{key}`")), "the page of doctor does not mention {key}");
    }
    assert_eq!(run(&["--no-measure"]).status.code(), Some(2));
}

#[test]
fn color_always_colours_the_text() {
    let place = place("doctor-colours");
    let plain = texts(&doctor(&place).output().unwrap()).0;
    let coloured = texts(&doctor(&place).args(["--color", "always"]).output().unwrap()).0;
    assert!(coloured.contains("\u{1b}[1mVerdict\u{1b}[0m"), "{coloured}");
    assert_eq!(coloured.matches('\n').count(), plain.matches('\n').count());
}

#[test]
fn a_usable_ring_is_status_0() {
    let place = place("doctor-usable");
    let report = report_of(|| doctor(&place));
    assert_eq!((report.status, report.calls()), (0, vec!["allowed"; 3]), "{}", report.text);
    assert_eq!(report.json["io_uring"]["runtime"], "ring");
    assert!(report.verdict().starts_with("The ring is usable"), "{}", report.verdict());
    assert!(report.joined().ends_with(report.verdict()), "{}", report.text);
    assert!(is_empty(&place));
}

#[test]
fn reported_features_are_those_of_the_driver() {
    let place = place("doctor-features");
    let report = report_of(|| doctor(&place));
    let Driver::Uring(features) = cringle::run(runtime::driver) else { panic!("no ring") };
    for feature in Feature::ALL {
        let state = if features.has(feature) { "present" } else { "missing" };
        assert_eq!(report.features()[&*format!("{feature:?}")], state, "{feature:?}");
    }
}

/// The features tested by a request of `io_uring_register`, with the number of the request.
const REQUESTS: [(&str, u32); 13] = [
    ("SPARSE_FILES", 13),
    ("RegisteredRing", 20),
    ("PBUF_RING", 22),
    ("PBUF_RING_INC", 22),
    ("SYNC_CANCEL", 24),
    ("PBUF_STATUS", 26),
    ("NAPI", 27),
    ("REGISTER_CLOCK", 29),
    ("CLONE_BUFFERS", 30),
    ("SEND_MSG_RING", 31),
    ("RESIZE_RINGS", 33),
    ("MEM_REGION", 34),
    ("REGISTER_QUERY", 35),
];

#[test]
fn a_kernel_without_the_request_lacks_the_feature() {
    let place = place("doctor-forgets");
    let before = report_of(|| doctor(&place));
    let after = report_of(|| {
        let mut command = doctor(&place);
        let opcodes: Vec<_> = REQUESTS.iter().map(|(_, opcode)| *opcode).collect();
        filtered(&mut command, forget(&opcodes));
        command
    });
    assert_eq!(before.features()["RegisteredRing"], "present");
    for (name, state) in after.features() {
        let forgotten = REQUESTS.iter().any(|(request, _)| *request == name);
        assert_eq!(state, if forgotten { "missing" } else { before.features()[name] }, "{name}");
    }
    // An older kernel lacks others too.
    let lacks = "RegisteredRing (Linux 5.18)";
    assert!(after.json["verdict"]["missing"].as_array().unwrap().iter().any(|it| it == lacks));
    let (_, lack) = after.verdict().split_once("it lacks ").expect("some are missing");
    assert!(lack.contains(lacks), "{lack}");
    assert!(after.joined().contains("no 5.18 RegisteredRing a descriptor look-up for each call"));
}

#[test]
fn wrong_usage_is_status_2() {
    let place = place("doctor-usage");
    for arguments in [&["--seconds", "0"][..], &["--seconds", "1", "--no-measure"], &["--strange"]]
    {
        let output = cringle(&place).arg("doctor").args(arguments).output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
        assert_eq!(texts(&output).0, "");
    }
}

#[test]
fn help_has_examples() {
    let place = place("doctor-help");
    let (out, _) = texts(&cringle(&place).args(["doctor", "--help"]).output().unwrap());
    assert!(out.contains("Examples:") && out.contains("Exit status:"), "{out}");
}

#[test]
fn a_json_file_is_written_beside_the_text() {
    let place = place("doctor-json-file");
    let output = doctor(&place).args(["--json", "found.json"]).output().unwrap();
    assert!(texts(&output).0.contains("Verdict"));
    let found = std::fs::read_to_string(place.join("found.json")).unwrap();
    let found: serde_json::Value = serde_json::from_str(&found).unwrap();
    assert_eq!(found["command"], "doctor");
}
