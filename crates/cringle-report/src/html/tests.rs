//! Tests of a page with invented figures and hostile texts.

use super::*;
use crate::machine::Machine;
use crate::plot::Row;
use scraper::{Html, Selector};
use serde_json::json;

const HOSTILE: &str = "</script><script>alert(1)</script> & \"quotes\" <b>";

fn page() -> Page {
    let machine = Machine {
        kernel: HOSTILE.into(),
        cpus: 2,
        cpu_model: None,
        memory_bytes: None,
        filesystem: "ext4".into(),
        device: HOSTILE.into(),
    };
    let row = |label: &str| Row { label: label.into(), samples: vec![1.0, 2.0, 4.0] };
    let plot = Plot::rows(HOSTILE, HOSTILE, vec![row(HOSTILE), row("b")]);
    let cells = |name: &str| vec![name.to_string(), HOSTILE.to_string()];
    let section = Section {
        title: HOSTILE.into(),
        sentences: vec![format!("`{HOSTILE}` wins")],
        plots: vec![plot],
        table: Some(Rows::new(&["name", HOSTILE], [cells(HOSTILE), cells("b")].into_iter())),
    };
    Page {
        bench: "bench disk".into(),
        title: HOSTILE.into(),
        machine,
        sections: vec![section],
        notes: vec![HOSTILE.into()],
    }
}

fn select<'h>(html: &'h Html, what: &str) -> Vec<scraper::ElementRef<'h>> {
    html.select(&Selector::parse(what).unwrap()).collect()
}

#[test]
fn hostile_texts_stay_text() {
    let html = Html::parse_document(&document(&page(), &json!({ "name": HOSTILE })));
    assert!(html.errors.is_empty(), "{:?}", html.errors);
    let scripts = select(&html, "script");
    assert_eq!(scripts.len(), 1);
    let data: Value = serde_json::from_str(&scripts[0].text().collect::<String>()).unwrap();
    assert_eq!(data["name"], HOSTILE);
    assert!(select(&html, "b").is_empty());
    for selector in ["h1", "h2", "figcaption", "svg title", "th.figure", "td.figure", "li"] {
        let text: String = select(&html, selector)[0].text().collect();
        assert_eq!(text, HOSTILE, "{selector}");
    }
}

#[test]
fn a_row_has_the_colour_of_its_series() {
    let html = Html::parse_document(&document(&page(), &json!({})));
    let swatches = select(&html, "tbody th svg");
    let series = select(&html, "figure svg g.series");
    assert_eq!((swatches.len(), series.len()), (2, 2));
    for (swatch, series) in swatches.iter().zip(series) {
        let color = |of: scraper::ElementRef<'_>| {
            let class = of.value().attr("class").unwrap();
            class.split(' ').find(|word| word.starts_with('c')).map(String::from)
        };
        assert_eq!(color(*swatch), color(series));
    }
}

#[test]
fn the_time_is_formatted_as_a_date() {
    let now = clock::now().unwrap();
    let shape: String = now.chars().map(|c| if c.is_ascii_digit() { '9' } else { c }).collect();
    assert_eq!(shape, "9999-99-99 99:99 UTC");
}
