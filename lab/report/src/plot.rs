//! Plots as SVG: medians over the number of connections, or over another setting, with their intervals, and the paper's
//! figures next to them.

use std::fmt::Write as _;

use super::html::escaped;

/// One plot.
#[derive(Clone, Debug, PartialEq)]
pub struct Plot {
    /// Its title.
    pub title: String,
    /// Unit of the vertical axis.
    pub unit: String,
    /// How the vertical axis is divided.
    pub scale: Scale,
    /// The horizontal axis.
    pub across: Across,
    /// Its lines.
    pub series: Vec<PlotSeries>,
    /// Published figures and targets.
    pub marks: Vec<Mark>,
    /// Moments: a place on the horizontal axis with what happened there.
    pub moments: Vec<(f64, String)>,
}

/// The horizontal axis.
#[derive(Clone, Debug, PartialEq)]
pub enum Across {
    /// Numbers of connections, logarithmic, so that 1, 10 and 100 are equally far apart.
    Connections,
    /// Another quantity, evenly divided; its name and unit.
    Even(String),
    /// A list of items: the name of the axis, and those of the items for 0, 1, 2 and so on.
    Listed(String, Vec<String>),
}

impl Across {
    fn label(&self) -> &str {
        match self {
            Across::Connections => "connections (logarithmic)",
            Across::Even(label) | Across::Listed(label, _) => label,
        }
    }

    /// The label of `x` below the axis, or in a sentence.
    fn reported(&self, x: f64) -> String {
        match self {
            Across::Connections | Across::Even(_) => short(x),
            Across::Listed(_, names) => names.get(x as usize).cloned().unwrap_or_default(),
        }
    }
}

/// How the vertical axis is divided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scale {
    /// Evenly, from zero.
    FromZero,
    /// By powers of ten.
    Log,
    /// Evenly, around one.
    Ratio,
}

/// One line.
#[derive(Clone, Debug, PartialEq)]
pub struct PlotSeries {
    /// Its name.
    pub name: String,
    /// The number of its colour and form of point, equal in every plot.
    pub look: usize,
    /// Its points, from left to right.
    pub points: Vec<Point>,
}

/// A median with its interval.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Point {
    /// Connections, or the other setting's value.
    pub x: f64,
    /// The median.
    pub y: f64,
    /// Lower end of the interval.
    pub low: f64,
    /// Upper end.
    pub high: f64,
}

/// A published figure and a target next to a line.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Mark {
    /// The look of the line it belongs to.
    pub look: usize,
    /// Connections.
    pub x: f64,
    /// The paper's range.
    pub paper: Option<(f64, f64)>,
    /// The target.
    pub target: Option<f64>,
}

/// Colours that people with colour blindness can distinguish too (Okabe and Ito), then darker ones.
const COLOURS: [&str; 9] =
    ["#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00", "#000000", "#7a5195", "#6b6b6b"];
const WIDTH: f64 = 560.0;
const HEIGHT: f64 = 340.0;
const LEFT: f64 = 62.0;
const RIGHT: f64 = 16.0;
const BOTTOM: f64 = 46.0;
/// Width of a letter of the legend, roughly.
const LETTER: f64 = 7.0;
/// Neighbouring lines are moved apart by this, so that their intervals do not hide each other.
const APART: f64 = 2.5;
/// A line of more points is drawn without them, and its axis is divided in round steps.
const MANY: usize = 24;

/// The plot as an `svg` element.
pub(crate) fn svg(plot: &Plot) -> String {
    let legend = legend(plot);
    let frame = PlotFrame::of(plot, legend.height);
    let mut out = format!(
        "<svg viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=\"img\" aria-label=\"{}\" font-family=\"system-ui, \
            sans-serif\" font-size=\"12\">",
        escaped(&plot.title)
    );
    // Writing into a string cannot fail.
    let _ = write!(
        out,
        "<text x=\"0\" y=\"14\" font-size=\"14\" font-weight=\"600\">{}</text>",
        escaped(&plot.title)
    );
    out += &legend.svg;
    out += &axes(plot, &frame);
    for mark in &plot.marks {
        out += &mark_svg(plot, mark, &frame);
    }
    for (number, (x, what)) in plot.moments.iter().enumerate() {
        out += &moment_svg(frame.x(*x), number, what, &frame);
    }
    for (number, series) in plot.series.iter().enumerate() {
        out += &line(plot, series, frame.shift(number, plot.series.len()), &frame);
    }
    out + "</svg>"
}

