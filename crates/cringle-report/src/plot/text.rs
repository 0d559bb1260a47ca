//! Estimates the width of text: the reader's font is unknown when a plot is drawn.

/// The width of every drawing, in its own units. On a telephone a unit is about one pixel.
pub(super) const WIDTH: f64 = 420.0;
/// The width of a letter in a wide font.
const LETTER: f64 = 7.2;

pub(super) fn width(text: &str) -> f64 {
    text.chars().count() as f64 * LETTER
}

/// The labels along a horizontal axis, from left to right.
pub(super) struct LabelRow {
    /// Where the next label may begin.
    free: f64,
}

impl LabelRow {
    pub(super) fn new() -> LabelRow {
        LabelRow { free: f64::NEG_INFINITY }
    }

    /// Takes the room for a label centred at `at`. Returns `false` if it would touch the one before
    /// it, or leave the drawing.
    pub(super) fn place(&mut self, at: f64, text: &str) -> bool {
        let half = width(text) / 2.0;
        let fits = at - half > self.free && at + half < WIDTH;
        if fits {
            self.free = at + half + 6.0;
        }
        fits
    }
}

/// Shortens a text to at most `most` letters.
pub(super) fn short(text: &str, most: usize) -> String {
    if text.chars().count() <= most {
        return text.into();
    }
    let kept: String = text.chars().take(most - 1).collect();
    format!("{}…", kept.trim_end())
}
