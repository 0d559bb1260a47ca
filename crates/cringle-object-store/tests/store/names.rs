//! Locations and files: `LocalFileSystem`'s rules.

use crate::{Fixture, essence};
use cringle_object_store::LocalStore;
use futures_executor::block_on;
use futures_util::TryStreamExt;
use object_store::local::LocalFileSystem;
use object_store::path::Path;
use object_store::{GetOptions, ObjectStore, ObjectStoreExt};
use std::os::unix::fs::symlink;

const NAMES: [&str; 16] = [
    "plain",
    "with space",
    "percent%20encoded",
    "100%",
    "über/Öl",
    "日本語",
    "a/b/c",
    "hash#tag",
    "hash#",
    "staged#1",
    "a#2/b",
    "staged#1#2",
    "colon:and|bar",
    "back\\slash",
    "tilde~",
    "new\nline",
];

/// Everything that a store returns for a name, as text.
async fn walk(store: &dyn ObjectStore, name: &str) -> Vec<String> {
    let location = Path::from(name);
    let mut steps = Vec::new();
    let mut note = |step: &str, outcome: Result<String, object_store::Error>| {
        steps.push(format!("{step}: {:?}", outcome.map_err(|e| essence(&e))));
    };
    let put = store.put(&location, "strand".into()).await;
    note("put", put.map(|put| put.e_tag.is_some().to_string()));
    let list: Result<Vec<_>, _> = store.list(None).map_ok(|meta| meta.location).try_collect().await;
    note("list", list.map(|all| format!("{all:?}")));
    note("get", store.get(&location).await.map(|got| got.meta.location.to_string()));
    note("ranges", store.get_ranges(&location, &[1..3, 2..6]).await.map(|all| format!("{all:?}")));
    let upload = store.put_multipart(&location).await;
    note("upload", upload.map(|_| String::new()));
    note("copy", store.copy(&location, &"copied".into()).await.map(|()| String::new()));
    note("rename", store.rename(&location, &"moved/it".into()).await.map(|()| String::new()));
    note("delete", store.delete(&"moved/it".into()).await.map(|()| String::new()));
    note("missing", store.get(&location).await.map(|got| got.meta.location.to_string()));
    steps
}

#[test]
fn each_name_is_treated_as_by_local_file_system() {
    for name in NAMES {
        let fixture = Fixture::new(|builder| builder);
        let ours = block_on(walk(&fixture.store, name));
        fixture.io.close().unwrap();
        let our_files = fixture.files();
        std::fs::remove_dir_all(fixture.directory.path()).unwrap();
        std::fs::create_dir(fixture.directory.path()).unwrap();
        let theirs = LocalFileSystem::new_with_prefix(fixture.directory.path()).unwrap();
        assert_eq!(ours, block_on(walk(&theirs, name)), "{name:?}");
        assert_eq!(our_files, fixture.files(), "{name:?}");
    }
}

#[test]
fn symlinks_are_followed() {
    let (fixture, outside) = (Fixture::new(|builder| builder), tempfile::tempdir().unwrap());
    let theirs = LocalFileSystem::new_with_prefix(fixture.directory.path()).unwrap();
    let (root, outer) = (fixture.directory.path(), outside.path());
    std::fs::write(outer.join("far"), "far away").unwrap();
    symlink(outer.join("far"), root.join("link")).unwrap();
    symlink(outer, root.join("door")).unwrap();
    symlink(outer.join("nothing"), root.join("broken")).unwrap();
    block_on(async {
        for name in ["link", "door/far", "broken", "door/none"] {
            let read = async |store: &dyn ObjectStore| {
                let got = store.get(&name.into()).await;
                let meta = got.map(|got| got.meta).map_err(|e| essence(&e));
                let ranges = store.get_ranges(&name.into(), &[4..8, 0..1]).await;
                (meta, ranges.map_err(|e| essence(&e)))
            };
            assert_eq!(read(&fixture.store).await, read(&theirs).await, "{name}");
        }
        // A new object takes the link's place, not its target's.
        fixture.store.put(&"link".into(), "near".into()).await.unwrap();
        assert!(!root.join("link").is_symlink());
        fixture.store.put(&"door/new".into(), "through".into()).await.unwrap();
    });
    assert_eq!(std::fs::read(outer.join("far")).unwrap(), b"far away");
    assert_eq!(std::fs::read(outer.join("new")).unwrap(), b"through");
}

#[test]
fn empty_directories_are_deleted_if_asked() {
    for cleanup in [false, true] {
        let fixture = Fixture::new(|builder| builder.automatic_cleanup(cleanup));
        block_on(async {
            fixture.store.put(&"a/b/c".into(), "strand".into()).await.unwrap();
            fixture.store.delete(&"a/b/c".into()).await.unwrap();
        });
        assert_eq!(fixture.directory.path().join("a").exists(), !cleanup);
    }
}

#[test]
fn closed_workers_are_an_error_of_each_call() {
    let fixture = Fixture::new(|builder| builder);
    let location = Path::from("object");
    block_on(async {
        fixture.store.put(&location, "strand".into()).await.unwrap();
        // It reads nothing yet.
        let head = GetOptions { head: true, ..Default::default() };
        let got = fixture.store.get_opts(&location, head).await.unwrap();
        fixture.io.close().unwrap();
        let errors = [
            got.bytes().await.err(),
            fixture.store.get(&location).await.err(),
            fixture.store.get_ranges(&location, &[]).await.err(),
            fixture.store.put(&location, "rope".into()).await.err(),
            fixture.store.put_multipart(&location).await.err(),
        ];
        for error in errors {
            assert!(error.unwrap().to_string().contains("the BlockIo is closed"));
        }
    });
}

#[test]
fn missing_prefix_is_an_error() {
    assert!(LocalStore::new_with_prefix("/nowhere/at/all").is_err());
}

#[test]
fn display_names_the_directory() {
    let store = LocalStore::new_with_prefix("/usr").unwrap();
    assert_eq!(store.to_string(), "LocalStore(LocalFileSystem(file:///usr))");
}
