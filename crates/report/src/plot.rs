//! Lines over time, or over another number, as an SVG picture: what a fuzzing campaign, or several of them, have reached, and
//! how costs grow.
//!
//! A pure function of numbers. The picture is light, has its legend at the ends of its lines, and needs
//! nothing but a viewer: no script, no style sheet, no font of its own.

mod ticks;

use std::fmt::Write;

use ticks::{Axis, Tick};

/// Whether a step on an axis adds or multiplies.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Scale {
    /// Adds.
    #[default]
    Linear,
    /// Multiplies. What is not positive is left out.
    Logarithmic,
}

/// One line.
#[derive(Clone, Debug, Default)]
pub struct Series {
    /// What the legend calls it.
    pub name: String,
    /// Seconds since the beginning, or the number that stands for them, and the value there; in ascending order.
    pub points: Vec<(f64, f64)>,
    /// Moments that get a dot, in seconds: when bugs were found.
    pub dots: Vec<f64>,
}

/// A picture.
#[derive(Clone, Debug, Default)]
pub struct Plot {
    /// Above it all.
    pub title: String,
    /// What the values are.
    pub label: String,
    /// What the lines are over, if it is not time.
    pub over: Option<String>,
    /// The scale of time, or of what stands for it.
    pub time: Scale,
    /// The scale of values.
    pub values: Scale,
    /// The lines.
    pub series: Vec<Series>,
}

const WIDTH: f64 = 860.0;
const HEIGHT: f64 = 440.0;
const TOP: f64 = 52.0;
const BOTTOM: f64 = 56.0;
const LEFT: f64 = 84.0;
/// Between lines of text in the legend.
const LINE: f64 = 17.0;
/// About the width of a letter in the legend.
const LETTER: f64 = 7.6;
/// Dots and names beside the lines have room here, at least and at most.
const RIGHT: (f64, f64) = (90.0, 300.0);

/// Colours that people with any kind of sight can tell apart, the strongest first.
const COLOURS: [&str; 7] = [
    "#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#555555",
];

/// The look of the line with this number: colours first, then dashes.
fn stroke(number: usize) -> (&'static str, &'static str) {
    let dashes = ["", "7 4", "2 3"];
    (
        COLOURS[number % COLOURS.len()],
        dashes[number / COLOURS.len() % dashes.len()],
    )
}

impl Plot {
    /// The picture as text.
    pub fn svg(&self) -> String {
        let points = || self.series.iter().flat_map(|series| &series.points);
        let over = points().map(|point| point.0);
        let axes = Axes {
            time: match self.over {
                Some(_) => Axis::values(over, self.time),
                None => Axis::time(over, self.time),
            },
            values: Axis::values(points().map(|point| point.1), self.values),
            right: self.legend_width(),
        };
        let mut out = String::new();
        // Writing into a string cannot fail.
        let _ = self.write(&mut out, &axes);
        out
    }

    /// How wide the legend is.
    fn legend_width(&self) -> f64 {
        let lengths = self
            .series
            .iter()
            .map(|series| legend(series).chars().count());
        let longest = lengths.max().unwrap_or(0);
        #[expect(clippy::cast_precision_loss, reason = "a short text")]
        let width = longest as f64 * LETTER + 24.0;
        width.clamp(RIGHT.0, RIGHT.1)
    }

