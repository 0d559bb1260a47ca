//! SIGKILL at random moments: an existing name is the old file or the new one; with `--fsync`, so
//! is a new name; and a second run completes the copy.
//!
//! `CRINGLE_KILLS=1000` kills that many copies (a few by default).

use crate::common::*;
use crate::support::*;
use crate::trees::describe;
use fastrand::Rng;
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Child, Stdio};
use std::sync::LazyLock;
use std::time::Duration;

const FILES: u64 = 60;
const DEFAULT_KILLS: u64 = 12;
/// Some of these exist as files, and are replaced by files.
const REGULAR: [u64; 8] = [2, 8, 14, 20, 30, 38, 44, 56];

fn name(tree: &Path, number: u64) -> std::path::PathBuf {
    tree.join((number % 5).to_string()).join(number.to_string())
}

fn new_content(number: u64) -> &'static [u8] {
    static LONGEST: LazyLock<Vec<u8>> = LazyLock::new(|| noise(8 * 200_000));
    &LONGEST[..8 * (1 + (number as usize * 9770) % 200_000)]
}

fn old_content(number: u64) -> Vec<u8> {
    format!("old {number}").into_bytes()
}

/// Makes files, links and hard-linked pairs; in `d`, every second name exists.
fn prepare(place: &Path) {
    for number in 0..FILES {
        let (from, to) = (name(&place.join("s"), number), name(&place.join("d"), number));
        fs::create_dir_all(from.parent().unwrap()).unwrap();
        fs::create_dir_all(to.parent().unwrap()).unwrap();
        match number % 6 {
            4 => symlink(format!("to {number}"), &from).unwrap(),
            5 => fs::hard_link(name(&place.join("s"), number - 5), &from).unwrap(),
            _ => fs::write(&from, new_content(number)).unwrap(),
        }
        let mode = if number % 7 == 0 { 0o444 } else { 0o640 };
        if number % 6 != 4 {
            fs::set_permissions(&from, fs::Permissions::from_mode(mode)).unwrap();
        }
        if number % 2 == 0 {
            fs::write(&to, old_content(number)).unwrap();
        }
    }
}

/// The contents that a complete file may have: the source's or the old one.
fn is_whole(place: &Path, number: u64) -> bool {
    let to = name(&place.join("d"), number);
    let Ok(found) = fs::symlink_metadata(&to) else { return true };
    if found.is_symlink() {
        return fs::read_link(&to).unwrap() == Path::new(&format!("to {number}"));
    }
    let first = if number % 6 == 5 { number - 5 } else { number };
    let content = fs::read(&to).unwrap();
    content == new_content(first) || number.is_multiple_of(2) && content == old_content(number)
}

fn is_temporary(name: &OsString) -> bool {
    let text = name.to_string_lossy();
    let base = text.rsplit('/').next().unwrap();
    base.strip_prefix(".cringle-cp.").is_some_and(|digits| {
        digits.len() == 16 && digits.bytes().all(|digit| digit.is_ascii_hexdigit())
    })
}

/// The moment of the signal.
#[derive(Clone, Copy)]
enum Moment {
    After(Duration),
    /// When this name, an old file, has changed.
    Changed(u64),
}

impl Moment {
    fn wait_for(self, place: &Path, child: &mut Child) {
        match self {
            // The random moment is the purpose of the test: no event is waited for.
            Moment::After(delay) => std::thread::sleep(delay),
            Moment::Changed(number) => {
                let watched = name(&place.join("d"), number);
                let length = old_content(number).len() as u64;
                let is_old = || fs::metadata(&watched).is_ok_and(|now| now.len() == length);
                while is_old() && child.try_wait().unwrap().is_none() {
                    std::thread::yield_now();
                }
            }
        }
    }
}

/// Kills the copy; returns whether the signal came before its end.
fn killed_at(base: &Path, flags: &[&str], moment: Moment, seed: u64) -> bool {
    let place = base.join(seed.to_string());
    fs::create_dir(&place).unwrap();
    prepare(&place);
    let all = [flags, &["-aT", "s", "d"]].concat();
    let mut command = ours();
    command.args(&all).current_dir(&place).stdout(Stdio::null()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    moment.wait_for(&place, &mut child);
    child.kill().unwrap();
    let killed = finish(child, "a killed cp").status.signal() == Some(libc::SIGKILL);
    let durable = flags.contains(&"--fsync");
    for number in 0..FILES {
        // Without --fsync, a new name may have a part of its content.
        if number % 2 == 0 || durable {
            assert!(is_whole(&place, number), "seed {seed}: {flags:?}: {number} is torn");
        }
    }
    let source = describe(&place.join("s"), true);
    let left: Vec<_> = describe(&place.join("d"), false).into_keys().collect();
    for name in left.iter().filter(|name| !source.contains_key(*name)) {
        assert!(is_temporary(name), "seed {seed}: {flags:?}: {name:?} is left");
    }
    let output = run(&place, &all);
    assert_eq!(output, (Some(0), String::new(), String::new()), "seed {seed}: {flags:?}");
    let now: BTreeMap<_, _> = describe(&place.join("d"), true)
        .into_iter()
        .filter(|(name, _)| !is_temporary(name))
        .collect();
    // A leftover may be one more name of a file: then names are not counted.
    let left_behind = left.iter().any(is_temporary);
    let stderr = |tree: BTreeMap<OsString, String>| {
        let short = |text: String| text.split(" links ").next().unwrap().to_owned();
        let all = tree.into_iter();
        all.map(|(name, text)| (name, if left_behind { short(text) } else { text }))
            .collect::<BTreeMap<_, _>>()
    };
    assert_eq!(stderr(now), stderr(source), "seed {seed}: {flags:?}");
    for number in 0..FILES {
        assert!(is_whole(&place, number), "seed {seed}: {flags:?}: {number} after the second run");
    }
    fs::remove_dir_all(&place).unwrap();
    killed
}

#[test]
fn a_killed_copy_leaves_whole_files() {
    let kills =
        std::env::var("CRINGLE_KILLS").ok().map(|text| text.parse().expect("CRINGLE_KILLS"));
    let kills = kills.unwrap_or(DEFAULT_KILLS);
    let base = place_in_memory("cp-killed");
    let mut random = Rng::with_seed(0);
    let (mut killed, mut seed) = (0, 0);
    // Until a copy has been killed before its end.
    while seed < kills || killed == 0 {
        let flags: &[&str] = match seed % 4 {
            0 => &["--jobs=1", "--block-size=4k", "--sparse=always"],
            1 => &["--jobs=8"],
            2 => &["--fsync", "--jobs=4", "--block-size=4k", "--sparse=always"],
            _ => &["--remove-destination", "--fsync", "--jobs=3"],
        };
        // From the start of the program to beyond the end of most copies, or in the middle of them.
        let moment = match random.u64(..3) {
            0 => Moment::After(Duration::from_micros(random.u64(..60_000))),
            _ => Moment::Changed(REGULAR[random.usize(..REGULAR.len())]),
        };
        killed += u64::from(killed_at(base.path(), flags, moment, seed));
        seed += 1;
    }
    eprintln!("{killed} of {seed} were killed before their end");
}
