//! ACLs: those of the source if the mode is preserved, else those of the directory.

use crate::support::*;
use crate::trees::{ACCESS, DEFAULT, acl, describe, mkfifo, set_xattr, xattrs};
use cringle_testing::fuse::{Faulty, Rules};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

/// Makes a tree, and a directory with a default ACL. Returns false if the file system has no ACLs.
fn with_default_acl(place: &Path) -> bool {
    for tree in ["tree", "there"] {
        fs::create_dir_all(place.join(tree).join("sub/below")).unwrap();
    }
    for (name, mode) in
        [("open", 0o666), ("closed", 0o600), ("sub/run", 0o4755), ("sub/below/read", 0o444)]
    {
        let path = place.join("tree").join(name);
        fs::write(&path, name).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
    }
    for (name, mode) in [("sub", 0o1777), ("sub/below", 0o770)] {
        let path = place.join("tree").join(name);
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
    }
    mkfifo(&place.join("tree/sub/fifo"));
    fs::write(place.join("tree/with"), "an ACL of its own").unwrap();
    fs::write(place.join("there/closed"), "there before").unwrap();
    set_xattr(&place.join("tree/with"), ACCESS, &acl(6, 4, 2, 6, 1));
    set_xattr(&place.join("there/closed"), ACCESS, &acl(6, 7, 7, 7, 7));
    set_xattr(&place.join("there/sub"), DEFAULT, &acl(7, 5, 4, 5, 1));
    set_xattr(&place.join("there"), DEFAULT, &acl(7, 6, 5, 7, 0))
}

#[test]
fn default_acls_apply_as_with_gnus() {
    let probe = tempfile::tempdir_in(crate::common::place("cp-acl-probe")).unwrap();
    if !is_gnu() || !with_default_acl(probe.path()) {
        eprintln!("skipped: no ACLs here");
        return;
    }
    let mut differences = String::new();
    for flags in [
        &["-r"][..],
        &["-rp"],
        &["-a"],
        &["-r", "--preserve=mode"],
        &["-r", "--preserve=ownership"],
        &["-r", "--preserve=xattr"],
        &["-r", "--no-preserve=mode"],
        &["-a", "--no-preserve=mode"],
        &["-r", "--remove-destination"],
        &["-a", "--remove-destination"],
    ] {
        for names in
            [&["-T", "tree", "there"][..], &["tree", "there"], &["--parents", "tree/sub", "there"]]
        {
            let arguments = [flags, names].concat();
            differences += &compare("acl", &arguments, b"", Compared::TreesOnto, |place| {
                with_default_acl(place);
            });
        }
    }
    assert_same(differences);
}

#[test]
fn an_archive_has_only_its_sources_acls() {
    let base = tempfile::tempdir_in(crate::common::place("cp-acl-exact")).unwrap();
    if !with_default_acl(base.path()) {
        eprintln!("skipped: no ACLs here");
        return;
    }
    copies(base.path(), &["-a", "tree", "there"]);
    let of = |name: &str| describe(&base.path().join(name), true);
    assert_eq!(of("there/tree"), of("tree"));
}

#[test]
fn acls_that_no_list_contains_are_copied() {
    let base = tempfile::tempdir_in(crate::common::place("cp-acl-unlisted")).unwrap();
    let given = acl(6, 4, 2, 6, 0);
    let expected = base.path().join("expected");
    fs::write(&expected, "text").unwrap();
    if !set_xattr(&expected, ACCESS, &given) {
        eprintln!("skipped: no ACLs here");
        return;
    }
    let Some(faulty) = Faulty::mount(base.path(), "faulty") else { return };
    faulty.put("file", b"text");
    faulty.set(Rules { unlisted_acl: Some(given), ..Rules::default() });
    copies(base.path(), &["-a", "faulty/file", "copy"]);
    assert_eq!(xattrs(&base.path().join("copy")), xattrs(&expected));
}

#[test]
fn no_preserve_mode_keeps_what_a_set_group_id_directory_gives() {
    let place = crate::common::place("cp-set-group-id");
    fs::create_dir_all(place.join("tree/sub")).unwrap();
    fs::write(place.join("tree/file"), "text").unwrap();
    fs::create_dir(place.join("shared")).unwrap();
    fs::set_permissions(place.join("shared"), fs::Permissions::from_mode(0o2755)).unwrap();
    for flags in [&["-r"][..], &["-r", "--no-preserve=mode"], &["-a", "--no-preserve=mode"]] {
        copies(&place, &[flags, &["-T", "tree", "shared/copy"]].concat());
        let mode = |name: &str| fs::metadata(place.join(name)).unwrap().permissions().mode();
        for name in ["shared/copy", "shared/copy/sub"] {
            assert_eq!(mode(name) & 0o7000, 0o2000, "{flags:?}: {name}");
        }
        assert_eq!(mode("shared/copy/file") & 0o7000, 0, "{flags:?}");
        fs::remove_dir_all(place.join("shared/copy")).unwrap();
    }
}