/// The mapping of values to places in the plot.
struct PlotFrame {
    top: f64,
    xs: Vec<f64>,
    low: f64,
    high: f64,
    log: bool,
    across_log: bool,
}

impl PlotFrame {
    fn of(plot: &Plot, legend: f64) -> Self {
        let points = || plot.series.iter().flat_map(|series| &series.points);
        let mut xs: Vec<f64> = points().map(|point| point.x).collect();
        xs.sort_by(f64::total_cmp);
        xs.dedup();
        let marked = plot.marks.iter().flat_map(|mark| {
            let paper = mark.paper.map(|(low, high)| [low, high]).unwrap_or([f64::NAN; 2]);
            [paper[0], paper[1], mark.target.unwrap_or(f64::NAN)]
        });
        let ends =
            points().flat_map(|point| [point.low, point.high]).chain(marked).filter(|end| end.is_finite());
        let (min, max) = ends.fold((f64::MAX, f64::MIN), |(min, max), end| (min.min(end), max.max(end)));
        let (low, high) = match plot.scale {
            Scale::FromZero => (0.0, max.max(f64::MIN_POSITIVE) * 1.05),
            Scale::Ratio => ((min - 0.05).min(0.9), (max + 0.05).max(1.05)),
            Scale::Log => (decade(min.max(1e-3)).floor(), decade(max.max(1e-2)).ceil()),
        };
        let across_log = plot.across == Across::Connections;
        PlotFrame { top: 32.0 + legend, xs, low, high, log: plot.scale == Scale::Log, across_log }
    }

    fn x(&self, value: f64) -> f64 {
        let (first, last) = (self.xs.first().copied().unwrap_or(1.0), self.xs.last().copied().unwrap_or(1.0));
        let width = WIDTH - LEFT - RIGHT - 40.0;
        let share = match (last > first, self.across_log) {
            (false, _) => 0.5,
            (true, true) => (value / first).ln() / (last / first).ln(),
            (true, false) => (value - first) / (last - first),
        };
        LEFT + 20.0 + share * width
    }

    fn y(&self, value: f64) -> f64 {
        let value = if self.log { decade(value.max(1e-3)) } else { value };
        let share = (value - self.low) / (self.high - self.low);
        let floor = HEIGHT - BOTTOM;
        floor - share * (floor - self.top)
    }

    /// With a single number of connections the lines are points in a row, with space between them.
    fn shift(&self, number: usize, count: usize) -> f64 {
        let apart = if self.xs.len() > 1 { APART } else { 36.0 };
        (number as f64 - (count as f64 - 1.0) / 2.0) * apart
    }

    /// Places on the horizontal axis that get a tick.
    fn across_ticks(&self) -> Vec<f64> {
        let (Some(first), Some(last)) = (self.xs.first(), self.xs.last()) else { return Vec::new() };
        if self.xs.len() <= MANY {
            return self.xs.clone();
        }
        let step = round_step((last - first) / 10.0);
        let (begin, end) = ((first / step).ceil() as i64, (last / step).floor() as i64);
        (begin..=end).map(|number| number as f64 * step).collect()
    }

    fn ticks(&self) -> Vec<f64> {
        if self.log {
            let decades = self.low as i32..=self.high as i32;
            return decades.map(|power| 10f64.powi(power)).collect();
        }
        let step = round_step((self.high - self.low) / 6.0);
        let first = (self.low / step).ceil() as i64;
        let last = (self.high / step).floor() as i64;
        (first..=last).map(|number| number as f64 * step).collect()
    }
}

fn decade(value: f64) -> f64 {
    value.log10()
}

