//! Shows the progress on a terminal: bytes, files, rate, and the time left once the sources have
//! been counted.
//!
//! Nothing is counted or shown in the first second, so that short copies pay nothing. Then one
//! thread adds up the sizes of the sources, and another draws a line twice a second.

use crate::summary::Counters;
use cringle_command::units;
use std::ffi::OsString;
use std::io::{self, IsTerminal, Write};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// A copy that ends earlier shows nothing.
const DELAY: Duration = Duration::from_secs(1);
const INTERVAL: Duration = Duration::from_millis(500);

/// Ends the thread that draws.
#[derive(Default)]
struct End {
    is_over: Mutex<bool>,
    changed: Condvar,
}

/// A progress line that is being shown.
pub(crate) struct Progress {
    end: Arc<End>,
    thread: JoinHandle<()>,
}

impl Progress {
    /// Starts to show the progress if standard error is a terminal, unless `wanted` is false.
    pub(crate) fn start(
        wanted: Option<bool>,
        counters: Arc<Counters>,
        sources: Vec<OsString>,
    ) -> Option<Progress> {
        if !wanted.unwrap_or_else(|| io::stderr().is_terminal()) || !io::stderr().is_terminal() {
            return None;
        }
        let end = Arc::new(End::default());
        let shared = Arc::clone(&end);
        let draw = move || draw(&shared, &counters, sources);
        let thread = std::thread::Builder::new().name("progress".into()).spawn(draw).ok()?;
        Some(Progress { end, thread })
    }

    pub(crate) fn finish(self) {
        *self.end.is_over.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.end.changed.notify_all();
        let _ = self.thread.join();
    }
}

/// The size of the sources, as far as it has been counted.
#[derive(Default)]
struct Total {
    bytes: AtomicU64,
    complete: AtomicBool,
    stop: AtomicBool,
}

fn draw(end: &End, counters: &Counters, sources: Vec<OsString>) {
    let start = Instant::now();
    let total = Arc::new(Total::default());
    let mut drawn = false;
    let mut is_over = end.is_over.lock().unwrap_or_else(PoisonError::into_inner);
    while !*is_over {
        let pause = if drawn { INTERVAL } else { DELAY };
        is_over = end
            .changed
            .wait_timeout_while(is_over, pause, |is_over| !*is_over)
            .unwrap_or_else(PoisonError::into_inner)
            .0;
        if *is_over {
            break;
        }
        if !drawn {
            let (total, sources) = (Arc::clone(&total), sources.clone());
            let _ = std::thread::Builder::new().spawn(move || count(&total, sources));
            drawn = true;
        }
        let line = line(counters, &total, start.elapsed());
        let _ = write!(io::stderr(), "\r\x1b[K{line}");
    }
    total.stop.store(true, Relaxed);
    if drawn {
        let _ = write!(io::stderr(), "\r\x1b[K");
    }
}

fn line(counters: &Counters, total: &Total, elapsed: Duration) -> String {
    let bytes = counters.bytes_so_far() as f64;
    let rate = bytes / elapsed.as_secs_f64();
    let files = units::count(counters.files.load(Relaxed) as f64);
    let mut line = format!(
        "{} MiB, {files} files, {} MiB/s",
        units::figure(units::mib(bytes)),
        units::figure(units::mib(rate))
    );
    let all = total.bytes.load(Relaxed) as f64;
    if total.complete.load(Relaxed) && rate > 0.0 && all >= bytes {
        line.push_str(&format!(", {:.0} s left", (all - bytes) / rate));
    }
    line
}

fn count(total: &Total, sources: Vec<OsString>) {
    let mut paths: Vec<PathBuf> = sources.into_iter().map(PathBuf::from).collect();
    while let Some(path) = paths.pop() {
        if total.stop.load(Relaxed) {
            return;
        }
        let Ok(metadata) = std::fs::symlink_metadata(&path) else { continue };
        if metadata.is_file() {
            total.bytes.fetch_add(metadata.len(), Relaxed);
        } else if metadata.is_dir()
            && let Ok(entries) = std::fs::read_dir(&path)
        {
            for entry in entries.flatten() {
                match entry.file_type() {
                    Ok(kind) if kind.is_dir() => paths.push(entry.path()),
                    Ok(kind) if kind.is_file() => {
                        let length = entry.metadata().map_or(0, |metadata| metadata.len());
                        total.bytes.fetch_add(length, Relaxed);
                    }
                    _ => {}
                }
            }
        }
    }
    total.complete.store(true, Relaxed);
}
