//! What is told, and how: GNU's wording, one line each, the program's name before it.
//!
//! Names are quoted as GNU does it, so that a line can be pasted back into a shell: `'a b'`, `"it's"`,
//! `'a'$'\n''b'`.

use std::ffi::OsStr;
use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

static PROGRAM: OnceLock<String> = OnceLock::new();
static FAILED: AtomicBool = AtomicBool::new(false);

pub(crate) fn set_program(name: &str) {
    let _ = PROGRAM.set(name.to_owned());
}

/// `cp`, or `cringle cp`.
pub(crate) fn program() -> &'static str {
    PROGRAM.get().map_or("cringle cp", String::as_str)
}

/// One line on standard error; nothing is lost if that is closed but the line.
pub(crate) fn note(text: &str) {
    let _ = io::stderr().lock().write_all(format!("{}: {text}\n", program()).as_bytes());
}

/// A line, and the exit status will be 1.
pub(crate) fn complain(text: &str) {
    FAILED.store(true, Relaxed);
    note(text);
}

pub(crate) fn complain_of(text: &str, error: &io::Error) {
    complain(&format!("{text}: {}", reason(error)));
}

pub(crate) fn has_failed() -> bool {
    FAILED.load(Relaxed)
}

/// For what is not copied and is no mistake worth a line (`--update=none-fail` prints its own).
pub(crate) fn fail_quietly() {
    FAILED.store(true, Relaxed);
}

/// Writes a line to standard output at once: the lines of several threads do not mix. The first failure is
/// reported, and the later ones are not.
pub(crate) fn say(text: &str) {
    static UNWRITABLE: AtomicBool = AtomicBool::new(false);
    if let Err(e) = cringle_command::stdout::write(format!("{text}\n").as_bytes())
        && !UNWRITABLE.swap(true, Relaxed)
    {
        complain_of("write error", &e);
    }
}

/// The kernel's reason in words, without the number.
pub(crate) fn reason(error: &io::Error) -> String {
    let text = error.to_string();
    match (error.raw_os_error(), text.find(" (os error ")) {
        (Some(_), Some(end)) => text[..end].to_owned(),
        _ => text,
    }
}

/// Whether the locale prints characters beyond ASCII.
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

/// What the text is made of: characters that print, and bytes that do not.
enum Piece<'a> {
    Prints(&'a str),
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
                all.push(Piece::Prints(text));
            }
        }
        all.extend(chunk.invalid().iter().map(|&byte| Piece::Byte(byte)));
    }
    all
}

/// In single quotes, always.
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
            Piece::Prints(text) => {
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

/// All of it prints and means nothing within double quotes, which it gets if it has a single one.
fn in_double_quotes(pieces: &[Piece<'_>]) -> Option<String> {
    let has_quote = pieces.iter().any(|piece| matches!(piece, Piece::Prints("'")));
    let mut out = String::from(if has_quote { "\"" } else { "'" });
    for piece in pieces {
        let Piece::Prints(text) = piece else { return None };
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

/// The quotes around an argument that is wrong: the locale's.
pub(crate) fn quote_word(word: &str) -> String {
    if is_utf8_locale() { format!("‘{word}’") } else { format!("'{word}'") }
}

/// `rw-r--r--`
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
    fn modes_are_letters() {
        assert_eq!(mode_letters(0o644), "rw-r--r--");
        assert_eq!(mode_letters(0o4755), "rwsr-xr-x");
        assert_eq!(mode_letters(0o1666), "rw-rw-rwT");
    }
}