    fn write(&self, out: &mut String, axes: &Axes) -> std::fmt::Result {
        writeln!(
            out,
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{WIDTH}\" height=\"{HEIGHT}\" \
             viewBox=\"0 0 {WIDTH} {HEIGHT}\" font-family=\"sans-serif\" font-size=\"12\" fill=\"#333333\">"
        )?;
        writeln!(out, "<title>{}</title>", escaped(&self.title))?;
        writeln!(
            out,
            "<rect width=\"100%\" height=\"100%\" fill=\"#ffffff\"/>"
        )?;
        writeln!(
            out,
            "<text x=\"{LEFT}\" y=\"26\" font-size=\"15\" font-weight=\"bold\">{}</text>",
            escaped(&self.title)
        )?;
        if self.series.iter().any(|series| !series.dots.is_empty()) {
            let (x, y) = (axes.end(), 22.0);
            writeln!(
                out,
                "<circle cx=\"{:.1}\" cy=\"{y}\" r=\"3.5\" fill=\"none\" stroke=\"#555555\" stroke-width=\"1.5\"/>",
                x - 88.0
            )?;
            writeln!(
                out,
                "<text x=\"{x:.1}\" y=\"26\" text-anchor=\"end\">new findings</text>"
            )?;
        }
        self.write_axes(out, axes)?;
        if points_of(&self.series) == 0 {
            let (x, y) = (LEFT.midpoint(axes.end()), HEIGHT / 2.0);
            writeln!(
                out,
                "<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"middle\">no data</text>"
            )?;
        }
        for (number, series) in self.series.iter().enumerate() {
            write_line(out, axes, number, series)?;
        }
        self.write_legend(out, axes)?;
        writeln!(out, "</svg>")
    }

    fn write_axes(&self, out: &mut String, axes: &Axes) -> std::fmt::Result {
        let (end, floor) = (axes.end(), HEIGHT - BOTTOM);
        writeln!(out, "<g stroke=\"#e4e4e4\">")?;
        for Tick {
            at, is_labelled, ..
        } in &axes.values.ticks
        {
            let y = axes.y(*at);
            let faint = if *is_labelled {
                ""
            } else {
                " stroke-opacity=\"0.5\""
            };
            writeln!(
                out,
                "<line x1=\"{LEFT}\" x2=\"{end:.1}\" y1=\"{y:.1}\" y2=\"{y:.1}\"{faint}/>"
            )?;
        }
        writeln!(out, "</g>")?;
        writeln!(out, "<g stroke=\"#888888\">")?;
        writeln!(
            out,
            "<line x1=\"{LEFT}\" x2=\"{end:.1}\" y1=\"{floor}\" y2=\"{floor}\"/>"
        )?;
        for Tick {
            at, is_labelled, ..
        } in &axes.time.ticks
        {
            let (x, len) = (axes.x(*at), if *is_labelled { 6.0 } else { 3.0 });
            let y = floor + len;
            writeln!(
                out,
                "<line x1=\"{x:.1}\" x2=\"{x:.1}\" y1=\"{floor}\" y2=\"{y:.1}\"/>"
            )?;
        }
        writeln!(out, "</g>")?;
        for tick in axes.values.labelled() {
            let (x, y) = (LEFT - 8.0, axes.y(tick.at) + 4.0);
            writeln!(
                out,
                "<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"end\">{}</text>",
                tick.text
            )?;
        }
        for tick in axes.time.labelled() {
            let (x, y) = (axes.x(tick.at), floor + 20.0);
            writeln!(
                out,
                "<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"middle\">{}</text>",
                tick.text
            )?;
        }
        let (x, y) = (LEFT.midpoint(end), HEIGHT - 14.0);
        let over = match &self.over {
            Some(over) => escaped(over),
            None => format!("time ({})", axes.time.unit),
        };
        writeln!(
            out,
            "<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"middle\">{over}</text>"
        )?;
        let y = TOP.midpoint(floor);
        writeln!(
            out,
            "<text transform=\"translate(18 {y:.1}) rotate(-90)\" text-anchor=\"middle\">{}</text>",
            escaped(&self.label)
        )
    }

    /// The names of lines, beside their ends, as far apart as text has to be.
    fn write_legend(&self, out: &mut String, axes: &Axes) -> std::fmt::Result {
        let mut names: Vec<(usize, f64)> = self
            .series
            .iter()
            .enumerate()
            .filter_map(|(number, series)| {
                let (_, value) = series.points.last()?;
                Some((number, axes.y(*value)))
            })
            .collect();
        names.sort_by(|left, right| left.1.total_cmp(&right.1));
        spread(&mut names);
        for (number, y) in names {
            let (x, y) = (axes.end() + 12.0, y + 4.0);
            writeln!(
                out,
                "<text x=\"{x:.1}\" y=\"{y:.1}\" fill=\"{}\" font-weight=\"bold\">{}</text>",
                stroke(number).0,
                escaped(&legend(&self.series[number]))
            )?;
        }
        Ok(())
    }
}

