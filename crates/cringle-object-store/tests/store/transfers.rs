//! Copies and renames, and conditional calls where the file system has no hard links.

use crate::Fixture;
use cringle_object_store::LocalStore;
use cringle_testing::fuse::{ALWAYS, Faulty, Op, Rules};
use futures_executor::block_on;
use futures_util::future::{join, join_all};
use object_store::path::Path;
use object_store::{Error, ObjectStore, ObjectStoreExt, PutMode};
use std::io::ErrorKind;
use std::os::unix::fs::{MetadataExt, symlink};
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};

#[test]
fn conditional_calls_need_no_hard_links() {
    let base = tempfile::tempdir().unwrap();
    let Some(faulty) = Faulty::mount(base.path(), "mounted") else { return };
    let store = LocalStore::new_with_prefix(&faulty.at).unwrap();
    let location = |name: &str| Path::from(format!("victims/{name}"));
    let [one, two, three, four] = ["victim1", "victim2", "victim3", "victim4"].map(location);
    for errno in [libc::EPERM, libc::EOPNOTSUPP, libc::EMLINK] {
        faulty.set(Rules::failing(Op::Link, errno, 0, ALWAYS));
        faulty.clear();
        block_on(async {
            let create =
                |text: &'static str| store.put_opts(&one, text.into(), PutMode::Create.into());
            let exists = |e: Error| matches!(e, Error::AlreadyExists { .. });
            create("strand").await.unwrap();
            assert!(exists(create("rope").await.unwrap_err()));
            store.copy_if_not_exists(&one, &two).await.unwrap();
            assert!(exists(store.copy_if_not_exists(&one, &two).await.unwrap_err()));
            store.rename_if_not_exists(&one, &three).await.unwrap();
            assert!(exists(store.rename_if_not_exists(&two, &three).await.unwrap_err()));
            store.copy(&two, &four).await.unwrap();
            store.copy(&three, &four).await.unwrap();
            store.rename(&three, &four).await.unwrap();
        });
        assert_eq!(faulty.names("victims"), ["victim2", "victim4"]);
        for name in ["victims/victim2", "victims/victim4"] {
            assert_eq!(faulty.get(name).unwrap().0, b"strand");
        }
    }
}

#[test]
fn rename_onto_a_copy_removes_the_old_name() {
    let fixture = Fixture::new(|builder| builder);
    let (one, two) = (Path::from("a/one"), Path::from("b/two"));
    block_on(async {
        fixture.store.put(&one, "strand".into()).await.unwrap();
        fixture.store.copy(&one, &two).await.unwrap();
        // Onto itself it changes nothing.
        fixture.store.rename(&one, &one).await.unwrap();
        assert_eq!(fixture.files(), ["a/one", "b/two"]);
        fixture.store.rename(&one, &two).await.unwrap();
    });
    assert_eq!(fixture.files(), ["b/two"]);
    let two = fixture.directory.path().join("b/two");
    assert_eq!(std::fs::read(&two).unwrap(), b"strand");
    assert_eq!(std::fs::metadata(&two).unwrap().nlink(), 1);
}

#[test]
fn copies_at_once_leave_no_staging_file() {
    let fixture = Fixture::new(|builder| builder);
    let store = &fixture.store;
    let (one, other, to) = (Path::from("one"), Path::from("other"), Path::from("new/copy"));
    block_on(async {
        store.put(&one, "strand".into()).await.unwrap();
        store.put(&other, "rope".into()).await.unwrap();
        for _ in 0..20 {
            let from = |n| if n % 3 == 0 { &other } else { &one };
            let copies = join_all((0..30).map(|n| store.copy(from(n), &to))).await;
            copies.into_iter().for_each(Result::unwrap);
        }
        store.copy(&one, &"new".into()).await.unwrap_err();
        let bytes = store.get(&to).await.unwrap().bytes().await.unwrap();
        assert!(bytes == "strand" || bytes == "rope");
    });
    assert_eq!(fixture.files(), ["new/copy", "one", "other"]);
}

#[test]
fn puts_succeed_beside_deletes_of_the_prefix() {
    let fixture = Fixture::new(|builder| builder.automatic_cleanup(true));
    let store = &fixture.store;
    block_on(async {
        let (kept, deleted) = (Path::from("a/b/c/kept"), Path::from("a/b/c/deleted"));
        for _ in 0..1000 {
            store.put(&deleted, "strand".into()).await.unwrap();
            let (put, delete) = join(store.put(&kept, "rope".into()), store.delete(&deleted)).await;
            put.unwrap();
            delete.unwrap();
            store.delete(&kept).await.unwrap();
        }
    });
    assert!(fixture.files().is_empty());
}

/// `mkdir` finds a directory, and the look that follows does not: a delete has removed it.
#[test]
fn directory_that_is_removed_meanwhile_is_created_again() {
    let base = tempfile::tempdir().unwrap();
    let Some(faulty) = Faulty::mount(base.path(), "mounted") else { return };
    let store = LocalStore::new_with_prefix(&faulty.at).unwrap();
    let (from, to) = (Path::from("victims/victim"), Path::from("victims/victims/victim"));
    for call in 0..6 {
        faulty.set(Rules::default());
        faulty.clear();
        faulty.mkdir("victims");
        faulty.put("victims/victim", b"strand");
        faulty.set(Rules::failing(Op::Mkdir, libc::EEXIST, 0, 3));
        let outcome = block_on(async {
            let create = PutMode::Create.into();
            match call {
                0 => store.put(&to, "strand".into()).await.map(drop),
                1 => store.put_opts(&to, "strand".into(), create).await.map(drop),
                2 => store.copy(&from, &to).await,
                3 => store.copy_if_not_exists(&from, &to).await,
                4 => store.rename(&from, &to).await,
                _ => store.rename_if_not_exists(&from, &to).await,
            }
        });
        outcome.unwrap();
        assert_eq!(faulty.fired(), [Op::Mkdir; 3], "{call}");
        assert_eq!(faulty.get("victims/victims/victim").unwrap().0, b"strand", "{call}");
    }
}

