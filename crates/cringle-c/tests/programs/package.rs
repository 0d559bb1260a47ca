//! The library as it is installed: the metadata for cargo-c, and the static library. `.ci/capi`
//! installs it by cargo-c.

use super::compiler;
use std::path::Path;
use std::process::Command;

const README: &str = include_str!("../../README.md");
const MANIFEST: &str = include_str!("../../Cargo.toml");

/// Returns the values of a key in the metadata for cargo-c.
fn values(key: &str) -> Vec<&'static str> {
    let metadata = MANIFEST.split("\n[").filter(|part| part.starts_with("package.metadata.capi"));
    let lines = metadata.flat_map(str::lines);
    let key = format!(" {key} = ");
    let value = |line: &'static str| {
        // A line of its own, or a part of an asset.
        let line = if line.starts_with(&key[1..]) { line } else { line.split(&key).nth(1)? };
        line.split('"').nth(1)
    };
    lines.filter_map(value).collect()
}

#[test]
fn cargo_c_installs_files_that_exist() {
    let installed = values("from");
    assert_eq!(installed, ["include/cringle.h", "man/cringle.3"]);
    for file in installed {
        assert!(Path::new(env!("CARGO_MANIFEST_DIR")).join(file).is_file(), "{file}");
    }
    // The header, the library, and the file of pkg-config, which the documentation names.
    assert_eq!(values("name"), ["cringle"; 3]);
    assert_eq!(values("filename"), ["cringle"]);
    assert!(README.contains("pkg-config --cflags --libs cringle"));
}

#[test]
fn static_library_links_with_the_documented_flags() {
    if !compiler::has_compiler() {
        return;
    }
    let chapter = include_str!("../../../../docs/book/src/c.md");
    let of = |text: &'static str| {
        let line = text.lines().find(|line| line.contains("libcringle_c.a -l"));
        line.and_then(|line| line.split("libcringle_c.a ").nth(1)).expect("the line with the flags")
    };
    assert_eq!(of(README), of(chapter));
    let flags: Vec<&str> = of(README).split(' ').collect();
    let program = compiler::with_static_library("randread", &flags);
    let linked = compiler::run(Command::new("ldd").arg(&program));
    assert!(!linked.contains("cringle"), "{linked}");
    let printed = compiler::run(Command::new(&program).arg(&program).arg("0.05"));
    assert!(printed.contains(" reads of 4096 bytes in "), "{printed}");
}
