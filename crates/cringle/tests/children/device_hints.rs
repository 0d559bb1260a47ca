//! Hints for the device below a file.

use cringle::fs::{File, OpenOptions, WriteLife};
use cringle_testing::disk::{alone, directory, in_company, outside, pattern, solitary};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;
use std::process::Command;

const BLOCK: u64 = 64 << 10;

fn open(path: &Path) -> File {
    OpenOptions::new().read(true).write(true).open(path).unwrap()
}

#[test]
fn write_life_belongs_to_the_inode() {
    let directory = directory();
    let path = directory.path().join("file");
    let lives = [WriteLife::Short, WriteLife::Medium, WriteLife::Long, WriteLife::Extreme];
    for way in [outside, solitary, alone, in_company] {
        std::fs::write(&path, "").unwrap();
        way(|| {
            let (file, other) = (open(&path), open(&path));
            if let Err(e) = file.set_write_life(WriteLife::NotSet) {
                assert_eq!(e.kind(), ErrorKind::Unsupported);
                return eprintln!("skipped: {e}");
            }
            assert_eq!(other.write_life().unwrap(), WriteLife::NotSet);
            for life in lives.into_iter().chain([WriteLife::None]) {
                file.set_write_life(life).unwrap();
                assert_eq!(other.write_life().unwrap(), life);
            }
        });
        std::fs::remove_file(&path).unwrap();
    }
}

#[test]
fn discarded_range_of_a_file_reads_as_zeros() {
    let directory = directory();
    let path = directory.path().join("file");
    let content = pattern(4 * BLOCK as usize);
    for way in [outside, solitary, alone, in_company] {
        std::fs::write(&path, &content).unwrap();
        way(|| {
            let file = open(&path);
            match file.discard(BLOCK, 2 * BLOCK) {
                Err(e) if e.raw_os_error() == Some(libc::EOPNOTSUPP) => {
                    return eprintln!("skipped: this file system has no holes: {e}");
                }
                result => result.unwrap(),
            }
            let mut expected = content.clone();
            expected[BLOCK as usize..3 * BLOCK as usize].fill(0);
            assert!(std::fs::read(&path).unwrap() == expected);
        });
    }
}

/// A loop device on a file. It is detached when this is dropped.
struct LoopDevice(String);

impl LoopDevice {
    /// Attaches a device. The error says why this machine cannot.
    fn new(image: &Path) -> io::Result<LoopDevice> {
        let output = Command::new("losetup").args(["--find", "--show"]).arg(image).output()?;
        if !output.status.success() {
            return Err(io::Error::other(String::from_utf8_lossy(&output.stderr).into_owned()));
        }
        Ok(LoopDevice(String::from_utf8_lossy(&output.stdout).trim().to_owned()))
    }
}

impl Drop for LoopDevice {
    fn drop(&mut self) {
        let detached = Command::new("losetup").args(["--detach", &self.0]).status();
        assert!(detached.is_ok_and(|status| status.success()), "{} stays attached", self.0);
    }
}

#[test]
fn discard_of_a_device_frees_the_range() {
    let directory = directory();
    let image = directory.path().join("image");
    let content = pattern(4 * BLOCK as usize);
    std::fs::write(&image, &content).unwrap();
    let device = match LoopDevice::new(&image) {
        Ok(device) => device,
        Err(e) => return eprintln!("skipped: no loop device: {e}"),
    };
    for way in [outside, solitary, alone, in_company] {
        way(|| {
            let file = open(device.0.as_ref());
            file.write_all_at(&content, 0).unwrap();
            file.sync_all().unwrap();
            let before = std::fs::metadata(&image).unwrap().blocks();
            match file.discard(BLOCK, 2 * BLOCK) {
                Err(e) if e.kind() == ErrorKind::Unsupported => return eprintln!("skipped: {e}"),
                result => result.unwrap(),
            }
            // The file system of the image counts in sectors of 512 bytes.
            let after = std::fs::metadata(&image).unwrap().blocks();
            assert!(after + 2 * BLOCK / 512 <= before, "{before} sectors, then {after}");
            let mut edges = vec![0; BLOCK as usize];
            file.read_exact_at(&mut edges, 0).unwrap();
            assert!(edges == content[..BLOCK as usize], "bytes before the range are lost");
            file.read_exact_at(&mut edges, 3 * BLOCK).unwrap();
            assert!(edges == content[3 * BLOCK as usize..], "bytes after the range are lost");
            for (offset, len) in [(1, 4096), (0, 100), (4 * BLOCK, 4096), (0, 8 * BLOCK)] {
                let e = file.discard(offset, len).unwrap_err();
                assert_eq!(e.kind(), ErrorKind::InvalidInput, "{offset}, {len}: {e}");
                assert!(e.to_string().contains("whole logical blocks"), "{e}");
            }
        });
    }
}

#[test]
fn discard_needs_a_writable_handle() {
    let directory = directory();
    let path = directory.path().join("file");
    std::fs::write(&path, pattern(8192)).unwrap();
    outside(|| {
        let e = File::open(&path).unwrap().discard(0, 4096).unwrap_err();
        assert_eq!(e.raw_os_error(), Some(libc::EBADF));
    });
    assert!(std::fs::read(&path).unwrap() == pattern(8192));
}
