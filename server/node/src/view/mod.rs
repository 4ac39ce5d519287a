//! What the commands show: numbers, rows and blocks as text, with colour on a terminal only.

mod copies;
mod live;
mod numbers;
mod paint;
mod progress;
mod render;
mod screen;

pub use live::Live;
pub use numbers::{bytes, grouped, micros, millis};
pub use paint::{Paint, Tone};
pub use progress::{ProgressLine, roughly};
pub use render::{block, live_block, one_line, row_json, tolerates};
pub use screen::FullScreen;

/// One line of pieces, each with its tone.
pub type ViewLine = ratatui::text::Line<'static>;
