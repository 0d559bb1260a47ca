//! SQLite, a C library that blocks its thread, called through `fiber::unblock`.

use cringle::{Builder, fiber};
use rusqlite::{Connection, TransactionBehavior};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

const FIBERS: usize = 30;

fn open(path: &Path) -> rusqlite::Result<Connection> {
    let connection = Connection::open(path)?;
    connection.busy_timeout(Duration::from_secs(600))?;
    connection.pragma_update(None, "journal_mode", "wal")?;
    connection.pragma_update(None, "synchronous", "off")?;
    Ok(connection)
}

/// Takes the connection by `&mut`, since a `Connection` may be used by only one thread at a time.
fn execute(connection: &mut Connection, text: &str) -> rusqlite::Result<()> {
    connection.execute_batch(text)
}

fn sum(connection: &mut Connection) -> rusqlite::Result<(i64, i64)> {
    let text = "select count(*), coalesce(sum(value), 0) from numbers";
    connection.query_row(text, [], |row| Ok((row.get(0)?, row.get(1)?)))
}

#[test]
fn many_fibers_write_and_read_one_database() {
    const ROWS: i64 = 20;
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("database");
    open(&path).unwrap().execute("create table numbers (value integer)", []).unwrap();
    let run = || {
        fiber::scope(|s| {
            for n in 0..FIBERS as i64 {
                let path = &path;
                s.spawn(move || {
                    // A connection is `Send`, so the threads of `unblock` may use it in turn.
                    let mut connection = fiber::unblock(|| open(path)).unwrap();
                    fiber::yield_now();
                    fiber::unblock(|| {
                        let behavior = TransactionBehavior::Immediate;
                        let transaction = connection.transaction_with_behavior(behavior)?;
                        for row in 0..ROWS {
                            transaction
                                .execute("insert into numbers values (?1)", [n * ROWS + row])?;
                        }
                        transaction.commit()
                    })
                    .unwrap();
                    let (count, _) = fiber::unblock(|| sum(&mut connection)).unwrap();
                    assert!(count >= ROWS && count % ROWS == 0);
                });
            }
        });
    };
    Builder::new().workers(2).run(run).unwrap();
    let all = FIBERS as i64 * ROWS;
    assert_eq!(sum(&mut open(&path).unwrap()).unwrap(), (all, (0..all).sum()));
}

/// All writers wait in C code for one lock, which a fiber of the same worker holds.
#[test]
fn a_blocking_library_does_not_block_other_fibers() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("database");
    let mut holder = open(&path).unwrap();
    holder.execute("create table numbers (value integer)", []).unwrap();
    let (began, released) = (AtomicUsize::new(0), AtomicBool::new(false));
    let run = || {
        let holder = &mut holder;
        fiber::unblock(|| execute(holder, "begin immediate")).unwrap();
        fiber::scope(|s| {
            for n in 0..FIBERS {
                let (path, began, released) = (&path, &began, &released);
                s.spawn_local(move || {
                    fiber::unblock(|| {
                        let connection = Connection::open(path)?;
                        connection.busy_timeout(Duration::from_secs(600))?;
                        began.fetch_add(1, Ordering::Relaxed);
                        connection.execute("insert into numbers values (?1)", [n as i64])
                    })
                    .unwrap();
                    assert!(released.load(Ordering::Relaxed));
                });
            }
            // Each writer blocks a thread of its own; this fiber continues.
            while began.load(Ordering::Relaxed) < FIBERS {
                fiber::yield_now();
            }
            released.store(true, Ordering::Relaxed);
            fiber::unblock(|| execute(holder, "commit")).unwrap();
        });
        assert_eq!(fiber::unblock(|| sum(holder)).unwrap().0, FIBERS as i64);
    };
    Builder::new().workers(1).run(run).unwrap();
}
