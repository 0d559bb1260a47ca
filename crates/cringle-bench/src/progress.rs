//! A progress bar on standard error, hidden if that is no terminal.
//!
//! It is drawn between the runs only: a thread that redraws it would take CPU time and context
//! switches from the measured work.

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

pub(crate) struct Progress {
    shown: bool,
}

impl Progress {
    pub(crate) fn new(shown: bool) -> Progress {
        Progress { shown }
    }

    pub(crate) fn bytes(&self, total: u64, what: &'static str) -> ProgressBar {
        let template = "{msg} [{bar:30}] {bytes}/{total_bytes} {bytes_per_sec}";
        self.bar(total, template).with_message(what)
    }

    pub(crate) fn runs(&self, total: u64) -> ProgressBar {
        self.bar(total, "[{bar:30}] {pos}/{len} runs, {eta} left  {msg}")
    }

    fn bar(&self, total: u64, template: &str) -> ProgressBar {
        if !self.shown {
            return ProgressBar::hidden();
        }
        let style = ProgressStyle::with_template(template).expect("the templates are constants");
        let bar = ProgressBar::with_draw_target(Some(total), ProgressDrawTarget::stderr());
        bar.set_style(style.progress_chars("=> "));
        bar
    }
}
