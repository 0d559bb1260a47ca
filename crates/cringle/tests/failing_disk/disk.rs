//! A file system on a disk that fails on command.

use cringle_testing::fuse::{Faulty, Rules};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, PoisonError};
use tempfile::TempDir;

/// It is unmounted when this is dropped.
pub(crate) struct Disk {
    faulty: Faulty,
    directory: TempDir,
    device: Option<String>,
    is_mounted: bool,
}

impl Disk {
    /// Calls `f` with a disk of each file system. Prints the reason if this machine has none.
    pub(crate) fn of_each_kind(mut f: impl FnMut(&str, &Disk)) {
        Disk::of_kinds(&["ext4", "xfs"], &mut f);
    }

    /// [`of_each_kind`](Disk::of_each_kind), for these.
    pub(crate) fn of_kinds(names: &[&str], mut f: impl FnMut(&str, &Disk)) {
        for &name in names {
            let force = if name == "ext4" { "-F" } else { "-f" };
            match Disk::new(&[&format!("mkfs.{name}"), "-q", force]) {
                Ok(disk) => f(name, &disk),
                Err(e) => println!("skipped: no {name} on a disk that fails: {e}"),
            }
        }
    }

    /// Calls `f` with a disk whose file system writes through the page cache where a direct write
    /// meets a hole. Prints the reason if this machine has none.
    pub(crate) fn without_extents(f: impl FnOnce(&Disk)) {
        let features = "^extents,^64bit,^metadata_csum,^has_journal";
        match Disk::new(&["mkfs.ext4", "-q", "-F", "-O", features]) {
            Ok(disk) => f(&disk),
            Err(e) => println!("skipped: no ext4 without extents on a disk that fails: {e}"),
        }
    }

    /// The error says why this machine cannot.
    fn new(mkfs: &[&str]) -> Result<Disk, String> {
        const BYTES: usize = 320 << 20;
        let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        std::fs::create_dir(directory.path().join("mount")).unwrap();
        let faulty = Faulty::mount(directory.path(), "fuse").ok_or("FUSE is missing")?;
        // Direct, so that a write of the image returns what became of it.
        faulty.set(Rules::default().direct());
        faulty.put_zeros("victim", BYTES);
        let image = faulty.at.join("victim");
        let mut disk = Disk { faulty, directory, device: None, is_mounted: false };
        let device = run("losetup", &["--find", "--show", image.to_str().unwrap()])?;
        let device = device.trim().to_owned();
        disk.device = Some(device.clone());
        run(mkfs[0], &[&mkfs[1..], &[&*device]].concat())?;
        run("mount", &[&device, disk.path("").to_str().unwrap()])?;
        disk.is_mounted = true;
        Ok(disk)
    }

    /// From now on this many of 100 writes of marked data fail.
    pub(crate) fn fail(&self, percent: u32) {
        self.faulty.set_marked_failures(percent);
    }

    pub(crate) fn failures(&self) -> usize {
        self.faulty.fired().len()
    }

    /// Empties the page cache.
    pub(crate) fn remount(&self) {
        let path = self.path("");
        run("umount", &[path.to_str().unwrap()]).unwrap();
        run("mount", &[self.device.as_ref().unwrap(), path.to_str().unwrap()]).unwrap();
    }

    pub(crate) fn make_read_only(&self, is_read_only: bool) {
        let option = if is_read_only { "remount,ro" } else { "remount,rw" };
        run("mount", &["-o", option, self.path("").to_str().unwrap()]).unwrap();
    }

    /// Limits a btrfs to as many bytes. The error says why this machine cannot.
    pub(crate) fn set_quota(&self, limit: &str) -> Result<(), String> {
        let root = self.path("");
        let root = root.to_str().unwrap();
        run("btrfs", &["quota", "enable", root])?;
        run("btrfs", &["qgroup", "limit", limit, root]).map(drop)
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join("mount").join(name)
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        self.fail(0);
        if self.is_mounted {
            let path: &Path = &self.path("");
            run("umount", &[path.to_str().unwrap()]).unwrap();
        }
        if let Some(device) = &self.device {
            run("losetup", &["--detach", device]).unwrap();
        }
    }
}

/// While a child of one test begins its program, it has the files of all tests open, and their file
/// systems are busy. `spawn` may return before the child has closed them, so only one child lives
/// at a time.
static CHILD: Mutex<()> = Mutex::new(());

fn run(command: &str, arguments: &[&str]) -> Result<String, String> {
    let output = {
        let _only = CHILD.lock().unwrap_or_else(PoisonError::into_inner);
        Command::new(command).args(arguments).output()
    };
    let output = output.map_err(|e| format!("{command}: {e}"))?;
    match output.status.success() {
        true => Ok(String::from_utf8(output.stdout).unwrap()),
        false => Err(format!("{command}: {}", String::from_utf8_lossy(&output.stderr))),
    }
}
