//! The full screen, with its keys: the terminal is given back as it was, also when the program panics.

use std::io;
use std::mem::ManuallyDrop;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

use ratatui::DefaultTerminal;
use ratatui::Frame;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEvent, KeyModifiers};
use ratatui::layout::{Constraint, Layout};
use ratatui::text::{Line, Text};

use super::paint::{Paint, Tone};

/// The terminal's other screen; what was there before comes back when this is dropped.
#[derive(Debug)]
pub struct FullScreen {
    paint: Paint,
    /// Never dropped: that writes a message where the cursor cannot be shown, and panics where stderr is gone too.
    terminal: ManuallyDrop<DefaultTerminal>,
    events: Receiver<Event>,
}

impl FullScreen {
    /// Switches to the other screen, hides the cursor, and gets keys one by one.
    ///
    /// # Errors
    /// The terminal cannot be set up; it is then as it was.
    pub fn enter(paint: Paint) -> io::Result<Self> {
        let begin = || Ok((ratatui::try_init()?, listen()?));
        let begun: io::Result<_> = begin();
        let (terminal, events) = begun.inspect_err(|_| drop(ratatui::try_restore()))?;
        Ok(FullScreen { paint, terminal: ManuallyDrop::new(terminal), events })
    }

    /// Draws the lines from the top, and how to leave below them.
    ///
    /// # Errors
    /// The terminal is gone.
    pub fn draw(&mut self, lines: &[Line<'static>]) -> io::Result<()> {
        let lines: Vec<_> = lines.iter().map(|line| self.paint.drawn(line)).collect();
        let leaving = self.paint.drawn(&Tone::Quiet.line("q leaves"));
        self.terminal.draw(|frame| picture(frame, lines, leaving))?;
        Ok(())
    }

    /// Waits for `pause`, or until a key that leaves is pressed; tells whether one was. The keys of Ctrl-C count: the
    /// terminal makes no signal of them here. A changed size ends the wait.
    pub fn leaves(&self, pause: Duration) -> bool {
        leaves(&self.events, pause)
    }
}

impl Drop for FullScreen {
    fn drop(&mut self) {
        // A terminal that is gone has nothing to be given back.
        let _ = self.terminal.show_cursor();
        let _ = ratatui::try_restore();
    }
}

/// Keys and changed sizes, read by a thread of their own. If the terminal is gone, the crate tries to read it for ever
/// and without a pause; that thread must not be the one that ends the command.
fn listen() -> io::Result<Receiver<Event>> {
    let (sender, events) = mpsc::channel();
    std::thread::Builder::new().name("keys".into()).spawn(move || {
        while let Ok(event) = event::read() {
            if sender.send(event).is_err() {
                break;
            }
        }
    })?;
    Ok(events)
}

fn leaves(events: &Receiver<Event>, pause: Duration) -> bool {
    let until = Instant::now() + pause;
    loop {
        let left = until.saturating_duration_since(Instant::now());
        match events.recv_timeout(left) {
            Ok(Event::Key(key)) if is_leaving(&key) => return true,
            Ok(Event::Resize(..)) | Err(RecvTimeoutError::Timeout) => return false,
            Ok(_) => (),
            // No key will ever be pressed; still keep the pace.
            Err(RecvTimeoutError::Disconnected) => {
                std::thread::sleep(left);
                return false;
            }
        }
    }
}

fn is_leaving(key: &KeyEvent) -> bool {
    match key.code {
        KeyCode::Char('q' | 'Q') => true,
        KeyCode::Char('c') => key.modifiers.contains(KeyModifiers::CONTROL),
        _ => false,
    }
}

/// The lines from the top, cut where the screen ends, and `leaving` right below them.
fn picture(frame: &mut Frame<'_>, lines: Vec<Line<'static>>, leaving: Line<'static>) {
    let rows = u16::try_from(lines.len()).unwrap_or(u16::MAX);
    let areas = Layout::vertical([Constraint::Max(rows), Constraint::Length(1)]).split(frame.area());
    frame.render_widget(Text::from(lines), areas[0]);
    frame.render_widget(leaving, areas[1]);
}

#[cfg(test)]
mod tests {
    use ratatui::Terminal;
    use ratatui::backend::TestBackend;
    use ratatui::style::{Color, Style};

    use super::*;

    fn drawn(width: u16, height: u16, pictures: &[&[Line<'static>]]) -> TestBackend {
        let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
        for lines in pictures {
            terminal.draw(|frame| picture(frame, lines.to_vec(), Line::raw("q leaves"))).unwrap();
        }
        terminal.backend().clone()
    }

    #[test]
    fn lines_are_cut_at_the_width_and_keep_their_colours() {
        let line = Tone::Good.line("abc") + Tone::Bad.span("defg");
        let mut screen = drawn(5, 3, &[&[line]]);
        assert_eq!(screen.buffer()[(2, 0)].style().fg, Some(Color::Green));
        assert_eq!(screen.buffer()[(3, 0)].style().fg, Some(Color::Red));
        let plain = Style::reset();
        let mut shown = screen.buffer().clone();
        shown.set_style(*screen.buffer().area(), plain);
        screen = TestBackend::with_lines(["abcde", "q lea", "     "]);
        screen.assert_buffer(&shown);
    }

    #[test]
    fn a_screen_that_is_too_small_still_says_how_to_leave() {
        let lines: Vec<_> = (0..9).map(|number| Line::raw(format!("line {number}"))).collect();
        drawn(8, 3, &[&lines]).assert_buffer_lines(["line 0  ", "line 1  ", "q leaves"]);
    }

    #[test]
    fn a_shorter_picture_leaves_nothing_of_the_longer_one() {
        let long = [Line::raw("12345678"), Line::raw("second")];
        let short = [Line::raw("123")];
        drawn(8, 4, &[&long, &short]).assert_buffer_lines(["123     ", "q leaves", "        ", "        "]);
    }

    #[test]
    fn control_characters_of_a_server_are_not_obeyed() {
        let line = Tone::Plain.line("a\x1b[2Jb");
        drawn(9, 2, &[&[line]]).assert_buffer_lines(["a?[2Jb   ", "q leaves "]);
    }

    #[test]
    fn a_wait_ends_early_only_for_what_is_to_be_shown_or_obeyed() {
        let long = Duration::from_secs(60);
        let (sender, events) = mpsc::channel();
        let key = |letter| Event::Key(KeyEvent::new(KeyCode::Char(letter), KeyModifiers::NONE));
        for event in [key('x'), Event::Resize(80, 24), key('x'), key('q')] {
            sender.send(event).expect("the receiver is there");
        }
        assert!(!leaves(&events, long), "a changed size is to be shown");
        assert!(leaves(&events, long), "q leaves");
        assert!(!leaves(&events, Duration::from_millis(1)), "nothing was pressed");
        drop(sender);
        let (begun, pause) = (Instant::now(), Duration::from_millis(20));
        assert!(!leaves(&events, pause) && begun.elapsed() >= pause, "the pace is kept without keys");
    }

    #[test]
    fn q_and_ctrl_c_leave_and_other_keys_do_not() {
        let key = |letter, modifiers| is_leaving(&KeyEvent::new(KeyCode::Char(letter), modifiers));
        assert!(
            key('q', KeyModifiers::NONE) && key('Q', KeyModifiers::SHIFT) && key('c', KeyModifiers::CONTROL)
        );
        assert!(!key('c', KeyModifiers::NONE) && !key('x', KeyModifiers::CONTROL));
    }
}
