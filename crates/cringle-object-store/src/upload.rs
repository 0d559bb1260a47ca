//! Multipart uploads: parts are written into one staging file, each at its offset.

use crate::engine::Engine;
use crate::error::Error;
use crate::meta::Metadata;
use crate::read::IsWanted;
use crate::staging::{Publish, Staging};
use crate::write::write_payload;
use async_trait::async_trait;
use cringle::fs::File;
use cringle::sync::RwLock;
use futures_util::FutureExt;
use object_store::{MultipartUpload, PutPayload, PutResult, Result, UploadPart};
use std::path::PathBuf;
use std::sync::Arc;

/// An upload in progress. Dropping it removes the staging file, unless it was completed.
#[derive(Debug)]
pub(crate) struct Upload {
    engine: Engine,
    state: Arc<State>,
    /// Taken by the completion or the abort.
    staging: Option<Staging>,
    /// The offset of the next part.
    offset: u64,
    fsync: bool,
}

#[derive(Debug)]
struct State {
    dest: PathBuf,
    /// Each part in progress holds it for reading. The completion takes the file.
    file: RwLock<Option<File>>,
}

impl Upload {
    pub(crate) fn create(engine: Engine, dest: PathBuf, fsync: bool) -> Result<Upload> {
        let (staging, file) = Staging::create(&dest, engine.clone(), fsync)?;
        let state = Arc::new(State { dest, file: RwLock::new(Some(file)) });
        Ok(Upload { engine, state, staging: Some(staging), offset: 0, fsync })
    }
}

#[async_trait]
impl MultipartUpload for Upload {
    fn put_part(&mut self, data: PutPayload) -> UploadPart {
        let offset = self.offset;
        self.offset += data.content_length() as u64;
        let state = Arc::clone(&self.state);
        let write = move |_: IsWanted<'_>| {
            let file = state.file.read().unwrap();
            let file = file.as_ref().ok_or(Error::UploadEnded)?;
            write_payload(file, &data, offset).map_err(Error::io("write it", &state.dest))?;
            Ok(())
        };
        self.engine.run(write).boxed()
    }

    async fn complete(&mut self) -> Result<PutResult> {
        let staging = self.staging.take().ok_or(Error::UploadEnded)?;
        let (state, fsync) = (Arc::clone(&self.state), self.fsync);
        let publish = move |_: IsWanted<'_>| {
            // Waits for the parts in progress.
            let file = state.file.write().unwrap().take().ok_or(Error::UploadEnded)?;
            let metadata =
                Metadata::of(&file).map_err(Error::io("get its metadata", &state.dest))?;
            staging.publish(file, &state.dest, Publish::Replace, fsync)?;
            Ok(PutResult {
                e_tag: Some(metadata.e_tag()),
                version: None,
                extensions: Default::default(),
            })
        };
        self.engine.run(publish).await
    }

    async fn abort(&mut self) -> Result<()> {
        let mut staging = self.staging.take().ok_or(Error::UploadEnded)?;
        self.engine.run(move |_| Ok(staging.remove()?)).await
    }
}
