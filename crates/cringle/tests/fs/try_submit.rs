//! `Batch::try_submit`: a batch either needs no wait, or is returned with the results that it has.

use cringle::block::{Batch, BlockIo, MappedFile, SigbusHandler};
use cringle::fs::File;
use cringle::runtime::{self, Driver, DriverChoice};
use cringle_testing::disk::{directory, pattern};

const PAGE: usize = 4096;

fn mapped_file(bytes: &[u8]) -> (tempfile::TempDir, MappedFile) {
    let directory = directory();
    let path = directory.path().join("file");
    std::fs::write(&path, bytes).unwrap();
    let file = File::open(&path).unwrap();
    (directory, MappedFile::new(file, SigbusHandler::install().unwrap()).unwrap())
}

#[test]
fn reads_of_resident_pages_need_no_submit() {
    // The last page ends in zeros, whose copy counts only within the file.
    let mut bytes = pattern(16 * PAGE);
    bytes[15 * PAGE + 100..].fill(0);
    let (_directory, mapped) = mapped_file(&bytes);
    // A look is used for a limited time, which may be over on a busy machine.
    loop {
        mapped.refresh();
        let mut pages = vec![0xAA; bytes.len()];
        let mut batch = Batch::new();
        for (page, offset) in pages.chunks_mut(PAGE).zip((0..).step_by(PAGE)) {
            batch.read_mapped(&mapped, page, offset);
        }
        if let Ok(results) = batch.try_submit() {
            assert!(results.iter().all(|count| matches!(count, Ok(PAGE))));
            assert!(pages == bytes);
            return;
        }
    }
}

#[test]
fn rest_of_a_tried_batch_is_submitted() {
    let bytes = pattern(4 * PAGE + 10);
    let (directory, mapped) = mapped_file(&bytes);
    let plain = File::open(directory.path().join("file")).unwrap();
    let io = BlockIo::builder().build().unwrap();
    mapped.refresh();
    let mut bufs = vec![vec![0; PAGE]; 6];
    let [first, last, beyond, other, negative, exact] =
        bufs.get_disjoint_mut([0, 1, 2, 3, 4, 5]).unwrap();
    let mut batch = Batch::new();
    batch.read_mapped(&mapped, first, 0);
    batch.read_mapped(&mapped, last, 4 * PAGE as u64);
    batch.read_mapped(&mapped, beyond, 1 << 40);
    batch.read_mapped(&mapped, negative, u64::MAX);
    batch.read_exact_mapped(&mapped, exact, PAGE as u64);
    let batch = batch.try_submit().expect_err("the end of the file is not copied");
    assert_eq!(batch.len(), 5);
    let results: Vec<_> = io.submit(batch).unwrap().into_iter().collect();
    let counts: Vec<_> = results.iter().map(|count| count.as_ref().ok().copied()).collect();
    assert_eq!(counts, [Some(PAGE), Some(10), Some(0), None, Some(PAGE)]);
    assert_eq!(results[3].as_ref().unwrap_err().raw_os_error(), Some(libc::EINVAL));

    let mut batch = Batch::new();
    batch.read_mapped(&mapped, other, 4 * PAGE as u64);
    assert!(batch.try_submit().is_err(), "the end of the file is not copied");

    let mut batch = Batch::new();
    batch.read(&plain, other, PAGE as u64);
    assert!(batch.try_submit().is_err(), "a read of a File may wait");
    assert_eq!(Batch::new().try_submit().expect("no operation is left").iter().count(), 0);
    assert!(bufs[0] == bytes[..PAGE] && bufs[1][..10] == bytes[4 * PAGE..]);
    assert!(bufs[5] == bytes[PAGE..2 * PAGE]);
}

#[test]
fn builder_chooses_the_driver() {
    let io = BlockIo::builder().driver(DriverChoice::Epoll).build().unwrap();
    let (sender, receiver) = std::sync::mpsc::channel();
    let batch = cringle::block::OwnedBatch::<Vec<u8>>::new();
    io.submit_then(batch, move |_| sender.send(runtime::driver()).unwrap()).unwrap();
    assert!(matches!(receiver.recv().unwrap(), Driver::Epoll(why) if why.was_chosen()));
}
