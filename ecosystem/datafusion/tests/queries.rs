//! Queries give the same rows through either store.

#[path = "../examples/queries.rs"]
mod queries;

#[test]
fn queries_give_the_same_rows_through_either_store() {
    let directory = tempfile::tempdir().unwrap();
    let (io, [ours, theirs]) = queries::stores(directory.path(), 1).unwrap();
    tokio::runtime::Runtime::new().unwrap().block_on(async {
        queries::write(&ours, 20_000).await.unwrap();
        for (name, query) in queries::QUERIES {
            let before = io.stats().total().entries.sum();
            let rows = queries::run(&ours, query, 2).await.unwrap();
            assert!(io.stats().total().entries.sum() > before, "{name} did not use the workers");
            assert_eq!(rows, queries::run(&theirs, query, 2).await.unwrap(), "{name}");
            assert!(rows.lines().count() > 4, "{name}: {rows}");
        }
    });
}
