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
        self.0.into_iter().zip(other.0).all(|(a, b)| a.abs_diff(b) <= 16)
    }
}

pub(crate) struct Picture {
    width: usize,
    pixels: Vec<Rgb>,
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
        let pixels = bytes[..info.buffer_size()].chunks_exact(samples);
        let pixels = pixels.map(|one| Rgb([one[0], one[1], one[2]])).collect();
        Picture { width: info.width as usize, pixels }
    }

    pub(crate) fn at(&self, x: usize, y: usize) -> Rgb {
        self.pixels[y * self.width + x]
    }

    /// Returns the number of pixels of an area (left, top, right, bottom) that have this colour.
    pub(crate) fn count(&self, [left, top, right, bottom]: [f64; 4], color: Rgb) -> usize {
        let rows = top.max(0.0) as usize..(bottom as usize).min(self.pixels.len() / self.width);
        let columns = left.max(0.0) as usize..(right as usize).min(self.width);
        let all = rows.flat_map(|y| columns.clone().map(move |x| (x, y)));
        all.filter(|(x, y)| self.at(*x, *y).is_like(color)).count()
    }
}
