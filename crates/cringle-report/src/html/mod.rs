//! A report as one HTML file, which loads nothing and runs no script.
//!
//! The browser's setting selects light or dark colours, through variables of the style sheet. The
//! page contains the data that `--json` writes.

mod clock;

use super::page::{Page, Rows, Section};
use super::plot::{self, Key, Plot};
use super::table;
use maud::{DOCTYPE, Markup, PreEscaped, html};
use serde_json::Value;

const STYLE: &str = include_str!("style.css");

/// Forbids scripts and requests, even if foreign markup got into the page.
const POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'";

/// Formats a page and its data as HTML.
pub fn document(page: &Page, data: &Value) -> String {
    let plots = page.sections.iter().flat_map(|section| &section.plots);
    let key = Key::of(plots.filter(|plot| !plot.is_empty()));
    let markup = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta name="color-scheme" content="light dark";
                meta http-equiv="Content-Security-Policy" content=(POLICY);
                title { "cringle " (page.bench) ": " (page.title) }
                style { (PreEscaped(plot::STYLE)) (PreEscaped(STYLE)) }
            }
            body {
                (head(page))
                main { @for one in &page.sections { (section(one, &key)) } }
                @if !page.notes.is_empty() {
                    section class="notes" {
                        h2 { "Notes" }
                        ul { @for note in &page.notes { li { (prose(note)) } } }
                    }
                }
                (foot())
                script type="application/json" id="data" { (PreEscaped(embedded(data))) }
            }
        }
    };
    markup.into_string()
}

fn head(page: &Page) -> Markup {
    html! {
        header {
            p class="kicker" { "cringle " (page.bench) }
            h1 { (page.title) }
            p class="machine" {
                @for line in table::machine(&page.machine).lines() { span { (line) } " " }
            }
            div class="scroll" tabindex="0" role="region" aria-label="The command" {
                pre class="command" { code { (command()) } }
            }
        }
    }
}

fn section(section: &Section, key: &Key) -> Markup {
    let empty = section.table.is_none() && section.plots.is_empty();
    html! {
        section class=[empty.then_some("chapter")] {
            h2 { (section.title) }
            @if !section.sentences.is_empty() {
                div class="says" { @for sentence in &section.sentences { p { (prose(sentence)) } } }
            }
            (plots(&section.plots, key))
            @if let Some(rows) = &section.table { (table_of(rows, &section.title, key)) }
        }
    }
}

fn plots(plots: &[Plot], key: &Key) -> Markup {
    html! {
        div class="plots" {
            @for plot in plots.iter().filter(|plot| !plot.is_empty()) {
                figure { figcaption { (plot.title) } (plot::svg(plot, key)) }
            }
        }
    }
}

fn table_of(rows: &Rows, title: &str, key: &Key) -> Markup {
    let class = |column: usize| if column < rows.text_columns { "words" } else { "figure" };
    html! {
        div class="scroll" tabindex="0" role="region" aria-label={ "Table: " (title) } {
            table {
                thead {
                    tr {
                        @for (column, name) in rows.header.iter().enumerate() {
                            th scope="col" class=(class(column)) { (name) }
                        }
                    }
                }
                tbody {
                    @for (number, row) in rows.rows.iter().enumerate() {
                        tr class=[(rows.best == Some(number)).then_some("best")] {
                            @for (column, text) in row.iter().enumerate() {
                                @if column == 0 {
                                    th scope="row" { (plot::swatch(text, key)) (text) }
                                } @else {
                                    td class=(class(column)) { (text) }
                                }
                            }
                        }
                    }
                }
            }
        }
    }
}

fn foot() -> Markup {
    let debug = cfg!(debug_assertions);
    html! {
        footer {
            p {
                "cringle " (env!("CARGO_PKG_VERSION"))
                @if debug { ", a debug build, whose figures are meaningless" }
                @if let Some(now) = clock::now() { ", " time datetime=(now) { (now) } }
                "."
            }
            p {
                "Lines and marks are medians; bands and thin lines reach from the lowest round to the highest. \
                 The element " code { "#data" } " of this page contains what " code { "--json" } " writes."
            }
        }
    }
}

/// Formats a sentence in which backquotes enclose code.
fn prose(sentence: &str) -> Markup {
    html! {
        @for (number, part) in sentence.split('`').enumerate() {
            @if number % 2 == 1 { code { (part) } } @else { (part) }
        }
    }
}

/// Returns the command line of this process, quoted for a shell.
fn command() -> String {
    let mut words = std::env::args_os().map(|word| word.to_string_lossy().into_owned());
    let program = words.next().unwrap_or_default();
    let program = program.rsplit('/').next().unwrap_or("cringle").to_string();
    shell_words::join(std::iter::once(program).chain(words))
}

/// Formats JSON for a `script` element: `<` is escaped, so that no text can end the element.
fn embedded(data: &Value) -> String {
    data.to_string().replace('<', "\\u003c")
}

#[cfg(test)]
mod tests;
