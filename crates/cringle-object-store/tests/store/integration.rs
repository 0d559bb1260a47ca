//! The tests that `object_store` has for all stores, in the selection that it runs for its own
//! `LocalFileSystem`.

use cringle::block::BlockIo;
use cringle_object_store::LocalStore;
use object_store::integration;
use std::sync::Arc;

async fn run_all(store: &LocalStore) {
    // Its upload is a `WriteMultipart`, which spawns tasks of tokio.
    integration::stream_get(store).await;
    run_without_tokio(store).await;
}

async fn run_without_tokio(store: &LocalStore) {
    integration::put_get_delete_list(store).await;
    integration::list_with_offset_exclusivity(store).await;
    integration::get_opts(store).await;
    integration::list_uses_directories_correctly(store).await;
    integration::list_with_delimiter(store).await;
    integration::rename_and_copy(store).await;
    integration::copy_if_not_exists(store).await;
    integration::copy_rename_nonexistent_object(store).await;
    integration::put_opts(store, false).await;
}

#[tokio::test]
async fn every_test_of_local_stores_passes() {
    let directory = tempfile::tempdir().unwrap();
    run_all(&LocalStore::new_with_prefix(directory.path()).unwrap()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn every_test_passes_on_two_workers() {
    let directory = tempfile::tempdir().unwrap();
    let io = Arc::new(BlockIo::builder().workers(2).build().unwrap());
    let builder = LocalStore::builder().prefix(directory.path()).block_io(io);
    run_all(&builder.build().unwrap()).await;
}

#[tokio::test]
async fn every_test_passes_with_fsync() {
    let directory = tempfile::tempdir().unwrap();
    let store = LocalStore::builder().prefix(directory.path()).fsync(true).build().unwrap();
    run_all(&store).await;
}

#[tokio::test]
async fn every_test_passes_with_small_chunks() {
    let directory = tempfile::tempdir().unwrap();
    let builder =
        LocalStore::builder().prefix(directory.path()).chunk_bytes(10_007).coalesce_gap(0);
    run_all(&builder.build().unwrap()).await;
}

#[test]
fn every_test_passes_without_tokio() {
    let directory = tempfile::tempdir().unwrap();
    let store = LocalStore::new_with_prefix(directory.path()).unwrap();
    futures_executor::block_on(run_without_tokio(&store));
}
