//! A report as Markdown: for the repository, where plots are left to the HTML page.

use super::Block;

/// The whole file.
pub fn render(blocks: &[Block]) -> String {
    let mut text: Vec<String> = blocks.iter().filter_map(block).collect();
    text.push(String::new());
    text.join("\n\n").trim_end().to_owned() + "\n"
}

fn block(block: &Block) -> Option<String> {
    Some(match block {
        Block::Heading(level, text) => format!("{} {text}", "#".repeat(*level)),
        Block::Text(text) => text.clone(),
        Block::Warning(text) => format!("> **Mind:** {text}"),
        Block::List(items) => items.iter().map(|item| format!("- {item}")).collect::<Vec<_>>().join("\n"),
        Block::Table { caption, head, rows } => {
            let mut lines = vec![format!("**{caption}**"), String::new(), row(head)];
            let rule: Vec<String> =
                (0..head.len()).map(|column| if column == 0 { "---" } else { "---:" }.to_owned()).collect();
            lines.push(row(&rule));
            lines.extend(rows.iter().map(|cells| row(cells)));
            lines.join("\n")
        }
        Block::Plots(_) | Block::Beside { .. } => return None,
    })
}

fn row(cells: &[String]) -> String {
    let cells: Vec<String> = cells.iter().map(|cell| cell.replace('|', "\\|")).collect();
    format!("| {} |", cells.join(" | "))
}
