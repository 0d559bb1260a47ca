//! Reports what a copy prints: GNU's wording, one line each, after the program's name.
//!
//! Names are quoted as GNU quotes them, so that a line can be pasted back into a shell: `'a b'`,
//! `"it's"`, `'a'$'\n''b'`.

use crate::workers::lock;
use indicatif::ProgressBar;
use std::ffi::OsStr;
use std::fmt::Display;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Mutex, OnceLock};

/// The messages of one copy, and whether one of them was a failure.
#[derive(Debug)]
pub(crate) struct Reporter {
    sink: Sink,
    failed: AtomicBool,
    /// Standard output could not be written, which was reported.
    unwritable: AtomicBool,
    /// Standard output is only for the JSON.
    reserved: AtomicBool,
    /// The bar that is hidden while a line is written.
    bar: OnceLock<ProgressBar>,
}

#[derive(Debug)]
enum Sink {
    /// The process's standard output and standard error.
    Process { program: String },
    /// Failures are kept; everything else is dropped.
    Collected(Mutex<Vec<String>>),
}

impl Reporter {
    /// Returns a reporter that prints. `program` is `cp` or `cringle cp`.
    pub(crate) fn printing(program: &str) -> Reporter {
        Reporter::new(Sink::Process { program: program.to_owned() })
    }

    /// Returns a reporter that keeps the failures for [`take_failures`](Reporter::take_failures).
    pub(crate) fn collecting() -> Reporter {
        Reporter::new(Sink::Collected(Mutex::default()))
    }

    fn new(sink: Sink) -> Reporter {
        Reporter {
            sink,
            failed: AtomicBool::new(false),
            unwritable: AtomicBool::new(false),
            reserved: AtomicBool::new(false),
            bar: OnceLock::new(),
        }
    }

    /// Keeps standard output for the JSON: [`print`](Reporter::print) uses standard error.
    pub(crate) fn reserve_stdout(&self) {
        self.reserved.store(true, Relaxed);
    }

    /// Writes lines above this bar from now on.
    pub(crate) fn draw_around(&self, bar: &ProgressBar) {
        let _ = self.bar.set(bar.clone());
    }

    /// Calls `write` while no bar is drawn.
    fn write_above_bar<R>(&self, write: impl FnOnce() -> R) -> R {
        match self.bar.get() {
            Some(bar) => bar.suspend(write),
            None => write(),
        }
    }

    /// Writes a text to standard error. If it cannot be written, the exit status becomes 1.
    pub(crate) fn write_error(&self, text: &str) {
        if self.write_above_bar(|| cringle_command::write_error(text)).is_err() {
            self.fail_silently();
        }
    }

    pub(crate) fn program(&self) -> &str {
        match &self.sink {
            Sink::Process { program } => program,
            Sink::Collected(_) => "cp",
        }
    }

    /// Writes one line to standard error.
    pub(crate) fn note(&self, text: &str) {
        if let Sink::Process { program } = &self.sink {
            self.write_error(&format!("{program}: {text}\n"));
        }
    }

    /// Reports a failure: the exit status becomes 1.
    pub(crate) fn fail(&self, text: &str) {
        self.fail_silently();
        match &self.sink {
            Sink::Process { .. } => self.note(text),
            Sink::Collected(failures) => lock(failures).push(text.to_owned()),
        }
    }

    /// Reports a failed system call.
    pub(crate) fn fail_with(&self, text: &str, error: &io::Error) {
        self.fail(&format!("{text}: {}", reason(error)));
    }

    /// Reports a system call that failed on a file, whose name is quoted.
    pub(crate) fn fail_on(&self, what: &str, name: impl Display, error: &io::Error) {
        self.fail_with(&format!("{what} {name}"), error);
    }

    /// Records a failure that has been reported, or that GNU's does not report.
    pub(crate) fn fail_silently(&self) {
        self.failed.store(true, Relaxed);
    }

    pub(crate) fn has_failed(&self) -> bool {
        self.failed.load(Relaxed)
    }

    /// Returns the collected failures.
    pub(crate) fn take_failures(&self) -> Vec<String> {
        match &self.sink {
            Sink::Process { .. } => Vec::new(),
            Sink::Collected(failures) => std::mem::take(&mut *lock(failures)),
        }
    }

    /// Writes one line to standard output with one call, so that the lines of several threads do
    /// not mix; to standard error if standard output is [reserved](Reporter::reserve_stdout). Only
    /// the first error is reported.
    pub(crate) fn print(&self, text: &str) {
        if self.reserved.load(Relaxed) {
            self.write_error(&format!("{text}\n"));
        } else if let Sink::Process { .. } = &self.sink
            && let Err(e) = self
                .write_above_bar(|| cringle_command::stdout::write(format!("{text}\n").as_bytes()))
            && !self.unwritable.swap(true, Relaxed)
        {
            self.fail_with("write error", &e);
        }
    }
}

/// Returns the error's text without its number.
pub(crate) fn reason(error: &io::Error) -> String {
    let text = error.to_string();
    match (error.raw_os_error(), text.find(" (os error ")) {
        (Some(_), Some(end)) => text[..end].to_owned(),
        _ => text,
    }
}

