//! The shared library exports what the header declares, and nothing else.

use super::compiler::{self, library_dir};
use std::collections::BTreeSet;
use std::process::Command;

/// The symbols and constants, with the version of the interface that added each.
const ABI: &str = include_str!("../abi.txt");

fn header() -> &'static str {
    include_str!("../../include/cringle.h")
}

/// Returns the functions that the header declares.
fn declared() -> BTreeSet<&'static str> {
    let lines = header().lines().filter(|line| !line.starts_with([' ', '/', '#', '}']));
    let name = |line: &'static str| line.split('(').next()?.rsplit([' ', '*']).next();
    let lines = lines.filter(|line| line.contains('(') && !line.starts_with("typedef"));
    lines.filter_map(name).filter(|name| !name.trim().is_empty()).collect()
}

/// Returns the constants that the header defines, with their values.
fn defined() -> BTreeSet<(&'static str, &'static str)> {
    let constants =
        header().lines().filter_map(|line| line.strip_prefix("#define ")?.split_once(' '));
    constants.filter(|&(name, _)| name != "CRINGLE_ABI_VERSION").collect()
}

/// A line of the list: a function, or a constant with its value.
struct Listed {
    version: u32,
    name: &'static str,
    value: Option<&'static str>,
}

fn listed() -> Vec<Listed> {
    let lines = ABI.lines().filter(|line| !line.starts_with('#'));
    let entry = |line: &'static str| {
        let mut words = line.split(' ');
        let version = words.next().and_then(|version| version.parse().ok()).expect("a version");
        let name = words.next().expect("a name");
        Listed { version, name, value: words.next() }
    };
    lines.map(entry).collect()
}

#[test]
fn exported_symbols_are_those_of_the_header() {
    let Ok(output) = Command::new("nm")
        .args(["-D", "--defined-only"])
        .arg(library_dir().join("libcringle_c.so"))
        .output()
    else {
        return compiler::missing("nm");
    };
    let output = String::from_utf8(output.stdout).expect("symbols are text");
    let exported: BTreeSet<&str> =
        output.lines().filter_map(|line| line.split(' ').nth(2)).collect();
    assert_eq!(exported, declared());
    assert!(exported.len() > 10, "{exported:?}");
}

#[test]
fn interface_grows_by_versions() {
    let listed = listed();
    let functions = listed.iter().filter(|one| one.value.is_none()).map(|one| one.name);
    let functions: BTreeSet<&str> = functions.collect();
    assert_eq!(functions, declared(), "list new functions in tests/abi.txt, with a new version");
    let constants = listed.iter().filter_map(|one| Some((one.name, one.value?)));
    let constants: BTreeSet<(&str, &str)> = constants.collect();
    assert_eq!(constants, defined(), "a constant keeps its value; list new ones in tests/abi.txt");
    assert!(constants.len() > 10, "{constants:?}");
    let newest = listed.iter().map(|one| one.version).max();
    assert_eq!(newest, Some(cringle_c::CRINGLE_ABI_VERSION));
}

/// The sizes and offsets are part of the binary interface.
#[test]
fn structures_have_their_layout() {
    use cringle_c::{
        cringle_buffer, cringle_completion, cringle_op, cringle_params, cringle_stats,
    };
    use std::mem::offset_of;
    assert_eq!([size_of::<cringle_op>(), align_of::<cringle_op>()], [64, 8]);
    assert_eq!(
        [
            offset_of!(cringle_op, fd),
            offset_of!(cringle_op, buf),
            offset_of!(cringle_op, len),
            offset_of!(cringle_op, offset),
            offset_of!(cringle_op, flags),
            offset_of!(cringle_op, buffer),
            offset_of!(cringle_op, user_data),
            offset_of!(cringle_op, reserved),
        ],
        [4, 8, 16, 24, 32, 36, 40, 48]
    );
    assert_eq!(offset_of!(cringle_params, driver), 20);
    assert_eq!(offset_of!(cringle_stats, sleeps), 72);
    assert_eq!(size_of::<cringle_buffer>(), 16);
    assert_eq!([size_of::<cringle_completion>(), offset_of!(cringle_completion, result)], [16, 8]);
}

#[test]
fn manual_names_each_function_and_has_no_warning() {
    let page = include_str!("../../man/cringle.3");
    for function in declared() {
        assert!(page.contains(&format!("{function}(")), "{function} is not in the synopsis");
    }
    let page = concat!(env!("CARGO_MANIFEST_DIR"), "/man/cringle.3");
    let Ok(output) = Command::new("groff").args(["-man", "-Tutf8", "-ww", "-z", page]).output()
    else {
        return compiler::missing("groff");
    };
    assert!(output.status.success() && output.stderr.is_empty(), "{output:?}");
}
