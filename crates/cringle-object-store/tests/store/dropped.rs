//! A future, stream or upload that is dropped leaves nothing behind. Closing the workers waits for
//! what it had started.

use crate::{Fixture, pattern};
use futures_executor::block_on;
use futures_util::TryStreamExt;
use object_store::path::Path;
use object_store::{ObjectStore, ObjectStoreExt, PutPayload};

/// Polls the future once, and drops it. (On a slow day what it started has ended by then.)
async fn start_and_drop(future: impl Future) {
    let mut future = std::pin::pin!(future);
    let _ = futures_util::poll!(&mut future);
}

fn with_object(len: usize) -> (Fixture, Path) {
    let fixture = Fixture::new(|builder| builder.chunk_bytes(1000));
    std::fs::write(fixture.directory.path().join("object"), pattern(len)).unwrap();
    (fixture, Path::from("object"))
}

#[test]
fn dropped_reads_close_their_descriptors() {
    let (fixture, location) = with_object(1 << 20);
    let ranges: Vec<_> = (0..20_000).map(|n| n * 50..n * 50 + 10).collect();
    for _ in 0..20 {
        block_on(start_and_drop(fixture.store.get_ranges(&location, &ranges)));
        block_on(start_and_drop(fixture.store.get(&location)));
        block_on(start_and_drop(fixture.store.get_range(&location, 5..9)));
    }
    fixture.io.close().unwrap();
    assert_eq!(fixture.descriptors(), 0);
}

#[test]
fn dropped_stream_closes_its_descriptor() {
    let (fixture, location) = with_object(1 << 20);
    block_on(async {
        let mut stream = fixture.store.get(&location).await.unwrap().into_stream();
        assert!(stream.try_next().await.unwrap().is_some());
        assert_eq!(fixture.descriptors(), 1);
        let mut next = std::pin::pin!(stream.try_next());
        let _ = futures_util::poll!(&mut next);
    });
    fixture.io.close().unwrap();
    assert_eq!(fixture.descriptors(), 0);
}

#[test]
fn dropped_put_is_completed_or_never_started() {
    let (fixture, _) = with_object(0);
    let payload = PutPayload::from(pattern(3 << 20));
    drop(fixture.store.put(&"never".into(), payload.clone()));
    for n in 0..20 {
        let location = Path::from(format!("started{n}"));
        block_on(start_and_drop(fixture.store.put(&location, payload.clone())));
    }
    fixture.io.close().unwrap();
    assert_eq!(fixture.descriptors(), 0);
    assert_eq!(fixture.files().len(), 21);
    assert!(!fixture.files().iter().any(|name| name.contains('#') || name == "never"));
    let whole = pattern(3 << 20);
    for n in 0..20 {
        let path = fixture.directory.path().join(format!("started{n}"));
        assert!(std::fs::read(path).unwrap() == whole);
    }
}

#[test]
fn dropped_creation_of_an_upload_removes_its_file() {
    let (fixture, location) = with_object(5);
    for _ in 0..20 {
        block_on(start_and_drop(fixture.store.put_multipart(&location)));
    }
    fixture.io.close().unwrap();
    assert_eq!(fixture.files(), ["object"]);
    assert_eq!(fixture.descriptors(), 0);
}

#[test]
fn dropped_upload_removes_its_file() {
    let (fixture, location) = with_object(5);
    block_on(async {
        for parts in 0..4 {
            let mut upload = fixture.store.put_multipart(&location).await.unwrap();
            for n in 0..parts {
                let part = upload.put_part(pattern(1 << 20).into());
                if n == 0 {
                    part.await.unwrap();
                } else {
                    start_and_drop(part).await;
                }
            }
        }
    });
    fixture.io.close().unwrap();
    assert_eq!(fixture.files(), ["object"]);
    assert_eq!(fixture.descriptors(), 0);
}

#[test]
fn dropped_completion_publishes_the_object() {
    let (fixture, location) = with_object(5);
    block_on(async {
        let mut upload = fixture.store.put_multipart(&location).await.unwrap();
        upload.put_part("strand".into()).await.unwrap();
        start_and_drop(upload.complete()).await;
    });
    fixture.io.close().unwrap();
    assert_eq!(fixture.files(), ["object"]);
    assert_eq!(std::fs::read(fixture.directory.path().join("object")).unwrap(), b"strand");
}

#[test]
fn upload_removes_its_file_after_the_workers_ended() {
    let (fixture, location) = with_object(5);
    let upload = block_on(fixture.store.put_multipart(&location)).unwrap();
    fixture.io.close().unwrap();
    assert_eq!(fixture.files(), ["object", "object#1"]);
    drop(upload);
    assert_eq!(fixture.files(), ["object"]);
}

#[test]
fn completion_after_the_workers_ended_removes_the_file() {
    let (fixture, location) = with_object(5);
    let mut upload = block_on(fixture.store.put_multipart(&location)).unwrap();
    fixture.io.close().unwrap();
    block_on(upload.complete()).unwrap_err();
    assert_eq!(fixture.files(), ["object"]);
}

#[test]
fn store_may_be_dropped_before_its_upload() {
    let (fixture, location) = with_object(5);
    let Fixture { directory, io, store } = fixture;
    let mut upload = block_on(store.put_multipart(&location)).unwrap();
    drop((store, io));
    block_on(async {
        upload.put_part("rope".into()).await.unwrap();
        upload.complete().await.unwrap();
    });
    assert_eq!(std::fs::read(directory.path().join("object")).unwrap(), b"rope");
}
