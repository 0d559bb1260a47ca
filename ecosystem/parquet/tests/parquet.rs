//! Parquet files that are written and read through the store.

#[path = "../examples/columns.rs"]
mod columns;

use arrow_array::{ArrayRef, Float64Array, Int64Array, RecordBatch, StringArray};
use cringle_object_store::LocalStore;
use futures_util::TryStreamExt;
use object_store::ObjectStore;
use object_store::buffered::BufWriter;
use object_store::local::LocalFileSystem;
use object_store::path::Path as Location;
use parquet::arrow::arrow_reader::{ArrowReaderOptions, RowSelection, RowSelector};
use parquet::arrow::async_writer::AsyncArrowWriter;
use parquet::arrow::{ParquetRecordBatchStreamBuilder, ProjectionMask};
use parquet::file::metadata::PageIndexPolicy;
use parquet::file::properties::WriterProperties;
use std::sync::Arc;

const ROWS: i64 = 50_000;

fn batch(rows: std::ops::Range<i64>) -> RecordBatch {
    let numbers = Int64Array::from_iter_values(rows.clone());
    let squares =
        Float64Array::from_iter(rows.clone().map(|n| (n % 7 != 0).then_some((n * n) as f64)));
    let names = StringArray::from_iter_values(rows.map(|n| format!("strand {}", n * 31 % 1000)));
    let columns: [(&str, ArrayRef); 3] =
        [("number", Arc::new(numbers)), ("square", Arc::new(squares)), ("name", Arc::new(names))];
    RecordBatch::try_from_iter(columns).unwrap()
}

/// Writes all rows in groups of 10,000, through a multipart upload.
async fn write(store: &Arc<dyn ObjectStore>, location: &Location) {
    let properties = WriterProperties::builder()
        .set_max_row_group_row_count(Some(10_000))
        .set_data_page_row_count_limit(500)
        .set_write_batch_size(500)
        .build();
    // A short buffer, so that the upload has several parts.
    let object = BufWriter::with_capacity(Arc::clone(store), location.clone(), 100_000);
    let whole = batch(0..ROWS);
    let mut writer = AsyncArrowWriter::try_new(object, whole.schema(), Some(properties)).unwrap();
    writer.write(&whole).await.unwrap();
    writer.close().await.unwrap();
}

/// Compares rows, however they are divided into batches.
fn assert_rows(batches: &[RecordBatch], expected: &RecordBatch) {
    let mut row = 0;
    for batch in batches {
        assert_eq!(*batch, expected.slice(row, batch.num_rows()));
        row += batch.num_rows();
    }
    assert_eq!(row, expected.num_rows());
}

/// Runs the test with a file that the store has written.
fn with_file<F: Future<Output = ()>>(
    test: impl FnOnce(Arc<dyn ObjectStore>, Arc<dyn ObjectStore>, Location) -> F,
) {
    let directory = tempfile::tempdir().unwrap();
    let ours: Arc<dyn ObjectStore> =
        Arc::new(LocalStore::new_with_prefix(directory.path()).unwrap());
    let theirs = Arc::new(LocalFileSystem::new_with_prefix(directory.path()).unwrap());
    let location = Location::from("tables/strands.parquet");
    tokio::runtime::Runtime::new().unwrap().block_on(async {
        write(&ours, &location).await;
        test(ours, theirs, location).await;
    });
}

#[test]
fn example_reads_what_was_written() {
    with_file(async |ours, theirs, location| {
        let all = columns::read(Arc::clone(&ours), location.clone(), &[]).await.unwrap();
        assert_rows(&all, &batch(0..ROWS));
        assert_eq!(columns::describe(&all)[1], "square: Float64, 50000 values, 7143 null");
        let some = ["name".to_owned(), "number".to_owned()];
        let read = columns::read(ours, location.clone(), &some).await.unwrap();
        assert_rows(&read, &batch(0..ROWS).project(&[0, 2]).unwrap());
        assert_eq!(read, columns::read(theirs, location, &some).await.unwrap());
    });
}

#[test]
fn missing_file_is_an_error_with_its_path() {
    with_file(async |ours, _, _| {
        let error = columns::read(ours, "tables/none".into(), &[]).await.unwrap_err();
        assert!(error.to_string().contains("tables/none"), "{error}");
    });
}

/// The reader of the `parquet` crate itself, with a page index: it asks for many short ranges.
#[test]
#[expect(deprecated, reason = "programs use it")]
fn selected_pages_are_read_by_the_crates_own_reader() {
    use parquet::arrow::async_reader::ParquetObjectReader;
    with_file(async |ours, _, location| {
        let reader = ParquetObjectReader::new(ours, location);
        let options = ArrowReaderOptions::new().with_page_index_policy(PageIndexPolicy::Required);
        let builder = ParquetRecordBatchStreamBuilder::new_with_options(reader, options);
        let builder = builder.await.unwrap();
        // Ten rows of each 2,000.
        let mut selectors = Vec::new();
        for _ in 0..ROWS / 2000 {
            selectors.extend([RowSelector::skip(1000), RowSelector::select(10)]);
            selectors.push(RowSelector::skip(990));
        }
        let mask = ProjectionMask::columns(builder.parquet_schema(), ["number", "square"]);
        let stream =
            builder.with_projection(mask).with_row_selection(RowSelection::from(selectors));
        let read: Vec<RecordBatch> = stream.build().unwrap().try_collect().await.unwrap();
        let expected = (0..ROWS / 2000)
            .map(|n| batch(n * 2000 + 1000..n * 2000 + 1010).project(&[0, 1]).unwrap());
        let mut rows =
            read.iter().flat_map(|batch| (0..batch.num_rows()).map(|n| batch.slice(n, 1)));
        for expected in expected {
            for n in 0..expected.num_rows() {
                assert_eq!(rows.next().unwrap(), expected.slice(n, 1));
            }
        }
        assert!(rows.next().is_none());
    });
}