/// Returns whether the locale prints characters beyond ASCII.
fn is_utf8_locale() -> bool {
    static UTF8: OnceLock<bool> = OnceLock::new();
    *UTF8.get_or_init(|| {
        let locale = ["LC_ALL", "LC_CTYPE", "LANG"]
            .iter()
            .filter_map(std::env::var_os)
            .find(|value| !value.is_empty())
            .unwrap_or_default();
        let locale = locale.to_string_lossy().to_ascii_lowercase();
        locale.contains("utf-8") || locale.contains("utf8")
    })
}

/// A part of a text: a printable character or a byte that is not part of one.
enum Piece<'a> {
    Printable(&'a str),
    Byte(u8),
}

fn pieces(bytes: &[u8]) -> Vec<Piece<'_>> {
    let mut all = Vec::new();
    for chunk in bytes.utf8_chunks() {
        for (at, c) in chunk.valid().char_indices() {
            let text = &chunk.valid()[at..at + c.len_utf8()];
            if c.is_control() || (!c.is_ascii() && !is_utf8_locale()) {
                all.extend(text.bytes().map(Piece::Byte));
            } else {
                all.push(Piece::Printable(text));
            }
        }
        all.extend(chunk.invalid().iter().map(|&byte| Piece::Byte(byte)));
    }
    all
}

/// Returns the name in quotes that a shell understands.
pub(crate) fn quote(name: impl AsRef<OsStr>) -> String {
    let bytes = name.as_ref().as_bytes();
    if bytes.iter().all(|byte| (0x20..0x7f).contains(byte) && *byte != b'\'') {
        return format!("'{}'", String::from_utf8_lossy(bytes));
    }
    let pieces = pieces(bytes);
    if let Some(text) = in_double_quotes(&pieces) {
        return text;
    }
    let mut out = String::from("'");
    let mut escaped = false;
    for piece in pieces {
        match piece {
            Piece::Printable(text) => {
                if std::mem::take(&mut escaped) {
                    out.push_str("''");
                }
                out.push_str(if text == "'" { "'\\''" } else { text });
            }
            Piece::Byte(byte) => {
                if !std::mem::replace(&mut escaped, true) {
                    out.push_str("'$'");
                }
                out.push_str(&escape(byte));
            }
        }
    }
    out.push('\'');
    out
}

/// Quotes a text that is printable and has no special character within double quotes; `None` for
/// others.
///
/// The quotes are double if the text has a single quote.
fn in_double_quotes(pieces: &[Piece<'_>]) -> Option<String> {
    let has_quote = pieces.iter().any(|piece| matches!(piece, Piece::Printable("'")));
    let mut out = String::from(if has_quote { "\"" } else { "'" });
    for piece in pieces {
        let Piece::Printable(text) = piece else { return None };
        let plain = text.chars().all(|c| {
            c.is_alphanumeric() || "%+,-./:=@]_ '".contains(c) || (!c.is_ascii() && !c.is_control())
        });
        if !plain {
            return None;
        }
        out.push_str(text);
    }
    out.push(if has_quote { '"' } else { '\'' });
    Some(out)
}

fn escape(byte: u8) -> String {
    match byte {
        7 => "\\a".into(),
        8 => "\\b".into(),
        9 => "\\t".into(),
        10 => "\\n".into(),
        11 => "\\v".into(),
        12 => "\\f".into(),
        13 => "\\r".into(),
        _ => format!("\\{byte:03o}"),
    }
}

/// Quotes an invalid argument as the locale does.
pub(crate) fn quote_word(word: &str) -> String {
    if is_utf8_locale() { format!("‘{word}’") } else { format!("'{word}'") }
}

/// Returns the permissions as `ls` shows them: `rw-r--r--`.
pub(crate) fn mode_letters(mode: u32) -> String {
    let mut out = String::new();
    for (shift, special, letter) in
        [(6, libc::S_ISUID, 's'), (3, libc::S_ISGID, 's'), (0, libc::S_ISVTX, 't')]
    {
        let bits = mode >> shift & 7;
        out.push(if bits & 4 != 0 { 'r' } else { '-' });
        out.push(if bits & 2 != 0 { 'w' } else { '-' });
        out.push(match (mode & special != 0, bits & 1 != 0) {
            (true, true) => letter,
            (true, false) => letter.to_ascii_uppercase(),
            (false, true) => 'x',
            (false, false) => '-',
        });
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_quoted_for_a_shell() {
        for (name, quoted) in [
            (&b"x"[..], "'x'"),
            (b"", "''"),
            (b"a b", "'a b'"),
            (b"it's", "\"it's\""),
            (b"it's $1", "'it'\\''s $1'"),
            (b"a\nb", "'a'$'\\n''b'"),
            (b"\n", "''$'\\n'"),
            (b"\xff\xfe", "''$'\\377\\376'"),
        ] {
            assert_eq!(quote(OsStr::from_bytes(name)), quoted);
        }
    }

    #[test]
    fn mode_letters_match_ls() {
        assert_eq!(mode_letters(0o644), "rw-r--r--");
        assert_eq!(mode_letters(0o4755), "rwsr-xr-x");
        assert_eq!(mode_letters(0o1666), "rw-rw-rwT");
    }
}