#[test]
fn dangling_link_is_named_as_no_directory() {
    let fixture = Fixture::new(|builder| builder);
    symlink("nowhere", fixture.directory.path().join("link")).unwrap();
    let put = block_on(fixture.store.put(&"link/object".into(), "strand".into()));
    let text = put.unwrap_err().to_string();
    assert!(text.contains("/link: cannot create the directory: File exists"), "{text}");
}

#[test]
fn one_of_several_renames_of_an_object_succeeds() {
    let fixture = Fixture::new(|builder| builder);
    let store = &fixture.store;
    block_on(async {
        for _ in 0..100 {
            store.put(&"one".into(), "strand".into()).await.unwrap();
            let rename = async |n: u32| {
                store.rename_if_not_exists(&"one".into(), &format!("{n}/new").into()).await
            };
            let renames = join_all((0..6).map(rename)).await;
            let is_done: Vec<_> = (0..6).filter(|&n| renames[n].is_ok()).collect();
            assert_eq!(fixture.files(), [format!("{}/new", is_done[0])]);
            assert_eq!(is_done.len(), 1);
            let errors = renames.iter().filter_map(|rename| rename.as_ref().err());
            assert!(errors.into_iter().all(|e| matches!(e, Error::NotFound { .. })));
            store.delete(&format!("{}/new", is_done[0]).into()).await.unwrap();
        }
    });
}

#[test]
fn renames_need_no_call_that_replaces_nothing() {
    let base = tempfile::tempdir().unwrap();
    let Some(faulty) = Faulty::mount(base.path(), "mounted") else { return };
    let store = LocalStore::new_with_prefix(&faulty.at).unwrap();
    let [one, two, three] =
        ["victims/victim1", "victims/victim2", "victims/victim3"].map(Path::from);
    block_on(async {
        for errno in [libc::EINVAL, libc::EOPNOTSUPP] {
            faulty.set(Rules::default());
            faulty.clear();
            faulty.mkdir("victims");
            faulty.put("victims/victim1", b"strand");
            faulty.put("victims/victim2", b"rope");
            faulty.set(Rules::failing(Op::Rename, errno, 0, ALWAYS));
            let refused = store.rename_if_not_exists(&one, &two).await.unwrap_err();
            assert!(matches!(refused, Error::AlreadyExists { .. }), "{refused}");
            store.rename_if_not_exists(&one, &three).await.unwrap();
            assert_eq!(faulty.names("victims"), ["victim2", "victim3"]);
            // The first of the two renames is the one that is refused.
            faulty.set(Rules::failing(Op::Rename, errno, 0, 1));
            store.rename(&three, &one).await.unwrap();
            assert_eq!(faulty.fired(), [Op::Rename]);
            assert_eq!(faulty.names("victims"), ["victim1", "victim2"]);
        }
    });
}

#[test]
fn directories_are_not_renamed_as_objects() {
    let fixture = Fixture::new(|builder| builder);
    block_on(async {
        fixture.store.put(&"a/object".into(), "strand".into()).await.unwrap();
        fixture.store.rename_if_not_exists(&"a".into(), &"b".into()).await.unwrap_err();
    });
    assert_eq!(fixture.files(), ["a/object"]);
}

/// A hard link is the copy of another process, which finds the rename between two of its calls.
#[test]
fn copy_made_back_during_a_rename_stays() {
    let fixture = Fixture::new(|builder| builder);
    let path = |name| fixture.directory.path().join(name);
    for _ in 0..300 {
        block_on(fixture.store.put(&"one".into(), "strand".into())).unwrap();
        let is_renamed = AtomicBool::new(false);
        std::thread::scope(|s| {
            s.spawn(|| {
                while let Err(e) = std::fs::hard_link(path("two"), path("one")) {
                    assert_eq!(e.kind(), ErrorKind::NotFound);
                    assert!(!is_renamed.load(SeqCst) || !path("one").exists());
                }
            });
            let renamed = block_on(fixture.store.rename(&"one".into(), &"two".into()));
            is_renamed.store(true, SeqCst);
            renamed.unwrap();
        });
        assert_eq!(fixture.files(), ["one", "two"]);
        block_on(fixture.store.delete(&"two".into())).unwrap();
    }
}

#[test]
fn renames_that_create_remove_empty_directories() {
    for cleanup in [false, true] {
        let fixture = Fixture::new(|builder| builder.automatic_cleanup(cleanup).fsync(true));
        block_on(async {
            fixture.store.put(&"a/b/c".into(), "strand".into()).await.unwrap();
            fixture.store.rename_if_not_exists(&"a/b/c".into(), &"d/e".into()).await.unwrap();
        });
        assert_eq!(fixture.directory.path().join("a").exists(), !cleanup);
        assert_eq!(fixture.files(), ["d/e"]);
    }
}
