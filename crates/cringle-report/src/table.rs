//! Formats tables for a terminal.

use super::colored;
use super::page::Rows;
use crate::machine::Machine;
use crate::units::mib;
use comfy_table::{Attribute, Cell, CellAlignment, Color, ContentArrangement, Table, presets};

/// Formats the two lines about the machine that head a report.
pub fn machine(machine: &Machine) -> String {
    let model = machine.cpu_model.as_deref().map(|name| format!(" × {name}")).unwrap_or_default();
    let memory =
        machine.memory_bytes.map(|bytes| format!(", {:.0} GiB", mib(bytes as f64) / 1024.0));
    format!(
        "Linux {}, {} cpu{}{model}{}\n{} on {}\n",
        machine.kernel,
        machine.cpus,
        if machine.cpus == 1 { "" } else { "s" },
        memory.unwrap_or_default(),
        machine.filesystem,
        machine.device
    )
}

fn with_header(header: &[&str]) -> Table {
    let mut table = Table::new();
    table.load_style(presets::NOTHING).set_content_arrangement(ContentArrangement::Disabled);
    table.set_header(header.iter().enumerate().map(|(column, name)| {
        let cell = Cell::new(name);
        let cell = if colored() { cell.add_attribute(Attribute::Bold) } else { cell };
        if column == 0 { cell } else { cell.set_alignment(CellAlignment::Right) }
    }));
    if colored() {
        table.enforce_styling();
    } else {
        table.force_no_tty();
    }
    table
}

/// Formats a table: text columns are aligned left, numbers right; with colours, the best row is
/// green.
pub fn rows(rows: &Rows) -> String {
    let header: Vec<&str> = rows.header.iter().map(String::as_str).collect();
    let mut table = with_header(&header);
    for (number, row) in rows.rows.iter().enumerate() {
        let best = colored() && rows.best == Some(number);
        table.add_row(row.iter().enumerate().map(|(column, text)| {
            let cell = Cell::new(text);
            let cell = if best && column > 0 { cell.fg(Color::Green) } else { cell };
            let is_text = column < rows.text_columns;
            if is_text { cell } else { cell.set_alignment(CellAlignment::Right) }
        }));
    }
    format!("{}\n", table.trim_fmt())
}
