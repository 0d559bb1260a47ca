//! With `fsync`, the bytes of an object are on the disk when the call returns.

use crate::{Fixture, pattern};
use futures_executor::block_on;
use object_store::ObjectStoreExt;
use std::os::fd::AsRawFd;
use std::path::Path;

/// Returns how many pages of the file have not been written to the disk, if the kernel can say.
fn unwritten_pages(path: &Path) -> Option<u64> {
    const CACHESTAT: i64 = 451;
    let file = std::fs::File::open(path).unwrap();
    let range = [0u64; 2];
    // Pages in the cache, dirty, in writeback, evicted, recently evicted.
    let mut counts = [0u64; 5];
    // SAFETY: the pointers are to memory of the sizes that the call reads and writes.
    let result = unsafe {
        libc::syscall(CACHESTAT, file.as_raw_fd(), range.as_ptr(), counts.as_mut_ptr(), 0)
    };
    (result == 0).then_some(counts[1] + counts[2])
}

async fn write_both(fixture: &Fixture) -> [Option<u64>; 2] {
    fixture.store.put(&"put".into(), pattern(1 << 20).into()).await.unwrap();
    let put = unwritten_pages(&fixture.directory.path().join("put"));
    let mut upload = fixture.store.put_multipart(&"uploaded".into()).await.unwrap();
    upload.put_part(pattern(1 << 20).into()).await.unwrap();
    upload.complete().await.unwrap();
    [put, unwritten_pages(&fixture.directory.path().join("uploaded"))]
}

#[test]
fn objects_are_on_the_disk_with_fsync() {
    // Where this returns zeroes, as on tmpfs, the test proves nothing.
    let without = block_on(write_both(&Fixture::new(|builder| builder)));
    let with = block_on(write_both(&Fixture::new(|builder| builder.fsync(true))));
    println!("pages that are not on the disk: {without:?}; with fsync: {with:?}");
    assert!(with.into_iter().flatten().all(|pages| pages == 0));
}
