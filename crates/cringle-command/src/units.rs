//! Sizes and rates as people write and read them.
//!
//! All sizes are binary, whatever the suffix: `4k`, `4K`, `4kb` and `4KiB` are 4,096 bytes.
//! That is fio's habit, and no disk has blocks of 4,000 bytes. Rates are in MiB/s.

const SUFFIXES: [(char, u32); 4] = [('k', 10), ('m', 20), ('g', 30), ('t', 40)];

/// Bytes of `4096`, `4k`, `64KiB`, `1GiB`, …
pub fn parse_size(text: &str) -> Result<u64, String> {
    let text = text.trim();
    let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, suffix) = text.split_at(digits);
    let bad = || format!("`{text}` is not a size; write it as 4096, 4k, 64KiB or 1GiB");
    let number: u64 = number.parse().map_err(|_| bad())?;
    let shift = suffix_shift(&suffix.trim().to_ascii_lowercase()).ok_or_else(bad)?;
    number
        .checked_mul(1 << shift)
        .ok_or_else(|| format!("`{text}` is more bytes than a file can have"))
}

fn suffix_shift(suffix: &str) -> Option<u32> {
    if suffix.is_empty() || suffix == "b" {
        return Some(0);
    }
    let letter = suffix.chars().next()?;
    let (_, shift) = SUFFIXES.iter().find(|(c, _)| *c == letter)?;
    matches!(&suffix[1..], "" | "b" | "ib").then_some(*shift)
}

/// The largest unit in which the size is a whole number: `4 KiB`, `1 GiB`, `100 bytes`.
pub fn size(bytes: u64) -> String {
    for (letter, shift) in SUFFIXES.iter().rev() {
        if bytes >= 1 << shift && bytes.trailing_zeros() >= *shift {
            return format!("{} {}iB", bytes >> shift, letter.to_ascii_uppercase());
        }
    }
    if bytes >= 10 << 30 {
        return format!("{:.1} GiB", mib(bytes as f64) / 1024.0);
    }
    if bytes >= 10 << 20 {
        return format!("{:.1} MiB", mib(bytes as f64));
    }
    format!("{} bytes", count(bytes as f64))
}

pub fn mib(bytes: f64) -> f64 {
    bytes / (1 << 20) as f64
}

/// A whole number with commas between its thousands.
pub fn count(value: f64) -> String {
    let digits = format!("{value:.0}");
    let mut out = String::with_capacity(digits.len() + digits.len() / 3);
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i) % 3 == 0 && !out.ends_with('-') {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

/// Three significant digits, which is more than a measurement on a shared machine is good for.
pub fn figure(value: f64) -> String {
    match value.abs() {
        v if v >= 100.0 => count(value),
        v if v >= 10.0 => format!("{value:.1}"),
        v if v >= 0.1 || v == 0.0 => format!("{value:.2}"),
        _ => format!("{value:.3}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_spelling_of_a_size_is_binary() {
        for text in ["4k", "4K", "4kb", "4KB", "4KiB", "4096", "4096b", " 4 KiB "] {
            assert_eq!(parse_size(text), Ok(4096), "{text}");
        }
        assert_eq!(parse_size("1GiB"), Ok(1 << 30));
        assert_eq!(parse_size("2m"), Ok(2 << 20));
        assert_eq!(parse_size("1t"), Ok(1 << 40));
    }

    #[test]
    fn what_is_no_size_is_refused_with_an_example() {
        for text in ["", "k", "4x", "4kk", "-4k", "1.5g", "4kib2", "99999999999g"] {
            assert!(parse_size(text).is_err(), "{text}");
        }
        assert!(parse_size("lots").unwrap_err().contains("64KiB"));
    }

    #[test]
    fn sizes_are_printed_in_the_unit_that_fits() {
        assert_eq!(size(4096), "4 KiB");
        assert_eq!(size(1 << 30), "1 GiB");
        assert_eq!(size(64), "64 bytes");
        assert_eq!(size(3 << 20), "3 MiB");
        assert_eq!(size((1 << 30) + 512), "1024.0 MiB");
    }

    #[test]
    fn numbers_are_readable() {
        assert_eq!(count(1234567.0), "1,234,567");
        assert_eq!(count(999.4), "999");
        assert_eq!(count(-1000.0), "-1,000");
        assert_eq!(figure(81234.0), "81,234");
        assert_eq!(figure(12.34), "12.3");
        assert_eq!(figure(0.031), "0.031");
        assert_eq!(figure(0.0), "0.00");
    }
}
