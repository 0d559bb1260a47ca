//! The engine on a platform whose disk is a list of calls.

use super::*;
use crate::db::store::Store;
use std::cell::Cell;

/// A disk that has each page as it was built, keeps no write, and fails on demand.
struct Disk {
    tree: Tree,
    written: RefCell<Vec<u32>>,
    reads_left: Cell<usize>,
}

impl Bytes for Vec<u8> {
    fn bytes(&mut self) -> &mut [u8] {
        self
    }
}

impl Platform for Disk {
    type Page = Vec<u8>;
    type Token = ();
    type Cell<T> = RefCell<T>;

    fn read(&self, number: u32, page: &mut Vec<u8>) -> io::Result<()> {
        let left = self.reads_left.get().checked_sub(1);
        self.reads_left.set(left.ok_or_else(|| io::Error::other("the disk is broken"))?);
        self.tree.fill(number, page);
        Ok(())
    }

    fn write(&self, pages: &[(u32, &Vec<u8>)]) -> io::Result<()> {
        self.written.borrow_mut().extend(pages.iter().map(|(number, _)| *number));
        Ok(())
    }

    fn token(&self) {}

    fn wait(&self) {
        panic!("a single transaction found a busy page");
    }

    fn wake(&self, (): ()) {}
}

/// A tree of 70 pages and a pool of 8. The files are below the target directory, which is on a
/// disk.
fn job(durable: bool) -> Job {
    let program = std::env::current_exe().unwrap();
    let tree = Tree::within(70, 1);
    let store = Store::create(program.parent().unwrap(), 1 << 20);
    Job {
        workload: Workload::new(&tree, 100, 1),
        store: store.unwrap_or_else(|failure| panic!("{failure}")),
        frames: 8,
        fibers: 1,
        evict_batch: 1,
        durable,
        tree,
    }
}

fn engine(job: &Job, reads: usize) -> Engine<'_, Disk> {
    let written = RefCell::default();
    let disk = Disk { tree: job.tree.clone(), written, reads_left: Cell::new(reads) };
    let pages = std::iter::repeat_with(|| vec![0; PAGE_BYTES]);
    Engine::new(job, disk, pages, Eviction::ByTransactions { batch: 1 }).unwrap()
}

#[test]
fn a_page_is_written_after_the_records_of_its_changes() {
    let job = job(true);
    let engine = engine(&job, 0);
    let record = engine.with_page(job.tree.root(), |_| {
        let record = engine.wal.record(7, 7)?;
        Ok((record, Some(record)))
    });
    let record = record.unwrap();
    assert!(engine.wal.end() <= record, "nobody has waited for it");
    engine.evict(job.frames).unwrap();
    assert_eq!(engine.platform.written.borrow().len(), job.frames);
    assert!(engine.wal.end() > record);
}

#[test]
fn a_failed_read_ends_the_transactions() {
    let job = job(false);
    let engine = engine(&job, 3);
    assert_eq!(engine.work().unwrap_err().to_string(), "the disk is broken");
    assert_eq!(engine.work().unwrap(), [0; 0], "the others are not begun");
    let refused = engine.with_page(0, |_| Ok(((), None))).unwrap_err();
    assert_eq!(refused.to_string(), GAVE_UP);
}

#[test]
fn a_frame_in_use_is_refused_to_others() {
    let job = job(false);
    let engine = engine(&job, 0);
    let Found::Resident(frame) = engine.pool.lock().find(job.tree.root()) else {
        panic!("the root is in the pool")
    };
    let memory = engine.memory(frame).unwrap();
    let refused = engine.with_page(job.tree.root(), |_| Ok(((), None))).unwrap_err();
    assert!(refused.to_string().contains("used by two transactions"), "{refused}");
    drop(memory);
    engine.with_page(job.tree.root(), |_| Ok(((), None))).unwrap();
}

#[test]
fn the_bytes_of_another_page_are_refused() {
    let tree = Tree::within(70, 1);
    let mut bytes = vec![0; PAGE_BYTES];
    tree.fill(5, &mut bytes);
    assert!(check_number(5, &bytes).is_ok());
    let refused = check_number(6, &bytes).unwrap_err();
    assert_eq!(refused.to_string(), "page 6 contains page 5");
}

#[test]
fn a_part_of_a_page_is_refused() {
    assert!(whole(PAGE_BYTES, 1).is_ok());
    let refused = whole(512, 1).unwrap_err();
    assert_eq!(refused.to_string(), "page 1: 512 of 4096 bytes were moved");
}
