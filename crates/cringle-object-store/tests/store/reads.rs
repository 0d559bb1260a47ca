//! Reads return the bytes and the errors of `LocalFileSystem`.

use crate::{Fixture, essence, pattern};
use cringle_object_store::LocalStore;
use futures_executor::block_on;
use futures_util::{StreamExt, TryStreamExt};
use object_store::local::LocalFileSystem;
use object_store::path::Path;
use object_store::{Error, GetOptions, GetRange, ObjectStore, ObjectStoreExt, PutPayload};
use proptest::prelude::*;
use std::ffi::CString;
use std::ops::Range;
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::symlink;

/// The bytes of ranges by both stores.
fn by_both(
    ours: &LocalStore,
    theirs: &LocalFileSystem,
    location: &Path,
    ranges: &[Range<u64>],
) -> [Result<Vec<Vec<u8>>, String>; 2] {
    let stores: [&dyn ObjectStore; 2] = [ours, theirs];
    stores.map(|store| match block_on(store.get_ranges(location, ranges)) {
        Ok(all) => Ok(all.into_iter().map(Vec::from).collect()),
        Err(e) => Err(essence(&e)),
    })
}

/// The bytes, their range, and the metadata.
type Got = Result<(Vec<u8>, Range<u64>, String), String>;

/// One request by both stores.
fn got_by_both(
    ours: &LocalStore,
    theirs: &LocalFileSystem,
    location: &Path,
    options: &GetOptions,
) -> [Got; 2] {
    let stores: [&dyn ObjectStore; 2] = [ours, theirs];
    stores.map(|store| {
        let got = block_on(async {
            let got = store.get_opts(location, options.clone()).await?;
            let (range, meta) = (got.range.clone(), format!("{:?}", got.meta));
            let chunks: Vec<_> = got.into_stream().try_collect().await?;
            Ok::<_, Error>((chunks.concat(), range, meta))
        });
        got.map_err(|e| essence(&e))
    })
}

/// Ranges that touch, overlap, are empty, or lie behind the end.
fn ranges(len: u64) -> impl Strategy<Value = Vec<Range<u64>>> {
    let start = prop_oneof![6 => 0..len.max(1), 1 => len.saturating_sub(9)..len + 9];
    let bytes = prop_oneof![4 => 0..200u64, 1 => 0..9000u64, 1 => Just(0u64)];
    let inside = (start, bytes, 0..20u8).prop_map(move |(start, bytes, edge)| match edge {
        // Most lists have no range behind the end.
        0 => start..start + bytes,
        _ => start.min(len)..(start + bytes).min(len).max(start.min(len)),
    });
    prop::collection::vec(inside, 0..40)
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 300,
        failure_persistence: None,
        ..Default::default()
    })]

    #[test]
    fn ranges_are_those_of_local_file_system(
        (len, ranges) in (0u64..60_000).prop_flat_map(|len| (Just(len), ranges(len))),
        gap in prop_oneof![Just(0u64), 1..300u64, Just(4096u64), Just(1 << 20)],
    ) {
        let fixture = Fixture::new(|builder| builder.coalesce_gap(gap));
        let theirs = LocalFileSystem::new_with_prefix(fixture.directory.path()).unwrap();
        std::fs::write(fixture.directory.path().join("object"), pattern(len as usize)).unwrap();
        let [ours, theirs] = by_both(&fixture.store, &theirs, &"object".into(), &ranges);
        prop_assert_eq!(ours, theirs);
    }

    #[test]
    fn streams_are_those_of_local_file_system(
        len in 0usize..5000,
        range in prop_oneof![
            Just(None),
            (0u64..6000, 0u64..6000).prop_map(|(start, end)| Some(GetRange::Bounded(start..end))),
            (0u64..6000).prop_map(|start| Some(GetRange::Offset(start))),
            (0u64..6000).prop_map(|count| Some(GetRange::Suffix(count))),
        ],
        chunk_bytes in 1usize..3000,
        head in any::<bool>(),
    ) {
        let fixture = Fixture::new(|builder| builder.chunk_bytes(chunk_bytes));
        let theirs = LocalFileSystem::new_with_prefix(fixture.directory.path()).unwrap();
        std::fs::write(fixture.directory.path().join("object"), pattern(len)).unwrap();
        let options = GetOptions { range, head, ..Default::default() };
        let [ours, theirs] = got_by_both(&fixture.store, &theirs, &"object".into(), &options);
        prop_assert_eq!(ours, theirs);
    }
}

