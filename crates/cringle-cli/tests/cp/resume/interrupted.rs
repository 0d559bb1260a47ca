//! Signals at random moments, several in a row. After the last run the result is that of one copy,
//! and nothing else is left.
//!
//! `CRINGLE_RESUMES=1000` makes that many series (a few by default).

use crate::common::*;
use crate::support::*;
use crate::trees::{describe, random_tree};
use fastrand::Rng;
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Child, Stdio};
use std::time::Duration;

const DEFAULT_SERIES: u64 = 7;
/// The most interrupts of one series.
const MAX_INTERRUPTS: u64 = 6;
/// Beyond the end of most copies.
const LONGEST_US: u64 = 60_000;

/// Flags of a copy, and whether it preserves times.
const WAYS: [(&[&str], bool); 7] = [
    (&["-a"], true),
    (&["-a", "--fsync"], true),
    (&["-r"], false),
    (&["-r", "--preserve=ownership"], false),
    (&["-r", "--no-preserve=mode"], false),
    (&["-a", "--sparse=always", "--remove-destination"], true),
    (&["-r", "--preserve=links,timestamps", "--resume-check=content"], true),
];

/// Makes the source `s`.
fn prepare_source(place: &Path, seed: u64) {
    fs::create_dir(place.join("s")).unwrap();
    for part in 0..2 {
        random_tree(&place.join("s").join(part.to_string()), 2 * seed + part);
    }
}

/// Makes a target with some old files and directories.
fn occupy(place: &Path, target: &str, seed: u64) {
    copies(place, &["-aT", "s", target]);
    let mut random = Rng::with_seed(seed);
    for name in describe(&place.join(target), false).into_keys().filter(|name| !name.is_empty()) {
        let path = place.join(target).join(name);
        let Ok(found) = fs::symlink_metadata(&path) else { continue };
        match random.u64(..4) {
            0 if found.is_dir() => fs::remove_dir_all(&path).unwrap(),
            0 => fs::remove_file(&path).unwrap(),
            1 if found.is_file() => fs::write(&path, "old").unwrap(),
            2 if found.is_dir() => {
                fs::set_permissions(&path, fs::Permissions::from_mode(0o777)).unwrap();
            }
            _ => {}
        }
    }
}

fn signalled(child: &mut Child, signal: i32) {
    if child.try_wait().unwrap().is_none() {
        // SAFETY: the call takes no pointers. The child has not been reaped, so the number is still
        // its own.
        assert_eq!(unsafe { libc::kill(child.id() as i32, signal) }, 0);
    }
}

/// Runs the copy and sends a signal at a random moment. Returns whether that ended it.
fn interrupted(place: &Path, arguments: &[&str], random: &mut Rng) -> bool {
    let mut command = ours();
    command.args(arguments).current_dir(place).stdout(Stdio::null()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let signal = [libc::SIGKILL, libc::SIGKILL, libc::SIGINT, libc::SIGTERM];
    let signal = signal[random.usize(..signal.len())];
    // The random moment is the purpose of the test: no event is waited for.
    std::thread::sleep(Duration::from_micros(random.u64(..LONGEST_US)));
    signalled(&mut child, signal);
    let output = finish(child, "an interrupted cp --resume");
    let text = texts(&output).1;
    assert!(!text.contains("manifest"), "{arguments:?}: {text}");
    let ended = output.status.signal().is_some() || output.status.code() == Some(130);
    assert!(ended || output.status.code() == Some(0), "{arguments:?}: {:?}: {text}", output.status);
    ended
}

fn differences(
    mine: &BTreeMap<OsString, String>,
    theirs: &BTreeMap<OsString, String>,
) -> Vec<String> {
    let names = mine.keys().chain(theirs.keys()).collect::<std::collections::BTreeSet<_>>();
    let differs = names.into_iter().filter(|name| mine.get(*name) != theirs.get(*name));
    differs
        .map(|name| format!("{name:?}: {:?} instead of {:?}", mine.get(name), theirs.get(name)))
        .collect()
}

/// Interrupts and continues a copy until it is complete. Returns the number of interrupts.
fn series(base: &Path, seed: u64) -> u64 {
    let (flags, times) = WAYS[(seed % WAYS.len() as u64) as usize];
    // Onto old files with several names, links without all other attributes depend on the order in
    // which the names are copied, also in a copy without interrupts.
    let is_ordered = !flags.iter().any(|flag| flag.contains("links,"));
    let occupied = seed % 2 == 1 && is_ordered;
    let place = base.join(seed.to_string());
    fs::create_dir(&place).unwrap();
    prepare_source(&place, seed);
    if occupied {
        occupy(&place, "d", seed);
        occupy(&place, "once", seed);
    }
    let plain: Vec<_> =
        flags.iter().copied().filter(|flag| !flag.starts_with("--resume")).collect();
    let mut random = Rng::with_seed(!seed);
    let jobs = format!("--jobs={}", random.u64(1..=6));
    let names = ["-T", "s", "d", "--resume=m", "--block-size=4k", &jobs];
    let arguments = [flags, &names].concat();
    let (mut count, interrupts) = (0, random.u64(1..=MAX_INTERRUPTS));
    for _ in 0..interrupts {
        count += u64::from(interrupted(&place, &arguments, &mut random));
    }
    let place_text = format!("seed {seed}: {arguments:?}, {count} interrupts");
    let output = run(&place, &arguments);
    assert_eq!(output, (Some(0), String::new(), String::new()), "{place_text}");
    copies(&place, &[&plain[..], &["-T", "s", "once"]].concat());
    let result = |tree: &str| describe(&place.join(tree), times);
    let found = differences(&result("d"), &result("once"));
    assert!(found.is_empty(), "{place_text}:\n{}", found.join("\n"));
    if !occupied && flags[0] == "-a" && flags.len() == 1 {
        let found = differences(&result("d"), &result("s"));
        assert!(found.is_empty(), "{place_text}: not the source:\n{}", found.join("\n"));
    }
    fs::remove_dir_all(&place).unwrap();
    count
}

#[test]
fn interrupted_copies_end_like_one_copy() {
    let series_count = std::env::var("CRINGLE_RESUMES").ok();
    let series_count = series_count.map(|text| text.parse().expect("CRINGLE_RESUMES"));
    let base = place_in_memory("cp-resume");
    let first = std::env::var("CRINGLE_RESUMES_FROM").ok();
    let first: u64 = first.map_or(0, |text| text.parse().expect("CRINGLE_RESUMES_FROM"));
    let end = first + series_count.unwrap_or(DEFAULT_SERIES);
    let (mut seed, mut interrupts) = (first, 0);
    // Until a copy has been interrupted before its end.
    while seed < end || interrupts == 0 {
        interrupts += series(base.path(), seed);
        seed += 1;
    }
    eprintln!("{interrupts} interrupts");
}