/// The next of 1, 2, 5, 10, ... that is at least `wanted`.
pub(crate) fn round_step(wanted: f64) -> f64 {
    let power = 10f64.powf(wanted.log10().floor());
    let step = [1.0, 2.0, 5.0, 10.0].into_iter().find(|step| step * power >= wanted * 0.999);
    step.unwrap_or(10.0) * power
}

fn axes(plot: &Plot, frame: &PlotFrame) -> String {
    let mut out = String::new();
    let (right, floor) = (WIDTH - RIGHT, HEIGHT - BOTTOM);
    for tick in frame.ticks() {
        let y = frame.y(tick);
        let _ = write!(
            out,
            "<line x1=\"{LEFT}\" x2=\"{right}\" y1=\"{y:.1}\" y2=\"{y:.1}\" stroke=\"#e2e2e2\"/>\
             <text x=\"{}\" y=\"{:.1}\" text-anchor=\"end\" fill=\"#444\">{}</text>",
            LEFT - 6.0,
            y + 4.0,
            short(tick)
        );
    }
    if plot.scale == Scale::Ratio {
        let y = frame.y(1.0);
        let _ =
            write!(out, "<line x1=\"{LEFT}\" x2=\"{right}\" y1=\"{y:.1}\" y2=\"{y:.1}\" stroke=\"#555\"/>");
    }
    let _ = write!(out, "<line x1=\"{LEFT}\" x2=\"{right}\" y1=\"{floor}\" y2=\"{floor}\" stroke=\"#444\"/>");
    let mut last = f64::MIN;
    for value in frame.across_ticks() {
        let x = frame.x(value);
        let _ = write!(
            out,
            "<line x1=\"{x:.1}\" x2=\"{x:.1}\" y1=\"{floor}\" y2=\"{}\" stroke=\"#444\"/>",
            floor + 4.0
        );
        // Labels that would overlap are left out; their tick stays.
        let reported = plot.across.reported(value);
        let half = reported.chars().count() as f64 * LETTER / 2.0;
        if x - half - last > 4.0 {
            let _ = write!(
                out,
                "<text x=\"{x:.1}\" y=\"{}\" text-anchor=\"middle\" fill=\"#444\">{}</text>",
                floor + 18.0,
                escaped(&reported)
            );
            last = x + half;
        }
    }
    let centre = LEFT + (right - LEFT) / 2.0;
    let middle = frame.top + (floor - frame.top) / 2.0;
    let unit = if frame.log { format!("{} (logarithmic)", plot.unit) } else { plot.unit.clone() };
    let _ = write!(
        out,
        "<text x=\"{centre}\" y=\"{}\" text-anchor=\"middle\" fill=\"#444\">{}</text>\
         <text transform=\"translate(13 {middle:.1}) rotate(-90)\" text-anchor=\"middle\" fill=\"#444\">{}</text>",
        HEIGHT - 8.0,
        escaped(plot.across.label()),
        escaped(&unit)
    );
    out
}

fn line(plot: &Plot, series: &PlotSeries, shift: f64, frame: &PlotFrame) -> String {
    let colour = COLOURS[series.look % COLOURS.len()];
    let mut out = String::from("<g>");
    let place = |point: &Point| (frame.x(point.x) + shift, frame.y(point.y));
    let path: Vec<String> = series.points.iter().map(place).map(|(x, y)| format!("{x:.1},{y:.1}")).collect();
    let _ = write!(
        out,
        "<polyline points=\"{}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"1.6\"/>",
        path.join(" ")
    );
    if series.points.len() > MANY {
        return out + "</g>";
    }
    let of = if plot.across == Across::Connections { " connections" } else { "" };
    for point in &series.points {
        let (x, y) = place(point);
        let (low, high) = (frame.y(point.low), frame.y(point.high));
        let _ = write!(
            out,
            "<path d=\"M{x:.1} {low:.1}V{high:.1}M{:.1} {low:.1}h6M{:.1} {high:.1}h6\" stroke=\"{colour}\" \
                fill=\"none\"/>",
            x - 3.0,
            x - 3.0
        );
        let reported = format!(
            "{}, {}{of}: {} ({}..{})",
            series.name,
            plot.across.reported(point.x),
            exact(point.y),
            exact(point.low),
            exact(point.high)
        );
        out += &form(series.look, x, y, colour, &reported);
    }
    out + "</g>"
}

