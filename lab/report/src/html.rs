//! A page as one HTML file that loads nothing: style and plots are inside.

use super::table::Filling;
use super::{Bar, Block, Page, Table, beside, plot};

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
td.name, th.name, th.words { text-align: left; }
td.words { text-align: left; white-space: normal; min-width: 22ch; }
thead th { border-bottom: 2px solid #999; vertical-align: bottom; white-space: normal; }
tbody tr:nth-child(even) { background: #f5f5f5; }
.plots { display: grid; grid-template-columns: repeat(auto-fill, minmax(min(100%, 540px), 1fr)); gap: 1rem; }
figure { margin: 0; } svg { width: 100%; height: auto; }
pre, code { font-size: 13px; } pre { overflow-x: auto; }
nav li { list-style: none; } nav ul { padding: 0; }
";

/// Width of a stacked bar.
const BAR: f64 = 240.0;

/// The whole file.
pub fn render(page: &Page) -> String {
    let title = escaped(&page.title);
    let mut text = format!(
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n<meta name=\"viewport\" \
         content=\"width=device-width, initial-scale=1\">\n<title>{title}</title>\n<style>{STYLE}</style>\n\
         </head>\n<body>\n<h1>{title}</h1>\n"
    );
    for (number, block) in page.blocks.iter().enumerate() {
        text += &one(number, block, page);
        text.push('\n');
    }
    text + "</body>\n</html>\n"
}

fn one(number: usize, block: &Block, page: &Page) -> String {
    match block {
        Block::Heading(level, text) => format!("<h{level} id=\"b{number}\">{}</h{level}>", inline(text)),
        Block::Text(text) => format!("<p>{}</p>", inline(text)),
        Block::Warning(text) => format!("<p class=\"mind\"><strong>Mind:</strong> {}</p>", inline(text)),
        Block::List(items) => {
            let item = |item: &String| format!("<li>{}</li>", inline(item));
            format!("<ul>{}</ul>", items.iter().map(item).collect::<String>())
        }
        Block::Lines(text) | Block::Command(text) => format!("<pre>{}</pre>", escaped(text.trim_end())),
        Block::Table(table) => rows(table),
        Block::Beside { title, unit, rows } => {
            format!("<figure>{}</figure>", beside::svg(title, unit, rows))
        }
        Block::Plots(plots) => {
            let figure = |plot: &plot::Plot| format!("<figure>{}</figure>\n", plot::svg(plot));
            format!("<div class=\"plots\">\n{}</div>", plots.iter().map(figure).collect::<String>())
        }
        Block::Folded { summary, lines } => {
            let line = |line: &String| format!("<li><code>{}</code></li>", escaped(line));
            let lines: String = lines.iter().map(line).collect();
            format!("<details><summary>{}</summary><ol>{lines}</ol></details>", inline(summary))
        }
        Block::Contents => contents(&page.blocks),
    }
}

/// Links to the headings of level 2.
fn contents(blocks: &[Block]) -> String {
    let link = |(number, block): (usize, &Block)| match block {
        Block::Heading(2, text) => Some(format!("<li><a href=\"#b{number}\">{}</a></li>", inline(text))),
        _ => None,
    };
    format!("<nav><ul>{}</ul></nav>", blocks.iter().enumerate().filter_map(link).collect::<String>())
}

fn rows(table: &Table) -> String {
    let fillings = table.fillings();
    let class = |filling: &Filling| match filling {
        Filling::Figures => "",
        Filling::Names => " class=\"name\"",
        Filling::Sentences => " class=\"words\"",
    };
    let cells = |tag: &str, cells: &[String]| -> String {
        let cell = |(cell, filling): (&String, &Filling)| {
            format!("<{tag}{}>{}</{tag}>", class(filling), inline(cell))
        };
        cells.iter().zip(&fillings).map(cell).collect()
    };
    let mut head = cells("th", &table.head);
    let mut rows: Vec<String> = table.rows.iter().map(|row| cells("td", row)).collect();
    if let Some((name, bars)) = &table.bars {
        head += &format!("<th>{}</th>", escaped(name));
        rows.iter_mut().zip(bars).for_each(|(row, bar)| *row += &format!("<td>{}</td>", stacked(bar)));
    }
    let rows: String = rows.iter().map(|row| format!("<tr>{row}</tr>\n")).collect();
    format!(
        "<div class=\"wide\"><table><caption>{}</caption><thead><tr>{head}</tr></thead><tbody>\n{rows}</tbody>\
         </table></div>",
        inline(&table.caption)
    )
}

/// A stacked bar as SVG.
fn stacked(pieces: &[Bar]) -> String {
    let mut at = 0.0;
    let mut bar = format!("<svg style=\"width: {BAR}px\" viewBox=\"0 0 {BAR} 12\">");
    for Bar { share, colour, tooltip } in pieces {
        let width = BAR * share;
        bar += &format!(
            "<rect x=\"{at:.1}\" width=\"{width:.1}\" height=\"12\" fill=\"{colour}\"><title>{}</title></rect>",
            escaped(tooltip)
        );
        at += width;
    }
    bar + "</svg>"
}

/// Escaped text, with the inline code and strong words of Markdown.
fn inline(text: &str) -> String {
    let piece = |(number, piece): (usize, &str)| match number % 2 {
        0 => paired(&escaped(piece), "**", "strong"),
        _ => format!("<code>{}</code>", escaped(piece)),
    };
    // A backtick without its other half is text.
    match text.matches('`').count() % 2 {
        0 => text.split('`').enumerate().map(piece).collect(),
        _ => escaped(text),
    }
}

fn paired(text: &str, mark: &str, tag: &str) -> String {
    let piece = |(number, piece): (usize, &str)| match number % 2 {
        0 => piece.to_owned(),
        _ => format!("<{tag}>{piece}</{tag}>"),
    };
    match text.matches(mark).count() % 2 {
        0 => text.split(mark).enumerate().map(piece).collect(),
        _ => text.to_owned(),
    }
}

/// Text that is safe between tags and in attributes.
pub fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}
