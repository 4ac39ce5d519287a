//! A page as Markdown, for the repository; only the HTML page has the plots.

use super::table::Filling;
use super::wrap::{shell, wrapped};
use super::{Block, Page, Table};

/// The whole file.
pub fn render(page: &Page) -> String {
    let title = (!page.title.is_empty()).then(|| format!("# {}", page.title));
    let blocks: Vec<String> = title.into_iter().chain(page.blocks.iter().filter_map(block)).collect();
    blocks.iter().map(|block| block.trim_end()).collect::<Vec<_>>().join("\n\n") + "\n"
}

fn block(block: &Block) -> Option<String> {
    Some(match block {
        Block::Heading(level, text) => format!("{} {text}", "#".repeat(*level)),
        Block::Text(text) => wrapped(text, "", ""),
        Block::Warning(text) => wrapped(&format!("**Mind:** {text}"), "> ", "> "),
        Block::List(items) => items.iter().map(|item| wrapped(item, "- ", "  ")).collect(),
        Block::Lines(text) => format!("```text\n{}\n```", text.trim_end()),
        Block::Command(command) => shell(command),
        Block::Table(table) => rows(table),
        Block::Plots(_) | Block::Beside { .. } | Block::Folded { .. } | Block::Contents => return None,
    })
}

fn rows(table: &Table) -> String {
    let mut lines = Vec::new();
    if !table.caption.is_empty() {
        lines.extend([format!("**{}**", table.caption), String::new()]);
    }
    lines.push(row(&table.head));
    let side = |filling: &Filling| if *filling == Filling::Figures { "---:" } else { "---" };
    lines.push(format!("|{}|", table.fillings().iter().map(side).collect::<Vec<_>>().join("|")));
    lines.extend(table.rows.iter().map(|cells| row(cells)));
    lines.join("\n")
}

fn row(cells: &[String]) -> String {
    let cells: Vec<String> = cells.iter().map(|cell| cell.replace('|', "\\|")).collect();
    format!("| {} |", cells.join(" | "))
}
