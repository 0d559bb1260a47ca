//! The pixels of a picture of the page.

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Rgb([u8; 3]);

impl Rgb {
    /// Parses a colour as a browser formats it: `rgb(1, 2, 3)`.
    pub(crate) fn parse(text: &str) -> Rgb {
        let inner = text.strip_prefix("rgb(").and_then(|rest| rest.strip_suffix(')'));
        let parts = inner.unwrap_or_else(|| panic!("{text} is no opaque colour")).split(',');
        let parts: Vec<u8> = parts.map(|part| part.trim().parse().unwrap()).collect();
        Rgb(parts.try_into().unwrap())
    }

    /// Returns the approximate brightness, from 0 to 1.
    pub(crate) fn luminance(self) -> f64 {
        let [r, g, b] = self.0.map(|part| f64::from(part) / 255.0);
        0.2126 * r * r + 0.7152 * g * g + 0.0722 * b * b
    }

    fn is_like(self, other: Rgb) -> bool {
        let ([r, g, b], [other_r, other_g, other_b]) = (self.0, other.0);
        let is_near = |one: u8, two: u8| one.abs_diff(two) <= 16;
        is_near(r, other_r) && is_near(g, other_g) && is_near(b, other_b)
    }
}

pub(crate) struct Picture {
    width: usize,
    /// The bytes of a pixel, of which the first three are its colour.
    samples: usize,
    bytes: Vec<u8>,
}

impl Picture {
    pub(crate) fn decode(bytes: &[u8]) -> Picture {
        let mut decoder = png::Decoder::new(std::io::Cursor::new(bytes));
        decoder.set_transformations(png::Transformations::normalize_to_color8());
        let mut reader = decoder.read_info().unwrap();
        let mut bytes = vec![0; reader.output_buffer_size().unwrap()];
        let info = reader.next_frame(&mut bytes).unwrap();
        let samples = info.color_type.samples();
        assert!(samples >= 3, "a picture in colours");
        bytes.truncate(info.buffer_size());
        Picture { width: info.width as usize, samples, bytes }
    }

    pub(crate) fn at(&self, x: usize, y: usize) -> Rgb {
        let start = (y * self.width + x) * self.samples;
        Rgb([self.bytes[start], self.bytes[start + 1], self.bytes[start + 2]])
    }

    /// Returns the number of pixels of an area (left, top, right, bottom) that have this colour,
    /// but does not count beyond `most`.
    pub(crate) fn count(
        &self,
        [left, top, right, bottom]: [f64; 4],
        color: Rgb,
        most: usize,
    ) -> usize {
        let height = self.bytes.len() / self.samples / self.width;
        let (first, end) = (left.max(0.0) as usize, (right as usize).min(self.width));
        let mut count = 0;
        for y in top.max(0.0) as usize..(bottom as usize).min(height) {
            for x in first..end {
                count += usize::from(self.at(x, y).is_like(color));
                if count == most {
                    return count;
                }
            }
        }
        count
    }
}
