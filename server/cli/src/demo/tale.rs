//! Tells the demonstration: lines at a reader's pace on a terminal, without pauses elsewhere, JSON when asked.

use std::io::{self, IsTerminal};
use std::time::Duration;

use serde_json::{Value, json};

use node::outcome::say;
use node::signals::Ending;
use node::view::{Paint, Tone, ViewLine};

/// Pause after a line at speed 1.
const PAUSE: Duration = Duration::from_millis(700);

/// The teller.
pub struct Tale {
    paint: Paint,
    json: bool,
    pause: Duration,
    ending: Ending,
}

impl Tale {
    /// Tells at `speed` (2 = twice as fast, 0 = without pauses); pauses are for people only.
    pub fn new(json: bool, speed: f64, ending: Ending) -> Self {
        let paced = io::stdout().is_terminal() && !json && speed > 0.0;
        let pause = if paced { PAUSE.div_f64(speed.max(0.05)) } else { Duration::ZERO };
        Tale { paint: Paint::for_stdout(), json, pause, ending }
    }

    /// Whether the listener has had enough.
    pub fn is_over(&self) -> bool {
        self.ending.asked()
    }

    /// A heading.
    pub fn heading(&self, text: &str) -> io::Result<()> {
        self.line(ViewLine::default())?;
        self.line(Tone::Strong.line(text))
    }

    /// Something that is explained.
    pub fn explain(&self, text: &str) -> io::Result<()> {
        self.line(Tone::Quiet.line(format!("  {text}")))
    }

    /// Something that is done or seen.
    pub fn step(&self, what: &str, tone: Tone, seen: impl Into<String>) -> io::Result<()> {
        self.line(Tone::Plain.line(format!("  {what:<10} ")) + tone.span(seen))
    }

    /// A prepared line.
    pub fn line(&self, line: ViewLine) -> io::Result<()> {
        if self.json {
            return Ok(());
        }
        say(&self.paint.printed(&line))?;
        self.ending.sleep(self.pause);
        Ok(())
    }

    /// A value, printed only with --json.
    pub fn value(&self, event: &str, value: &impl serde::Serialize) -> anyhow::Result<()> {
        if self.json {
            let value: Value = json!({"event": event, "what": serde_json::to_value(value)?});
            say(&value.to_string())?;
        }
        Ok(())
    }
}
