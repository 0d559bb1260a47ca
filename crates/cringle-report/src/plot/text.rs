//! How much room text takes, guessed: who draws does not know the reader's font.

/// Of every drawing, in its own units; on a telephone one is a bit less than a pixel.
pub(super) const WIDTH: f64 = 420.0;
/// Of a letter of the drawings' text, in a font that is wide.
const LETTER: f64 = 7.2;

pub(super) fn width(text: &str) -> f64 {
    text.chars().count() as f64 * LETTER
}

/// Shortened to so many letters.
pub(super) fn short(text: &str, most: usize) -> String {
    if text.chars().count() <= most {
        return text.into();
    }
    let kept: String = text.chars().take(most - 1).collect();
    format!("{}…", kept.trim_end())
}
