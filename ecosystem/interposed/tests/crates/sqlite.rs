//! `rusqlite` with a write-ahead log: one database, a connection for each job.

use cringle_ecosystem_interposed::{WAIT, at_most, crowd};
use rusqlite::{Connection, TransactionBehavior};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::mpsc::{self, Sender};
use std::thread;
use std::time::Duration;

fn opened(path: &Path) -> Connection {
    let connection = Connection::open(path).unwrap();
    connection.busy_timeout(Duration::from_secs(120)).unwrap();
    connection.pragma_update(None, "journal_mode", "WAL").unwrap();
    connection.pragma_update(None, "synchronous", "NORMAL").unwrap();
    connection
}

const ROWS: u32 = 5;

/// Holds the write lock until all jobs wait for it, and then for a while.
fn hold(path: &Path, jobs: usize, waiting: &AtomicUsize, held: &Sender<()>) {
    let mut connection = opened(path);
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate).unwrap();
    held.send(()).unwrap();
    while waiting.load(Relaxed) < jobs {
        thread::sleep(Duration::from_millis(5));
    }
    thread::sleep(WAIT);
    transaction.commit().unwrap();
}

fn insert(connection: &mut Connection, n: u32, row: u32) {
    let immediate = TransactionBehavior::Immediate;
    let transaction = connection.transaction_with_behavior(immediate).unwrap();
    let text = "wal".repeat(n as usize % 100);
    transaction.execute("INSERT INTO t VALUES (?1, ?2, ?3)", (n, row, text)).unwrap();
    transaction.commit().unwrap();
}

#[test]
fn rusqlite_writers_wait_for_each_other() {
    let jobs = at_most(1000);
    let place = tempfile::tempdir().unwrap();
    let path = place.path().join("db");
    let first = opened(&path);
    first.execute_batch("CREATE TABLE t (job INTEGER, row INTEGER, text TEXT)").unwrap();
    let waiting = Arc::new(AtomicUsize::new(0));
    let (sender, held) = mpsc::channel();
    let holder = {
        let (path, waiting) = (path.clone(), Arc::clone(&waiting));
        thread::spawn(move || hold(&path, jobs, &waiting, &sender))
    };
    held.recv().unwrap();
    crowd("rusqlite", jobs, move |n, waits| {
        let n = n as u32;
        let mut connection = opened(&path);
        waiting.fetch_add(1, Relaxed);
        waits.during(|| insert(&mut connection, n, 0));
        (1..ROWS).for_each(|row| insert(&mut connection, n, row));
        let query = "SELECT count(*), sum(length(text)) FROM t WHERE job = ?1";
        let found: (u32, u32) =
            connection.query_row(query, [n], |row| Ok((row.get(0)?, row.get(1)?))).unwrap();
        assert_eq!(found, (ROWS, ROWS * 3 * (n % 100)));
    });
    holder.join().unwrap();
    let count = first.query_row("SELECT count(*) FROM t", (), |row| row.get::<_, u32>(0));
    assert_eq!(count.unwrap(), jobs as u32 * ROWS);
    let sound: String = first.query_row("PRAGMA integrity_check", (), |row| row.get(0)).unwrap();
    assert_eq!(sound, "ok");
}