/// The form of a point, with its meaning as a tooltip.
fn form(look: usize, x: f64, y: f64, colour: &str, reported: &str) -> String {
    let title = format!("<title>{}</title>", escaped(reported));
    let fill = format!("fill=\"{colour}\" stroke=\"#fff\" stroke-width=\".7\"");
    match look % 4 {
        0 => format!("<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"4\" {fill}>{title}</circle>"),
        1 => format!(
            "<rect x=\"{:.1}\" y=\"{:.1}\" width=\"7.4\" height=\"7.4\" {fill}>{title}</rect>",
            x - 3.7,
            y - 3.7
        ),
        2 => format!("<path d=\"M{x:.1} {:.1}l4.6 8h-9.2z\" {fill}>{title}</path>", y - 5.2),
        _ => format!("<path d=\"M{x:.1} {:.1}l5 5l-5 5l-5 -5z\" {fill}>{title}</path>", y - 5.0),
    }
}

/// The paper's range as a bar next to the line's point, and the target as a dashed stroke across it.
fn mark_svg(plot: &Plot, mark: &Mark, frame: &PlotFrame) -> String {
    let colour = COLOURS[mark.look % COLOURS.len()];
    let number = plot.series.iter().position(|series| series.look == mark.look).unwrap_or(0);
    let x = frame.x(mark.x) + frame.shift(number, plot.series.len());
    let mut out = String::new();
    if let Some((low, high)) = mark.paper {
        let (top, bottom) = (frame.y(high), frame.y(low));
        let _ = write!(
            out,
            "<rect x=\"{:.1}\" y=\"{:.1}\" width=\"12\" height=\"{:.1}\" fill=\"{colour}\" \
                fill-opacity=\".3\" stroke=\"{colour}\">\
             <title>paper {}..{}</title></rect>",
            x - 6.0,
            top - 1.0,
            bottom - top + 2.0,
            exact(low),
            exact(high)
        );
    }
    if let Some(target) = mark.target {
        let y = frame.y(target);
        let _ = write!(
            out,
            "<line x1=\"{:.1}\" x2=\"{:.1}\" y1=\"{y:.1}\" y2=\"{y:.1}\" stroke=\"{colour}\" \
                stroke-width=\"2\" stroke-dasharray=\"4 2\">\
             <title>target {}</title></line>",
            x - 16.0,
            x + 16.0,
            exact(target)
        );
    }
    out
}

/// A moment as a vertical stroke with its name next to it.
fn moment_svg(x: f64, number: usize, what: &str, frame: &PlotFrame) -> String {
    format!(
        "<line x1=\"{x:.1}\" x2=\"{x:.1}\" y1=\"{:.1}\" y2=\"{}\" stroke=\"#d55e00\" stroke-dasharray=\"4 3\"/>\
         <text x=\"{:.1}\" y=\"{:.1}\" fill=\"#d55e00\">{}</text>",
        frame.top,
        HEIGHT - BOTTOM,
        x + 4.0,
        // One name below the other: moments may be close together.
        frame.top + 10.0 + 14.0 * number as f64,
        escaped(what)
    )
}

struct Legend {
    svg: String,
    height: f64,
}

fn legend(plot: &Plot) -> Legend {
    let mut svg = String::new();
    let (mut x, mut y) = (6.0, 32.0);
    let mut names: Vec<(Option<usize>, &str)> =
        plot.series.iter().map(|series| (Some(series.look), series.name.as_str())).collect();
    if plot.marks.iter().any(|mark| mark.target.is_some()) {
        names.push((None, "dashed: target"));
    }
    if plot.marks.iter().any(|mark| mark.paper.is_some()) {
        names.push((None, "box: paper"));
    }
    for (look, name) in names {
        let width = name.chars().count() as f64 * LETTER + 26.0;
        if x + width > WIDTH {
            (x, y) = (6.0, y + 17.0);
        }
        if let Some(look) = look {
            svg += &form(look, x, y - 4.0, COLOURS[look % COLOURS.len()], name);
        }
        let _ = write!(svg, "<text x=\"{:.1}\" y=\"{y:.1}\">{}</text>", x + 9.0, escaped(name));
        x += width;
    }
    Legend { svg, height: y - 20.0 }
}

