//! `--html`: the page of every experiment, parsed by a foreign HTML parser.

use crate::common::*;
use scraper::{ElementRef, Html, Selector};
use serde_json::Value;
use std::path::Path;
use std::process::Command;

/// A page, and the JSON of the same run.
struct Told {
    html: Html,
    text: String,
    json: Value,
}

fn told(command: &mut Command, place: &Path) -> Told {
    let output = command.args(["--html", "page.html", "--json", "results.json"]).output().unwrap();
    let (out, err) = texts(&output);
    assert!(output.status.success(), "{err}");
    assert!(!out.is_empty(), "the text report is told all the same");
    let text = std::fs::read_to_string(place.join("page.html")).unwrap();
    let json = std::fs::read(place.join("results.json")).unwrap();
    let told = Told {
        html: Html::parse_document(&text),
        text,
        json: serde_json::from_slice(&json).unwrap(),
    };
    check(&told);
    told
}

fn select<'h>(html: &'h Html, what: &str) -> Vec<ElementRef<'h>> {
    html.select(&Selector::parse(what).unwrap()).collect()
}

fn text(element: ElementRef<'_>) -> String {
    element.text().collect()
}

fn all(html: &Html, what: &str) -> Vec<String> {
    select(html, what).into_iter().map(text).collect()
}

/// Checks what every page has in common.
fn check(told: &Told) {
    let html = &told.html;
    assert!(html.errors.is_empty(), "{:?}", html.errors);
    let title = &all(html, "head title")[0];
    assert!(title.starts_with("cringle bench "), "{title}");
    assert_eq!(select(html, "meta[name=viewport]").len(), 1);
    assert!(told.text.contains("@media screen and (prefers-color-scheme: dark)"));
    let machine = &all(html, ".machine")[0];
    assert!(machine.contains(told.json["machine"]["kernel"].as_str().unwrap()), "{machine}");
    assert!(machine.contains(told.json["machine"]["filesystem"].as_str().unwrap()), "{machine}");
    assert!(all(html, ".command")[0].starts_with("cringle bench "));
    for note in told.json["notes"].as_array().unwrap() {
        let said = note.as_str().unwrap().replace('`', "");
        assert!(all(html, ".notes li").contains(&said), "{said}");
    }
    nothing_comes_from_elsewhere(told);
    drawings_are_xml(told);
    let data: Value = serde_json::from_str(&all(html, "script#data")[0]).unwrap();
    assert_eq!(data, told.json, "the page has what --json writes");
}

fn nothing_comes_from_elsewhere(told: &Told) {
    let html = &told.html;
    let fetching = "link, img, iframe, object, embed, audio, video, base, [src], [href], [onload]";
    assert!(select(html, fetching).is_empty());
    for style in all(html, "style") {
        assert!(!style.contains("url(") && !style.contains("@import"));
    }
    let scripts = select(html, "script");
    assert_eq!(scripts.len(), 1);
    assert_eq!(scripts[0].value().attr("type"), Some("application/json"));
    let policy = select(html, "meta[http-equiv=Content-Security-Policy]")[0];
    assert!(policy.value().attr("content").unwrap().starts_with("default-src 'none'"));
}

fn drawings_are_xml(told: &Told) {
    let drawings = select(&told.html, "figure svg");
    assert!(!drawings.is_empty());
    // Parsed as XML from the text, because a parser of HTML repairs errors.
    let written: Vec<&str> = told
        .text
        .match_indices("<svg")
        .map(|(at, _)| {
            let end = told.text[at..].find("</svg>").unwrap();
            &told.text[at..at + end + "</svg>".len()]
        })
        .collect();
    assert!(written.len() >= drawings.len());
    for svg in written {
        roxmltree::Document::parse(svg).unwrap_or_else(|error| panic!("{error}: {svg}"));
    }
    for figure in select(&told.html, "figure") {
        let caption = text(figure.select(&Selector::parse("figcaption").unwrap()).next().unwrap());
        let title = text(figure.select(&Selector::parse("svg > title").unwrap()).next().unwrap());
        assert_eq!(caption, title);
    }
}

