//! Counts what was copied, for the caller, `--json` and the last line of an interrupted copy.

use cringle_command::units;
use serde_json::{Value, json};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

/// How much a copy has copied.
///
/// ```
/// use cringle_cp::{Options, Summary, copy};
/// # let place = tempfile::tempdir()?;
/// # let at = |name: &str| place.path().join(name);
/// # std::fs::create_dir(at("photos"))?;
/// # std::fs::write(at("photos/cat.jpg"), "a cat")?;
///
/// let Summary { files, directories, bytes, .. } =
///     copy(&[at("photos")], at("copy"), &Options::new().recursive(true))?;
/// assert_eq!((files, directories, bytes), (1, 1, 5));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Summary {
    /// Regular files.
    pub files: u64,
    /// Directories, new ones and existing ones.
    pub directories: u64,
    /// Links, FIFOs, sockets and devices.
    pub links_and_special_files: u64,
    /// Bytes of regular files.
    pub bytes: u64,
    /// Files that share their blocks with their source.
    pub cloned_files: u64,
    /// Names that could not be copied.
    pub failures: u64,
    /// Regular files whose targets were kept: newer or existing ones, if the options say so, and
    /// those that an earlier run of a resumed copy has completed.
    pub kept_files: u64,
}

/// Returns `1 file`, `2,000 files`.
fn counted(number: u64, [one, many]: [&str; 2]) -> String {
    format!("{} {}", units::count(number as f64), if number == 1 { one } else { many })
}

/// The counters that all workers add to.
#[derive(Default)]
pub(crate) struct Counters {
    pub(crate) files: AtomicU64,
    pub(crate) directories: AtomicU64,
    pub(crate) others: AtomicU64,
    pub(crate) bytes: AtomicU64,
    /// Bytes of files that are being copied.
    pub(crate) unfinished_bytes: AtomicU64,
    pub(crate) cloned: AtomicU64,
    pub(crate) failures: AtomicU64,
    /// Regular files of the sources that were not copied, because their targets are kept.
    pub(crate) kept_files: AtomicU64,
    pub(crate) kept_bytes: AtomicU64,
}

impl Counters {
    pub(crate) fn add(counter: &AtomicU64, count: u64) {
        counter.fetch_add(count, Relaxed);
    }

    /// Returns the bytes of all files, also of those that are being copied.
    pub(crate) fn bytes_so_far(&self) -> u64 {
        self.bytes.load(Relaxed) + self.unfinished_bytes.load(Relaxed)
    }

    pub(crate) fn summary(&self) -> Summary {
        let get = |counter: &AtomicU64| counter.load(Relaxed);
        Summary {
            files: get(&self.files),
            directories: get(&self.directories),
            links_and_special_files: get(&self.others),
            bytes: get(&self.bytes),
            cloned_files: get(&self.cloned),
            failures: get(&self.failures),
            kept_files: get(&self.kept_files),
        }
    }
}

impl Summary {
    pub(crate) fn json(&self, elapsed: Duration, status: u8) -> Value {
        let seconds = elapsed.as_secs_f64();
        json!({
            "schema": 1,
            "command": "cp",
            "status": status,
            "files": self.files,
            "directories": self.directories,
            "links_and_special_files": self.links_and_special_files,
            "bytes": self.bytes,
            "cloned_files": self.cloned_files,
            "failures": self.failures,
            "kept_files": self.kept_files,
            "seconds": seconds,
            "mib_per_second": units::mib(self.bytes as f64) / seconds.max(1e-9),
        })
    }

    /// Returns the line that `--progress` prints at the end.
    pub(crate) fn at_end(&self, elapsed: Duration) -> String {
        let seconds = elapsed.as_secs_f64();
        let rate = units::mib(self.bytes as f64) / seconds.max(1e-9);
        let mut line = format!(
            "copied {}, {}, {} in {} s, {} MiB/s",
            counted(self.files, ["file", "files"]),
            counted(self.directories, ["directory", "directories"]),
            units::size(self.bytes),
            units::figure(seconds),
            units::figure(rate),
        );
        if self.kept_files > 0 {
            line.push_str(&format!("; {} kept", counted(self.kept_files, ["file", "files"])));
        }
        if self.failures > 0 {
            line.push_str(&format!("; {} failed", units::count(self.failures as f64)));
        }
        line
    }

    /// Returns the clause that an interrupted copy prints.
    pub(crate) fn so_far(&self) -> String {
        format!(
            "{}, {}, {} were copied",
            counted(self.files, ["file", "files"]),
            counted(self.directories, ["directory", "directories"]),
            units::size(self.bytes)
        )
    }
}
