//! Crates written for `std::io`, over the library's files and pipes, on many fibers at once.

use cringle::fs::{self, File};
use cringle::io::{self, BufReader, BufWriter, Read, Write, pipe};
use cringle::{Builder, fiber};
use cringle_testing::disk;
use flate2::Compression;
use flate2::read::GzDecoder;
use flate2::write::GzEncoder;
use serde_json::{Value, json};
use std::path::Path;

const FIBERS: usize = 20;

/// Runs `f` on a number of fibers of two workers.
fn on_many_fibers(f: impl Fn(usize) -> io::Result<()> + Sync) {
    let run = || {
        fiber::scope(|s| {
            let f = &f;
            let fibers: Vec<_> = (0..FIBERS).map(|n| s.spawn(move || f(n))).collect();
            for (n, fiber) in fibers.into_iter().enumerate() {
                fiber.join().unwrap().unwrap_or_else(|e| panic!("fiber {n}: {e}"));
            }
        });
    };
    Builder::new().workers(2).run(run).unwrap();
}

fn content(fiber: usize, file: usize) -> Vec<u8> {
    let mut bytes = disk::pattern(file * 1999 + fiber);
    bytes.iter_mut().for_each(|byte| *byte = byte.wrapping_add(fiber as u8));
    bytes
}

/// Packs files of many lengths into a compressed archive, unpacks it, and compares.
#[test]
fn archives_are_packed_and_unpacked() {
    const FILES: usize = 8;
    let directory = disk::directory();
    let archive = |n: usize| directory.path().join(format!("{n}.tar.gz"));
    on_many_fibers(|n| {
        let compressed = GzEncoder::new(File::create(archive(n))?, Compression::fast());
        let mut builder = tar::Builder::new(compressed);
        for file in 0..FILES {
            let bytes = content(n, file);
            let mut header = tar::Header::new_gnu();
            header.set_size(bytes.len() as u64);
            header.set_mode(0o644);
            builder.append_data(&mut header, format!("folder/{file}"), &bytes[..])?;
        }
        builder.into_inner()?.finish()?.sync_all()
    });
    on_many_fibers(|n| {
        let mut unpacked = tar::Archive::new(GzDecoder::new(File::open(archive(n))?));
        let mut count = 0;
        for (file, entry) in unpacked.entries()?.enumerate() {
            let mut entry = entry?;
            assert_eq!(entry.path()?, Path::new(&format!("folder/{file}")));
            let mut bytes = Vec::new();
            entry.read_to_end(&mut bytes)?;
            assert!(bytes == content(n, file));
            count += 1;
        }
        assert_eq!(count, FILES);
        Ok(())
    });
}

#[test]
fn streams_are_compressed_from_fiber_to_fiber() {
    on_many_fibers(|n| {
        let (reader, writer) = pipe()?;
        let bytes = disk::pattern(80_000 + n);
        fiber::scope(|s| {
            let bytes = &bytes;
            let writes = s.spawn_local(move || {
                let mut compressed = GzEncoder::new(writer, Compression::fast());
                compressed.write_all(bytes)?;
                compressed.finish().map(drop)
            });
            let mut found = Vec::new();
            GzDecoder::new(reader).read_to_end(&mut found)?;
            assert!(found == *bytes);
            writes.join().unwrap()
        })
    });
}

#[test]
fn tables_are_written_and_read() {
    const ROWS: u64 = 300;
    let directory = disk::directory();
    on_many_fibers(|n| {
        let path = directory.path().join(format!("{n}.csv"));
        let mut writer = csv::Writer::from_writer(File::create(&path)?);
        writer.write_record(["number", "text", "square"])?;
        for row in 0..ROWS {
            let text = format!("\"row\", {row}\nof {n}");
            writer.write_record([&row.to_string(), &text, &(row * row).to_string()])?;
        }
        writer.flush()?;
        let mut reader = csv::Reader::from_reader(File::open(&path)?);
        let mut sum = 0;
        for (row, record) in reader.records().enumerate() {
            let record = record?;
            assert_eq!(record[1], format!("\"row\", {row}\nof {n}"));
            sum += record[2].parse::<u64>().unwrap();
        }
        assert_eq!(sum, (0..ROWS).map(|row| row * row).sum::<u64>());
        Ok(())
    });
}

fn document(n: usize, depth: usize) -> Value {
    let numbers: Vec<usize> = (0..20).map(|i| i * n).collect();
    match depth {
        0 => json!({ "numbers": numbers, "text": "a rope\n\u{26f5}" }),
        _ => json!({ "below": document(n + 1, depth - 1), "numbers": numbers }),
    }
}

#[test]
fn documents_pass_through_files_and_pipes() {
    let directory = disk::directory();
    on_many_fibers(|n| {
        let path = directory.path().join(format!("{n}.json"));
        // The maximal depth of the parser, which the stack must allow.
        let document = document(n, 120);
        let mut writer = BufWriter::new(File::create(&path)?);
        serde_json::to_writer(&mut writer, &document)?;
        writer.into_inner().map_err(io::Error::from)?.sync_data()?;
        let found: Value = serde_json::from_reader(BufReader::new(File::open(&path)?))?;
        assert_eq!(found, document);

        let (reader, writer) = pipe()?;
        fiber::scope(|s| {
            let path = &path;
            let copies = s.spawn_local(move || {
                let mut writer = writer;
                io::copy(&mut File::open(path)?, &mut writer)
            });
            let found: Value = serde_json::from_reader(BufReader::new(reader))?;
            assert_eq!(found, document);
            assert_eq!(copies.join().unwrap()?, fs::metadata(path)?.len());
            Ok(())
        })
    });
}