/// A figure for an axis.
fn short(value: f64) -> String {
    let trimmed = |value: f64| {
        let text = format!("{value:.2}");
        text.trim_end_matches('0').trim_end_matches('.').to_owned()
    };
    match value.abs() {
        large if large >= 1e6 => format!("{}M", trimmed(value / 1e6)),
        large if large >= 1e4 => format!("{}k", trimmed(value / 1e3)),
        _ => trimmed(value),
    }
}

/// A figure with all digits that matter.
fn exact(value: f64) -> String {
    if value.abs() >= 100.0 { format!("{value:.0}") } else { format!("{value:.3}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plot(scale: Scale, values: &[(f64, f64)]) -> Plot {
        let point = |(x, y): &(f64, f64)| Point { x: *x, y: *y, low: y * 0.9, high: y * 1.1 };
        let points = values.iter().map(point).collect();
        let series = vec![PlotSeries { name: "a<b".into(), look: 0, points }];
        let marks = vec![Mark { look: 0, x: values[0].0, paper: Some((0.81, 0.86)), target: Some(0.97) }];
        let across = Across::Connections;
        Plot { title: "t".into(), unit: "u".into(), scale, across, series, marks, moments: Vec::new() }
    }

    #[test]
    fn everything_lies_within_the_paper() {
        for scale in [Scale::FromZero, Scale::Log, Scale::Ratio] {
            let plot = plot(scale, &[(1.0, 0.9), (100.0, 1.2)]);
            let frame = PlotFrame::of(&plot, 20.0);
            for value in [0.81, 0.97, 0.81, 1.32] {
                let y = frame.y(value);
                assert!((frame.top - 0.1..=HEIGHT - BOTTOM + 0.1).contains(&y), "{scale:?} {value}: {y}");
            }
            assert!(frame.ticks().len() >= 2, "{scale:?}");
        }
    }

    #[test]
    fn names_are_escaped_and_one_number_of_connections_is_enough() {
        let text = svg(&plot(Scale::FromZero, &[(50.0, 3.0)]));
        assert!(text.contains("a&lt;b") && !text.contains("a<b"));
        assert!(!text.contains("NaN"));
    }

    #[test]
    fn other_settings_are_divided_evenly_and_things_stand_in_a_row() {
        let mut even = plot(Scale::FromZero, &[(0.0, 1.0), (10.0, 2.0), (40.0, 3.0)]);
        even.across = Across::Even("µs".into());
        even.moments = vec![(10.0, "a<b".into())];
        let frame = PlotFrame::of(&even, 20.0);
        assert_eq!(3.0 * (frame.x(10.0) - frame.x(0.0)), frame.x(40.0) - frame.x(10.0));
        assert!(svg(&even).contains(">µs</text>") && !svg(&even).contains("a<b"));
        let mut listed = plot(Scale::FromZero, &[(0.0, 1.0), (1.0, 2.0)]);
        listed.across = Across::Listed("class".into(), vec!["Item".into(), "all".into()]);
        assert!(svg(&listed).contains(">Item</text>") && svg(&listed).contains(">all</text>"));
        let many: Vec<(f64, f64)> = (-20..80).map(|x| (f64::from(x), 1.0)).collect();
        let mut timeline = plot(Scale::FromZero, &many);
        timeline.across = Across::Even("ms".into());
        assert_eq!(
            PlotFrame::of(&timeline, 20.0).across_ticks(),
            [-20.0, -10.0, 0.0, 10.0, 20.0, 30.0, 40.0, 50.0, 60.0, 70.0]
        );
    }

    #[test]
    fn steps_are_round() {
        assert_eq!([0.7, 1.0, 1.1, 2.3, 180.0].map(round_step), [1.0, 1.0, 2.0, 5.0, 200.0]);
        assert_eq!([0.05, 900.0, 25_000.0, 1.5e6].map(short), ["0.05", "900", "25k", "1.5M"]);
    }
}