/// Returns the cells of a column, by the number of the table and the name of the column.
fn column(told: &Told, table: usize, name: &str) -> Vec<String> {
    let header = all_of(told, table, "thead th");
    let at = header.iter().position(|one| one == name).unwrap_or_else(|| panic!("{header:?}"));
    let cells = all_of(told, table, "tbody th, tbody td");
    cells.chunks(header.len()).map(|row| row[at].clone()).collect()
}

/// Returns the texts of a table.
fn all_of(told: &Told, table: usize, what: &str) -> Vec<String> {
    let selector = Selector::parse(what).unwrap();
    select(&told.html, "table")[table].select(&selector).map(text).collect()
}

/// Asserts that a cell shows a number with at least three significant digits, or two between 0.1
/// and 1, and rounds it to its last digit.
fn same(cell: &str, number: &Value) {
    let number = number.as_f64().unwrap();
    let shown: f64 = cell.replace(',', "").parse().unwrap_or_else(|_| panic!("{cell}"));
    let decimals = cell.split_once('.').map_or(0, |(_, decimals)| decimals.len());
    let rounding = 0.500_001 / 10f64.powi(decimals as i32);
    let error = (shown - number).abs();
    let has_two_digits = decimals >= 2 && (0.1..1.0).contains(&number);
    let close = error <= 0.006 * number.abs() + 0.0005 || has_two_digits;
    assert!(close && error <= rounding, "{cell} is not {number}");
}

/// Returns the labels of legends and of rows in plots.
fn drawn(told: &Told) -> Vec<String> {
    all(&told.html, "svg .legend text, svg text.label")
}

#[test]
fn disk_shows_every_strategy_with_the_json_figures() {
    let place = place("html-disk");
    let strategies = "sync,threads,mmap,tokio,uring,fibers,batch";
    let told = told(small_disk(&place).args(["--strategies", strategies]), &place);
    let runs = runs(&told.json);
    for (name, field) in [
        ("IOPS", "iops"),
        ("CPU µs/op", "cpu_us_per_op"),
        ("ctx/op", "context_switches_per_op"),
        ("p50 µs", "p50_us"),
        ("p99 µs", "p99_us"),
        ("QD", "queue_depth"),
        ("threads", "threads"),
    ] {
        let cells = column(&told, 0, name);
        assert_eq!(cells.len(), runs.len());
        cells.iter().zip(runs).for_each(|(cell, run)| same(cell, &run[field]));
    }
    let names = column(&told, 0, "strategy");
    let drawn = drawn(&told);
    for strategy in strategies.split(',') {
        assert!(names.iter().any(|name| name == strategy), "{strategy} in {names:?}");
        assert!(drawn.iter().any(|name| name == strategy), "{strategy} in {drawn:?}");
    }
    let titles = all(&told.html, "figcaption");
    assert!(titles.iter().any(|title| title == "Latency with 8 in flight"), "{titles:?}");
    // Two rounds have a spread, and the page shows the latencies.
    assert!(!select(&told.html, "figure .band").is_empty());
    let quantiles = runs[0]["quantiles_us"].as_object().unwrap();
    assert_eq!(quantiles["0.5"], runs[0]["p50_us"]);
}

#[test]
fn fio_is_a_line_if_installed() {
    if Command::new("fio").arg("--version").output().is_err() {
        return eprintln!("skipped: `fio` is not installed");
    }
    let place = place("html-fio");
    let mut command = small_disk(&place);
    let told = told(command.args(["--strategies", "uring,fio", "--repeat", "1"]), &place);
    assert!(drawn(&told).contains(&"fio".to_string()));
    let dashed = select(&told.html, "figure g.series path.line.dashed");
    assert_eq!(dashed.len(), 3, "rates, CPU, latencies");
}

#[test]
fn one_queue_depth_is_drawn_as_rows() {
    let place = place("html-depth");
    let mut command = cringle(&place);
    command.args(["bench", "disk", "--size", "1m", "--ops", "64", "--qd", "4", "--warmup", "0"]);
    let told = told(command.args(["--strategies", "sync,threads,fibers"]), &place);
    let labels = all(&told.html, "svg text.label");
    assert_eq!(labels[..3], ["sync", "threads", "fibers"]);
    assert_eq!(labels.len(), 3 * 3, "rates, CPU, latencies");
}

