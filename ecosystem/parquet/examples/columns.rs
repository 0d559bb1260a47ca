//! Reads columns of a Parquet file, and prints how many of their values are null.
//!
//!     cargo run --release -p cringle-ecosystem-parquet --example columns -- FILE [COLUMN]...
//!
//! in the folder `ecosystem`. Without columns it reads all. The reader asks for the column chunks
//! of a row group at once, and the store reads them in batches through the ring.

use arrow_array::{Array, RecordBatch};
use bytes::Bytes;
use cringle_object_store::LocalStore;
use futures_util::future::BoxFuture;
use futures_util::{FutureExt, TryFutureExt, TryStreamExt};
use object_store::path::Path as Location;
use object_store::{ObjectStore, ObjectStoreExt};
use parquet::arrow::arrow_reader::ArrowReaderOptions;
use parquet::arrow::async_reader::AsyncFileReader;
use parquet::arrow::{ParquetRecordBatchStreamBuilder, ProjectionMask};
use parquet::errors::{ParquetError, Result};
use parquet::file::metadata::{ParquetMetaData, ParquetMetaDataReader};
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

/// A Parquet file in any object store.
struct Object {
    store: Arc<dyn ObjectStore>,
    location: Location,
}

impl AsyncFileReader for Object {
    fn get_bytes(&mut self, range: Range<u64>) -> BoxFuture<'_, Result<Bytes>> {
        self.store.get_range(&self.location, range).map_err(ParquetError::from).boxed()
    }

    fn get_byte_ranges(&mut self, ranges: Vec<Range<u64>>) -> BoxFuture<'_, Result<Vec<Bytes>>> {
        let get = async move { Ok(self.store.get_ranges(&self.location, &ranges).await?) };
        get.boxed()
    }

    fn get_metadata<'a>(
        &'a mut self,
        options: Option<&'a ArrowReaderOptions>,
    ) -> BoxFuture<'a, Result<Arc<ParquetMetaData>>> {
        let options = options.map(|options| options.metadata_options().clone());
        let get = async move {
            let bytes = self.store.head(&self.location).await?.size;
            let reader = ParquetMetaDataReader::new().with_metadata_options(options);
            Ok(Arc::new(reader.load_and_finish(self, bytes).await?))
        };
        get.boxed()
    }
}

/// Reads the columns with these names, or all if there are none.
pub(crate) async fn read(
    store: Arc<dyn ObjectStore>,
    location: Location,
    columns: &[String],
) -> Result<Vec<RecordBatch>> {
    let object = Object { store, location };
    let builder = ParquetRecordBatchStreamBuilder::new(object).await?;
    let names = columns.iter().map(String::as_str);
    let mask = match columns {
        [] => ProjectionMask::all(),
        _ => ProjectionMask::columns(builder.parquet_schema(), names),
    };
    builder.with_projection(mask).build()?.try_collect().await
}

/// Returns a line for each column: its name, its type, its values and how many of them are null.
pub(crate) fn describe(batches: &[RecordBatch]) -> Vec<String> {
    let Some(first) = batches.first() else { return Vec::new() };
    let line = |(at, field): (usize, &Arc<arrow_schema::Field>)| {
        let columns = || batches.iter().map(|batch| batch.column(at));
        let (values, nulls) = columns().fold((0, 0), |(values, nulls), column| {
            (values + column.len(), nulls + column.null_count())
        });
        format!("{}: {}, {values} values, {nulls} null", field.name(), field.data_type())
    };
    first.schema_ref().fields().iter().enumerate().map(line).collect()
}

#[allow(dead_code, reason = "the tests call `read`")]
fn main() -> std::result::Result<(), Box<dyn std::error::Error>> {
    let mut args = std::env::args().skip(1);
    let file = args.next().ok_or("usage: columns FILE [COLUMN]...")?;
    let location = Location::from_absolute_path(Path::new(&file).canonicalize()?)?;
    let store = Arc::new(LocalStore::new()?);
    let columns: Vec<String> = args.collect();
    let runtime = tokio::runtime::Runtime::new()?;
    let batches = runtime.block_on(read(store, location, &columns))?;
    describe(&batches).iter().for_each(|line| println!("{line}"));
    Ok(())
}
