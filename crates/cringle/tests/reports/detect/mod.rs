//! The hazard detector: each hazard is reported once, with its places, and nothing else is. Each
//! test runs in a child process, whose standard error it reads.

mod cells;
mod locks;
mod std_locks;

use cringle::detect::RefCell;
use cringle::runtime::{Balance, ThreadLocals};
use cringle::{Builder, fiber};
use cringle_testing::child;
use std::io;
use std::process::{Command, Output};

fn named(name: &str) -> fiber::Builder {
    fiber::Builder::new().name(name.into())
}

/// One worker, whose fibers share its thread-locals.
fn shared() -> Builder {
    Builder::new().workers(1).thread_locals(ThreadLocals::Shared).balance(Balance::Fixed)
}

/// The same with thread-locals of the fibers' own. `None` where they cannot have any.
fn private() -> Option<Builder> {
    let builder = Builder::new().workers(1).thread_locals(ThreadLocals::Private);
    match builder.clone().run(|| ()) {
        Ok(()) => Some(builder),
        Err(e) => {
            println!("SKIPPED: {e}");
            None
        }
    }
}

/// Runs `body` in a child, and returns its output there.
#[track_caller]
fn output(
    test: &str,
    prepare: impl FnOnce(&mut Command) -> &mut Command,
    body: impl FnOnce(),
) -> Option<Output> {
    let output = child::run_with(test, |it| prepare(it.env_remove("CRINGLE_DETECT")));
    if output.is_none() {
        body();
    }
    output
}

/// The reports of a child that runs `body` and succeeds.
#[track_caller]
fn reports(test: &str, body: impl FnOnce()) -> Option<Vec<String>> {
    let printed = succeeded(&output(test, |command| command, body)?);
    Some(lines_with(&printed, "cringle: hazard: "))
}

fn succeeded(output: &Output) -> String {
    let printed = child::transcript(output);
    assert!(output.status.success(), "{printed}");
    assert!(printed.contains("running 1 test\n"), "{printed}");
    printed
}

fn lines_with(printed: &str, text: &str) -> Vec<String> {
    printed.lines().filter(|line| line.contains(text)).map(str::to_owned).collect()
}

/// The place of the line of a file that ends with this comment, as a report names it.
fn place(file: &str, source: &str, comment: &str) -> String {
    let comment = format!("// {comment}");
    let mut numbers = (1..).zip(source.lines()).filter(|(_, line)| line.ends_with(&comment));
    let (number, _) = numbers.next().expect("the comment exists");
    assert!(numbers.next().is_none(), "{comment} is there twice");
    format!("tests/reports/detect/{file}:{number}:")
}

/// The report has these texts, in this order.
#[track_caller]
fn assert_names(report: &str, texts: &[&str]) {
    let mut rest = report;
    for text in texts {
        let found = rest.find(text).unwrap_or_else(|| panic!("no {text:?} in {report:?}"));
        rest = &rest[found + text.len()..];
    }
}

#[track_caller]
fn assert_one(reports: &[String], texts: &[&str]) {
    assert_eq!(reports.len(), 1, "{reports:#?}");
    assert_names(&reports[0], texts);
}

fn hold_over_a_wait() {
    let cell = RefCell::new(0);
    let run = || {
        let _borrow = cell.borrow_mut();
        fiber::yield_now();
    };
    shared().run(run).unwrap();
}

#[test]
fn environment_turns_detector_off() {
    let name = "environment_turns_detector_off";
    if let Some(output) = output(name, |it| it.env("CRINGLE_DETECT", "off"), hold_over_a_wait) {
        assert_eq!(lines_with(&succeeded(&output), "hazard"), [""; 0]);
    }
}

#[test]
fn environment_makes_report_abort() {
    use std::os::unix::process::ExitStatusExt;

    let name = "environment_makes_report_abort";
    if let Some(output) = output(name, |it| it.env("CRINGLE_DETECT", "abort"), hold_over_a_wait) {
        let printed = child::transcript(&output);
        assert_eq!(output.status.signal(), Some(libc::SIGABRT), "{printed}");
        assert_eq!(lines_with(&printed, "hazard: ").len(), 1, "{printed}");
        assert!(printed.contains("aborting, because CRINGLE_DETECT is `abort`"), "{printed}");
    }
}

#[test]
fn invalid_mode_in_environment_is_refused() {
    let body = || {
        let refused = Builder::new().run(|| ()).unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::InvalidInput);
        assert!(refused.to_string().contains("CRINGLE_DETECT is \"yes\""), "{refused}");
    };
    let name = "invalid_mode_in_environment_is_refused";
    if let Some(output) = output(name, |it| it.env("CRINGLE_DETECT", "yes"), body) {
        succeeded(&output);
    }
}
