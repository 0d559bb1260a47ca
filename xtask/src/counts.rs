//! The numbers of tests, and the lines that say them.

use std::fmt;

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    pub(crate) passed: usize,
    pub(crate) failed: usize,
    /// Tests that are marked `#[ignore]`, or that passed and printed `skipped: …`.
    pub(crate) skipped: usize,
}

impl Counts {
    pub(crate) fn add(&mut self, other: Counts) {
        self.passed += other.passed;
        self.failed += other.failed;
        self.skipped += other.skipped;
    }

    /// Reads the last line of `cargo xtask test`, which is what `Display` writes.
    pub(crate) fn of_suite(line: &str) -> Option<Counts> {
        let (passed, rest) = line.split_once(" passed, ")?;
        let (failed, rest) = rest.split_once(" failed, ")?;
        let skipped = rest.strip_suffix(" skipped")?;
        Some(Counts {
            passed: passed.parse().ok()?,
            failed: failed.parse().ok()?,
            skipped: skipped.parse().ok()?,
        })
    }

    /// Reads libtest's `test result: ok. 3 passed; 0 failed; 1 ignored; …`.
    pub(crate) fn of_libtest(line: &str) -> Option<Counts> {
        let (_, numbers) = line.strip_prefix("test result: ")?.split_once(". ")?;
        Some(Counts::of_words(numbers.split("; ")))
    }

    /// Reads the number of tests in libtest's first line, `running 3 tests`.
    pub(crate) fn announced(line: &str) -> Option<usize> {
        let (number, what) = line.strip_prefix("running ")?.split_once(' ')?;
        if !["test", "tests"].contains(&what) {
            return None;
        }
        number.parse().ok()
    }

    /// Adds up parts such as `3 passed`, and passes over others.
    pub(crate) fn of_words<'a>(parts: impl Iterator<Item = &'a str>) -> Counts {
        let mut counts = Counts::default();
        for part in parts {
            let Some((number, what)) = part.split_once(' ') else { continue };
            let Ok(number) = number.parse::<usize>() else { continue };
            match what {
                "passed" => counts.passed += number,
                "failed" | "error" | "errors" => counts.failed += number,
                "ignored" | "skipped" => counts.skipped += number,
                _ => (),
            }
        }
        counts
    }
}

impl fmt::Display for Counts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Counts { passed, failed, skipped } = self;
        write!(f, "{passed} passed, {failed} failed, {skipped} skipped")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn last_line_of_the_suite_is_read_as_written() {
        let counts = Counts { passed: 12, failed: 1, skipped: 3 };
        assert_eq!(counts.to_string(), "12 passed, 1 failed, 3 skipped");
        assert_eq!(Counts::of_suite(&counts.to_string()), Some(counts));
        assert_eq!(Counts::of_suite("12 passed, 1 failed, many skipped"), None);
    }
}
