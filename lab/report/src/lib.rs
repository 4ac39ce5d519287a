//! Pages that programs write: described once, as blocks, and rendered as Markdown for the repository, as one HTML page
//! that loads nothing, or as plain text for a terminal.
//!
//! Text may have inline code between backticks and strong words between double asterisks, as Markdown has them.
//!
//! ```
//! let mut page = report::Page::new("Weather");
//! page.text("Of a week.").heading(2, "Rain").list(["none on `Monday`"]);
//! assert_eq!(page.markdown(), "# Weather\n\nOf a week.\n\n## Rain\n\n- none on `Monday`\n");
//! assert!(page.html().contains("<li>none on <code>Monday</code></li>"));
//! ```

pub mod beside;
pub mod columns;
mod html;
pub mod machine;
mod markdown;
mod plain;
pub mod plot;
pub mod results;
pub mod stats;
mod table;
mod wrap;

pub use html::escaped;
pub use table::{Bar, Table};

/// A page, block after block.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Page {
    title: String,
    blocks: Vec<Block>,
}

/// A piece of a page.
#[derive(Clone, Debug, PartialEq)]
pub enum Block {
    /// A heading of this level; the title's is 1.
    Heading(usize, String),
    /// A paragraph.
    Text(String),
    /// A warning that the reader needs to interpret a figure.
    Warning(String),
    /// A list.
    List(Vec<String>),
    /// Lines that are not wrapped.
    Lines(String),
    /// A command for a shell.
    Command(String),
    /// A table.
    Table(Table),
    /// Published figures compared with ours; HTML only, since a table has them too.
    Beside {
        /// Its title.
        title: String,
        /// Unit of the axis.
        unit: String,
        /// Its rows.
        rows: Vec<beside::ComparedFigure>,
    },
    /// Plots that are placed next to each other; HTML only.
    Plots(Vec<plot::Plot>),
    /// A long list of lines that opens on a click; HTML only.
    Folded {
        /// The summary that is shown before it is opened.
        summary: String,
        /// Its lines.
        lines: Vec<String>,
    },
    /// Links to the headings of level 2; HTML only.
    Contents,
}

impl Page {
    /// A page that begins with its title, or without one if it is empty.
    pub fn new(title: impl Into<String>) -> Self {
        Page { title: title.into(), blocks: Vec::new() }
    }

    /// Adds a heading, of level 2 or more.
    pub fn heading(&mut self, level: usize, text: impl Into<String>) -> &mut Self {
        self.push(Block::Heading(level, text.into()))
    }

    /// Adds a paragraph.
    pub fn text(&mut self, text: impl Into<String>) -> &mut Self {
        self.push(Block::Text(text.into()))
    }

    /// Adds a list; does nothing if it has no item.
    pub fn list(&mut self, items: impl IntoIterator<Item = impl Into<String>>) -> &mut Self {
        let items: Vec<String> = items.into_iter().map(Into::into).collect();
        if items.is_empty() { self } else { self.push(Block::List(items)) }
    }

    /// Adds lines that are not wrapped.
    pub fn lines(&mut self, text: impl Into<String>) -> &mut Self {
        self.push(Block::Lines(text.into()))
    }

    /// Adds a table.
    pub fn table(&mut self, table: Table) -> &mut Self {
        self.push(Block::Table(table))
    }

    /// Adds a block.
    pub fn push(&mut self, block: Block) -> &mut Self {
        self.blocks.push(block);
        self
    }

    /// The page for the repository: without plots, lines wrapped.
    pub fn markdown(&self) -> String {
        markdown::render(self)
    }

    /// The page for a browser.
    pub fn html(&self) -> String {
        html::render(self)
    }

    /// The page for a terminal: without title and plots, columns aligned.
    pub fn plain(&self) -> String {
        plain::render(self)
    }
}

impl Extend<Block> for Page {
    fn extend<I: IntoIterator<Item = Block>>(&mut self, blocks: I) {
        self.blocks.extend(blocks);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A page with every block.
    fn page() -> Page {
        let mut page = Page::new("A < B");
        page.text("Why `a < b`, and **what** follows.").push(Block::Contents);
        page.heading(2, "Figures & words")
            .push(Block::Warning("few".into()))
            .list(["one", "two"])
            .list([""; 0]);
        page.lines("as | it\nis").push(Block::Command("run --all".into()));
        let bar = |share| vec![Bar { share, colour: "#123", tooltip: "some".into() }];
        page.table(
            Table::new("counts", ["name", "runs", "how it ended"])
                .rows([["a|b", "1,234", "with a reply"], ["long name", "5", "-"]])
                .bars("share", [bar(0.5), bar(1.0)]),
        );
        let (title, unit) = ("beside".to_owned(), "s".to_owned());
        page.push(Block::Beside { title, unit, rows: Vec::new() }).push(Block::Plots(Vec::new()));
        page.push(Block::Folded { summary: "more".into(), lines: vec!["x < y".into()] });
        page
    }

    #[test]
    fn markdown_has_all_that_is_text() {
        assert_eq!(
            page().markdown(),
            "# A < B\n\nWhy `a < b`, and **what** follows.\n\n## Figures & words\n\n> **Mind:** few\n\n- one\n- two\n\n\
             ```text\nas | it\nis\n```\n\n```sh\nrun --all\n```\n\n**counts**\n\n| name | runs | how it ended |\n\
             |---|---:|---|\n| a\\|b | 1,234 | with a reply |\n| long name | 5 | - |\n"
        );
    }

    #[test]
    fn html_has_everything_and_is_escaped() {
        let html = page().html();
        for piece in [
            "<title>A &lt; B</title>",
            "<h1>A &lt; B</h1>",
            "<p>Why <code>a &lt; b</code>, and <strong>what</strong> follows.</p>",
            "<li><a href=\"#b2\">Figures &amp; words</a></li>",
            "<h2 id=\"b2\">",
            "<strong>Mind:</strong> few",
            "<ul><li>one</li><li>two</li></ul>",
            "<pre>as | it\nis</pre>",
            "<pre>run --all</pre>",
            "<td>1,234</td>",
            "<th>share</th>",
            "width=\"120.0\"",
            "<title>some</title>",
            "<summary>more</summary>",
            "<code>x &lt; y</code>",
        ] {
            assert!(html.contains(piece), "{piece} in {html}");
        }
    }

    #[test]
    fn plain_text_has_aligned_columns() {
        let mut page = Page::new("t");
        page.heading(2, "four records")
            .table(Table::new("by kind", ["", "runs"]).rows([["a", "1"], ["bcd", "1,000"]]));
        page.text("and so on");
        assert_eq!(
            page.plain(),
            "four records\n  by kind   runs\n  a            1\n  bcd      1,000\n\n  and so on"
        );
    }
}
