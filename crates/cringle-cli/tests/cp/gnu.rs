//! Random trees copied by both programs with each flag: the results must be the same.

use crate::common::*;
use crate::support::*;
use crate::trees::{
    ACCESS, DEFAULT, acl, describe, random_tree, random_tree_without_links, set_xattr,
};
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;
use std::process::Command;

#[test]
fn archives_of_random_trees_are_identical() {
    if !is_gnu() {
        return;
    }
    for seed in 0..12 {
        // The place gets times of its own, so that only the copied files are compared.
        let base = tempfile::tempdir_in(place(&format!("cp-archive-{seed}"))).unwrap();
        let source = base.path().join("tree");
        random_tree(&source, seed);
        let mut command = gnu();
        assert!(
            output_of(
                {
                    command.args(["-a", "tree", "gnu"]);
                    command
                },
                base.path(),
                b""
            )
            .status
            .success()
        );
        let mut command = ours();
        command.args(["-a", "tree", "ours"]);
        let output = output_of(command, base.path(), b"");
        assert_eq!(texts(&output), (String::new(), String::new()));
        assert_eq!(output.status.code(), Some(0));
        let of = |name: &str| describe(&base.path().join(name), true);
        assert_eq!(of("ours"), of("gnu"), "seed {seed}");
        let mut command = ours();
        command.args(["-a", "--fsync", "--verify", "tree", "durable"]);
        assert_eq!(texts(&output_of(command, base.path(), b"")), (String::new(), String::new()));
        assert_eq!(of("durable"), of("gnu"), "seed {seed}");
        rsync_finds_nothing(base.path());
    }
}

#[test]
fn existing_targets_get_their_sources_modes_and_acls() {
    let place = place("cp-exact");
    for (tree, mode) in [("tree", 0o700), ("there", 0o7777)] {
        fs::create_dir_all(place.join(tree).join("sub")).unwrap();
        fs::write(place.join(tree).join("sub/file"), tree).unwrap();
        for name in ["", "sub", "sub/file"] {
            let path = place.join(tree).join(name);
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
        }
    }
    for name in ["there", "there/sub", "there/sub/file"] {
        set_xattr(&place.join(name), ACCESS, &acl(7, 7, 7, 7, 7));
    }
    set_xattr(&place.join("there/sub"), DEFAULT, &acl(7, 7, 7, 7, 7));
    // Older than the existing files, for -u; directories are entered nevertheless.
    copies(&place, &["-aTu", "tree", "there"]);
    assert_eq!(fs::metadata(place.join("there")).unwrap().mode(), 0o40700);
    copies(&place, &["-aT", "tree", "there"]);
    assert_eq!(describe(&place.join("there"), true), describe(&place.join("tree"), true));
}

fn rsync_finds_nothing(place: &Path) {
    if !has("rsync") {
        return;
    }
    let mut rsync = Command::new("rsync");
    rsync.args(["-naciAXH", "--devices", "--specials", "--delete", "tree/", "ours/"]);
    assert_eq!(texts(&output_of(rsync, place, b"")), (String::new(), String::new()));
}

#[test]
fn each_flag_copies_random_trees_as_gnus() {
    if !is_gnu() {
        return;
    }
    let mut differences = String::new();
    for (seed, flags) in [
        &["-r"][..],
        &["-rp"],
        &["-rd"],
        &["-rP"],
        &["-rv"],
        &["-r", "--preserve=mode"],
        &["-r", "--preserve=timestamps,links"],
        &["-r", "--preserve=ownership"],
        &["-a", "--no-preserve=mode"],
        &["-r", "--no-preserve=mode"],
        &["-rx"],
        &["-rl"],
        &["-rlv"],
        &["-r", "--attributes-only"],
        &["-r", "--sparse=always"],
        &["-r", "--sparse=never"],
        &["-r", "--reflink=never"],
        &["-r", "--preserve=xattr"],
        &["-a", "--no-preserve=all"],
        &["-r", "--reflink=auto"],
        &["-dR", "--preserve=all"],
        &["-rH"],
    ]
    .iter()
    .enumerate()
    {
        let arguments = [flags, &["tree", "copy"][..]].concat();
        differences += &compare("flags", &arguments, b"", Compared::Trees, |place| {
            random_tree(&place.join("tree"), seed as u64 + 100)
        });
    }
    assert_same(differences);
}

#[test]
fn each_flag_copies_onto_trees_as_gnus() {
    if !is_gnu() {
        return;
    }
    let mut differences = String::new();
    for (seed, flags) in [
        &["-rT"][..],
        &["-aT"],
        &["-rTf"],
        &["-rTn"],
        &["-rTu"],
        &["-rTb"],
        &["-aTb"],
        &["-rT", "--remove-destination"],
        &["-rTv", "--backup=numbered"],
        &["-rT", "-S.old"],
        &["-aTu"],
        &["-rT", "--preserve=links"],
        &["-rTbv"],
    ]
    .iter()
    .enumerate()
    {
        let arguments = [flags, &["tree", "there"][..]].concat();
        let keeps_mode = flags.iter().any(|flag| flag.starts_with("-a"));
        let compared = if keeps_mode { Compared::TreesOnto } else { Compared::Trees };
        // With -u, files of several names end differently, which docs/book/src/command/cp.md says.
        let is_update = flags.iter().any(|flag| flag.ends_with('u'));
        let make = if is_update { random_tree_without_links } else { random_tree };
        differences += &compare("onto", &arguments, b"", compared, |place| {
            make(&place.join("tree"), 300 + seed as u64);
            make(&place.join("there"), 300 + seed as u64 / 2);
        });
    }
    assert_same(differences);
}