#[test]
fn every_profile_and_thread_count_is_shown() {
    let place = place("html-profiles");
    let mut command = small_disk(&place);
    command.args(["--profile", "cached,wal", "--threads", "1,2", "--strategies", "sync,fibers"]);
    let told = told(command.args(["--ops", "64"]), &place);
    assert_eq!(all(&told.html, "main h2").len(), 2);
    let drawn = drawn(&told);
    for name in ["sync", "fibers, 1 thread", "fibers, 2 threads"] {
        assert!(drawn.iter().any(|one| one == name), "{name} in {drawn:?}");
    }
}

#[test]
fn batch_sum_and_idle_have_pages() {
    let place = place("html-others");
    std::fs::write(place.join("data"), noise(4 << 20)).unwrap();
    let mut command = cringle(&place);
    let batch = told(
        command.args(["bench", "batch", "high", "data", "--cached", "--no-fio", "--repeat", "2"]),
        &place,
    );
    let names = column(&batch, 0, "");
    let iops = names.iter().position(|name| name == "IOPS").unwrap();
    same(&column(&batch, 0, "median round")[iops], &batch.json["result"]["iops"]);

    let mut command = cringle(&place);
    let sum = told(command.args(["bench", "sum", "--sizes", "64k,128k", "--repeat", "2"]), &place);
    let medians = sum.json["medians"].as_array().unwrap();
    for (n, median) in medians.iter().enumerate() {
        same(&column(&sum, n / 3, "s")[n % 3], &median["seconds"]);
        assert_eq!(column(&sum, n / 3, "strategy")[n % 3], median["strategy"]);
        assert!(drawn(&sum).contains(&median["strategy"].as_str().unwrap().into()));
    }

    let mut command = cringle(&place);
    let idle =
        told(command.args(["bench", "http", "--idle", "20", "--servers", "epoll,fibers"]), &place);
    assert_eq!(column(&idle, 0, "server"), ["epoll", "fibers"]);
    for (n, run) in runs(&idle.json).iter().enumerate() {
        same(&column(&idle, 0, "s to serve all again")[n], &run["served_again_seconds"]);
    }
}

#[test]
fn http_has_latencies_and_rates_by_workers() {
    let place = place("html-http");
    let mut command = cringle(&place);
    command.args(["bench", "http", "--connections", "5", "--requests", "200", "--repeat", "2"]);
    command.args(["--servers", "epoll,uring,fibers", "--workers", "1,2", "--keepalive"]);
    let told = told(&mut command, &place);
    let medians = told.json["medians"].as_array().unwrap();
    assert_eq!(medians.len(), 3 + 2);
    for (n, median) in medians.iter().enumerate() {
        let (table, row) = if n < 3 { (0, n) } else { (1, n - 3) };
        assert_eq!(column(&told, table, "server")[row], median["server"]);
        same(&column(&told, table, "requests/s")[row], &median["requests_per_second"]);
        same(&column(&told, table, "CPU µs")[row], &median["cpu_us_per_request"]);
        assert!(median["quantiles_us"]["0.5"].is_number(), "{median}");
    }
    let titles = all(&told.html, "h2, figcaption");
    for title in ["By workers: 5 connections, reused", "Latency of a request"] {
        assert!(titles.iter().any(|one| one == title), "{title} in {titles:?}");
    }
}

#[test]
fn copies_have_a_row_for_each_command() {
    let place = place("html-cp");
    let mut command = cringle(&place);
    command.args(["bench", "cp", "--files", "30", "--file-size", "100", "--tree", "a"]);
    command.args(["--regime", "warm", "--tools", "cp,other", "--repeat", "2"]);
    command.args(["--tool", "other=cp -r {src} {dst} # <b>&"]);
    let told = told(&mut command, &place);
    let names = column(&told, 0, "tool");
    assert_eq!(names, ["cp", "other"]);
    for (n, run) in runs(&told.json).iter().enumerate() {
        same(&column(&told, 0, "s")[n], &run["seconds"]);
        assert!(drawn(&told).contains(&names[n]));
    }
    assert!(all(&told.html, ".command")[0].contains("'other=cp -r {src} {dst} # <b>&'"));
}

