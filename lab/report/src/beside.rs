//! Published figures compared with ours, one line each: their range as a bar, ours as a point with its interval, the
//! target as a stroke.

use std::fmt::Write as _;

use super::html::escaped;

/// One figure of the paper, or one target, with ours.
#[derive(Clone, Debug, PartialEq)]
pub struct ComparedFigure {
    /// Its name.
    pub name: String,
    /// The paper's lowest and highest value.
    pub paper: Option<(f64, f64)>,
    /// Our median, and the ends of its interval.
    pub ours: Option<(f64, f64, f64)>,
    /// Our target.
    pub target: Option<f64>,
}

const WIDTH: f64 = 1130.0;
const NAMES: f64 = 400.0;
const ROW: f64 = 24.0;
const TOP: f64 = 46.0;
const PAPER: &str = "#e69f00";
const OURS: &str = "#0072b2";
const TARGET: &str = "#d55e00";

/// The rows over one axis, in `unit`.
pub(crate) fn svg(title: &str, unit: &str, rows: &[ComparedFigure]) -> String {
    let floor = TOP + ROW * rows.len() as f64;
    let axis = Axis::over(rows);
    let mut out = format!(
        "<svg viewBox=\"0 0 {WIDTH} {}\" role=\"img\" aria-label=\"{}\" font-family=\"system-ui, \
            sans-serif\" font-size=\"12\">",
        floor + 40.0,
        escaped(title)
    );
    // Writing into a string cannot fail.
    let _ = write!(
        out,
        "<text x=\"0\" y=\"14\" font-size=\"14\" font-weight=\"600\">{}</text>\
         <rect x=\"{NAMES}\" y=\"24\" width=\"14\" height=\"9\" fill=\"{PAPER}\"/><text x=\"{}\" y=\"33\">paper</text>\
         <circle cx=\"{}\" cy=\"29\" r=\"4\" fill=\"{OURS}\"/><text x=\"{}\" y=\"33\">ours, with interval</text>\
         <line x1=\"{x}\" x2=\"{x}\" y1=\"23\" y2=\"35\" stroke=\"{TARGET}\" stroke-width=\"2.5\"/><text \
         x=\"{}\" y=\"33\">our target</text>",
        escaped(title),
        NAMES + 20.0,
        NAMES + 80.0,
        NAMES + 90.0,
        NAMES + 232.0,
        x = NAMES + 224.0,
    );
    for tick in axis.ticks() {
        let x = axis.x(tick);
        // As many digits as distinguish two ticks.
        let digits = (-axis.step.log10()).ceil().clamp(0.0, 6.0) as usize;
        let label = format!("{tick:.digits$}");
        let _ = write!(
            out,
            "<line x1=\"{x:.1}\" x2=\"{x:.1}\" y1=\"{TOP}\" y2=\"{floor}\" stroke=\"#e2e2e2\"/>\
             <text x=\"{x:.1}\" y=\"{}\" text-anchor=\"middle\" fill=\"#444\">{label}</text>",
            floor + 16.0
        );
    }
    for (number, row) in rows.iter().enumerate() {
        out += &one(row, TOP + ROW * (number as f64 + 0.5), &axis);
    }
    let centre = NAMES + (WIDTH - NAMES) / 2.0;
    let _ = write!(
        out,
        "<text x=\"{centre}\" y=\"{}\" text-anchor=\"middle\" fill=\"#444\">{}</text></svg>",
        floor + 34.0,
        escaped(unit)
    );
    out
}

fn one(row: &ComparedFigure, y: f64, axis: &Axis) -> String {
    let mut out = format!(
        "<text x=\"{}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>",
        NAMES - 12.0,
        y + 4.0,
        escaped(&row.name)
    );
    if let Some((low, high)) = row.paper {
        // A single value is a thin bar, so that it is visible.
        let (from, to) = (axis.x(low) - 2.0, axis.x(high) + 2.0);
        let _ = write!(
            out,
            "<rect x=\"{from:.1}\" y=\"{:.1}\" width=\"{:.1}\" height=\"14\" fill=\"{PAPER}\"><title>paper \
                {low}..{high}</title></rect>",
            y - 7.0,
            to - from
        );
    }
    if let Some(target) = row.target {
        let x = axis.x(target);
        let _ = write!(
            out,
            "<line x1=\"{x:.1}\" x2=\"{x:.1}\" y1=\"{:.1}\" y2=\"{:.1}\" stroke=\"{TARGET}\" \
                stroke-width=\"2.5\"><title>target {target}</title></line>",
            y - 9.0,
            y + 9.0
        );
    }
    match row.ours {
        Some((median, low, high)) => {
            let _ = write!(
                out,
                "<line x1=\"{:.1}\" x2=\"{:.1}\" y1=\"{y:.1}\" y2=\"{y:.1}\" stroke=\"{OURS}\" stroke-width=\"2\"/>\
                 <circle cx=\"{:.1}\" cy=\"{y:.1}\" r=\"4.5\" fill=\"{OURS}\" stroke=\"#fff\"><title>ours \
                 {median:.3} ({low:.3}..{high:.3})</title></circle>",
                axis.x(low),
                axis.x(high),
                axis.x(median)
            );
        }
        None => {
            let _ = write!(
                out,
                "<text x=\"{}\" y=\"{:.1}\" fill=\"#777\">not measured</text>",
                NAMES + 6.0,
                y + 4.0
            );
        }
    }
    out
}

/// The horizontal axis.
struct Axis {
    low: f64,
    high: f64,
    step: f64,
}

impl Axis {
    fn over(rows: &[ComparedFigure]) -> Self {
        let ends = rows.iter().flat_map(|row| {
            let (from, to) = row.paper.unwrap_or((f64::NAN, f64::NAN));
            let (_, low, high) = row.ours.unwrap_or((f64::NAN, f64::NAN, f64::NAN));
            [from, to, low, high, row.target.unwrap_or(f64::NAN)]
        });
        let (min, max) = ends
            .filter(|end| end.is_finite())
            .fold((f64::MAX, f64::MIN), |(min, max), end| (min.min(end), max.max(end)));
        let (min, max) = if min > max { (0.0, 1.0) } else { (min, max) };
        let step = super::plot::round_step(((max - min) / 8.0).max(1e-6));
        let low = (min / step).floor() * step;
        let high = (max / step).ceil() * step;
        Axis { low, high: if high > low { high } else { low + step }, step }
    }

    fn x(&self, value: f64) -> f64 {
        NAMES + 16.0 + (value - self.low) / (self.high - self.low) * (WIDTH - NAMES - 40.0)
    }

    fn ticks(&self) -> impl Iterator<Item = f64> {
        let (low, step) = (self.low, self.step);
        let count = ((self.high - low) / step).round() as usize;
        (0..=count).map(move |number| low + number as f64 * step)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everything_lies_on_the_axis_also_without_a_figure_of_ours() {
        let rows = [
            ComparedFigure {
                name: "a<b".into(),
                paper: Some((0.81, 0.86)),
                ours: Some((0.98, 0.95, 1.01)),
                target: Some(0.97),
            },
            ComparedFigure { name: "c".into(), paper: None, ours: None, target: None },
        ];
        let axis = Axis::over(&rows);
        for value in [0.81, 1.01] {
            assert!((NAMES..WIDTH).contains(&axis.x(value)), "{value}");
        }
        let text = svg("t", "ratio", &rows);
        assert!(text.contains("a&lt;b") && text.contains("not measured") && !text.contains("NaN"));
        assert!(!svg("t", "ratio", &rows[1..]).contains("NaN"));
    }
}
