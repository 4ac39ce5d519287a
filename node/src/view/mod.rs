//! What the commands show: numbers, rows and blocks as text, with colour on a terminal only.

mod keys;
mod numbers;
mod paint;
mod render;
mod screen;

pub use keys::Keys;
pub use numbers::{grouped, micros, millis};
pub use paint::{Paint, Tone, ViewLine};
pub use render::{block, one_line, row_json};
pub use screen::{FullScreen, Live};
