//! A flame graph as SVG: frames upon their callers, as wide as the time that they and their callees took.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use report::escaped;

use super::stacks::{Stack, StackStage, stage_of};

/// Pixels.
const WIDTH: f64 = 1200.0;
const ROW: f64 = 17.0;
const HEAD: f64 = 58.0;
/// Narrower frames are left out.
const NARROWEST: f64 = 0.4;
/// Pixels that a letter takes.
const LETTER: f64 = 6.2;

/// A function as it was called from one place.
#[derive(Debug, Default)]
struct FlameFrame {
    samples: usize,
    callees: BTreeMap<String, FlameFrame>,
}

impl FlameFrame {
    fn add(&mut self, stack: &Stack) {
        let mut frame = self;
        frame.samples += 1;
        for name in stack.frames.iter().rev() {
            frame = frame.callees.entry(name.clone()).or_default();
            frame.samples += 1;
        }
    }

    fn depth(&self, narrowest: usize) -> usize {
        let wide = self.callees.values().filter(|callee| callee.samples >= narrowest);
        wide.map(|callee| 1 + callee.depth(narrowest)).max().unwrap_or(0)
    }
}

/// Where the next frame goes.
struct Drawing {
    pixels_per_sample: f64,
    us_per_sample: f64,
    bottom: f64,
    out: String,
}

/// The flame graph of `stacks`, whose samples stand for `us_per_sample` microseconds per request each.
pub fn svg(title: &str, stacks: &[Stack], us_per_sample: f64) -> String {
    let mut root = FlameFrame::default();
    stacks.iter().for_each(|stack| root.add(stack));
    let pixels_per_sample = WIDTH / root.samples.max(1) as f64;
    let narrowest = (NARROWEST / pixels_per_sample).ceil() as usize;
    let height = HEAD + ROW * (root.depth(narrowest) as f64 + 1.0);
    let out = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height:.0}\" font-family=\"sans-serif\" \
         font-size=\"11\">\n<rect width=\"100%\" height=\"100%\" fill=\"#fff\"/>\n<text x=\"8\" y=\"20\" \
         font-size=\"14\">{}</text>\n",
        escaped(title)
    );
    let mut drawing = Drawing { pixels_per_sample, us_per_sample, bottom: height, out };
    drawing.legend();
    drawing.callees(&root, 0.0, 0, StackStage::Other);
    drawing.out.push_str("</svg>\n");
    drawing.out
}

impl Drawing {
    fn legend(&mut self) {
        let mut x = 8.0;
        for stage in StackStage::ALL {
            let (colour, name) = (colour(stage), stage.name());
            let _ = writeln!(
                self.out,
                "<rect x=\"{x:.0}\" y=\"30\" width=\"12\" height=\"12\" fill=\"{colour}\"/><text x=\"{:.0}\" \
                 y=\"40\">{name}</text>",
                x + 16.0
            );
            x += 40.0 + LETTER * name.len() as f64;
        }
    }

    fn callees(&mut self, caller: &FlameFrame, left: f64, depth: usize, outer: StackStage) {
        let mut x = left;
        for (name, frame) in &caller.callees {
            let width = frame.samples as f64 * self.pixels_per_sample;
            if width >= NARROWEST {
                let stage = stage_of(name).unwrap_or(outer);
                self.frame(name, frame, (x, width), depth, stage);
                self.callees(frame, x, depth + 1, stage);
            }
            x += width;
        }
    }

    fn frame(
        &mut self,
        name: &str,
        frame: &FlameFrame,
        (x, width): (f64, f64),
        depth: usize,
        stage: StackStage,
    ) {
        let y = self.bottom - ROW * (depth as f64 + 1.0);
        let us = frame.samples as f64 * self.us_per_sample;
        let letters = ((width - 4.0) / LETTER).max(0.0) as usize;
        let label: String = if letters < 3 { String::new() } else { name.chars().take(letters).collect() };
        let _ = writeln!(
            self.out,
            "<g><title>{}: {us:.2} µs per request</title><rect x=\"{x:.1}\" y=\"{y:.0}\" width=\"{width:.1}\" \
             height=\"{:.0}\" fill=\"{}\" stroke=\"#fff\" stroke-width=\"0.5\"/><text x=\"{:.1}\" \
             y=\"{:.0}\">{}</text></g>",
            escaped(name),
            ROW - 1.0,
            colour(stage),
            x + 2.0,
            y + 12.0,
            escaped(&label),
        );
    }
}

/// Colours that people with colour blindness can distinguish too.
fn colour(stage: StackStage) -> &'static str {
    match stage {
        StackStage::Decode => "#88ccee",
        StackStage::Order => "#ddcc77",
        StackStage::Schedule => "#44aa99",
        StackStage::Execute => "#cc6677",
        StackStage::Vote => "#aa77cc",
        StackStage::Externalize => "#77bb66",
        StackStage::Links => "#6688cc",
        StackStage::Waiting => "#cccccc",
        StackStage::Other => "#e8e4da",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stack(frames: &[&str]) -> Stack {
        Stack { frames: frames.iter().map(|frame| (*frame).to_owned()).collect(), in_kernel: false }
    }

    #[test]
    fn widths_are_shares_and_names_are_escaped() {
        let stacks = [
            stack(&["memmove", "<object::Walk as T>::seal", "main"]),
            stack(&["<object::Walk as T>::seal", "main"]),
            stack(&["epoll_wait", "main"]),
            stack(&["epoll_wait", "main"]),
        ];
        let drawn = svg("a & b", &stacks, 0.5);
        assert!(drawn.contains("a &amp; b"));
        assert!(drawn.contains("&lt;object::Walk as T&gt;::seal: 1.00 µs per request"), "{drawn}");
        assert!(drawn.contains("main: 2.00 µs"));
        assert!(drawn.contains("width=\"600.0\""));
        assert_eq!(drawn.matches("<g>").count(), drawn.matches("</g>").count());
    }
}