fn points_of(series: &[Series]) -> usize {
    series.iter().map(|series| series.points.len()).sum()
}

/// What the legend says of a line.
fn legend(series: &Series) -> String {
    let last = series.points.last().map_or(0.0, |point| point.1);
    format!("{} {}", series.name, ticks::number(last))
}

/// Moves what lies too close apart, downwards first, then all of it up again if it left the picture.
fn spread(names: &mut [(usize, f64)]) {
    for at in 1..names.len() {
        names[at].1 = names[at].1.max(names[at - 1].1 + LINE);
    }
    let mut limit = HEIGHT - BOTTOM;
    for name in names.iter_mut().rev() {
        name.1 = name.1.min(limit);
        limit = name.1 - LINE;
    }
}

/// Where values are on the picture.
struct Axes {
    time: Axis,
    values: Axis,
    right: f64,
}

impl Axes {
    /// Where lines end.
    fn end(&self) -> f64 {
        WIDTH - self.right
    }

    fn x(&self, seconds: f64) -> f64 {
        LEFT + self.time.share(seconds) * (self.end() - LEFT)
    }

    fn y(&self, value: f64) -> f64 {
        let floor = HEIGHT - BOTTOM;
        floor - self.values.share(value) * (floor - TOP)
    }
}

fn write_line(out: &mut String, axes: &Axes, number: usize, series: &Series) -> std::fmt::Result {
    let (colour, dashes) = stroke(number);
    let mut path = String::new();
    // Not more points than a picture can show.
    let mut last: Option<(f64, f64)> = None;
    for (at, point) in series.points.iter().enumerate() {
        if !axes.time.shows(point.0) || !axes.values.shows(point.1) {
            continue;
        }
        let (x, y) = (axes.x(point.0), axes.y(point.1));
        let is_last = at + 1 == series.points.len();
        let is_near = last.is_some_and(|(x_before, y_before)| {
            (x - x_before).abs() < 0.5 && (y - y_before).abs() < 0.5
        });
        if is_near && !is_last {
            continue;
        }
        let command = if last.is_none() { 'M' } else { 'L' };
        write!(path, "{command}{x:.1} {y:.1}")?;
        last = Some((x, y));
    }
    if path.is_empty() {
        return Ok(());
    }
    write!(
        out,
        "<path d=\"{path}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"2\" stroke-linejoin=\"round\""
    )?;
    if !dashes.is_empty() {
        write!(out, " stroke-dasharray=\"{dashes}\"")?;
    }
    writeln!(out, "/>")?;
    for seconds in &series.dots {
        let (x, y) = (axes.x(*seconds), axes.y(value_at(&series.points, *seconds)));
        writeln!(
            out,
            "<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"3.5\" fill=\"#ffffff\" stroke=\"{colour}\" stroke-width=\"1.5\"/>"
        )?;
    }
    Ok(())
}

/// The last value until a moment.
fn value_at(points: &[(f64, f64)], seconds: f64) -> f64 {
    let until = points.partition_point(|point| point.0 <= seconds);
    let point = points.get(until.saturating_sub(1));
    point.map_or(0.0, |point| point.1)
}

