//! The page of `--html` in a real browser: on a wide screen and on a telephone, in light and in
//! dark colours.
//!
//! Without Chromium the tests are skipped; with `CRINGLE_BROWSER=required` (the check `browser`),
//! they fail. The pictures stay in the target directory.

mod chromium;
mod picture;

use crate::common::*;
use chromium::Browser;
use picture::{Picture, Rgb};
use serde::Deserialize;
use std::path::Path;

const WIDE: u32 = 1280;
const TELEPHONE: u32 = 390;

/// The layout of the page, as a script in it reports.
const MEASURE: &str = include_str!("measure.js");

#[derive(Debug, Deserialize)]
struct Laid {
    width: f64,
    inner_width: f64,
    outside: Vec<String>,
    /// Tables wider than their boxes.
    scrolling: usize,
    background: String,
    figures: Vec<Figure>,
}

#[derive(Debug, Deserialize)]
struct Figure {
    title: String,
    area: Area,
    colors: Vec<String>,
    texts: Vec<Text>,
    /// Each with its mark.
    legend: Vec<Area>,
    /// Label, marks and figure of each row.
    rows: Vec<[Area; 3]>,
}

#[derive(Debug, Deserialize)]
struct Text {
    text: String,
    pixels: f64,
    area: Area,
}

#[derive(Clone, Copy, Debug, Deserialize)]
struct Area {
    left: f64,
    top: f64,
    right: f64,
    bottom: f64,
}

impl Area {
    fn meets(&self, other: &Area) -> bool {
        // The boxes of texts include some space around the letters.
        const AIR: f64 = 2.0;
        self.left + AIR < other.right
            && other.left + AIR < self.right
            && self.top + AIR < other.bottom
            && other.top + AIR < self.bottom
    }
}

fn check(page: &Path, name: &str) {
    let Some(mut browser) = Browser::start() else { return };
    for width in [WIDE, TELEPHONE] {
        for dark in [false, true] {
            let told = browser.show(page, width, dark);
            assert!(told.fetched.is_empty(), "{:?}", told.fetched);
            assert!(told.complaints.is_empty(), "{:?}", told.complaints);
            let laid: Laid = serde_json::from_value(browser.evaluate(MEASURE)).unwrap();
            let png = browser.picture();
            let mode = if dark { "dark" } else { "light" };
            std::fs::write(page.with_file_name(format!("{name}-{width}-{mode}.png")), &png)
                .unwrap();
            nothing_is_cut_off(&laid, width);
            every_text_can_be_read(&laid);
            every_series_has_ink(&laid, &Picture::decode(&png), dark);
        }
    }
    browser.close();
}

fn nothing_is_cut_off(laid: &Laid, width: u32) {
    assert_eq!(
        laid.inner_width,
        f64::from(width),
        "the page is laid out for the screen that it has"
    );
    assert!(laid.width <= laid.inner_width, "{} is wider than {width}", laid.width);
    assert!(laid.outside.is_empty(), "{:?}", laid.outside);
    // A table that is too wide scrolls within its box.
    assert_eq!(laid.scrolling > 0, width == TELEPHONE);
}

fn every_text_can_be_read(laid: &Laid) {
    for figure in &laid.figures {
        assert!(figure.texts.len() > 5, "{}", figure.title);
        for (n, one) in figure.texts.iter().enumerate() {
            assert!(one.pixels >= 9.0, "{}: {one:?}", figure.title);
            let inside = one.area.left >= 0.0 && one.area.right <= laid.inner_width;
            assert!(inside, "{}: {one:?}", figure.title);
            for other in &figure.texts[..n] {
                let apart = !one.area.meets(&other.area);
                assert!(apart, "{}: `{}` lies on `{}`", figure.title, one.text, other.text);
            }
        }
        assert!(figure.legend.len().max(figure.rows.len()) > 0, "{}", figure.title);
        all_apart(&figure.legend, &figure.title);
        figure.rows.iter().for_each(|row| all_apart(row, &figure.title));
    }
}

fn all_apart(areas: &[Area], title: &str) {
    for (n, one) in areas.iter().enumerate() {
        for other in &areas[..n] {
            assert!(!one.meets(other), "{title}: {one:?} lies on {other:?}");
        }
    }
}

/// Checks that the pixels of each figure have the colours of the style.
fn every_series_has_ink(laid: &Laid, picture: &Picture, dark: bool) {
    let background = Rgb::parse(&laid.background);
    assert_eq!(picture.at(2, 2), background);
    assert_eq!(background.luminance() < 0.1, dark, "{background:?}");
    assert!(!laid.figures.is_empty());
    for figure in &laid.figures {
        assert!(!figure.colors.is_empty(), "{}", figure.title);
        for color in &figure.colors {
            let ink = picture.count(figure.area.into(), Rgb::parse(color), 10);
            assert!(ink == 10, "{}: {ink} pixels of {color}", figure.title);
        }
    }
}

impl From<Area> for [f64; 4] {
    fn from(area: Area) -> [f64; 4] {
        [area.left, area.top, area.right, area.bottom]
    }
}

#[test]
fn lines_fit_every_screen() {
    let place = place("browser-disk");
    let strategies = "sync,threads,mmap,tokio,uring,fibers,batch";
    let mut command = small_disk(&place);
    command.args(["--strategies", strategies, "--qd", "1,4,16,32,64,128", "--html", "page.html"]);
    assert!(command.output().unwrap().status.success());
    check(&place.join("page.html"), "disk");
}

#[test]
fn rows_fit_every_screen() {
    let place = place("browser-http");
    let mut command = cringle(&place);
    command.args(["bench", "http", "--connections", "5", "--requests", "200", "--repeat", "2"]);
    command.args(["--workers", "1,2", "--keepalive", "--html", "page.html"]);
    assert!(command.output().unwrap().status.success());
    check(&place.join("page.html"), "http");
}
