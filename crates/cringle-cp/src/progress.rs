//! Shows the progress on a terminal: a bar with bytes, files, rate and the time left. If standard
//! error is not a terminal, `--progress` prints one line at the end.
//!
//! Nothing is counted or shown in the first second, so that short copies pay nothing. Then one
//! thread [counts the sources](crate::count_ahead), and another draws twice a second. Until the
//! count is complete, the total is shown as a lower bound, without a percentage.

use crate::count_ahead::Total;
use crate::messages::Reporter;
use crate::options::Options;
use crate::summary::Counters;
use crate::workers::lock;
use cringle_command::units;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::ffi::OsString;
use std::io::{self, IsTerminal};
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// A copy that ends earlier shows nothing.
const DELAY: Duration = Duration::from_secs(1);
const INTERVAL: Duration = Duration::from_millis(500);
/// The weight of the latest interval in the rate that is shown.
const LATEST: f64 = 0.1;
/// The work of a file beyond its bytes, in bytes: a file without content takes time, too.
const FILE_BYTES: u64 = 16 << 10;
const BAR_WIDTH: usize = 20;

/// Ends the thread that draws.
#[derive(Default)]
struct End {
    is_over: Mutex<bool>,
    changed: Condvar,
}

/// The progress of one copy.
pub(crate) struct Progress {
    reporter: Arc<Reporter>,
    counters: Arc<Counters>,
    start: Instant,
    /// The thread that draws on a terminal; without it, a line is printed at the end.
    drawing: Option<(Arc<End>, JoinHandle<()>)>,
}

impl Progress {
    /// Starts to show the progress: on a terminal unless `wanted` is false, elsewhere if it is
    /// true.
    pub(crate) fn start(
        wanted: Option<bool>,
        options: &Options,
        counters: &Arc<Counters>,
        sources: Vec<OsString>,
    ) -> Option<Progress> {
        let is_terminal = io::stderr().is_terminal();
        if !wanted.unwrap_or(is_terminal) {
            return None;
        }
        let (reporter, counters) = (Arc::clone(&options.reporter), Arc::clone(counters));
        let drawing = if is_terminal {
            let (options, end) = (options.clone(), Arc::new(End::default()));
            let drawn = Drawing::new(Arc::clone(&reporter), Arc::clone(&counters));
            let shared = Arc::clone(&end);
            let draw = move || drawn.run(&shared, &options, &sources);
            let thread = std::thread::Builder::new().name("progress".into()).spawn(draw).ok()?;
            Some((end, thread))
        } else {
            None
        };
        Some(Progress { reporter, counters, start: Instant::now(), drawing })
    }

    /// Removes the bar; without a terminal, prints a line unless the copy was interrupted, which
    /// has a line of its own.
    pub(crate) fn finish(self, interrupted: bool) {
        if let Some((end, thread)) = self.drawing {
            *lock(&end.is_over) = true;
            end.changed.notify_all();
            let _ = thread.join();
        } else if !interrupted {
            let summary = self.counters.summary();
            self.reporter.note(&summary.at_end(self.start.elapsed()));
        }
    }
}

/// What is shown of a copy at one moment.
#[derive(Clone, Copy)]
struct Moment {
    bytes: u64,
    files: u64,
    total_bytes: u64,
    total_files: u64,
    is_exact: bool,
}

impl Moment {
    fn of(counters: &Counters, total: &Total) -> Moment {
        let files = counters.files.load(Relaxed) + counters.kept_files.load(Relaxed);
        Moment {
            bytes: counters.bytes_so_far() + counters.kept_bytes.load(Relaxed),
            files,
            total_bytes: total.bytes.load(Relaxed),
            total_files: total.files.load(Relaxed),
            is_exact: total.is_exact(),
        }
    }

    fn work(bytes: u64, files: u64) -> u64 {
        bytes.saturating_add(files.saturating_mul(FILE_BYTES))
    }

    fn done(&self) -> u64 {
        Moment::work(self.bytes, self.files)
    }

    /// Returns the work of all sources; `None` while it is only a lower bound. Sources that have
    /// changed since they were counted make it one.
    fn all(&self) -> Option<u64> {
        let all = Moment::work(self.total_bytes, self.total_files);
        let is_exact =
            self.is_exact && self.bytes <= self.total_bytes && self.files <= self.total_files;
        is_exact.then_some(all)
    }

    /// Returns the whole line: the bar with the percentage and the time left, if the total is
    /// known, and the figures. What a narrow terminal cuts comes last. `bytes_per_second` and
    /// `work_per_second`: the rates so far.
    fn line(&self, bytes_per_second: f64, work_per_second: f64) -> String {
        let mib = |bytes: f64| units::figure(units::mib(bytes));
        let count = |files: u64| units::count(files as f64);
        let all = self.all();
        let of = if all.is_some() { "of" } else { "of at least" };
        let figures = format!(
            "{} {of} {} MiB, {} MiB/s, {} {of} {} files",
            mib(self.bytes as f64),
            mib(self.total_bytes.max(self.bytes) as f64),
            mib(bytes_per_second),
            count(self.files),
            count(self.total_files.max(self.files)),
        );
        let Some(all) = all else { return figures };
        let percent = (self.done() as u128 * 100 / all.max(1) as u128) as usize;
        let bar = "=".repeat(percent * BAR_WIDTH / 100);
        let left = match work_per_second {
            rate if rate > 0.0 => {
                format!("{} left, ", duration((all - self.done()) as f64 / rate))
            }
            _ => String::new(),
        };
        format!("{percent:>3} % [{bar:BAR_WIDTH$}] {left}{figures}")
    }
}

