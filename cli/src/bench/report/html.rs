//! A report as one HTML page that loads nothing: style and plots are inside.

use super::{Block, beside, plot};

/// The page's style. Tables scroll by themselves, so that the page fits a narrow window.
const STYLE: &str = "
:root { color-scheme: light; }
body { font: 15px/1.5 system-ui, sans-serif; color: #1c1c1c; background: #fff; max-width: 1240px;
  margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.7rem; } h2 { font-size: 1.35rem; margin-top: 3rem; border-top: 2px solid #ddd; padding-top: 1.2rem; }
h3 { font-size: 1.1rem; margin-top: 2rem; }
p, li { max-width: 80ch; }
.mind { background: #fff4d6; border-left: 4px solid #d99a00; padding: .4rem .8rem; margin: .4rem 0; max-width: 80ch; }
.wide { overflow-x: auto; margin: 1rem 0; }
table { border-collapse: collapse; font-size: 13px; font-variant-numeric: tabular-nums; }
caption { text-align: left; font-weight: 600; padding: .3rem 0; }
th, td { padding: .2rem .6rem; text-align: right; white-space: nowrap; }
th:first-child, td:first-child { text-align: left; }
td.name, th.name { text-align: left; }
td.words { text-align: left; white-space: normal; min-width: 22ch; }
thead th { border-bottom: 2px solid #999; vertical-align: bottom; white-space: normal; }
tbody tr:nth-child(even) { background: #f5f5f5; }
.plots { display: grid; grid-template-columns: repeat(auto-fill, minmax(min(100%, 540px), 1fr)); gap: 1rem; }
figure { margin: 0; } svg { width: 100%; height: auto; }
nav li { list-style: none; } nav ul { padding: 0; }
";

/// The whole page.
pub fn render(blocks: &[Block]) -> String {
    let mut page = String::from("<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n");
    page += "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n";
    page +=
        &format!("<title>CrossCheck: benchmark report</title>\n<style>{STYLE}</style>\n</head>\n<body>\n");
    for (number, block) in blocks.iter().enumerate() {
        page += &one(number, block);
        page.push('\n');
        if matches!(block, Block::Text(_)) && number == 1 {
            page += &contents(blocks);
        }
    }
    page + "</body>\n</html>\n"
}

/// Links to every definition.
fn contents(blocks: &[Block]) -> String {
    let link = |(number, block): (usize, &Block)| match block {
        Block::Heading(2, text) => Some(format!("<li><a href=\"#b{number}\">{}</a></li>", escaped(text))),
        _ => None,
    };
    let links: Vec<String> = blocks.iter().enumerate().filter_map(link).collect();
    format!("<nav><ul>{}</ul></nav>\n", links.concat())
}

fn one(number: usize, block: &Block) -> String {
    match block {
        Block::Heading(level, text) => format!("<h{level} id=\"b{number}\">{}</h{level}>", escaped(text)),
        Block::Text(text) => format!("<p>{}</p>", escaped(text)),
        Block::Warning(text) => format!("<p class=\"mind\"><strong>Mind:</strong> {}</p>", escaped(text)),
        Block::List(items) => {
            let items: Vec<String> = items.iter().map(|item| format!("<li>{}</li>", escaped(item))).collect();
            format!("<ul>{}</ul>", items.concat())
        }
        Block::Table { caption, head, rows } => table(caption, head, rows),
        Block::Beside { title, unit, rows } => {
            format!("<figure>{}</figure>", beside::svg(title, unit, rows))
        }
        Block::Plots(plots) => {
            let figures: Vec<String> =
                plots.iter().map(|plot| format!("<figure>{}</figure>", plot::svg(plot))).collect();
            format!("<div class=\"plots\">\n{}\n</div>", figures.join("\n"))
        }
    }
}

fn table(caption: &str, head: &[String], rows: &[Vec<String>]) -> String {
    // Columns with sentences may break; columns of figures may not.
    let wordy: Vec<bool> = (0..head.len())
        .map(|column| column > 0 && rows.iter().any(|cells| cells[column].len() > 40))
        .collect();
    // Names stand at the left, figures at the right.
    let letters = |cell: &String| cell.chars().filter(|letter| letter.is_alphabetic()).count();
    let named: Vec<bool> =
        (0..head.len()).map(|column| rows.iter().any(|cells| letters(&cells[column]) >= 10)).collect();
    let row = |cells: &Vec<String>| {
        let cell = |(cell, (wordy, named)): (&String, (&bool, &bool))| {
            let class = match (wordy, named) {
                (true, _) => " class=\"words\"",
                (false, true) => " class=\"name\"",
                (false, false) => "",
            };
            format!("<td{class}>{}</td>", escaped(cell))
        };
        format!("<tr>{}</tr>", cells.iter().zip(wordy.iter().zip(&named)).map(cell).collect::<String>())
    };
    let rows: Vec<String> = rows.iter().map(row).collect();
    let title = |(cell, named): (&String, &bool)| {
        let class = if *named { " class=\"name\"" } else { "" };
        format!("<th{class}>{}</th>", escaped(cell))
    };
    let head: Vec<String> = head.iter().zip(&named).map(title).collect();
    format!(
        "<div class=\"wide\"><table><caption>{}</caption><thead><tr>{}</tr></thead><tbody>\n{}\n</tbody></table></div>",
        escaped(caption),
        head.concat(),
        rows.join("\n")
    )
}

/// Text that is safe between tags and in attributes.
pub fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}
