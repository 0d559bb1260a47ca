//! A progress bar on standard error; none when that is no terminal.
//!
//! It is drawn between the runs only: a bar that is redrawn by a thread of its own would
//! take time and context switches from what is measured.

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

pub struct Progress {
    shown: bool,
}

impl Progress {
    pub fn new(shown: bool) -> Progress {
        Progress { shown }
    }

    pub fn bytes(&self, total: u64, what: &'static str) -> ProgressBar {
        let template = "{msg} [{bar:30}] {bytes}/{total_bytes} {bytes_per_sec}";
        self.bar(total, template).with_message(what)
    }

    pub fn runs(&self, total: u64) -> ProgressBar {
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
