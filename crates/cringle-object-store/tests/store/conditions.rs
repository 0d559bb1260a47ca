//! Conditions, modes and attributes.

use crate::{Fixture, essence, pattern};
use futures_executor::block_on;
use futures_util::future::join_all;
use object_store::local::LocalFileSystem;
use object_store::path::Path;
use object_store::{
    Attribute, Attributes, Error, GetOptions, ObjectStore, ObjectStoreExt, PutMode,
    PutMultipartOptions, PutOptions, PutPayload, UpdateVersion,
};
use std::time::Duration;

#[test]
fn metadata_and_conditions_are_those_of_local_file_system() {
    let fixture = Fixture::new(|builder| builder);
    let theirs = LocalFileSystem::new_with_prefix(fixture.directory.path()).unwrap();
    let location = Path::from("object");
    block_on(async {
        let put = fixture.store.put(&location, "strand".into()).await.unwrap();
        let meta = theirs.head(&location).await.unwrap();
        assert_eq!(fixture.store.head(&location).await.unwrap(), meta);
        assert_eq!(put.e_tag, meta.e_tag);
        let (tag, time) = (meta.e_tag.clone(), meta.last_modified);
        let (before, after) = (time - Duration::from_secs(1), time + Duration::from_secs(1));
        let new = GetOptions::new;
        let cases = [
            new().with_if_match(tag.clone()),
            new().with_if_match(Some("*")),
            new().with_if_match(Some("\"other\"")),
            new().with_if_none_match(tag.clone()),
            new().with_if_none_match(Some("\"other\"")),
            new().with_if_modified_since(Some(before)),
            new().with_if_modified_since(Some(after)),
            new().with_if_unmodified_since(Some(before)),
            new().with_if_unmodified_since(Some(after)),
            new().with_if_match(tag).with_if_unmodified_since(Some(before)),
            new().with_version(Some("1")),
        ];
        for options in cases {
            let ours = fixture.store.get_opts(&location, options.clone()).await;
            let theirs = theirs.get_opts(&location, options.clone()).await;
            let ours = ours.map(|got| got.meta).map_err(|e| e.to_string());
            let theirs = theirs.map(|got| got.meta).map_err(|e| e.to_string());
            assert_eq!(ours, theirs, "{options:?}");
        }
    });
}

#[test]
fn create_succeeds_once_among_many_at_once() {
    let fixture = Fixture::new(|builder| builder);
    let location = Path::from("new/object");
    block_on(async {
        let puts = (0..50u8).map(|n| {
            let payload = PutPayload::from(vec![n; 1000]);
            fixture.store.put_opts(&location, payload, PutMode::Create.into())
        });
        let outcomes = join_all(puts).await;
        let winners: Vec<_> = (0..50u8).filter(|&n| outcomes[n as usize].is_ok()).collect();
        assert_eq!(winners.len(), 1);
        let refused = |e: &Error| matches!(e, Error::AlreadyExists { .. });
        assert!(outcomes.iter().filter_map(|put| put.as_ref().err()).all(refused));
        let bytes = fixture.store.get(&location).await.unwrap().bytes().await.unwrap();
        assert_eq!(bytes, vec![winners[0]; 1000]);
    });
    assert_eq!(fixture.files(), ["new/object"]);
}

#[test]
fn updates_and_attributes_are_not_implemented() {
    let fixture = Fixture::new(|builder| builder);
    let location = Path::from("object");
    block_on(async {
        let update = PutMode::Update(UpdateVersion { e_tag: None, version: None });
        let put = fixture.store.put_opts(&location, "strand".into(), update.into()).await;
        assert_eq!(essence(&put.unwrap_err()), "not implemented");
        let attributes = Attributes::from_iter([(Attribute::ContentType, "text/plain")]);
        let options = PutOptions { attributes: attributes.clone(), ..Default::default() };
        let put = fixture.store.put_opts(&location, "strand".into(), options).await;
        assert_eq!(essence(&put.unwrap_err()), "not implemented");
        let options = PutMultipartOptions { attributes, ..Default::default() };
        let put = fixture.store.put_multipart_opts(&location, options).await;
        assert_eq!(essence(&put.unwrap_err()), "not implemented");
    });
    assert_eq!(fixture.files(), Vec::<String>::new());
}

#[test]
fn payloads_of_any_shape_are_written() {
    let fixture = Fixture::new(|builder| builder);
    let shapes: [Vec<usize>; 6] = [
        vec![],
        vec![0],
        vec![0, 5, 0, 7],
        vec![100; 1000],
        vec![5 << 20, 1, 3 << 20, 2 << 20],
        vec![1, 9 << 20, 1],
    ];
    for shape in shapes {
        let parts = shape.iter().map(|&len| pattern(len).into());
        let payload = PutPayload::from_iter(parts.collect::<Vec<bytes::Bytes>>());
        let whole: Vec<u8> = payload.iter().flatten().copied().collect();
        block_on(fixture.store.put(&"object".into(), payload)).unwrap();
        assert!(std::fs::read(fixture.directory.path().join("object")).unwrap() == whole);
    }
}

#[test]
fn failed_put_leaves_no_staging_file() {
    let fixture = Fixture::new(|builder| builder);
    let theirs = LocalFileSystem::new_with_prefix(fixture.directory.path()).unwrap();
    block_on(fixture.store.put(&"directory/object".into(), "strand".into())).unwrap();
    for mode in [PutMode::Overwrite, PutMode::Create] {
        for name in ["directory", "directory/object/below"] {
            let put = |store: &dyn ObjectStore| {
                let location = Path::from(name);
                let put = store.put_opts(&location, "rope".into(), mode.clone().into());
                essence(&block_on(put).unwrap_err())
            };
            assert_eq!(put(&fixture.store), put(&theirs), "{name}, {mode:?}");
        }
    }
    assert_eq!(fixture.files(), ["directory/object"]);
}
