//! A page as text for a terminal.

use super::wrap::wrapped;
use super::{Block, Page, Table};

/// The whole text, without its title and without a last line end.
pub fn render(page: &Page) -> String {
    let mut text = String::new();
    for block in &page.blocks {
        match block {
            // The next block belongs to the heading.
            Block::Heading(_, heading) => text += &format!("{heading}\n"),
            Block::Text(words) => text += &(wrapped(words, "  ", "  ") + "\n"),
            Block::Warning(words) => text += &(wrapped(&format!("Mind: {words}"), "  ", "  ") + "\n"),
            Block::List(items) => {
                items.iter().for_each(|item| text += &wrapped(item, "  - ", "    "));
                text.push('\n');
            }
            Block::Lines(lines) | Block::Command(lines) => {
                lines.lines().for_each(|line| text += &format!("  {line}\n"));
                text.push('\n');
            }
            Block::Table(table) => text += &aligned(table),
            Block::Beside { .. } | Block::Plots(_) | Block::Folded { .. } | Block::Contents => {}
        }
    }
    text.trim_end().to_owned()
}

/// Aligned columns. The caption is above the first column, if that has no name.
fn aligned(table: &Table) -> String {
    let mut lines = vec![table.head.clone()];
    lines.extend(table.rows.iter().cloned());
    let mut text = String::new();
    match lines[0].first_mut() {
        Some(name) if name.is_empty() => name.clone_from(&table.caption),
        _ => text += &format!("  {}\n", table.caption),
    }
    let width = |column: usize| lines.iter().map(|line| line[column].chars().count()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..table.head.len()).map(width).collect();
    for line in &lines {
        let cell = |(column, cell): (usize, &String)| match widths[column] {
            width if column == 0 => format!("{cell:<width$}"),
            width => format!("{cell:>width$}"),
        };
        let cells: Vec<String> = line.iter().enumerate().map(cell).collect();
        text += &format!("  {}\n", cells.join("  ").trim_end());
    }
    text + "\n"
}