/// A text as it may be in XML.
fn escaped(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter {
            '&' => safe.push_str("&amp;"),
            '<' => safe.push_str("&lt;"),
            '>' => safe.push_str("&gt;"),
            '"' => safe.push_str("&quot;"),
            // XML has no way to say most of them.
            letter if letter.is_control() => safe.push('\u{fffd}'),
            letter => safe.push(letter),
        }
    }
    safe
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plot(series: Vec<Series>) -> String {
        let plot = Plot {
            title: "PM paths".into(),
            label: "PM paths".into(),
            series,
            ..Plot::default()
        };
        plot.svg()
    }

    fn line(name: &str, points: &[(f64, f64)]) -> Series {
        Series {
            name: name.into(),
            points: points.to_vec(),
            dots: Vec::new(),
        }
    }

    /// The vertical places of the legend.
    fn legend_places(svg: &str) -> Vec<f64> {
        let names = svg
            .lines()
            .filter(|line| line.contains("fill=\"#") && line.starts_with("<text"));
        let y = names.filter_map(|line| line.split("y=\"").nth(1)?.split('"').next()?.parse().ok());
        y.collect()
    }

    #[test]
    fn a_line_begins_at_the_origin_and_ends_at_the_right() {
        let svg = plot(vec![line("a", &[(0.0, 0.0), (60.0, 100.0)])]);
        let right = WIDTH - RIGHT.0;
        let path = format!(
            "<path d=\"M{LEFT:.1} {:.1}L{right:.1} {TOP:.1}\"",
            HEIGHT - BOTTOM
        );
        assert!(svg.contains(&path), "no {path} in {svg}");
        assert!(svg.contains(">time (s)</text>"), "{svg}");
        assert!(svg.contains(">a 100</text>"), "{svg}");
    }

    #[test]
    fn lines_can_be_over_another_number_than_time() {
        let plot = Plot {
            over: Some("failure points".into()),
            time: Scale::Logarithmic,
            series: vec![line("a", &[(10.0, 1.0), (10_000.0, 2.0)])],
            ..Plot::default()
        };
        let svg = plot.svg();
        assert!(svg.contains(">failure points</text>"), "{svg}");
        assert!(
            svg.contains(">10,000</text>") && !svg.contains("time ("),
            "{svg}"
        );
    }

    #[test]
    fn names_are_escaped() {
        let svg = plot(vec![line("<b> & \"c\"\u{1}", &[(0.0, 1.0)])]);
        assert!(
            svg.contains("&lt;b&gt; &amp; &quot;c&quot;\u{fffd}"),
            "{svg}"
        );
        assert!(!svg.contains("<b>"), "{svg}");
    }

    #[test]
    fn names_of_lines_that_end_together_are_apart_and_inside() {
        for value in [0.0, 50.0, 100.0] {
            let mut lines = vec![line("high", &[(0.0, 100.0), (1.0, 100.0)])];
            lines.extend((0..8).map(|_| line("same", &[(0.0, value), (1.0, value)])));
            let mut places = legend_places(&plot(lines));
            assert_eq!(places.len(), 9);
            places.sort_by(f64::total_cmp);
            for pair in places.windows(2) {
                assert!(pair[1] - pair[0] > LINE - 0.2, "{places:?}");
            }
            assert!(
                places[0] >= TOP - 5.0 && places[8] <= HEIGHT - BOTTOM + 5.0,
                "{places:?}"
            );
        }
    }

    #[test]
    fn points_that_cannot_be_seen_are_left_out() {
        let points: Vec<_> = (0..100_000)
            .map(|at| (f64::from(at), f64::from(at)))
            .collect();
        let svg = plot(vec![line("a", &points)]);
        assert!(svg.len() < 40_000, "{}", svg.len());
        assert!(
            svg.contains(&format!("L{:.1} ", WIDTH - RIGHT.0)),
            "the last point is there"
        );
    }

    #[test]
    fn nothing_to_draw_is_said() {
        assert!(plot(Vec::new()).contains("no data"));
        let svg = plot(vec![line("a", &[])]);
        assert!(svg.contains("no data") && !svg.contains("NaN"), "{svg}");
    }

    #[test]
    fn dots_lie_on_the_line() {
        let mut series = line("a", &[(0.0, 0.0), (30.0, 50.0), (60.0, 100.0)]);
        series.dots = vec![30.0];
        let svg = plot(vec![series]);
        let x = LEFT.midpoint(WIDTH - RIGHT.0);
        let y = TOP.midpoint(HEIGHT - BOTTOM);
        assert!(
            svg.contains(&format!("<circle cx=\"{x:.1}\" cy=\"{y:.1}\"")),
            "{svg}"
        );
    }

    #[test]
    fn more_lines_than_colours_are_dashed() {
        let lines = (0..8).map(|number| line("a", &[(0.0, f64::from(number))]));
        let svg = plot(lines.collect());
        assert_eq!(svg.matches("stroke-dasharray").count(), 1);
    }
}
