//! Text with meaning attached, and the one place that turns meaning into colour, or not.

use std::io::IsTerminal;

use ratatui::backend::IntoCrossterm;
use ratatui::crossterm::style::ContentStyle;
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};

/// What a piece of text means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tone {
    /// Nothing special.
    Plain,
    /// A heading.
    Strong,
    /// Less important.
    Quiet,
    /// As it should be.
    Good,
    /// Worth a look.
    Notable,
    /// Wrong.
    Bad,
}

impl Tone {
    /// A piece of a line. Text from a server may hold anything; control characters, which the terminal would obey, are
    /// shown as `?`.
    pub fn span(self, text: impl Into<String>) -> Span<'static> {
        let text: String = text.into();
        let visible = |letter: char| if letter.is_control() { '?' } else { letter };
        Span::styled(text.chars().map(visible).collect::<String>(), self.style())
    }

    /// A line of one piece; more are added with `+`.
    pub fn line(self, text: impl Into<String>) -> Line<'static> {
        Line::from(self.span(text))
    }

    fn style(self) -> Style {
        match self {
            Tone::Plain => Style::new(),
            Tone::Strong => Style::new().add_modifier(Modifier::BOLD),
            Tone::Quiet => Style::new().add_modifier(Modifier::DIM),
            Tone::Good => Style::new().fg(Color::Green),
            Tone::Notable => Style::new().fg(Color::Yellow),
            Tone::Bad => Style::new().fg(Color::Red).add_modifier(Modifier::BOLD),
        }
    }
}

/// Whether colour is used.
#[derive(Clone, Copy, Debug)]
pub struct Paint {
    colour: bool,
}

impl Paint {
    /// Colour on a terminal, unless NO_COLOR is set to anything.
    pub fn for_stdout() -> Self {
        let unwanted = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
        Paint { colour: std::io::stdout().is_terminal() && !unwanted }
    }

    /// The line as it is drawn on a full screen.
    pub fn drawn(self, line: &Line<'static>) -> Line<'static> {
        if self.colour { line.clone() } else { Line::raw(line.to_string()) }
    }

    /// The line as it is printed.
    pub fn printed(self, line: &Line<'static>) -> String {
        let piece = |span: &Span<'static>| match span.style {
            style if self.colour && style != Style::new() && !span.content.is_empty() => {
                let style: ContentStyle = style.into_crossterm();
                style.apply(&span.content).to_string()
            }
            _ => span.content.to_string(),
        };
        line.iter().map(piece).collect()
    }
}

/// The line's beginning, of so many characters: a line that is wrapped would spoil a block that is redrawn.
pub(super) fn cut(line: &Line<'static>, columns: usize) -> Line<'static> {
    let mut left = columns;
    let piece = |span: &Span<'static>| {
        let text: String = span.content.chars().take(left).collect();
        left -= text.chars().count();
        Span::styled(text, span.style)
    };
    Line::from(line.iter().map(piece).collect::<Vec<_>>())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_cut_before_it_is_coloured() {
        let line = Tone::Good.line("abc") + Tone::Bad.span("defg");
        assert_eq!(cut(&line, 5), Tone::Good.line("abc") + Tone::Bad.span("de"));
        let short = Paint { colour: true }.printed(&cut(&line, 2));
        assert!(short.starts_with("\x1b[") && short.contains("ab\x1b"), "{short:?}");
        assert_eq!(cut(&line, usize::MAX), line);
    }

    #[test]
    fn a_line_is_coloured_where_colour_is_wanted_and_only_there() {
        let line = Tone::Plain.line("a") + Tone::Good.span("bc") + Tone::Bad.span("de");
        assert_eq!(Paint { colour: false }.printed(&line), "abcde");
        assert_eq!(Paint { colour: false }.drawn(&line), Line::raw("abcde"));
        let coloured = Paint { colour: true }.printed(&line);
        assert!(coloured.starts_with("a\x1b[") && coloured.ends_with("\x1b[0m"), "{coloured:?}");
        assert_eq!(Paint { colour: true }.drawn(&line), line);
    }

    #[test]
    fn control_characters_do_not_reach_the_terminal() {
        let line = Tone::Plain.line("a\x1b[2Jb\n");
        assert_eq!(Paint { colour: true }.printed(&line), "a?[2Jb?");
    }
}