/// Formats a duration: `42 s`, `3 min`, `2 h 05 min`.
fn duration(seconds: f64) -> String {
    let minutes = (seconds / 60.0).round() as u64;
    match seconds {
        seconds if seconds < 99.5 => format!("{seconds:.0} s"),
        _ if minutes < 100 => format!("{minutes} min"),
        _ => format!("{} h {:02} min", minutes / 60, minutes % 60),
    }
}

/// A rate in which the past fades.
struct Rate {
    per_second: Option<f64>,
    last: u64,
}

impl Rate {
    fn update(&mut self, now: u64, interval: Duration) -> f64 {
        let latest = now.saturating_sub(std::mem::replace(&mut self.last, now)) as f64
            / interval.as_secs_f64();
        let rate = self.per_second.map_or(latest, |rate| rate + LATEST * (latest - rate));
        *self.per_second.insert(rate)
    }
}

/// The thread that draws.
struct Drawing {
    reporter: Arc<Reporter>,
    counters: Arc<Counters>,
    total: Arc<Total>,
    rates: [Rate; 2],
}

impl Drawing {
    fn new(reporter: Arc<Reporter>, counters: Arc<Counters>) -> Drawing {
        let rates = [(); 2].map(|()| Rate { per_second: None, last: 0 });
        Drawing { reporter, counters, total: Arc::default(), rates }
    }

    fn run(mut self, end: &End, options: &Options, sources: &[OsString]) {
        let mut last = Instant::now();
        let mut bar = None;
        let mut is_over = lock(&end.is_over);
        while !*is_over {
            let pause = if bar.is_some() { INTERVAL } else { DELAY };
            is_over = end
                .changed
                .wait_timeout_while(is_over, pause, |is_over| !*is_over)
                .unwrap_or_else(PoisonError::into_inner)
                .0;
            if *is_over {
                break;
            }
            let bar = bar.get_or_insert_with(|| self.begin(options, sources));
            let interval = last.elapsed();
            last = Instant::now();
            self.draw(bar, interval);
        }
        self.total.stop();
        if let Some(bar) = bar {
            bar.finish_and_clear();
        }
    }

    /// Starts the count, and creates the bar.
    fn begin(&self, options: &Options, sources: &[OsString]) -> ProgressBar {
        let (total, options) = (Arc::clone(&self.total), options.clone());
        let sources = sources.to_owned();
        // Without the thread, no total is shown.
        let _ = std::thread::Builder::new().spawn(move || total.count(&options, sources));
        let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr());
        // All figures are in the message, so that each drawn line is of one moment.
        let style = ProgressStyle::with_template("{wide_msg}").expect("the template is constant");
        bar.set_style(style);
        self.reporter.draw_around(&bar);
        bar
    }

    fn draw(&mut self, bar: &ProgressBar, interval: Duration) {
        let now = Moment::of(&self.counters, &self.total);
        // What an earlier run has copied is no work of this one.
        let kept_bytes = self.counters.kept_bytes.load(Relaxed);
        let kept = Moment::work(kept_bytes, self.counters.kept_files.load(Relaxed));
        let [bytes, work] = &mut self.rates;
        let bytes = bytes.update(now.bytes.saturating_sub(kept_bytes), interval);
        let work = work.update(now.done().saturating_sub(kept), interval);
        bar.set_message(now.line(bytes, work));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    fn moment(is_exact: bool) -> Moment {
        Moment { bytes: 5 * MIB, files: 1, total_bytes: 20 * MIB, total_files: 1_234, is_exact }
    }

    #[test]
    fn total_is_a_lower_bound_until_counted() {
        let counting = moment(false);
        let line = "5.00 of at least 20.0 MiB, 1.00 MiB/s, 1 of at least 1,234 files";
        assert_eq!(counting.line(MIB as f64, MIB as f64), line);
        assert_eq!(counting.all(), None);
        let line = moment(true).line(MIB as f64, MIB as f64);
        let bar = " 12 % [==                  ] 34 s left, ";
        assert_eq!(line, format!("{bar}5.00 of 20.0 MiB, 1.00 MiB/s, 1 of 1,234 files"));
    }

    #[test]
    fn sources_that_grow_make_a_lower_bound() {
        let grown = Moment { bytes: 21 * MIB, ..moment(true) };
        assert_eq!(grown.all(), None);
        assert!(grown.line(0.0, 0.0).starts_with("21.0 of at least 21.0 MiB, "));
    }

    #[test]
    fn time_left_has_two_units_at_most() {
        let texts = [0.2, 99.0, 100.0, 5_900.0, 7_500.0].map(duration);
        assert_eq!(texts, ["0 s", "99 s", "2 min", "98 min", "2 h 05 min"].map(String::from));
    }

    #[test]
    fn rate_follows_the_latest_intervals() {
        let mut rate = Rate { per_second: None, last: 0 };
        assert_eq!(rate.update(100, Duration::from_secs(1)), 100.0);
        let mut shown = 0.0;
        for second in 1..100 {
            shown = rate.update(100 + second * 10, Duration::from_secs(1));
        }
        assert!((shown - 10.0).abs() < 0.1, "{shown}");
    }
}
