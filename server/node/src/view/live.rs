//! A block at the end of the output that is redrawn in place; lines printed meanwhile scroll by above it.

use std::io;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use ratatui::crossterm::terminal;
use ratatui::text::Line;

use super::paint::{Paint, cut};
use crate::outcome::say;

/// The block, on stdout.
#[derive(Debug)]
pub struct Live {
    paint: Paint,
    block: ProgressBar,
}

impl Live {
    /// Shows nothing yet; nothing at all where stdout is no terminal that lines can be redrawn on.
    pub fn on_terminal() -> Option<Self> {
        let live = Live::on(ProgressDrawTarget::stdout(), Paint::for_stdout());
        (!live.block.is_hidden()).then_some(live)
    }

    fn on(target: ProgressDrawTarget, paint: Paint) -> Self {
        let style = ProgressStyle::with_template("{msg}").expect("a template of one word");
        Live { paint, block: ProgressBar::with_draw_target(None, target).with_style(style) }
    }

    /// Replaces the block; its lines are cut where the terminal ends.
    pub fn draw(&self, lines: &[Line<'static>]) {
        let columns = terminal::size().map_or(usize::MAX, |(columns, _)| usize::from(columns));
        self.show(lines, columns);
    }

    fn show(&self, lines: &[Line<'static>], columns: usize) {
        let lines: Vec<String> = lines.iter().map(|line| self.paint.printed(&cut(line, columns))).collect();
        self.block.set_message(lines.join("\n"));
    }

    /// Prints a line above the block.
    ///
    /// # Errors
    /// The terminal is gone.
    pub fn say(&self, line: &str) -> io::Result<()> {
        self.block.suspend(|| say(line))
    }

    /// Takes the block away for good.
    pub fn end(&self) {
        self.block.finish_and_clear();
    }
}

#[cfg(test)]
mod tests {
    use indicatif::InMemoryTerm;

    use super::*;
    use crate::view::Tone;

    #[test]
    fn the_block_is_redrawn_in_place_and_leaves_nothing() {
        let screen = InMemoryTerm::new(9, 20);
        let live = Live::on(ProgressDrawTarget::term_like(Box::new(screen.clone())), Paint::for_stdout());
        live.show(&[Tone::Strong.line("one"), Tone::Plain.line("two"), Tone::Bad.line("three and four")], 5);
        live.block.force_draw();
        assert_eq!(screen.contents(), "one\ntwo\nthree");
        live.show(&[Tone::Strong.line("four")], 5);
        live.block.force_draw();
        assert_eq!(screen.contents(), "four");
        live.block.suspend(|| assert_eq!(screen.contents(), "", "what is printed meanwhile stands above"));
        live.block.force_draw();
        assert_eq!(screen.contents(), "four");
        live.end();
        assert_eq!(screen.contents(), "");
    }
}
