//! `std::fs` and `std::io`.

use cringle_ecosystem_interposed::{WAIT, Waits};
use std::fs::{self, File, OpenOptions};
use std::io::{self, BufRead, BufReader, BufWriter, ErrorKind, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::FileExt;
use std::thread;

fn files_at_the_cursor(n: usize, waits: &Waits) {
    let place = tempfile::tempdir().unwrap();
    let path = place.path().join("file");
    let mut writer = BufWriter::new(File::create(&path).unwrap());
    for line in 0..100 {
        writeln!(writer, "line {line} of {n}").unwrap();
    }
    writer.into_inner().unwrap().sync_all().unwrap();
    waits.during(|| thread::sleep(WAIT));
    let reader = BufReader::new(File::open(&path).unwrap());
    let lines: Vec<_> = reader.lines().map(Result::unwrap).collect();
    assert_eq!((lines.len(), &*lines[99]), (100, &*format!("line 99 of {n}")));
    let mut file = OpenOptions::new().read(true).write(true).open(&path).unwrap();
    file.seek(SeekFrom::End(-3)).unwrap();
    file.write_all(b"abcdef").unwrap();
    file.rewind().unwrap();
    let mut text = String::new();
    file.read_to_string(&mut text).unwrap();
    assert!(text.ends_with("abcdef"));
    OpenOptions::new().append(true).open(&path).unwrap().write_all(b"end").unwrap();
    assert_eq!(fs::metadata(&path).unwrap().len(), text.len() as u64 + 3);
}

fn files_at_offsets(n: usize, waits: &Waits) {
    let mut file = tempfile::tempfile().unwrap();
    let block = [n as u8; 4096];
    for index in [3, 0, 2, 1] {
        file.write_all_at(&block, index * 4096).unwrap();
    }
    file.sync_data().unwrap();
    waits.during(|| thread::sleep(WAIT));
    let mut found = [0; 4096];
    file.read_exact_at(&mut found, 8192).unwrap();
    assert_eq!(found, block);
    assert_eq!(file.read_at(&mut found, 1 << 20).unwrap(), 0);
    file.set_len(5).unwrap();
    assert_eq!(file.read_to_end(&mut Vec::new()).unwrap(), 5);
}

fn directories(n: usize, waits: &Waits) {
    let place = tempfile::tempdir().unwrap();
    let nested = place.path().join("a/b/c");
    fs::create_dir_all(&nested).unwrap();
    fs::write(nested.join("from"), n.to_string().repeat(1000)).unwrap();
    fs::copy(nested.join("from"), nested.join("to")).unwrap();
    fs::rename(nested.join("to"), nested.join("moved")).unwrap();
    waits.during(|| thread::sleep(WAIT));
    let mut names: Vec<_> =
        fs::read_dir(&nested).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    names.sort();
    assert_eq!(names, ["from", "moved"]);
    assert_eq!(fs::read_to_string(nested.join("moved")).unwrap(), n.to_string().repeat(1000));
    let error = File::open(nested.join("absent")).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotFound);
    fs::remove_dir_all(place.path().join("a")).unwrap();
    assert!(!nested.exists());
}

fn pipes(n: usize, waits: &Waits) {
    let (mut reader, mut writer) = io::pipe().unwrap();
    let sender = thread::spawn(move || {
        thread::sleep(WAIT);
        // More than a pipe holds.
        writer.write_all(&vec![n as u8; 1 << 18]).unwrap();
    });
    let mut first = [0];
    waits.during(|| reader.read_exact(&mut first).unwrap());
    let mut rest = Vec::new();
    reader.read_to_end(&mut rest).unwrap();
    assert!(first[0] == n as u8 && rest == vec![n as u8; (1 << 18) - 1]);
    sender.join().unwrap();
}

fn locks_of_files(_: usize, waits: &Waits) {
    let file = tempfile::NamedTempFile::new().unwrap();
    let held = File::open(file.path()).unwrap();
    held.lock().unwrap();
    let holder = thread::spawn(move || {
        thread::sleep(WAIT);
        drop(held);
    });
    let other = File::open(file.path()).unwrap();
    waits.during(|| other.lock().unwrap());
    holder.join().unwrap();
}

crate::programs! { files_at_the_cursor, files_at_offsets, directories, pipes, locks_of_files }
