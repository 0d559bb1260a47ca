//! The committed file that says on which inputs each check last passed.
//!
//! A line is `name inputs seconds`, sorted by name. `.gitattributes` has git keep the lines of both
//! sides of a merge, so a name may have several lines: a check has passed on any of their inputs.

use crate::Result;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

const HEADER: &str = "\
# On which inputs each check last passed, and how many seconds it took. `cargo xtask land` and
# `cargo xtask long` write this file; commit it with the change that they have checked.
";

/// One line of the file.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Line {
    name: String,
    inputs: String,
    seconds: u64,
}

/// The file as it was read.
pub(crate) struct Passed {
    file: PathBuf,
    lines: Vec<Line>,
}

impl Passed {
    /// Reads the file; a missing one is empty.
    pub(crate) fn read(file: &Path) -> Result<Passed> {
        let text = match std::fs::read_to_string(file) {
            Ok(text) => text,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => String::new(),
            Err(error) => return Err(format!("{}: {error}", file.display()).into()),
        };
        let lines = parse(&text).map_err(|why| format!("{}: {why}", file.display()))?;
        Ok(Passed { file: file.to_owned(), lines })
    }

    /// Whether the check has passed on these inputs.
    pub(crate) fn has(&self, name: &str, inputs: &str) -> bool {
        self.of(name).any(|line| line.inputs == inputs)
    }

    /// The seconds that the check took when it last passed.
    pub(crate) fn seconds(&self, name: &str) -> Option<u64> {
        self.of(name).map(|line| line.seconds).max()
    }

    /// Writes that the check has passed on these inputs, and forgets its earlier lines. The file is
    /// read again: another command may have written to it meanwhile.
    pub(crate) fn record(&mut self, name: &str, inputs: &str, seconds: u64) -> Result<()> {
        let mut now = Passed::read(&self.file)?;
        now.lines.retain(|line| line.name != name);
        now.lines.push(Line { name: name.to_owned(), inputs: inputs.to_owned(), seconds });
        now.lines.sort();
        let next = self.file.with_extension("new");
        std::fs::write(&next, now.text())?;
        std::fs::rename(&next, &self.file)?;
        *self = now;
        Ok(())
    }

    /// Names without a check.
    pub(crate) fn unknown<'a>(&'a self, names: &'a [&str]) -> impl Iterator<Item = &'a str> {
        self.lines.iter().map(|line| line.name.as_str()).filter(|name| !names.contains(name))
    }

    fn of<'a>(&'a self, name: &str) -> impl Iterator<Item = &'a Line> {
        self.lines.iter().filter(move |line| line.name == name)
    }

    fn text(&self) -> String {
        let mut text = HEADER.to_owned();
        for Line { name, inputs, seconds } in &self.lines {
            writeln!(text, "{name} {inputs} {seconds}").expect("a String accepts all text");
        }
        text
    }
}

fn parse(text: &str) -> std::result::Result<Vec<Line>, String> {
    let mut lines = Vec::new();
    for (number, line) in text.lines().enumerate() {
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let fields: Vec<&str> = line.split(' ').collect();
        let parsed = match fields[..] {
            [name, inputs, seconds] => seconds.parse().ok().map(|seconds| Line {
                name: name.to_owned(),
                inputs: inputs.to_owned(),
                seconds,
            }),
            _ => None,
        };
        lines.push(parsed.ok_or(format!("line {} is no `name inputs seconds`", number + 1))?);
    }
    Ok(lines)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file() -> (tempfile::TempDir, PathBuf) {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("passed");
        (directory, file)
    }

    #[test]
    fn record_survives_writing_and_reading() {
        let (_directory, file) = file();
        let mut passed = Passed::read(&file).unwrap();
        assert!(!passed.has("python", "aa"));
        passed.record("python", "aa", 61).unwrap();
        passed.record("haskell", "bb", 5).unwrap();
        let read = Passed::read(&file).unwrap();
        assert!(read.has("python", "aa") && read.has("haskell", "bb"));
        assert!(!read.has("python", "bb"));
        assert_eq!((read.seconds("python"), read.seconds("ocaml")), (Some(61), None));
        let text = std::fs::read_to_string(&file).unwrap();
        assert_eq!(text, format!("{HEADER}haskell bb 5\npython aa 61\n"));
    }

    #[test]
    fn new_inputs_replace_the_earlier_ones() {
        let (_directory, file) = file();
        let mut passed = Passed::read(&file).unwrap();
        passed.record("python", "aa", 61).unwrap();
        passed.record("python", "bb", 60).unwrap();
        let read = Passed::read(&file).unwrap();
        assert!(read.has("python", "bb") && !read.has("python", "aa"));
    }

    #[test]
    fn records_of_two_commands_are_kept() {
        let (_directory, file) = file();
        let [mut one, mut other] = [(), ()].map(|()| Passed::read(&file).unwrap());
        one.record("python", "aa", 1).unwrap();
        other.record("ocaml", "bb", 1).unwrap();
        let read = Passed::read(&file).unwrap();
        assert!(read.has("python", "aa") && read.has("ocaml", "bb"));
    }

    #[test]
    fn lines_of_both_sides_of_a_merge_count() {
        let (_directory, file) = file();
        std::fs::write(&file, "# merged\npython aa 61\npython bb 70\n").unwrap();
        let read = Passed::read(&file).unwrap();
        assert!(read.has("python", "aa") && read.has("python", "bb"));
        assert_eq!(read.seconds("python"), Some(70));
        assert_eq!(read.unknown(&["ocaml"]).collect::<Vec<_>>(), ["python", "python"]);
    }

    #[test]
    fn other_text_is_an_error() {
        for text in ["python", "python aa", "python aa soon", "python aa 1 2", "<<<<<<< HEAD"] {
            assert!(parse(text).is_err(), "{text}");
        }
        assert_eq!(parse("# python\n\n").unwrap(), []);
    }
}
