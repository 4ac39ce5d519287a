//! Text with meaning attached, and the one place that turns meaning into colour, or not.

use std::io::IsTerminal;

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

/// One line of pieces.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ViewLine(Vec<(Tone, String)>);

impl ViewLine {
    /// A line of one piece.
    pub fn of(tone: Tone, text: impl Into<String>) -> Self {
        ViewLine(vec![(tone, text.into())])
    }

    /// Appends a piece.
    pub fn with(mut self, tone: Tone, text: impl Into<String>) -> Self {
        self.0.push((tone, text.into()));
        self
    }

    /// Appends another line's pieces.
    pub fn followed_by(mut self, other: ViewLine) -> Self {
        self.0.extend(other.0);
        self
    }

    /// The line without colour.
    pub fn text(&self) -> String {
        self.0.iter().map(|(_, text)| text.as_str()).collect()
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

    /// The line as it is printed, cut at `width` characters: a line that wraps would spoil a block that is redrawn.
    pub fn line(self, line: &ViewLine, width: usize) -> String {
        let mut left = width;
        let mut out = String::new();
        for (tone, text) in &line.0 {
            // Text from a server may hold anything; control characters would be obeyed by the terminal.
            let piece: String = text.chars().map(visible).take(left).collect();
            left -= piece.chars().count();
            out.push_str(&self.piece(*tone, &piece));
        }
        out
    }

    /// One piece as it is printed.
    pub fn piece(self, tone: Tone, text: &str) -> String {
        let code = match tone {
            Tone::Plain => return text.to_owned(),
            Tone::Strong => "1",
            Tone::Quiet => "2",
            Tone::Good => "32",
            Tone::Notable => "33",
            Tone::Bad => "1;31",
        };
        if self.colour && !text.is_empty() { format!("\x1b[{code}m{text}\x1b[0m") } else { text.to_owned() }
    }
}

fn visible(letter: char) -> char {
    if letter.is_control() { '?' } else { letter }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_cut_at_the_width_before_it_is_coloured() {
        let line = ViewLine::of(Tone::Good, "abc").with(Tone::Bad, "defg");
        assert_eq!(Paint { colour: false }.line(&line, 5), "abcde");
        assert_eq!(Paint { colour: true }.line(&line, 5), "\x1b[32mabc\x1b[0m\x1b[1;31mde\x1b[0m");
        assert_eq!(Paint { colour: true }.line(&line, 2), "\x1b[32mab\x1b[0m");
    }

    #[test]
    fn control_characters_do_not_reach_the_terminal() {
        let line = ViewLine::of(Tone::Plain, "a\x1b[2Jb\n");
        assert_eq!(Paint { colour: true }.line(&line, 80), "a?[2Jb?");
    }
}
