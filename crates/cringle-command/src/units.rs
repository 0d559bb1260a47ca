//! Parses and formats sizes and rates.
//!
//! All sizes are binary, whatever the suffix: `4k`, `4K`, `4kb` and `4KiB` are 4,096 bytes, as in
//! fio. Rates are in MiB/s.

const SUFFIXES: [(char, u32); 4] = [('k', 10), ('m', 20), ('g', 30), ('t', 40)];

/// Parses a size: `4096`, `4k`, `64KiB`, `1GiB`.
pub fn parse_size(text: &str) -> Result<u64, String> {
    let text = text.trim();
    let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, suffix) = text.split_at(digits);
    let bad = || format!("`{text}` is not a size; write it as 4096, 4k, 64KiB or 1GiB");
    let number: u64 = number.parse().map_err(|_| bad())?;
    let shift = suffix_shift(&suffix.trim().to_ascii_lowercase()).ok_or_else(bad)?;
    number.checked_mul(1 << shift).ok_or_else(|| format!("`{text}` is larger than any file can be"))
}

fn suffix_shift(suffix: &str) -> Option<u32> {
    if suffix.is_empty() || suffix == "b" {
        return Some(0);
    }
    let letter = suffix.chars().next()?;
    let (_, shift) = SUFFIXES.iter().find(|(c, _)| *c == letter)?;
    matches!(&suffix[1..], "" | "b" | "ib").then_some(*shift)
}

/// Formats a size in the largest unit in which it is a whole number: `4 KiB`, `1 GiB`, `100 bytes`.
/// Large sizes that are not whole, or have many digits, have one decimal.
pub fn size(bytes: u64) -> String {
    for (letter, shift) in SUFFIXES.iter().rev() {
        let is_short = *shift == 40 || bytes < 10 << (shift + 10);
        if bytes >= 1 << shift && bytes.trailing_zeros() >= *shift && is_short {
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

/// Converts bytes to MiB.
pub fn mib(bytes: f64) -> f64 {
    bytes / (1 << 20) as f64
}

/// Formats a whole number with commas between its thousands.
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

/// Formats a measured value with three significant digits, or two between 0.1 and 1.
pub fn figure(value: f64) -> String {
    match value.abs() {
        v if v >= 100.0 => count(value),
        v if v >= 10.0 => format!("{value:.1}"),
        v if (0.0005..0.1).contains(&v) => format!("{value:.3}"),
        _ => format!("{value:.2}"),
    }
}

/// Formats a number of things: `1 worker`, `2 workers`.
pub fn counted(number: usize, noun: &str) -> String {
    format!("{number} {noun}{}", if number == 1 { "" } else { "s" })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_suffix_is_binary() {
        for text in ["4k", "4K", "4kb", "4KB", "4KiB", "4096", "4096b", " 4 KiB "] {
            assert_eq!(parse_size(text), Ok(4096), "{text}");
        }
        assert_eq!(parse_size("1GiB"), Ok(1 << 30));
        assert_eq!(parse_size("2m"), Ok(2 << 20));
        assert_eq!(parse_size("1t"), Ok(1 << 40));
    }

    #[test]
    fn an_invalid_size_is_refused_with_an_example() {
        for text in ["", "k", "4x", "4kk", "-4k", "1.5g", "4kib2", "99999999999g"] {
            assert!(parse_size(text).is_err(), "{text}");
        }
        assert!(parse_size("lots").unwrap_err().contains("64KiB"));
    }

    #[test]
    fn sizes_are_formatted_in_the_largest_unit() {
        assert_eq!(size(4096), "4 KiB");
        assert_eq!(size(1 << 30), "1 GiB");
        assert_eq!(size(64), "64 bytes");
        assert_eq!(size(3 << 20), "3 MiB");
        assert_eq!(size((1 << 30) + 512), "1024.0 MiB");
        assert_eq!(size(10_239 << 10), "10239 KiB");
        assert_eq!(size(18_040_934 << 10), "17.2 GiB");
    }

    #[test]
    fn numbers_have_separators_or_three_digits() {
        assert_eq!(count(1234567.0), "1,234,567");
        assert_eq!(count(999.4), "999");
        assert_eq!(count(-1000.0), "-1,000");
        assert_eq!(figure(81234.0), "81,234");
        assert_eq!(figure(12.34), "12.3");
        assert_eq!(figure(0.031), "0.031");
        assert_eq!(figure(0.0), "0.00");
        assert_eq!(figure(0.0004), "0.00");
    }
}