#[test]
fn large_ranges_are_read_in_pieces() {
    let fixture = Fixture::new(|builder| builder);
    let bytes = pattern(20 << 20);
    std::fs::write(fixture.directory.path().join("object"), &bytes).unwrap();
    // Two of 3 MiB with a gap between them, and one of 17 MiB.
    let ranges = [9 << 20..26 << 20, 100..(3 << 20) + 100, (3 << 20) + 200..(6 << 20) + 200];
    let [first, second] = [&ranges[1..], &[1 << 20..18 << 20, 5..6]];
    for ranges in [first, second] {
        let got = block_on(fixture.store.get_ranges(&"object".into(), ranges)).unwrap();
        for (range, got) in ranges.iter().zip(got) {
            assert!(got == bytes[range.start as usize..range.end as usize]);
        }
    }
    let theirs = LocalFileSystem::new_with_prefix(fixture.directory.path()).unwrap();
    let [ours, theirs] = by_both(&fixture.store, &theirs, &"object".into(), &ranges);
    assert!(ours.is_err() && ours == theirs);
}

#[test]
fn more_ranges_than_one_batch_are_in_order() {
    let fixture = Fixture::new(|builder| builder.coalesce_gap(0));
    let bytes = pattern(1 << 20);
    std::fs::write(fixture.directory.path().join("object"), &bytes).unwrap();
    let count = 20_000u64;
    let ranges: Vec<_> = (0..count).map(|n| n * 7919 % count * 50).map(|at| at..at + 49).collect();
    let got = block_on(fixture.store.get_ranges(&"object".into(), &ranges)).unwrap();
    for (range, got) in ranges.iter().zip(got) {
        assert_eq!(got, bytes[range.start as usize..range.end as usize]);
    }
}

#[test]
fn impossible_ranges_are_refused_without_their_memory() {
    let fixture = Fixture::new(|builder| builder);
    std::fs::write(fixture.directory.path().join("object"), pattern(100)).unwrap();
    let read = |range: Range<u64>| {
        block_on(fixture.store.get_ranges(&"object".into(), &[range.clone(), range]))
    };
    for range in [0..u64::MAX, 99..1 << 45, 100..1 << 45, u64::MAX - 1..u64::MAX] {
        let error = read(range).unwrap_err();
        assert!(matches!(error, Error::Generic { .. }), "{error}");
    }
    let (start, end) = (10, 5);
    let last = u64::MAX;
    for (range, words) in [
        (start..end, "object: Range started at 10 and ended at 5"),
        (last - 1..last, "starting at 18446744073709551614, but object was only 100 bytes long"),
        (0..last, "object: the object ends after 100 of 18446744073709551615 bytes"),
    ] {
        let text = read(range).unwrap_err().to_string();
        assert!(text.ends_with(words), "{text}");
    }
    let (start, end) = (50, 40);
    let error = essence(&read(start..end).unwrap_err());
    assert_eq!(error, "Range started at 50 and ended at 40");
}

/// An allocation that fails would end the process.
#[test]
fn reads_larger_than_the_memory_are_refused() {
    const LEN: u64 = 1 << 43;
    let fixture = Fixture::new(|builder| builder.chunk_bytes(usize::MAX));
    let path = fixture.directory.path();
    std::fs::File::create(path.join("sparse")).unwrap().set_len(LEN).unwrap();
    block_on(async {
        let ranges = |name: &str, ranges: &[Range<u64>]| {
            let (name, ranges) = (Path::from(name), ranges.to_vec());
            let store = fixture.store.clone();
            async move { store.get_ranges(&name, &ranges).await.unwrap_err().to_string() }
        };
        let whole = 0..LEN;
        let halves = [0..LEN / 2, LEN / 2 + 10_000..LEN];
        let mut stream = fixture.store.get(&"sparse".into()).await.unwrap().into_stream();
        for text in [
            ranges("sparse", std::slice::from_ref(&whole)).await,
            ranges("sparse", &halves).await,
            stream.next().await.unwrap().unwrap_err().to_string(),
        ] {
            assert!(text.contains("no memory for") && text.contains("fewer at a time"), "{text}");
        }
    });
}

#[test]
fn first_range_behind_the_end_is_the_error() {
    let fixture = Fixture::new(|builder| builder);
    let theirs = LocalFileSystem::new_with_prefix(fixture.directory.path()).unwrap();
    std::fs::write(fixture.directory.path().join("object"), pattern(20)).unwrap();
    let lists: [&[Range<u64>]; 6] = [
        &[50..60, 30..40],
        &[15..25, 30..40, 0..5],
        &[30..40, 15..25, 0..5],
        &[30..40, 15..25, 0..5, 5..7],
        &[18..19, 20..20, 10..30],
        &[19..21, 0..22, 25..25],
    ];
    for ranges in lists {
        let [ours, theirs] = by_both(&fixture.store, &theirs, &"object".into(), ranges);
        assert!(ours.is_err() && ours == theirs, "{ranges:?}: {ours:?}, {theirs:?}");
    }
}

