//! Markdown tables with aligned columns.

/// Prints rows of equal length. The first column is aligned to the left, the others to the right.
pub fn print(head: &[&str], rows: &[Vec<String>]) {
    let width = |column: usize| {
        let cells = rows.iter().map(|row| row[column].chars().count());
        cells.chain([head[column].chars().count(), 3]).max().unwrap_or(3)
    };
    let widths: Vec<usize> = (0..head.len()).map(width).collect();
    let line = |cells: Vec<&str>| {
        let padded =
            cells.iter().zip(&widths).enumerate().map(|(column, (cell, &width))| match column {
                0 => format!("{cell:<width$}"),
                _ => format!("{cell:>width$}"),
            });
        println!("| {} |", padded.collect::<Vec<_>>().join(" | "));
    };
    line(head.to_vec());
    let rules = widths.iter().enumerate().map(|(column, &width)| match column {
        0 => "-".repeat(width + 2),
        _ => "-".repeat(width + 1) + ":",
    });
    println!("|{}|", rules.collect::<Vec<_>>().join("|"));
    rows.iter().for_each(|row| line(row.iter().map(String::as_str).collect()));
}
