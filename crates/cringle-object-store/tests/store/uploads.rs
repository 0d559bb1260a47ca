//! Multipart uploads.

use crate::{Fixture, essence, pattern};
use futures_executor::block_on;
use futures_util::future::join_all;
use object_store::path::Path;
use object_store::{MultipartUpload, ObjectStore, ObjectStoreExt};

async fn begin(fixture: &Fixture, name: &str) -> Box<dyn MultipartUpload> {
    fixture.store.put_multipart(&Path::from(name)).await.unwrap()
}

fn parts(bytes: &[u8]) -> impl Iterator<Item = Vec<u8>> {
    bytes.chunks(1000).map(<[u8]>::to_vec)
}

#[test]
fn parts_are_in_the_order_of_their_calls() {
    let fixture = Fixture::new(|builder| builder);
    let bytes = pattern(123_456);
    block_on(async {
        let mut upload = begin(&fixture, "a/object").await;
        let mut writes: Vec<_> = parts(&bytes).map(|part| upload.put_part(part.into())).collect();
        writes.reverse();
        join_all(writes).await.into_iter().for_each(Result::unwrap);
        // The object does not exist yet, and its staging file is not listed.
        assert!(fixture.store.head(&"a/object".into()).await.is_err());
        assert_eq!(fixture.files(), ["a/object#1"]);
        let listed = fixture.store.list_with_delimiter(Some(&"a".into())).await.unwrap();
        assert_eq!(listed.objects, []);
        let put = upload.complete().await.unwrap();
        let meta = fixture.store.head(&"a/object".into()).await.unwrap();
        assert_eq!(put.e_tag, meta.e_tag);
        let got = fixture.store.get(&"a/object".into()).await.unwrap().bytes().await.unwrap();
        assert!(got == bytes);
        assert_eq!(essence(&upload.complete().await.unwrap_err()), ENDED);
        assert_eq!(essence(&upload.abort().await.unwrap_err()), ENDED);
        assert_eq!(essence(&upload.put_part("late".into()).await.unwrap_err()), ENDED);
    });
    assert_eq!(fixture.files(), ["a/object"]);
}

const ENDED: &str = "the upload has ended: it was completed or aborted";

#[test]
fn abort_removes_the_staging_file() {
    let fixture = Fixture::new(|builder| builder);
    block_on(async {
        let mut upload = begin(&fixture, "object").await;
        upload.put_part("strand".into()).await.unwrap();
        assert_eq!(fixture.files(), ["object#1"]);
        upload.abort().await.unwrap();
        assert_eq!(fixture.files(), Vec::<String>::new());
        assert_eq!(essence(&upload.complete().await.unwrap_err()), ENDED);
    });
}

#[test]
fn last_completion_wins_among_uploads() {
    let fixture = Fixture::new(|builder| builder);
    block_on(async {
        let mut first = begin(&fixture, "object").await;
        let mut second = begin(&fixture, "object").await;
        let staging = fixture.files();
        assert!(staging.len() == 2 && staging[0] == "object#1", "{staging:?}");
        first.put_part("first".into()).await.unwrap();
        second.put_part("second".into()).await.unwrap();
        second.complete().await.unwrap();
        first.complete().await.unwrap();
        let got = fixture.store.get(&"object".into()).await.unwrap().bytes().await.unwrap();
        assert_eq!(got, "first");
    });
    assert_eq!(fixture.files(), ["object"]);
}

/// A name of 255 bytes is the longest: it has space for two digits.
#[test]
fn long_name_is_written_after_contended_ones() {
    let fixture = Fixture::new(|builder| builder);
    let name = "n".repeat(252);
    block_on(async {
        for (name, count) in [("short", 120), (&name, 30), (&name, 3)] {
            let mut uploads = Vec::new();
            for _ in 0..count {
                uploads.push(begin(&fixture, name).await);
            }
            for mut upload in uploads {
                upload.abort().await.unwrap();
            }
        }
        let _first = begin(&fixture, &name).await;
        fixture.store.put(&Path::from(&*name), "strand".into()).await.unwrap();
        let too_long = Path::from("n".repeat(254));
        assert!(fixture.store.put(&too_long, "strand".into()).await.is_err());
    });
}

#[test]
fn completion_waits_for_parts_in_progress() {
    let fixture = Fixture::new(|builder| builder);
    let bytes = pattern(32 << 20);
    block_on(async {
        for round in 0..10 {
            let name = format!("object{round}");
            let mut upload = begin(&fixture, &name).await;
            let mut part = upload.put_part(bytes.clone().into());
            let _ = futures_util::poll!(&mut part);
            drop(part);
            upload.complete().await.unwrap();
            assert!(std::fs::read(fixture.directory.path().join(name)).unwrap() == bytes);
        }
    });
}

#[test]
fn failed_completion_removes_the_staging_file() {
    let fixture = Fixture::new(|builder| builder);
    block_on(async {
        let mut upload = begin(&fixture, "object").await;
        upload.put_part("strand".into()).await.unwrap();
        std::fs::create_dir(fixture.directory.path().join("object")).unwrap();
        upload.complete().await.unwrap_err();
    });
    fixture.io.close().unwrap();
    assert_eq!(fixture.files(), Vec::<String>::new());
}

/// Else many uploads of one object would take a time that grows with their square.
#[test]
fn staging_file_tries_no_number_that_another_had() {
    let fixture = Fixture::new(|builder| builder);
    let _uploads = block_on(async {
        let mut uploads = Vec::new();
        for name in ["a"; 20].into_iter().chain(["b"; 2]) {
            uploads.push(begin(&fixture, name).await);
        }
        uploads
    });
    let numbers_of = |name: &str| -> Vec<u64> {
        let files = fixture.files();
        let numbers = files.iter().filter_map(|file| file.strip_prefix(name)?.strip_prefix('#'));
        numbers.map(|number| number.parse().unwrap()).collect()
    };
    let (of_a, of_b) = (numbers_of("a"), numbers_of("b"));
    assert_eq!((of_a.len(), of_b.len()), (20, 2));
    assert!(of_b.contains(&1) && of_b.iter().max() > of_a.iter().max(), "{of_a:?}, {of_b:?}");
}
