//! Parses a command line as GNU programs do.
//!
//! Options and names come in any order (under `POSIXLY_CORRECT`, no option follows a name); `-rv`
//! is `-r -v`; `-tDIR` and abbreviated long options are accepted. The order of options is kept,
//! because of `-L -P` the last one counts. clap does not keep the order between options, and words
//! its errors differently.

use crate::flags::{FLAGS, Flag, Value};
use std::collections::VecDeque;
use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt, OsStringExt};

/// An option with its value.
pub(crate) struct Given {
    pub(crate) flag: &'static Flag,
    pub(crate) value: Option<OsString>,
}

/// The options in their order, and the names.
pub(crate) struct CommandLine {
    pub(crate) options: Vec<Given>,
    pub(crate) names: Vec<OsString>,
}

/// Splits the arguments into options and names. The error is the message to print.
pub(crate) fn read(arguments: Vec<OsString>, posix: bool) -> Result<CommandLine, String> {
    let mut line = CommandLine { options: Vec::new(), names: Vec::new() };
    let mut rest = VecDeque::from(arguments);
    while let Some(argument) = rest.pop_front() {
        let bytes = argument.as_bytes();
        if bytes == b"--" {
            break;
        } else if let Some(long) = bytes.strip_prefix(b"--") {
            line.options.push(read_long(long, &mut rest)?);
        } else if bytes.len() > 1 && bytes[0] == b'-' {
            read_short(&bytes[1..], &mut rest, &mut line.options)?;
        } else {
            line.names.push(argument);
            if posix {
                break;
            }
        }
    }
    line.names.extend(rest);
    Ok(line)
}

fn read_long(text: &[u8], rest: &mut VecDeque<OsString>) -> Result<Given, String> {
    let equals = text.iter().position(|&byte| byte == b'=');
    let name = String::from_utf8_lossy(&text[..equals.unwrap_or(text.len())]).into_owned();
    let attached = equals.map(|at| OsString::from_vec(text[at + 1..].to_vec()));
    let flag = find_long(&name, text)?;
    let value = match (flag.value, attached) {
        (Value::None, Some(_)) => {
            return Err(format!("option '--{}' doesn't allow an argument", flag.long));
        }
        (Value::Needed(_), None) => Some(
            rest.pop_front()
                .ok_or_else(|| format!("option '--{}' requires an argument", flag.long))?,
        ),
        (_, attached) => attached,
    };
    Ok(Given { flag, value })
}

/// Finds an option by its name or an unambiguous abbreviation.
fn find_long(name: &str, text: &[u8]) -> Result<&'static Flag, String> {
    let long = || FLAGS.iter().filter(|flag| !flag.is_short_only());
    if let Some(flag) = long().find(|flag| flag.long == name) {
        return Ok(flag);
    }
    let all: Vec<_> = long().filter(|flag| flag.long.starts_with(name)).collect();
    // GNU's own options have precedence, so that an abbreviation that GNU's accepts is accepted
    // here.
    let known: Vec<_> = all.iter().filter(|flag| is_gnus(flag)).copied().collect();
    let candidates = if known.is_empty() { all } else { known };
    match candidates[..] {
        [flag] => Ok(flag),
        [] => Err(format!("unrecognized option '--{}'", String::from_utf8_lossy(text))),
        _ => {
            let names: Vec<_> =
                candidates.iter().map(|flag| format!("'--{}'", flag.long)).collect();
            Err(format!(
                "option '--{}' is ambiguous; possibilities: {}",
                String::from_utf8_lossy(text),
                names.join(" ")
            ))
        }
    }
}

fn is_gnus(flag: &Flag) -> bool {
    !matches!(
        flag.long,
        "fsync"
            | "jobs"
            | "block-size"
            | "progress"
            | "no-progress"
            | "verify"
            | "json"
            | "trace"
            | "dry-run"
    )
}

fn read_short(
    letters: &[u8],
    rest: &mut VecDeque<OsString>,
    options: &mut Vec<Given>,
) -> Result<(), String> {
    for (at, &letter) in letters.iter().enumerate() {
        let flag = FLAGS
            .iter()
            .find(|flag| flag.short == Some(char::from(letter)))
            .ok_or_else(|| format!("invalid option -- '{}'", char::from(letter)))?;
        if !matches!(flag.value, Value::Needed(_)) {
            options.push(Given { flag, value: None });
            continue;
        }
        let attached = &letters[at + 1..];
        let value = if attached.is_empty() {
            rest.pop_front()
                .ok_or_else(|| format!("option requires an argument -- '{}'", char::from(letter)))?
        } else {
            OsString::from_vec(attached.to_vec())
        };
        options.push(Given { flag, value: Some(value) });
        break;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error_of(arguments: &[&str]) -> String {
        let arguments = arguments.iter().map(OsString::from).collect();
        read(arguments, false).err().unwrap_or_default()
    }

    #[test]
    fn options_and_names_come_in_any_order() {
        let line =
            read(["-rv", "a", "--targ", "b", "-Sx", "--", "-c"].map(OsString::from).into(), false);
        let line = line.unwrap_or_else(|e| panic!("{e}"));
        let names: Vec<_> = line.options.iter().map(|given| given.flag.long).collect();
        assert_eq!(names, ["recursive", "verbose", "target-directory", "suffix"]);
        assert_eq!(line.names, ["a", "-c"]);
    }

    #[test]
    fn posix_ends_the_options_at_the_first_name() {
        let line =
            read(["a", "-r"].map(OsString::from).into(), true).unwrap_or_else(|e| panic!("{e}"));
        assert_eq!((line.options.len(), line.names.len()), (0, 2));
    }

    #[test]
    fn errors_are_worded_as_gnus() {
        assert_eq!(error_of(&["-y"]), "invalid option -- 'y'");
        assert_eq!(error_of(&["-t"]), "option requires an argument -- 't'");
        assert_eq!(error_of(&["--sparse"]), "option '--sparse' requires an argument");
        assert_eq!(error_of(&["--verb=3"]), "option '--verbose' doesn't allow an argument");
        assert_eq!(error_of(&["--nonsense=3"]), "unrecognized option '--nonsense=3'");
        assert_eq!(
            error_of(&["--p"]),
            "option '--p' is ambiguous; possibilities: '--parents' '--preserve'"
        );
    }
}
