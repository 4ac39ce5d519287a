//! Drawing on a terminal without leaving traces: a block that is redrawn in place, and a full screen that is
//! given back.

use std::io::{self, Write};

use super::paint::{Paint, ViewLine};

/// Columns of the terminal on stdout, or a usual width.
pub fn width() -> usize {
    let size = rustix::termios::tcgetwinsize(rustix::stdio::stdout());
    size.ok().map(|size| usize::from(size.ws_col)).filter(|columns| *columns > 0).unwrap_or(110)
}

/// A block at the end of the output that is redrawn in place; lines printed meanwhile scroll by above it.
#[derive(Debug)]
pub struct Live {
    paint: Paint,
    shown: usize,
}

impl Live {
    /// Shows nothing yet. Only for a stdout that is a terminal.
    pub fn new(paint: Paint) -> Self {
        Live { paint, shown: 0 }
    }

    /// Replaces the block.
    ///
    /// # Errors
    /// The terminal is gone.
    pub fn draw(&mut self, lines: &[ViewLine]) -> io::Result<()> {
        let mut text = self.erased();
        for line in lines {
            text.push_str(&self.paint.line(line, width()));
            text.push('\n');
        }
        self.shown = lines.len();
        put(&text)
    }

    /// Takes the block away, so that ordinary lines can be printed.
    ///
    /// # Errors
    /// The terminal is gone.
    pub fn clear(&mut self) -> io::Result<()> {
        let text = self.erased();
        self.shown = 0;
        put(&text)
    }

    fn erased(&self) -> String {
        if self.shown == 0 { String::new() } else { format!("\x1b[{}A\x1b[J", self.shown) }
    }
}

/// The terminal's other screen; what was there before comes back when this is dropped.
#[derive(Debug)]
pub struct FullScreen {
    paint: Paint,
}

impl FullScreen {
    /// Switches to the other screen and hides the cursor.
    ///
    /// # Errors
    /// The terminal is gone.
    pub fn enter(paint: Paint) -> io::Result<Self> {
        put("\x1b[?1049h\x1b[?25l\x1b[2J")?;
        Ok(FullScreen { paint })
    }

    /// Draws from the top; every line is cleared to its end, so that nothing flickers.
    ///
    /// # Errors
    /// The terminal is gone.
    pub fn draw(&mut self, lines: &[ViewLine]) -> io::Result<()> {
        let mut text = "\x1b[H".to_owned();
        for line in lines {
            text.push_str(&self.paint.line(line, width()));
            text.push_str("\x1b[K\r\n");
        }
        text.push_str("\x1b[J");
        put(&text)
    }
}

impl Drop for FullScreen {
    fn drop(&mut self) {
        let _ = put("\x1b[?25h\x1b[?1049l");
    }
}

fn put(text: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes())?;
    out.flush()
}