#[test]
fn all_has_a_plot_for_each_contest() {
    let place = place("html-all");
    let mut command = cringle(&place);
    command.args(["bench", "all", "--quick", "--repeat", "2", "--only", "cached,sums"]);
    let told = told(&mut command, &place);
    let verdicts = told.json["verdicts"].as_array().unwrap();
    assert!(verdicts.len() >= 3, "{verdicts:?}");
    let titles = all(&told.html, "figcaption");
    for (verdict, row) in verdicts.iter().zip(column(&told, 0, "winner")) {
        let of = |field: &str| verdict[field].as_str().unwrap().to_string();
        assert_eq!(row, of("winner"));
        let title = format!("{}, {}", of("question"), of("case"));
        assert!(titles.contains(&title), "{title} in {titles:?}");
    }
    for done in told.json["experiments"].as_array().unwrap() {
        let command = done["command"].as_str().unwrap().to_string();
        assert!(all(&told.html, "main h2").contains(&command), "{command}");
    }
    // The tables of the experiments follow, with the figures of their reports.
    let sum = &told.json["experiments"][1]["report"]["medians"];
    let tables = select(&told.html, "table").len();
    let of_sum = (1..tables).find(|n| all_of(&told, *n, "thead th").contains(&"system s".into()));
    for (cell, median) in column(&told, of_sum.unwrap(), "s").iter().zip(sum.as_array().unwrap()) {
        same(cell, &median["seconds"]);
    }
}

#[test]
fn an_unwritable_file_is_reported_before_measuring() {
    let place = place("html-refused");
    std::fs::write(place.join("data"), noise(4 << 20)).unwrap();
    for bench in [
        &["disk", "--size", "1m", "--ops", "64"][..],
        &["batch", "high", "data", "--cached"],
        &["sum", "--sizes", "64k"],
        &["db", "--transactions", "10", "--no-fio"],
        &["cp", "--files", "30", "--file-size", "100"],
        &["http", "--connections", "2", "--requests", "10"],
        &["http", "--idle", "5"],
        &["all", "--quick"],
    ] {
        for (option, path) in
            [("--html", "/nowhere/page.html"), ("--html", "."), ("--json", "/nowhere/data")]
        {
            let mut command = cringle(&place);
            command.arg("bench").args(bench).args(["--repeat", "1", option, path]);
            let output = command.output().unwrap();
            let (out, err) = texts(&output);
            assert_eq!(output.status.code(), Some(1), "{bench:?}: {err}");
            assert!(err.contains(path) && err.contains(option), "{err}");
            assert!(out.is_empty(), "it has measured: {out}");
        }
    }
    for other in [&["doctor"][..], &["sim", "--seeds", "10", "--threads", "1"]] {
        let output =
            cringle(&place).args(other).args(["--json", "/nowhere/data"]).output().unwrap();
        let (out, err) = texts(&output);
        assert_eq!(output.status.code(), Some(1), "{other:?}: {err}");
        assert!(err.contains("/nowhere/data: No such file") && out.is_empty(), "{err}{out}");
        // The error is the only line: no progress was printed.
        assert_eq!(err.lines().count(), 1, "{err}");
    }
    let mut command = small_disk(&place);
    let output = command.args(["--html", "same", "--json", "same"]).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(texts(&output).1.contains("same file"));
    let names: Vec<_> = std::fs::read_dir(&place).unwrap().map(|one| one.unwrap().path()).collect();
    assert_eq!(names, [place.join("data")]);
}

#[test]
fn a_page_may_go_to_standard_output() {
    let place = place("html-stdout");
    let mut command = small_disk(&place);
    command.args(["--strategies", "sync", "--ops", "64", "--html", "-"]);
    let (out, _) = texts(&command.output().unwrap());
    assert!(out.starts_with("<!DOCTYPE html>") && out.trim_end().ends_with("</html>"));
    assert!(Html::parse_document(&out).errors.is_empty());
    assert!(is_empty(&place));
}