#[test]
fn directories_and_missing_objects_are_errors() {
    let fixture = Fixture::new(|builder| builder);
    let theirs = LocalFileSystem::new_with_prefix(fixture.directory.path()).unwrap();
    std::fs::create_dir(fixture.directory.path().join("directory")).unwrap();
    for name in ["directory", "missing", "directory/missing"] {
        for range in [0..1, 0..0, 5..1 << 30] {
            let ranges = std::slice::from_ref(&range);
            let [ours, theirs] = by_both(&fixture.store, &theirs, &name.into(), ranges);
            assert_eq!(ours, theirs, "{name}, {range:?}");
        }
        let options = GetOptions::default();
        let [ours, theirs] = got_by_both(&fixture.store, &theirs, &name.into(), &options);
        assert_eq!(ours, theirs, "{name}");
    }
}

#[test]
fn files_that_are_not_regular_are_no_objects() {
    let fixture = Fixture::new(|builder| builder);
    let at = |name: &str| fixture.directory.path().join(name);
    let fifo = CString::new(at("fifo").into_os_string().into_vec()).unwrap();
    // SAFETY: the path is a C string.
    assert_eq!(unsafe { libc::mkfifo(fifo.as_ptr(), 0o600) }, 0);
    symlink("fifo", at("link")).unwrap();
    symlink("/dev/zero", at("device")).unwrap();
    let expect_none = || {
        for name in ["fifo", "link", "device"] {
            let location = Path::from(name);
            let errors = block_on(async {
                [
                    fixture.store.get(&location).await.err(),
                    fixture.store.head(&location).await.err(),
                    fixture.store.get_ranges(&location, &[0..1, 7..9]).await.err(),
                    fixture.store.get_ranges(&location, &[]).await.err(),
                ]
            });
            for error in errors {
                let error = error.unwrap();
                assert!(matches!(error, Error::NotFound { .. }), "{name}: {error}");
                assert!(error.to_string().contains("it is not a regular file"), "{error}");
            }
        }
    };
    // First with a writer, so that a store that opens the FIFO as usual does not wait.
    let writer = std::fs::File::options().read(true).write(true).open(at("fifo")).unwrap();
    expect_none();
    drop(writer);
    expect_none();
    let listed = block_on(fixture.store.list(None).try_collect::<Vec<_>>()).unwrap();
    assert_eq!(listed, []);
}

#[test]
fn read_waits_for_the_holder_of_a_lease() {
    /// Of `asm-generic/fcntl.h`; the crate `libc` does not have it.
    const F_SETSIG: i32 = 10;
    let fixture = Fixture::new(|builder| builder);
    let path = fixture.directory.path().join("object");
    std::fs::write(&path, "strand").unwrap();
    let holder = std::fs::File::options().write(true).open(&path).unwrap();
    let fd = holder.as_raw_fd();
    let lease = |operation, argument: i32| {
        // SAFETY: no pointers.
        let result = unsafe { libc::fcntl(fd, operation, argument) };
        assert!(result >= 0, "{}", std::io::Error::last_os_error());
        result
    };
    // The kernel sends this signal instead of `SIGIO`: the default action is to ignore it.
    lease(F_SETSIG, libc::SIGURG);
    lease(libc::F_SETLEASE, libc::F_WRLCK);
    std::thread::scope(|s| {
        let read = s.spawn(|| block_on(fixture.store.get_range(&"object".into(), 1..4)));
        // The kernel asks the holder to release the lease.
        while lease(libc::F_GETLEASE, 0) == libc::F_WRLCK {
            std::thread::yield_now();
        }
        lease(libc::F_SETLEASE, libc::F_UNLCK);
        assert_eq!(read.join().unwrap().unwrap(), "tra");
    });
}

#[test]
fn stream_of_a_truncated_object_ends_with_an_error() {
    let fixture = Fixture::new(|builder| builder.chunk_bytes(1000));
    let location = Path::from("object");
    block_on(async {
        fixture.store.put(&location, PutPayload::from(pattern(10_000))).await.unwrap();
        let got = fixture.store.get(&location).await.unwrap();
        let mut stream = got.into_stream();
        assert_eq!(stream.try_next().await.unwrap().unwrap(), pattern(10_000)[..1000]);
        let file =
            std::fs::File::options().write(true).open(fixture.directory.path().join("object"));
        file.unwrap().set_len(2500).unwrap();
        // One more may have been read before the object became shorter.
        let rest: Vec<Result<_, Error>> = stream.collect().await;
        let (last, others) = rest.split_last().unwrap();
        assert!(essence(last.as_ref().unwrap_err()).starts_with("short: "));
        assert!(others.iter().all(Result::is_ok));
    });
}
