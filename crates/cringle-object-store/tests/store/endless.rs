//! File systems that refuse a name, or give one answer for ever: each call ends.

use cringle_object_store::LocalStore;
use cringle_testing::fuse::Faulty;
use futures_executor::block_on;
use futures_util::TryStreamExt;
use object_store::path::Path;
use object_store::{Error, ObjectStore, ObjectStoreExt, PutMode, PutPayload, Result};

#[test]
fn refused_name_is_an_error_of_each_call() {
    // `open` of a new file in `/proc` says `ENOENT`.
    let store = LocalStore::new_with_prefix("/proc").unwrap();
    let (known, new) = (Path::from("version"), Path::from("cringle"));
    block_on(async {
        let create = PutMode::Create.into();
        let errors = [
            store.put(&new, "strand".into()).await.err(),
            store.put_opts(&new, "strand".into(), create).await.err(),
            store.put_multipart(&new).await.err(),
            store.copy(&known, &new).await.err(),
            store.copy_if_not_exists(&known, &new).await.err(),
            store.rename(&known, &new).await.err(),
            store.rename_if_not_exists(&known, &new).await.err(),
        ];
        for (number, error) in errors.into_iter().enumerate() {
            let error = error.unwrap();
            assert!(matches!(error, Error::Generic { .. }), "{number}: {error}");
            let text = error.to_string();
            assert!(number > 2 || text.contains("although its directory was created"), "{text}");
        }
    });
}

type Call = (&'static str, fn(&LocalStore) -> Result<()>);

/// Every call that changes or reads `victims/victim`.
const CALLS: &[Call] = &[
    ("put", |store| put(store, "victims/victim", PutMode::Overwrite)),
    ("create", |store| put(store, "victims/victim2", PutMode::Create)),
    ("put below", |store| put(store, "victims/victims/victim", PutMode::Overwrite)),
    ("upload", |store| {
        block_on(async {
            let mut upload = store.put_multipart(&"victims/victim3".into()).await?;
            upload.put_part("strand".into()).await?;
            upload.complete().await.map(drop)
        })
    }),
    ("get", |store| block_on(async { store.get(&object()).await?.bytes().await.map(drop) })),
    ("get_ranges", |store| block_on(store.get_ranges(&object(), &[0..2, 1..3])).map(drop)),
    ("head", |store| block_on(store.head(&object())).map(drop)),
    ("copy", |store| block_on(store.copy(&object(), &"victims/new/copy".into()))),
    ("copy_if_not_exists", |store| {
        block_on(store.copy_if_not_exists(&object(), &"victims/copy2".into()))
    }),
    ("rename_if_not_exists", |store| {
        block_on(store.rename_if_not_exists(&object(), &"victims/victim".into()))
            .and_then(|()| block_on(store.rename_if_not_exists(&object(), &"other/victim".into())))
    }),
    ("rename", |store| block_on(store.rename(&object(), &"victims/new/victim".into()))),
    ("list", |store| block_on(store.list(None).try_collect::<Vec<_>>()).map(drop)),
    ("list_with_delimiter", |store| {
        block_on(store.list_with_delimiter(Some(&"victims".into()))).map(drop)
    }),
    ("delete", |store| block_on(store.delete(&object()))),
];

fn object() -> Path {
    "victims/victim".into()
}

fn put(store: &LocalStore, name: &str, mode: PutMode) -> Result<()> {
    let payload = PutPayload::from("strand");
    block_on(store.put_opts(&name.into(), payload, mode.into())).map(drop)
}

#[test]
fn one_errno_for_ever_ends_each_call() {
    let base = tempfile::tempdir().unwrap();
    let Some(faulty) = Faulty::mount(base.path(), "mounted") else { return };
    let builder = LocalStore::builder().prefix(&faulty.at).automatic_cleanup(true).fsync(true);
    let store = builder.build().unwrap();
    let prepare = |faulty: &Faulty| {
        faulty.mkdir("victims");
        faulty.put("victims/victim", b"strand");
    };
    for (name, call) in CALLS {
        faulty.call_ends(name, prepare, || call(&store));
    }
}
